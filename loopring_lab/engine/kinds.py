"""Kinds of frames: what a question asks of each, and how its answer becomes a frame of the same kind.

`ask.given` asks once which kind a frame is, where a call begins; whatever follows goes by the methods of `Given`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.engine import frames, running
from loopring_lab.engine.notes import finished, without_note
from loopring_lab.engine.question import Question
from loopring_lab.engine.values import checked
from loopring_lab.errors import LabError, did_you_mean


class HasColumns(Protocol):
    """A frame of any kind."""

    @property
    def columns(self) -> Any: ...


FrameT = TypeVar("FrameT", bound=HasColumns)
FrameT_co = TypeVar("FrameT_co", covariant=True)


class HasAnswers(Protocol[FrameT_co]):
    """An `Archive`, which is no frame itself, but answers with frames."""

    def query(self, sql: str) -> FrameT_co: ...


# The trades that calls take: the answer is a frame of the same kind, and for an archive a pandas frame.
Trades: TypeAlias = FrameT | HasAnswers[FrameT]

# Bits for the place of a row in an answer, below the number of the row that it is about.
PLACE_OF_ROW = 32
# Kinds of columns that pandas groups by and Arrow does not: they are grouped by their text.
TEXTUAL = (pd.IntervalDtype, pd.PeriodDtype)


@dataclass(frozen=True)
class Asked:
    """A question, and what it is asked with beside the trades: prices, and small tables by name."""

    question: Question
    prices: Given[Any] | None
    tables: Mapping[str, pa.Table]

    @property
    def prices_in_memory(self) -> pa.Table | None:
        """The columns of the prices, of any kind of frame, that the question needs."""
        if self.prices is None:
            return None
        names = self.prices.names
        optional = [name for name in self.question.price_may_have if name in names]
        return self.prices.read_exact([*self.question.price_needs, *optional])


class Given(ABC, Generic[FrameT]):
    """A frame that a call was given, of one kind."""

    is_dealt_out = False
    """Whether its rows are dealt out to workers, each of which has those of some markets."""

    def __init__(self, frame: Any, caller: str) -> None:
        self.frame = frame
        # Errors begin with it, such as lab.fees.summary, or lab.fees.in_token: prices=.
        self.caller = caller

    # Members that questions use

    @cached_property
    def names(self) -> list[Any]:
        """The names of its columns; each must be there once."""
        names = self._names()
        for name in names:
            if names.count(name) > 1:
                raise LabError(
                    f"{self.caller}: the frame has two columns {name!r}. Drop or rename one of them."
                )
        return names

    def check(self, wanted: Iterable[str]) -> None:
        """Raise a `LabError` that names the first column that the frame lacks."""
        for name in wanted:
            if name in self.names:
                continue
            known = list(map(str, self.names))
            listed = f"It has {', '.join(known) or 'no columns'}."
            hint = did_you_mean(name, known, listed)
            if name in self._index_names():
                hint = "Its index has that name: give the frame with .reset_index()."
            raise LabError(f"{self.caller}: the frame has no column {name!r}. {hint}")

    def read(self, columns: Iterable[str] | None = None) -> pa.Table:
        """Read columns, by default all, into an Arrow table of Arrow's own types."""
        names = self.names
        if columns is not None:
            names = list(dict.fromkeys(columns))
            self.check(names)
        with running.translated(self.caller):
            return frames.with_plain_values(self._read(names))

    def read_exact(self, columns: Sequence[str]) -> pa.Table:
        """Read columns, each as questions take it: every amount is exact, every order hash one or null."""
        table = self.read(columns)
        for name in table.column_names:
            column = checked(table[name], name, self.caller)
            table = frames.replaced(table, name, column)
        return table

    def to_pandas(self) -> pd.DataFrame:
        """Read all columns into a pandas frame."""
        return frames.to_pandas(self.read())

    def order_of(self, name: str) -> list[Any]:
        """Return the values of a column of ordered categories in their order; empty for other columns."""
        return []

    @property
    def attrs(self) -> Mapping[str, Any]:
        """What the frame says of where its rows come from; empty for kinds that cannot carry that."""
        return {}

    # Answers

    def answer(self, asked: Asked) -> FrameT:
        """Answer a question with a frame of the same kind."""
        if not asked.question.has_groups:
            return self.rows(asked)
        return self.answered(self.groups(asked))

    def answered(self, found: pa.Table) -> FrameT:
        """Convert an answer to a frame of the same kind, with its notes."""
        return finished(self.like(without_note(found)), found)

    @abstractmethod
    def groups(self, asked: Asked) -> pa.Table:
        """Answer a question with a row for each group, as an Arrow table with the columns that notes are made of."""

    @abstractmethod
    def rows(self, asked: Asked) -> FrameT:
        """Answer a question with what is shown beside each row."""

    @abstractmethod
    def like(self, table: pa.Table) -> FrameT:
        """Convert an answer to a frame of the same kind."""

    # Members that differ by kind

    def _names(self) -> list[Any]:
        return list(self.frame.columns)

    def _index_names(self) -> Sequence[Any]:
        return ()

    @abstractmethod
    def _read(self, names: list[Any]) -> pa.Table: ...

    def wanted(self, question: Question) -> list[str]:
        """Return the columns to convert for a question: what it needs, and what it may have."""
        keys = question.keys
        self.check([*question.needs, *(question.shown or ()), *keys.of_frame])
        optional = [name for name in question.may_have if name in self.names]
        time = [] if keys.periods is None else ["created_at"]
        wanted = dict.fromkeys([*question.needs, *optional, *time, *keys.of_frame])
        by_capitals: dict[str, str] = {}
        for name in wanted:
            other = by_capitals.setdefault(name.lower(), name)
            if other != name:
                raise LabError(
                    f"{self.caller}: the columns {other!r} and {name!r} differ in capitals only, which DuckDB "
                    "takes for one. Rename yours."
                )
        return list(wanted)


