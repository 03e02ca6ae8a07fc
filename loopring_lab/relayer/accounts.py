"""The accounts of a relayer: their owners, the owners' demo wallets, and the API keys."""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.redaction import SecretBytes, SecretText, hide
from loopring_lab.relayer.database import Account, Store
from loopring_lab.relayer.history import Source
from loopring_lab.relayer.schemas import ApiError, Code
from loopring_lab.relayer.settings import ADDRESS, Settings

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

FIRST_NONCE = 1
API_KEY = re.compile(r"[0-9a-f]{8}[\x00-\x7f]{56}")
API_KEY_BYTES = 42


class Wallet(NamedTuple):
    """A counterfactual wallet: what the address of a contract that is not deployed yet is derived from."""

    factory: str
    owner: str
    salt: str


class Owner(NamedTuple):
    """The owner of an account: the L1 signer, the first L2 key and, if the owner is a wallet, the wallet."""

    address: str
    signer: LocalAccount
    key: protocol.L2Key
    key_seed: str
    wallet: Wallet | None

    def __repr__(self) -> str:
        return f"Owner({self.address})"


class Accounts:
    """The accounts of a source, each with an owner whose keys are at hand, and accounts added later."""

    def __init__(self, source: Source, settings: Settings, operator_key: str, path: str | Path | None = None) -> None:
        self._source, self._settings, self._operator_key = source, settings, operator_key
        self._owned = (*source.accounts, *getattr(source, "planted", ()))
        self._pools = {
            account_id: Account(account_id, address, "", "", 0, 0, "")
            for account_id, address in source.pool_owners().items()
        }
        self._wallet_account = max(source.accounts, default=-1)
        self._store = Store(
            path,
            {"source": source.label, "exchange": settings.exchange.lower(), "chain": str(settings.chain_id)},
        )
        self._owners_seed = SecretText(self._read_owners_seed())
        self._key_secret = SecretBytes.fromhex(self._store.setdefault("secret", secrets.token_hex(32)))
        if path is not None:
            self.store  # noqa: B018  (so that no request writes to a file that somebody else may hold)

    @cached_property
    def store(self) -> Store:
        """The store, to which the source's accounts are added on first use."""
        if not all(self._store.account(account_id) for account_id in self._source.accounts[:1]):
            self._store.add(map(self._first_state, self._owned))
        return self._store

    def _read_owners_seed(self) -> str:
        """Return what owners' keys derive from: public text where the data is made up, else a secret."""
        if self._source.synthetic:
            return self._source.label
        stored = self._store.fact("owners")
        if stored is None and any(map(self._store.account, self._source.accounts)):
            raise LabError(
                "Store: an earlier version created it, with owners whose keys anybody can derive from the "
                "recording's name. Give another file."
            )
        return stored or self._store.setdefault("owners", secrets.token_hex(32))

    def _first_state(self, account_id: int) -> Account:
        owner = self.owner(account_id)
        x, y = f"{owner.key.x:#066x}", f"{owner.key.y:#066x}"
        return Account(account_id, owner.address, x, y, FIRST_NONCE, FIRST_NONCE, owner.key_seed)

    def owner(self, account_id: int) -> Owner:
        if account_id not in self._owned:
            raise LabError(f"Relayer: it has no owner for account {account_id}. Use one of relayer.accounts.")
        has_wallet = account_id == self._wallet_account
        return demo_owner(self._owners_seed, account_id, self._settings.exchange, has_wallet)

    def add(self, account_id: int, owner: str, nonce: int, public_key: tuple[int, int] | None, key_seed: str) -> None:
        if not re.fullmatch(ADDRESS, owner):
            raise LabError(f"Account {account_id}: owner {owner!r} is not a valid address. Give 0x and 40 hex digits.")
        x, y = (f"{n:#066x}" for n in protocol.check_public_key(*public_key)) if public_key else ("", "")
        account = Account(account_id, owner, x, y, nonce, nonce, key_seed)
        is_taken = account_id in self._source.history.accounts or self._pool_of(owner) is not None
        if is_taken or not self.store.add([account]):
            raise LabError(f"Account {account_id}, owner {owner}: exists already. Give another id and owner.")

    def exists(self, account_id: int) -> bool:
        """Return whether an account exists, with or without an owner."""
        known = account_id in self._source.history.accounts or account_id in self._pools
        return known or self._store.account(account_id) is not None

    def find(self, account_id: int | None, owner: str | None) -> Account:
        if account_id is None:
            account = self.store.account_of(owner or "") or self._pool_of(owner)
        else:
            account = self.store.account(account_id) or self._pools.get(account_id)
            if account is None:
                raise ApiError(Code.USER_NOT_FOUND, f"user not found: no account {account_id} with an owner")
        if account is None or (owner is not None and not _same(owner, account.owner)):
            raise ApiError(Code.ADDRESS_NOT_FOUND, "address not found: owner has no account, or another")
        return account

    def _pool_of(self, owner: str | None) -> Account | None:
        """Return the account of the pool at an address, unless its id was given to an account added later."""
        found = next((pool for pool in self._pools.values() if _same(owner, pool.owner)), None)
        return found if found is not None and self.store.account(found.id) is None else None

    def wallet_of(self, account_id: int) -> Wallet | None:
        """Return the wallet that owns an account, if one does."""
        return self.owner(account_id).wallet if account_id == self._wallet_account else None

    def issue_key(self, account_id: int, urls: tuple[str, ...], params: dict[str, str], signature: str) -> str:
        """Return the API key of an account if its L2 key signed the request, for one of the given URLs."""
        account = self.store.account(account_id)
        if account is None:
            raise ApiError(Code.INVALID_ACCOUNT, f"accountId: no account {account_id} with an owner")
        messages = (protocol.request_message("GET", url, params) for url in urls)
        if not any(protocol.verify_request(account.x, account.y, each, signature) for each in messages):
            raise ApiError(Code.WRONG_SIGNATURE, "wrong signature: the account's L2 key did not sign this request")
        return self._api_key(account)

    def check_key(self, key: str | None) -> None:
        """Check an API key; a valid one opens every account."""
        if not key:
            raise ApiError(Code.EMPTY_KEY, "empty api key: send it in the header X-API-KEY")
        if hmac.compare_digest(key.encode(), self._operator_key.encode()):
            return
        account = self._store.account(int(key[:8], 16)) if API_KEY.fullmatch(key) else None
        if account is None or not hmac.compare_digest(key, self._api_key(account)):
            raise ApiError(Code.INVALID_KEY, "invalid api key")

    def _api_key(self, account: Account) -> str:
        text = f"{account.id} {account.key_nonce} {account.x} {account.y}"
        tail = hmac.digest(self._key_secret, text.encode(), "sha384")[:API_KEY_BYTES]
        return f"{account.id:08x}{urlsafe_b64encode(tail).decode()}"


def _same(address: str | None, other: str) -> bool:
    return address is not None and address.lower() == other.lower()


@lru_cache(maxsize=512)
def demo_owner(seed: str, account_id: int, exchange: str, has_wallet: bool) -> Owner:
    """Derive the throwaway owner of an account."""
    seed = hide(seed)
    from eth_account import Account, messages

    digest = sha256(b"loopring_lab throwaway key: " + seed.encode() + f", {account_id}".encode())
    signer = Account.from_key(digest.digest())
    key_seed = protocol.key_seed(exchange, FIRST_NONCE - 1)
    key = protocol.l2_key(bytes(signer.sign_message(messages.encode_defunct(text=key_seed)).signature))
    if not has_wallet:
        return Owner(signer.address, signer, key, key_seed, None)
    factory, code = next(iter(protocol.FACTORY_INIT_CODE_HASHES.items()))
    wallet = Wallet(factory, signer.address, str(account_id))
    return Owner(protocol.wallet_address(*wallet, code), signer, key, key_seed, wallet)
