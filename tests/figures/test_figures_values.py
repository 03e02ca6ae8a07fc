"""Figures show the right values: bars and lines compared with integer sums, counts and settled facts."""

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from figures.test_figures import assert_legible
from matplotlib import style as styles
from support.figures import lines, note, overlapping, rendered, stacks, title, words
from support.optional import thorough
from support.trade_histories import Drawn, frame_of
from support.wire_rows import page, read, row, whole

import loopring_lab as lab
from loopring_lab import figures

DAY = 86_400
LABELS = {"amm": "AMM pool", "dex": "order book"}


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083)


def monday(moment: Any) -> float:
    """Return the start of a moment's week in days since 1970."""
    day = datetime.fromtimestamp(moment.timestamp(), UTC).date()
    return (day - timedelta(days=day.weekday())).toordinal() - datetime(
        1970, 1, 1, tzinfo=UTC
    ).toordinal()


def prefix(units: int, text: str) -> bool:
    """Return whether a text is an amount of 1e-18 units, truncated: less than its last digit is missing."""
    written = text.replace(",", "")
    last = 10 ** (18 - len(written.partition(".")[2]))
    return 0 <= units - whole(Decimal(written), 18) < last


# fee_tiers


def test_tiers_beyond_the_eight_with_most_fills_are_put_together():
    size = 10**21
    tiers = [*range(8), *range(11)]
    rows = [
        row(id=str(n), side="BUY", size=str(size), feeAmount=str(size * tier // 10_000))
        for n, tier in enumerate(tiers)
    ]
    drawn = stacks(figures.fee_tiers(read(page(rows), fill_type="dex")))
    wanted = {f"{tier} bps": [pytest.approx(200 / 19)] for tier in range(8)}
    assert drawn == wanted | {"other tiers": [pytest.approx(300 / 19)]}


# fees_by_token


def test_bars_count_fills_and_fees_stand_beside_in_their_own_unit(
    trades,
):
    figure = figures.fees_by_token(trades)
    axes = figure.axes[0]
    texts = words(figure)
    counts = trades["fee_token"].value_counts()
    tokens = [label.get_text() for label in axes.get_yticklabels()]
    widths = [bar.get_width() for bar in axes.patches]  # type: ignore[attr-defined]
    assert dict(zip(tokens, widths, strict=True)) == counts[counts > 0].to_dict()
    assert widths == sorted(widths, reverse=True)
    for token, fees in trades.groupby("fee_token", observed=True)["fee"]:
        total = sum(whole(fee, 18) for fee in fees)
        (beside,) = [text for text in texts if text.endswith(f" {token}")]
        digits = str(
            total // 10 ** (len(str(total)) - 5)
        )  # the first five, the others cut
        assert prefix(total, beside.split()[0])
        assert beside.split()[0].replace(",", "").replace(".", "").lstrip("0") == digits
        zero = sum(1 for fee in fees if not fee)
        assert f"{100 * zero / len(fees):.0f} %" in texts


@pytest.mark.parametrize(
    ("fee", "beside"),
    [
        (2_758_999_999_999_999_999, "2.7589 ETH"),
        (101_004_628_560_000_000_000, "101.00 ETH"),
        (1_234_567_999_999_999_999_999_999, "1,234,567 ETH"),
        (999_999, "0.00000000000099999 ETH"),
        (0, "0 ETH"),
    ],
)
def test_amounts_are_cut_and_never_rounded_up(fee, beside):
    figure = figures.fees_by_token(
        read(page([row(size=str(10**27), feeAmount=str(fee))]), fill_type="dex")
    )
    assert beside in words(figure)


def test_more_than_twelve_tokens_are_put_together(trades):
    many = trades.head(105).assign(
        fee_token=[f"T{n:02}" for n in range(1, 15) for _ in range(n)]
    )
    axes = figures.fees_by_token(many).axes[0]
    drawn = [
        (label.get_text(), bar.get_width())
        for label, bar in zip(axes.get_yticklabels(), axes.patches, strict=True)
    ]  # type: ignore[attr-defined]
    assert drawn == [*((f"T{n:02}", n) for n in range(14, 2, -1)), ("2 others", 3)]
    unknown = many.assign(
        fee_token=[None if token == "T01" else token for token in many["fee_token"]]
    )
    texts = words(figures.fees_by_token(unknown))
    assert ("2 others" in texts, "unknown" in texts) == (True, False)


def test_numbers_of_tokens_and_lines_are_grouped_like_every_other(trades):
    many = trades.head(1_014).assign(fee_token=[f"T{n}" for n in range(1_014)])
    assert "1,002 others" in words(figures.fees_by_token(many))
    lines_of_fills = figures.fee_rates(trades, by=["fee_token", "trade_id"])
    assert f"the 5 of {len(trades):,} lines" in note(lines_of_fills)


def test_a_fee_without_a_price_is_counted_once():
    trades = lab.connect().trades(10083, limit=40)
    fees = ["ETH"] * 30 + ["T"] * 10
    figure = figures.fees_by_token(
        trades.assign(fee_token=fees), token="ETH", prices=trades
    )
    assert note(figure) == "30 of 40 fills valued"
    assert re.fullmatch(
        r"Fees by token, valued in ETH: [\d.]+ ETH in all", title(figure)
    )


def test_other_tokens_without_any_price_have_no_value():
    trades = lab.connect().trades(10083, limit=40)
    # No market has these: a value of 0 would be wrong.
    fees = ["ETH", *(f"T{n:02}" for n in range(39))]
    figure = figures.fees_by_token(
        trades.assign(fee_token=fees), token="ETH", prices=trades
    )
    (mark,) = [one for one in figure.marks if one.text.startswith("28 others")]
    assert mark.text == "28 others: 28 fills\nno price"
    assert words(figure).count("no price") == 12


@pytest.mark.parametrize("fee", [12 * 10**31, 12 * 10**5])
def test_values_of_many_digits_stay_apart(fee):
    rows = [
        row(id=str(n), side=side, size=str(10 * fee), feeAmount=str(fee))
        for n, side in enumerate(["SELL", "BUY"])
    ]
    figure = figures.fees_by_token(read(page(rows)), token="LRC")
    assert overlapping(rendered(figure)) == []


# fill_shares


@pytest.fixture(scope="module")
def shares(trades: pd.DataFrame) -> Any:
    return figures.fill_shares(trades)


@pytest.fixture(scope="module")
def weeks(trades: pd.DataFrame) -> dict[float, list[Any]]:
    """Return the fills of each week."""
    found: dict[float, list[Any]] = defaultdict(list)
    for fill in trades.itertuples():
        found[monday(fill.created_at)].append(fill)
    return found


def pool_share(fills: list[Any]) -> float:
    return 100 * sum(fill.fill_type == "amm" for fill in fills) / len(fills)


def test_shares_are_counts_of_each_week(shares, weeks):
    wanted = {week: pool_share(fills) for week, fills in weeks.items()}
    times, drawn = lines(shares)["AMM pool"]
    # Marks stand in the middle of their week.
    found = {
        time - 3.5: share
        for time, share in zip(times, drawn, strict=True)
        if not np.isnan(share)
    }
    assert found == pytest.approx(wanted)
    every = [fill for fills in weeks.values() for fill in fills]
    assert f"over the whole time AMM pool {pool_share(every):.3g} %" in note(shares)
    assert shares.axes[0].get_ylim() == (0, 100)


def test_few_points_stay_large_among_many_empty_periods(trades):
    few = trades.tail(40)
    figure = figures.fill_shares(few, every="1h")
    assert len(figure.table) < 20
    assert few["created_at"].max() - few["created_at"].min() > timedelta(hours=200)
    marks, _ = (line for line in figure.axes[0].lines if line.get_marker() == "o")
    assert marks.get_markersize() >= 5


Z = 1.959963984540054  # 97.5 % of a normal distribution lie below


def test_intervals_of_shares_are_wilson_s_with_orders_as_observations(shares, weeks):
    """An end lies as far from the share as 95 % of shares of that many orders do, were it the true one."""
    assert len(shares.table) == len(weeks)
    for week in shares.table.itertuples():
        orders = Counter(fill.order_hash for fill in weeks[monday(week.period)])
        assert week.orders == len(orders)
        squares = sum(count**2 for count in orders.values())
        effective = Fraction(orders.total() ** 2, squares)
        assert 0 <= week.low <= week.share <= week.high <= 1
        for end in (week.low, week.high):
            assert (week.share - end) ** 2 == pytest.approx(
                Z**2 * end * (1 - end) / float(effective), abs=1e-12
            )


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        (0, "day"),
        (7_200, "15 minutes"),
        (20 * DAY, "day"),
        (300 * DAY, "week"),
        (5_000 * DAY, "quarter"),
    ],
)
def test_periods_suit_the_time_covered(seconds, name):
    last = 1657638459610 + seconds * 1000
    frame = read(page([row(), row(id="2", createdAt=str(last))]), fill_type="dex")
    assert title(figures.fill_shares(frame)) == f"AMM pool's share of fills, per {name}"
    assert title(figures.fee_tiers(frame)) == f"Fills by fee tier, per {name}"


