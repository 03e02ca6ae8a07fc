import re
from decimal import Decimal
from html import unescape

import nbformat
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbclient import NotebookClient
from support.wire_rows import page, read, row, tokens

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.amounts.display import format_amount, show


@given(st.integers(-(10**37) + 1, 10**37 - 1))
def test_a_number_keeps_every_digit_that_counts(smallest):
    exact = Decimal(smallest).scaleb(-18)
    text = format_amount(exact)
    assert Decimal(text.replace(",", "")) == exact
    assert "E" not in text
    assert "." not in text or text[-1] not in "0."


def test_amounts_carry_their_token():
    usdt = row(
        id="2", market="ETH-USDT", tokenId="0", feeAmount="1500000", price="2000.0"
    )
    frame = read(page([row(id="1"), usdt]))
    shown = show(
        frame[["size", "price", "notional", "fee", "base", "quote", "fee_token"]]
    ).frame
    assert shown.columns.tolist() == ["size", "price", "notional", "fee"]
    assert shown["size"].tolist() == ["453.794 LRC", "453.794 ETH"]
    assert shown["price"].tolist() == ["0.00035669 ETH", "2,000 USDT"]
    assert shown["fee"].tolist() == ["0.00161868 ETH", "1.5 USDT"]


def test_one_token_for_all_stands_in_the_heading():
    shown = show(read(page([row()])))
    assert "size (LRC)" in shown.frame.columns
    assert "created_at (UTC)" in shown.frame.columns
    assert shown.frame["created_at (UTC)"].tolist() == ["2022-07-12 15:07:39.610"]
    assert shown.notes[0] == "Empty columns hidden: fill_type, extra."


def test_times_are_shown_in_their_zone_which_the_heading_names():
    frame = read(page([row()]))[["created_at"]]
    frame["created_at"] = frame["created_at"].dt.tz_convert("Asia/Tokyo")
    shown = show(frame)
    times = shown.frame["created_at (Asia/Tokyo)"]
    assert times.tolist() == ["2022-07-13 00:07:39.610"]
    assert "Unit: Asia/Tokyo." in shown._repr_html_()


def test_amounts_can_be_truncated_to_a_token_s_precision_and_say_so():
    listed = tokens()
    listed["precision"] = pd.array([3] * len(listed), dtype="Int64")
    frame = read(page([row(size="453794999999999999999")]))[
        ["size", "price", "base", "quote"]
    ]
    shown = show(frame, precision=listed)
    assert shown.frame["size (LRC)"].tolist() == ["453.794…"]
    assert shown.frame["price (ETH)"].tolist() == ["0.00035669"]
    assert shown.notes == ["size truncated to the token's precision where marked …"]
    assert show(frame, precision=1).frame["size (LRC)"].tolist() == ["453.7…"]
    assert show(frame, precision=18).notes == []
    assert show(frame).frame["size (LRC)"].tolist() == ["453.794999999999999999"]


def test_the_html_is_the_same_every_time_and_escaped():
    frame = read(page([row(market="<b>X</b>")]))
    once, again = (show(frame)._repr_html_() for _ in range(2))
    assert once == again
    assert "<b>X" not in once
    assert "&lt;b&gt;X" in once
    assert "Columns hidden" in once


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"rows": 0}, "rows=0"),
        ({"rows": 1.5}, "rows=1.5"),
        ({"rows": "all"}, "rows='all'"),
        ({"precision": -1}, "precision=-1"),
        ({"precision": "x"}, "precision='x'"),
    ],
)
def test_options_are_checked(how, said):
    with pytest.raises(lab.LabError, match=said):
        show(read(page([row()])), **how)


def test_amounts_whose_token_stands_in_two_columns_are_refused_and_others_shown():
    frame = read(page([row()]))
    twice = pd.concat([frame, frame], axis=1)
    with pytest.raises(lab.LabError, match="two columns 'base'. Drop or rename one"):
        show(twice)
    with pytest.raises(lab.LabError, match="two columns 'fee'. Drop or rename one"):
        lab.amounts.total(twice, "fee")
    names = show(twice[["side", "market"]]).frame.columns
    assert names.tolist() == ["side", "side", "market", "market"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [(1, "Showing first 1 of 3 rows."), (2, "Showing first 1 and last 1 of 3 rows.")],
)
def test_how_many_rows_are_left_out_is_said(rows, said):
    frame = pd.DataFrame({"a": ["x", "y", "z"]})
    assert show(frame, rows=rows).notes == [said]


