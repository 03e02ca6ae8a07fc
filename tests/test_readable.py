from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire_rows import page, read, row, tokens

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.amounts.display import format_amount, show


@given(st.integers(-(10**37) + 1, 10**37 - 1))
def test_a_number_keeps_every_digit_that_counts(smallest: int) -> None:
    exact = Decimal(smallest).scaleb(-18)
    text = format_amount(exact)
    assert Decimal(text.replace(",", "")) == exact
    assert "E" not in text
    assert "." not in text or text[-1] not in "0."


def test_amounts_have_thousands_separators_and_no_trailing_zeros() -> None:
    assert format_amount(Decimal("1234.500000000000000000")) == "1,234.5"
    assert format_amount(Decimal("1E-18")) == "0.000000000000000001"


def test_amounts_carry_their_token() -> None:
    usdt = row(id="2", market="ETH-USDT", tokenId="0", feeAmount="1500000", price="2000.0")
    frame = read(page([row(id="1"), usdt]))
    shown = show(frame[["size", "price", "notional", "fee", "base", "quote", "fee_token"]]).frame
    assert shown.columns.tolist() == ["size", "price", "notional", "fee"]
    assert shown["size"].tolist() == ["453.794 LRC", "453.794 ETH"]
    assert shown["price"].tolist() == ["0.00035669 ETH", "2,000 USDT"]
    assert shown["fee"].tolist() == ["0.00161868 ETH", "1.5 USDT"]


def test_one_token_for_all_stands_in_the_heading() -> None:
    shown = show(read(page([row()])))
    assert "size (LRC)" in shown.frame.columns
    assert "created_at (UTC)" in shown.frame.columns
    assert shown.frame["created_at (UTC)"].tolist() == ["2022-07-12 15:07:39.610"]
    assert shown.frame["order_hash"].tolist() == ["0x0a417a…1b58"]
    assert shown.notes == ["Empty columns hidden: fill_type, extra."]


def test_totals_by_token_carry_the_token_of_the_index() -> None:
    fees = pd.Series(to_units(["15", "20"], 1), name="fee").set_axis(
        pd.Index(["ETH", "USDC"], name="fee_token")
    )
    assert show(fees).frame["fee"].tolist() == ["1.5 ETH", "2 USDC"]


def test_amounts_can_be_truncated_to_a_token_s_precision_and_say_so() -> None:
    listed = tokens()
    listed["precision"] = pd.array([3] * len(listed), dtype="Int64")
    frame = read(page([row(size="453794999999999999999")]))[["size", "price", "base", "quote"]]
    shown = show(frame, precision=listed)
    assert shown.frame["size (LRC)"].tolist() == ["453.794"]
    assert shown.frame["price (ETH)"].tolist() == ["0.00035669"]
    assert shown.notes == ["size truncated to the token's precision."]
    assert show(frame, precision=1).frame["size (LRC)"].tolist() == ["453.7"]
    assert show(frame, precision=18).notes == []
    assert show(frame).frame["size (LRC)"].tolist() == ["453.794999999999999999"]


def test_long_amounts_are_truncated_exactly() -> None:
    digits = "1234567890123456789123456789012345678"
    frame = pd.DataFrame({"size": to_units([digits, "-" + digits], 18), "base": ["ETH", "ETH"]})
    texts = show(frame, precision=17).frame["size (ETH)"].tolist()
    assert texts == [f"{sign}1,234,567,890,123,456,789.12345678901234567" for sign in ("", "-")]


def test_long_tables_show_both_ends_and_say_so() -> None:
    frame = pd.DataFrame({"n": range(1_000)})
    shown = show(frame, rows=5)
    assert shown.frame["n"].tolist() == ["0", "1", "2", "998", "999"]
    assert shown.notes == ["Showing first 3 and last 2 of 1,000 rows."]


def test_the_html_is_the_same_every_time_and_escaped() -> None:
    frame = read(page([row(market="<b>X</b>")]))
    once, again = (show(frame)._repr_html_() for _ in range(2))
    assert once == again
    assert "<b>X" not in once
    assert "&lt;b&gt;X" in once
    assert "453794000000000000000" in once


def test_yes_no_nothing_and_floats_read_well() -> None:
    frame = pd.DataFrame(
        {
            "open": pd.array([True, None], dtype="boolean"),
            "bps": [9.99993, float("nan")],
            "n": pd.array([1, None], dtype="Int64"),
        }
    )
    shown = show(frame).frame
    assert shown.to_numpy().tolist() == [["yes", "10.00", "1"], ["-", "-", "-"]]


def test_an_empty_frame_shows_its_columns() -> None:
    assert "size" in repr(show(read([])))


@pytest.mark.parametrize(
    ("how", "said"),
    [({"rows": 0}, "rows=0"), ({"precision": -1}, "precision=-1"), ({"precision": "x"}, "precision='x'")],
)
def test_options_are_checked(how: dict[str, Any], said: str) -> None:
    with pytest.raises(lab.LabError, match=said):
        show(read(page([row()])), **how)


def test_summaries_carry_tokens_and_percentages() -> None:
    summary = pd.DataFrame(
        {
            "volume": to_units(["15", None, "25"], 1),
            "base": ["ETH", None, "LRC"],
            "fee_value": to_units(["1", "2", "3"], 0),
            "value_token": ["USDT"] * 3,
            "zero_fee_share": [0.125, None, 1.0],
            "bps": [12.345, None, 0.0],
        }
    )
    shown = show(summary).frame
    assert shown.columns.tolist() == ["volume", "fee_value (USDT)", "zero_fee_share", "bps"]
    assert shown["volume"].tolist() == ["1.5 ETH", "-", "2.5 LRC"]
    assert shown["zero_fee_share"].tolist() == ["12.5%", "-", "100.0%"]
    assert shown["bps"].tolist() == ["12.35", "-", "0.00"]


def test_an_unknown_amount_does_not_keep_a_symbol_out_of_the_heading() -> None:
    frame = pd.DataFrame({"vwap": to_units(["15", None], 1), "quote": ["ETH", None]})
    assert show(frame).frame.to_dict("list") == {"vwap (ETH)": ["1.5", "-"]}


def test_no_rows_are_said_and_what_is_no_frame_is_refused() -> None:
    assert "No rows." in repr(show(pd.DataFrame({"a": []})))
    with pytest.raises(lab.LabError, match="show: expected a pandas DataFrame or Series, got dict"):
        show({"a": 1})


def test_values_with_a_stated_error_are_cut_after_the_first_uncertain_digit() -> None:
    values = to_units(["247736073203824240", "247736073203824240", "247736073203824240", "-1234567", None], 6)
    frame = pd.DataFrame(
        {"fee_value": values, "within_bps": [6.5, 0.0, np.nan, 100.0, 1.0], "value_token": "ETH"}
    )
    shown = show(frame)
    assert shown.frame["fee_value (ETH)"].tolist() == [
        "247,736,073,203", "247,736,073,203.82424", "247,736,073,203.82424", "-1.23", "-",
    ]  # fmt: skip
    assert shown.notes == ["fee_value truncated after the first digit that within_bps leaves uncertain."]
    assert show(frame.drop(columns="within_bps")).notes == []
