"""A chain for syncs that are killed: a host that serves it, its blocks one at a time, and the comparison."""

import hashlib
import json
import sys
from typing import Any

import requests
from support.ethereum_stub import EthereumStub
from support.settled_world import SettledWorld

from loopring_lab.rollup import Store, calldata

FIRST_L1 = 11_149_814
APART = 150
SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
FAULTS = {"429": 0.04, "500": 0.04, "503": 0.04, "reset": 0.04, "truncated": 0.04}


def last_l1_block(blocks: int) -> int:
    return FIRST_L1 + APART * blocks


def chain_host(quirks: dict[str, Any]):
    """Serve a small world's chain until stdin ends; tell its address, and for every line the faults so far."""
    stub = EthereumStub(SettledWorld(size=0.02), **quirks)
    with stub.served() as url:
        print(url, stub.exchange, flush=True)
        for _ in sys.stdin:
            print(json.dumps(dict(stub.troubles.counts)), flush=True)


def one_at_a_time(url: str, exchange: str, last: int) -> dict[int, bytes]:
    """Read blocks as simply as can be: one request after the other, nothing stored."""
    session = requests.Session()
    found = dict[int, bytes]()

    def call(method, *parameters):
        asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        return session.post(url, json=asked).json()["result"]

    for first in range(FIRST_L1, last + 1, 10_000):
        wanted = {"fromBlock": hex(first), "toBlock": hex(min(last, first + 9_999))}
        for log in call(
            "eth_getLogs", wanted | {"address": exchange, "topics": [SUBMITTED]}
        ):
            content = bytes.fromhex(
                call("eth_getTransactionByHash", log["transactionHash"])["input"][2:]
            )
            data = {
                hashlib.sha256(raw.data).hexdigest(): raw.data
                for raw in calldata.read(content)
            }
            found[int(log["topics"][1], 16)] = data[log["data"][66:]]
    session.close()
    return found


def check(store: Store, truth: dict[int, bytes]):
    """Compare a store with the truth, block by block; each must be in one row, with its bytes."""
    raw = [one for batch in store.batches() for one in batch.raw]
    assert [one.block_id for one in raw] == sorted(truth)
    assert all(one.data == truth[one.block_id] for one in raw)
    rows = store.file.index().blocks["data_sha256"].to_pylist()
    assert len(rows) == len(set(rows)) == len(truth)
    # The blocks before those of the chain are a row of their own.
    report = store.report()
    assert report.loc[report["blocks"] > 0, "missing"].tolist() == [0]
