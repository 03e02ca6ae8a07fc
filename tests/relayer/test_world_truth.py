"""Analyses of fees and fills recover the synthetic world's hidden truth from its trades alone."""

from fractions import Fraction
from itertools import pairwise
from math import isnan
from statistics import fmean, median

import pandas as pd
import pytest
from support.clients import client_of
from support.worlds import trades_of, valued_accounts

import loopring_lab as lab
from loopring_lab.relayer import Relayer
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.world import Fill, World

pytestmark = pytest.mark.contract

ACCOUNTS = [10083, 11519, 58344]


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    client = lab.connect()
    return pd.concat(
        [client.trades(account) for account in ACCOUNTS], ignore_index=True
    )


@pytest.fixture(scope="module")
def taken(trades: pd.DataFrame) -> pd.DataFrame:
    return trades[trades["role"] == "taker"].reset_index(drop=True)


@pytest.fixture(scope="module")
def truth() -> dict[int, Fill]:
    return {fill.id: fill for fill in World(seed=1).fills if fill.taker in ACCOUNTS}


def worse_bps(fill: Fill) -> float:
    """How much worse than the latent price a taker's fill was, in integers up to the last step."""
    market = MARKETS[fill.market]
    price = Fraction(
        fill.quote * 10**market.base.decimals, fill.size * 10**market.quote.decimals
    )
    gap = price / Fraction(fill.latent, 10**15) - 1
    return float(gap * 10_000) * (1 if fill.side == "BUY" else -1)


def test_every_tier_is_the_one_charged(taken, truth):
    found = lab.fees.with_tiers(taken)
    sure = found[found["tier_bps"].notna()]
    assert len(sure) >= 0.999 * len(taken)
    assert sure["tier_bps"].tolist() == [
        truth[number].fee_bps for number in sure["trade_id"]
    ]


def test_the_days_on_which_an_account_changes_tier_are_found(taken, truth):
    for account in ACCOUNTS:
        mine = taken[taken["account_id"] == account]
        found = lab.fees.tiers(mine, by="fill_type")
        found = found[found["certainty"] == "exact"]
        spans: dict[tuple[str, int], list[int]] = {}
        for fill in truth.values():
            if fill.taker == account:
                spans.setdefault((fill.venue, fill.fee_bps), []).append(fill.time_ms)
        known = {key: (min(times), max(times)) for key, times in spans.items()}
        read = {
            (row.fill_type, row.tier_bps): tuple(
                int(t.value // 10**6) for t in (row.first, row.last)
            )
            for row in found.itertuples()
        }
        assert read == known


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "token"), [(31, "USDC"), (32, "ETH")])
def test_the_fees_of_each_account_are_worth_what_they_are_said_to_be(seed, token):
    """With the prices of all accounts within 20 bps of the truth, or the stated error says that it is not."""
    world = World(seed, size=0.05)
    trades = trades_of(world)
    found = valued_accounts(world, trades, token, trades)
    stated = [one for one in found if not isnan(one.within_bps)]
    assert len(stated) > 15
    assert all(abs(one.error_bps) <= max(20, one.within_bps) for one in stated)
    assert median(abs(one.error_bps) for one in found) < 12
    assert sum(one.unpriced for one in found) / len(found) < 0.06


@pytest.mark.thorough
@pytest.mark.parametrize(("seed", "tolerance"), [(33, None), (34, "7d")])
def test_values_by_an_account_s_own_trades_say_how_far_off_they_may_be(seed, tolerance):
    """Of a handful of trades, prices are months old, and none may show how much they moved: then nothing is said."""
    world = World(seed, size=0.05)
    found = valued_accounts(world, trades_of(world), "USDC", tolerance=tolerance)
    stated = [one for one in found if not isnan(one.within_bps)]
    assert 8 <= len(stated) < len(found)
    assert sum(abs(one.error_bps) > 20 for one in stated) > 3
    # Doubles round, also where fees are in the token itself.
    held = [abs(one.error_bps) <= one.within_bps + 1e-9 for one in stated]
    assert sum(held) >= 0.95 * len(stated)


