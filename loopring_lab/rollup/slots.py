"""Slots of block data as columns: every transaction type's fields, exact, without an object per row.

`LAYOUT` is the format: of each type of transaction the name, first byte and type of its fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.amounts.scaling import from_integers, with_scale
from loopring_lab.errors import BlockError
from loopring_lab.rollup.calldata import HEADER, SLOT, RawBlock, check_length

# Where each field is in a transaction of 68 bytes, as the protocol's contracts read it: BlockReader.sol (header) and
# libtransactions/*.sol of Loopring/protocols, packages/loopring_v3; trades are read by its circuits only
# (SpotTradeCircuit.h). Byte 0 of a transaction is its type. Types of fields have their widths in their names, in bits,
# or in bytes for `bytes`. Integers are big-endian; floats are an exponent of ten in the upper 5 bits and a mantissa.
LAYOUT = """
header
    exchange             0  bytes20
    merkle_root_before  20  bytes32
    merkle_root_after   52  bytes32
    timestamp           84  uint32
    taker_bips10        88  uint8
    maker_bips10        89  uint8
    conditional         90  uint32
    operator            94  uint32
noop
deposit
    owner                1  bytes20
    account             21  uint32
    token               25  uint16
    amount              27  uint96
withdrawal
    kind                 1  uint8
    owner                2  bytes20
    account             22  uint32
    token               26  uint16
    amount              28  uint96
    fee_token           40  uint16
    fee                 42  float16
    storage             44  uint32
    onchain_data_hash   48  bytes20
transfer
    kind                 1  uint8
    sender               2  uint32
    receiver             6  uint32
    token               10  uint16
    amount              12  float24
    fee_token           15  uint16
    fee                 17  float16
    storage             19  uint32
    to                  23  bytes20
    from_               43  bytes20
    to_token            63  uint16
spot_trade
    account_a            9  uint32
    account_b           13  uint32
    storage_a            1  uint32
    storage_b            5  uint32
account_update
    kind                 1  uint8
    owner                2  bytes20
    account             22  uint32
    fee_token           26  uint16
    fee                 28  float16
    public_key          30  bytes32
    nonce               62  uint32
amm_update
    owner                1  bytes20
    account             21  uint32
    token               25  uint16
    fee_bips            27  uint8
    weight              28  uint96
    nonce               40  uint32
    balance             44  uint96
signature_verification
    owner                1  bytes20
    account             21  uint32
    data                25  bytes32
nft_mint
    kind                 1  uint8
    minter               2  uint32
    to_token             6  uint16
    fee_token            8  uint16
    fee                 10  float16
    amount              12  uint96
    storage             24  uint32
nft_data
    scheme               1  uint8
    account              2  uint32
    token                6  uint16
    nft_id               8  bytes32
    creator_bips        40  uint8
    nft_type            41  uint8
    address             42  bytes20
signed_mint
    nft_type            28  uint8
    token_account       29  uint32
    nft_id              33  bytes32
    creator_bips        65  uint8
conditional_mint
    receiver            28  uint32
    to                  32  bytes20
