"""Blocks in an archive: every account's fills as the blocks give them, each once, whatever happens."""

import random

import pandas as pd
import pytest
from support.ledger import Ledger, client_of
from support.rollup_blocks import block_data, slot
from support.rollup_stores import SOURCE, START, made_block, opened, root

import loopring_lab as lab
from loopring_lab.archive import Archive, from_blocks
from loopring_lab.cli import main
from loopring_lab.errors import ArchiveError, LabError, NotAnArchive
from loopring_lab.origin import Source
from loopring_lab.relayer import Relayer
from loopring_lab.rollup import Store, settled
from loopring_lab.rollup.calldata import RawBlock

TOKENS = (
    '[{"symbol": "ETH", "tokenId": 0, "decimals": 18}, {"symbol": "LRC", "tokenId": 1, "decimals": 18},'
    '{"symbol": "USDC", "tokenId": 6, "decimals": 6}, {"symbol": "TINY", "tokenId": 40, "decimals": 30}]'
)
LATE_POOL = 20_007  # beyond the ids that the exchange reserves for pools


def amount(dice):
    """Return a number of 24 bits that is an amount from 10**9 to 10**20 smallest units."""
    return dice.randrange(9, 15) << 19 | dice.randrange(1, 1 << 19)


def fills_block(number, *, fills=12, pool=None):
    """Return a block of fills among a few accounts; some are odd. `pool` is named by an amm update."""
    dice = random.Random(number)
    slots = []
    for _ in range(fills):
        fill = {
            "storage_a": dice.randrange(1 << 32),
            "storage_b": number,
            "account_a": 20_000 + dice.randrange(9),
            "account_b": dice.choice([3, 20_000 + dice.randrange(9)]),
            "sell_a": dice.choice([0, 0, 6]),
            "sell_b": dice.choice([1, 1, 40, 99, 40_000]),
            "fill_a": amount(dice),
            "fill_b": dice.choice([0, amount(dice), amount(dice)]),
            "data_a": dice.randrange(64),
            "data_b": dice.choice([0, 0, 0, 64]),
        }
        slots.append(slot("spot_trade", **fill))
    if pool is not None:
        slots.append(slot("amm_update", account=pool, token=1, balance=7))
    header = {"before": root(number - 1), "after": root(number)}
    data = block_data(slots, size=16, timestamp=START + number // 3, **header)
    return RawBlock(data, block_id=number)


def filled(path, *numbers):
    store = opened(path)
    store.file.store_tokens(TOKENS)
    store.file.add([fills_block(number) for number in numbers])
    return store


@pytest.fixture
def store(tmp_path):
    made = filled(tmp_path / "store, ü", *range(100, 120))
    # Of these, every field is at random.
    made.file.add([made_block(number) for number in range(120, 124)])
    idle = [fills_block(number, fills=0) for number in (124, 126)]
    made.file.add([idle[0], fills_block(125), idle[1]])
    return made


@pytest.fixture
def archive(store, tmp_path):
    made = Archive(tmp_path / "my archive, ü")
    made.import_blocks(store, progress=False)
    return made


@pytest.fixture
def small_transactions(monkeypatch):
    monkeypatch.setattr(from_blocks, "ROWS_OF_A_TRANSACTION", 60)
    monkeypatch.setattr(from_blocks, "BLOCKS_AT_ONCE", 2)


def expected(store, account_id=None):
    return settled.trades(store.blocks(), store.tokens(), account_id=account_id)


def check_equal(archive, store):
    pd.testing.assert_frame_equal(archive.trades(), expected(store))


def test_all_accounts_and_each_one_as_the_blocks_give_them(archive, store):
    frame = archive.trades()
    check_equal(archive, store)
    assert frame.attrs == {
        "source": SOURCE.name,
        "synthetic": False,
    }
    assert archive.source == SOURCE.name
    for account in (3, 20_004, 20_008):
        pd.testing.assert_frame_equal(archive.trades(account), expected(store, account))
    with pytest.raises(LabError, match="the archive does not hold account 4000"):
        archive.trades(4_000)
    middle = frame["created_at"].iloc[len(frame) // 2]
    parts = [archive.trades(until=middle), archive.trades(since=middle)]
    assert pd.concat(parts)["trade_id"].tolist() == frame["trade_id"].tolist()
    assert len(lab.anomalies(frame)) >= frame["extra"].notna().sum() > 0


def test_report_is_per_account_and_type(archive, store):
    report = archive.report()
    groups = expected(store).groupby(["account_id", "fill_type"], observed=True)
    counts = groups.agg(
        rows=("trade_id", "size"),
        odd=("extra", "count"),
        first=("created_at", "min"),
        last=("created_at", "max"),
    ).reset_index()
    for name in counts.columns:
        assert report[name].astype(str).tolist() == counts[name].astype(str).tolist()
    assert report["complete"].all()
    assert report[["total", "missing", "checked_at"]].isna().all(axis=None)
    assert report["synced_at"].notna().all()
    assert report.dtypes.astype(str)["missing"] == "Int64"
    part = report[report["account_id"].isin([3, 20_004])].reset_index(drop=True)
    assert archive.report(accounts=[3, 20_004]).equals(part)
    assert archive.report(accounts=[]).empty


def test_trades_of_blocks_are_not_said_to_be_counted_or_all(archive, capsys):
    # There are blocks before the first one, and nobody has counted the trades.
    said = "trades, all of the blocks from the first to the last one imported"
    assert main(["report", str(archive._file.path)]) == 0
    assert capsys.readouterr().out.endswith(f"{said}\n")
    assert said.removeprefix("trades, ") in archive._repr_html_()


@pytest.mark.thorough
def test_a_gap_between_blocks_is_not_complete_until_it_is_filled(tmp_path):
    store = filled(tmp_path / "store", 10, 11, 14)
    archive = Archive(tmp_path / "a")
    assert not archive.import_blocks(store)["complete"].any()
    said = "blocks are missing between the first and the last one imported"
    assert said in archive._repr_html_()
    store.file.add([fills_block(12), fills_block(13)])
    assert archive.import_blocks(store)["complete"].all()
    check_equal(archive, store)


@pytest.mark.usefixtures("small_transactions")
def test_an_import_that_fails_leaves_whole_blocks_and_the_next_one_resumes(
    store, tmp_path
):
    archive = Archive(tmp_path / "a")
    seen = list[int]()

    def stop(held, of):
        assert of == 27
        seen.append(held)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.import_blocks(store, progress=stop)
    part = archive.trades()
    whole = expected(store)
    assert 0 < len(part) < len(whole)
    counts = whole.groupby("block_id").size()
    for block, count in part.groupby("block_id").size().items():
        assert count == counts[block]
    assert archive.import_blocks(store)["complete"].all()
    check_equal(archive, store)


@pytest.mark.thorough
def test_a_pool_that_becomes_known_later_is_one_in_all_its_fills(store, archive):
    mine = archive.trades(LATE_POOL)
    assert (mine["fill_type"] == "dex").any()
    store.file.add([fills_block(127, pool=LATE_POOL)])
    archive.import_blocks(store)
    assert (archive.trades(LATE_POOL)["fill_type"] == "amm").all()
    check_equal(archive, store)
    archive.import_blocks(store)
    check_equal(archive, store)


def test_other_sources_and_other_rows_are_refused(archive, tmp_path):
    other = Store(tmp_path / "other")
    exchange = SOURCE.exchange
    other.file.bind(Source("another name", True, exchange, 5))
    other.file.store_tokens(TOKENS)
    other.file.add([fills_block(900)])
    before = len(archive.trades())
    with pytest.raises(
        ArchiveError, match="holds trades from .*and these are from 'another name'"
    ):
        archive.import_blocks(other)
    assert len(archive.trades()) == before
    ledger = Ledger(accounts=1, trades=5)
    with Relayer(ledger) as relayer:
        client = client_of(relayer)
        with pytest.raises(ArchiveError, match="nothing was added: use another file"):
            archive.sync(client, accounts=ledger.accounts)
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "tokens.json").write_text(TOKENS)
    (saved / "markets.json").write_text('{"markets": []}')
    (saved / "1-dex.json").write_text('{"totalNum": 0, "trades": []}')
    with pytest.raises(ArchiveError, match="read from blocks.*as a relayer sent them"):
        archive.import_pages(saved, source=archive.source)
    with pytest.raises(LabError, match=r"expected a lab\.rollup\.Store, got str"):
        archive.import_blocks("my-blocks")


def test_blocks_without_a_number_and_stores_without_tokens_are_refused(tmp_path):
    archive = Archive(tmp_path / "a")
    store = opened(tmp_path / "store")
    with pytest.raises(NotAnArchive, match="no blocks here yet"):
        archive.import_blocks(Store(tmp_path / "nothing"))
    store.file.add([fills_block(7)])
    with pytest.raises(LabError, match="no tokens here yet"):
        archive.import_blocks(store)
    store.file.store_tokens(TOKENS)
    store.file.add([fills_block(30)._replace(block_id=None)])
    with pytest.raises(LabError, match="1 of 2 blocks have no number.*first_block="):
        archive.import_blocks(store)
    assert not (tmp_path / "a").exists()
    with pytest.raises(NotAnArchive):
        archive.trades()
