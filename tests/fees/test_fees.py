"""Fees: the settled facts of a block, properties that hold for all trades, and errors."""

import random
import statistics
from collections import defaultdict
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from scipy import stats
from support.engines import QUICK, on, result_rows
from support.optional import thorough
from support.settled_block import Settled, client_of
from support.trade_histories import Drawn, frame_of
from support.wire_rows import page, read, row, tokens

import loopring_lab as lab
from loopring_lab.engine import portable
from loopring_lab.errors import AmountError, LabError
from loopring_lab.relayer import World

UNIT = 10**18


@pytest.fixture(scope="module")
def client(block_folder: Path) -> lab.Client:
    return client_of(block_folder)


@pytest.fixture(scope="module")
def history() -> pd.DataFrame:
    """Read an account's year in the synthetic world: many markets, not all of them in one step from USDT."""
    return lab.connect().trades(account_id=10083)


def facts_of(frame: pd.DataFrame, settled: Settled) -> list[dict[str, Any]]:
    return [
        settled[pair] for pair in zip(frame["trade_id"], frame["side"], strict=True)
    ]


@pytest.mark.parametrize(
    ("token", "amount"), [("base", "volume"), ("quote", "notional")]
)
def test_an_amount_in_an_unknown_token_is_in_no_sum(token, amount):
    """It may be in any token, and was added to those of the one that is known."""
    frame = read(
        page(
            [
                row(id="1", feeAmount="0", size=str(2 * UNIT), price="3"),
                row(id="2", feeAmount="0", size=str(4 * UNIT), price="3"),
            ]
        )
    )
    frame[token] = frame[token].astype(object)
    frame.loc[1, token] = None
    known = {"volume": 2 * UNIT, "notional": 6 * UNIT}
    (fees,) = result_rows(lab.fees.summary(frame, by="market"))
    assert fees[token] == frame.loc[0, token]
    assert fees[amount] == known[amount]
    (order,) = result_rows(lab.fills.breakdown(frame))
    assert order[amount] == known[amount]


@pytest.mark.parametrize("engine", QUICK)
def test_a_rate_of_few_decimals_is_exactly_that_number(engine):
    """Amounts have 25 digits and doubles 16: quotients of doubles are 9.999999999999998 for every third."""
    chance = random.Random(6)
    rates = {
        100 + number: chance.choice(["10", "20", "2.5", "7.75"]) for number in range(60)
    }
    rows = []
    for account, rate in rates.items():
        received = chance.randrange(10**20, 10**21) * 10 ** chance.choice([6, 16])
        fee = Fraction(rate) * received / 10_000
        assert fee.denominator == 1
        rows.append(
            row(
                id=str(account),
                accountId=str(account),
                side="BUY",
                size=str(received),
                feeAmount=str(fee.numerator),
            )
        )
    found = result_rows(
        lab.fees.summary(on(engine, read([page(rows)])), by="account_id")
    )
    assert {line["account_id"]: line["bps"] for line in found} == {
        account: float(rate) for account, rate in rates.items()
    }
    assert {line["zero_fee_share"] for line in found} == {0.0}


# Against the facts of a settled block


@pytest.mark.parametrize("listed", [True, False])
def test_tiers_are_the_chain_s_basis_points(client, block, settled, listed):
    found = result_rows(
        lab.fees.with_tiers(block, tokens=client.tokens() if listed else None)
    )
    assert [fill["tier_bps"] for fill in found] == [
        fact["fee_bips"] for fact in facts_of(block, settled)
    ]
    assert {fill["certainty"] for fill in found} == {"exact"}


def test_fee_totals_are_the_chain_s_integers(client, block, settled):
    decimals = client.tokens()["decimals"]
    sums: dict[str, int] = defaultdict(int)
    for fact in settled.values():
        sums[fact["fee_token"]] += int(fact["fee"]) * 10 ** (
            18 - int(decimals[fact["fee_token"]])
        )
    found = result_rows(lab.fees.summary(block))
    assert {line["fee_token"]: line["fee"] for line in found} == sums


@pytest.mark.parametrize("bps", [9, 24.5])
def test_fills_above_a_schedule_are_those_the_chain_says(block, settled, bps):
    """Fees are whole basis points: one that was charged 1 more cannot hide, unless it is less than a unit."""
    found = lab.fees.schedule_check(block, bps)
    above = {pair for pair, fact in settled.items() if fact["fee_bips"] > bps}
    assert set(zip(found["trade_id"], found["side"], strict=True)) == above
    assert (found["verdict"] == "above").all()
    assert (found["schedule_bps"] == bps).all()


