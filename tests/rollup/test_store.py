"""The store of blocks: each once, in order, with the numbers that events, callers and state roots tell."""

import random

import duckdb
import pytest
from support.optional import thorough
from support.rollup_blocks import block_data, slot
from support.rollup_stores import (
    ADDRESS,
    SOURCE,
    START,
    event,
    made_block,
    made_data,
    numbers_of,
    opened,
    pool_data,
    root,
)

import loopring_lab as lab
from loopring_lab.origin import Source
from loopring_lab.rollup import Store
from loopring_lab.rollup.calldata import RawBlock

pytestmark = pytest.mark.contract


@pytest.fixture
def store(tmp_path):
    return opened(tmp_path / "my blocks, ü.duckdb")


def test_what_is_added_is_read_back_and_only_once(store):
    blocks = [made_block(number) for number in range(1, 8)]
    assert store.file.add(blocks) == 7
    assert store.file.add(blocks[::-1]) == 0
    assert store.file.add([*blocks[5:], made_block(8), made_block(8)]) == 1
    again = Store(store.file.database.path)
    assert list(again.blocks().raw) == [*blocks, made_block(8)]


def test_a_block_known_by_its_data_alone_learns_of_its_submission_later(store):
    bare = RawBlock(made_data(3))
    assert store.file.add([bare]) == 1
    assert store.blocks().raw == (bare,)
    called = made_block(3, block_id=None, l1_block=None, transaction_hash=None)
    assert store.file.add([called]) == 0
    assert store.blocks().raw == (called,)
    assert store.file.add([made_block(3)]) == 0
    assert store.blocks().raw == (made_block(3),)
    assert store.file.add([bare, called, made_block(3)]) == 0
    assert len(store.file.index().blocks) == 1


def test_numbers_come_from_events_and_spread_along_the_state_roots(store):
    store.file.add([made_block(number, block_id=None) for number in (1, 2, 3, 4, 6, 7)])
    assert numbers_of(store) == [None] * 6
    store.file.add_events([event(3)], (5, 9))
    assert numbers_of(store) == [
        1,
        2,
        3,
        4,
        None,
        None,
    ]  # block 5, between 4 and 6, is not held
    store.file.add([made_block(7, transaction_hash=None)])
    assert numbers_of(store) == [1, 2, 3, 4, 6, 7]
    assert [raw.data for raw in store.blocks().raw] == [
        made_data(number) for number in (1, 2, 3, 4, 6, 7)
    ]


def test_a_root_that_two_blocks_share_tells_no_number(store):
    idle = block_data([bytes(68)], before=root(2), after=root(2), timestamp=START + 150)
    store.file.add(
        [
            made_block(2),
            *(RawBlock(data) for data in (idle, made_data(3), made_data(4))),
        ]
    )
    assert numbers_of(store) == [2, None, None, None]
    store.file.add_events([event(4)], (1, 2))
    assert numbers_of(store) == [2, 3, 4, None]


def test_blocks_without_a_number_are_in_the_order_of_time_and_place(store):
    facts = [(50, 7, 0), (50, 7, 1), (50, 9, 0), (51, 3, 0), (52, None, 0)]
    blocks = [
        RawBlock(
            block_data(
                [slot("deposit", amount=number)],
                timestamp=START + time,
                before=root(number),
            ),
            0,
            1,
            17,
            b"",
            "53228430",
            None,
            l1_block,
            None,
            place,
        )
        for number, (time, l1_block, place) in enumerate(facts)
    ]
    random.Random(1).shuffle(blocks)
    store.file.add(blocks)
    found = [(raw.l1_block, raw.place) for raw in store.blocks().raw]
    assert found == [(l1_block, place) for _, l1_block, place in facts]


def test_blocks_of_one_time_without_a_number_are_in_the_order_of_their_roots(store):
    blocks = [
        RawBlock(block_data([], before=root(n), after=root(n + 1), timestamp=START))
        for n in range(12)
    ]
    random.Random(1).shuffle(blocks)
    store.file.add([*blocks[:6], *blocks[7:]])
    index = store.file.index().blocks
    starts = index["merkle_root_before"].to_pylist()
    gaps = sum(
        start != end
        for start, end in zip(
            starts[1:], index["merkle_root_after"].to_pylist(), strict=False
        )
    )
    assert gaps == 1
    assert store.check().summary.loc["indices", "wrong"] == 1


