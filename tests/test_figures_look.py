"""Every figure is legible at 900 pixels: units, texts that do not overlap, marks, the same bytes each time."""

import functools
import io
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import style as styles
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from support.figures import EXPONENT, note, overlapping, rendered, title, words
from support.settled_block import client_of, trades_of

import loopring_lab as lab
from loopring_lab import figures
from loopring_lab.amounts.display import truncate
from loopring_lab.errors import LabError
from loopring_lab.figures import axis, style

Draw = Callable[..., Any]
FIGURES: dict[str, tuple[Draw, dict[str, Any], str, str]] = {
    "rates": (figures.fee_rates, {}, "time (UTC)", "fee rate (basis points)"),
    "rates by market": (figures.fee_rates, {"by": "market", "every": "1mo"}, "time (UTC)", "fee rate (basis points)"),
    "tiers": (figures.fee_tiers, {}, "time (UTC)", "share of fills (%)"),
    "tiers by quarter": (figures.fee_tiers, {"every": "1q"}, "time (UTC)", "share of fills (%)"),
    "tokens": (figures.fees_by_token, {}, "number of fills", "fee token"),
    "tokens in ETH": (figures.fees_by_token, {"token": "ETH"}, "value (ETH)", "fee token"),
    "shares": (figures.fill_shares, {}, "time (UTC)", "share of fills (%)"),
    "shares of notional": (figures.fill_shares, {"of": "notional"}, "time (UTC)", "share of notional (%)"),
    "gaps": (figures.price_gaps, {"tolerance": None}, "difference (basis points; right of 0: worse for the account)", "share of matched fills (%)"),
    "sizes": (figures.size_profile, {}, "size of the fill (ETH)", "share of fills (%)"),
    "costs": (figures.cost_curve, {"tolerance": None}, "size of the fill (ETH)", "all-in cost (basis points)"),
}  # fmt: skip
LEAST_POINTS = 9


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083)


@pytest.fixture(scope="module")
def few() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=40)


@pytest.fixture(scope="module")
def block(block_folder: Path) -> pd.DataFrame:
    return trades_of(client_of(block_folder))


def drawn(name: str, trades: Any, **more: Any) -> Any:
    draw, options, _, _ = FIGURES[name]
    return draw(trades, **options, **more)


@pytest.fixture(scope="module")
def gallery(trades: pd.DataFrame, few: pd.DataFrame) -> Callable[[str, str], Any]:
    """Draw each figure once for all tests that only look at it."""
    return functools.cache(lambda name, whose: drawn(name, {"long": trades, "short": few}[whose]))


def assert_legible(figure: Any) -> None:
    width, height = figure.bbox.size
    boxes = rendered(figure)
    assert overlapping(boxes) == []
    for text, box in boxes.items():
        assert text.get_fontsize() >= LEAST_POINTS
        assert box.x0 >= 0, text.get_text()
        assert box.x1 <= width, text.get_text()
        assert box.y0 >= 0, text.get_text()
        assert box.y1 <= height, text.get_text()
        assert not EXPONENT.search(text.get_text())
        assert not re.search(r"\d\.\d{9}", text.get_text())
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is None or legend.get_window_extent().x0 >= axes.get_window_extent().x1


@pytest.mark.parametrize("whose", ["long", "short"])
@pytest.mark.parametrize("name", FIGURES)
def test_texts_are_legible_inside_the_figure_and_apart(name: str, whose: str, gallery: Any) -> None:
    assert_legible(gallery(name, whose))


@pytest.mark.thorough
@pytest.mark.parametrize("name", FIGURES)
def test_a_block_of_a_few_hundred_fills_reads_as_well(name: str, block: pd.DataFrame) -> None:
    figure = drawn(name, block)
    assert_legible(figure)
    assert "synthetic data" not in words(figure)


@pytest.fixture(scope="module")
def estimates() -> dict[str, Any]:
    client = lab.connect()
    trades = client.trades(11519, since="2022-10-01")
    prices = client.outside_prices(trades)
    return {
        "outside": figures.venue_differences(trades, prices=prices),
        "own": figures.venue_differences(trades, by=["market", "side"], horizon="10min"),
        "later": figures.markouts(trades, prices=prices),
        "later, own": figures.markouts(trades),
        "by size": figures.cost_curve(trades, reference=prices),
    }


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["outside", "own", "later", "later, own", "by size"])
def test_estimates_are_legible_and_name_their_reference(name: str, estimates: dict[str, Any]) -> None:
    figure = estimates[name]
    assert_legible(figure)
    assert "synthetic data" in words(figure)
    assert "95 % interval (clustered by order)" in note(figure)
    assert ("differences are pulled towards 0" in note(figure)) == ("own" in name)


@pytest.mark.parametrize("name", FIGURES)
def test_axes_say_what_they_count_in_which_unit_and_that_data_is_synthetic(name: str, gallery: Any) -> None:
    figure = gallery(name, "long")
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == FIGURES[name][2:]
    assert len(title(figure)) > 15
    assert "synthetic data" in words(figure)


