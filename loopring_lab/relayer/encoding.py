"""The bytes of rollup blocks and of the calldata that submits them, from whole numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import NamedTuple

from loopring_lab.errors import LabError

SLOT, FIRST_PART = 68, 29
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

NEWEST_FORM, NEWEST_WRAPPER = "53228430", "dcb2aa31"
CALLBACKS = "((uint16,(uint16,uint16,uint16,bytes)[])[],address[])"
LONGEST_RUN = 0xFFFF


class SpotTrade(NamedTuple):
    """A fill; A is the taker, B the maker."""

    account_a: int
    account_b: int
    storage_a: int
    storage_b: int
    sell_a: int
    buy_a: int
    sell_b: int
    buy_b: int
    fill_a: int
    fill_b: int
    fill_b_limit_a: int
    fill_b_limit_b: int
    fee_bips_a: int
    fee_bips_b: int


class Deposit(NamedTuple):
    owner: int
    account: int
    token: int
    amount: int


class Withdrawal(NamedTuple):
    kind: int
    owner: int
    account: int
    token: int
    amount: int
    fee_token: int
    fee: int
    storage: int
    onchain_data_hash: int


class Transfer(NamedTuple):
    kind: int
    sender: int
    receiver: int
    token: int
    amount: int
    fee_token: int
    fee: int
    storage: int
    to: int
    from_: int
    to_token: int


class AccountUpdate(NamedTuple):
    kind: int
    owner: int
    account: int
    fee_token: int
    fee: int
    public_key: int
    nonce: int


class AmmUpdate(NamedTuple):
    owner: int
    account: int
    token: int
    fee_bips: int
    weight: int
    nonce: int
    balance: int


class SignatureVerification(NamedTuple):
    owner: int
    account: int
    data: int


class NftMint(NamedTuple):
    """A mint signed on L2 (kind 0); the other kinds are `ApprovedNftMint`."""

    minter: int
    to_token: int
    fee_token: int
    fee: int
    amount: int
    storage: int
    nft_type: int
    token_account: int
    nft_id: int
    creator_bips: int


class ApprovedNftMint(NamedTuple):
    """A mint authorised on L1 (kind 1 or 2), which two slots of `NftData` follow."""

    kind: int
    minter: int
    to_token: int
    fee_token: int
    fee: int
    amount: int
    storage: int
    receiver: int
    to: int


class NftData(NamedTuple):
    scheme: int
    account: int
    token: int
    nft_id: int
    creator_bips: int
    nft_type: int
    address: int


class Noop(NamedTuple):
    pass


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

_LAYOUTS = {
    name: (int(code), [tuple(field.split("/")) for field in fields])
    for name, code, *fields in map(
        str.split,
        (
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
            "ApprovedNftMint 8 kind/1 minter/4 to_token/2 fee_token/2 fee/float16 amount/12 storage/4 "
            "receiver/4 to/20",
            "NftData 9 scheme/1 account/4 token/2 nft_id/32 creator_bips/1 nft_type/1 address/20",
        ),
    )
}
"""By name: the type's number, then its fields in order, each with its width in bytes or its float."""


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
    """A block as it is submitted; auxiliary data is by the index of its transaction."""

    data: bytes
    auxiliary: Sequence[tuple[int, bytes]] = ()
    block_type: int = 0
    block_version: int = 17


def encode_block(header: Header, transactions: Sequence[Transaction], size: int | None = None) -> bytes:
    """Return the data of a block, filled up with noops to `size` slots or the smallest size that holds it."""
    count = len(transactions)
    if size is None:
        size = next((each for each in SIZES if each >= count), count)
    if size < count:
        raise LabError(f"Block: {count} transactions do not fit into {size} slots. Give a larger size.")
    slots = [encode_slot(each) for each in transactions]
    first, second = (
        b"".join(slot[part] for slot in slots) for part in (slice(FIRST_PART), slice(FIRST_PART, SLOT))
    )
    noops = size - count
    return b"".join(
        (
            _encode_header(header, sum(map(is_conditional, transactions))),
            first,
            bytes(FIRST_PART * noops),
            second,
            bytes((SLOT - FIRST_PART) * noops),
        )
    )


def is_conditional(transaction: Transaction) -> bool:
    """Return whether the contract looks at a transaction, for which it may need auxiliary data."""
    if isinstance(transaction, Deposit | Withdrawal | AmmUpdate | ApprovedNftMint):
        return True
    return isinstance(transaction, Transfer | AccountUpdate) and transaction.kind > 0


def encode_slot(transaction: Transaction) -> bytes:
    """Return the 68 bytes of a transaction."""
    if isinstance(transaction, Noop):
        return bytes(SLOT)
    code, layout = _LAYOUTS[type(transaction).__name__]
    values = _values(transaction)
    parts = [_encode_value(transaction, name, values[name], width) for name, width in layout]
    return b"".join((bytes((code,)), *parts)).ljust(SLOT, b"\0")


