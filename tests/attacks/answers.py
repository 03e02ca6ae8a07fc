"""Regular answers of a relayer, and the hostile values that take the place of their members."""

import copy
import json
from typing import Any

ACCOUNT = 10083
HASH = "0x" + "ab" * 32
OWNER = "0x" + "1f" * 20
EXCHANGE = "0x" + "2e" * 20
NO_VALUE = b"(no value)"
_MARK = "put the hostile value here"

Path = tuple[str | int, ...]


def _token(number: int, symbol: str, decimals: int) -> dict[str, Any]:
    amounts = {"minimum": "1000000", "maximum": "9" * 24, "dust": "200000"}
    return {
        "type": "ERC20", "tokenId": number, "symbol": symbol, "name": symbol.title(), "address": OWNER,
        "decimals": decimals, "precision": 6, "precisionForOrder": 3, "orderAmounts": amounts,
        "luckyTokenAmounts": amounts, "fastWithdrawLimit": "1000000000", "enabled": True,
        "gasAmounts": {"distribution": "85000", "deposit": "110000"},
    }  # fmt: skip


def row(number: int, side: str = "SELL") -> list[Any]:
    """Make a regular row of 14 members."""
    return [
        str(1_657_638_459_610 + number), str(8_919_527 + number), side, f"{453 + number}000000000000000000",
        "3.5669E-4", "LRC-ETH", f"{161868 + number}0000000000", "24697", "343", str(ACCOUNT),
        "1" if side == "SELL" else "0", "2", "0x" + f"{number:064x}", "taker",
    ]  # fmt: skip


REGULAR: dict[str, Any] = {
    "tokens": [_token(0, "ETH", 18), _token(1, "LRC", 18), _token(6, "USDC", 6)],
    "markets": {
        "markets": [
            {
                "market": name, "baseTokenId": base, "quoteTokenId": quote, "precisionForPrice": 6,
                "orderbookAggLevels": 5, "enabled": True, "status": 3, "createdAt": "1600000000000",
            }
            for name, base, quote in (("ETH-USDC", 0, 6), ("LRC-ETH", 1, 0))
        ]
    },
    "trades": {"totalNum": 3, "trades": [row(3), row(2, "BUY"), row(1)]},
    "account": {
        "accountId": ACCOUNT, "owner": OWNER, "frozen": False, "publicKey": {"x": "0x" + "0a" * 32, "y": "0x" + "0b" * 32},
        "tags": "FirstUpdateAccountPaid", "nonce": 4, "keyNonce": 3, "keySeed": "seed with key nonce: 3",
    },
    "exchange": {
        "chainId": 1, "exchangeAddress": EXCHANGE, "source": {"name": "a hostile server", "synthetic": False},
    },
    "fees": {
        "gasPrice": "30000000000",
        "fees": [
            {"token": "ETH", "fee": "19000000000000", "discount": 1},
            {"token": "LRC", "fee": "57000000000000000", "discount": 0.8},
        ],
    },
    "api_key": {"apiKey": "k3y-that-is-made-by-the-relayer-0123456789"},
    "submission": {
        "hash": HASH, "status": "received", "isIdempotent": False, "accountId": ACCOUNT, "tokenId": 0, "storageId": 7,
    },
    "updates": {
        "totalNum": 1,
        "transactions": [{"hash": HASH, "status": "failed", "isIdempotent": False, "storageId": 7, "reason": "no fee"}],
    },
    "refusal": {"resultInfo": {"code": 104003, "message": "no such account"}},
    "flat refusal": {"code": 104003, "msg": "no such account"},
}  # fmt: skip

_HOSTILE_RECORD = {
    "tokens": (1,),
    "markets": ("markets", 1),
    "fees": ("fees", 1),
    "updates": ("transactions", 0),
}

_HAS_EXTRA: dict[str, list[Path]] = {"tokens": [(1,)], "markets": [("markets", 1)], "trades": [("trades", 1)]}


def members(answer: str) -> list[Path]:
    """Return the path of every member of an answer, the whole first; of equal records, one stands for all."""
    found: list[Path] = [()]

    def walk(node: Any, path: Path) -> None:
        record = _HOSTILE_RECORD.get(answer, ("trades", 1))
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node):
            here = (*path, key)
            if here[: len(record)] == record[: len(here)] or not isinstance(node, list):
                found.append(here)
                if isinstance(inner, (dict, list)):
                    walk(inner, here)

    walk(REGULAR[answer], ())
    return found + [(*record, "unknown") for record in _HAS_EXTRA.get(answer, [()])]


def regular(answer: str) -> bytes:
    return json.dumps(REGULAR[answer]).encode()


