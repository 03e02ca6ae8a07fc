"""What the exchange's contract and token contracts tell: submitted blocks, tokens, symbols, decimals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from loopring_lab.amounts.scaling import MAX_DECIMALS
from loopring_lab.bounded import MAX_INT64
from loopring_lab.errors import LabError, RpcError
from loopring_lab.rollup.rpc import number, octets, undocumented
from loopring_lab.rollup.stored import Submission

SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
REGISTERED = "0x678eb1f52e3e76c52c1143d5699af1d8a5e03743e8840223ccb27aabf3c44c0a"
_TOPICS = {SUBMITTED: 2, REGISTERED: 1}
SYMBOL, DECIMALS = "0x95d89b41", "0x313ce567"

LONGEST_SYMBOL = 40
_ETHER = {"tokenId": 0, "symbol": "ETH", "name": "Ethereum", "address": "0x" + 40 * "0", "decimals": 18}


EXCHANGES = {
    1: "0x0BABA1Ad5bE3a5C0a66E7ac838a129Bf948f1eA4",
    31337: "0x8ACBCa8D25527B479Fd4E5Ffd79732878417702c",
}
"""The exchange of a chain: on Ethereum, and on the embedded chain."""


class Reader(NamedTuple):
    """How the values of a source are read: an endpoint's as documented, those of files more freely."""

    number: Callable[[object, str], int]
    octets: Callable[[object, str, int], bytes]
    unexpected: Callable[[str, str, object], LabError]


ENDPOINT = Reader(number, octets, undocumented)


class Log(NamedTuple):
    """An event: a submission, the id and address of a token, or None if it is of another kind."""

    address: str
    l1_block: int
    event: Submission | tuple[int, str] | None


def read_log(log: Any, where: str, reader: Reader) -> Log | None:
    """Read an event of a contract; None if it was undone."""
    if not isinstance(log, dict) or not isinstance(log.get("topics"), list):
        raise reader.unexpected(where, "a log", log)
    if log.get("removed") is True:
        return None
    topics = [reader.octets(topic, f"{where}, topics", 32) for topic in log["topics"]]
    address = f"0x{reader.octets(log.get('address'), f'{where}, address', 20).hex()}"
    l1_block = reader.number(log.get("blockNumber"), f"{where}, blockNumber")
    kind = f"0x{topics[0].hex()}" if topics else ""
    if kind not in _TOPICS:
        return Log(address, l1_block, None)
    if len(topics) != _TOPICS[kind]:
        raise reader.unexpected(f"{where}, topics", f"{_TOPICS[kind]} topics", log["topics"])
    data = reader.octets(log.get("data"), f"{where}, data", 64)
    if kind == REGISTERED:
        token_id = _small(data[32:], f"{where}, tokenId", reader)
        return Log(address, l1_block, (token_id, f"0x{data[12:32].hex()}"))
    submission = Submission(
        _small(topics[1], f"{where}, blockIdx", reader),
        data[:32],
        data[32:],
        l1_block,
        f"0x{reader.octets(log.get('transactionHash'), f'{where}, transactionHash', 32).hex()}",
        reader.number(log.get("logIndex"), f"{where}, logIndex"),
    )
    return Log(address, l1_block, submission)


def _small(word: bytes, where: str, reader: Reader) -> int:
    found = int.from_bytes(word)
    if found > MAX_INT64:
        raise reader.unexpected(where, "a small integer", f"0x{word.hex()}")
    return found


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
