"""Frames saved with to_csv come back as they were, and other files are refused by line and column."""

import json

import pandas as pd
import pytest
from hypothesis import given, settings
from pandas.testing import assert_frame_equal
from support.wire_rows import histories, markets, page, read, row, tokens

import loopring_lab as lab
from loopring_lab.errors import LabError, UnexpectedAnswer

read_csv = lab.tables.read_csv
ODD = [
    row(),
    row(id="2", market='NEW, "COIN"', size=None, createdAt="1500000000000"),
    row(id="3", size="1", feeAmount="0", price="0.0", type=None, orderHash="0x"),
    row(id="4", createdAt="0", blockId=str(2**62), side="BUY", feeAmount="1"),
    ["odd", "\r\n"],
]


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return read(page(ODD), fill_type="dex")


@pytest.mark.parametrize("name", ["trades.csv", "trades.csv.gz"])
@pytest.mark.parametrize("index", [True, False])
def test_a_frame_comes_back_as_it_was(tmp_path, trades, name, index):
    trades.to_csv(tmp_path / name, index=index)
    found = read_csv(tmp_path / name, tokens(), markets())
    assert_frame_equal(found, trades)
    assert lab.anomalies(found).equals(lab.anomalies(trades))


@settings(max_examples=8)
@given(rows=histories())
def test_amounts_come_back_to_the_last_digit(tmp_path_factory, rows):
    file = tmp_path_factory.mktemp("saved") / "trades.csv"
    made = read(page(rows))
    made.to_csv(file)
    assert_frame_equal(read_csv(file, tokens(), markets()), made)


def test_columns_and_rows_that_were_chosen_and_added_come_back(tmp_path, trades):
    chosen = trades[["market", "price", "created_at", "fee", "fee_token"]].copy()
    chosen["my note"] = ["a", None, "NA", " b", 'c, "d"']
    chosen["count"] = range(5)
    chosen = chosen.iloc[[3, 0]]
    file = tmp_path / "trades.csv"
    chosen.to_csv(file)
    found = read_csv(file, tokens(), markets())
    plain = pd.read_csv(file, index_col=0)
    expected = chosen.assign(**{name: plain[name] for name in ("my note", "count")})
    assert_frame_equal(found, expected)


def test_without_a_listing_the_categories_are_those_that_occur(tmp_path, trades):
    trades.to_csv(tmp_path / "trades.csv")
    found = read_csv(tmp_path / "trades.csv")
    assert_frame_equal(found, trades, check_categorical=False)
    assert found["market"].cat.categories.tolist() == ["LRC-ETH", 'NEW, "COIN"']
    assert found["side"].cat.categories.tolist() == ["BUY", "SELL"]


@pytest.mark.parametrize("listed", [True, False])
def test_a_market_has_the_tokens_of_its_listing_and_the_same_in_each_row(
    tmp_path, listed
):
    made = read(page([row(), row(id="2", side="BUY")])).set_index("trade_id")
    swapped = made.assign(base="ETH", quote="LRC")
    file = tmp_path / "a.csv"
    (swapped if listed else pd.concat([made, swapped])).to_csv(file)
    with pytest.raises(UnexpectedAnswer) as caught:
        read_csv(file, tokens(), markets() if listed else None)
    assert caught.value.field == f"a.csv, line {2 if listed else 4}, base"
    assert "expected LRC, the base token of LRC-ETH, got 'ETH'" in str(caught.value)
    made[["created_at", "market", "price", "quote"]].to_csv(file)
    assert read_csv(file, tokens(), markets())["quote"].tolist() == ["ETH", "ETH"]


HEAD = "created_at,market,price,side,size,trade_id,fee_bps\n"
GOOD = "2022-07-12 15:07:39.610000+00:00,LRC-ETH,0.1,BUY,1,7,10.0\n"


