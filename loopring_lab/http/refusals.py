"""What a relayer's error says, and what to do about it."""

from __future__ import annotations

import re

from loopring_lab.bounded import parse_json, printable
from loopring_lab.errors import (
    NotAuthorized,
    RateLimited,
    RelayerError,
    UnexpectedAnswer,
)

# Advice on what to do next, by the relayer's error code: those of the contract, and of its official documents.
HINTS = {
    100001: "Check the arguments against the relayer's documentation.",
    # The embedded relayer refuses any other update of the account like this while one is pending.
    100204: "The same request, or another update of the account, is pending; wait for its outcome before you retry.",
    101001: "This address has no account here; check the owner's address.",
    101002: "No such user; check the account id.",
    102001: "The exchange address is not this relayer's; take it from the relayer you talk to.",
    102021: "The nonce is stale; read the account again and rebuild the request.",
    102024: "Choose a fee token that the relayer's fee list names.",
    104001: "Give an API key: connect(base_url, api_key=...) or the environment variable LOOPRING_API_KEY.",
    104002: "The API key is not accepted; get a fresh one, and mind that a key update voids the old one.",
    104003: "No such account; check account_id. client.accounts lists those that are known.",
    104004: "The signature is missing: the account's L2 key signs for an API key, its owner for an update.",
    104005: "Sign with the account's newest L2 key for an API key, with its owner's wallet for an update.",
    114001: "Choose a fee token that the relayer's fee list names.",
    114002: "The maximum fee is below the relayer's; ask for the fee again and raise max_fee.",
}
INVALID_ARGUMENT = 100001
NO_KEY = 104001
WRONG_KEY = 104002
SLOW_DOWN = "Send fewer requests: connect(..., rate=...), or share one client between notebooks."
NOT_A_RELAYER = (
    "This does not look like a relayer: check base_url, which ends before /api/v3."
)
# A web page in place of a relayer's JSON, as firewalls and content networks send it.
IN_BETWEEN = (
    "A web page came in place of an answer: something between here and the relayer refuses programs, such as a "
    "firewall. Open base_url in a browser to see it, or try another network."
)
TRY_LATER = "The problem is on the relayer's side: try again later."
LONGEST_REASON = 300  # characters of a relayer's own message that an error repeats


def relayer_error(status: int, body: bytes, endpoint: str) -> RelayerError | None:
    """Return the error that an answer reports, in any of the shapes relayers use, or None."""
    # An error inside HTTP 200 is small, so its code is near the beginning: most answers need not be parsed to see that
    # they are none.
    may_be_error = b'"resultInfo"' in body[:4096] or b'"code"' in body[:256]
    if status < 400 and not may_be_error:
        return None
    code, reason = _code_and_message(body)
    if status < 400 and not code:
        return None
    hint = HINTS.get(code or 0)
    kind = RelayerError
    if status == 429:
        kind = RateLimited
        hint = SLOW_DOWN
    elif status == 403 and body.lstrip().startswith(b"<"):
        hint = IN_BETWEEN
    elif code in (NO_KEY, WRONG_KEY) or status in (401, 403):
        kind = NotAuthorized
        hint = hint or HINTS[WRONG_KEY]
    elif hint is None and status >= 500:
        hint = TRY_LATER
    elif hint is None and reason is None:
        hint = NOT_A_RELAYER
    elif hint is None:
        hint = HINTS[INVALID_ARGUMENT]
    return kind(reason or "", status=status, code=code, hint=hint, endpoint=endpoint)


def _code_and_message(body: bytes) -> tuple[int | None, str | None]:
    """Read ``{"resultInfo": {"code", "message"}}`` or the flat ``{"code", "msg"}``, as far as it is there."""
    try:
        answer = parse_json(body, "error")
    except UnexpectedAnswer:
        return None, None
    info = answer.get("resultInfo", answer) if isinstance(answer, dict) else None
    if not isinstance(info, dict):
        return None, None
    message = info.get("message", info.get("msg"))
    reason = printable(message, LONGEST_REASON) if isinstance(message, str) else None
    code = str(info.get("code"))
    is_number = re.fullmatch(r"-?\d{1,9}", code, re.ASCII)
    return int(code) if is_number else None, reason
