"""A long history of rollup blocks, generated as arrays: fills of users with pools, and what makes them whole.

Every block has the same layout of transaction types, so that a batch of blocks is a few arrays. Amounts are
whole multiples of `UNIT`, which keeps the sums here in int64 and those of the reader beyond it.
"""

import functools
import hashlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from eth_account import Account
from support.rollup_blocks import EXCHANGE, TYPES, slot, text_of, word

from loopring_lab import protocol
from loopring_lab.rollup.calldata import RawBlock

SIZE = 384
BATCH = 100
LAYOUT = {
    "spot_trade": 326,
    "transfer": 24,
    "deposit": 10,
    "amm_update": 8,
    "account_update": 4,
}
USERS = 2_000
POOLS = 100
SIGNERS = 256
# the rest of the trades are with pools
FIRST_USER = 10_001
FIRST_TOKEN = 0
BOOK_TRADES = 26
UNIT_EXPONENT = 9
INITIAL = 5 * 10**17
CONDITIONAL = ("deposit", "amm_update", "account_update")
CHAIN_ID = 1
VALID_UNTIL = 2**32 - 1
# of the first block; between two
START = 1_604_000_000
SECONDS = 2_640


def _layout() -> np.ndarray:
    kinds = [kind for kind, count in LAYOUT.items() for _ in range(count)]
    types = np.zeros(SIZE, np.uint8)
    types[: len(kinds)] = [TYPES.index(kind) for kind in kinds]
    return np.random.default_rng(1).permutation(types)


TYPE_OF = _layout()
PLACES = {kind: np.flatnonzero(TYPES.index(kind) == TYPE_OF) for kind in TYPES}


class History:
    """Blocks in order, in batches of at most `BATCH`; equal seeds give equal bytes."""

    def __init__(self, blocks: int, seed: int = 1) -> None:
        self.blocks = blocks
        self.seed = seed
        self._updates, self._consents = _key_updates()
        self._entries, self._holes = _auxiliary(self._consents.shape[1])

    def batches(self) -> Iterator[list[RawBlock]]:
        balances = np.full(2 * POOLS, INITIAL, np.int64)
        for first in range(1, self.blocks + 1, BATCH):
            count = min(BATCH, self.blocks + 1 - first)
            yield self._batch(
                first, count, balances, np.random.default_rng((self.seed, first))
            )

    def submissions(self) -> pa.Table:
        """Return the events of all blocks, as a store has them."""
        raw = [(one.block_id, _root(one.block_id), hashlib.sha256(one.data).digest(), one.l1_block)
               for batch in self.batches() for one in batch]  # fmt: skip
        numbers, roots, hashes, l1_blocks = zip(*raw, strict=True)
        return pa.table({
            "block_id": pa.array(numbers, pa.int64()), "merkle_root": pa.array(roots, pa.binary(32)),
            "public_data_hash": pa.array(hashes, pa.binary(32)), "l1_block": pa.array(l1_blocks, pa.int64()),
            "transaction_hash": pa.array([_hash(number) for number in numbers]),
            "log_index": pa.array([0] * len(numbers), pa.int64()),
        })  # fmt: skip

    def _batch(
        self, first: int, count: int, balances: np.ndarray, dice: np.random.Generator
    ) -> list[RawBlock]:
        rows = np.zeros((count, SIZE, 68), np.uint8)
        rows[:, :, 0] = TYPE_OF
        _write_transfers(rows, dice)
        _write_deposits(rows, dice)
        changes = _write_trades(rows, dice)
        _write_amm_updates(rows, first, changes, balances)
        chosen = dice.integers(0, SIGNERS, (count, LAYOUT["account_update"]))
        rows[:, PLACES["account_update"]] = self._updates[chosen]
        auxiliary = np.tile(self._entries, (count, 1))
        width = self._consents.shape[1]
        for place, hole in enumerate(self._holes):
            auxiliary[:, hole : hole + width] = self._consents[chosen[:, place]]
        first_parts = rows[:, :, :29].reshape(count, -1)
        second_parts = rows[:, :, 29:].reshape(count, -1)
        return [
            RawBlock(
                _header(number) + first_parts[at].tobytes() + second_parts[at].tobytes(),
                0, SIZE, 17, auxiliary[at].tobytes(), "53228430", number, 11_149_814 + 150 * number, _hash(number),
            )
            for at, number in enumerate(range(first, first + count))
        ]  # fmt: skip


