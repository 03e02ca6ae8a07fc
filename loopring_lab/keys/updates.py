"""An update of a key as it is signed and sent; nothing here asks, signs or sends."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from loopring_lab.errors import KeyUpdateError, ProtocolError
from loopring_lab.hidden import SecretText
from loopring_lab.keys.terms import Counterfactual
from loopring_lab.protocol import AccountUpdate, L2Key, account_update_digest, account_update_typed_data
from loopring_lab.sheet import Line


@dataclass(frozen=True, slots=True)
class Update:
    """Everything that an update of a key says, but for the key and the signature.

    Parameters
    ----------
    exchange : str
        Address of the exchange, in the relayer's case.
    chain_id : int
        1 for the mainnet.
    owner : str
        Checksummed address of the account's owner.
    account_id : int
        Whose key.
    fee_token_id : int
        Token the fee is paid in.
    max_fee : int
        Most to pay, in smallest units of that token.
    valid_until : int
        Seconds since the epoch.
    nonce : int
        The account's.
    key_seed : str
        Text whose signature makes the key.
    counterfactual : Counterfactual, optional
        Where the owner is such a wallet.
    """

    exchange: str
    chain_id: int
    owner: str
    account_id: int
    fee_token_id: int
    max_fee: int
    valid_until: int
    nonce: int
    key_seed: str
    counterfactual: Counterfactual | None = None

    def __post_init__(self) -> None:
        end = f"with key nonce: {self.nonce}"
        if not self.key_seed.endswith(end):
            raise ProtocolError(
                "keySeed",
                f"does not end in {end!r}",
                hint="End it so, or leave key_seed out for the usual one.",
            )
        wallet = self.counterfactual
        if wallet and wallet.address().lower() != self.owner.lower():
            raise KeyUpdateError(
                f"counterfactual: factory, owner and salt give the wallet {wallet.address()}, but the owner "
                f"of the account is {self.owner}. Check the salt and the wallet's owner."
            )

    @property
    def signer(self) -> str:
        """Address of the wallet that must sign."""
        return self.counterfactual.owner if self.counterfactual else self.owner

    def typed_data(self, key: L2Key) -> dict[str, Any]:
        """Write what the wallet signs.

        Parameters
        ----------
        key : L2Key
            The new key.

        Returns
        -------
        dict
            For eth_signTypedData_v4.

        Raises
        ------
        ProtocolError
            Names the field that is out of range.
        """
        return account_update_typed_data(**self._signed(key))

    def digest(self, key: L2Key) -> bytes:
        """Hash what the wallet signs.

        Parameters
        ----------
        key : L2Key
            The new key.

        Returns
        -------
        bytes
            32 bytes.

        Raises
        ------
        ProtocolError
            Names the field that is out of range.
        """
        return account_update_digest(**self._signed(key))

    def body(self, key: L2Key, signature: SecretText) -> dict[str, Any]:
        """Write what is sent.

        Parameters
        ----------
        key : L2Key
            The new key.
        signature : SecretText
            Of the typed data, in the form of X-API-SIG.

        Returns
        -------
        dict
            Members in the contract's order; the signature shows itself as ``<hidden>``.
        """
        body: dict[str, Any] = {
            "exchange": self.exchange,
            "owner": self.owner,
            "accountId": self.account_id,
            "publicKey": {"x": f"{key.x:#066x}", "y": f"{key.y:#066x}"},
            "maxFee": {"tokenId": self.fee_token_id, "volume": str(self.max_fee)},
            "validUntil": self.valid_until,
            "nonce": self.nonce,
            "keySeed": self.key_seed,
            "ecdsaSignature": signature,
        }
        return body | ({"counterFactualInfo": self.counterfactual.wire()} if self.counterfactual else {})

    def lines(self, key: L2Key | None, signed: str, fee: str) -> list[Line]:
        """List what would be sent.

        Parameters
        ----------
        key : L2Key or None
            The new key, as far as it is known.
        signed : str
            What stands for the signature.
        fee : str
            The fee in words.

        Returns
        -------
        list of Line
            The header, then the body in the contract's order.
        """
        x, y = (f"{key.x:#066x}", f"{key.y:#066x}") if key else ("not known yet",) * 2
        until = datetime.fromtimestamp(self.valid_until, UTC)
        chain = f"the exchange's contract, on chain {self.chain_id}"
        return [
            Line("X-API-SIG", signed, "header: the wallet's signature of the typed data"),
            Line("exchange", self.exchange, f"{chain}: the update holds nowhere else"),
            Line("owner", self.owner, "the wallet that owns the account"),
            Line("accountId", self.account_id, "the account whose key changes"),
            Line("publicKey.x", x, "the new public key, a point: its x. The secret stays here"),
            Line("publicKey.y", y, "and its y"),
            Line("maxFee.tokenId", self.fee_token_id, "the token that pays the fee"),
            Line("maxFee.volume", self.max_fee, f"in smallest units; {fee}"),
            Line(
                "validUntil",
                self.valid_until,
                f"seconds since 1970: not processed after {until:%Y-%m-%d %H:%M:%S} UTC",
            ),
            Line("nonce", self.nonce, "the account's counter: the update works once, as this one"),
            Line(
                "keySeed",
                self.key_seed,
                "the text whose signature makes the key, so that it can be made again",
            ),
            Line("ecdsaSignature", signed, "the header's signature once more"),
            *self._wallet_lines(),
        ]

    def _signed(self, key: L2Key) -> AccountUpdate:
        return AccountUpdate(
            exchange=self.exchange,
            chain_id=self.chain_id,
            owner=self.owner,
            account_id=self.account_id,
            x=key.x,
            y=key.y,
            fee_token_id=self.fee_token_id,
            max_fee=self.max_fee,
            valid_until=self.valid_until,
            nonce=self.nonce,
        )

    def _wallet_lines(self) -> list[Line]:
        if self.counterfactual is None:
            return []
        wire = self.counterfactual.wire()
        return [
            Line(f"counterFactualInfo.{name}", wire[name], meaning)
            for name, meaning in (
                ("walletFactory", "the contract that would deploy the owner's wallet"),
                ("walletOwner", "who signs for that wallet"),
                ("walletSalt", "with these three the relayer computes the owner's address again"),
            )
        ]
