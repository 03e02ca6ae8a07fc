"""The synthetic world obeys its own rules, and every served row follows from a fill."""

import hashlib
import itertools
import json
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.optional import thorough
from support.world_facts import shares
from support.worlds import of_users, true_costs, true_orders, true_overlap

import loopring_lab
from loopring_lab.errors import LabError
from loopring_lab.relayer import World, simulation, venues
from loopring_lab.relayer.mainnet import MARKETS, POOL_FEE_BPS, TOKENS
from loopring_lab.relayer.world import price_text

pytestmark = pytest.mark.contract

FULL_DIGEST = "190c6a287c03b05b6f94151d8a7a82d010d9441c5342444fda02aa9ca1db2265"
SMALL_DIGEST = "4c12b4af4a468ef803d438a2f96716205565de4083710045e3e77855ed1f2417"

# Imports the world without the package's other modules, as a bare interpreter can.
BARE = """
import hashlib, sys, types
for name, path in (("loopring_lab", sys.argv[1]), ("loopring_lab.relayer", sys.argv[1] + "/relayer")):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from loopring_lab.relayer.world import World
world = World(seed=1, size=0.05)
digest = hashlib.sha256()
for number in range(2 * len(world.fills)):
    digest.update("|".join(world.history.row(number)).encode() + b"\\n")
print(digest.hexdigest(), end="")
"""


@pytest.fixture(scope="module")
def year():
    return World(seed=1)


@pytest.fixture(scope="module")
def rows(year):
    return [year.history.row(number) for number in range(2 * len(year.fills))]


def runs(python):
    if shutil.which(python) is None:
        return False
    return (
        subprocess.run(
            [python, "--version"], capture_output=True, timeout=600, check=False
        ).returncode
        == 0
    )


def price_of(fill):
    market = MARKETS[fill.market]
    return Fraction(
        fill.quote * 10**market.base.decimals, fill.size * 10**market.quote.decimals
    )


def digest(rows):
    return hashlib.sha256(
        "".join("|".join(row) + "\n" for row in rows).encode()
    ).hexdigest()


def test_the_same_seed_gives_the_same_bytes(rows):
    assert digest(rows) == FULL_DIGEST


@pytest.mark.parametrize(
    "python", ["python3.11", "python3.12", "python3.13", "python3.14", sys.executable]
)
def test_every_python_gives_the_same_bytes(python):
    if not runs(python):
        pytest.skip(f"needs {python}: install it, or put it on the PATH")
    command = [
        python,
        "-I",
        "-S",
        "-W",
        "error",
        "-c",
        BARE,
        str(Path(loopring_lab.__file__).parent),
    ]
    found = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False
    )
    assert (found.stdout, found.stderr) == (SMALL_DIGEST, "")


def test_accounts_have_40_to_20000_trades(year):
    sizes = {
        account: len(year.history.row_numbers(account)) for account in year.accounts
    }
    assert len(sizes) == 64
    assert min(sizes.values()) == 40
    assert max(sizes.values()) <= 20_000
    assert 2_200 <= sizes[10083] <= 2_600
    assert 55_000 <= len(year.fills) <= 60_000
    ranked = sorted(sizes.values())
    assert all(later <= 3 * earlier for earlier, later in itertools.pairwise(ranked))
    assert not set(year.pools.values()) & set(sizes)


def test_every_row_follows_from_its_fill(year, rows):
    for number, fill in enumerate(year.fills):
        market = MARKETS[fill.market]
        price = price_text(int(price_of(fill) * 10**8))
        name = "AMM-" + fill.market if fill.venue == "amm" else fill.market
        buys = fill.side == "BUY"
        received, sold = (
            (fill.size, market.quote.id) if buys else (fill.quote, market.base.id)
        )
        assert fill.fee == int(Fraction(received * fill.fee_bps, 10_000))
        assert rows[2 * number] == (
            str(fill.time_ms),
            str(fill.id),
            fill.side,
            str(fill.size),
            price,
            name,
            str(fill.fee),
            str(fill.block_id),
            str(fill.index_in_block),
            str(fill.taker),
            str(sold),
            str(fill.taker_storage),
            fill.taker_hash,
            "taker",
        )
        other_sold = market.base.id if buys else market.quote.id
        assert rows[2 * number + 1] == (
            str(fill.time_ms),
            str(fill.id),
            "SELL" if buys else "BUY",
            str(fill.size),
            price,
            name,
            "0",
            str(fill.block_id),
            str(fill.index_in_block),
            str(fill.maker),
            str(other_sold),
            str(fill.maker_storage),
            fill.maker_hash,
            "maker",
        )


