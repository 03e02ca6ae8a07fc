"""A checker of types knows what kind of frame an answer is: that of the trades, and pandas for an archive."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = """
import duckdb
import pandas as pd

import loopring_lab as lab

client = lab.connect()
trades = client.trades(account_id=10083)
relation = duckdb.read_parquet("trades/*.parquet")
archive = lab.Archive("trades.duckdb")

reveal_type(lab.fees.summary(trades, by="market"))
reveal_type(lab.fees.with_tiers(trades, client.tokens()))
reveal_type(lab.fees.schedule_check(trades, 30)["verdict"].value_counts())
reveal_type(lab.fills.with_roles(trades))
reveal_type(lab.fills.compare_venues(lab.fills.one_side(trades)))
reveal_type(lab.research.crossing(lab.research.cost_curves(trades)))
reveal_type(lab.fees.over_time(relation))
reveal_type(lab.fills.all_in_cost(archive, by="market"))
lab.fees.summary([trades])
"""
FRAME = "pandas.core.frame.DataFrame"
REVEALED = [
    FRAME,
    FRAME,
    "pandas.core.series.Series[int]",
    FRAME,
    FRAME,
    FRAME,
    "duckdb._relation.DuckDBPyRelation",
    FRAME,
]


@pytest.mark.thorough
def test_a_script_is_checked_after_its_first_call(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, "-m", "mypy", "--strict", str(script)]
    said = subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout
    assert re.findall(r'Revealed type is "(.*)"', said) == REVEALED
    (error,) = re.findall(r"error: (.*)", said)
    assert error.startswith('Argument 1 to "summary" has incompatible type "list[')
