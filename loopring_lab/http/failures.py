"""Exchanges that end without a usable answer, each named for what it is."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, NamedTuple

from requests import exceptions
from urllib3.exceptions import (
    HTTPError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)

from loopring_lab.bounded import printable
from loopring_lab.errors import (
    LabError,
    RelayerTimeout,
    RelayerUnreachable,
    TransportError,
)

if TYPE_CHECKING:
    from loopring_lab.http.channel import Request

PROXY_SETTINGS = (
    "Check the environment variables HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY."
)
CERTIFICATE_SETTINGS = (
    "Check the environment variables REQUESTS_CA_BUNDLE and CURL_CA_BUNDLE."
)

# Statuses of HTTP that have the same request sent elsewhere.
UNTAKEN_STATUSES = (307, 308)


class Outcome(NamedTuple):
    """The result of one exchange: a body, or an error and whether another attempt may help."""

    body: bytes = b""
    error: LabError | None = None
    transient: bool = False
    retry_after: float = 0.0

    def unwrap(self) -> bytes:
        if self.error:
            raise self.error
        return self.body


class TooLarge(TransportError):
    """The answer to one request is larger than it may be."""


def failed(error: Exception, request: Request, timeout: float) -> Outcome:
    """Return what an exception of the libraries below means; it holds headers, so it is not chained."""
    server = request.server
    was_sent = not _is_unconnected(error)
    if isinstance(
        error,
        exceptions.ProxyError | exceptions.InvalidURL | exceptions.InvalidSchema,
    ):
        # The address was checked before, so one that requests cannot use is the proxy's.
        return unusable_proxy(request)
    if isinstance(error, exceptions.SSLError):
        problem = "No secure connection can be made, or the server's certificate is not trusted."
        hint = f"Check the address, and this machine's clock. {CERTIFICATE_SETTINGS}"
        return Outcome(error=request.error(problem, hint, RelayerUnreachable))
    if isinstance(error, exceptions.Timeout | ReadTimeoutError):
        problem = f"No complete answer arrived within {timeout:g} s."
        hint = (
            f"Try again later, or allow more time: {server.function}(..., timeout=...)."
        )
        late = request.error(problem, hint, RelayerTimeout, maybe_received=was_sent)
        return Outcome(error=late, transient=True)
    if isinstance(error, exceptions.ConnectionError):
        problem = f"{server.address} cannot be reached, or drops the connection."
        hint = f"Check {server.setting} and the network; {server.instead}."
        found = request.error(
            problem, hint, RelayerUnreachable, maybe_received=was_sent
        )
        return Outcome(error=found, transient=True)
    if isinstance(error, ProtocolError | zlib.error):
        problem = "The answer broke off in the middle, or is damaged."
        hint = f"The problem is on the {server.kind}'s side: try again later."
        broken = request.error(problem, hint, maybe_received=True)
        return Outcome(error=broken, transient=True)
    if isinstance(error, OSError) and not isinstance(
        error, exceptions.RequestException | HTTPError
    ):
        # A plain OSError is of the file of certificates: requests looks for it before it connects.
        problem = (
            "The file of certificates that this machine's settings name cannot be read."
        )
        return Outcome(error=request.error(problem, CERTIFICATE_SETTINGS))
    problem = f"The request failed ({type(error).__name__})."
    return Outcome(error=request.error(problem, maybe_received=was_sent))


def unusable_proxy(request: Request) -> Outcome:
    """Return that a proxy is between here and the server, and cannot be used."""
    problem = "The proxy that this machine's settings name cannot be used."
    return Outcome(error=request.error(problem, PROXY_SETTINGS, RelayerUnreachable))


def redirected(location: str, status: int, request: Request) -> Outcome:
    """Return where the server redirects to: without the query, which may repeat what was asked."""
    place = request.auth.redactor(location.partition("?")[0].encode(errors="replace"))
    named = printable(place.decode(errors="replace"), 200)
    problem = f"The {request.server.kind} redirects to {named}, which is not followed."
    # A server that has not acted asks for the same request elsewhere; other redirects may lead to its outcome.
    was_taken = status not in UNTAKEN_STATUSES
    return Outcome(error=request.error(problem, maybe_received=was_taken))


def _is_unconnected(error: Exception) -> bool:
    """Tell whether an error is of a connection that was never made, so that nothing was sent."""
    cause = error.args[0] if error.args else None
    reason = getattr(cause, "reason", None)
    return isinstance(error, exceptions.ConnectTimeout) or isinstance(
        reason, NewConnectionError
    )
