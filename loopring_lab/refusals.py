"""How a relayer says no: the shapes of its error answers, and what to do about each code."""

from __future__ import annotations

import json
import re
from typing import Any

from loopring_lab.errors import NotAuthorized, RateLimited, RelayerError
from loopring_lab.tables.wire import nests_too_deep

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


def refusal(status: int, body: bytes, what: str) -> RelayerError | None:
    """Tell whether an answer is a refusal, in any of the shapes relayers use.

    Parameters
    ----------
    status : int
        HTTP status.
    body : bytes
        ``{"resultInfo": {"code", "message"}}``, also inside HTTP 200, or flat ``{"code", "msg"}``.
    what : str
        The request, without its query, for the message.

    Returns
    -------
    RelayerError or None
        The error to raise, None for a success.

    Examples
    --------
    >>> print(refusal(400, b'{"code": 104003, "msg": "no account 7"}', "GET /user/trades"))
    GET /user/trades: no account 7 (code 104003, HTTP 400). No such account; check account_id.
    """
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
