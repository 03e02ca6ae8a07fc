"""The bytes of rollup blocks and of the calldata that submits them, from transactions in whole numbers."""

from __future__ import annotations

import re
from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eth_abi.abi import encode
from support.rollup_blocks import (
    MINT_TO,
    PACKED_FORM,
    WIDTHS,
    WRAPPERS,
    block_data,
    slot,
    submit,
    wrapped,
)

SIZES = (16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096)
"""The numbers of slots that a block can have here; mainnet's blocks have at most 384."""

MANTISSA = {2: 11, 3: 19}
"""Bits of the mantissa of a float of so many bytes; the other 5 bits are the exponent."""
FLOATS = {"fee", "amount", "fill_a", "fill_b"}
"""Fields that are floats where they are two or three bytes wide."""


def _kind(name, kind, without=""):
    """Make the type of a transaction, with the fields of its slot."""
    fields = [field for field in WIDTHS[kind] if field not in without.split()]
    return namedtuple(name, fields)


SpotTrade = namedtuple(
    "SpotTrade",
    "account_a account_b storage_a storage_b sell_a buy_a sell_b buy_b fill_a fill_b "
    "fill_b_limit_a fill_b_limit_b fee_bips_a fee_bips_b",
)
Deposit = _kind("Deposit", "deposit")
Withdrawal = _kind("Withdrawal", "withdrawal")
Transfer = namedtuple(
    "Transfer",
    "kind sender receiver token amount fee_token fee storage to from_ to_token",
)
AccountUpdate = _kind("AccountUpdate", "account_update")
AmmUpdate = _kind("AmmUpdate", "amm_update")
SignatureVerification = _kind("SignatureVerification", "signature_verification")
NftMint = _kind("NftMint", "nft_mint", without="kind")
ApprovedNftMint = namedtuple(
    "ApprovedNftMint", "kind minter to_token fee_token fee amount storage receiver to"
)
NftData = _kind("NftData", "nft_data")
Noop = _kind("Noop", "noop")
Transaction = tuple
"""A transaction in whole numbers. A of a fill is the taker; a mint is signed on L2, or approved on L1."""


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


def encode_block(header: Header, transactions: Sequence[Transaction]) -> bytes:
    """Return the data of a block, filled up with noops to the smallest size that holds it."""
    count = len(transactions)
    exchange, before, after, timestamp, taker, maker, operator = header
    return block_data(
        [encode_slot(each) for each in transactions],
        size=next(size for size in SIZES if size >= count),
        exchange=exchange,
        before=before,
        after=after,
        timestamp=timestamp,
        taker=taker,
        maker=maker,
        conditional=sum(is_conditional(each) for each in transactions),
        operator=operator,
    )


def is_conditional(transaction: Transaction) -> bool:
    """Return whether the contract looks at a transaction, for which it may need auxiliary data."""
    if isinstance(transaction, Deposit | Withdrawal | AmmUpdate | ApprovedNftMint):
        return True
    return isinstance(transaction, Transfer | AccountUpdate) and transaction.kind > 0


def encode_slot(transaction: Transaction) -> bytes:
    """Return the 68 bytes of a transaction."""
    name = type(transaction).__name__.removeprefix("Approved")
    kind = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    values = transaction._asdict()
    if isinstance(transaction, Transfer):
        values["to_token"] = _unless_same(transaction.to_token, transaction.token)
    elif isinstance(transaction, SpotTrade):
        values = _order_fields(transaction)
    widths = {name: width for name, (_, width) in (WIDTHS[kind] | MINT_TO).items()}
    for field in FLOATS & values.keys():
        if widths[field] in MANTISSA:
            values[field] = encode_float(values[field], MANTISSA[widths[field]])
    return slot(kind, **values)


def encode_float(value: int, bits: int) -> int:
    """Return a float with the smallest exponent that holds a whole number exactly."""
    exponent = 0
    while value >> bits:
        value, rest = divmod(value, 10)
        assert not rest, "more significant bits than the float has"
        exponent += 1
    return exponent << bits | value


def encode_calldata(
    blocks: Sequence[Submission],
    form: str = PACKED_FORM,
    wrapper: str | None = WRAPPERS[0],
    compressed: bool = True,
) -> bytes:
    """Return the calldata of a transaction that submits blocks, through a wrapper or directly."""
    entries = [block.auxiliary for block in blocks]
    call = submit([block.data for block in blocks], form=form, entries=entries)
    if wrapper is None:
        return call
    return wrapped(call, selector=wrapper, compress=compressed)


def _order_fields(trade):
    """Return the fields of a fill as they are stored: flags and fees share bytes, defaults are 0."""
    shared = WIDTHS["spot_trade"].keys() & set(trade._fields)
    fields = {name: getattr(trade, name) for name in shared}
    fields["buy_a"] = _unless_same(trade.buy_a, trade.sell_b)
    fields["buy_b"] = _unless_same(trade.buy_b, trade.sell_a)
    for side in "ab":
        bips = getattr(trade, f"fee_bips_{side}")
        is_limit = getattr(trade, f"fill_b_limit_{side}")
        fields[f"data_{side}"] = is_limit << 7 | bips & 0x3F
        fields[f"high_{side}"] = bips >> 6
    return fields


def _unless_same(token, default):
    """Return 0, which stands for the default, where a token is the default; token 0 cannot be any other."""
    assert token or not default, "token 0 stands for the default"
    return 0 if token == default else token


def encode_auxiliary(types: str, values: Iterable[object]) -> bytes:
    """Return the auxiliary data of a conditional transaction: a struct of the given types."""
    return encode([types], [tuple(values)])
