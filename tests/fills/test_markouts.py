"""Prices before and after fills: which one is taken, markouts, shortfall, and the world's truth."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support import oracle
from support.engines import result_rows
from support.optional import thorough
from support.wire_rows import page, read, row
from support.worlds import minute_marks, trades_of, true_markouts, values_of

import loopring_lab as lab
from loopring_lab.relayer import World

UNIT = 10**18
SECOND = 1000
MARKET = {
    "market": "ETH-USDT",
    "size": str(UNIT),
    "tokenId": "0",
    "feeAmount": "0",
    "side": "SELL",
}


def hash_of(number: int) -> str:
    return f"0x{number:064x}"


A = hash_of(0xA00)
B = hash_of(0xB00)
C = hash_of(0xC00)


def trades(*rows: dict[str, Any], first: int = 0) -> pd.DataFrame:
    """Read fills of one ETH; each has its own id, from `first` on, and order unless it names others."""
    own = [
        {"id": str(n), "orderHash": hash_of(n + 1), "blockId": "0"}
        for n in range(first, first + len(rows))
    ]
    return read(
        [
            page(
                [
                    row(**MARKET | mine | given)
                    for mine, given in zip(own, rows, strict=True)
                ]
            )
        ]
    )


def fill(moment: int, price: str, **members: Any) -> dict[str, Any]:
    return {"createdAt": str(moment), "price": price} | members


def references(frame: Any) -> list[int | None]:
    return [
        line["reference_price"] and line["reference_price"] // UNIT
        for line in result_rows(frame)
    ]


# Which price is taken


def test_no_fill_is_priced_by_itself_its_other_side_or_its_order():
    both = trades(
        fill(1000, "90"),
        fill(2000, "100", id="7", orderHash=A),
        fill(2000, "100", id="7", orderHash=B, side="BUY"),
        fill(3000, "101", id="8", orderHash=A),
        fill(3000, "101", id="8", orderHash=C, side="BUY"),
        fill(4000, "95"),
    )
    expected = {hash_of(1): None, A: 90, B: 90, C: 100, hash_of(6): 101}
    orders = both["order_hash"].tolist()
    assert references(lab.fills.all_in_cost(both, both)) == [
        expected[order] for order in orders
    ]
    is_mine = both["order_hash"] == A
    mine = both[is_mine]
    # Moment and price say whose a price is, and of fills alone at a moment the other sides are all there is.
    thin = both[["created_at", "market", "price"]]
    for prices in (both, both[~is_mine], thin):
        assert references(lab.fills.all_in_cost(mine, prices)) == [90, 90]
    marks = thin.assign(created_at=thin["created_at"] - pd.Timedelta(1, "ms"))
    assert references(lab.fills.all_in_cost(mine, marks)) == [100, 101]


def test_of_several_prices_at_a_moment_that_of_the_nearest_trade_counts():
    """The nearest is the highest trade id before a fill, the lowest after it; unknown ids are above all others."""
    frame = trades(
        fill(1000, "90", id="1"),
        fill(2000, "103", id="8"),
        fill(2000, "101", id="7"),
        fill(2000, "102", id="9"),
        fill(3000, "91", id="10"),
        # One trade with two prices counts as their mean.
        fill(4000, "105", id="20"),
        fill(4000, "107", id="20"),
        fill(4000, "108", id="19"),
        fill(5000, "92", id="30"),
        fill(6000, "111", id=None),
        fill(6000, "112", id="50"),
        fill(7000, "93", id="60"),
    )
    last = references(lab.fills.all_in_cost(frame, "last"))
    following = references(lab.fills.all_in_cost(frame, "next"))
    assert [last[place] for place in (4, 8, 11)] == [102, 106, 111]
    assert [following[place] for place in (0, 4, 8)] == [101, 108, 112]


def test_several_outside_prices_of_a_moment_count_as_their_mean():
    """Whoever buys at 102 and sells at 98 pays 2 beside 99 and 101, whichever of them is listed first."""
    frame = trades(fill(2000, "102", side="BUY"), fill(2000, "98"))
    times = pd.to_datetime([1000, 1000, 1000, 3000, 3000], unit="ms", utc=True)
    known = ["101", "99", "100.000000000000000002", "97", "99.5"]
    prices = pd.DataFrame(
        {
            "created_at": times,
            "market": "ETH-USDT",
            "price": pd.array(list(map(Decimal, known)), lab.amounts.AMOUNT),
        }
    )
    for listed in (prices, prices[::-1]):
        found = lab.fills.all_in_cost(frame, listed)
        assert found["reference_price"].tolist() == [Decimal(100)] * 2
        assert found["price_bps"].tolist() == [200, 200]
        found = lab.fills.all_in_cost(frame, "next", prices=listed)
        assert found["reference_price"].tolist() == [Decimal("98.25")] * 2


def test_a_price_from_long_before_a_horizon_is_none_at_it():
    """A market moves from 100 to 105 after 10 minutes, while its prices are missing from 2 to 70 minutes."""
    since = 1_648_749_600_000
    frame = trades(fill(since, "102", type="taker"))
    minutes = [0, 1, 2, 70, 71, 130]
    feed = pd.DataFrame(
        {
            "created_at": pd.to_datetime(
                [since + 60 * SECOND * minute for minute in minutes],
                unit="ms",
                utc=True,
            ),
            "market": "ETH-USDT",
            "price": pd.array(
                [Decimal(100)] * 3 + [Decimal(105)] * 3, lab.amounts.AMOUNT
            ),
        }
    )
    horizons = ["1min", "4min", "4min1ms", "1h", "1h59min", "2h"]
    ages = {
        # At 1 h 59 min the last price is 48 minutes old, and at 2 h one more.
        "48min": [100, 100, None, None, 105, None],
        "49min": [100, 100, None, None, 105, 105],
        # At 4 minutes that of 2 minutes is just half the horizon away from the one before, later it is less.
        None: [100, 100, None, None, 105, 105],
    }
    for tolerance, expected in ages.items():
        found = lab.fills.markouts(frame, feed, horizons, tolerance=tolerance)
        assert [
            line["price_after"] and line["price_after"] // UNIT
            for line in result_rows(found)
        ] == expected
    by_group = lab.fills.markouts(frame, feed, horizons, by=[])
    assert by_group["unpriced"].tolist() == [0, 0, 1, 1, 0, 0]


@pytest.mark.parametrize(
    "ask",
    [
        lambda frame, length: lab.fills.markouts(frame, horizons=[length], by=[]),
        lambda frame, length: lab.fills.compare_venues(frame, horizon=length),
        lambda frame, length: lab.research.cost_curves(frame, horizon=length),
    ],
    ids=["markouts", "compare_venues", "cost_curves"],
)
def test_a_horizon_beyond_all_trades_may_be_of_any_length(ask):
    since = 1_648_749_600_000
    frame = trades(*(fill(since + SECOND * n, "100", type="taker") for n in range(25)))
    at_book = frame.assign(fill_type="dex")
    found = [ask(at_book, length) for length in ("40000d", "100000d")]
    pd.testing.assert_frame_equal(
        *(answer.drop(columns="horizon", errors="ignore") for answer in found)
    )


DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "created_at": st.one_of(st.none(), st.integers(-3, 6)),
    "market": st.sampled_from(["A", "B", None]),
    "trade_id": st.one_of(st.none(), st.integers(0, 4)),
    "side": st.sampled_from(["BUY", "SELL", None]),
    "order_hash": st.sampled_from([A, B, C, None]),
    "fill_type": st.sampled_from(["amm", "dex", None]),
    "block_id": st.sampled_from([None, 0, 1, 2]),
    "index_in_block": st.sampled_from([None, 0, 1, 2]),
    "price": st.sampled_from([None, 0, 1, 2, 3]),
    "role": st.sampled_from(["maker", "taker"]),
    **dict.fromkeys(
        ["account_id", "token_id", "storage_id"], st.sampled_from([0, 0, 1, None])
    ),
    "quote": st.sampled_from(["T", None]),
    "fee_bps": st.sampled_from([None, 5.0]),
}
KNOWN = st.fixed_dictionaries(DRAWN)
PLACE = ["block_id", "index_in_block"]


def drawn_frame(rows: list[dict[str, Any]], unit: int) -> pd.DataFrame:
    """Return drawn rows as a frame of trades, of sizes that follow from their place; times are in a unit of so many ms."""
    frame = pd.DataFrame(rows, columns=list(DRAWN))
    numbers = ["trade_id", *PLACE, "account_id", "token_id", "storage_id"]
    size = lab.amounts.to_units([1 + place for place in range(len(rows))], 0)
    amounts = pd.DataFrame(
        {"size": size, "notional": size, "fee": size}, index=frame.index
    )
    return frame.astype(dict.fromkeys(numbers, "Int64")).assign(
        created_at=pd.to_datetime(
            frame["created_at"].astype("Int64") * unit, unit="ms", utc=True
        ).dt.as_unit("ms"),
        price=pd.array(
            [None if row["price"] is None else Decimal(row["price"]) for row in rows],
            lab.amounts.AMOUNT,
        ),
        fee_bps=frame["fee_bps"].astype(float),
        base="B",
        fee_token="T",
        **amounts,
    )


@pytest.mark.parametrize("unit", [1, thorough(47 * 60 * SECOND)])
@settings(
    max_examples=5, phases=[Phase.explicit, Phase.generate]
)  # shrinking takes minutes
@given(
    st.lists(KNOWN, max_size=14),
    st.lists(KNOWN, max_size=8),
    st.sampled_from(["all", "no places", "thin"]),
    st.sampled_from([2, None]),
)
def test_prices_are_what_a_loop_over_all_of_them_finds(
    unit, mine, others, known, within
):
    within = within and within * unit
    frame = drawn_frame(mine, unit)
    everything = drawn_frame(mine + others, unit)
    prices = {
        "all": everything,
        "no places": everything.drop(columns=PLACE),
        "thin": everything[["created_at", "market", "price"]].assign(
            price=everything["price"].shift(1)
        ),
    }[known]
    fills = oracle.fills_of(frame)
    all_fills = oracle.fills_of(prices)
    tolerance = within and f"{within}ms"
    checks = [
        (
            lab.fills.all_in_cost(frame, "next", tolerance),
            oracle.costs(fills, "next", within),
        ),
        (
            lab.fills.all_in_cost(frame, "last", tolerance),
            oracle.costs(fills, "last", within),
        ),
        (lab.fills.price_gap(frame, tolerance), oracle.price_gaps(fills, within)),
        (
            lab.fills.all_in_cost(frame, "next", tolerance, prices=prices),
            oracle.costs(fills, "next", within, all_fills),
        ),
        (
            lab.fills.all_in_cost(frame, "last", tolerance, prices=prices),
            oracle.costs(fills, "last", within, all_fills),
        ),
    ]
    given = lab.fills.all_in_cost(frame, prices, tolerance)
    kinds = set(given["reference"])
    outside = kinds == {"outside prices"}
    if kinds:
        checks.append(
            (
                given,
                oracle.costs(fills, "outside" if outside else "at", within, all_fills),
            )
        )
        horizons = {f"{length * unit}ms": length * unit for length in (1, 3)}
        moved = lab.fills.markouts(frame, prices, [*horizons], tolerance=tolerance)
        expected = oracle.markouts(fills, all_fills, horizons, within, outside=outside)
        checks.append((moved, expected))
    for found, by_hand in checks:
        rows = oracle.fills_of(found)
        assert [
            {name: getattr(row, name) for name in one}
            for row, one in zip(rows, by_hand, strict=True)
        ] == [
            {
                name: pytest.approx(value) if isinstance(value, float) else value
                for name, value in one.items()
            }
            for one in by_hand
        ]


# Shortfall


def test_fills_are_put_together_into_orders_before_they_are_compared():
    frame = trades(
        fill(1000, "100"),
        fill(2000, "99", orderHash=A, feeAmount="99000"),
        fill(2500, "500"),
        fill(4500, "96", orderHash=A, size=str(2 * UNIT)),
        fill(5000, "10", orderHash=None, storageId="1"),
        fill(6000, "12", orderHash=None, storageId="2"),
    )
    found = {
        line["order_hash"]: line
        for line in result_rows(lab.fills.shortfall(frame.iloc[::-1]))
    }
    order = found[A]
    assert (order["fills"], order["seconds_to_fill"]) == (2, 2.5)
    # One at 99 and two at 96, 291 in all.
    assert order["average_price"] == 97 * UNIT
    assert order["arrival_price"] == 100 * UNIT
    assert order["shortfall_bps"] == 300.0
    assert order["fee_bps"] == float(Fraction(99_000 * 10_000, 291 * 10**6))
    assert order["all_in_bps"] == order["shortfall_bps"] + order["fee_bps"]
    alone = lab.fills.shortfall(frame)
    assert alone["order_hash"].isna().sum() == 2
    grouped = lab.fills.shortfall(frame, by="market")
    assert grouped[["fills", "orders", "unpriced"]].to_numpy().tolist() == [[6, 5, 1]]
    assert grouped.loc[0, "median_seconds_to_fill"] == 0


@pytest.mark.parametrize("unknown", ["fee_token", "base"])
def test_a_fee_in_an_unknown_token_leaves_the_rate_of_its_order_unknown(unknown):
    """Its fee was added to those of the others, but not what it was charged on: twice the rate, without a word."""
    frame = trades(
        fill(1000, "100", orderHash=A),
        fill(2000, "100", orderHash=A),
    )
    frame["fee_token"] = frame["base"] = frame["base"].astype(object)
    # All that was received.
    frame["fee"] = frame["size"]
    assert lab.fills.shortfall(frame)["fee_bps"].tolist() == [10_000.0]
    frame.loc[1, unknown] = None
    assert lab.fills.shortfall(frame)["fee_bps"].isna().all()


# The world's truth


def test_markouts_against_minute_prices_are_the_true_ones():
    world = World(seed=31, size=0.03)
    horizons = {"1min": 60 * SECOND, "1h": 3600 * SECOND}
    frame = trades_of(world)
    fills = {fill.id: fill for fill in world.fills}
    marks = minute_marks(world, world.fills, horizons.values())
    rows = lab.fills.markouts(frame, marks, list(horizons))
    found = lab.fills.markouts(frame, marks, list(horizons), by="fill_type")
    assert found["horizon"].tolist() == list(horizons) * 2
    values = values_of(frame)
    for line in found.itertuples():
        some = rows[
            (rows["fill_type"] == line.fill_type) & (rows["horizon"] == line.horizon)
        ]
        true = true_markouts(
            world,
            [fills[number] for number in some["trade_id"]],
            horizons[line.horizon],
        )
        assert line.unpriced == 0
        for rate in ("effective", "realized"):
            expected = np.average(true[rate], weights=values.loc[some["trade_id"]])
            low, high = (
                getattr(line, f"{edge}_{rate}_bps") for edge in ("low", "high")
            )
            assert low < expected < high
            assert getattr(line, f"weighted_{rate}_bps") == pytest.approx(
                expected, abs=0.5
            )
