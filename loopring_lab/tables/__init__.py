"""The relayer's answers as DataFrames: tokens, markets and trades.

Of rows, tokens and markets, only this package knows the wire's names, order and types; the embedded relayer, which
checks it, has its own list in `relayer.history`. Start with `trades`: `wire` reads pages into columns of text (and has
the layouts of rows), `rows` makes typed columns of them, and `assemble` the frame. `listings` has tokens, markets and
the lookup of both; `identity` what makes two rows the same trade; `irregular` lists odd rows; `numbers` reads text
exactly. `har` finds pages in what others saved; `closes` reads prices from elsewhere, and `own_csv` frames
saved as CSV, both by `csv_files`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.types import union_categoricals

from loopring_lab.amounts.series import as_series
from loopring_lab.columns import TRADES, token_column
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.tables import har, rows, wire
from loopring_lab.tables.closes import prices
from loopring_lab.tables.irregular import anomalies
from loopring_lab.tables.listings import TEXT, MarketLookup, markets, to_utc, tokens
from loopring_lab.tables.own_csv import read_csv

__all__ = [
    "anomalies",
    "markets",
    "prices",
    "read_csv",
    "tokens",
    "trades",
]


def __dir__() -> list[str]:
    return sorted(__all__)


# A column that no frame has.
_NAME = "name of the market"


def trades(
    pages: wire.Answer | Iterable[wire.Answer],
    tokens: pd.DataFrame,
    markets: pd.DataFrame,
    *,
    fill_type: str | Sequence[str | None] | None = None,
    account_id: int | None = None,
) -> pd.DataFrame:
    """Read answers of ``GET /user/trades``, exactly.

    Parameters
    ----------
    pages : bytes, str, mapping, or iterable of these
        JSON text or parsed answers, in any order. A row that is on two pages is read once. What the exchange's
        SDK returns (with the answer in ``raw_data``) and a browser's HAR file are read too.
    tokens, markets : pandas.DataFrame
        From `tokens` and `markets`.
    fill_type : {'amm', 'dex'} or sequence of these, shape (pages,), optional
        What the pages were requested for; the rows do not say, but a HAR file does. Without it only rows
        whose market has the pools' prefix ``AMM-`` are known to be ``amm``.
    account_id : int, optional
        Whose rows these are, where neither the rows nor a HAR file say it. A row of another account is an error.

    Returns
    -------
    pandas.DataFrame
        Oldest first. ``created_at`` (UTC, milliseconds), ``trade_id``, ``account_id``, ``market`` (without
        prefix), ``base``, ``quote``, ``side``, ``fill_type``, ``role``, ``size`` (base units, gross),
        ``price`` (quote per base, truncated to 8 decimals by the relayer), ``notional`` (size times price in
        quote units, truncated to 18 decimals; relative error up to 1e-8/price; null at a price of 0, which is
        one below 1e-8), ``fee`` (units of ``fee_token``), ``fee_token``, ``fee_bps`` (float64, fee per gross
        amount of its token), ``order_hash``, ``block_id`` (0: not in a block yet), ``index_in_block``,
        ``token_id`` (as sent: blocks have the token sold, a relayer does not say which of the two it sends),
        ``storage_id``, ``extra``. Amounts are `amounts.AMOUNT`. ``extra`` is null for a row that is regular as
        sent; else JSON text with the reason (``anomaly``) and the members that no column can hold. Source: the
        relayer.

    Raises
    ------
    UnexpectedAnswer
        A page is not as a relayer sends it, none of the rows is a trade, or one is of another account; names
        its place, what was expected and what was received. One odd row is no error: a member that its column
        cannot hold becomes null, a row that is not a trade has null columns and its text in ``extra``, and
        `anomalies` lists both.

    See Also
    --------
    anomalies : the irregular rows with their reasons.

    Examples
    --------
    >>> row = ["1648752226000", "7", "SELL", "12" + 20 * "0", "0.00042", "LRC-ETH", "504" + 12 * "0"]
    >>> page = {"totalNum": 1, "trades": [row]}
    >>> trades = lab.tables.trades(page, client.tokens(), client.markets(), fill_type="dex")
    >>> lab.show(trades[["market", "size", "base", "fee", "fee_token", "fee_bps"]])
     market size (LRC) fee (ETH) fee_bps
    LRC-ETH      1,200  0.000504   10.00
    """
    if not isinstance(pages, Iterable):
        raise LabError(
            f"pages: expected answers of GET /user/trades as bytes, got {type(pages).__name__}."
        )
    every = list([pages] if isinstance(pages, (bytes, str, Mapping)) else pages)
    # Arguments are checked before anything is read, so that a mistake in one shows at once.
    labels = _fill_type_labels(fill_type, len(every))
    lookup = MarketLookup(tokens, markets)
    accounts: set[int | None] = set()

    def found() -> Iterator[wire.Page]:
        """Yield the pages in answers, each with what is known of it."""
        for number, answer in enumerate(every):
            place = f"pages[{number}]"
            for page in har.pages_in(wire.parse(answer, place), place):
                known = page.agreed(account_id, labels[number])
                accounts.add(known.account_id)
                yield known

    # No pages make an empty frame of the right types.
    parts = [rows.convert(wire.concat([]), [], lookup)]
    without_trades = []
    for group in wire.group(found(), wire.Page.size):
        batch = wire.to_batch(group)
        if batch.columns["no_trade"].null_count == 0:
            without_trades.append(batch)
        table = rows.convert(batch, [page.fill_type for page in group], lookup)
        table = _with_accounts(table, [page.account_id for page in group], batch.counts)
        parts.append(_sort_distinct(table, lookup.markets))
    # Some pages without a trade are odd rows; all of them are another endpoint.
    if len(without_trades) == len(parts) - 1:
        wire.refuse_without_trades(without_trades)
    whose = accounts.pop() if len(accounts) == 1 else account_id
    return join_typed(parts, lookup, whose)


def join_batches(
    batches: Mapping[str, Sequence[wire.Batch]],
    tokens: pd.DataFrame,
    markets: pd.DataFrame,
    account_id: int | None,
) -> pd.DataFrame:
    """Make the frame of `trades` from parsed pages, given by fill type."""
    wire.refuse_without_trades(itertools.chain.from_iterable(batches.values()))
    lookup = MarketLookup(tokens, markets)
    parts = []
    for fill_type, pages in batches.items():
        for group in wire.group(pages, wire.Batch.size):
            labels = [fill_type] * len(group)
            batch = wire.concat(group)
            parts.append(rows.convert(batch, labels, lookup))
    # No pages make an empty frame of the right types.
    parts = parts or [rows.convert(wire.concat([]), [], lookup)]
    return join_typed(parts, lookup, account_id)


def join_typed(
    parts: Sequence[pa.Table],
    lookup: MarketLookup,
    account_id: int | None = None,
) -> pd.DataFrame:
    """Make the frame of converted rows in any order: oldest first, each row once."""
    # Parts that are sorted and follow each other in time are joined without a copy.
    filled = sorted(
        (part for part in parts if len(part)),
        key=lambda part: rows.sort_keys(part)[0][0],
    )
    table = _sort_distinct(pa.concat_tables(filled or parts[:1]), lookup.markets)
    return assemble(table, lookup, account_id)


def join_frames(
    frames: Sequence[pd.DataFrame], limit: int | None = None
) -> pd.DataFrame:
    """Join the frames of several accounts, oldest trades first; of these the newest `limit`."""
    joined = pd.concat(frames, ignore_index=True)
    for name in joined:
        # Pandas makes text of categories that are not alike, such as the fee tokens of each account.
        if isinstance(frames[0][name].dtype, pd.CategoricalDtype):
            joined[name] = union_categoricals([one[name] for one in frames])
    # Rows are sorted as those of one account: fills of one time, such as those of a block, by their ids.
    joined = joined.sort_values(["created_at", "trade_id", "side"])
    if limit:
        joined = joined.tail(limit)
    joined.attrs = dict(frames[0].attrs)
    empty = sum(one.empty for one in frames)
    # One line, as there may be hundreds.
    if empty:
        joined.attrs["notes"] = [
            f"Accounts without such trades: {empty:,} of {len(frames):,}."
        ]
    return joined.reset_index(drop=True)


def refuse_shared_fills(count: int, hint: str, where: str = "fillTypes") -> None:
    """Refuse fills that are listed under both fill types."""
    if count:
        raise UnexpectedAnswer(
            where,
            expected="each fill as amm or as dex",
            got=f"{count} fills as both",
            hint=hint,
        )


def refuse_other_accounts(
    rows_of: Mapping[Any, int],
    account_id: int,
    outcome: str = "",
) -> None:
    """Refuse rows of another account than the one asked for, given how many there are of each."""
    # The account may be None, because old layouts do not say whose a row is.
    others = {one: n for one, n in rows_of.items() if one not in (account_id, None)}
    if others:
        raise UnexpectedAnswer(
            "accountId",
            expected=f"account {account_id}, which was asked for",
            got=f"{sum(others.values())} rows of other accounts, such as account {min(others)}",
            hint=f"{outcome}Check base_url, or the name of the saved file.",
        )


def _with_accounts(
    table: pa.Table, accounts: Sequence[int | None], counts: Sequence[int]
) -> pa.Table:
    """Give rows without an account the one stated of their page, None where none is; pages have `counts` rows.

    A row that says another one is an error.
    """
    own = table["account_id"]
    pages = np.repeat(np.arange(len(counts)), counts)
    stated = pa.array(accounts, own.type).take(pages)
    for account in {one for one in accounts if one is not None}:
        counted = pc.value_counts(own.filter(pc.equal(stated, account)))
        of_each = {one["values"]: one["counts"] for one in counted.to_pylist()}
        refuse_other_accounts(of_each, account)
    place = table.column_names.index("account_id")
    return table.set_column(place, "account_id", pc.coalesce(own, stated))


def _sort_distinct(table: pa.Table, markets: Sequence[str]) -> pa.Table:
    """Sort rows in an order that depends on nothing but their content, and drop exact repetitions."""
    moments, trade_ids = rows.sort_keys(table)
    steps = np.diff(moments)
    # Differences of ids could wrap around, as an unknown one is the largest integer.
    is_tie_in_order = (steps == 0) & (trade_ids[1:] > trade_ids[:-1])
    if np.all((steps > 0) | is_tie_in_order):
        return table
    # Codes of unlisted markets depend on the order of pages, so names are compared; -1, of no market, is the last.
    names = np.array([*markets, None], object)[table["market"].to_numpy()]
    named = table.append_column(_NAME, pa.array(names, pa.string()))
    distinct = named.group_by(named.column_names).aggregate([])
    # Both sides of a fill, such as of two accounts, have one moment and one id. What else has all three, is sorted by
    # all that it says.
    keys = dict.fromkeys(["created_at", "trade_id", "side", _NAME, *table.column_names])
    in_order = distinct.sort_by([(key, "ascending") for key in keys])
    return in_order.drop_columns(_NAME)


def word_lists(lookup: MarketLookup) -> dict[str, list[str]]:
    """Return the words that the codes in columns stand for; those of tokens and markets are the listing's own."""
    listings = {"tokens": lookup.tokens, "markets": lookup.markets}
    words = {name: listings[listing] for name, listing in rows.NAMED.items()}
    words |= {name: list(known) for name, known in rows.WORDS.items()}
    return words


