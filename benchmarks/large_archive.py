"""A large archive of trades from blocks, generated as arrays straight into its file: any number of rows.

Both sides of most fills on twenty markets, over two years or as many days as asked for: orders with one or several
fills, some in the same millisecond, a few that rest for days, and fees in steps that are truncated as the exchange
does. Equal seeds give equal rows. Run: python benchmarks/large_archive.py FILE ROWS [DAYS]

Ten times the rows over ten times the days are as busy, and answers are of ten times the fills. Over the same days they
are not: how many fills have another within a minute, and so a reference, grows faster than their number.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import Archive
from loopring_lab.amounts.scaling import rescale, with_scale
from loopring_lab.archive import holdings
from loopring_lab.archive.conversion import NO_MARKETS, ListingSnapshot, as_stored
from loopring_lab.archive.from_blocks import ADD_BLOCKS, ADD_ROWS
from loopring_lab.archive.schema import KIND
from loopring_lab.columns import TRADES
from loopring_lab.engine import portable
from loopring_lab.engine.database import StoredFile
from loopring_lab.origin import Source

SOURCE = Source("generated large archive", synthetic=True)
ROWS_OF_A_FILE = 1_000_000
START = 1_640_995_200_000
DAYS = 730
DAY = 86_400_000
ACCOUNTS = 5_000
FIRST_ACCOUNT = 10_001
FILLS_OF_A_BLOCK = 150
FIRST_BLOCK = 30_000
IDS_OF_A_BLOCK = 100_000
POOLED = 0.6
ONE_SIDED = 0.06
RESTING = 0.005
"""Parts of all orders, of all fills, and of the fills at the book."""
FILLS_OF_AN_ORDER = (1, 2, 3, 5, 8)
ORDERS_WITH = (0.8, 0.1, 0.05, 0.03, 0.02)
TIERS = np.array([30, 25, 20, 16, 12, 10])
TOKENS = {
    "ETH": 18, "LRC": 18, "WBTC": 8, "USDT": 6, "DAI": 18, "USDC": 6, "LINK": 18, "UNI": 18, "MATIC": 18,
    "PEPE": 18, "CRV": 18, "GRT": 18, "ENS": 18, "LDO": 18, "BAL": 18, "DPI": 18,
}  # fmt: skip
SYMBOLS = list(TOKENS)
DECIMALS = np.array(list(TOKENS.values()))
MARKETS = {
    "LRC-ETH": 0.000_4, "ETH-USDT": 2_600, "ETH-USDC": 2_600, "LRC-USDT": 1.1, "WBTC-ETH": 14, "LRC-USDC": 1.1,
    "WBTC-USDT": 38_000, "ETH-DAI": 2_600, "DAI-USDT": 1, "LINK-ETH": 0.006, "UNI-ETH": 0.004, "WBTC-USDC": 38_000,
    "MATIC-ETH": 0.000_6, "PEPE-ETH": 0.000_002, "CRV-ETH": 0.001, "GRT-ETH": 0.000_1, "ENS-ETH": 0.006,
    "LDO-ETH": 0.001, "BAL-ETH": 0.005, "DPI-ETH": 0.05,
}  # fmt: skip
NAMES = list(MARKETS)
BASES, QUOTES = np.array(
    [[SYMBOLS.index(token) for token in name.split("-")] for name in NAMES]
).T
USUAL_SIZE = np.array(
    [{0: 0.6, 2: 0.03, 4: 900.0}.get(base, 400.0) for base in BASES.tolist()]
)
VOLATILITY = np.where(np.array(NAMES) == "DAI-USDT", 0.005, 0.8) / np.sqrt(365 * DAY)
SHARES = 1 / np.arange(1, len(NAMES) + 1) ** 1.2
WHOLE = pa.decimal256(19, 0)
AMOUNT = pa.decimal256(38, 18)


class Fills(NamedTuple):
    """Fills in the order of time; the account, order and fee tier are pairs: the taker's, the maker's."""

    number: np.ndarray
    moment: np.ndarray
    market: np.ndarray
    buys: np.ndarray
    pooled: np.ndarray
    account: np.ndarray
    order: np.ndarray
    tier: np.ndarray
    price: np.ndarray

    def select(self, rows: Any) -> "Fills":
        return Fills(*(column[..., rows] for column in self))


def write(path: Path, rows: int, days: int = DAYS, seed: int = 1) -> None:
    """Fill a new archive with this many rows, in transactions that are each sorted by account."""
    file = StoredFile(path, KIND)
    listing = ListingSnapshot(_tokens(), NO_MARKETS, START)
    parts = -(-rows // ROWS_OF_A_FILE)
    level = np.log(list(MARKETS.values()))
    for part in range(parts):
        count = min(ROWS_OF_A_FILE, rows - part * ROWS_OF_A_FILE)
        span = [START + days * DAY * edge // parts for edge in (part, part + 1)]
        level, table = _file_of_trades(
            part, count, span, level, np.random.default_rng((seed, part))
        )
        with file.writing(SOURCE) as connection:
            holdings.store_listing(connection, file, listing, listing.lookup())
            connection.register("sent", as_stored(table))
            connection.execute(ADD_ROWS)
            held = pc.unique(table["block_id"]).to_pylist()
            connection.execute(ADD_BLOCKS, [held])


def _file_of_trades(
    file: int, count: int, span: list[int], level: np.ndarray, dice: np.random.Generator
) -> tuple[np.ndarray, pa.Table]:
    """Generate the rows of one file, and the prices (logarithms) with which the next one begins."""
    size = int(count / (2 - ONE_SIDED * (1 - POOLED)) * 1.005) + 50
    fills, level = _fills(file, size, span, level, dice)
    one_sided = (dice.random(size) < ONE_SIDED) & ~fills.pooled
    places = np.repeat(np.arange(size), 2)
    role = np.tile([0, 1], size)
    kept = np.flatnonzero(~(one_sided[places] & (role == 1)))[:count]
    places = places[kept]
    role = role[kept]
    order = np.lexsort((places, fills.account[role, places]))
    return level, _rows(fills, _amounts(fills, dice), places[order], role[order])


def _fills(
    file: int, size: int, span: list[int], level: np.ndarray, dice: np.random.Generator
) -> tuple[Fills, np.ndarray]:
    """Draw the fills of a span of time."""
    orders = dice.choice(FILLS_OF_AN_ORDER, size, p=ORDERS_WITH)
    order = np.repeat(np.arange(size), orders)[:size]
    wait = np.where(dice.random(size) < 0.6, 0, dice.exponential(20_000, size))
    first = (np.arange(size) == 0) | (order != np.roll(order, 1))
    moment = np.sort(dice.integers(*span, order[-1] + 1))[order] + np.where(
        first, 0, wait
    ).astype(np.int64)
    by_time = np.argsort(np.minimum(moment, span[1] - 1), kind="stable")
    moment = np.minimum(moment, span[1] - 1)[by_time]
    order = order[by_time]
    market = dice.choice(len(NAMES), size, p=SHARES / SHARES.sum())[order]
    buys = (dice.random(size) < 0.5)[order]
    pooled = (dice.random(size) < POOLED)[order]
    taker = _accounts(dice, size)[order]
    maker, maker_order = _makers(file, moment, market, buys, taker, dice)
    price, level = _prices(moment, market, buys, pooled, span[0], level, dice)
    columns = Fills(
        number=file * ROWS_OF_A_FILE + np.arange(size), moment=moment, market=market, buys=buys, pooled=pooled,
        account=np.stack([taker, np.where(pooled, market + 1, maker)]),
        order=np.stack([2 * (file * ROWS_OF_A_FILE + order), np.where(pooled, -1, maker_order)]),
        tier=np.stack([_tiers(taker, moment), np.where(pooled | (maker % 3 > 0), 0, 5)]), price=price,
    )  # fmt: skip
    return columns, level


def _accounts(dice: np.random.Generator, size: int) -> np.ndarray:
    """Draw accounts, of which a few trade most."""
    return FIRST_ACCOUNT + (ACCOUNTS * dice.random(size) ** 3).astype(np.int64)


def _tiers(account: np.ndarray, moment: np.ndarray) -> np.ndarray:
    """Return the basis points that takers pay, which change for one account in four each quarter."""
    quarter = (moment - START) // (91 * DAY)
    return TIERS[(account + (account + quarter) % 4 // 3) % len(TIERS)]


def _makers(
    file: int,
    moment: np.ndarray,
    market: np.ndarray,
    buys: np.ndarray,
    taker: np.ndarray,
    dice: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the maker of each fill at the book and their order, one in five for several fills in a row."""
    size = len(moment)
    book = 2 * market + buys
    by_book = np.argsort(book, kind="stable")
    begins = (dice.random(size) > 0.25) | (book[by_book] != np.roll(book[by_book], 1))
    order = np.empty(size, np.int64)
    account = np.empty(size, np.int64)
    order[by_book] = np.cumsum(begins)
    account[by_book] = _accounts(dice, size)[order[by_book] % size]
    order = 2 * (file * ROWS_OF_A_FILE + order) + 1
    rests = dice.random(size) < RESTING
    resting = (
        (moment - START) // (3 * DAY) * 2 * len(NAMES) + book
    ) * 16 + dice.integers(0, 16, size)
    order = np.where(rests, -2 - resting, order)
    account = np.where(rests, FIRST_ACCOUNT + resting % ACCOUNTS, account)
    return np.where(account == taker, account + ACCOUNTS, account), order