"""
# Types of transactions in the order of their numbers, which are byte 0 of each: ExchangeData.TransactionType.
KINDS = (
    "noop",
    "deposit",
    "withdrawal",
    "transfer",
    "spot_trade",
    "account_update",
    "amm_update",
    "signature_verification",
    "nft_mint",
    "nft_data",
)
FIRST_NFT = 1 << 15  # token ids from here on are NFTs: Constants.h, NFT_TOKEN_ID_START
WIDTH_FIRST = 29  # bytes of a transaction in the first part of block data; the other 39 are in the second
AMOUNT = pa.decimal128(38, 0)
EXPONENT_BITS = 5  # of floats; the others are the mantissa
FEE_LOW_BITS = 6  # of a fee in basis points, in the order data; the others are in a byte of their own
FEE_DIGITS = 4  # fees are in 1 / 10,000


Float = tuple[np.ndarray, np.ndarray]  # mantissa and exponent


class Field(NamedTuple):
    """Where a field stands, and how it is read."""

    name: str
    start: int
    width: int
    form: str


class SidePlaces(NamedTuple):
    """The first bytes of what a trade says of one side."""

    sold: int
    amount: int
    order_data: int
    bought: int
    fee_high_bits: int


SIDES = {"a": SidePlaces(17, 21, 27, 29, 33), "b": SidePlaces(19, 24, 28, 31, 34)}


def _read_layout() -> dict[str, list[Field]]:
    layout: dict[str, list[Field]] = {}
    for line in LAYOUT.strip().split("\n"):
        words = line.split()
        if len(words) == 1:
            fields = layout[line] = []
            continue
        name, start, type_name = words
        form = type_name.rstrip("0123456789")
        width = int(type_name.removeprefix(form))
        if form != "bytes":
            width //= 8
        fields.append(Field(name, int(start), width, form))
    return layout


FIELDS = _read_layout()

# Arrow gives a product as many digits as both factors have and one more: 10 + 27 + 1 are the 38 of 128 bits. Only the
# types of the factors say so, not the numbers: the largest products are 2^19 x 10^31, of a mantissa, and, with four
# zeros less, 2^33 x 10^27, of a mantissa times a fee of 14 bits. Both have less than 38 digits.
FACTOR = pa.decimal128(10, 0)
# The powers from 10^0 to 10^31, which an exponent of 5 bits reaches.
POWERS = with_scale(
    from_integers([10**e for e in range(1 << EXPONENT_BITS)], AMOUNT),
    pa.decimal128(27, 0),
)
SMALL_POWERS = 10 ** np.arange(FEE_DIGITS + 1)


class Slots:
    """The slots of several blocks, sorted by transaction type and then by place."""

    def __init__(self, blocks: Sequence[RawBlock]) -> None:
        sizes = [
            check_length(raw, f"block {place}") for place, raw in enumerate(blocks)
        ]
        self.sizes = np.array(sizes, np.int64)
        self.headers = np.empty((len(blocks), HEADER), np.uint8)
        slots = self._join_parts(blocks)
        kinds = np.ascontiguousarray(slots[:, 0])
        places = np.arange(len(blocks), dtype=np.int32)
        block = np.repeat(places, self.sizes)
        starts = self.sizes.cumsum() - self.sizes
        unknown = np.flatnonzero(kinds >= len(KINDS))
        if len(unknown):
            first = unknown[0]
            raise BlockError(
                f"block {block[first]}, slot {first - starts[block[first]]}: unknown transaction type {kinds[first]}, "
                f"expected 0 to {len(KINDS) - 1}. The data is damaged: get it again."
            )
        order = np.argsort(kinds, kind="stable")
        self._rows = slots.take(order, axis=0)
        self._stops = np.bincount(kinds, minlength=len(KINDS)).cumsum()
        self._block = block[order]
        self._within = (order - starts[self._block]).astype(np.int32)

    def table(self, kind: str) -> pa.Table:
        """Return all fields of the transactions of one type, each with its block and its place there."""
        code = KINDS.index(kind)
        start = self._stops[code - 1] if code else 0
        some = slice(start, self._stops[code])
        places = {
            "block": pa.array(self._block[some]),
            "index_in_block": pa.array(self._within[some]),
        }
        return pa.table(places | columns(kind, self._rows[some]))

    def _join_parts(self, blocks: Sequence[RawBlock]) -> np.ndarray:
        """Join the two parts of each slot, and set headers apart."""
        slots = np.empty((self.sizes.sum(), SLOT), np.uint8)
        stop = 0
        for place, raw in enumerate(blocks):
            size = int(self.sizes[place])
            content = np.frombuffer(raw.data, np.uint8)
            middle = HEADER + WIDTH_FIRST * size
            self.headers[place] = content[:HEADER]
            start = stop
            stop = start + size
            first = content[HEADER:middle]
            second = content[middle:]
            slots[start:stop, :WIDTH_FIRST] = first.reshape(size, WIDTH_FIRST)
            slots[start:stop, WIDTH_FIRST:] = second.reshape(size, SLOT - WIDTH_FIRST)
        return slots


def columns(kind: str, rows: np.ndarray) -> dict[str, pa.Array]:
    """Return the fields of rows of one type, by name."""
    found = read(kind, rows)
    if kind == "spot_trade":
        found |= _sides_of_trades(rows)
    elif kind == "transfer":
        token = found["token"].to_numpy()
        found["to_token"] = pa.array(_or_other(found["to_token"].to_numpy(), token))
    elif kind == "nft_mint":
        found |= _mints(rows, found)
    return found


def read(kind: str, rows: np.ndarray) -> dict[str, pa.Array]:
    """Return the fields of the layout as Arrow columns."""
    return {field.name: _column(rows, field) for field in FIELDS[kind]}


def of_header(data: bytes, name: str) -> bytes:
    """Return the bytes of a field of the header that block data begins with."""
    [field] = [one for one in FIELDS["header"] if one.name == name]
    return data[field.start : field.start + field.width]


def number(rows: np.ndarray, start: int, width: int) -> np.ndarray:
    """Read unsigned integers of up to four bytes."""
    if width == 3:
        # There is no integer type of three bytes; the byte before them is part of the slot, too.
        return number(rows, start - 1, 4) & 0xFF_FF_FF
    return rows[:, start : start + width].view(f">u{width}")[:, 0].astype(np.int64)


def binary(rows: np.ndarray) -> pa.Array:
    """Return rows of bytes as one column."""
    content = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, content])


def _column(rows: np.ndarray, field: Field) -> pa.Array:
    start = field.start
    width = field.width
    stop = start + width
    if field.form == "bytes":
        return binary(rows[:, start:stop])
    if field.form == "float":
        mantissa, exponent = _float_parts(rows, start, width)
        return _scaled(mantissa, exponent)
    if width > 4:
        low = rows[:, start + 4 : stop].view(">u8")[:, 0]
        high = number(rows, start, 4)
        return _decimals(low, high)
    return pa.array(number(rows, start, width))


def _float_parts(rows: np.ndarray, start: int, width: int) -> Float:
    """Split the protocol's floats into mantissa and exponent."""
    packed = number(rows, start, width)
    mantissa_bits = 8 * width - EXPONENT_BITS
    mantissa = packed & (1 << mantissa_bits) - 1
    return mantissa, packed >> mantissa_bits


