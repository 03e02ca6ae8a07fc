"""Exchanges that end without a usable answer, each named for what it is."""

from __future__ import annotations

import ssl
import zlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urljoin

import requests
from requests import exceptions
from urllib3.exceptions import HTTPError, ProtocolError

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


class Outcome(NamedTuple):
    """The result of one exchange: a body, or an error and whether another attempt may help."""

    body: bytes = b""
    error: LabError | None = None
    transient: bool = False
    retry_after: float | None = None

    def unwrap(self) -> bytes:
        if self.error:
            raise self.error
        return self.body


class TooLarge(TransportError):
    """The answer to one request is larger than it may be."""


def failed(error: Exception, request: Request, connected: bool) -> Outcome:
    """Return what an exception of the libraries below means; it holds headers, so it is not chained."""
    server = request.server
    if isinstance(
        error,
        exceptions.ProxyError | exceptions.InvalidURL | exceptions.InvalidSchema,
    ):
        # The address was checked before, so one that requests cannot use is the proxy's.
        return unusable_proxy(request)
    if isinstance(error, exceptions.SSLError):
        return Outcome(error=_insecure(error, request))
    if isinstance(error, exceptions.ConnectionError):
        problem = f"{server.address} cannot be reached, or drops the connection."
        hint = f"Check {server.setting} and the network; {server.instead}."
        found = request.error(
            problem, hint, RelayerUnreachable, maybe_received=connected
        )
        return Outcome(error=found, transient=True)
    if isinstance(error, ProtocolError):
        return broken_off(request, "The answer broke off in the middle")
    if isinstance(error, zlib.error):
        return broken_off(request, "The answer is compressed, and damaged")
    if isinstance(error, OSError) and not isinstance(
        error, requests.RequestException | HTTPError
    ):
        # A plain OSError is of the file of certificates: requests looks for it before it connects.
        problem = (
            "The file of certificates that this machine's settings name cannot be read."
        )
        return Outcome(error=request.error(problem, CERTIFICATE_SETTINGS))
    problem = f"The request failed ({type(error).__name__})."
    return Outcome(error=request.error(problem, maybe_received=connected))


def unusable_proxy(request: Request) -> Outcome:
    """Return that a proxy is between here and the server, and cannot be used."""
    problem = "The proxy that this machine's settings name cannot be used."
    return Outcome(error=request.error(problem, PROXY_SETTINGS, RelayerUnreachable))


def late(request: Request, timeout: float, *, connected: bool) -> Outcome:
    """Return that no whole answer came within the timeout."""
    problem = f"No complete answer arrived within {timeout:g} s."
    hint = f"Try again later, or allow more time: {request.server.function}(..., timeout=...)."
    return Outcome(
        error=request.error(problem, hint, RelayerTimeout, maybe_received=connected),
        transient=True,
    )


def broken_off(request: Request, problem: str) -> Outcome:
    """Return that an answer is not whole."""
    retried = "" if request.is_sent_once else ", also after retries"
    error = request.error(
        f"{problem}{retried}.", request.server.try_later, maybe_received=True
    )
    return Outcome(error=error, transient=True)


def redirected(location: str, request: Request) -> Outcome:
    """Return where the server redirects to: without its query, which may repeat what was asked."""
    try:
        target = urljoin(request.url, location)
    except ValueError:
        target = location
    place = request.auth.redactor(target.partition("?")[0].encode(errors="replace"))
    named = printable(place.decode(errors="replace"), 200)
    problem = f"The {request.server.kind} redirects to {named}, which is not followed."
    return Outcome(error=request.error(problem))


def _insecure(error: exceptions.SSLError, request: Request) -> TransportError:
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    cause = reason.args[0] if isinstance(reason, HTTPError) and reason.args else None
    if isinstance(cause, ssl.SSLError) and not isinstance(
        cause, ssl.SSLCertVerificationError
    ):
        problem = "No secure connection can be made."
        hint = (
            f"Check the address, which may not be one for https. {CERTIFICATE_SETTINGS}"
        )
    else:
        problem = "The server's certificate is not trusted."
        hint = f"Check the address, and this machine's clock and certificates. {CERTIFICATE_SETTINGS}"
    return request.error(problem, hint, RelayerUnreachable)
