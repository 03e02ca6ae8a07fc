"""One question: a query of named steps over trades, run where they are, with an answer of the same kind.

Steps read from top to bottom; each may name those above it. Some names have a meaning:

``rows``
    what the question needs of each fill or order. If it is the last step, it is the answer, by row.
``sums``
    sums of rows by group, which can be added up over markets
``quotes``
    the quote tokens of each group
``weights``
    how groups are weighed, from all quote tokens
``means``
    what follows from all sums, by group
``spreads``
    sums again, such as of distances from the means
``pairs``
    of how many fills both sides are there, see `sums`
``medians``
    of columns of ``rows``; the engine makes this step where `Question.medians` asks for it
``answer``
    one row for each group; by default the sums

``weights``, ``means`` and ``answer`` are about all markets, every other step about one: its rows need only rows of the
same market. So Spark's workers run the others market by market, and these three are run on what comes back.

What queries find in ``trades``, besides the columns asked for:

``row``
    what the answer is put together by: the number of the row in a frame in memory, else the columns `shown`
``ms``
    ``created_at`` in milliseconds since 1970
``moment``
    one integer that orders all rows of a market: ``ms`` and, in its lowest 20 bits, the place in the block
``order_id``
    64 bits that tell the orders of all markets apart: of the order's hash; without one, of account, token sold and
    storage id, under which the exchange counts what an order has filled; else of the fill and its side, an order by
    itself
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.engine import frames, session
from loopring_lab.engine.groups import (
    EVERYTHING,
    WHOLE_NUMBER,
    Keys,
    hash_sql,
    literal,
    quoted,
)
from loopring_lab.errors import AmountError, LabError

if TYPE_CHECKING:
    import duckdb

log = logging.getLogger("loopring_lab.sql")

# Bits of a moment below the millisecond: 1 more than the place in the block, 0 where that is not known. A relayer
# gives the block 0 to what is in no block yet; blocks read without their numbers have places all the same.
# A block has 384 transactions at most; 43 bits remain for the millisecond, which reaches the year 2248.
PLACE_BITS = 20
MOMENT = f"""epoch_ms(created_at) * {1 << PLACE_BITS} + CASE
        WHEN block_id IS DISTINCT FROM 0 AND index_in_block BETWEEN 0 AND {(1 << PLACE_BITS) - 2}
            THEN index_in_block + 1
        ELSE 0 END"""
ORDER_ID = """CASE
        WHEN order_hash IS NOT NULL THEN hash(market, order_hash)
        WHEN account_id IS NOT NULL AND token_id IS NOT NULL AND storage_id IS NOT NULL
            THEN hash(market, account_id, token_id, storage_id)
        WHEN trade_id IS NOT NULL AND side IS NOT NULL THEN hash(market, 'fill', trade_id, side) END"""
# The number of a row in a frame in memory, under a name that no frame has.
ROW = "number of the row"
# The number of a row in an answer, before it is put in the order of the trades.
ANSWERED = "number of the row in the answer"
# Columns that say where in its block a fill is, and which order it is of.
PLACE = ("block_id", "index_in_block")
ORDER_COLUMNS = (
    "market",
    "order_hash",
    "account_id",
    "token_id",
    "storage_id",
    "trade_id",
    "side",
)
# Columns that queries find where a question wants all columns that they are made of.
DERIVED = {
    "ms": (("created_at",), "epoch_ms(created_at)"),
    "moment": (("created_at", *PLACE), MOMENT),
    "order_id": (ORDER_COLUMNS, ORDER_ID),
}
# Steps that are read again where they are used twice: that is less work than a copy of all rows on disk.
STREAMED = ("trades", "typed", "fills", "lookups", "sized", "weighed", "paid")
# Steps of about as many rows as the trades have, or that sort as many. An archive makes one after the other: in one
# query DuckDB does several at once, for which 1 GiB is too little from 10 million trades on.
LARGE = ("ends", "spans", "known_prices", "rows", "pairs", "several", "orders")
# An archive looks up prices for this many rows at a time, which takes some 1 GiB.
ROWS_OF_A_PART = 10_000_000
# Small tables that a question may be asked with.
TABLES = ("worth", "pools", "units", "flows", "ledger", "fitted")
# A column of answers that never reaches the user: of how many fills in all of the trades both sides are counted.
BOTH_SIDES = "both sides of all trades"
# Another one: how many fills count nowhere, as their taker or their venue is unknown.
LEFT_OUT = "fills left out"


@dataclass(frozen=True)
class Question:
    """What is asked of trades, and which of their columns that needs."""

    caller: str
    steps: Mapping[str, str]
    needs: Sequence[str]
    """Columns that the trades must have."""
    may_have: Sequence[str] = ()
    """Columns that are null in trades that lack them."""
    keys: Keys = field(default_factory=Keys)
    shown: Sequence[str] | None = ()
    """Columns of the trades beside those of an answer by row; None for all of them."""
    is_sorted: bool = False
    """Whether an answer by row stays in the order of its last step, not in that of the trades."""
    medians: Sequence[str] = ()
    """Columns of ``rows`` of which ``medians`` has the median for each group, under the same names."""
    price_needs: Sequence[str] = ("created_at", "market", "price")
    """Columns that a frame of prices must have."""
    price_may_have: Sequence[str] = PLACE
    """Columns that are null in prices that lack them. With those of orders, prices have an ``order_id`` too."""
    split_by: tuple[str, ...] = ("market",)
    """Columns by which Spark deals out rows to its workers; empty where the question needs all at once."""

    @property
    def has_groups(self) -> bool:
        """Whether the answer has a row for each group, not one for each row."""
        return "sums" in self.steps


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


def run(text: str, caller: str, **inputs: pa.Table) -> pa.Table:
    """Run a query over Arrow tables by name, amounts as DECIMAL(38, 18) on both sides."""
    log.debug("-- %s\n%s", caller, text)
    with opened(caller, inputs) as connection:
        return _fetched(connection.sql(text))


def ask_in_memory(
    question: Question,
    trades: Any,
    prices: Any,
    tables: Mapping[str, pa.Table],
    last: str = "",
) -> pa.Table:
    """Ask a question of a frame in memory, up to the `last` step.

    `tables` may hold steps that are known already, under their names. The keys have their names of queries in
    what is returned.
    """
    wanted = _wanted(question, trades)
    rows = frames.to_arrow(trades, wanted, question.caller)
    inputs = {
        **tables,
        "given_trades": rows.append_column(ROW, pa.array(np.arange(len(rows)))),
    }
    if prices is not None:
        inputs["given_prices"] = prices_in_memory(question, prices)
    with opened(question.caller, inputs) as connection:
        types = {name: _types(connection.table(name)) for name in inputs}
        if log.isEnabledFor(logging.DEBUG):
            # What is logged runs on ``lab.engine.portable(trades)`` as a table of DuckDB.
            decimals = {name: _with_decimals(types[name]) for name in types}
            text = _text(question, decimals, "row_number() OVER () - 1", last)
            _log(question, "lab.engine.portable(trades)", text, tables)
        return _fetched(connection.sql(_text(question, types, quoted(ROW), last)))


def ask_relation(
    question: Question,
    trades: Any,
    prices: Any,
    tables: Mapping[str, pa.Table],
    *,
    is_archive: bool = False,
) -> Any:
    """Ask a question of a relation, on the connection that it is of; a relation comes out."""
    caller = question.caller
    small = {f"given_{name}": table for name, table in tables.items()}
    types: dict[str, Mapping[str, str]] = {name: {} for name in small}
    types["given_trades"] = _types(trades) if is_archive else _types_of_user(trades)
    names = list(types["given_trades"])
    _wanted(question, trades)
    shown = names if question.shown is None else question.shown
    # An answer by row has what is shown of its trades beside it, and comes in their order, as DuckDB reads them.
    fields = [f"{quoted(name)} := {quoted(name)}" for name in shown]
    fields.append(f"{quoted(ROW)} := row_number() OVER ()")
    row = "NULL" if question.has_groups else f"struct_pack({', '.join(fields)})"
    # One variable for each of `TABLES`: DuckDB finds tables by name of variable.
    given_worth = tables.get("worth")
    given_pools = tables.get("pools")
    given_units = tables.get("units")
    given_flows = tables.get("flows")
    given_ledger = tables.get("ledger")
    given_fitted = tables.get("fitted")
    given_prices = prices
    if prices is not None:
        types["given_prices"] = _types_of_user(
            trades.query("given_trades", "FROM given_prices")
        )
    text = _text(question, types, row, fits_memory=False)
    _log(question, "the relation of trades", text, small)
    with translated(caller):
        if not is_archive:
            # The relation may be of the user's own database. An archive knows how many rows its tables have.
            trades.query("given_trades", session.SORT_LOOKUPS)
        if is_archive and question.has_groups:
            _make_large_steps(question, trades, types, row)
            text = _text(question, types, row, fits_memory=False)
        found = trades.query("given_trades", text)
        if question.has_groups:
            return found
        if not question.is_sorted:
            # Rows of one trade stay in the order in which the last step has them.
            found = found.project(f"*, row_number() OVER () AS {quoted(ANSWERED)}")
            found = found.order(f"row.{quoted(ROW)}, {quoted(ANSWERED)}")
        return found.project(", ".join(_unpacked(found, shown)))


def _make_large_steps(
    question: Question, trades: Any, types: dict[str, Mapping[str, str]], row: str
) -> None:
    """Make tables of the large steps, and add them to those given; they end with the connection."""

    def make(name: str, of: Any, given: dict[str, Mapping[str, str]], how: str) -> None:
        rows = _text(question, given, row, name, fits_memory=False)
        text = f"{how} {rows}"
        session.in_thread(partial(of.query, "given_trades", text))
        given[name] = {}

    names = [name for name in question.steps if name in LARGE]
    # Prices are looked up within a market. So the steps up to the one that has them are made for some markets at a
    # time, and only that one is kept for all.
    looked_up: list[str] = []
    if question.split_by == ("market",) and "known_prices" in names[:-1]:
        looked_up = names[: names.index("known_prices") + 2]
        *needed, kept = looked_up
        begin = f"CREATE TEMP TABLE {kept} AS"
        for part in _parts(trades):
            given = dict(types)
            for name in needed:
                make(name, part, given, f"CREATE OR REPLACE TEMP TABLE {name} AS")
            make(kept, part, given, begin)
            begin = f"INSERT INTO {kept}"
        types[kept] = {}
    for name in names[len(looked_up) :]:
        make(name, trades, types, f"CREATE TEMP TABLE {name} AS")


def _parts(trades: Any) -> Iterator[Any]:
    """Yield the trades of an archive, some markets at a time: with up to `ROWS_OF_A_PART`, or one that has more."""
    counted = trades.filter("market IS NOT NULL").aggregate("market, count(*) AS rows")
    parts: list[list[str]] = [[]]
    left = ROWS_OF_A_PART
    for market, rows in counted.order("rows DESC, market").fetchall():
        if parts[-1] and rows > left:
            parts.append([])
            left = ROWS_OF_A_PART
        parts[-1].append(literal(market))
        left -= rows
    # Trades of unknown markets, of which there are few.
    parts[-1].append(literal(""))
    for part in parts:
        yield trades.filter(f"coalesce(market, '') IN ({', '.join(part)})")


def _unpacked(found: Any, shown: Sequence[str]) -> Iterator[str]:
    """Yield the columns of a relation's answer by row: those shown, or its own in their place, then its others."""
    own = _types(found)
    for name in shown:
        yield (
            _out_of_duckdb(name, own.pop(name))
            if name in own
            else f"row.{quoted(name)} AS {quoted(name)}"
        )
    for name, kind in own.items():
        if name not in ("row", ANSWERED):
            yield _out_of_duckdb(name, kind)


