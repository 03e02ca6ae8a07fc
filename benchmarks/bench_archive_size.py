"""Ten million trades: imported, reported, summed on DuckDB, one account read; peak memory and size on disk.

Each step runs in a process of its own that tells its peak memory. The saved pages are packed with gzip, as
people keep them. Run: python benchmarks/bench_archive_size.py [trades]
"""

import gzip
import json
import random
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.ledger import POOLS, TOKENS
from timing import alone

from loopring_lab.archive import Archive
from loopring_lab.relayer import World

ACCOUNTS = 40
LITTLE = 10_000
LITTLE_TRADES = 20_000
PRICES = {
    "LRC-ETH": (35_669, "3.5669E-4", 1),
    "ETH-USDC": (312_880_508_326, "3128.80508326", 10**12),
}
DECIMALS = {"ETH": 18, "LRC": 18, "USDC": 6}


def save(
    folder: Path, account: int, kind: str, trades: int
) -> tuple[int, int, Counter[str]]:
    """Write pages of one history, newest first; give bytes of JSON, bytes packed, and fees by token (1e-18)."""
    dice = random.Random(f"{account} {kind}")
    fees = Counter[str]()
    size = 0
    file = folder / f"{account}-{kind}.jsonl.gz"
    prefix = "AMM-" if kind == "amm" else ""
    with gzip.open(file, "wb", compresslevel=6) as out:
        for start in range(trades, 0, -50):
            rows = []
            for number in range(start, max(0, start - 50), -1):
                market = dice.choice(POOLS)
                side = dice.choice(("BUY", "SELL"))
                size_ = dice.randrange(10**8, 10**12) * 10**8
                price, shown, lower = PRICES[market]
                gross = size_ if side == "BUY" else size_ * price // 10**8 // lower
                fee = gross * dice.choice((0, 6, 20, 25)) // 10_000
                token = market.split("-")[side == "SELL"]
                fees[token] += fee * 10 ** (18 - DECIMALS[token])
                rows.append([
                    str(1_640_000_000_000 + 97_700 * number), str(account * 10**7 + 2 * number + (kind == "amm")), side,
                    str(size_), shown,
                    prefix + market, str(fee), str(20_000 + number // 300), str(number % 300), str(account),
                    str(TOKENS[market][side == "BUY"]), str(dice.randrange(10**6)), f"0x{dice.getrandbits(256):064x}", "taker",
                ])  # fmt: skip
            line = (
                json.dumps(
                    {"totalNum": trades, "trades": rows}, separators=(",", ":")
                ).encode()
                + b"\n"
            )
            size += len(line)
            out.write(line)
    return size, file.stat().st_size, fees


def fill(path: Path, saved: Path) -> Any:
    return int(Archive(path).import_pages(saved, progress=False)["rows"].sum())


def report(path: Path) -> Any:
    found = Archive(path).report()
    return int(found["rows"].sum()), bool(found["complete"].all())


def summary(path: Path) -> Any:
    import loopring_lab as lab

    frame = Archive(path).scan("duckdb")
    lab.fees.summary(frame, by=["market", "fill_type"])
    rows = frame.aggregate("fee_token, sum(fee)").fetchall()
    return {
        token: int(str(total.scaleb(18)).partition(".")[0]) for token, total in rows
    }


def one_account(path: Path) -> Any:
    archive = Archive(path)
    archive.trades(LITTLE)
    begin = time.perf_counter()
    read = len(archive.trades(LITTLE))
    return read, time.perf_counter() - begin


def tell(name: str, seconds: float, peak: int, more: str = "") -> None:
    print(
        f"{name}: {seconds:.1f} s, peak memory {peak / 2**30:.2f} GiB{more}", flush=True
    )


def main(trades: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "archive"
        saved = Path(folder) / "saved"
        saved.mkdir()
        (saved / "tokens.json").write_text(json.dumps(World().tokens()))
        (saved / "markets.json").write_text(json.dumps({"markets": World().markets()}))
        each = (trades - LITTLE_TRADES) // (2 * (ACCOUNTS - 1))
        wanted = [(LITTLE, kind, LITTLE_TRADES // 2) for kind in ("amm", "dex")]
        wanted += [
            (LITTLE + n, kind, each)
            for n in range(1, ACCOUNTS)
            for kind in ("amm", "dex")
        ]
        with ProcessPoolExecutor(2) as pool:
            sizes = list(
                pool.map(save, [saved] * len(wanted), *zip(*wanted, strict=True))
            )
        plain = sum(size[0] for size in sizes)
        packed = sum(size[1] for size in sizes)
        truth = sum((size[2] for size in sizes), Counter[str]())
        count = sum(number for _, _, number in wanted)
        held, seconds, peak = alone(fill, path, saved)
        assert held == count
        tell(
            f"{count:,} trades imported",
            seconds,
            peak,
            f", {count / seconds:,.0f} a second",
        )
        (rows, complete), seconds, peak = alone(report, path)
        assert (rows, complete) == (count, True)
        tell("report", seconds, peak)
        sums, seconds, peak = alone(summary, path)
        assert sums == truth
        tell(
            "fee summary and sums on DuckDB",
            seconds,
            peak,
            f", {len(sums)} tokens equal to integer sums",
        )
        (read, taken), seconds, peak = alone(one_account, path)
        assert read == LITTLE_TRADES
        tell(
            f"one account of {read:,} trades in {taken:.3f} s; with start",
            seconds,
            peak,
        )
        live = path.stat().st_size
        print(
            f"bytes per trade: {live / count:.0f} on disk; gzipped JSON {packed / count:.0f}, JSON {plain / count:.0f}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000)
