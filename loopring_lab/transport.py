"""One HTTP exchange with a relayer: pacing, retries, limits, and errors that hold no secret."""

from __future__ import annotations

import contextlib
import copy
import email.utils
import json
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
from urllib3.exceptions import NewConnectionError

from loopring_lab.errors import (
    LabError,
    NotAuthorized,
    RateLimited,
    RelayerError,
    RelayerTimeout,
    RelayerUnreachable,
    TransportError,
)
from loopring_lab.redaction import SecretBytes, SecretText, hide
from loopring_lab.tables.wire import nests_too_deep

MAX_BODY = 64 << 20
MAX_CONNECTIONS = 16
SECRET_HEADERS = ("X-API-KEY", "X-API-SIG")
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
BUSY = "The relayer is in trouble, not the request: try again later."
_SLOWER = "Ask more slowly: connect(..., rate=...), or share one client between notebooks."
_STRANGE = "This does not look like a relayer: check base_url, which ends before /api/v3."
PASSING = (408, 425, 429, 500, 502, 503, 504)

Params = Mapping[str, str | int]


class Transport:
    """Sends requests to one relayer, paced for each endpoint."""

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
        self.base_url = _address(base_url)
        if rate is not None and not rate > 0:
            raise LabError(f"rate={rate}: give requests per second above 0, or None for no limit.")
        self._rate, self._timeout, self._attempts = rate, timeout, attempts
        self._buckets: dict[str, Bucket] = {}
        self._lock = threading.Lock()
        self._session = _Session()
        self._session.trust_env = proxies
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=MAX_CONNECTIONS, max_retries=0))

    def __repr__(self) -> str:
        return f"Transport({self.base_url!r})"

    def get(
        self, path: str, params: Params | None = None, *, keyed: bool = False, signature: str | None = None
    ) -> bytes:
        """Send a GET, tried again where the failure may pass."""
        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=_pause,
            retry=tenacity.retry_if_result(lambda outcome: outcome.passing),
            retry_error_callback=_last,
        )
        auth = _Secrets(self._key if keyed else None, hide(signature))
        del signature
        outcome: Outcome = retrying(self._once, "GET", path, auth, params=params or {})
        if outcome.error:
            raise outcome.error
        return outcome.body

    def post(self, path: str, body: bytes, *, signature: str) -> Outcome:
        """Send a POST once: it is never tried again by itself, and no redirect is followed."""
        auth = _Secrets(None, hide(signature))
        del signature
        return self._once("POST", path, auth, data=SecretBytes(body))

    def with_key(self, api_key: str) -> Self:
        """Return the same transport with another API key; connections and pacing are shared."""
        twin = copy.copy(self)
        twin._key = hide(api_key) or None
        return twin

    def close(self) -> None:
        """Close the connections that are kept open."""
        self._session.close()

    def _once(self, method: str, path: str, auth: _Secrets, **sent: Any) -> Outcome:
        """Exchange bytes once; a failure is returned, so that its traceback has no frame with a secret."""
        what = f"{method} /api/v3{path}"
        with self._lock:
            bucket = self._buckets.setdefault(what, Bucket(self._rate))
        bucket.take()
        posts = method == "POST"
        headers = {"Content-Type": "application/json"} if posts else None
        how: dict[str, Any] = {"timeout": self._timeout, "stream": True, "allow_redirects": not posts}
        try:
            with self._session.request(
                method, f"{self.base_url}/api/v3{path}", auth=auth, headers=headers, **sent, **how
            ) as response:
                return _read(response, what)
        except requests.RequestException as error:
            return _failure(error, what, self._timeout, self.base_url)


class Outcome(NamedTuple):
    """What came of one exchange: a body, or an error that may pass after the pause the relayer asks for.

    ``lost``: the relayer may have acted on the request, although no answer says so.
    """

    body: bytes = b""
    error: LabError | None = None
    passing: bool = False
    pause: float | None = None
    lost: bool = False


