"""What a TableView sends to the browser; tests/browser/test_tables_in_lab.py drives it there."""

from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.amounts.display import readable
from loopring_lab.widgets.table_view import MOST_ROWS, TableView


def sent(view: TableView) -> dict[str, dict[str, Any]]:
    return {column["name"]: column for column in view.data["columns"]}


def test_the_browser_gets_every_digit_of_every_column(trades: pd.DataFrame) -> None:
    columns = sent(TableView(trades, precision=2))
    assert [*columns] == trades.columns.tolist()
    for name in ("size", "price", "notional", "fee"):
        assert [Decimal(value) for value in columns[name]["values"]] == trades[name].tolist()
    assert [float(value) for value in columns["fee_bps"]["values"]] == trades["fee_bps"].tolist()
    assert columns["order_hash"]["values"] == trades["order_hash"].tolist()
    moments = pd.to_datetime(pd.Series(columns["created_at"]["values"])).to_numpy()
    assert (moments == trades["created_at"].to_numpy()).all()


def test_texts_and_headings_are_those_of_show(trades: pd.DataFrame) -> None:
    frame = trades.head(30)
    shown = readable(frame, precision=4, rows=30)
    columns = {one["heading"]: one for one in TableView(frame, precision=4).data["columns"] if not one["hidden"]}
    assert [*columns] == shown.frame.columns.tolist()
    for heading, column in columns.items():
        if column["texts"] is not None:
            assert column["texts"] == shown.frame[heading].tolist()
    assert {"created_at (UTC)", "size", "fee_bps", "order_hash"} <= {
        heading for heading, column in columns.items() if column["texts"] is not None
    }


def test_only_what_can_be_added_up_is(trades: pd.DataFrame) -> None:
    adds = {name for name, column in sent(TableView(trades.head(5))).items() if column["adds"]}
    assert adds == {"size", "notional", "fee"}
    without_tokens = trades.head(5).drop(columns=["base", "quote", "fee_token"])
    assert not any(column["adds"] for column in sent(TableView(without_tokens)).values())
    markouts = sent(TableView(lab.fills.markouts(trades, by="market")))
    assert not any(column["adds"] for column in markouts.values())  # the same fills at each horizon
    summary = {name for name, column in sent(TableView(lab.fees.summary(trades))).items() if column["adds"]}
    assert {"fills", "fee", "volume", "notional"} <= summary
    assert not {"bps", "median_bps", "zero_fee_share"} & summary


def test_amounts_in_smallest_units_have_all_76_digits() -> None:
    digits = "9" * 76
    frame = pd.DataFrame({"change": to_units([digits], 0, dtype=pd.ArrowDtype(pa.decimal256(76, 0)))})
    assert sent(TableView(frame))["change"]["values"] == [digits]


def test_another_frame_replaces_the_first_and_nothing_is_chosen(trades: pd.DataFrame) -> None:
    view = TableView(trades.head(3), code="one", choosing=True)
    view.chosen = 2
    view.show(trades.head(2), code="two")
    assert (view.chosen, view.code, view.data["rows"]) == (-1, "two", 2)
    view.show(trades["fee"].head(1))
    assert (view.code, [*sent(view)]) == ("", ["fee"])


def test_a_static_copy_stands_beside_the_view_and_is_the_same_every_time(trades: pd.DataFrame) -> None:
    view = TableView(trades, precision=4)
    data, _ = view._repr_mimebundle_()
    assert data["text/html"] == readable(trades, precision=4)._repr_html_()
    assert data["text/plain"] == f"TableView of {len(trades):,} rows"
    assert "application/vnd.jupyter.widget-view+json" in data
    assert TableView(trades, precision=4)._repr_mimebundle_()[0]["text/html"] == data["text/html"]


def test_the_index_comes_first_if_it_has_a_name(client: Any, trades: pd.DataFrame) -> None:
    columns = TableView(client.markets()[["base"]]).data["columns"]
    assert [(one["name"], one["key"]) for one in columns] == [("market", True), ("base", False)]
    assert [one["key"] for one in TableView(trades[["market"]]).data["columns"]] == [False]


def test_odd_values_are_sent_as_text() -> None:
    frame = pd.DataFrame(
        {
            "float": [1e-7, float("inf"), None],
            "age": pd.to_timedelta(["90s", None, "1D"]),
            "list": [[1, "a"], None, {}],
            "open": pd.array([True, False, None], dtype="boolean"),
        }
    )
    columns = sent(TableView(frame))
    assert columns["float"]["values"] == ["0.0000001", "Infinity", ""]
    assert columns["age"]["order"] == [str(90 * 10**9), "", str(86_400 * 10**9)]
    assert columns["list"]["values"] == ["[1, 'a']", "", "{}"]
    assert (columns["open"]["values"], columns["open"]["texts"]) == (
        ["True", "False", ""],
        ["yes", "no", "-"],
    )


@pytest.mark.parametrize(
    ("frame", "how", "said"),
    [
        ({"a": 1}, {}, "TableView: expected a pandas DataFrame or Series, got dict"),
        (pd.DataFrame({"a": range(MOST_ROWS + 1)}), {}, "50,001 rows are more than the 50,000"),
        (pd.DataFrame({"a": [1]}), {"precision": -1}, "precision=-1 is not valid"),
    ],
)
def test_what_cannot_be_shown_is_refused(frame: Any, how: dict[str, Any], said: str) -> None:
    with pytest.raises(lab.LabError, match=said):
        TableView(frame, **how)


def test_a_refused_frame_leaves_the_view_as_it_was(trades: pd.DataFrame) -> None:
    view = TableView(trades.head(3))
    with pytest.raises(lab.LabError):
        view.show(None)
    assert view.data["rows"] == 3
