"""A channel to one server: requests in their turn, tried again where that may help, read within limits."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

import requests
from requests.auth import AuthBase
from urllib3 import Retry
from urllib3.exceptions import InvalidHeader

from loopring_lab.bounded import MAX_ANSWER
from loopring_lab.errors import LabError, TransportError, UnexpectedAnswer, with_details
from loopring_lab.http import failures
from loopring_lab.http.addresses import DAY, check_number, check_rate, is_loopback
from loopring_lab.http.failures import Outcome, TooLarge
from loopring_lab.http.pace import DEFAULT_RATE, RateLimiter
from loopring_lab.http.session import Session
from loopring_lab.origin import HEADER, Source
from loopring_lab.redaction import Redactor, SecretBytes, SecretText, shielded

PIECE = 1 << 16  # bytes that are read, and expanded, at once
# Statuses of HTTP after which the server may answer if it is asked again.
TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)
PROXY_ASKS_WHO = 407  # HTTP: no server sends it, but a proxy between
# Seconds before another attempt: none before the second, then twice as many each time, with some chance so that
# several clients do not come back together.
PAUSES = Retry(None, backoff_factor=0.1, backoff_jitter=0.1, backoff_max=8.0)
LONGEST_RETRY_AFTER = 60.0  # seconds: however long a server asks for

_log = logging.getLogger(__name__)
_is_asking: ContextVar[bool] = ContextVar("a channel's request", default=False)


class Server(NamedTuple):
    """A server as errors name it: its address without secrets, and where its settings are given."""

    address: str
    kind: str = "relayer"
    setting: str = "base_url"
    function: str = "connect"
    instead: str = "connect() without arguments works offline"


class Secrets(AuthBase):
    """Puts secrets on the prepared request, so that no argument and no local variable holds them."""

    def __init__(
        self,
        key: SecretText | None = None,
        signature: SecretText | None = None,
        *,
        in_body: SecretText | None = None,
        send: bool = True,
    ) -> None:
        self._headers: dict[str, SecretText] = {}
        if send and key is not None:
            self._headers["X-API-KEY"] = key
        if send and signature is not None:
            self._headers["X-API-SIG"] = signature
        self.is_signed = signature is not None
        self.redactor = Redactor(key, signature, in_body)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update(self._headers)
        return request


class Request(NamedTuple):
    """What is sent, and what errors call it."""

    server: Server
    endpoint: str
    method: str
    url: str
    auth: Secrets
    payload: dict[str, Any]

    def error(
        self,
        problem: str,
        hint: str = "",
        kind: type[TransportError] = TransportError,
        **received: bool,
    ) -> TransportError:
        """Return an error that says what happened, what to do, and at its end what was asked for."""
        hint = hint or f"Check {self.server.setting}."
        return kind(with_details(f"{problem} {hint}", self.endpoint), **received)


class Channel:
    """Sends requests to one server, paced for each endpoint."""

    # A traceback that shows variables asks for the repr also of one whose constructor raised.
    server = Server("")

    def __init__(
        self,
        server: Server,
        *,
        rate: float | None = DEFAULT_RATE,
        timeout: float = 15.0,
        attempts: int = 6,
        proxies: bool = True,
    ) -> None:
        self.server = server
        self._rate = check_rate(rate)
        self._timeout = check_number("timeout", timeout, "seconds", most=DAY)
        self._attempts = attempts
        self._proxies = proxies and not is_loopback(server.address)
        # Copies with another key share these: the pacing, the connections, and what the first answer stated.
        self._lock = threading.Lock()
        self._limiters: dict[str, RateLimiter] = {}
        self._sessions: dict[int, Session] = {}
        self._stated: list[Source | None] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server.address!r})"

    @property
    def source(self) -> Source | None:
        """What the server's first answer states as its identity, if anything."""
        return self._stated[0] if self._stated else None

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def pause(self, seconds: float) -> None:
        """Wait before another attempt."""
        time.sleep(seconds)

    def _read_error(
        self, status: int, body: bytes, endpoint: str
    ) -> tuple[LabError | None, bool]:
        """Return the error that an answer reports, if any, and whether another attempt may help."""
        raise NotImplementedError

    def _retry(self, request: Request) -> bytes:
        """Exchange bytes, trying again where that may help.

        `urllib3` would try again by itself, but out of turn, and not where an answer breaks off in its body.
        """
        pauses = PAUSES
        for _ in range(self._attempts - 1):
            outcome = self._exchange(request)
            if not outcome.transient:
                return outcome.unwrap()
            pauses = pauses.increment()
            self.pause(outcome.retry_after or pauses.get_backoff_time())
        return self._exchange(request).unwrap()

    def _exchange(self, request: Request) -> Outcome:
        """Exchange bytes once, when it is the request's turn."""
        with self._lock:
            limiter = self._limiters.setdefault(
                request.endpoint, RateLimiter(self._rate)
            )
        limiter.wait(time.sleep)
        try:
            return self._send(request)
        finally:
            limiter.answered()

    @shielded
    def _send(self, request: Request) -> Outcome:
        """Exchange bytes once; a Ctrl-C shows no frame of the libraries below, which hold the headers."""
        end = time.monotonic() + self._timeout
        token = _is_asking.set(True)
        try:
            with self._begin(request) as response:
                return self._read_response(response, request, end)
        except LabError as error:
            return Outcome(error=error.with_traceback(None))
        except Exception as error:  # noqa: BLE001 - whatever a server brings about in the libraries below
            return failures.failed(error, request, self._timeout)
        finally:
            _is_asking.reset(token)

    def _begin(self, request: Request) -> requests.Response:
        # A forked process must not use its parent's connections: it would take the parent's answers.
        process = os.getpid()
        with self._lock:
            if process not in self._sessions:
                self._sessions[process] = Session(trust_env=self._proxies)
            session = self._sessions[process]
        return session.request(
            request.method,
            request.url,
            auth=request.auth,
            timeout=self._timeout,
            stream=True,
            allow_redirects=False,
            **request.payload,
        )

    def _read_response(
        self, response: requests.Response, request: Request, end: float
    ) -> Outcome:
        if response.is_redirect:
            place = response.headers["Location"]
            return failures.redirected(place, response.status_code, request)
        if response.status_code == PROXY_ASKS_WHO:
            return failures.unusable_proxy(request)
        body = _read_body(response, request, end)
        _log.debug(
            "%s: HTTP %s, %d bytes", request.endpoint, response.status_code, len(body)
        )
        error, transient = self._read_error(
            response.status_code, body, request.endpoint
        )
        if error:
            wait = _retry_after(response.headers.get("Retry-After", ""))
            return Outcome(error=error, transient=transient, retry_after=wait)
        self._check_source(response, request)
        return Outcome(SecretBytes(body) if request.auth.is_signed else body)

    def _check_source(self, response: requests.Response, request: Request) -> None:
        """Accept the answers of one source only, that of the first."""
        sent = response.headers.get(HEADER, "").encode("latin-1")
        stated = request.auth.redactor(sent).decode("latin-1")
        found = Source.read(stated, HEADER) if stated else None
        with self._lock:
            if not self._stated:
                self._stated.append(found)
        first = self.source
        if found != first:
            hint = f"Another {self.server.kind} answers at this address now: {self.server.function} again."
            raise UnexpectedAnswer(
                "source",
                expected=first or "none",
                got=found or "none",
                hint=hint,
            )


