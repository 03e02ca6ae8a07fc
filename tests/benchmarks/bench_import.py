"""How long `import loopring_lab` takes, against `import pandas, pyarrow`: fresh processes, in turn.

python tests/benchmarks/bench_import.py [rounds]
"""

import statistics
import subprocess
import sys
import time

TARGET = 1.3
COMMANDS = {"pandas, pyarrow": "import pandas, pyarrow", "loopring_lab": "import loopring_lab"}


def seconds(code: str) -> float:
    """Return how long a fresh Python takes to start and run a line of code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def main(rounds: int) -> None:
    """Print both medians and the median of the rounds' ratios."""
    for code in COMMANDS.values():
        seconds(code)  # warm the disk's cache and the byte code
    taken = [[seconds(code) for code in COMMANDS.values()] for _ in range(rounds)]
    for name, times in zip(COMMANDS, zip(*taken, strict=True), strict=True):
        print(f"import {name:<16} {statistics.median(times):.3f} s (median of {rounds})")
    ratio = statistics.median(ours / theirs for theirs, ours in taken)
    print(f"ratio {ratio:.2f}, target at most {TARGET}: {'met' if ratio <= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
