"""Fees of many tokens in one: valued by the last trade at or before each fill."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import absent, as_array, from_integers, integers
from loopring_lab.engines import adapters, convert
from loopring_lab.engines.adapters import group_keys
from loopring_lab.engines.aggregate import Groups, answer
from loopring_lab.engines.asof import NEVER, latest, milliseconds
from loopring_lab.errors import LabError

__all__ = ["in_token"]

UNIT = 10**18
WHAT = "fees.in_token"


def in_token(trades: Any, token: str, prices: Any = None, by: str | Sequence[str] | None = None) -> Any:
    """Value each fill's fee in one token.

    The value follows the shortest path of markets from the fee token to `token` that have traded by then (of
    several the first in the order of names) and takes on each of them the last trade at or before the fill.
    No later price is used.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    token : str
        Symbol to value fees in, such as ``"USDT"``.
    prices : frame of pandas, pyarrow or Polars, optional
        Trades to take prices from: ``created_at``, ``base``, ``quote`` and ``price``. By default `trades`.
    by : str or sequence of str, optional
        Sum up by these columns and ``fee_token``; ``[]`` for ``fee_token`` alone.

    Returns
    -------
    frame of the same kind
        The trades with ``fee_value`` (units of ``value_token``, which is `token`; each step cut at 18
        decimals), ``value_path``, such as ``"LRC>ETH>USDT"``, and ``priced_at``, the moment of the oldest
        price used; null where there was no price yet. With `by` a row for each group: ``fills``,
        ``unpriced`` (fills without a value), ``fee``, ``fee_value`` and ``value_token``; sums of the known.

    Raises
    ------
    LabError
        The frame is not one of trades, its engine does not hold it in memory, or no price leads to `token`.
    AmountError
        An amount is not an exact decimal, or a value does not fit.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> lab.fees.in_token(trades, "USDC", by=[])[["fee_token", "fee", "fee_value"]].head(2)
      fee_token                   fee             fee_value
    0       DAI  1.579216000000000000  1.569800138645561512
    1       ENJ  1.787064000000000000  4.813791536722362352
    """
    names = None if by is None else group_keys(by, WHAT, "fee_value", "value_token")
    fills = convert.to_pandas(trades, WHAT, ["created_at", "fee_token", "fee", *(names or [])])
    known = convert.to_pandas(
        trades if prices is None else prices, WHAT, ["created_at", "base", "quote", "price"]
    )
    market = _Market(known)
    if len(fills):
        _check(token, {*market.names, *fills["fee_token"].dropna()})
    value, path, priced_at = _valued(fills, token, market)
    columns = {
        "fee_value": from_integers(value, adapters.WIDE),
        "value_token": pa.array([token] * len(fills), pa.string()),
        "value_path": pa.array(path, pa.string()),
        "priced_at": pa.array(priced_at, pa.timestamp("ms", "UTC"), mask=priced_at == NEVER),
    }
    if names is None:
        return convert.with_columns(trades, columns)
    keys = list(dict.fromkeys([*names, "fee_token"]))
    table = pa.Table.from_pandas(fills[[*keys, "fee"]], preserve_index=False).append_column(
        "fee_value", columns["fee_value"]
    )
    table = table.append_column("fills", pa.array(np.ones(len(fills), np.int64)))
    groups = Groups(convert.plain(table), keys)
    unpriced = groups.sum("fills", columns["fee_value"].is_null().to_numpy(zero_copy_only=False))
    return answer(
        trades,
        {name: groups.key(name) for name in keys}
        | {"fills": groups.sum("fills"), "unpriced": pc.fill_null(unpriced, 0)}
        | {name: groups.sum(name) for name in ("fee", "fee_value")}
        | {"value_token": pa.array([token] * groups.count, pa.string())},
    )


class _Pair(NamedTuple):
    """Trades of one base and quote, oldest first: moments in milliseconds, prices in 1e-18."""

    moments: np.ndarray
    prices: np.ndarray


class _Market:
    """Every pair of tokens that has traded, and since when."""

    def __init__(self, frame: pd.DataFrame) -> None:
        moments, prices = milliseconds(frame["created_at"]), integers(as_array(frame["price"]))
        usable = (moments != NEVER) & np.array([price is not None and price > 0 for price in prices], bool)
        usable &= (frame["base"].notna() & frame["quote"].notna()).to_numpy()
        self.pairs: dict[tuple[str, str], _Pair] = {}
        rows = frame.loc[usable, ["base", "quote"]].astype(str)
        for (base, quote), place in rows.groupby(["base", "quote"], sort=True).indices.items():
            mine = np.flatnonzero(usable)[place]
            mine = mine[np.argsort(moments[mine], kind="stable")]
            self.pairs[base, quote] = _Pair(moments[mine], prices[mine])
        self.names = sorted({name for pair in self.pairs for name in pair})
        self.events = np.unique([pair.moments[0] for pair in self.pairs.values()]).astype(np.int64)

    def path(self, start: str, end: str, event: int) -> list[tuple[str, str]] | None:
        """Find the pairs that lead from one token to another after so many events."""
        reached: dict[str, list[tuple[str, str]]] = {start: []}
        queue = deque([start])
        open_pairs = [
            key for key, pair in self.pairs.items() if event and pair.moments[0] <= self.events[event - 1]
        ]
        while queue and end not in reached:
            here = queue.popleft()
            for there, pair in sorted((pair[pair[0] == here], pair) for pair in open_pairs if here in pair):
                if there not in reached:
                    reached[there] = [*reached[here], pair]
                    queue.append(there)
        return reached.get(end)


def _valued(
    fills: pd.DataFrame, token: str, market: _Market
) -> tuple[np.ndarray, list[str | None], np.ndarray]:
    moments, fees = milliseconds(fills["created_at"]), integers(as_array(fills["fee"]))
    value, priced_at = np.full(len(fills), None, object), np.full(len(fills), NEVER, np.int64)
    path: np.ndarray = np.full(len(fills), None, object)
    event = np.searchsorted(market.events, moments, "right")
    ready = ~absent(fees) & (moments != NEVER)
    wanted = pd.DataFrame({"token": fills["fee_token"].astype(object), "event": event})[ready]
    for (start, reached), place in wanted.groupby(["token", "event"], sort=True).indices.items():
        pairs = market.path(start, token, int(reached))
        if pairs is None:
            continue
        mine = np.flatnonzero(ready)[place]
        value[mine], priced_at[mine] = _along(pairs, start, fees[mine], moments[mine], market)
        path[mine] = ">".join([start, *_stops(pairs, start)])
    return value, path.tolist(), priced_at


def _along(
    pairs: list[tuple[str, str]], here: str, value: np.ndarray, moments: np.ndarray, market: _Market
) -> tuple[np.ndarray, np.ndarray]:
    oldest = moments.copy()
    zeros = np.zeros(len(moments), np.int64)
    for pair in pairs:
        known = market.pairs[pair]
        place = latest(moments, zeros, known.moments, np.zeros(len(known.moments), np.int64))
        price = known.prices[place]
        value = value * price // UNIT if pair[0] == here else value * UNIT // price
        oldest = np.minimum(oldest, known.moments[place])
        here = pair[pair[0] == here]
    return value, oldest


def _stops(pairs: list[tuple[str, str]], here: str) -> list[str]:
    stops = []
    for pair in pairs:
        here = pair[pair[0] == here]
        stops.append(here)
    return stops


def _check(token: Any, names: set[str]) -> None:
    if not isinstance(token, str) or token not in names:
        near = difflib.get_close_matches(str(token), sorted(names), 1)
        hint = (
            f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(sorted(names)) or 'no tokens'}."
        )
        raise LabError(f"{WHAT}: no price and no fee is in {token!r}. {hint}")
