"""Figures keep the table they draw, and say each value with its unit and its number of fills."""

import base64
import io
import re
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Plain
from PIL import Image
from support.figures import stacks, words
from support.wire_rows import page, read, row, whole

import loopring_lab as lab
from loopring_lab import figures
from loopring_lab.figures import Figure, style

FIGURES: dict[str, Any] = {
    "volume": figures.volume,
    "fill_shares": figures.fill_shares,
    "size_profile": figures.size_profile,
    "fee_rates": figures.fee_rates,
    "fee_tiers": figures.fee_tiers,
    "fees_by_token": figures.fees_by_token,
    "price_gaps": lambda trades, **more: figures.price_gaps(trades, tolerance=None, **more),
    "cost_curve": lambda trades, **more: figures.cost_curve(trades, tolerance=None, **more),
}
COLUMNS = {
    "volume": {"period", "quote", "fill_type", "fills", "notional"},
    "fill_shares": {"period", "fills", "pool_fills", "share"},
    "size_profile": {"quantile", "smallest", "largest", "fill_type", "fills", "share"},
    "fee_rates": {"period", "fill_type", "fee_token", "fills", "fee", "received", "bps"},
    "fee_tiers": {"period", "tier_bps", "certainty", "fills", "share"},
    "fees_by_token": {"fee_token", "fills", "fee", "bps", "zero_fee_share"},
    "price_gaps": {"trade_id", "fill_type", "price", "other_price", "worse_bps"},
    "cost_curve": {"quantile", "smallest", "largest", "fills", "weighted_all_in_bps", "low_all_in_bps"},
}


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083)


@pytest.fixture(scope="module")
def drawn(trades: pd.DataFrame) -> dict[str, Figure]:
    return {name: draw(trades) for name, draw in FIGURES.items()}


def counted(text: str) -> int:
    """Return the number of fills that a mark says in its last line."""
    return int(re.fullmatch(r"([\d,]+) fills?", text.splitlines()[-1])[1].replace(",", ""))  # type: ignore[index]


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_keeps_its_table_and_marks_inside_its_axes(name: str, drawn: dict[str, Figure]) -> None:
    figure = drawn[name]
    assert set(figure.table) >= COLUMNS[name]
    assert list(figure.table.index) == list(range(len(figure.table)))
    (low, high), (bottom, top) = figure.axes[0].get_xlim(), sorted(figure.axes[0].get_ylim())
    assert figure.marks
    for mark in figure.marks:
        assert mark.axes == 0
        assert mark.along == ("y" if name == "fees_by_token" else "x")
        assert low <= mark.x[0] <= mark.x[1] <= high
        assert bottom <= mark.y[0] <= mark.y[1] <= top + 1e-9
        assert "nan" not in mark.text.lower()


