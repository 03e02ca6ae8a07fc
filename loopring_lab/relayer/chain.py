"""The embedded chain: shipped blocks of the synthetic world, over JSON-RPC 2.0 as an Ethereum endpoint answers it.

The blocks are data in the folder ``demo``, which ``tests/tools/demo_blocks.py`` makes: the events and the
transactions of the world's first month, a JSON object a line, as an endpoint would have answered them.
"""

from __future__ import annotations

import gzip
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopring_lab.bounded import parse_json, whole_or_text
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer.settings import Settings

if TYPE_CHECKING:
    from loopring_lab.relayer.world import World

BLOCKS = Path(__file__).with_name("demo") / "blocks.jsonl.gz"

MAX_BYTES = 1 << 20  # of a request: a batch of 100 calls has 20,000
CONFIRMED = 96  # L1 blocks after the last submission; clients leave out the newest 64
MOST_IN_BATCH = 100  # as many as public Ethereum endpoints answer

# Functions of ERC-20 contracts: the first four bytes of the hash of their signature.
SYMBOL = "0x95d89b41"
DECIMALS = "0x313ce567"

# Error codes: the first four of the JSON-RPC 2.0 specification, the others as Ethereum nodes use them.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_METHOD = -32601
INVALID_PARAMS = -32602
REFUSED = -32000
REVERTED = 3

# Numbers of the JSON-RPC interface of Ethereum: hex without leading zeros, here of at most 64 bits.
QUANTITY = re.compile("0x(0|[1-9a-fA-F][0-9a-fA-F]{0,15})")
# Nothing here can be reorganised, so that all of these are the newest block.
TAGS = ("latest", "safe", "finalized", "pending")

Record = dict[str, Any]


class Chain:
    """Events of one exchange, and the transactions that they name, as an Ethereum endpoint answers them."""

    def __init__(self, logs: list[Record], transactions: Iterable[Record]) -> None:
        """Take events in order, and transactions."""
        self._logs = logs
        self._l1_blocks = [int(log["blockNumber"], 16) for log in logs]
        self._transactions = {
            transaction["hash"]: transaction for transaction in transactions
        }
        self.exchange = str(logs[0]["address"])

    @property
    def newest(self) -> int:
        """The newest L1 block with an event."""
        return self._l1_blocks[-1]

    def logs(self, first: int, last: int) -> list[Record]:
        """Return the events of a range of L1 blocks, in order."""
        begin = bisect_left(self._l1_blocks, first)
        end = bisect_right(self._l1_blocks, last)
        return self._logs[begin:end]

    def transaction(self, transaction_hash: str) -> Record | None:
        """Return a transaction that submits blocks, if there is one of this hash."""
        return self._transactions.get(transaction_hash)


@cache
def shipped_chain() -> Chain:
    """Read the blocks that the package brings."""
    with gzip.open(BLOCKS) as file:
        records = [json.loads(line) for line in file]
    logs = [record for record in records if "topics" in record]
    transactions = [record for record in records if "input" in record]
    return Chain(logs, transactions)


