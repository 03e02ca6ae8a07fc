"""Large steps of a question about an archive: one table after the other, and prices looked up in slices of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from loopring_lab.engine import session
from loopring_lab.engine.groups import HOUR
from loopring_lab.engine.question import (
    PLACE_BITS,
    Celled,
    Large,
    Prices,
    Question,
    Spanned,
)
from loopring_lab.engine.text import PRICES, TRADES, Types, query_text

# An archive looks up prices for this many rows at a time. They fit into the usual memory, where 10 million wrote twice
# the size of their archive to the disk.
ROWS_OF_A_SLICE = 1_000_000
# Steps that read all rows, each by itself: in one query they take more memory than there is.
READ_ALL = ("sums", "spreads", "medians")


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


def make_large_steps(question: Question, trades: Any, types: Types, row: str) -> None:
    """Make tables of the large steps on the connection of the trades, and add their names to `types`."""
    tables = _Tables(trades, types, row)
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
        # Times of prices in memory may be of nanoseconds, which DuckDB compares with no others.
        first = _time_sql((since - 1) * length)
        last = _time_sql((until + 1) * length)
        near = f"created_at::TIMESTAMPTZ BETWEEN {first} AND {last}"
        is_within = f"first_fill >= {begun} AND last_fill < {ended}"
        is_met = f"first_fill < {ended} AND last_fill >= {begun}"
        yield _only(of_slice, near, is_within, is_met)
    crossed = [f"{edge} BETWEEN first_fill + 1 AND last_fill" for edge in moments]
    # Most orders have one fill, and are told by that alone.
    is_crossing = f"first_fill < last_fill AND ({' OR '.join(crossed)})"
    is_asked = f"coalesce({is_crossing}, TRUE)"
    spans = f"""
-- spans of markets with the fills of these orders, and those next to them
WITH crossing AS (
    FROM spans
    WHERE {is_asked}
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
    yield _only(_with_ends(question, "FROM hour_ends"), near, is_asked, is_crossing)


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
        f"created_at::TIMESTAMPTZ >= {begin} AND created_at::TIMESTAMPTZ < {end}"
        for begin, end in pairwise(begins)
    ]
    are_given = PRICES in tables.types
    if are_given:
        # They may be older and newer than all trades.
        near += [
            f"created_at::TIMESTAMPTZ < {begins[0]}",
            f"created_at::TIMESTAMPTZ >= {begins[-1]}",
        ]
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

    `is_met` selects the spans of all orders of known times that may have a fill there, as one without a span has a
    single fill.
    """
    # With the spans of all slices, each slice would take longer the more slices there are. They are in the order of
    # time, in which few are looked at, so those of unknown times are asked for by themselves.
    met = f"FROM temp.spans WHERE {is_met} UNION ALL FROM temp.spans WHERE first_fill IS NULL"
    steps = dict(question.steps)
    for name, step in steps.items():
        if isinstance(step, Spanned):
            of_slice = f"WITH spans AS ({met})\n{step}\n"
            steps[name] = Spanned(f"SELECT * FROM ({of_slice}) WHERE {is_asked}")
    return replace(
        question, steps=steps, only=f"WHERE {near}", only_prices=f"WHERE {near}"
    )


def _span_sql(ms: str, length: int) -> str:
    # Whole numbers are divided towards 0, by which the span before 1970 would be that after it.
    return f"floor({ms} / {length}.0)::BIGINT"


def _time_sql(ms: int) -> str:
    return f"make_timestamptz({ms * 1000})"
