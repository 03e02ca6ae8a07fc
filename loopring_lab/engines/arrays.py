"""Columns as sorted and numbered arrays, without a Python object for each row."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import combined

NAT = np.iinfo(np.int64).min
"""An unknown time in milliseconds, or an unknown number."""
LARGE = 2**61  # products below it cannot overflow
SIDES_OF_EQUALS: tuple[Literal["left"], Literal["right"]] = ("left", "right")
FEW, CHUNK, SHORT_BITS = 1 << 12, 1 << 13, 16
SPARE_BITS, MOST_BITS, LONGER = 4, 25, 4
"""Values are told by four more bits than number those they are sought in, unless these are far more."""
NEARLY_BITS = 3  # of rows before a smaller one, where columns are nearly in order
WHOLE = r"^(0|-?[1-9]\d{0,17})$"
DIGIT = 27
"""Binary digits of a piece of a sum: three pieces hold each float, and sums of 2**36 pieces fit 64 bits."""
NO_PLACE = 99
"""The place of what is no number: floats have lower ones."""
GAMMA, MIXERS = 0x9E3779B97F4A7C15, ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))  # SplitMix64


class Scale:
    """Numbers integers in their order: by the distance from the smallest, or by rank if that may overflow.

    Others than the known ones have numbers of their own, alike between two neighbours.
    """

    def __init__(self, known: np.ndarray, count: int) -> None:
        low, high = (int(known.min()), int(known.max())) if len(known) else (0, 0)
        self._low, self._high, self.width = low - 1, high + 1, high - low + 3
        self._ranked = None
        if max(self.width * max(count, 1), -low, high) >= LARGE:
            self._ranked = distinct(known)
            self.width = 2 * len(self._ranked) + 1

    def __call__(self, values: np.ndarray) -> np.ndarray:
        if self._ranked is not None:
            return np.asarray(sum(search(self._ranked, values, side) for side in SIDES_OF_EQUALS))
        return np.asarray(np.clip(values, self._low, self._high) - self._low)


def as_text(column: Any) -> pa.Array:
    """Return ids or names as strings; pandas holds integers with gaps as floats."""
    column = column.cast(pa.int64(), safe=False) if pa.types.is_floating(column.type) else column
    return combined(column.cast(pa.string()))


def encoded(column: pa.Array | pa.ChunkedArray) -> pa.DictionaryArray:
    """Return ids or names as strings, each different one once."""
    column = combined(column)
    if not pa.types.is_dictionary(column.type):
        return as_text(column).dictionary_encode()
    texts = as_text(column.dictionary)
    if texts.null_count or len(texts.unique()) < len(texts):
        return as_text(column.cast(column.type.value_type)).dictionary_encode()
    return pa.DictionaryArray.from_arrays(column.indices, texts)


def coded(column: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """Return the number of each text of a column, -1 for null, and the texts."""
    texts = encoded(column)
    return integers(texts.indices, -1), texts.dictionary.to_pylist()


def numbers_of_texts(texts: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Return a 64-bit number for each text, the same in every process; null as the empty text."""
    texts = combined(texts)
    if pa.types.is_dictionary(texts.type):
        numbers = np.append(numbers_of_texts(texts.dictionary), numbers_of_texts(pa.array([""])))
        return np.asarray(numbers[integers(texts.indices, len(texts.dictionary))])
    known = np.asarray(texts.is_valid())
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], width)[texts.offset : texts.offset + len(texts) + 1]
    numbers, lengths = np.zeros(len(texts), np.uint64), np.diff(offsets) * known
    for length in np.flatnonzero(np.bincount(lengths[lengths > 0])):
        rows = np.flatnonzero(lengths == length)
        texts_at = np.lib.stride_tricks.sliding_window_view(data, int(length))
        room = np.zeros((min(CHUNK, len(rows)), -(-length // 8)), np.uint64)
        for start in range(0, len(rows), CHUNK):
            part = rows[start : start + CHUNK]
            places = offsets[part]
            side_by_side = (np.diff(places) == length).all()
            some = slice(places[0], places[-1] + 1, length) if side_by_side else places
            words = room[: len(part)]
            words.view(np.uint8)[:, :length] = texts_at[some]
            found = np.full(len(part), length, np.uint64)
            for word in words.T:
                found = mixed((found + np.uint64(GAMMA)) ^ word)
            numbers[part] = found
    return numbers


def integers(column: pa.Array | pa.ChunkedArray, null: int) -> np.ndarray:
    """Return a column of numbers as integers of 64 bits, with this one in place of null."""
    column = column.cast(pa.int64(), safe=False)
    return np.asarray((column.fill_null(null) if column.null_count else column).to_numpy())


def numbers_of_ids(ids: pa.ChunkedArray) -> np.ndarray:
    """Return a 64-bit number for each id: integers themselves, also as text, others by their text."""
    if pa.types.is_integer(ids.type) or pa.types.is_floating(ids.type):
        return integers(ids, 0).view(np.uint64)
    texts = encoded(ids)
    whole = pc.match_substring_regex(texts.dictionary, WHOLE)
    numbers = numbers_of_texts(texts.dictionary)
    numbers[np.asarray(whole)] = texts.dictionary.filter(whole).cast(pa.int64()).to_numpy().view(np.uint64)
    return np.asarray(np.append(numbers, np.uint64(0))[integers(texts.indices, len(numbers))])


def mixed(words: np.ndarray) -> np.ndarray:
    """Mix 64-bit integers, each to another one (SplitMix64)."""
    found = words.copy()
    shifted = np.empty_like(found)
    for shift, factor in MIXERS:
        found ^= np.right_shift(found, np.uint64(shift), out=shifted)
        found *= np.uint64(factor)
    found ^= np.right_shift(found, np.uint64(31), out=shifted)
    return found


def ids_of(ids: pa.ChunkedArray) -> np.ndarray:
    """Return the numbers of ids as signed integers; `NAT` for null."""
    numbers = numbers_of_ids(ids).view(np.int64)
    return np.where(ids.is_valid(), numbers, NAT) if ids.null_count else numbers


def search(among: np.ndarray, values: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
    """Search sorted values; many are searched nearly in their order, which is several times faster."""
    if min(len(among), len(values)) < FEW or is_ascending(values):
        return np.searchsorted(among, values, side)
    low, high = int(values.min()), int(values.max())
    shift = max((high - low).bit_length() - SHORT_BITS, 0)
    order = np.argsort((values - low >> shift).astype(np.uint16), kind="stable")
    found = np.empty(len(values), np.int64)
    found[order] = np.searchsorted(among, values[order], side)
    return found


def is_ascending(values: np.ndarray) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def sorted_by(*columns: np.ndarray) -> np.ndarray:
    """Return the order of rows by columns of integers, the first one first; equal rows stay in order."""
    count = len(columns[0])
    while columns and is_ascending(columns[-1]):
        columns = columns[:-1]
    if not columns:
        return np.arange(count)
    lows, bits = [int(column.min()) for column in columns], count.bit_length()
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    size = math.prod(spans)
    if size >= LARGE:
        return np.lexsort(columns[::-1])
    keys = np.zeros(count, np.int64)
    for column, low, span in zip(columns, lows, spans, strict=True):
        keys *= span
        keys += column
        keys -= low
    if size <= 1 << SHORT_BITS:
        return np.argsort(keys.astype(np.uint16), kind="stable")  # in linear time
    if np.count_nonzero(keys[1:] < keys[:-1]) < count >> NEARLY_BITS:
        return np.argsort(keys, kind="stable")  # which takes runs in order as they are
    if size >= LARGE >> bits:
        return sorted_by_keys(np.zeros(count, np.int64), keys.view(np.uint64) << np.uint64(2), keys)
    keys <<= bits
    keys |= np.arange(count)
    keys.sort()  # with the place of each row: many times faster than a stable sort of places
    return keys & ((1 << bits) - 1)


def sorted_by_keys(groups: np.ndarray, keys: np.ndarray, *columns: np.ndarray) -> np.ndarray:
    """Return the order of rows by group, then by columns; equal rows stay in order.

    `keys` of 64 bits are in the order of the columns: equal keys say nothing.
    """
    bits, top = len(keys).bit_length(), int(groups.max(initial=0)).bit_length()
    packed = keys >> np.uint64(bits + top)
    packed <<= np.uint64(bits)
    packed |= groups.astype(np.uint64) << np.uint64(64 - top)
    packed |= np.arange(len(keys), dtype=np.uint64)
    packed.sort()
    rows = (packed & np.uint64((1 << bits) - 1)).view(np.int64)
    packed >>= np.uint64(bits)
    alike = packed[1:] == packed[:-1]
    again = np.flatnonzero(alike)
    unlike = np.zeros(len(again), bool)
    for column in columns:
        unlike |= column[rows[again + 1]] != column[rows[again]]
    if unlike.any():
        run = np.append(0, np.cumsum(~alike))
        part = np.flatnonzero(is_among(run, distinct(run[again[unlike]])))
        some = rows[part]
        rows[part] = some[np.lexsort((*(column[some] for column in columns[::-1]), run[part]))]
    return rows


def float_keys(values: np.ndarray) -> np.ndarray:
    """Return integers in the same order as floats."""
    keys = (values + 0.0).view(np.int64)
    turned = keys >> 63
    turned |= np.int64(NAT)
    keys ^= turned
    return keys.view(np.uint64)


def distinct(values: np.ndarray) -> np.ndarray:
    """Return different values in order, faster than `numpy.unique`, which hashes them."""
    ordered = np.sort(values)
    return np.asarray(ordered[first_of(ordered)])


def narrowed(numbers: np.ndarray) -> np.ndarray:
    """Return numbers, signed integers in the smallest type that holds them: to be sent or kept."""
    if numbers.dtype.kind != "i":
        return numbers
    low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
    return numbers.astype(np.min_scalar_type(min(low, -1 - high)), copy=False)


def pieces_of_sums(groups: np.ndarray, values: np.ndarray) -> dict[str, np.ndarray]:
    """Add up floats by group without rounding, and return the sums in pieces, which can be added up again.

    A sum is that of ``units * 2 ** (DIGIT * place)`` over the rows of its ``group``.
    """
    unknown = groups[~np.isfinite(values)]
    if len(unknown):
        groups, values = groups[np.isfinite(values)], values[np.isfinite(values)]
    sizes = np.abs(values)
    ends = sizes.min(initial=0.5, where=sizes > 0), sizes.max(initial=0.5)  # which is of the place of zeros
    low, high = ((np.frexp(ends)[1] - 1) // DIGIT - (2, 0)).tolist()
    span = high - low + 1
    table = np.zeros((int(groups.max(initial=-1)) + 1) * span, np.int64)
    step = min(max(len(table), CHUNK), 1 << 53 - DIGIT)  # sums of so many are exact in floats
    for start in range(0, len(groups), step):
        rest, exponents = np.frexp(values[start : start + step])
        places = (exponents - 1) // DIGIT
        np.ldexp(rest, exponents - DIGIT * places, out=rest)
        keys = groups[start : start + step] * np.int64(span) + (places - low)
        for _ in range(3):
            digits = np.trunc(rest)
            table += np.bincount(keys, digits, len(table)).astype(np.int64)
            rest, keys = (rest - digits) * (1 << DIGIT), keys - 1
    there = np.flatnonzero(table)
    return {
        "group": np.append(there // span, unknown),
        "place": np.append(there % span + low, np.full(len(unknown), NO_PLACE)),
        "units": np.append(table[there], np.ones(len(unknown), np.int64)),
    }


def sums_of_pieces(pieces: dict[str, np.ndarray], count: int) -> np.ndarray:
    """Return the sums of so many groups from their pieces, in whatever parts and order these come."""
    known = pieces["place"] != NO_PLACE
    groups, places, units = (pieces[name][known] for name in ("group", "place", "units"))
    low, high = int(places.min(initial=0)), int(places.max(initial=0)) + 2  # sums of units have 64 bits
    table = np.zeros((high - low + 1, count), np.int64)
    np.add.at(table.ravel(), (places - low) * count + groups, units)
    _carry(table)
    signs = np.where(table[-1] < 0, -1, 1)
    table *= signs
    _carry(table)
    sums = np.zeros(count)
    for place, row in enumerate(table, low):
        sums += np.ldexp(row.astype(np.float64), DIGIT * place)
    sums[pieces["group"][~known]] = np.nan
    return signs * sums


def _carry(table: np.ndarray) -> None:
    for place in range(len(table) - 1):
        table[place + 1] += table[place] >> DIGIT
        table[place] &= (1 << DIGIT) - 1


def first_of(*columns: np.ndarray) -> np.ndarray:
    """Return the places in sorted columns where one of them changes."""
    changes = np.zeros(max(len(columns[0]) - 1, 0), bool)
    for column in columns:
        changes |= column[1:] != column[:-1]
    return np.flatnonzero(np.append(True, changes))[: len(columns[0])]


def is_among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Return a mask of the values that are among sorted others; most of many are told by their low bits."""
    if len(ordered) and len(values) <= max(FEW, len(ordered) // LONGER):
        return _are_among(values, ordered)
    bits = min(max(SHORT_BITS, len(ordered).bit_length() + SPARE_BITS), MOST_BITS)
    marks, mask = np.zeros(1 << bits, bool), (1 << bits) - 1
    marks[ordered.astype(np.int64) & mask] = True
    found = marks.take(values.astype(np.int64) & mask)
    some = np.flatnonzero(found)
    found[some] = _are_among(values[some], ordered)
    return found


def _are_among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    places = np.searchsorted(ordered, values).clip(max=len(ordered) - 1)
    return np.asarray(ordered[places] == values)


def expand(starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return every position of half-open ranges, each with the number of its range."""
    counts = np.maximum(stops - starts, 0)
    numbers = np.repeat(np.arange(len(counts)), counts)
    steps = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    return numbers, starts[numbers] + steps


def places_among(values: pa.DictionaryArray, among: pa.Array) -> np.ndarray:
    """Return the place of each value among others; -1 where it is null or not there."""
    places = integers(pc.index_in(values.dictionary, value_set=among), -1)
    return np.append(places, -1).take(integers(values.indices, len(places)))