def _fetched(found: Any) -> pa.Table:
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


def summed(question: Question, found: Any) -> pa.Table:
    """Fetch an answer by group, under the names of its keys."""
    with translated(question.caller):
        return named(_fetched(found), question.keys)


def beside_rows(question: Question, trades: Any, found: pa.Table) -> Any:
    """Put an answer by row beside the rows it is of, in the order of the trades unless it has one of its own."""
    if not question.is_sorted:
        found = found.take(pa.array(np.argsort(found["row"], kind="stable")))
    shown = (
        frames.column_names(trades, question.caller)
        if question.shown is None
        else question.shown
    )
    added = without_note(found).drop_columns("row")
    result = frames.beside(trades, shown, np.asarray(found["row"]), added)
    # Columns added to trades stand in the rows of their index; other answers have rows of their own.
    if isinstance(result, pd.DataFrame) and (
        question.is_sorted or question.shown is not None
    ):
        result = result.reset_index(drop=True)
    return finished(result, found)


# The text of a query


def _text(
    question: Question,
    types: Mapping[str, Mapping[str, str]],
    row: str,
    last: str = "",
    *,
    fits_memory: bool = True,
) -> str:
    """Put a question together: its tables, then its steps but for those given; `last` is what it returns.

    `types` are those of the columns of the tables that are given.
    """
    trade_types = types["given_trades"]
    for name in question.keys.of_frame:
        if trade_types[name].endswith("]") or trade_types[name].startswith(
            ("STRUCT", "MAP")
        ):
            raise LabError(
                f"{question.caller}: {name!r} is list or struct data ({trade_types[name]}), and such values cannot be "
                "ordered to group by them. Convert them to strings or numbers."
            )
    keys = question.keys.definitions(trade_types)
    wanted = [*question.needs, *question.may_have]
    # As steps, small tables come before those that have the same name in a user's database.
    texts = {
        name: f"-- a small table that is asked with\nFROM given_{name}"
        for name in TABLES
        if f"given_{name}" in types
    }
    texts["trades"] = _table(
        "given_trades", wanted, trade_types, question.caller, *keys, f"{row} AS row"
    )
    if "given_prices" in types:
        wanted = [*question.price_needs, *question.price_may_have]
        texts["prices"] = _table(
            "given_prices", wanted, types["given_prices"], question.caller
        )
    texts |= {
        name: text
        for name, text in all_steps(question, fits_memory=fits_memory).items()
        if name not in types
    }
    final = f"FROM {last}" if last else texts.popitem()[1].strip()
    again = {} if fits_memory else dict.fromkeys(STREAMED, "NOT MATERIALIZED ")
    before = "WITH " + ", ".join(
        f"{name} AS {again.get(name, '')}(\n{text.strip()}\n)"
        for name, text in texts.items()
    )
    # The last step may have steps of its own, which then follow those before it; comments come first.
    own_steps = re.match(r"((?:--.*\n)*)WITH\b", final)
    if own_steps:
        return f"{before},\n{own_steps[1]}{final[own_steps.end() :]}"
    return f"{before}\n{final}"


