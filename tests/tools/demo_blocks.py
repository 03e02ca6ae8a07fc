"""Write the blocks that the package ships: the first month of the default world, settled.

Run: ``python tests/tools/demo_blocks.py``. The test of the embedded chain says whether they are up to date.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from support.settled_world import FIRST_L1_BLOCK, L1_BLOCKS, SettledWorld

from loopring_lab.relayer.chain import BLOCKS

MONTH = FIRST_L1_BLOCK + L1_BLOCKS * 1_440
"""The L1 block of the last half hour of 30 days."""


def lines(last: int = MONTH) -> Iterator[str]:
    """Give events, then the transactions that they name, as an Ethereum endpoint answers them."""
    chain = SettledWorld().chain
    logs = chain.logs(0, last)
    for log in logs:
        yield _compact(log)
    for name in dict.fromkeys(log["transactionHash"] for log in logs):
        transaction = chain.transaction(name)
        # Tokens are registered by transactions that submit nothing.
        if transaction is not None:
            yield _compact(transaction)


def listings() -> dict[str, str]:
    """Give the files beside the blocks: whose they are, and the exchange's tokens."""
    world = SettledWorld()
    settings = world.chain.settings
    source = {
        "name": world.name,
        "synthetic": True,
        "exchange": settings.exchange.lower(),
        "chainId": settings.chain_id,
    }
    return {
        "source.json": json.dumps(source, indent=1) + "\n",
        "tokens.json": json.dumps(world.tokens(), indent=1) + "\n",
    }


def _compact(record):
    return json.dumps(record, separators=(",", ":")) + "\n"


def main():
    BLOCKS.parent.mkdir(exist_ok=True)
    for name, text in listings().items():
        (BLOCKS.parent / name).write_text(text, encoding="utf-8")
    content = "".join(lines()).encode()
    # Without a time and a name the same blocks give the same bytes.
    BLOCKS.write_bytes(gzip.compress(content, compresslevel=9, mtime=0))
    print(f"{BLOCKS.name}: {BLOCKS.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
