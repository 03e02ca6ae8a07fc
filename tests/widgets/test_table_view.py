"""A table to look into without a browser: what it shows, and what a message of the page changes."""

import csv
import gzip
import io
import re
from decimal import Decimal
from html import unescape
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from widgets.conftest import send

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.amounts.display import format_amount, readable
from loopring_lab.widgets.table_view import MOST_ROWS, TableView


def headings(view):
    found = re.findall(
        r"<th scope=.col.[^>]*><button[^>]*>(.*?)<span", view.page["html"]
    )
    return [unescape(one) for one in found]


def order(view, number):
    """Return how a column is sorted, as a screen reader is told."""
    heads = re.findall(r"<th scope=.col.([^>]*)>", view.page["html"])
    return heads[number].partition('aria-sort="')[2].strip('"')


def totals(view):
    """Return the totals that are shown, by the heading above them."""
    foot = view.page["html"].partition("<tfoot>")[2]
    cells = re.findall(r"<td ([^>]*)>(.*?)</td>", foot)
    if not cells:
        return {}
    found = {}
    for name, (attributes, text) in zip(headings(view), cells, strict=True):
        title = attributes.partition('title="')[2].partition('"')[0]
        if text and text != "Total":
            found[name] = [text, title]
    return found


def saved(view, monkeypatch):
    """Return the CSV file that the page saves."""
    sent: list[Any] = []
    monkeypatch.setattr(view, "send", lambda content, buffers: sent.extend(buffers))
    send(view, csv=True)
    return list(csv.reader(io.StringIO(gzip.decompress(sent[0]).decode())))


def test_the_page_is_what_show_displays(trades):
    # Of whole trades `show` hides what only finds a row elsewhere; here it comes last.
    frame = trades.head(30).drop(columns=["order_hash", "block_id"])
    shown = readable(frame, precision=4, rows=30)._repr_html_()
    view = TableView(frame, precision=4)

    def rows(html):
        return html.partition("<tbody>")[2].partition("</tbody>")[0].strip()

    assert rows(view.page["html"]) == rows(shown)
    wanted = re.findall(r"<th[^>]*col[^>]*>(.*?)</th>", shown)
    assert headings(view) == [unescape(one) for one in wanted]


@pytest.mark.parametrize("markets", [["LRC-ETH"], ["LRC-ETH", "ETH-USDC", "LRC-USDC"]])
def test_a_click_sorts_by_exact_value_up_then_down_then_not(trades, markets):
    trades = trades[trades["market"].isin(markets)].reset_index(drop=True)
    view = TableView(trades)
    size = [one.partition(" ")[0] for one in headings(view)].index("size")
    for way in ("ascending", "descending"):
        send(view, sort=size)
        expected = trades.sort_values(
            "size", ascending=way == "ascending", kind="stable"
        )
        # Amounts of several tokens have no order among each other, so the token comes first.
        expected = expected.sort_values("base", kind="stable")
        assert view.page["rows"] == expected.index[:50].tolist()
        assert order(view, size) == way
        assert ("sorted by base first" in view.page["status"]) is (len(markets) > 1)
    send(view, sort=size)
    assert view.page["rows"] == list(range(50))
    assert "sorted" not in view.page["status"]


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("size > 100", lambda t: t["size"] > 100),
        ("FEE<=0.5", lambda t: t["fee"] <= Decimal("0.5")),
        ("size >= 1,000.00", lambda t: t["size"] >= 1000),
        ("side = buy", lambda t: t["side"] == "BUY"),
        ("created_at < 2022-03-01", lambda t: t["created_at"] < "2022-03-01"),
        (
            "created_at > 2022-03-01T12:30Z",
            lambda t: t["created_at"] > "2022-03-01T12:30Z",
        ),
    ],
)
def test_a_filter_compares_exact_values_of_a_column(trades, typed, wanted):
    view = TableView(trades)
    send(view, filter=typed)
    expected = trades[wanted(trades).fillna(False)]
    assert 0 < len(expected) < len(trades)
    assert view.page["rows"] == expected.index[:50].tolist()
    assert view.page["matching"] == len(expected)


