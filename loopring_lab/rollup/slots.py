"""Slots of block data as columns: every transaction type's fields, exact, without an object per row.

`FIELDS` is the format: for each type the name, first byte, width and form of its fields.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.errors import BlockError
from loopring_lab.rollup.calldata import HEADER, SLOT, RawBlock, check_length

KINDS = (
    "noop", "deposit", "withdrawal", "transfer", "spot_trade", "account_update", "amm_update",
    "signature_verification", "nft_mint", "nft_data",
)  # fmt: skip
FIRST_NFT = 1 << 15
WIDTH_FIRST = 29  # bytes of a slot in the first part of block data; the other 39 are in the second
AMOUNT = pa.decimal128(38, 0)
UINT, BYTES, UINT96, FLOAT16, FLOAT24 = range(5)

Field = tuple[str, int, int, int]
FIELDS: dict[str, tuple[Field, ...]] = {
    "noop": (),
    "deposit": (("owner", 1, 20, BYTES), ("account", 21, 4, UINT), ("token", 25, 2, UINT),
                ("amount", 27, 12, UINT96)),
    "withdrawal": (("kind", 1, 1, UINT), ("owner", 2, 20, BYTES), ("account", 22, 4, UINT),
                   ("token", 26, 2, UINT), ("amount", 28, 12, UINT96), ("fee_token", 40, 2, UINT),
                   ("fee", 42, 2, FLOAT16), ("storage", 44, 4, UINT), ("onchain_data_hash", 48, 20, BYTES)),
    "transfer": (("kind", 1, 1, UINT), ("sender", 2, 4, UINT), ("receiver", 6, 4, UINT),
                 ("token", 10, 2, UINT), ("amount", 12, 3, FLOAT24), ("fee_token", 15, 2, UINT),
                 ("fee", 17, 2, FLOAT16), ("storage", 19, 4, UINT), ("to", 23, 20, BYTES),
                 ("from_", 43, 20, BYTES), ("to_token", 63, 2, UINT)),
    "spot_trade": (),
    "account_update": (("kind", 1, 1, UINT), ("owner", 2, 20, BYTES), ("account", 22, 4, UINT),
                       ("fee_token", 26, 2, UINT), ("fee", 28, 2, FLOAT16), ("public_key", 30, 32, BYTES),
                       ("nonce", 62, 4, UINT)),
    "amm_update": (("owner", 1, 20, BYTES), ("account", 21, 4, UINT), ("token", 25, 2, UINT),
                   ("fee_bips", 27, 1, UINT), ("weight", 28, 12, UINT96), ("nonce", 40, 4, UINT),
                   ("balance", 44, 12, UINT96)),
    "signature_verification": (("owner", 1, 20, BYTES), ("account", 21, 4, UINT), ("data", 25, 32, BYTES)),
    "nft_mint": (("kind", 1, 1, UINT), ("minter", 2, 4, UINT), ("to_token", 6, 2, UINT),
                 ("fee_token", 8, 2, UINT), ("fee", 10, 2, FLOAT16), ("amount", 12, 12, UINT96),
                 ("storage", 24, 4, UINT)),
    "nft_data": (("scheme", 1, 1, UINT), ("account", 2, 4, UINT), ("token", 6, 2, UINT),
                 ("nft_id", 8, 32, BYTES), ("creator_bips", 40, 1, UINT), ("nft_type", 41, 1, UINT),
                 ("address", 42, 20, BYTES)),
}  # fmt: skip
MINT_FIELDS: tuple[Field, ...] = (
    ("nft_type", 28, 1, UINT), ("token_account", 29, 4, UINT), ("nft_id", 33, 32, BYTES),
    ("creator_bips", 65, 1, UINT),
)  # fmt: skip
"""Fields of an NFT mint of kind 0; other kinds name the receiver there, and NFT data follows them."""

HEADER_FIELDS: tuple[Field, ...] = (
    ("exchange", 0, 20, BYTES), ("merkle_root_before", 20, 32, BYTES), ("merkle_root_after", 52, 32, BYTES),
    ("timestamp", 84, 4, UINT), ("taker_bips10", 88, 1, UINT), ("maker_bips10", 89, 1, UINT),
    ("conditional", 90, 4, UINT), ("operator", 94, 4, UINT),
)  # fmt: skip

_LIMB = np.uint64(31)
_POWERS = np.array(  # of ten: the low 64 bits, then three limbs of which the last is the widest
    [[10**e % 2**64, 10**e % 2**31, (10**e >> 31) % 2**31, 10**e >> 62] for e in range(32)], np.uint64
)
_TENS = 10 ** np.arange(5)


class Slots:
    """The slots of several blocks, sorted by transaction type and then by place."""

    def __init__(self, blocks: Sequence[RawBlock]) -> None:
        self.sizes = np.array([check_length(raw, f"block {at}") for at, raw in enumerate(blocks)], np.int64)
        self.headers = np.empty((len(blocks), HEADER), np.uint8)
        slots, kinds, stops = self._assembled(blocks)
        order = np.argsort(kinds, kind="stable")
        self._rows = slots.take(order, axis=0, mode="clip", out=_new(slots.size, np.uint8).reshape(-1, SLOT))
        self._stops = np.bincount(kinds, minlength=len(KINDS)).cumsum()
        self._block = np.repeat(np.arange(len(blocks), dtype=np.int32), self.sizes)[order]
        self._within = (order - (stops - self.sizes)[self._block]).astype(np.int32)

    def table(self, kind: str) -> pa.Table:
        """Return all fields of the transactions of one type, each with its block and its place there."""
        at = KINDS.index(kind)
        some = slice(self._stops[at - 1] if at else 0, self._stops[at])
        places = {"block": pa.array(self._block[some]), "index_in_block": pa.array(self._within[some])}
        return pa.table(places | columns(kind, self._rows[some]))

    def _assembled(self, blocks: Sequence[RawBlock]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Join the two parts of each slot; return slots, their types, and where each block stops."""
        stops = self.sizes.cumsum()
        slots = _new(int(self.sizes.sum()) * SLOT, np.uint8).reshape(-1, SLOT)
        for place, (raw, size, stop) in enumerate(zip(blocks, self.sizes.tolist(), stops.tolist(), strict=True)):
            content = np.frombuffer(raw.data, np.uint8)
            self.headers[place] = content[:HEADER]
            middle = HEADER + WIDTH_FIRST * size
            slots[stop - size : stop, :WIDTH_FIRST] = content[HEADER:middle].reshape(size, WIDTH_FIRST)
            slots[stop - size : stop, WIDTH_FIRST:] = content[middle:].reshape(size, SLOT - WIDTH_FIRST)
        kinds = np.ascontiguousarray(slots[:, 0])
        if kinds.max(initial=0) >= len(KINDS):
            first = int(np.argmax(kinds >= len(KINDS)))
            place = int(np.searchsorted(stops, first, "right"))
            raise BlockError(
                f"block {place}, slot {first - stops[place] + self.sizes[place]}: unknown transaction type "
                f"{kinds[first]}, expected 0 to {len(KINDS) - 1}. The data is damaged: get it again."
            )
        return slots, kinds, stops


