"""The bytes of rollup blocks and of the calldata that submits them, from whole numbers."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from loopring_lab.errors import LabError

SLOT = 68
FIRST_PART = 29
SIZES = (16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096)
"""The numbers of slots that a block can have here; mainnet's blocks have at most 384."""

FLOATS = {"float16": (2, 11), "float24": (3, 19)}
"""Bytes and bits of the mantissa; the other 5 bits are the exponent."""

AUXILIARY = {
    "8dadd3af": "(uint256,bytes)[]",
    "66ac492e": "(uint256,bool,bytes)[]",
    "53228430": "bytes",
}
"""The auxiliary data of a block by the selector of submitBlocks, oldest first."""
PACKED_AUXILIARY = "(uint256,bool,bytes)[]"

NEWEST_FORM = "53228430"
NEWEST_WRAPPER = "dcb2aa31"
CALLBACKS = "((uint16,(uint16,uint16,uint16,bytes)[])[],address[])"
LONGEST_RUN = 0xFFFF


SpotTrade = namedtuple(
    "SpotTrade",
    "account_a account_b storage_a storage_b sell_a buy_a sell_b buy_b fill_a fill_b "
    "fill_b_limit_a fill_b_limit_b fee_bips_a fee_bips_b",
)
Deposit = namedtuple("Deposit", "owner account token amount")
Withdrawal = namedtuple(
    "Withdrawal",
    "kind owner account token amount fee_token fee storage onchain_data_hash",
)
Transfer = namedtuple(
    "Transfer",
    "kind sender receiver token amount fee_token fee storage to from_ to_token",
)
AccountUpdate = namedtuple(
    "AccountUpdate", "kind owner account fee_token fee public_key nonce"
)
AmmUpdate = namedtuple("AmmUpdate", "owner account token fee_bips weight nonce balance")
SignatureVerification = namedtuple("SignatureVerification", "owner account data")
NftMint = namedtuple(
    "NftMint",
    "minter to_token fee_token fee amount storage nft_type token_account nft_id creator_bips",
)
ApprovedNftMint = namedtuple(
    "ApprovedNftMint", "kind minter to_token fee_token fee amount storage receiver to"
)
NftData = namedtuple(
    "NftData", "scheme account token nft_id creator_bips nft_type address"
)
Noop = namedtuple("Noop", "")
Transaction = (
    SpotTrade
    | Deposit
    | Withdrawal
    | Transfer
    | AccountUpdate
    | AmmUpdate
    | SignatureVerification
    | NftMint
    | ApprovedNftMint
    | NftData
    | Noop
)
"""A transaction in whole numbers. A of a fill is the taker; a mint is signed on L2, or approved on L1."""

_LAYOUTS = {
    name: (bytes((int(code),)), [tuple(field.split("/")) for field in fields])
    for name, code, *fields in map(
        str.split,
        (
            "Noop 0",
            "Deposit 1 owner/20 account/4 token/2 amount/12",
            "Withdrawal 2 kind/1 owner/20 account/4 token/2 amount/12 fee_token/2 fee/float16 storage/4 "
            "onchain_data_hash/20",
            "Transfer 3 kind/1 sender/4 receiver/4 token/2 amount/float24 fee_token/2 fee/float16 storage/4 "
            "to/20 from_/20 to_token/2",
            "SpotTrade 4 storage_a/4 storage_b/4 account_a/4 account_b/4 sell_a/2 sell_b/2 "
            "fill_a/float24 fill_b/float24 order_data_a/1 order_data_b/1 buy_a/2 buy_b/2 "
            "high_fee_a/1 high_fee_b/1",
            "AccountUpdate 5 kind/1 owner/20 account/4 fee_token/2 fee/float16 public_key/32 nonce/4",
            "AmmUpdate 6 owner/20 account/4 token/2 fee_bips/1 weight/12 nonce/4 balance/12",
            "SignatureVerification 7 owner/20 account/4 data/32",
            "NftMint 8 kind/1 minter/4 to_token/2 fee_token/2 fee/float16 amount/12 storage/4 "
            "nft_type/1 token_account/4 nft_id/32 creator_bips/1",
            "ApprovedNftMint 8 kind/1 minter/4 to_token/2 fee_token/2 fee/float16 amount/12 storage/4 receiver/4 to/20",
            "NftData 9 scheme/1 account/4 token/2 nft_id/32 creator_bips/1 nft_type/1 address/20",
            "Header 0 exchange/20 merkle_root_before/32 merkle_root_after/32 timestamp/4 "
            "protocol_taker_bips10/1 protocol_maker_bips10/1 conditional/4 operator/4",
        ),
    )
}
"""By name: the type's byte, then its fields in order, each with its width in bytes or its float."""


