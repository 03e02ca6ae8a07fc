"""Figures of irregular trades and of other frames: the same picture, or an error that says what to do."""

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.figures import lines, note, overlapping, rendered, stacks, title, words
from support.optional import package_or_skip
from support.wire_rows import page, read, row, tokens

import loopring_lab as lab
from loopring_lab import figures
from loopring_lab.engine import portable
from loopring_lab.errors import LabError

Draw = Callable[..., Any]
ANY_ENGINE: list[Draw] = [
    figures.volume, figures.fee_rates, figures.fee_tiers, figures.fees_by_token, figures.fill_shares, figures.size_profile,
]  # fmt: skip
LOOKS_AT_FILLS: list[Draw] = [figures.price_gaps, figures.cost_curve]
TIMES = [figures.volume, figures.fee_rates, figures.fee_tiers, figures.fill_shares]


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=40)


def name_of(draw: Draw) -> str:
    return draw.__name__


def numbers(figure: Any) -> list[float]:
    """Return every number that is drawn, of bars and lines."""
    bars = [bar.get_width() + bar.get_height() + bar.get_y() for bar in figure.axes[0].patches]
    points = [float(value) for line in figure.axes[0].lines for value in line.get_ydata()]
    return [value for value in [*bars, *points] if not np.isnan(value)]


# Other frames


def given(engine: str, frame: pd.DataFrame) -> Any:
    """Convert trades to a frame of another kind."""
    module = package_or_skip({"lazy": "polars"}.get(engine, engine))
    if engine == "pyarrow":
        return module.Table.from_pandas(frame, preserve_index=False)
    table = module.from_arrow(portable(frame))
    return table.lazy() if engine == "lazy" else table


@pytest.fixture(scope="module")
def ours(trades: pd.DataFrame) -> dict[str, tuple[list[float], set[str]]]:
    drawn = {draw.__name__: draw(trades) for draw in ANY_ENGINE}
    return {name: (numbers(figure), set(words(figure))) for name, figure in drawn.items()}


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["pyarrow", "polars", "lazy", "duckdb"])
def test_every_engine_gives_the_same_figure(engine: str, trades: pd.DataFrame, ours: Any) -> None:
    other = given(engine, trades)
    for draw in ANY_ENGINE:
        theirs = draw(other)
        assert numbers(theirs) == pytest.approx(ours[draw.__name__][0], rel=1e-12)
        assert ours[draw.__name__][1] - set(words(theirs)) == {"synthetic data"}  # only pandas frames tell


def of_prices(frame: Any) -> list[Any]:
    """Draw every figure that compares single fills."""
    return [
        *(draw(frame, tolerance=None) for draw in LOOKS_AT_FILLS),
        figures.cost_curve(frame, prices=frame),
        figures.price_gaps(frame, tolerance=None, prices=frame),
        figures.fees_by_token(frame, token="ETH"),
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["pyarrow", "polars", "lazy", "duckdb"])
def test_prices_and_costs_are_drawn_alike_on_every_engine(engine: str, trades: pd.DataFrame) -> None:
    for theirs, our in zip(of_prices(given(engine, trades)), of_prices(trades), strict=True):
        assert numbers(theirs) == pytest.approx(numbers(our), rel=1e-9)
        assert set(words(our)) - set(words(theirs)) == {"synthetic data"}


@pytest.mark.thorough
@pytest.mark.parametrize("draw", [figures.venue_differences, figures.markouts], ids=name_of)
def test_venues_and_markouts_are_drawn_alike_on_duckdb(draw: Draw) -> None:
    client = lab.connect()
    trades = client.trades(11519, since="2022-10-01")
    prices = client.outside_prices(trades)
    our = draw(trades, prices=prices)
    theirs = draw(given("duckdb", trades), prices=given("duckdb", prices))
    assert numbers(theirs) == pytest.approx(numbers(our), rel=1e-9)
    assert set(words(our)) - set(words(theirs)) == {"synthetic data"}


# Odd trades


ODD: list[dict[str, Any]] = [
    {"market": "NOT-LISTED"}, {"price": None}, {"createdAt": "0"}, {"side": "HOLD"}, {"feeAmount": None},
    {"size": None}, {"size": "0"}, {"price": "0"}, {"orderHash": None}, {"size": None, "feeAmount": None},
]  # fmt: skip


