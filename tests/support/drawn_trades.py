"""Trades drawn to be unkind: both sides of a fill or one, many at one moment, some read twice, in any order."""

import functools
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from support.questions import POOL
from support.wire_rows import DECIMALS, NAMES, page, read, row

HASHES = [f"0x{number:064x}" for number in range(1, 21)]


@functools.cache
def drawn(seed: int) -> pd.DataFrame:
    """Draw fills with both sides or one, many at one moment, some read twice, roles and blocks known or not."""
    dice = random.Random(seed)
    rows: dict[str | None, list[Any]] = {"amm": [], "dex": [], None: []}
    for number in range(70):
        market = dice.choice(["LRC-ETH", "ETH-USDT", "WBTC-ETH"])
        base, quote = NAMES[market]
        size = dice.randrange(1, 10**6) * 10 ** (DECIMALS[base] - 3)
        moment = 1_648_749_600_000 + dice.choice(
            [0, 1, 1, 2, 5_000, 60_000, 61_000, 7_200_000]
        ) * dice.randrange(1, 4)
        block = dice.choice([("0", "0"), ("7", str(dice.randrange(9))), (None, None)])
        shared = {
            "createdAt": str(moment),
            "id": str(100 + number),
            "size": str(size),
            "market": market,
            "price": f"{dice.choice([1000, 1000, 1001, 1003, 1010])}E-3",
            "blockId": block[0],
            "indexInBlock": block[1],
        }
        if dice.random() < 0.15:
            shared |= dice.choice(
                [{"price": "0.0"}, {"size": None}, {"createdAt": "0"}, {"id": None}]
            )
        fill_type = dice.choice(["amm", "dex", "dex", None])
        for side in dice.choice([["BUY"], ["SELL"], ["BUY", "SELL"]]):
            paid = (
                dice.choice([0, 10, 20])
                * size
                // 10_000
                // (1 if side == "BUY" else 10**12)
            )
            is_pool = fill_type == "amm" and side == "SELL"
            one = row(
                **shared,
                side=side,
                feeAmount=str(0 if is_pool else paid),
                tokenId=str(quote if side == "BUY" else base),
                accountId=str(POOL if is_pool else dice.randrange(2, 7)),
                orderHash=dice.choice([None, *HASHES]),
                type=dice.choice(
                    ["maker", None] if is_pool else ["maker", "taker", "taker", None]
                ),
            )
            rows[fill_type].append(one)
    parts = [read(page(some), fill_type=fill_type) for fill_type, some in rows.items()]
    frame = pd.concat([*parts, parts[1].head(9)], ignore_index=True)
    assert len(frame) > 90
    return frame


def rearranged(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Shuffle rows, split them into frames that know only their own categories, and put these together."""
    dice = np.random.default_rng(seed)
    # Categories of a part are only those that occur in it, as frames of several reads have them.
    shuffled = frame.iloc[dice.permutation(len(frame))]
    if not seed:
        return frame[::-1]
    borders = [0, *sorted(dice.integers(0, len(frame), 3)), len(frame)]
    parts = [shuffled.iloc[start:stop] for start, stop in pairwise(borders)]
    named = [
        part.assign(market=part["market"].cat.remove_unused_categories())
        for part in parts
    ]
    return pd.concat(named, ignore_index=bool(dice.integers(2)))