# price_gaps


def pair(number: int, price: str, kind: str, seconds: int, side: str = "BUY") -> Drawn:
    """Make a taker's fill of 100 units, of an order of its own."""
    members = {
        "orderHash": f"0x{number:064x}",
        "createdAt": str(1657638459610 + seconds * 1000),
        "size": str(10**20),
    }
    return kind, row(price=price, side=side, type="taker", **members)


def test_a_buyer_who_paid_more_stands_right_of_zero():
    fills = [pair(3, "99.0", "dex", 500, "SELL")]
    for start in range(0, 30_000, 1_000):
        fills += [
            pair(start + 10, "100.0", "dex", start),
            pair(start + 20, "101.0", "amm", start + 30),
            pair(start + 40, "99.99", "dex", start + 80),
        ]
    # Nothing at the pool is near these.
    fills += [
        pair(50_000 + number, "100.0", "dex", 10**6 + number * 100)
        for number in range(11)
    ]
    figure = figures.price_gaps(frame_of(fills), tolerance="60s")
    up, down = figure.axes[0].containers
    (high,) = [bar for bar in up if bar.get_height()]
    (low,) = [bar for bar in down if bar.get_height()]
    assert (high.get_height(), low.get_height()) == (100, -100)
    assert high.get_x() <= 100 <= high.get_x() + high.get_width()
    assert low.get_x() <= -100 <= low.get_x() + low.get_width()
    assert note(figure).startswith("60 of 102 fills of known type matched\n")
    legend = figure.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        "AMM pool:\n30 matched,\n0 not",
        "order book:\n30 matched,\n42 not",
    ]
    assert {"mean 100.0", "mean -100.0"} <= set(words(figure))


