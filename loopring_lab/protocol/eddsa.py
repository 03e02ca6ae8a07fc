"""L2 keys: deriving them from a wallet's signature, and signing requests to the relayer with them.

Keys are points of the curve in `curve`, signatures are EdDSA over Poseidon. Import these names from
`loopring_lab.protocol`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from numbers import Number
from typing import Any
from urllib.parse import quote

from loopring_lab.errors import ProtocolError
from loopring_lab.protocol import curve
from loopring_lab.protocol.fields import (
    SIGNATURE_BYTES,
    parse_bytes,
    parse_coordinate,
    parse_l2_secret,
    parse_packed,
)
from loopring_lab.redaction import Secret, SecretBytes, hide

# How wallets write v, the last byte of a signature: its parity alone, or with the 27 that Ethereum's nodes add.
_LEAST_V = {"0 or 1": 0, "27 or 28": 27}
# y needs 254 bits, so the highest of 256 is free for the sign of x.
_SIGN_BIT = 255


@dataclass(frozen=True, slots=True, repr=False, init=False)
class L2Key:
    """A key pair of the exchange; the secret is never shown.

    Parameters
    ----------
    secret : int or str
        L2 secret, as for :func:`public_key`, kept as a hidden integer: ``int(key.secret)`` is the number.
    x, y : int or str
        Public key, that of the secret; text is hex. They are kept as numbers.
    v : str
        How the wallet wrote v in the signature that made the key: ``"27 or 28"`` or ``"0 or 1"``, each of which
        gives another key; empty where it is not known.

    Raises
    ------
    ProtocolError
        The secret is out of range or not hex, or the public key is another one's. The message does not show the
        secret.

    Examples
    --------
    >>> lab.protocol.l2_key(bytes(65)).secret
    <hidden>
    """

    secret: int
    x: int
    y: int
    v: str = field(default="", compare=False)

    # Written out, as the frame of the one that dataclasses write would hold the secret in the clear.
    def __init__(
        self, secret: int | str, x: int | str, y: int | str, v: str = ""
    ) -> None:
        secret = hide(secret)
        point = parse_coordinate("publicKey.x", x), parse_coordinate("publicKey.y", y)
        if public_key(secret) != point:
            problem = "is not that of the secret"
            hint = "Derive it with public_key()."
            raise ProtocolError("publicKey", problem, hint=hint)
        object.__setattr__(self, "secret", parse_l2_secret(secret))
        object.__setattr__(self, "x", point[0])
        object.__setattr__(self, "y", point[1])
        object.__setattr__(self, "v", v)

    def __repr__(self) -> str:
        return f"L2Key(secret={self.secret!r}, x={self.x:#066x}, y={self.y:#066x})"


def l2_key(signature: bytes | str) -> L2Key:
    r"""Derive the L2 key from the wallet's signature of the key seed.

    Every byte counts: with v as 0 or 1 instead of 27 or 28, or with a type byte at the end, the key differs.

    Parameters
    ----------
    signature : bytes or str
        r, s, v as the wallet returned them: 65 bytes, or more from contract wallets.

    Returns
    -------
    L2Key
        Secret and public key.

    Raises
    ------
    ProtocolError
        Not hex, or shorter than 65 bytes. The message does not show the signature.

    Examples
    --------
    >>> lab.protocol.l2_key(bytes(64) + b"\x1b")
    L2Key(secret=<hidden>, x=0x..., y=0x...)
    """
    signature = hide(signature)
    data = parse_bytes("signature", signature)
    if len(data) < SIGNATURE_BYTES:
        problem = f"expected at least 65 bytes (r, s, v), got {len(data)}"
        hint = "Pass what personal_sign of the key seed returned, unchanged."
        raise ProtocolError("signature", problem, hint=hint)
    secret = Secret(
        int.from_bytes(sha256(data).digest(), "little") % curve.SUBGROUP_ORDER
    )
    spelling = ""
    for name, least in _LEAST_V.items():
        if len(data) == SIGNATURE_BYTES and data[-1] - least in (0, 1):
            spelling = name
    return L2Key(secret, *public_key(secret), spelling)


def recover_l2_key(signature: bytes | str, x: int | str, y: int | str) -> L2Key | None:
    r"""Derive an existing L2 key again, whether its wallet wrote v as 27 or 28 or as 0 or 1 at the time.

    Parameters
    ----------
    signature : bytes or str
        r, s, v of the key seed: 65 bytes, with either spelling of v.
    x, y : int or str
        The public key that it has to have.

    Returns
    -------
    L2Key or None
        Its ``v`` tells which spelling fitted; None if neither did, so that it is the signature of another text or
        by another wallet.

    Raises
    ------
    ProtocolError
        Not hex, or shorter than 65 bytes. The message does not show the signature.

    Examples
    --------
    >>> key = lab.protocol.l2_key(bytes(64) + b"\x01")
    >>> lab.protocol.recover_l2_key(bytes(64) + b"\x1c", key.x, key.y).v
    '0 or 1'
    """
    signature = hide(signature)
    data = parse_bytes("signature", signature)
    expected = (parse_coordinate("x", x), parse_coordinate("y", y))
    key = l2_key(data)
    candidates = [key]
    if key.v:
        parity = data[-1] - _LEAST_V[key.v]
        candidates += [
            l2_key(SecretBytes(data[:-1] + bytes([least + parity])))
            for least in _LEAST_V.values()
        ]
    for candidate in candidates:
        if (candidate.x, candidate.y) == expected:
            return candidate
    return None


def public_key(secret: int | str) -> tuple[int, int]:
    """Return the public key of an L2 secret.

    Parameters
    ----------
    secret : int or str
        1..p-1, or hex text; not a multiple of the subgroup order. Not clamped.

    Returns
    -------
    tuple of int
        x and y.

    Raises
    ------
    ProtocolError
        The secret is out of range or not hex. The message does not show it.

    Examples
    --------
    >>> x, y = lab.protocol.public_key(1)  # the generator
    >>> hex(x)[:8]
    '0x2491ab'
    """
    secret = hide(secret)
    return curve.to_affine(curve.multiply_base(parse_l2_secret(secret)))


def check_public_key(x: int | str, y: int | str) -> tuple[int, int]:
    """Parse a public key, and refuse a point that is not a valid key.

    Parameters
    ----------
    x, y : int or str
        Coordinates; text is hex, with or without ``0x`` and leading zeros.

    Returns
    -------
    tuple of int
        x and y as numbers.

    Raises
    ------
    ProtocolError
        Not hex, outside the field, off the curve, or of low order.

    Examples
    --------
    >>> lab.protocol.check_public_key("0x0", "0x1")
    Traceback (most recent call last):
    loopring_lab.errors.ProtocolError: publicKey: not on the curve, or of low order. ...
    """
    point = parse_coordinate("publicKey.x", x), parse_coordinate("publicKey.y", y)
    if not curve.is_valid_point(*point):
        problem = "not on the curve, or of low order"
        raise ProtocolError("publicKey", problem, hint="Derive it with public_key().")
    return point


def pack_public_key(x: int | str, y: int | str) -> int:
    """Return a public key as the one number that the wallet signs: y, with bit 255 set if x > (p-1)/2.

    Parameters
    ----------
    x, y : int or str
        Coordinates, as for :func:`check_public_key`; only their range is checked.

    Returns
    -------
    int
        uint256.

    Raises
    ------
    ProtocolError
        A coordinate is not hex or outside the field.

    Examples
    --------
    >>> lab.protocol.pack_public_key(1, 5), lab.protocol.pack_public_key(2**253, 5) == 5 + 2**255
    (5, True)
    """
    is_larger = parse_coordinate("publicKey.x", x) > (curve.P - 1) // 2
    packed = parse_coordinate("publicKey.y", y)
    if is_larger:
        packed |= 1 << _SIGN_BIT
    return packed


def unpack_public_key(packed: int | str | bytes) -> tuple[int, int]:
    """Return the public key that :func:`pack_public_key` packed, such as one in a block of the exchange.

    Parameters
    ----------
    packed : int, str or bytes
        uint256: an integer, up to 64 hex digits, or 32 bytes. 0 stands for an account without a key.

    Returns
    -------
    tuple of int
        Coordinates x and y; (0, 0) for 0.

    Raises
    ------
    ProtocolError
        It is not such a number, or no point of the curve belongs to it.

    Examples
    --------
    >>> key = lab.protocol.public_key(7)
    >>> lab.protocol.unpack_public_key(lab.protocol.pack_public_key(*key)) == key
    True
    """
    number = parse_packed("publicKey", packed)
    if number == 0:
        return 0, 0
    sign, y = divmod(number, 1 << _SIGN_BIT)
    smaller_x = curve.x_of(y) if y < curve.P else None
    if smaller_x is None or (smaller_x == 0 and sign):
        hint = "Check that it is packed, and that nothing was cut."
        raise ProtocolError("publicKey", "no point of the curve has this y", hint=hint)
    x = curve.P - smaller_x if sign else smaller_x
    return x, y


def request_message(
    method: str, url: str, params_or_body: Mapping[str, Any] | str | None = None
) -> str:
    """Return the text of a request that is signed.

    Parameters
    ----------
    method : str
        GET or DELETE with query parameters, POST or PUT with a body.
    url : str
        Base URL and path, without the query.
    params_or_body : mapping or str, optional
        Query parameters, of which those that are None or empty text are left out, and lists are joined by commas;
        or the body, as a mapping to be written as compact JSON or as the exact text that is sent.

    Returns
    -------
    str
        Method, URL and parameters or body, percent-encoded as the exchange's own clients do.

    Raises
    ------
    ProtocolError
        Unknown method, a query inside the URL, a parameter whose name or value has no text, or a body that is
        not JSON.

    Examples
    --------
    >>> lab.protocol.request_message("GET", "https://relayer.example/api/v3/apiKey", {"accountId": 10001})
    'GET&https%3A%2F%2Frelayer.example%2Fapi%2Fv3%2FapiKey&accountId%3D10001'
    """
    verb = str(method).upper()
    if verb not in _PAYLOADS:
        raise ProtocolError(
            "method",
            f"{verb!r} is never signed",
            hint=f"Use one of {', '.join(_PAYLOADS)}.",
        )
    is_text = isinstance(url, str)
    if not is_text or "?" in url or "#" in url:
        raise ProtocolError(
            "url",
            "is no text, or contains a query or fragment",
            hint="Pass the query as params_or_body.",
        )
    payload = _PAYLOADS[verb](params_or_body)
    return f"{verb}&{_percent_encode(url)}&{payload}"


def sign_request(secret: int | str, message: str) -> str:
    """Sign the text of a request with an L2 key; deterministic, but not in constant time.

    Parameters
    ----------
    secret : int or str
        L2 secret, as for :func:`public_key`.
    message : str
        From :func:`request_message`.

    Returns
    -------
    str
        X-API-SIG: x and y of R, and s, 64 hex digits each. It authorises the request: do not log it.

    Raises
    ------
    ProtocolError
        `message` is not text, or the secret is out of range or not hex. The error does not show it.

    Examples
    --------
    >>> lab.protocol.verify_request(*lab.protocol.public_key(7), "GET&a&b", lab.protocol.sign_request(7, "GET&a&b"))
    True
    """
    secret = hide(secret)
    numbers = curve.sign(parse_l2_secret(secret), _message_hash(message))
    return "0x" + "".join(f"{number:064x}" for number in numbers)


def verify_request(x: int | str, y: int | str, message: str, signature: str) -> bool:
    """Return whether a signature of the text of a request was made with a key.

    Parameters
    ----------
    x, y : int or str
        Public key.
    message : str
        From :func:`request_message`.
    signature : str
        X-API-SIG as received, valid or not.

    Returns
    -------
    bool
        False for a wrong or malformed signature, and for a key or an R that is not a valid point.

    Raises
    ------
    ProtocolError
        `message` is not text.

    Examples
    --------
    >>> lab.protocol.verify_request(*lab.protocol.public_key(7), "GET&a&c", lab.protocol.sign_request(7, "GET&a&b"))
    False
    """
    try:
        key = check_public_key(x, y)
        data = parse_bytes("X-API-SIG", hide(signature), 96)
    except ProtocolError:
        return False
    rx, ry, s = (
        int.from_bytes(data[start : start + 32], "big") for start in (0, 32, 64)
    )
    return curve.verify(*key, _message_hash(message), (rx, ry, s))


def _message_hash(message: str) -> int:
    try:
        data = message.encode()
    except (AttributeError, UnicodeEncodeError):
        hint = "Give what request_message() returns."
        raise ProtocolError("message", "is not valid text", hint=hint) from None
    return int.from_bytes(sha256(data).digest(), "big") % curve.P


def _percent_encode(text: str) -> str:
    """Percent-encode everything but letters, digits and ``-_.~``."""
    # JavaScript's encodeURIComponent also leaves !'()* as they are; the exchange's clients escape those on top.
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise ProtocolError(
            "text", "contains half a surrogate pair", hint="Pass valid Unicode."
        ) from None


def _encoded_query(params: Mapping[str, Any] | str | None) -> str:
    """Encode query parameters: k=v, sorted by name, without those that are empty."""
    if params is not None and not isinstance(params, Mapping):
        raise ProtocolError(
            "params",
            f"expected a mapping, got {type(params).__name__}",
            hint="Pass the query as a dictionary.",
        )
    pairs = []
    for name in sorted(params or {}, key=_place_of_name):
        value = (params or {})[name]
        if value is not None and value != "":
            pairs.append(f"{name}={_query_value(value)}")
    # The relayer signs the commas of lists as they arrive: encoded once already.
    return _percent_encode("&".join(pairs)).replace("%2C", "%252C")


def _place_of_name(name: object) -> tuple[str, str]:
    """Return what sorts names of parameters as JavaScript's localeCompare, which the exchange's SDK sorts with."""
    is_name = isinstance(name, str) and name.isascii() and name.isidentifier()
    if not is_name:
        raise ProtocolError(
            "params",
            "a name is not letters, digits and underscores, beginning with no digit",
            hint="Write the names as the exchange's API has them.",
        )
    # Case decides only where all else is equal, and lower case comes first. The underscore comes before all else.
    text = str(name)
    return text.lower().replace("_", " "), text.swapcase()


def _query_value(value: object) -> str:
    """Write a value as JavaScript writes it into text: truth values in lower case, lists joined by commas."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Number):
        return str(value)
    if isinstance(value, list | tuple):
        return ",".join("" if one is None else _query_value(one) for one in value)
    raise ProtocolError(
        "params",
        f"expected text, numbers, truth values and lists of these, got {type(value).__name__}",
        hint="Write the value as the text that is sent.",
    )


def _encoded_body(body: Mapping[str, Any] | str | None) -> str:
    return _percent_encode(_body_text(body))


def _body_text(body: Mapping[str, Any] | str | None) -> str:
    if body is None or isinstance(body, str):
        return body or ""
    try:
        return json.dumps(
            body, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
    except (TypeError, ValueError):
        raise ProtocolError(
            "body", "is not JSON", hint="Use text, integers, lists and mappings."
        ) from None


_PAYLOADS = {
    "GET": _encoded_query,
    "DELETE": _encoded_query,
    "POST": _encoded_body,
    "PUT": _encoded_body,
}
