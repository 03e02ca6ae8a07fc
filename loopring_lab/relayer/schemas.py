"""The HTTP interface's requests, responses and errors, as the OpenAPI document describes them."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError
from starlette.responses import JSONResponse

from loopring_lab.relayer.settings import Address

MS = "Milliseconds since the epoch."

Status = Literal["received", "processing", "processed", "failed"]

# Values of 256 bits: keys and hashes. The contract shows them without leading zeros too.
Hex256 = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{1,64}$")]
MAX_LIMIT = 50  # rows of a page, as the contract says
# Whole numbers up to here survive a JSON reader that makes doubles of them.
MAX_TIME = 2**53
# No number of a query has more digits than an unsigned integer of 64 bits.
DIGITS = re.compile(r"[0-9]{1,20}")


def _check_digits(text: object) -> object:
    if not isinstance(text, str) or not DIGITS.fullmatch(text):
        raise PydanticCustomError(
            "digits", "Input should be a whole number in decimal digits"
        )
    return text


# Pydantic alone would also accept 1_0 and 5.0 as whole numbers.
Digits = BeforeValidator(_check_digits)
# Ids of accounts, nonces and times are uint32 in the exchange's contract.
AccountId = Annotated[int, Field(ge=0, le=2**32 - 1), Digits]
TokenId = Annotated[int, Field(ge=0, lt=2**16), Digits]
TimeMs = Annotated[int, Field(ge=0, le=MAX_TIME), Digits]
Offset = Annotated[int, Field(ge=0, le=2**31 - 1, description="Rows to skip."), Digits]
Limit = Annotated[
    int,
    Field(ge=0, le=MAX_LIMIT, description=f"Most rows to return; 0 is {MAX_LIMIT}."),
    Digits,
]
Uint32 = Annotated[int, Field(ge=0, lt=2**32)]


class Code(IntEnum):
    """The error codes of the contract that this relayer uses."""

    UNKNOWN = 100000
    INVALID_ARGUMENT = 100001
    DUPLICATE = 100204
    ADDRESS_NOT_FOUND = 101001
    USER_NOT_FOUND = 101002
    WRONG_EXCHANGE = 102001
    WRONG_NONCE = 102021
    EMPTY_KEY = 104001
    INVALID_KEY = 104002
    INVALID_ACCOUNT = 104003
    NO_SIGNATURE = 104004
    WRONG_SIGNATURE = 104005
    FEE_TOKEN = 114001
    FEE_TOO_LOW = 114002


class ApiError(Exception):
    """A request that the contract does not allow, to be answered with an error code."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