def _scaled(factor: np.ndarray, exponent: np.ndarray) -> pa.Array:
    """Return factors times powers of ten, exactly; see `FACTOR` for how large they may be."""
    # Arrow's own cast of integers to decimals takes ten times as long.
    factors = with_scale(_decimals(factor, 0), FACTOR)
    return pc.multiply(factors, POWERS.take(pa.array(exponent)))


def _decimals(low: np.ndarray, high: np.ndarray | int) -> pa.Array:
    """Return 128-bit integers from their two words."""
    words = np.empty((len(low), 2), np.uint64)
    words[:, 0] = low
    words[:, 1] = high
    return pa.Array.from_buffers(AMOUNT, len(low), [None, pa.py_buffer(words)])


def _or_other(token: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return tokens; one that is 0 stands for the other token."""
    return np.where(token == 0, other, token)


def _sides_of_trades(rows: np.ndarray) -> dict[str, pa.Array]:
    """Return what trades say of each side: A is the taker, B the maker."""
    sold = {side: number(rows, at.sold, 2) for side, at in SIDES.items()}
    fills = {side: _float_parts(rows, at.amount, 3) for side, at in SIDES.items()}
    found: dict[str, pa.Array] = {}
    for side, other in (("a", "b"), ("b", "a")):
        at = SIDES[side]
        data = np.ascontiguousarray(rows[:, at.order_data])
        bought = _or_other(number(rows, at.bought, 2), sold[other])
        bips = number(rows, at.fee_high_bits, 1)
        bips <<= FEE_LOW_BITS
        bips |= data & (1 << FEE_LOW_BITS) - 1
        found |= {
            f"sell_{side}": pa.array(sold[side]),
            f"buy_{side}": pa.array(bought),
            f"fill_{side}": _scaled(*fills[side]),
            f"fill_b_limit_{side}": pa.array(data >= 1 << 7),
            f"bit6_{side}": pa.array(data & 1 << 6 != 0),
            f"fee_bips_{side}": pa.array(bips),
        }
        amount, token, rate = _charged(
            sold[side],
            bought,
            fills[side],
            fills[other],
            bips,
        )
        found[f"fee_{side}"] = _fee(*amount, rate)
        found[f"fee_token_{side}"] = pa.array(token)
    return found


def _charged(
    sold: np.ndarray,
    bought: np.ndarray,
    gave: Float,
    received: Float,
    bips: np.ndarray,
) -> tuple[Float, np.ndarray, np.ndarray]:
    """Return amount and token that fees are charged on, and their rate.

    That is what was bought, but what was sold if an NFT was bought, and nothing between two NFTs.
    """
    buys_nft = bought >= FIRST_NFT
    pays_sold = buys_nft & (sold < FIRST_NFT)
    mantissa = np.where(buys_nft, gave[0], received[0])
    exponent = np.where(buys_nft, gave[1], received[1])
    token = np.where(pays_sold, sold, bought)
    rate = np.where(buys_nft & ~pays_sold, 0, bips)
    return (mantissa, exponent), token, rate


def _fee(mantissa: np.ndarray, exponent: np.ndarray, bips: np.ndarray) -> pa.Array:
    """Return floor(amount x bips / 10,000): four zeros off the power of ten, or else off the product."""
    product = mantissa * bips
    exponent = exponent - FEE_DIGITS
    short = np.flatnonzero(exponent < 0)
    product[short] //= SMALL_POWERS[-exponent[short]]
    return _scaled(product, np.maximum(exponent, 0))


def _mints(rows: np.ndarray, plain: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return what a mint says by its kind: a signed one (0) the NFT, a conditional one the receiver.

    The NFT of a conditional mint is in the two slots of NFT data after it; a signed one is the minter's.
    """
    signed = read("signed_mint", rows)
    conditional = read("conditional_mint", rows)
    is_signed = pc.equal(plain["kind"], 0)
    found = {}
    for name, column in signed.items():
        nothing = pa.scalar(None, column.type)
        found[name] = pc.if_else(is_signed, column, nothing)
    nobody = pa.scalar(bytes(20), conditional["to"].type)
    return found | {
        "receiver": pc.if_else(is_signed, plain["minter"], conditional["receiver"]),
        "to": pc.if_else(is_signed, nobody, conditional["to"]),
    }
