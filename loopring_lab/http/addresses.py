"""Addresses, header values and numbers that a transport is given, checked before they are used."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import re
from numbers import Real
from urllib.parse import SplitResult, urlsplit

from loopring_lab.bounded import shown
from loopring_lab.errors import LabError
from loopring_lab.redaction import SecretText, hide, shielded

DAY = 86_400.0  # seconds

# Only characters that every reader of an address understands alike; browsers take a backslash for a slash.
_PLAIN = re.compile(r"[!-\[\]-~]+")
# RFC 1035: at most 253 letters before a last point, 63 between points; underscores occur in practice.
_HOST_NAME = re.compile(r"(?=.{1,254}$)[\w-]{1,63}(\.[\w-]{1,63})*\.?", re.ASCII)


@shielded
def check_base_url(base_url: SecretText) -> str:
    """Return a relayer's address without what follows its root; the error does not repeat it."""
    parts = _split(base_url)
    if parts is None or "@" in parts.netloc or parts.query or parts.fragment:
        raise LabError(
            "base_url: this is not a relayer's address. Give one like https://host or http://127.0.0.1:8000, "
            "without user, password or query; a folder of saved responses is recording=."
        )
    # Requests are signed with this address, and sent to it with the server's name in lower case.
    sent = parts._replace(netloc=parts.netloc.lower()).geturl()
    return sent.rstrip("/").removesuffix("/api/v3")


def split_rpc_address(address: object) -> SplitResult:
    """Return the parts of an Ethereum endpoint's address; the error repeats nothing of it."""
    parts = _split(address)
    if parts is None or parts.fragment:
        raise LabError(
            "rpc: this is not an address of an Ethereum endpoint. Give one like https://host/key, or set "
            "LOOPRING_RPC_URL."
        )
    return parts


def is_confidential(url: str) -> bool:
    """Return whether nobody on the way can read what is sent: https, or a server on this machine."""
    return urlsplit(url).scheme == "https" or is_loopback(url)


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def check_header(name: str, value: object) -> SecretText | None:
    """Return a secret that can be sent as a header, or None if there is none; the error does not show it."""
    secret = hide(value)
    del value
    if not secret:
        return None
    if not isinstance(secret, SecretText):
        raise LabError(f"{name}: expected text, which is how relayers give it.")
    if secret != secret.strip():
        raise LabError(
            f"{name}: it begins or ends with white space. Read it with .strip()."
        )
    unsuitable = re.search("[^ -~]", secret)
    if unsuitable:
        raise LabError(
            f"{name}: character {unsuitable.start() + 1} of {len(secret)} cannot be sent, because it is not "
            "printable ASCII. Copy it again."
        )
    return secret


def check_rate(value: object) -> float | None:
    """Return a number above 0, or None for no limit."""
    if value is None:
        return None
    return check_number(
        "rate", value, "requests per second", otherwise=", or None for no limit"
    )


def check_number(
    name: str,
    value: object,
    unit: str,
    *,
    most: float = math.inf,
    otherwise: str = "",
) -> float:
    """Return a number above 0."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # of an integer beyond every float
            number = float(value)
    if not 0 < number <= most or math.isinf(number):
        limit = f" and at most {most:g}" if most < math.inf else otherwise
        raise LabError(f"{name}={shown(value, 40)}: give {unit} above 0{limit}.")
    return number


def _split(url: object) -> SplitResult | None:
    """Return the parts of an http address, or None if it is none."""
    if not isinstance(url, str) or not _PLAIN.fullmatch(url):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # of brackets, and of a port that is no number
        return None
    host = parts.hostname or ""
    # Only an address in brackets has a colon, and urlsplit has checked that.
    is_host = ":" in host or _HOST_NAME.fullmatch(host)
    if parts.scheme not in ("http", "https") or port == 0 or not is_host:
        return None
    return parts
