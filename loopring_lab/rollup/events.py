"""What the exchange's contract and token contracts tell: submitted blocks, tokens, symbols, decimals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from loopring_lab.amounts.scaling import MAX_DECIMALS
from loopring_lab.errors import RpcError
from loopring_lab.rollup.block_file import Submission
from loopring_lab.rollup.calldata import LAST_BLOCK, WORD, to_hex
from loopring_lab.rollup.rpc import number, octets, unexpected, yes_or_no

# BlockSubmitted(uint256 indexed blockIdx, bytes32 merkleRoot, bytes32 publicDataHash)
SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
# TokenRegistered(address token, uint16 tokenId)
REGISTERED = "0x678eb1f52e3e76c52c1143d5699af1d8a5e03743e8840223ccb27aabf3c44c0a"
# The topics of each event: its own hash, and what is indexed. Both have two words of data.
TOPICS = {SUBMITTED: 2, REGISTERED: 1}
SYMBOL = "0x95d89b41"  # symbol() of ERC-20
DECIMALS = "0x313ce567"  # decimals() of ERC-20

# A contract may answer anything; the longest symbol of a registered token has 18 letters.
LONGEST_SYMBOL = 40
# Token 0 of every exchange has no contract.
ETHER = {
    "tokenId": 0,
    "symbol": "ETH",
    "name": "Ethereum",
    "address": "0x" + 40 * "0",
    "decimals": 18,
}
# The exchange of a chain: on Ethereum, and on the embedded chain.
EXCHANGES = {
    1: "0x0BABA1Ad5bE3a5C0a66E7ac838a129Bf948f1eA4",
    31337: "0x8ACBCa8D25527B479Fd4E5Ffd79732878417702c",
}


class Log(NamedTuple):
    """An event: a submission, the id and address of a token, or None if it is of another kind."""

    address: str
    l1_block: int
    event: Submission | tuple[int, str] | None


def read_log(log: Any, where: str) -> Log | None:
    """Read an event of a contract; None if it was undone."""

    def number_of(name: str) -> int:
        return number(log.get(name), f"{where}, {name}")

    def octets_of(name: str, size: int) -> bytes:
        return octets(log.get(name), f"{where}, {name}", size)

    if not isinstance(log, dict) or not isinstance(log.get("topics"), list):
        raise unexpected(where, "a log", log)
    if yes_or_no(log.get("removed") or False, f"{where}, removed"):
        return None
    # Explorers fill topics up with null, and write an index of 0 as 0x.
    topics = [
        octets(topic, f"{where}, topics", WORD)
        for topic in log["topics"]
        if topic is not None
    ]
    address = to_hex(octets_of("address", 20))
    l1_block = number_of("blockNumber")
    kind = to_hex(topics[0]) if topics else ""
    if kind not in TOPICS:
        return Log(address, l1_block, None)
    if len(topics) != TOPICS[kind]:
        raise unexpected(f"{where}, topics", f"{TOPICS[kind]} topics", log["topics"])
    data = octets_of("data", 2 * WORD)
    first_word = data[:WORD]
    second_word = data[WORD:]
    if kind == REGISTERED:
        token_id = number(int.from_bytes(second_word), f"{where}, tokenId")
        contract = to_hex(first_word[-20:])
        return Log(address, l1_block, (token_id, contract))
    block_id = number(int.from_bytes(topics[1]), f"{where}, blockIdx", LAST_BLOCK)
    is_first = log.get("logIndex") == "0x"
    submission = Submission(
        block_id=block_id,
        merkle_root=first_word,
        public_data_hash=second_word,
        l1_block=l1_block,
        transaction_hash=to_hex(octets_of("transactionHash", WORD)),
        log_index=0 if is_first else number_of("logIndex"),
    )
    return Log(address, l1_block, submission)


def token_record(
    token_id: int, address: str, answers: Sequence[Any] | None
) -> dict[str, Any] | None:
    """Return the record of a token, as the relayer would list it, or None if its decimals are not known."""
    if answers is None:
        return ETHER | {"tokenId": token_id}
    symbol, decimals = (_call_result(answer) for answer in answers)
    places = int.from_bytes(decimals)
    if len(decimals) != WORD or places > MAX_DECIMALS:
        return None
    name = _text(symbol) or unnamed(token_id)
    return {
        "tokenId": token_id,
        "symbol": name,
        "address": address,
        "decimals": places,
    }


def unnamed(token_id: int) -> str:
    """Return what a token without a readable symbol is called."""
    return f"token#{token_id}"


def _call_result(answer: Any) -> bytes:
    """Return what a contract answers, nothing if it does not know the question."""
    if isinstance(answer, RpcError):
        if type(answer) is not RpcError:
            raise answer
        return b""
    return octets(answer, "eth_call")


def _text(answer: bytes) -> str | None:
    """Read text as contracts give it: a string of the ABI, or 32 bytes, as tokens from before 2018 have it."""
    content = b""
    if len(answer) == WORD:
        content = answer.rstrip(b"\0")
    elif len(answer) > 2 * WORD and int.from_bytes(answer[:WORD]) == WORD:
        length = int.from_bytes(answer[WORD : 2 * WORD])
        text = answer[2 * WORD :]
        if length <= len(text):
            content = text[:length]
    symbol = content.decode(errors="replace").strip()
    # The character that stands in place of bytes which are no text.
    is_readable = symbol.isprintable() and "\ufffd" not in symbol
    return symbol if symbol and is_readable and len(symbol) <= LONGEST_SYMBOL else None