def history(number: int, length: int) -> pd.DataFrame:
    """Make up a history: a third of it odd, from fifty days or one minute, of one market or three."""
    dice = random.Random(number)
    parts: dict[Any, list[Any]] = {"amm": [], "dex": [], None: []}
    for place in range(length):
        moment = 1657638459610 + dice.randrange(10 ** dice.choice([4, 9]))
        market = dice.choice(["LRC-ETH", "ETH-USDT", "WBTC-ETH"][: 1 + number % 3])
        members = {"id": str(place), "orderHash": f"0x{place:064x}", "createdAt": str(moment), "market": market, "side": dice.choice(["BUY", "SELL"]), "size": str(dice.randrange(10**20)),
                   "feeAmount": str(dice.randrange(10**15))}  # fmt: skip
        members |= dice.choice(ODD) if dice.random() < 1 / 3 else {}
        parts[dice.choice(["amm", "dex", "dex", None])].append(row(**members))
    return read([page(rows) for rows in parts.values()], fill_type=list(parts))


@pytest.fixture(scope="module")
def histories() -> list[pd.DataFrame]:
    return [history(number, length) for number, length in enumerate([1, 2, 5, 12, 60, 60, 60])]


def drawn_or_refused(draw: Draw, frame: pd.DataFrame, **options: Any) -> Any:
    try:
        return draw(frame, **options)
    except LabError as refusal:
        return str(refusal)


@pytest.mark.thorough
@pytest.mark.parametrize("draw", [*ANY_ENGINE, *LOOKS_AT_FILLS], ids=name_of)
def test_any_history_is_drawn_or_refused_by_name(draw: Draw, histories: list[pd.DataFrame]) -> None:
    options = {"every": "1y"} if draw in TIMES[1:] else {"tolerance": None} if draw in LOOKS_AT_FILLS else {}
    found = [drawn_or_refused(draw, frame, **options) for frame in histories]
    for refusal in (one for one in found if isinstance(one, str)):
        assert refusal.startswith(f"lab.figures.{draw.__name__}: no ")
        assert refusal.endswith(".")
    pictures = [one for one in found if not isinstance(one, str)]
    assert len(pictures) >= 2
    assert [text for figure in pictures for text in words(figure) if "nan" in text.lower()] == []


@pytest.mark.parametrize("draw", [*ANY_ENGINE, *LOOKS_AT_FILLS], ids=name_of)
def test_a_single_trade_is_drawn_or_refused_by_name(draw: Draw) -> None:
    for kind in ("amm", "dex", None):
        frame = read(page([row()]), fill_type=kind)
        if draw in LOOKS_AT_FILLS or (draw in (figures.volume, figures.fill_shares) and kind is None):
            with pytest.raises(LabError, match=rf"^lab\.figures\.{draw.__name__}: no "):
                draw(frame)
        else:
            figure = draw(frame)
            assert overlapping(rendered(figure)) == []
            assert "one trade" in note(figure) or draw is figures.volume


@pytest.mark.parametrize("draw", [*ANY_ENGINE, *LOOKS_AT_FILLS], ids=name_of)
def test_only_pool_fills_are_drawn_without_the_book(draw: Draw, trades: pd.DataFrame) -> None:
    pool = trades[trades["fill_type"] == "amm"]
    if draw is figures.price_gaps:
        with pytest.raises(
            LabError,
            match=r"^lab\.figures\.price_gaps: no fill has an earlier one of the other type at most 1h old",
        ):
            draw(pool)
        return
    figure = draw(pool, **({"tolerance": None} if draw in LOOKS_AT_FILLS else {}))
    legend = figure.axes[0].get_legend()
    labels = [] if legend is None else [text.get_text() for text in legend.get_texts()]
    assert "order book" not in labels or draw is figures.volume
    assert overlapping(rendered(figure)) == []


@pytest.mark.parametrize("draw", TIMES, ids=name_of)
def test_trades_of_unknown_time_are_left_out_and_counted(draw: Draw, trades: pd.DataFrame) -> None:
    frame = trades.copy()
    frame.loc[frame.index[::4], "created_at"] = pd.NaT
    whole = draw(frame)
    assert numbers(whole) == pytest.approx(numbers(draw(frame.dropna(subset=["created_at"]))))
    assert "40 trades" in title(whole) + note(whole)
    frame["created_at"] = frame["created_at"].where(frame["created_at"].isna())
    for options in ({}, {"every": "1d"}) if draw is not figures.volume else ({},):
        with pytest.raises(LabError, match=rf"^lab\.figures\.{draw.__name__}: no trade .*to draw. Pass other trades"):
            draw(frame, **options)


