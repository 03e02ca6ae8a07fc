"""The text of a question's query: its tables, with columns of the types that steps expect, then its steps."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from loopring_lab.engine import frames
from loopring_lab.engine.groups import ANY_TEXT, quoted
from loopring_lab.engine.hashes import hash_sql
from loopring_lab.engine.question import (
    ORDER_COLUMNS,
    PLACE,
    PLACE_BITS,
    Question,
    Streamed,
)
from loopring_lab.engine.values import (
    is_text,
    is_whole,
    no_moment,
    not_text,
    not_whole,
    only_words,
)
from loopring_lab.errors import LabError

Types = dict[str, dict[str, str]]
"""The columns of each table that a query is given, and of each column the type."""

# Tables that a query is given have this before their names. As steps, they then come before tables that have the same
# names in a user's database.
GIVEN = "given_"
TRADES = f"{GIVEN}trades"
PRICES = f"{GIVEN}prices"

# A time that does not fit is the trouble of its row, whose moment is then unknown.
MOMENT = f"""CASE WHEN abs(epoch_ms(created_at)) < {1 << 63 - PLACE_BITS} THEN epoch_ms(created_at) END
        * {1 << PLACE_BITS} + CASE
        WHEN block_id IS DISTINCT FROM 0 AND index_in_block BETWEEN 0 AND {(1 << PLACE_BITS) - 2}
            THEN index_in_block + 1
        ELSE 0 END"""
ORDER_ID = """CASE
        WHEN order_hash IS NOT NULL THEN hash(market, order_hash)
        WHEN account_id IS NOT NULL AND token_id IS NOT NULL AND storage_id IS NOT NULL
            THEN hash(market, account_id, token_id, storage_id)
        WHEN trade_id IS NOT NULL AND side IS NOT NULL THEN hash(market, 'fill', trade_id, side) END"""
# Columns that queries find where a question wants all columns that they are made of.
DERIVED = {
    "ms": (("created_at",), "epoch_ms(created_at)"),
    "moment": (("created_at", *PLACE), MOMENT),
    "order_id": (ORDER_COLUMNS, ORDER_ID),
}


def query_text(
    question: Question,
    types: Types,
    row: str,
    last: str = "",
    *,
    fits_memory: bool = True,
) -> str:
    """Put a question together: its tables, then its steps but for those that are given; `last` is what it returns.

    `row` is what the answer is put together by, as SQL.
    """
    texts = {}
    for name in types:
        if name.startswith(GIVEN) and name not in (TRADES, PRICES):
            small = name.removeprefix(GIVEN)
            texts[small] = f"-- a small table that is asked with\nFROM {name}"
    _refuse_nested(question, types[TRADES])
    keys = question.keys.definitions(types[TRADES])
    texts["trades"] = _table(
        TRADES,
        [*question.needs, *question.may_have],
        types[TRADES],
        question.caller,
        *keys,
        f"{row} AS row",
        only=question.only,
    )
    if PRICES in types:
        wanted = [*question.price_needs, *question.price_may_have]
        texts["prices"] = _table(
            PRICES, wanted, types[PRICES], question.caller, only=question.only_prices
        )
    streamed = {"trades"}
    for name, text in question.all_steps(fits_memory=fits_memory).items():
        if name not in types:
            texts[name] = text
        if isinstance(text, Streamed):
            streamed.add(name)
    final = f"FROM {last}" if last else texts.popitem()[1].strip()
    steps = []
    for name, text in texts.items():
        is_read_again = name in streamed and not fits_memory
        how = "NOT MATERIALIZED " if is_read_again else ""
        steps.append(f"{name} AS {how}(\n{text.strip()}\n)")
    before = f"WITH {', '.join(steps)}"
    # The last step may have steps of its own, which then follow those before it; comments come first.
    own_steps = re.match(r"((?:--.*\n)*)WITH\b", final)
    if own_steps:
        return f"{before},\n{own_steps[1]}{final[own_steps.end() :]}"
    return f"{before}\n{final}"


def _refuse_nested(question: Question, types: Mapping[str, str]) -> None:
    """Refuse keys of lists and structures, as pandas' intervals are in a table of Arrow: DuckDB fails on some."""
    for name in question.keys.of_frame:
        kind = types[name]
        if kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
            raise LabError(
                f"{question.caller}: {name} is {kind}, and no column of lists or structures is grouped by or matched. "
                "Convert it to text."
            )


def _table(
    source: str,
    wanted: Sequence[str],
    types: Mapping[str, str],
    caller: str,
    *others: str,
    only: str = "",
) -> str:
    """Return the columns of a frame as queries take them, null where it lacks one, with those that follow from them."""
    lines = []
    for name in dict.fromkeys(wanted):
        kind = frames.TYPES.get(name, "TIMESTAMPTZ")
        found = f"NULL::{kind}"
        if name in types:
            found = _column_sql(name, types[name], kind, caller)
        lines.append(f"{found} AS {name}")
    columns = ",\n    ".join([*lines, *others])
    follow = [
        f"{sql} AS {name}"
        for name, (made_of, sql) in DERIVED.items()
        if set(made_of) <= set(wanted)
    ]
    added = ",\n    ".join(["*", *follow])
    text = (
        f"SELECT {added}\nFROM (SELECT\n    {columns}\nFROM {source} {only}) AS given"
    )
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
        raise no_moment(name, kind, caller)
    if kind == ANY_TEXT:
        return hash_sql(source)
    if wanted == "VARCHAR" and not is_text(kind):
        raise not_text(name, kind, caller)
    if wanted == "BIGINT" and not is_whole(kind):
        raise not_whole(name, kind, caller)
    if name == "fee_bps":
        # Polars and Arrow keep a rate that is not a number; pandas means an unknown one by it.
        return f"nullif({source}::DOUBLE, 'NaN'::DOUBLE)"
    typed = source if kind == wanted else f"{source}::{wanted}"
    return only_words(typed, name, caller)
