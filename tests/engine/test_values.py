"""What questions take in the columns that they know, and what they refuse."""

from collections.abc import Callable
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.engines import duckdb_session, on, result_rows
from support.optional import often, thorough

import loopring_lab as lab
from loopring_lab.engine import portable

IN_MEMORY = ("pandas", "pyarrow")


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=100)


def with_column(trades: pd.DataFrame, name: str, column: Any) -> pa.Table:
    table = portable(trades)
    return table.set_column(table.column_names.index(name), name, column)


# Texts

TEXTS = ("order_hash", "market", "side", "fee_token")


def answers(table: pa.Table) -> tuple[Any, Any]:
    checked = lab.fees.schedule_check(table, 0)
    return result_rows(lab.fills.orders(table)), checked["trade_id"]


@pytest.fixture(scope="module")
def of_texts(trades: pd.DataFrame) -> tuple[Any, Any]:
    return answers(portable(trades))


@pytest.mark.parametrize("name", often(["order_hash", "side"], TEXTS))
@pytest.mark.parametrize(
    "kind",
    [
        pa.string_view(),
        pa.dictionary(pa.int32(), pa.large_string()),
        pa.binary(),
        pa.binary_view(),
    ],
    ids=str,
)
def test_texts_of_every_type_are_the_same(trades, of_texts, name, kind):
    column = portable(trades)[name].cast(kind)
    table = with_column(trades, name, column)
    # Of a check, rows of the table are taken.
    assert answers(table) == of_texts


@pytest.mark.parametrize("name", often(["order_hash", "side"], TEXTS))
@pytest.mark.parametrize("engine", [*IN_MEMORY, "duckdb"])
def test_raw_bytes_and_numbers_are_no_texts(trades, engine, name):
    octets = [b"\xff" + str(text).encode() for text in trades[name]]
    for column in (octets, pd.Categorical(octets), range(len(trades))):
        if engine == "duckdb" and isinstance(column, pd.Categorical):
            continue
        with pytest.raises(lab.LabError, match=rf"orders: {name} is .*, not text\."):
            lab.fills.orders(on(engine, trades.assign(**{name: column})))


@pytest.mark.parametrize("engine", IN_MEMORY)
def test_a_column_of_nothing_is_unknown_whatever_its_type(trades, engine):
    for name, kind in (("order_hash", "str"), ("role", "str"), ("storage_id", "Int64")):
        unknown = pd.Series(None, trades.index, kind)
        without = lab.fills.orders(on(engine, trades.assign(**{name: unknown})))
        empty = on(engine, trades.assign(**{name: np.nan}))
        assert result_rows(lab.fills.orders(empty)) == result_rows(without)


WORDS = {
    "side": "BUY or SELL",
    "fill_type": "amm or dex",
    "role": "maker or taker",
}


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        case if {"pandas", "side"} & {*case} else thorough(*case)
        for case in product([*IN_MEMORY, "archive", "duckdb"], WORDS)
    ],
)
def test_words_are_good_as_they_are_written_only(trades, engine, name):
    others = trades[name].astype(str).str.swapcase()
    for written in (others, others.astype("category")):
        frame = on(engine, trades.assign(**{name: written}))
        said = rf"orders: {name} has .*as {WORDS[name]}, or .*, not as \"\w+\"\.$"
        with pytest.raises(lab.LabError, match=said):
            lab.fills.orders(frame)


def test_categories_that_no_row_has_are_no_words(trades):
    roles = trades["role"].cat.add_categories("Maker")
    found = lab.fills.orders(trades.assign(role=roles))
    assert result_rows(found) == result_rows(lab.fills.orders(trades))


# Whole numbers

NO_IDS: dict[str, list[Any]] = {
    "texts": ["1", "1.2"],
    "a number of spellings": ["1", "01"],
    "fractions": [0.6, 1.4],
    "floats of several numbers each": [2.0**53, 10.0],
    "truth": [True, False],
    "fractions that are exact": [Decimal("1.5"), Decimal("2.5")],
    "beyond 64 bits": [2**63, 1],
}


