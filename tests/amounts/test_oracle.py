"""Amounts beside Python's integers and fractions, which are exact: no result may differ by one unit."""

import math
import operator
import random
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.optional import thorough

from loopring_lab.amounts import to_smallest
from loopring_lab.amounts.dtype import AmountArray, multiply
from loopring_lab.amounts.scalar import Amount
from loopring_lab.amounts.scaling import from_integers, rescale, to_integers
from loopring_lab.amounts.series import as_series
from loopring_lab.errors import AmountError, LabError

UNIT = 10**18
LARGEST = 10**38 - 1
EXACT = Context(prec=200)
COMPARISONS = ["lt", "le", "eq", "ne", "gt", "ge"]
SIZES = [
    pytest.param((2_000, 1), id="2000 values"),
    thorough((20_000, 2), id="20000 values"),
    thorough((20_000, 3), id="20000 others"),
    thorough((20_000, 4), id="20000 more"),
]


def units_of(random_, bits):
    """Draw units of any size, often near what floats, 64 bits or 128 bits can hold."""
    size = random_.getrandbits(random_.choice(bits))
    if random_.random() < 0.3:
        size = size // 10 ** random_.randrange(18) * 10 ** random_.randrange(3)
    if random_.random() < 0.1:
        size = 2 ** random_.choice(bits) + random_.choice([-1, 0, 1])
    return min(size, LARGEST) * random_.choice([1, -1])


def decimal(units, scale=18):
    return EXACT.scaleb(Decimal(units), -scale)


def amounts(units):
    return pd.Series(AmountArray([decimal(one) for one in units]))


def units(found):
    assert found.dtype == "amount"
    return [None if pd.isna(one) else int(EXACT.scaleb(one, 18)) for one in found]


def ulps(found, expected):
    """Return the largest error in units of the last place."""
    errors = [
        abs(Fraction(one) - true) / Fraction(math.ulp(float(true)))
        for one, true in zip(found, expected, strict=True)
    ]
    return float(max(errors))


class Drawn:
    """Values of all sizes: any, small enough that all of them can be added up, and near the any."""

    def __init__(self, count, seed):
        self.random = random.Random(seed)
        any_size = [3, 10, 30, 52, 53, 54, 62, 63, 64, 65, 80, 100, 126]
        fitting = [3, 10, 30, 52, 53, 54, 62, 63, 64, 65, 80, 100]
        self.any = [units_of(self.random, any_size) for _ in range(count)]
        self.first = [units_of(self.random, fitting) for _ in range(count)]
        self.second = [units_of(self.random, fitting) for _ in range(count)]
        self.near = [
            self.random.choice(self.any) + self.random.choice([-1, 0, 1])
            for _ in range(count)
        ]
        self.near = [max(min(one, LARGEST), -LARGEST) for one in self.near]
        self.group = np.array([self.random.randrange(50) for _ in range(count)])


@pytest.fixture(scope="module", params=SIZES)
def drawn(request):
    return Drawn(*request.param)


def by_group(drawn, compute):
    return [
        compute(
            [
                one
                for one, group in zip(drawn.first, drawn.group, strict=True)
                if group == g
            ]
        )
        for g in range(50)
    ]


def running_sums_by_group(drawn):
    sums = dict.fromkeys(range(50), 0)
    found = []
    for one, group in zip(drawn.first, drawn.group, strict=True):
        sums[group] += one
        found.append(sums[group])
    return found


def test_values_and_texts_survive(drawn):
    series = amounts(drawn.any)
    texts = [f"{decimal(one):f}" for one in drawn.any]
    trimmed = [text.rstrip("0").rstrip(".") if "." in text else text for text in texts]
    assert units(series) == drawn.any
    assert series.astype(str).tolist() == [
        text if text != "-0" else "0" for text in trimmed
    ]
    assert [str(one) for one in series] == series.astype(str).tolist()
    assert units(series.astype(str).astype("amount")) == drawn.any
    assert units(pd.Series(AmountArray(series.array.to_arrow()))) == drawn.any


