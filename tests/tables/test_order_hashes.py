"""What stands for no order hash is none, for every function and in every frame."""

import json
from collections.abc import Callable
from itertools import cycle, islice
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.engines import QUICK, on, result_rows
from support.optional import often
from support.wire_rows import page, read, row

import loopring_lab as lab

HASH = "0x" + "0aB9" * 16
# The last are nearly hashes: one digit less, one more, another letter, white space, no 0x.
PLACEHOLDERS = [
    *("", " ", "0x", "0x0", "0", "null", "None", "nan", "N/A", "-", "unknown"),
    *("0" * 64, "0x" + "0" * 64, "0x" + "0" * 40, "0X" + HASH[2:]),
    *(HASH[:-1], HASH + "0", HASH[:-1] + "g", HASH + "\n", " " + HASH, HASH[2:]),
]
QUESTIONS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "orders": lab.fills.orders,
    "compare_venues": lab.fills.compare_venues,
    "all_in_cost": lambda trades: lab.fills.all_in_cost(trades, by="fill_type"),
    "shortfall": lab.fills.shortfall,
    "summary": lambda trades: lab.fees.summary(trades, by="order_hash"),
}


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=300)


@pytest.mark.parametrize("name", often(["orders", "shortfall"], QUESTIONS))
def test_answers_are_those_without_hashes(trades, name):
    question = QUESTIONS[name]
    without = question(trades.assign(order_hash=pd.Series(None, trades.index, "str")))
    some_of_each = list(islice(cycle(PLACEHOLDERS), len(trades)))
    assert_frame_equal(question(trades.assign(order_hash=some_of_each)), without)


def test_answers_about_an_archive_are_those_without_hashes(trades):
    """One placeholder in a file is enough for a look at each hash, wherever it is."""
    none = pd.Series(None, trades.index, "str")
    wanted = lab.fills.all_in_cost(trades.assign(order_hash=none), by="fill_type")
    last = none.copy()
    last.iloc[-40:] = PLACEHOLDERS[1]
    for hashes in (list(islice(cycle(PLACEHOLDERS), len(trades))), last):
        archive = on("archive", trades.assign(order_hash=hashes))
        found = lab.fills.all_in_cost(archive, by="fill_type")
        assert_frame_equal(found, wanted, check_like=True)


# Hashes of texts that are all as long as one, or all begin as one: one wrong byte makes them none.
FORGED = [HASH[:2] + "x" + HASH[3:], "1x" + HASH[2:], HASH[:40] + "é" + HASH[42:]]
COLUMNS: dict[str, Callable[[pd.Series], pd.Series]] = {
    "str": lambda hashes: hashes.astype("str"),
    "category": lambda hashes: hashes.astype("category"),
    "object": lambda hashes: hashes.astype(object),
    "a part of another": lambda hashes: pd.concat([hashes, hashes]).iloc[len(hashes) :],
}


@pytest.mark.parametrize("column", often(["str", "a part of another"], COLUMNS))
@pytest.mark.parametrize("engine", often(["pandas", "archive"], QUICK))
def test_hashes_are_told_from_what_is_none_in_every_frame(trades, engine, column):
    for nones in (PLACEHOLDERS, *([one] for one in FORGED)):
        hashes = pd.Series([HASH, *nones, None, HASH.lower()])
        rows = trades.head(len(hashes))
        frame = rows.assign(order_hash=COLUMNS[column](hashes).array)
        found = result_rows(lab.fees.summary(on(engine, frame), by="order_hash"))
        assert {line["order_hash"] for line in found} == {HASH.lower(), None}


@pytest.mark.parametrize("engine", often(["pandas", "archive", "duckdb"], QUICK))
def test_a_hash_is_that_of_one_order_in_either_case(trades, engine):
    fills = trades.assign(market="LRC-ETH", side="BUY", fee_token="LRC", account_id=5)
    written = list(islice(cycle([HASH, HASH.lower()]), len(fills)))
    found = result_rows(lab.fills.orders(on(engine, fills.assign(order_hash=written))))
    assert [(line["order_hash"], line["fills"]) for line in found] == [
        (HASH.lower(), len(fills))
    ]


def test_a_row_read_with_its_hash_in_either_case_is_one_row():
    pages = [page([row(id="1", orderHash=one)]) for one in (HASH, HASH.lower())]
    frame = read(pages, fill_type="dex")
    assert frame["order_hash"].tolist() == [HASH.lower()]


def test_rows_have_none():
    hashes = [*PLACEHOLDERS, HASH]
    rows = [row(id=str(n), orderHash=one) for n, one in enumerate(hashes, start=1)]
    frame = read([page(rows)], fill_type="dex").sort_values("trade_id")
    assert frame["order_hash"].dropna().tolist() == [HASH.lower()]
    odd = lab.anomalies(frame)
    assert odd["trade_id"].tolist() == list(range(1, len(hashes)))
    assert (
        odd["reason"]
        .str.endswith("is not 0x and 64 hex digits that are not all 0")
        .all()
    )
    kept = [json.loads(note)["orderHash"] for note in odd["extra"]]
    assert kept == PLACEHOLDERS


def test_one_hash_of_several_storage_ids_is_an_anomaly():
    """An order has one storage id: several make its hash that of several orders, or none of them."""
    other = "0x" + "1" * 64
    orders = [(HASH, "2"), (HASH, "4"), (HASH, "2"), (other, "6"), (other, "6")]
    rows = [
        row(id=str(number), orderHash=order, storageId=storage_id)
        for number, (order, storage_id) in enumerate(orders, start=1)
    ]
    odd = lab.anomalies(read([page(rows)], fill_type="dex"))
    assert set(odd["trade_id"]) == {1, 2, 3}
    assert set(odd["reason"]) == {"the order hash is that of several storage ids"}
