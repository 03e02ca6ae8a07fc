"""Calldata: every wrapper, form and kind of argument; damage is refused by place, or read truly."""

import random
import re
import tracemalloc

import pytest
from support.rollup_blocks import (
    FORMS,
    WRAPPERS,
    auxiliary,
    submit,
    text_of,
    varied_data,
    word,
    wrapped,
)

import loopring_lab as lab
from loopring_lab.rollup import calldata

PLACE = re.compile(
    r"(byte [\d,]+|block \d+|slot \d+|[\d,]+ bytes|selector|more than 16 MiB)"
)
DATA = [varied_data(seed, size) for seed, size in ((1, 16), (2, 0), (3, 40))]


def parts(raw):
    return [
        (one.block_type, one.block_size, one.block_version, one.data) for one in raw
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("selector", ["", *WRAPPERS, "01234567"])
@pytest.mark.parametrize("compress", [True, False])
def test_every_wrapper_and_form(form, selector, compress):
    entries = [[(3, True, b"first"), (9, False, b"")], [], [(0, True, bytes(70))]]
    call = submit(DATA, form=form, version=13, entries=entries)
    sent = wrapped(call, selector=selector, compress=compress) if selector else call
    raw = calldata.read(sent)
    assert parts(raw) == [
        (0, size, 13, data) for size, data in zip((16, 0, 40), DATA, strict=True)
    ]
    assert [(one.form, one.place) for one in raw] == [(form, 0), (form, 1), (form, 2)]
    assert [one.auxiliary for one in raw] == [auxiliary(each, form) for each in entries]


def test_bytes_and_text_are_read_alike():
    sent = wrapped(submit(DATA[:1]))
    for given in (sent, f" 0x{sent.hex().upper()}\n", sent.hex()):
        assert [one.data for one in lab.rollup.decode(given).raw] == DATA[:1]
    data = DATA[0]
    for given in (data, data.hex(), (f"0x{data.hex()}\n",), iter([data])):
        assert [one.data for one in lab.rollup.decode_data(given).raw] == DATA[:1]
    assert len(lab.rollup.decode_data([])) == len(lab.rollup.decode(submit([]))) == 0


@pytest.mark.parametrize("given", [None, 7, {"input": 3}, ["0x12", None]])
def test_other_kinds_are_refused(given):
    for read in (lab.rollup.decode, lab.rollup.decode_data):
        with pytest.raises(lab.LabError, match=r"calldata|block_data"):
            read(given)


@pytest.mark.parametrize("text", ["", "0x1", "0x12 34", "0xdcb2aa31", "é", "12" * 40])
def test_text_that_is_no_calldata(text):
    for read in (lab.rollup.decode, lab.rollup.decode_data):
        with pytest.raises(lab.errors.BlockError):
            read(text)


def test_numbers_of_blocks():
    sent = submit(DATA)
    for first, numbers in ((None, [None] * 3), (0, [0, 1, 2])):
        for found in (
            lab.rollup.decode(sent, first_block=first),
            lab.rollup.decode_data(DATA, first_block=first),
        ):
            assert [one.block_id for one in found.raw] == numbers
    for wrong in (-1, True, 1.0, "7", 2**63):
        with pytest.raises(lab.LabError, match="first_block"):
            lab.rollup.decode(sent, first_block=wrong)


@pytest.mark.parametrize(
    ("sizes", "place"),
    [((15, 0, 40), "block 0 at byte 164"), ((16, 0, 65_535), "block 2 at byte ")],
)
def test_a_size_that_disagrees_with_the_data(sizes, place):
    with pytest.raises(lab.errors.BlockError, match=place):
        lab.rollup.decode(submit(DATA, sizes=sizes))


@pytest.mark.parametrize("length", [0, 97, 99, 98 + 67])
def test_data_of_no_whole_slots(length):
    with pytest.raises(
        lab.errors.BlockError, match=r"block 1: block data of .* expected 98 \+ 68"
    ):
        lab.rollup.decode_data([DATA[0], bytes(length)])


def test_an_unknown_type_is_named_by_block_and_slot():
    wrong = bytearray(DATA[2])
    wrong[98 + 29 * 7] = 10
    with pytest.raises(
        lab.errors.BlockError, match="block 2, slot 7: unknown transaction type 10"
    ):
        lab.rollup.decode(submit([*DATA[:2], bytes(wrong)]))


def test_blocks_that_share_their_data_cannot_grow():
    """Thousands of blocks that all point to the same megabyte would otherwise take gigabytes."""
    data = varied_data(1, 15_000)
    count = 2_000
    heads = [
        word(0),
        word(15_000),
        word(17),
        word(480),
        *[word(0)] * 9,
        word(480),
        word(480),
    ]
    call = bytes.fromhex("53228430") + word(32) + word(count) + word(32 * count) * count
    call += b"".join(heads) + text_of(data)
    with pytest.raises(
        lab.errors.BlockError, match=r"block \d+ at byte \d+ overlaps|do not fit"
    ):
        lab.rollup.decode(call + bytes(32 * 15 * count))


@pytest.mark.parametrize(
    "content",
    [40_000 * b"\0\0\xff\xff", (b"\x00\x01\xff\xff\x07" * 40_000), bytes(1 << 16)],
)
def test_bombs_are_refused_before_they_take_memory(content):
    sent = bytes.fromhex(WRAPPERS[0]) + word(1) + word(64) + text_of(content)
    tracemalloc.start()
    try:
        with pytest.raises(lab.errors.BlockError):
            lab.rollup.decode(sent)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_longer_than_the_limit():
    for given in (bytes((16 << 20) + 1), "00" * ((16 << 20) + 3)):
        with pytest.raises(lab.errors.BlockError, match="more than 16 MiB"):
            lab.rollup.decode(given)


def damaged(calldata, chance):
    """Cut calldata, flip bits of it, or replace one of its first words, which are offsets and lengths."""
    way = chance.choice(("cut", "bits", "word"))
    if way == "cut":
        return calldata[: chance.randrange(len(calldata))]
    content = bytearray(calldata)
    if way == "bits":
        for _ in range(chance.randint(1, 8)):
            content[chance.randrange(min(len(content), 1_000))] ^= (
                1 << chance.randrange(8)
            )
        return bytes(content)
    at = 4 + 32 * chance.randrange(24)
    values = (0, 31, 64, len(calldata), 2**31, 2**64, 2**255, 2**256 - 1)
    content[at : at + 32] = word(chance.choice(values))
    return bytes(content)


def test_damage_is_refused_by_place_or_gives_whole_blocks():
    """The benchmark bench_rollup_decode holds 10,000 against a second reader."""
    chance = random.Random(14)
    calls = [submit(DATA[:1]), submit(DATA, form=FORMS[0]), wrapped(submit(DATA))]
    outcomes = [outcome(damaged(chance.choice(calls), chance)) for _ in range(1_000)]
    assert 50 < outcomes.count("read") < 950
    assert [
        said for said in outcomes if said != "read" and not PLACE.search(said)
    ] == []


def outcome(sent):
    """Decode calldata; return why it is refused where it is."""
    try:
        found = calldata.read(sent)
    except lab.errors.BlockError as error:
        return str(error)
    assert all(len(one.data) == 98 + 68 * one.block_size for one in found)
    return "read"