def test_no_rows_are_said_and_what_is_no_frame_is_refused():
    assert "No rows." in repr(show(pd.DataFrame({"a": []})))
    with pytest.raises(
        lab.LabError, match="show: expected a pandas DataFrame or Series, got dict"
    ):
        show({"a": 1})


def test_values_are_cut_after_the_first_uncertain_digit():
    values = [
        0.17862481234567891,
        470.18,
        0.1 + 0.2,
        float("nan"),
        123456.789,
        -1.234567,
    ]
    frame = pd.DataFrame(
        {
            "fee_value": values,
            "within_bps": [6.5, 0.0, 0.0, np.nan, np.nan, 100.0],
            "value_token": "ETH",
        }
    )
    shown = show(frame)
    assert shown.frame["fee_value (ETH)"].tolist() == [
        "0.1786…",
        "470.18",
        "0.3",
        "-",
        "123,456…",
        "-1.23…",
    ]
    assert shown.notes == [
        "fee_value truncated after the first digit that within_bps leaves uncertain."
    ]
    alone = show(frame[["fee_value", "value_token"]])
    assert alone.frame["fee_value (ETH)"].tolist() == [
        "0.17862…",
        "470.18",
        "0.3",
        "-",
        "123,456…",
        "-1.2345…",
    ]
    assert ("0.1786248123", "0.17862…") in {
        (title, text) for _, title, text in cells(alone._repr_html_(), "td")
    }
    endless = show(frame.assign(fee_value=float("inf"))).frame
    assert set(endless["fee_value"]) == {"inf"}


def cells(html: str, tag: str) -> list[tuple[str, str, str]]:
    """Return the alignment, title and text of each cell of a table."""
    found = re.findall(
        rf"<{tag} align=\"(\w+)\"(?:[^>]*? title=\"([^\"]*)\")?[^>]*>([^<]*)</{tag}>",
        html,
    )
    return [(align, unescape(title), unescape(text)) for align, title, text in found]


def summary() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "quote": ["USDC", "USDC"],
            "role": [None, None],
            "fills": [1745, 24],
            "notional": to_units(["15999992", "20000"], 4),
            "bps": [12.3456, 0.0004],
        }
    )


def test_columns_that_rows_are_grouped_by_are_never_hidden():
    shown = show(summary()).frame
    assert shown.columns.tolist() == [
        "quote",
        "role",
        "fills",
        "notional (USDC)",
        "bps",
    ]
    assert shown["role"].tolist() == ["-", "-"]
    elsewhere = summary()[["fills", "notional", "quote"]]
    # A token that stands behind its amount is said in the heading instead.
    assert show(elsewhere).frame.columns.tolist() == ["fills", "notional (USDC)"]


def test_a_token_is_hidden_only_where_it_stands_beside_an_amount():
    frame = pd.DataFrame(
        {"size": to_units(["15", None, "2"], 1), "base": ["ETH", "LRC", "UNI"]}
    )
    assert show(frame).frame["base"].tolist() == ["ETH", "LRC", "UNI"]
    assert show(frame.drop(index=1)).frame.columns.tolist() == ["size"]


def test_counts_have_separators_and_numbers_of_things_have_none():
    frame = summary().assign(
        account_id=[10083, 71468], block_id=[35091, 4], year=[2022, 2023]
    )
    shown = show(frame).frame
    assert shown["fills"].tolist() == ["1,745", "24"]
    assert shown["account_id"].tolist() == ["10083", "71468"]
    assert shown["block_id"].tolist() == ["35091", "4"]
    assert shown["year"].tolist() == ["2022", "2023"]


