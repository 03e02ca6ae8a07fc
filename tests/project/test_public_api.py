"""The public interface changes on purpose only: every name and signature is recorded in public_api.txt."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.contract

TESTS = Path(__file__).parents[1]


def test_public_names_and_signatures_are_the_recorded_ones():
    """To accept a change, run ``python tests/tools/public_api.py`` and note it in CHANGELOG.md."""
    code = "from tools.public_api import listing; print(listing(), end='')"
    listed = subprocess.check_output([sys.executable, "-c", code], cwd=TESTS, text=True)
    assert (
        listed.splitlines()
        == (TESTS / "public_api.txt").read_text(encoding="utf-8").splitlines()
    )
