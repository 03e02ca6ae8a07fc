"""Of closes, those that may be looked up for the trades asked about are read, and no others."""

from datetime import timedelta
from typing import Any

import duckdb
import pandas as pd
import pyarrow.parquet as pq
import pytest
from support.engines import IN_MEMORY, collected, on
from support.optional import first_often

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.engine.ask import given
from loopring_lab.engine.near import prices_near

HOUR = timedelta(hours=1)
DAY = 24 * HOUR
START = pd.Timestamp("2022-03-01", tz="UTC")
MARKETS = ["ETH-USDC", "LRC-ETH"]


def closes(*known: tuple[timedelta, int | None], market: str) -> pd.DataFrame:
    """Return prices of a market at times after the start, None for an unknown one."""
    times, prices = zip(*known, strict=True)
    return pd.DataFrame(
        {
            "created_at": pd.DatetimeIndex([START + time for time in times]).as_unit(
                "ms"
            ),
            "market": market,
            "price": to_units(list(prices), 0),
        }
    )


def fills(*times: timedelta | None, market: str = MARKETS[0]) -> pd.DataFrame:
    """Return takers' fills at 100 after the start, None for an unknown time."""
    moments = [pd.NaT if time is None else START + time for time in times]
    amounts = to_units([100] * len(times), 0)
    return pd.DataFrame(
        {
            "created_at": pd.DatetimeIndex(moments, tz="UTC").as_unit("ms"),
            "market": market,
            "trade_id": range(len(times)),
            "account_id": 1,
            "side": "BUY",
            "fill_type": "amm",
            "role": "taker",
            "quote": "USDC",
            "price": amounts,
            "notional": amounts,
            "fee": amounts,
            "fee_bps": 0.0,
        }
    )


def whole(column: Any) -> list[int | None]:
    return [None if pd.isna(price) else int(price) for price in column]


@pytest.mark.parametrize("engine", first_often(2, ["pandas", "duckdb", *IN_MEMORY[1:]]))
def test_closes_are_read_for_the_hours_near_a_fill(engine):
    minutes = [timedelta(minutes=number) for number in range(21 * 24 * 60)]
    known = [(time, 1 + number) for number, time in enumerate(minutes)]
    year = pd.concat([closes(*known, market=market) for market in MARKETS])
    # Looked up from 5:20 and 5:21, and from 23:59 and midnight, in one of the two markets.
    trades = fills(5 * HOUR + timedelta(minutes=20), DAY - timedelta(minutes=1), None)
    read = prices_near(on(engine, year), given(trades, "here"), 60_000)
    assert len(read.read()) == (2 + 3) * 60
    found = lab.fills.markouts(trades, on(engine, year), ["1min", "20d"])
    assert whole(found["price_before"]) == [321, 321, 1440, 1440, None, None]
    later = 20 * 24 * 60
    assert whole(found["price_after"]) == [
        322,
        321 + later,
        1441,
        1440 + later,
        None,
        None,
    ]


# Hours without a price that can be looked up lie between the fills and these.
RARE = closes(
    (timedelta(0), 7),
    (3 * DAY - HOUR, None),
    (3 * DAY - HOUR / 2, 0),
    (3 * DAY + HOUR / 2, 0),
    (3 * DAY + HOUR, None),
    (9 * DAY, 9),
    market=MARKETS[0],
)


def test_an_hour_that_is_near_one_fill_and_far_from_another_is_read_once():
    """Before the second fill only the first hour has a price, and the first fill is in it."""
    trades = fills(HOUR / 2, 3 * DAY)
    read = prices_near(RARE, given(trades, "here"))
    read_at = read.to_pandas()["created_at"].sort_values()
    assert read_at.tolist() == [START, START + 3 * DAY + HOUR / 2]


@pytest.mark.parametrize(
    ("reference", "tolerance", "expected"),
    [
        ("given", None, [7, None, 9]),
        ("given", "3d", [7, None, 9]),
        ("given", "71h", [None, None, 9]),
        ("last", None, [7, None, 9]),
        ("next", None, [9, 7, None]),
        ("next", "6d", [9, 7, None]),
        ("next", "143h", [None, 7, None]),
    ],
)
def test_a_price_of_any_age_is_found_across_empty_hours(reference, tolerance, expected):
    trades = fills(3 * DAY, -DAY, 9 * DAY + HOUR)
    if reference == "given":
        found = lab.fills.all_in_cost(trades, RARE, tolerance)
    else:
        found = lab.fills.all_in_cost(trades, reference, tolerance, prices=RARE)
    assert whole(found["reference_price"]) == expected


@pytest.mark.parametrize("engine", first_often(2, ["pandas", "duckdb", *IN_MEMORY[1:]]))
def test_fees_are_valued_by_closes_on_both_sides_of_empty_hours(engine):
    """A price of 7 counts until one of 9 six days after the first fill; no price follows the last fill."""
    tokens = {"base": "ETH", "quote": "USDC", "fee_token": "ETH"}
    trades = fills(3 * DAY, -DAY, 9 * DAY + HOUR).assign(**tokens)
    prices = on(engine, RARE.assign(**tokens).drop(columns=["market", "fee_token"]))
    valued = lab.fees.in_token(trades, "USDC", prices, tolerance=None)
    assert [None if pd.isna(value) else value for value in valued["fee_value"]] == [
        700,
        None,
        900,
    ]
    of_first = lab.fees.in_token(trades[:1], "USDC", prices, [], None)
    # One day's fees, by which they change and by Student's t for one day.
    change = 10_000 * (9 / 7 - 1)
    assert of_first["within_bps"].tolist() == [pytest.approx(12.3 * change, rel=0.01)]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_of_closes_may_be_of_any_unit(unit):
    times = RARE["created_at"].dt.as_unit(unit)
    found = lab.fills.all_in_cost(
        fills(3 * DAY, -DAY, 9 * DAY + HOUR),
        RARE.assign(created_at=times),
        tolerance=None,
    )
    assert whole(found["reference_price"]) == [7, None, 9]


def test_closes_may_be_on_another_connection_than_trades(tmp_path):
    file = str(tmp_path / "closes.parquet")
    pq.write_table(lab.engine.portable(RARE), file)
    trades = fills(3 * DAY, -DAY, 9 * DAY + HOUR)
    with duckdb.connect() as connection:
        read = connection.read_parquet(file)
        found = lab.fills.all_in_cost(on("duckdb", trades), read, tolerance=None)
        assert whole(collected(found)["reference_price"].to_pylist()) == [7, None, 9]


@pytest.mark.parametrize(
    ("market", "expected"),
    [
        pytest.param(b"ETH-USDC", [7, None, 9], id="bytes"),
        pytest.param(float("nan"), [None] * 3, id="unknown"),
    ],
)
def test_markets_of_closes_may_be_bytes_or_unknown(market, expected):
    """Bytes are what a Parquet file without a type of text has."""
    found = lab.fills.all_in_cost(
        fills(3 * DAY, -DAY, 9 * DAY + HOUR), RARE.assign(market=market), tolerance=None
    )
    assert whole(found["reference_price"]) == expected