@pytest.mark.parametrize("other", ["data", thorough("number"), thorough("event")])
def test_one_number_for_two_blocks_or_two_for_one_are_refused(store, other):
    store.file.add([made_block(5)])
    store.file.add_events([event(6)], (1, 2))
    wrong = {
        "data": made_block(7, block_id=5),
        "number": made_block(5, block_id=9),
        "event": made_block(8, block_id=6),
    }[other]
    with pytest.raises(lab.errors.BlockError, match="cannot both be"):
        store.file.add([made_block(10), wrong])
    with pytest.raises(
        lab.errors.BlockError, match="block 3 with sha256 .* and block 3 with sha256"
    ):
        store.file.add([made_block(3), made_block(4, block_id=3)])
    assert numbers_of(store) == [5]


def test_blocks_of_another_exchange_are_refused_by_name(store):
    store.file.add([made_block(1)])
    foreign = made_block(2)
    foreign = foreign._replace(data=b"\x11" * 20 + foreign.data[20:])
    with pytest.raises(
        lab.errors.BlockError, match=f"holds blocks of .*{ADDRESS}.*0x1111"
    ):
        store.file.add([foreign])
    with pytest.raises(lab.errors.ArchiveError, match="kept apart"):
        Store(store.file.database.path).file.bind(
            Source("other", False, "0x" + "11" * 20, 1)
        )
    with pytest.raises(lab.errors.ArchiveError, match="kept apart"):
        Store(store.file.database.path).file.bind(Source("synthetic", True, ADDRESS, 1))


def test_a_damaged_block_is_refused_and_nothing_of_its_batch_is_added(store):
    bad = bytearray(made_data(2))
    bad[98] = 77
    with pytest.raises(lab.errors.BlockError, match="unknown transaction type 77"):
        store.file.add([made_block(1), RawBlock(bytes(bad)), made_block(3)])
    assert len(store.file.index().blocks) == 0


def test_report_shows_ranges_gaps_and_what_events_name(store):
    store.file.add([made_block(number) for number in (4, 5, 6, 9, 12, 13)])
    store.file.add([RawBlock(made_data(30))])
    store.file.add_events([event(6), event(14), event(15)], (1, 2))
    report = store.report()
    assert report["first"].dropna().tolist() == [1, 4, 9, 12]
    assert report["first"].isna().tolist() == [False] * 4 + [True]
    assert report["last"].dropna().tolist() == [3, 6, 9, 13]
    assert report["blocks"].tolist() == [0, 3, 1, 2, 1]
    assert report["missing"].dropna().tolist() == [3, 2, 2, 2]
    assert report["first_l1_block"].dropna().tolist() == [
        11_000_004,
        11_000_009,
        11_000_012,
    ]
    assert report["last_time"].dropna().astype("int64").tolist() == [
        1000 * (START + 60 * n) for n in (6, 9, 13, 30)
    ]
    assert (
        "7 blocks, 9 missing; 1 without a number, around which others may be missing."
        in store._repr_html_()
    )


@pytest.mark.parametrize("second", [1 << 32, thorough(-1), thorough((1 << 63) - 1)])
def test_a_time_that_no_header_can_have_is_none(store, second):
    """Somebody else's file may say anything in its columns."""
    store.file.add([made_block(1), made_block(2)])
    with duckdb.connect(str(store.file.database.path)) as stranger:
        stranger.execute(f"UPDATE blocks SET timestamp = {second} WHERE number = 2")
    report = store.report()
    assert report[["first_time", "last_time"]].isna().to_numpy().sum() == 1
    assert "2 blocks" in store._repr_html_()
    assert report["blocks"].tolist() == [2]


def test_parts_of_several_sources_are_named_after_the_exchange(store):
    assert store.source == SOURCE.name
    parts = [Source(name, False, ADDRESS, 1) for name in ("one block", "another")]
    other = Store(store.file.database.path.with_name("other"))
    other.file.bind(parts[0])
    assert other.source == "one block"
    other.file.bind(parts[0])
    assert other.source == "one block"
    other.file.bind(parts[1])
    assert other.source == SOURCE.name
    other.file.bind(parts[0])
    assert other.source == SOURCE.name


def test_synthetic_worlds_are_told_apart_by_their_names(store):
    worlds = [Source(f"world {seed}", True, ADDRESS, 1) for seed in (1, 2)]
    other = Store(store.file.database.path.with_name("other"))
    other.file.bind(worlds[0])
    with pytest.raises(lab.errors.ArchiveError, match="of different sources are kept"):
        other.file.bind(worlds[1])


