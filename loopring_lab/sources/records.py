"""The relayer's answers about accounts, key updates and API keys, parsed and checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.amounts import to_units
from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.scaling import with_scale
from loopring_lab.amounts.series import as_series
from loopring_lab.bounded import (
    MAX_ANSWER,
    Number,
    parse_decimal,
    parse_integer,
    parse_json,
    shown,
)
from loopring_lab.errors import (
    KeyUpdateError,
    LabError,
    ProtocolError,
    UnexpectedAnswer,
)
from loopring_lab.interactive.preview import Line, Sheet
from loopring_lab.protocol.eddsa import L2Key, recover_l2_key
from loopring_lab.protocol.fields import parse_coordinate
from loopring_lab.redaction import SecretBytes, SecretText, hide, hide_pasted, shielded

# The states of a key update, as the relayer's contract names them.
RECEIVED = "received"
PROCESSING = "processing"
PROCESSED = "processed"
FAILED = "failed"
UPDATE_STATES = (RECEIVED, PROCESSING, PROCESSED, FAILED)
FINAL_STATES = (PROCESSED, FAILED)
MOST_DIGITS = 76  # of an amount: the most that decimal256 holds
# Prices are converted at so many times at once, as all at once would take twice the memory.
TIMES_AT_ONCE = 1 << 14
# The words by which errors call what they expected.
KINDS = {
    str: "text",
    bool: "true or false",
    Number: "a number",
    list: "a list",
}
_HINT = "Check base_url: this may be another kind of relayer."


@dataclass(frozen=True, slots=True)
class Account:
    """An account as the relayer reports it."""

    account_id: int
    owner: str
    frozen: bool
    x: str
    y: str
    nonce: int
    key_nonce: int | None = None
    key_seed: str = ""
    tags: str = ""

    def has_key(self, key: L2Key) -> bool:
        """Return whether a key is this account's current one."""
        try:
            x = parse_coordinate("x", self.x)
            y = parse_coordinate("y", self.y)
        except ProtocolError:
            return False
        return x == key.x and y == key.y

    def recover_key(self, signature: bytes | str) -> L2Key:
        """Derive the account's current key from its wallet's signature of the text it was made with.

        Parameters
        ----------
        signature : bytes or str
            Of `Client.current_key_seed`, by personal_sign. Wallets write its last byte, v, as 27 or 28 or as 0 or
            1, which gives two keys: both are tried.

        Returns
        -------
        L2Key
            The account's key; its ``v`` tells which spelling fitted.

        Raises
        ------
        KeyUpdateError
            Neither spelling gives the account's key, or the account has none.
        ProtocolError
            Not hex, or shorter than 65 bytes.

        Examples
        --------
        >>> from eth_account.messages import encode_defunct
        >>> from loopring_lab.relayer import Relayer, World
        >>> with Relayer(World(size=0.01)) as relayer:
        ...     client = lab.connect(relayer.base_url)
        ...     text = encode_defunct(text=client.current_key_seed(10083))
        ...     signature = relayer.signer(10083).sign_message(text).signature
        ...     client.account(10083).recover_key(signature).v
        '27 or 28'
        """
        hidden = hide_pasted(signature)
        del signature
        key = recover_l2_key(hidden, self.x, self.y) if self.x else None
        if key is None:
            raise KeyUpdateError(
                f"signature: it does not give the key of account {self.account_id}, with v as 27 or 28 or as 0 or 1. "
                "It is of another text or by another wallet: sign client.current_key_seed() with the wallet of "
                f"{self.owner}."
            )
        return key

    def _repr_html_(self) -> str:
        return account_sheet(self)._repr_html_()


def account_sheet(account: Account) -> Sheet:
    """Return an account field by field."""
    frozen = "yes" if account.frozen else "no"
    lines = [
        Line("owner", account.owner, "the wallet that controls the account"),
        Line(
            "public key x",
            account.x,
            "of the L2 key that currently signs its requests",
        ),
        Line("public key y", account.y, "of the same key: it is a point"),
        Line("nonce", account.nonce, "the next update must carry this number"),
        Line("key seed", account.key_seed, "the text whose signature made the key"),
        Line("frozen", frozen, "yes while an update is pending"),
    ]
    return Sheet(f"Account {account.account_id}", lines)


