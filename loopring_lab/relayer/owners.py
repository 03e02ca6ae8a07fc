"""Owners one can act as: throwaway L1 keys, made from public text, so anybody can make them again.

.. warning::
   Never send anything of value to these addresses.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from loopring_lab import protocol

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

__all__ = ["Owner", "Wallet", "owner_of"]

FIRST_NONCE = 1


class Wallet(NamedTuple):
    """A counterfactual wallet: a contract whose address is known before it exists.

    Parameters
    ----------
    factory : str
        Address of the factory that would deploy it.
    owner : str
        Address of who signs for it.
    salt : str
        Decimal uint256.
    """

    factory: str
    owner: str
    salt: str


class Owner(NamedTuple):
    """Who owns an account, with everything needed to act for it.

    Parameters
    ----------
    address : str
        The account's owner: the signer's address, or the wallet's.
    signer : LocalAccount
        Signs for the owner.
    key : L2Key
        The account's first L2 key.
    key_seed : str
        What the signer signed to make it.
    wallet : Wallet or None
        Where the owner is a counterfactual wallet.
    """

    address: str
    signer: LocalAccount
    key: protocol.L2Key
    key_seed: str
    wallet: Wallet | None

    def __repr__(self) -> str:
        return f"Owner({self.address})"


@lru_cache(maxsize=512)
def owner_of(label: str, account_id: int, exchange: str, has_wallet: bool) -> Owner:
    """The throwaway owner of an account.

    Parameters
    ----------
    label : str
        What the account belongs to; another label gives another owner.
    account_id : int
        Account id.
    exchange : str
        Address of the exchange.
    has_wallet : bool
        Whether a counterfactual wallet owns the account.

    Returns
    -------
    Owner
        The same for the same arguments, everywhere.

    Examples
    --------
    >>> exchange = "0x0BABA1Ad5bE3a5C0a66E7ac838a129Bf948f1eA4"
    >>> owner_of("synthetic world, seed 1", 10083, exchange, has_wallet=False)
    Owner(0x...)
    """
    from eth_account import Account
    from eth_account.messages import encode_defunct

    signer = Account.from_key(sha256(f"loopring_lab throwaway key: {label}, {account_id}".encode()).digest())
    seed = protocol.key_seed(exchange, FIRST_NONCE - 1)
    key = protocol.l2_key(bytes(signer.sign_message(encode_defunct(text=seed)).signature))
    if not has_wallet:
        return Owner(signer.address, signer, key, seed, None)
    factory, code = next(iter(protocol.FACTORY_INIT_CODE_HASHES.items()))
    wallet = Wallet(factory, signer.address, str(account_id))
    return Owner(protocol.wallet_address(*wallet, code), signer, key, seed, wallet)
