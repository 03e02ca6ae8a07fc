"""One HTTP exchange with a server: pacing, retries, limits, and errors that hold no secret."""

from __future__ import annotations

import contextlib
import copy
import email.utils
import functools
import logging
import random
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.cookiejar import DefaultCookiePolicy
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

import requests
import tenacity
from requests.auth import AuthBase
from urllib3.exceptions import HTTPError, NewConnectionError, ProtocolError, ReadTimeoutError

from loopring_lab.addresses import (
    DAY,
    check_base_url,
    check_header,
    check_limit,
    check_number,
    is_confidential,
    is_loopback,
    is_same_host,
    redirect_target,
)
from loopring_lab.bounded import MAX_ANSWER, parse_json, printable
from loopring_lab.deadlines import Budget, CutAdapter, Exchange, RateLimiter
from loopring_lab.errors import (
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    RelayerTimeout,
    RelayerUnreachable,
    TransportError,
    UnexpectedAnswer,
    with_details,
)
from loopring_lab.redaction import Redactor, SecretBytes, SecretText, hide
from loopring_lab.source import HEADER, Source

MAX_BYTES = 1 << 30
"""Bytes of all answers of an operation together, as received and again as expanded."""
MAX_CONNECTIONS, MAX_REDIRECTS, PIECE = 16, 5, 1 << 16
_OWN = random.Random()  # noqa: S311 - spreads retries; the caller's stream of `random` stays as it is
SECRET_HEADERS = ("X-API-KEY", "X-API-SIG")
TRANSIENT_STATUSES = (408, 425, 429, 500, 502, 503, 504)
HINTS = {
    100001: "Check the arguments against the relayer's documentation.",
    100204: "The same request was sent before; ask for its outcome instead of sending it again.",
    101001: "This address has no account here; check the owner's address.",
    101002: "No such user; check the account id.",
    102001: "The exchange address is not this relayer's; take it from the relayer you talk to.",
    102021: "The nonce is stale; read the account again and rebuild the request.",
    102024: "Choose a fee token that the relayer's fee list names.",
    104001: "Give an API key: connect(base_url, api_key=...) or the environment variable LOOPRING_API_KEY.",
    104002: "The API key is not accepted; get a fresh one, and mind that a key update voids the old one.",
    104003: "No such account; check account_id.",
    104004: "The signature is missing: the account's L2 key signs for an API key, its owner for an update.",
    104005: "Sign with the account's newest L2 key for an API key, with its owner's wallet for an update.",
    114001: "Choose a fee token that the relayer's fee list names.",
    114002: "The maximum fee is below the relayer's; ask for the fee again and raise max_fee.",
}
"""What to do next, by the relayer's error code."""
_SLOW_DOWN = "Send fewer requests: connect(..., rate=...), or share one client between notebooks."
_NOT_A_RELAYER = "This does not look like a relayer: check base_url, which ends before /api/v3."
_AS_IT_IS: dict[str, Any] = {"stream": True, "allow_redirects": False}

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Params = Mapping[str, str | int]


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