@dataclass(frozen=True, slots=True)
class Exchange:
    """The exchange that a relayer serves."""

    address: str
    chain_id: int


class UpdateFee(NamedTuple):
    """What a key update costs in one token: an amount in its smallest units."""

    token: str
    amount: int
    discount: float


@dataclass(frozen=True, slots=True)
class Submission:
    """The relayer's answer to a key update, and to a question about its status."""

    status: str
    hash: str | None = None
    is_idempotent: bool = False
    storage_id: int | None = None
    reason: str | None = None
    account_id: int | None = None
    token_id: int | None = None


def read_submission(body: bytes) -> Submission:
    return _submission(_json_object(body, "account"))


def read_listed_update(body: bytes, update_hash: str) -> Submission | None:
    """Find a key update in the relayer's list of updates."""
    answer = _json_object(body, "updateInfo")
    for listed in _field(answer, "transactions", list):
        if isinstance(listed, dict) and listed.get("hash") == update_hash:
            return _submission(listed)
    return None


def read_account(
    body: bytes, account_id: int | None = None, owner: str | None = None
) -> Account:
    """Read an account, refusing another than the one asked for."""
    answer = _json_object(body, "account")
    found = _integer(answer, "accountId")
    found_owner: str = _field(answer, "owner", str)
    if account_id is not None:
        _refuse_another("accountId", account_id, found)
    # Upper case in an address is a checksum and no part of it (EIP-55).
    if owner is not None and found_owner.lower() != owner.lower():
        _refuse_another("owner", owner, found_owner)
    key = answer.get("publicKey")
    if not isinstance(key, dict):  # of an account that has none yet
        key = {}
    return Account(
        account_id=found,
        owner=found_owner,
        frozen=_field(answer, "frozen", bool),
        x=_padded_hex(key.get("x")),
        y=_padded_hex(key.get("y")),
        nonce=_integer(answer, "nonce"),
        key_nonce=_integer_or_none(answer, "keyNonce"),
        key_seed=_text(answer, "keySeed"),
        tags=_text(answer, "tags"),
    )


def read_exchange(body: bytes) -> Exchange:
    answer = _json_object(body, "exchange/info")
    address = _field(answer, "exchangeAddress", str)
    chain_id = _integer(answer, "chainId", least=1)
    return Exchange(address, chain_id)


def read_wallet(body: bytes) -> dict[str, str] | None:
    """Read the counterfactual wallet that owns an account; None for an account without one."""
    answer = _json_object(body, "counterFactualInfo")
    if not answer.get("walletFactory"):
        return None
    names = ("walletFactory", "walletOwner", "walletSalt")
    return {name: _field(answer, name, str) for name in names}


def read_is_contract(body: bytes) -> bool:
    """Tell whether an answer says that an address is a contract's."""
    # The question is in no contract of the relayer's, so an answer of any other shape does not say it.
    try:
        wallet = _json_object(body, "wallet/type").get("data")
    except UnexpectedAnswer:
        return False
    return isinstance(wallet, dict) and wallet.get("isContract") is True


def read_balance(body: bytes, account_id: int, token_id: int) -> int:
    """Read what an account can spend of a token, in smallest units; a token that is not listed is one it lacks."""
    listed = parse_json(body, "balances", size=MAX_ANSWER, hint=_HINT)
    if not isinstance(listed, list):
        _refuse("balances", "a list", listed)
    for balance in listed:
        if not isinstance(balance, dict):
            _refuse("balances", "objects", balance)
        _refuse_another("accountId", account_id, _integer(balance, "accountId"))
        if _integer(balance, "tokenId") == token_id:
            total = _smallest_units(balance, "total")
            locked = _smallest_units(balance, "locked")
            if locked > total:
                raise UnexpectedAnswer(
                    "locked", expected=f"at most {total}", got=locked, hint=_HINT
                )
            return total - locked
    return 0


def read_fees(body: bytes) -> list[UpdateFee]:
    answer = _json_object(body, "offchainFee")
    return [_fee(fee) for fee in _field(answer, "fees", list)]


def listed_fees(fees: list[UpdateFee], tokens: pd.Index) -> list[UpdateFee]:
    """Return the fees, or refuse some in tokens that the relayer does not list."""
    unlisted = [fee.token for fee in fees if fee.token not in tokens]
    if unlisted:
        hint = "This relayer charges fees in tokens that it does not list."
        raise UnexpectedAnswer(
            "fees", expected="listed tokens", got=shown(unlisted), hint=hint
        )
    return fees


