"""Numbers of texts, sorted arrays, and lookups of prices beside a loop over all of them."""

import itertools
import math
import random
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loopring_lab.engines import arrays, convert
from loopring_lab.engines.asof import NAT, TIE_BREAKERS, PriceHistory, in_order
from loopring_lab.engines.orders import ORDER, numbered_orders, order_span

HASHES = ["0x" + "a" * 64, "0x" + "b" * 64, "0xb" + "a" * 63]  # the first and the last end alike
TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=3), st.sampled_from(HASHES)))
FAR = [-(2**63) + 1, -(2**61), -1, 0, 1, 2**61, 2**63 - 1]


@settings(max_examples=60)
@given(TEXTS, st.integers(0, 3))
def test_equal_texts_have_one_number(texts: list[str | None], skipped: int) -> None:
    column = pa.array([*["skipped"] * skipped, *texts], pa.string()).slice(skipped)
    numbers = arrays.numbers_of_texts(column).tolist()
    for (one, number), (other, again) in itertools.product(zip(texts, numbers, strict=True), repeat=2):
        assert ((one or "") == (other or "")) == (number == again)


def test_what_lies_under_a_null_changes_no_number() -> None:
    bits = pa.py_buffer(bytes([0b101]))
    column = pa.Array.from_buffers(
        pa.string(), 3, [bits, pa.py_buffer(np.array([0, 1, 3, 4], np.int32)), pa.py_buffer(b"abcd")]
    )
    assert column.to_pylist() == ["a", None, "d"]
    assert (arrays.numbers_of_texts(column) == arrays.numbers_of_texts(pa.array(["a", None, "d"]))).all()


@given(st.lists(st.sampled_from(FAR)), st.lists(st.sampled_from(FAR)), st.booleans())
def test_values_are_told_from_others_that_share_bits(values: list[int], among: list[int], few: bool) -> None:
    ordered = np.unique(np.array(among, np.int64))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "FEW", len(ordered) + 1 if few else 0)
        found = arrays.is_among(np.array(values, np.int64), ordered)
        hashes = np.array(values, np.int64).view(np.uint64), np.sort(ordered.view(np.uint64))
        assert arrays.is_among(*hashes).tolist() == found.tolist()
    assert found.tolist() == [value in among for value in values]


SMALL = st.one_of(st.none(), st.integers(0, 2))
ROW = st.fixed_dictionaries(
    {
        **dict.fromkeys(["moment", "block_id", "index_in_block", "trade_id", *ORDER[1:]], SMALL),
        "side": st.sampled_from(["SELL", "BUY", None]), "order_hash": st.sampled_from([*HASHES, None]),
        "price": SMALL,
    }
)  # fmt: skip
TYPES = {"side": pa.string(), "order_hash": pa.string(), "price": pa.decimal256(37, 18)}


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    return pa.table(
        {name: pa.array([row[name] for row in rows], TYPES.get(name, pa.int64())) for name in ROW_NAMES}
    )


ROW_NAMES = ["moment", *dict.fromkeys([*TIE_BREAKERS, *ORDER])]


@settings(max_examples=100)
@given(st.lists(ROW, max_size=30))
def test_rows_come_in_the_order_in_which_arrow_sorts_them(rows: list[dict[str, object]]) -> None:
    table = table_of([row | {"block_id": row["block_id"] or None} for row in rows])  # block 0 is unknown
    keys = [(name, "ascending") for name in ("moment", *TIE_BREAKERS)]
    assert in_order(table_of(rows)).tolist() == pc.sort_indices(table, sort_keys=keys).to_pylist()


@settings(max_examples=100)
@given(st.lists(ROW, max_size=30))
def test_orders_of_one_name_have_one_number(rows: list[dict[str, object]]) -> None:
    table, names = table_of(rows), []
    for row in rows:
        sold = tuple(row[name] for name in ORDER[1:])
        names.append(row["order_hash"] or (None if None in sold else sold))
    ids = table.schema.get_field_index("account_id")
    textual = table.set_column(ids, "account_id", table["account_id"].cast(pa.string()))
    numbers, again = (found.tolist() for found in numbered_orders(table, textual))
    assert numbers == again
    named = {*zip(numbers, names, strict=True)}
    assert len({number for number, _ in named}) == len({name for _, name in named}) == len(named)
    assert all((number < 0) == (name is None) for number, name in named)


