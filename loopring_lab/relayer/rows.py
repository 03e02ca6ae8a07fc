"""The layouts of a trade row on the wire, and its JSON.

Rows have had 7, 13 and 14 members over the years, and one document shows 10. All begin with the same seven;
`MEMBERS` names those of the newest layout in their order, in which `world` makes rows.
"""

from __future__ import annotations

import json
import re
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
STORAGE = MEMBERS.index("storageId")
ORDER_HASH = MEMBERS.index("orderHash")
ROLE = MEMBERS.index("role")

SHORTEST = 7  # rows until early 2022; all later layouts begin with the same members
# The members of the documented layout of 10: without block and place, and without what follows storageId.
SHORT_LAYOUT = (*range(SHORTEST), ACCOUNT, TOKEN, STORAGE)
# The 15th member of a layout that nobody has seen yet; a reader has to keep it.
UNKNOWN_MEMBER = "0"

POOL = "amm"
BOOK = "dex"
FILL_TYPES = (POOL, BOOK)
POOL_PREFIX = "AMM-"

PRICE_SCALE = 10**8  # prices on the wire are cut to 8 decimals
NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)

# The members of a row; of a saved row that is no trade, only its JSON.
Row = tuple[str, ...]


class RawJson(str):
    """A member written into the JSON as it is, without quotes: a number with its own digits, or null."""

    __slots__ = ()


def format_row(row: Row, length: int | None, prefix: bool) -> Row:
    """Bring a row to the layout of the settings."""
    if len(row) == 1:
        return row
    if not prefix and row[MARKET].startswith(POOL_PREFIX):
        row = (
            *row[:MARKET],
            row[MARKET].removeprefix(POOL_PREFIX),
            *row[MARKET + 1 :],
        )
    if length is None:
        return row
    if length == len(SHORT_LAYOUT) and len(row) > ORDER_HASH:
        return tuple(row[position] for position in SHORT_LAYOUT)
    if length > ROLE and len(row) == ROLE:
        # Only takers pay a fee, which in all recorded blocks tells the role of a row that does not say it.
        row = (*row, "maker" if row[FEE] == "0" else "taker")
    if length > len(MEMBERS) and len(row) == len(MEMBERS):
        row = (*row, UNKNOWN_MEMBER)
    return row[:length]


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


def rows_json(rows: Sequence[Row], numbers: bool) -> str:
    """Encode rows as JSON; `numbers` writes numeric members without quotes."""
    has_raw_members = RawJson in set(map(type, chain.from_iterable(rows)))
    if numbers or has_raw_members:
        return f"[{','.join(_row_json(row, numbers) for row in rows)}]"
    return ENCODER.encode(rows)


def _row_json(row: Row, numbers: bool) -> str:
    if len(row) == 1:
        return row[0]
    return f"[{','.join(_member_json(member, numbers) for member in row)}]"


def _member_json(member: str, numbers: bool) -> str:
    if isinstance(member, RawJson) or (numbers and NUMBER.fullmatch(member)):
        return member
    return json.dumps(member)
