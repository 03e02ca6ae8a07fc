"""The page "pandas with exact amounts": every operation in its table gives the result and the dtype beside it."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from loopring_lab.amounts.dtype import multiply

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "exact-amounts.md").read_text(
    encoding="utf-8"
)
ROWS = re.findall(r"^\| `(.+?)` \| `(.+?)` \| (\w+) \|$", PAGE, re.MULTILINE)
BLOCKS = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
# The frame, and what operations on the page are written with.
SETUP = next(block for block in BLOCKS if "g = t.groupby" in block)


@pytest.fixture(scope="module")
def known():
    lab = SimpleNamespace(amounts=SimpleNamespace(multiply=multiply))
    found: dict[str, Any] = {"pd": pd, "np": np, "lab": lab}
    exec(SETUP, found)
    return found


def written(found):
    """Return a result as the page writes it, and its dtype."""
    if isinstance(found, (pd.Series, np.ndarray)):
        return ", ".join(map(str, found)), str(found.dtype)
    return str(found), str(getattr(found, "dtype", type(found).__name__.lower()))


@pytest.mark.parametrize(
    ("operation", "result", "dtype"), ROWS, ids=[row[0] for row in ROWS]
)
def test_the_page_tells_what_operations_give(operation, result, dtype, known):
    assert written(eval(operation, dict(known))) == (result, dtype)


def test_forty_operations_are_on_the_page():
    assert len(ROWS) >= 40


def test_a_new_session_knows_amounts_after_the_imports_of_the_page():
    *lines, claim = BLOCKS[0].splitlines()
    program = "\n".join([*lines, f"print({claim.partition('#')[0]})"])
    found = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert found.stdout == b"True\n", found.stderr
