"""The receipt of a submitted key update, which follows it until it is processed or has failed."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from loopring_lab.errors import KeyUpdateError, RelayerError, UnexpectedAnswer
from loopring_lab.http.addresses import check_number
from loopring_lab.interactive.preview import Line, Sheet
from loopring_lab.progress import bar
from loopring_lab.sources.records import (
    FAILED,
    FINAL_STATES,
    PROCESSED,
    PROCESSING,
    RECEIVED,
    Account,
    Submission,
)

if TYPE_CHECKING:
    from loopring_lab.keys.request import UpdateRequest
    from loopring_lab.protocol import L2Key
    from loopring_lab.sources.client import Client

# Seconds between two looks at an update: soon at first, as the embedded relayer is quick, then ever less often.
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0
_NO_REASON = "the relayer gave no reason"


class Receipt:
    """The relayer's receipt for a key update; returned by `KeyUpdate.submit`.

    Parameters
    ----------
    client : Client
        Asks for the status of the update.
    update : UpdateRequest
        The update that was sent.
    key : L2Key
        The new key.
    submission : Submission
        The relayer's answer.
    lost : tuple of str
        Why answers were lost, in order; the same request was sent again after each.

    Attributes
    ----------
    status : str
        ``received``, ``processing``, ``processed`` or ``failed``, as last reported.
    account_id : int
        Account whose key is updated.
    hash : str or None
        The relayer's id of the update, 0x hex; None if the nonce turned out to be taken already when the update was
        sent again: `wait` asks the account by which update.
    is_idempotent : bool
        Whether the relayer already had the same request.
    reason : str or None
        Why the update failed.

    Examples
    --------
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
        _check_answer(update, submission)
        self._client = client
        self._update = update
        self._key = key
        self.status = submission.status
        self.reason = submission.reason
        self.hash = submission.hash
        self.is_idempotent = submission.is_idempotent
        self.account_id = update.account_id
        self.lost = lost
        # An account is frozen while an update is processed: once it was, an account that is not tells of an end.
        self._was_frozen = False
        # An older answer of another thread never overtakes a newer one.
        self._polling = threading.Lock()

    def __repr__(self) -> str:
        again = f", sent {len(self.lost) + 1} times" if self.lost else ""
        status = f"status={self.status!r}, is_idempotent={self.is_idempotent}"
        return (
            f"Receipt(account {self.account_id}, {status}, hash={self.hash!r}{again})"
        )

    def _repr_html_(self) -> str:
        lines = [
            Line(
                "status",
                self.status,
                "as last reported; processed and failed are final",
            ),
            Line(
                "is_idempotent",
                self.is_idempotent,
                "whether the relayer already had the same request",
            ),
            Line("hash", self.hash or "unknown", "the relayer's id of the update"),
        ]
        if self.reason:
            lines.append(Line("reason", self.reason, "why the update failed"))
        notes = [
            f"The answer was lost, so the same request was sent again: {reason}"
            for reason in self.lost
        ]
        return Sheet(f"Update of account {self.account_id}", lines, notes)._repr_html_()

    def poll(self) -> str:
        """Ask the relayer once for the status of the update.

        Returns
        -------
        str
            ``received``, ``processing``, ``processed`` or ``failed``; also kept in ``status``.

        Raises
        ------
        RelayerError, TransportError, UnexpectedAnswer
            The status cannot be read.

        Examples
        --------
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
        ...     update = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer)
        ...     update.submit().poll() in ("received", "processing", "processed")
        True
        """
        # A final status stays: asking again could only be answered by less.
        with self._polling:
            if self.status not in FINAL_STATES:
                self._refresh()
            return self.status

    def wait(self, timeout: float = 120.0, progress: bool | None = None) -> Account:
        """Wait until the account has the new key.

        Parameters
        ----------
        timeout : float
            Seconds after which the relayer is not asked again; 0 asks once.
        progress : bool, optional
            True shows a progress bar, False none; by default one appears after a second, and not under CI.

        Returns
        -------
        Account
            With the new key and the next nonce.

        Raises
        ------
        KeyUpdateError
            The update failed, with the relayer's reason, or is still pending, or not shown by the account, after
            `timeout`.
        RelayerError, TransportError, UnexpectedAnswer
            The relayer refuses, cannot be reached, or gives an unexpected answer.

        Examples
        --------
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     client, signer = lab.connect(relayer.base_url), relayer.signer(10083)
        ...     receipt = lab.KeyUpdate.prepare(client, account_id=10083, signer=signer).submit()
        ...     receipt.wait().nonce
        2
        """
        # 0 asks once; None is no number, and would otherwise count as one.
        seconds = 0.0 if timeout == 0 else check_number("timeout", timeout, "seconds")
        deadline = time.monotonic() + seconds
        self._follow(seconds, progress)
        return self._updated_account(deadline - time.monotonic())

    def _follow(self, timeout: float, progress: bool | None) -> None:
        with bar(
            f"key of account {self.account_id}", progress, total=2
        ) as progress_bar:
            for status in poll_until_final(self, timeout):
                if progress_bar is not None:
                    progress_bar.set_postfix_str(status, refresh=False)
                    # There are two steps: taken up, and done. tqdm counts what is added.
                    steps = {RECEIVED: 0, PROCESSING: 1}.get(status, 2)
                    progress_bar.update(steps - progress_bar.n)

    def _updated_account(self, timeout: float) -> Account:
        """Return the account once it has the new key, or raise the reason why it does not."""
        if self.status == FAILED:
            raise KeyUpdateError(
                f"Update of account {self.account_id} failed: {self.reason or _NO_REASON}. "
                "Check client.account(), and prepare a new update."
            )
        for _ in _looks(timeout):
            account = self._client.account(self.account_id)
            if account.has_key(self._key):
                return account
            # Until the nonce has risen, the relayer shows the account as it was before the update.
            if account.nonce > self._update.nonce:
                raise KeyUpdateError(
                    f"Update of account {self.account_id}: processed, but the account has another key by now "
                    f"(nonce {account.nonce}). Check client.account(), and prepare a new update if needed."
                )
        raise KeyUpdateError(
            f"Update of account {self.account_id}: processed, but the account does not show it yet. It is "
            "a matter of time: call wait() again, or check client.account()."
        )

    def _refresh(self) -> None:
        """Update the status from the relayer's list of updates, or else from the account."""
        listed = None
        # The contract leaves open whether a relayer lists updates: then the account's own state tells.
        if self.hash is not None:
            with contextlib.suppress(RelayerError):
                listed = self._client.update_status(self.account_id, self.hash)
        if listed:
            self._set(listed.status, listed.reason)
            return
        account = self._client.account(self.account_id)
        # In this order: the key tells of success, the nonce of another update, being frozen only of some update.
        if account.has_key(self._key):
            self.status = PROCESSED
        elif account.nonce > self._update.nonce:
            self._set(FAILED, "another update of this account was processed first")
        elif account.frozen:
            self.status = PROCESSING
        elif self._was_frozen:
            self._set(FAILED, _NO_REASON)
        if account.frozen:
            self._was_frozen = True

    def _set(self, status: str, reason: str | None) -> None:
        self.status = status
        self.reason = reason


