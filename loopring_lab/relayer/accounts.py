"""The accounts of a relayer: who owns them, their demo wallets, and the API keys that open them."""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.relayer.database import Account, Store
from loopring_lab.relayer.history import Source
from loopring_lab.relayer.schemas import (
    ADDRESS_NOT_FOUND,
    EMPTY_KEY,
    INVALID_ACCOUNT,
    INVALID_KEY,
    NO_SIGNATURE,
    USER_NOT_FOUND,
    WRONG_SIGNATURE,
    Refusal,
)
from loopring_lab.relayer.settings import ADDRESS, Settings

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount


FIRST_NONCE = 1


class Wallet(NamedTuple):
    """A counterfactual wallet: a contract whose address is known before it exists."""

    factory: str
    owner: str
    salt: str


class Owner(NamedTuple):
    """Who owns an account, with everything needed to act for it."""

    address: str
    signer: LocalAccount
    key: protocol.L2Key
    key_seed: str
    wallet: Wallet | None

    def __repr__(self) -> str:
        return f"Owner({self.address})"


@lru_cache(maxsize=512)
def owner_of(label: str, account_id: int, exchange: str, has_wallet: bool) -> Owner:
    """The throwaway owner of an account."""
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


KEY_HEADER = "X-API-KEY"
KEY_BYTES = 42


class Accounts:
    """The accounts of a source, with owners that one can act as."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        operator_key: str,
        path: str | Path | None = None,
    ) -> None:
        self._source, self._settings, self._operator_key = source, settings, operator_key
        self._has_owner = frozenset(source.accounts)
        self._store = Store(
            path,
            {"source": source.label, "exchange": settings.exchange.lower(), "chain": str(settings.chain_id)},
        )

    def __repr__(self) -> str:
        return f"Accounts({self._source.label})"

    @cached_property
    def store(self) -> Store:
        """Where everything is kept; the source's accounts are put there when they are first needed."""
        if not all(self._store.account(account_id) for account_id in self._source.accounts[:1]):
            self._store.add(self._first_accounts())
        return self._store

    def _first_accounts(self) -> Iterator[Account]:
        for account_id in self._source.accounts:
            owner = self.owner(account_id)
            x, y = (f"{number:#066x}" for number in (owner.key.x, owner.key.y))
            yield Account(account_id, owner.address, x, y, FIRST_NONCE, FIRST_NONCE, owner.key_seed)

    @property
    def wallet_account(self) -> int:
        """The account whose owner is a counterfactual wallet."""
        return max(self._has_owner, default=-1)

    def owner(self, account_id: int) -> Owner:
        """Who owns an account of the source."""
        if account_id not in self._has_owner:
            raise LabError(
                f"Relayer: it has no owner for account {account_id}. Take one of relayer.accounts."
            )
        wallet = account_id == self.wallet_account
        return owner_of(self._source.label, account_id, self._settings.exchange, wallet)

    def add(
        self, account_id: int, owner: str, nonce: int, public_key: tuple[int, int] | None, key_seed: str
    ) -> None:
        """Add an account."""
        if not ADDRESS.fullmatch(owner):
            raise LabError(f"Account {account_id}: owner {owner!r} is no address. Give 0x and 40 hex digits.")
        x, y = (f"{n:#066x}" for n in protocol.check_public_key(*public_key)) if public_key else ("", "")
        account = Account(account_id, owner, x, y, nonce, nonce, key_seed)
        if self._source.history.has_account(account_id) or not self.store.add([account]):
            raise LabError(f"Account {account_id}, owner {owner}: known already. Give another id and owner.")

    def exists(self, account_id: int) -> bool:
        """Whether there is such an account, with or without an owner."""
        return self._source.history.has_account(account_id) or self._store.account(account_id) is not None

    def find(self, account_id: int | None, owner: str | None) -> Account:
        """An account by id, owner or both."""
        known = self.store.account_of(owner or "") if account_id is None else self.store.account(account_id)
        if known is None and account_id is not None:
            raise Refusal(USER_NOT_FOUND, f"user not found: no account {account_id} that has an owner")
        if known is None or (owner is not None and owner.lower() != known.owner.lower()):
            raise Refusal(ADDRESS_NOT_FOUND, "address not found: owner has no account, or not this one")
        return known

    def wallet_of(self, account_id: int) -> tuple[str, Wallet] | None:
        """How the address of an account's owner comes about."""
        if account_id != self.wallet_account:
            return None
        owner = self.owner(account_id)
        return owner.wallet and (owner.address, owner.wallet)

    def issue_key(
        self, account_id: int, urls: tuple[str, ...], params: dict[str, str], signature: str | None
    ) -> str:
        """The API key of an account, for whoever has its L2 key."""
        account = self.store.account(account_id)
        if account is None:
            raise Refusal(INVALID_ACCOUNT, f"accountId: no account {account_id} that has an owner")
        if not signature:
            raise Refusal(NO_SIGNATURE, "no signature: sign the request with the L2 key, as header X-API-SIG")
        texts = (protocol.request_message("GET", url, params) for url in urls)
        if not any(protocol.verify_request(account.x, account.y, text, signature) for text in texts):
            raise Refusal(
                WRONG_SIGNATURE, "wrong signature: expected the account's L2 key's over this request"
            )
        return self._key(account)

    def check_key(self, given: str | None) -> None:
        """Check an API key; a valid one opens every account."""
        if not given:
            raise Refusal(EMPTY_KEY, f"empty api key: send it as header {KEY_HEADER}")
        if hmac.compare_digest(given.encode(), self._operator_key.encode()):
            return
        account = self._store.account(int(given[:8], 16)) if _is_key(given) else None
        if account is None or not hmac.compare_digest(given, self._key(account)):
            raise Refusal(INVALID_KEY, "invalid api key")

    def _key(self, account: Account) -> str:
        secret = self._store.fact("secret", secrets.token_hex(32))
        text = f"{account.id} {account.key_nonce} {account.x} {account.y}"
        tail = hmac.digest(bytes.fromhex(secret), text.encode(), "sha384")[:KEY_BYTES]
        return f"{account.id:08x}{urlsafe_b64encode(tail).decode()}"


def _is_key(text: str) -> bool:
    return len(text) == 64 and text.isascii() and all(digit in "0123456789abcdef" for digit in text[:8])