@pytest.mark.thorough
@pytest.mark.parametrize("name", FIGURES)
def test_two_drawings_have_the_same_bytes(name: str, few: pd.DataFrame, gallery: Any) -> None:
    figure = drawn(name, few)
    picture = figure._repr_png_()
    assert picture == gallery(name, "short")._repr_png_()
    width, height = struct.unpack(">II", picture[16:24])
    assert width == 1800
    assert height == round(200 * figure.get_figheight()) <= 840
    assert height == 840 or name.startswith("tokens")  # a figure of few rows is lower


@pytest.mark.parametrize("name", FIGURES)
def test_axes_of_one_s_own_are_drawn_on_and_nothing_is_global(name: str, few: pd.DataFrame) -> None:
    before = dict(mpl.rcParams)
    figure = Figure()
    other, mine = figure.subplots(1, 2)
    assert drawn(name, few, ax=mine) is figure
    assert mine.has_data()
    assert not other.has_data()
    assert dict(mpl.rcParams) == before


def test_four_figures_share_one_page(trades: pd.DataFrame) -> None:
    page = Figure(figsize=(18, 9), dpi=100, layout="constrained")
    names = ["rates", "tiers by quarter", "tokens", "sizes"]
    for name, axes in zip(names, page.subplots(2, 2).flat, strict=True):
        drawn(name, trades, ax=axes)
    boxes = rendered(page)
    assert overlapping(boxes) == []
    assert [text.get_text() for text in boxes].count("synthetic data") == 1
    assert all(axes.get_window_extent().width > 400 for axes in page.axes)


@pytest.mark.parametrize("name", FIGURES)
def test_an_empty_frame_is_refused_by_the_figure_s_name(name: str, trades: pd.DataFrame) -> None:
    with pytest.raises(LabError, match=rf"{FIGURES[name][0].__name__}|in_token") as refusal:
        drawn(name, trades.head(0))
    assert str(refusal.value).endswith(".")


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_no_frame_of_trades_is_refused(name: str, trades: pd.DataFrame) -> None:
    with pytest.raises(LabError, match="expected a trades DataFrame, got list"):
        drawn(name, [1, 2])
    with pytest.raises(LabError, match="no column 'f"):
        drawn(name, trades.drop(columns=["fee_bps", "fee", "fee_token", "fill_type"]))


def test_groups_differ_by_more_than_colour(trades: pd.DataFrame) -> None:
    bars = figures.size_profile(trades).axes[0].containers
    assert len({sum(stack[0].get_facecolor()[:3]) > 1.5 for stack in bars}) == len(bars) == 2  # type: ignore[index]
    for by in ("fill_type", "market", "fee_token"):
        lines = figures.fee_rates(trades, by=by, every="1q").axes[0].lines
        assert len({str(line._dash_pattern) for line in lines}) == len(lines) > 1  # type: ignore[attr-defined]
        assert {line.get_drawstyle() for line in lines} == {"steps-post"}


def test_a_tier_s_number_stands_in_its_bars(trades: pd.DataFrame) -> None:
    figure = figures.fee_tiers(trades, every="1mo")
    legend = figure.axes[0].get_legend()
    assert legend is not None
    tiers = [text.get_text().removesuffix(" bps") for text in legend.get_texts()]
    assert tiers == ["30", "25", "20", "10", "8", "4", "0"]
    for bars in figure.axes[0].containers:
        tier = str(bars.get_label()).removesuffix(" bps")
        tall = [bar for bar in bars if bar.get_height() >= 6]
        inside = [text for text in figure.axes[0].texts if text.get_text() == tier]
        assert [text.xy[0] for text in inside] == [bar.get_x() + bar.get_width() / 2 for bar in tall]  # type: ignore[attr-defined]


def test_dates_name_month_and_year(few: pd.DataFrame) -> None:
    moment = few["created_at"].iloc[0]
    texts = words(figures.fill_shares(few.head(1)))
    assert {f"{moment + pd.Timedelta(days=day):%d %b}" for day in (0, 1)} | {f"{moment:%Y}"} <= set(texts)


@pytest.mark.parametrize("every", ["1h", "1d", "1w", "1mo", "1q"])
def test_a_single_period_has_at_most_one_other_on_either_side(every: str, few: pd.DataFrame) -> None:
    for draw in (figures.fill_shares, figures.fee_tiers, figures.fee_rates):
        figure = draw(few.head(1), every=every)
        periods = axis.timeline(lab.fills.breakdown(few.head(1), every)["period"], every, "a test")
        (start,), (length,) = periods.left, periods.width
        low, high = figure.axes[0].get_xlim()
        assert (start - low, high - start) == pytest.approx((length, 2 * length))
        dated = [label for label in figure.axes[0].get_xticklabels() if label.get_text()]
        assert len(dated) >= 3