def test_excess_is_what_was_charged_beyond_the_exact_amount_allowed(
    client, block, settled
):
    decimals = client.tokens()["decimals"]
    bps = Fraction(19, 2)
    found = lab.fees.schedule_check(block, "9.5")
    assert len(found) > 100
    for line, fact in zip(found.itertuples(), facts_of(found, settled), strict=True):
        leg = "size" if fact["side"] == "BUY" else "quote_amount"
        exact = (
            Fraction(int(fact[leg]), 10 ** int(decimals[fact["fee_token"]]))
            * bps
            / 10_000
        )
        allowed = Fraction(line.allowed)
        slack = Fraction(1, UNIT)
        if leg == "size":
            assert allowed <= exact < allowed + slack
        else:  # the price was cut: never less is allowed than the chain's own amount allows
            size = Fraction(int(fact["size"]), 10 ** int(decimals[fact["base"]]))
            assert (
                exact - slack
                < allowed
                < exact + (size / 10**8 + 3 * slack) * bps / 10_000
            )
        # Amounts of frames have 18 decimals, so what is allowed is cut once.
        assert Fraction(line.excess) == Fraction(line.fee) - allowed


# Tiers


def one_fill(size: int, fee: int, **members: str) -> pd.DataFrame:
    return frame_of(
        [
            (
                "amm",
                row(
                    side="BUY",
                    tokenId="0",
                    size=str(size),
                    feeAmount=str(fee),
                    **members,
                ),
            )
        ]
    )


def certainty(frame: pd.DataFrame) -> tuple[int | None, str]:
    (line,) = result_rows(lab.fees.with_tiers(frame, tokens=tokens()))
    return line["tier_bps"], line["certainty"]


@settings(max_examples=8)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10_000),
            st.integers(1, 10**30),
            st.integers(1, 99_999),
            st.integers(0, 9),
        ),
        min_size=10,
    )
)
def test_the_tier_charged_on_what_was_really_received_is_never_left_out(sold):
    """A price has digits beyond the 8 that are printed, and the fee is taken from the exact amount."""
    drawn: list[Drawn] = []
    for tier, size, price, more in sold:
        fee = size * (price * 10 + more) // 10**9 * tier // 10_000
        drawn.append(
            ("dex", row(size=str(size), price=f"{price}E-8", feeAmount=str(fee)))
        )
    found = lab.fees.with_tiers(frame_of(drawn), tokens=tokens())
    for line in result_rows(found):
        charged, *_ = sold[line["trade_id"]]
        assert line["certainty"] not in ("none", "unknown")
        assert line["certainty"] != "exact" or line["tier_bps"] == charged


# Before 2023 the second line does not count, and all fills below are of 1970.
LINES = [
    {"fill_type": "amm", "bps": 10},
    {"since": "2023", "bps": 12},
    {"bps": 20},
]


UNKNOWN_TIME = pd.Series(pd.NaT, index=[0], dtype="datetime64[ms, UTC]")


def like_fills(fees: list[tuple[int, int]], **columns: Any) -> pd.DataFrame:
    """Make fills of one account, a minute apart, by size and fee in smallest units of an 18-digit token."""
    rows = [
        row(
            side="BUY",
            tokenId="0",
            size=str(size),
            feeAmount=str(fee),
            createdAt=str(60_000 * number),
        )
        for number, (size, fee) in enumerate(fees, start=1)
    ]
    return frame_of([("amm", one) for one in rows]).assign(**columns)


# 10 bps for certain; 10 or 11
LARGE = (10**20, 10**17)
SMALL = (9_000, 9)


def small_ones(*frames: pd.DataFrame) -> set[tuple[int | None, str]]:
    found = result_rows(
        lab.fees.with_tiers(pd.concat(frames, ignore_index=True), tokens=tokens())
    )
    return {
        (line["tier_bps"], line["certainty"]) for line in found if line["size"] < UNIT
    }


