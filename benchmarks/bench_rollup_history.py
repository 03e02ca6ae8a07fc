"""The exchange's whole history, generated: a store of 67,896 full blocks, checked, imported and summarised.

Each step runs in a process of its own, and is reported with its seconds and its peak of memory.
Run: python benchmarks/bench_rollup_history.py [blocks] [folder]
"""

import multiprocessing
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from rollup_history import CHAIN_ID, LAYOUT, POOLS, SIZE, History
from support.rollup_blocks import EXCHANGE
from timing import status

import loopring_lab as lab
from loopring_lab.origin import Source
from loopring_lab.rollup import Store
from loopring_lab.rollup.stored import Submission

BLOCKS = 67_896
MEMORY = 2 << 30
SOURCE = Source("generated history", True, "0x" + EXCHANGE.hex(), CHAIN_ID)
TOKENS = 10 + POOLS


def write(folder: Path, blocks: int) -> str:
    """Generate the blocks and their events, and add them to a store."""
    store = Store(folder / "store.duckdb")
    history = History(blocks)
    store.stored.bind(SOURCE)
    tokens = ",".join(
        f'{{"symbol": "T{one}", "tokenId": {one}, "decimals": 18}}'
        for one in range(TOKENS)
    )
    store.stored.store_tokens(f"[{tokens}]")
    added = sum(store.stored.add(batch) for batch in history.batches())
    submissions = history.submissions()
    events = (
        Submission(**row) for row in submissions.select(Submission._fields).to_pylist()
    )
    store.stored.add_events(
        events, (11_149_814, int(submissions["l1_block"][-1].as_py()))
    )
    store.stored.file.settle()
    assert added == blocks
    return f"{size_of(folder / 'store.duckdb'):,.0f} MB"


def check(folder: Path, blocks: int) -> str:
    found = Store(folder / "store.duckdb").check(progress=False)
    assert found.problems.empty, found.problems
    return f"{int(found.summary['checked'].max()):,} checked, no problem"


def import_blocks(folder: Path, blocks: int) -> str:
    report = lab.Archive(folder / "archive.duckdb").import_blocks(
        Store(folder / "store.duckdb"), progress=False
    )
    assert report["complete"].all()
    assert report["rows"].sum() == 2 * blocks * LAYOUT["spot_trade"]
    return f"{report['rows'].sum():,} rows of {report['account_id'].nunique():,} accounts, {size_of(folder / 'archive.duckdb'):,.0f} MB"


def import_again(folder: Path, blocks: int) -> str:
    report = lab.Archive(folder / "archive.duckdb").import_blocks(
        Store(folder / "store.duckdb"), progress=False
    )
    return f"{report['rows'].sum():,} rows"


def summarise(folder: Path, blocks: int) -> str:
    found = lab.fees.summary(lab.Archive(folder / "archive.duckdb"), by="fill_type")
    assert found["fills"].sum() == 2 * blocks * LAYOUT["spot_trade"]
    return f"{len(found)} lines"


def one_account(folder: Path, blocks: int) -> str:
    trades = lab.Archive(folder / "archive.duckdb").trades(account_id=10_777)
    return f"{len(trades):,} rows"


STEPS: list[Callable[[Path, int], str]] = [
    write,
    check,
    import_blocks,
    import_again,
    summarise,
    one_account,
]


def size_of(folder: Path) -> float:
    paths = [folder] if folder.is_file() else folder.rglob("*")
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def measured(step: int, folder: Path, blocks: int, channel: Any) -> None:
    """Run one step; send what it says, its seconds, those of the processors, and the peak of memory."""
    begin = time.perf_counter()
    worked = time.process_time()
    said = STEPS[step](folder, blocks)
    channel.send(
        (
            said,
            time.perf_counter() - begin,
            time.process_time() - worked,
            status("VmHWM"),
        )
    )


def main() -> None:
    blocks = int(sys.argv[1]) if len(sys.argv) > 1 else BLOCKS
    folder = Path(
        sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="history-")
    )
    print(f"{blocks:,} blocks, {blocks * SIZE:,} transactions, in {folder}", flush=True)
    for step, function in enumerate(STEPS):
        ours, theirs = multiprocessing.Pipe()
        arguments = (step, folder, blocks, theirs)
        process = multiprocessing.get_context("spawn").Process(
            target=measured, args=arguments
        )
        process.start()
        theirs.close()
        said, seconds, worked, peak = ours.recv()
        process.join()
        note = "" if peak < MEMORY else ", MORE THAN 2 GiB"
        rate = blocks * SIZE / seconds
        print(
            f"{function.__name__:14} {seconds:8,.1f} s ({worked:,.1f} s of processors), "
            f"{rate:12,.0f} transactions/s, peak {peak / 2**30:.2f} GiB{note}: {said}",
            flush=True,
        )
    if len(sys.argv) <= 2:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
