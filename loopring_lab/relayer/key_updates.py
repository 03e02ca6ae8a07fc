"""Takes key updates in, checks every rule on them, and sees them through."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from loopring_lab import protocol
from loopring_lab.relayer.accounts import Accounts
from loopring_lab.relayer.answers import (
    DUPLICATE,
    FEE_TOKEN,
    FEE_TOO_LOW,
    INVALID_ARGUMENT,
    WRONG_EXCHANGE,
    WRONG_NONCE,
    Refusal,
)
from loopring_lab.relayer.history import Source
from loopring_lab.relayer.records import KeyChange, Update
from loopring_lab.relayer.settings import Settings

if TYPE_CHECKING:
    from loopring_lab.relayer.update_request import UpdateBody

__all__ = ["KeyUpdates"]


class KeyUpdates:
    """The key updates of a relayer's accounts.

    Parameters
    ----------
    accounts : Accounts
        Whose keys.
    source : Source
        Tells the tokens that fees are paid in.
    settings : Settings
        Exchange, fees, and what the contract leaves open.
    now : callable
        Seconds since the epoch.
    """

    def __init__(
        self, accounts: Accounts, source: Source, settings: Settings, now: Callable[[], float] = time.time
    ) -> None:
        self._accounts, self._source, self._settings, self._now = accounts, source, settings, now

    def __repr__(self) -> str:
        return f"KeyUpdates({self._source.label})"

    @property
    def time_ms(self) -> int:
        """What time it is for the relayer, in ms since the epoch."""
        return int(self._now() * 1000)

    @cached_property
    def fees(self) -> dict[int, tuple[str, int]]:
        """What pays for a key update: token id to symbol and fee in smallest units."""
        found: dict[str, int] = {}
        for record in self._source.tokens():
            found.setdefault(record.get("symbol", ""), record.get("tokenId", -1))
        fees = self._settings.update_fees
        return {found[symbol]: (symbol, fee) for symbol, fee in fees.items() if symbol in found}

    def submit(self, body: UpdateBody, header: str | None) -> tuple[Update, bool]:
        """Take a request to update a key.

        Parameters
        ----------
        body : UpdateBody
            The request.
        header : str or None
            X-API-SIG.

        Returns
        -------
        tuple of (Update, bool)
            What came of it, and whether it was there already.

        Raises
        ------
        Refusal
            With the documented code; nothing has changed then.
        """
        from loopring_lab.relayer.update_request import check_signer, check_wallet

        settings = self._settings
        if body.exchange.lower() != settings.exchange.lower():
            raise Refusal(WRONG_EXCHANGE, f"exchange: expected {settings.exchange}")
        self._accounts.find(body.account_id, body.owner)
        seed = self._key_seed(body)
        signer = check_wallet(body, {**protocol.FACTORY_INIT_CODE_HASHES, **settings.wallet_factories})
        name = check_signer(
            body,
            header,
            signer,
            settings.chain_id,
            bare=settings.bare_signatures,
            code=settings.bad_signature_code,
        )
        with self._accounts.store.transaction():
            pending = self._accounts.store.pending(body.account_id)
            if pending is None:
                return self._accept(body, seed, name), False
        if pending.change.hash != name:
            raise Refusal(
                DUPLICATE, "another update of this account is pending: ask again when it is through"
            )
        return pending, True

    def _accept(self, body: UpdateBody, seed: str, name: str) -> Update:
        nonce = self._accounts.find(body.account_id, body.owner).nonce
        if body.nonce != nonce:
            raise Refusal(WRONG_NONCE, f"nonce: expected the account's, {nonce}, got {body.nonce}")
        if body.valid_until <= self._now():
            raise Refusal(INVALID_ARGUMENT, f"validUntil: expected seconds after now, {int(self._now())}")
        x, y = (f"{int(part, 16):#066x}" for part in (body.public_key.x, body.public_key.y))
        fee = str(self._fee(body))
        change = KeyChange(
            body.account_id, name, x, y, nonce, seed, body.max_fee.token_id, fee, body.valid_until
        )
        return self._accounts.store.accept(change, self.time_ms)

    def _key_seed(self, body: UpdateBody) -> str:
        if body.key_seed is None and not self._settings.key_seed_required:
            return protocol.key_seed(body.exchange, body.nonce)
        end = f"with key nonce: {body.nonce}"
        if body.key_seed is None or not body.key_seed.endswith(end):
            raise Refusal(INVALID_ARGUMENT, f"keySeed: expected a text that ends in {end!r}")
        return body.key_seed

    def _fee(self, body: UpdateBody) -> int:
        symbols = ", ".join(symbol for symbol, _ in self.fees.values())
        symbol, fee = self.fees.get(body.max_fee.token_id, ("", -1))
        if not symbol:
            raise Refusal(FEE_TOKEN, f"fee token not supported: expected one of {symbols}")
        if int(body.max_fee.volume) < fee:
            raise Refusal(FEE_TOO_LOW, f"fee too low: an update costs {fee} smallest units of {symbol}")
        return fee

    def step(self) -> int:
        """Take every pending update one step on.

        Returns
        -------
        int
            How many were moved.
        """

        def failure(update: Update) -> str:
            if update.change.valid_until <= self._now():
                return "validUntil has passed"
            return self._settings.fail_updates.get(update.number, "")

        return self._accounts.store.step(self.time_ms, failure)