@pytest.mark.parametrize(
    "typed",
    [
        "size > much",
        "size > nan",
        "size != snan",
        "size < infinity",
        "size > 1e9999999999%",
        "size < 1e-9999999999%",
        "sizes > 1",
        "size > 0,5",
        "size > 0,000",
        "size > -1234,567",
        "size < 1,0000",
        "created_at > 3.4.2022",
    ],
)
def test_a_filter_that_matches_nothing_says_how_to_filter(trades, typed):
    view = TableView(trades)
    send(view, filter=typed)
    assert view.page["matching"] == 0
    assert "Filter by text, such as ETH, or by a column" in view.page["status"]


def test_a_filter_leaves_matching_rows_and_their_exact_totals(trades):
    view = TableView(trades)
    send(view, filter="lrc-ETH")
    matching = trades[trades["market"] == "LRC-ETH"]
    assert view.page["status"] == f"{len(matching):,} of {len(trades):,} rows"
    volume = sum(matching["size"], Decimal(0))
    assert totals(view)["size"] == [f"{format_amount(volume)} LRC", ""]
    assert {"price", "fee", "trade_id"}.isdisjoint(totals(view))
    send(view, start=50)
    place = matching.index[50:100].tolist()
    assert view.page["rows"] == place
    send(view, filter=matching["order_hash"].iloc[7][10:40])
    assert matching.index[7] in view.page["rows"]
    send(view, filter="")
    assert totals(view) == {}


def test_only_what_can_be_added_up_is(trades):
    five = trades[trades["market"] == "LRC-ETH"].head(5)
    assert {"size", "notional"} <= {
        name.split(" ")[0] for name in totals(TableView(five))
    }
    assert totals(TableView(five.drop(columns=["base", "quote", "fee_token"]))) == {}
    markouts = lab.fills.markouts(trades, by="market")
    assert totals(TableView(markouts)) == {}  # the same fills at each horizon
    summary = {
        name.split(" ")[0] for name in totals(TableView(lab.fees.summary(trades)))
    }
    assert "fills" in summary
    assert not {"bps", "median_bps", "zero_fee_share"} & summary


def test_totals_of_76_digits_are_exact():
    digits = "9" * 76
    volume = to_units([digits, digits], 0, dtype=pd.ArrowDtype(pa.decimal256(76, 0)))
    view = TableView(
        pd.DataFrame({"market": ["LRC-ETH"] * 2, "volume": volume, "base": ["LRC"] * 2})
    )
    ((total, _),) = totals(view).values()
    assert total.replace(",", "") == str(2 * int(digits))


def test_digits_that_are_cut_are_marked_also_in_totals(trades):
    frame = trades[trades["market"] == "LRC-ETH"]
    view = TableView(frame, precision=2)
    text, exact = next(
        total for name, total in totals(view).items() if name.startswith("notional")
    )
    whole = sum(frame["notional"], Decimal(0))
    assert exact.split(" ")[0] == format_amount(whole)
    assert text.split("…")[0] == f"{whole.quantize(Decimal('0.01'), 'ROUND_DOWN'):,f}"
    assert "truncated to 2 decimals where marked …" in view.page["notes"]


def test_the_csv_has_all_digits_of_the_matching_rows_in_their_order(
    trades, monkeypatch
):
    view = TableView(trades, precision=2)
    send(view, filter="dex")
    send(view, sort=headings(view).index("notional"))
    head, *rows = saved(view, monkeypatch)
    assert head == trades.columns.tolist()
    expected = trades[trades["fill_type"] == "dex"].sort_values(
        "notional", kind="stable"
    )
    expected = expected.sort_values("quote", kind="stable")
    assert_all_digits(pd.DataFrame(rows, columns=head), expected)


def assert_all_digits(found: pd.DataFrame, expected: pd.DataFrame):
    """Compare the text of saved trades with the trades, row by row."""
    for name in ("size", "price", "notional", "fee"):
        assert [Decimal(value) for value in found[name]] == expected[name].tolist()
    assert found["order_hash"].tolist() == expected["order_hash"].tolist()
    assert [float(value) for value in found["fee_bps"]] == expected["fee_bps"].tolist()
    assert (
        pd.to_datetime(found["created_at"]).to_numpy()
        == expected["created_at"].to_numpy()
    ).all()


