"""One HTTP exchange with a relayer: pacing, retries, limits, and errors that hold no secret."""

from __future__ import annotations

import contextlib
import copy
import email.utils
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import requests
import tenacity
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.exceptions import ChunkedEncodingError, ContentDecodingError, SSLError
from urllib3.exceptions import NewConnectionError

from loopring_lab.bounded import MAX_ANSWER, parse_json
from loopring_lab.errors import (
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    RelayerTimeout,
    RelayerUnreachable,
    TransportError,
    UnexpectedAnswer,
)
from loopring_lab.redaction import SecretBytes, SecretText, hide

MAX_BODY = 64 << 20
MAX_CONNECTIONS = 16
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
_TRY_LATER = "The problem is on the relayer's side: try again later."
_SLOW_DOWN = "Send fewer requests: connect(..., rate=...), or share one client between notebooks."
_NOT_A_RELAYER = "This does not look like a relayer: check base_url, which ends before /api/v3."

Params = Mapping[str, str | int]


class Transport:
    """Sends requests to one relayer, paced for each endpoint.

    `get` and `post` return the body of the answer, or raise a `RelayerError` or a `TransportError`. The
    ``maybe_received`` of either error tells whether the relayer may have acted on the request all the same.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        rate: float | None = 5.0,
        timeout: float = 15.0,
        attempts: int = 6,
        proxies: bool = True,
    ) -> None:
        self._key: SecretText | None = hide(api_key) or None
        self.base_url = _normalized(base_url)
        if rate is not None and not rate > 0:
            raise LabError(f"rate={rate}: give requests per second above 0, or None for no limit.")
        self._rate, self._timeout, self._attempts = rate, timeout, attempts
        self._limiters: dict[str, RateLimiter] = {}
        self._lock = threading.Lock()
        self._session = _Session()
        self._session.trust_env = proxies
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=MAX_CONNECTIONS, max_retries=0))
        logging.getLogger("urllib3.connectionpool").addFilter(_drop_query)

    def __repr__(self) -> str:
        return f"Transport({self.base_url!r})"

    def get(
        self, path: str, params: Params | None = None, *, keyed: bool = False, signature: str | None = None
    ) -> bytes:
        """Send a GET request, retrying transient failures."""
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=_retry_delay,
            retry=tenacity.retry_if_result(lambda outcome: outcome.transient),
            retry_error_callback=_last_outcome,
        )
        auth = _Secrets(self._key if keyed else None, hide(signature))
        del signature
        outcome: _Outcome = retrying(self._exchange, "GET", path, auth, params=params or {})
        return outcome.unwrap()

    def post(self, path: str, body: bytes, *, signature: str) -> bytes:
        """Send a POST request exactly once, following no redirect."""
        auth = _Secrets(None, hide(signature))
        del signature
        return self._exchange("POST", path, auth, data=SecretBytes(body)).unwrap()

    def with_key(self, api_key: str) -> Self:
        """Return the same transport with another API key; connections and pacing are shared."""
        other = copy.copy(self)
        other._key = hide(api_key) or None
        return other

    def close(self) -> None:
        self._session.close()

    def _exchange(self, method: str, path: str, auth: _Secrets, **payload: Any) -> _Outcome:
        """Exchange bytes once; an error is returned, so that its traceback has no frame with a secret."""
        endpoint = f"{method} /api/v3{path}"
        with self._lock:
            limiter = self._limiters.setdefault(endpoint, RateLimiter(self._rate))
        limiter.wait()
        is_post = method == "POST"
        headers = {"Content-Type": "application/json"} if is_post else None
        options: dict[str, Any] = {"timeout": self._timeout, "stream": True, "allow_redirects": not is_post}
        try:
            with self._session.request(
                method, f"{self.base_url}/api/v3{path}", auth=auth, headers=headers, **payload, **options
            ) as response:
                return _read_response(response, endpoint)
        except requests.RequestException as error:
            return _request_failure(error, endpoint, self._timeout, self.base_url)


class RateLimiter:
    """Spaces requests evenly, 3.5 % below the rate, so that network jitter never exceeds it."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap = 1.035 / rate if rate else 0.0
        self._clock, self._sleep = clock, sleep
        self._next, self._lock = 0.0, threading.Lock()

    def wait(self) -> None:
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._gap
        if turn > now:
            self._sleep(turn - now)


def relayer_error(status: int, body: bytes, endpoint: str) -> RelayerError | None:
    """Return the error that an answer reports, in any of the shapes relayers use, or None."""
    if status < 400 and b'"resultInfo"' not in body[:4096] and b'"code"' not in body[:256]:
        return None
    code, reason = _code_and_message(body)
    if status < 400 and not code:
        return None
    message = f"{endpoint}: {reason or 'refused without a reason'}"
    if status == 429:
        return RateLimited(message, status=status, code=code, hint=_SLOW_DOWN)
    hint = HINTS.get(code or 0)
    if code in (104001, 104002) or status in (401, 403):
        return NotAuthorized(message, status=status, code=code, hint=hint or HINTS[104002])
    if hint is None and status >= 500:
        hint = _TRY_LATER
    elif hint is None:
        hint = _NOT_A_RELAYER if reason is None else HINTS[100001]
    return RelayerError(message, status=status, code=code, hint=hint)


class _Outcome(NamedTuple):
    """The result of one exchange: a body, or an error and whether a retry may help."""

    body: bytes = b""
    error: LabError | None = None
    transient: bool = False
    retry_after: float | None = None

    def unwrap(self) -> bytes:
        if self.error:
            raise self.error
        return self.body