def test_unknown_fee_tokens_have_a_bar_but_no_amount(trades: pd.DataFrame) -> None:
    frame = trades.copy()
    frame["fee_token"] = frame["fee_token"].where(frame["fee_token"] != "ETH")
    figure = figures.fees_by_token(frame)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "unknown"
    assert words(figure).count("-") == 2  # its amount, and its rate
    frame.loc[frame.index[:3], "fee"] = None
    assert note(figures.fees_by_token(frame)) == "all 40 trades, 3 with an amount that is not known"
    drawn = int((frame.loc[frame.index[3:], "fee_token"] == "USDC").sum())
    rates = figures.fee_rates(frame, fee_token="USDC")
    assert title(rates).endswith("fees paid in USDC")
    assert note(rates).endswith(f"weighted by amount; {drawn} of 40 trades")
    assert "no price" in words(figures.fees_by_token(frame, token="USDC"))
    frame["fee_token"] = None
    with pytest.raises(
        LabError,
        match=r"^lab\.figures\.fee_rates: no trade with a known time and fee in any token to draw\. .*fee_token=\.$",
    ):
        figures.fee_rates(frame)


def test_fees_without_a_price_are_refused_where_none_has_one(trades: pd.DataFrame) -> None:
    frame = trades.assign(created_at=trades["created_at"].where(trades["created_at"].isna()))
    with pytest.raises(
        LabError,
        match=r"^lab\.figures\.fees_by_token: no fee could be valued in USDC\. Pass trades .* prices=\.$",
    ):
        figures.fees_by_token(frame, token="USDC", prices=trades)


def test_unknown_fill_types_are_drawn_apart(trades: pd.DataFrame) -> None:
    frame = trades.copy()
    frame.loc[frame.index[::4], "fill_type"] = None
    known = frame["fill_type"].dropna()
    shares = figures.fill_shares(frame, every="1y")
    assert shares.table["fills"].tolist() == [30]
    assert shares.table["share"].tolist() == [(known == "amm").mean()]
    assert note(shares).startswith("30 of 40 trades; ")
    assert "type unknown" in stacks(figures.size_profile(frame))
    assert "type unknown" in lines(figures.fee_rates(frame))
    assert "type unknown" in lines(figures.cost_curve(frame, tolerance=None))


def test_fees_of_no_sure_tier_are_marked_apart() -> None:
    size = 10**18
    fees = {"1": 10**15, "2": 2 * 10**15, "3": 10**15 + 10**9, "4": None}  # 10, 20, no whole tier, not known
    rows = [row(id=one, side="BUY", size=str(size), feeAmount=fee and str(fee)) for one, fee in fees.items()]
    tiny = row(id="5", side="BUY", market="WBTC-ETH", size="100", feeAmount="0", tokenId="0")  # 0 to 99 bps
    figure = figures.fee_tiers(read(page([*rows, tiny]), fill_type="dex"))
    drawn = stacks(figure)
    assert drawn == {label: [20.0] for label in ("10 bps", "20 bps", "ambiguous", "no whole tier", "not known")}
    hatches = [bars[0].get_hatch() for bars in figure.axes[0].containers]  # type: ignore[index]
    assert hatches[:2] == [None, None]
    assert len(set(hatches)) == 4


def test_likely_tiers_are_drawn_apart_from_exact_ones() -> None:
    """Of like fills a minute apart, small ones of 10 or 11 bps stand between large ones of 10."""
    fees = [("100000000000000000000", "100000000000000000"), ("9000", "9")] * 60
    rows = [
        row(
            id=str(n),
            side="BUY",
            tokenId="0",
            size=size,
            feeAmount=fee,
            createdAt=str(1_640_995_200_000 + 60_000 * n),
        )
        for n, (size, fee) in enumerate(fees[:-1], start=1)
    ]
    frame = read(page(rows), fill_type="dex")
    axes = figures.fee_tiers(frame, every="1y", tokens=tokens()).axes[0]
    exact, likely = axes.containers
    assert [bars.get_label() for bars in (exact, likely)] == ["10 bps", "10 bps, likely"]
    assert [bars[0].get_height() for bars in (exact, likely)] == pytest.approx([6000 / 119, 5900 / 119])  # type: ignore[index]
    assert exact[0].get_facecolor() == likely[0].get_facecolor()  # type: ignore[index]
    assert (exact[0].get_hatch(), likely[0].get_hatch()) == (None, "++")  # type: ignore[index]
    assert set(stacks(figures.fee_tiers(frame, every="1y"))) == {"10 bps", "ambiguous"}