def splitmix(word: int) -> int:
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor % 2**64
    return word ^ word >> 31


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-129, 128)))
def test_narrowed_integers_are_equal_and_no_smaller_type_holds_them(values: list[int]) -> None:
    numbers = np.array(values, np.int64)
    found = arrays.narrowed(numbers)
    assert found.tolist() == values
    assert arrays.narrowed(numbers / 2).tolist() == (numbers / 2).tolist()
    smaller = [kind for kind in (np.int8, np.int16, np.int32) if np.dtype(kind).itemsize < found.itemsize]
    for kind in smaller:
        assert not all(np.iinfo(kind).min <= value <= np.iinfo(kind).max for value in values)


GROUPED = st.lists(st.tuples(st.integers(0, 3), st.floats(-1e300, 1e300)))


def joined(parts: list[list[tuple[int, float]]]) -> dict[str, np.ndarray]:
    """Return the pieces of the sums of each part, one after the other."""
    columns = (zip(*part, strict=True) if part else ((), ()) for part in parts)
    pieces = [arrays.pieces_of_sums(np.array(ids, int), np.array(some, float)) for ids, some in columns]
    return {name: np.concatenate([one[name] for one in pieces]) for name in pieces[0]}


@given(GROUPED, GROUPED, st.randoms(use_true_random=False))
def test_sums_in_pieces_are_exact_and_the_same_in_any_parts_and_order(
    some: list[tuple[int, float]], others: list[tuple[int, float]], order: random.Random
) -> None:
    rows = [*some, *others, *((group, -value) for group, value in some[::2])]  # some add up to little
    found = arrays.sums_of_pieces(joined([rows]), 4)
    for group, sum_ in enumerate(found.tolist()):
        exact = sum(Fraction(value) for number, value in rows if number == group)
        assert abs(Fraction(sum_) - exact) <= Fraction(math.ulp(sum_)), group
    order.shuffle(rows)
    places = sorted(order.randint(0, len(rows)) for _ in range(2))
    parts = [rows[start:stop] for start, stop in pairwise([0, *places, len(rows)])]
    assert arrays.sums_of_pieces(joined(parts), 4).tolist() == found.tolist()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_sum_of_what_is_no_number_is_none(value: float) -> None:
    found = arrays.sums_of_pieces(joined([[(0, 1.5), (1, value)], [(1, 2.0), (2, -0.25)]]), 4)
    assert [*map(str, found.tolist())] == ["1.5", "nan", "-0.25", "0.0"]


def test_sums_of_more_rows_than_are_added_up_at_once_are_exact() -> None:
    values = np.arange(3 * arrays.CHUNK) * 2.0**-30 + 1 / 3
    groups = np.arange(len(values)) % 3
    found = arrays.sums_of_pieces(arrays.pieces_of_sums(groups, values), 3)
    exact = [math.fsum(values[groups == group]) for group in range(3)]
    assert np.abs(found - exact).max() <= math.ulp(max(exact))


def test_numbers_of_texts_are_the_same_in_every_process() -> None:
    texts = ["", "a", "ab", "abcdefgh", "0x" + "a" * 64]
    expected = []
    for text in texts:
        number = len(text)
        for start in range(0, len(text), 8):
            word = int.from_bytes(text[start : start + 8].encode(), "little")
            number = splitmix((number + 0x9E3779B97F4A7C15) % 2**64 ^ word)
        expected.append(number)
    assert arrays.numbers_of_texts(pa.array(texts)).tolist() == expected
    assert len({*expected}) == len(texts)


@given(st.lists(st.sampled_from(FAR)), st.lists(st.sampled_from([*FAR, -5, 5])), st.sampled_from([1, 10**6]))
def test_a_scale_keeps_order_and_tells_known_values_from_others(
    known: list[int], others: list[int], count: int
) -> None:
    scale = arrays.Scale(np.array(known, np.int64), count)
    numbers = dict(zip([*known, *others], scale(np.array([*known, *others], np.int64)).tolist(), strict=True))
    assert all(0 <= number < scale.width for number in numbers.values())
    assert scale.width * count < 2**63
    for one, other in itertools.product(numbers, known):
        assert (one < other, one == other) == (numbers[one] < numbers[other], numbers[one] == numbers[other])