class RpcProblem(Exception):
    """A request that is answered with an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class Endpoint:
    """Answers JSON-RPC about a source's chain; a source without one refuses."""

    def __init__(self, source: World, settings: Settings) -> None:
        self._source = source
        self._settings = settings

    def answer(self, body: bytes) -> Record | list[Record]:
        """Answer the body of a request, of one call or of several."""
        try:
            asked = parse_json(body, "body", size=MAX_BYTES, number=whole_or_text)
        except UnexpectedAnswer:
            problem = f"parse error: expected JSON of at most {MAX_BYTES} bytes"
            return _error(None, PARSE_ERROR, problem)
        if not isinstance(asked, list):
            return self._answer_one(asked)
        if not 0 < len(asked) <= MOST_IN_BATCH:
            problem = f"invalid request: batches may have 1 to {MOST_IN_BATCH} requests"
            return _error(None, INVALID_REQUEST, problem)
        return [self._answer_one(one) for one in asked]

    def _answer_one(self, asked: Any) -> Record:
        asked = asked if isinstance(asked, dict) else {}
        call_id = asked.get("id")
        try:
            return {"jsonrpc": "2.0", "id": call_id, "result": self._result(asked)}
        except RpcProblem as problem:
            return _error(call_id, problem.code, str(problem))

    def _result(self, asked: Record) -> Any:
        params = asked.get("params", [])
        if asked.get("jsonrpc") != "2.0" or not isinstance(params, list):
            raise RpcProblem(
                INVALID_REQUEST,
                'invalid request: expected "jsonrpc": "2.0" and a list params',
            )
        chain = self._source.chain
        # The blocks name their exchange, so another exchange has none.
        if chain is None or chain.exchange != self._settings.exchange.lower():
            problem = f"{self._source.name} has no chain: serve the default world and exchange instead"
            raise RpcProblem(REFUSED, problem)
        asked_for = params[0] if params else None
        match asked.get("method"):
            case "eth_chainId":
                return hex(self._settings.chain_id)
            case "eth_blockNumber":
                return hex(chain.newest + CONFIRMED)
            case "eth_getLogs":
                return self._find_logs(chain, _object(asked_for))
            case "eth_getTransactionByHash":
                return chain.transaction(str(asked_for).lower())
            case "eth_call":
                return self._call_contract(_object(asked_for))
        raise RpcProblem(NO_METHOD, "the method does not exist or is not available")

    def _find_logs(self, chain: Chain, query: Record) -> list[Record]:
        newest = chain.newest + CONFIRMED
        first = _block_number(query.get("fromBlock", "latest"), newest)
        last = _block_number(query.get("toBlock", "latest"), newest)
        if first > last:
            raise RpcProblem(
                INVALID_PARAMS,
                "invalid params: fromBlock must not be after toBlock",
            )
        addresses = _options(query.get("address"))
        filters = query.get("topics") or []
        if not isinstance(filters, list):
            raise RpcProblem(INVALID_PARAMS, "invalid params: expected a list topics")
        topics = [_options(topic) for topic in filters]
        if addresses and chain.exchange not in addresses:
            return []
        return [log for log in chain.logs(first, last) if _matches(log, topics)]

    def _call_contract(self, asked: Record) -> str:
        """Answer symbol() and decimals() of a token; other addresses have no contract, and answer nothing."""
        address = str(asked.get("to")).lower()
        data = asked.get("input", asked.get("data"))
        for token in self._source.tokens():
            # The native coin has no contract.
            if token["address"].lower() == address and token["type"] != "ETH":
                return _token_answer(token, data)
        return "0x"


def _token_answer(token: Record, data: Any) -> str:
    if data == DECIMALS:
        return f"0x{token['decimals']:064x}"
    if data != SYMBOL:
        raise RpcProblem(REVERTED, "execution reverted")
    text: bytes = token["symbol"].encode()
    # An ABI string: where it begins, its length, and its bytes filled up to whole words of 32.
    digits = 64 * -(-len(text) // 32)
    return f"0x{32:064x}{len(text):064x}{text.hex():0<{digits}}"


def _object(value: Any) -> Record:
    if not isinstance(value, dict):
        raise RpcProblem(INVALID_PARAMS, "invalid params: expected an object")
    return value


def _block_number(value: Any, newest: int) -> int:
    if value in TAGS:
        return newest
    if value == "earliest":
        return 0
    if not isinstance(value, str) or not QUANTITY.fullmatch(value):
        expected = "a block number in hex, such as 0xaa2236, or a tag such as latest"
        raise RpcProblem(INVALID_PARAMS, f"invalid params: expected {expected}")
    return int(value, 16)


def _options(value: Any) -> set[str]:
    """Return what a filter accepts, which gives one hex text or a list of them; nothing accepts anything."""
    listed = value if isinstance(value, list) else [value]
    return {str(one).lower() for one in listed if one is not None}


def _matches(log: Record, topics: list[set[str]]) -> bool:
    if len(topics) > len(log["topics"]):
        return False
    pairs = zip(log["topics"], topics, strict=False)
    return all(not accepted or topic in accepted for topic, accepted in pairs)


def _error(call_id: Any, code: int, message: str) -> Record:
    error = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": call_id, "error": error}