def test_a_mean_that_rests_on_few_accounts_says_that_it_has_no_interval():
    fills = []
    for number in range(0, 60, 2):
        fills.append(pair(number, "100.0", "dex", number * 100))
        kind, members = pair(number + 1, "101.0", "amm", number * 100 + 50)
        # One order is worth nearly all.
        members[3] = str(10 ** (28 if number == 30 else 20))
        fills.append((kind, members))
    figure = figures.price_gaps(frame_of(fills))
    assert note(figure).endswith("; line alone: under 8 accounts")
    assert "mean 100.0" in words(figure)


# size_profile and cost_curve


def test_parts_by_size_are_drawn_as_their_table_has_them(trades):
    """`tests/engine/test_by_hand.py` counts the parts by hand."""
    figure = figures.size_profile(trades, quote="ETH")
    table = lab.fills.size_profile(trades, 10)
    table = table[table["quote"] == "ETH"]
    for kind, label in LABELS.items():
        shares = table[table["fill_type"] == kind].set_index("quantile")["share"]
        drawn = 100 * shares.reindex(range(1, 11), fill_value=0)
        assert stacks(figure)[label] == pytest.approx(drawn.tolist())
    parts = table.drop_duplicates("quantile")
    edges = [parts["smallest"].iloc[0], *parts["largest"]]
    axes = figure.axes[0]
    assert list(axes.get_xticks()) == [place - 0.5 for place in range(11)]
    for label, edge in zip(axes.get_xticklabels(), edges, strict=True):
        assert prefix(whole(edge, 18), label.get_text())
        assert float(label.get_text()) == pytest.approx(float(edge), rel=0.1)