class Channel:
    """Sends requests to one server, paced for each endpoint."""

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
        self._limiters: dict[str, RateLimiter] = {}
        self._lock = threading.Lock()
        self._stated: list[tuple[str, Source | None]] = []
        self._session = _Session()
        self._session.trust_env = proxies and not is_loopback(server.address)
        for name in ("urllib3.connectionpool", "urllib3.connection"):
            logging.getLogger(name).addFilter(_drop_what_is_private)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.server.address!r})"

    def new_budget(self, *, of_bytes: bool = True) -> Budget:
        """Return what one operation may take; its bytes may be left to its parts."""
        return Budget(self._max_seconds, self._max_bytes if of_bytes else None)

    @property
    def source(self) -> Source | None:
        """What the server's first answer states as its identity, if anything."""
        return self._stated[0][1] if self._stated else None

    def close(self) -> None:
        self._session.close()

    def _read_error(self, status: int, body: bytes, endpoint: str) -> tuple[LabError | None, bool]:
        """Return the error that an answer reports, if any, and whether a retry may help."""
        raise NotImplementedError

    def _retry(self, request: Request) -> bytes:
        """Exchange bytes, retrying transient failures."""
        attempts = self._attempts  # `Retrying` refers to itself, and must not keep this channel alive
        retrying = tenacity.Retrying(
            stop=lambda state: state.attempt_number >= attempts or request.is_out_of_time(state),
            sleep=request.budget.pause,
            wait=_retry_delay,
            retry=tenacity.retry_if_result(lambda outcome: outcome.transient),
            retry_error_callback=request.give_up,
        )
        outcome: Outcome = retrying(self._exchange, request)
        return outcome.unwrap()

    def _exchange(self, request: Request) -> Outcome:
        """Exchange bytes once; an error is returned."""
        with self._lock:
            limiter = self._limiters.setdefault(request.endpoint, RateLimiter(self._rate))
        limiter.wait(request.pause)
        seconds = min(self._timeout, request.budget.seconds_left)
        exchange = Exchange(lambda: self._send(request), private=request.private)
        try:
            outcome = exchange.run(seconds, request.budget) if seconds > 0 else None
        finally:
            limiter.answered()
        if outcome is not None:
            return outcome
        if seconds < self._timeout:
            problem = f"The request was not finished in time ({request.endpoint})"
            return Outcome(error=request.budget.exceeded(problem, maybe_received=exchange.connected))
        return _late(request, self._timeout, maybe_received=exchange.connected)

    def _send(self, request: Request) -> Outcome:
        """Exchange bytes once, in a thread of its own; an error is returned."""
        url, auth, payload = request.url, request.auth, request.payload
        try:
            for _ in range(MAX_REDIRECTS):
                with self._session.request(
                    request.method, url, auth=auth, timeout=self._timeout, **_AS_IT_IS, **payload
                ) as response:
                    if not response.is_redirect:
                        return self._check_source(response, self._read_response(response, request), request)
                    target = redirect_target(url, response.headers["Location"])
                if request.method == "POST" or target is None or auth.redactor.finds(target.encode()):
                    return _not_followed(request)
                auth = auth if is_same_host(url, target) else Secrets()
                url, payload = target, {}
        except (requests.RequestException, HTTPError) as error:
            return _request_failure(error, request, self._timeout)
        except LabError as error:
            return Outcome(error=error.with_traceback(None))
        except Exception as error:  # noqa: BLE001 - whatever a server brings about in the libraries below
            return _failed(error, request)
        return _not_followed(request, f"more than {MAX_REDIRECTS} times")

    def _check_source(self, response: requests.Response, outcome: Outcome, request: Request) -> Outcome:
        """Accept the answers of one source only, that of the first."""
        if outcome.error:
            return outcome
        stated = response.headers.get(HEADER, "")
        if self._stated and self._stated[0][0] == stated:
            return outcome
        stated = request.auth.redactor(stated.encode("latin-1")).decode("latin-1")
        try:
            found = Source.read(stated, HEADER) if stated else None
        except LabError as error:
            return Outcome(error=error)
        with self._lock:
            self._stated[:] = self._stated or [(stated, found)]
        first = self._stated[0][1]
        if found == first:
            return outcome
        hint = f"Another {self.server.kind} answers at this address now: {self.server.function} again."
        return Outcome(error=UnexpectedAnswer("source", expected=first or "none", got=found or "none", hint=hint))

    def _read_response(self, response: requests.Response, request: Request) -> Outcome:
        status = response.status_code
        coding = response.headers.get("Content-Encoding", "identity").lower()
        if coding not in ("identity", "gzip"):
            problem = "The answer is compressed in a way that was not asked for."
            return Outcome(error=request.error(problem, maybe_received=True))
        body = _read_body(response, coding, request)
        error, transient = self._read_error(status, body, request.endpoint)
        if error:
            wait = _retry_after_seconds(response.headers.get("Retry-After"))
            return Outcome(error=error, transient=transient, retry_after=wait)
        if body.lstrip()[:1] in b"{[" and not body.rstrip().endswith((b"}", b"]")):
            return _truncated(request, f"the answer breaks off after {len(body)} bytes")
        return Outcome(SecretBytes(body) if request.auth.is_signed else body)


