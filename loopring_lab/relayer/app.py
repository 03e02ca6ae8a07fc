"""The relayer's HTTP side: paths, answers, OpenAPI."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from loopring_lab.relayer.account_routes import PATHS, account_router, body_schemas
from loopring_lab.relayer.accounts import KEY_HEADER, Accounts
from loopring_lab.relayer.answers import INVALID_ARGUMENT, UNKNOWN, Refusal, error_answer
from loopring_lab.relayer.conditions import API, Conditions, Counts
from loopring_lab.relayer.docs import page
from loopring_lab.relayer.history import Source
from loopring_lab.relayer.key_updates import KeyUpdates
from loopring_lab.relayer.query import key_parameter, parameters, read_query
from loopring_lab.relayer.schemas import MarketsAnswer, TokenRecord, TradesAnswer, answers
from loopring_lab.relayer.settings import ErrorShape, Settings
from loopring_lab.relayer.view import View
from loopring_lab.relayer.wire import POOL_PREFIX

__all__ = ["build_app"]

TOKENS, TRADES = f"{API}/exchange/tokens", f"{API}/user/trades"
MARKETS = (f"{API}/mix/markets", f"{API}/exchange/markets")


class _App(FastAPI):
    """FastAPI whose document also has the schemas of bodies that are read by hand."""

    bodies: dict[str, Any]

    def openapi(self) -> dict[str, Any]:
        document = super().openapi()
        document["components"]["schemas"].update(self.bodies)
        return document


def build_app(
    source: Source,
    settings: Settings,
    view: View,
    accounts: Accounts,
    updates: KeyUpdates,
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
    accounts : Accounts
        Accounts and API keys.
    updates : KeyUpdates
        Key updates.
    counts : Counts
        Where requests are counted.
    clock : callable
        Seconds, for the rate limit.

    Returns
    -------
    FastAPI
        Needs a server only for the faults ``reset`` and ``truncated``.
    """
    app = _App(
        title="Embedded relayer",
        version="3",
        description=f"Serves {source.label}. Trades need the header {KEY_HEADER}.",
        docs_url=None,
        redoc_url=None,
    )
    app.bodies = body_schemas(settings)
    _add_errors(app, settings.error_shape)
    _add_listings(app, source)
    _add_trades(app, source, settings, view, accounts)
    app.include_router(account_router(accounts, updates, settings))
    app.add_api_route("/docs", lambda: HTMLResponse(page(app.openapi())), include_in_schema=False)
    paths = frozenset((TOKENS, *MARKETS, TRADES, *PATHS))
    app.add_middleware(Conditions, settings=settings, counts=counts, paths=paths, clock=clock)
    return app


def _add_errors(app: FastAPI, shape: ErrorShape) -> None:
    @app.exception_handler(Refusal)
    async def refused(_: Request, error: Refusal) -> JSONResponse:
        return error_answer(shape, error.code, error.message)

    @app.exception_handler(HTTPException)
    async def wrong_path(request: Request, error: HTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        if "Allow" in headers:  # Starlette names the methods of one route only
            methods = app.openapi()["paths"].get(request.url.path, ())
            headers["Allow"] = ", ".join(methods).upper() or headers["Allow"]
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
    for path, summary in zip(MARKETS, ("Markets", "Markets, at an older path"), strict=True):
        app.add_api_route(path, read_markets, summary=summary, responses={200: {"model": MarketsAnswer}})


def _add_trades(app: FastAPI, source: Source, settings: Settings, view: View, accounts: Accounts) -> None:
    history = source.history
    names = history.market_names | {record["market"] for record in source.markets() if "market" in record}
    markets = frozenset(names | {POOL_PREFIX + name for name in names})

    async def read_trades(request: Request) -> Response:
        accounts.check_key(request.headers.get(KEY_HEADER))
        total, rows = view.page(read_query(request.query_params, accounts.exists, markets))
        return Response(f'{{"totalNum":{total},"trades":{rows}}}', media_type="application/json")

    app.add_api_route(
        TRADES,
        read_trades,
        summary="Trade history",
        responses=answers(TradesAnswer, settings.error_shape),
        openapi_extra={"parameters": [*parameters(history, markets), key_parameter()]},
    )


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
