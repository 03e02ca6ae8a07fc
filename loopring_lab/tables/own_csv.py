"""Frames of trades that were saved with ``DataFrame.to_csv``, read as they were."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.bounded import given_path
from loopring_lab.columns import TRADES
from loopring_lab.redaction import hide_addresses
from loopring_lab.tables.csv_files import (
    DIGITS,
    TEXT_TIME,
    TOKENS,
    WHOLE,
    CsvFile,
    read_digits,
    read_milliseconds,
    read_whole,
    refuse_other_tokens,
)
from loopring_lab.tables.listings import TEXT, check_frame, to_utc


def read_csv(
    file: str | os.PathLike[str],
    tokens: pd.DataFrame | None = None,
    markets: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Read a frame of trades that was saved with ``DataFrame.to_csv``, exactly as it was.

    Parameters
    ----------
    file : path
        CSV in UTF-8 as pandas writes it, with or without its index, compressed with gzip or not, of at most
        512 MiB. It has columns of `trades`, ``created_at``, ``market`` and ``price`` among them, and any
        others.
    tokens, markets : pandas.DataFrame, optional
        From `tokens` and `markets`; their names become the categories, as in `trades`. A CSV file does not
        hold categories that no row has: without these frames the categories are those that occur.

    Returns
    -------
    pandas.DataFrame
        The columns in their order, with the types that `trades` gives them: ``created_at`` in UTC,
        amounts exact (`amounts.AMOUNT`), numbers as integers, and null where empty. Columns that `trades`
        does not have are as `pandas.read_csv` reads them, and so is the index, if it was saved. ``attrs``,
        such as the name of the source, are not in a CSV file.

    Raises
    ------
    UnexpectedAnswer
        The file is not such a CSV file, or a market has other tokens than in `markets` or on a line before;
        names file, line and column.
    LabError
        `tokens` or `markets` is not valid.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from pandas.testing import assert_frame_equal
    >>> file = Path(tempfile.mkdtemp(), "trades.csv")
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> trades.to_csv(file, index=False)
    >>> assert_frame_equal(lab.tables.read_csv(file, client.tokens(), client.markets()), trades)
    """
    file = hide_addresses(file)
    if tokens is not None:
        check_frame("tokens", tokens, {"token_id", "decimals"})
    if markets is not None:
        check_frame("markets", markets, {*TOKENS})
    saved = CsvFile(given_path(file), list(TRADES), keep_spaces=True)
    own = _own_columns(saved)
    data: list[pd.Series] = []
    for place, name in enumerate(saved.names):
        if name in TRADES:
            data.append(_typed(saved, name, tokens, markets))
        else:
            data.append(own[place])
    frame = pd.concat(data, axis="columns", keys=saved.names)
    refuse_other_tokens(saved, frame, markets)
    # pandas writes an index without a name under an empty one, in front of the columns.
    if saved.names[0] == "":
        frame = frame.iloc[:, 1:]
        index = pd.Index(data[0]).rename(None)
        is_counted = len(index) == 0 or index.equals(pd.RangeIndex(len(index)))
        frame.index = pd.RangeIndex(len(index)) if is_counted else index
    return frame


def _own_columns(saved: CsvFile) -> dict[int, pd.Series]:
    """Return the columns that trades do not have, by place, as pandas reads them."""
    places = [place for place, name in enumerate(saved.names) if name not in TRADES]
    if not places:
        return {}
    frame = pd.read_csv(
        io.BytesIO(saved.data),
        usecols=places,
        index_col=False,
        encoding="utf-8-sig",
    )
    return {place: frame.iloc[:, number] for number, place in enumerate(places)}


def _typed(
    saved: CsvFile,
    name: str,
    tokens: pd.DataFrame | None,
    markets: pd.DataFrame | None,
) -> pd.Series:
    """Return a column with the type that it has in a frame of trades."""
    declared = TRADES[name]
    if declared.kind == "time":
        moments = partial(read_milliseconds, unit=None)
        return to_utc(saved.column(name, TEXT_TIME, moments))
    if declared.kind in ("amount", "price"):
        return saved.column(name, DIGITS, read_digits)
    if declared.kind == "id":
        return saved.column(name, WHOLE, read_whole)
    if declared.kind == "rate":
        floats = partial(pa.Array.cast, target_type=pa.float64())
        numbers = saved.column(name, "a number", floats)
        return pd.Series(numbers.to_numpy(np.float64, na_value=np.nan))
    if declared.words:
        known = partial(_words, known=declared.words)
        column = saved.column(name, " or ".join(declared.words), known)
        return _categories(column, declared.words)
    if not declared.names:
        return saved.column(name, "text")
    column = saved.column(name, "a name")
    listing = markets if declared.names == "markets" else tokens
    listed = [] if listing is None else listing.index.tolist()
    unlisted = sorted(set(column.dropna()) - set(listed))
    return _categories(column, [*listed, *unlisted])


def _categories(column: pd.Series, words: Sequence[str]) -> pd.Series:
    dtype = pd.CategoricalDtype(pd.Index(list(words), dtype=TEXT))
    return column.astype(TEXT).astype(dtype)


def _words(texts: pa.Array, known: Sequence[str]) -> pa.Array:
    is_other = pc.invert(pc.is_in(texts, value_set=pa.array([*known, None])))
    if pc.any(is_other).as_py():
        raise pa.ArrowInvalid("another word")
    return texts