def test_text_and_times_stand_left_and_numbers_right_with_their_headings():
    html = show(
        read(page([row()]))[
            ["created_at", "market", "side", "size", "base", "fee_bps", "trade_id"]
        ]
    )._repr_html_()
    names = ["created_at (UTC)", "market", "side", "size (LRC)", "fee_bps", "trade_id"]
    sides = ["left", "left", "left", "right", "right", "right"]
    assert [(side, text) for side, _, text in cells(html, "th")] == list(
        zip(sides, names, strict=True)
    )
    assert [side for side, _, _ in cells(html, "td")] == sides


def test_what_is_cut_or_rounded_says_so_and_tells_its_exact_value():
    html = show(summary(), precision=3)._repr_html_()
    assert [(title, text) for _, title, text in cells(html, "td")][3:5] == [
        ("1,599.9992", "1,599.999…"),
        # Rates are rounded to a hundredth of a basis point, amounts are only ever cut.
        ("12.3456", "12.35"),
    ]
    assert [(title, text) for _, title, text in cells(html, "td")][8:] == [
        ("", "2"),
        ("0.0004", "<0.01"),
    ]
    # Text of an identifier is cut in its middle; its cell tells all of it.
    hashes = show(read(page([row()]))[["order_hash"]])
    assert hashes.frame["order_hash"].tolist() == ["0x0a417a…1b58"]
    digits = [title for _, title, _ in cells(hashes._repr_html_(), "td")]
    assert "0x0a417a" + "…" not in "".join(digits)
    assert any(len(title) == 66 and title.startswith("0x0a417a") for title in digits)


def test_headings_tell_what_a_column_means_and_its_unit():
    helps = {
        text: title
        for _, title, text in cells(show(read(page([row()])))._repr_html_(), "th")
    }
    assert helps["size (LRC)"] == "Amount of the base token, gross. Unit: base token."
    assert "truncated to 8 decimals by the relayer" in helps["price (ETH)"]
    own = pd.DataFrame({"size": [1], "shape": ["round"], "colour": ["red"]})
    assert {title for _, title, _ in cells(show(own)._repr_html_(), "th")} == {""}


def test_text_keeps_its_line_and_long_text_wraps():
    frame = pd.DataFrame({"memo": ["a\nb\u202ec", "x" * 1_000]})
    shown = show(frame)
    assert shown.frame["memo"].tolist() == ["a\\nb\\u202ec", "x" * 300 + "…"]
    # Marks that would break the line or turn the direction of text are written as their escapes.
    assert len(repr(shown).split("\n")) == 3
    assert 'class="ll-long"' in shown._repr_html_()


def test_no_symbol_in_a_heading_commands_a_terminal():
    frame = read(page([row()]))
    frame["base"] = frame["base"].cat.rename_categories({"LRC": "L\x1b[31m\u202e"})
    text = repr(show(frame))
    assert "size (L?[31m?)" in text
    assert all(line.isprintable() for line in text.split("\n"))


def run(*sources: str) -> list[list[str]]:
    """Run cells in a kernel; return the HTML of what each displayed."""
    made = [nbformat.v4.new_code_cell(source) for source in sources]
    NotebookClient(nbformat.v4.new_notebook(cells=made), timeout=600).execute()
    return [[one["data"]["text/html"] for one in cell.outputs] for cell in made]


def test_a_call_displays_its_table_once_wherever_it_stands_in_the_cell():
    start = "import pandas as pd\nimport loopring_lab as lab\nn = lambda i: pd.DataFrame({'n': [i]})\n"
    first, last, both, later, again = run(
        start
        + "a = lab.show(n(1))\nlab.show(n(2))\nfor i in (3, 4):\n    lab.show(n(i))\nNone",
        "lab.show(n(5))",
        "b = lab.show(n(6))\ndisplay(b)\ndisplay(lab.show(n(7)))\nb",
        "a",
        "display(a, b)\nlen(a.frame)\nNone",
    )
    displayed = (first, last, both, later, again)
    numbers = [
        [re.search(r"<td[^>]*>(\d)<", html)[1] for html in one] for one in displayed
    ]
    assert numbers == [["1", "2", "3", "4"], ["5"], ["6", "7"], ["1"], ["1", "6"]]
    assert later[0] == first[0]