class Transport(Channel):
    """Sends requests to one relayer.

    `get` and `post` return the body of the answer, or raise a `RelayerError` or a `TransportError`. The
    ``maybe_received`` of either error tells whether the relayer may have acted on the request all the same.
    """

    base_url: str = ""

    def __init__(self, base_url: str, *, api_key: str | None = None, allow_http: bool = False, **limits: Any) -> None:
        key = hide(api_key)
        del api_key
        self.base_url = check_base_url(base_url)
        self._allow_http = allow_http
        self._use(key)
        super().__init__(Server(self.base_url), **limits)

    def get(
        self,
        path: str,
        params: Params | None = None,
        *,
        keyed: bool = False,
        signature: str | None = None,
        largest: int = MAX_ANSWER,
    ) -> bytes:
        """Send a GET request, retrying transient failures; the body has at most `largest` bytes."""
        auth = self._secrets(hide(signature), keyed)
        del signature
        return self._retry(self._request("GET", path, auth, {"params": params or {}}, largest))

    def post(self, path: str, body: bytes, *, signature: str) -> bytes:
        """Send a POST request exactly once, following no redirect."""
        payload = {"data": hide(body), "headers": {"Content-Type": "application/json"}}
        auth = self._secrets(hide(signature), keyed=False)
        del body, signature
        return self._exchange(self._request("POST", path, auth, payload, MAX_ANSWER)).unwrap()

    def with_key(self, api_key: str) -> Self:
        """Return the same transport with another API key; connections and pacing are shared."""
        key = hide(api_key)
        del api_key
        other = copy.copy(self)
        other._use(key)
        return other

    def _request(self, method: str, path: str, auth: Secrets, payload: dict[str, Any], largest: int) -> Request:
        endpoint, url = f"{method} /api/v3{path}", f"{self.base_url}/api/v3{path}"
        budget = Budget.active() or self.new_budget()
        return Request(self.server, endpoint, method, url, auth, payload, largest, budget)

    def _read_error(self, status: int, body: bytes, endpoint: str) -> tuple[LabError | None, bool]:
        return relayer_error(status, body, endpoint), status in TRANSIENT_STATUSES

    def _use(self, key: SecretText | None) -> None:
        self._key = self._checked("api_key", key)
        self._keyed, self._unkeyed = Secrets(self._key), Secrets(self._key, send=False)

    def _checked(self, name: str, secret: SecretText | None) -> SecretText | None:
        """Return a secret that can be sent to this address, or refuse it."""
        checked = check_header(name, secret)
        if checked and not self._allow_http and not is_confidential(self.base_url):
            raise LabError(
                f"{self.base_url}: over plain http, anyone on the way can read an API key or a signature. "
                "Give an https address, or connect(..., allow_http=True) if the network is trusted."
            )
        return checked

    def _secrets(self, signature: SecretText | None, keyed: bool) -> Secrets:
        if signature is not None:
            return Secrets(signature=self._checked("signature", signature))
        return self._keyed if keyed else self._unkeyed


