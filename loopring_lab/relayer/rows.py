"""The layouts of a trade row on the wire, and its JSON.

Rows have had 7, 13 and 14 members over the years. All begin with the same seven; `MEMBERS` names those of the newest
layout in their order, in which `world` makes rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import chain

MEMBERS = (
    "createdAt",
    "id",
    "side",
    "size",
    "price",
    "market",
    "feeAmount",
    "blockId",
    "indexInBlock",
    "accountId",
    "tokenId",
    "storageId",
    "orderHash",
    "role",
)
CREATED_AT = MEMBERS.index("createdAt")
SIZE = MEMBERS.index("size")
PRICE = MEMBERS.index("price")
MARKET = MEMBERS.index("market")
FEE = MEMBERS.index("feeAmount")
ACCOUNT = MEMBERS.index("accountId")
TOKEN = MEMBERS.index("tokenId")
ORDER_HASH = MEMBERS.index("orderHash")

SHORTEST = 7  # rows until early 2022; all later layouts begin with the same members

POOL = "amm"
BOOK = "dex"
FILL_TYPES = (POOL, BOOK)
POOL_PREFIX = "AMM-"

PRICE_SCALE = 10**8  # prices on the wire are cut to 8 decimals
ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)

# The members of a row; of a saved row that is no trade, only its JSON.
Row = tuple[str, ...]


class RawJson(str):
    """A member written into the JSON as it is, without quotes: a number with its own digits, or null."""

    __slots__ = ()


def price_text(scaled: int) -> str:
    """Format a price, given in units of 10**-8, like Java's ``Double.toString``."""
    text = repr(scaled / PRICE_SCALE)
    is_plain = PRICE_SCALE // 1000 <= scaled < 10**7 * PRICE_SCALE
    if is_plain or scaled == 0:
        return text
    # Java turns to an exponent below 0.001 and from 10,000,000 on, and Python elsewhere.
    value = Decimal(text)
    digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
    return f"{digits[0]}.{digits[1:] or '0'}E{value.adjusted()}"


def rows_json(rows: Sequence[Row]) -> str:
    """Encode rows as JSON."""
    if RawJson in set(map(type, chain.from_iterable(rows))):
        return f"[{','.join(map(_row_json, rows))}]"
    return ENCODER.encode(rows)


def _row_json(row: Row) -> str:
    if len(row) == 1:
        return row[0]
    return f"[{','.join(map(_member_json, row))}]"


def _member_json(member: str) -> str:
    return member if isinstance(member, RawJson) else json.dumps(member)