def test_an_index_of_words_is_shown_and_one_of_numbers_is_not():
    frame = pd.DataFrame({"fee_bps": [1.0, 2.0]}, index=["min", "max"])
    assert repr(lab.show(frame)).splitlines()[1:] == ["min     1.00", "max     2.00"]
    assert repr(lab.show(frame.reset_index(drop=True))).splitlines() == [
        "fee_bps",
        "   1.00",
        "   2.00",
    ]


def test_a_break_stands_between_the_first_rows_and_the_last():
    shown = lab.show(pd.DataFrame({"fee_bps": [1.0, 2.0, 3.0, 4.0]}), rows=3)
    assert repr(shown).splitlines()[:5] == [
        "fee_bps",
        "   1.00",
        "   2.00",
        "…",
        "   4.00",
    ]
    assert shown._repr_html_().count(">…</td>") == 1


def test_counts_of_odd_rows_are_left_out_where_all_are_zero():
    frame = pd.DataFrame({"fills": [5, 6], "unknown": [0, 0], "both_sides": [0, 1]})
    shown = lab.show(frame)
    assert list(shown.frame) == ["fills", "both_sides"]
    assert shown.notes == ["Columns hidden where all are 0: unknown."]
    twice = lab.show(pd.concat([frame, frame], axis="columns"))
    assert list(twice.frame) == ["fills", "both_sides"] * 2


def test_a_whole_frame_of_trades_has_columns_that_one_reads():
    frame = read(page([row()]))
    hidden = ["order_hash", "block_id", "index_in_block", "token_id", "storage_id"]
    shown = show(frame)
    assert set(shown.frame).isdisjoint(hidden)
    assert shown.notes[1].startswith(
        f"Columns hidden that only find a row elsewhere: {', '.join(hidden)}."
    )
    # What a row holds that no column has is not hidden.
    odd = show(frame.assign(extra='["7"]'))
    assert odd.frame["extra"].tolist() == ['["7"]']


def test_columns_stay_in_the_order_that_was_asked_for():
    listed = tokens()
    names = ["token_id", "decimals"]
    assert list(show(listed[names]).frame) == names
    names = ["storage_id", "size", "block_id", "side"]
    trades = show(read(page([row()]))[[*names, "base"]])
    assert list(trades.frame) == ["storage_id", "size (LRC)", "block_id", "side"]


def test_estimates_have_five_significant_digits_and_amounts_have_all():
    """Both columns hold the same digits; the first is a value at prices, the second what was paid."""
    digits = ["1950.070146115830115829", "-0.041142170574319462", "1234567.25", "0"]
    values = pd.Series(map(Decimal, digits), dtype=lab.amounts.AMOUNT)
    amounts = pd.DataFrame({"opened": values, "closed": values})
    shown = show(amounts.assign(fee=values))
    assert shown.frame["opened"].tolist() == [
        "1,950.0…",
        "-0.041142…",
        "1,234,567…",
        "0",
    ]
    assert shown.frame["fee"].tolist()[:2] == ["1,950.070146115830115829", digits[1]]
    assert shown.notes == [
        "opened, closed shown to 5 significant digits; the frame holds the others."
    ]
    asked = show(amounts, precision=8)
    assert asked.frame["opened"].tolist()[:2] == ["1,950.07014611…", "-0.04114217…"]


def test_floats_have_five_significant_digits_rates_two_decimals_and_shares_percent():
    values = [0.000123456789, 123456.789, 0.5, float("nan")]
    frame = pd.DataFrame(
        {"speed": values, "gap_bps": values, "share": [0.5] * 4, "small": [0.5] * 4}
    )
    shown = show(frame)
    assert shown.frame["speed"].tolist() == ["0.00012346", "123,457", "0.5", "-"]
    assert shown.frame["gap_bps"].tolist() == ["<0.01", "123,456.79", "0.50", "-"]
    assert shown.frame["share"].tolist() == ["50.0%"] * 4
    assert shown.notes == [
        "speed shown to 5 significant digits; the frame holds the others."
    ]


def test_a_missing_label_of_a_pivot_is_unknown():
    tiers = pd.array([8, None], dtype="Int64")
    long = pd.DataFrame({"period": [1, 1], "tier_bps": tiers, "fee": [1, 2]})
    wide = long.pivot(index="period", columns="tier_bps", values="fee")
    assert set(show(wide).frame.columns) == {"unknown", "8"}
