"""The relayer's HTTP side: paths, answers, OpenAPI."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException

from loopring_lab.relayer.answers import (
    EMPTY_KEY,
    INVALID_ARGUMENT,
    INVALID_KEY,
    UNKNOWN,
    Refusal,
    error_answer,
)
from loopring_lab.relayer.conditions import API, Conditions, Counts
from loopring_lab.relayer.docs import page
from loopring_lab.relayer.history import Source
from loopring_lab.relayer.query import parameters, read_query
from loopring_lab.relayer.settings import ErrorShape, Settings
from loopring_lab.relayer.view import View
from loopring_lab.relayer.wire import POOL_PREFIX

__all__ = ["build_app"]

TOKENS, MARKETS, TRADES = f"{API}/exchange/tokens", f"{API}/mix/markets", f"{API}/user/trades"
KEY_HEADER = "X-API-KEY"


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


def build_app(
    source: Source,
    settings: Settings,
    view: View,
    api_key: str,
    counts: Counts,
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The relayer as an ASGI application.

    Parameters
    ----------
    source : Source
        What it serves.
    settings : Settings
        How it behaves.
    view : View
        What is visible of the source's history.
    api_key : str
        The key that opens the trades.
    counts : Counts
        Where requests are counted.
    clock : callable
        Seconds, for the rate limit.

    Returns
    -------
    FastAPI
        Needs a server only for the faults ``reset`` and ``truncated``.
    """
    app = FastAPI(
        title="Embedded relayer",
        version="3",
        description=f"Serves {source.label}. Trades need the header {KEY_HEADER}.",
        docs_url=None,
        redoc_url=None,
    )
    _add_errors(app, settings.error_shape)
    _add_listings(app, source)
    _add_trades(app, source, settings, view, api_key)
    app.add_api_route("/docs", lambda: HTMLResponse(page(app.openapi())), include_in_schema=False)
    paths = frozenset((TOKENS, MARKETS, TRADES))
    app.add_middleware(Conditions, settings=settings, counts=counts, paths=paths, clock=clock)
    return app


def _add_errors(app: FastAPI, shape: ErrorShape) -> None:
    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> JSONResponse:
        return error_answer(shape, error.code, error.message)

    @app.exception_handler(HTTPException)
    async def wrong_path(_: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        return error_answer(shape, INVALID_ARGUMENT, error.detail, error.status_code, headers)

    @app.exception_handler(Exception)
    async def broken(_: Request, error: Exception) -> JSONResponse:
        return error_answer(shape, UNKNOWN, "internal error", 500)


def _add_listings(app: FastAPI, source: Source) -> None:
    tokens, markets = _json(source.tokens()), _json({"markets": source.markets()})

    async def read_tokens() -> Response:
        return Response(tokens, media_type="application/json")

    async def read_markets() -> Response:
        return Response(markets, media_type="application/json")

    app.add_api_route(TOKENS, read_tokens, summary="Tokens", responses={200: {"model": list[TokenRecord]}})
    app.add_api_route(MARKETS, read_markets, summary="Markets", responses={200: {"model": MarketsAnswer}})


def _add_trades(app: FastAPI, source: Source, settings: Settings, view: View, api_key: str) -> None:
    history = source.history
    names = history.market_names | {record["market"] for record in source.markets() if "market" in record}
    markets = frozenset(names | {POOL_PREFIX + name for name in names})

    async def read_trades(request: Request) -> Response:
        _check_key(request.headers.get(KEY_HEADER), api_key)
        total, rows = view.page(read_query(request.query_params, history, markets))
        return Response(f'{{"totalNum":{total},"trades":{rows}}}', media_type="application/json")

    app.add_api_route(
        TRADES,
        read_trades,
        summary="Trade history",
        responses=_trade_answers(settings.error_shape),
        openapi_extra={"parameters": [*parameters(history, markets), _key_parameter()]},
    )


def _trade_answers(shape: ErrorShape) -> dict[int | str, dict[str, Any]]:
    if shape == "ok":
        return {200: {"model": TradesAnswer | WrappedError}}
    error = FlatError if shape == "flat" else WrappedError
    return {200: {"model": TradesAnswer}, 400: {"model": error, "description": "Refused"}}


def _key_parameter() -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1}
    rule = {"in": "header", "required": True, "description": "The API key.", "schema": schema}
    return {"name": KEY_HEADER, **rule}


def _check_key(given: str | None, expected: str) -> None:
    if not given:
        raise Refusal(EMPTY_KEY, f"empty api key: send it as header {KEY_HEADER}")
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise Refusal(INVALID_KEY, "invalid api key")


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