@pytest.mark.parametrize(
    ("line", "column", "said"),
    [
        (GOOD.replace("0.1", "cheap"), "price", "got 'cheap'"),
        (GOOD.replace(",1,", ",1e-19,"), "size", "got '1e-19'"),
        (GOOD.replace("BUY", "HOLD"), "side", "expected BUY or SELL, got 'HOLD'"),
        (GOOD.replace(",7,", ",7.5,"), "trade_id", "whole number of 64 bits"),
        (GOOD.replace("10.0", "ten"), "fee_bps", "expected a number, got 'ten'"),
        (GOOD.replace("2022-07-12", "12.07.2022"), "created_at", "a time such as"),
    ],
)
def test_a_cell_that_is_wrong_is_named_by_line_and_column(tmp_path, line, column, said):
    file = tmp_path / "a.csv"
    file.write_text(f"{HEAD}{GOOD}\n{line}")
    with pytest.raises(UnexpectedAnswer) as caught:
        read_csv(file)
    assert caught.value.field == f"a.csv, line 4, {column}"
    assert said in str(caught.value)


@pytest.mark.parametrize("column", ["size", "trade_id"])
def test_numbers_have_one_spelling_so_that_none_is_of_a_spreadsheet(tmp_path, column):
    """Excel and LibreOffice write an exponent after they have dropped digits; Arrow reads 0x10 as an id."""
    both = ["1E-05", "1.49084E-05", "1E-18", "1E+05", "1e5", "0x10", "007", "+7"]
    both += [" 7", "7 ", "7_0", "7.0", "-0.0", "1,0", "nan", ".5", "5.", "--1"]
    good = {"size": ["0.10", "0.000000000000000001", "12"], "trade_id": ["0", "-7"]}
    bad = {"size": ["00.5"], "trade_id": ["-0", "7.5", str(2**63)]}
    file = tmp_path / "a.csv"
    for text in good[column]:
        file.write_text(f'{column},created_at,market,price\n"{text}",2022-07-12,A,1\n')
        assert read_csv(file)[column].astype(str).tolist() == [
            text.replace(".10", ".1")
        ]
    for text in [*both, *bad[column]]:
        file.write_text(f'{column},created_at,market,price\n"{text}",2022-07-12,A,1\n')
        with pytest.raises(UnexpectedAnswer) as caught:
            read_csv(file)
        assert caught.value.field == f"a.csv, line 2, {column}"


@pytest.mark.parametrize("style", ["float_format", "text", "plain"])
def test_amounts_that_went_through_floats_are_no_exact_ones(tmp_path, trades, style):
    """Whole amounts and very large ones show it: `to_csv` writes neither a point nor an exponent there."""
    file = tmp_path / "a.csv"
    floats = lab.to_float(trades[["created_at", "market", "price", "size"]].head(1))
    floats["size"] = 812.0 if style == "plain" else 98765432109876543.0
    how = {"float_format": "%.9e"} if style == "float_format" else {}
    floats.astype({"size": str} if style == "text" else {}).to_csv(file, **how)
    with pytest.raises(UnexpectedAnswer, match="with all digits, which floats do not"):
        read_csv(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a,b\n1,2\n",
            "a.csv, line 1: expected a line of names between commas, with created_at, market, price",
        ),
        ("", "a line of names"),
        (HEAD + GOOD.replace("10.0", "10.0,1"), "line 2: expected 7 columns, got 8"),
        (HEAD.replace("side", "market") + GOOD, "market twice"),
        (
            json.dumps({"trades": [row()]}),
            "a.csv, line 1: expected a line of names between commas, with",
        ),
    ],
)
def test_another_file_is_refused(tmp_path, text, said):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UnexpectedAnswer, match=said):
        read_csv(tmp_path / "a.csv")


def test_other_arguments_are_refused(tmp_path):
    with pytest.raises(UnexpectedAnswer) as caught:
        read_csv(tmp_path / "no.csv")
    assert str(caught.value).startswith(
        f"{tmp_path / 'no.csv'}: expected a readable file, got no such file. Give another path"
    )
    with pytest.raises(UnexpectedAnswer, match=r"got a folder\. Give another path"):
        read_csv(tmp_path)
    with pytest.raises(LabError, match=r"tokens: expected the frame that tables\.tok"):
        read_csv(tmp_path / "no.csv", tokens=markets())
