"""Flip 1,000 bits of an archive one at a time: no wrong value; 200 with repair: no good value lost.

Run: python tests/benchmarks/bench_archive_damage.py [flips] [repairs]
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.archive_damage import LATER, flip_bits, make_archive
from support.ledger import client_of

from loopring_lab.relayer import Relayer


def main(flips: int = 1_000, repairs: int = 200) -> int:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Relayer(LATER) as relayer:
        base = Path(folder) / "archive"
        make_archive(base, relayer)
        tally = flip_bits(base, flips, seed=1)
        print(f"{flips:,} flipped bits: no wrong value, member or report; verify named {tally.found:,}")
        for (kind, outcome), count in sorted(tally.read.items()):
            print(f"  {kind:18} {outcome:16} {count}")
        tally = flip_bits(base, repairs, seed=2, client=client_of(relayer))
        print(f"{repairs:,} flipped bits repaired: {tally.repaired:,} archives as before, no good value lost")
    print(f"{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
