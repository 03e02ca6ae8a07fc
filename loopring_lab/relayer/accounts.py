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
from loopring_lab.protocol.fields import parse_uint
from loopring_lab.relayer.pages import Source
from loopring_lab.relayer.schemas import ApiError, Code
from loopring_lab.relayer.settings import ADDRESS, Settings
from loopring_lab.relayer.store import Account, Store

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

FIRST_NONCE = 1  # each owner has set a key once, with nonce 0

# An API key: the account's id in hex, then 42 bytes of a code in base64. The whole is 64 characters, as the
# keys of the real exchange.
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

    def __init__(
        self,
        source: Source,
        settings: Settings,
        operator_key: str,
        path: str | Path | None = None,
    ) -> None:
        """Open the store, which keeps to one source, exchange and chain."""
        self._source = source
        self._settings = settings
        self._operator_key = operator_key
        self._owned = (
            *source.accounts,
            *getattr(source, "planted", ()),
        )
        self._pools = {
            account_id: Account(account_id, address, "", "", 0, 0, "")
            for account_id, address in source.pool_owners().items()
        }
        # One account is owned by a wallet, so that key updates of wallets can be tried.
        self._wallet_account = max(source.accounts, default=-1)
        # Keys derive from the label and the exchange, and signatures hold for one chain.
        identity = {
            "source": source.label,
            "exchange": settings.exchange.lower(),
            "chain": str(settings.chain_id),
        }
        self._store = Store(path, identity)
        # What owners' keys derive from: public text where the data is made up, else a secret.
        self._owners_seed = source.label
        if not source.synthetic:
            self._owners_seed = self._store.setdefault("owners", secrets.token_hex(32))
        self._key_secret = self._store.setdefault("secret", secrets.token_hex(32))

    @cached_property
    def store(self) -> Store:
        """The store, to which the source's accounts are added on first use: deriving their keys takes a while."""
        # All are added together, so that the first tells of the others.
        first = next(iter(self._source.accounts), None)
        if first is not None and self._store.account(first) is None:
            self._store.add(map(self._first_state, self._owned))
        return self._store

    def _first_state(self, account_id: int) -> Account:
        owner = self.owner(account_id)
        x, y = _coordinates((owner.key.x, owner.key.y))
        return Account(
            account_id,
            owner.address,
            x,
            y,
            FIRST_NONCE,
            FIRST_NONCE,
            owner.key_seed,
        )

    def owner(self, account_id: int) -> Owner:
        """Return the owner of an account of the source."""
        if account_id not in self._owned:
            raise LabError(
                f"Relayer: it has no owner for account {account_id}. Use one of relayer.accounts."
            )
        has_wallet = account_id == self._wallet_account
        return demo_owner(
            self._owners_seed,
            account_id,
            self._settings.exchange,
            has_wallet,
        )

    def add(
        self,
        account_id: int,
        owner: str,
        nonce: int,
        public_key: tuple[int, int] | None,
        key_seed: str,
    ) -> None:
        """Add an account with an owner of somebody's own."""
        account_id = parse_uint("account_id", account_id, 32)
        nonce = parse_uint("nonce", nonce, 32)
        if not re.fullmatch(ADDRESS, str(owner)):
            raise LabError(
                f"Account {account_id}: owner {owner!r} is not a valid address. Give 0x and 40 hex digits."
            )
        x = y = ""
        if public_key is not None:
            x, y = _coordinates(protocol.check_public_key(*public_key))
        account = Account(account_id, owner, x, y, nonce, nonce, key_seed)
        is_taken = (
            account_id in self._source.history.accounts
            or self._pool_of(owner) is not None
        )
        if is_taken or not self.store.add([account]):
            raise LabError(
                f"Account {account_id}, owner {owner}: exists already. Give another id and owner."
            )

    def exists(self, account_id: int) -> bool:
        """Return whether an account exists, with or without an owner."""
        is_known = (
            account_id in self._source.history.accounts or account_id in self._pools
        )
        return is_known or self._store.account(account_id) is not None

    def find(self, account_id: int | None, owner: str | None) -> Account:
        """Return the account of an id, of an owner, or of both where they agree."""
        # Pools have no owner here, and accounts added later may have taken their ids.
        if account_id is None:
            account = self.store.account_of(owner or "") or self._pool_of(owner)
        else:
            account = self.store.account(account_id) or self._pools.get(account_id)
            if account is None:
                raise ApiError(
                    Code.USER_NOT_FOUND,
                    f"user not found: no account {account_id} with an owner",
                )
        if account is None or (
            owner is not None and not _is_same(owner, account.owner)
        ):
            raise ApiError(
                Code.ADDRESS_NOT_FOUND,
                "address not found: owner has no account, or another",
            )
        return account

    def _pool_of(self, owner: str | None) -> Account | None:
        """Return the account of the pool at an address, unless its id was given to an account added later."""
        for pool in self._pools.values():
            if _is_same(owner, pool.owner) and self.store.account(pool.id) is None:
                return pool
        return None

    def wallet_of(self, account_id: int) -> Wallet | None:
        """Return the wallet that owns an account, if one does."""
        return (
            self.owner(account_id).wallet
            if account_id == self._wallet_account
            else None
        )

    def issue_key(
        self,
        account_id: int,
        urls: tuple[str, ...],
        params: dict[str, str],
        signature: str,
    ) -> str:
        """Return the API key of an account if its L2 key signed the request, for one of the given URLs."""
        account = self.store.account(account_id)
        if account is None:
            raise ApiError(
                Code.INVALID_ACCOUNT,
                f"accountId: no account {account_id} with an owner",
            )
        # The relayer knows its address only as the client names it.
        for url in urls:
            message = protocol.request_message("GET", url, params)
            if protocol.verify_request(account.x, account.y, message, signature):
                return self._api_key(account)
        raise ApiError(
            Code.WRONG_SIGNATURE,
            "wrong signature: the account's L2 key did not sign this request",
        )

    def check_key(self, key: str | None) -> None:
        """Check an API key; a valid one opens every account, as the contract says."""
        if not key:
            raise ApiError(
                Code.EMPTY_KEY,
                "empty api key: send it in the header X-API-KEY",
            )
        # In constant time, so that no key can be guessed digit by digit.
        if hmac.compare_digest(key.encode(), self._operator_key.encode()):
            return
        account = (
            self._store.account(int(key[:8], 16)) if API_KEY.fullmatch(key) else None
        )
        if account is None or not hmac.compare_digest(key, self._api_key(account)):
            raise ApiError(Code.INVALID_KEY, "invalid api key")

    def _api_key(self, account: Account) -> str:
        """Return a code of the account's present key, so that a key update ends it without a list of keys."""
        text = f"{account.id} {account.key_nonce} {account.x} {account.y}"
        secret = self._key_secret.encode()
        code = hmac.digest(secret, text.encode(), "sha384")[:API_KEY_BYTES]
        return f"{account.id:08x}{urlsafe_b64encode(code).decode()}"