class _Secrets(AuthBase):
    """Puts secrets on the prepared request, so that no argument and no local variable holds them."""

    def __init__(self, key: SecretText | None, signature: SecretText | None = None) -> None:
        self._values = dict(zip(SECRET_HEADERS, (key, signature), strict=True))

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers.update({name: value[:] for name, value in self._values.items() if value is not None})
        return request


class _Session(requests.Session):
    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """On a redirect to another host, leave the secrets behind."""
        if self.should_strip_auth(  # type: ignore[no-untyped-call]
            str(response.request.url), str(prepared_request.url)
        ):
            for name in SECRET_HEADERS:
                prepared_request.headers.pop(name, None)


def _normalized(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise LabError(
            "base_url: this is not a relayer's address. Give one like https://host or http://127.0.0.1:8000, "
            "without user, password or query; a folder of saved responses is recording=."
        )
    return base_url.rstrip("/").removesuffix("/api/v3")


def _read_response(response: requests.Response, endpoint: str) -> _Outcome:
    received = bytearray()
    for chunk in response.iter_content(1 << 16):
        received += chunk
        if len(received) > MAX_BODY:
            message = f"{endpoint}: the answer is larger than {MAX_BODY >> 20} MiB. Check base_url."
            return _Outcome(error=TransportError(message, maybe_received=True))
    if response.is_redirect:
        message = f"{endpoint}: the relayer redirects to another address, which is not followed."
        return _Outcome(error=TransportError(f"{message} Check base_url."))
    status, body = response.status_code, bytes(received)
    error = relayer_error(status, body, endpoint)
    if error:
        wait = _retry_after_seconds(response.headers.get("Retry-After"))
        return _Outcome(error=error, transient=status in TRANSIENT_STATUSES, retry_after=wait)
    if body.lstrip()[:1] in b"{[" and not body.rstrip().endswith((b"}", b"]")):
        return _truncated(endpoint, f"the answer breaks off after {len(body)} bytes")
    return _Outcome(body)


def _truncated(endpoint: str, problem: str) -> _Outcome:
    retried = ", also after retries" if endpoint.startswith("GET") else ""
    error = TransportError(f"{endpoint}: {problem}{retried}. {_TRY_LATER}", maybe_received=True)
    return _Outcome(error=error, transient=True)


def _code_and_message(body: bytes) -> tuple[int | None, str | None]:
    try:
        answer = parse_json(body, "the error", size=MAX_ANSWER)
    except UnexpectedAnswer:
        return None, None
    info = answer.get("resultInfo", answer) if isinstance(answer, dict) else None
    if not isinstance(info, dict):
        return None, None
    code, message = str(info.get("code")), info.get("message", info.get("msg"))
    return int(code) if re.fullmatch("-?[0-9]{1,9}", code) else None, _printable(message)


def _printable(message: Any) -> str | None:
    if not isinstance(message, str):
        return None
    return "".join(letter if letter.isprintable() else "?" for letter in message[:300])


def _request_failure(
    error: requests.RequestException, endpoint: str, timeout: float, base_url: str
) -> _Outcome:
    if isinstance(error, requests.Timeout):
        hint = "Try again later, or allow more time: connect(..., timeout=...)."
        message = f"{endpoint}: no answer within {timeout:g} s. {hint}"
        return _Outcome(error=RelayerTimeout(message, maybe_received=_was_sent(error)), transient=True)
    if isinstance(error, SSLError):
        hint = "Check the address, and this machine's clock and certificates."
        message = f"{endpoint}: the server's certificate is not trusted. {hint}"
        return _Outcome(error=RelayerUnreachable(message))
    if isinstance(error, ChunkedEncodingError | ContentDecodingError):
        return _truncated(endpoint, "the answer broke off in the middle")
    if isinstance(error, requests.ConnectionError):
        hint = "Check base_url and the network; connect() without arguments works offline."
        message = f"{endpoint}: {base_url} cannot be reached, or drops the connection. {hint}"
        return _Outcome(error=RelayerUnreachable(message, maybe_received=_was_sent(error)), transient=True)
    problem = f"the request failed ({type(error).__name__})"
    return _Outcome(error=TransportError(f"{endpoint}: {problem}. Check base_url."))


def _was_sent(error: requests.RequestException) -> bool:
    """Return False if no connection was made, so that nothing can have been sent."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return not (isinstance(error, requests.ConnectTimeout) or isinstance(reason, NewConnectionError))


def _retry_delay(state: tenacity.RetryCallState) -> float:
    backoff = (tenacity.wait_exponential(multiplier=0.1, max=8) + tenacity.wait_random(0, 0.1))(state)
    return max(_last_outcome(state).retry_after or 0.0, backoff)


def _last_outcome(state: tenacity.RetryCallState) -> _Outcome:
    assert state.outcome  # noqa: S101 - tenacity sets it before it calls this
    outcome: _Outcome = state.outcome.result()
    return outcome


def _retry_after_seconds(header: str | None) -> float | None:
    """Parse a Retry-After header, seconds or a date, capped at a minute."""
    seconds = None
    with contextlib.suppress(ValueError):
        seconds = email.utils.parsedate_to_datetime(header or "").timestamp() - time.time()
    with contextlib.suppress(ValueError):
        seconds = float(header or "")
    return None if seconds is None else min(60.0, max(0.0, seconds))


def _drop_query(record: logging.LogRecord) -> bool:
    """Keep the queries of relayer requests, which name accounts, out of urllib3's debug log."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            arg.partition("?")[0] if isinstance(arg, str) and "/api/v3/" in arg else arg
            for arg in record.args
        )
    return True
