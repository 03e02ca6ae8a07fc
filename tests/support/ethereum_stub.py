"""The embedded chain as an Ethereum provider would serve it: limits, silent gaps, missing bodies, failures."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from support.scripted_server import Answer, Request, scripted
from support.troubled import Troubles, drawn

from loopring_lab.relayer import Settings, World
from loopring_lab.relayer.chain import Endpoint

HONEST = 1_000
"""L1 blocks of a question that gets every log, whatever is left out of larger ones."""

Call = dict[str, Any]


class EthereumStub:
    """A world's chain with quirks.

    `most_l1_blocks`, `most_results` and `most_in_batch` refuse what is larger. `omitted` is the share of logs left
    out, without a word, of answers about more than `HONEST` L1 blocks; `missing` the share of transactions that are
    never found. `faults` are shares of failures as in `troubled`, `latency` is in seconds.
    """

    def __init__(
        self,
        world: World,
        *,
        most_l1_blocks: int = 1 << 60,
        most_results: int = 1 << 60,
        most_in_batch: int = 100,
        omitted: float = 0.0,
        missing: float = 0.0,
        faults: Mapping[str, float] | None = None,
        latency: float = 0.0,
    ):
        self.exchange = Settings().exchange
        self.most_l1_blocks = most_l1_blocks
        self.most_results = most_results
        self.most_in_batch = most_in_batch
        self.omitted = omitted
        self.missing = missing
        self.latency = latency
        self.troubles = Troubles(faults or {})
        self._chain = Endpoint(world, Settings())

    def answer(self, number: int, request: Request) -> Answer:
        time.sleep(self.latency)
        asked = partial(self._answer, json.loads(request.body))
        return self.troubles.meet(number, request.path, asked)

    def _answer(self, asked: Any) -> Answer:
        if not isinstance(asked, list):
            found: Any = self._reply(asked)
        elif len(asked) > self.most_in_batch:
            found = refusal(None, -32600, "batch too long")
        else:
            found = [self._reply(call) for call in asked]
        return Answer(body=json.dumps(found).encode())

    def _reply(self, call: Call) -> Call:
        method = call["method"]
        params = call["params"]
        if method == "eth_getLogs":
            return self._logs(call)
        if method == "eth_getTransactionByHash" and drawn(params[0]) < self.missing:
            return {"jsonrpc": "2.0", "id": call["id"], "result": None}
        return self._honest(call)

    def _honest(self, call: Call) -> Call:
        answer = self._chain.answer(json.dumps(call).encode())
        assert isinstance(answer, dict)
        return answer

    def _logs(self, call: Call) -> Call:
        wanted = call["params"][0]
        count = int(wanted["toBlock"], 16) - int(wanted["fromBlock"], 16) + 1
        if count > self.most_l1_blocks:
            said = f"eth_getLogs is limited to a range of {self.most_l1_blocks} blocks"
            return refusal(call["id"], -32005, said)
        reply = self._honest(call)
        logs = reply["result"]
        if count > HONEST:
            logs = [log for log in logs if drawn(log["topics"]) >= self.omitted]
        if len(logs) > self.most_results:
            said = f"query returned more than {self.most_results} results"
            return refusal(call["id"], -32005, said)
        return reply | {"result": logs}

    @contextmanager
    def served(self) -> Iterator[str]:
        """Serve the chain; give its address."""
        with scripted(self.answer) as server:
            yield server.base_url


def refusal(call_id: Any, code: int, message: str) -> Call:
    error = {"code": code, "message": message}
    return {"jsonrpc": "2.0", "id": call_id, "error": error}