def all_steps(question: Question, *, fits_memory: bool = True) -> dict[str, str]:
    """Return the steps of a question, with those that the engine makes."""
    steps = dict(question.steps)
    answer = steps.pop("answer", "-- the sums are the answer\nFROM sums")
    if question.medians:
        make = _medians_in_memory if fits_memory else _medians_by_counting
        steps["medians"] = make(question)
    if question.has_groups:
        steps["answer"] = answer
    return steps


def _medians_in_memory(question: Question) -> str:
    group = question.keys.columns()
    middles = ", ".join(f"median({name}) AS {name}" for name in question.medians)
    return f"-- the median of each column\nSELECT {group}, {middles} FROM rows GROUP BY {group}"


def _medians_by_counting(question: Question) -> str:
    """Find the middle by counting hundredths: sorting all values takes ten times as long, and room on disk."""
    group = question.keys.columns()
    names = ", ".join(literal(name) for name in question.medians)
    middles = ", ".join(
        f"avg(value) FILTER (WHERE name = {literal(name)}) AS {name}"
        for name in question.medians
    )
    same = question.keys.same("l", "s", "name")
    # Not a number is above all others in DuckDB.
    step = "coalesce(round(value, 2), 'NaN'::DOUBLE)"
    # Of an even number of values the two in the middle count, else one; where all are unknown, one of these.
    is_middle = "up_to >= (known + 1) // 2 AND up_to - values < (known + 2) // 2"
    return f"""
-- the median of each column
WITH listed AS NOT MATERIALIZED (  -- each value by itself, with the name of its column
    SELECT {group}, unnest([{names}]) AS name, unnest([{", ".join(question.medians)}]) AS value FROM rows
),
steps AS (  -- how many values there are up to each hundredth; unknown ones are last
    SELECT *,
        (sum(values) OVER (PARTITION BY {group}, name ORDER BY step))::BIGINT AS up_to,
        (sum(values) OVER (PARTITION BY {group}, name))::BIGINT AS known
    FROM (SELECT {group}, name, {step} AS step, count(value) AS values FROM listed GROUP BY ALL)
),
middle AS (  -- the hundredths in the middle; a list counts as one row, so DuckDB keeps these in memory, not the values
    SELECT unnest(list(s), recursive := true) FROM steps AS s WHERE {is_middle}
),
near AS (  -- the different values of these
    SELECT {question.keys.columns("l")}, l.name, value,
        count(value) AS values, min(up_to - values) AS below, any_value(known) AS known
    FROM listed AS l JOIN middle AS s ON {same} AND {step} = step
    GROUP BY ALL
),
placed AS (  -- these, with how many values there are up to each
    SELECT * EXCLUDE below, (min(below) OVER (PARTITION BY {group}, name)
        + sum(values) OVER (PARTITION BY {group}, name ORDER BY value NULLS LAST))::BIGINT AS up_to
    FROM near
)
SELECT {group}, {middles} FROM placed
WHERE {is_middle}
GROUP BY {group}"""