def encode_float(value: int, kind: str) -> int:
    """Return a float16 or float24 with the smallest exponent that holds a whole number exactly."""
    bits = FLOATS[kind][1]
    exponent, mantissa, rest = 0, value, 0
    while mantissa >> bits and not rest:
        mantissa, rest = divmod(mantissa, 10)
        exponent += 1
    if rest or value < 0 or exponent >= 32:
        raise LabError(f"{value} is not a {kind}. Give at most {bits} significant bits, or round it first.")
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
    call = bytes.fromhex(form) + encode([block_type], [[_block_argument(block, form) for block in blocks]])
    if wrapper is None:
        return call
    types, values = ["bool", "bytes"], [compressed, compress(call) if compressed else call]
    if wrapper == NEWEST_WRAPPER:
        types, values = [*types, CALLBACKS], [*values, ([], [])]
    return bytes.fromhex(wrapper) + encode(types, values)


def compress(data: bytes) -> bytes:
    """Compress data as the contracts do: numbers of literals and of zeros that follow, then the literals."""
    parts, at = [], 0
    for run in re.finditer(rb"\0{5,%d}|\Z" % LONGEST_RUN, data):
        literals, zeros = data[at : run.start()], len(run[0])
        while len(literals) > LONGEST_RUN:
            parts.append(LONGEST_RUN.to_bytes(2) + bytes(2) + literals[:LONGEST_RUN])
            literals = literals[LONGEST_RUN:]
        if literals or zeros:
            parts.append(len(literals).to_bytes(2) + zeros.to_bytes(2) + literals)
        at = run.end()
    return b"".join(parts)


def _encode_header(header: Header, conditional: int) -> bytes:
    widths = (20, 32, 32, 4, 1, 1, 4, 4)
    names = (*Header._fields[:6], "conditional", "operator")
    values = (*header[:6], conditional, header.operator)
    fields = zip(names, values, widths, strict=True)
    return b"".join(_encode_value(header, name, value, str(width)) for name, value, width in fields)


def _values(transaction: Transaction) -> dict[str, int]:
    values: dict[str, int] = transaction._asdict()
    if isinstance(transaction, NftMint):
        values["kind"] = 0
    elif isinstance(transaction, ApprovedNftMint) and not transaction.kind:
        raise LabError("ApprovedNftMint kind: 0 is the kind of an NftMint. Give 1 or 2.")
    elif isinstance(transaction, Transfer):
        values["to_token"] = _unless_same(transaction, "to_token", transaction.to_token, transaction.token)
    elif isinstance(transaction, SpotTrade):
        values |= _order_fields(transaction)
    return values


def _order_fields(trade: SpotTrade) -> dict[str, int]:
    """Return the fields of a fill that are stored in another form."""
    low, high = 0x3F, 6
    limits = {"fill_b_limit_a": trade.fill_b_limit_a, "fill_b_limit_b": trade.fill_b_limit_b}
    if not set(limits.values()) <= {0, 1}:
        raise LabError(f"SpotTrade: {limits} are flags. Give 0 or 1.")
    return {
        "order_data_a": trade.fill_b_limit_a << 7 | trade.fee_bips_a & low,
        "order_data_b": trade.fill_b_limit_b << 7 | trade.fee_bips_b & low,
        "high_fee_a": trade.fee_bips_a >> high,
        "high_fee_b": trade.fee_bips_b >> high,
        "buy_a": _unless_same(trade, "buy_a", trade.buy_a, trade.sell_b),
        "buy_b": _unless_same(trade, "buy_b", trade.buy_b, trade.sell_a),
    }


def _unless_same(transaction: Transaction, name: str, token: int, other: int) -> int:
    """Return 0, which stands for the default, where a token is the default; token 0 cannot be any other."""
    if token == 0 != other:
        what = type(transaction).__name__
        raise LabError(f"{what} {name}: token 0 means token {other} there. Give another token.")
    return 0 if token == other else token


def _encode_value(where: object, name: str, value: int, width: str) -> bytes:
    try:
        if width in FLOATS:
            return encode_float(value, width).to_bytes(FLOATS[width][0])
        return value.to_bytes(int(width))
    except OverflowError:
        problem = f"{value} does not fit into {width} bytes. Give a smaller number, from 0."
    except LabError as error:
        problem = str(error)
    raise LabError(f"{type(where).__name__} {name}: {problem}")


def _block_argument(block: Submission, form: str) -> tuple[object, ...]:
    from eth_abi.abi import encode

    size = (len(block.data) - 98) // SLOT
    proof = [int.from_bytes(sha256(bytes((n,)) + block.data[:98]).digest()) >> 3 for n in range(8)]
    plain = form == "8dadd3af"
    auxiliary: object = [(at, data) if plain else (at, True, data) for at, data in block.auxiliary]
    if form == "53228430":
        auxiliary = encode([PACKED_AUXILIARY], [auxiliary])
    return block.block_type, size, block.block_version, block.data, proof, True, auxiliary, b""


def encode_auxiliary(types: str, values: Iterable[object]) -> bytes:
    """Return the auxiliary data of a conditional transaction: a struct of the given types."""
    from eth_abi.abi import encode

    return encode([types], [tuple(values)])
