"""Trades and accounts from the exchange's rollup blocks, as settled on Ethereum."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from loopring_lab.errors import BlockError, LabError
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.calldata import MAX_CALL, RawBlock, read

if TYPE_CHECKING:
    from loopring_lab.rollup.checks import Check
    from loopring_lab.rollup.store import Store

__all__ = ["Blocks", "Check", "Store", "decode", "decode_data"]
_ELSEWHERE = {"Check": "checks", "Store": "store"}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, where its module takes a while to load."""
    if name in _ELSEWHERE:
        return getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def decode(calldata: bytes | str, *, first_block: int | None = None) -> Blocks:
    """Read the blocks of a transaction's calldata."""
    return _numbered(read(_as_bytes(calldata, "calldata")), first_block)


def decode_data(block_data: bytes | str | Iterable[bytes | str], *, first_block: int | None = None) -> Blocks:
    """Read block data."""
    several = (
        [block_data] if isinstance(block_data, (bytes, bytearray, memoryview, str)) else list(block_data)
    )
    raw = [RawBlock(_as_bytes(one, f"block_data[{place}]")) for place, one in enumerate(several)]
    return _numbered(raw, first_block)


def _numbered(raw: list[RawBlock], first_block: int | None) -> Blocks:
    if first_block is None:
        return Blocks(raw)
    if type(first_block) is not int or not 0 <= first_block < 1 << 32:
        raise LabError(f"first_block: expected the number of a block, got {first_block!r}. Give an integer.")
    return Blocks([one._replace(block_id=first_block + place) for place, one in enumerate(raw)])


def _as_bytes(given: Any, where: str) -> bytes:
    if isinstance(given, (bytes, bytearray, memoryview)) and bytes(given[:2]) not in (b"0x", b"0X"):
        return bytes(given)
    if not isinstance(given, (bytes, bytearray, str)):
        raise LabError(f"{where}: expected bytes or hex text, got {type(given).__name__}. Give calldata.")
    text = given.strip() if isinstance(given, str) else bytes(given).decode("ascii", "replace").strip()
    if len(text) > 2 * MAX_CALL + 2:
        raise BlockError(f"{where}: more than {MAX_CALL >> 20} MiB. Give one transaction's input.")
    try:
        return bytes.fromhex(text.removeprefix("0x").removeprefix("0X"))
    except ValueError as error:
        raise BlockError(f"{where}: not hex text, {error}. Give bytes, or hex with or without 0x.") from None