class Header(NamedTuple):
    """The header of a block, without what its transactions tell."""

    exchange: int
    merkle_root_before: int
    merkle_root_after: int
    timestamp: int
    protocol_taker_bips10: int
    protocol_maker_bips10: int
    operator: int


class Submission(NamedTuple):
    """A block as it is submitted: auxiliary data is the index of a transaction, its approval and bytes."""

    data: bytes
    auxiliary: Sequence[tuple[int, bool, bytes]] = ()
    block_type: int = 0
    block_version: int = 17


def encode_block(
    header: Header, transactions: Sequence[Transaction], size: int | None = None
) -> bytes:
    """Return the data of a block, filled up with noops to `size` slots or the smallest size that holds it."""
    count = len(transactions)
    if size is None:
        size = next((each for each in SIZES if each >= count), count)
    if size < count:
        raise LabError(
            f"Block: {count} transactions do not fit into {size} slots. Give a larger size."
        )
    slots = [encode_slot(each) for each in transactions]
    first = b"".join(slot[:FIRST_PART] for slot in slots).ljust(
        FIRST_PART * size, b"\0"
    )
    second = b"".join(slot[FIRST_PART:] for slot in slots).ljust(
        (SLOT - FIRST_PART) * size, b"\0"
    )
    values = header._asdict() | {"conditional": sum(map(is_conditional, transactions))}
    return b"".join([*_encode(header, values), first, second])


def is_conditional(transaction: Transaction) -> bool:
    """Return whether the contract looks at a transaction, for which it may need auxiliary data."""
    if isinstance(transaction, Deposit | Withdrawal | AmmUpdate | ApprovedNftMint):
        return True
    return isinstance(transaction, Transfer | AccountUpdate) and transaction.kind > 0


def encode_slot(transaction: Transaction) -> bytes:
    """Return the 68 bytes of a transaction."""
    code = _LAYOUTS[type(transaction).__name__][0]
    return b"".join([code, *_encode(transaction, _values(transaction))]).ljust(
        SLOT, b"\0"
    )


def encode_float(value: int, kind: str) -> int:
    """Return a float16 or float24 with the smallest exponent that holds a whole number exactly."""
    bits = FLOATS[kind][1]
    exponent = 0
    mantissa = value
    rest = 0
    while mantissa >> bits and not rest:
        mantissa, rest = divmod(mantissa, 10)
        exponent += 1
    if rest or value < 0 or exponent >= 32:
        raise LabError(
            f"{value} is not a {kind}. Give at most {bits} significant bits, or round it first."
        )
    return exponent << bits | mantissa


def encode_calldata(
    blocks: Sequence[Submission],
    form: str = NEWEST_FORM,
    wrapper: str | None = NEWEST_WRAPPER,
    compressed: bool = True,
) -> bytes:
    """Return the calldata of a transaction that submits blocks, through a wrapper or directly."""
    from eth_abi.abi import encode

    block_type = f"(uint8,uint16,uint8,bytes,uint256[8],bool,{AUXILIARY[form]},bytes)[]"
    call = bytes.fromhex(form) + encode(
        [block_type], [[_block_argument(block, form) for block in blocks]]
    )
    if wrapper is None:
        return call
    types = ["bool", "bytes"]
    values = [compressed, compress(call) if compressed else call]
    if wrapper == NEWEST_WRAPPER:
        types = [*types, CALLBACKS]
        values = [*values, ([], [])]
    return bytes.fromhex(wrapper) + encode(types, values)