# Frames in memory


class InMemory(Given[FrameT]):
    """A frame in memory: the columns that a question needs are handed to DuckDB without a copy where possible."""

    def order_of(self, name: str) -> list[Any]:
        if name not in self.names:
            return []
        column = self.read([name])[name]
        is_ordered = pa.types.is_dictionary(column.type) and column.type.ordered
        if not (is_ordered and column.num_chunks):
            return []
        # One dictionary is that of all chunks.
        values: list[Any] = column.chunk(0).dictionary.to_pylist()
        return values

    def groups(self, asked: Asked) -> pa.Table:
        return running.named(self.up_to(asked), asked.question.keys)

    def up_to(self, asked: Asked, last: str = "") -> pa.Table:
        """Return a step of a question, by default the last one; its keys have their names of queries."""
        question = asked.question
        trades = self.read_exact(self.wanted(question))
        prices = asked.prices_in_memory
        return running.ask_in_memory(question, trades, prices, asked.tables, last)

    def rows(self, asked: Asked) -> FrameT:
        question = asked.question
        found = self.groups(asked)
        if not question.is_sorted:
            # With its place in the answer behind each number, rows of one trade stay in their order.
            placed = np.asarray(found["row"]) << PLACE_OF_ROW | np.arange(len(found))
            placed.sort()
            found = found.take(pa.array(placed & ((1 << PLACE_OF_ROW) - 1)))
        shown = self.names if question.shown is None else list(question.shown)
        added = without_note(found).drop_columns("row")
        # Columns added to trades stand in the rows of their index; other answers have rows of their own.
        keeps_index = question.shown is None and not question.is_sorted
        numbers = np.asarray(found["row"])
        return finished(self._beside(shown, numbers, added, keeps_index), found)

    @abstractmethod
    def _beside(
        self, shown: list[Any], rows: np.ndarray, added: pa.Table, keeps_index: bool
    ) -> FrameT:
        """Put columns beside rows of the frame, in place of its own of the same names."""


