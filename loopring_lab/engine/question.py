"""One question: a query of named steps over trades, run where they are, with an answer of the same kind.

Steps read from top to bottom; each may name those above it. Some names have a meaning:

``rows``
    what the question needs of each fill or order. If it is the last step, it is the answer, by row.
``sums``
    sums of rows by group, which can be added up over markets, and over slices of time
``quotes``
    the quote tokens of each group
``weights``
    how groups are weighed, from all quote tokens
``means``
    what follows from all sums, by group
``spreads``
    sums again: those of clusters, or of distances from the means
``pairs``
    of how many fills both sides are there, see `sums`
``medians``
    of columns of ``rows``; the engine makes this step where `Question.medians` asks for it
``answer``
    one row for each group; by default the sums

``weights``, ``means`` and ``answer`` are about all markets, every other step about one: its rows need only rows of the
same market. So Spark's workers run the others on some markets each, and these three are run on what comes back.

A step is its text. One of many rows says of itself how an archive takes it: `Streamed`, `Large` or `Prices`.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loopring_lab.engine.groups import Keys, literal

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
# Bits of a moment below the millisecond: 1 more than the place in the block, 0 where that is not known. A relayer
# gives the block 0 to what is in no block yet; blocks read without their numbers have places all the same.
# A block has 384 transactions at most; 43 bits remain for the millisecond, which reaches the year 2248.
PLACE_BITS = 20


class Streamed(str):
    """A step that is read again where it is used twice: that is less work than a copy of all rows on disk."""


class Large(str):
    """A step of about as many rows as the trades have, or that sorts as many.

    An archive makes one after the other: in one query DuckDB does several at once, for which 1 GiB is too little from
    10 million trades on.
    """


class Prices(Large):
    """Prices to look up: an archive makes them, and the next large step, for one slice of time after the other.

    Where that step is ``rows``, ``sums`` and ``spreads`` follow from it, and are made of each slice.
    """


class Spanned(Streamed):
    """Rows with the ``first_fill`` and ``last_fill`` of their order, by which an archive puts them into slices."""


class Celled(Streamed):
    """Rows with the number of their ``cell``: an archive makes the sums ``spreads`` of some cells at a time.

    All rows of a cell have the same ``span``, a number; those of some spans are found fast where rows are in order.
    """


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
    only: str = ""
    """The clause that selects rows of trades by their columns as they are: no other row is converted."""
    only_prices: str = ""
    """The same of prices."""
    reach: int | None = None
    """How far from the fills of an order prices are looked up, in milliseconds; None for any time."""
    later: int = 0
    """How long after a fill prices are looked up at the latest, in milliseconds."""
    split_by: tuple[str, ...] = ("market",)
    """Columns by which Spark deals out rows to its workers; empty where the question needs all at once."""

    @property
    def has_groups(self) -> bool:
        """Whether the answer has a row for each group, not one for each row."""
        return "sums" in self.steps

    def all_steps(self, *, fits_memory: bool = True) -> dict[str, str]:
        """Return the steps, with those that the engine makes."""
        steps = dict(self.steps)
        answer = steps.pop("answer", "-- the sums are the answer\nFROM sums")
        if self.medians:
            make = medians_in_memory if fits_memory else medians_by_counting
            steps["medians"] = make(self.keys, self.medians)
        if self.has_groups:
            steps["answer"] = answer
        return steps


def medians_in_memory(keys: Keys, columns: Sequence[str]) -> str:
    group = keys.columns()
    middles = ", ".join(f"median({name}) AS {name}" for name in columns)
    return f"-- the median of each column\nSELECT {group}, {middles} FROM rows GROUP BY {group}"


def medians_by_counting(keys: Keys, columns: Sequence[str]) -> str:
    """Find the middle by counting tenths: sorting all values takes ten times as long, and room on disk."""
    group = keys.columns()
    names = ", ".join(literal(name) for name in columns)
    middles = ", ".join(
        f"avg(value) FILTER (WHERE name = {literal(name)}) AS {name}"
        for name in columns
    )
    same = keys.same("l", "s", "name")
    # Not a number is above all others in DuckDB.
    step = "coalesce(round(value, 1), 'NaN'::DOUBLE)"
    # If the number of values is even, the two in the middle count, else one; where all are unknown, one of these.
    is_middle = "up_to >= (known + 1) // 2 AND up_to - values < (known + 2) // 2"
    return f"""
-- the median of each column
WITH listed AS NOT MATERIALIZED (  -- each value by itself, with the name of its column
    SELECT {group}, unnest([{names}]) AS name, unnest([{", ".join(columns)}]) AS value FROM rows
),
steps AS (  -- how many values there are up to each tenth; unknown ones are last
    SELECT *,
        (sum(values) OVER (PARTITION BY {group}, name ORDER BY step))::BIGINT AS up_to,
        (sum(values) OVER (PARTITION BY {group}, name))::BIGINT AS known
    FROM (SELECT {group}, name, {step} AS step, count(value) AS values FROM listed GROUP BY ALL)
),
middle AS (  -- the tenths in the middle; a list counts as one row, so DuckDB keeps these in memory, not the values
    SELECT unnest(list(s), recursive := true) FROM steps AS s WHERE {is_middle}
),
near AS (  -- the different values of these
    SELECT {keys.columns("l")}, l.name, value,
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
