"""Every figure of one gallery: legible at 900 pixels, its table and marks kept, the same bytes each time."""

import base64
import functools
import io
import re
from collections import Counter, defaultdict
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import style as styles
from matplotlib.figure import Figure as Plain
from matplotlib.text import Text
from PIL import Image
from support.figures import (
    GALLERY,
    Gallery,
    contrast,
    note,
    overlapping,
    rendered,
    title,
    words,
)
from support.optional import often, thorough
from support.wire_rows import whole

import loopring_lab as lab
from loopring_lab import figures
from loopring_lab.errors import LabError

LEAST_POINTS = 9
LARGEST_PICTURE = 70_000  # bytes; a notebook keeps every picture
COLUMNS = {
    "volume": {"period", "quote", "fill_type", "fills", "notional"},
    "rates": {"period", "fill_type", "fee_token", "fills", "fee", "received", "bps"},
    "tiers": {"period", "tier_bps", "certainty", "fills", "share"},
    "tokens": {"fee_token", "fills", "fee", "bps", "zero_fee_share"},
    "shares": {"period", "fills", "pool_fills", "share"},
    "gaps": {"trade_id", "fill_type", "price", "other_price", "worse_bps"},
    "sizes": {"quantile", "smallest", "largest", "fill_type", "fills", "share"},
    "costs": {
        "quantile",
        "smallest",
        "largest",
        "fills",
        "weighted_all_in_bps",
        "low_all_in_bps",
    },
}

# Bars over time, bars in rows, and estimates by size; other figures are drawn by the same code.
SOME_THOROUGH = often(("volume", "tokens", "costs"), GALLERY)


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083)


@pytest.fixture(scope="module")
def few() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=40)


@pytest.fixture(scope="module")
def gallery(trades: pd.DataFrame, few: pd.DataFrame) -> Gallery:
    """Draw each figure once for all tests that only look at it."""
    frames = {"long": trades, "short": few}
    return functools.cache(
        lambda name, whose="long": GALLERY[name].drawn(frames[whose])
    )


def assert_legible(figure: Any) -> set[str]:
    """Check the texts of a figure, and return them."""
    boxes = rendered(figure)
    assert overlapping(boxes) == []
    for text, box in boxes.items():
        words_ = text.get_text()
        assert text.get_fontsize() >= LEAST_POINTS
        assert box.x0 >= 0, words_
        assert box.x1 <= figure.bbox.width, words_
        assert box.y0 >= 0, words_
        assert box.y1 <= figure.bbox.height, words_
        assert not re.search(r"\d[eE][+-]?\d|\d\.\d{9}", words_)
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert (
        legend is None or legend.get_window_extent().x0 >= axes.get_window_extent().x1
    )
    return {text.get_text() for text in boxes}


@pytest.mark.parametrize("whose", ["long", thorough("short")])
@pytest.mark.parametrize("name", GALLERY)
def test_texts_are_legible_apart_and_say_what_is_drawn(name, whose, gallery):
    figure = gallery(name, whose)
    assert "synthetic data" in assert_legible(figure)
    assert len(title(figure)) > 15
    if whose == "long":
        axes = figure.axes[0]
        said = (axes.get_xlabel(), axes.get_ylabel())
        assert said == (GALLERY[name].along, GALLERY[name].up)