class Pandas(InMemory[pd.DataFrame]):
    def like(self, table: pa.Table) -> pd.DataFrame:
        result = frames.to_pandas(table)
        result.attrs |= self.frame.attrs
        return result

    def to_pandas(self) -> pd.DataFrame:
        frame: pd.DataFrame = self.frame
        return frame

    @property
    def attrs(self) -> Mapping[str, Any]:
        return dict(self.frame.attrs)

    def _index_names(self) -> Sequence[Any]:
        return list(self.frame.index.names)

    def _read(self, names: list[Any]) -> pa.Table:
        texts = _with_text_for_intervals(self.frame[names])
        try:
            table = pa.Table.from_pandas(texts, preserve_index=False)
        # Arrow raises Python's own errors for sparse columns and for integers of more than 64 bits.
        except (
            pa.ArrowInvalid,
            pa.ArrowNotImplementedError,
            TypeError,
            OverflowError,
        ) as error:
            reason = "; ".join(map(str, error.args)).rstrip(".")
            raise LabError(
                f"{self.caller}: Arrow cannot hold the frame's values: {reason}. Clean that column first."
            ) from None
        for name, entry in zip(names, table.schema, strict=True):
            # Only a column of objects can hold several kinds of time.
            is_time = pa.types.is_timestamp(entry.type) or pa.types.is_date(entry.type)
            if is_time and self.frame[name].dtype == object:
                self._refuse_mixed_times(name)
        return table.unify_dictionaries()

    def _refuse_mixed_times(self, name: Any) -> None:
        """Refuse dates beside times, and times with a zone beside those without: Arrow makes one kind of both."""
        kinds = {
            (isinstance(moment, datetime), getattr(moment, "tzinfo", None) is None)
            for moment in self.frame[name].dropna()
        }
        if len(kinds) > 1:
            raise LabError(
                f"{self.caller}: some values of {name} have a time zone, and some have none or are dates. Give each "
                "part its zone with .dt.tz_localize(...), or make times of dates, before you put them together."
            )

    def _beside(
        self, shown: list[Any], rows: np.ndarray, added: pa.Table, keeps_index: bool
    ) -> pd.DataFrame:
        taken: pd.DataFrame = self.frame[shown]
        # Nearly always each trade has one row, and these are in their order.
        if not np.array_equal(rows, np.arange(len(taken))):
            taken = taken.take(rows)
        new = frames.to_pandas(added)
        for name in new:
            # A column of categories stays one, such as the role of a fill.
            if name in taken and isinstance(taken[name].dtype, pd.CategoricalDtype):
                new[name] = new[name].astype("category")
        result = taken.assign(**{str(name): new[name].array for name in new})
        return result if keeps_index else result.reset_index(drop=True)


def _with_text_for_intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """Replace intervals and periods by their text, as categories in their order."""
    texts: dict[Any, Any] = {}
    for name, kind in frame.dtypes.items():
        column = frame[name]
        if isinstance(kind, TEXTUAL):
            column = column.astype("category")
        if isinstance(column.dtype, pd.CategoricalDtype) and isinstance(
            column.cat.categories.dtype, TEXTUAL
        ):
            names = list(column.cat.categories.astype(str))
            texts[name] = column.cat.as_ordered().cat.rename_categories(names)
    return frame.assign(**texts)


class Arrow(InMemory[Any]):
    def like(self, table: pa.Table) -> pa.Table:
        return frames.with_amounts(table)

    @property
    def attrs(self) -> Mapping[str, Any]:
        # Arrow keeps there what pandas has in `attrs`.
        metadata = self.frame.schema.pandas_metadata or {}
        return dict(metadata.get("attributes") or {})

    def _names(self) -> list[Any]:
        return list(self.frame.column_names)

    def _read(self, names: list[Any]) -> pa.Table:
        return self.frame.select(names).unify_dictionaries()

    def _beside(
        self, shown: list[Any], rows: np.ndarray, added: pa.Table, keeps_index: bool
    ) -> pa.Table:
        whole = frames.without_views(self.frame.select(shown))
        taken = whole.take(pa.array(rows))
        return frames.with_columns(taken, frames.with_amounts(added))


class Polars(InMemory[Any]):
    def like(self, table: pa.Table) -> Any:
        import polars as pl

        return self._as_lazy(pl.DataFrame(table))

    def _names(self) -> list[Any]:
        return list(self.frame.collect_schema())

    def _read(self, names: list[Any]) -> pa.Table:
        return self.frame.lazy().select(names).collect().to_arrow()

    def _beside(
        self, shown: list[Any], rows: np.ndarray, added: pa.Table, keeps_index: bool
    ) -> Any:
        import polars as pl

        taken = self.frame.lazy().select(shown).collect()[rows]
        return self._as_lazy(taken.with_columns(pl.from_arrow(added)))

    def _as_lazy(self, answer: Any) -> Any:
        """Return an answer to a LazyFrame as one."""
        import polars as pl

        return answer.lazy() if isinstance(self.frame, pl.LazyFrame) else answer