def pool_tokens(pool: np.ndarray, side: np.ndarray) -> np.ndarray:
    """Return the tokens of pools, counted from 0: the first is one of ten, the second the pool's own."""
    return np.where(side == 0, pool % 10, 10 + pool)


def _write(
    rows: np.ndarray, kind: str, start: int, width: int, values: np.ndarray, part: slice
) -> None:
    """Write big-endian integers of up to four bytes into one field of some transactions of a type."""
    octets = np.ascontiguousarray(values.astype(">u4"))[..., None].view(np.uint8)[
        ..., 4 - width :
    ]
    rows[:, PLACES[kind][part], start : start + width] = octets


def _write_trades(
    rows: np.ndarray, dice: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write fills; return of every change of a pool's balance the pool and side, the place, and the amount."""
    count = len(rows)
    fills = LAYOUT["spot_trade"]
    shape = (count, fills)
    everyone = slice(None)
    pool = dice.integers(0, POOLS, shape)
    side = dice.integers(0, 2, shape)
    maker = 1 + pool
    maker[:, :BOOK_TRADES] = FIRST_USER + dice.integers(0, USERS, (count, BOOK_TRADES))
    mantissa = dice.integers(1, 1 << 19, (2, *shape))
    exponent = dice.integers(0, 4, (2, *shape))
    floats = (exponent + UNIT_EXPONENT) << 19 | mantissa
    fields = [
        (1, 4, dice.integers(0, 1 << 32, shape)), (5, 4, dice.integers(0, 1 << 32, shape)),
        (9, 4, FIRST_USER + dice.integers(0, USERS, shape)), (13, 4, maker),
        (17, 2, pool_tokens(pool, side)), (19, 2, pool_tokens(pool, 1 - side)),
        (21, 3, floats[0]), (24, 3, floats[1]), (27, 1, dice.integers(0, 40, shape)),
    ]  # fmt: skip
    for start, width, values in fields:
        _write(rows, "spot_trade", start, width, values, everyone)
    amounts = mantissa * 10**exponent
    place = np.arange(count)[:, None] * SIZE + PLACES["spot_trade"]
    with_pool = (slice(None), slice(BOOK_TRADES, None))
    keys = [(2 * pool + one)[with_pool].ravel() for one in (side, 1 - side)]
    moved = [amounts[0][with_pool].ravel(), -amounts[1][with_pool].ravel()]
    return (
        np.concatenate(keys),
        np.tile(place[with_pool].ravel(), 2),
        np.concatenate(moved),
    )


def _write_amm_updates(
    rows: np.ndarray,
    first: int,
    changes: tuple[np.ndarray, np.ndarray, np.ndarray],
    balances: np.ndarray,
) -> None:
    """Write the balances of a few pools in turn, as they are at that place."""
    count = len(rows)
    updates = LAYOUT["amm_update"]
    stated = ((first + np.arange(count))[:, None] * updates + np.arange(updates)) % (
        2 * POOLS
    )
    place = np.arange(count)[:, None] * SIZE + PLACES["amm_update"]
    key = np.concatenate([np.arange(2 * POOLS), changes[0], stated.ravel()])
    at = np.concatenate([np.full(2 * POOLS, -1), changes[1], place.ravel()])
    amount = np.concatenate([balances, changes[2], np.zeros(stated.size, np.int64)])
    order = np.lexsort((at, key))
    sums = np.cumsum(amount[order])
    starts = np.searchsorted(key[order], np.arange(2 * POOLS))
    before = np.concatenate([[0], sums])[starts]
    running = np.empty(len(key), np.int64)
    running[order] = sums - before[key[order]]
    balances[:] = sums[np.append(starts[1:], len(sums)) - 1] - before
    found = running[-stated.size :].reshape(stated.shape)
    pool = stated // 2
    side = stated % 2
    low = (found & 0xFFFFFFFF) * 10**UNIT_EXPONENT
    high = (found >> 32) * 10**UNIT_EXPONENT
    high += low >> 32
    fields = [
        (17, 4, 1 + pool), (21, 4, 1 + pool), (25, 2, pool_tokens(pool, side)),
        (44, 4, high >> 32), (48, 4, high & 0xFFFFFFFF), (52, 4, low & 0xFFFFFFFF),
    ]  # fmt: skip
    for start, width, values in fields:
        _write(rows, "amm_update", start, width, values, slice(None))


def _write_transfers(rows: np.ndarray, dice: np.random.Generator) -> None:
    shape = (len(rows), LAYOUT["transfer"])
    fields = [
        (2, 4, FIRST_USER + dice.integers(0, USERS, shape)), (6, 4, FIRST_USER + dice.integers(0, USERS, shape)),
        (10, 2, dice.integers(0, 10, shape)), (12, 3, dice.integers(0, 1 << 24, shape)),
        (17, 2, dice.integers(0, 1 << 15, shape)), (19, 4, dice.integers(0, 1 << 32, shape)),
    ]  # fmt: skip
    for start, width, values in fields:
        _write(rows, "transfer", start, width, values, slice(None))


def _write_deposits(rows: np.ndarray, dice: np.random.Generator) -> None:
    shape = (len(rows), LAYOUT["deposit"])
    account = FIRST_USER + dice.integers(0, USERS, shape)
    fields = [(17, 4, account), (21, 4, account), (25, 2, dice.integers(0, 10, shape)),
              (35, 4, dice.integers(0, 1 << 32, shape))]  # fmt: skip
    for start, width, values in fields:
        _write(rows, "deposit", start, width, values, slice(None))


@functools.cache
def _key_updates() -> tuple[np.ndarray, np.ndarray]:
    """Return the slots of key updates, and what their owners signed."""
    slots = []
    consents = []
    for number in range(SIGNERS):
        signer = Account.from_key(hashlib.sha256(b"throwaway %d" % number).digest())
        x, y = protocol.public_key(number + 1)
        terms = {
            "account_id": FIRST_USER + number,
            "fee_token_id": 0,
            "max_fee": 10**15,
            "nonce": number,
        }
        digest = protocol.account_update_digest(
            exchange="0x" + EXCHANGE.hex(), chain_id=CHAIN_ID, owner=signer.address, x=x, y=y,
            valid_until=VALID_UNTIL, **terms,
        )  # fmt: skip
        signature = bytes(signer.unsafe_sign_hash(digest).signature) + bytes(
            [protocol.KIND_EIP712]
        )
        fields = {"owner": int(signer.address, 16), "account": FIRST_USER + number, "fee": 1_000,
                  "public_key": protocol.pack_public_key(x, y), "nonce": number}  # fmt: skip
        plain = slot("account_update", **fields)
        slots.append(plain[:1] + b"\1" + plain[2:])
        consents.append(consent(signature, 10**15, VALID_UNTIL))
    return _bytes(slots), _bytes(consents)


def consent(signature: bytes, max_fee: int, valid_until: int) -> bytes:
    """Encode the auxiliary bytes of a key update: a struct, as the contract decodes it."""
    return b"".join(
        [word(32), word(96), word(max_fee), word(valid_until), text_of(signature)]
    )


def _auxiliary(width: int) -> tuple[np.ndarray, list[int]]:
    """Return the auxiliary data of every block, and where the bytes of its key updates stand."""
    places = np.sort(np.concatenate([PLACES[kind] for kind in CONDITIONAL])).tolist()
    updates = set(PLACES["account_update"].tolist())
    items = []
    starts = []
    size = 0
    for place in places:
        items.append(
            word(place)
            + word(0)
            + word(96)
            + text_of(bytes(width if place in updates else 0))
        )
        starts.append(size)
        size += len(items[-1])
    heads = 32 * len(items)
    content = b"".join(
        [word(32), word(len(items)), *(word(heads + start) for start in starts), *items]
    )
    base = 3 * 32 + heads + 4 * 32
    holes = [
        base + start
        for start, place in zip(starts, places, strict=True)
        if place in updates
    ]
    return np.frombuffer(text_of(content), np.uint8), holes


def _header(number: int) -> bytes:
    conditional = sum(LAYOUT[kind] for kind in CONDITIONAL)
    pieces = [
        EXCHANGE,
        _root(number - 1),
        _root(number),
        (START + SECONDS * number).to_bytes(4),
        bytes(2),
    ]
    return b"".join([*pieces, conditional.to_bytes(4), FIRST_USER.to_bytes(4)])


def _root(number: int) -> bytes:
    return b"\0" + hashlib.sha256(b"root %d" % number).digest()[1:]


def _hash(number: int) -> str:
    return "0x" + hashlib.sha256(b"transaction %d" % number).hexdigest()


def _bytes(rows: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
