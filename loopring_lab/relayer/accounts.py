"""The accounts of a relayer: their owners, the owners' demo wallets, and the API keys."""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from functools import cached_property, lru_cache
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, NamedTuple

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.protocol.fields import parse_uint
from loopring_lab.relayer.history import Source
from loopring_lab.relayer.schemas import ApiError, Code
from loopring_lab.relayer.settings import ADDRESS, Settings

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

FIRST_NONCE = 1  # each owner has set a key once, with nonce 0

# An API key: the account's id in hex, then 42 bytes of a code in base64. The whole is 64 characters, as the
# keys of the real exchange.
API_KEY = re.compile(r"[0-9a-f]{8}[\x00-\x7f]{56}")
API_KEY_BYTES = 42


class Account(NamedTuple):
    """An account as the exchange has it; the key is x and y in hex, both empty where there is none."""

    id: int
    owner: str
    x: str
    y: str
    nonce: int
    key_nonce: int
    key_seed: str
    is_frozen: bool = False


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

    def __init__(self, source: Source, settings: Settings, operator_key: str) -> None:
        """Take whose accounts these are, the exchange, and the key that opens all of them."""
        self._source = source
        self._settings = settings
        self._operator_key = operator_key
        self._owned = (*source.accounts, *source.planted)
        self._pools = {
            account_id: Account(account_id, address, "", "", 0, 0, "")
            for account_id, address in source.pool_owners().items()
        }
        # One account is owned by a wallet, so that key updates of wallets can be tried.
        self._wallet_account = max(source.accounts, default=-1)
        self._key_secret = secrets.token_bytes(32)
        # Requests, steps of key updates and the notebook's own thread meet here.
        self.lock = RLock()

    @property
    def held(self) -> dict[int, Account]:
        """Every account that has an owner, by its id; change it only while you hold the lock."""
        with self.lock:
            return self._held

    @cached_property
    def _held(self) -> dict[int, Account]:
        # Deriving the owners' keys takes a while, so they are derived when somebody asks.
        return {account_id: self._first_state(account_id) for account_id in self._owned}

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
            self._source.name,
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
        with self.lock:
            is_taken = (
                account_id in self._source.history.accounts
                or account_id in self.held
                or self._account_of(owner) is not None
            )
            if is_taken:
                raise LabError(
                    f"Account {account_id}, owner {owner}: exists already. Give another id and owner."
                )
            self.held[account_id] = Account(
                account_id, owner, x, y, nonce, nonce, key_seed
            )

    def exists(self, account_id: int) -> bool:
        """Return whether an account exists, with or without an owner."""
        has_trades = account_id in self._source.history.accounts
        return has_trades or account_id in self._pools or account_id in self.held

    def find(self, account_id: int | None, owner: str | None) -> Account:
        """Return the account of an id, of an owner, or of both where they agree."""
        if account_id is None:
            account = self._account_of(owner or "")
        else:
            account = self.held.get(account_id) or self._pools.get(account_id)
            if account is None:
                raise ApiError(
                    Code.USER_NOT_FOUND,
                    f"user not found: no account {account_id} with an owner",
                )
        is_other = owner is not None and account and not _is_same(owner, account.owner)
        if account is None or is_other:
            raise ApiError(
                Code.ADDRESS_NOT_FOUND,
                "address not found: owner has no account, or another",
            )
        return account

    def _account_of(self, owner: str) -> Account | None:
        """Return the account that an address owns, whatever the case of its digits."""
        with self.lock:
            # An account added later may have taken the id of a pool.
            accounts = self._pools | self.held
        for account in accounts.values():
            if _is_same(owner, account.owner):
                return account
        return None

    def wallet_of(self, account_id: int) -> Wallet | None:
        """Return the wallet that owns an account, if one does."""
        if account_id != self._wallet_account:
            return None
        return self.owner(account_id).wallet

    def issue_key(
        self,
        account_id: int,
        urls: tuple[str, ...],
        params: dict[str, str],
        signature: str,
    ) -> str:
        """Return the API key of an account if its L2 key signed the request, for one of the given URLs."""
        account = self.held.get(account_id)
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

    def check_key(self, key: str) -> None:
        """Check an API key; a valid one opens every account, as the contract says."""
        # In constant time, so that no key can be guessed digit by digit.
        if hmac.compare_digest(key.encode(), self._operator_key.encode()):
            return
        account = None
        if API_KEY.fullmatch(key):
            account = self.held.get(int(key[:8], 16))
        if account is None or not hmac.compare_digest(key, self._api_key(account)):
            raise ApiError(Code.INVALID_KEY, "invalid api key")

    def _api_key(self, account: Account) -> str:
        """Return a code of the account's present key, so that a key update ends it without a list of keys."""
        text = f"{account.id} {account.key_nonce} {account.x} {account.y}"
        code = hmac.digest(self._key_secret, text.encode(), "sha384")[:API_KEY_BYTES]
        return f"{account.id:08x}{urlsafe_b64encode(code).decode()}"


def _is_same(address: str, other: str) -> bool:
    return address.lower() == other.lower()


def _coordinates(point: tuple[int, int]) -> tuple[str, str]:
    """Write both coordinates of a key as the relayer serves them: 32 bytes in hex."""
    x, y = point
    return f"{x:#066x}", f"{y:#066x}"


@lru_cache(maxsize=512)
def demo_owner(name: str, account_id: int, exchange: str, has_wallet: bool) -> Owner:
    """Derive the throwaway owner of an account from public text: the name of the data and the account's id."""
    import eth_account
    from eth_account.messages import encode_defunct

    text = f"loopring_lab throwaway key: {name}, {account_id}"
    signer = eth_account.Account.from_key(sha256(text.encode()).digest())
    key_seed = protocol.key_seed(exchange, FIRST_NONCE - 1)
    signed = signer.sign_message(encode_defunct(text=key_seed))
    key = protocol.l2_key(bytes(signed.signature))
    if not has_wallet:
        return Owner(signer.address, signer, key, key_seed, None)
    factory, code_hash = next(iter(protocol.FACTORY_INIT_CODE_HASHES.items()))
    wallet = Wallet(factory, signer.address, str(account_id))
    address = protocol.wallet_address(
        factory, signer.address, str(account_id), code_hash
    )
    return Owner(address, signer, key, key_seed, wallet)
