"""A channel to one server: requests in their turn, tried again where that may help, read within limits."""

from __future__ import annotations

import contextlib
import email.utils
import logging
import os
import random
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import requests
from requests.auth import AuthBase
from urllib3.exceptions import ReadTimeoutError

from loopring_lab.errors import LabError, TransportError, UnexpectedAnswer, with_details
from loopring_lab.http import failures
from loopring_lab.http.addresses import DAY, check_limit, check_number, is_loopback
from loopring_lab.http.budget import Budget
from loopring_lab.http.deadline import Deadline, Session
from loopring_lab.http.failures import Outcome, TooLarge
from loopring_lab.http.pace import RateLimiter
from loopring_lab.origin import HEADER, Source
from loopring_lab.redaction import Redactor, SecretBytes, SecretText, shielded

MAX_BYTES = 1 << 30
"""Bytes of all answers of an operation together, as received and again as expanded."""
PIECE = 1 << 16  # bytes that are read, and expanded, at once
# HTTP: asked again, the server may answer.
TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)
PROXY_ASKS_WHO = 407  # HTTP: no server sends it, but a proxy between
FIRST_DELAY = 0.1  # seconds before the second attempt, doubled before each further one
LONGEST_DELAY = 8.0
# Seconds: what a server asks for beyond that is not waited for in one piece.
LONGEST_RETRY_AFTER = 60.0

# Spreads attempts of several clients; of its own, so that the caller's `random` stays as it is.
_dice = random.Random()  # noqa: S311 - not a secret


class Server(NamedTuple):
    """A server as errors name it: its address without secrets, and where its settings are given."""

    address: str
    kind: str = "relayer"
    setting: str = "base_url"
    function: str = "connect"
    instead: str = "connect() without arguments works offline"

    @property
    def try_later(self) -> str:
        return f"The problem is on the {self.kind}'s side: try again later."


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
    """What is sent, what errors call it, and what its answers may take."""

    server: Server
    endpoint: str
    method: str
    url: str
    auth: Secrets
    payload: dict[str, Any]
    largest: int
    budget: Budget
    private: bool = False  # whether the path of the address is secret

    @property
    def is_sent_once(self) -> bool:
        return self.method == "POST" and self.auth.is_signed

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

    def wait_for_turn(self, seconds: float) -> None:
        """Wait, if the budget allows it."""
        if seconds >= self.budget.seconds_left:
            raise self.budget.exceeded(
                f"A request's turn would come in {seconds:.1f} s ({self.endpoint})"
            )
        self.budget.pause(seconds)


