"""The relayer's answers as DataFrames: tokens, markets and trades.

With `wire` and `rows`, on which it stands, the only place that knows wire names, member order and dtypes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import as_series
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.tables import rows, wire
from loopring_lab.tables.identity import IDENTITY, SIDES
from loopring_lab.tables.listings import TEXT, MarketLookup, markets, to_utc, tokens

__all__ = ["anomalies", "markets", "tokens", "trades"]

GROUP_PAGES = 800

Group = TypeVar("Group")


def __dir__() -> list[str]:
    return sorted(__all__)


def trades(
    pages: wire.Page | Iterable[wire.Page],
    tokens: pd.DataFrame,
    markets: pd.DataFrame,
    *,
    fill_type: str | Sequence[str | None] | None = None,
    account_id: int | None = None,
    fee_token: str = "received",
    ten_members: str = "account",
) -> pd.DataFrame:
    """Read answers of ``GET /user/trades``, exactly.

    Parameters
    ----------
    pages : bytes, str, mapping, or iterable of these
        JSON text or parsed answers, one or many, in any order. A row that stands in two pages is read once.
    tokens, markets : pandas.DataFrame
        From `tokens` and `markets`.
    fill_type : {'amm', 'dex'} or sequence of these, shape (pages,), optional
        What the pages were asked for; the rows themselves do not say. Without it only rows whose market
        carries the pools' prefix ``AMM-`` are known to be ``amm``.
    account_id : int, optional
        Whose rows these are, where the rows do not say.
    fee_token : {'received', 'base', 'quote', 'row'}
        The token ``feeAmount`` counts: the one received (base of a BUY, quote of a SELL; what the chain
        shows), always the base or the quote token, or the row's own ``tokenId``.
    ten_members : {'account', 'block'}
        Members 7 to 9 of a row of ten: accountId, tokenId, storageId (as documented), or blockId,
        indexInBlock, accountId (as by position).

    Returns
    -------
    pandas.DataFrame, shape (trades, 21)
        Oldest first. ``created_at`` (UTC, milliseconds), ``trade_id``, ``account_id``, ``market`` (without
        prefix), ``base``, ``quote``, ``side``, ``fill_type``, ``role``, ``size`` (base units, gross),
        ``price`` (quote per base, cut to 8 decimals by the relayer), ``notional`` (size times price in
        quote units, cut at 18 decimals; relative error up to 1e-8/price), ``fee`` (units
        of ``fee_token``), ``fee_token``, ``fee_bps`` (float64, fee per gross amount of its token),
        ``order_hash``, ``block_id`` (0: not in a block yet), ``index_in_block``, ``token_id`` (token sold),
        ``storage_id``, ``extra``. Amounts are `amounts.AMOUNT`. ``extra`` is null for a regular row; for an
        odd one JSON text: ``anomaly``, why, and every member no column could hold. Source: the relayer.

    Raises
    ------
    UnexpectedAnswer
        A page or row is not what the contract says; names its place, what was expected and what was received.
    AmountError
        An amount does not fit; it is never rounded.

    See Also
    --------
    anomalies : the odd rows with their reasons.

    Examples
    --------
    >>> row = ["1648752226000", "7", "SELL", "12" + 20 * "0", "0.00042", "LRC-ETH", "504" + 12 * "0"]
    >>> page = {"totalNum": 1, "trades": [row]}
    >>> trades = lab.tables.trades(page, client.tokens(), client.markets(), fill_type="dex")
    >>> lab.show(trades[["market", "size", "base", "fee", "fee_token", "fee_bps"]])
     market size (LRC) fee (ETH) fee_bps
    LRC-ETH      1,200  0.000504   10.00
    """
    validate_options(fee_token, ten_members)
    every = [pages] if isinstance(pages, (bytes, str, Mapping)) else list(pages)
    places = [f"pages[{position}]" for position in range(len(every))]
    labels = _labels(fill_type, len(every))

    def read(group: slice) -> tuple[wire.Batch, list[int]]:
        return wire.read(every[group], places[group], ten_members=ten_members), labels[group]

    groups = list(wire.group(every)) or [slice(0, 0)]
    return _read_groups(read, groups, MarketLookup(tokens, markets), account_id, fee_token)


def anomalies(trades: pd.DataFrame) -> pd.DataFrame:
    """List every odd row of a trades frame with its reason.

    Odd are: an unknown market or token, a ``tokenId`` that is not the token sold, a missing or unreadable
    member, more members than are known, and rows of one identity (id, side, order hash) that differ.

    Parameters
    ----------
    trades : pandas.DataFrame
        From `trades`, or a part of it, or several put together.

    Returns
    -------
    pandas.DataFrame
        The odd rows under their index, with ``reason`` as the first column. Empty where all is regular.

    Examples
    --------
    >>> anomalies(trades('{"trades": []}', tokens("[]"), markets("[]"))).empty
    True
    """
    noted = [None if pd.isna(text) else json.loads(text)["anomaly"] for text in trades["extra"]]
    plain = trades.reset_index(drop=True)
    twice = plain[plain.duplicated(IDENTITY, keep=False)]
    versions = twice[~twice.astype(str).duplicated()]
    differing = versions.index[versions.duplicated(IDENTITY, keep=False)]
    again = "repeated identity with other content"
    repeated = [again if one else None for one in plain.index.isin(differing)]
    reasons = ["; ".join(filter(None, pair)) for pair in zip(noted, repeated, strict=True)]
    found = trades.assign(reason=pd.array(reasons, dtype=TEXT))
    return found.loc[found["reason"] != "", ["reason", *trades.columns]]


def join_batches(
    batches: Mapping[str, Sequence[wire.Batch]],
    tokens: pd.DataFrame,
    markets: pd.DataFrame,
    *,
    account_id: int | None,
    fee_token: str,
) -> pd.DataFrame:
    """Make the frame of `trades` from pages that are parsed already, by fill type."""
    groups = [
        (rows.FILL_TYPES.index(fill_type), pages[start : start + GROUP_PAGES])
        for fill_type, pages in batches.items()
        for start in range(0, len(pages), GROUP_PAGES)
    ]

    def read(group: tuple[int, Sequence[wire.Batch]]) -> tuple[wire.Batch, list[int]]:
        label, pages = group
        return wire.oldest_first(wire.concat(pages)), [label] * len(pages)

    listing = MarketLookup(tokens, markets)
    return _read_groups(read, groups or [(0, [])], listing, account_id, fee_token)


def join_typed(parts: list[pa.Table], listing: MarketLookup, account_id: int | None = None) -> pd.DataFrame:
    """Make the frame of typed rows, whatever their order: oldest first, each row once."""
    return _frame(_ordered(parts), listing, account_id)


def validate_options(fee_token: str, ten_members: str) -> None:
    """Refuse options of `trades` that are not known."""
    _choice("fee_token", fee_token, rows.FEE_TOKENS)
    _choice("ten_members", ten_members, tuple(wire.TEN_MEMBERS))


def refuse_shared_fills(count: int, advice: str) -> None:
    """Refuse a source that lists fills under both fill types."""
    if count:
        raise UnexpectedAnswer(
            "fillTypes",
            expected="each fill as amm or as dex",
            got=f"{count} fills as both",
            hint=f"This relayer does not tell fill types apart. {advice}",
        )


def _read_groups(
    read: Callable[[Group], tuple[wire.Batch, list[int]]],
    groups: Sequence[Group],
    listing: MarketLookup,
    account_id: int | None,
    fee_token: str,
) -> pd.DataFrame:
    """Read and type groups of pages side by side."""

    def read_typed(group: Group) -> pa.Table:
        batch, labels = read(group)
        return rows.convert(batch, labels, listing, fee_token)

    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        parts = list(pool.map(read_typed, groups))
    return join_typed(parts, listing, account_id)


def _ordered(parts: list[pa.Table]) -> pa.Table:
    """Put parts into one order that depends on the rows alone, each row once."""
    parts = (
        sorted(
            (part for part in parts if len(part)), key=lambda part: [key[0] for key in rows.sort_keys(part)]
        )
        or parts
    )
    table = pa.concat_tables(parts)
    moment, number = rows.sort_keys(table)
    later = (np.diff(moment) > 0) | ((np.diff(moment) == 0) & (np.diff(number) > 0))
    if later.all():
        return table
    side = table["side"].to_numpy()
    order = np.lexsort((side, number, moment))
    same = np.all([np.diff(key[order]) == 0 for key in (moment, number, side)], axis=0)
    tied = np.concatenate([[False], same]) | np.concatenate([same, [False]])
    table = table.combine_chunks().take(pa.array(order))
    if not tied.any():
        return table
    return _drop_repetitions(table, np.cumsum(np.concatenate([[0], ~same])), tied)


def _drop_repetitions(table: pa.Table, group: np.ndarray, tied: np.ndarray) -> pa.Table:
    """Within groups of one moment, id and side: order by the whole content, drop exact repetitions."""
    content = [column.cast(pa.string()) for column in table.filter(pa.array(tied)).columns]
    text = pc.binary_join_element_wise(*content, "\x1f", null_handling="replace", null_replacement="\x00")
    rank = np.zeros(len(table), np.int64)
    rank[tied] = np.unique(text.to_numpy(zero_copy_only=False).astype(str), return_inverse=True)[1]
    order = np.lexsort((rank, group))
    again = (np.diff(group[order]) == 0) & (np.diff(rank[order]) == 0)
    return table.take(pa.array(order[np.concatenate([[True], ~again])]))


def _frame(table: pa.Table, listing: MarketLookup, account_id: int | None) -> pd.DataFrame:
    known = listing.known
    unknown = sorted(listing.markets[known:])
    markets = [*listing.markets[:known], *unknown]
    place = {name: code for code, name in enumerate(markets)}
    market = np.array([*(place[name] for name in listing.markets), -1])[table["market"].to_numpy()]
    words = {
        "market": (market, markets),
        **{name: (table[name].to_numpy(), listing.tokens) for name in ("base", "quote", "fee_token")},
        "side": (table["side"].to_numpy(), SIDES),
        "fill_type": (table["fill_type"].to_numpy(), rows.FILL_TYPES),
        "role": (table["role"].to_numpy(), rows.ROLES),
    }
    data: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name]
        if name in words:
            codes, categories = words[name]
            dtype = pd.CategoricalDtype(pd.Index(list(categories), dtype=TEXT))
            data[name] = pd.Categorical.from_codes(codes, dtype=dtype)
        elif name == "created_at":
            data[name] = to_utc(as_series(column))
        elif pa.types.is_string(column.type):
            data[name] = TEXT.__from_arrow__(column)  # type: ignore[attr-defined]
        elif name == "fee_bps":
            data[name] = column.to_numpy()
        else:
            filled = (
                column.fill_null(account_id) if name == "account_id" and account_id is not None else column
            )
            data[name] = as_series(filled)
    return pd.DataFrame(data, copy=False)


def _labels(fill_type: str | Sequence[str | None] | None, pages: int) -> list[int]:
    each = [fill_type] * pages if fill_type is None or isinstance(fill_type, str) else list(fill_type)
    if len(each) != pages:
        raise LabError(
            f"fill_type: {len(each)} labels for {pages} pages. Give one word, or one for each page."
        )
    for one in each:
        if one is not None:
            _choice("fill_type", one, rows.FILL_TYPES)
    return [-1 if one is None else rows.FILL_TYPES.index(one) for one in each]


def _choice(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise LabError(f"{name}={value!r} is not known. Use one of {', '.join(map(repr, allowed))}.")