def test_a_small_fee_borrows_a_tier_from_like_fills_before_and_after():
    assert small_ones(like_fills([SMALL])) == {(None, "ambiguous")}
    around = like_fills([*[LARGE] * 25, SMALL, *[LARGE] * 25])
    assert small_ones(around) == {(10, "likely")}
    assert small_ones(around.iloc[1:]) == {(None, "ambiguous")}
    assert small_ones(like_fills([SMALL, *[LARGE] * 60])) == {(None, "ambiguous")}
    assert small_ones(like_fills([*[LARGE] * 60, SMALL])) == {(None, "ambiguous")}
    rival = (10**20, 11 * 10**16)
    assert small_ones(around, like_fills([rival])) == {(None, "ambiguous")}
    unexplained = (900, 1)  # 12 to 22: another tier is charged too
    assert small_ones(around, like_fills([unexplained])) == {(None, "ambiguous")}


@pytest.mark.parametrize(
    "other",
    [
        {"account_id": 9},
        {"account_id": None},
        *map(thorough, ({"fill_type": "dex"}, {"role": "maker"}, {"quote": "DAI"})),
    ],
    ids=str,
)
def test_a_tier_is_borrowed_from_like_fills_only(other):
    small = like_fills([*[LARGE] * 25, SMALL, *[LARGE] * 25]).iloc[[25]]
    large = like_fills([*[LARGE] * 50, *[LARGE] * 25])
    assert small_ones(large, small) == {(10, "likely")}
    assert small_ones(large, small.assign(**other)) == {(None, "ambiguous")}
    rival = like_fills([(10**20, 11 * 10**16)]).assign(**other)
    assert small_ones(large, small, rival) == {(10, "likely")}


