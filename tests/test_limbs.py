"""Arithmetic on columns of decimals, against Python's integers."""

import random
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopring_lab.amounts import limbs
from loopring_lab.amounts.scaling import UNIT, from_integers, to_integers
from loopring_lab.engines import limits
from loopring_lab.engines.selection import BySize
from loopring_lab.errors import AmountError
from loopring_lab.fees.tiers import _bounds as tier_bounds

AMOUNT, SUM = pa.decimal256(37, 18), pa.decimal256(76, 18)
MOST = {AMOUNT: 10**37 - 1, SUM: 10**76 - 1}

Number = int | None


def numbers(type_: pa.DataType) -> st.SearchStrategy[Number]:
    """Draw integers, and those beside powers of two and ten."""
    most = MOST[type_]
    powers = st.builds(
        lambda base, power, beside, sign: max(-most, min(most, sign * (base**power + beside))),
        st.sampled_from([2, 10]),
        st.integers(0, 130),
        st.integers(-2, 2),
        st.sampled_from([-1, 1]),
    )
    prices = st.integers(-(10**12), 10**12).map(lambda number: number * 10**10)
    return st.none() | st.just(0) | st.integers(-most, most) | powers | prices


def rows(type_: pa.DataType, columns: int) -> st.SearchStrategy[list[tuple[Number, ...]]]:
    return st.lists(st.tuples(*[numbers(type_)] * columns), min_size=1, max_size=8)


def on_integers(found: Any, exactly: Callable[..., Any]) -> Any:
    return [None if None in row or not row[-1] else exactly(*row) for row in found]


def assert_same_bits(found: np.ndarray, wanted: list[float | None]) -> None:
    expected = np.array([np.nan if one is None else one for one in wanted])
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    known = ~np.isnan(found)
    assert np.array_equal(found[known].view(np.int64), expected[known].view(np.int64))


def bps(value: int, origin: int, base: int) -> float:
    return (value - origin) * 10_000 / base


def columns(found: Any, type_: pa.DataType) -> list[pa.Array]:
    return [from_integers(column, type_) for column in zip(*found, strict=True)]


@pytest.mark.parametrize("type_", [AMOUNT, SUM], ids=str)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_quotients_are_those_of_integers(type_: pa.DataType, data: st.DataObject) -> None:
    found = data.draw(rows(type_, 3))
    assert_same_bits(limbs.basis_points(*columns(found, type_)), on_integers(found, bps))
    of_origins = [(value, origin, origin) for value, origin, _ in found]
    assert_same_bits(limbs.basis_points(*columns(found, type_)[:2]), on_integers(of_origins, bps))
    times = data.draw(st.sampled_from([1, 10_000]))
    pairs = [row[:2] for row in found]
    wanted = on_integers(pairs, lambda a, b: a * times / b)
    assert_same_bits(limbs.ratios(*columns(pairs, type_), times), wanted)