@pytest.mark.parametrize("count", [1, 2, 5, 12])
def test_a_figure_of_rows_is_as_high_as_they_need(count: int, few: pd.DataFrame) -> None:
    trades = few.head(2 * count).assign(fee_token=[f"T{n}" for n in range(count)] * 2)
    figure = figures.fees_by_token(trades)
    width, height = figure.bbox.size
    axes, bars = figure.axes[0], figure.axes[0].patches
    assert (width, height) == pytest.approx((900, round(height)))
    assert (height < 420) == (count < 8)
    assert_legible(figure)
    (low, high), heights = sorted(axes.get_ylim()), [bar.get_height() for bar in bars]
    assert len(bars) == count
    assert high - low == pytest.approx(count + 0.2)  # no rows without a bar
    assert {round(height, 9) for height in heights} == {0.72}
    shared = Figure().subplots()
    figures.fees_by_token(trades, ax=shared)
    assert sorted(shared.get_ylim()) == pytest.approx([-0.6, max(count, 5) - 0.4])


def test_what_is_zoomed_away_is_not_drawn_beside_the_axes(few: pd.DataFrame) -> None:
    figure = figures.fill_shares(few, every="1d")
    axes, legend = figure.axes[0], figure.axes[0].get_legend()
    assert legend is not None
    start, end = axes.get_xlim()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_layout_engine("none")
    axes.set_xlim(start, (start + end) / 2)
    canvas.draw()
    pixels, box = np.asarray(canvas.buffer_rgba())[::-1], axes.get_window_extent()
    beside = round(box.x1) + 4
    below_legend = pixels[round(box.y0) + 4 : round(legend.get_window_extent().y0) - 4, beside:]
    counts = pixels[round(box.y1) + 4 : round(box.y1) + 14, beside:]
    assert (below_legend == 255).all()
    assert (counts == 255).all()
    assert below_legend.size
    assert (pixels[round(box.y1) + 4 : round(box.y1) + 14, :beside] < 255).any()


def contrast(one: Any, other: Any) -> float:
    """Return the contrast of two colours as WCAG 2 defines it."""

    def luminance(colour: Any) -> float:
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", ["default", "dark_background", "Solarize_Light2"])
def test_colours_follow_the_style_of_the_session(name: str, few: pd.DataFrame) -> None:
    with styles.context(name):
        figure = figures.fill_shares(few)
        paper = mpl.rcParams["axes.facecolor"]
        outside = mpl.rcParams["figure.facecolor"]
        expected = mpl.rcParams["text.color"]
    axes = figure.axes[0]
    notes = [text for text in axes.texts if text.get_fontsize() == 10]
    assert all(contrast(text.get_color(), outside) >= 4.5 for text in notes)
    assert contrast(axes.title.get_color(), expected) == 1
    *_, hollow = [line for line in axes.lines if line.get_markerfacecolor() != line.get_color()]
    assert contrast(hollow.get_markerfacecolor(), paper) == 1
    picture = Image.open(io.BytesIO(figure._repr_png_())).convert("RGBA")
    margin = [part / 255 for part in picture.getpixel((picture.width // 2, picture.height - 4))[:3]]
    assert contrast(margin, outside) < 1.1


def test_titles_say_what_is_left_out(trades: pd.DataFrame) -> None:
    eth = int((trades["quote"] == "ETH").sum())
    count = f"{len(trades):,}"
    assert note(figures.size_profile(trades)) == f"{eth:,} of {count} trades; each bar about {eth / 10:.0f} fills"
    assert title(figures.size_profile(trades)).endswith("ETH-quoted markets")
    assert note(figures.fee_tiers(trades)) == f"all {count} trades"
    assert note(figures.fee_rates(trades)).endswith(f"{(trades['fee_token'] == 'ETH').sum()} of {count} trades")


def test_periods_are_named_in_full_and_follow_the_days_covered() -> None:
    assert [axis.period_name(every) for every in ("1w", "6h")] == ["week", "6 hours"]
    assert [axis.period_for(days) for days in (30, 365, 0)] == ["1d", "1w", "1d"]


@pytest.mark.parametrize(
    ("drawn", "total", "text"),
    [(1200, 50000, "1,200 of 50,000 trades"), (3, 3, "all 3 trades"), (1, 1, "one trade")],
)
def test_a_note_counts_the_trades_drawn(drawn: int, total: int, text: str) -> None:
    assert style.trade_count(drawn, total) == text


def test_groups_are_labelled_by_value_and_long_hashes_shortened() -> None:
    assert style.group_label(("LRC-ETH", None)) == "LRC-ETH, unknown"
    assert style.group_label("0x" + "7" * 64) == "0x777777…7777"


def test_exact_amounts_in_figures_are_cut_and_never_rounded_up() -> None:
    amounts = {"1.66259": 4, "101.0046": 5, "10260.9": 2}
    texts = [style.truncate_digits(Decimal(amount), digits) for amount, digits in amounts.items()]
    assert texts == ["1.662", "101.00", "10,260"]
    assert truncate(Decimal("2.7589648"), 3) == Decimal("2.758")


def test_numbers_in_figures_have_no_exponent() -> None:
    texts = [style.format_number(0.00001), style.format_number(3e9), style.format_number(1234.5678, 3)]
    assert texts == ["0.00001", "3,000,000,000", "1,235"]
