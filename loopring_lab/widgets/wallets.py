"""What the key-update wizard needs around a wallet: a signer of a typed key, and the end of an update."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from loopring_lab.errors import KeyUpdateError
from loopring_lab.hidden import SecretBytes, SecretText
from loopring_lab.keys import KeyUpdate, Receipt, Signer
from loopring_lab.keys.terms import seconds_until
from loopring_lab.replies import STATES, Account
from loopring_lab.widgets.work import Report

__all__ = ["Held", "ended", "lifetime", "wallet"]

ENDS = STATES[2:]
PAUSE, LONGEST = 0.05, 0.5
CURVE_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141


@dataclass(repr=False, slots=True)
class Held:
    """What a wizard holds: the account, its update as far as it is made, a signer, a receipt.

    Parameters
    ----------
    account : Account, optional
        As the relayer tells.
    prepared, keyed, signed : KeyUpdate, optional
        Without a key, with one, and signed.
    signer : Signer, optional
        Of a private key that was typed.
    receipt : Receipt, optional
        After it was submitted.
    own_seed : bool
        Whether the key seed was typed.
    finished : bool
        Whether the account carries the new key.
    """

    account: Account | None = None
    prepared: KeyUpdate | None = None
    keyed: KeyUpdate | None = None
    signed: KeyUpdate | None = None
    signer: Signer | None = None
    receipt: Receipt | None = None
    own_seed: bool = False
    finished: bool = False

    @property
    def update(self) -> KeyUpdate | None:
        """The update as far as it is made."""
        return self.signed or self.keyed or self.prepared


def lifetime(name: str, value: Any) -> str:
    """Take how long an update may be processed.

    Parameters
    ----------
    name : str
        Of the choice.
    value : object
        Text such as ``"30d"``.

    Returns
    -------
    str
        The same.

    Raises
    ------
    KeyUpdateError
        It is no time from now on.

    Examples
    --------
    >>> lifetime("valid_for", "12h")
    '12h'
    """
    seconds_until(str(value).strip())
    return str(value).strip()


def wallet(private_key: SecretText) -> Signer:
    """Make a signer of a wallet's private key.

    Parameters
    ----------
    private_key : SecretText
        64 hex digits, with or without ``0x``.

    Returns
    -------
    Signer
        eth-account's LocalAccount.

    Raises
    ------
    KeyUpdateError
        It is no private key. The message does not repeat it.
    """
    from eth_account import Account as Wallet

    try:
        data = SecretBytes.fromhex(private_key.strip().removeprefix("0x"))
    except ValueError:
        data = SecretBytes()
    if len(data) != 32 or not 0 < int.from_bytes(data, "big") < CURVE_ORDER:
        raise KeyUpdateError("private key: expected 64 hex digits, with or without 0x. Type it again.")
    signer: Signer = Wallet.from_key(data)
    return signer


def ended(receipt: Receipt, report: Report) -> Account:
    """Follow an update to its end.

    Parameters
    ----------
    receipt : Receipt
        From `KeyUpdate.submit`.
    report : callable
        Told how far the update is, of 2; raises to stop waiting.

    Returns
    -------
    Account
        With the new key.

    Raises
    ------
    LabError
        The update failed, the relayer cannot be asked, or `report` raises.
    """
    pause = PAUSE
    while receipt.poll() not in ENDS:
        report(STATES.index(receipt.status), len(ENDS))
        time.sleep(pause)
        pause = min(LONGEST, pause * 1.5)
    return receipt.wait(progress=False)