@given(found=rows(AMOUNT, 2), digits=st.integers(1, 27))
@settings(max_examples=100, deadline=None)
def test_prices_of_eight_decimals_are_multiplied_exactly(
    found: list[tuple[Number, ...]], digits: int
) -> None:
    found = [(amount, None if price is None else price % 10**digits) for amount, price in found]
    amounts, prices = (
        columns(found, AMOUNT)[0],
        from_integers([row[1] for row in found], pa.decimal256(27, 8)),
    )
    wanted = [None if None in row else row[0] * row[1] // 10**8 for row in found]  # type: ignore[operator]
    for type_ in (pa.decimal256(27, 8), pa.decimal128(27, 8)):
        assert to_integers(limbs.multiply(amounts, prices.cast(type_))).tolist() == wanted


@given(found=st.lists(st.tuples(numbers(AMOUNT), st.integers(-1, 19)), max_size=8), digits=st.integers(1, 38))
@settings(max_examples=200, deadline=None)
def test_smallest_units_are_scaled_exactly_or_by_other_means(
    found: list[tuple[Number, int]], digits: int
) -> None:
    found = [(None if one is None else one % 10**digits, places) for one, places in found]
    numbers_ = from_integers([one for one, _ in found], pa.decimal256(38, 0))
    wanted = [None if one is None or places < 0 else one * 10 ** (18 - places) for one, places in found]
    decimals = np.array([places for _, places in found], np.int64)
    fits = all(one is None or one < 10**36 for one in wanted) and decimals.max(initial=0) <= 18
    for type_ in (pa.decimal256(76, 0), pa.decimal128(38, 0)):
        scaled = limbs.in_units(numbers_.cast(type_), decimals, AMOUNT)
        assert fits <= (scaled is not None)
        assert scaled is None or to_integers(scaled).tolist() == wanted


def excess(amount: int, price: int, volume: int) -> float:
    return (amount * UNIT - price * volume) * 10_000 / (price * volume)


@given(found=rows(AMOUNT, 2), beside=st.integers(-3, 3))
@settings(max_examples=100, deadline=None)
def test_excess_over_a_product_is_that_of_integers(found: list[tuple[Number, ...]], beside: int) -> None:
    priced = [row for row in found if row[0] != 0]
    near = [
        (1 if None in row else min(MOST[AMOUNT], abs(row[0] * row[1]) // UNIT + beside), *row)  # type: ignore[operator]
        for row in priced
    ]
    dear = [(7 * UNIT, *row) for row in priced]
    amounts, prices, volumes = columns([*near, *dear, (3, 2, None)], AMOUNT)
    wanted = on_integers([*near, *dear, (3, 2, None)], excess)
    assert_same_bits(limbs.excess_bps(amounts, volumes, prices), wanted)


@given(found=rows(AMOUNT, 2))
@settings(max_examples=100, deadline=None)
def test_products_and_quotients_are_rounded_down_as_integers_are(found: list[tuple[Number, ...]]) -> None:
    amounts, prices = columns(found, AMOUNT)
    wanted = [None if None in row else row[0] * row[1] // UNIT for row in found]  # type: ignore[operator]
    assert to_integers(limbs.multiply(amounts, prices)).tolist() == wanted
    wanted = on_integers(found, lambda amount, price: amount * UNIT // price)
    assert to_integers(limbs.divide(amounts, prices)).tolist() == wanted


def hostile(count: int, seed: int) -> list[Number]:
    """Draw integers of up to 37 digits of which few are alike, some null, 0 or negative."""
    dice = random.Random(seed)

    def draw() -> Number:
        kind, digits = dice.random(), dice.randrange(1, 37)
        if kind < 0.1:
            return None if kind < 0.05 else 0
        if kind < 0.4:
            return dice.randrange(10**12) * 10**10
        if kind < 0.5:
            return min(2 ** dice.randrange(122) + dice.randrange(-2, 3), MOST[AMOUNT])
        return dice.choice([1, 1, -1]) * dice.randrange(10**digits)

    return [draw() for _ in range(count)]


@pytest.mark.thorough
def test_hostile_rows_are_answered_as_integers_are() -> None:
    found = list(zip(*(hostile(100_000, seed) for seed in range(3)), strict=True))
    values = columns(found, AMOUNT)
    assert_same_bits(limbs.basis_points(*values), on_integers(found, bps))
    pairs = [row[:2] for row in found]
    amounts, prices = values[:2]
    wanted = [None if None in row else row[0] * row[1] // UNIT for row in pairs]  # type: ignore[operator]
    assert np.array_equal(to_integers(limbs.multiply(amounts, prices)), np.array(wanted, object))
    wanted = on_integers(pairs, lambda amount, price: amount * UNIT // price)
    assert np.array_equal(to_integers(limbs.divide(amounts, prices)), np.array(wanted, object))


def test_the_rows_of_the_relayer_need_no_python_integers() -> None:
    dice = np.random.default_rng(5)
    drawn = [dice.integers(1, 10**12, 10_000).astype(object) * 10**power for power in (10, 10, 12)]
    price, other, amount = (limbs.Limbs.of(from_integers(column, AMOUNT)) for column in drawn)
    unit = limbs.Limbs.small(UNIT)
    for factor, divisor in ((price, unit), (unit, price)):
        assert limbs.floors(amount, factor, divisor)[1].all()
    assert limbs.quotients(price - other, other, 10_000)[1].all()


@pytest.mark.parametrize("bits", [40, 61, 62, 90])
def test_products_over_divisors_are_rounded_down(bits: int) -> None:
    dice = random.Random(bits)
    divisors = [dice.randrange((1 << bits) - (1 << bits // 2), 1 << bits) for _ in range(5000)]
    others = [dice.choice([1, divisor - 1, divisor, divisor + 1]) for divisor in divisors]
    factors = [dice.randrange(1 << dice.randrange(1, 96)) for _ in divisors]
    columns = (limbs.Limbs.of(from_integers(column, SUM)) for column in (factors, others, divisors))
    found, known = limbs.floors(*columns)
    assert known[np.array(factors, object) < 1 << 95].all()
    wanted = [
        factor * other // divisor for factor, other, divisor in zip(factors, others, divisors, strict=True)
    ]
    given = to_integers(limbs.to_decimals(found, SUM))
    assert [one for one, sure in zip(given, known, strict=True) if sure] == [
        one for one, sure in zip(wanted, known, strict=True) if sure
    ]


def test_columns_of_many_chunks_and_slices_are_read() -> None:
    whole = from_integers([None, *range(1, 40_000)], AMOUNT)
    chunks = pa.chunked_array([whole[:7], whole[7:7], whole[7:20_001], whole[20_001:]])
    assert_same_bits(limbs.ratios(chunks[3:], chunks[3:]), [1.0] * (len(whole) - 3))
    assert limbs.multiply(chunks, whole).equals(limbs.multiply(whole, whole))
    nothing = pa.chunked_array([], AMOUNT)
    assert len(limbs.divide(nothing, nothing)) == len(limbs.basis_points(nothing, nothing, nothing)) == 0


def test_a_product_beyond_76_digits_is_refused() -> None:
    largest = from_integers([10**60], SUM)
    with pytest.raises(AmountError, match="does not fit"):
        limbs.multiply(largest, largest)


@pytest.mark.parametrize("type_", [AMOUNT, SUM], ids=str)
def test_sums_of_groups_are_those_of_integers(type_: pa.DataType) -> None:
    dice = random.Random(6)
    drawn = [dice.randrange(-MOST[type_], MOST[type_]) for _ in range(5000)]
    groups = np.array([dice.randrange(4) for _ in drawn])
    wanted = [sum(one for one, group in zip(drawn, groups, strict=True) if group == g) for g in range(5)]
    assert limbs.sums(from_integers(drawn, type_), groups, 5).tolist() == wanted
    if type_ == AMOUNT:
        there = np.array([True] * 4 + [False])
        amounts = from_integers(drawn, type_)
        for column in (amounts, limbs.Limbs.of(amounts)):
            assert to_integers(limbs.totals(column, groups, there)).tolist() == [*wanted[:4], None]


@pytest.mark.parametrize("type_", [AMOUNT, SUM], ids=str)
def test_floats_are_near_the_amounts(type_: pa.DataType) -> None:
    numbers = [None, *hostile(2000, 9), MOST[type_]]
    found = limbs.floats(from_integers(numbers, type_))
    for number, near in zip(numbers, found.tolist(), strict=True):
        if number is None:
            assert np.isnan(near)
        else:
            assert near == pytest.approx(number / UNIT, rel=2**-50)


def slow_bounds(row: dict[str, Any], unit: int) -> tuple[int, int]:
    """Return the tiers between which a fee may lie, by integers, as `fees.tiers` describes them."""
    size, notional, fee = (row[name] for name in ("size", "notional", "fee"))
    in_base = row["fee_token"] == row["base"]
    in_quote = not in_base and row["fee_token"] == row["quote"]
    if None in (fee, size) or not (in_base or (in_quote and notional is not None)):
        return -1, -1
    least = notional if in_quote else size
    most = least + (size // 10**8 + 2 if in_quote else 0)
    low = -(-fee * 10_000 // (most or 1))
    high = -(-(fee + unit) * 10_000 // (least or 1)) - 1
    return low if 0 <= low <= 10_000 else 10_001, 10_000 if least == 0 else min(max(high, -1), 10_000)


def test_bounds_of_tiers_are_those_of_integers() -> None:
    dice = random.Random(7)
    columns_ = {name: hostile(30_000, seed) for seed, name in enumerate(("size", "notional", "fee"))}
    for row in range(0, 30_000, 2):  # fees that are charged, and beside them
        gross, tier = columns_["notional"][row], dice.choice([0, 1, 20, 30, 9_999, 10_000, 10_001])
        fee = None if gross is None else gross * tier // 10_000 + dice.choice([0, 0, -1, 1])
        columns_["fee"][row] = fee if fee is None or abs(fee) <= MOST[AMOUNT] else 0
    tokens = [dice.choice(["LRC", "ETH", "ETH", "X", None]) for _ in range(30_000)]
    rows_ = [
        {"base": "LRC", "quote": "ETH", "fee_token": token, **dict(zip(columns_, amounts, strict=True))}
        for token, amounts in zip(tokens, zip(*columns_.values(), strict=True), strict=True)
    ]
    exact = {name: from_integers(column, AMOUNT) for name, column in columns_.items()}
    texts = {name: [row[name] for row in rows_] for name in ("base", "quote", "fee_token")}
    table = pa.table(exact | {name: pa.array(column, pa.string()) for name, column in texts.items()})
    wanted = [slow_bounds(row, 10**12 if row["fee_token"] == "ETH" else UNIT) for row in rows_]
    found = tier_bounds(table, {"ETH": 10**12})
    assert list(zip(*(one.tolist() for one in found), strict=True)) == wanted


@pytest.mark.parametrize("memory", [1, 1 << 30])
@pytest.mark.parametrize("step", [1, 10**10, 2**64 - 1, 10**30])
def test_quantiles_are_those_of_sorted_integers(
    step: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "memory_limit", lambda: memory)
    dice = random.Random(8)
    sizes = [None if dice.random() < 0.1 else 10**30 + dice.randrange(-9, 500) * step for _ in range(3000)]
    groups = np.array([dice.randrange(9) for _ in sizes])
    by_size, found = BySize(), np.full(len(sizes), -2)
    for start in range(0, len(sizes), 700):
        part = slice(start, start + 700)
        places = np.arange(len(sizes))[part]
        by_size.add(limbs.Limbs.of(from_integers(sizes[part], AMOUNT)), 2 * groups[part], {"place": places})
    for rows, _, quantiles in by_size.quantiles(np.arange(18) // 2, 7):
        found[rows["place"]] = quantiles
    for group in range(9):
        here = sorted(size for size, g in zip(sizes, groups, strict=True) if g == group and size is not None)
        for size, number in zip(
            np.array(sizes, object)[groups == group], found[groups == group], strict=True
        ):
            assert number == (-1 if size is None else bisect_left(here, size) * 7 // len(here))