def _check_answer(update: UpdateRequest, submission: Submission) -> None:
    """Refuse an answer about another account or another token than the update has."""
    sent = {"accountId": update.account_id, "tokenId": update.fee.token.id}
    answered = {"accountId": submission.account_id, "tokenId": submission.token_id}
    for name, expected in sent.items():
        # Where an answer was lost, the account has told of the end instead, and no token is known.
        if answered[name] not in (None, expected):
            raise UnexpectedAnswer(
                name,
                expected=f"{expected}, as in the update that was sent",
                got=answered[name],
                hint="The update may have been accepted all the same: check client.account().",
            )


def poll_until_final(
    receipt: Receipt, timeout: float = math.inf, longest_pause: float = LONGEST_PAUSE
) -> Iterator[str]:
    """Poll an update at growing intervals until it is processed or has failed; yield each status."""
    for _ in _looks(timeout, longest_pause):
        yield receipt.poll()
        if receipt.status in FINAL_STATES:
            return
    raise KeyUpdateError(
        f"Update of account {receipt.account_id}: still {receipt.status} after {timeout:g} s. It may "
        "yet be processed: call wait() again, or check client.account()."
    )


def _looks(timeout: float, longest_pause: float = LONGEST_PAUSE) -> Iterator[None]:
    """Give the turn to each look at an update, at growing intervals, until the time is over."""
    deadline = time.monotonic() + timeout
    pause = FIRST_PAUSE
    while True:
        yield
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return
        time.sleep(min(pause, remaining))
        pause = min(longest_pause, pause * 1.5)
