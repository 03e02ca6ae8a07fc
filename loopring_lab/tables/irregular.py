"""Rows of trades that are irregular, and why: as noted when they were read, and as their values show."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.arithmetic import WIDE, from_arrow, wide_product
from loopring_lab.amounts.series import as_array
from loopring_lab.bounded import parse_json, shown
from loopring_lab.columns import TRADES
from loopring_lab.errors import LabError
from loopring_lab.tables.identity import IDENTITY
from loopring_lab.tables.listings import TEXT
from loopring_lab.tables.numbers import is_true, rows_where

AMOUNTS = ("size", "price", "fee")
COMPARED = [name for name, column in TRADES.items() if not column.is_computed]
# Ethereum began in 2015. Seconds read as milliseconds fall into 1970, microseconds far beyond 2099.
FIRST_YEAR = 2015
LAST_YEAR = 2099
# The relayer cuts prices to 8 decimals, so that the price paid is less than one step above the one sent.
PRICE_STEP = pa.scalar("0.00000001").cast(pa.decimal256(37, 18))

HINT = "Pass whole rows, as client.trades(...) returns."


def anomalies(trades: pd.DataFrame) -> pd.DataFrame:
    """List the irregular rows of a trades frame with the reasons.

    A row is irregular as it was sent if it is not a trade (no list, or not of 7, 13, 14 or more members, or
    the 19 of an NFT trade: all its columns are null, ``extra`` has its text), its market or token is unknown,
    ``tokenId`` is neither token of its market, a member is missing, unreadable or beyond what its column holds
    (it is null there, never rounded), or there are more members than are known.

    It is irregular by its values if the price is 0 (truncation leaves that of a price below 1e-8, so the
    notional is unknown) or negative, the size is 0 or negative, the fee is negative or certainly more than
    the amount received, the time is before 2015 or after 2099 (as of seconds or microseconds read as
    milliseconds), its order hash is that of rows with several storage ids, or another row has the same
    identity (id, side, order hash): with other content, or identical because reads overlap, where each copy
    after the first is listed.

    Parameters
    ----------
    trades : pandas.DataFrame
        From `trades`, an archive, or any rows of these, or several concatenated.

    Returns
    -------
    pandas.DataFrame
        The irregular rows under their index, with ``reason`` as the first column; empty if there are none.

    Raises
    ------
    LabError, AmountError
        `trades` is not a frame of trades, or its amounts are not exact.

    Examples
    --------
    >>> row = ["1648752226", "7", "SELL", "12" + 20 * "0", "0.0", "LRC-ETH", "0"]
    >>> trades = lab.tables.trades({"trades": [row, "odd"]}, client.tokens(), client.markets())
    >>> lab.anomalies(trades)["reason"].tolist()  # doctest: +NORMALIZE_WHITESPACE
    ['price is 0, so the notional is unknown; created_at is before 2015: sent in seconds?',
     'the row is not a trade: expected a list of members, got str "odd"']
    """
    _refuse_other_frames(trades)
    numbered = trades.reset_index(drop=True)
    reasons: dict[int, list[str]] = defaultdict(list)
    notes = numbered["extra"]
    for row in rows_where(notes.notna().to_numpy()):
        reasons[row].append(_noted(notes.iloc[row], row))
    for reason, rows in _found(numbered):
        for row in rows_where(rows):
            reasons[row].append(reason)
    # Rows are in the order of the frame, whichever reason was found first.
    odd = sorted(reasons)
    # All reasons of a row are told, as each of them may need another answer.
    texts = pd.array(
        ["; ".join(reasons[row]) for row in odd],
        dtype=TEXT,
    )
    found = trades.iloc[odd].assign(reason=texts)
    # Rows of an earlier answer have reasons, which are found anew.
    others = trades.columns.drop("reason", errors="ignore")
    return found[["reason", *others]]


def _noted(text: str, row: int) -> str:
    """Return the reason in a note of the column ``extra``."""
    note = parse_json(text, "extra")
    reason = note.get("anomaly") if isinstance(note, dict) else None
    if isinstance(reason, str):
        return reason
    raise LabError(
        f"anomalies: row {row} has no reason (anomaly) in 'extra', but {shown(text, 60)}. {HINT}"
    )


def _refuse_other_frames(trades: object) -> None:
    if not isinstance(trades, pd.DataFrame):
        got = type(trades).__name__
        raise LabError(
            f"anomalies: expected a trades DataFrame of pandas, got {got}. {HINT}"
        )
    for name in COMPARED:
        if name not in trades.columns:
            raise LabError(f"anomalies: the frame has no column {name!r}. {HINT}")
    kind = trades["created_at"].dtype
    if not pd.api.types.is_datetime64_any_dtype(kind):
        raise LabError(f"anomalies: created_at is {kind}, not a time. {HINT}")


def _found(trades: pd.DataFrame) -> Iterator[tuple[str, np.ndarray]]:
    """Yield reasons that values show, each with a mask of the rows."""
    size, price, fee = (from_arrow(as_array(trades[name])) for name in AMOUNTS)
    # Negative amounts are noted where they are read.
    unnoted = trades["extra"].isna().to_numpy()
    yield "price is 0, so the notional is unknown", is_true(pc.equal(price, 0))
    yield "price is negative", is_true(pc.less(price, 0))
    yield "size is 0", is_true(pc.equal(size, 0))
    yield "size is negative", is_true(pc.less(size, 0)) & unnoted
    yield "fee is negative", is_true(pc.less(fee, 0)) & unnoted
    yield (
        "fee is more than the amount received",
        _exceeds(
            trades,
            size,
            price,
            fee,
        ),
    )
    years = trades["created_at"].dt.year
    yield (
        f"created_at is before {FIRST_YEAR}: sent in seconds?",
        (years < FIRST_YEAR).to_numpy(),
    )
    yield (
        f"created_at is after {LAST_YEAR}: sent in microseconds?",
        (years > LAST_YEAR).to_numpy(),
    )
    orders = trades[["order_hash", "storage_id"]].dropna().drop_duplicates()
    several = orders["order_hash"][orders["order_hash"].duplicated()]
    yield (
        "the order hash is that of several storage ids",
        trades["order_hash"].isin(several).to_numpy(),
    )
    repeated = trades[
        trades["trade_id"].notna()
        & trades.duplicated(
            IDENTITY,
            keep=False,
        )
    ]
    copies = repeated[COMPARED].astype(str).duplicated()
    versions = repeated[~copies]
    differing = versions.index[
        versions.duplicated(
            IDENTITY,
            keep=False,
        )
    ]
    yield "repeated identity with other content", np.isin(trades.index, differing)
    yield (
        "read twice: identical to another row",
        np.isin(trades.index, copies.index[copies]),
    )


def _exceeds(
    trades: pd.DataFrame,
    size: pa.Array,
    price: pa.Array,
    fee: pa.Array,
) -> np.ndarray:
    """Tell where a fee is above all that can have been received at a price truncated to 8 decimals."""
    token = trades["fee_token"].astype(object)
    base = trades["base"].astype(object)
    quote = trades["quote"].astype(object)
    most = wide_product(size, pc.add(price.cast(WIDE), PRICE_STEP))
    # Nothing follows from negative sizes and prices; they have a reason of their own.
    has_size = is_true(pc.greater(size, 0))
    has_price = is_true(pc.greater_equal(price, 0))
    above_base = is_true(pc.greater(fee, size)) & has_size
    above_quote = is_true(pc.greater(fee.cast(most.type), most)) & has_size & has_price
    in_quote = np.asarray(token == quote)
    in_base = np.asarray(token == base)
    return np.asarray(np.where(in_base, above_base, in_quote & above_quote))
