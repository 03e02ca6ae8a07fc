"""What the chain says of a real block: the facts that answers of a relayer are held against."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

import loopring_lab as lab

Settled = dict[tuple[int, str], dict[str, Any]]


def client_of(recordings: Path) -> lab.Client:
    return lab.connect(recording=recordings / "mainnet_block_a")


def trades_of(client: lab.Client) -> pd.DataFrame:
    """Read every account of the recording."""
    assert client.accounts is not None
    return pd.concat([client.trades(account) for account in client.accounts], ignore_index=True)


def settled_of(recordings: Path) -> Settled:
    """Read the settled fills, by number and side."""
    lines = (recordings / "mainnet_block_a" / "settled.jsonl").read_text().splitlines()
    return {(int(fact["id"]), fact["side"]): fact for fact in map(json.loads, lines)}
