"""Kill a relayer with a file store 100 times during key updates: nothing lost, nothing applied twice.

Run: ``python benchmarks/bench_kills.py [kills]``. It prints what became of the requests.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.relayer_kills import kill_repeatedly


def main(kills: int) -> int:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tally = kill_repeatedly(Path(folder) / "relayer.db", kills)
    seconds = time.perf_counter() - began
    print(
        f"{kills} kills in {seconds:.1f} s; {tally.accepted.total():,} requests accepted, each processed once"
    )
    print(f"updates pending when a relayer came back: {tally.pending_at_start}")
    resolved = ", ".join(
        f"{count} {name}" for name, count in sorted(tally.resolved.items())
    )
    print(f"requests sent, which were: {resolved}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 100))