# Rows that DuckDB reads while it is asked


class Relation(Given[Any]):
    """A relation of DuckDB: it is asked on its own connection."""

    def groups(self, asked: Asked) -> pa.Table:
        found = running.fetched(self._asked(asked))
        return running.named(found, asked.question.keys)

    def rows(self, asked: Asked) -> Any:
        return self._asked(asked)

    def like(self, table: pa.Table) -> Any:
        return running.queried(self.frame, "FROM given_answer", given_answer=table)

    def _asked(self, asked: Asked) -> Any:
        self.wanted(asked.question)
        if isinstance(asked.prices, Relation):
            asked.prices.check(asked.question.price_needs)
            prices = asked.prices.plain
        else:
            prices = asked.prices_in_memory
        return running.ask_relation(asked.question, self.plain, prices, asked.tables)

    @cached_property
    def plain(self) -> Any:
        """The relation as questions take it; a call may ask several."""
        return running.plain(self.frame, self.caller)

    def _read(self, names: list[Any]) -> pa.Table:
        table = self.frame.to_arrow_table()
        return frames.with_milliseconds(table).select(names)


class Stored(Given[pd.DataFrame]):
    """An `Archive`, whose trades are read from its file; answers are pandas frames."""

    def groups(self, asked: Asked) -> pa.Table:
        question = asked.question
        self.wanted(question)
        prices = asked.prices_in_memory
        given = running.registered(prices, asked.tables)
        with self.frame.opened(**given) as trades:
            found = running.fetched(
                running.ask_relation(
                    question, trades, prices, asked.tables, in_archive=True
                )
            )
        return running.named(found, question.keys)

    def rows(self, asked: Asked) -> pd.DataFrame:
        return self.answered(self.groups(asked))

    def like(self, table: pa.Table) -> pd.DataFrame:
        return frames.to_pandas(table)

    @property
    def attrs(self) -> Mapping[str, Any]:
        return {"synthetic": self.frame.synthetic}

    def _names(self) -> list[Any]:
        return list(self._scan.columns)

    def _read(self, names: list[Any]) -> pa.Table:
        return Relation(self._scan, self.caller).read(names)

    @cached_property
    def _scan(self) -> Any:
        return self.frame.scan("duckdb")


# For other engines


def portable(trades: pd.DataFrame | pa.Table) -> pa.Table:
    """Convert a frame to an Arrow table of types that every engine can read.

    Parameters
    ----------
    trades : pandas.DataFrame or pyarrow.Table
        As returned by `Client.trades`.

    Returns
    -------
    pyarrow.Table
        The same rows and columns: amounts as ``decimal128(38, 18)``, categories as strings, times as
        ``timestamp[ms, UTC]``. Write it with ``pyarrow.parquet.write_table``, or pass it to
        ``polars.from_arrow``, ``duckdb.from_arrow`` or ``spark.createDataFrame``.

    Raises
    ------
    LabError, AmountError
        The frame is neither pandas nor pyarrow, a time is finer than a millisecond, or an amount has more
        than 20 digits before the point or 18 after it.

    Examples
    --------
    >>> lab.engine.portable(client.trades(account_id=10083, limit=1)).schema.field("fee").type
    Decimal128Type(decimal128(38, 18))
    """
    caller = "lab.engine.portable"
    if isinstance(trades, pd.DataFrame):
        table = Pandas(trades, caller).read()
    elif isinstance(trades, pa.Table):
        table = Arrow(trades, caller).read()
    else:
        raise LabError(
            f"{caller} takes a pandas or pyarrow frame. Frames of other engines need no conversion."
        )
    for name in table.column_names:
        column = _portable_column(table[name], name)
        table = frames.replaced(table, name, column)
    return table


def _portable_column(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = column.type
    if pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return frames.exact(column, name, "lab.engine.portable")
    if not pa.types.is_timestamp(kind) or not kind.tz:
        return column
    try:
        return column.cast(frames.TIMESTAMP)
    except pa.ArrowInvalid:
        raise LabError(
            f"{name}: a time is finer than a millisecond. Round it down with .dt.floor('ms'), or drop the column."
        ) from None
