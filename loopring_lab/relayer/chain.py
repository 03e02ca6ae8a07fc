"""The chain of the synthetic world, over JSON-RPC 2.0 as an Ethereum endpoint answers it."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from loopring_lab.bounded import parse_json, printable, to_json, whole_or_text
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer.encoding import AUXILIARY, NEWEST_FORM, NEWEST_WRAPPER, encode_calldata
from loopring_lab.relayer.history import ENCODER, Source
from loopring_lab.relayer.settings import Settings
from loopring_lab.relayer.settlement import Settlement
from loopring_lab.relayer.world import World

MAX_BYTES = 1 << 20
SUBMISSION = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
REGISTRATION = "0x678eb1f52e3e76c52c1143d5699af1d8a5e03743e8840223ccb27aabf3c44c0a"
SYMBOL, DECIMALS = "0x95d89b41", "0x313ce567"
FIRST_L1_BLOCK, L1_BLOCKS = 11_149_814, 150
"""The first L1 block with an event, where tokens are registered, and the L1 blocks of a half hour."""
CONFIRMED = 96
"""L1 blocks after the last submission."""
SMALL_RANGE = 1_000
"""A question over at most so many L1 blocks gets every log, whatever is left out of larger ones."""

WRAPPERS = ("ebc8c7ee", "78e9a4f3", "fbb404ab", "e0b687f8", "cafc5892", "503baf55", None)
"""What submitted blocks before `NEWEST_WRAPPER`; None is the exchange called directly."""
GROUPS = ((4,), (2, 2), (1, 2, 1), (3, 1), *4 * ((1, 1, 1, 1),))
"""How many of four blocks in a row are submitted together."""

PARSE_ERROR, INVALID_REQUEST, NO_METHOD, INVALID_PARAMS = -32700, -32600, -32601, -32602
REFUSED, LIMIT, REVERTED = -32000, -32005, 3

QUANTITY = re.compile("0x(0|[1-9a-fA-F][0-9a-fA-F]{0,15})")
HASH, ADDRESS = re.compile("0x[0-9a-fA-F]{64}"), re.compile("0x[0-9a-fA-F]{40}")


class RpcProblem(Exception):
    """A request that is answered with an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


class Call(NamedTuple):
    """A transaction that submits a block or a few in a row."""

    hash: str
    l1_block: int
    blocks: range


class Log(NamedTuple):
    """An event; the data of a submission follows from its block."""

    topics: tuple[str, ...]
    l1_block: int
    transaction: str
    place: int
    block: int = 0
    data: str = ""


class Endpoint:
    """Answers JSON-RPC for the chain of a world; other sources have none."""

    def __init__(self, source: Source, settings: Settings) -> None:
        self._label, self._most = source.label, settings.rpc_batch
        self._methods: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] | None = None
        self._lock = threading.Lock()
        if isinstance(source, World):
            self._methods = Chain(source, settings).methods

    def answer(self, body: bytes) -> str:
        """Answer the body of a request; nothing is said to notifications."""
        try:
            asked = parse_json(body, "body", size=MAX_BYTES, number=whole_or_text)
        except UnexpectedAnswer:
            return _error(None, PARSE_ERROR, f"parse error: expected JSON of at most {MAX_BYTES} bytes")
        with self._lock:
            if not isinstance(asked, list):
                return self._answer_one(asked)
            if problem := self._batch_problem(len(asked)):
                return problem
            answers = list(filter(None, map(self._answer_one, asked)))
        return f"[{','.join(answers)}]" if answers else ""

    def _batch_problem(self, count: int) -> str:
        if 0 < count <= self._most:
            return ""
        problem = f"batches may have at most {self._most} requests" if self._most else "batches are not supported"
        problem = problem if count else "the batch is empty"
        return _error(None, INVALID_REQUEST, f"invalid request: {problem}")

    def _answer_one(self, asked: Any) -> str:
        """Return the answer to one request, which is empty for a notification."""
        call_id = asked.get("id") if isinstance(asked, dict) else None
        if isinstance(call_id, bool | float | list | dict):
            call_id = None
        try:
            result = self._result(asked)
        except RpcProblem as problem:
            return _error(call_id, problem.code, str(problem))
        return _answer(call_id, "result", result) if "id" in asked else ""

    def _result(self, asked: Any) -> Any:
        asked = asked if isinstance(asked, dict) else {}
        name, params = asked.get("method"), asked.get("params", [])
        if asked.get("jsonrpc") != "2.0" or type(name) is not str:
            raise RpcProblem(INVALID_REQUEST, 'invalid request: expected "jsonrpc": "2.0" and a method')
        if isinstance(asked.get("id"), bool | float | list | dict):
            raise RpcProblem(INVALID_REQUEST, "invalid request: id must be text, a number or null")
        if self._methods is None:
            raise RpcProblem(REFUSED, f"{printable(self._label)} has no chain: serve a world instead")
        if name not in self._methods:
            problem = f"the method {printable(name, 40)} does not exist or is not available"
            raise RpcProblem(NO_METHOD, problem)
        if not isinstance(params, list):
            raise _invalid("expected a list")
        counts, method = self._methods[name]
        if len(params) not in counts:
            raise _invalid(f"expected {counts[0]} of them, got {len(params)}")
        return method(*params)