def fee_frame(fees: list[UpdateFee], tokens: pd.DataFrame) -> pd.DataFrame:
    symbols = pd.Index([fee.token for fee in fees], name="fee_token")
    listed = tokens.loc[symbols]
    decimals = listed["decimals"].astype(int).to_numpy()
    smallest = [fee.amount for fee in fees]
    amounts = to_units(smallest, decimals)
    columns = {
        "token_id": listed["token_id"].astype(int).to_numpy(),
        "fee": amounts.array,
        "discount": [fee.discount for fee in fees],
    }
    return pd.DataFrame(columns, index=symbols)


def read_outside_prices(
    bodies: Mapping[str, bytes], markets: pd.DataFrame, kinds: Mapping[str, Any]
) -> pd.DataFrame:
    """Read the prices of markets at the same times, which are sent as whole numbers of 10**-12 quote.

    `kinds` are the types of the columns of trades, whose categories the prices get.
    """
    # Without markets there are no times.
    sent = [_int64(body) for body in bodies.values()] or [np.zeros(2, np.int64)]
    first, every = sent[0][:2]
    times = first + every * np.arange(len(sent[0]) - 2)
    for one in sent:
        if len(one) != len(sent[0]) or tuple(one[:2]) != (first, every):
            raise UnexpectedAnswer(
                "outsidePrices",
                expected="the same times for each market",
                got="others",
                hint=_HINT,
            )
    created_at = pd.DatetimeIndex(times.astype("datetime64[ms]")).tz_localize("UTC")
    names = list(bodies)
    bases = list(markets.loc[names, "base"])
    quotes = list(markets.loc[names, "quote"])
    columns = {}
    for name, values in (("market", names), ("base", bases), ("quote", quotes)):
        category = pd.Categorical(values)
        kind = kinds.get(name)
        if isinstance(kind, pd.CategoricalDtype):
            # pandas joins by categories only where both frames have the same ones.
            category = category.set_categories(kind.categories)
        columns[name] = pd.Categorical.from_codes(
            np.tile(category.codes, len(times)), dtype=category.dtype
        )
    return pd.DataFrame(
        {
            "created_at": created_at.repeat(len(sent)),
            **columns,
            "price": as_series(_prices([one[2:] for one in sent])),
        },
        copy=False,
    )


def _prices(of_markets: list[np.ndarray]) -> pa.Array:
    """Return prices in 10**-12 quote as amounts: of the first time those of all markets, then of the next time."""
    amounts = np.empty((len(of_markets[0]), len(of_markets)), "V16")
    for begin in range(0, len(amounts), TIMES_AT_ONCE):
        end = begin + TIMES_AT_ONCE
        part = np.stack([prices[begin:end] for prices in of_markets], axis=1)
        # Numbers of 64 bits have at most 19 digits, so that 128 bits hold them with six more decimal places. Checking
        # that each fits would take as long again.
        whole = pa.array(part.ravel()).cast(pa.decimal128(38, 0))
        scaled = with_scale(whole, pa.decimal128(38, 12))
        exact = scaled.cast(AMOUNT_TYPE, safe=False)
        amounts[begin:end] = np.frombuffer(exact.buffers()[1], "V16").reshape(
            part.shape
        )
    return pa.Array.from_buffers(
        AMOUNT_TYPE, amounts.size, [None, pa.py_buffer(amounts)]
    )


def read_api_key(body: bytes) -> SecretText:
    key = _api_key(SecretBytes(body))
    del body
    if not key or not isinstance(key, SecretText):
        raise UnexpectedAnswer(
            "apiKey", expected="text", got="something else", hint=_HINT
        )
    return key


@shielded
def encode_update(body: dict[str, Any]) -> SecretBytes:
    try:
        text = SecretText(json.dumps(body, separators=(",", ":"), ensure_ascii=False))
        return SecretBytes(text.encode())
    except (TypeError, ValueError):
        problem = "update_account: the body cannot be written as JSON"
    raise LabError(
        f"{problem}. Give text, numbers and objects of these, as KeyUpdate.body() does."
    )


