"""Trades, accounts and balances from the exchange's rollup blocks, as settled on Ethereum.

To begin with: `decode` reads the calldata of a transaction, and a `Store` keeps blocks, from files or an endpoint.
Bytes: `calldata` (what wraps blocks), `slots` (the format of a transaction), `auxiliary` (signatures beside them).
Frames: `blocks` (a frame for each type), `settled` (trades, both sides), `balances`, `ledger` (an account's, as CSV),
`block_frames` (what all share).
Kept: `store`, `block_file` (one DuckDB file), `importing` (files), `fetching`, `rpc`, `events` (Ethereum), `checks`.
`sources.blocks` answers as a client of a relayer does. Amounts are exact integers, and both sides of every fill are
there, of all accounts. What a block does not say: when within it a transaction happened (only the order), limit
prices, order hashes, orders that were not filled.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loopring_lab.errors import BlockError, LabError
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.calldata import MAX_CALL, RawBlock, check_number, read
from loopring_lab.rollup.checks import Check
from loopring_lab.rollup.store import Store

__all__ = [
    "Blocks",
    "Check",
    "Store",
    "decode",
    "decode_data",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def decode(calldata: bytes | str, *, first_block: int | None = None) -> Blocks:
    """Read the blocks that a transaction submitted, from its calldata.

    Parameters
    ----------
    calldata : bytes or str
        The transaction's ``input``, as bytes or as text in hex: a call of ``submitBlocks`` in any of its
        forms, or of a contract that wraps it, compressed or not. At most 16 MiB, as sent and expanded.
    first_block : int, optional
        Number of the first of these blocks on the exchange, which calldata does not say; without it
        ``block_id`` is null.

    Returns
    -------
    Blocks
        All of its blocks, in order.

    Raises
    ------
    BlockError
        It cannot be read; the message names the place.
    LabError
        `calldata` is neither bytes nor text, or `first_block` is not the number of a block.

    Examples
    --------
    >>> word = lambda number: number.to_bytes(32)
    >>> members = [0, 1, 17, 480, *8 * [1], 0, 672, 704]  # type, size, version, offsets, a made-up proof
    >>> block = b"".join(map(word, members)) + word(98 + 68) + bytes(192 - 32) + word(0) + word(0)
    >>> call = bytes.fromhex("53228430") + word(32) + word(1) + word(32) + block
    >>> blocks = lab.rollup.decode(call, first_block=20_000)
    >>> blocks.headers()[["block_id", "size", "block_version"]].iloc[0].tolist()
    [20000, 1, 17]
    """
    return _numbered(read(_as_bytes(calldata, "calldata")), first_block)


def decode_data(
    block_data: bytes | str | Iterable[bytes | str],
    *,
    first_block: int | None = None,
) -> Blocks:
    """Read the data of one block, or of several: what the exchange hashes, without a call around it.

    Parameters
    ----------
    block_data : bytes, str, or iterable of these
        Header and slots, 98 + 68 x size bytes, as bytes or as text in hex.
    first_block : int, optional
        Number of the first block on the exchange; the others follow.

    Returns
    -------
    Blocks
        The blocks in the order given.

    Raises
    ------
    BlockError
        It cannot be read; the message names the place.
    LabError
        `block_data` is neither bytes nor text, or `first_block` is not the number of a block.

    Examples
    --------
    >>> lab.rollup.decode_data(bytes(98 + 68)).table("noop").num_rows
    1
    """
    if isinstance(block_data, (bytes, str)) or not isinstance(block_data, Iterable):
        return _numbered([RawBlock(_as_bytes(block_data, "block_data"))], first_block)
    several = [
        _as_bytes(one, f"block_data[{place}]") for place, one in enumerate(block_data)
    ]
    return _numbered(list(map(RawBlock, several)), first_block)


def _numbered(raw: list[RawBlock], first_block: int | None) -> Blocks:
    check_number("first_block", first_block)
    if first_block is None:
        return Blocks(raw)
    return Blocks(
        [one._replace(block_id=number) for number, one in enumerate(raw, first_block)]
    )


def _as_bytes(given: Any, where: str) -> bytes:
    """Return bytes as they are, and text in hex as the bytes it stands for."""
    if not isinstance(given, (bytes, str)):
        raise LabError(
            f"{where}: expected bytes or text in hex, got {type(given).__name__}. Give the calldata."
        )
    if len(given) > 2 * MAX_CALL + 4:  # in hex, with 0x and white space
        raise BlockError(
            f"{where}: more than {MAX_CALL >> 20} MiB. Give the input of one transaction."
        )
    if isinstance(given, bytes):
        return given
    try:
        return bytes.fromhex(given.strip().removeprefix("0x"))
    except ValueError as error:
        raise BlockError(
            f"{where}: not whole bytes in hex ({error}). Give hex text, or bytes."
        ) from None
