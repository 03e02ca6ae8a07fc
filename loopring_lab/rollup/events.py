"""What the exchange's contract and token contracts tell: submitted blocks, tokens, symbols, decimals."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from loopring_lab.amounts.scaling import MAX_DECIMALS
from loopring_lab.bounded import printable, shown
from loopring_lab.errors import RpcError
from loopring_lab.rollup.rpc import number, octets

SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
REGISTERED = "0x678eb1f52e3e76c52c1143d5699af1d8a5e03743e8840223ccb27aabf3c44c0a"
SYMBOL, DECIMALS = "0x95d89b41", "0x313ce567"

LONGEST_SYMBOL = 40
_ETHER = {"tokenId": 0, "symbol": "ETH", "name": "Ethereum", "address": "0x" + 40 * "0", "decimals": 18}


class Submission(NamedTuple):
    """An event of the exchange: a block was submitted."""

    block_id: int
    merkle_root: bytes
    public_data_hash: bytes
    l1_block: int
    transaction_hash: str
    log_index: int


EVENTS = pa.schema(
    {
        "block_id": pa.int64(),
        "merkle_root": pa.binary(32),
        "public_data_hash": pa.binary(32),
        "l1_block": pa.int64(),
        "transaction_hash": pa.string(),
        "log_index": pa.int64(),
    }
)


class Span(NamedTuple):
    """L1 blocks from the first to the last."""

    first: int
    last: int


def read_log(log: Any, where: str, exchange: str, span: Span) -> Submission | tuple[int, str] | None:
    """Return the submission, or the id and address of the token, in a log; None if the log was undone."""
    if not isinstance(log, dict) or not isinstance(log.get("topics"), list) or not log["topics"]:
        raise RpcError(f"{where}: expected a log, got {shown(log)}. Use another endpoint.")
    if log.get("removed") is True:
        return None
    kind, data = log["topics"][0], octets(log.get("data"), f"{where}, data", 64)
    l1_block = number(log.get("blockNumber"), f"{where}, blockNumber")
    if str(log.get("address")).lower() != exchange or not span.first <= l1_block <= span.last:
        got = f"one of {printable(str(log.get('address')))} in L1 block {l1_block:,}"
        raise RpcError(
            f"{where}: expected logs of {exchange} in that range, got {got}. Use another endpoint."
        )
    if kind == REGISTERED:
        return int.from_bytes(data[32:], "big"), f"0x{data[12:32].hex()}"
    if kind != SUBMITTED or len(log["topics"]) != 2:
        raise RpcError(f"{where}: expected events of blocks, got {shown(kind)}. Use another endpoint.")
    return Submission(
        number(log["topics"][1], f"{where}, blockIdx"),
        data[:32],
        data[32:],
        l1_block,
        f"0x{octets(log.get('transactionHash'), f'{where}, transactionHash', 32).hex()}",
        number(log.get("logIndex"), f"{where}, logIndex"),
    )


def token_record(token_id: int, address: str, answers: list[Any] | None) -> dict[str, Any] | None:
    """Return the record of a token, or None if its decimals are not known."""
    if answers is None:
        return _ETHER | {"tokenId": token_id}
    symbol, decimals = (_call_result(answer) for answer in answers)
    places = int.from_bytes(decimals, "big") if len(decimals) == 32 else MAX_DECIMALS + 1
    if places > MAX_DECIMALS:
        return None
    name = _text(symbol) or f"token#{token_id}"
    return {"tokenId": token_id, "symbol": name, "address": address, "decimals": places}


def _call_result(answer: Any) -> bytes:
    """Return what a contract answers, nothing if it does not know the question."""
    if isinstance(answer, RpcError):
        if type(answer) is not RpcError:
            raise answer
        return b""
    return octets(answer, "eth_call")


def _text(answer: bytes) -> str | None:
    """Read text as contracts give it: a string of the ABI, or 32 bytes."""
    if len(answer) > 64 and int.from_bytes(answer[:32], "big") == 32:
        length = int.from_bytes(answer[32:64], "big")
        content = answer[64 : 64 + length] if length <= len(answer) - 64 else b""
    else:
        content = answer.rstrip(b"\0") if len(answer) == 32 else b""
    text = content.decode(errors="replace").strip()
    usable = text and len(text) <= LONGEST_SYMBOL and text.isprintable() and "\ufffd" not in text
    return text if usable else None
