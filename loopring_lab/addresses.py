"""Addresses, header values and numbers that a transport is given, checked before they are used."""

from __future__ import annotations

import contextlib
import ipaddress
import math
import re
from numbers import Real
from urllib.parse import SplitResult, urljoin, urlsplit

from loopring_lab.bounded import shown
from loopring_lab.errors import LabError
from loopring_lab.redaction import SecretText, hide

DAY = 86_400.0
_NOT_AN_ADDRESS = (
    "base_url: this is not a relayer's address. Give one like https://host or http://127.0.0.1:8000, "
    "without user, password or query; a folder of saved responses is recording=."
)
_PORTS = {"http": 80, "https": 443}


def check_base_url(base_url: object) -> str:
    """Return a relayer's address without what follows its root; the error does not repeat it."""
    parts = _split(base_url)
    if parts is None or parts.query or parts.fragment:
        raise LabError(_NOT_AN_ADDRESS)
    return str(base_url).rstrip("/").removesuffix("/api/v3")


def split_rpc_address(address: object) -> SplitResult:
    """Return the parts of an Ethereum endpoint's address; the error repeats nothing of it."""
    parts = _split(address, with_user=True)
    if parts is None or parts.fragment:
        raise LabError(
            "rpc: this is not an address of an Ethereum endpoint. Give one like https://host/key, or set "
            "LOOPRING_RPC_URL."
        )
    return parts


def redirect_target(url: str, location: str) -> str | None:
    """Return the address that a redirect leads to, or None if it is not to be followed."""
    try:
        target = urljoin(url, location)
    except ValueError:
        return None
    parts = _split(target) if _is_plain(location) else None
    if parts is None or (_origin(url)[1] == "https" != parts.scheme):
        return None
    return target


def is_same_host(url: str, target: str) -> bool:
    """Return whether a secret for one address may be sent to the other: same host, same or safer scheme."""
    (host, scheme, port), (new_host, new_scheme, new_port) = _origin(url), _origin(target)
    upgraded = (scheme, port, new_scheme, new_port) == ("http", 80, "https", 443)
    return host == new_host and (upgraded or (scheme, port) == (new_scheme, new_port))


def is_confidential(url: str) -> bool:
    """Return whether nobody on the way can read what is sent: https, or a server on this machine."""
    return _origin(url)[1] == "https" or is_loopback(url)


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
        end = "begins" if secret != secret.lstrip() else "ends"
        blank = "a line break" if re.search(r"^[\r\n]|[\r\n]$", secret) else "a space"
        raise LabError(f"{name}: it {end} with {blank}. Read it with .strip().")
    unsuitable = re.search("[^ -~]", secret)
    if unsuitable:
        position = f"character {unsuitable.start() + 1} of {len(secret)}"
        raise LabError(f"{name}: {position} cannot be sent, because it is not plain ASCII. Copy it again.")
    return secret


def check_limit(name: str, value: object, unit: str) -> float | None:
    """Return a number above 0, or None for no limit."""
    return None if value is None else check_number(name, value, unit, otherwise=", or None for no limit")


def check_number(name: str, value: object, unit: str, *, most: float = math.inf, otherwise: str = "") -> float:
    """Return a number above 0."""
    number = math.nan
    if isinstance(value, Real) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            number = float(value)
    if not 0 < number <= most or math.isinf(number):
        limit = f" and at most {most:g}" if most < math.inf else otherwise
        raise LabError(f"{name}={shown(value, 40)}: give {unit} above 0{limit}.")
    return number


def _split(url: object, *, with_user: bool = False) -> SplitResult | None:
    """Return the parts of an address, or None if it is not an http address or names a user."""
    if not isinstance(url, str) or not _is_plain(url):
        return None
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in _PORTS and (with_user or "@" not in parts.netloc) and parts.port != 0
    except ValueError:
        return None
    return parts if is_usable and parts.hostname and _is_host(parts.hostname) else None


def _is_plain(url: str) -> bool:
    """Return whether an address has only characters that every reader of it understands alike."""
    return bool(re.fullmatch(r"[!-~]*", url)) and "\\" not in url


def _is_host(name: str) -> bool:
    return ":" in name or bool(re.fullmatch(r"(?=.{1,254}$)[\w-]{1,63}(\.[\w-]{1,63})*\.?", name, re.ASCII))


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.scheme, parts.port or _PORTS.get(parts.scheme, 0)
