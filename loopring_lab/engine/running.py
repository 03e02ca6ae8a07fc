"""Queries run by DuckDB: over frames in memory, on a relation's own connection, and in the database of an archive."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.bounded import printable, shown
from loopring_lab.engine import frames, hashes, session, slices
from loopring_lab.engine.groups import (
    ANY_TEXT,
    EVERYTHING,
    WHOLE_NUMBER,
    Keys,
    literal,
    quoted,
)
from loopring_lab.engine.question import Question
from loopring_lab.engine.text import GIVEN, PRICES, TRADES, Types, query_text
from loopring_lab.engine.values import is_text
from loopring_lab.errors import AmountError, LabError

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger("loopring_lab.sql")

# The number of a row in a frame in memory, under a name that no frame has.
ROW = "number of the row"
# The number of a row in an answer, before it is put in the order of the trades.
ANSWERED = "number of the row in the answer"
# What a user's connection may have of its own that gives our queries another meaning: macros, which DuckDB takes before
# its own functions, also before + and count(*); tables, which it takes before variables; and settings. Its list of
# functions takes DuckDB a hundredth of a second.
OTHER_MEANINGS = f"""
SELECT function_name FROM system.main.duckdb_functions() GROUP BY ALL HAVING count(DISTINCT internal) = 2
UNION ALL
SELECT table_name FROM system.information_schema.tables
WHERE starts_with(lower(table_name), '{GIVEN}') AND lower(table_name) <> '{TRADES}'
UNION ALL
SELECT setting FROM (VALUES
    ('default_order', list_sort([2, 1]) = [1, 2]),
    ('default_null_order', list_sort([NULL, 1]) = [1, NULL]),
    ('integer_division', 1 / 2 > 0),
    ('default_collation', 'a' <> 'A'),
    ('ieee_floating_point_ops', TRY(isinf(1e0 / 0)))
) AS settings(setting, is_usual)
WHERE is_usual IS NOT TRUE"""


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
        slices.make_large_steps(question, trades, types, row)
        text = query_text(question, types, row, fits_memory=False)
    found = queried(trades, text, **given)
    return found if question.has_groups else _by_row(question, found, types)


def plain(relation: Any, caller: str) -> Any:
    """Return a relation whose texts are compared as they are, unless queries have another meaning where it is."""
    for (name,) in relation.query(TRADES, OTHER_MEANINGS).fetchall():
        raise LabError(
            f"{caller}: the relation's connection has a function, table or setting {shown(name, 60)} of its own, which "
            "would change the answer. Drop or reset it, or give relation.to_arrow_table()."
        )
    # Columns of a table may have collations, which no type shows.
    texts = [
        f"{quoted(name)} COLLATE C AS {quoted(name)}"
        for name, kind in _types(relation).items()
        if kind == "VARCHAR"
    ]
    return relation.project(f"* REPLACE ({', '.join(texts)})") if texts else relation


def registered(prices: Any, tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Return the tables that a question is asked with, under their names in the query."""
    given = {GIVEN + name: with_hugeints(table) for name, table in tables.items()}
    return given if prices is None else given | {PRICES: prices}


def queried(relation: Any, text: str, **tables: Any) -> Any:
    """Run a query on a relation's own connection, where DuckDB finds a table by the name of a variable."""
    variables = {**tables, "relation": relation, "text": text}
    return eval(f"relation.query('{TRADES}', text)", variables)  # noqa: S307 - the same text always


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
    # What an answer is put together by is no column of it: trades may have their own of such a name.
    for name in ("row", ANSWERED):
        own.pop(name, None)
    columns = []
    for name in _shown(question, types):
        if name in own:
            columns.append(_out_of_duckdb(name, own.pop(name)))
        else:
            columns.append(f"row.{quoted(name)} AS {quoted(name)}")
    for name, kind in own.items():
        columns.append(_out_of_duckdb(name, kind))
    return found.project(", ".join(columns))


def fetched(found: Any) -> pa.Table:
    """Fetch an answer with amounts as decimals."""
    table = session.in_thread(found.to_arrow_table)
    for name, kind in _types(found).items():
        if kind == "HUGEINT":
            amounts = frames.from_hugeint(table[name])
            table = frames.replaced(table, name, amounts)
    return frames.with_milliseconds(table)


def _out_of_duckdb(name: str, kind: str) -> str:
    """Return a column of an answer as SQL, an amount as a decimal."""
    column = quoted(name)
    return frames.decimal_sql(column) if kind == "HUGEINT" else column


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
    is_any = is_text(types.get("order_hash", ""))
    return types | {"order_hash": ANY_TEXT} if is_any else types


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
    too_large = (duckdb.OutOfRangeException, duckdb.ConversionException, OverflowError)
    if isinstance(error, too_large):
        return AmountError(
            f"{caller}: an amount or a sum does not fit 38 digits ({first_line}). Select fewer trades, group "
            "them, or leave out the row with that amount."
        )
    _, _, said = first_line.partition("Invalid Input Error: ")
    if said.startswith(caller):
        # What a query refuses is in our own words.
        return LabError(printable(said, 300))
    _, stream, refused = first_line.partition("Arrow source failed: Unknown error: ")
    if stream:
        # So is what a relation of an archive refuses while it is read.
        return LabError(f"{caller}: {refused.partition('. Detail: ')[0]}")
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
    if isinstance(error, (pa.ArrowException, duckdb.NotImplementedException)):
        return LabError(
            f"{caller}: no column of such a type is understood ({first_line}). Convert that column to text or to other "
            "numbers."
        )
    if "connection to another database" in str(error):
        return LabError(
            f"{caller}: trades and prices are relations of two DuckDB databases, which cannot be joined. Open both on "
            "one connection, or give relation.to_arrow_table() as prices."
        )
    if isinstance(error, (duckdb.InternalException, duckdb.FatalException)):
        # DuckDB refuses whatever else a database is asked after such an error.
        session.close()
    if isinstance(error, duckdb.Error):
        return LabError(
            f"{caller}: DuckDB fails at this ({first_line}). Convert columns of unusual types to text, or leave them "
            "out; of a connection with settings of its own, give relation.to_arrow_table()."
        )
    return error
