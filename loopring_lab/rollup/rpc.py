"""A JSON-RPC client of Ethereum endpoints: batches, retries, and an address that is never shown."""

from __future__ import annotations

import itertools
import json
import re
from base64 import b64encode
from collections import deque
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlunsplit

import requests

from loopring_lab.bounded import (
    MAX_ANSWER,
    MAX_INT64,
    parse_json,
    printable,
    shown,
    whole_or_text,
)
from loopring_lab.errors import (
    LabError,
    RelayerUnreachable,
    RpcError,
    TransportError,
    UnexpectedAnswer,
    with_details,
)
from loopring_lab.http.addresses import is_confidential, split_rpc_address
from loopring_lab.http.channel import (
    TRANSIENT_STATUSES,
    Channel,
    Request,
    Secrets,
    Server,
)
from loopring_lab.redaction import Redactor, SecretText, hide, shielded

VARIABLE = "LOOPRING_RPC_URL"
BATCH = 20  # calls at once to begin with; halved where an endpoint refuses that many
ATTEMPTS = 8
MOST_PAUSE = 8.0  # seconds, where an endpoint refuses calls of a batch for their rate
FIRST_PAUSE = 0.2

# JSON-RPC has no codes for too many requests, a wrong key, and logs that are not there, so the words tell that
# endpoints use. A refusal in other words is about what was asked for.
_RATE = re.compile(
    r"\brate\b|too many requests|request limit|requests? (count )?(per|exceed)|per (second|minute|day|month)"
    r"|throughput|capacity|compute units|quota|credits|throttl|slow down|try again|temporar|busy|overloaded",
    re.IGNORECASE,
)
# In a refusal of logs these words are about the range that was asked for, whatever else is said.
_EXTENT = re.compile(
    r"\b(block|height|epoch|log|result|event)s?\b|range|span|interval|window|size|large|smaller|narrow"
    r"|time(d )?out|time limit|deadline",
    re.IGNORECASE,
)
_NO_ACCESS = re.compile(
    r"api.?key|unauthori[sz]|authenticat|credential|project id",
    re.IGNORECASE,
)
# "limit exceeded" and "internal error" of JSON-RPC, which endpoints send when they are busy.
_BUSY_CODES = (-32005, -32603)
_TOO_MUCH = (413, 504)  # HTTP: content too large, gateway timeout
# Tables of pandas have whole numbers as floats where some are unknown; those of a float are exact up to 2^53.
_WHOLE = re.compile(r"[0-9]{1,19}(\.0+)?")
_EXACT = {float: 1 << 53, Decimal: MAX_INT64}
# How yes and no are written; tables of pandas have floats where some are unknown.
_YES_OR_NO = re.compile(r"(?i)(?P<yes>1(\.0)?|0x1|true)|0(\.0)?|0x0|false")
_QUANTITY = re.compile("0[xX][0-9a-fA-F]{1,64}")

# Endpoints say in words of their own that they no longer keep what is so old, or are still reading the chain.
_OTHERWISE = "Run sync again later, or with another endpoint, such as an archive node; check the arguments."
_KEY = f"It does not accept the key in its address: check {VARIABLE}."
_NOT_AN_ENDPOINT = (
    "This does not look like an Ethereum endpoint: check the RPC address."
)
_OTHER = "The endpoint answered other than documented:"
_UNDOCUMENTED = "Try again, or use another endpoint."
_ANOTHER = "Get it again, from another endpoint or export if need be."
_SLOW_DOWN = "Send fewer requests: sync(..., rate=...); or run it again later, or use another endpoint."


class Call(NamedTuple):
    """A method and its parameters."""

    method: str
    parameters: Sequence[Any]


class TooMuch(RpcError):
    """The question asks for more than the endpoint answers at once."""


class Busy(RpcError):
    """The endpoint may answer later."""


