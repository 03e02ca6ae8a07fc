"""Figures of irregular trades and of other frames: the same picture, or an error that says what to do."""

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.engines import on
from support.figures import (
    GALLERY,
    lines,
    note,
    overlapping,
    rendered,
    stacks,
    title,
    words,
)
from support.optional import first_often, thorough
from support.wire_rows import page, read, row

import loopring_lab as lab
from loopring_lab import figures
from loopring_lab.errors import LabError

TIMES = [figures.volume, figures.fee_rates, figures.fee_tiers, figures.fill_shares]


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=40)


def numbers(figure: Any) -> list[float]:
    """Return every number that is drawn, of bars and lines."""
    bars = [
        bar.get_width() + bar.get_height() + bar.get_y()
        for bar in figure.axes[0].patches
    ]
    points = [
        float(value) for line in figure.axes[0].lines for value in line.get_ydata()
    ]
    return [value for value in [*bars, *points] if not np.isnan(value)]


# Other frames


@pytest.mark.thorough
@pytest.mark.parametrize("name", GALLERY)
def test_another_engine_gives_the_same_figure(name, trades):
    ours = GALLERY[name].drawn(trades)
    theirs = GALLERY[name].drawn(on("polars, lazy", trades))
    assert numbers(theirs) == pytest.approx(numbers(ours), rel=1e-9)
    assert set(words(ours)) - set(words(theirs)) == {
        "synthetic data"
    }  # Polars has no place for where rows come from


@pytest.mark.parametrize(
    "convert",
    [
        pa.Table.from_pandas,
        thorough(lab.engine.portable),
        thorough(lambda t: lab.engine.portable(pa.Table.from_pandas(t))),
        lambda t: lab.engine.portable(t).to_pandas(),
        thorough(lambda t: pd.concat([t.head(20), t.tail(20)])),
    ],
    ids=["pyarrow", "portable", "portable of pyarrow", "and back", "concat"],
)
def test_frames_that_can_carry_their_source_are_labelled_synthetic(convert, trades):
    assert "synthetic data" in words(figures.volume(convert(trades)))
    real = trades.copy()
    real.attrs["synthetic"] = False
    assert "synthetic data" not in words(figures.volume(convert(real)))
    real.attrs = {}
    assert "synthetic data" not in words(figures.volume(convert(real)))


def test_an_archive_of_synthetic_trades_is_labelled(tmp_path):
    archive = lab.Archive(tmp_path / "a.duckdb")
    assert archive.synthetic is False
    archive.sync(lab.connect(), account_id=10083)
    assert archive.synthetic is True
    assert "synthetic data" in words(figures.volume(archive))


# Odd trades


@pytest.mark.parametrize("kind", [thorough("amm"), thorough("dex"), None])
@pytest.mark.parametrize("name", GALLERY)
def test_a_single_trade_is_drawn_or_refused_by_name(name, kind):
    frame = read(page([row(size="1" + "0" * 30)]), fill_type=kind)
    if name in ("gaps", "costs") or (kind is None and name in ("volume", "shares")):
        with pytest.raises(LabError, match=r"^lab\.figures\.\w+: no .*\.$"):
            GALLERY[name].drawn(frame)
        return
    figure = GALLERY[name].drawn(frame)
    boxes = rendered(figure)
    assert overlapping(boxes) == []
    texts = [text.get_text() for text in boxes]
    assert not [text for text in texts if re.search(r"\de[+-]|nan", text)]
    assert "one fill" in note(figure) or name in ("volume", "tokens in ETH")


@pytest.mark.parametrize("draw", first_often(2, TIMES), ids=lambda draw: draw.__name__)
def test_trades_of_unknown_time_are_left_out_and_counted(draw, trades):
    frame = trades.copy()
    frame.loc[frame.index[::4], "created_at"] = pd.NaT
    whole = draw(frame)
    assert numbers(whole) == pytest.approx(
        numbers(draw(frame.dropna(subset=["created_at"])))
    )
    assert "40 fills" in title(whole) + note(whole)
    frame["created_at"] = frame["created_at"].where(frame["created_at"].isna())
    for options in ({}, {"every": "1d"}) if draw is not figures.volume else ({},):
        with pytest.raises(
            LabError,
            match=rf"^lab\.figures\.{draw.__name__}: no trade .*to draw. Pass other trades",
        ):
            draw(frame, **options)


@pytest.mark.parametrize("paid", [[True, False], [False]])
def test_rebates_have_bars_and_labels_left_of_0(trades, paid):
    """Fees of 2 of each fill in LRC, and rebates of 3 in ETH, at a price of 1."""
    is_fee = pd.Series([number % 2 == 0 for number in range(len(trades))])
    fees = [Decimal(2 if fee else -3) for fee in is_fee]
    frame = trades.assign(
        fee_token=is_fee.map({True: "LRC", False: "ETH"}),
        fee=pd.array(fees, lab.amounts.AMOUNT),
        base="LRC",
        quote="ETH",
        price=pd.array([Decimal(1)] * len(trades), lab.amounts.AMOUNT),
    )[is_fee.isin(paid)]
    figure = figures.fees_by_token(frame, token="ETH", prices=frame)
    axes = figure.axes[0]
    assert min(bar.get_width() for bar in axes.patches) == -60
    figure.draw_without_rendering()
    inside = axes.get_window_extent()
    (label,) = (
        text for text in axes.texts if re.fullmatch(r"-60\.0+", text.get_text())
    )
    for drawn in (label, *axes.patches):
        box = drawn.get_window_extent()
        assert inside.x0 <= box.x0
        assert box.x1 <= inside.x1


