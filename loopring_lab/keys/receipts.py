"""A key update after signing: sent so that a lost answer does no harm, then followed to its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from loopring_lab.errors import KeyUpdateError, RelayerError
from loopring_lab.keys.request import UpdateRequest
from loopring_lab.models import STATES, Account, Submission, read_submission
from loopring_lab.preview import Line, Sheet
from loopring_lab.progress import bar
from loopring_lab.protocol import L2Key

if TYPE_CHECKING:
    from loopring_lab.client import Client
    from loopring_lab.keys.request import UpdateRequest
    from loopring_lab.protocol import L2Key


RECEIVED, PROCESSING, PROCESSED, FAILED = STATES
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
_NO_REASON = "the relayer gave no reason"
_PREPARE = "Look at client.account(), and prepare a new update."


class Receipt:
    """The relayer's receipt for an update; made by `KeyUpdate.submit`.

    Parameters
    ----------
    client : Client
        Asks how the update goes.
    update : Update
        What was sent.
    key : L2Key
        The new key.
    submission : Submission
        What the relayer answered.
    lost : tuple of str
        What happened to the answers that did not arrive, in order; the same request was sent again after
        each.

    Attributes
    ----------
    status : str
        ``received``, ``processing``, ``processed`` or ``failed``: as last heard.
    account_id : int
        Whose key.
    hash : str or None
        The relayer's name for the update, 0x hex; None where the update was found done after its answer was
        lost.
    is_idempotent : bool
        Whether the relayer had the same request already.
    reason : str or None
        Why it failed.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> from loopring_lab.relayer import Relayer, World
    >>> with Relayer(World(size=0.01)) as relayer:
    ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
    ...     receipt = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer).submit()
    >>> receipt.account_id, receipt.is_idempotent, receipt.lost
    (10083, False, ())
    """

    def __init__(
        self,
        client: Client,
        update: UpdateRequest,
        key: L2Key,
        submission: Submission,
        lost: tuple[str, ...] = (),
    ) -> None:
        self._client, self._update, self._key = client, update, key
        self.status, self.reason = submission.status, submission.reason
        self.hash, self.is_idempotent = submission.hash, submission.is_idempotent
        self.account_id, self.lost = update.account_id, lost
        self._was_frozen = False

    def __repr__(self) -> str:
        again = f", sent {len(self.lost) + 1} times" if self.lost else ""
        state = f"status={self.status!r}, is_idempotent={self.is_idempotent}"
        return f"Receipt(account {self.account_id}, {state}, hash={self.hash!r}{again})"

    def _repr_html_(self) -> str:
        lines = [
            Line("status", self.status, "as last heard; processed and failed are the ends"),
            Line("is_idempotent", self.is_idempotent, "whether the relayer had the same request already"),
            Line("hash", self.hash or "unknown", "the relayer's name for the update"),
        ]
        lines += [Line("reason", self.reason, "why it failed")] * bool(self.reason)
        notes = [f"The answer was lost, and the same request sent again: {reason}" for reason in self.lost]
        return Sheet(f"Update of account {self.account_id}", lines, notes)._repr_html_()

    def poll(self) -> str:
        """Ask once how the update goes.

        Returns
        -------
        str
            ``received``, ``processing``, ``processed`` or ``failed``; kept in ``status``.

        Raises
        ------
        RelayerError, TransportError, UnexpectedAnswer
            The relayer refuses, cannot be reached, or answers something else.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
        ...     receipt = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer).submit()
        ...     receipt.poll() in ("received", "processing", "processed")
        True
        """
        if self.status not in (PROCESSED, FAILED):
            self._look()
        return self.status

    def wait(self, timeout: float = 120.0, progress: bool | None = None) -> Account:
        """Wait until the account carries the new key.

        Parameters
        ----------
        timeout : float
            Seconds.
        progress : bool, optional
            True shows a progress bar, False none; by default one appears after a second, and not under CI.

        Returns
        -------
        Account
            With the new key and the next nonce.

        Raises
        ------
        KeyUpdateError
            The update failed, with the relayer's reason; or it has not ended in time.
        RelayerError, TransportError, UnexpectedAnswer
            The relayer refuses, cannot be reached, or answers something else.

        Examples
        --------
        >>> import loopring_lab as lab
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
        ...     receipt = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer).submit()
        ...     receipt.wait().nonce
        2
        """
        end, pause = time.monotonic() + timeout, FIRST_PAUSE
        with bar(f"key of account {self.account_id}", progress, total=2) as shown:
            _show(shown, self.poll())
            while self.status not in (PROCESSED, FAILED):
                if time.monotonic() >= end:
                    raise KeyUpdateError(
                        f"Update of account {self.account_id}: still {self.status} after {timeout:g} s. It "
                        "may yet be processed: call wait() again, or look at client.account()."
                    )
                time.sleep(min(pause, max(0.0, end - time.monotonic())))
                pause = min(LONGEST_PAUSE, pause * 1.5)
                _show(shown, self.poll())
        return self._end()

    def _end(self) -> Account:
        """Return the account at the update's end, or raise what became of it."""
        if self.status == FAILED:
            raise KeyUpdateError(
                f"Update of account {self.account_id} failed: {self.reason or _NO_REASON}. {_PREPARE}"
            )
        account = self._client.account(self.account_id)
        if not account.has_key(self._key):
            raise KeyUpdateError(
                f"Update of account {self.account_id}: processed, but the account carries another key by now "
                f"(nonce {account.nonce}). Look at client.account(), and prepare a new update if need be."
            )
        return account

    def _look(self) -> None:
        """Ask the relayer for the update where it tells, else judge by the account."""
        told = self._told()
        if told:
            self.status, self.reason = told.status, told.reason
            return
        account = self._client.account(self.account_id)
        if account.has_key(self._key):
            self.status = PROCESSED
        elif account.nonce > self._update.nonce:
            self.status, self.reason = FAILED, "another update of this account came through"
        elif account.frozen:
            self.status = PROCESSING
        elif self._was_frozen:
            self.status, self.reason = FAILED, _NO_REASON
        self._was_frozen |= account.frozen

    def _told(self) -> Submission | None:
        try:
            return self._client.update_status(self.account_id, self.hash) if self.hash else None
        except RelayerError:
            return None


def _show(bar: Any, status: str) -> None:
    if bar is not None:
        bar.set_postfix_str(status, refresh=False)
        bar.update({RECEIVED: 0, PROCESSING: 1}.get(status, 2) - bar.n)


TRIES = 3
"""How often a request is sent whose answer is lost."""
STALE_NONCE = 102021


def submit(
    client: Client, update: UpdateRequest, key: L2Key, body: dict[str, Any], lost: list[str]
) -> Submission:
    """Send an update, again where the answer is lost."""
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
