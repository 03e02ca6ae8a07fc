"""An archive of one million trades beside that of another version of the package, in turns, in processor time.

Each step runs in a process of its own. Run: python benchmarks/bench_archive_speed.py OTHER_TREE [trades]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
LITTLE = 10_000  # an account of 20,000 trades, see `bench_archive_size`
SYNCED = (20, 10_000)  # accounts and their trades


def save_pages(folder: Path, trades: int) -> None:
    from bench_archive_size import ACCOUNTS, LITTLE_TRADES, save

    from loopring_lab.relayer import World

    folder.mkdir()
    (folder / "tokens.json").write_text(json.dumps(World().tokens()))
    (folder / "markets.json").write_text(json.dumps({"markets": World().markets()}))
    each = (trades - LITTLE_TRADES) // (2 * (ACCOUNTS - 1))
    for number in range(ACCOUNTS):
        for kind in ("amm", "dex"):
            save(folder, LITTLE + number, kind, each if number else LITTLE_TRADES // 2)


def import_pages(path: Path, saved: Path) -> Any:
    from loopring_lab.archive import Archive

    return int(Archive(path).import_pages(saved, progress=False)["rows"].sum())


def sync(path: Path, saved: Path) -> Any:
    from bench_archive_sync import running

    from loopring_lab.archive import Archive

    path = path.with_name(f"{path.name}-synced")
    accounts = [20_000 + number for number in range(SYNCED[0])]
    with running(*SYNCED) as (client, _):
        return int(
            Archive(path).sync(client, accounts=accounts, progress=False)["rows"].sum()
        )


def sync_again(path: Path, saved: Path) -> Any:
    return sync(path, saved)


def report(path: Path, saved: Path) -> Any:
    from loopring_lab.archive import Archive

    return int(Archive(path).report()["rows"].sum())


def one_account(path: Path, saved: Path) -> Any:
    from loopring_lab.archive import Archive

    return len(Archive(path).trades(LITTLE))


def everything(path: Path, saved: Path) -> Any:
    from loopring_lab.archive import Archive

    return len(Archive(path).trades())


def nothing(path: Path, saved: Path) -> Any:
    """Open and close the file."""
    from loopring_lab.archive import Archive

    return Archive(path).source


STEPS: dict[str, Callable[[Path, Path], Any]] = {
    one.__name__: one
    for one in (
        import_pages,
        sync,
        sync_again,
        nothing,
        report,
        one_account,
        everything,
    )
}


def step(name: str, path: str, saved: str) -> None:
    """Do a step; tell its processor time, and that of doing it again where that does the same."""
    import duckdb  # noqa: F401 - not to be timed

    import loopring_lab  # noqa: F401

    taken = []
    for _ in range(1 if name in ("import_pages", "sync", "sync_again") else 4):
        begun = time.process_time()
        wall = time.perf_counter()
        found = STEPS[name](Path(path), Path(saved))
        taken.append((time.process_time() - begun, time.perf_counter() - wall))
    print(json.dumps([found, *min(taken)]))


def size_of(path: Path) -> int:
    files = [path] if path.is_file() else path.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def main(other: Path, trades: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder, "saved")
        sys.path[:0] = [str(HERE / "tests"), str(HERE / "benchmarks"), str(HERE)]
        save_pages(saved, trades)
        trees = {"here": HERE, "other": other}
        for name in STEPS:
            for which, tree in trees.items():
                paths = [
                    str(tree),
                    str(tree / "tests"),
                    str(tree / "benchmarks"),
                    str(tree / "tests" / "benchmarks"),
                ]
                environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
                words = [
                    sys.executable,
                    "-W",
                    "ignore",
                    __file__,
                    "step",
                    name,
                    str(Path(folder, which)),
                    str(saved),
                ]
                said = subprocess.run(
                    words, env=environment, capture_output=True, text=True, check=False
                )
                if said.returncode:
                    print(name, which, said.stderr[-600:], flush=True)
                    continue
                found, worked, wall = json.loads(said.stdout.splitlines()[-1])
                print(
                    f"{name:14} {which:6} {worked:8.3f} s of processors, {wall:8.3f} s: {found}",
                    flush=True,
                )
        for which in trees:
            size = size_of(Path(folder, which)) / trades
            synced = size_of(Path(folder, f"{which}-synced")) / (SYNCED[0] * SYNCED[1])
            print(f"bytes a trade  {which:6} imported {size:.0f}, synced {synced:.0f}")


if __name__ == "__main__":
    if sys.argv[1] == "step":
        step(*sys.argv[2:])
    else:
        main(
            Path(sys.argv[1]).resolve(),
            int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000,
        )