def test_costs_are_drawn_as_their_table_has_them(trades):
    """Means weighted by value, with a whisker where there is an interval, and counts beside them."""
    figure = figures.cost_curve(trades, quote="ETH", tolerance=None)
    drawn = lines(figure)
    for kind, label in LABELS.items():
        rows = figure.table[figure.table["fill_type"] == kind]
        assert drawn[label][1] == pytest.approx(list(rows["weighted_all_in_bps"]))
        assert drawn[label][0] == pytest.approx(list(rows["quantile"] - 1), abs=0.06)
        counts = Counter(f"{count:,}" for count in rows["fills"] - rows["unpriced"])
        assert Counter(words(figure)) >= counts
    sure = figure.table["low_all_in_bps"].notna()
    whiskers = [one.get_segments() for one in figure.axes[0].collections]
    assert sum(map(len, whiskers)) == sure.sum() > 0
    hollow = [
        value
        for line in figure.axes[0].lines
        if line.get_markerfacecolor() == "white"
        for value in line.get_ydata()
    ]
    assert len(hollow) == (~sure).sum()
    assert ("hollow: no interval, under 8 accounts" in note(figure)) == bool(hollow)
    assert note(figure).endswith("differences are pulled towards 0")


# venue_differences and markouts


@pytest.fixture(scope="module")
def taken() -> tuple[pd.DataFrame, pd.DataFrame | None]:
    client = lab.connect()
    trades = client.trades(11519, since="2022-12-01")
    return trades, client.outside_prices(trades)


