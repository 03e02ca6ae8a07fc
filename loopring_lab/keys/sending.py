"""Sending an update whose answer may get lost: the same bytes again, which act once at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopring_lab.errors import KeyUpdateError, RelayerError
from loopring_lab.keys.receipts import PROCESSED
from loopring_lab.keys.updates import Update
from loopring_lab.protocol import L2Key
from loopring_lab.replies import Submission, read_submission

if TYPE_CHECKING:
    from loopring_lab.client import Client

__all__ = ["sent"]

TRIES = 3
"""How often a request is sent whose answer is lost."""
STALE_NONCE = 102021


def sent(client: Client, update: Update, key: L2Key, body: dict[str, Any], lost: list[str]) -> Submission:
    """Send an update, again where the answer is lost.

    Parameters
    ----------
    client : Client
        Sends it.
    update : Update
        What it says.
    key : L2Key
        The new key.
    body : dict
        What is sent.
    lost : list of str
        What happened to answers that did not arrive is added here.

    Returns
    -------
    Submission
        What the relayer answered. A refusal because of the nonce, after an answer was lost, is none where the
        account carries the new key: the first request did its work.

    Raises
    ------
    KeyUpdateError
        No answer arrived, and whether it was taken is not known.
    RelayerError, TransportError, UnexpectedAnswer
        The relayer refuses, cannot be reached, or answers something else.
    """
    for _ in range(TRIES):
        outcome = client._send_update(body)
        error = outcome.error
        if not error:
            return read_submission(outcome.body)
        if not outcome.lost:
            stale = isinstance(error, RelayerError) and error.code == STALE_NONCE
            if lost and stale and client.account(update.account_id).has_key(key):
                return Submission(PROCESSED)
            raise error
        lost.append(str(error))
    raise KeyUpdateError(
        f"Update of account {update.account_id}: sent {TRIES} times without an answer, so whether it was "
        f"taken is not known. Last: {lost[-1]} Call submit() again: it acts once at most."
    )
