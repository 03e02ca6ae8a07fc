"""Queries run by DuckDB: over frames in memory, on a relation's own connection, and in the database of an archive."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.engine import frames, hashes, session
from loopring_lab.engine.groups import (
    ANY_TEXT,
    EVERYTHING,
    HOUR,
    WHOLE_NUMBER,
    Keys,
    literal,
    quoted,
)
from loopring_lab.engine.question import (
    PLACE_BITS,
    Celled,
    Large,
    Prices,
    Question,
    Spanned,
)
from loopring_lab.engine.text import GIVEN, PRICES, TRADES, Types, query_text
from loopring_lab.errors import AmountError, LabError

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger("loopring_lab.sql")

# The number of a row in a frame in memory, under a name that no frame has.
ROW = "number of the row"
# The number of a row in an answer, before it is put in the order of the trades.
ANSWERED = "number of the row in the answer"
# An archive looks up prices for this many rows at a time. They fit into the usual memory, where 10 million wrote twice
# the size of their archive to the disk.
ROWS_OF_A_SLICE = 1_000_000
# Steps that read all rows, each by itself: in one query they take more memory than there is.
READ_ALL = ("sums", "spreads", "medians")


def run(text: str, caller: str, **inputs: pa.Table) -> pa.Table:
    """Run a query over Arrow tables by name, amounts as DECIMAL(38, 18) on both sides."""
    log.debug("-- %s\n%s", caller, text)
    with opened(caller, inputs) as connection:
        return fetched(connection.sql(text))


@contextmanager
def opened(
    caller: str, tables: Mapping[str, pa.Table]
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection with Arrow tables by name, and translate its errors."""
    with (
        translated(caller),
        session.cursor() as connection,
        session.interruptible(connection),
    ):
        for name, table in tables.items():
            connection.register(name, with_hugeints(table))
        yield connection


# In memory


def ask_in_memory(
    question: Question,
    trades: pa.Table,
    prices: pa.Table | None,
    tables: Mapping[str, pa.Table],
    last: str = "",
) -> pa.Table:
    """Ask a question of a table in memory, up to the `last` step.

    `tables` may hold steps that are known already, under their names. The keys have their names of queries in
    what is returned.
    """
    numbers = pa.array(np.arange(len(trades)))
    inputs = {**tables, TRADES: trades.append_column(ROW, numbers)}
    if prices is not None:
        inputs[PRICES] = prices
    with opened(question.caller, inputs) as connection:
        types = {name: _types(connection.table(name)) for name in inputs}
        if log.isEnabledFor(logging.DEBUG):
            # The logged query runs on ``lab.engine.portable(trades)`` as a table of DuckDB.
            decimals = {name: _with_decimals(types[name]) for name in types}
            text = query_text(question, decimals, "row_number() OVER () - 1", last)
            _log(question, "lab.engine.portable(trades)", text, tables)
        return fetched(connection.sql(query_text(question, types, quoted(ROW), last)))


# In DuckDB's own databases: that of a relation, and that of an archive


def ask_relation(
    question: Question,
    trades: Any,
    prices: Any,
    tables: Mapping[str, pa.Table],
    *,
    in_archive: bool = False,
) -> Any:
    """Ask a question of a relation; a relation comes out, whose rows are computed when it is read.

    In the database of an archive amounts are stored as integers of 1e-18, and there are none of these in others. It
    finds tables that are `registered` in it; the user's finds them under the names of variables.
    """
    types_of = _types if in_archive else _types_of_user
    given = registered(prices, tables)
    types: Types = {name: {} for name in given}
    types[TRADES] = types_of(trades)
    if not (in_archive and _has_known_hashes(question, trades)):
        types[TRADES] = _with_any_hashes(types[TRADES])
    if prices is not None:
        found = queried(trades, f"FROM {PRICES}", **given)
        types[PRICES] = _with_any_hashes(types_of(found))
    row = _row_sql(question, types)
    text = query_text(question, types, row, fits_memory=False)
    _log(question, "the relation of trades", text, tables, GIVEN)
    if not in_archive:
        # An archive knows how many rows its tables have.
        trades.query(TRADES, session.SORT_LOOKUPS)
    elif question.has_groups:
        _make_large_steps(question, _Tables(trades, types, row))
        text = query_text(question, types, row, fits_memory=False)
    found = queried(trades, text, **given)
    return found if question.has_groups else _by_row(question, found, types)


