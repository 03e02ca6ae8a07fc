"""Exact arithmetic on columns of decimals, without a Python object for each row.

An integer is two limbs of 64 bits, and beside them the nearest pair of floats, which holds 106 bits. Floats
find a quotient; what they cannot decide is settled by the limbs, and by Python where an integer has more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import UNIT, combined, from_integers, to_integers

BPS = 10_000
SUM = pa.decimal256(76, 18)
ROWS_AT_ONCE = 1 << 13  # what stays in a processor's cache, and in memory that the process keeps
LIMB = 2.0**64
PIECE = (1 << 32) - 1
HALF, LOWER = np.uint64(32), np.uint64(PIECE)  # the bits of a limb's lower half
SPLITTER = 2.0**27 + 1
CERTAIN = 2.0**-96  # relative error of a quotient of pairs, with a margin of 4 bits
FITTING = 1 << 61  # of high limbs, so that differences fit too
FITTING_DIGITS = 37  # always fit
LARGEST = 2.0**96  # quotients whose error is below 1
LARGEST_PRODUCT, BELOW = 2.0**125, 1 - 2.0**-40  # by floats, with a margin for their errors

Decimals: TypeAlias = "pa.Array | pa.ChunkedArray"


class Pairs(NamedTuple):
    """Real numbers as sums of two floats, of which the second is at most half the last bit of the first."""

    high: np.ndarray
    low: np.ndarray

    @classmethod
    def of(cls, number: int) -> Pairs:
        """Take a number that floats hold exactly."""
        return cls(np.array(float(number)), np.array(0.0))

    def times(self, other: Pairs) -> Pairs:
        product, error = _product(self.high, other.high)
        return Pairs(product, error + (self.high * other.low + self.low * other.high))

    def over(self, other: Pairs) -> Pairs:
        quotient = self.high / other.high
        product, error = _product(quotient, other.high)
        rest = ((self.high - product) - error) + (self.low - quotient * other.low)
        return Pairs(quotient, rest / other.high)

    def minus(self, other: Pairs) -> Pairs:
        difference = self.high - other.high
        taken = difference - self.high
        error = (self.high - (difference - taken)) - (other.high + taken)
        return Pairs(*_sum(difference, error + (self.low - other.low)))


class Limbs:
    """Integers as an unsigned low and a signed high limb; `known` where the rows are not null and fit."""

    def __init__(self, low: np.ndarray, high: np.ndarray, known: np.ndarray) -> None:
        self.low, self.high, self.known = low, high, known

    @classmethod
    def of(cls, array: Decimals) -> Limbs:
        """Read decimals of 128 or 256 bits."""
        array = combined(array)
        if not len(array):
            return cls(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, bool))
        width = array.type.bit_width // 64
        words = np.frombuffer(array.buffers()[1], "<u8").reshape(-1, width)[array.offset :][: len(array)]
        low, high, known = words[:, 0].copy(), words[:, 1].astype(np.int64), np.ones(len(array), bool)
        if array.type.precision > FITTING_DIGITS:
            known = (high < FITTING) & (high >= -FITTING)
            for place in range(2, width):
                known &= words[:, place] == (high >> 63).astype(np.uint64)
        if array.null_count:
            known &= array.is_valid().to_numpy(zero_copy_only=False)
        return cls(low, high, known)

    @classmethod
    def small(cls, numbers: Any) -> Limbs:
        """Take integers of 64 bits."""
        found = np.atleast_1d(np.asarray(numbers, np.int64))
        return cls(found.view(np.uint64), found >> 63, np.ones(len(found), bool))

    @classmethod
    def where(cls, rows: np.ndarray, numbers: Limbs, others: Limbs) -> Limbs:
        """Choose between numbers and others."""
        low, high = np.where(rows, numbers.low, others.low), np.where(rows, numbers.high, others.high)
        return cls(low, high, np.where(rows, numbers.known, others.known))

    def __getitem__(self, rows: Any) -> Limbs:
        return Limbs(self.low[rows], self.high[rows], self.known[rows])

    def then(self, other: Limbs) -> Limbs:
        """Put other integers after these."""
        low, high = np.append(self.low, other.low), np.append(self.high, other.high)
        return Limbs(low, high, np.append(self.known, other.known))

    def __add__(self, other: Limbs) -> Limbs:
        low = self.low + other.low
        return Limbs(low, self.high + other.high + (low < self.low), self.known & other.known)

    def __sub__(self, other: Limbs) -> Limbs:
        high = self.high - other.high - (self.low < other.low)
        return Limbs(self.low - other.low, high, self.known & other.known)

    def __mul__(self, other: Limbs) -> Limbs:
        """Multiply modulo 2**128."""
        a, b, c, d = self.low & LOWER, self.low >> HALF, other.low & LOWER, other.low >> HALF
        first, second = a * d, b * c
        carried = ((a * c) >> HALF) + (first & LOWER) + (second & LOWER)
        high = b * d + (first >> HALF) + (second >> HALF) + (carried >> HALF)
        high += self.low * other.high.view(np.uint64) + self.high.view(np.uint64) * other.low
        return Limbs(self.low * other.low, high.view(np.int64), self.known & other.known)

    def over(self, divisor: int) -> Limbs:
        """Divide by a number below 2**32, rounded down."""
        by, high = np.uint64(divisor), self.high // divisor
        middle = ((self.high - high * divisor).view(np.uint64) << HALF) | (self.low >> HALF)
        upper = middle // by
        lower = (((middle - upper * by) << HALF) | (self.low & LOWER)) // by
        return Limbs((upper << HALF) | lower, high, self.known)

    def __lt__(self, other: Limbs) -> np.ndarray:
        return np.asarray((self.high < other.high) | ((self.high == other.high) & (self.low < other.low)))

    def is_new(self) -> np.ndarray:
        """Return a mask of the integers that differ from the one before; the first does."""
        changed = (self.low[1:] != self.low[:-1]) | (self.high[1:] != self.high[:-1])
        return np.append(True, changed)[: len(self.low)]

    def largest(self) -> float:
        """Return how large the integers are at most, whatever their sign."""
        return float(np.abs(self.floats).max(initial=0))

    def is_zero(self) -> np.ndarray:
        """Return a mask of the integers that are 0."""
        return np.asarray((self.low | self.high.view(np.uint64)) == 0)

    @cached_property
    def floats(self) -> np.ndarray:
        """The integers as floats, in the same order: at most the last two bits differ from the nearest."""
        if (self.high < 0).any():  # their limbs cancel out
            return self.pairs.high
        return np.asarray(self.high * LIMB + self.low)

    @cached_property
    def pairs(self) -> Pairs:
        """The integers as pairs of floats, with a relative error below 2**-104."""
        top = self.high.astype(np.float64)
        rest = (self.high - top.astype(np.int64)) * LIMB + (self.low >> HALF) * 2.0**32
        high, low = _sum(top * LIMB, rest)
        return Pairs(*_sum(high, low + (self.low & LOWER)))


def floats(amounts: Decimals) -> np.ndarray:
    """Return amounts, or floats, as float64, unknown ones as NaN; for weights and errors only."""
    if pa.types.is_decimal(amounts.type):
        numbers = Limbs.of(amounts)
        if np.count_nonzero(numbers.known) == len(amounts) - amounts.null_count:
            return np.where(numbers.known, numbers.floats / 10.0**amounts.type.scale, np.nan)
    return np.array(amounts.cast(pa.float64()).fill_null(np.nan).to_numpy())


def basis_points(values: Decimals, origins: Decimals, *bases: Decimals) -> np.ndarray:
    """Return how far values lie above origins, in basis points of these or of bases; rounded once, or NaN."""
    return _rounded(
        [values, origins, *bases],
        lambda value, origin, *base: quotients(value - origin, (*base, origin)[0], BPS),
        lambda value, origin, *base: (value - origin) * BPS / (*base, origin)[0],
    )


def excess_bps(amounts: Decimals, volumes: Decimals, prices: Decimals) -> np.ndarray:
    """Return how far amounts lie above volumes at prices, in basis points, correctly rounded, or NaN."""

    def exactly(amount: int, price: int, volume: int) -> float:
        return (amount * UNIT - price * volume) * BPS / (price * volume)

    def nearly(amount: Limbs, price: Limbs, volume: Limbs) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(all="ignore"):
            value, paid = price.pairs.times(volume.pairs), amount.pairs.times(Pairs.of(UNIT))
            quotient = paid.minus(value).times(Pairs.of(BPS)).over(value)
            doubt = (np.abs(paid.high / value.high) + 1.0) * BPS * CERTAIN  # the difference may be small
        found, sure = _settled(quotient, doubt)
        return found, sure & amount.known & price.known & volume.known

    return _rounded([amounts, prices, volumes], nearly, exactly)


def ratios(numerators: Decimals, denominators: Decimals, times: int = 1) -> np.ndarray:
    """Return numerators times a number, divided by denominators, correctly rounded, or NaN."""
    return _rounded(
        [numerators, denominators],
        lambda numerator, denominator: quotients(numerator, denominator, times),
        lambda numerator, denominator: numerator * times / denominator,
    )


def multiply(amounts: Decimals, prices: Decimals) -> pa.Array:
    """Multiply amounts by prices of any scale, rounded down to 18 decimals; null where one is null."""
    divisor = 10**prices.type.scale

    def nearly(amount: Limbs, price: Limbs) -> tuple[Limbs, np.ndarray]:
        if divisor > PIECE or amount.largest() * price.largest() > LARGEST_PRODUCT:
            return floors(amount, price, Limbs.small(divisor))
        found = (amount * price).over(divisor)
        return found, found.known

    return _decimals([amounts, prices], nearly, lambda amount, price: amount * price // divisor)


def divide(amounts: Decimals, prices: Decimals) -> pa.Array:
    """Divide amounts by prices, rounded down to 18 decimals; null where one is null or the price is 0."""
    return _decimals(
        [amounts, prices],
        lambda amount, price: floors(amount, Limbs.small(UNIT), price),
        lambda amount, price: amount * UNIT // price if price else None,
    )


def in_units(numbers: pa.Array, decimals: np.ndarray, to: pa.DataType) -> pa.Array | None:
    """Scale smallest units, null where decimals are negative; None where limbs cannot hold all of them."""
    integers, known = Limbs.of(numbers), decimals >= 0
    places = np.where(known, to.scale - decimals, 0)
    if places.min(initial=0) < 0 or np.count_nonzero(integers.known) < len(numbers) - numbers.null_count:
        return None
    powers = (10 ** np.arange(to.scale + 1))[places]
    largest = np.abs(integers.floats * powers).max(initial=0)
    scaled = integers * Limbs.small(powers)
    scaled.known &= known
    return to_decimals(scaled, to) if largest < 10.0**to.precision * BELOW else None


def floors(factors: Limbs, others: Limbs, divisors: Limbs) -> tuple[Limbs, np.ndarray]:
    """Return products over divisors, rounded down, and where that is certain: from 0 to 2**96."""
    with np.errstate(all="ignore"):
        high, low = _sum(*factors.pairs.times(others.pairs).over(divisors.pairs))
        known = factors.known & others.known & divisors.known
        known &= (divisors.high >= 0) & (high >= 0) & (high < LARGEST)
        whole = np.where(known, np.floor(high), 0.0)
        top = np.floor(whole / LIMB)
        rest = np.floor(np.where(known, (high - whole) + low, 0.0)).astype(np.int64)
    found = Limbs((whole - top * LIMB).astype(np.uint64), top.astype(np.int64), known)
    found += Limbs.small(rest)
    if divisors.largest() < FITTING:  # true remainders lie between -2 and 2 divisors: one limb is enough
        divisor = divisors.low.view(np.int64)
        remainder = (factors.low * others.low - found.low * divisors.low).view(np.int64)
        step = (remainder >= divisor).astype(np.int64) - (remainder < 0)
    else:
        remainders = factors * others - found * divisors
        step = np.where(remainders.high < 0, -1, (~(remainders < divisors)).astype(np.int64))
    return found + Limbs.small(step), known


def sums(amounts: Decimals, groups: np.ndarray, count: int) -> np.ndarray:
    """Add up 256-bit decimals, none null, in groups numbered below `count`, as Python's integers."""
    pieces = _sums_of_pieces(amounts, groups, count)
    return np.asarray(sum(piece.astype(object) << (32 * place) for place, piece in enumerate(pieces)))