def with_value(answer: str, path: Path, raw: bytes) -> bytes:
    """Return an answer with a hostile value in place of a member, or without that member."""
    if not path:
        return b"" if raw == NO_VALUE else raw
    whole = copy.deepcopy(REGULAR[answer])
    node = whole
    for key in path[:-1]:
        node = node[key]
    if raw == NO_VALUE:
        if path[-1] != "unknown":
            del node[path[-1]]
        return json.dumps(whole).encode()
    if isinstance(node, list) and path[-1] == "unknown":
        node.append(_MARK)
    else:
        node[path[-1]] = _MARK
    return json.dumps(whole).encode().replace(f'"{_MARK}"'.encode(), raw)


def _texts() -> dict[str, bytes]:
    """Values that are sent as text and also, where JSON can say them, as numbers."""
    numbers = {
        "negative": "-5", "minus zero": "-0", "half": "1.5", "whole with point": "7.0", "whole with exponent": "1e3",
        "2^31": str(2**31), "2^53+1": str(2**53 + 1), "2^63": str(2**63), "2^64": str(2**64), "2^256": str(2**256),
        "76 digits": "9" * 76, "400 digits": "9" * 400, "5000 digits": "7" * 5000, "300000 digits": "7" * 300_000,
        "1e30": "1e30", "1e100": "1e100", "1e400": "1e400", "1e1000000": "1e1000000", "1e999999999": "1e999999999",
        "-1e999999999": "-1e999999999", "1e-400": "1e-400", "1e-999999999": "1e-999999999",
        "0e999999999": "0e999999999", "exponent of 20 digits": "1e" + "9" * 20, "exponent of 5000 digits": "1e" + "9" * 5000,
        "many decimals": "0." + "3" * 5000, "NaN": "NaN", "Infinity": "Infinity", "-Infinity": "-Infinity",
    }  # fmt: skip
    words = {
        "empty": "", "space": " ", "word": "abc", "with spaces": " 5 ", "with newline": "5\n", "plus": "+5",
        "underscore": "1_000", "hex": "0x10", "fullwidth digits": "\uff11\uff12\uff13", "sNaN": "sNaN", "comma": "1,000",
        "leading zeros": "0007", "point alone": ".", "null text": "null", "formula": "=1+1",
        "NUL": "a\0b", "escape": "\x1b[31mred\x1b[0m", "right to left": "\u202eabc", "newlines": "a\r\nX-Evil: 1",
        "html": "<script>alert(1)</script>", "path": "../../etc/passwd", "astral": "\U0001f600" * 3,
        "1 MB": "a" * 1_000_000, "4 MB of digits": "1" * 4_000_000,
    }  # fmt: skip
    found = {f"number {name}": text.encode() for name, text in numbers.items()}
    return found | {name: json.dumps(text).encode() for name, text in {**numbers, **words}.items()}


VALUES: dict[str, bytes] = {
    "missing": NO_VALUE, "null": b"null", "true": b"true", "false": b"false", "list": b"[]", "object": b"{}",
    "list of text": b'["5"]', "object of text": b'{"a": "5"}', "list of lists": b"[[[]]]", "zero": b"0", "one": b"1",
    **_texts(),
    "lone surrogate": b'"\\ud800"', "surrogates in text": b'"a\\udfffb\\ud800c"',
    "40 brackets": b"[" * 40 + b"]" * 40, "600 brackets": b"[" * 600 + b"]" * 600,
    "300000 brackets": b"[" * 300_000 + b"]" * 300_000, "open brackets": b"[" * 300_000,
    "100000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "bracket text": b'"' + b"[" * 2_000 + b'"',
    "wide list": b"[" + b"1," * 200_000 + b"1]", "30000 keys": b"{" + b",".join(b'"%d":1' % n for n in range(30_000)) + b"}",
    "repeated member": b'5, "repeated": 1, "repeated": 2',
    "nothing": b"", "broken word": b"tru", "leading zero": b"01", "point at the end": b"1.", "single quotes": b"'5'",
    "bad escape": b'"\\x41"', "cut escape": b'"\\ud8"', "raw control": b'"a\x01b"', "raw NUL": b'"a\0b"', "not UTF-8": b'"\xff\xfe"',
    "overlong": b'"\xc0\xaf"', "comma too much": b"5,", "two values": b"5 6", "comment": b"5 /* x */", "unclosed": b'"abc',
}  # fmt: skip
"""Raw JSON text, or what claims to be."""

SMALL = [name for name, raw in VALUES.items() if len(raw) < 10_000]
"""Values that cost little wherever they are put."""