def _table(
    source: str,
    wanted: Sequence[str],
    types: Mapping[str, str],
    caller: str,
    *others: str,
) -> str:
    """Return the columns of a frame as queries take them, null where it lacks one, with those that follow from them."""
    lines = []
    for name in dict.fromkeys(wanted):
        kind = frames.TYPES.get(name, "TIMESTAMPTZ")
        found = (
            _column_sql(name, types[name], kind, caller)
            if name in types
            else f"NULL::{kind}"
        )
        lines.append(f"{found} AS {name}")
    columns = ",\n    ".join([*lines, *others])
    follow = [
        f"{sql} AS {name}"
        for name, (made_of, sql) in DERIVED.items()
        if set(made_of) <= set(wanted)
    ]
    added = ",\n    ".join(["*", *follow])
    text = f"SELECT {added}\nFROM (SELECT\n    {columns}\nFROM {source}) AS given"
    return f"-- each row of {source}, with what follows from it\n{text}"


def _column_sql(name: str, kind: str, wanted: str, caller: str) -> str:
    """Return a column of type `kind` as queries take it, as type `wanted`."""
    source = quoted(name)
    if name in frames.EXACT and kind != "HUGEINT":
        if not kind.startswith("DECIMAL") and kind != '"NULL"':
            raise frames.not_exact(name, kind, caller)
        # A DECIMAL(38, 18) has always 18 places as text: without its point it is the integer of 1e-18. Multiplying
        # by 1e18 instead overflows the decimal on the way.
        cut = f"{source}::DECIMAL(38, 18)"
        # That rounds a DECIMAL with more places: what it would change becomes a text, which no integer is made of.
        wrong = f"concat({source}, ' has more than 18 decimals')"
        return (
            f"if({source} <> {cut}, {wrong}, replace({cut}::VARCHAR, '.', ''))::HUGEINT"
        )
    if name == "created_at" and kind not in (
        "TIMESTAMP WITH TIME ZONE",
        "TIMESTAMPTZ_NS",
    ):
        raise LabError(
            f"{caller}: created_at is {kind}, not a time with a time zone. Convert it, such as with "
            "pandas.to_datetime(..., utc=True)."
        )
    if name == "fee_bps" and kind in ("VARCHAR", "BOOLEAN"):
        raise LabError(
            f"{caller}: fee_bps is {kind}, not a number. Convert it to float64 basis points."
        )
    if name == "order_hash":
        return hash_sql(source)
    if name == "fee_bps":
        # Polars and Arrow keep a rate that is not a number; pandas means an unknown one by it.
        return f"nullif({source}::DOUBLE, 'NaN'::DOUBLE)"
    return source if kind == wanted else f"{source}::{wanted}"