def totals(amounts: Decimals | Limbs, groups: np.ndarray, there: np.ndarray) -> pa.Array:
    """Add up amounts of 256 bits or limbs, none null, in groups; null in those that are not `there`."""
    words, carried = np.empty((len(there), 8), "<u4"), np.zeros(len(there), np.int64)
    pieces = _sums_of_pieces(amounts, groups, len(there))
    for place in range(8):
        if place < len(pieces):
            carried += pieces[place]
        words[:, place] = carried & PIECE
        carried >>= 32
    scale = SUM.scale if isinstance(amounts, Limbs) else amounts.type.scale
    return _from_words(words, there, pa.decimal256(SUM.precision, scale))


def _sums_of_pieces(amounts: Decimals | Limbs, groups: np.ndarray, count: int) -> np.ndarray:
    """Add up each 32 bits of decimals in groups; only the last ones, which are signed, may be negative."""
    words, last = [], 1
    if isinstance(amounts, Limbs):
        words = [amounts.low.view(np.int64), amounts.high]
    else:
        amounts = combined(amounts)
        last = 1 if amounts.type.precision <= FITTING_DIGITS else 3
        rows = np.frombuffer(amounts.buffers()[1] or b"", "<i8").reshape(-1, 4)[amounts.offset :]
        words = [*rows.T[: last + 1]]
    totals = np.zeros((2 * last + 2, count), np.int64)
    for start in range(0, len(groups), ROWS_AT_ONCE):
        part = groups[start : start + ROWS_AT_ONCE]
        for place, column in enumerate(words):
            word = column[start : start + len(part)]
            if place == last and word.min() >= -PIECE and word.max() <= PIECE:
                np.add.at(totals[2 * place], part, word)
                continue
            upper = word >> 32 if place == last else word.view("<u8") >> HALF
            np.add.at(totals[2 * place], part, word & PIECE)
            np.add.at(totals[2 * place + 1], part, upper.view("<i8"))
    return totals