def test_labels_of_groups_differ_as_the_groups_do():
    name = figures.words.group_labels
    assert name(["0x" + "ab" * 32, "0x" + "cd" * 32]) == [
        "0xababab…abab",
        "0xcdcdcd…cdcd",
    ]
    fast_and_slow = ["momentum_fast_limit_2022", "momentum_slow_limit_2022"]
    assert name(fast_and_slow) == ["momentum_f…2022", "momentum_s…2022"]
    # What would be no shorter is written out; a value that comes twice is one group.
    close = ["TOKENWITHLONGNAME12-USDC", "TOKENWITHLONGNAME14-USDC"]
    assert name([*close, close[0]]) == [*close, close[0]]
    assert name([("short", None), ("short", "BUY")]) == ["short, unknown", "short, BUY"]


def test_unknown_fee_tokens_have_a_bar_but_no_amount(trades):
    frame = trades.copy()
    frame["fee_token"] = frame["fee_token"].where(frame["fee_token"] != "ETH")
    figure = figures.fees_by_token(frame)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "unknown"
    assert words(figure).count("-") == 2  # its amount, and its rate
    frame.loc[frame.index[:3], "fee"] = None
    assert (
        note(figures.fees_by_token(frame))
        == "all 40 fills, 3 with an amount that is not known"
    )
    drawn = int((frame.loc[frame.index[3:], "fee_token"] == "LRC").sum())
    rates = figures.fee_rates(frame)
    assert title(rates).endswith("fees paid in LRC")
    assert note(rates).endswith(f"weighted by amount; {drawn} of 40 fills")
    assert "no price" in words(figures.fees_by_token(frame, token="USDC"))
    frame["fee_token"] = None
    with pytest.raises(
        LabError,
        match=r"^lab\.figures\.fee_rates: no trade with a known time and fee in any token to draw\. Pass other trades\.$",
    ):
        figures.fee_rates(frame)


def test_unknown_fill_types_are_drawn_apart(trades):
    frame = trades.copy()
    frame.loc[frame.index[::4], "fill_type"] = None
    known = frame["fill_type"].dropna()
    shares = figures.fill_shares(frame, every="1y")
    assert shares.table["fills"].tolist() == [30]
    assert shares.table["share"].tolist() == [(known == "amm").mean()]
    assert note(shares).startswith("30 of 40 fills; ")
    assert "type unknown" in stacks(figures.size_profile(frame))
    assert "type unknown" in lines(figures.fee_rates(frame))
    assert "type unknown" in lines(figures.cost_curve(frame, tolerance=None))


@pytest.mark.parametrize("words", [("rfq", None), ("rfq", "otc"), ("unknown", None)])
@pytest.mark.parametrize("name", ["sizes", "costs"])
def test_other_words_than_those_of_venues_are_named(name, words, trades):
    """Two groups of one look would be drawn over each other, and bars of both failed in pandas."""
    types = trades["fill_type"].astype(object)
    types.iloc[::4] = words[0]
    types.iloc[1::4] = words[1]
    with pytest.raises(
        LabError, match=rf"fill_type has '{min(filter(None, words))}'\. Write it as"
    ):
        GALLERY[name].drawn(trades.assign(fill_type=types))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_axis_of_rates_has_all_of_them_and_0(sign, trades):
    frame = trades.assign(fee=trades["fee"] * sign)
    figure = figures.fee_rates(frame)
    rates = figure.table["bps"] * sign
    assert (rates >= 0).all()
    assert (rates > 1).any()
    low, high = figure.axes[0].get_ylim()
    assert low < min(0, figure.table["bps"].min())
    assert high > max(0, figure.table["bps"].max())


def test_fees_of_no_sure_tier_are_marked_apart():
    size = 10**18
    fees = {
        "1": 10**15,
        "2": 2 * 10**15,
        "3": 10**15 + 10**9,
        "4": None,
    }  # 10, 20, no whole tier, not known
    rows = [
        row(id=one, side="BUY", size=str(size), feeAmount=fee and str(fee))
        for one, fee in fees.items()
    ]
    tiny = row(
        id="5", side="BUY", market="WBTC-ETH", size="100", feeAmount="0", tokenId="0"
    )  # 0 to 99 bps
    figure = figures.fee_tiers(read(page([*rows, tiny]), fill_type="dex"))
    drawn = stacks(figure)
    assert drawn == {
        label: [20.0]
        for label in ("10 bps", "20 bps", "ambiguous", "no whole tier", "not known")
    }
    hatches = [bars[0].get_hatch() for bars in figure.axes[0].containers]  # type: ignore[index]
    assert hatches[:2] == [None, None]
    assert len(set(hatches)) == 4