def _wanted(question: Question, trades: Any) -> list[str]:
    """Return the columns of a frame to convert: what the question needs, and what it may have."""
    names = frames.column_names(trades, question.caller)
    frames.check_columns(
        [*question.needs, *(question.shown or ()), *question.keys.of_frame],
        names,
        question.caller,
        trades,
    )
    optional = [name for name in question.may_have if name in names]
    time = [] if question.keys.every is None else ["created_at"]
    wanted = list(
        dict.fromkeys([*question.needs, *optional, *time, *question.keys.of_frame])
    )
    by_capitals: dict[str, str] = {}
    for name in wanted:
        other = by_capitals.setdefault(name.lower(), name)
        if other != name:
            raise LabError(
                f"{question.caller}: the columns {other!r} and {name!r} differ in capitals only, which DuckDB "
                "takes for one. Rename yours."
            )
    return wanted


def prices_in_memory(question: Question, prices: Any) -> pa.Table:
    """Read a frame of prices, of any kind, into an Arrow table."""
    names = frames.column_names(prices, question.caller)
    frames.check_columns(
        question.price_needs, names, f"{question.caller}: prices=", prices
    )
    optional = [name for name in question.price_may_have if name in names]
    return frames.to_arrow(prices, [*question.price_needs, *optional], question.caller)


