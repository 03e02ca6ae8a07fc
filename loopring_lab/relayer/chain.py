"""The embedded chain: shipped blocks of the synthetic world, over JSON-RPC 2.0 as an Ethereum endpoint answers it.

The blocks are data in the folder ``demo``, which ``tests/tools/demo_blocks.py`` makes: the events and the
transactions of the world's first month, a JSON object a line, as an endpoint would have answered them.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from loopring_lab.bounded import parse_json, printable, to_json, whole_or_text
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer.settings import Settings

BLOCKS = Path(__file__).with_name("demo") / "blocks.jsonl.gz"

MAX_BYTES = 1 << 20
CONFIRMED = 96  # L1 blocks after the last submission; clients leave out the newest 64
SMALL_RANGE = 1_000
"""A question over at most so many L1 blocks gets every log, whatever is left out of larger ones."""

# Functions of ERC-20 contracts: the first four bytes of the hash of their signature.
SYMBOL = "0x95d89b41"
DECIMALS = "0x313ce567"

# Error codes: the first four of the JSON-RPC 2.0 specification, the others as Ethereum nodes use them.
PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_METHOD = -32601
INVALID_PARAMS = -32602
REFUSED = -32000
LIMIT = -32005
REVERTED = 3

QUANTITY = re.compile("0x(0|[1-9a-fA-F][0-9a-fA-F]{0,15})")
HASH = re.compile("0x[0-9a-fA-F]{64}")
ADDRESS = re.compile("0x[0-9a-fA-F]{40}")

Record = dict[str, Any]


class Chain:
    """Events of one exchange, and the transactions that they name, as an Ethereum endpoint answers them."""

    def __init__(self, logs: list[Record], transactions: Iterable[Record]) -> None:
        """Take events in order, and transactions."""
        self._logs = logs
        self._l1_blocks = [int(log["blockNumber"], 16) for log in logs]
        self._transactions = {transaction["hash"]: transaction for transaction in transactions}
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
    logs = []
    transactions = []
    with gzip.open(BLOCKS) as file:
        for line in file:
            record = json.loads(line)
            if "topics" in record:
                logs.append(record)
            else:
                transactions.append(record)
    return Chain(logs, transactions)


class RpcProblem(Exception):
    """A request that is answered with an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class Endpoint:
    """Answers JSON-RPC about a source's chain; a source without one refuses."""

    def __init__(self, source: Any, settings: Settings) -> None:
        self._source = source
        self._settings = settings
        # Requests of all connections are answered in threads, and some chains are computed on the way.
        self._lock = threading.Lock()

    def answer(self, body: bytes) -> str:
        """Answer the body of a request; nothing is said to notifications."""
        try:
            asked = parse_json(body, "body", size=MAX_BYTES, number=whole_or_text)
        except UnexpectedAnswer:
            return _error(None, PARSE_ERROR, f"parse error: expected JSON of at most {MAX_BYTES} bytes")
        with self._lock:
            if not isinstance(asked, list):
                return self._answer_one(asked)
            problem = self._batch_problem(len(asked))
            if problem:
                return _error(None, INVALID_REQUEST, f"invalid request: {problem}")
            answers = [self._answer_one(one) for one in asked]
        spoken = [answer for answer in answers if answer]
        return f"[{','.join(spoken)}]" if spoken else ""

    def _batch_problem(self, count: int) -> str:
        most = self._settings.rpc_batch
        if count == 0:
            return "the batch is empty"
        if most == 0:
            return "batches are not supported"
        return f"batches may have at most {most} requests" if count > most else ""

    def _answer_one(self, asked: Any) -> str:
        """Return the answer to one request, which is empty for a notification."""
        asked = asked if isinstance(asked, dict) else {}
        call_id = asked.get("id")
        has_valid_id = not isinstance(call_id, bool | float | list | dict)
        if not has_valid_id:
            call_id = None
        try:
            if not has_valid_id:
                raise RpcProblem(INVALID_REQUEST, "invalid request: id must be text, a number or null")
            result = self._result(asked)
        except RpcProblem as problem:
            return _error(call_id, problem.code, str(problem))
        return _answer(call_id, "result", result) if "id" in asked else ""

    def _result(self, asked: Record) -> Any:
        name = asked.get("method")
        params = asked.get("params", [])
        if asked.get("jsonrpc") != "2.0" or not isinstance(name, str):
            raise RpcProblem(INVALID_REQUEST, 'invalid request: expected "jsonrpc": "2.0" and a method')
        chain: Chain | None = getattr(self._source, "chain", None)
        # The blocks name their exchange, so another exchange has none.
        if chain is None or chain.exchange != self._settings.exchange.lower():
            problem = f"{printable(self._source.label)} has no chain: serve the default world and exchange instead"
            raise RpcProblem(REFUSED, problem)
        if not isinstance(params, list):
            raise _invalid("expected a list")
        first = params[0] if params else None
        match name:
            case "eth_chainId":
                return hex(self._settings.chain_id)
            case "net_version":
                return str(self._settings.chain_id)
            case "eth_blockNumber":
                return hex(chain.newest + CONFIRMED)
            case "eth_getLogs":
                return self._find_logs(chain, first)
            case "eth_getTransactionByHash":
                return self._find_transaction(chain, first)
            case "eth_call":
                return self._call_contract(first)
        raise RpcProblem(NO_METHOD, f"the method {printable(name, 40)} does not exist or is not available")

    def _find_logs(self, chain: Chain, query: Any) -> list[Record]:
        if not isinstance(query, dict):
            raise _invalid("the filter of eth_getLogs must be an object")
        if "blockHash" in query:
            raise _invalid("blockHash is not supported here: give fromBlock and toBlock")
        newest = chain.newest + CONFIRMED
        first = _block_number(query.get("fromBlock", "latest"), "fromBlock", newest)
        last = _block_number(query.get("toBlock", "latest"), "toBlock", newest)
        if first > last:
            raise _invalid("fromBlock must not be after toBlock")
        addresses = _options(query.get("address"), ADDRESS, "address must be an address, or a list of them")
        topics = _topics(query.get("topics"))
        count = last - first + 1
        most_blocks = self._settings.rpc_log_blocks
        if most_blocks is not None and count > most_blocks:
            raise RpcProblem(LIMIT, f"eth_getLogs is limited to a range of {most_blocks} blocks")
        if addresses is not None and chain.exchange not in addresses:
            return []
        logs = [log for log in chain.logs(first, last) if _matches(log, topics)]
        most_logs = self._settings.rpc_log_results
        if most_logs is not None and len(logs) > most_logs:
            raise RpcProblem(LIMIT, f"query returned more than {most_logs} results")
        if count <= SMALL_RANGE or not self._settings.rpc_omitted_logs:
            return logs
        return [log for log in logs if self._draw(f"log {log['topics']}") >= self._settings.rpc_omitted_logs]

    def _find_transaction(self, chain: Chain, asked: Any) -> Record | None:
        if not isinstance(asked, str) or not HASH.fullmatch(asked):
            raise _invalid("expected the hash of a transaction: 0x and 64 hex digits")
        if self._draw(f"body {asked.lower()}") < self._settings.rpc_missing_bodies:
            return None
        return chain.transaction(asked.lower())

    def _draw(self, what: str) -> float:
        """Draw what decides on a fault: a number below 1 from the seed of the settings."""
        digest = sha256(f"{self._settings.fault_seed} {what}".encode()).digest()
        return int.from_bytes(digest[:6]) / 2**48

    def _call_contract(self, asked: Any) -> str:
        """Answer symbol() and decimals() of a token, and of any other contract nothing."""
        asked = asked if isinstance(asked, dict) else {}
        address = asked.get("to")
        data = asked.get("input", asked.get("data"))
        if not isinstance(address, str) or not ADDRESS.fullmatch(address) or not isinstance(data, str):
            raise _invalid("eth_call needs an object with to, an address, and data")
        for token in self._source.tokens():
            if token["address"].lower() == address.lower() and int(address, 16):
                return _token_answer(token, data.lower())
        return "0x"


