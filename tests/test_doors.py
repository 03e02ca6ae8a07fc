"""Every door for untrusted text against hostile members, in a process of its own that may be killed."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import hostile_doors

LIMIT = 300  # seconds; a hang would take longer than anything


@pytest.fixture(scope="module")
def child() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "support.hostile_doors"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )


@pytest.fixture(scope="module")
def outcomes(child: subprocess.CompletedProcess[str]) -> list[list[Any]]:
    return [outcome for outcome in map(json.loads, child.stdout.splitlines()) if isinstance(outcome, list)]


@pytest.mark.thorough
def test_no_hostile_member_kills_the_process(
    child: subprocess.CompletedProcess[str], outcomes: list[list[Any]]
) -> None:
    assert child.returncode == 0, (child.stderr[-2_000:], outcomes[-1:])
    counts = Counter(door for door, *_ in outcomes)
    assert counts == Counter(door for door, *_ in hostile_doors.cases())
    assert sum(counts.values()) > 5_000


@pytest.mark.thorough
def test_each_is_read_or_refused_with_an_error_of_ours(outcomes: list[list[Any]]) -> None:
    """A short one; the program reports any other as a problem."""
    assert [outcome for outcome in outcomes if outcome[3]] == []


@pytest.mark.thorough
def test_none_takes_long_or_much_memory(child: subprocess.CompletedProcess[str], outcomes: list[list[Any]]) -> None:
    assert [outcome for outcome in outcomes if outcome[4] >= 1] == []
    assert json.loads(child.stdout.splitlines()[-1])["grown"] < 200e6
