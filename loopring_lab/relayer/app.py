"""The relayer's HTTP side: paths, answers, OpenAPI."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException

from loopring_lab.relayer.accounts import KEY_HEADER, Accounts
from loopring_lab.relayer.database import Update
from loopring_lab.relayer.docs import page
from loopring_lab.relayer.faults import API, Conditions, Counts
from loopring_lab.relayer.history import POOL_PREFIX, Source, View
from loopring_lab.relayer.key_updates import MAX_BODY, KeyUpdates, UpdateBody, read_update
from loopring_lab.relayer.schemas import (
    INVALID_ARGUMENT,
    UNKNOWN,
    AccountAnswer,
    CounterFactualAnswer,
    ExchangeAnswer,
    FeesAnswer,
    KeyAnswer,
    MarketsAnswer,
    Refusal,
    TimeAnswer,
    TokenRecord,
    TradesAnswer,
    UpdateAnswer,
    UpdatesAnswer,
    answers,
    error_answer,
    invalid,
)
from loopring_lab.relayer.settings import ErrorShape, Settings
from loopring_lab.relayer.trade_query import (
    MAX_ACCOUNT,
    MAX_LIMIT,
    MAX_OFFSET,
    key_parameter,
    parameters,
    query_parameter,
    read_account,
    read_query,
    read_whole,
)

INFO, TIME = f"{API}/exchange/info", f"{API}/timestamp"
ACCOUNT, API_KEY = f"{API}/account", f"{API}/apiKey"
FEE, UPDATES, WALLET = f"{API}/user/offchainFee", f"{API}/user/updateInfo", f"{API}/counterFactualInfo"
PATHS = (INFO, TIME, ACCOUNT, API_KEY, FEE, UPDATES, WALLET)
SIGNATURE_HEADER = "X-API-SIG"
DEPOSITS = "0x674bdf20A0F284D710BC40872100128e2d66Bd3f"
GAS_PRICE = "20000000000"
UPDATE_ACCOUNT = 2
LAST_REQUEST_TYPE = 15
MAX_TIME = 2**53
ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
PROGRESS = {"received": "0%", "processing": "50%", "processed": "100%", "failed": "100%"}


def account_router(accounts: Accounts, updates: KeyUpdates, settings: Settings) -> APIRouter:
    """Every route about accounts."""
    routes = _Routes(accounts, updates, settings)
    router = APIRouter()
    for path, method, endpoint, model, summary, asked in routes.table():
        router.add_api_route(
            path,
            endpoint,
            methods=[method],
            summary=summary,
            responses=answers(model, settings.error_shape),
            openapi_extra=asked,
        )
    return router


def body_schemas(settings: Settings) -> dict[str, Any]:
    """Schemas of the body of a key update, for the OpenAPI document."""
    schema = UpdateBody.model_json_schema(ref_template="#/components/schemas/{model}")
    schema["required"] += ["keySeed"] if settings.key_seed_required else []
    return {**schema.pop("$defs"), UpdateBody.__name__: schema}


class _Routes:
    def __init__(self, accounts: Accounts, updates: KeyUpdates, settings: Settings) -> None:
        self._accounts, self._updates, self._settings = accounts, updates, settings

    def table(self) -> list[tuple[str, str, Any, Any, str, dict[str, Any]]]:
        """Path, method, what answers, its shape, a title, and what it asks for."""
        account = query_parameter("accountId", "Whose.", {**WHOLE, "maximum": MAX_ACCOUNT}, required=True)
        either = [
            {**account, "required": False, "description": "Account id; owner may stand for it."},
            query_parameter("owner", "Address.", {"type": "string", "pattern": f"^{ADDRESS.pattern}$"}),
        ]
        key = key_parameter()
        needs_key = self._settings.fee_key == "required"
        fee_key = key_parameter(text="Checked only where the setting fee_key says so.", required=needs_key)
        signed = {"requestBody": BODY, "parameters": [key_parameter(SIGNATURE_HEADER, L1_SIGNATURE)]}
        sealed = key_parameter(SIGNATURE_HEADER, "EdDSA signature over the request by the L2 key.")
        return [
            (INFO, "GET", self.info, ExchangeAnswer, "Exchange", {}),
            (TIME, "GET", self.time, TimeAnswer, "Time", {}),
            (ACCOUNT, "GET", self.account, AccountAnswer, "Account", {"parameters": either}),
            (ACCOUNT, "POST", self.update, UpdateAnswer, "Update the key", signed),
            (API_KEY, "GET", self.key, KeyAnswer, "API key", {"parameters": [account, sealed]}),
            (
                FEE,
                "GET",
                self.fee,
                FeesAnswer,
                "Fee of a request",
                {"parameters": [account, *FEE_ASKED, fee_key]},
            ),
            (
                UPDATES,
                "GET",
                self.updates,
                UpdatesAnswer,
                "Key updates",
                {"parameters": [account, *LISTED, key]},
            ),
            (WALLET, "GET", self.wallet, CounterFactualAnswer, "Wallet", {"parameters": [account]}),
        ]

    async def info(self) -> JSONResponse:
        exchange, chain = self._settings.exchange, self._settings.chain_id
        return JSONResponse({"chainId": chain, "exchangeAddress": exchange, "depositAddress": DEPOSITS})

    async def time(self) -> JSONResponse:
        return JSONResponse({"timestamp": self._updates.time_ms})

    async def account(self, request: Request) -> JSONResponse:
        found = self._accounts.find(*_who(request.query_params))
        return JSONResponse(
            {
                "accountId": found.id,
                "owner": found.owner,
                "frozen": found.is_frozen,
                "publicKey": {"x": found.x, "y": found.y},
                "tags": "",
                "nonce": found.nonce,
                "keyNonce": found.key_nonce,
                "keySeed": found.key_seed,
            }
        )

    async def update(self, request: Request) -> JSONResponse:
        data = await _body(request)
        headers = request.headers.getlist(SIGNATURE_HEADER)
        if len(headers) > 1:
            raise Refusal(INVALID_ARGUMENT, f"{SIGNATURE_HEADER}: expected once")
        update, known = self._updates.submit(read_update(data), headers[0] if headers else None)
        return JSONResponse(
            {
                "hash": update.change.hash,
                "status": update.status,
                "isIdempotent": known,
                "accountId": update.change.account,
                "tokenId": update.change.fee_token,
                "storageId": update.change.nonce,
            }
        )

    async def key(self, request: Request) -> JSONResponse:
        params = request.query_params
        account = read_account(params, self._accounts.exists)
        signature = request.headers.get(SIGNATURE_HEADER)
        return JSONResponse(
            {"apiKey": self._accounts.issue_key(account, _urls(request), dict(params), signature)}
        )

    async def fee(self, request: Request) -> JSONResponse:
        if self._settings.fee_key == "required":
            self._accounts.check_key(request.headers.get(KEY_HEADER))
        params = request.query_params
        read_account(params, self._accounts.exists)
        if read_whole(params, "requestType", -1, 0, LAST_REQUEST_TYPE) != UPDATE_ACCOUNT:
            expected = f"{UPDATE_ACCOUNT}, the update of an account, which alone has a fee here"
            raise invalid("requestType", params.get("requestType", ""), expected)
        fees = self._updates.fees.values()
        listed = [{"token": symbol, "fee": str(fee), "discount": 1} for symbol, fee in fees]
        return JSONResponse({"gasPrice": GAS_PRICE, "fees": listed})

    async def updates(self, request: Request) -> JSONResponse:
        self._accounts.check_key(request.headers.get(KEY_HEADER))
        params = request.query_params
        account = self._accounts.find(read_account(params, self._accounts.exists), None)
        since, until = (read_whole(params, name, 0, 0, MAX_TIME) for name in ("start", "end"))
        wanted = _statuses(params)
        found = [
            update
            for update in self._accounts.store.updates(account.id)
            if update.status in wanted and since <= update.received_at <= (until or MAX_TIME)
        ]
        offset = read_whole(params, "offset", 0, 0, MAX_OFFSET)
        page = found[offset : offset + read_whole(params, "limit", MAX_LIMIT, 1, MAX_LIMIT)]
        records = [self._record(update, account.owner) for update in page]
        return JSONResponse({"totalNum": len(found), "transactions": records})

    def _record(self, update: Update, owner: str) -> dict[str, Any]:
        change = update.change
        return {
            "id": update.number,
            "hash": change.hash,
            "owner": owner,
            "txHash": "",
            "feeTokenSymbol": self._updates.fees[change.fee_token][0],
            "feeAmount": change.fee,
            "status": update.status,
            "progress": PROGRESS[update.status],
            "timestamp": update.received_at,
            "blockNum": 0,
            "updatedAt": update.changed_at,
            "blockId": 0,
            "indexInBlock": 0,
            "reason": update.reason,
        }

    async def wallet(self, request: Request) -> JSONResponse:
        account = read_account(request.query_params, self._accounts.exists)
        found = self._accounts.wallet_of(account)
        if found is None:
            raise invalid("accountId", str(account), "an account that a counterfactual wallet owns")
        factory, owner, salt = found[1]
        return JSONResponse(
            {
                "accountId": account,
                "wallet": found[0],
                "walletFactory": factory,
                "walletOwner": owner,
                "walletSalt": salt,
            }
        )


WHOLE: dict[str, Any] = {"type": "integer", "minimum": 0}
L1_SIGNATURE = "L1 signature over the EIP-712 digest of the request: 65 bytes and a type byte, 0x hex."
BODY = {
    "required": True,
    "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{UpdateBody.__name__}"}}},
}
FEE_ASKED = [
    query_parameter("requestType", "2: the update of an account.", {"type": "integer", "enum": [2]}, True),
    query_parameter("tokenSymbol", "Passed over.", {"type": "string"}),
    query_parameter("amount", "Passed over.", {"type": "string"}),
]
LISTED = [
    query_parameter("start", "From this time on, in ms.", {**WHOLE, "maximum": MAX_TIME}),
    query_parameter("end", "Up to this time, in ms; 0 for any.", {**WHOLE, "maximum": MAX_TIME}),
    query_parameter("status", f"Some of {', '.join(PROGRESS)}, with commas.", {"type": "string"}),
    query_parameter("limit", "Most records.", {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT}),
    query_parameter("offset", "Records to leave out.", {**WHOLE, "maximum": MAX_OFFSET}),
]


def _who(params: QueryParams) -> tuple[int | None, str | None]:
    owner = params.get("owner")
    if owner is not None and (len(params.getlist("owner")) > 1 or not ADDRESS.fullmatch(owner)):
        raise invalid("owner", owner, "one address, 0x and 40 hex digits")
    if owner is None and "accountId" not in params:
        raise Refusal(INVALID_ARGUMENT, "owner, accountId: expected one of them")
    if len(params.getlist("accountId")) > 1:
        raise invalid("accountId", ",".join(params.getlist("accountId")), "one value")
    account = read_whole(params, "accountId", -1, 0, MAX_ACCOUNT)
    return None if account < 0 else account, owner


def _statuses(params: QueryParams) -> set[str]:
    text = params.get("status")
    wanted = set(PROGRESS) if text is None else set(text.split(","))
    if not wanted <= set(PROGRESS):
        raise invalid("status", text or "", "some of " + ", ".join(PROGRESS) + ", with commas")
    return wanted


def _urls(request: Request) -> tuple[str, ...]:
    """The request's URL as its sender may have seen it: a proxy that ends TLS hides the scheme."""
    place = request.headers.get("host", "") + request.url.path
    return f"http://{place}", f"https://{place}"


async def _body(request: Request) -> bytes:
    """At most one byte more than allowed; the rest is read and dropped, so that the sender gets an answer."""
    data = b""
    async for chunk in request.stream():
        data += chunk[: MAX_BODY + 1 - len(data)]
    return data


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
    """The relayer as an ASGI application."""
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
