"""Research on venues and pools: flow, routing, liquidity, cost curves, changes. Trades in, frames of the same kind out.

Nothing that `fees`, `fills` or `figures` do needs this room, so a newcomer may leave it for later.

`flow` tells arbitrageurs from users by their orders. `routing` asks what orders on the book would have cost at the
pool, and `liquidity` what the pool's own position earned; `reserves` has the balances that both look up, and
`earnings` sums up the second. `curves` are costs by size, fitted in `curve_fit`, and `changes` the difference of the
venues by period. `sentences` say in words what was found, and `figures` draw it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from loopring_lab.research.changes import changes
from loopring_lab.research.curves import cost_curves, crossing
from loopring_lab.research.flow import with_flow
from loopring_lab.research.liquidity import liquidity
from loopring_lab.research.routing import pool_quotes
from loopring_lab.research.sentences import describe

if TYPE_CHECKING:
    from loopring_lab.research import figures

__all__ = [
    "changes",
    "cost_curves",
    "crossing",
    "describe",
    "figures",
    "liquidity",
    "pool_quotes",
    "with_flow",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Load the figures when one is first drawn, as they bring matplotlib."""
    if name == "figures":
        return import_module(f"{__name__}.figures")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
