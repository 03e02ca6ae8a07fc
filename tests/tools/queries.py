"""The queries that functions ask, as the log has them; `python tests/tools/queries.py` writes that of docs/architecture.md."""

import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import loopring_lab as lab

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
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
    "schedule_lines": {"schedule": [{"fill_type": "amm", "bps": 10}, {"bps": 20}]},
    "pool_returns": {"pool_account": POOL},
}
# These take what another function found.
OF_ANSWERS = ("break_test", "crossing", "describe")
# Of these an answer by row and one by group are different queries.
ALSO_BY_GROUP = ("price_gap", "all_in_cost", "in_token")


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
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
    for room in ("fees", "fills"):
        module = getattr(lab, room)
        for name in module.__all__:
            if name in OF_ANSWERS:
                continue
            function = getattr(module, name)
            given = NEEDED.get(name, {})
            trades = samples[POOL if name == "pool_returns" else ACCOUNT]
            yield from _asked(f"lab.{room}.{name}", function, trades, given)
            if name in ALSO_BY_GROUP:
                yield from _asked(
                    f"lab.{room}.{name}", function, trades, given | {"by": "market"}
                )


def _asked(
    name: str, function: Callable[..., Any], trades: Any, given: dict[str, Any]
) -> Iterator[tuple[str, list[str]]]:
    texts = logged(lambda: function(trades, **given))
    if texts:
        arguments = "".join(f", {key}={value!r}" for key, value in given.items())
        yield f"{name}(trades{arguments})", texts


def one_question() -> str:
    """Return the steps of `lab.fills.all_in_cost(trades)`, after the one that reads the trades."""
    trades = lab.connect().trades(ACCOUNT, limit=FEW)
    text = logged(lambda: lab.fills.all_in_cost(trades))[-1]
    return "```sql\n" + text[text.index("spans AS (") :].strip() + "\n```\n"


if __name__ == "__main__":
    page = ARCHITECTURE.read_text(encoding="utf-8")
    ARCHITECTURE.write_text(
        BLOCK.sub(lambda _: one_question(), page, count=1), encoding="utf-8"
    )
