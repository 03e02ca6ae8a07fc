"""Fees of many tokens valued in one, by the last trade at or before each fill."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.scaling import UNIT, as_array, from_integers, is_none, is_positive, to_integers
from loopring_lab.engines import convert
from loopring_lab.engines.adapters import DECIMAL_256, TIMESTAMP, group_keys
from loopring_lab.engines.aggregate import GroupBy, result_frame
from loopring_lab.engines.asof import NAT, milliseconds
from loopring_lab.errors import LabError, did_you_mean

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
    LabError, AmountError
        As for `with_tiers`, or no market trades `token`, or a value does not fit.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> lab.fees.in_token(trades, "USDC", by=[])[["fee_token", "fee", "fee_value"]].head(2)
      fee_token                   fee             fee_value
    0       DAI  1.579216000000000000  1.569800138645561512
    1       ENJ  1.787064000000000000  4.813791536722362352
    """
    names = None if by is None else group_keys(by, CALLER, "fee_value", "value_token", frame=trades)
    fills = convert.to_pandas(trades, CALLER, ["created_at", "fee_token", "fee", *(names or [])])
    source = trades if prices is None else prices
    market = _Market(convert.to_pandas(source, CALLER, ["created_at", "base", "quote", "price"]))
    known = sorted({token for pair in market.histories for token in pair} | {*fills["fee_token"].dropna()})
    if len(fills) and token not in known:
        hint = did_you_mean(token, known, f"Known tokens: {', '.join(known) or 'none'}.")
        raise LabError(f"{CALLER}: no price and no fee is in {token!r}. {hint}")
    columns = _value_fees(fills, token, market)
    if names is None:
        return convert.with_columns(trades, columns)
    keys = list(dict.fromkeys([*names, "fee_token"]))
    table = convert.normalize(pa.Table.from_pandas(fills[[*keys, "fee"]], preserve_index=False))
    table = table.append_column("fee_value", columns["fee_value"])
    groups = GroupBy(table, keys)
    unpriced = groups.ids[np.asarray(columns["fee_value"].is_null())]
    sums = {
        "fills": np.bincount(groups.ids, minlength=groups.count),
        "unpriced": np.bincount(unpriced, minlength=groups.count),
        "fee": groups.sum("fee"),
        "fee_value": groups.sum("fee_value"),
        "value_token": pa.array([token] * groups.count, pa.string()),
    }
    return result_frame(trades, groups.key_columns() | sums)


class _Market:
    """Prices of every pair of tokens that has traded, and the times of the first trades."""

    def __init__(self, frame: pd.DataFrame) -> None:
        times, prices = milliseconds(frame["created_at"]), to_integers(as_array(frame["price"]))
        usable = (times != NAT) & is_positive(prices)
        rows = frame[["base", "quote"]].assign(time=times, price=prices)[usable]
        pairs: Any = rows.sort_values("time", kind="stable").groupby(["base", "quote"], observed=True)
        self.histories: dict[Pair, tuple[np.ndarray, np.ndarray]] = {
            pair: (history["time"].to_numpy(), history["price"].to_numpy()) for pair, history in pairs
        }
        self.first_trades = np.unique([times[0] for times, _ in self.histories.values()]).astype(np.int64)

    def path(self, start: str, end: str, moment: int) -> list[Pair] | None:
        """Find the shortest path between two tokens over the pairs that have traded by a moment."""
        paths: dict[str, list[Pair]] = {start: []}
        queue = deque([start])
        open_pairs = [pair for pair, (times, _) in self.histories.items() if times[0] <= moment]
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
    opened = np.append(market.first_trades, NAT)[np.searchsorted(market.first_trades, times, "right") - 1]
    known = np.flatnonzero(~is_none(fees) & (times != NAT))
    routes = pd.DataFrame({"token": fills["fee_token"].astype(object), "opened": opened}).iloc[known]
    groups: Any = routes.groupby(["token", "opened"]).indices
    for (start, moment), places in groups.items():
        path = market.path(start, token, moment)
        if path is not None:
            rows = known[places]
            values[rows], priced_at[rows], names[rows] = _follow(path, start, fees[rows], times[rows], market)
    return {
        "fee_value": from_integers(values, DECIMAL_256),
        "value_token": pa.array([token] * len(fills), pa.string()),
        "value_path": pa.array(names, pa.string()),
        "priced_at": pa.array(priced_at, TIMESTAMP, mask=priced_at == NAT),
    }


def _follow(
    path: list[Pair], start: str, values: np.ndarray, times: np.ndarray, market: _Market
) -> tuple[np.ndarray, np.ndarray, str]:
    """Convert values along a path; also return the time of the oldest price used, and the tokens passed."""
    oldest, tokens = times, [start]
    for pair in path:
        price_times, prices = market.histories[pair]
        last = np.searchsorted(price_times, times, "right") - 1
        price = prices[last]
        values = values * price // UNIT if pair[0] == tokens[-1] else values * UNIT // price
        oldest = np.minimum(oldest, price_times[last])
        tokens.append(_other(pair, tokens[-1]))
    return values, oldest, ">".join(tokens)
