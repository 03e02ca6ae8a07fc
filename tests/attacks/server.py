"""The hostile server, a process of its own: ``/<number of the case>/api/v3/...`` is answered as the case says."""

import asyncio
import contextlib
import itertools
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

from attacks.answers import VALUES, regular, with_value
from attacks.cases import REFUSALS, Case, every_case
from attacks.lies import LIES, Page

Write = Callable[[bytes], Awaitable[None]]

ENDPOINTS = {
    "exchange/tokens": "tokens", "mix/markets": "markets", "user/trades": "trades", "account": "account",
    "exchange/info": "exchange", "user/offchainFee": "fees", "apiKey": "api_key", "user/updateInfo": "updates",
}  # fmt: skip
EMPTY = b'{"totalNum": 0, "trades": []}'
LONGEST_HEAD = 1 << 22

_asked: dict[str, itertools.count] = defaultdict(itertools.count)


def serve() -> None:
    """Serve on a free port, which is printed, until stdin ends."""
    asyncio.run(_serve())


async def _serve() -> None:
    server = await asyncio.start_server(_connection, "127.0.0.1", 0, limit=LONGEST_HEAD, backlog=256)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def write(data: bytes) -> None:
        for start in range(0, len(data), 1 << 20):
            writer.write(data[start : start + (1 << 20)])
            await writer.drain()
            await asyncio.sleep(0)

    with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        while True:
            await _answer(await reader.readuntil(b"\r\n\r\n"), reader, write)
    writer.close()


async def _answer(request: bytes, reader: asyncio.StreamReader, write: Write) -> None:
    lines = request.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    lengths = [int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:")]
    await reader.readexactly(sum(lengths))
    number, _, rest = urlsplit(target).path[1:].partition("/")
    case = every_case()[int(number)]
    answer = "submission" if method == "POST" else ENDPOINTS.get(rest.removeprefix("api/v3/"), "account")
    query = {name: values[-1] for name, values in parse_qs(urlsplit(target).query).items()}
    body = _body(case, answer, query)
    status = "400 Bad Request" if case.answer == "refusal" else "200 OK"
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    await write(head.encode() + body)


def _body(case: Case, answer: str, query: dict[str, str]) -> bytes:
    if answer == "trades" and query.get("fillTypes") == "amm":
        return EMPTY
    if case.door == "lie" and answer == "trades":
        number = next(_asked[f"{every_case().index(case)} {query['limit']}"])
        return LIES[case.value](Page(int(query["offset"]), number))
    if case.value == "regular":
        return regular(answer)
    if answer == case.answer or (case.answer in REFUSALS and answer == "account"):
        return with_value(case.answer, case.path, VALUES[case.value])
    return regular(answer)