def test_costs_against_the_latent_price_are_the_worlds_own(taken, truth):
    rows = [truth[number] for number in taken["trade_id"]]
    latent = taken[["created_at", "market"]].assign(
        price=lab.amounts.to_units([fill.latent for fill in rows], 15)
    )
    found = lab.fills.all_in_cost(
        taken, latent.drop_duplicates(["created_at", "market"]), by="fill_type"
    )
    for row in found.itertuples():
        own = [worse_bps(fill) for fill in rows if fill.venue == row.fill_type]
        assert row.unpriced == 0
        # Prices have eight decimals: a fill of LRC-ETH is known to within 0.2 basis points.
        assert row.median_price_bps == pytest.approx(median(own), abs=0.1)


@pytest.mark.thorough
def test_against_outside_prices_the_cost_at_each_venue_is_the_worlds_own(
    trades, taken, truth
):
    outside = lab.connect().outside_prices(trades)
    found = lab.fills.all_in_cost(taken, outside, by="fill_type").set_index("fill_type")
    for venue, row in found.iterrows():
        own = [
            worse_bps(fill) + fill.fee_bps
            for fill in truth.values()
            if fill.venue == venue
        ]
        assert row["unpriced"] == 0
        assert row["mean_all_in_bps"] == pytest.approx(fmean(own), abs=0.3)
        assert row["median_all_in_bps"] == pytest.approx(median(own), abs=0.5)
    assert found.loc["amm", "mean_all_in_bps"] < found.loc["dex", "mean_all_in_bps"] - 5


def test_the_share_of_the_pool_in_each_class_of_size_is_the_worlds_own(taken, truth):
    profile = lab.fills.size_profile(taken, 5)
    share = profile[
        (profile["quote"] == "USDC") & (profile["fill_type"] == "amm")
    ].set_index("quantile")
    sizes = sorted(
        (fill.quote, fill.venue)
        for fill in truth.values()
        if MARKETS[fill.market].quote.symbol == "USDC"
    )
    edges = [-(-len(sizes) * part // 5) for part in range(6)]
    own = [
        sum(venue == "amm" for _, venue in sizes[start:stop]) / (stop - start)
        for start, stop in pairwise(edges)
    ]
    assert share["share"].tolist() == pytest.approx(own, abs=0.01)


@pytest.mark.parametrize("seed", [1, 5])
def test_the_planted_overcharge_is_what_the_schedule_check_finds(seed):
    world = World(seed, size=0.05)
    overcharged, irregular = world.planted
    with Relayer(world) as relayer:
        client = client_of(relayer)
        rows = relayer.rows(overcharged)[::-1]
        trades = client.trades(overcharged)
        odd = client.trades(irregular)
    above = []
    for row in rows:
        size = int(row[3])
        price = Fraction(row[4])
        base, quote = (world_decimals(name) for name in row[5].split("-"))
        received = (
            size
            if row[2] == "BUY"
            else size * (price + Fraction(1, 10**8)) / 10 ** (base - quote)
        )
        above += [int(row[1])] if int(row[6]) * 10_000 > received * 30 else []
    found = lab.fees.schedule_check(trades, 30)
    assert found["trade_id"].tolist() == above
    # The world overcharges each eighth fill of this account, at 45 basis points.
    assert len(above) == len(rows) // 8 == 6
    assert lab.fees.tiers(trades)["tier_bps"].tolist() == [30, 45]
    assert len(lab.anomalies(trades)) == 0
    assert [reason.split(":")[0] for reason in lab.anomalies(odd)["reason"]] == [
        "created_at is before 2015",
        "price is 0, so the notional is unknown",
        "size 'n/a' is not a whole number of at most 76 digits",
        "fee is more than the amount received",
        "tokenId is neither token of the market",
        "the row is not a trade",
    ]


def world_decimals(symbol: str) -> int:
    return next(
        token["decimals"]
        for token in World(size=0.001).tokens()
        if token["symbol"] == symbol
    )


def test_planted_faults_touch_no_other_account():
    world = World(seed=3, size=0.01)
    planted = set(world.planted)
    assert not planted & {*world.accounts, *world.pools.values()}
    assert not planted & {
        account for fill in world.fills for account in (fill.taker, fill.maker)
    }
    rows = [
        world.history.row(n) for one in planted for n in world.history.row_numbers(one)
    ]
    assert not {row[1] for row in rows if len(row) > 1} & {
        str(fill.id) for fill in world.fills
    }