def test_time_and_ids_rise_together_within_a_year(year):
    fills = year.fills
    assert all(
        a.time_ms < b.time_ms and a.id < b.id for a, b in itertools.pairwise(fills)
    )
    assert 364 <= (fills[-1].time_ms - fills[0].time_ms) / 86_400_000 <= 365
    places = [(fill.block_id, fill.index_in_block) for fill in fills if fill.block_id]
    assert places == sorted(set(places))
    assert [fill.block_id for fill in fills[-6:]] == [0] * 6
    assert len(places) == len(fills) - 6


def test_no_market_trades_before_it_was_created(year):
    first = {}
    for fill in year.fills:
        first.setdefault(fill.market, fill.time_ms)
    created = {record["market"]: record["createdAt"] for record in year.markets()}
    assert [name for name in first if first[name] < int(created[name])] == []


def test_an_order_is_one_side_of_one_market_with_one_storage_id(rows):
    orders = defaultdict(set)
    for row in rows:
        orders[row[12]].add((row[2], row[5], row[9], row[10], row[11], row[13]))
    assert {len(kinds) for kinds in orders.values()} == {1}
    slots = [next(iter(kinds))[2:5] for kinds in orders.values()]
    assert len(set(slots)) == len(slots)


@given(
    st.integers(0, 10**30)
    | st.builds(
        lambda near, zeros: near * 10**zeros,
        st.integers(524_200, 524_300),
        st.integers(0, 20),
    )
)
@example(524_288)
@example(524_290)
@example(52_429 * 10**18 - 1)
def test_amounts_are_cut_to_the_nearest_float24(amount):
    """A float24 is an integer of 19 bits times a power of ten whose exponent has 5 bits."""
    ones = [10**exponent for exponent in range(32)]
    assert venues.truncate_float24(amount) == max(
        min(amount // one, 524_287) * one for one in ones
    )
    rounded_up = (-(-amount // one) for one in ones)
    assert venues.round_up_float24(amount) == min(
        mantissa * one
        for mantissa, one in zip(rounded_up, ones, strict=True)
        if mantissa <= 524_287
    )


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("seed", "size", "cheaper"),
    [
        (1, 1, "pool"),
        (1, 0.02, "pool"),
        (2, 0.2, "neither"),
        (3, 0.2, "book"),
        (4, 0.05, "pool"),
        (5, 0.05, "book"),
    ],
)
def test_the_chain_could_hold_every_fill(seed, size, cheaper):
    for fill in World(seed=seed, size=size, cheaper=cheaper).fills:
        for amount in (fill.size, fill.quote):
            mantissa = str(amount).rstrip("0")
            assert 0 < int(mantissa) < 2**19, fill
            assert len(str(amount)) - len(mantissa) < 2**5, fill
        bought = fill.size if fill.side == "BUY" else fill.quote
        assert fill.fee * 10_000 <= bought * fill.fee_bps < (fill.fee + 1) * 10_000, (
            fill
        )
        assert 0 <= fill.fee_bps < 2**14
        assert 0 <= fill.taker_storage < 2**32 > fill.maker_storage >= 0


@pytest.mark.thorough
def test_a_pool_keeps_20_basis_points_in_the_price(year):
    """Replay a pool: the output is what x*y=k gives for 99.8 % of the input, to a float24."""
    market = MARKETS["LRC-ETH"]
    base, quote = (
        market.pool_dollars * 1000 * 10**token.decimals // token.milli_dollars
        for token in (market.base, market.quote)
    )
    for fill in year.fills:
        if (fill.market, fill.venue) != ("LRC-ETH", "amm"):
            continue
        if fill.side == "BUY":
            ideal = Fraction(quote * fill.size, base - fill.size) / Fraction(998, 1000)
            assert 0 <= fill.quote - ideal <= ideal / 52_428 + 1
            base = base - fill.size
            quote = quote + fill.quote
        else:
            paid = fill.size * Fraction(998, 1000)
            ideal = quote * paid / (base + paid)
            assert 0 <= ideal - fill.quote <= ideal / 52_428 + 1
            base = base + fill.size
            quote = quote - fill.quote


@pytest.mark.parametrize(
    ("seed", "size"),
    [(2, 0.2), thorough(1, 1), thorough(3, 0.2)],
)
def test_shares_tiers_and_sizes_are_those_of_the_real_blocks(seed, size):
    world = World(seed=seed, size=size)
    found = shares(world)
    assert 0.85 <= found.pool <= 0.91
    assert 0.52 <= found.busiest_five <= 0.63
    assert 700 <= found.median_dollars <= 1_200
    assert found.one_in_a_thousand_dollars > 15_000
    assert found.steepest_step <= 3
    fees = [fill.fee_bps for fill in world.fills if fill.venue == "amm"]
    assert 0.9 <= fees.count(10) / len(fees) < 1


@pytest.mark.parametrize("size", [1, 0.02])
def test_before_every_fill_of_a_user_the_pool_is_within_its_fee_of_the_outside_price(
    size,
):
    world = World(seed=1, size=size)
    held = {}
    for fill in world.fills:
        if fill.venue != "amm":
            continue
        market = MARKETS[fill.market]
        start = [
            market.pool_dollars * 1000 * 10**token.decimals // token.milli_dollars
            for token in (market.base, market.quote)
        ]
        base, quote = held.get(fill.market, start)
        if fill.taker not in world.arbitrageurs:
            pool = Fraction(
                quote * 10**market.base.decimals, base * 10**market.quote.decimals
            )
            gap = abs(float(pool * 10**15 / fill.latent) - 1) * 10_000
            assert gap < POOL_FEE_BPS + (1 if market.pool_dollars > 10**6 else 3)
        sign = 1 if fill.side == "BUY" else -1
        held[fill.market] = base - sign * fill.size, quote + sign * fill.quote


def test_arbitrageurs_get_better_than_the_outside_price_all_year_and_users_pay_the_pool_its_fee(
    year,
):
    costs = true_costs(year)
    corrections = [cost for cost in costs if cost.fill.taker in year.arbitrageurs]
    assert {cost.fill.venue for cost in corrections} == {"amm"}
    assert max(cost.bps - cost.fill.fee_bps for cost in corrections) < 1
    months = {cost.fill.time_ms // (30 * 86_400_000) for cost in corrections}
    assert len(months) >= 12
    assert {cost.fill.taker for cost in corrections} == set(year.arbitrageurs)
    swaps = [cost for cost in of_users(year, costs) if cost.fill.venue == "amm"]
    value = sum(cost.dollars for cost in swaps)
    paid = sum(cost.dollars * (cost.bps - cost.fill.fee_bps) for cost in swaps) / value
    assert POOL_FEE_BPS < paid < 2 * POOL_FEE_BPS


@pytest.mark.parametrize("seed", [1, thorough(4)])
@pytest.mark.parametrize(
    ("cheaper", "least", "most"),
    [("pool", -30, -4), thorough("neither", -3, 3), thorough("book", 4, 30)],
)
def test_the_cheaper_venue_is_a_setting(seed, cheaper, least, most):
    world = World(seed=seed, size=0.2, cheaper=cheaper)
    costs = of_users(world, true_costs(world))
    assert least < true_overlap(true_orders(costs)) < most


@pytest.mark.parametrize("cheaper", [thorough("pool"), thorough("neither"), "book"])
def test_arbitrageurs_can_take_the_book_too_where_it_pays_and_users_do_not_notice(
    cheaper,
):
    world = World(seed=4, size=0.2, cheaper=cheaper, book_arbitrage=True)
    costs = true_costs(world)
    corrections = [
        cost
        for cost in costs
        if cost.fill.taker in world.arbitrageurs and cost.fill.venue == "dex"
    ]
    assert {cost.fill.taker for cost in corrections} == set(world.arbitrageurs)
    on_book = [cost for cost in costs if cost.fill.venue == "dex"]
    assert len(corrections) > len(on_book) / 4
    assert max(cost.bps for cost in corrections) < 1, "fees included, they gain"
    least, most = {"pool": (-30, -4), "neither": (-3, 3), "book": (4, 30)}[cheaper]
    of_users_alone = true_overlap(true_orders(of_users(world, costs)))
    assert least < of_users_alone < most
    # Whoever takes arbitrageurs for users finds another difference than that of users.
    assert abs(true_overlap(true_orders(costs)) - of_users_alone) > 3


@pytest.mark.thorough
def test_the_cheaper_venue_can_change_on_a_day():
    world = World(seed=4, size=0.3, switched=("2022-07-01", "book"))
    orders = true_orders(of_users(world, true_costs(world)))
    july = 1_656_633_600_000
    week = july // (7 * 86_400_000)
    assert true_overlap(orders[orders["week"] < week]) < -4
    assert true_overlap(orders[orders["week"] > week]) > 5
    # Before it, the world is the one without a change.
    plain = World(seed=4, size=0.3)
    before = [fill for fill in world.fills if fill.time_ms < july]
    assert before == list(plain.fills[: len(before)])


@pytest.mark.parametrize("book_arbitrage", [False, True])
def test_fills_on_the_book_carry_what_the_pool_would_have_taken_or_given(
    book_arbitrage,
):
    world = World(seed=2, size=0.05, book_arbitrage=book_arbitrage)
    orders = defaultdict(int)
    for fill in world.fills:
        orders[fill.taker_hash] += fill.size
    pools = {name: venues.Pool(MARKETS[name]) for name in world.pools}
    for fill in world.fills:
        pool = pools.get(fill.market)
        if fill.venue == "amm":
            assert fill.pool_quote is None
            pool.trade(fill.side == "BUY", fill.size, fill.quote)
        elif pool is None:
            assert fill.pool_quote is None
        else:
            size = orders[fill.taker_hash]
            assert fill.pool_quote == pool.quote_for(fill.side == "BUY", size)


def test_a_world_is_named_by_its_settings():
    world = World(
        1,
        0.2,
        "book",
        book_arbitrage=True,
        switched=("2022-03-01", "pool"),
        drawn_accounts=True,
    )
    assert world.name == (
        "synthetic world, seed 1, size 0.2, cheaper book, arbitrage on the book, from 2022-03-01 cheaper pool, "
        "accounts drawn"
    )
    assert repr(world) == (
        "World(seed=1, size=0.2, cheaper='book', book_arbitrage=True, switched=('2022-03-01', 'pool'), "
        "drawn_accounts=True)"
    )


def test_drawn_accounts_trade_as_often_as_some_of_the_list_do():
    listed = {
        max(2, taker.fills // len(taker.accounts) * 50 // 1000)
        for taker in simulation.TAKERS
    }
    samples = []
    for seed in (1, 2):
        world = World(seed, 0.05, drawn_accounts=True)
        assert world.accounts == World(seed, 0.05).accounts
        users = set(world.accounts) - set(world.arbitrageurs)
        fills = Counter(fill.taker for fill in world.fills if fill.taker in users)
        # An order on the book that fills several times may be cut short at the end of the year.
        assert set(fills.values()) <= listed
        samples.append(sorted(fills.values()))
    assert samples[0] != samples[1]
    assert len(set(samples[0])) < len(listed), "drawn with replacement"


def test_book_prices_stand_off_the_latent_price_by_the_spread(year):
    for name in ("LRC-ETH", "ETH-USDC", "WBTC-USDC"):
        market = MARKETS[name]
        gaps = []
        for fill in year.fills:
            if (fill.market, fill.venue) == (name, "dex"):
                gap = (price_of(fill) / Fraction(fill.latent, 10**15) - 1) * (
                    1 if fill.side == "BUY" else -1
                )
                gaps.append(gap * 10_000)
        gaps.sort()
        assert gaps[len(gaps) // 50] > 0, (
            "stale quotes apart, a maker does not sell below the latent price"
        )
        usual = market.half_spread * simulation.SPREAD_PERCENT["pool"] / 1000
        assert usual / 2 <= gaps[len(gaps) // 2] <= usual + 8


def test_latent_prices_agree_across_markets(year):
    def latent(pair, at):
        base, quote = pair.split("-")
        return Fraction(year.latent_dollars(base, at), year.latent_dollars(quote, at))

    for fill in year.fills[::500]:
        at = fill.time_ms
        assert fill.latent == int(latent(fill.market, at) * 10**15)
        assert latent("LRC-ETH", at) * latent("ETH-USDC", at) == latent("LRC-USDC", at)


def test_facts_agree_with_the_registry(recordings):
    registered = {
        t["tokenId"]: t
        for t in json.loads(
            (recordings / "mainnet_registered_tokens_v36.json").read_text()
        )
    }
    pools = {
        p["ammAccountId"]: p
        for p in json.loads((recordings / "mainnet_amm_pools_v36.json").read_text())
    }
    for token in TOKENS.values():
        known = registered[token.id]
        assert (token.symbol, token.address, token.decimals) == (
            known["symbol"],
            known["address"],
            known["decimals"],
        )
        assert known["name"] in (None, token.name)
    for market in MARKETS.values():
        if market.pool is not None:
            known = pools[market.pool]
            found = (
                known["market"],
                known["baseTokenId"],
                known["quoteTokenId"],
                known["feeBips"],
            )
            assert found == ("AMM-" + market.name, market.base.id, market.quote.id, 20)


@pytest.mark.parametrize(("scaled", "text"), [
    (0, "0.0"), (1, "1.0E-8"), (35669, "3.5669E-4"), (99_999, "9.9999E-4"), (100_000, "0.001"),
    (123_456, "0.00123456"), (33_210_000, "0.3321"), (10**8, "1.0"), (200_000_000_000, "2000.0"),
    (4382385166455, "43823.85166455"),
    (10**15 - 1, "9999999.99999999"), (10**15, "1.0E7"), (123_456_789 * 10**8, "1.23456789E8"),
])  # fmt: skip
def test_prices_are_printed_like_a_java_double(scaled, text):
    assert price_text(scaled) == text


def test_recorded_prices_are_printed_the_same(recordings):
    """The recording's own prices, recomputed from the chain's exact legs."""
    block = recordings / "mainnet_block_a"
    decimals = {
        token["symbol"]: token["decimals"]
        for token in json.loads((block / "tokens.json").read_text())
    }
    prices = {}
    for path in (block / "trades").glob("*.json"):
        prices.update(
            {(row[1], row[2]): row[4] for row in json.loads(path.read_text())["trades"]}
        )
    for line in (block / "settled.jsonl").read_text().splitlines():
        fill = json.loads(line)
        up = 10 ** (decimals[fill["base"]] + 8)
        down = 10 ** decimals[fill["quote"]]
        price = price_text(int(fill["quote_amount"]) * up // (int(fill["size"]) * down))
        assert prices[fill["id"], fill["side"]] == price


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": -1},
        {"seed": "1"},
        {"seed": 1.5},
        {"seed": True},
        {"size": "1"},
        {"size": None},
        {"size": 0},
        {"size": 51},
        {"size": -1},
        {"size": float("nan")},
        {"cheaper": "amm"},
        {"cheaper": ["pool"]},
        {"switched": ("2022-07-01", ["book"])},
        {"switched": ("2022-07-01", "amm")},
        {"switched": ("2021-07-01", "book")},
        {"switched": ("July", "book")},
        {"switched": "book"},
        {"switched": (20220701, "book")},
    ],
)
def test_wrong_worlds_are_refused(wrong):
    with pytest.raises(LabError, match=f"World {next(iter(wrong))}: expected .*Give "):
        World(**wrong)