def spanning(first: str, hours: int) -> pd.DataFrame:
    """Return two fills, some hours apart."""
    start = pd.Timestamp(first, tz="UTC").value // 10**6
    times = [start, start + hours * 3_600_000]
    rows = [row(id=str(n), createdAt=str(time)) for n, time in enumerate(times)]
    return read(page(rows), fill_type="dex")


@pytest.mark.parametrize(
    ("first", "hours", "written"),
    [("2022-12-30", 72, "2022"), ("2022-05-04T20:00", 10, "04 May 2022")],
)
def test_dates_are_written_in_full_below_the_first(first, hours, written):
    figure = figures.fill_shares(spanning(first, hours))
    assert written in words(figure)
    axes = figure.axes[0]
    offset = axes.xaxis.get_offset_text()
    assert offset.get_window_extent().x0 == axes.get_window_extent().x0


def test_the_end_of_a_month_has_no_date_beside_that_of_the_next():
    figure = figures.fill_shares(spanning("2022-01-25", 12 * 24))
    dates = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert dates[:5] == ["25 Jan", "27 Jan", "29 Jan", "", "01 Feb"]


def test_bars_of_one_fill_are_counted_in_the_singular():
    rows = [row(id=str(n), size=f"{n + 1}{'0' * 20}") for n in range(2)]
    figure = figures.size_profile(read(page(rows), fill_type="dex"))
    assert note(figure) == "all 2 fills; each bar about 1 fill"


# Arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda t: figures.fee_tiers(t, every="1min"),
            r"^lab.figures.fee_tiers\(every='1min'\) would draw more than 1,000 periods",
        ),
        (
            lambda t: figures.fee_rates(t, by="fee"),
            r"^lab\.figures\.fee_rates: by=.* 'fee'",
        ),
        (
            lambda t: figures.volume(t.assign(fill_type=None)),
            r"^lab\.figures\.volume: no trade .* with a known time, fill type and notional to draw\. Pass other",
        ),
        (
            lambda t: figures.volume(t, quote="eth"),
            r"^lab\.figures\.volume: no trade quoted in eth .* to draw\. Did you mean 'ETH'\?$",
        ),
        (
            lambda t: figures.volume(t, quote=["ETH"]),
            r"^lab\.figures\.volume: quote=\['ETH'\] is not the name of a token\. Give one, such as 'ETH'\.$",
        ),
        (
            lambda t: figures.pool_balance(t, token=["ETH"]),
            r"^lab\.figures\.pool_balance: token=\['ETH'\] is not the name of a token",
        ),
        (
            lambda t: figures.size_profile(t.assign(notional=None)),
            r"^lab\.figures\.size_profile: no trade .* with a known notional to draw\. Pass other",
        ),
        (
            lambda t: figures.volume(t, ax=5),
            r"^lab\.figures: ax= is int, not matplotlib axes\. Pass one Axes",
        ),
        (
            lambda t: figures.volume(t, ax=np.array([1, 2])),
            r"^lab\.figures: ax= is ndarray, not matplotlib axes\. Pass one Axes",
        ),
        (
            lambda t: figures.cost_curve(t, tolerance="1ms"),
            r"^lab\.figures\.cost_curve: no fill quoted in \w+ has a reference",
        ),
        (
            lambda t: figures.cost_curve(t.head(1), tolerance=None),
            r"no fill quoted in \w+ has a reference price\. Pass a wider frame as prices=\.$",
        ),
        (
            lambda t: figures.price_gaps(t.head(1), tolerance=None),
            r"of the other type of any age\. Combine the trades of several accounts\.$",
        ),
        (
            lambda t: figures.fees_by_token(t, token="DOGE"),
            r"no price and no fee is in 'DOGE'",
        ),
        (
            lambda t: figures.fees_by_token(t, prices=t),
            r"^lab\.figures\.fees_by_token: prices= has no effect without token=\. Give it",
        ),
    ],
)
def test_arguments_that_cannot_be_used_are_named(call, message, trades):
    with pytest.raises(LabError, match=message) as refusal:
        call(trades)
    assert str(refusal.value).endswith((".", "?"))


def test_a_day_without_a_midnight_is_drawn():
    figure = figures.fee_tiers(
        spanning("2022-09-10T12:00", 24), every="1d", tz="America/Santiago"
    )
    shares = stacks(figure).values()
    assert sum(map(sum, shares)) == 2 * 100


def test_a_rate_in_thousands_is_grouped_like_every_other_number():
    odd = lab.connect().trades(70002, market="WBTC-USDT")
    assert "6,401.99" in words(lab.figures.fees_by_token(odd))
    said = lab.fees.describe(lab.fees.summary(odd))
    assert "6,401.99 bps by amount" in said