def _prices(
    moment: np.ndarray, market: np.ndarray, buys: np.ndarray, pooled: np.ndarray, start: int, level: np.ndarray,
    dice: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Let the price of each market walk at random; takers pay some of the spread, more of it to a pool."""
    by_market = np.argsort(market, kind="stable")
    at = moment[by_market]
    of = market[by_market]
    begins = of != np.roll(of, 1)
    begins[0] = True
    waited = at - np.where(begins, start, np.roll(at, 1))
    walk = np.cumsum(dice.normal(0, 1, len(at)) * VOLATILITY[of] * np.sqrt(waited))
    firsts = np.flatnonzero(begins)
    before = np.concatenate([[0.0], walk])[firsts]
    logs = level[of] + walk - np.repeat(before, np.diff([*firsts, len(of)]))
    after = level.copy()
    after[of] = logs
    spread = (0.000_3 + 0.001_5 * pooled[by_market]) * (
        2 * buys[by_market] - 1
    ) + dice.normal(0, 0.000_2, len(at))
    price = np.empty(len(at), np.int64)
    price[by_market] = np.maximum(np.rint(np.exp(logs + spread) * 1e8), 1)
    return price, after


def _amounts(fills: Fills, dice: np.random.Generator) -> dict[str, pa.Array]:
    """Return the size, price and notional of fills, and the fee of each side, all exact."""
    base = BASES[fills.market]
    quote = QUOTES[fills.market]
    units = USUAL_SIZE[fills.market] * np.exp(dice.normal(0, 1.2, len(base)))
    fine = dice.integers(0, 10**12, len(base))
    fine -= np.where(DECIMALS[base] == 8, fine % 10**10, 0)
    coarse = with_scale(
        pa.array((units * 1e6).astype(np.int64)).cast(WHOLE), pa.decimal256(38, 6)
    )
    size = pc.add(
        coarse.cast(AMOUNT), with_scale(pa.array(fine).cast(WHOLE), AMOUNT)
    ).cast(AMOUNT)
    price = with_scale(pa.array(fills.price).cast(WHOLE), pa.decimal256(20, 8))
    notional = rescale(pc.multiply(size, price), AMOUNT, truncate=True)
    found = {"size": size, "price": price.cast(AMOUNT), "notional": notional}
    for role, buys in enumerate((fills.buys, ~fills.buys)):
        gross = pc.if_else(pa.array(buys), size, notional)
        rate = with_scale(pa.array(fills.tier[role]).cast(WHOLE), pa.decimal256(5, 4))
        fee = rescale(pc.multiply(gross, rate), AMOUNT, truncate=True)
        places = DECIMALS[np.where(buys, base, quote)]
        for few in (6, 8):
            rounded = rescale(fee, pa.decimal256(38, few), truncate=True).cast(AMOUNT)
            fee = pc.if_else(pa.array(places == few), rounded, fee)
        found[f"fee {role}"] = fee
    return found


def _rows(
    fills: Fills, amounts: dict[str, pa.Array], places: np.ndarray, role: np.ndarray
) -> pa.Table:
    """Lay out the rows of the archive: a place among the fills, and 0 for its taker, 1 for its maker."""
    one = fills.select(places)
    at = pa.array(places)
    buys = one.buys ^ (role == 1)
    base = BASES[one.market]
    quote = QUOTES[one.market]
    paid_in = np.where(buys, base, quote)
    sold = np.where(buys, quote, base)
    size, price, notional, *fees = (amounts[name].take(at) for name in amounts)
    fee = pc.if_else(pa.array(role == 1), fees[1], fees[0])
    gross = pc.if_else(pa.array(buys), size, notional)
    rate = (
        np.asarray(fee.cast(pa.float64())) / np.asarray(gross.cast(pa.float64())) * 1e4
    )
    order = fills.order[role, places]
    index = one.number % FILLS_OF_A_BLOCK
    block = FIRST_BLOCK + one.number // FILLS_OF_A_BLOCK
    columns = {
        "created_at": pa.array(one.moment * 1000).cast(pa.timestamp("us", "UTC")),
        "trade_id": block * IDS_OF_A_BLOCK + index,
        "account_id": fills.account[role, places],
        "market": _named(NAMES, one.market),
        "base": _named(SYMBOLS, base),
        "quote": _named(SYMBOLS, quote),
        "side": _named(["SELL", "BUY"], buys),
        "fill_type": _named(["dex", "amm"], one.pooled),
        "role": _named(["taker", "maker"], role),
        "size": size, "price": price, "notional": notional, "fee": fee,
        "fee_token": _named(SYMBOLS, paid_in),
        "fee_bps": rate,
        "order_hash": _hashes(order),
        "block_id": block, "index_in_block": index, "token_id": sold,
        "storage_id": np.where(order == -1, one.number, order) & 0xFFFF_FFFF,
        "extra": pa.nulls(len(at), pa.string()),
    }  # fmt: skip
    return portable(pa.table(columns).select(list(TRADES)))


def _named(names: list[str], codes: np.ndarray) -> pa.Array:
    return pa.DictionaryArray.from_arrays(
        pa.array(codes.astype(np.int32)), pa.array(names)
    ).cast(pa.string())


def _hashes(order: np.ndarray) -> pa.Array:
    """Write the number of each order as 32 bytes that look random, in hex digits; -1 is null."""
    mixed = order.astype(np.uint64)[:, None] * np.uint64(4) + np.arange(
        4, dtype=np.uint64
    )
    with np.errstate(over="ignore"):
        for shift, factor in (
            (30, 0xBF58476D1CE4E5B9),
            (27, 0x94D049BB133111EB),
            (31, 0x9E3779B97F4A7C15),
        ):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    digits = np.frombuffer(b"".join(b"%02x" % one for one in range(256)), np.uint16)
    text = np.empty((len(order), 33), np.uint16)
    text[:, 0] = np.frombuffer(b"0x", np.uint16)[0]
    text[:, 1:] = digits[mixed.view(np.uint8)]
    offsets = np.arange(len(order) + 1, dtype=np.int32) * 66
    hashes = pa.StringArray.from_buffers(
        len(order), pa.py_buffer(offsets), pa.py_buffer(text)
    )
    return pc.if_else(pa.array(order == -1), pa.scalar(None, pa.string()), hashes)


def _tokens() -> str:
    """Return a listing as a relayer sends it."""
    listed = [
        {"type": "ERC20", "tokenId": place, "symbol": symbol, "name": symbol, "decimals": decimals, "enabled": True,
         "address": f"0x{place:040x}"}
        for place, (symbol, decimals) in enumerate(TOKENS.items())
    ]  # fmt: skip
    return json.dumps(listed)


if __name__ == "__main__":
    began = time.perf_counter()
    write(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    print(
        f"{Archive(sys.argv[1])}: {int(sys.argv[2]):,} rows in {time.perf_counter() - began:.0f} s"
    )