def registered(prices: Any, tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Return the tables that a question is asked with, under their names in the query."""
    given = {GIVEN + name: with_hugeints(table) for name, table in tables.items()}
    return given if prices is None else given | {PRICES: prices}


def queried(relation: Any, text: str, **tables: Any) -> Any:
    """Run a query on a relation's own connection, where DuckDB finds a table by the name of a variable."""
    variables = {**tables, "relation": relation, "text": text}
    return eval(f"relation.query('{TRADES}', text)", variables)  # noqa: S307 - the same text always


@dataclass
class _Tables:
    """The tables of steps in the database of an archive; they end with its connection."""

    trades: Any
    types: Types
    """Columns of the tables that are given; the names of those made are added."""
    row: str

    def execute(self, text: str) -> None:
        session.in_thread(partial(self.trades.query, TRADES, text))

    def make(self, name: str, question: Question) -> None:
        """Make the table of a step, or insert into it where there is one already."""
        how = f"INSERT INTO {name}"
        if name not in self.types:
            how = f"CREATE TEMP TABLE {name} AS"
        others = {other: self.types[other] for other in self.types if other != name}
        text = query_text(question, others, self.row, name, fits_memory=False)
        self.execute(f"{how} {text}")
        self.types[name] = {}

    def drop(self, name: str) -> None:
        self.execute(f"DROP TABLE {name}")
        del self.types[name]


def _make_large_steps(question: Question, tables: _Tables) -> None:
    """Make tables of the large steps."""
    steps = question.all_steps(fits_memory=False)
    large = [name for name, step in steps.items() if isinstance(step, Large)]
    # These are few, and found while all memory is free.
    large.sort(key=lambda name: name not in ("pairs", "weights"))
    while large:
        name = large.pop(0)
        if isinstance(steps[name], Prices) and large:
            _make_slices(question, name, large.pop(0), tables)
        else:
            tables.make(name, question)
    for name in READ_ALL:
        if name in steps and name not in tables.types:
            for of_cells in _parts_of_cells(question, name, tables):
                tables.make(name, of_cells)


def _make_slices(
    question: Question, prices: str, looked_up: str, tables: _Tables
) -> None:
    """Make the step that looks up prices, for one slice of time after the other.

    Its rows are summed in each slice, and of them only what has medians is kept.
    """
    passing = [prices]
    kept = [looked_up]
    if looked_up == "rows":
        known = ", ".join(question.medians)
        # Rows without any of these, such as fills with no price near, would take as much room as the others.
        ranked = f"""
-- what has medians
SELECT {question.keys.columns()}, {known} FROM rows WHERE coalesce({known}) IS NOT NULL"""
        question = replace(question, steps={**question.steps, "ranked": ranked})
        passing.append(looked_up)
        steps = ("sums", "spreads", "ranked")
        kept = [name for name in steps if name in question.steps]
    for of_slice in _slices(question, tables):
        for name in (*passing, *kept):
            tables.make(name, of_slice)
        for name in passing:
            tables.drop(name)
        if of_slice is not question:
            # DuckDB compresses tables in memory where it is told to, to a quarter and less.
            tables.execute("CHECKPOINT temp")
    if looked_up == "rows":
        tables.execute("ALTER TABLE ranked RENAME TO rows")
        tables.types["rows"] = tables.types.pop("ranked")


def _parts_of_cells(
    question: Question, name: str, tables: _Tables
) -> Iterator[Question]:
    """Yield a question for some cells at a time: sums by cell and account are nearly as many as orders."""
    celled = [key for key, step in question.steps.items() if isinstance(step, Celled)]
    if name != "spreads" or not celled:
        yield question
        return
    [key] = celled
    counted = f"SELECT span, count(*) AS orders FROM {key} WHERE cell IS NOT NULL GROUP BY span"
    steps = {**question.steps, "cell_spans": counted}
    tables.make("cell_spans", replace(question, steps=steps))
    spans = tables.trades.query(TRADES, "FROM cell_spans ORDER BY span").fetchall()
    for since, until in pairwise(_edges(spans)):
        orders = sum(count for span, count in spans if since <= span < until)
        parts = -(-orders // ROWS_OF_A_SLICE)
        for part in range(parts):
            of_part = f"span >= {since} AND span < {until} AND cell % {parts} = {part}"
            step = Celled(f"SELECT * FROM ({question.steps[key]}\n) WHERE {of_part}")
            yield replace(question, steps={**question.steps, key: step})


def _slices(question: Question, tables: _Tables) -> Iterator[Question]:
    """Yield a question for each slice of time, about orders filled in it, and the trades and prices in their reach.

    The last one is about orders that were filled in several slices, or at unknown times, and what is near their fills.
    Where prices of any time are looked up, those out of reach are found at the ends of their hours.
    """
    # Slices begin and end with spans, whose neighbours have all that is in reach.
    length = max(question.reach or 0, question.later, HOUR)
    span = _span_sql("epoch_ms(created_at::TIMESTAMPTZ)", length)
    timed = tables.trades.filter("created_at IS NOT NULL")
    counted = timed.aggregate(f"{span} AS span, count(*) AS rows").order("span")
    edges = _edges(counted.fetchall())
    # A single slice has two edges, and trades without times have one.
    if len(edges) < 3:
        yield question
        return
    moments = [edge * length << PLACE_BITS for edge in edges]
    if question.reach is None:
        _make_hour_ends(question, length, edges, tables)
    for (since, until), (begun, ended) in zip(
        pairwise(edges), pairwise(moments), strict=True
    ):
        of_slice = _with_ends(
            question,
            f"SELECT keys, max(moment), max_by(price, moment) FROM hour_ends WHERE moment < {begun} GROUP BY keys",
            f"SELECT keys, min(moment), min_by(price, moment) FROM hour_ends WHERE moment >= {ended} GROUP BY keys",
        )
        near = f"created_at >= {_time_sql((since - 1) * length)} AND created_at < {_time_sql((until + 1) * length)}"
        is_within = f"first_fill >= {begun} AND last_fill < {ended}"
        is_met = f"coalesce(first_fill < {ended} AND last_fill >= {begun}, TRUE)"
        yield _only(of_slice, near, is_within, is_met)
    crossed = [f"{edge} BETWEEN first_fill + 1 AND last_fill" for edge in moments]
    # Most orders have one fill, and are told by that alone.
    is_crossing = f"coalesce(first_fill < last_fill AND ({' OR '.join(crossed)}), TRUE)"
    spans = f"""
-- spans of markets with the fills of these orders, and those next to them
WITH crossing AS (
    FROM spans
    WHERE {is_crossing}
),
found AS (  -- their fills, and those of unknown orders
    SELECT market, order_id, ms
    FROM trades
    WHERE order_id IS NULL OR order_id IN (SELECT order_id FROM crossing)
),
filled AS (
    SELECT market, ms
    FROM found
    UNION ALL
    SELECT market, unnest([first_fill, last_fill]) >> {PLACE_BITS}
    FROM found
    JOIN crossing USING (order_id)
)
SELECT DISTINCT market, unnest([span - 1, span, span + 1]) AS span
FROM (SELECT market, {_span_sql("ms", length)} AS span FROM filled)"""
    steps = {**question.steps, "crossed": spans}
    tables.make("crossed", replace(question, steps=steps))
    is_near = f"market IS NULL OR (market::VARCHAR, {span}) IN (FROM crossed)"
    if question.reach is None:
        # Fees are converted in other markets than that of the fill, by prices that need not name them.
        is_near = f"{span} IN (SELECT span FROM crossed)"
    near = f"created_at IS NULL OR {is_near}"
    yield _only(_with_ends(question, "FROM hour_ends"), near, is_crossing, is_crossing)


def _make_hour_ends(
    question: Question, length: int, edges: Sequence[int], tables: _Tables
) -> None:
    """Make a table of the first and the last price of each hour, in slices: of another hour only these are found."""
    ends = f"""
-- the first and the last price of each hour
SELECT keys,
    unnest([min(moment), max(moment)]) AS moment,
    unnest([min_by(price, moment), max_by(price, moment)]) AS price
FROM known_prices
GROUP BY keys, {_span_sql(f"(moment >> {PLACE_BITS})", HOUR)}"""
    steps = {**question.steps, "hour_ends": ends}
    begins = [_time_sql(edge * length) for edge in edges]
    near = [
        f"created_at >= {begin} AND created_at < {end}"
        for begin, end in pairwise(begins)
    ]
    are_given = PRICES in tables.types
    if are_given:
        # They may be older and newer than all trades.
        near += [f"created_at < {begins[0]}", f"created_at >= {begins[-1]}"]
    for condition in near:
        of_slice = replace(question, steps=steps, only_prices=f"WHERE {condition}")
        if not are_given:
            # Given prices are those of the markets of all trades, so that trades are not cut where there are any.
            of_slice = replace(of_slice, only=f"WHERE {condition}")
        tables.make("hour_ends", of_slice)


def _with_ends(question: Question, *ends: str) -> Question:
    """Return a question that finds prices at the ends of other hours too, where it looks up prices of any time."""
    if question.reach is not None:
        return question
    known = Prices(
        " UNION ALL ".join([f"FROM ({question.steps['known_prices']}\n)", *ends])
    )
    return replace(question, steps={**question.steps, "known_prices": known})


def _edges(counts: Iterable[tuple[int, int]]) -> list[int]:
    """Return the spans that slices of up to `ROWS_OF_A_SLICE` rows begin with, and the one after the last.

    `counts` are spans in their order, each with its number of rows.
    """
    edges: list[int] = []
    rows = 0
    last = 0
    for last, count in counts:
        if not edges or rows + count > ROWS_OF_A_SLICE:
            edges.append(last)
            rows = 0
        rows += count
    return [*edges, last + 1]


def _only(question: Question, near: str, is_asked: str, is_met: str) -> Question:
    """Return a question about orders that are asked about, which finds the trades and prices near them.

    `is_met` selects the spans of all orders that may have a fill there, as one without a span has a single fill.
    """
    steps = dict(question.steps)
    for name, step in steps.items():
        if isinstance(step, Spanned):
            # With the spans of all slices, each slice would take longer the more slices there are.
            met = f"WITH spans AS (FROM temp.spans WHERE {is_met})"
            steps[name] = Spanned(f"SELECT * FROM ({met}\n{step}\n) WHERE {is_asked}")
    return replace(
        question, steps=steps, only=f"WHERE {near}", only_prices=f"WHERE {near}"
    )


def _span_sql(ms: str, length: int) -> str:
    # Whole numbers are divided towards 0, by which the span before 1970 would be that after it.
    return f"floor({ms} / {length}.0)::BIGINT"


def _time_sql(ms: int) -> str:
    return f"make_timestamptz({ms * 1000})"


# Answers by row of a relation, and answers as Arrow tables


def _shown(question: Question, types: Types) -> Sequence[str]:
    return list(types[TRADES]) if question.shown is None else question.shown


def _row_sql(question: Question, types: Types) -> str:
    """Return what an answer by row is put together by: what is shown of its trades, and their order as DuckDB reads."""
    if question.has_groups:
        return "NULL"
    names = map(quoted, _shown(question, types))
    fields = [f"{name} := {name}" for name in names]
    fields.append(f"{quoted(ROW)} := row_number() OVER ()")
    return f"struct_pack({', '.join(fields)})"


def _by_row(question: Question, found: Any, types: Types) -> Any:
    """Put an answer by row in the order of its trades: columns shown, or its own in their place, then its others."""
    if not question.is_sorted:
        # Rows of one trade stay in the order in which the last step has them.
        found = found.project(f"*, row_number() OVER () AS {quoted(ANSWERED)}")
        found = found.order(f"row.{quoted(ROW)}, {quoted(ANSWERED)}")
    own = _types(found)
    columns = []
    for name in _shown(question, types):
        if name in own:
            columns.append(_out_of_duckdb(name, own.pop(name)))
        else:
            columns.append(f"row.{quoted(name)} AS {quoted(name)}")
    for name, kind in own.items():
        if name not in ("row", ANSWERED):
            columns.append(_out_of_duckdb(name, kind))
    return found.project(", ".join(columns))


def fetched(found: Any) -> pa.Table:
    """Fetch an answer with amounts as decimals."""
    columns = [_out_of_duckdb(name, kind) for name, kind in _types(found).items()]
    table = session.in_thread(found.project(", ".join(columns)).to_arrow_table)
    return frames.with_milliseconds(table)


def _out_of_duckdb(name: str, kind: str) -> str:
    """Return a column of an answer as SQL, an amount as a decimal."""
    if kind != "HUGEINT":
        return quoted(name)
    # 38 digits without a point times 1e-18: the same integer, now with 18 places.
    amount = f"{quoted(name)}::DECIMAL(38, 0) * '0.000000000000000001'::DECIMAL(18, 18)"
    return f"{amount} AS {quoted(name)}"


def named(table: pa.Table, keys: Keys) -> pa.Table:
    """Give the keys of an answer their names, and periods their time zone."""
    names = dict(zip(keys.aliases, keys.names, strict=True))
    kept = [name for name in table.column_names if name != EVERYTHING]
    table = table.select(kept).rename_columns([names.get(name, name) for name in kept])
    if keys.periods is None:
        return table
    zoned = table["period"].cast(pa.timestamp("ms", keys.periods.zone))
    return frames.replaced(table, "period", zoned)


# Types


def _types(relation: Any) -> dict[str, str]:
    kinds = map(str, relation.types)
    return dict(zip(relation.columns, kinds, strict=True))


def _types_of_user(relation: Any) -> dict[str, str]:
    """Return the types of somebody's own relation, whose HUGEINTs are whole numbers and no amounts: by another name."""
    types = _types(relation)
    for name, kind in types.items():
        if kind == "HUGEINT":
            types[name] = WHOLE_NUMBER
    return types


def _has_known_hashes(question: Question, trades: Any) -> bool:
    """Say whether order hashes that a question wants were all found to be some: many steps make numbers of them."""
    if "order_hash" not in (*question.needs, *question.may_have):
        return False
    batches = trades.project("order_hash").to_arrow_reader(hashes.SLICE)
    return session.in_thread(partial(hashes.are_known, batches))


def _with_any_hashes(types: dict[str, str]) -> dict[str, str]:
    """Return types for rows of which nobody has looked whether order hashes are some."""
    return types | {"order_hash": ANY_TEXT} if "order_hash" in types else types


def _with_decimals(types: Mapping[str, str]) -> dict[str, str]:
    decimals = {
        name: kind.replace("HUGEINT", "DECIMAL(38,18)") for name, kind in types.items()
    }
    return _with_any_hashes(decimals)


def with_hugeints(table: pa.Table) -> pa.Table:
    """Return a table with amounts as DuckDB takes them."""
    for entry in table.schema:
        if entry.type == AMOUNT_TYPE:
            column = frames.to_hugeint(table[entry.name])
            table = frames.replaced(table, entry.name, column)
    return table


# The log and the errors of a query


def _log(
    question: Question,
    trades: str,
    text: str,
    tables: Mapping[str, pa.Table],
    prefix: str = "",
) -> None:
    """Log a query, with the small tables that it is asked with as its first steps."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    for name, table in tables.items():
        types = _types(session.cursor().from_arrow(with_hugeints(table)))
        rows = literal(json.dumps(table.to_pylist(), default=str))
        given = f"SELECT unnest(from_json({rows}, {literal(json.dumps([types]))}), recursive := true)"
        step = f"{prefix}{name} AS (\n-- a small table that is asked with\n{given}\n)"
        text = f"WITH {step}, {text.removeprefix('WITH ')}"
    log.debug("-- %s: given_trades is %s\n%s", question.caller, trades, text)


@contextmanager
def translated(caller: str) -> Iterator[None]:
    """Say what went wrong in DuckDB, and what to do next."""
    try:
        with session.raising_interrupts():
            yield
    except Exception as error:
        raise _explained(error, caller) from None


def _explained(error: Exception, caller: str) -> Exception:
    import duckdb

    first_line = str(error).partition("\n")[0]
    if isinstance(error, (duckdb.OutOfRangeException, duckdb.ConversionException)):
        return AmountError(
            f"{caller}: an amount or a sum does not fit 38 digits ({first_line}). Select fewer trades, group "
            "them, or leave out the row with that amount."
        )
    if isinstance(error, duckdb.OutOfMemoryException):
        return LabError(
            f"{caller}: the question needs more memory than lab.engine.set_memory allows ({first_line}). Allow "
            "more, such as lab.engine.set_memory('4GiB')."
        )
    if isinstance(error, duckdb.IOException):
        return LabError(
            f"{caller}: DuckDB could not read or write a file ({first_line}). If the disk is full, name another "
            "folder: lab.engine.set_memory(spill_folder=...)."
        )
    if "different connection" in str(error) or "another connection" in str(error):
        return LabError(
            f"{caller}: trades and prices are relations of two DuckDB connections, which cannot be joined. Open "
            "both on one connection, or pass prices as a pandas frame."
        )
    return error
