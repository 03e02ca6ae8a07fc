"""Fees: what was charged, in which token, at which rate. Trades in, a frame of the same kind out.

Amounts in different tokens are never added up: an amount is null where its group mixes tokens. The functions
take pandas, pyarrow, Polars, DuckDB and Spark frames and archives, and return the same numbers for all of them.
Start with `summary`, which is one short question. `tiers` infers at which tier a fee was charged, `schedule` compares
fees with what was promised, `valuation` values them in one token, and `sentences` says it in words.
"""

from loopring_lab.fees.schedule import schedule_check
from loopring_lab.fees.sentences import describe
from loopring_lab.fees.summary import over_time, summary
from loopring_lab.fees.tiers import tiers, with_tiers
from loopring_lab.fees.valuation import in_token

__all__ = [
    "describe",
    "in_token",
    "over_time",
    "schedule_check",
    "summary",
    "tiers",
    "with_tiers",
]


def __dir__() -> list[str]:
    return sorted(__all__)
