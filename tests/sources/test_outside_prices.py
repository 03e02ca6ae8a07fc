"""Prices of a made-up outside market: the synthetic world's true prices and a little noise, through the client."""

import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from statistics import fmean, pstdev

import duckdb
import numpy as np
import pandas as pd
import pytest
from support.clients import client_at, client_of
from support.optional import package_or_skip
from support.scripted_server import Script, by_path, scripted

import loopring_lab as lab
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer import Relayer, World
from loopring_lab.sources.client import Client

MINUTE = 60_000
HOUR = 3_600_000
DAY = 86_400_000
START = 1_640_995_200_000
HEADER = "X-Loopring-Lab-Source"


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=5, size=0.02)


@pytest.fixture(scope="module")
def client(world: World) -> Iterator[Client]:
    with Relayer(world) as relayer:
        yield client_of(relayer)


@pytest.fixture(scope="module")
def trades(client: Client) -> pd.DataFrame:
    return client.trades(11519)


def milliseconds(times: pd.Series) -> list[int]:
    return [int(moment.value // 10**6) for moment in times]


def noise_bps(
    world: World, market: str, times: list[int], prices: list[int]
) -> list[float]:
    base, quote = market.split("-")
    return [
        float(
            Fraction(
                price * world.latent_dollars(quote, at),
                world.latent_dollars(base, at) * 10**12,
            )
            - 1
        )
        * 10_000
        for at, price in zip(times, prices, strict=True)
    ]


@pytest.mark.thorough
def test_prices_cover_the_markets_from_an_hour_before_the_first_trade_to_a_day_after_the_last(
    client, trades
):
    prices = client.outside_prices(trades, every="1h")
    assert prices is not None
    assert set(prices["market"]) == set(trades["market"])
    first, last = milliseconds(trades["created_at"].agg(["min", "max"]))
    for market, rows in prices.groupby("market", observed=True):
        times = milliseconds(rows["created_at"])
        expected = range(-(-(first - HOUR) // HOUR) * HOUR, last + DAY + 1, HOUR)
        assert times == list(expected)
        sides = f"{rows['base'].iloc[0]}-{rows['quote'].iloc[0]}"
        assert {
            f"{base}-{quote}"
            for base, quote in zip(rows["base"], rows["quote"], strict=True)
        } == {sides}
        assert sides == market
    assert prices.attrs == {
        "source": "synthetic world, seed 5, size 0.02",
        "synthetic": True,
    }


def test_prices_are_the_same_for_any_kind_of_frame_with_the_categories_of_pandas(
    client, trades
):
    few = trades.head(20)
    expected = client.outside_prices(few, every="1h")
    for name in ("market", "base", "quote"):
        assert expected.dtypes[name] == few.dtypes[name]
    table = lab.engine.portable(few)
    polars = package_or_skip("polars")
    for frame in (table, polars.DataFrame(table), duckdb.from_arrow(table)):
        found = client.outside_prices(frame, every="1h")
        for name in expected:
            assert found[name].tolist() == expected[name].tolist()


def test_a_callable_hears_how_many_markets_are_read_and_may_end_it(client, trades):
    few = trades.head(300)
    count = few["market"].nunique()
    heard = []
    client.outside_prices(few, "1h", progress=lambda *counts: heard.append(counts))
    assert heard == [(done, count) for done in range(1, count + 1)]

    def enough(done: int, expected: int) -> None:
        raise KeyboardInterrupt(done, expected)

    with pytest.raises(KeyboardInterrupt):
        client.outside_prices(few, "1h", progress=enough)


@pytest.mark.thorough
def test_each_price_is_the_world_s_own_to_the_last_digit(client, world, trades):
    few = trades[trades["market"].isin(["LRC-ETH", "WBTC-USDC"])].head(40)
    prices = client.outside_prices(few)
    assert prices is not None
    assert prices.dtypes["price"] == lab.amounts.AMOUNT
    for market, rows in prices.groupby("market", observed=True):
        times = milliseconds(rows["created_at"])
        own_times, own = world.outside_prices(str(market), times[0], times[-1])
        assert times == own_times.tolist()
        assert rows["price"].tolist() == [
            Decimal(price).scaleb(-12) for price in own.tolist()
        ]


@pytest.mark.parametrize("market", ["LRC-ETH", "WBTC-USDC", "DAI-USDT"])
def test_a_price_is_the_true_one_and_a_basis_point_of_noise_that_does_not_last(
    world, market
):
    times, prices = world.outside_prices(market, START, START + 20 * DAY)
    noise = noise_bps(world, market, times[::7].tolist(), prices[::7].tolist())
    assert abs(fmean(noise)) < 0.1
    assert 0.95 < pstdev(noise) < 1.05
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.06


def test_a_caller_may_change_each_value_of_trades_and_of_prices(client, trades):
    for frame in (client.trades(11519), client.outside_prices(trades, every="1h")):
        for name in frame:
            frame.loc[0, name] = frame[name].iloc[1]
            assert frame[name].iloc[:2].nunique(dropna=False) == 1


@pytest.mark.parametrize("every", ["60", "90s", "0min", "-1h", 60, None])
def test_times_between_prices_are_whole_minutes(client, trades, every):
    with pytest.raises(lab.LabError, match="outside_prices: every=.* Give "):
        client.outside_prices(trades, every=every)


def test_trades_of_no_market_and_no_time_have_no_prices(client, trades):
    unknown = trades.head(2).assign(market=["ETH-DOGE", None])
    for frame in (trades.iloc[:0], unknown):
        found = client.outside_prices(frame)
        assert found is not None
        assert found.empty
        assert found.columns.tolist() == [
            "created_at",
            "market",
            "base",
            "quote",
            "price",
        ]
        assert found.dtypes["created_at"] == trades.dtypes["created_at"]
        assert found.dtypes["price"] == lab.amounts.AMOUNT


def served(world: World, body: bytes, *, synthetic: bool) -> Script:
    bodies = {
        "/exchange/tokens": json.dumps(world.tokens()).encode(),
        "/mix/markets": json.dumps({"markets": world.markets()}).encode(),
        "": body,
    }
    stated = json.dumps({"name": "scripted", "synthetic": synthetic})
    return by_path(bodies, {HEADER: stated})


def test_a_live_relayer_is_not_asked(world, trades):
    with scripted(served(world, b"{}", synthetic=False)) as server:
        assert client_at(server.base_url).outside_prices(trades) is None
        assert {request.path for request in server.requests} == {
            "/api/v3/exchange/tokens",
            "/api/v3/mix/markets",
        }


def test_the_largest_price_that_64_bits_hold_is_read(world, trades):
    body = struct.pack("<3q", START, MINUTE, 2**63 - 1)
    with scripted(served(world, body, synthetic=True)) as server:
        found = client_at(server.base_url).outside_prices(trades.head(1))
        assert found is not None
        assert found["price"].tolist() == [Decimal(2**63 - 1).scaleb(-12)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        struct.pack("<q", START),
        struct.pack("<3q", START, MINUTE, -1),
        struct.pack("<3q", START, MINUTE, 1) + b"1",
    ],
)
def test_prices_that_are_none_are_refused(world, trades, body):
    with scripted(served(world, body, synthetic=True)) as server:
        client = client_at(server.base_url)
        with pytest.raises(
            UnexpectedAnswer, match="outsidePrices: expected numbers of 64 bits from 0"
        ):
            client.outside_prices(trades.head(1))


def test_prices_of_markets_at_different_times_are_refused(world, trades):
    def script(number, request):
        begin = START + number * MINUTE
        body = struct.pack("<3q", begin, MINUTE, 1)
        return served(world, body, synthetic=True)(number, request)

    assert trades["market"].nunique() > 1
    with scripted(script) as server:
        client = client_at(server.base_url)
        with pytest.raises(UnexpectedAnswer, match="expected the same times"):
            client.outside_prices(trades)