@pytest.mark.parametrize("values", NO_IDS.values(), ids=NO_IDS)
@pytest.mark.parametrize("engine", [*IN_MEMORY, "duckdb"])
@pytest.mark.parametrize("name", ["trade_id", "storage_id", "account_id"])
def test_what_is_no_whole_number_is_no_id(trades, engine, name, values):
    frame = trades.head(2).assign(**{name: values})
    if engine == "duckdb":
        frame = duckdb_session().from_arrow(on("pyarrow", frame))
    else:
        frame = on(engine, frame)
    with pytest.raises(lab.LabError, match=rf"{name} is|does not fit"):
        lab.fills.orders(frame)


WHOLE: dict[str, Callable[[pd.Series], Any]] = {
    "unknown ones": lambda ids: ids.astype("float64").where(ids.index > 0),
    "categories": lambda ids: ids.astype("category"),
    "small": lambda ids: ids.astype("uint32"),
    "decimals": lambda ids: [Decimal(int(number)) for number in ids],
}


@pytest.mark.parametrize("made", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("engine", IN_MEMORY)
def test_whole_numbers_of_every_type_are_ids(trades, engine, made):
    ids = pd.Series(range(7, 107), trades.index, "Int64")
    expected = ids.where(ids.index > 0) if made is WHOLE["unknown ones"] else ids
    plain = trades.assign(order_hash=np.nan, storage_id=expected)
    frame = plain.assign(storage_id=made(ids))
    found = result_rows(lab.fills.orders(on(engine, frame)))
    assert found == result_rows(lab.fills.orders(plain))


# Rates


@pytest.mark.parametrize("engine", [*IN_MEMORY, "polars", "duckdb"])
def test_rates_in_decimals_are_the_rates_that_they_are(trades, engine):
    rates = trades["fee_bps"].round(3)
    expected = lab.fees.summary(trades.assign(fee_bps=rates), by=[])
    found = lab.fees.summary(
        on(engine, trades.assign(fee_bps=rates.astype("amount"))), by=[]
    )
    assert result_rows(found) == result_rows(expected)


# Types that Arrow cannot work with


def test_what_arrow_cannot_do_with_a_type_is_said(trades):
    column = pa.compute.run_end_encode(portable(trades)["extra"])
    with pytest.raises(
        lab.LabError, match="with_tiers: no column of such a type .*Convert that"
    ):
        lab.fees.with_tiers(with_column(trades, "extra", column))


# Keys of the user's own


@pytest.mark.parametrize("engine", IN_MEMORY)
def test_keys_finer_than_answers_are_refused(trades, engine):
    numbers = pd.Series([1, 2] * 50, trades.index)
    for unit in ("us", "ns", "ms"):
        moments = pd.to_datetime(numbers, unit=unit, utc=True)
        for key in (moments, numbers.astype(f"timedelta64[{unit}]")):
            frame = on(engine, trades.assign(desk=key, fee_token="LRC"))
            if unit == "ms":
                found = result_rows(lab.fees.summary(frame, by="desk"))
                assert [line["fills"] for line in found] == [50, 50]
                continue
            with pytest.raises(lab.LabError, match=r"desk is finer than a millis"):
                lab.fees.summary(frame, by="desk")


@pytest.mark.parametrize("engine", IN_MEMORY)
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_lengths_of_time_of_which_some_are_unknown_are_keys(trades, engine, unit):
    lengths = pd.to_timedelta([1, None] * 50, unit="s").as_unit(unit)
    frame = on(engine, trades.assign(desk=lengths, fee_token="LRC"))
    found = result_rows(lab.fees.tiers(frame, by="desk"))
    fills = [0, 0]
    for line in found:
        fills[line["desk"] is None] += line["fills"]
    assert fills == [50, 50]
