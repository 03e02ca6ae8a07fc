"""What can be asked about trades: a relayer answers it, or a recording of its answers, or blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from loopring_lab import tables
from loopring_lab.tables.identity import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from loopring_lab.arguments import Moment
    from loopring_lab.progress import Watching
    from loopring_lab.sources.records import Exchange


class TradeSource(Protocol):
    """What `Client`, `sources.Recording` and `sources.BlocksClient` answer: all that analyses and figures need."""

    @property
    def source(self) -> str:
        """Name of the source."""

    @property
    def synthetic(self) -> bool:
        """Whether the data is synthetic."""

    @property
    def accounts(self) -> list[int] | None:
        """Accounts known to have trades."""

    def tokens(self) -> pd.DataFrame:
        """Return the tokens."""

    def markets(self) -> pd.DataFrame:
        """Return the markets."""

    def trades(
        self,
        account_id: int | Iterable[int] | None = None,
        market: str | None = None,
        *,
        fill_type: str | None = None,
        since: Moment = None,
        until: Moment = None,
        limit: int | None = None,
        progress: Watching = None,
    ) -> pd.DataFrame:
        """Return trades, oldest first."""

    def count(self, account_id: int, fill_type: str | None = None) -> int:
        """Return how many trades of an account there are."""

    def outside_prices(
        self, trades: Any, every: str = "1min", *, progress: Watching = None
    ) -> pd.DataFrame | None:
        """Return what an outside market showed, where that is known."""

    def exchange(self) -> Exchange:
        """Return which exchange the trades are of."""

    def close(self) -> None:
        """Close what is kept open."""


def labels(client: TradeSource) -> dict[str, Any]:
    """Return what a frame says in its ``attrs`` of where it is from."""
    return {"source": client.source, "synthetic": client.synthetic}


def labelled(frame: pd.DataFrame, client: TradeSource) -> pd.DataFrame:
    """Return a copy of a frame that says where it is from: clients keep listings, and callers change what they get."""
    copy = frame.copy()
    copy.attrs |= labels(client)
    return copy


def refuse_contradictions(
    trades: pd.DataFrame, account_id: int | None, hint: str
) -> None:
    """Refuse rows of another account than the one asked for, and fills that stand under both fill types."""
    if account_id is not None:
        owners = trades["account_id"].value_counts().to_dict()
        tables.refuse_other_accounts(owners, account_id)
    # Rows that are no trades have no identity.
    fills = trades.loc[trades["trade_id"].notna(), [*IDENTITY, "fill_type"]]
    shared = fills.drop_duplicates().duplicated(IDENTITY).sum()
    tables.refuse_shared_fills(int(shared), hint)


MEMBERS = [name for name in vars(TradeSource) if not name.startswith("_")]


def is_trade_source(value: object) -> TypeGuard[TradeSource]:
    """Tell whether something answers as a client does.

    Its type is asked, not the object: to look up the accounts of blocks reads their file.
    """
    return all(hasattr(type(value), name) for name in MEMBERS)
