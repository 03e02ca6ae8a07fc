"""Parsers of a request's fields: integers, addresses, bytes, coordinates. Errors name the field.

No error shows what may be secret: bytes and scalars are described instead.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from operator import index
from typing import Any

from loopring_lab.bounded import shown
from loopring_lab.errors import ProtocolError
from loopring_lab.protocol.curve import SUBGROUP_ORDER, P
from loopring_lab.redaction import Secret, SecretBytes

# r and s of a wallet's signature, 32 bytes each, and v.
SIGNATURE_BYTES = 65
# Order of the curve of Ethereum's signatures (SEC 2, section 2.4.1: secp256k1). Private keys lie between 0 and it.
SECP256K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
# Token ids from here on are an account's slots for NFTs (protocol 3.6).
FIRST_NFT_SLOT = 1 << 15
# A uint256 has at most 78 decimal digits, or 64 of hex.
_NUMBER = re.compile("[0-9]{1,78}|0[xX][0-9a-fA-F]{1,64}", re.ASCII)
_HEX = re.compile("(0[xX])?[0-9a-fA-F]{1,64}", re.ASCII)


def parse_uint(field: str, value: Any, bits: int) -> int:
    number = _integer(value)
    if number is None or not 0 <= number < 1 << bits:
        problem = f"expected an integer from 0 to 2^{bits} - 1 (uint{bits}), got {shown(value)}"
        raise ProtocolError(
            field, problem, hint="Give an integer in that range, or its decimal text."
        )
    return number


def parse_bytes(
    field: str, value: bytes | str | None, length: int | None = None
) -> SecretBytes:
    """Parse bytes, given as such or as hex."""
    start = 0
    if isinstance(value, str) and value[:2] in ("0x", "0X"):
        start = 2
    try:
        if isinstance(value, str):
            # Unlike bytes.fromhex, unhexlify refuses spaces. The digits get no name, as tracebacks show variables.
            data = SecretBytes(unhexlify(value[start:]))
        else:
            data = SecretBytes(memoryview(value or b""))
    except (TypeError, ValueError):
        problem = "expected bytes, or text with an even number of hex digits"
        raise ProtocolError(
            field, problem, hint="Pass it unchanged, as bytes or as 0x text."
        ) from None
    if length is not None and len(data) != length:
        problem = f"expected {length} bytes, got {len(data)}"
        raise ProtocolError(field, problem, hint="Check that nothing was cut or added.")
    return data


def parse_address(field: str, value: str) -> str:
    """Parse an address, and return it with its checksum."""
    from eth_utils.address import to_checksum_address

    return to_checksum_address(bytes(parse_bytes(field, value, 20)))


def parse_coordinate(field: str, value: int | str) -> int:
    number = _hex_number(value)
    if number is None or not 0 <= number < P:
        problem = f"expected a field element as an integer or up to 64 hex digits, got {shown(value)}"
        raise ProtocolError(field, problem, hint="Send 0x and 64 hex digits.")
    return number


def parse_packed(field: str, value: object) -> int:
    """Parse a packed public key, as an integer, 32 bytes, or hex."""
    if isinstance(value, (bytes, bytearray)) and len(value) == 32:
        return int.from_bytes(value)
    number = None
    if isinstance(value, (int, str)):
        number = _hex_number(value)
    if number is None or not 0 <= number < 1 << 256:
        problem = f"expected 256 bits as an integer, 32 bytes, or up to 64 hex digits, got {shown(value)}"
        raise ProtocolError(field, problem, hint="Send 0x and 64 hex digits.")
    return number


def parse_l2_secret(value: int | str | None) -> Secret:
    secret = Secret(_hex_number(value) or 0)
    if not 0 < secret < P or secret % SUBGROUP_ORDER == 0:
        problem = (
            "expected an integer from 1 to p - 1, or hex text, that makes a valid key"
        )
        raise ProtocolError(
            "secret", problem, hint="Use the secret of a key from l2_key()."
        )
    return secret


def _integer(value: Any) -> int | None:
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return None
        base = 16 if value[:2] in ("0x", "0X") else 10
        return int(value, base)
    if isinstance(value, bool):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def _hex_number(value: int | str | None) -> int | None:
    if isinstance(value, str):
        return int(value, 16) if _HEX.fullmatch(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None