def _read_body(response: requests.Response, request: Request, end: float) -> bytes:
    """Read a body part by part, as far as it may reach, and without the secrets that it repeats."""
    # read1 returns what has arrived, while read would wait for more however slowly it comes.
    parts = iter(lambda: response.raw.read1(PIECE, decode_content=False), b"")
    limited = _limited(parts, request, end)
    if response.headers.get("Content-Encoding", "").lower() == "gzip":
        limited = _limited(_expanded(limited), request, end)
    return request.auth.redactor(b"".join(limited))


def _limited(parts: Iterable[bytes], request: Request, end: float) -> Iterator[bytes]:
    """Pass parts on for as long as there is time, and all of them together are not too large."""
    size = 0
    for part in parts:
        size += len(part)
        if size > MAX_ANSWER:
            problem = f"The answer is larger than {MAX_ANSWER >> 20} MiB."
            raise request.error(problem, kind=TooLarge, maybe_received=True)
        if time.monotonic() > end:
            raise requests.Timeout
        yield part


def _expanded(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Expand gzip, never much at once."""
    # `urllib3` would expand it too, but it looks at no clock while bytes come that expand to nothing.
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for compressed in parts:
        rest = compressed
        while rest and not decoder.eof:
            yield decoder.decompress(rest, PIECE)
            rest = decoder.unconsumed_tail
    if not decoder.eof or decoder.unused_data:
        raise zlib.error("not one whole gzip file")


def _retry_after(header: str) -> float:
    """Return the seconds that a server asks to wait for; 0 if it does not say."""
    # A date may have a year beyond all clocks.
    with contextlib.suppress(InvalidHeader, ValueError, OverflowError):
        return min(LONGEST_RETRY_AFTER, PAUSES.parse_retry_after(header))
    return 0.0


def _is_of_others(_: logging.LogRecord) -> bool:
    """Keep our requests out of urllib3's log, which names accounts and secret paths."""
    return not _is_asking.get()


for _name in ("urllib3.connectionpool", "urllib3.connection"):
    logging.getLogger(_name).addFilter(_is_of_others)