def blocks(table: pa.Table, rows: int = ROWS_AT_ONCE) -> Iterator[pa.Table]:
    """Cut a table into blocks, by default such that stay in a processor's cache; one of an empty table."""
    for start in range(0, max(len(table), 1), rows):
        yield table.slice(start, rows)


def to_decimals(numbers: Limbs, to: pa.DataType) -> pa.Array:
    """Build decimals, null where numbers are not known."""
    words = np.empty((len(numbers.low), 4), "<u8")
    words[:, 0], words[:, 1] = numbers.low, numbers.high.view(np.uint64)
    words[:, 2:] = (numbers.high >> 63).view(np.uint64)[:, None]
    return _from_words(words, numbers.known, to)


def _from_words(words: np.ndarray, known: np.ndarray, to: pa.DataType) -> pa.Array:
    """Build decimals from the words of their integers, null where these are not known."""
    bits = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(to, len(words), [bits, pa.py_buffer(words)])


def _sum(larger: np.ndarray, smaller: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add floats, of which the first is 0 or not the smaller, and return the rounding error too."""
    total = larger + smaller
    return total, smaller - (total - larger)


def _product(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multiply floats and return the rounding error too, as Dekker did."""
    product, a, c = left * right, left * SPLITTER, right * SPLITTER
    a -= a - left
    c -= c - right
    b, d = left - a, right - c
    return product, ((a * c - product) + a * d + b * c) + b * d


def quotients(numerators: Limbs, denominators: Limbs, times: int) -> tuple[np.ndarray, np.ndarray]:
    """Return quotients correctly rounded, NaN over 0, and where that is certain."""
    with np.errstate(all="ignore"):
        quotient = numerators.pairs.times(Pairs.of(times)).over(denominators.pairs)
        found, sure = _settled(quotient, np.abs(quotient.high) * CERTAIN)
    undefined = denominators.is_zero()
    found[undefined] = np.nan
    return found, (sure | undefined) & numerators.known & denominators.known


def _settled(numbers: Pairs, doubt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round pairs to floats, and tell where that is certain: where all numbers so near round alike."""
    found = np.copysign(numbers.high + (numbers.low + doubt), numbers.high)
    return found, found == numbers.high + (numbers.low - doubt)


def _rounded(
    columns: Sequence[Decimals],
    nearly: Callable[..., tuple[np.ndarray, np.ndarray]],
    exactly: Callable[..., float],
) -> np.ndarray:
    """Compute floats in blocks, and with Python's integers the rows that these leave open."""
    results = []
    for parts in _blocks(columns):
        found, sure = nearly(*map(Limbs.of, parts))
        found[~sure] = np.nan
        rest = ~sure & _is_known(parts)
        if rest.any():
            found[rest] = [exactly(*row) if row[-1] else np.nan for row in _integers(parts, rest)]
        results.append(found)
    return np.concatenate(results)


def _decimals(
    columns: Sequence[Decimals],
    nearly: Callable[..., tuple[Limbs, np.ndarray]],
    exactly: Callable[..., int | None],
) -> pa.Array:
    """Compute decimals in blocks, and with Python's integers the rows that these leave open."""
    results = []
    for parts in _blocks(columns):
        found, sure = nearly(*map(Limbs.of, parts))
        rest = ~sure & _is_known(parts)
        results.append(to_decimals(found, SUM))
        if rest.any():
            values = from_integers([exactly(*row) for row in _integers(parts, rest)], SUM)
            results[-1] = pc.replace_with_mask(results[-1], pa.array(rest), values)
    return pa.concat_arrays(results)


def _blocks(columns: Sequence[Decimals]) -> Iterator[list[pa.Array]]:
    """Cut columns as `blocks` cuts tables."""
    whole = pa.table(list(map(combined, columns)), list(map(str, range(len(columns)))))
    for block in blocks(whole):
        yield [combined(column) for column in block.columns]


def _is_known(columns: Sequence[pa.Array]) -> np.ndarray:
    """Return a mask of the rows in which nothing is null."""
    known = [np.ones(len(columns[0]), bool)]
    known += [column.is_valid().to_numpy(zero_copy_only=False) for column in columns if column.null_count]
    return np.asarray(np.logical_and.reduce(known))


def _integers(columns: Sequence[pa.Array], rows: np.ndarray) -> Iterator[tuple[int, ...]]:
    some = (column.filter(pa.array(rows)) for column in columns)
    return zip(*(to_integers(one.cast(pa.decimal256(76, one.type.scale))) for one in some), strict=True)