class Bucket:
    """Spaces requests evenly, 3.5 % below the rate, so that jitter on the way never exceeds it."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gap = 1.035 / rate if rate else 0.0
        self._clock, self._sleep = clock, sleep
        self._next, self._lock = 0.0, threading.Lock()

    def take(self) -> None:
        """Wait for the next turn."""
        with self._lock:
            now = self._clock()
            turn = max(now, self._next)
            self._next = turn + self._gap
        if turn > now:
            self._sleep(turn - now)


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


def _address(base_url: str) -> str:
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise LabError(
            "base_url: this is not a relayer's address. Give one like https://host or http://127.0.0.1:8000, "
            "without user, password or query; a folder of saved responses is recording=."
        )
    return base_url.rstrip("/").removesuffix("/api/v3")


def _read(response: requests.Response, what: str) -> Outcome:
    gathered = bytearray()
    for chunk in response.iter_content(1 << 16):
        gathered += chunk
        if len(gathered) > MAX_BODY:
            message = f"{what}: the answer is larger than {MAX_BODY >> 20} MiB. Check base_url."
            return Outcome(error=TransportError(message), lost=True)
    if response.is_redirect:
        message = f"{what}: the relayer points to another address, which is not followed. Check base_url."
        return Outcome(error=TransportError(message))
    status, body = response.status_code, bytes(gathered)
    error = relayer_error(status, body, what)
    if error:
        return Outcome(
            error=error,
            passing=status in PASSING,
            pause=_seconds(response.headers.get("Retry-After")),
            lost=status >= 500,
        )
    if body.lstrip()[:1] in b"{[" and not body.rstrip().endswith((b"}", b"]")):
        message = f"{what}: the answer breaks off after {len(body)} bytes{_also(what)}. {BUSY}"
        return Outcome(error=TransportError(message), passing=True, lost=True)
    return Outcome(body)


def relayer_error(status: int, body: bytes, what: str) -> RelayerError | None:
    """Tell whether an answer is a refusal, in any of the shapes relayers use."""
    if status < 400 and b'"resultInfo"' not in body[:4096] and b'"code"' not in body[:256]:
        return None
    code, message = _reason(body)
    if status < 400 and not code:
        return None
    said = f"{what}: {message or 'refused without a reason'}"
    if status == 429:
        return RateLimited(said, status=status, code=code, hint=_SLOWER)
    hint = HINTS.get(code or 0) or (BUSY if status >= 500 else _STRANGE if message is None else HINTS[100001])
    if code in (104001, 104002) or status in (401, 403):
        return NotAuthorized(said, status=status, code=code, hint=HINTS.get(code or 0, HINTS[104002]))
    return RelayerError(said, status=status, code=code, hint=hint)


def _reason(body: bytes) -> tuple[int | None, str | None]:
    try:
        answer = None if nests_too_deep(body) else json.loads(body)
    except ValueError:
        return None, None
    info = answer.get("resultInfo", answer) if isinstance(answer, dict) else None
    if not isinstance(info, dict):
        return None, None
    code, message = info.get("code"), info.get("message", info.get("msg"))
    number = int(str(code)) if re.fullmatch(r"-?\d{1,9}", str(code)) else None
    return number, _printable(message)


def _printable(message: Any) -> str | None:
    if not isinstance(message, str):
        return None
    return "".join(letter if letter.isprintable() else "?" for letter in message[:300])


def _failure(error: requests.RequestException, what: str, timeout: float, base_url: str) -> Outcome:
    if isinstance(error, requests.Timeout):
        hint = "Try again later, or allow more time: connect(..., timeout=...)."
        message = f"{what}: no answer within {timeout:g} s. {hint}"
        return Outcome(error=RelayerTimeout(message), passing=True, lost=not _unsent(error))
    if isinstance(error, requests.exceptions.SSLError):
        hint = "Check the address, and this machine's clock and certificates."
        return Outcome(error=RelayerUnreachable(f"{what}: the server's certificate is not trusted. {hint}"))
    if isinstance(
        error, (requests.exceptions.ChunkedEncodingError, requests.exceptions.ContentDecodingError)
    ):
        message = f"{what}: the answer broke off in the middle{_also(what)}. {BUSY}"
        return Outcome(error=TransportError(message), passing=True, lost=True)
    if isinstance(error, requests.ConnectionError):
        hint = "Check base_url and the network; connect() without arguments works offline."
        message = f"{what}: {base_url} cannot be reached, or drops the connection. {hint}"
        return Outcome(error=RelayerUnreachable(message), passing=True, lost=not _unsent(error))
    return Outcome(error=TransportError(f"{what}: not possible ({type(error).__name__}). Check base_url."))


def _also(what: str) -> str:
    return ", also when asked again" if what.startswith("GET") else ""


def _unsent(error: requests.RequestException) -> bool:
    """Tell whether no connection was made, so that nothing can have been sent."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return isinstance(error, requests.ConnectTimeout) or isinstance(reason, NewConnectionError)


def _pause(state: tenacity.RetryCallState) -> float:
    backoff = (tenacity.wait_exponential(multiplier=0.1, max=8) + tenacity.wait_random(0, 0.1))(state)
    asked = _last(state).pause
    return backoff if asked is None else max(asked, backoff)


def _last(state: tenacity.RetryCallState) -> Outcome:
    assert state.outcome  # noqa: S101 - tenacity sets it before it asks
    found: Outcome = state.outcome.result()
    return found


def _seconds(retry_after: str | None) -> float | None:
    """Read Retry-After, seconds or a date, up to a minute; None where it says neither."""
    with contextlib.suppress(ValueError):
        return min(60.0, max(0.0, float(retry_after or "")))
    with contextlib.suppress(ValueError):
        return min(
            60.0, max(0.0, email.utils.parsedate_to_datetime(retry_after or "").timestamp() - time.time())
        )
    return None


def _without_query(record: logging.LogRecord) -> bool:
    """Keep queries of relayer requests, which name accounts, out of the log of the HTTP library."""
    if isinstance(record.args, tuple):
        record.args = tuple(
            word.partition("?")[0] if isinstance(word, str) and "/api/v3/" in word else word
            for word in record.args
        )
    return True


logging.getLogger("urllib3.connectionpool").addFilter(_without_query)