def test_fees_that_no_tier_explains_are_said_to_have_none():
    large = 10**20
    assert certainty(one_fill(large, large * 105 // 100_000)) == (None, "none")
    assert certainty(one_fill(large, large * 2)) == (None, "none")
    assert certainty(one_fill(0, 5)) == (None, "none")
    whole_fee = one_fill(large, large // 1000)
    assert certainty(whole_fee.assign(fee=-whole_fee["fee"])) == (None, "none")
    assert certainty(whole_fee.assign(size=-whole_fee["size"])) == (None, "none")
    assert certainty(whole_fee.assign(fee=None)) == (None, "unknown")
    assert certainty(whole_fee.assign(fee_token="USDT")) == (None, "unknown")


@pytest.mark.parametrize("tier", [3, 9_999, 10_000])
def test_tiers_of_amounts_as_large_as_a_column_holds_are_exact(tier):
    largest = 10**38 - 1
    fee = largest * tier // 10_000
    assert certainty(one_fill(largest, fee)) == (tier, "exact")
    assert certainty(one_fill(largest, fee - 1)) == (None, "none")
    # The next tier would have charged nearly the whole amount, in ten-thousandths, more.
    above = min(fee, largest * 9_999 // 10_000) + 1
    assert certainty(one_fill(largest, above)) == (None, "none")


def test_without_a_token_list_tiers_are_never_wrong_only_less_certain():
    even = one_fill(10**7, 10**4)
    assert certainty(even) == (10, "exact")
    assert result_rows(lab.fees.with_tiers(even))[0]["certainty"] == "ambiguous"
    # A fee that is not known says nothing of its token's places.
    free = like_fills([(5 * 10**19, 0), (4 * 10**19, 4 * 10**16)])
    expected = lab.fees.with_tiers(free[1:])["certainty"].tolist()
    unknown = free.assign(fee=[None, free["fee"][1]], size=[None, free["size"][1]])
    found = lab.fees.with_tiers(unknown)["certainty"].tolist()
    assert found == ["unknown", *expected] == ["unknown", "ambiguous"]
    # In smallest units of 6 decimals: 12 bps and 10 bps, or one of 10 to 19 if the token had only 4.
    pair = like_fills(
        [(10_000_000 * 10**12, 12_000 * 10**12), (100_000 * 10**12, 100 * 10**12)]
    )
    for repeated in (1, 60):
        found = lab.fees.with_tiers(pd.concat([pair] * repeated, ignore_index=True))
        assert set(found["tier_bps"].dropna()) == {12}
        assert found["certainty"].tolist() == ["exact", "ambiguous"] * repeated
    # The bits of these amounts end in 17 zeros, the digits of the fee in 12.
    (line,) = result_rows(lab.fees.with_tiers(like_fills([(8 * 10**16, 96 * 10**12)])))
    assert (line["tier_bps"], line["certainty"]) == (12, "exact")


def test_a_token_list_that_was_read_from_a_file_has_its_symbols_in_a_column(history):
    tokens = lab.connect().tokens()
    expected = lab.fees.tiers(history, tokens=tokens)
    assert_frame_equal(lab.fees.tiers(history, tokens=tokens.reset_index()), expected)


# Values in one token


Traded = tuple[str, list[Any]]


def traded(
    market: str, second: float, price: str, order: int = 0, **members: str
) -> Traded:
    """Make a fill that receives one unit of a token of 18 decimals and pays it all as the fee."""
    paid = {"side": "BUY", "tokenId": "0", "size": str(UNIT), "feeAmount": str(UNIT)}
    times = {
        "createdAt": str(int(second * 1000)),
        "orderHash": f"0x{order or int(second * 1000):064x}",
    }
    return market, row(price=price, **(paid | times | members))


def frame_traded(drawn: list[Traded]) -> pd.DataFrame:
    pairs = [market.split("-") for market, _ in drawn]
    frame = frame_of([("amm", members) for _, members in drawn]).sort_values(
        "trade_id", ignore_index=True
    )
    columns = {
        "market": [market for market, _ in drawn],
        "base": [base for base, _ in pairs],
    }
    return frame.assign(
        **columns, quote=[quote for _, quote in pairs], fee_token=columns["base"]
    )


def values_of(
    drawn: list[Traded], token: str = "USDT", **arguments: Any
) -> list[tuple[float | None, str | None]]:
    frame = frame_traded(drawn)
    found = lab.fees.in_token(frame, token, **arguments)
    shuffled = frame.sample(frac=1, random_state=len(drawn))
    mixed = lab.fees.in_token(shuffled, token, **arguments).sort_values(
        "trade_id", ignore_index=True
    )
    assert_frame_equal(mixed, found)
    return [(line["fee_value"], line["value_path"]) for line in result_rows(found)]


def test_the_fewest_markets_lead_to_the_token_however_old_or_rare_their_prices_are():
    direct = traded("LRC-USDT", 10, "9.0")
    around = [
        traded("LRC-ETH", 1, "0.5"),
        traded("LRC-ETH", 2, "0.5"),
        traded("ETH-USDT", 3, "2000.0"),
    ]
    fill = traded("LRC-ETH", 20, "0.7")
    assert values_of([*around, direct, fill])[-1] == (9, "LRC>USDT")
    assert values_of([*around, fill])[-1] == (1000, "LRC>ETH>USDT")


def test_of_paths_as_short_the_one_with_most_of_the_token_traded_counts_then_the_name():
    """Both lead from LRC to USDT in two markets; a price file has as many prices of each."""
    markets = [("DAI-USDT", "1.0"), ("ETH-USDT", "2000.0")]
    closes = [("LRC-DAI", "3.0"), ("LRC-ETH", "0.002"), *markets]
    listed = [traded(market, 1, price) for market, price in closes]
    prices = frame_traded(listed)[["created_at", "base", "quote", "price"]]
    by_eth = traded("LRC-ETH", 20, "0.002")
    by_dai = traded("LRC-DAI", 21, "3.0")
    for drawn, expected in [
        ([by_eth, by_dai, by_eth], (4, "LRC>ETH>USDT")),
        ([by_eth, by_dai, by_dai], (3, "LRC>DAI>USDT")),
        # The same amount in both
        ([by_eth, by_dai], (3, "LRC>DAI>USDT")),
    ]:
        fills = frame_traded(drawn)
        found = result_rows(lab.fees.in_token(fills, "USDT", prices))
        assert [(row["fee_value"], row["value_path"]) for row in found] == [
            expected
        ] * len(drawn)


def test_prices_that_name_no_tokens_are_refused_with_the_remedy():
    fills = frame_traded([traded("LRC-USDT", 20, "2.0")])
    prices = frame_traded([traded("LRC-USDT", 1, "2.0")])
    unnamed = prices.assign(base=None, quote=None)
    with pytest.raises(LabError, match="name no base and quote token"):
        lab.fees.in_token(fills, "USDT", unnamed)
    assert lab.fees.in_token(fills, "USDT", prices)["fee_value"].tolist() == [2]


@pytest.mark.parametrize("kind", [pd.DataFrame, pa.Table.from_pandas])
def test_a_market_has_one_pair_of_tokens_in_trades_and_prices(kind):
    """The price of a swapped pair is one divided by it."""
    fills = frame_traded([traded("LRC-USDT", second, "2.0") for second in (1, 20)])
    swapped = fills.assign(base="USDT", quote="LRC")
    says = "of LRC-USDT have base LRC and quote USDT, others base USDT and quote LRC"
    for trades, prices in [
        (fills, swapped),
        (fills, pd.concat([fills, swapped])),
        (pd.concat([fills, swapped]), None),
    ]:
        with pytest.raises(LabError, match=says):
            lab.fees.in_token(kind(trades), "USDT", prices)
    # Prices without the market's name are those of the pair that they name.
    unnamed = swapped.assign(price=fills["price"]).drop(columns="market")
    found = lab.fees.in_token(fills, "USDT", unnamed)
    assert found["fee_value"].tolist()[1] == 0.5


def test_what_two_markets_of_a_pair_traded_is_added_up():
    """A fill in each of two markets of LRC and ETH is more than one in LRC-DAI, of as much."""
    closes = [("LRC-DAI", "3.0"), ("LRC-ETH", "0.002"), ("DAI-USDT", "1.0")]
    closes.append(("ETH-USDT", "2000.0"))
    listed = [traded(market, 1, price) for market, price in closes]
    prices = frame_traded(listed)[["created_at", "base", "quote", "price"]]
    drawn = [traded("LRC-ETH", 20, "0.002"), traded("LRC-ETH", 21, "0.002")]
    fills = frame_traded([*drawn, traded("LRC-DAI", 22, "3.0")])
    fills["market"] = ["LRC-ETH", "OLD-NAME", "LRC-DAI"]
    found = lab.fees.in_token(fills, "USDT", prices)
    assert set(found["value_path"]) == {"LRC>ETH>USDT"}


def test_a_price_older_than_the_tolerance_is_no_price():
    drawn = [traded("LRC-USDT", 1, "2.0"), traded("LRC-USDT", 61, "3.0")]
    assert values_of(drawn, tolerance="60s")[1] == (2, "LRC>USDT")
    assert values_of(drawn, tolerance="59s")[1] == (None, None)
    week = 7 * 86_400
    assert values_of([drawn[0], traded("LRC-USDT", week + 1, "3.0")])[1] == (
        2,
        "LRC>USDT",
    )
    assert values_of([drawn[0], traded("LRC-USDT", week + 1.001, "3.0")])[1] == (
        None,
        None,
    )
    assert values_of(
        [drawn[0], traded("LRC-USDT", week + 1.001, "3.0")], tolerance=None
    )[1] == (2, "LRC>USDT")


def test_a_fill_is_not_valued_at_its_own_price_nor_its_order_s():
    orders = [(1, "2.0", 1), (2, "3.0", 2), (3, "4.0", 2)]
    frame = frame_traded(
        [traded("LRC-USDT", second, price, order) for second, price, order in orders]
    )
    other_side = frame.assign(side="SELL", account_id=9, order_hash="0x" + "f" * 64)
    outside = frame[["created_at", "base", "quote", "price"]]
    for prices in (None, frame, pd.concat([other_side, frame]), outside):
        found = result_rows(lab.fees.in_token(frame, "USDT", prices))
        assert [line["fee_value"] for line in found] == [None, 2, 2]


def test_sums_say_how_old_their_prices_are_and_how_far_off_they_may_be(history):
    valued, summed = (
        result_rows(lab.fees.in_token(history, "USDC", by=by)) for by in (None, [])
    )
    for line in summed:
        mine = [
            one
            for one in valued
            if one["fee_token"] == line["fee_token"] and one["priced_at"] is not None
        ]
        ages = sorted(one["created_at"] - one["priced_at"] for one in mine)
        assert line["unpriced"] == line["fills"] - len(ages)
        assert line["max_age"] == max(ages, default=None)
        if ages:
            assert line["median_age"] == pytest.approx(statistics.median(ages), abs=0.5)
            # Fees in the token itself need no price.
            assert (line["within_bps"] == 0) == (line["fee_token"] == "USDC")


def test_how_far_a_sum_may_be_off_is_unknown_where_no_later_prices_show_it():
    """A price of 2 dollars becomes one of 2.2 on the fifth day, and no later one shows what that becomes."""
    day = 86_400
    closes = [traded("LRC-USDT", 1, "2.0"), traded("LRC-USDT", 5 * day, "2.2")]
    prices = frame_traded(closes)[["created_at", "base", "quote", "price"]]
    before = [traded("LRC-USDT", 4 * day + hour, "2.1") for hour in (0, 3600)]
    after = traded("LRC-USDT", 6 * day, "2.3")
    # Fills of a single day of which each may be off by 10 %: by that, and Student's t for one day.
    of_one_day = 1000 * (1 + stats.t.ppf(0.975, 1))
    for drawn, expected in [
        ([after], None),
        # More than half of the value is that after the last price.
        ([before[0], after], None),
        ([*before, after], of_one_day),
        (before, of_one_day),
    ]:
        fills = frame_traded(drawn)
        (line,) = result_rows(lab.fees.in_token(fills, "USDT", prices, by=[]))
        assert line["unpriced"] == 0
        # The library's expansion of Student's t falls short by a ninth for one day.
        within = expected and pytest.approx(expected, rel=0.12)
        assert line["within_bps"] == within


# Schedules


def test_the_first_line_that_fits_counts_from_and_until_its_moments(history):
    """The world records what it charged each taker."""
    truth = {fill.id: fill for fill in World(seed=1).fills}
    taken = history[history["role"] == "taker"]
    moment = taken["created_at"].iloc[600]
    lines = [
        {"market": "LRC-ETH", "fill_type": "dex", "until": moment, "bps": 25},
        {"market": "LRC-ETH", "fill_type": "dex", "bps": 19},
        {"fill_type": "amm", "since": moment, "bps": 9},
        {"fee_token": "ETH", "bps": 7.5},
    ]

    def due(fill: Any) -> float:
        if fill.market == "LRC-ETH" and fill.fill_type == "dex":
            return 25 if fill.created_at < moment else 19
        if fill.fill_type == "amm" and fill.created_at >= moment:
            return 9
        return 7.5 if fill.fee_token == "ETH" else 21

    found = lab.fees.schedule_check(taken, lines, others=21)
    charged = {
        fill.trade_id: due(fill)
        for fill in taken.itertuples()
        if truth[fill.trade_id].fee_bps > due(fill)
    }
    assert dict(zip(found["trade_id"], found["schedule_bps"], strict=True)) == charged
    assert set(charged.values()) == {25.0, 19.0, 9.0, 7.5, 21.0}
    as_frame = pd.DataFrame([*lines, {"bps": 21}])
    assert_frame_equal(lab.fees.schedule_check(taken, as_frame), found)


@pytest.mark.parametrize(
    ("known", "bps", "verdict"),
    [
        ({}, 11, "above"),
        ({"fill_type": "dex"}, 21, "above"),
        ({"fill_type": None}, 10, None),
        ({"fill_type": None}, 11, "unknown"),
        ({"fill_type": None}, 21, "above"),
        ({"fill_type": "dex", "created_at": UNKNOWN_TIME}, 12, None),
        ({"fill_type": "dex", "created_at": UNKNOWN_TIME}, 13, "unknown"),
        ({"fee": None}, 10, "unknown"),
        ({"fee_token": "USDT"}, 10, "unknown"),
    ],
)
def test_a_verdict_is_that_of_every_line_that_may_apply(known, bps, verdict):
    size = 10**20
    fill = one_fill(size, size * bps // 10_000, createdAt="60000").assign(**known)
    found = lab.fees.schedule_check(fill, LINES)
    assert found["verdict"].tolist() == [verdict] * (verdict is not None)


def test_fills_without_a_line_are_refused_left_out_or_given_a_rate(history):
    lines = [{"market": "LRC-ETH", "bps": 0}]
    with pytest.raises(
        LabError,
        match=r"fills match no line of the schedule, such as one in .*others=None",
    ):
        lab.fees.schedule_check(history, lines)
    left_out = lab.fees.schedule_check(history, lines, others=None)
    assert set(left_out["market"]) == {"LRC-ETH"}
    rated = lab.fees.schedule_check(history, lines, others=10_000)
    assert_frame_equal(rated, left_out)
    everywhere = [
        lab.fees.schedule_check(history, lines, others=0),
        lab.fees.schedule_check(history, 0),
    ]
    assert_frame_equal(*(found.drop(columns="line") for found in everywhere))


NAMED: dict[str, tuple[dict[str, Any], str]] = {
    "a venue in capitals": ({"fill_type": "AMM"}, "Did you mean 'amm'?"),
    "a market with its pool's prefix": (
        {"market": "AMM-LRC-ETH"},
        "Did you mean 'LRC-ETH'?",
    ),
    "an account as text": ({"account_id": "10083"}, "Did you mean 10083?"),
    "nothing like it": ({"order_hash": "?"}, "Values there: '0x"),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_value_that_occurs_nowhere_cannot_pass_an_audit(history, case):
    match, hint = NAMED[case]
    frame = history.head(500)
    for others in (100, "refuse"):
        with pytest.raises(
            LabError, match="line 1 of the schedule: .* occurs nowhere"
        ) as refused:
            lab.fees.schedule_check(
                frame, [{"bps": 1, "side": "BUY"}, {**match, "bps": 0}], others
            )
        assert hint in str(refused.value)


def test_no_tier_fits_the_smallest_fee_on_nothing(history):
    one = history[history["fee_token"] == history["base"]].head(1)
    nothing = one.assign(size=one["size"] * 0, notional=one["notional"] * 0)
    smallest = nothing.assign(fee=one["fee"] * 0 + Decimal("1e-18"))
    assert lab.fees.with_tiers(smallest)["certainty"].tolist() == ["none"]


@pytest.mark.parametrize("name", ["size", "own"])
def test_amounts_cannot_be_matched(history, name):
    own = history.assign(own=history["size"])
    line = {name: own[name].iloc[0], "bps": 20}
    with pytest.raises(
        LabError, match=f"matches {name}, and amounts cannot be matched"
    ):
        lab.fees.schedule_check(own, [line, {"bps": 100}])


def test_a_value_that_may_be_absent_is_allowed_by_name(history):
    lines = [{"market": "NEW-USDT", "bps": 0}, {"bps": 30}]
    with pytest.raises(
        LabError,
        match=r"'NEW-USDT' occurs nowhere .* Use absent='ignore' if it need not",
    ):
        lab.fees.schedule_check(history, lines)
    assert lab.fees.schedule_check(history, lines, absent="ignore").empty
    pools = history[history["fill_type"] == "amm"]
    assert lab.fees.schedule_check(
        pools, [{"fill_type": "dex", "bps": 0}, {"bps": 30}]
    ).empty
    with pytest.raises(LabError, match="Did you mean 'dex'"):
        lab.fees.schedule_check(
            pools, [{"fill_type": "dexx", "bps": 0}, {"bps": 30}], absent="ignore"
        )
    assert lab.fees.schedule_check(history.iloc[:0], lines).empty


@pytest.mark.parametrize(
    "several",
    [list, set, np.array],
    ids=lambda kind: kind.__name__,
)
def test_a_line_takes_any_of_several_values(history, several):
    markets = ["LRC-ETH", "ETH-USDT"]
    one_by_one = [{"market": market, "bps": 3} for market in markets]
    found = lab.fees.schedule_check(
        history, [{"market": several(markets), "bps": 3}], others=None
    )
    apart = lab.fees.schedule_check(history, one_by_one, others=None)
    assert set(found["market"]) == set(markets)
    assert_frame_equal(found.drop(columns="line"), apart.drop(columns="line"))


def test_portable_refuses_what_other_engines_cannot_hold(history):
    frame = history.head(4)
    with pytest.raises(
        LabError,
        match=r"takes a pandas or pyarrow frame. Frames of other engines need no",
    ):
        portable(on("polars", frame))
    with pytest.raises(
        LabError, match=r"a time is finer than a millisecond. Round it down with"
    ):
        portable(frame.assign(seen=pd.Timestamp("2022-01-01T00:00:00.0001", tz="UTC")))
    assert (
        portable(frame.assign(part=pd.cut(frame["fee_bps"], 3)))["part"].type
        == pa.string()
    )
    large = frame.assign(
        fee=pd.array([Decimal(10**20)] * 4, pd.ArrowDtype(pa.decimal256(76, 18)))
    )
    with pytest.raises(
        AmountError,
        match=r"fee of row 0 is 10+.*, which does not fit 20 digits before the point",
    ):
        portable(large)
    # Arrow's own cast takes this one for -51574275424577953596.72: it multiplies modulo 2**128.
    wrapping = [Decimal("-5981034194458268188675220088511")] * 4
    narrow = frame.assign(fee=pd.array(wrapping, pd.ArrowDtype(pa.decimal128(38, 0))))
    with pytest.raises(AmountError, match=r"fee of row 0 is -5981034194458268188675"):
        portable(narrow)


# In words


def test_the_rate_is_said_of_the_token_with_most_fills(history):
    paid = lab.fees.summary(history)
    said = lab.fees.describe(paid)
    row = paid.loc[paid["fills"].idxmax()]
    assert said == (
        f"Fees paid in {row['fee_token']} ({row['fills']:,} of {len(history):,} fills): {row['bps']:.2f} bps by "
        f"amount, {row['median_bps']:.2f} bps for the median fill."
    )
    assert lab.fees.describe(portable(paid)) == said
    assert lab.fees.describe(paid.head(0)) == "No fees."
    assert lab.fees.describe(paid.assign(bps=np.nan)) == "No fee has a rate."


def test_the_group_whose_rate_is_said_is_named(history):
    part = history.tail(60).assign(desk=pd.array(["a", None] * 30, "string"))
    paid = lab.fees.summary(part, by=["market", "desk"])
    row = paid.loc[paid["fills"].idxmax()]
    desk = "unknown" if pd.isna(row["desk"]) else row["desk"]
    assert lab.fees.describe(paid).startswith(
        f"Fees paid in {row['fee_token']} where market is {row['market']} and desk is {desk} ({row['fills']} of 60 "
        f"fills): {row['bps']:.2f} bps by amount, "
    )
    assert lab.fees.describe(
        lab.fees.summary(portable(part), by=["market", "desk"])
    ) == (lab.fees.describe(paid))


@pytest.mark.parametrize(
    ("moment", "every", "tz", "named"),
    [
        ("2022-05-31 13:45Z", "1q", "UTC", "in the period from 2022-04-01"),
        (
            "2022-05-31 13:45Z",
            "1h",
            "UTC",
            "in the period from 2022-05-31 13:00:00+00:00",
        ),
        (
            "2022-05-31 13:45Z",
            "1w",
            "Europe/Berlin",
            "in the period from 2022-05-30",
        ),
        # That day began at one o'clock.
        (
            "2022-09-11 12:00Z",
            "1d",
            "America/Santiago",
            "in the period from 2022-09-11 01:00:00-03:00",
        ),
        (
            "2022-09-11 12:00Z",
            "1h",
            "America/Santiago",
            "in the period from 2022-09-11 09:00:00-03:00",
        ),
        (None, "1d", "UTC", "where period is unknown"),
    ],
)
def test_the_period_whose_rate_is_said_is_named(history, moment, every, tz, named):
    created_at = pd.to_datetime([moment], utc=True).as_unit("ms")
    at_once = history.head(1).assign(created_at=created_at)
    said = lab.fees.describe(lab.fees.over_time(at_once, every, tz=tz))
    [token] = at_once["fee_token"]
    assert said.startswith(f"Fees paid in {token} {named} (1 of 1 fills): ")
    by_side = lab.fees.describe(lab.fees.over_time(at_once, every, by="side"))
    assert f"side is {at_once['side'].iloc[0]} (1 of 1 fills): " in by_side


def test_the_worth_of_fees_is_said_with_its_error_and_what_is_missing():
    values = pd.DataFrame(
        {
            "fills": [90, 10, 5],
            "unpriced": [10, 0, 5],
            "fee_value": [2.0, 1.0, None],
            "value_token": "ETH",
            "within_bps": [30.0, 0.0, None],
        }
    )
    said = lab.fees.describe(values)
    # Weighted by value: 2 ETH within 30 and 1 ETH within 0.
    assert said == "Fees of 90 of 105 fills: 3 ETH, within 20.0 bps."
    unknown = lab.fees.describe(values.assign(within_bps=np.nan))
    assert unknown.endswith("ETH, by how much that may be off is unknown.")
    # A rebate may be off as a fee may: 1.5 more or less by 2 ETH within 75 bps and -0.5 ETH within 60.
    rebates = values.assign(fee_value=[2.0, -0.5, None], within_bps=[75.0, 60.0, None])
    assert lab.fees.describe(rebates).endswith(": 1.5 ETH, within 120.0 bps.")
    thousands = lab.fees.describe(values.assign(fee_value=[4_200.0, 34.0, None]))
    assert thousands.endswith(": 4,230 ETH, within 29.8 bps.")
    nothing = lab.fees.describe(values.tail(1))
    assert nothing == "Fees of 0 of 5 fills: 0 ETH."
    with pytest.raises(LabError, match=r"lab\.fees\.describe: the frame has no column"):
        lab.fees.describe(values[["fills"]])
