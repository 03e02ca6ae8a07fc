"""The accounts of a relayer: their owners, the owners' demo wallets, and the API keys."""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections import Counter
from functools import cached_property, lru_cache
from hashlib import sha256
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from loopring_lab import protocol
from loopring_lab.errors import LabError, ProtocolError
from loopring_lab.protocol.fields import parse_address, parse_uint
from loopring_lab.relayer.schemas import ApiError, Code
from loopring_lab.relayer.settings import ADDRESS, Settings

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

    from loopring_lab.relayer.world import World

# Accounts that are as unkind to an update of their key as real ones can be. They have no trades.
EMPTY_SEED = 70_003
COUNTERFACTUAL = 70_004
CONTRACT = 70_005
POOR = 70_006
DIFFICULT = {
    EMPTY_SEED: "its keySeed is empty: the key was made with the usual text",
    COUNTERFACTUAL: "a wallet that is not deployed yet owns it",
    CONTRACT: "a deployed contract owns it, which has no private key",
    POOR: "it has half of what an update costs, in every token",
}
UNITS = 10_000  # a choice: what every other account has of each token

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
    keys_replaced: int = 0


class KeyRequest(NamedTuple):
    """A request for an API key: what of it was signed, but for which of the URLs."""

    account_id: int
    method: str
    urls: tuple[str, ...]
    content: dict[str, Any]


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

    def __init__(self, source: World, settings: Settings, operator_key: str) -> None:
        """Take whose accounts these are, the exchange, and the key that opens all of them."""
        self._source = source
        self._settings = settings
        self._operator_key = operator_key
        traders = (*source.accounts, *source.planted)
        self.difficult = {
            account_id: why
            for account_id, why in DIFFICULT.items()
            if account_id not in traders
        }
        self._owned = (*traders, *self.difficult)
        self._pools = {
            account_id: Account(account_id, address, "", "", 0, 0, "")
            for account_id, address in source.pool_owners().items()
        }
        # One account with trades is owned by a wallet, too.
        self._wallet_accounts = {COUNTERFACTUAL, max(source.accounts, default=-1)}
        # The fees paid so far, by account and token.
        self._paid = Counter[tuple[int, int]]()
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
            "" if account_id == EMPTY_SEED else owner.key_seed,
        )

    def owner(self, account_id: int) -> Owner:
        """Return the owner of an account of the source."""
        if account_id not in self._owned:
            raise LabError(
                f"Relayer: it has no owner for account {account_id}. Use one of relayer.accounts."
            )
        has_wallet = account_id in self._wallet_accounts
        owner = demo_owner(
            self._source.name,
            account_id,
            self._settings.exchange,
            has_wallet,
        )
        if self.is_contract(account_id):
            # Any address that is nobody's: no signature recovers it.
            contract = sha256(owner.address.encode()).hexdigest()[:40]
            owner = owner._replace(address=parse_address("owner", contract))
        return owner

    def is_contract(self, account_id: int) -> bool:
        """Return whether a deployed contract owns an account."""
        return account_id == CONTRACT and account_id in self.difficult

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
        if account_id not in self._wallet_accounts or account_id not in self._owned:
            return None
        return self.owner(account_id).wallet

    def balance(self, account_id: int, token_id: int) -> int:
        """Return what an account has of a token, in smallest units."""
        if account_id not in self.held:
            return 0
        symbol, decimals = self._tokens.get(token_id, ("", 0))
        first: int = UNITS * 10**decimals
        if account_id == POOR and account_id in self.difficult:
            first = self._settings.update_fees.get(symbol, 0) // 2
        return first - self._paid[account_id, token_id]

    def charge(self, account_id: int, token_id: int, fee: int) -> None:
        """Take a fee from an account."""
        with self.lock:
            self._paid[account_id, token_id] += fee

    @cached_property
    def _tokens(self) -> dict[int, tuple[str, int]]:
        tokens = self._source.tokens()
        return {each["tokenId"]: (each["symbol"], each["decimals"]) for each in tokens}

    def issue_key(self, request: KeyRequest, signature: str) -> str:
        """Return an account's API key if its L2 key signed the request; what is posted asks for a new one."""
        with self.lock:
            account = self.held.get(request.account_id)
            if account is None:
                raise ApiError(
                    Code.INVALID_ACCOUNT,
                    f"accountId: no account {request.account_id} with an owner",
                )
            self._check_request(account, request, signature)
            if request.method == "POST":
                replaced = account.keys_replaced + 1
                account = account._replace(keys_replaced=replaced)
                self.held[account.id] = account
            return self._api_key(account)

    def _check_request(
        self, account: Account, request: KeyRequest, signature: str
    ) -> None:
        # The relayer knows its address only as the client names it.
        for url in request.urls:
            try:
                message = protocol.request_message(request.method, url, request.content)
            except ProtocolError as error:
                raise ApiError(Code.INVALID_ARGUMENT, str(error)) from None
            if protocol.verify_request(account.x, account.y, message, signature):
                return
        raise ApiError(
            Code.WRONG_SIGNATURE,
            "wrong signature: the account's L2 key did not sign this request",
        )

    def check_key(self, key: str) -> None:
        """Check an API key; a valid one opens every account, as the contract says."""
        # Keys are compared in constant time, so that none can be guessed digit by digit.
        if hmac.compare_digest(key.encode(), self._operator_key.encode()):
            return
        account = None
        if API_KEY.fullmatch(key):
            account = self.held.get(int(key[:8], 16))
        if account is None or not hmac.compare_digest(key, self._api_key(account)):
            raise ApiError(Code.INVALID_KEY, "invalid api key")

    def _api_key(self, account: Account) -> str:
        """Return a code of the account's present key, so that a key update ends it without a list of keys."""
        text = f"{account.id} {account.key_nonce} {account.keys_replaced} {account.x} {account.y}"
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