@pytest.mark.parametrize(
    "before",
    [
        "",
        " ",
        "\n",
        "\t",
        "\u00a0",
        "\ufeff",
        "\u200b",
        "\u2060",
        "\u202e",
        "\x00",
        "\x7f",
    ],
)
@pytest.mark.parametrize(
    "sign", ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
)
def test_no_cell_or_heading_is_a_formula(monkeypatch, before, sign):  # fmt: skip
    text = f"{before}{sign}1+1"
    [heading], [cell], [plain] = saved(
        TableView(pd.DataFrame({text: [text, "LRC 1"]})), monkeypatch
    )
    assert (heading[0], cell[0]) == ("'", "'")
    assert plain == "LRC 1"


def test_odd_values_are_text_sorted_and_saved(monkeypatch):
    frame = pd.DataFrame(
        {
            "=memo": ["=HYPERLINK(1)<img src=x>", "-2+3", "b"],
            "n": pd.array([2, 10**17, None], dtype="Int64"),
            "float": [1e-7, float("inf"), None],
            "list": [[1, "a"], None, {}],
        }
    )
    view = TableView(frame)
    assert "<img" not in view.page["html"]
    for number in range(4):
        send(view, sort=number)
        assert order(view, number) == "ascending"
    assert view.page["rows"][-1] == 1
    send(view, sort=1)
    assert view.page["rows"] == [0, 1, 2]
    assert saved(view, monkeypatch) == [
        ["'=memo", "n", "float", "list"],
        ["'=HYPERLINK(1)<img src=x>", "2", "1e-07", "[1, 'a']"],
        ["'-2+3", str(10**17), "inf", ""],
        ["b", "", "", "{}"],
    ]


def test_a_click_that_comes_after_a_filter_means_the_row_that_was_clicked(trades):
    view = TableView(trades, choosing=True)
    clicked, other = trades.index[trades["market"] == "LRC-ETH"][[3, 4]].tolist()
    send(view, filter="LRC-ETH")
    send(view, choose=clicked)
    assert view.chosen == clicked
    send(view, filter="no such text")
    send(view, choose=other)
    assert view.chosen == clicked


def test_the_next_page_of_what_a_filter_has_taken_away_is_the_first_that_is_left(
    trades,
):
    view = TableView(trades)
    send(view, filter="LRC-ETH")
    left = view.page["rows"]
    send(view, start=len(trades) - 1)
    assert view.page["rows"] == left


def test_a_page_that_is_loaded_again_shows_the_filter_of_its_rows(trades):
    view = TableView(trades)
    assert view.page["filter"] == ""
    send(view, filter="size > 1")
    assert view.page["filter"] == "size > 1"


def test_another_frame_keeps_the_order_and_no_row_is_chosen(trades):
    view = TableView(trades, choosing=True)
    send(view, sort=headings(view).index("size"))
    view.chosen = view.page["rows"][2]
    view.show(trades.head(2))
    assert (view.chosen, view.page["status"]) == (-1, "2 rows")
    names = [name.split(" ")[0] for name in headings(view)]
    assert order(view, names.index("size")) == "ascending"


def test_the_saved_copy_is_a_table_that_is_the_same_every_time(trades):
    view = TableView(trades, precision=4)
    data, _ = view._repr_mimebundle_()
    assert view.static_html() == readable(trades, precision=4)._repr_html_()
    assert data["text/plain"] == f"TableView of {len(trades):,} rows"
    assert "application/vnd.jupyter.widget-view+json" in data
    assert TableView(trades, precision=4).static_html() == view.static_html()


@pytest.mark.parametrize(
    ("frame", "how", "said"),
    [
        ({"a": 1}, {}, "TableView: expected a pandas DataFrame or Series, got dict"),
        (
            pd.DataFrame({"a": range(MOST_ROWS + 1)}),
            {},
            "50,001 rows are more than the 50,000",
        ),
        (pd.DataFrame({"a": [1]}), {"precision": -1}, "precision=-1 is not valid"),
    ],
)
def test_what_cannot_be_shown_is_refused(frame, how, said):
    with pytest.raises(lab.LabError, match=said):
        TableView(frame, **how)


def test_a_refused_frame_leaves_the_view_as_it_was(trades):
    view = TableView(trades.head(3))
    with pytest.raises(lab.LabError):
        view.show(None)
    assert view.page["status"] == "3 rows"
    view.show(trades.head(1))
    assert view.page["status"] == "1 row"
