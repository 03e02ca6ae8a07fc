"""Arithmetic on columns of decimals, against Python's integers."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopring_lab.amounts import limbs
from loopring_lab.amounts.scaling import UNIT, from_integers, to_integers
from loopring_lab.errors import AmountError

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
    times = data.draw(st.sampled_from([1, 10_000]))
    pairs = [row[:2] for row in found]
    wanted = on_integers(pairs, lambda a, b: a * times / b)
    assert_same_bits(limbs.ratios(*columns(pairs, type_), times), wanted)


@given(found=rows(AMOUNT, 2))
@settings(max_examples=100, deadline=None)
def test_products_and_quotients_are_rounded_down_as_integers_are(found: list[tuple[Number, ...]]) -> None:
    amounts, prices = columns(found, AMOUNT)
    wanted = [None if None in row else row[0] * row[1] // UNIT for row in found]  # type: ignore[operator]
    assert to_integers(limbs.times(amounts, prices)).tolist() == wanted
    wanted = on_integers(found, lambda amount, price: amount * UNIT // price)
    assert to_integers(limbs.per(amounts, prices)).tolist() == wanted


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


def test_hostile_rows_are_answered_as_integers_are() -> None:
    found = list(zip(*(hostile(100_000, seed) for seed in range(3)), strict=True))
    values = columns(found, AMOUNT)
    assert_same_bits(limbs.basis_points(*values), on_integers(found, bps))
    pairs = [row[:2] for row in found]
    amounts, prices = values[:2]
    wanted = [None if None in row else row[0] * row[1] // UNIT for row in pairs]  # type: ignore[operator]
    assert np.array_equal(to_integers(limbs.times(amounts, prices)), np.array(wanted, object))
    wanted = on_integers(pairs, lambda amount, price: amount * UNIT // price)
    assert np.array_equal(to_integers(limbs.per(amounts, prices)), np.array(wanted, object))


def test_the_rows_of_the_relayer_need_no_python_integers() -> None:
    dice = np.random.default_rng(5)
    drawn = [dice.integers(1, 10**12, 10_000).astype(object) * 10**power for power in (10, 10, 12)]
    price, other, amount = (limbs.Limbs.of(from_integers(column, AMOUNT)) for column in drawn)
    unit = limbs.Limbs.repeat(UNIT, len(price.low))
    for factor, divisor in ((price, unit), (unit, price)):
        assert limbs.floors(amount, factor, divisor)[1].all()
    assert limbs.quotients(price - other, other, 10_000)[1].all()


def test_columns_of_many_chunks_and_slices_are_read() -> None:
    whole = from_integers([None, *range(1, 40_000)], AMOUNT)
    chunks = pa.chunked_array([whole[:7], whole[7:7], whole[7:20_001], whole[20_001:]])
    assert_same_bits(limbs.ratios(chunks[3:], chunks[3:]), [1.0] * (len(whole) - 3))
    assert limbs.times(chunks, whole).equals(limbs.times(whole, whole))
    nothing = pa.chunked_array([], AMOUNT)
    assert len(limbs.per(nothing, nothing)) == len(limbs.basis_points(nothing, nothing, nothing)) == 0


def test_a_product_beyond_76_digits_is_refused() -> None:
    largest = from_integers([10**60], SUM)
    with pytest.raises(AmountError, match="does not fit"):
        limbs.times(largest, largest)
