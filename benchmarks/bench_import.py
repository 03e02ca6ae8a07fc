"""Time `import loopring_lab` against `import pandas, pyarrow`, in fresh processes taken in turns.

python benchmarks/bench_import.py [rounds]
"""

import statistics
import subprocess
import sys

from timing import seconds

TARGET = 0.15
COMMANDS = {
    "pandas, pyarrow": "import pandas, pyarrow",
    "loopring_lab": "import loopring_lab",
}


def start(code: str) -> None:
    """Start a fresh Python that runs a line of code."""
    subprocess.run([sys.executable, "-c", code], check=True)


def main(rounds: int) -> None:
    """Print both medians and the median of the rounds' ratios."""
    for code in COMMANDS.values():
        start(code)  # warm the disk's cache and the byte code
    taken = [
        [seconds(lambda code=code: start(code)) for code in COMMANDS.values()]
        for _ in range(rounds)
    ]
    for name, times in zip(COMMANDS, zip(*taken, strict=True), strict=True):
        print(
            f"import {name:<16} {statistics.median(times):.3f} s (median of {rounds})"
        )
    ratio = statistics.median(ours / theirs for theirs, ours in taken)
    print(
        f"ratio {ratio:.2f}, target at most {TARGET}: {'met' if ratio <= TARGET else 'MISSED'}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
