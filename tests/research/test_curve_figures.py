"""Figures of cost curves, and of changes: what they draw, say and refuse."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from figures.test_figures import assert_legible
from support.figures import lines, note, words

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.research import figures

Frames = tuple[pd.DataFrame, Any]


@pytest.fixture(scope="module")
def switched(switched: Frames) -> Frames:
    users, marks = switched
    users = users.copy()
    # Both sides of a fill: what is drawn is of its taker, so that there is nothing to say of the other.
    users.attrs["synthetic"] = True
    return users, marks


@pytest.fixture(scope="module")
def curves(switched: Frames) -> Any:
    trades, marks = switched
    return figures.cost_curves(trades, prices=marks)


@pytest.fixture(scope="module")
def changes(switched: Frames) -> Any:
    trades, marks = switched
    return figures.changes(trades, prices=marks)


def test_curves_are_drawn_as_their_table_has_them(curves):
    drawn = lines(curves)
    labels = {"pool": "AMM pool", "book": "order book"}
    for venue, label in labels.items():
        rows = curves.table[curves.table["venue"] == venue]
        orders = rows["orders"].iloc[0]
        x, y = drawn[f"{label}\n({orders:,} orders)"]
        assert x == pytest.approx(np.log10(rows["size"]).tolist())
        assert y == pytest.approx(rows["cost_bps"].tolist())
        marks = [mark for mark in curves.marks if mark.text.startswith(label)]
        assert [mark.y for mark in marks] == [
            pytest.approx(pair)
            for pair in zip(rows["low_bps"], rows["high_bps"], strict=True)
        ]
    assert len(curves.axes[0].collections) >= 2


def test_the_crossing_is_named_in_the_note(curves):
    found = lab.research.crossing(curves.table).iloc[0]
    assert pd.notna(found["size"])
    text = " ".join(words(curves))
    assert "the curves cross at" in text
    assert "measured against outside prices 1min after each order" in text


def test_changes_are_drawn_as_their_table_has_them(changes):
    text = " ".join(words(changes))
    assert "pool minus book (basis points)" in text
    known = changes.table.dropna(subset=["difference_bps"])
    assert len(changes.marks) == len(known)
    first = changes.marks[0]
    assert first.text.startswith("month from 2022-01-01: ")
    assert first.y == (known["band_low_bps"].iloc[0], known["band_high_bps"].iloc[0])


def test_both_are_legible(curves, changes):
    assert_legible(curves)
    assert_legible(changes)
    assert note(curves).count("\n") == 1
    assert note(changes).count("\n") == 1


@pytest.mark.thorough
def test_the_year_stands_apart_from_the_label_of_synthetic_data(switched):
    trades, marks = switched
    spring = trades[trades["created_at"].between("2022-03", "2022-07")]
    figure = figures.changes(spring, prices=marks)
    assert {"2022", "synthetic data"} <= set(words(figure))
    assert_legible(figure)


@pytest.mark.thorough
def test_own_trades_as_reference_are_named(switched):
    trades, _ = switched
    for figure in (
        figures.changes(trades, horizon="1d"),
        figures.cost_curves(trades),
    ):
        assert "after each order,\nwhich pull differences towards 0" in note(figure)
        assert note(figure).count("\n") == 2
        assert_legible(figure)


@pytest.mark.thorough
def test_a_reference_before_each_order_is_named(switched):
    trades, marks = switched
    figure = figures.changes(trades, prices=marks, horizon="0s")
    assert note(figure).endswith("measured against outside prices before each order")


def test_nothing_to_draw_is_an_error(switched):
    few = switched[0].head(5)
    with pytest.raises(
        LabError, match=r"cost_curves: no venue has enough takers' orders"
    ):
        figures.cost_curves(few)
    with pytest.raises(LabError, match=r"changes: no period has taker fills of both"):
        figures.changes(few)
