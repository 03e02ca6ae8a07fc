"""Fees of many tokens valued in one, by the last trade at or before each fill."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.scaling import as_array, from_integers, is_none, is_positive, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import DECIMAL_256, TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import GroupBy, result_frame
from loopring_lab.engines.asof import NAT, milliseconds
from loopring_lab.errors import LabError

UNIT = 10**18
CALLER = "fees.in_token"

Pair = tuple[str, str]


def in_token(trades: Any, token: str, prices: Any = None, by: str | Sequence[str] | None = None) -> Any:
    """Value each fill's fee in one token.

    The value follows the shortest path of markets from the fee token to `token` among those that have traded
    by then (the first by name if there are several), using the last trade at or before the fill in each. No
    later price is used.

    Parameters
    ----------
    trades : frame of pandas, pyarrow or Polars
        From `Client.trades`.
    token : str
        Symbol to value fees in, such as ``"USDT"``.
    prices : frame of pandas, pyarrow or Polars, optional
        Trades to take prices from: ``created_at``, ``base``, ``quote`` and ``price``. By default `trades`.
    by : str or sequence of str, optional
        Sum by these columns and ``fee_token``; ``[]`` for ``fee_token`` alone.

    Returns
    -------
    frame of the same kind
        The trades with ``fee_value`` (units of ``value_token``, which is `token`; each step truncated to 18
        decimals), ``value_path``, such as ``"LRC>ETH>USDT"``, and ``priced_at``, the time of the oldest
        price used; null where there was no price yet. With `by`, one row per group: ``fills``, ``unpriced``
        (fills without a value), ``fee``, ``fee_value`` and ``value_token``; sums cover known amounts only.

    Raises
    ------
    LabError
        The frame does not hold trades, its engine does not hold it in memory, or no market trades `token`.
    AmountError
        An amount is not an exact decimal, or a value does not fit.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fees.in_token(trades, "USDC", by=[])[["fee_token", "fee", "fee_value"]].head(2)
      fee_token                   fee             fee_value
    0       DAI  1.579216000000000000  1.569800138645561512
    1       ENJ  1.787064000000000000  4.813791536722362352
    """
    names = None if by is None else group_keys(by, CALLER, "fee_value", "value_token")
    fills = convert.to_pandas(trades, CALLER, ["created_at", "fee_token", "fee", *(names or [])])
    source = trades if prices is None else prices
    market = _Market(convert.to_pandas(source, CALLER, ["created_at", "base", "quote", "price"]))
    if len(fills):
        _check_token(token, {*market.tokens, *fills["fee_token"].dropna()})
    columns = _value_fees(fills, token, market)
    if names is None:
        return convert.with_columns(trades, columns)
    keys = list(dict.fromkeys([*names, "fee_token"]))
    table = convert.normalize(pa.Table.from_pandas(fills[[*keys, "fee"]], preserve_index=False))
    table = table.append_column("fee_value", columns["fee_value"])
    table = table.append_column("fills", pa.array(np.ones(len(fills), np.int64)))
    groups = GroupBy(table, keys)
    sums = {
        "fills": groups.sum("fills"),
        "unpriced": groups.sum("fills", np.asarray(columns["fee_value"].is_null())).fill_null(0),
        "fee": groups.sum("fee"),
        "fee_value": groups.sum("fee_value"),
        "value_token": pa.array([token] * groups.count, pa.string()),
    }
    return result_frame(trades, groups.key_columns() | sums)


def _check_token(token: Any, tokens: set[str]) -> None:
    if not isinstance(token, str) or token not in tokens:
        near = difflib.get_close_matches(str(token), sorted(tokens), 1)
        hint = f"Known tokens: {', '.join(sorted(tokens)) or 'none'}."
        if near:
            hint = f"Did you mean {near[0]!r}?"
        raise LabError(f"{CALLER}: no price and no fee is in {token!r}. {hint}")


class _PriceHistory(NamedTuple):
    """Prices of a pair of tokens, oldest first: times in milliseconds, prices in 1e-18."""

    times: np.ndarray
    prices: np.ndarray


class _Market:
    """Every pair of tokens that has traded, and when its first trade was."""

    def __init__(self, frame: pd.DataFrame) -> None:
        times, prices = milliseconds(frame["created_at"]), to_integers(as_array(frame["price"]))
        usable = (times != NAT) & is_positive(prices)
        rows = (
            frame[["base", "quote"]]
            .assign(time=times, price=prices)[usable]
            .sort_values("time", kind="stable")
        )
        self.pairs: dict[Pair, _PriceHistory] = {
            (str(base), str(quote)): _PriceHistory(pair["time"].to_numpy(), pair["price"].to_numpy())
            for (base, quote), pair in rows.groupby(["base", "quote"], sort=True, observed=True)
        }
        self.tokens = {token for pair in self.pairs for token in pair}
        self.first_trades = np.unique(
            np.array([history.times[0] for history in self.pairs.values()], np.int64)
        )

    def path(self, start: str, end: str, traded: int) -> list[Pair] | None:
        """Find the shortest path between two tokens over the pairs that have traded by then."""
        paths: dict[str, list[Pair]] = {start: []}
        queue = deque([start])
        open_pairs = []
        if traded:
            latest = self.first_trades[traded - 1]
            open_pairs = [pair for pair, history in self.pairs.items() if history.times[0] <= latest]
        while queue and end not in paths:
            token = queue.popleft()
            for other, pair in sorted((_other(pair, token), pair) for pair in open_pairs if token in pair):
                if other not in paths:
                    paths[other] = [*paths[token], pair]
                    queue.append(other)
        return paths.get(end)


def _other(pair: Pair, token: str) -> str:
    return pair[1] if pair[0] == token else pair[0]


def _value_fees(fills: pd.DataFrame, token: str, market: _Market) -> dict[str, pa.Array]:
    times, fees = milliseconds(fills["created_at"]), to_integers(as_array(fills["fee"]))
    values, priced_at = np.full(len(fills), None, object), np.full(len(fills), NAT, np.int64)
    names = np.full(len(fills), None, object)
    traded = np.searchsorted(market.first_trades, times, "right")
    known = np.flatnonzero(~is_none(fees) & (times != NAT))
    routes = pd.DataFrame({"token": fills["fee_token"].astype(object), "traded": traded}).iloc[known]
    groups: Any = routes.groupby(["token", "traded"], sort=True).indices
    for (start, count), places in groups.items():
        path = market.path(start, token, int(count))
        if path is not None:
            rows = known[places]
            values[rows], priced_at[rows] = _follow(path, start, fees[rows], times[rows], market)
            names[rows] = _path_name(path, start)
    return {
        "fee_value": from_integers(values, DECIMAL_256),
        "value_token": pa.array([token] * len(fills), pa.string()),
        "value_path": pa.array(names, pa.string()),
        "priced_at": pa.array(priced_at, TIMESTAMP, mask=priced_at == NAT),
    }


def _follow(
    path: list[Pair], token: str, values: np.ndarray, times: np.ndarray, market: _Market
) -> tuple[np.ndarray, np.ndarray]:
    """Convert values along a path; also return the time of the oldest price used for each."""
    oldest = times.copy()
    for pair in path:
        history = market.pairs[pair]
        last = np.searchsorted(history.times, times, "right") - 1
        price = history.prices[last]
        values = values * price // UNIT if pair[0] == token else values * UNIT // price
        oldest = np.minimum(oldest, history.times[last])
        token = _other(pair, token)
    return values, oldest


def _path_name(path: list[Pair], token: str) -> str:
    tokens = [token]
    for pair in path:
        tokens.append(_other(pair, tokens[-1]))
    return ">".join(tokens)