def _is_same(address: str | None, other: str) -> bool:
    return address is not None and address.lower() == other.lower()


def _coordinates(point: tuple[int, int]) -> tuple[str, str]:
    """Write both coordinates of a key as the relayer serves them: 32 bytes in hex."""
    x, y = point
    return f"{x:#066x}", f"{y:#066x}"


@lru_cache(maxsize=512)
def demo_owner(seed: str, account_id: int, exchange: str, has_wallet: bool) -> Owner:
    """Derive the throwaway owner of an account."""
    from eth_account import Account, messages

    digest = sha256(
        b"loopring_lab throwaway key: " + seed.encode() + f", {account_id}".encode()
    )
    signer = Account.from_key(digest.digest())
    key_seed = protocol.key_seed(exchange, FIRST_NONCE - 1)
    key = protocol.l2_key(
        bytes(signer.sign_message(messages.encode_defunct(text=key_seed)).signature)
    )
    if not has_wallet:
        return Owner(signer.address, signer, key, key_seed, None)
    factory, code_hash = next(iter(protocol.FACTORY_INIT_CODE_HASHES.items()))
    wallet = Wallet(factory, signer.address, str(account_id))
    address = protocol.wallet_address(
        factory, signer.address, str(account_id), code_hash
    )
    return Owner(address, signer, key, key_seed, wallet)