def test_floats(drawn):
    series = amounts(drawn.any)
    floats = [one / UNIT for one in drawn.any]
    assert series.astype(float).tolist() == floats
    assert [float(one) for one in series] == floats
    known = [one for one in drawn.any if one]
    assert ulps(amounts(known) * 1.0, [Fraction(one, UNIT) for one in known]) <= 2


def test_sums_and_differences(drawn):
    first, second = amounts(drawn.first), amounts(drawn.second)
    pairs = list(zip(drawn.first, drawn.second, strict=True))
    assert units(first + second) == [one + other for one, other in pairs]
    assert units(first - second) == [one - other for one, other in pairs]
    assert units(1 - first) == [UNIT - one for one in drawn.first]
    assert units(first.diff()) == [None] + [
        b - a for a, b in zip(drawn.first, drawn.first[1:], strict=False)
    ]
    assert units(-amounts(drawn.any)) == [-one for one in drawn.any]
    assert units(amounts(drawn.any).abs()) == [abs(one) for one in drawn.any]
    assert int(EXACT.scaleb(first.sum(), 18)) == sum(drawn.first)
    assert units(first.cumsum()) == list(accumulate(drawn.first))


def test_products(drawn):
    small = [one >> 40 for one in drawn.first]
    factors = np.array([drawn.random.randrange(-(2**40), 2**40) for _ in small])
    assert units(amounts(small) * factors) == [
        one * int(other) for one, other in zip(small, factors, strict=True)
    ]
    for factor in (0, 1, -1, 12345, 2**40, -(2**63), 10**19):
        tiny = [one // max(abs(factor), 1) for one in drawn.first]
        assert units(factor * amounts(tiny)) == [one * factor for one in tiny]
    left = [one >> 20 for one in drawn.first]
    right = [one % (10**6 * UNIT) for one in drawn.second]
    cut = [
        abs(a * b) // UNIT * (1 if a * b > 0 else -1)
        for a, b in zip(left, right, strict=True)
    ]
    assert units(multiply(amounts(left), amounts(right))) == cut
    known = [(a, b) for a, b in zip(left, right, strict=True) if a and b]
    product = amounts([a for a, _ in known]) * amounts([b for _, b in known])
    assert ulps(product, [Fraction(a * b, UNIT**2) for a, b in known]) <= 5


def test_quotients_and_remainders(drawn):
    divisors = [one or 1 for one in drawn.second]
    first, second = amounts(drawn.first), amounts(divisors)
    pairs = list(zip(drawn.first, divisors, strict=True))
    assert units(first % second) == [one % other for one, other in pairs]
    fitting = [
        (one, other) for one, other in pairs if abs(one // other) * UNIT <= LARGEST
    ]
    quotients = amounts([one for one, _ in fitting]) // amounts(
        [other for _, other in fitting]
    )
    assert units(quotients) == [one // other * UNIT for one, other in fitting]
    known = [(one, other) for one, other in pairs if one]
    found = amounts([one for one, _ in known]) / amounts([other for _, other in known])
    # Both operands may be off by one, and so may their quotient.
    assert ulps(found, [Fraction(one, other) for one, other in known]) <= 5


def test_by_zero_is_inf_nan_or_missing():
    series = amounts([UNIT, 0, -UNIT])
    np.testing.assert_array_equal(series / 0, [np.inf, np.nan, -np.inf])
    np.testing.assert_array_equal(1 / amounts([0]), [np.inf])
    assert units(series // 0) == [None] * 3
    assert units(series % amounts([0, 0, UNIT])) == [None, None, 0]
    assert Amount(1) / 0 == np.inf
    assert np.isnan(Amount(0) / Amount(0))


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(drawn, name):
    compare = getattr(operator, name)
    series = amounts(drawn.any)
    assert compare(series, amounts(drawn.near)).tolist() == list(
        map(compare, drawn.any, drawn.near)
    )
    for other in drawn.random.sample(drawn.any, 5):
        exactly = [compare(one, other) for one in drawn.any]
        assert compare(series, decimal(other)).tolist() == exactly
        assert compare(series, f"{decimal(other):f}").tolist() == exactly
        # Between two amounts, and beyond all.
        between = decimal(other * 10 + 5, 19)
        assert compare(series, between).tolist() == [
            compare(one * 10, other * 10 + 5) for one in drawn.any
        ]
        whole = other // UNIT
        assert compare(series, whole).tolist() == [
            compare(one, whole * UNIT) for one in drawn.any
        ]
        number = other / UNIT
        shortest = Fraction(repr(number))
        assert compare(series, number).tolist() == [
            compare(Fraction(one, UNIT), shortest) for one in drawn.any
        ]
    for beyond in (1e30, -1e30, np.inf, -np.inf, 10**50, 1e-30, -1e-30):
        assert compare(series, beyond).tolist() == [
            compare(Fraction(one, UNIT), beyond) for one in drawn.any
        ]


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_with_arrays_of_floats(drawn, name):
    compare = getattr(operator, name)
    floats = [one / UNIT for one in drawn.near]
    expected = [
        compare(Fraction(one, UNIT), Fraction(repr(other)))
        for one, other in zip(drawn.any, floats, strict=True)
    ]
    assert compare(amounts(drawn.any), np.array(floats)).tolist() == expected
    own = [one / UNIT for one in drawn.any]
    expected = [
        compare(Fraction(one, UNIT), Fraction(repr(other)))
        for one, other in zip(drawn.any, own, strict=True)
    ]
    assert compare(amounts(drawn.any), pd.Series(own)).tolist() == expected


# Neighbours of whole numbers that share a float.
WHOLE = [2, 2**53, 2**53 + 1, -(2**53) - 1, None]
ON_THE_LEFT = [
    "Int64",
    "int64[pyarrow]",
    pd.ArrowDtype(pa.decimal128(38, 18)),
    pd.ArrowDtype(pa.decimal256(76, 18)),
    "category",
]


@pytest.mark.parametrize("kind", ON_THE_LEFT, ids=str)
@pytest.mark.parametrize("name", [*COMPARISONS, "add", "sub", "mod"])
def test_columns_of_every_type_on_the_left_are_exact(kind, name):
    left = pd.Series(WHOLE, dtype="Int64").astype(kind)
    compute = getattr(operator, name)
    ours = [2, 2**53 + 1, 2**53 + 1, -(2**53) - 2, 1]
    found = compute(left, amounts([one * UNIT for one in ours]))
    pairs = list(zip(WHOLE, ours, strict=True))[:-1]
    expected = [compute(one, other) for one, other in pairs]
    if name in COMPARISONS:
        # What is missing differs, and has no order.
        assert found.tolist() == [*expected, name == "ne"]
    else:
        assert units(found) == [*(one * UNIT for one in expected), None]


def test_sparse_columns_are_exact_on_both_sides():
    sparse = pd.Series(pd.arrays.SparseArray([0, 0, 2**53 + 1]))
    ours = amounts([UNIT, 0, 2**53 * UNIT])
    assert units(sparse - ours) == [-UNIT, 0, UNIT]
    assert units(ours - sparse) == [UNIT, 0, -UNIT]
    assert units(sparse * amounts([1, 1, 1])) == [0, 0, 2**53 + 1]
    assert (sparse == ours).tolist() == [False, True, False]
    assert (ours < sparse).tolist() == [False, False, True]


def test_lengths_of_time_are_weighed_by_amounts():
    lengths = pd.Series(pd.to_timedelta([1, 2, 3], unit="s"))
    sizes = amounts([2 * UNIT, UNIT // 2, 0])
    expected = [pd.Timedelta("2s"), pd.Timedelta("1s"), pd.Timedelta(0)]
    assert (lengths * sizes).tolist() == (sizes * lengths).tolist() == expected


def test_columns_of_objects_stay_exact_beside_one_amount():
    sizes = [2**53 * UNIT + 1, 2 * UNIT, 2**53 * UNIT]
    # Such a column is what `apply` of a function of rows returns.
    column = amounts(sizes).to_frame("size").apply(lambda row: row["size"], axis=1)
    least = column.max() - 1
    floor = sizes[0] - UNIT
    found = {
        "minus": column - least,
        "from": least - column,
        "where": column.where(column != 2, least),
        "clip": column.clip(lower=least),
        "filled": column.where(column != 2).fillna(least),
        "replaced": column.replace(column[1], least),
    }
    chosen = [sizes[0], floor, sizes[2]]
    assert {name: units(one.astype("amount")) for name, one in found.items()} == {
        "minus": [size - floor for size in sizes],
        "from": [floor - size for size in sizes],
        "where": chosen,
        "clip": [max(size, floor) for size in sizes],
        "filled": chosen,
        "replaced": chosen,
    }
    # This needs floats.
    assert np.isclose(column, column[1]).tolist() == [False, True, False]


def test_order_and_identity(drawn):
    both = drawn.any + drawn.near
    series = amounts(both)
    distinct = list(dict.fromkeys(both))
    assert units(series.sort_values()) == sorted(both)
    assert units(series.sort_values(ascending=False)) == sorted(both, reverse=True)
    # pandas chooses these by floats, so those of one float may change places; the values stay exact.
    largest = series.nlargest(5)
    assert largest.astype(float).tolist() == [
        one / UNIT for one in sorted(both, reverse=True)[:5]
    ]
    assert set(units(largest)) <= set(both)
    assert int(EXACT.scaleb(series.min(), 18)) == min(both)
    assert int(EXACT.scaleb(series.max(), 18)) == max(both)
    assert series.argmax() == both.index(max(both))
    place = {one: rank for rank, one in enumerate(sorted(distinct), 1)}
    assert series.rank(method="dense").tolist() == [place[one] for one in both]
    assert units(series.unique()) == distinct
    assert units(series.drop_duplicates()) == distinct
    wanted = both[:10]
    assert series.isin([decimal(one) for one in wanted]).tolist() == [
        one in wanted for one in both
    ]
    counts = series.value_counts()
    assert counts.sum() == len(both)
    assert len(counts) == len(distinct)


def test_groups(drawn):
    series = amounts(drawn.first)
    groups = series.groupby(drawn.group)
    assert units(groups.sum()) == by_group(drawn, sum)
    assert units(groups.min()) == by_group(drawn, min)
    assert units(groups.max()) == by_group(drawn, max)
    assert units(groups.first()) == by_group(drawn, lambda group: group[0])
    assert units(groups.last()) == by_group(drawn, lambda group: group[-1])
    assert units(groups.cumsum()) == running_sums_by_group(drawn)


def test_running_sums_pass_over_what_is_missing():
    numbers = [2**64 - 1, None, 1, -(2**70), 5, 2**100, None, -(2**101)]
    keys = [0, 0, 1, 0, None, 1, 1, 0]
    known = pd.Series(numbers, dtype=object)
    series = pd.Series(
        AmountArray([None if one is None else decimal(one) for one in numbers])
    )
    expected = list(accumulate(known.fillna(0)))
    assert units(series.cumsum()) == [
        None if one is None else total
        for one, total in zip(numbers, expected, strict=True)
    ]
    assert units(series.cumsum(skipna=False)) == [numbers[0]] + [None] * 7
    by_key = {
        0: [2**64 - 1, None, 2**64 - 1 - 2**70, 2**64 - 1 - 2**70 - 2**101],
        1: [1, 1 + 2**100, None],
    }
    found = series.groupby(keys).cumsum()
    for key, totals in by_key.items():
        assert units(found[[one == key for one in keys]]) == totals
    assert units(found[4:5]) == [None]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_a_running_sum_that_returns_to_what_fits_is_refused_as_well(count):
    """Integers of 128 bits wrap around after the second or the fourth, and are small again in the end."""
    there = amounts([LARGEST] * count)
    there_and_back = amounts([LARGEST] * (count + 1) + [-LARGEST] * (count + 1))
    assert units(there[:1].cumsum()) == [LARGEST]
    for running_sum in (
        there_and_back.cumsum,
        there_and_back.groupby([0] * len(there_and_back)).cumsum,
    ):
        with pytest.raises(AmountError):
            running_sum()


def test_replacements(drawn):
    series = amounts(drawn.any)
    is_positive = series > 0
    assert units(series.where(is_positive, 0)) == [max(one, 0) for one in drawn.any]
    assert units(series.mask(is_positive)) == [
        None if one > 0 else one for one in drawn.any
    ]
    missing = series.where(is_positive)
    assert units(missing.fillna(Decimal("0.5"))) == [
        one if one > 0 else UNIT // 2 for one in drawn.any
    ]
    assert units(series.clip(upper=0)) == [min(one, 0) for one in drawn.any]
    assert units(series.shift()) == [None, *drawn.any[:-1]]
    for places in (0, 2, 9, 17, 18):
        step = 10 ** (18 - places)
        fitting = [one for one in drawn.any if abs(one) < LARGEST - UNIT]
        rounded = [round(Fraction(one, step)) * step for one in fitting]
        assert units(amounts(fitting).round(places)) == rounded


# One float for all of them.
SHARED = [1000 * UNIT + 1, 1000 * UNIT + 3, 1000 * UNIT + 2, -1000 * UNIT - 5]


@pytest.fixture
def shared():
    """Two columns of amounts that floats cannot tell apart."""
    return pd.DataFrame({"fee": amounts(SHARED), "net": amounts(SHARED[::-1])})


@pytest.mark.parametrize("columns", [["fee"], ["fee", "net"]])
def test_frames_are_replaced_by_frames_exactly(shared, columns):
    frame = shared[columns]
    absolute = [abs(one) for one in SHARED]
    assigned = frame.copy()
    assigned[frame < 0] = -frame
    for found in (
        frame.where(frame > 0, -frame),
        frame.mask(frame < 0, -frame),
        frame.where(frame > 0).fillna(-frame),
        frame.clip(lower=-frame),
        assigned,
    ):
        assert units(found["fee"]) == absolute


def test_frames_are_turned_exactly(shared):
    frame = shared[["fee"]]
    assert [units(column) for _, column in frame.T.items()] == [[one] for one in SHARED]
    assert units(frame[::-1].T.T["fee"]) == SHARED[::-1]
    assert units(frame[::2].stack()) == SHARED[::2]
    assert frame.iloc[:0].T.shape == (1, 0)
    found = shared.agg(["sum", "max"])
    assert units(found["fee"]) == [sum(SHARED), max(SHARED)]


def test_margins_are_exact(shared):
    table = shared.assign(side=["a", "b", "a", "b"], day=[1, 1, 2, 2])
    found = table.pivot_table(
        values="fee", index="day", columns="side", aggfunc="sum", margins=True
    )
    assert units(found.loc["All"]) == [
        sum(SHARED[::2]),
        sum(SHARED[1::2]),
        sum(SHARED),
    ]


def test_places_of_extremes_are_exact(shared):
    assert shared.idxmax().tolist() == [1, 2]
    assert shared.idxmin().tolist() == [3, 0]
    assert shared.idxmax(axis=1).tolist() == ["fee", "fee", "net", "net"]
    groups = shared.groupby([0, 0, 1, 1])
    assert groups["fee"].idxmax().tolist() == [1, 2]
    assert groups["fee"].idxmin().tolist() == [0, 3]


def test_texts_of_every_type_are_the_amounts(shared):
    texts = ["1000.000000000000000001", "-1000.000000000000000005"]
    for kind in ("str", "string", "U", "string[pyarrow]", "large_string[pyarrow]"):
        assert shared["fee"].astype(kind).tolist()[::3] == texts
    assert amounts([UNIT]).astype("large_string[pyarrow]").tolist() == ["1"]


@pytest.mark.parametrize(
    "kind", ["int64[pyarrow]", "bool[pyarrow]", "datetime64[ns]", "timedelta64[ns]"]
)
def test_types_that_hold_no_amounts_are_refused(shared, kind):
    with pytest.raises(AmountError, match="do not become"):
        shared["fee"].astype(kind)


def test_one_amount(drawn):
    for one, other in zip(drawn.first[:500], drawn.second[:500], strict=True):
        left, right = Amount(decimal(one)), Amount(decimal(other))
        for name in ("add", "sub", "mod", "floordiv"):
            if not other and name in ("mod", "floordiv"):
                continue
            found = getattr(operator, name)(left, right)
            expected = getattr(operator, name)(
                Fraction(one, UNIT), Fraction(other, UNIT)
            )
            assert Fraction(found) == expected
        assert Fraction(left * 7) == Fraction(one * 7, UNIT)
        assert Fraction(left * np.int64(7)) == Fraction(one * 7, UNIT)
        assert isinstance(np.int64(7) * left, float)
        assert Fraction(-left) == Fraction(-one, UNIT)
        for name in COMPARISONS:
            compare = getattr(operator, name)
            assert compare(left, right) == compare(one, other)
            assert compare(left, other / UNIT) == compare(
                Fraction(one, UNIT), Fraction(repr(other / UNIT))
            )


TOO_LARGE: dict[str, Callable[[pd.Series], Any]] = {
    "sum": lambda big: big.sum(),
    "sum of many": lambda big: pd.concat([big] * 700).sum(),
    "plus": lambda big: big + big,
    "plus the largest": lambda big: big + decimal(LARGEST),
    "minus": lambda big: -big - big,
    "plus an integer": lambda big: big + (10**20 - 1),
    "times 2": lambda big: big * 2,
    "times -2": lambda big: big * -2,
    "times 10**19": lambda big: big * 10**19,
    "times integers": lambda big: big * np.array([1, 1, 2**62]),
    "times long integers": lambda big: big * [10**25, 1, 1],
    "cumsum": lambda big: big.cumsum(),
    "sum of groups": lambda big: big.groupby([0, 0, 0]).sum(),
    "cumsum of groups": lambda big: big.groupby([0, 0, 0]).cumsum(),
    "diff": lambda big: (big * pd.Series([1, -1, 1])).diff(),
    "quotient": lambda big: big // decimal(1),
    "multiply": lambda big: multiply(big, big),
    "an integer": lambda big: AmountArray([10**20]),
    "a Decimal": lambda big: AmountArray([Decimal("1e20")]),
    "a text": lambda big: AmountArray(["100000000000000000000"]),
    "a float": lambda big: AmountArray([1e20]),
    "an array of floats": lambda big: AmountArray(np.array([1.0, 1e20])),
    "infinity": lambda big: AmountArray([np.inf]),
    "a long text": lambda big: AmountArray(["9" * 78]),
    "2 ** 256": lambda big: AmountArray([str(2**256)]),
    "an endless text": lambda big: AmountArray(["9" * 10_000]),
    "a large exponent": lambda big: AmountArray(["1e999999999"]),
    "19 decimals": lambda big: AmountArray(["0.0000000000000000001"]),
    "19 decimals of a Decimal": lambda big: AmountArray([Decimal("1e-19")]),
    "no number": lambda big: AmountArray(["abc"]),
}


@pytest.mark.parametrize("name", TOO_LARGE)
@pytest.mark.parametrize("size", [9 * 10**37, 8 * 10**37, LARGEST])
def test_what_does_not_fit_is_an_amount_error(name, size):
    with pytest.raises(AmountError, match=r"\. |:") as caught:
        TOO_LARGE[name](amounts([size] * 3))
    assert isinstance(caught.value, LabError)


def test_floats_become_amounts_by_their_shortest_decimals(drawn):
    floats = [one / UNIT for one in drawn.first]
    expected = [math.trunc(Fraction(repr(one)) * UNIT) for one in floats]
    assert units(pd.Series(floats).astype("amount")) == expected
    assert (
        units(pd.Series(floats[:500], dtype=object).astype("amount")) == expected[:500]
    )
    assert units(amounts([UNIT]).replace(1, 0.1)) == [UNIT // 10]


# Decimal types between which pyarrow's own casts are wrong for some values.
WIDTHS = [
    pa.decimal128(38, 0),
    pa.decimal128(38, 2),
    pa.decimal128(38, 18),
    pa.decimal128(38, 38),
    pa.decimal256(76, 0),
    pa.decimal256(76, 18),
    pa.decimal256(76, 36),
    pa.decimal256(76, 76),
]


@given(
    st.integers(0, 10**76 - 1),
    st.integers(0, 75),
    st.integers(-3, 3),
    st.sampled_from(WIDTHS),
    st.sampled_from(WIDTHS),
)
@example(5981034194458268188675220088511, 0, 0, pa.decimal128(38, 0), WIDTHS[2])
@example(4611686018427387904, 18, -1, pa.decimal128(38, 18), pa.decimal128(38, 0))
@example(13742824334913615953919, 18, 0, pa.decimal256(76, 36), WIDTHS[2])
def test_a_decimal_type_is_changed_exactly_or_refused(size, zeros, more, kind, to):
    # Near a number that ends in zeros, where digits are cut.
    number = (size * 10**zeros + more) % 10**kind.precision
    scaled, rest = divmod(number * 10**to.scale, 10**kind.scale)
    array = from_integers([number, -number, None], kind)
    for truncate in (False, True):
        if scaled < 10**to.precision and (truncate or not rest):
            found = to_integers(rescale(array, to, truncate=truncate))
            assert found == [scaled, -scaled, None]
        else:
            with pytest.raises(pa.ArrowInvalid):
                rescale(array, to, truncate=truncate)


def test_decimals_of_other_types_become_amounts_exactly_or_are_refused():
    # Times 10**18, this is a number of 38 digits modulo 2**128.
    large = [5981034194458268188675220088511]
    whole = as_series(from_integers(large, pa.decimal128(38, 0)))
    for convert in (AmountArray, lambda column: column.astype("amount")):
        with pytest.raises(AmountError, match="20 digits before the point"):
            convert(whole)


def test_more_smallest_units_than_there_is_room_for_are_refused():
    # Times 10**12, this is a number of 76 digits modulo 2**256.
    number = 816234309814612688816576065201599448412251602209598899720125413883
    wide = as_series(from_integers([number], pa.decimal256(76, 18)))
    with pytest.raises(AmountError, match="more than 76 digits of smallest units"):
        to_smallest(wide, 30)


def test_amounts_become_decimals_of_other_types_exactly_or_are_refused():
    # Times 100, this is a number of 38 digits modulo 2**128.
    series = amounts([3452823669209384634633746074317682114])
    narrow = pa.decimal128(38, 20)
    with pytest.raises(AmountError, match="wider type"):
        series.astype(pd.ArrowDtype(narrow))
    with pytest.raises(AmountError, match="wider type"):
        pa.array(series.array, narrow)
    fitting = amounts([UNIT]).astype(pd.ArrowDtype(narrow))
    assert fitting.dtype == pd.ArrowDtype(narrow)
    assert fitting.tolist() == [1]


@pytest.mark.parametrize("places", [-40, -21, -10, 0, 2, 9, 17, 18, 30])
def test_rounding(drawn, places):
    # Near a half, and below a whole, where pyarrow gets a wrong last digit for some.
    step = 10 ** max(0, min(18 - places, 38))
    near = [one // step * step + step // 2 for one in drawn.first]
    near += [2**bits * step - 2 for bits in range(80)]
    known = [one for one in drawn.first + near if abs(one) <= LARGEST // 2]
    assert units(amounts(known).round(places)) == [
        round(Fraction(one, step)) * step for one in known
    ]


@pytest.mark.parametrize("listed", [False, True])
def test_products_with_long_integers(listed):
    # Times 10**18 and back, pyarrow alone finds a remainder.
    factor = 73786976294838206463
    found = amounts([1, -1]) * ([factor, factor] if listed else factor)
    assert units(found) == [factor, -factor]


def test_amounts_that_round_to_more_digits_than_there_are_are_refused():
    with pytest.raises(AmountError, match="20 digits before the point"):
        amounts([LARGEST]).round(0)


def test_integers_are_cut_toward_zero(drawn):
    below_wholes = [2**bits * UNIT - 2 for bits in range(63)]
    known = [one for one in drawn.first + below_wholes if abs(one) < 2**63 * UNIT]
    found = amounts(known).astype("int64").tolist()
    assert found == [math.trunc(Fraction(one, UNIT)) for one in known]
