"""Generated wire rows, with the integers they carry."""

import json
from decimal import Context, Decimal
from typing import Any

import pandas as pd
from hypothesis import strategies as st

from loopring_lab import tables

EXACT = Context(prec=200)
DECIMALS = {0: 18, 1: 18, 3: 6, 4: 8, 7: 0, 9: 2, 30: 12, 40: 30}
SYMBOLS = {
    0: "ETH",
    1: "LRC",
    3: "USDT",
    4: "WBTC",
    7: "ZERO",
    9: "TWO",
    30: "TWELVE",
    40: "THIRTY",
}
PAIRS = [(1, 0), (0, 3), (4, 0), (7, 9), (30, 3), (9, 0), (40, 0)]
NAMES = {f"{SYMBOLS[base]}-{SYMBOLS[quote]}": (base, quote) for base, quote in PAIRS}


def tokens() -> pd.DataFrame:
    return tables.tokens(
        [
            {"tokenId": i, "symbol": SYMBOLS[i], "decimals": d}
            for i, d in DECIMALS.items()
        ]
    )


def markets() -> pd.DataFrame:
    records = [
        {"market": name, "baseTokenId": b, "quoteTokenId": q}
        for name, (b, q) in NAMES.items()
    ]
    return tables.markets(records, tokens())


def page(rows: list[Any], total: int | None = None) -> bytes:
    return json.dumps(
        {"totalNum": len(rows) if total is None else total, "trades": rows}
    ).encode()


def read(pages, **how) -> pd.DataFrame:
    return tables.trades(pages, tokens(), markets(), **how)


def row(**members) -> list[Any]:
    """Make a regular row of 14 members; any of them can be given by its wire name."""
    regular = {
        "createdAt": "1657638459610", "id": "8919527", "side": "SELL", "size": "453794000000000000000",
        "price": "3.5669E-4", "market": "LRC-ETH", "feeAmount": "1618680000000000", "blockId": "24697",
        "indexInBlock": "343", "accountId": "147661", "tokenId": "1", "storageId": "2",
        "orderHash": "0x0a417a8969caa753e335c08e079d5ac3bbe5a9453f3589868c6e3167a2181b58", "type": "taker",
    }  # fmt: skip
    assert members.keys() <= regular.keys()
    return list((regular | members).values())


def whole(units: Decimal, decimals: int) -> int:
    """Count smallest units in plain Python: the oracle of every scaling."""
    scaled = units.scaleb(decimals, context=EXACT)
    assert scaled == scaled.to_integral_value(context=EXACT)
    return int(scaled)


def smallest(decimals: int) -> st.SearchStrategy[int]:
    """Amounts that a trades column holds: below 10**15 units, no digit below 1e-18."""
    least = 10 ** max(0, decimals - 18)
    return st.integers(0, 10 ** (15 + decimals) // least - 1).map(
        lambda number: number * least
    )


@st.composite
def wire_rows(draw: st.DrawFn, numbers: bool = False) -> list[Any]:
    name = draw(st.sampled_from(sorted(NAMES)))
    base, quote = NAMES[name]
    side = draw(st.sampled_from(["BUY", "SELL"]))
    size = draw(smallest(min(DECIMALS[base], 18)))
    size *= 10 ** max(0, DECIMALS[base] - 18)
    fee = draw(smallest(DECIMALS[base if side == "BUY" else quote]))
    mantissa = draw(st.integers(1, 99_999))
    exponent = draw(st.integers(-8, -1))
    length = draw(st.sampled_from([7, 13, 14]))
    order = draw(st.integers(0, 2**32))
    members = row(
        createdAt=str(draw(st.integers(1_420_070_400_000, 2_000_000_000_000))),
        id=str(draw(st.integers(0, 10**12))),
        side=side,
        size=str(size),
        price=f"{mantissa}E{exponent}",
        market=draw(st.sampled_from(["", "AMM-"])) + name,
        feeAmount=str(fee),
        tokenId=str(quote if side == "BUY" else base),
        storageId=str(order),
        orderHash=f"0x{order + 1:064x}",
        type=draw(st.sampled_from(["maker", "taker"])),
    )
    members = members[:length]
    if numbers and draw(st.booleans()):
        members = [int(text) if text.isdigit() else text for text in members]
    return members


def histories(**how) -> st.SearchStrategy[list[list[Any]]]:
    """Make rows of distinct ids."""
    return st.lists(
        wire_rows(**how), max_size=12, unique_by=lambda members: str(members[1])
    )
