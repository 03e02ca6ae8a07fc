"""Files of each format that was ever released stay readable, and are written to: the relayer cannot be asked again.

The files in `kept` were written by the first version of their format, on 26 and 27 November 2026. A new format adds
one, and never replaces these.
"""

import gzip
from pathlib import Path

import duckdb
import pytest
from support.settled_world import SUBMISSION

import loopring_lab as lab
from loopring_lab.archive.schema import KIND as ARCHIVE
from loopring_lab.relayer.chain import Chain
from loopring_lab.rollup.block_file import KIND as BLOCKS

KEPT = Path(__file__).parent / "kept"
TRADES = "SELECT trade_id, size, price, notional, fee, verbatim FROM rows ORDER BY ALL"
DATA = "SELECT sha256, data FROM blocks ORDER BY ALL"
EVENTS = """SELECT exchange, block_id, merkle_root, public_data_hash, l1_block, transaction_hash, log_index
FROM events, source
ORDER BY block_id"""


def unpacked(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(gzip.decompress((KEPT / f"{name}.gz").read_bytes()))
    return path


def asked(path: Path, query: str) -> list[tuple]:
    """Ask DuckDB alone, which knows nothing of formats."""
    with duckdb.connect(path, read_only=True) as connection:
        return connection.execute(query).fetchall()


def chain_of(path: Path) -> Chain:
    """Return the chain that a kept store was read from, as its events tell it: the world has changed since then."""
    logs = [
        {
            "address": exchange,
            "topics": [SUBMISSION, f"0x{block:064x}"],
            "data": f"0x{root.hex()}{data_hash.hex()}",
            "blockNumber": hex(l1_block),
            "blockHash": f"0x{l1_block:064x}",
            "transactionHash": transaction,
            "transactionIndex": "0x0",
            "logIndex": hex(place),
            "removed": False,
        }
        for exchange, block, root, data_hash, l1_block, transaction, place in asked(
            path, EVENTS
        )
    ]
    return Chain(logs, [])


def test_a_file_of_each_format_is_kept():
    names = {path.name for path in KEPT.iterdir()}
    archives = {f"archive-{n}.duckdb.gz" for n in range(2, ARCHIVE.format + 1)}
    stores = {f"blocks-{n}.duckdb.gz" for n in range(1, BLOCKS.format + 1)}
    assert names == archives | stores


@pytest.mark.parametrize("name", ["archive-2.duckdb"])
def test_an_archive_of_a_former_version_is_read_written_and_copied(name, tmp_path):
    path = unpacked(name, tmp_path)
    received = asked(path, TRADES)
    assert len(received) == 100
    archive = lab.Archive(path)
    trades = archive.trades()
    found = dict(zip(trades["trade_id"], trades["fee"], strict=True))
    assert {key: int(fee.scaleb(18)) for key, fee in found.items()} == {
        trade_id: fee for trade_id, _, _, _, fee, _ in received
    }
    assert archive.verify().empty

    archive.copy(tmp_path / "copy.duckdb")
    assert asked(tmp_path / "copy.duckdb", TRADES) == received

    client = lab.connect()
    newest = trades["created_at"].max()
    archive.sync(client, account_id=10083, since=newest)
    # What was received stands as it was; nothing of it is there twice.
    kept = asked(path, TRADES)
    assert set(received) <= set(kept)
    assert len(set(kept)) == len(kept)


@pytest.mark.parametrize("name", ["blocks-1.duckdb"])
def test_a_block_store_of_a_former_version_is_read_written_and_copied(
    name, tmp_path, monkeypatch
):
    path = unpacked(name, tmp_path)
    chain = chain_of(path)
    blocks = asked(path, DATA)
    assert len(blocks) == 21
    store = lab.rollup.Store(path)
    assert store.report()["blocks"].sum() == 21
    assert len(store.blocks().headers()) == 21

    store.copy(tmp_path / "copy.duckdb")
    assert asked(tmp_path / "copy.duckdb", DATA) == blocks

    monkeypatch.setattr("loopring_lab.relayer.chain.shipped_chain", lambda: chain)
    store.sync(to_block=11_153_000)
    assert asked(path, DATA) == blocks
