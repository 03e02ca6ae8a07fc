"""What every figure asks of its trades: how many there are, over which time, and whose sides they are."""

from __future__ import annotations

from typing import Any, NamedTuple

from loopring_lab.engine.ask import ask_table, given
from loopring_lab.engine.groups import DAY
from loopring_lab.engine.notes import note_on_both_sides
from loopring_lab.engine.question import Question

STEPS = {
    "fills": """
-- each trade id: its rows, their times, and whether both sides are among them
SELECT trade_id,
    count(*) AS trades,
    min(ms) AS first,
    max(ms) AS last,
    bool_or(side = 'BUY') AND bool_or(side = 'SELL') AS has_both_sides
FROM trades
GROUP BY trade_id""",
    "sums": """
-- the same of all fills of a market
SELECT CAST(sum(trades) AS BIGINT) AS trades,
    min(first) AS first,
    max(last) AS last,
    count(*) FILTER (WHERE trade_id IS NOT NULL AND has_both_sides) AS both_sides
FROM fills""",
    "answer": """
-- and of all markets
SELECT CAST(sum(trades) AS BIGINT) AS trades,
    min(first) AS first,
    max(last) AS last,
    CAST(sum(both_sides) AS BIGINT) AS both_sides
FROM sums""",
}

ACCOUNTS = {
    "sums": """
-- each account of a market
SELECT DISTINCT account_id
FROM trades""",
    "answer": """
-- and how many there are
SELECT count(DISTINCT account_id) AS accounts
FROM sums""",
}


class Overview(NamedTuple):
    """How many trades there are, the days from the first to the last, and the note on fills counted twice."""

    trades: int
    days: float
    note: str


def overview_of(trades: Any, caller: str) -> Overview:
    """Look once over all trades."""
    # All of them may be missing: a figure that needs one says so by itself.
    columns = ("created_at", "trade_id", "side")
    question = Question(caller, STEPS, needs=(), may_have=columns)
    (found,) = ask_table(question, given(trades, caller)).to_pylist()
    # Without a known time nothing is covered.
    days = 0.0
    if found["first"] is not None:
        days = (found["last"] - found["first"]) / DAY
    return Overview(
        found["trades"] or 0,
        days,
        note_on_both_sides(found["both_sides"] or 0),
    )


def count_accounts(trades: Any, caller: str) -> int:
    """Count the accounts whose trades these are."""
    question = Question(caller, ACCOUNTS, needs=(), may_have=("account_id",))
    (found,) = ask_table(question, given(trades, caller)).to_pylist()
    return int(found["accounts"])