def one_operation(method: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Have a method of a client do all its work on one budget of time and bytes."""

    @functools.wraps(method)
    def on_budget(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        client: Any = args[0]
        with client._transport.new_budget().activate():
            return method(*args, **kwargs)

    return on_budget


def relayer_error(status: int, body: bytes, endpoint: str) -> RelayerError | None:
    """Return the error that an answer reports, in any of the shapes relayers use, or None."""
    if status < 400 and b'"resultInfo"' not in body[:4096] and b'"code"' not in body[:256]:
        return None
    code, reason = _code_and_message(body)
    if status < 400 and not code:
        return None
    kind, hint = RelayerError, HINTS.get(code or 0)
    if status == 429:
        kind, hint = RateLimited, _SLOW_DOWN
    elif code in (104001, 104002) or status in (401, 403):
        kind, hint = NotAuthorized, hint or HINTS[104002]
    elif hint is None and status >= 500:
        hint = Server("").try_later
    elif hint is None:
        hint = _NOT_A_RELAYER if reason is None else HINTS[100001]
    return kind(reason or "", status=status, code=code, hint=hint, endpoint=endpoint)


class TooLarge(TransportError):
    """The answer to one request is larger than it may be."""


class Outcome(NamedTuple):
    """The result of one exchange: a body, or an error and whether a retry may help."""

    body: bytes = b""
    error: LabError | None = None
    transient: bool = False
    retry_after: float | None = None

    def unwrap(self) -> bytes:
        if self.error:
            raise self.error
        return self.body


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
    private: bool = False

    @property
    def is_sent_once(self) -> bool:
        return self.method == "POST" and self.auth.is_signed

    def error(
        self, problem: str, hint: str = "", kind: type[TransportError] = TransportError, **received: bool
    ) -> TransportError:
        """Return an error that says what happened, what to do, and at its end what was asked for."""
        hint = hint or f"Check {self.server.setting}."
        return kind(with_details(f"{problem} {hint}", self.endpoint), **received)

    def pause(self, seconds: float) -> None:
        """Wait for the request's turn, if the budget allows it."""
        if seconds >= self.budget.seconds_left:
            raise self.budget.exceeded(f"A request's turn would come in {seconds:.1f} s ({self.endpoint})")
        self.budget.pause(seconds)

    def is_out_of_time(self, state: tenacity.RetryCallState) -> bool:
        """Return whether the operation would be over before the next attempt."""
        return state.upcoming_sleep >= self.budget.seconds_left

    def give_up(self, state: tenacity.RetryCallState) -> Outcome:
        """Return the last outcome; if the budget does not allow another attempt, as an error that says so."""
        outcome = _last_outcome(state)
        if outcome.error is None or not self.is_out_of_time(state):
            return outcome
        problem = f"{outcome.error} The next attempt would come after {state.upcoming_sleep:.1f} s"
        was_received = getattr(outcome.error, "maybe_received", False)
        return Outcome(error=self.budget.exceeded(problem, maybe_received=was_received))


class Secrets(AuthBase):
    """Puts secrets on the prepared request, so that no argument and no local variable holds them."""

    def __init__(
        self, key: SecretText | None = None, signature: SecretText | None = None, *, send: bool = True
    ) -> None:
        named = zip(SECRET_HEADERS, (key, signature), strict=True)
        self._headers = {name: value for name, value in named if send and value is not None}
        self.is_signed = signature is not None
        self.redactor = Redactor(key, signature)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update(self._headers)
        return request


class _Session(requests.Session):
    """A session that keeps nothing from one answer to the next, and reads no body by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.headers["Accept-Encoding"] = "gzip"
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self.mount(scheme, CutAdapter(MAX_CONNECTIONS))

    def get_redirect_target(self, resp: requests.Response) -> None:
        """Return no target: `requests` would read the whole body of the answer that redirects."""


def _read_body(response: requests.Response, coding: str, request: Request) -> bytes:
    """Read a body piece by piece, and without the secrets that it repeats."""
    pieces = _metered(iter(lambda: response.raw.read(PIECE, decode_content=False), b""), request)
    if coding != "identity":
        pieces = _metered(_expanded(pieces), request)
    return request.auth.redactor(b"".join(pieces))


def _metered(pieces: Iterable[bytes], request: Request) -> Iterator[bytes]:
    """Pass pieces on for as long as all of them together are allowed."""
    size = 0
    for piece in pieces:
        size += len(piece)
        request.budget.spend(len(piece))
        if size > request.largest:
            problem = f"The answer is larger than {request.largest / (1 << 20):g} MiB."
            raise request.error(problem, kind=TooLarge, maybe_received=True)
        if request.budget.bytes_left < 0:
            problem = "The answers of this operation together are larger than max_bytes."
            hint = f"Allow more: {request.server.function}(..., max_bytes=...)."
            raise request.error(problem, hint, maybe_received=True)
        yield piece


def _expanded(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Expand gzip, never much at once."""
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for compressed in pieces:
        piece = compressed
        while piece:
            if decoder.eof:
                decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield decoder.decompress(piece, PIECE)
            piece = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
    yield decoder.flush()
    if not decoder.eof:
        raise zlib.error("incomplete")


def _truncated(request: Request, problem: str) -> Outcome:
    retried = "" if request.is_sent_once else ", also after retries"
    error = request.error(f"{problem}{retried}.", request.server.try_later, maybe_received=True)
    return Outcome(error=error, transient=True)


def _code_and_message(body: bytes) -> tuple[int | None, str | None]:
    try:
        answer = parse_json(body, "error")
    except UnexpectedAnswer:
        return None, None
    info = answer.get("resultInfo", answer) if isinstance(answer, dict) else None
    if not isinstance(info, dict):
        return None, None
    code, message = str(info.get("code")), info.get("message", info.get("msg"))
    reason = printable(message, 300) if isinstance(message, str) else None
    return int(code) if re.fullmatch(r"-?\d{1,9}", code, re.ASCII) else None, reason


def _late(request: Request, timeout: float, *, maybe_received: bool) -> Outcome:
    hint = f"Try again later, or allow more time: {request.server.function}(..., timeout=...)."
    problem = f"No complete answer arrived within {timeout:g} s."
    return Outcome(error=request.error(problem, hint, RelayerTimeout, maybe_received=maybe_received), transient=True)


def _not_followed(request: Request, how_often: str = "") -> Outcome:
    problem = f"The {request.server.kind} redirects {how_often or 'to an address'}, which is not followed."
    return Outcome(error=request.error(problem))


def _request_failure(error: requests.RequestException | HTTPError, request: Request, timeout: float) -> Outcome:
    server = request.server
    if isinstance(error, requests.Timeout | ReadTimeoutError):
        return _late(request, timeout, maybe_received=_was_sent(error))
    if isinstance(error, requests.exceptions.SSLError):
        hint = "Check the address, and this machine's clock and certificates."
        return Outcome(error=request.error("The server's certificate is not trusted.", hint, RelayerUnreachable))
    if isinstance(error, ProtocolError):
        return _truncated(request, "The answer broke off in the middle")
    if isinstance(error, requests.ConnectionError):
        hint = f"Check {server.setting} and the network; {server.instead}."
        problem, was_sent = f"{server.address} cannot be reached, or drops the connection.", _was_sent(error)
        found = request.error(problem, hint, RelayerUnreachable, maybe_received=was_sent)
        return Outcome(error=found, transient=True)
    return _failed(error, request)


def _failed(error: Exception, request: Request) -> Outcome:
    if isinstance(error, zlib.error):
        return _truncated(request, "The answer is compressed, and damaged")
    exchange = Exchange.current()
    was_sent = exchange is not None and exchange.connected
    problem = f"The request failed ({type(error).__name__})."
    return Outcome(error=request.error(problem, maybe_received=was_sent))


def _was_sent(error: Exception) -> bool:
    """Return False if no connection was made, so that nothing can have been sent."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return not (isinstance(error, requests.ConnectTimeout) or isinstance(reason, NewConnectionError))


def _retry_delay(state: tenacity.RetryCallState) -> float:
    backoff = tenacity.wait_exponential(multiplier=0.1, max=8)(state) + _OWN.uniform(0, 0.1)
    return max(_last_outcome(state).retry_after or 0.0, backoff)


def _last_outcome(state: tenacity.RetryCallState) -> Outcome:
    assert state.outcome  # noqa: S101 - tenacity sets it before it calls this
    outcome: Outcome = state.outcome.result()
    return outcome


def _retry_after_seconds(header: str | None) -> float | None:
    """Parse a Retry-After header, seconds or a date, capped at a minute."""
    seconds = None
    with contextlib.suppress(ValueError, OverflowError):
        seconds = email.utils.parsedate_to_datetime(header or "").timestamp() - time.time()
    with contextlib.suppress(ValueError):
        seconds = float(header or "")
    return None if seconds is None else min(60.0, max(0.0, seconds))


def _drop_what_is_private(record: logging.LogRecord) -> bool:
    """Keep what names accounts or repeats a secret out of urllib3's log: queries, headers, secret paths."""
    exchange = Exchange.current()
    if exchange is None or exchange.private:
        return exchange is None
    if isinstance(record.args, tuple):
        record.args = tuple(arg.partition("?")[0] if isinstance(arg, str) else arg for arg in record.args)
    return record.levelno < logging.WARNING
