"""Flip 1,000 bits of an archive and its log, one at a time; read 300 files that were made to do harm, and write to them.

Run: python benchmarks/bench_archive_damage.py [flips] [files]
"""

import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.file_trials import (
    flip_bits,
    hostile_files,
    make_archive,
    open_all,
    write_to,
)


def harm(
    folder: Path, good: Path, canary: Path, number: int
) -> tuple[str, str, float, int]:
    """Open one file in a process of its own; return its kind, the outcome, CPU seconds and MB more than before."""
    ways = hostile_files(folder, good, canary, random.Random(number))
    name = list(ways)[number % len(ways)]
    path = folder / f"{number}.duckdb"
    ways[name](path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    ended = f"{open_all(path)}, then {write_to(path)}"
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return name, ended, time.process_time() - began, grown >> 10


def main(flips: int = 1_000, files: int = 300) -> int:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "a.duckdb"
        make_archive(base)
        tally = flip_bits(base, flips, seed=1)
        print(f"{flips:,} flipped bits: no wrong value, member or report")
        for (where, outcome), count in sorted(tally.items()):
            print(f"  {where:6} {outcome:16} {count}")
        canary = Path(folder) / "canary" / "secret.txt"
        canary.parent.mkdir()
        canary.write_text("a secret of the user\n")
        before = canary.stat()
        Path(folder, "work").mkdir()
        outcomes: Counter[str] = Counter()
        seconds = 0.0
        megabytes = 0
        # A process that crashes fails the whole run.
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=20) as pool:
            for number in range(files):
                found = pool.apply_async(
                    harm, (Path(folder, "work"), base, canary, number)
                ).get(60)
                outcomes[found[1]] += 1
                seconds = max(seconds, found[2])
                megabytes = max(megabytes, found[3])
        after = canary.stat()
        assert (after.st_mtime_ns, after.st_size, after.st_ino) == (
            before.st_mtime_ns,
            before.st_size,
            before.st_ino,
        )
        assert [file.name for file in canary.parent.iterdir()] == ["secret.txt"]
        print(
            f"{files} hostile files: {dict(outcomes)}; at most {seconds:.1f} s of CPU and {megabytes} MB each"
        )
    print(f"{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