class Channel:
    """Sends requests to one server, paced for each endpoint."""

    # Of one whose constructor raised: a traceback that shows variables asks for its repr.
    server = Server("")

    def __init__(
        self,
        server: Server,
        *,
        rate: float | None = 5.0,
        timeout: float = 15.0,
        max_seconds: float | None = None,
        max_bytes: int | None = MAX_BYTES,
        attempts: int = 6,
        proxies: bool = True,
    ) -> None:
        self.server = server
        self._rate = check_limit("rate", rate, "requests per second")
        self._timeout = check_number("timeout", timeout, "seconds", most=DAY)
        self._max_seconds = check_limit("max_seconds", max_seconds, "seconds")
        self._max_bytes = check_limit("max_bytes", max_bytes, "bytes")
        self._attempts = attempts
        self._proxies = proxies and not is_loopback(server.address)
        self._lock = threading.Lock()
        self._limiters: dict[str, RateLimiter] = {}
        self._sessions: dict[int, Session] = {}
        # What the first answer stated: as sent, and as read. Copies with another key share this dictionary, as they
        # do the lock, the pacing and the connections.
        self._stated: dict[str, Source | None] = {}
        for name in ("urllib3.connectionpool", "urllib3.connection"):
            logging.getLogger(name).addFilter(_drop_what_is_private)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server.address!r})"

    def new_budget(self, *, of_bytes: bool = True) -> Budget:
        """Return what one operation may take; its bytes may be left to its parts."""
        return Budget(self._max_seconds, self._max_bytes if of_bytes else None)

    def budget(self) -> Budget:
        """Return the budget of the operation under way, or else one of its own for a request."""
        return Budget.active() or self.new_budget()

    @property
    def source(self) -> Source | None:
        """What the server's first answer states as its identity, if anything."""
        return next(iter(self._stated.values()), None)

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _read_error(
        self, status: int, body: bytes, endpoint: str
    ) -> tuple[LabError | None, bool]:
        """Return the error that an answer reports, if any, and whether another attempt may help."""
        raise NotImplementedError

    def _retry(self, request: Request) -> bytes:
        """Exchange bytes, trying again where that may help.

        The attempts return their errors, and only the last is raised: an error that is kept between attempts
        would keep the frames of its exchange, which hold the headers.
        """
        for attempt in range(1, self._attempts + 1):
            outcome = self._exchange(request)
            if not outcome.transient or attempt == self._attempts:
                break
            pause = _delay(attempt, outcome.retry_after)
            if pause >= request.budget.seconds_left:
                problem = (
                    f"{outcome.error} The next attempt would come after {pause:.1f} s"
                )
                was_received = getattr(outcome.error, "maybe_received", False)
                raise request.budget.exceeded(problem, maybe_received=was_received)
            request.budget.pause(pause)
        return outcome.unwrap()

    def _exchange(self, request: Request) -> Outcome:
        """Exchange bytes once, when it is the request's turn."""
        with self._lock:
            limiter = self._limiters.setdefault(
                request.endpoint, RateLimiter(self._rate)
            )
        limiter.wait(request.wait_for_turn)
        try:
            return self._send(request)
        finally:
            limiter.answered()

    @shielded
    def _send(self, request: Request) -> Outcome:
        """Exchange bytes once; a Ctrl-C shows no frame of the libraries below, which hold the headers."""
        seconds = min(self._timeout, request.budget.seconds_left)
        if seconds <= 0:
            return self._late(request, seconds, connected=False)
        deadline = Deadline(seconds, private=request.private)
        try:
            with (
                request.budget.watch(deadline),
                deadline,
                self._request(request, seconds) as response,
            ):
                outcome = self._read_response(response, request)
        except (requests.Timeout, ReadTimeoutError):
            return self._late(request, seconds, connected=deadline.connected)
        except LabError as error:
            outcome = Outcome(error=error.with_traceback(None))
        except Exception as error:  # noqa: BLE001 - whatever a server brings about in the libraries below
            outcome = failures.failed(error, request, deadline.connected)
        # A socket that was shut may look like an error, or like the end of a body.
        if deadline.passed:
            return self._late(request, seconds, connected=deadline.connected)
        return outcome

    def _late(self, request: Request, seconds: float, *, connected: bool) -> Outcome:
        """Return that the exchange took longer than its own time, or than what was left of the operation's."""
        if seconds < self._timeout:
            problem = f"The request was not finished in time ({request.endpoint})"
            return Outcome(
                error=request.budget.exceeded(problem, maybe_received=connected)
            )
        return failures.late(request, self._timeout, connected=connected)

    def _request(self, request: Request, seconds: float) -> requests.Response:
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
            timeout=seconds,
            stream=True,
            # `Session` finds no redirects either: requests would read the body of one even so.
            allow_redirects=False,
            **request.payload,
        )

    def _read_response(self, response: requests.Response, request: Request) -> Outcome:
        if response.is_redirect:
            return failures.redirected(response.headers["Location"], request)
        if response.status_code == PROXY_ASKS_WHO:
            return failures.unusable_proxy(request)
        coding = response.headers.get("Content-Encoding", "identity").lower()
        if coding not in ("identity", "gzip"):
            problem = "The answer is compressed in a way that was not asked for."
            return Outcome(error=request.error(problem, maybe_received=True))
        body = _read_body(response, request, is_compressed=coding == "gzip")
        error, transient = self._read_error(
            response.status_code, body, request.endpoint
        )
        if error:
            wait = retry_after_seconds(response.headers.get("Retry-After"))
            return Outcome(error=error, transient=transient, retry_after=wait)
        is_json = body.lstrip()[:1] in (b"{", b"[")
        if is_json and not body.rstrip().endswith((b"}", b"]")):
            return failures.broken_off(
                request, f"The answer breaks off after {len(body)} bytes"
            )
        self._check_source(response, request)
        return Outcome(SecretBytes(body) if request.auth.is_signed else body)

    def _check_source(self, response: requests.Response, request: Request) -> None:
        """Accept the answers of one source only, that of the first."""
        stated = response.headers.get(HEADER, "")
        if stated in self._stated:
            return
        stated = request.auth.redactor(stated.encode("latin-1")).decode("latin-1")
        found = Source.read(stated, HEADER) if stated else None
        with self._lock:
            if not self._stated:
                self._stated[stated] = found
        first = self.source
        if found != first:
            hint = f"Another {self.server.kind} answers at this address now: {self.server.function} again."
            raise UnexpectedAnswer(
                "source",
                expected=first or "none",
                got=found or "none",
                hint=hint,
            )


