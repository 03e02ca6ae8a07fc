"""Kills a sync of blocks at random moments, while requests fail and events are left out of answers.

A host process imports everything once and forks a sync for each life, so that a life starts in milliseconds.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import requests
from support.archive_kills import PATIENCE, ask, drain, hosted, say
from support.child_output import wait
from support.settled_world import SettledWorld

from loopring_lab.relayer import Relayer, Settings
from loopring_lab.rollup import Store, calldata, fetching

FIRST_L1 = 11_149_814
APART = 150
SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
FAULTS = {"429": 0.04, "500": 0.04, "503": 0.04, "reset": 0.04, "truncated": 0.04}
COMMITTED_TOGETHER = 40


class Tally(NamedTuple):
    """The outcome of the kills."""

    kills: int
    finished: int
    blocks: int
    lives_with_commits: int
    stores: int
    faults: Counter[str]


def last_l1_block(blocks: int) -> int:
    return FIRST_L1 + APART * blocks


def chain_host(settings: dict[str, Any]) -> None:
    """Serve a small world's chain until stdin ends; tell its address, and for every line the faults so far."""
    with Relayer(SettledWorld(size=0.02), Settings(**settings)) as relayer:
        print(relayer.rpc_url, relayer.settings.exchange, flush=True)
        for _ in sys.stdin:
            print(json.dumps(dict(relayer.counts.faults)), flush=True)


def sync_host(url: str, last: int) -> None:
    """Fork a sync of the store that a line names; print its process, and again when it is done."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    fetching.BATCH_BLOCKS = COMMITTED_TOGETHER
    for path in sys.stdin:
        if os.fork() == 0:
            print("start", os.getpid(), flush=True)
            Store(path.strip()).sync(url, rate=None, to_block=last, progress=False)
            print("done", os.getpid(), flush=True)
            os._exit(0)


def one_at_a_time(url: str, exchange: str, last: int) -> dict[int, bytes]:
    """Read blocks as simply as can be: one request after the other, nothing stored."""
    session = requests.Session()
    found = dict[int, bytes]()

    def call(method: str, *parameters: Any) -> Any:
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


def held(path: Path) -> int:
    """Count the blocks that were stored, without opening the store as a sync does."""
    try:
        return len(Store(path).stored.index().blocks)
    except Exception:  # noqa: BLE001 - the store may not be there yet
        return 0


def kill_again_and_again(
    path: Path, kills: int, blocks: int, longest_life: float, seed: int = 1
) -> Tally:
    """Kill syncs, resume each store to the end before the next one begins, and compare with the chain.

    AssertionError where a block is lost, doubled or other than the chain's, read one request at a time.
    """
    dice = random.Random(seed)
    last = last_l1_block(blocks)
    finished = lives = before = 0
    troubled = {
        "faults": FAULTS,
        "rpc_omitted_logs": 0.02,
        "rpc_log_blocks": 20_000,
        "rpc_batch": 15,
        "latency": 0.02,
    }
    with (
        hosted(f"chain_host({troubled})", "rollup_kills") as chain,
        hosted("chain_host({})", "rollup_kills") as plain,
    ):
        url, _ = say(chain).split()
        truth = one_at_a_time(*say(plain).split(), last)
        stores = [path / "0"]
        with hosted(f"sync_host({url!r}, {last})", "rollup_kills") as host:
            for _ in range(kills):
                pid = begin(host, stores[-1])
                ended = wait(host.stdout, dice.uniform(0, longest_life))
                finished += ended
                if ended:
                    say(host)
                else:
                    os.kill(pid, signal.SIGKILL)
                    drain(host.stdout)
                now = held(stores[-1])
                assert now >= before, "blocks were lost"
                lives = lives + (now > before)
                before = now
                if now == len(truth):
                    check(Store(stores[-1]), truth)
                    stores = [*stores, path / str(len(stores))]
                    before = 0
            for _ in range(10):
                if held(stores[-1]) < len(truth):
                    begin(host, stores[-1])
                    assert wait(host.stdout, PATIENCE), "the last resume hangs"
                    host.stdout.readline()
        faults = json.loads(ask(chain))
    check(Store(stores[-1]), truth)
    return Tally(kills, finished, len(truth), lives, len(stores), Counter(faults))


def begin(host: subprocess.Popen[bytes], path: Path) -> int:
    host.stdin.write(f"{path}\n".encode())
    host.stdin.flush()
    return int(say(host).split()[1])


def check(store: Store, truth: dict[int, bytes]) -> None:
    """Compare a store with the truth, block by block; each must be in one row, with its bytes."""
    raw = [one for batch in store.batches() for one in batch.raw]
    assert [one.block_id for one in raw] == sorted(truth)
    assert all(one.data == truth[one.block_id] for one in raw)
    rows = store.stored.index().blocks["data_sha256"].to_pylist()
    assert len(rows) == len(set(rows)) == len(truth)
    assert store.report()["missing"].tolist() == [0]