def assemble(
    table: pa.Table,
    lookup: MarketLookup,
    account_id: int | None = None,
) -> pd.DataFrame:
    """Make the frame of typed rows in their order: codes become categories, unknown accounts `account_id`."""
    # Unlisted markets were met in the order of pages, on which a frame must not depend.
    unlisted = sorted(lookup.markets[lookup.known :])
    markets = [*lookup.markets[: lookup.known], *unlisted]
    code_of = {name: code for code, name in enumerate(markets)}
    # The code -1, of no market, leads to the last one, and stays -1.
    new_codes = [code_of[name] for name in lookup.markets] + [-1]
    market = np.array(new_codes)[table["market"].to_numpy()]
    categories = word_lists(lookup) | {"market": markets}
    data: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if name in categories:
            codes = market if name == "market" else column.to_numpy()
            dtype = pd.CategoricalDtype(
                pd.Index(
                    categories[name],
                    dtype=TEXT,
                )
            )
            data[name] = pd.Categorical.from_codes(
                codes,
                dtype=dtype,
            )
        elif TRADES[name].kind == "time":
            data[name] = to_utc(as_series(column))
        elif TRADES[name].kind == "rate":
            data[name] = column.to_numpy()
        elif pa.types.is_string(column.type):
            data[name] = TEXT.__from_arrow__(column)  # type: ignore[attr-defined]
        elif name == "account_id" and account_id is not None:
            data[name] = as_series(column.fill_null(account_id))
        else:
            data[name] = as_series(column)
    # Columns of amounts remember their tokens, so that sums over several of them can be told.
    for name, column in TRADES.items():
        if column.kind == "amount":
            data[name].array.tokens = data[token_column(name)]
    return pd.DataFrame(data, copy=False)


def _fill_type_labels(
    fill_type: str | Sequence[str | None] | None, pages: int
) -> list[str | None]:
    """Return the fill type given for each page, None where it is not known."""
    if fill_type is None or isinstance(fill_type, str):
        each = [fill_type] * pages
    else:
        each = list(fill_type)
    if len(each) != pages:
        problem = f"{len(each)} labels for {pages} pages"
        raise LabError(f"fill_type: {problem}. Give one word, or one for each page.")
    unknown = set(each) - {None, *rows.FILL_TYPES}
    if unknown:
        raise LabError(
            f"fill_type={unknown.pop()!r} is not known. Use one of {', '.join(map(repr, rows.FILL_TYPES))}."
        )
    return each
