"""The public interface changes on purpose only: every name and signature is recorded in public_api.txt."""

import pytest
from tools.public_api import RECORDED, listing

pytestmark = pytest.mark.contract


def test_public_names_and_signatures_are_the_recorded_ones():
    """To accept a change, run ``python tests/tools/public_api.py``."""
    recorded = RECORDED.read_text(encoding="utf-8")
    assert listing().splitlines() == recorded.splitlines()
