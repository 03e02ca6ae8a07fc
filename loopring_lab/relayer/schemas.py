"""What the relayer answers, as OpenAPI describes it: records, answers and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from loopring_lab.relayer.settings import ErrorShape

if TYPE_CHECKING:
    from starlette.responses import JSONResponse


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

BAD_REQUEST, OK = 400, 200


class Refusal(Exception):
    """A request that the contract does not allow."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


def invalid(name: str, text: str, expected: str) -> Refusal:
    """A refusal of an argument that is not what it should be."""
    return Refusal(INVALID_ARGUMENT, f"{name}: expected {expected}, got {printable(text)}")


def printable(text: str) -> str:
    """A text of a client's, short and in plain characters."""
    return ascii(text if len(text) <= 40 else text[:40] + "...")


def error_answer(
    shape: ErrorShape,
    code: int,
    message: str,
    status: int = BAD_REQUEST,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """An error as the settings shape it."""
    from starlette.responses import JSONResponse

    wrapped = {"resultInfo": {"code": code, "message": message}}
    body = {"code": code, "msg": message} if shape == "flat" else wrapped
    return JSONResponse(body, OK if shape == "ok" and status == BAD_REQUEST else status, headers)


Status = Literal["received", "processing", "processed", "failed"]


class _Record(BaseModel):
    """A record whose members are named in camel case on the wire."""

    model_config = ConfigDict(alias_generator=to_camel)


class Amounts(_Record):
    """Bounds in smallest units."""

    minimum: str
    maximum: str
    dust: str


class Gas(_Record):
    """Gas of a withdrawal (distribution) and a deposit."""

    distribution: str
    deposit: str


class TokenRecord(_Record):
    """A token."""

    type: str
    token_id: int
    symbol: str
    name: str
    address: str
    decimals: int
    precision: int | None = Field(None, description="A smaller amount counts as zero.")
    precision_for_order: int | None = None
    order_amounts: Amounts | None = None
    lucky_token_amounts: Amounts | None = None
    fast_withdraw_limit: str | None = None
    gas_amounts: Gas | None = None
    enabled: bool = Field(description="Whether deposits and withdrawals are open.")


class MarketRecord(_Record):
    """A market."""

    market: str
    base_token_id: int
    quote_token_id: int
    precision_for_price: int | None = None
    orderbook_agg_levels: int | None = None
    enabled: bool
    status: int | None = Field(None, description="Bit 0: AMM. Bit 1: order book.")
    created_at: str | None = Field(None, description='Milliseconds since the epoch; "0" is unknown.')


class MarketsAnswer(_Record):
    """All markets."""

    markets: list[MarketRecord]


class TradesAnswer(_Record):
    """A page of trades."""

    total_num: int = Field(description="Rows of the whole filter.")
    trades: list[list[str | float | None]] = Field(
        description="createdAt, id, side, size, price, market, feeAmount, blockId, indexInBlock, accountId, "
        "tokenId, storageId, orderHash, role."
    )


class ResultInfo(_Record):
    """What is wrong."""

    code: int
    message: str


class WrappedError(_Record):
    """An error."""

    result_info: ResultInfo


class FlatError(_Record):
    """An error."""

    code: int
    msg: str


class ExchangeAnswer(_Record):
    """The exchange that accounts belong to."""

    chain_id: int
    exchange_address: str
    deposit_address: str


class TimeAnswer(_Record):
    """The relayer's clock."""

    timestamp: int = Field(description="Milliseconds since the epoch.")


class Point(_Record):
    """An L2 public key, 0x hex; empty where the account has none."""

    x: str
    y: str


class AccountAnswer(_Record):
    """An account."""

    account_id: int
    owner: str
    frozen: bool = Field(description="True while a key update is pending.")
    public_key: Point
    tags: str
    nonce: int
    key_nonce: int
    key_seed: str


class UpdateAnswer(_Record):
    """Whether a key update was taken; what becomes of it is asked for later."""

    hash: str
    status: Status
    is_idempotent: bool = Field(description="The same request was there already.")
    account_id: int
    token_id: int
    storage_id: int


class KeyAnswer(_Record):
    """An API key."""

    api_key: str


class TokenFee(_Record):
    """What a request costs in one token."""

    token: str
    fee: str = Field(description="Smallest units.")
    discount: float


class FeesAnswer(_Record):
    """What a request costs, in any of these tokens."""

    gas_price: str
    fees: list[TokenFee]


class UpdateRecord(_Record):
    """A key update that was accepted."""

    id: int
    hash: str
    owner: str
    tx_hash: str
    fee_token_symbol: str
    fee_amount: str
    status: Status
    progress: str
    timestamp: int = Field(description="Milliseconds since the epoch, as updatedAt.")
    block_num: int
    updated_at: int
    block_id: int
    index_in_block: int
    reason: str = Field(description="Why it failed, else empty. No public document has it: ours.")


class UpdatesAnswer(_Record):
    """Key updates, newest first."""

    total_num: int
    transactions: list[UpdateRecord]


class CounterFactualAnswer(_Record):
    """How the address of an account's wallet comes about."""

    account_id: int
    wallet: str
    wallet_factory: str
    wallet_owner: str
    wallet_salt: str


def answers(model: Any, shape: ErrorShape) -> dict[int | str, dict[str, Any]]:
    """What an operation answers that can be refused."""
    if shape == "ok":
        return {200: {"model": model | WrappedError}}
    error = FlatError if shape == "flat" else WrappedError
    return {200: {"model": model}, 400: {"model": error, "description": "Refused"}}
