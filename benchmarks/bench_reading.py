"""Wire bytes to the typed frame, compared with parsers of JSON alone and with an exchange library's.

Run: python benchmarks/bench_reading.py [trades]
"""

import gc
import json
import multiprocessing
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import ccxt
import orjson
import pandas as pd
import pyarrow as pa
import pyarrow.json as paj
from timing import paired, status

from loopring_lab import tables
from loopring_lab.tables.wire import MEMBERS

TRADES = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
ROUNDS = 7
LIBRARY_ROUNDS = 5
REPEATED = 10
"""How often we read in a round beside the library, so that both take seconds and what disturbs meets both."""
TOKENS = {
    "ETH": (0, 18),
    "LRC": (1, 18),
    "USDT": (3, 6),
    "WBTC": (4, 8),
    "USDC": (6, 6),
}
MARKETS = ["LRC-ETH", "ETH-USDC", "LRC-USDT", "WBTC-ETH", "ETH-USDT"]
PRICES = {
    "LRC-ETH": "3.5669E-4",
    "ETH-USDC": "3128.80508326",
    "LRC-USDT": "0.3321",
    "WBTC-ETH": "12.5",
    "ETH-USDT": "2000.0",
}


def made_up_pages(trades: int) -> list[bytes]:
    """Make regular pages of 50 rows, newest first, every member consistent with the others."""
    chance = random.Random(5)
    rows = []
    for number in range(trades, 0, -1):
        market = chance.choice(MARKETS)
        side = chance.choice(["BUY", "SELL"])
        base, quote = market.split("-")
        sold = base if side == "SELL" else quote
        size = chance.randrange(1, 10**6) * 10 ** (TOKENS[base][1] - 4)
        moment = 1_600_000_000_000 + number * 977
        order = f"0x{chance.getrandbits(256):064x}"
        members = [
            moment, 9_000_000 + number * 3, side, size, PRICES[market], chance.choice(["", "AMM-"]) + market,
            chance.randrange(10**6), chance.randrange(30_000), chance.randrange(300), 10083, TOKENS[sold][0],
            chance.randrange(10**6), order,
        ]  # fmt: skip
        rows.append([str(member) for member in members])
    return [
        json.dumps(
            {"totalNum": trades, "trades": rows[at : at + 50]}, separators=(",", ":")
        ).encode()
        for at in range(0, trades, 50)
    ]


def listing() -> tuple[pd.DataFrame, pd.DataFrame]:
    tokens = tables.tokens(
        [{"tokenId": i, "symbol": s, "decimals": d} for s, (i, d) in TOKENS.items()]
    )
    names = [name.split("-") for name in MARKETS]
    ids = [
        {
            "market": f"{b}-{q}",
            "baseTokenId": TOKENS[b][0],
            "quoteTokenId": TOKENS[q][0],
        }
        for b, q in names
    ]
    return tokens, tables.markets(ids, tokens)


