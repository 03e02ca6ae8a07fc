"""Frames of the toolkit carry amounts, and its functions take amounts in every kind of frame."""

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

import loopring_lab as lab

AMOUNTS = ["size", "price", "notional", "fee"]
PLAIN = pa.decimal128(38, 18)


@pytest.fixture(scope="module")
def trades():
    return lab.connect().trades(10083, limit=300, progress=False)


def test_tables_of_arrow_with_amounts_are_taken_and_answers_are_plain(trades, tmp_path):
    path = tmp_path / "trades.parquet"
    trades.to_parquet(path)
    expected = lab.fees.summary(trades)
    for table in (pa.Table.from_pandas(trades), pq.read_table(path)):
        assert table.schema.field("fee").type != PLAIN
        found = lab.fees.summary(table)
        assert found.schema.field("fee").type == PLAIN
        assert found["fee"].to_pylist() == expected["fee"].tolist()
        assert lab.engine.portable(table).schema.field("fee").type == PLAIN


@pytest.mark.parametrize(
    "kind", [pa.decimal256(37, 18), pa.decimal256(76, 18), pa.decimal128(38, 18)]
)
def test_frames_with_decimals_of_arrow_are_taken(trades, kind):
    given = trades.astype(dict.fromkeys(AMOUNTS, pd.ArrowDtype(kind)))
    assert_frame_equal(lab.fees.summary(given), lab.fees.summary(trades))
    assert_frame_equal(
        lab.fills.breakdown(given, by="market"),
        lab.fills.breakdown(trades, by="market"),
    )
    assert len(lab.anomalies(given)) == len(lab.anomalies(trades))
    assert repr(lab.show(given)) == repr(lab.show(trades))
    totals = lab.amounts.total(given, "fee")
    assert totals.dtype == "amount"
    assert totals.equals(lab.amounts.total(trades, "fee"))


def test_amounts_are_handed_over_without_a_copy(trades):
    handed = lab.engine.portable(trades)["fee"].chunk(0)
    held = trades["fee"].array.to_arrow()
    assert handed.buffers()[1].address == held.buffers()[1].address


@pytest.mark.parametrize("rows", [slice(0, 0), slice(3, 7)])
def test_parts_of_frames_are_taken(trades, rows):
    part = trades.iloc[rows]
    found = lab.fees.summary(part)
    fees = part.groupby("fee_token", observed=True)["fee"].sum()
    assert found.set_index("fee_token")["fee"].to_dict() == fees.to_dict()


def test_totals_of_the_page(trades):
    page = Path(__file__).parents[2] / "docs" / "how-to" / "exact-amounts.md"
    lines = [
        line.partition("#")[0]
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("lab.amounts.total(trades")
    ]
    by_token, one, by_market = (
        eval(line, {"lab": lab, "trades": trades}) for line in lines
    )
    assert by_token["ETH"] == one
    assert by_market.groupby("fee_token", observed=True).sum()["ETH"] == one
    for tokens in ("fee_token", ["market", "fee_token"]):
        expected = trades.groupby(tokens, observed=True)["fee"].sum()
        assert lab.amounts.total(trades, "fee", by=tokens).equals(expected)
