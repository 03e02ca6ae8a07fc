"""Frames of trades from rollup blocks: rows a second, and against the same rows read as relayer's JSON.

Run: PYTHONPATH=tests python benchmarks/bench_rollup_frames.py [blocks]
"""

import json
import random
import sys
import time

import pandas as pd
from support.rollup_blocks import block_data, slot
from timing import paired, seconds

import loopring_lab as lab

BLOCKS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
SIZE = 384
DIFFERENT = 20  # blocks; the others repeat these
ROUNDS = 7
PAGE = 50
TOKENS = {
    "ETH": (0, 18),
    "LRC": (1, 18),
    "USDT": (3, 6),
    "WBTC": (4, 8),
    "USDC": (6, 6),
}
MARKETS = ["LRC-ETH", "ETH-USDC", "LRC-USDT", "WBTC-ETH", "ETH-USDT"]


def made_up_block(chance: random.Random) -> bytes:
    slots = []
    for _number in range(SIZE):
        base, quote = chance.choice(MARKETS).split("-")
        sold, bought = (base, quote) if chance.random() < 0.5 else (quote, base)
        exponents = {
            token: TOKENS[token][1] - chance.randrange(2, 6) << 19
            for token in (sold, bought)
        }
        slots.append(
            slot(
                "spot_trade",
                storage_a=2 * chance.randrange(10**6),
                storage_b=2 * chance.randrange(10**6),
                account_a=chance.randrange(10_001, 200_000),
                account_b=chance.choice(
                    (1, 22, 107, chance.randrange(10_001, 200_000))
                ),
                sell_a=TOKENS[sold][0],
                sell_b=TOKENS[bought][0],
                fill_a=chance.randrange(1, 1 << 19) | exponents[sold],
                fill_b=chance.randrange(1, 1 << 19) | exponents[bought],
                data_a=chance.choice((0, 8, 10, 25)),
            )
        )
    return block_data(slots)


def as_pages(trades: pd.DataFrame) -> list[bytes]:
    """Write trades as a relayer serves them: 13 members a row, newest first."""
    places = {symbol: decimals for symbol, (_, decimals) in TOKENS.items()}
    rows = [
        [
            "1648179367000", str(row.trade_id), row.side, f"{row.size.scaleb(places[row.base]):.0f}",
            f"{row.price:.8f}", row.market, f"{row.fee.scaleb(places[row.fee_token]):.0f}", "20000",
            str(row.index_in_block), str(row.account_id), str(row.token_id), str(row.storage_id), f"0x{number:064x}",
        ]
        for number, row in enumerate(trades.itertuples())
    ]  # fmt: skip
    rows.reverse()
    return [
        json.dumps(
            {"totalNum": len(rows), "trades": rows[at : at + PAGE]},
            separators=(",", ":"),
        ).encode()
        for at in range(0, len(rows), PAGE)
    ]


def main() -> None:
    chance = random.Random(7)
    made = [made_up_block(chance) for _ in range(DIFFERENT)]
    tokens = lab.tables.tokens(
        [
            {"tokenId": i, "symbol": symbol, "decimals": places}
            for symbol, (i, places) in TOKENS.items()
        ]
    )
    ids = {name: [TOKENS[symbol][0] for symbol in name.split("-")] for name in MARKETS}
    listed = [
        {"market": m, "baseTokenId": b, "quoteTokenId": q} for m, (b, q) in ids.items()
    ]
    markets = lab.tables.markets(listed, tokens)
    blocks = lab.rollup.decode_data(
        [made[number % DIFFERENT] for number in range(BLOCKS)], first_block=1
    )
    blocks.table("spot_trade")
    frame = blocks.trades(tokens)
    taken = [seconds(lambda: blocks.trades(tokens)) for _ in range(ROUNDS)]
    print(
        f"{len(frame):,} rows from decoded blocks: {len(frame) / min(taken):,.0f} rows a second at best"
    )
    print(f"  median of {ROUNDS}: {len(frame) / sorted(taken)[ROUNDS // 2]:,.0f}")
    begin = time.process_time()
    for _ in range(ROUNDS):
        blocks.trades(tokens)
    print(
        f"  in time of the processor: {ROUNDS * len(frame) / (time.process_time() - begin):,.0f}"
    )
    raw = [one.data for one in blocks.raw]
    whole = min(
        seconds(lambda: lab.rollup.decode_data(raw).trades(tokens))
        for _ in range(ROUNDS)
    )
    print(f"from block data: {len(frame) / whole:,.0f} rows a second")
    some = lab.rollup.decode_data(raw[:100], first_block=1)
    pages = as_pages(some.trades(tokens))
    ours, theirs, ratios = paired(
        lambda: lab.rollup.decode_data(raw[:100]).trades(tokens),
        lambda: lab.tables.trades(pages, tokens, markets),
        ROUNDS,
    )
    print(
        f"{len(some.trades(tokens)):,} rows: blocks {ours:.3f} s, relayer's JSON {theirs:.3f} s, "
        f"ratio {ratios[ROUNDS // 2]:.2f}"
    )


if __name__ == "__main__":
    main()