def _token_answer(token: Record, data: str) -> str:
    """Return the symbol of a token as an ABI string, or its decimals as a word."""
    if data == DECIMALS:
        return f"0x{token['decimals']:064x}"
    if data != SYMBOL:
        raise RpcProblem(REVERTED, "execution reverted")
    text: bytes = token["symbol"].encode()
    words = -(-len(text) // 32)
    # An ABI string: where it begins, its length, and its bytes filled up to whole words.
    return f"0x{32:064x}{len(text):064x}{text.hex():0<{64 * words}}"


def _block_number(value: Any, name: str, newest: int) -> int:
    if value in ("latest", "safe", "finalized", "pending"):
        return newest
    if value == "earliest":
        return 0
    if not isinstance(value, str) or not QUANTITY.fullmatch(value):
        raise _invalid(f"{name} must be a block number in hex, such as 0xaa2236, or a tag such as latest")
    return int(value, 16)


def _topics(listed: Any) -> list[set[str] | None]:
    """Return what each topic of an event may be; None for anything."""
    if listed is None:
        return []
    places = listed if isinstance(listed, list) else [listed]
    problem = "topics must be a list of topics, lists of them, or null"
    # An empty list of alternatives accepts anything, as null does.
    return [_options(place, HASH, problem) or None for place in places]


def _options(value: Any, pattern: re.Pattern[str], problem: str) -> set[str] | None:
    """Return what a filter accepts, which gives one hex text or a list of them; None accepts any."""
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    for one in listed:
        if not isinstance(one, str) or not pattern.fullmatch(one):
            raise _invalid(problem)
    return {one.lower() for one in listed}


def _matches(log: Record, topics: list[set[str] | None]) -> bool:
    if len(topics) > len(log["topics"]):
        return False
    pairs = zip(log["topics"], topics, strict=False)
    return all(accepted is None or topic in accepted for topic, accepted in pairs)


def _invalid(problem: str) -> RpcProblem:
    return RpcProblem(INVALID_PARAMS, f"invalid params: {problem}")


def _error(call_id: Any, code: int, message: str) -> str:
    return _answer(call_id, "error", {"code": code, "message": message})


def _answer(call_id: Any, member: str, value: Any) -> str:
    """Write an answer; the id is repeated as it was sent."""
    return f'{{"jsonrpc":"2.0","id":{to_json(call_id)},"{member}":{json.dumps(value)}}}'