PARTS = st.lists(st.tuples(*[st.one_of(st.integers(-2, 2), st.integers(0, 2**40), st.sampled_from(FAR))] * 3))


@settings(max_examples=300)
@given(PARTS, st.integers(1, 3))
def test_rows_are_sorted_as_numpy_sorts_them_by_several_keys(rows: list[tuple[int, ...]], count: int) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3).T[:count]
    assert arrays.sorted_by(*columns).tolist() == np.lexsort(columns[::-1]).tolist()


@settings(max_examples=200)
@given(PARTS, st.sampled_from([0, 40, 63]))
def test_rows_are_sorted_by_keys_and_those_of_equal_keys_by_columns(
    rows: list[tuple[int, ...]], shift: int
) -> None:
    groups, high, low = np.array(rows, np.int64).reshape(-1, 3).T
    groups, keys = groups % 3, (high >> shift).view(np.uint64) ^ np.uint64(1 << 63)
    found = arrays.sorted_by_keys(groups, keys, high, low)
    wanted = sorted(zip(groups.tolist(), high.tolist(), low.tolist(), strict=True))
    assert [*zip(*(column[found].tolist() for column in (groups, high, low)), strict=True)] == wanted


@pytest.mark.parametrize("highest", [10_009, 2**40, 2**63 - 1])
def test_many_values_are_found_where_a_few_are(highest: int) -> None:
    chance = np.random.default_rng(1)
    among = np.sort(chance.integers(0, highest - 10, 5000))
    values = np.append(chance.integers(-9, highest, 6000), [-(2**63), *among[:50]])
    for side in ("left", "right"):
        assert (arrays.search(among, values, side) == np.searchsorted(among, values, side)).all()
    assert (arrays.distinct(values) == sorted({*values.tolist()})).all()


def test_ids_are_equal_where_their_texts_are() -> None:
    numbers, texts = pa.chunked_array([[1, None, 20]]), pa.chunked_array([["20", "1", None, "x"]])
    mine, theirs = map(arrays.ids_of, (numbers, texts))
    assert mine.tolist() == [1, NAT, 20]
    assert theirs.tolist()[:3] == [20, 1, NAT]
    others = arrays.ids_of(pa.chunked_array([["x", "01", "-0", "1.0", str(10**18), str(2**64), "-7", "7"]]))
    assert (len({*others.tolist()}), others[-2:].tolist()) == (8, [-7, 7])


def test_spans_in_columns_change_no_price() -> None:
    dice = random.Random(5)
    rows = [
        {
            "moment": dice.choice([None, *range(8)]), "market": dice.choice("AB"), "trade_id": dice.randrange(9),
            "order_hash": dice.choice(["0xa", "0xb", "0xc", None]), "price": dice.choice([0, 1, 2, None]),
            "account_id": dice.choice([1, 2]), "token_id": 0, "storage_id": dice.choice([None, 1, 2]),
        }
        for _ in range(120)
    ]  # fmt: skip
    frame = pa.Table.from_pylist(rows)
    moment, price = (
        frame["moment"].cast(pa.timestamp("ms", "UTC")),
        frame["price"].cast(pa.decimal256(37, 18)),
    )
    frame = frame.drop_columns(["moment", "price"]).append_column("created_at", moment)
    frame = frame.append_column("price", price)
    plain = convert.to_table(frame, "test", frame.column_names)
    first, last = order_span(plain)
    spanned = plain.append_column("first", pa.array(first)).append_column("last", pa.array(last))
    assert PriceHistory(spanned, "test").has_spans
    assert not PriceHistory(plain, "test").has_spans
    slow, fast = PriceHistory(plain, "test").lookup(plain), PriceHistory(spanned, "test").lookup(spanned)
    assert (slow.after(last) == fast.after(last)).all()
    assert (slow.before(first, strictly=True) == fast.before(first, strictly=True)).all()
    assert (slow.before(first) == fast.before(first)).all()
    assert np.count_nonzero(slow.before(first) >= 0) > 9