def test_a_bar_says_the_exact_sum_of_its_week(trades: pd.DataFrame, drawn: dict[str, Figure]) -> None:
    mine = trades[trades["quote"] == "ETH"]
    start = mine["created_at"].min().floor("D")
    sums: dict[Any, int] = defaultdict(int)
    counts: Counter[Any] = Counter()
    for fill in mine.itertuples():
        key = fill.fill_type, start + pd.Timedelta(7 * ((fill.created_at - start).days // 7), "D")
        sums[key] += whole(fill.notional, 18)
        counts[key] += 1
    table = drawn["volume"].table
    keys = list(zip(table["fill_type"], table["period"], strict=True))
    assert {key: whole(value, 18) for key, value in zip(keys, table["notional"], strict=True)} == sums
    labels = {"amm": "AMM pool", "dex": "order book"}
    said = {mark.text for mark in drawn["volume"].marks}
    for (kind, week), units in sums.items():
        amount = f"{units // 10**18:,}.{units % 10**18:018}".rstrip("0").rstrip(".")
        count = counts[kind, week]
        plural = "fill" if count == 1 else "fills"
        assert f"{labels[kind]}, week from {week:%Y-%m-%d}\n{amount} ETH\n{count} {plural}" in said


@pytest.mark.parametrize("name", ["volume", "fill_shares", "size_profile", "fee_rates", "fee_tiers"])
def test_marks_count_every_fill_drawn_once(name: str, drawn: dict[str, Figure]) -> None:
    assert sum(counted(mark.text) for mark in drawn[name].marks) == drawn[name].table["fills"].sum()


def test_bars_of_a_stack_say_what_they_are(drawn: dict[str, Figure]) -> None:
    for name in ("volume", "size_profile", "fee_tiers"):
        heights = {label: sum(map(bool, bars)) for label, bars in stacks(drawn[name]).items()}
        assert Counter(mark.text.split(",")[0] for mark in drawn[name].marks) == {
            label: count for label, count in heights.items() if count
        }


def test_a_token_says_its_fees_with_all_digits(trades: pd.DataFrame, drawn: dict[str, Figure]) -> None:
    units = sum(whole(fee, 18) for fee in trades.loc[trades["fee_token"] == "LRC", "fee"])
    (text,) = [mark.text for mark in drawn["fees_by_token"].marks if mark.text.startswith("LRC:")]
    amount = re.search(r"fees ([\d.,]+) LRC", text)[1]  # type: ignore[index]
    assert whole(Decimal(amount.replace(",", "")), 18) == units
    places = [mark.y for mark in drawn["fees_by_token"].marks]
    assert places == [(n - 0.36, n + 0.36) for n in range(len(places))]


def test_bins_say_how_many_fills_they_hold(drawn: dict[str, Figure]) -> None:
    figure = drawn["price_gaps"]
    for mark in figure.marks:
        label = "amm" if mark.text.startswith("AMM pool") else "dex"
        worse = figure.table.loc[figure.table["fill_type"] == label, "worse_bps"]
        inside = worse.between(*mark.x, inclusive="left").sum()
        assert counted(mark.text) == inside or mark.x[1] == max(one.x[1] for one in figure.marks)


def test_few_values_are_drawn_one_by_one_and_counted() -> None:
    fills = [("dex", "100.0", 0), ("amm", "101.0", 30), ("dex", "100.5", 60), ("dex", "100.2", 90)]
    pages = {
        kind: [
            row(id=str(n), orderHash=f"0x{n:064x}", price=price, createdAt=str(1657638459610 + 1000 * seconds))
            for n, (one, price, seconds) in enumerate(fills)
            if one == kind
        ]
        for kind in ("amm", "dex")
    }
    figure = figures.price_gaps(read([page(rows) for rows in pages.values()], fill_type=list(pages)))
    assert not figure.axes[0].containers
    assert {"n = 1", "n = 2"} <= set(words(figure))
    assert len(figure.table) == len(figure.marks) == 3
    assert figure.marks[0].text.splitlines()[0] == "AMM pool: 100.00 bps better"
    assert figure.marks[0].text.endswith("price 101, other 100")


def test_estimates_say_their_interval_and_whether_they_have_one(drawn: dict[str, Figure]) -> None:
    figure = drawn["cost_curve"]
    table = figure.table.sort_values("fill_type", kind="stable")
    for mark, (_, found) in zip(figure.marks, table.iterrows(), strict=True):
        assert f"{found['weighted_all_in_bps']:,.2f} bps" in mark.text
        if np.isnan(found["low_all_in_bps"]):
            assert "no interval" in mark.text
        else:
            assert mark.y == (found["low_all_in_bps"], found["high_all_in_bps"])
            assert f"(95 %: {mark.y[0]:,.2f} bps to {mark.y[1]:,.2f} bps)" in mark.text
        assert counted(mark.text) == found["fills"] - found["unpriced"]


@pytest.mark.thorough
def test_rows_of_differences_are_found_along_the_vertical_axis() -> None:
    client = lab.connect()
    trades = client.trades(11519, since="2022-10-01")
    prices = client.outside_prices(trades)
    figure = figures.venue_differences(trades, prices=prices)
    overall = lab.fills.compare_venues(trades, prices)
    assert [mark.along for mark in figure.marks] == ["y"] * len(figure.table)
    assert [mark.y for mark in figure.marks] == [(n, n) for n in range(len(figure.table))]
    assert figure.table["difference_bps"].iloc[0] == pytest.approx(overall["difference_bps"].iloc[0], rel=1e-9)
    assert f"{overall['fills'].iloc[0]:,} fills of {overall['orders'].iloc[0]:,} orders" in figure.marks[0].text
    later = figures.markouts(trades, prices=prices)
    realized = lab.fills.markouts(trades, prices, by="fill_type")["weighted_realized_bps"]
    assert list(later.table["weighted_realized_bps"]) == pytest.approx(list(realized), rel=1e-9)
    assert len(later.marks) == len(later.table)


def test_balances_say_what_was_recomputed_and_published(tmp_path: Path) -> None:
    store = lab.rollup.Store(tmp_path / "blocks.duckdb")
    store.sync(to_block=11_153_000, progress=False)
    balances = store.blocks().balances(1, store.tokens())
    figure = figures.pool_balance(balances)
    published = figure.table["published_units"].notna().sum()
    assert len(figure.marks) == len(figure.table) + published
    assert sum("published" in mark.text for mark in figure.marks) == published > 0


def test_marks_belong_to_figures_of_ours_and_name_their_panel(trades: pd.DataFrame) -> None:
    other = Plain()
    assert figures.volume(trades, ax=other.subplots()) is other
    assert not hasattr(other, "marks")
    two = Figure(figsize=(9, 8))
    first, second = two.subplots(2)
    figures.volume(trades, ax=first)
    figures.fees_by_token(trades, ax=second)
    assert Counter(mark.axes for mark in two.marks)[1] == len(two.table) == trades["fee_token"].nunique()
    assert {mark.axes for mark in two.marks} == {0, 1}
    figures.fill_shares(trades, ax=first)
    assert not any("ETH" in mark.text for mark in two.marks if mark.axes == 0)


@pytest.mark.thorough
def test_a_picture_is_twice_as_dense_small_and_a_white_card(drawn: dict[str, Figure]) -> None:
    for figure in drawn.values():
        data, metadata = figure._repr_mimebundle_()
        assert data["text/plain"] == "<Figure size 900x420 with 1 Axes>"
        assert metadata == {"image/png": {"width": 900}}
        png = base64.b64decode(data["image/png"])
        assert len(png) < 70_000
        image = Image.open(io.BytesIO(png))
        assert image.size == (1800, 840)
        pixels = image.convert("RGBA")
        assert [pixels.getpixel(spot)[3] for spot in ((0, 0), (1799, 0), (0, 839), (1799, 839))] == [0] * 4  # type: ignore[index]
        assert pixels.getpixel((900, 4)) == (255, 255, 255, 255)


def test_fill_types_differ_in_lightness_and_by_their_edge() -> None:
    def lightness(colour: str) -> float:
        return sum(int(colour[n : n + 2], 16) * part for n, part in ((1, 0.3), (3, 0.59), (5, 0.11)))

    faces = sorted(lightness(group.face) for group in style.FILL_TYPES.values())
    assert faces[1] - faces[0] > 80
    assert len({group.colour for group in style.FILL_TYPES.values()}) == 3


def test_names_of_tokens_are_written_as_they_are(trades: pd.DataFrame) -> None:
    names = {"LRC": "$\\frac{1}$", "ETH": "<b>$x$</b>"}
    frame = trades.assign(fee_token=trades["fee_token"].astype(object).replace(names))
    assert set(names.values()) <= set(words(figures.fees_by_token(frame)))


def test_fills_without_a_sum_are_sorted_as_the_title_says(drawn: dict[str, Figure]) -> None:
    figure = drawn["fees_by_token"]
    assert figure.axes[0].get_title(loc="left") == "Fills by the token their fee was paid in"
    assert list(figure.table["fills"]) == sorted(figure.table["fills"], reverse=True)
