"""Frames of the toolkit carry amounts, and its functions take amounts in every kind of frame."""

import io
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal

import loopring_lab as lab
from loopring_lab.amounts import AmountArray

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
        shown = lab.fees.with_tiers(table)["fee"].cast(PLAIN)
        assert shown.to_pylist() == table["fee"].cast(PLAIN).to_pylist()


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


def test_a_side_as_a_number_gives_signed_amounts_exactly(trades):
    assert isinstance(trades["side"].dtype, pd.CategoricalDtype)
    sign = trades["side"].map({"BUY": 1, "SELL": -1})
    is_bought = trades["side"] == "BUY"
    signed = trades["size"].where(is_bought, -trades["size"])
    assert (trades["size"] * sign).equals(signed)
    assert (sign * trades["size"]).equals(signed)
    # Where the side is not known, nothing is.
    bought = trades["size"] * sign.where(is_bought)
    assert bought.dtype == "amount"
    assert bought.equals(trades["size"].where(is_bought))
    with pytest.raises(TypeError, match="unsupported operand"):
        trades["size"] * trades["side"]


def test_a_frame_with_interpolated_amounts_goes_on_as_any_other():
    amounts = pd.array(["1", None, "2", None], dtype="amount")
    frame = pd.DataFrame({"fee": amounts, "size": amounts}, [0, 1, 2, 4])
    filled = frame.interpolate("index", limit_area="inside")
    assert filled["fee"].tolist()[:3] == [1.0, 1.5, 2.0]
    assert filled.fillna(0).sum().tolist() == [4.5, 4.5]
    assert pd.concat([filled, filled]).round(1).isna().sum().tolist() == [2, 2]


def test_a_workbook_has_floats_and_times_of_utc(trades, tmp_path, monkeypatch):
    # pandas makes a file before it refuses.
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "how-to" / "exact-amounts.md"
    text = page.read_text(encoding="utf-8")
    [row] = [
        line for line in text.splitlines() if line.startswith("| `lab.amounts.to_")
    ]
    refused, to_floats, write = re.findall(r"`([^`]+)`", row)
    names = {"lab": lab, "trades": trades}
    with pytest.raises(ValueError, match="timezones"):
        exec(refused, names)
    exec(to_floats, names)
    book = io.BytesIO()
    exec(write.replace('"trades.xlsx"', "book"), names | {"book": book})
    found = pd.read_excel(book)
    assert found["fee"].tolist() == trades["fee"].astype(float).tolist()
    moments = found["created_at"].dt.tz_localize("UTC").dt.round("ms")
    assert (moments == trades["created_at"]).all()


MIXED = {
    "a column": lambda t: t["fee"].sum(),
    "NumPy": lambda t: np.sum(t["fee"]),
    "a frame": lambda t: t[["size", "fee"]].sum(),
    "numbers": lambda t: t.sum(numeric_only=True),
    "rows": lambda t: t[["size", "notional"]].sum(axis=1),
    "part": lambda t: t[t["side"] == "BUY"].tail(60)["fee"].sum(),
    "a query": lambda t: t.query("side == 'BUY'")["size"].sum(),
    "a copy": lambda t: t.copy()["fee"].sum(),
    "sorted": lambda t: t.sort_values("size")["fee"].sum(),
    "reindexed": lambda t: t.reindex(range(-1, 300))["fee"].sum(),
    "joined": lambda t: pd.concat([t[t["fee_token"] == "ETH"], t])["fee"].sum(),
    "groups": lambda t: t.groupby("side", observed=True)["fee"].sum(),
    "named": lambda t: t.groupby("role", observed=True).agg(fees=("fee", "sum")),
    "periods": lambda t: t.resample("YS", on="created_at")["fee"].sum(),
    "a pivot": lambda t: t.pivot_table("fee", "side", aggfunc="sum", observed=True),
}
# Of one token each, or no token is known of them any more.
UNMIXED = {
    "tokens": lambda t: t.groupby("fee_token", observed=False)["fee"].sum(),
    "few of many": lambda t: (
        t.head(2).groupby("fee_token", observed=False)["fee"].sum()
    ),
    "markets": lambda t: t.groupby("market", observed=True)[["size", "notional"]].sum(),
    "both": lambda t: t.groupby(["side", "fee_token"], observed=True)["fee"].sum(),
    "a pivot": lambda t: t.pivot_table(
        "fee", "side", "fee_token", aggfunc="sum", observed=True
    ),
    "one token": lambda t: t.loc[t["fee_token"] == "ETH", "fee"].sum(),
    "one market": lambda t: (
        t[t["market"] == "LRC-ETH"].sort_values("fee")["size"].sum()
    ),
    "parts": lambda t: pd.concat(
        [one for _, one in t.groupby("fee_token", observed=True)][:1]
    )["fee"].sum(),
    "a row": lambda t: t.head(1)["fee"].sum(),
    "no row": lambda t: t.head(0)["fee"].sum(),
    "no group": lambda t: t.assign(none=None).groupby("none")["fee"].sum(),
    "known ones": lambda t: t["fee"].where(t["fee_token"] == "ETH").sum(),
    "computed": lambda t: (t["fee"] * 2).sum(),
    "means": lambda t: t["fee"].mean(),
    "a summary": lambda t: lab.fees.summary(t)["fee"].sum(),
    "the library": lambda t: (lab.amounts.total(t, "fee"), lab.show(t)._repr_html_()),
}


@pytest.mark.parametrize("add_up", MIXED.values(), ids=MIXED)
def test_a_sum_over_several_tokens_warns_once_a_session(add_up, trades, monkeypatch):
    monkeypatch.setattr(AmountArray, "_is_warned", False)
    with pytest.warns(UserWarning, match=r"tokens, .* lab\.amounts\.total") as caught:
        first = add_up(trades)
    # It points to the line that adds up.
    assert [one.filename for one in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = add_up(trades)
    assert str(again) == str(first)


@pytest.mark.parametrize("add_up", UNMIXED.values(), ids=UNMIXED)
def test_no_other_sum_warns(add_up, trades, monkeypatch):
    monkeypatch.setattr(AmountArray, "_is_warned", False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add_up(trades)


def test_a_column_of_trades_is_added_up_as_its_frame(trades):
    by_token = lab.amounts.total(trades, "fee")
    assert len(by_token) > 1
    assert lab.amounts.total(trades["fee"]).to_dict() == by_token.to_dict()
    for token, sum_of_token in by_token.items():
        assert lab.amounts.total(trades["fee"], token=token) == sum_of_token
    keys = [trades["market"], trades["fee_token"]]
    by_keys = lab.amounts.total(trades["fee"], by=keys)
    assert by_keys.equals(lab.amounts.total(trades, "fee", by=keys))
    with pytest.raises(lab.errors.AmountError, match="tokens, which do not add up"):
        lab.amounts.total(trades["fee"], by=trades["market"])
    with pytest.raises(lab.errors.AmountError, match="no amount is of token 'ETHH'"):
        lab.amounts.total(trades["fee"], token="ETHH")
    with pytest.raises(lab.errors.AmountError, match="nothing says whether"):
        lab.amounts.total(trades["fee"] * 2)


def test_what_is_written_to_is_of_no_known_token(trades, monkeypatch):
    monkeypatch.setattr(AmountArray, "_is_warned", False)
    changed = trades.copy()
    changed.loc[changed["fee_token"] != "ETH", "fee"] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total = changed["fee"].sum()
    assert total == lab.amounts.total(trades, "fee", token="ETH")