def error_response(
    code: int,
    message: str,
    status: int = 400,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """Build an error response in the contract's shape."""
    content = {"resultInfo": {"code": code, "message": message}}
    return JSONResponse(content, status, headers)


# Responses. FastAPI writes them, and describes them in the OpenAPI document.


class _Record(BaseModel):
    """A record whose members are named in camel case on the wire; it has all of them, also those of a fixed value."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_serialization_defaults_required=True,
    )


class ResultInfo(_Record):
    code: int
    message: str


class ErrorResponse(_Record):
    result_info: ResultInfo


class TokenRecord(_Record):
    type: str
    token_id: int
    symbol: str
    name: str
    address: str
    decimals: int
    precision: int = Field(description="A smaller amount counts as zero.")
    precision_for_order: int
    order_amounts: dict[str, str] = Field(
        description="minimum, maximum and dust in smallest units."
    )
    lucky_token_amounts: dict[str, str]
    fast_withdraw_limit: str
    gas_amounts: dict[str, str] = Field(
        description="Of a withdrawal (distribution) and a deposit."
    )
    enabled: bool = Field(description="Whether deposits and withdrawals are open.")


class PairRecord(_Record):
    market: str
    base_token_id: int
    quote_token_id: int
    precision_for_price: int
    orderbook_agg_levels: int
    enabled: bool


class PairsResponse(_Record):
    markets: list[PairRecord]


class MarketRecord(PairRecord):
    status: int = Field(description="Bit 0: AMM. Bit 1: order book.")
    created_at: str = Field(description='Milliseconds since the epoch; "0" is unknown.')


class MarketsResponse(_Record):
    markets: list[MarketRecord]


class TradesResponse(_Record):
    total_num: int = Field(description="The number of rows that match, on all pages.")
    trades: list[list[str]] = Field(
        description="createdAt, id, side, size, price, market, feeAmount, blockId, indexInBlock, accountId, "
        "tokenId, storageId, orderHash, role."
    )


class ExchangeResponse(_Record):
    chain_id: int
    exchange_address: str
    # The contract that deposits go to, as the public document shows it; nothing here uses it.
    deposit_address: str = "0x674bdf20A0F284D710BC40872100128e2d66Bd3f"


class TimeResponse(_Record):
    timestamp: int = Field(description=MS)


class Point(_Record):
    """An L2 public key, 0x hex; empty where the account has none."""

    x: str
    y: str


class AccountResponse(_Record):
    account_id: int
    owner: str
    frozen: bool = Field(description="True while a key update is pending.")
    public_key: Point
    tags: str = ""
    nonce: int
    key_nonce: int
    key_seed: str


class WalletResponse(_Record):
    account_id: int
    wallet: str
    wallet_factory: str
    wallet_owner: str
    wallet_salt: str


class KeyResponse(_Record):
    api_key: str


class StorageResponse(_Record):
    """The next unused storage ids: orders have even ones, other requests odd ones."""

    order_id: int
    offchain_id: int


class Pending(_Record):
    withdraw: str = "0"
    deposit: str = "0"


class BalanceRecord(_Record):
    """What an account has of a token, in smallest units."""

    account_id: int
    token_id: int
    total: str
    locked: str = Field(description="The fee of a pending key update.")
    pending: Pending = Pending()


class WalletType(_Record):
    is_in_counter_factual_status: bool
    is_contract: bool
    loopring_wallet_contract_version: str = ""


class WalletTypeResponse(_Record):
    data: WalletType


class TokenFee(_Record):
    token: str
    fee: str = Field(description="Smallest units.")
    discount: int = 1


class FeesResponse(_Record):
    # The price is in wei, and made up: nothing here costs gas.
    gas_price: str = "20000000000"
    fees: list[TokenFee]


class UpdateResponse(_Record):
    """Whether a key update was accepted; its outcome is reported later."""

    hash: str
    status: Status
    is_idempotent: bool = Field(
        description="Whether the same request is pending already."
    )
    account_id: int
    token_id: int
    storage_id: int


class UpdateRecord(_Record):
    id: int
    hash: str
    owner: str
    tx_hash: str = ""
    fee_token_symbol: str
    fee_amount: str
    status: Status
    progress: str
    timestamp: int = Field(description=MS)
    block_num: int = 0
    updated_at: int = Field(description=MS)
    block_id: int = 0
    index_in_block: int = 0
    reason: str = Field(
        description="Why it failed, else empty; an addition of this relayer's own."
    )


class UpdatesResponse(_Record):
    total_num: int
    transactions: list[UpdateRecord]


# Queries of requests.


class _Params(BaseModel):
    # This is not a _Record, which would also accept account_id for accountId.
    model_config = ConfigDict(alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, given: dict[str, Any]) -> dict[str, Any]:
        # The documented defaults are empty text, which clients send for what is not given.
        return {name: value for name, value in given.items() if value != ""}


class AccountParams(_Params):
    account_id: AccountId | None = Field(
        None, description="Account id, unless owner is given."
    )
    owner: Address | None = Field(None, description="Address of the owner.")


class TradesParams(_Params):
    account_id: AccountId = Field(
        0, description="Required unless orderHash is given; 0 for none."
    )
    market: str | None = Field(None, description="Only trades in this market.")
    order_hash: Hex256 | None = Field(None, description="Only fills of this order.")
    fill_types: Literal["amm", "dex", "amm,dex", "dex,amm"] = Field(
        "amm,dex", description="Only these."
    )
    offset: Offset = 0
    limit: Limit = MAX_LIMIT


class FeeParams(_Params):
    request_type: Literal["2"] = Field(
        description="2: an account update, the only request with a fee."
    )


class StorageParams(_Params):
    sell_token_id: TokenId = Field(description="Token that is sold or sent.")


class BalancesParams(_Params):
    tokens: str = Field(
        "",
        pattern=r"^([0-9]{1,5}(,[0-9]{1,5})*)?$",
        description="Token ids, separated by commas; all tokens if empty.",
    )


# The body of a key update, which `key_updates.read_update` reads.

# A member that changes nothing may be anything: the exchange's wallet sends the recommender's id as text.
Ignored = Annotated[Any, Field(description="Ignored.")]


class _Body(BaseModel):
    """A part of a request body: no coerced types, no additional members."""

    model_config = ConfigDict(strict=True, extra="forbid", alias_generator=to_camel)


class PublicKey(_Body):
    x: Hex256
    y: Hex256


class TokenVolume(_Body):
    token_id: int = Field(
        ge=0,
        lt=2**15,
        description="Ids from 32768 up are NFTs, which cannot pay fees.",
    )
    volume: str = Field(pattern=r"^[0-9]{1,29}$", description="Smallest units, uint96.")


class CounterFactualInfo(_Body):
    """What the owner's address is derived from where it is a wallet that is not deployed yet."""

    wallet_factory: Address
    wallet_owner: Address
    wallet_salt: str = Field(
        pattern=r"^([0-9]{1,78}|0x[0-9a-fA-F]{1,64})$", description="uint256."
    )
    account_id: Ignored = None
    wallet: Ignored = None
    owner: Ignored = None


class KeyBody(BaseModel):
    """The body of POST /apiKey, in which clients write the id as a number or as text."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel)

    account_id: Annotated[int, Field(ge=0, lt=2**32)]


class UpdateBody(_Body):
    """The body of POST /account."""

    exchange: Address
    owner: Address
    account_id: Uint32
    public_key: PublicKey
    max_fee: TokenVolume
    valid_until: Uint32 = Field(description="Seconds since the epoch.")
    nonce: Uint32 = Field(description="The account's nonce.")
    key_seed: str = Field(
        max_length=1000,
        description="The text signed to derive the key; ends in `with key nonce: <n>`.",
    )
    ecdsa_signature: str | None = Field(
        None,
        pattern=r"^0x[0-9a-fA-F]{2,512}$",
        repr=False,
        description="The same as X-API-SIG.",
    )
    counter_factual_info: CounterFactualInfo | None = None
    # Clients of the exchange send these too.
    eddsa_signature: str | None = Field(
        None, repr=False, description="Ignored; only L1 signatures count."
    )
    hash_approved: Ignored = None
    recommender_account_id: Ignored = None