def columns(kind: str, rows: np.ndarray) -> dict[str, pa.Array]:
    """Return the fields of rows of one type, by name."""
    if kind == "spot_trade":
        return _spot_trades(rows)
    found = read(FIELDS[kind], rows)
    if kind == "transfer":
        to_token = number(rows, 63, 2)
        found["to_token"] = pa.array(np.where(to_token == 0, number(rows, 10, 2), to_token))
    return found | _mints(rows) if kind == "nft_mint" else found


def read(fields: Sequence[Field], rows: np.ndarray) -> dict[str, pa.Array]:
    """Return fields as Arrow columns."""
    return {name: _column(rows, start, width, form) for name, start, width, form in fields}


def _new(count: int, dtype: type) -> np.ndarray:
    """Return an array to fill, of Arrow's memory: unlike numpy's, it is kept for the next one."""
    return np.frombuffer(pa.allocate_buffer(count * np.dtype(dtype).itemsize), dtype)


def number(rows: np.ndarray, start: int, width: int) -> np.ndarray:
    """Read unsigned integers of up to four bytes."""
    if width == 3:
        found = number(rows, start - 1, 4)
        found &= 0xFF_FF_FF
        return found
    found = _new(len(rows), np.int64)
    found[:] = rows[:, start : start + width].view(f">u{width}")[:, 0]
    return found


def binary(rows: np.ndarray) -> pa.Array:
    """Return rows of bytes as one column."""
    content = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), len(rows), [None, content])


def _column(rows: np.ndarray, start: int, width: int, form: int) -> pa.Array:
    if form == UINT:
        return pa.array(number(rows, start, width))
    if form == BYTES:
        return binary(rows[:, start : start + width])
    if form == UINT96:
        return _decimals(rows[:, start + 4 : start + 12].view(">u8")[:, 0], number(rows, start, 4))
    return _scaled(*_float_parts(rows, start, 11 if form == FLOAT16 else 19))


