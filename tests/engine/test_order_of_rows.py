"""Any order of rows, and any split into frames put together again, gives the same result of every function."""

import functools
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.engines import assert_same, assert_same_rows, result_rows
from support.questions import POOL, QUESTIONS, ROOMS, Ask
from support.wire_rows import DECIMALS, NAMES, page, read, row

import loopring_lab as lab

SHUFFLES = 3
HASHES = [f"0x{number:064x}" for number in range(20)]


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


def check(frame: pd.DataFrame, ask: Ask, shuffles: int) -> None:
    """Compare answers to rows in other orders, and the notes under them; groups stay in their order."""
    expected = ask(frame)
    for seed in range(shuffles):
        found = ask(rearranged(frame, seed))
        assert_same(found, expected)
        if not isinstance(found, pd.DataFrame):
            continue
        assert found.attrs.get("notes") == expected.attrs.get("notes"), seed
        if not {"trade_id", "order_hash"} & {*found.columns}:
            assert_same_rows(result_rows(found), result_rows(expected))


def test_every_public_function_is_asked():
    asked = {name.partition(",")[0] for name in QUESTIONS}
    assert asked == {
        f"{room}.{name}" for room, module in ROOMS.items() for name in module.__all__
    }


@pytest.mark.thorough
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("seed", range(1))
def test_any_order_and_split_of_drawn_rows_gives_the_same(seed, question):
    check(drawn(seed), QUESTIONS[question], SHUFFLES)


def test_anomalies_are_those_of_the_rows_in_any_order():
    check(drawn(0), lab.anomalies, SHUFFLES)
    assert set(lab.anomalies(drawn(0))["reason"]) >= {
        "read twice: identical to another row",
        "id is missing",
    }