class Rpc(Channel):
    """Asks one Ethereum endpoint, in batches where it allows them."""

    def __init__(
        self,
        address: str,
        *,
        allow_http: bool = False,
        **limits: Any,
    ) -> None:
        secret = hide(address)
        del address
        self._address = _Address(secret, allow_http=allow_http)
        server = Server(
            self._address.shown,
            "endpoint",
            "the RPC address",
            "sync",
            "run sync again to resume",
        )
        super().__init__(server, attempts=ATTEMPTS, **limits)
        self.batch = BATCH  # calls at once; workers share it, and it only shrinks
        self._ids = itertools.count(1)

    def ask(self, method: str, *parameters: Any) -> Any:
        """Return the result of one call, or raise an `RpcError`."""
        # An answer to another request, such as a late one, must not be taken for this one.
        number = next(self._ids)
        endpoint = f"{method} at {self.server.address}"
        answer = self._exchange_json(
            endpoint, _request_object(number, Call(method, parameters))
        )
        if not isinstance(answer, dict) or str(answer.get("id")) != str(number):
            raise undocumented(endpoint, f"the answer to request {number}", answer)
        found = _outcome(answer, endpoint)
        if isinstance(found, RpcError):
            raise found
        return found

    def ask_many(self, calls: Sequence[Call]) -> list[Any]:
        """Return the results of calls in their order; in place of one that is refused, its `RpcError`."""
        answers: list[Any] = [None] * len(calls)
        waiting = deque(range(len(calls)))
        refusals = 0  # of batches in a row
        while waiting:
            count = min(max(1, self.batch), len(waiting))
            places = [waiting.popleft() for _ in range(count)]
            found = self._ask_some([calls[place] for place in places])
            # A single call that is refused for the rate was sent again already, by the channel.
            is_busy = len(places) > 1 and any(
                isinstance(one, Busy) for one in found.values()
            )
            refusals = refusals + 1 if is_busy else 0
            may_retry = is_busy and refusals < self._attempts
            for at, place in enumerate(places):
                is_missing = at not in found
                if is_missing or (may_retry and isinstance(found[at], Busy)):
                    waiting.append(place)
                else:
                    answers[place] = found[at]
            if is_busy:
                self.pause(min(MOST_PAUSE, FIRST_PAUSE * 2 ** (refusals - 1)))
        return answers

    def _ask_some(self, calls: list[Call]) -> dict[int, Any]:
        """Ask together; what is not in the answer is to be asked again, in a smaller batch."""
        if len(calls) == 1:
            [call] = calls
            try:
                return {0: self.ask(call.method, *call.parameters)}
            except RpcError as error:
                return {0: error.with_traceback(None)}
        try:
            return self._ask_batch(calls)
        except RelayerUnreachable:
            # Smaller batches do not help where nobody answers.
            raise
        except (TransportError, RpcError):
            # Some endpoints refuse batches, or end where one is too long for them.
            self._shrink(len(calls))
            return {}

    def _ask_batch(self, calls: list[Call]) -> dict[int, Any]:
        endpoint = (
            f"{calls[0].method} ({len(calls)} in a batch) at {self.server.address}"
        )
        numbers = [next(self._ids) for _ in calls]
        objects = [
            _request_object(number, call)
            for number, call in zip(numbers, calls, strict=True)
        ]
        answer = self._exchange_json(endpoint, objects)
        if not isinstance(answer, list):
            raise undocumented(endpoint, "a list of answers", answer)
        place_of = {str(number): place for place, number in enumerate(numbers)}
        found: dict[int, Any] = {}
        for one in answer:
            place = place_of.get(str(one.get("id"))) if isinstance(one, dict) else None
            if place is None:
                # This answers nothing that was asked for.
                continue
            where = f"{calls[place].method} at {self.server.address}"
            found[place] = _outcome(one, where)
        if len(found) < len(calls):
            self._shrink(len(calls))
        return found

    def _shrink(self, refused: int) -> None:
        with self._lock:
            self.batch = min(self.batch, max(1, refused // 2))

    def _exchange_json(self, endpoint: str, content: Any) -> Any:
        request = Request(
            self.server,
            endpoint,
            "POST",
            f"{self.server.address.removesuffix('/…')}/",  # in place of which `_Address` puts the real one
            self._address,
            {
                "data": json.dumps(content),
                "headers": {"Content-Type": "application/json"},
            },
        )
        return _parse(self._retry(request), endpoint)

    def _read_error(
        self, status: int, body: bytes, endpoint: str
    ) -> tuple[LabError | None, bool]:
        """Return the error that an answer is, if it is one, and whether to ask again."""
        # Some endpoints send errors with HTTP 200; parsing each answer twice would cost as much as reading it.
        refusal = None
        if body.lstrip()[:1] == b"{" and b'"error"' in body:
            try:
                answer = _parse(body, endpoint)
            except RpcError as error:
                return error, False
            refusal = answer.get("error")
        if status < 400 and refusal is None:
            return None, False
        found = refused(refusal, endpoint, status)
        is_transient = status in TRANSIENT_STATUSES and type(found) is RpcError
        return found, is_transient or isinstance(found, Busy)


class _Address(Secrets):
    """Puts the address on the prepared request, so that no argument and no local variable holds it."""

    @shielded
    def __init__(self, address: SecretText, *, allow_http: bool) -> None:
        super().__init__()
        parts = split_rpc_address(address)
        host = parts.netloc.rpartition("@")[2]
        base = f"{parts.scheme}://{host}"
        hidden = "@" in parts.netloc or parts.query or parts.path.strip("/")
        self.shown = f"{base}/…" if hidden else base
        if not allow_http and not is_confidential(base):
            raise LabError(
                f"{self.shown}: over plain http, anyone on the way can read the address, and change answers. "
                "Give an https address, or sync(..., allow_http=True) if the network is trusted."
            )
        self._url = SecretText(
            urlunsplit((parts.scheme, host, parts.path or "/", parts.query, ""))
        )
        user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        self._basic = SecretText(
            b64encode(user.encode()).decode() if "@" in parts.netloc else ""
        )
        self.redactor = Redactor(*map(SecretText, _pieces(parts)), self._basic)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.url = self._url[:]
        if self._basic:
            request.headers["Authorization"] = SecretText("Basic " + self._basic[:])
        return request


def _pieces(parts: Any) -> set[str]:
    """Return what an endpoint might repeat of its address."""
    named = {
        parts.path.strip("/"),
        parts.query,
        parts.username or "",
        parts.password or "",
    }
    named.update(parts.path.split("/"))
    named.update(parts.query.split("&"))
    named.update(value for _, value in parse_qsl(parts.query))
    return named.union(map(unquote, named))


def undocumented(where: str, expected: str, got: object) -> RpcError:
    """Return the error of an answer that is other than documented."""
    return RpcError(
        with_details(
            f"{_OTHER} expected {expected}, got {shown(got)}. {_UNDOCUMENTED}",
            where,
        )
    )


def number(value: object, where: str, most: int = MAX_INT64) -> int:
    """Read a whole number of at most 63 bits: as such, as a decimal or a float, or as text, such as ``0x1f`` or ``31``.

    An exponent is refused: programs that write one have cut the number to the digits before it.
    """
    found: Any = value
    if isinstance(value, str) and _QUANTITY.fullmatch(value):
        found = int(value, 16)
    elif isinstance(value, str) and _WHOLE.fullmatch(value):
        found = int(value.partition(".")[0])
    elif isinstance(value, (float, Decimal)) and 0 <= value <= _EXACT[type(value)]:
        found = int(value) if value == int(value) else value
    if type(found) is not int or not 0 <= found <= most:
        raise unexpected(where, f"a whole number from 0 to {most:,}", value)
    return found


def yes_or_no(value: object, where: str) -> bool:
    """Read yes or no, however it is written."""
    found = _YES_OR_NO.fullmatch(str(value).strip())
    if not found:
        raise unexpected(where, "1 or 0, or true or false", value)
    return bool(found["yes"])


def octets(value: object, where: str, size: int | None = None) -> bytes:
    """Read bytes, or their text in hex, of a given length if one is given."""
    found = value
    # Tables of public datasets have the text as bytes, too; one hash in 65,536 begins with those of 0x itself.
    if isinstance(value, bytes) and value[:2] == b"0x" and len(value) != size:
        value = value.decode("ascii", "replace")
    if isinstance(value, str):
        try:
            found = bytes.fromhex(value.strip().removeprefix("0x"))
        except ValueError:
            found = None
    if not isinstance(found, bytes) or size not in (None, len(found)):
        expected = "hex text" if size is None else f"{size} bytes in hex"
        raise unexpected(where, expected, value)
    return found


def unexpected(where: str, expected: str, value: object) -> UnexpectedAnswer:
    """Return the error of a value in an answer, or in a file, that is not as Ethereum's JSON has it."""
    got = shown(value, 60)
    return UnexpectedAnswer(where, expected=expected, got=got, hint=_ANOTHER)


def refused(refusal: object, endpoint: str, status: int = 200) -> RpcError:
    """Return the error that an endpoint reports, by what is to be done about it."""
    record = refusal if isinstance(refusal, dict) else {"message": refusal}
    code = record.get("code")
    text = record.get("message")
    # The text is not trusted, so it is cut, and goes without control characters.
    reason = printable(text.rstrip("."), 300) if isinstance(text, str) else ""
    details = [endpoint]
    if isinstance(code, int):
        details.append(f"code {code}")
    if status != 200:
        details.append(f"HTTP {status}")
    verb = "failed" if status >= 500 else "refused"
    problem = (
        f"The endpoint {verb}: {reason}."
        if reason
        else f"The endpoint {verb} without a reason."
    )
    kind, hint = _advice(refusal, code, reason, endpoint, status)
    return kind(with_details(f"{problem} {hint}", *details))


def _advice(
    refusal: object,
    code: object,
    reason: str,
    endpoint: str,
    status: int,
) -> tuple[type[RpcError], str]:
    # Only eth_getLogs has a range that can be halved.
    is_of_logs = endpoint.startswith("eth_getLogs")
    # "Too many requests" of HTTP, which some endpoints send as their code.
    if 429 in (status, code):
        return Busy, _SLOW_DOWN
    if is_of_logs and (status in _TOO_MUCH or _EXTENT.search(reason)):
        return TooMuch, _OTHERWISE
    # HTTP 400 says that the request itself is wrong, whatever words come with it.
    if status != 400 and _RATE.search(reason):
        return Busy, _SLOW_DOWN
    if status in (401, 403) or _NO_ACCESS.search(reason):
        return RpcError, _KEY
    is_answer = status < 500 or (status == 500 and bool(reason))
    if is_of_logs and is_answer:
        return TooMuch, _OTHERWISE
    if isinstance(code, int) and code in _BUSY_CODES:
        return Busy, _SLOW_DOWN
    if refusal is None and status < 500:
        return RpcError, _NOT_AN_ENDPOINT
    return RpcError, _OTHERWISE


def _request_object(identity: int, call: Call) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": identity,
        "method": call.method,
        "params": list(call.parameters),
    }


def _parse(body: bytes, endpoint: str) -> Any:
    try:
        return parse_json(
            body,
            endpoint,
            size=MAX_ANSWER,
            number=whole_or_text,
            hint=_NOT_AN_ENDPOINT,
        )
    except UnexpectedAnswer as error:
        problem = (
            f"{_OTHER} expected {error.expected}, got {error.got}. {_NOT_AN_ENDPOINT}"
        )
    raise RpcError(with_details(problem, endpoint))


def _outcome(answer: dict[str, Any], endpoint: str) -> Any:
    """Return the result of a call, or its error."""
    if answer.get("error") is not None:
        return refused(answer["error"], endpoint)
    if "result" not in answer:
        return undocumented(endpoint, "a result or an error", answer)
    return answer["result"]