def test_blocks_that_only_events_name_are_missing(store):
    store.file.add_events([event(6)], (1, 2))
    columns = ["first", "last", "blocks", "missing"]
    assert store.report()[columns].to_numpy().tolist() == [[1, 6, 0, 6]]
    problems = store.check().problems
    assert problems["problem"].tolist() == ["blocks 1 to 6 not held (6)"]


def test_events_are_kept_once_and_spans_that_were_read_are_listed(store):
    store.file.add_events([event(1), event(2)], (100, 199), {7: "0x" + "ab" * 20})
    store.file.add_events([event(2), event(3)], (200, 300), {7: "0x" + "ab" * 20})
    store.file.add_events([], (500, 600))
    assert store.file.scanned() == [
        range(100, 200),
        range(200, 301),
        range(500, 601),
    ]
    assert store.file.index().events.to_pylist() == [
        event(number)._asdict() for number in (1, 2, 3)
    ]
    assert store.file.contracts() == {7: "0x" + "ab" * 20}


def test_blocks_are_read_by_number_and_batches_are_the_whole_store(store):
    every = [made_block(number) for number in range(1, 31)]
    for start in (20, 0, 10):
        store.file.add(every[start : start + 10])
    assert list(store.blocks(7, 12).raw) == every[6:12]
    assert list(store.blocks(first=29).raw) == every[28:]
    assert list(store.blocks(last=1).raw) == every[:1]
    batches = list(store.batches(8))
    assert [len(batch.raw) for batch in batches] == [8, 8, 8, 6]
    assert [raw for batch in batches for raw in batch.raw] == every
    for wrong in (-1, 1.0, True, "3"):
        with pytest.raises(lab.LabError, match="not the number of a block"):
            store.blocks(wrong)  # type: ignore[arg-type]
    with pytest.raises(lab.LabError, match="no block from 31 to 40"):
        store.blocks(31, 40)
    with pytest.raises(lab.LabError, match="1 or more"):
        next(store.batches(0))


def test_pools_are_those_of_the_whole_store_wherever_it_is_read(store):
    store.file.add(
        [
            RawBlock(pool_data(1, [3, 70_000, 3]), block_id=1),
            RawBlock(pool_data(2, []), block_id=2),
        ]
    )
    assert store.blocks(2, 2).known_pools == {3, 70_000}
    store.file.add([RawBlock(pool_data(3, [9]), block_id=3)])
    assert store.blocks(2, 2).known_pools == {3, 9, 70_000}


def test_tokens_are_those_stored_last(store):
    with pytest.raises(lab.LabError, match="no tokens here yet"):
        store.tokens()
    for places in (6, 8, 8):
        store.file.store_tokens(
            f'[{{"symbol": "USDC", "tokenId": 6, "decimals": {places}}}]'
        )
    assert store.tokens()["decimals"].to_dict() == {"USDC": 8}
    assert store.tokens().attrs["source"] == SOURCE.name
    with pytest.raises(lab.LabError):
        store.file.store_tokens("[{}]")


def test_an_archive_is_no_block_store_and_a_block_store_no_archive(store, tmp_path):
    with pytest.raises(
        lab.errors.NotAnArchive, match="not the one of an archive. Nothing was changed"
    ):
        lab.Archive(store.file.database.path).report()
    with pytest.raises(lab.errors.NotAnArchive, match="not the one of an archive"):
        lab.Archive(store.file.database.path).import_blocks(filled(store))
    (tmp_path / "old").mkdir()
    with pytest.raises(
        lab.errors.NotAnArchive,
        match="is a folder, .* and a block store is one file. Give its path",
    ):
        Store(tmp_path / "old")


def filled(store):
    store.file.add([made_block(1)])
    store.file.store_tokens('[{"symbol": "USDC", "tokenId": 6, "decimals": 6}]')
    return store


@pytest.mark.parametrize(
    "open_it", [Store, lambda address: lab.connect(blocks=address)]
)
def test_an_address_given_as_the_file_is_refused_and_not_repeated(
    open_it, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(lab.LabError, match="is no path. Give a file") as refusal:
        open_it("https://rpc.example.com/v3/0123456789abcdef")
    assert "0123456789abcdef" not in str(refusal.value)
    assert not any(tmp_path.iterdir())
