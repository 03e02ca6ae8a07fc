"""Block stores for tests: made blocks whose roots follow each other, and writers that are killed."""

import hashlib
from pathlib import Path

from support.rollup_blocks import (
    EXCHANGE,
    block_data,
    slot,
    submit,
    varied_data,
    wrapped,
)

from loopring_lab.origin import Source
from loopring_lab.rollup import Store
from loopring_lab.rollup.block_file import Submission
from loopring_lab.rollup.calldata import RawBlock

ADDRESS = f"0x{EXCHANGE.hex()}"
SOURCE = Source(f"exchange {ADDRESS} on chain 1", False, ADDRESS, 1)
START = 1_600_000_000


def root(number: int) -> bytes:
    """Return the state root after a block."""
    return hashlib.sha256(b"root %d" % number).digest()


def made_data(number: int, size: int = 16) -> bytes:
    """Return the data of a block of all types of transactions, whose roots are those of its number."""
    return varied_data(
        number,
        size,
        before=root(number - 1),
        after=root(number),
        timestamp=START + 60 * number,
    )


def pool_data(number: int, pools: list[int]) -> bytes:
    """Return the data of a block in which amm updates name pools."""
    updates = [slot("amm_update", account=pool, token=1, balance=7) for pool in pools]
    return block_data(
        updates,
        before=root(number - 1),
        after=root(number),
        timestamp=START + 60 * number,
    )


def made_block(number: int, **known) -> RawBlock:
    """Return a block as a call submitted it."""
    data = made_data(number)
    facts = {
        "block_id": number,
        "l1_block": 11_000_000 + number,
        "transaction_hash": f"0x{number:064x}",
    }
    return RawBlock(
        data, 0, 16, 17, b"auxiliary %d" % number, "53228430", **(facts | known)
    )


def made_call(*numbers: int, compress: bool = True) -> bytes:
    """Return the calldata of a transaction that submits blocks."""
    return wrapped(submit([made_data(number) for number in numbers]), compress=compress)


def event(number: int, data: bytes | None = None, **known) -> Submission:
    """Return the event of a block."""
    digest = hashlib.sha256(made_data(number) if data is None else data).digest()
    facts = {
        "block_id": number,
        "merkle_root": root(number),
        "public_data_hash": digest,
        "log_index": 3,
        "l1_block": 11_000_000 + number,
        "transaction_hash": f"0x{number:064x}",
    }
    return Submission(**(facts | known))


def opened(path: Path) -> Store:
    """Return a store that is bound to the exchange of made blocks."""
    store = Store(path)
    store.file.bind(SOURCE)
    return store


def numbers_of(store: Store) -> list[int | None]:
    return [raw.block_id for raw in store.blocks().raw]