def compress(data: bytes) -> bytes:
    """Compress data as the contracts do: numbers of literals and of zeros that follow, then the literals."""
    parts = []
    at = 0
    for run in re.finditer(rb"\0{5,%d}|\Z" % LONGEST_RUN, data):
        literals = data[at : run.start()]
        zeros = len(run[0])
        while len(literals) > LONGEST_RUN:
            parts.append(LONGEST_RUN.to_bytes(2) + bytes(2) + literals[:LONGEST_RUN])
            literals = literals[LONGEST_RUN:]
        if literals or zeros:
            parts.append(len(literals).to_bytes(2) + zeros.to_bytes(2) + literals)
        at = run.end()
    return b"".join(parts)


def _encode(what: Transaction | Header, values: dict[str, int]) -> list[bytes]:
    name = type(what).__name__
    return [
        _encode_value(name, field, values[field], width)
        for field, width in _LAYOUTS[name][1]
    ]


def _values(transaction: Transaction) -> dict[str, int]:
    values: dict[str, int] = transaction._asdict()
    if isinstance(transaction, NftMint):
        values["kind"] = 0
    elif isinstance(transaction, ApprovedNftMint) and not transaction.kind:
        raise LabError(
            "ApprovedNftMint kind: 0 is the kind of an NftMint. Give 1 or 2."
        )
    elif isinstance(transaction, Transfer):
        values["to_token"] = _unless_same(
            transaction, "to_token", transaction.to_token, transaction.token
        )
    elif isinstance(transaction, SpotTrade):
        values |= _order_fields(transaction)
    return values


def _order_fields(trade: SpotTrade) -> dict[str, int]:
    """Return the fields of a fill that are stored in another form."""
    fields = {
        "buy_a": _unless_same(trade, "buy_a", trade.buy_a, trade.sell_b),
        "buy_b": _unless_same(trade, "buy_b", trade.buy_b, trade.sell_a),
    }
    for side, flag, bips in (
        ("a", trade.fill_b_limit_a, trade.fee_bips_a),
        ("b", trade.fill_b_limit_b, trade.fee_bips_b),
    ):
        if flag not in (0, 1):
            raise LabError(
                f"SpotTrade fill_b_limit_{side}: {flag} is not a flag. Give 0 or 1."
            )
        fields |= {
            f"order_data_{side}": flag << 7 | bips & 0x3F,
            f"high_fee_{side}": bips >> 6,
        }
    return fields


def _unless_same(transaction: Transaction, name: str, token: int, other: int) -> int:
    """Return 0, which stands for the default, where a token is the default; token 0 cannot be any other."""
    if token == 0 != other:
        what = type(transaction).__name__
        raise LabError(
            f"{what} {name}: token 0 means token {other} there. Give another token."
        )
    return 0 if token == other else token


def _encode_value(where: str, name: str, value: int, width: str) -> bytes:
    try:
        if width in FLOATS:
            return encode_float(value, width).to_bytes(FLOATS[width][0])
        return value.to_bytes(int(width))
    except OverflowError:
        problem = (
            f"{value} does not fit into {width} bytes. Give a smaller number, from 0."
        )
    except LabError as error:
        problem = str(error)
    raise LabError(f"{where} {name}: {problem}")


def _block_argument(block: Submission, form: str) -> tuple[object, ...]:
    from eth_abi.abi import encode

    size = (len(block.data) - 98) // SLOT
    proof = [1] * 8  # nothing here verifies proofs, and equal ones compress well
    auxiliary: object = block.auxiliary
    if form == "8dadd3af":
        auxiliary = [(at, data) for at, _, data in block.auxiliary]
    elif form == "53228430":
        auxiliary = encode([PACKED_AUXILIARY], [block.auxiliary])
    return (
        block.block_type,
        size,
        block.block_version,
        block.data,
        proof,
        True,
        auxiliary,
        b"",
    )


def encode_auxiliary(types: str, values: Iterable[object]) -> bytes:
    """Return the auxiliary data of a conditional transaction: a struct of the given types."""
    from eth_abi.abi import encode

    return encode([types], [tuple(values)])