def test_sizes_of_any_magnitude_are_written_out() -> None:
    rows = [row(id=str(n), size=str(n * 10**exponent)) for n, exponent in enumerate((4, 10, 16, 22, 28, 32), start=1)]
    frame = read(page(rows), fill_type="dex")
    for draw in (figures.size_profile, figures.volume):
        figure = draw(frame)
        assert overlapping(rendered(figure)) == []
        assert not [text for text in words(figure) if "e-" in text or "e+" in text]


# Arguments


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: figures.fee_rates(t, every="fortnight"), r"every='fortnight' is not a period\."),
        (lambda t: figures.fee_tiers(t, every="1min"), r"^lab.figures.fee_tiers\(every='1min'\) would draw more than 1,000 periods"),
        (lambda t: figures.fill_shares(t, every="1s"), r"^lab.figures.fill_shares\(every='1s'\) would draw more than 1,000 periods"),
        (lambda t: figures.fee_rates(t, by="colour"), r"no column 'colour'"),
        (lambda t: figures.fee_rates(t, by="fee"), r"^lab\.figures\.fee_rates: by=.* 'fee'"),
        (lambda t: figures.fee_rates(t, fee_token="DOGE"), r"^lab\.figures\.fee_rates: no trade .* fee in DOGE to draw\."),
        (lambda t: figures.fill_shares(t, of="shares"), r"^lab\.figures\.fill_shares: of='shares' is not known\. Give 'fills'"),
        (lambda t: figures.fill_shares(t, quote="DOGE"), r"^lab\.figures\.fill_shares: no trade quoted in DOGE to draw\."),
        (lambda t: figures.size_profile(t, quote="DOGE"), r"^lab\.figures\.size_profile: no trade quoted in DOGE to draw\."),
        (lambda t: figures.size_profile(t, quantiles=0), r"quantiles=0 is not valid\. Give a whole number"),
        (lambda t: figures.cost_curve(t, quote="DOGE"), r"^lab\.figures\.cost_curve: no trade quoted in DOGE to draw\."),
        (lambda t: figures.cost_curve(t, reference="first"), r"reference='first' is not known\."),
        (lambda t: figures.cost_curve(t, tolerance="1ms"), r"^lab\.figures\.cost_curve: no fill quoted in \w+ has a reference"),
        (lambda t: figures.price_gaps(t, tolerance="soon"), r"tolerance='soon' is not a length of time"),
        (lambda t: figures.fees_by_token(t, token="DOGE"), r"no price and no fee is in 'DOGE'"),
        (lambda t: figures.fees_by_token(t, prices=t), r"^lab\.figures\.fees_by_token: prices= has no effect without token=\. Give it"),
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_used_are_named(call: Draw, message: str, trades: pd.DataFrame) -> None:
    with pytest.raises(LabError, match=message) as refusal:
        call(trades)
    assert str(refusal.value).endswith(".")


def test_floats_are_refused_as_amounts(trades: pd.DataFrame) -> None:
    for draw in (*ANY_ENGINE, figures.cost_curve):
        with pytest.raises(LabError, match="notional is .*not an exact amount"):
            draw(lab.to_float(trades[["notional"]]).join(trades.drop(columns="notional")))


def test_amounts_may_be_as_large_as_they_come() -> None:
    rows = [row(id=str(n), size="9" * 36, feeAmount="9" * 33) for n in range(3)]
    figure = figures.fees_by_token(read(page(rows), fill_type="amm"))
    (fee,) = [text for text in words(figure) if text.endswith(" ETH")]
    assert Decimal(fee.split()[0].replace(",", "")) == pytest.approx(
        Decimal(3 * (10**33 - 1)) / 10**18, rel=Decimal("1e-9")
    )
