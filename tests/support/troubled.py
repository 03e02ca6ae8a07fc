"""Failures on the way to a server: statuses, connections that end, answers that are cut, in chosen shares."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import requests
from support.scripted_server import Answer, Request, scripted

PASSED_ON = ("x-api-key", "x-api-sig", "content-type")
SOURCE = "X-Loopring-Lab-Source"


def drawn(what: object) -> float:
    """Draw a number below 1, always the same for one thing."""
    digest = hashlib.sha256(f"1 {what}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


class Troubles:
    """Which requests meet which failure, from their number alone, and how many did.

    A failure is a status such as "503", "reset" (the request is lost) or "truncated" (half of the answer is); each
    path meets at most `in_a_row` of them, so that whoever tries again gets through.
    """

    def __init__(self, shares: Mapping[str, float], in_a_row: int = 3):
        self.shares = shares
        self.in_a_row = in_a_row
        self.counts: Counter[str] = Counter()
        self._met: Counter[str] = Counter()

    def meet(self, number: int, path: str, answer: Callable[[], Answer]) -> Answer:
        """Return an answer, or what comes in its place."""
        kind = self._draw(number)
        if kind is None or self._met[path] >= self.in_a_row:
            self._met[path] = 0
            return answer()
        self._met[path] += 1
        self.counts[kind] += 1
        if kind == "reset":
            return Answer(hang_up=True)
        if kind != "truncated":
            return Answer(int(kind), b'{"resultInfo": {"code": 100000}}')
        whole = answer()
        half = whole.body[: len(whole.body) // 2]
        return whole._replace(body=half, announced=len(whole.body))

    def _draw(self, number: int) -> str | None:
        draw = drawn(number)
        for kind, share in self.shares.items():
            if draw < share:
                return kind
            draw -= share
        return None


@contextmanager
def troubled(
    base_url: str, shares: Mapping[str, float], in_a_row: int = 3
) -> Iterator[tuple[str, Troubles]]:
    """Serve what another server does, with failures; give the address and what was met there."""
    troubles = Troubles(shares, in_a_row)

    def script(number: int, request: Request) -> Answer:
        return troubles.meet(number, request.path, lambda: passed_on(base_url, request))

    with scripted(script) as server:
        yield server.base_url, troubles


def passed_on(base_url: str, request: Request) -> Answer:
    """Ask the other server."""
    headers = {
        name: text for name, text in request.headers.items() if name in PASSED_ON
    }
    found = requests.request(
        request.method,
        base_url + request.path,
        headers=headers,
        data=request.body,
        timeout=600,
    )
    named = {name: found.headers[name] for name in (SOURCE,) if name in found.headers}
    return Answer(found.status_code, found.content, named)