def _fee(fee: object) -> UpdateFee:
    if not isinstance(fee, dict):
        got = type(fee).__name__
        raise UnexpectedAnswer("fees", expected="objects", got=got, hint=_HINT)
    amount = _smallest_units(fee, "fee")
    discount = parse_decimal(_field(fee, "discount", Number))
    if discount is None or not math.isfinite(float(discount)):
        _refuse("discount", "a number that fits a float", fee["discount"])
    token = _field(fee, "token", str)
    return UpdateFee(token, amount, float(discount))


def _smallest_units(answer: dict[str, Any], name: str) -> int:
    amount = _field(answer, name, str)
    is_whole = amount.isascii() and amount.isdigit()
    if not is_whole or len(amount) > MOST_DIGITS:
        raise UnexpectedAnswer(
            name,
            expected="smallest units as digits",
            got=repr(amount[:80]),
            hint=_HINT,
        )
    return int(amount)


def _int64(body: bytes) -> np.ndarray:
    """Read the prices of a market: the first time, that from one to the next, and each price, as int64."""
    numbers = np.frombuffer(body[: len(body) // 8 * 8], "<i8")
    if len(body) % 8 or len(numbers) < 2 or (numbers < 0).any():
        _refuse("outsidePrices", "numbers of 64 bits from 0", body)
    return numbers


def _submission(answer: dict[str, Any]) -> Submission:
    status = _field(answer, "status", str)
    if status not in UPDATE_STATES:
        _refuse("status", f"one of {', '.join(UPDATE_STATES)}", status)
    return Submission(
        status=status,
        hash=_field(answer, "hash", str),
        is_idempotent=answer.get("isIdempotent") is True,
        storage_id=_integer_or_none(answer, "storageId"),
        reason=_text(answer, "reason") or None,
        account_id=_integer_or_none(answer, "accountId"),
        token_id=_integer_or_none(answer, "tokenId"),
    )


def _padded_hex(text: Any) -> str:
    """Return a coordinate with all its 64 digits, or nothing if it is not one."""
    try:
        coordinate = parse_coordinate("publicKey", text or "")
    except ProtocolError:
        return ""
    return (
        f"{coordinate:#066x}"  # 0x and 32 bytes: some relayers leave out leading zeros
    )


def _json_object(body: bytes, name: str) -> dict[str, Any]:
    answer = parse_json(body, name, size=MAX_ANSWER, hint=_HINT)
    if not isinstance(answer, dict):
        raise UnexpectedAnswer(
            name, expected="a JSON object", got="something else", hint=_HINT
        )
    return answer


def _field(answer: dict[str, Any], name: str, expected: type) -> Any:
    value = answer.get(name)
    # Numbers are read as text of their own type (bounded.Number): the wire's text is not one of them.
    is_number = isinstance(value, Number)
    if not isinstance(value, expected) or (expected is str and is_number):
        _refuse(name, KINDS[expected], value)
    return value


def _text(answer: dict[str, Any], name: str) -> str:
    if answer.get(name) is None:  # older relayers leave it out
        return ""
    return str(_field(answer, name, str))


def _integer(answer: dict[str, Any], name: str, least: int = 0) -> int:
    text = _field(answer, name, Number)
    number = parse_integer(text)
    if number is None or number < least:
        _refuse(name, f"a whole number of {least} or more, below 2^63", text)
    return number


def _integer_or_none(answer: dict[str, Any], name: str) -> int | None:
    if answer.get(name) is None:  # older relayers leave it out
        return None
    return _integer(answer, name)


def _refuse_another(name: str, asked: object, answered: object) -> None:
    if answered != asked:
        expected = f"the account asked for, {asked}"
        raise UnexpectedAnswer(name, expected=expected, got=answered, hint=_HINT)


def _refuse(name: str, expected: str, value: object) -> NoReturn:
    got = "nothing" if value is None else f"another {type(value).__name__.lower()}"
    raise UnexpectedAnswer(name, expected=expected, got=got, hint=_HINT)


def _api_key(body: SecretBytes) -> SecretText | None:
    """Return the key in an answer, or None; no error, so that no traceback has a frame with it."""
    # The answer gets no name, as a Ctrl-C just then would show it.
    try:
        return cast(
            "SecretText | None", hide(_json_object(body, "apiKey").get("apiKey"))
        )
    except UnexpectedAnswer:
        return None