def _log(
    question: Question, trades: str, text: str, tables: Mapping[str, pa.Table]
) -> None:
    """Log a query, with the small tables that it is asked with as its first steps."""
    if not log.isEnabledFor(logging.DEBUG):
        return
    for name, table in tables.items():
        types = _types(session.cursor().from_arrow(with_hugeints(table)))
        rows = literal(json.dumps(table.to_pylist(), default=str))
        given = f"SELECT unnest(from_json({rows}, {literal(json.dumps([types]))}), recursive := true)"
        table_step = f"{name} AS (\n-- a small table that is asked with\n{given}\n)"
        text = f"WITH {table_step}, {text.removeprefix('WITH ')}"
    log.debug("-- %s: given_trades is %s\n%s", question.caller, trades, text)


# Tables


def _types(relation: Any) -> dict[str, str]:
    return {
        name: str(kind)
        for name, kind in zip(relation.columns, relation.types, strict=True)
    }


def _types_of_user(relation: Any) -> dict[str, str]:
    """Return the types of somebody's own relation, whose HUGEINTs are whole numbers and no amounts: by another name."""
    return {
        name: WHOLE_NUMBER if kind == "HUGEINT" else kind
        for name, kind in _types(relation).items()
    }


def _with_decimals(types: Mapping[str, str]) -> dict[str, str]:
    return {
        name: kind.replace("HUGEINT", "DECIMAL(38,18)") for name, kind in types.items()
    }


def with_hugeints(table: pa.Table) -> pa.Table:
    """Return a table with amounts as DuckDB takes them."""
    for entry in table.schema:
        if entry.type == AMOUNT_TYPE:
            table = frames.replaced(
                table, entry.name, frames.to_hugeint(table[entry.name])
            )
    return table


def named(table: pa.Table, keys: Keys) -> pa.Table:
    """Give the keys of an answer their names."""
    names = dict(zip(keys.aliases, keys.names, strict=True))
    kept = [name for name in table.column_names if name != EVERYTHING]
    return table.select(kept).rename_columns([names.get(name, name) for name in kept])


def collected(found: Any, caller: str) -> pa.Table:
    """Return an answer of any kind as an Arrow table."""
    with translated(caller):
        return frames.to_table(found, caller)


def as_pandas(found: Any, caller: str) -> pd.DataFrame:
    """Return an answer of any kind as a pandas frame."""
    if isinstance(found, pd.DataFrame):
        return found
    return frames.to_pandas(collected(found, caller))


# Notes


def without_note(found: pa.Table) -> pa.Table:
    """Leave out the columns that only the notes under an answer are made of."""
    return found.select([name for name in found.column_names if name not in NOTES])


def finished(result: Any, found: pa.Table) -> Any:
    """Add the notes that an answer has columns for."""
    for name, note in NOTES.items():
        if name in found.column_names and len(found):
            result = with_note(result, note(found[name][0].as_py() or 0))
    return result


def with_note(result: Any, note: str) -> Any:
    """Add a note to a pandas frame, which `lab.show` prints under it."""
    if note and isinstance(result, pd.DataFrame):
        result.attrs["notes"] = list(
            dict.fromkeys([*result.attrs.get("notes", []), note])
        )
    return result


def note_on_both_sides(count: int) -> str:
    """Say of how many fills both sides are counted; empty where of none."""
    if not count:
        return ""
    fills = "1 fill" if count == 1 else f"{count:,} fills"
    return f"Both sides of {fills} are counted; lab.fills.one_side(trades) counts each fill once."


def note_on_left_out(count: int) -> str:
    """Say how many fills count nowhere; empty where none."""
    if not count:
        return ""
    fills = "1 fill is" if count == 1 else f"{count:,} fills are"
    return f"{fills} left out: taker or type unknown."


NOTES = {BOTH_SIDES: note_on_both_sides, LEFT_OUT: note_on_left_out}


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
    if isinstance(error, duckdb.NotImplementedException):
        return LabError(
            f"{caller}: DuckDB cannot take a type that a column has ({first_line}). Convert the columns that are asked "
            "about to numbers, texts or times."
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