def _read_body(
    response: requests.Response, request: Request, *, is_compressed: bool
) -> bytes:
    """Read a body piece by piece, as far as it may reach, and without the secrets that it repeats."""
    pieces = _counted(
        iter(lambda: response.raw.read(PIECE, decode_content=False), b""),
        request,
    )
    if is_compressed:
        pieces = _counted(_expanded(pieces), request)
    return request.auth.redactor(b"".join(pieces))


def _counted(pieces: Iterable[bytes], request: Request) -> Iterator[bytes]:
    """Pass pieces on for as long as all of them together are allowed."""
    size = 0
    for piece in pieces:
        size += len(piece)
        request.budget.spend(len(piece))
        if size > request.largest:
            problem = f"The answer is larger than {request.largest / (1 << 20):g} MiB."
            raise request.error(problem, kind=TooLarge, maybe_received=True)
        if request.budget.bytes_left < 0:
            problem = (
                "The answers of this operation together are larger than max_bytes."
            )
            hint = f"Allow more: {request.server.function}(..., max_bytes=...)."
            raise request.error(problem, hint, maybe_received=True)
        yield piece


def _expanded(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Expand gzip, never much at once; it may have several members."""
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for compressed in pieces:
        rest = compressed
        while rest:
            if decoder.eof:
                decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield decoder.decompress(rest, PIECE)
            rest = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
    yield decoder.flush()
    if not decoder.eof:
        raise zlib.error("incomplete")


def _delay(attempt: int, retry_after: float | None) -> float:
    """Return the seconds before another attempt: twice as many each time, up to a limit, or more if the server asks."""
    doubled: float = min(LONGEST_DELAY, FIRST_DELAY * 2 ** (attempt - 1))
    return max(retry_after or 0.0, doubled + _dice.uniform(0, FIRST_DELAY))


def retry_after_seconds(header: str | None) -> float | None:
    """Parse a Retry-After header, seconds or a date."""
    seconds = None
    with contextlib.suppress(ValueError, OverflowError):
        seconds = (
            email.utils.parsedate_to_datetime(header or "").timestamp() - time.time()
        )
    with contextlib.suppress(ValueError):
        seconds = float(header or "")
    if seconds is None:
        return None
    return min(LONGEST_RETRY_AFTER, max(0.0, seconds))


def _drop_what_is_private(record: logging.LogRecord) -> bool:
    """Keep what names accounts or repeats a secret out of urllib3's log: queries, headers, secret paths."""
    deadline = Deadline.current()
    if deadline is None:
        return True
    if deadline.private or record.levelno >= logging.WARNING:
        return False
    if isinstance(record.args, tuple):
        record.args = tuple(
            arg.partition("?")[0] if isinstance(arg, str) else arg
            for arg in record.args
        )
    return True