def library_parser(pages: list[bytes]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return what ccxt does with rows already decoded: `safe_trade` alone, and with the trade it is given."""
    exchange = ccxt.Exchange()
    markets = {
        name: exchange.safe_market_structure(
            {"symbol": name, "base": name.split("-")[0]}
        )
        for name in MARKETS
    }
    rows = [row for page in pages for row in orjson.loads(page)["trades"]]

    def trade(row: list[str]) -> dict[str, Any]:
        moment = int(row[0])
        return {
            "info": row, "id": row[1], "order": row[12], "timestamp": moment, "datetime": exchange.iso8601(moment),
            "symbol": None, "type": None, "side": row[2].lower(), "takerOrMaker": None, "price": row[4],
            "amount": row[3], "cost": None, "fee": {"cost": row[6], "currency": "ETH"},
        }  # fmt: skip

    market = [markets[row[5].removeprefix("AMM-")] for row in rows]
    made = list(map(trade, rows))
    return (
        lambda: [
            exchange.safe_trade(one, where)
            for one, where in zip(made, market, strict=True)
        ],
        lambda: [
            exchange.safe_trade(trade(one), where)
            for one, where in zip(rows, market, strict=True)
        ],
    )


def arrow_parser(pages: list[bytes]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return how pyarrow reads the same rows as objects of text, one on a line, and the pages as they are."""
    rows = (row for page in pages for row in orjson.loads(page)["trades"])
    lines = b"\n".join(
        orjson.dumps(dict(zip(MEMBERS, row, strict=False))) for row in rows
    )
    members = pa.schema([(name, pa.string()) for name in MEMBERS[:13]])
    page = pa.schema(
        [("totalNum", pa.int64()), ("trades", pa.list_(pa.list_(pa.string())))]
    )

    def read(text: bytes, schema: pa.Schema) -> pa.Table:
        options = paj.ParseOptions(explicit_schema=schema)
        return paj.read_json(
            pa.BufferReader(text), paj.ReadOptions(block_size=8 << 20), options
        )

    return lambda: read(lines, members), lambda: read(b"\n".join(pages), page)


def both_times(call: Callable[[], Any]) -> tuple[float, float]:
    """Time a call: seconds of the clock, and of the processors that worked on it."""
    processor = time.process_time()
    wall = time.perf_counter()
    result = call()
    taken = time.perf_counter() - wall, time.process_time() - processor
    del result
    return taken


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any]) -> str:
    """Time two calls in turns, and write the medians of both and of the ratios, by the clock and by processor."""
    rounds = []
    for _ in range(ROUNDS):
        gc.collect()
        rounds.append((both_times(ours), both_times(theirs)))
    texts = []
    for place, clock in enumerate(("wall", "processor")):
        mine, other = (
            statistics.median(times[who][place] for times in rounds) for who in (0, 1)
        )
        ratio = statistics.median(one[place] / two[place] for one, two in rounds)
        texts.append(f"{clock} {mine:.3f} s to {other:.3f} s, ratio {ratio:.2f}")
    return "; ".join(texts)


def peak(channel: Any) -> None:
    """Measure a fresh process: pages in memory, then the frame; the pages count as well."""
    tokens, markets = listing()
    tables.trades(made_up_pages(100), tokens, markets)
    before = status("VmRSS")
    pages = channel.recv()
    tables.trades(pages, tokens, markets)
    channel.send(status("VmHWM") - before)


def peak_memory(pages: list[bytes]) -> int:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=peak, args=(theirs,))
    process.start()
    ours.send(pages)
    found: int = ours.recv()
    process.join()
    return found


def main() -> None:
    pages = made_up_pages(TRADES)
    size = sum(map(len, pages))
    tokens, markets = listing()
    frame = tables.trades(pages, tokens, markets)
    assert len(frame) == TRADES
    assert frame["extra"].isna().all()
    print(
        f"{TRADES:,} trades, {size / 1e6:.0f} MB of JSON in {len(pages):,} pages; medians of {ROUNDS} rounds"
    )

    def ours() -> pd.DataFrame:
        return tables.trades(pages, tokens, markets)

    def repeated() -> None:
        for _ in range(REPEATED):
            ours()

    objects, same = arrow_parser(pages)
    named = {
        "pyarrow.json, rows as objects": objects,
        "pyarrow.json, these pages": same,
        "orjson.loads, results kept": lambda: [orjson.loads(page) for page in pages],
    }
    for name, parse in named.items():
        print(f"typed frame to {name}: {in_turns(ours, parse)}")
    alone, whole = library_parser(pages)
    gc.collect()
    gc.freeze()  # the rows and trades that the library begins with are not to be traversed in our time
    for name, parse, limit in (
        ("safe_trade alone", alone, "no limit"),
        ("a row to its trade", whole, "each at least 15"),
    ):
        other, _, ratios = paired(parse, repeated, LIBRARY_ROUNDS)
        shown = ", ".join(f"{REPEATED * ratio:.1f}" for ratio in ratios)
        print(f"ccxt, {name} {other:.2f} s: {shown} times ours ({limit})")
    print(
        f"peak memory {peak_memory(pages) / size:.1f} times the JSON, pages included (at most 6.5)"
    )


if __name__ == "__main__":
    main()