class Chain:
    """The chain of a world: which transactions submit its blocks, and the events that tell of them."""

    def __init__(self, world: World, settings: Settings) -> None:
        self._settings, self._blocks = settings, Settlement(world, settings)
        self._name = f"{world.name} {settings.exchange.lower()}"
        self._tokens = world.tokens()
        self._contracts = {each["address"].lower(): each for each in self._tokens if int(each["address"], 16)}
        self._hashes: dict[int, str] = {}

    @property
    def methods(self) -> dict[str, tuple[tuple[int, ...], Callable[..., Any]]]:
        """The methods of the endpoint, each with the numbers of parameters it takes."""
        return {
            "eth_chainId": ((0,), lambda: hex(self._settings.chain_id)),
            "net_version": ((0,), lambda: str(self._settings.chain_id)),
            "eth_blockNumber": ((0,), lambda: hex(self._head)),
            "eth_getLogs": ((1,), self._get_logs),
            "eth_getTransactionByHash": ((1,), self._get_transaction),
            "eth_call": ((1, 2), self._call_contract),
        }

    @property
    def _head(self) -> int:
        return self._calls[-1].l1_block + CONFIRMED

    @cached_property
    def _calls(self) -> list[Call]:
        """Every transaction that submits blocks, in order."""
        calls, block = [], self._blocks.first
        while block <= self._blocks.last:
            for count in GROUPS[self._digest(f"group {block}")[0] % len(GROUPS)]:
                if blocks := range(block, min(block + count, self._blocks.last + 1)):
                    at = FIRST_L1_BLOCK + L1_BLOCKS * (blocks[-1] - self._blocks.first + 1)
                    calls.append(Call(self._hash(f"transaction {block}"), at, blocks))
                block += count
        return calls

    @cached_property
    def _calls_by_hash(self) -> dict[str, Call]:
        return {call.hash: call for call in self._calls}

    @cached_property
    def _registrations(self) -> list[Log]:
        words = ("0x" + _word(int(each["address"], 16)) + _word(each["tokenId"]) for each in self._tokens)
        return [
            Log((REGISTRATION,), FIRST_L1_BLOCK + place, self._hash(f"registration {place}"), 0, data=data)
            for place, data in enumerate(words)
        ]

    def _digest(self, what: str) -> bytes:
        return sha256(f"{self._name} {what}".encode()).digest()

    def _hash(self, what: str) -> str:
        return "0x" + self._digest(what).hex()

    def _draw(self, what: str) -> float:
        """Draw what decides on a fault: a number below 1 from the seed of the settings."""
        digest = self._digest(f"{self._settings.fault_seed} {what}")
        return int.from_bytes(digest[:6]) / 2**48

    def _get_logs(self, query: Any) -> list[dict[str, Any]]:
        if not isinstance(query, dict):
            raise _invalid("the filter of eth_getLogs must be an object")
        if "blockHash" in query:
            raise _invalid("blockHash is not supported here: give fromBlock and toBlock")
        first, last = (self._block_number(query.get(one, "latest"), one) for one in ("fromBlock", "toBlock"))
        if first > last:
            raise _invalid("fromBlock must not be after toBlock")
        addresses = _options(query.get("address"), ADDRESS, "address must be an address, or a list of them")
        listed, problem = query.get("topics"), "topics must be a list of topics, lists of them, or null"
        listed = listed if isinstance(listed, list) else [listed] if listed is not None else []
        topics = [_options(one, HASH, problem) or None for one in listed]
        most = self._settings.rpc_log_blocks
        if most is not None and last - first + 1 > most:
            raise RpcProblem(LIMIT, f"eth_getLogs is limited to a range of {most} blocks")
        if addresses is not None and self._settings.exchange.lower() not in addresses:
            return []
        logs = [log for log in self._logs(first, last) if _matches(log, topics)]
        most = self._settings.rpc_log_results
        if most is not None and len(logs) > most:
            raise RpcProblem(LIMIT, f"query returned more than {most} results")
        if last - first + 1 > SMALL_RANGE:
            logs = [log for log in logs if self._draw(f"log {log[1:4]}") >= self._settings.rpc_omitted_logs]
        return [self._log_record(log) for log in logs]

    def _block_number(self, value: Any, name: str) -> int:
        if value in ("latest", "safe", "finalized", "pending"):
            return self._head
        if value == "earliest":
            return 0
        if type(value) is not str or not QUANTITY.fullmatch(value):
            raise _invalid(f"{name} must be a block number in hex, such as 0xaa2236, or a tag such as latest")
        return int(value, 16)

    def _logs(self, first: int, last: int) -> Iterator[Log]:
        """Yield every log of a range of L1 blocks, in order."""
        yield from (log for log in self._registrations if first <= log.l1_block <= last)
        begin = bisect_left(self._calls, first, key=lambda call: call.l1_block)
        end = bisect_right(self._calls, last, key=lambda call: call.l1_block)
        for call in self._calls[begin:end]:
            for place, block in enumerate(call.blocks):
                yield Log((SUBMISSION, "0x" + _word(block)), call.l1_block, call.hash, place, block)

    def _event_data(self, block: int) -> str:
        if block not in self._hashes:
            self._hashes[block] = sha256(self._blocks.data(block)).hexdigest()
        return f"0x{self._blocks.root(block):064x}{self._hashes[block]}"

    def _log_record(self, log: Log) -> dict[str, Any]:
        return {
            "address": self._settings.exchange.lower(),
            "topics": list(log.topics),
            "data": log.data or self._event_data(log.block),
            "blockNumber": hex(log.l1_block),
            "blockHash": self._hash(f"L1 block {log.l1_block}"),
            "transactionHash": log.transaction,
            "transactionIndex": "0x0",
            "logIndex": hex(log.place),
            "removed": False,
        }

    def _get_transaction(self, asked: Any) -> dict[str, Any] | None:
        if type(asked) is not str or not HASH.fullmatch(asked):
            raise _invalid("expected the hash of a transaction: 0x and 64 hex digits")
        call = self._calls_by_hash.get(asked.lower())
        if call is None or self._draw(f"body {call.hash}") < self._settings.rpc_missing_bodies:
            return None
        form, wrapper, compressed = self._form(call)
        blocks = [self._blocks.submission(block) for block in call.blocks]
        to = self._hash(f"wrapper {wrapper}")[:42] if wrapper else self._settings.exchange.lower()
        return {
            "hash": call.hash,
            "type": "0x0",
            "chainId": hex(self._settings.chain_id),
            "blockHash": self._hash(f"L1 block {call.l1_block}"),
            "blockNumber": hex(call.l1_block),
            "transactionIndex": "0x0",
            "from": self._hash("operator")[:42],
            "to": to,
            "nonce": hex(call.blocks[0]),
            "value": "0x0",
            "gas": hex(8_000_000),
            "gasPrice": hex(20 * 10**9),
            "input": "0x" + encode_calldata(blocks, form, wrapper, compressed).hex(),
        }

    def _form(self, call: Call) -> tuple[str, str | None, bool]:
        """Return how a transaction is encoded: one in four in a way of the exchange's first years."""
        old, form, wrapper, compressed = self._digest(f"form {call.hash}")[:4]
        if old >= 64:
            return NEWEST_FORM, NEWEST_WRAPPER, True
        return tuple(AUXILIARY)[form % len(AUXILIARY)], WRAPPERS[wrapper % len(WRAPPERS)], compressed < 128

    def _call_contract(self, asked: Any, block: Any = "latest") -> str:
        """Answer symbol() and decimals() of a token; the last token's symbol is bytes32."""
        self._block_number(block, "block")
        asked = asked if isinstance(asked, dict) else {}
        to, data = asked.get("to"), asked.get("input", asked.get("data"))
        if type(to) is not str or not ADDRESS.fullmatch(to) or type(data) is not str:
            raise _invalid("eth_call needs an object with to, an address, and data")
        token = self._contracts.get(to.lower())
        if token is None:
            return "0x"
        if data.lower() == DECIMALS:
            return "0x" + _word(int(token["decimals"]))
        if data.lower() != SYMBOL:
            raise RpcProblem(REVERTED, "execution reverted")
        text: bytes = token["symbol"].encode()
        if token == self._tokens[-1]:
            return "0x" + text.hex().ljust(64, "0")
        return "0x" + _word(32) + _word(len(text)) + text.hex().ljust(-(-len(text) // 32) * 64, "0")


def _invalid(problem: str) -> RpcProblem:
    return RpcProblem(INVALID_PARAMS, f"invalid params: {problem}")


def _error(call_id: Any, code: int, message: str) -> str:
    return _answer(call_id, "error", {"code": code, "message": message})


def _answer(call_id: Any, member: str, value: Any) -> str:
    """Write an answer; the id is repeated as it was sent."""
    return f'{{"jsonrpc":"2.0","id":{to_json(call_id)},"{member}":{ENCODER.encode(value)}}}'


def _word(number: int) -> str:
    return f"{number:064x}"


def _options(value: Any, pattern: re.Pattern[str], problem: str) -> set[str] | None:
    """Return what a filter accepts, which gives one hex text or a list of them; None accepts any."""
    if value is None:
        return None
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(type(one) is str and pattern.fullmatch(one) for one in listed):
        raise _invalid(problem)
    return {one.lower() for one in listed}


def _matches(log: Log, topics: list[set[str] | None]) -> bool:
    if len(topics) > len(log.topics):
        return False
    return all(each is None or topic in each for topic, each in zip(log.topics, topics, strict=False))
