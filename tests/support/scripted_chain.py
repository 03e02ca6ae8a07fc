"""An Ethereum chain on loopback whose blocks, silences and refusals a test chooses."""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.rollup_blocks import (
    EXCHANGE,
    block_data,
    slot,
    submit,
    text_of,
    word,
    wrapped,
)
from support.scripted_server import Answer, Request, scripted

CONTRACT = f"0x{EXCHANGE.hex()}"
SUBMITTED = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
REGISTERED = "0x678eb1f52e3e76c52c1143d5699af1d8a5e03743e8840223ccb27aabf3c44c0a"
SYMBOL = "0x95d89b41"
DECIMALS = "0x313ce567"
FIRST_L1 = 11_149_814


def root(block_id: int) -> bytes:
    return b"\x01" + hashlib.sha256(str(block_id).encode()).digest()[1:]


def data_of(block_id: int, size: int = 4) -> bytes:
    """Write a small block whose roots follow those of the block before it."""
    noted = slot(
        "deposit", owner=block_id, account=10_000 + block_id, token=1, amount=block_id
    )
    header = {
        "before": root(block_id - 1),
        "after": root(block_id),
        "timestamp": 1_600_000_000 + 900 * block_id,
    }
    return block_data([noted], size=size, **header)


class ScriptedChain:
    """Blocks 1 to `count`, some of them two to a transaction, and how the endpoint answers about them.

    `omitted` are numbers of blocks whose events are left out of answers about more than `honest` L1 blocks.
    `trouble` may answer a request, given its number and content, in place of the chain.
    """

    def __init__(
        self,
        count: int = 40,
        apart: int = 100,
        chain_id: int = 1,
        exchange: str = CONTRACT,
    ):
        self.chain_id = chain_id
        self.exchange = exchange
        self.apart = apart
        self.data = {number: data_of(number) for number in range(1, count + 1)}
        self.transactions: dict[str, dict[str, Any]] = {}
        self.logs: list[dict[str, Any]] = []
        self.contracts: dict[tuple[str, str], Any] = {}
        self.head = FIRST_L1 + apart * (count + 1) + 64
        self.omitted: set[int] = set()
        self.honest = 0
        self.most_l1_blocks = 1 << 60
        self.most_results = 1 << 60
        self.most_in_batch = 1 << 60
        self.headers: dict[str, str] = {}
        self.trouble: Callable[[int, Any], Answer | None] = lambda number, asked: None
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        at = 1
        while at <= count:
            numbers = [at, at + 1] if at % 5 == 0 and at < count else [at]
            self._submit(numbers)
            at += len(numbers)

    def _submit(self, numbers):
        l1_block = FIRST_L1 + self.apart * numbers[0]
        found = "0x" + hashlib.sha256(f"transaction {numbers}".encode()).hexdigest()
        content = wrapped(submit([self.data[number] for number in numbers]))
        self.transactions[found] = {
            "hash": found,
            "blockNumber": hex(l1_block),
            "input": "0x" + content.hex(),
        }
        for place, number in enumerate(numbers):
            digest = hashlib.sha256(self.data[number]).digest()
            topics = [SUBMITTED, "0x" + word(number).hex()]
            self._log(topics, root(number) + digest, l1_block, found, place)

    def _log(self, topics, data, l1_block, transaction, place):
        self.logs.append(
            {
                "address": self.exchange,
                "topics": topics,
                "data": "0x" + data.hex(),
                "blockNumber": hex(l1_block),
                "transactionHash": transaction,
                "logIndex": hex(place),
                "removed": False,
            }
        )

    def register(
        self, token_id: int, address: int, symbol: bytes | None, decimals: int | None
    ):
        """Announce a token; its symbol is what the contract answers, as the ABI encodes it."""
        place = bytes(12) + address.to_bytes(20, "big")
        self._log(
            [REGISTERED],
            place + word(token_id),
            FIRST_L1 + token_id,
            "0x" + 64 * "a",
            0,
        )
        contract = f"0x{address:040x}"
        self.contracts[contract, SYMBOL] = symbol
        self.contracts[contract, DECIMALS] = (
            None if decimals is None else word(decimals)
        )

    def answer(self, number: int, request: Request) -> Answer:
        asked = json.loads(request.body)
        with self._lock:
            self.asked.update(
                one["method"] for one in (asked if isinstance(asked, list) else [asked])
            )
            self.asked["requests"] += 1
            strange = self.trouble(number, asked)
        if strange is not None:
            return strange
        if isinstance(asked, list) and len(asked) > self.most_in_batch:
            found: Any = {
                "id": None,
                "error": {"code": -32600, "message": "batch too long"},
            }
        else:
            found = (
                list(map(self._reply, asked))
                if isinstance(asked, list)
                else self._reply(asked)
            )
        return Answer(200, json.dumps(found).encode(), self.headers)

    def _reply(self, call):
        method = getattr(self, call["method"])
        try:
            return {
                "jsonrpc": "2.0",
                "id": call["id"],
                "result": method(*call["params"]),
            }
        except RuntimeError as error:
            code, message = error.args
            return {
                "jsonrpc": "2.0",
                "id": call["id"],
                "error": {"code": code, "message": message},
            }

    def eth_chainId(self) -> str:  # noqa: N802 - the method's name
        return hex(self.chain_id)

    def eth_blockNumber(self) -> str:  # noqa: N802
        return hex(self.head)

    def eth_getLogs(self, wanted: dict[str, Any]) -> list[dict[str, Any]]:  # noqa: N802
        first = int(wanted["fromBlock"], 16)
        last = int(wanted["toBlock"], 16)
        assert wanted["address"] == self.exchange.lower()
        assert wanted["topics"] == [[SUBMITTED, REGISTERED]]
        if last - first + 1 > self.most_l1_blocks:
            raise RuntimeError(
                -32602, f"block range is too large, max is {self.most_l1_blocks}"
            )
        found = [
            log for log in self.logs if first <= int(log["blockNumber"], 16) <= last
        ]
        if last - first + 1 > self.honest:
            found = [
                log
                for log in found
                if len(log["topics"]) < 2
                or int(log["topics"][1], 16) not in self.omitted
            ]
        if len(found) > self.most_results:
            raise RuntimeError(
                -32005, f"query returned more than {self.most_results} results"
            )
        return found

    def eth_getTransactionByHash(self, wanted: str) -> dict[str, Any] | None:  # noqa: N802
        return self.transactions.get(wanted)

    def eth_call(self, call: dict[str, str], tag: str) -> str:
        assert tag == "latest"
        found = self.contracts[call["to"], call["data"]]
        if found is None:
            raise RuntimeError(3, "execution reverted")
        return "0x" + found.hex()

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the chain; give its address."""
        with scripted(self.answer) as server:
            yield server.base_url


def abi_text(text: str) -> bytes:
    return word(32) + text_of(text.encode())


def unpaced(url: str) -> dict[str, Any]:
    """Return arguments of a sync that does not wait."""
    return {"rpc": url, "rate": None, "progress": False}
