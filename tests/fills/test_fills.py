"""Fills: the settled facts of a block, from its trades, and averages of any amounts."""

import random
from collections import Counter
from datetime import UTC, datetime
from decimal import Context, Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from support.drawn_trades import drawn
from support.engines import AMOUNT, result_rows
from support.oracle import UNIT
from support.settled_block import COUNTS

import loopring_lab as lab

# Against the facts of a settled block


def test_shares_per_fill_type_are_the_chain_s_counts(block, settled, block_folder):
    rows, _, amm, dex, _ = COUNTS[block_folder.name]
    counts = Counter(fact["fill_type"] for fact in settled.values())
    assert counts == {"amm": amm, "dex": dex}
    found = result_rows(lab.fills.breakdown(block))
    assert {line["fill_type"]: (line["fills"], line["share"]) for line in found} == {
        name: (count, count / rows) for name, count in counts.items()
    }
    by_market = Counter(
        (fact["market"], fact["fill_type"]) for fact in settled.values()
    )
    found = result_rows(lab.fills.breakdown(block, by="market"))
    assert {
        (line["market"], line["fill_type"]): line["fills"] for line in found
    } == by_market


def test_maker_and_taker_shares_are_the_chain_s(block, settled):
    known = block.assign(
        role=[
            settled[pair]["role"]
            for pair in zip(block["trade_id"], block["side"], strict=True)
        ]
    )
    sizes: Counter[tuple[str, str | None]] = Counter()
    for line in known.itertuples():
        size = int(settled[line.trade_id, line.side]["size"])
        sizes[line.order_hash, line.role] += size
        sizes[line.order_hash, None] += size
    found = result_rows(lab.fills.orders(known))
    assert {line["order_hash"] for line in found} == set(block["order_hash"])
    for line in found:
        whole = sizes[line["order_hash"], None]
        for role in ("maker", "taker"):
            assert line[f"{role}_share"] == float(
                Fraction(sizes[line["order_hash"], role], whole)
            )


# Against integers of Python

SMALLEST = [(0, 7), (7, 0), (-5, 3), (-7 * UNIT, UNIT)]


def of_any_size(chance: random.Random) -> tuple[int, int]:
    """Draw a notional and a size: a round price, where a quotient of doubles errs, just beside one, or any other."""
    size = chance.randrange(1, 10 ** chance.randrange(1, 36))
    times = chance.randrange(10 ** chance.randrange(1, 18))
    beside = chance.choice([-1, 0, 1, chance.randrange(size)])
    return size * times // chance.choice([1, 10**6, UNIT]) + beside, size


def test_averages_of_any_amounts_are_cut_to_18_decimals():
    chance = random.Random(58)
    drawn = [of_any_size(chance) for _ in range(2000)]
    pairs = [*SMALLEST, *(pair for pair in drawn if abs(pair[0]) < 10**35)]
    assert len(pairs) > 1000
    exact = Context(prec=50)

    def amounts(units: list[int]) -> pa.Array:
        values = [Decimal(number).scaleb(-18, exact) for number in units]
        return pa.array(values, AMOUNT)

    rows = len(pairs)
    notionals, sizes = (list(amounts) for amounts in zip(*pairs, strict=True))
    table = pa.table(
        {
            "created_at": [datetime(2022, 1, 1, tzinfo=UTC)] * rows,
            "account_id": list(range(rows)),
            **dict.fromkeys(["base", "fee_token"], ["LRC"] * rows),
            "quote": ["ETH"] * rows,
            "size": amounts(sizes),
            "notional": amounts(notionals),
            "fee": amounts([0] * rows),
            "fee_bps": [0.0] * rows,
        }
    )
    found = result_rows(lab.fills.vwap(table, by="account_id"))
    averages = {line["account_id"]: line["vwap"] for line in found}
    for account, (notional, size) in enumerate(pairs):
        cut = abs(notional) * UNIT // size if size else None
        signed = -cut if cut and notional < 0 else cut
        assert averages[account] == signed, (notional, size)


@pytest.mark.parametrize("quantiles", [1, 3, 100])
def test_a_size_is_in_the_quantile_that_counting_says(quantiles):
    trades = drawn(2)
    dice = random.Random(quantiles)
    kinds = [
        lambda: dice.randrange(10**36),
        lambda: 10**30 + dice.randrange(3),
        lambda: dice.choice([0, 1, 10**18]),
        lambda: -dice.randrange(10**20),
    ]
    sizes = [dice.choice(kinds)() for _ in range(len(trades))]
    own = [dice.choice(["a", "b", None]) for _ in sizes]
    notional = lab.amounts.to_units(sizes, 18)
    trades = trades.assign(notional=notional.array, quote="USDT", own=own)
    found = lab.fills.size_profile(trades, quantiles, by="own")
    fills = Counter[tuple[str, int]]()
    for key, size in zip(own, sizes, strict=True):
        others = [one for one, mine in zip(sizes, own, strict=True) if mine == key]
        less = sum(other < size for other in others)
        fills[str(key), 1 + quantiles * less // len(others)] += 1
    keys = found["own"].fillna("None").astype(str)
    by_quantile = found.groupby([keys, found["quantile"]])["fills"].sum()
    assert by_quantile.to_dict() == fills