def _float_parts(rows: np.ndarray, start: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the protocol's floats into mantissa and exponent."""
    packed = number(rows, start, (bits + 5) // 8)
    return packed & (1 << bits) - 1, packed >> bits


def _scaled(factor: np.ndarray, exponent: np.ndarray) -> pa.Array:
    """Return factors below 2**33 times powers of ten below 2**123, exactly: by limbs of 31 bits."""
    whole, *limbs = _POWERS.take(exponent, axis=0, mode="clip").T
    factor = factor.astype(np.uint64)
    carry = factor * limbs[0] >> _LIMB
    carry = factor * limbs[1] + carry >> _LIMB
    return _decimals(factor * whole, factor * limbs[2] + carry >> np.uint64(2))


def _decimals(low: np.ndarray, high: np.ndarray) -> pa.Array:
    words = _new(2 * len(low), np.uint64).reshape(-1, 2)
    words[:, 0], words[:, 1] = low, high
    return pa.Array.from_buffers(AMOUNT, len(low), [None, pa.py_buffer(words)])


def _fee(mantissa: np.ndarray, exponent: np.ndarray, bips: np.ndarray) -> pa.Array:
    """Return floor(amount x bips / 10,000): four zeros off the power of ten, or else off the product."""
    product, left = mantissa * bips, exponent - 4
    few = np.flatnonzero(left < 0)
    product[few] //= _TENS[-left[few]]
    return _scaled(product, np.maximum(left, 0))


def _spot_trades(rows: np.ndarray) -> dict[str, pa.Array]:
    sold = {side: number(rows, at, 2) for side, at in (("a", 17), ("b", 19))}
    fill = {side: _float_parts(rows, at, 19) for side, at in (("a", 21), ("b", 24))}
    ids = (("account_a", 9), ("account_b", 13), ("storage_a", 1), ("storage_b", 5))
    found = {name: pa.array(number(rows, at, 4)) for name, at in ids}
    for side, other, place in (("a", "b", 0), ("b", "a", 1)):
        bought, bips = number(rows, 29 + 2 * place, 2), number(rows, 33 + place, 1)
        data = np.ascontiguousarray(rows[:, 27 + place])
        np.copyto(bought, sold[other], where=bought == 0)
        bips <<= 6
        bips |= data & 63
        found |= {
            f"sell_{side}": pa.array(sold[side]),
            f"buy_{side}": pa.array(bought),
            f"fill_{side}": _scaled(*fill[side]),
            f"fill_b_limit_{side}": pa.array(data >= 1 << 7),
            f"bit6_{side}": pa.array(data & 1 << 6 != 0),
            f"fee_bips_{side}": pa.array(bips),
        }
        found |= _fees(side, sold[side], bought, fill[side], fill[other], bips)
    return found


def _fees(
    side: str,
    sold: np.ndarray,
    bought: np.ndarray,
    own: tuple[np.ndarray, np.ndarray],
    received: tuple[np.ndarray, np.ndarray],
    bips: np.ndarray,
) -> dict[str, pa.Array]:
    """Return the fee and its token: the one bought, but the one sold for an NFT; none between two NFTs."""
    token = bought
    nfts = np.flatnonzero(bought >= FIRST_NFT)
    if len(nfts):
        mantissa, exponent, bips, token = received[0].copy(), received[1].copy(), bips.copy(), bought.copy()
        mantissa[nfts], exponent[nfts] = own[0][nfts], own[1][nfts]
        both = sold[nfts] >= FIRST_NFT
        bips[nfts[both]] = 0
        token[nfts[~both]] = sold[nfts[~both]]
        received = mantissa, exponent
    return {f"fee_{side}": _fee(*received, bips), f"fee_token_{side}": pa.array(token)}


def _mints(rows: np.ndarray) -> dict[str, pa.Array]:
    """Return what a mint says by its kind: the NFT, or the receiver."""
    plain = rows[:, 1] == 0
    said = pa.array(plain)
    found = {
        name: pc.if_else(said, column, pa.scalar(None, column.type)) for name, column in read(MINT_FIELDS, rows).items()
    }
    receiver = np.where(plain, number(rows, 2, 4), number(rows, 28, 4))
    to = np.where(plain[:, None], np.uint8(0), rows[:, 32:52])
    return found | {"receiver": pa.array(receiver), "to": binary(to)}