def marks(figure: Any) -> list[tuple[float, float, bool]]:
    """Return where single marks stand, and whether they are hollow."""
    drawn = [
        line
        for line in figure.axes[0].lines
        if line.get_marker() not in ("None", None, "")
    ]
    return [
        (float(x), float(y), line.get_markerfacecolor() == "white")
        for line in drawn
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


@pytest.mark.thorough
def test_differences_are_those_compared_with_their_verdicts(taken):
    trades, prices = taken
    overall = lab.fills.compare_venues(trades, prices)
    table = lab.fills.compare_venues(trades, prices, by="market").dropna(
        subset=["difference_bps"]
    )
    # Bonferroni: each of so many groups at a level that leaves out that part of 5 %.
    count = table["low_bps"].notna().sum()
    if count > 1:
        table = lab.fills.compare_venues(
            trades, prices, by="market", intervals=1 - 0.05 / count
        ).dropna(subset=["difference_bps"])
    figure = figures.venue_differences(trades, prices=prices)
    assert_legible(figure)
    rows = pd.concat(
        [overall, table.sort_values("fills", ascending=False, kind="stable")]
    )
    wanted = [
        (row.difference_bps, place, row.verdict == "undecided")
        for place, row in enumerate(rows.itertuples())
    ]
    assert np.array(marks(figure)) == pytest.approx(np.array(wanted, float), rel=1e-9)
    single = [
        [line[:, 0] for line in one.get_segments() if np.ndim(line) == 2]  # type: ignore[attr-defined]
        for one in figure.axes[0].collections
    ]
    known = rows.dropna(subset=["low_bps"])
    ends = known[["low_bps", "high_bps"]].to_numpy()
    assert np.concatenate([one for one in single if one]) == pytest.approx(
        ends, rel=1e-9
    )
    assert note(figure).count("\n") <= 1
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["all", *rows["market"].iloc[1:]]
    assert {f"{count:,}" for count in rows["fills"]} <= set(words(figure))


def test_markouts_are_drawn_with_what_they_rest_on(taken):
    trades, prices = taken
    table = lab.fills.markouts(trades, prices, by="fill_type")
    figure = figures.markouts(trades, prices=prices)
    assert_legible(figure)
    for kind, label in LABELS.items():
        rows = table[table["fill_type"] == kind]
        assert lines(figure)[label][1] == pytest.approx(
            list(rows["weighted_realized_bps"]), rel=1e-12
        )
        counts = [f"{count:,}" for count in rows["fills"] - rows["unpriced"]]
        assert Counter(words(figure)) >= Counter(counts)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == [
        "10s",
        "1min",
        "5min",
        "1h",
    ]


@pytest.mark.parametrize(
    "horizons",
    [thorough("1h"), iter(["1min", "1h"])],
)
def test_horizons_of_markouts_are_one_or_any_number(taken, horizons):
    trades, prices = taken
    figure = figures.markouts(trades, prices=prices, horizons=horizons)
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == list(dict.fromkeys(figure.table["horizon"]))
    assert labels[-1] == "1h"


@pytest.mark.parametrize("by", [thorough([]), None])
def test_differences_without_groups_are_one_row(taken, by):
    trades, prices = taken
    figure = figures.venue_differences(trades, prices=prices, by=by)
    overall = lab.fills.compare_venues(trades, prices)
    assert list(figure.table["group"]) == ["all"]
    assert figure.table["difference_bps"].tolist() == pytest.approx(
        overall["difference_bps"].tolist()
    )
    assert title(figure) == "AMM pool minus order book, like with like"


def test_a_style_of_other_sizes_hides_no_hollow_mark_and_cuts_no_label(taken):
    trades, prices = taken
    with styles.context("seaborn-v0_8-poster"):
        figure = figures.venue_differences(trades, prices=prices)
        assert_legible(figure)
    drawn = [line for line in figure.axes[0].lines if line.get_marker() != "None"]
    assert [line for line in drawn if line.get_markeredgewidth() == 0] == []


def test_headings_of_columns_stand_beside_the_note(taken):
    trades, _ = taken
    roles = lab.fills.with_roles(trades)
    by = ["market", "side", "role"]
    assert_legible(figures.venue_differences(roles, horizon="1h", by=by))


def test_nothing_to_compare_is_said(taken):
    trades, prices = taken
    pool = trades[trades["fill_type"] == "amm"]
    with pytest.raises(
        lab.LabError,
        match=r"^lab\.figures\.venue_differences: no taker fills of both venues",
    ):
        figures.venue_differences(pool, prices=prices)
    with pytest.raises(
        lab.LabError,
        match=r"^lab\.figures\.markouts: no taker's fill has a price before and after it\. Pass prices=,",
    ):
        figures.markouts(trades.head(1))
    with pytest.raises(
        lab.LabError,
        match=r"^lab\.figures\.markouts: no taker's fill .*\. Pass prices of the time around the fills,",
    ):
        figures.markouts(trades.head(1), prices=prices.head(0))
    with pytest.raises(
        lab.LabError,
        match=r"^lab\.figures\.markouts: no fill is known to be a taker's\. .*with_roles",
    ):
        figures.markouts(trades.head(1).assign(role="maker"), prices=prices)
