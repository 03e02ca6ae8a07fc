"""What the relayer keeps: accounts, and the key updates that change them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Account", "KeyChange", "Update"]

RECEIVED, PROCESSING, PROCESSED, FAILED = "received", "processing", "processed", "failed"


class Account(NamedTuple):
    """An account as it stands.

    Parameters
    ----------
    id : int
        Account id.
    owner : str
        L1 address, checksummed.
    x, y : str
        L2 public key, ``0x`` and 64 hex digits each; empty where the account has none.
    nonce, key_nonce : int
        How many requests, and how many key updates, the account has made.
    key_seed : str
        What the owner signed to make the L2 key.
    is_frozen : bool
        Whether an update is pending.
    """

    id: int
    owner: str
    x: str
    y: str
    nonce: int
    key_nonce: int
    key_seed: str
    is_frozen: bool = False


class KeyChange(NamedTuple):
    """What an accepted request is to change, and on what terms.

    Parameters
    ----------
    account : int
        Account id.
    hash : str
        Names the request: the same request has the same hash.
    x, y : str
        The new key, ``0x`` hex.
    nonce : int
        The account's, when it was asked for.
    key_seed : str
        What the owner signed to make the new key.
    fee_token : int
        Token id of the fee.
    fee : str
        The fee, in smallest units.
    valid_until : int
        Seconds since the epoch.
    """

    account: int
    hash: str
    x: str
    y: str
    nonce: int
    key_seed: str
    fee_token: int
    fee: str
    valid_until: int


class Update(NamedTuple):
    """An accepted request and how far it has come.

    Parameters
    ----------
    number : int
        Counted from 1 over all accounts.
    change : KeyChange
        What it changes.
    received_at, changed_at : int
        When it was accepted and when its status last changed, ms since the epoch.
    status : str
        ``received``, ``processing``, ``processed`` or ``failed``.
    reason : str
        Why it failed, else empty.
    """

    number: int
    change: KeyChange
    received_at: int
    changed_at: int
    status: str
    reason: str