def test_titles_say_what_is_drawn_and_what_is_left_out(trades, gallery):
    eth = int((trades["quote"] == "ETH").sum())
    count = f"{len(trades):,}"
    assert (
        title(gallery("volume"))
        == f"Traded volume per week, ETH-quoted markets, {eth:,} of {count} fills"
    )
    assert title(gallery("sizes")).endswith("ETH-quoted markets")
    assert (
        note(gallery("sizes"))
        == f"{eth:,} of {count} fills; each bar about {eth / 10:.0f} fills"
    )
    assert note(gallery("tiers")) == f"all {count} fills"
    assert note(gallery("rates")).endswith(
        f"{(trades['fee_token'] == 'ETH').sum()} of {count} fills"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("name", GALLERY)
def test_a_picture_is_twice_as_dense_small_a_white_card_and_the_same_each_time(
    name, few, gallery
):
    figure = GALLERY[name].drawn(few)
    data, metadata = figure._repr_mimebundle_()
    assert data == gallery(name, "short")._repr_mimebundle_()[0]
    # nbconvert's pages and the documentation read the title to those who do not see the picture.
    title = figure.axes[0].get_title(loc="left")
    assert title
    assert metadata == {"image/png": {"width": 900, "alt": title}}
    png = base64.b64decode(data["image/png"])
    assert len(png) < LARGEST_PICTURE
    image = Image.open(io.BytesIO(png)).convert("RGBA")
    width, height = image.size
    assert (width, height) == (1800, round(200 * figure.get_figheight()))
    assert height == 840 or (
        height < 840 and name.startswith("tokens")
    )  # a figure of few rows is lower
    corners = [(0, 0), (width - 1, 0), (0, height - 1), (width - 1, height - 1)]
    assert [image.getpixel(corner)[3] for corner in corners] == [0] * 4  # type: ignore[index]
    assert image.getpixel((900, 4)) == (255, 255, 255, 255)


@pytest.mark.parametrize("name", SOME_THOROUGH)
def test_axes_of_one_s_own_are_drawn_on_and_nothing_is_global(name, few):
    before = dict(mpl.rcParams)
    figure = Plain()
    other, mine = figure.subplots(1, 2)
    assert GALLERY[name].drawn(few, ax=mine) is figure
    assert mine.has_data()
    assert not other.has_data()
    assert not hasattr(figure, "marks")
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("name", GALLERY)
def test_what_cannot_be_drawn_is_refused_by_the_figure_s_name(name, trades):
    one = GALLERY[name]
    with pytest.raises(LabError, match=rf"({one.draw.__name__}|in_token).*\.$"):
        one.drawn(trades.head(0))
    with pytest.raises(LabError, match="expected a frame, got list"):
        one.drawn([1, 2])
    with pytest.raises(LabError, match="no column '[fn]"):
        one.drawn(
            trades.drop(
                columns=["fee_bps", "fee", "fee_token", "fill_type", "notional"]
            )
        )


def test_groups_differ_by_more_than_colour(trades, gallery):
    for name in ("sizes", "volume"):
        bars = gallery(name).axes[0].containers
        assert (
            len({sum(stack[0].get_facecolor()[:3]) > 1.5 for stack in bars})
            == len(bars)
            == 2
        )
    for by in ("fill_type", "market", "fee_token"):
        lines = figures.fee_rates(trades, by=by, every="1q").axes[0].lines
        assert len({str(line._dash_pattern) for line in lines}) == len(lines) > 1  # type: ignore[attr-defined]
        assert {line.get_drawstyle() for line in lines} == {"steps-post"}


@pytest.mark.parametrize(
    "name",
    [
        thorough("default"),
        "dark_background",
        thorough("Solarize_Light2"),
    ],
)
def test_colours_follow_the_style_of_the_session(name, few):
    with styles.context(name):
        figure = figures.fill_shares(few)
        paper = mpl.rcParams["axes.facecolor"]
        outside = mpl.rcParams["figure.facecolor"]
        expected = mpl.rcParams["text.color"]
    axes = figure.axes[0]
    notes = [text for text in axes.texts if text.get_fontsize() == 10]
    assert all(contrast(text.get_color(), outside) >= 4.5 for text in notes)
    assert contrast(axes.title.get_color(), expected) == 1
    *_, hollow = [
        line for line in axes.lines if line.get_markerfacecolor() != line.get_color()
    ]
    assert contrast(hollow.get_markerfacecolor(), paper) == 1
    picture = Image.open(io.BytesIO(figure._repr_png_())).convert("RGBA")
    margin = picture.getpixel((picture.width // 2, picture.height - 4))
    assert contrast([part / 255 for part in margin[:3]], outside) < 1.1  # type: ignore[index]


@pytest.mark.parametrize("name", ["costs", "tiers"])
def test_every_text_is_legible_on_what_is_behind_it(name, trades):
    with styles.context("dark_background"):
        figure = GALLERY[name].drawn(trades)
        outside = mpl.rcParams["figure.facecolor"]
    for text in figure.findobj(Text):
        box = text.get_bbox_patch()
        behind = box.get_facecolor() if box else outside
        if text.get_text().strip():
            assert contrast(text.get_color(), behind) >= 4.5, text.get_text()


# Tables and marks


def counted(text: str) -> int:
    """Return the number of fills that a mark says in its last line."""
    return int(
        re.fullmatch(r"([\d,]+) fills?", text.splitlines()[-1])[1].replace(",", "")
    )  # type: ignore[index]


@pytest.mark.parametrize("name", COLUMNS)
def test_each_figure_keeps_its_table_and_marks_inside_its_axes(name, gallery):
    figure = gallery(name)
    assert set(figure.table) >= COLUMNS[name]
    assert list(figure.table.index) == list(range(len(figure.table)))
    low, high = figure.axes[0].get_xlim()
    bottom, top = sorted(figure.axes[0].get_ylim())
    assert figure.marks
    for mark in figure.marks:
        assert mark.along == ("y" if name == "tokens" else "x")
        assert low <= mark.x[0] <= mark.x[1] <= high
        assert bottom <= mark.y[0] <= mark.y[1] <= top + 1e-9
        assert "nan" not in mark.text.lower()


@pytest.mark.parametrize("name", ["volume", "shares", "sizes", "rates", "tiers"])
def test_marks_count_every_fill_drawn_once(name, gallery):
    figure = gallery(name)
    assert (
        sum(counted(mark.text) for mark in figure.marks) == figure.table["fills"].sum()
    )


def test_a_bar_says_the_exact_sum_of_its_week(trades, gallery):
    mine = trades[trades["quote"] == "ETH"]
    start = mine["created_at"].min().floor("D")
    sums: dict[Any, int] = defaultdict(int)
    counts: Counter[Any] = Counter()
    for fill in mine.itertuples():
        week = start + pd.Timedelta(7 * ((fill.created_at - start).days // 7), "D")
        sums[fill.fill_type, week] += whole(fill.notional, 18)
        counts[fill.fill_type, week] += 1
    table = gallery("volume").table
    found = zip(table["fill_type"], table["period"], table["notional"], strict=True)
    assert {(kind, week): whole(value, 18) for kind, week, value in found} == sums
    labels = {"amm": "AMM pool", "dex": "order book"}
    said = {mark.text for mark in gallery("volume").marks}
    for (kind, week), units in sums.items():
        amount = f"{units // 10**18:,}.{units % 10**18:018}".rstrip("0").rstrip(".")
        count = counts[kind, week]
        plural = "fill" if count == 1 else "fills"
        assert (
            f"{labels[kind]}, week from {week:%Y-%m-%d}\n{amount} ETH\n{count} {plural}"
            in said
        )


def test_estimates_say_their_interval_and_whether_they_have_one(
    gallery,
):
    figure = gallery("costs")
    table = figure.table.sort_values("fill_type", kind="stable")
    for mark, (_, found) in zip(figure.marks, table.iterrows(), strict=True):
        assert f"{found['weighted_all_in_bps']:,.2f} bps" in mark.text
        assert counted(mark.text) == found["fills"] - found["unpriced"]
        if np.isnan(found["low_all_in_bps"]):
            assert "no interval" in mark.text
        else:
            assert mark.y == (found["low_all_in_bps"], found["high_all_in_bps"])
            assert f"(95 %: {mark.y[0]:,.2f} bps to {mark.y[1]:,.2f} bps)" in mark.text


def test_a_last_bar_of_fewer_days_says_so(trades):
    """Of a week of one day the volume is lower for that alone."""
    week = pd.Timedelta(days=7)
    day = pd.Timedelta(days=1)
    ours = trades[trades["quote"] == "ETH"]
    figure = figures.volume(ours)
    days = ours["created_at"].dt.floor("D")
    last = figure.table["period"].max()
    covered = (days.max() - last) // day + 1
    assert note(figure) == f"last bar: {covered} of 7 days, up to the last trade"
    ends = figure.table["period"] + week
    whole = ends[(ends - day).isin(days)].max()
    cut = figures.volume(ours[ours["created_at"] < whole])
    assert cut.table["period"].max() == whole - week
    assert note(cut) == ""


def test_names_of_tokens_are_written_as_they_are(trades):
    names = {"LRC": "<b>$x$</b>", "ETH": "$\\frac{1}$"}
    columns = ["fee_token", "quote"]
    frame = trades.assign(**trades[columns].astype(object).replace(names))
    assert set(names.values()) <= set(words(figures.fees_by_token(frame)))
    # Also in axes of somebody else, whose style reads mathematics between two dollars.
    page = Plain()
    above, below = page.subplots(2)
    figures.fees_by_token(frame, ax=above)
    figures.volume(frame, ax=below)
    page.draw_without_rendering()
