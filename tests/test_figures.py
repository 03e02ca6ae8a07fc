"""The volume figure: bars equal exact sums, and texts are legible at 900 pixels."""

import struct
from decimal import Decimal
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from support.figures import stacks
from support.wire_rows import page, read, row

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.figures import volume


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083)


def test_bars_are_the_exact_sums_of_notional(trades: pd.DataFrame) -> None:
    figure = volume(trades, quote="USDC")
    mine = trades[trades["quote"] == "USDC"]
    heights = stacks(figure)
    for fill_type, label in (("amm", "AMM pool"), ("dex", "order book")):
        sums: dict[int, Decimal] = {}
        start = mine["created_at"].min().floor("D")
        for fill in mine[mine["fill_type"] == fill_type].itertuples():
            week = (fill.created_at - start).days // 7
            sums[week] = sums.get(week, Decimal(0)) + fill.notional
        weeks = range(len(heights[label]))
        assert heights[label] == pytest.approx([float(sums.get(week, 0)) for week in weeks], rel=1e-12)


def test_fill_types_are_stacked(trades: pd.DataFrame) -> None:
    lower, upper = volume(trades).axes[0].containers
    assert [bar.get_y() for bar in lower] == [0] * len(lower)
    assert [bar.get_y() for bar in upper] == [bar.get_height() for bar in lower]


def test_without_a_choice_the_most_traded_quote_is_drawn_and_named(trades: pd.DataFrame) -> None:
    most = trades["quote"].value_counts()
    axes = volume(trades).axes[0]
    named = f"Traded volume per week, {most.index[0]}-quoted markets, {most.iloc[0]:,} of {len(trades):,} trades"
    assert axes.get_title(loc="left") == named
    assert axes.get_ylabel() == f"notional ({most.index[0]})"
    assert axes.get_xlabel() == "time (UTC)"


def test_synthetic_data_is_marked_and_real_data_is_not(trades: pd.DataFrame) -> None:
    assert "synthetic data" in [text.get_text() for text in volume(trades).axes[0].texts]
    real = trades.copy()
    real.attrs = {}
    assert not volume(real).axes[0].texts


def test_the_picture_is_legible_at_900_pixels(trades: pd.DataFrame) -> None:
    figure = volume(trades)
    width, height = struct.unpack(">II", figure._repr_png_()[16:24])  # type: ignore[attr-defined]
    assert (width, height) == (1800, 840)
    renderer = FigureCanvasAgg(figure).get_renderer()
    figure.draw_without_rendering()
    axes = figure.axes[0]
    texts = [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts]  # type: ignore[attr-defined]
    ticks = [
        tick.label1
        for axis in (axes.xaxis, axes.yaxis)
        for tick in axis.get_major_ticks()
        if min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
    ]
    assert len(ticks) >= 6
    legend = axes.get_legend()
    assert legend is not None
    for text in [*texts, *ticks, *legend.get_texts()]:
        assert text.get_fontsize() >= 9
        box = text.get_window_extent(renderer)
        assert not text.get_text() or (box.x0 >= 0 and box.x1 <= 900 and box.y0 >= 0 and box.y1 <= 420)
    boxes = [label.get_window_extent(renderer) for label in axes.get_xticklabels() if label.get_text()]
    assert len(boxes) >= 3
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert legend.get_window_extent(renderer).x0 >= axes.get_window_extent(renderer).x1
    marks = [axes.texts[0].get_window_extent(renderer), axes.xaxis.label.get_window_extent(renderer)]
    assert not marks[0].overlaps(marks[1])


def test_fill_types_differ_by_more_than_colour(trades: pd.DataFrame) -> None:
    bars = [bars[0] for bars in volume(trades).axes[0].containers]  # type: ignore[index]
    assert [bar.get_hatch() for bar in bars] == [None, None]
    pool, book = (sum(bar.get_facecolor()[:3]) for bar in bars)
    assert book - pool > 1
    assert bars[1].get_edgecolor() != bars[1].get_facecolor()


def test_large_numbers_are_written_out() -> None:
    axes = volume(read(page([row(price="3000000.0", size="1" + "0" * 21)]), fill_type="dex")).axes[0]
    axes.figure.draw_without_rendering()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert "1,000,000,000" in labels or "2,000,000,000" in labels
    assert not any("e" in label for label in labels)


def test_a_given_axes_is_drawn_on_and_nothing_is_global(trades: pd.DataFrame) -> None:
    before = dict(mpl.rcParams)
    figure = Figure()
    axes = figure.subplots()
    assert volume(trades, ax=axes) is figure
    assert axes.containers
    assert dict(mpl.rcParams) == before


def test_the_same_trades_give_the_same_bytes(trades: pd.DataFrame) -> None:
    assert volume(trades)._repr_png_() == volume(trades)._repr_png_()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("days", "period"), [(10, "day"), (100, "week"), (800, "30 days"), (3_000, "91 days")])
def test_periods_follow_the_time_covered(days: int, period: str) -> None:
    last = 1657638459610 + days * 86_400_000
    frame = read(page([row(), row(id="2", createdAt=str(last))]), fill_type="dex")
    assert f"per {period}," in volume(frame).axes[0].get_title(loc="left")


def test_only_one_fill_type_and_one_row_are_stacks() -> None:
    heights = stacks(volume(read(page([row()]), fill_type="dex")))
    assert heights["AMM pool"] == [0]
    assert heights["order book"] == [pytest.approx(453.794 * 0.00035669)]


def test_bars_begin_on_the_first_day_and_are_equally_long(trades: pd.DataFrame) -> None:
    mine = trades[trades["quote"] == "ETH"]
    bars = volume(mine).axes[0].containers[0]
    days = mine["created_at"].min().floor("D").timestamp() / 86_400
    assert [bar.get_x() for bar in bars] == [days + 7 * week for week in range(len(bars))]
    assert [bar.get_width() for bar in bars] == pytest.approx([7 * 0.92] * len(bars))


def test_trades_without_a_time_a_notional_or_a_type_are_left_out_and_counted() -> None:
    rows = [row(id="1"), row(id="2", size=None), row(id="3", createdAt="0"), row(id="4", feeAmount=None)]
    figure = volume(read(page(rows), fill_type="dex"))
    assert figure.axes[0].get_title(loc="left").endswith("ETH-quoted markets, 2 of 4 trades")
    assert stacks(figure)["order book"] == [pytest.approx(2 * 453.794 * 0.00035669)]


@pytest.mark.parametrize("rows", [[], [row(createdAt="0")], [row(size=None)]])
def test_nothing_to_draw_is_said(rows: Any) -> None:
    with pytest.raises(LabError, match="no trade quoted in .* to draw. Pass other trades"):
        volume(read(page(rows), fill_type="dex"))
    with pytest.raises(LabError, match="no trade quoted in DOGE to draw"):
        volume(read(page([row()]), fill_type="dex"), quote="DOGE")
