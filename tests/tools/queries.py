"""The queries that functions ask, as the log has them; `python tests/tools/queries.py` writes that of docs/question.md."""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

import loopring_lab as lab

PAGE = Path(__file__).parents[2] / "docs" / "question.md"
BLOCK = re.compile(r"```sql\n.*?```\n", re.DOTALL)
ACCOUNT = 10083
POOL = 15
# Few enough that the small table of daily prices, which some queries begin with, is short.
FEW = 20
# Arguments without a default.
NEEDED: dict[str, dict[str, Any]] = {
    "over_time": {"every": "1w"},
    "in_token": {"token": "ETH"},
    "schedule_check": {"schedule": [{"fill_type": "amm", "bps": 10}, {"bps": 20}]},
    "with_flow": {"prices": lambda client, trades: client.outside_prices(trades)},
    "pool_quotes": {"balances": lambda client, trades: _reserves(trades)},
}
# These ask about a pool's trades.
OF_POOLS = ("liquidity",)
# These take what another function found.
OF_ANSWERS = ("crossing", "describe")
# Of these an answer by row and one by group are different queries.
ALSO_BY_GROUP = ("price_gap", "all_in_cost", "in_token")


class _Kept(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord):
        self.texts.append(record.getMessage())


def logged(ask: Callable[[], Any]) -> list[str]:
    """Return the queries that a call asks."""
    log = logging.getLogger("loopring_lab.sql")
    level = log.level
    kept = _Kept()
    log.addHandler(kept)
    log.setLevel(logging.DEBUG)
    try:
        ask()
    finally:
        log.removeHandler(kept)
        log.setLevel(level)
    return kept.texts


def queries() -> Iterator[tuple[str, list[str]]]:
    """Yield each call of a function of trades, on the sample account, with the queries that it asks."""
    client = lab.connect()
    samples = {
        account: client.trades(account, limit=FEW) for account in (ACCOUNT, POOL)
    }
    for room in ("fees", "fills", "research"):
        module = getattr(lab, room)
        for name in module.__all__:
            if name == "figures" or name in OF_ANSWERS:
                continue
            function = getattr(module, name)
            trades = samples[POOL if name in OF_POOLS else ACCOUNT]
            given = {
                argument: value(client, trades) if callable(value) else value
                for argument, value in NEEDED.get(name, {}).items()
            }
            yield from _asked(f"lab.{room}.{name}", function, trades, given)
            if name in ALSO_BY_GROUP:
                yield from _asked(
                    f"lab.{room}.{name}", function, trades, given | {"by": "market"}
                )


def _reserves(trades):
    """Return balances of pools in the markets of trades; which they are does not change the query."""
    known = trades[["created_at", "market"]].drop_duplicates("market")
    balances = known.assign(base_decimals=18, quote_decimals=18)
    amounts = {"base_balance": "1000000", "quote_balance": "1000"}
    return balances.assign(**amounts).astype(dict.fromkeys(amounts, "amount"))


def _asked(name, function, trades, given):
    texts = logged(lambda: function(trades, **given))
    if texts:
        arguments = "".join(
            f", {key}={key if isinstance(value, pd.DataFrame) else repr(value)}"
            for key, value in given.items()
        )
        yield f"{name}(trades{arguments})", texts


def one_question() -> str:
    """Return the steps of `lab.fills.all_in_cost(trades)`, after the one that reads the trades."""
    trades = lab.connect().trades(ACCOUNT, limit=FEW)
    text = logged(lambda: lab.fills.all_in_cost(trades))[-1]
    return "```sql\n" + text[text.index("spans AS (") :].strip() + "\n```\n"


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        BLOCK.sub(lambda _: one_question(), page, count=1), encoding="utf-8"
    )
