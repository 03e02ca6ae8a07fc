"""The relayer's HTTP side: endpoints, their parameters, error responses and the OpenAPI document."""

import asyncio
import base64
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from string import Template
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from loopring_lab.bounded import to_json
from loopring_lab.errors import LabError
from loopring_lab.relayer import schemas
from loopring_lab.relayer.accounts import Accounts
from loopring_lab.relayer.chain import MAX_BYTES as MAX_RPC_BYTES
from loopring_lab.relayer.chain import Endpoint
from loopring_lab.relayer.database import StoredUpdate
from loopring_lab.relayer.faults import API, RPC, SOURCE_HEADER, Entrance, NetworkConditions, RequestCounts
from loopring_lab.relayer.history import FILL_TYPES, POOL_PREFIX, Pager, Source, TradeQuery
from loopring_lab.relayer.key_updates import MAX_BODY_BYTES, KeyUpdates, read_update
from loopring_lab.relayer.schemas import MAX_TIME, AccountId, ApiError, Code, TimeMs, error_response
from loopring_lab.relayer.settings import Settings

PROGRESS = {"received": "0%", "processing": "50%", "processed": "100%", "failed": "100%"}
KEY_HEADER, SIGNATURE_HEADER = "X-API-KEY", "X-API-SIG"
DOCS = Path(__file__).with_name("docs.html")

SOURCE_HEADER_RULES = {
    "description": "The name of the data, and whether it is made up, as JSON in ASCII.",
    "required": True,
    "schema": {"type": "string"},
}

CODES = {"accountId": Code.INVALID_ACCOUNT, KEY_HEADER: Code.EMPTY_KEY, SIGNATURE_HEADER: Code.NO_SIGNATURE}
"""Error codes of parameters that are missing or not valid; `Code.INVALID_ARGUMENT` for all others."""


@dataclass
class Backend:
    """What the endpoints of one relayer answer from."""

    source: Source
    settings: Settings
    pager: Pager
    accounts: Accounts
    updates: KeyUpdates
    endpoint: Endpoint

    @cached_property
    def markets(self) -> frozenset[str]:
        """The names that select trades: those listed and those traded, also with the prefix of pools."""
        names = {record["market"] for record in self.source.markets() if "market" in record}
        names |= self.source.history.market_names
        return frozenset(names | {POOL_PREFIX + name for name in names})

    @cached_property
    def source_header(self) -> str:
        """What every response says of the data: its name, and whether it is made up, as ASCII JSON."""
        return json.dumps({"name": self.source.name, "synthetic": self.source.synthetic})

    @cached_property
    def tokens_json(self) -> bytes:
        return _encode(self.source.tokens())

    @cached_property
    def pools_json(self) -> bytes:
        return _encode({"pools": self.source.pool_records()})

    @cached_property
    def markets_json(self) -> bytes:
        return _encode({"markets": self.source.markets()})


async def get_backend(request: Request) -> Backend:
    """Refuse parameters given with several values, which programs read differently; return the backend."""
    params = request.query_params
    if len(params) < len(params.multi_items()):
        for name in params:
            values = params.getlist(name)
            if len(set(values)) > 1:
                problem = "Input should be one value, or the same value each time"
                raise RequestValidationError([{"loc": ("query", name), "msg": problem, "input": ",".join(values)}])
    backend: Backend = request.app.state.backend
    return backend


AnyBackend = Annotated[Backend, Depends(get_backend)]


async def check_key(
    request: Request,
    api_key: Annotated[str, Header(alias=KEY_HEADER, min_length=1, description="The API key.")],
) -> None:
    request.app.state.backend.accounts.check_key(api_key)


async def check_fee_key(
    backend: AnyBackend,
    api_key: Annotated[
        str | None,
        Header(alias=KEY_HEADER, description="Checked only where the setting fee_key requires it."),
    ] = None,
) -> None:
    if backend.settings.fee_key == "required":
        backend.accounts.check_key(api_key)


async def existing_account(
    backend: AnyBackend, account_id: Annotated[AccountId, Query(alias="accountId", description="Account id.")]
) -> int:
    if not backend.accounts.exists(account_id):
        raise ApiError(Code.INVALID_ACCOUNT, f"accountId: there is no account {account_id}")
    return account_id


async def read_body(request: Request) -> bytes:
    return await read_bytes(request, MAX_BODY_BYTES)


async def read_bytes(request: Request, most: int) -> bytes:
    """Read one byte more than allowed, and drop the rest, so that the sender gets a response."""
    data = b""
    async for chunk in request.stream():
        data += chunk[: most + 1 - len(data)]
    return data


def _signature(description: str) -> Any:
    return Header(alias=SIGNATURE_HEADER, min_length=1, description=description)


ExistingAccount = Annotated[int, Depends(existing_account)]
router = APIRouter(prefix=API, responses={"4XX": {"model": schemas.ErrorResponse, "description": "Error"}})


@router.get("/exchange/tokens", summary="Tokens", response_model=list[schemas.TokenRecord])
async def read_tokens(backend: AnyBackend) -> Response:
    return Response(backend.tokens_json, media_type="application/json")


@router.get("/exchange/markets", summary="Markets, older path", response_model=schemas.MarketsResponse)
@router.get("/mix/markets", summary="Markets", response_model=schemas.MarketsResponse)
async def read_markets(backend: AnyBackend) -> Response:
    return Response(backend.markets_json, media_type="application/json")


@router.get("/amm/pools", summary="AMM pools", response_model=schemas.PoolsResponse)
async def read_pools(backend: AnyBackend) -> Response:
    """List the AMM pools; ``/account?owner=<address>`` tells the account of a pool."""
    return Response(backend.pools_json, media_type="application/json")


@router.get(
    "/user/trades",
    summary="Trade history",
    response_model=schemas.TradesResponse,
    dependencies=[Depends(check_key)],
)
async def read_trades(backend: AnyBackend, params: Annotated[schemas.TradesParams, Query()]) -> Response:
    if params.account_id or params.order_hash is None:
        await existing_account(backend, params.account_id)
    if params.market is not None and params.market not in backend.markets:
        problem = "Input should be a market of /mix/markets, with or without the prefix AMM-"
        raise ApiError(Code.INVALID_ARGUMENT, f"market: {problem}, got {printable(params.market)}")
    fill_types = tuple(each for each in FILL_TYPES if each in params.fill_types)
    query = TradeQuery(params.account_id, params.market, params.order_hash, fill_types, params.offset, params.limit)
    total, rows = backend.pager.page(query)
    return Response(f'{{"totalNum":{total},"trades":{rows}}}', media_type="application/json")


@router.get("/exchange/info", summary="Exchange")
async def read_exchange(backend: AnyBackend) -> schemas.ExchangeResponse:
    settings, source = backend.settings, backend.source
    return schemas.ExchangeResponse(
        chain_id=settings.chain_id,
        exchange_address=settings.exchange,
        source=schemas.SourceRecord(name=source.name, synthetic=source.synthetic),
    )


@router.get("/timestamp", summary="Time")
async def read_time(backend: AnyBackend) -> schemas.TimeResponse:
    return schemas.TimeResponse(timestamp=backend.updates.time_ms)


@router.get("/account", summary="Account")
async def read_account(
    backend: AnyBackend, params: Annotated[schemas.AccountParams, Query()]
) -> schemas.AccountResponse:
    if params.account_id is None and params.owner is None:
        raise ApiError(Code.INVALID_ARGUMENT, "accountId, owner: give at least one of them")
    account = backend.accounts.find(params.account_id, params.owner)
    return schemas.AccountResponse(
        account_id=account.id,
        owner=account.owner,
        frozen=account.is_frozen,
        public_key=schemas.Point(x=account.x, y=account.y),
        nonce=account.nonce,
        key_nonce=account.key_nonce,
        key_seed=account.key_seed,
    )


@router.post("/account", summary="Update the key")
async def update_key(
    request: Request,
    backend: AnyBackend,
    body: Annotated[bytes, Depends(read_body)],
    signature: Annotated[str, _signature("L1 signature of the EIP-712 digest: 65 bytes and a type byte, 0x hex.")],
) -> schemas.UpdateResponse:
    if len(request.headers.getlist(SIGNATURE_HEADER)) > 1:
        raise ApiError(Code.INVALID_ARGUMENT, f"{SIGNATURE_HEADER}: send it once")
    # In a thread, for it may wait for another program that uses the same store.
    update, is_pending = await asyncio.to_thread(backend.updates.submit, read_update(body), signature)
    return schemas.UpdateResponse(
        hash=update.change.hash,
        status=update.status,
        is_idempotent=is_pending,
        account_id=update.change.account,
        token_id=update.change.fee_token,
        storage_id=update.change.nonce,
    )


@router.get("/apiKey", summary="API key")
async def read_api_key(
    request: Request,
    backend: AnyBackend,
    account_id: ExistingAccount,
    signature: Annotated[str, _signature("EdDSA signature of the request by the L2 key.")],
) -> schemas.KeyResponse:
    """Return the API key of an account to the holder of its L2 key."""
    # A proxy that ends TLS hides the scheme that the sender signed.
    place = request.headers.get("host", "") + request.url.path
    urls = (f"http://{place}", f"https://{place}")
    params = dict(request.query_params)
    return schemas.KeyResponse(api_key=backend.accounts.issue_key(account_id, urls, params, signature))


@router.get("/user/offchainFee", summary="Fee of a request", dependencies=[Depends(check_fee_key)])
async def read_fee(
    backend: AnyBackend, account_id: ExistingAccount, params: Annotated[schemas.FeeParams, Query()]
) -> schemas.FeesResponse:
    """Return the fee of a key update in each token that can pay for it."""
    fees = backend.updates.fees.values()
    return schemas.FeesResponse(fees=[schemas.TokenFee(token=symbol, fee=str(fee)) for symbol, fee in fees])


@router.get("/user/updateInfo", summary="Key updates", dependencies=[Depends(check_key)])
async def read_updates(
    backend: AnyBackend, account_id: ExistingAccount, params: Annotated[schemas.UpdatesParams, Query()]
) -> schemas.UpdatesResponse:
    account = backend.accounts.find(account_id, None)
    statuses = params.status.split(",") if params.status else PROGRESS
    updates = [
        update
        for update in backend.accounts.store.updates(account.id)
        if update.status in statuses and params.start <= update.received_at <= (params.end or MAX_TIME)
    ]
    page = updates[params.offset : params.offset + params.limit]
    records = [_update_record(update, account.owner, backend) for update in page]
    return schemas.UpdatesResponse(total_num=len(updates), transactions=records)


def _update_record(update: StoredUpdate, owner: str, backend: Backend) -> schemas.UpdateRecord:
    return schemas.UpdateRecord(
        id=update.number,
        hash=update.change.hash,
        owner=owner,
        fee_token_symbol=backend.updates.fees[update.change.fee_token][0],
        fee_amount=update.change.fee,
        status=update.status,
        progress=PROGRESS[update.status],
        timestamp=update.received_at,
        updated_at=update.changed_at,
        reason=update.reason,
    )


@router.get("/counterFactualInfo", summary="Wallet")
async def read_wallet(backend: AnyBackend, account_id: ExistingAccount) -> schemas.WalletResponse:
    wallet = backend.accounts.wallet_of(account_id)
    if wallet is None:
        raise ApiError(Code.INVALID_ARGUMENT, f"accountId: no wallet owns account {account_id}")
    return schemas.WalletResponse(
        account_id=account_id,
        wallet=backend.accounts.owner(account_id).address,
        wallet_factory=wallet.factory,
        wallet_owner=wallet.owner,
        wallet_salt=wallet.salt,
    )


@router.get("/lab/outsidePrices", include_in_schema=False)
def read_outside_prices(backend: AnyBackend, market: str, start: TimeMs, end: TimeMs, every: TimeMs) -> dict[str, Any]:
    """Return the made-up prices of another market, which no real relayer has: outside of the contract."""
    outside = getattr(backend.source, "outside_prices", None)
    if outside is None:
        raise HTTPException(404, "this source has no outside market")
    try:
        times, prices = outside(market, start, end, every)
    except LabError as error:
        raise ApiError(Code.INVALID_ARGUMENT, str(error)) from None
    # In base64, as little-endian int64: a year of minutes has half a million prices.
    text = base64.b64encode(prices.astype("<i8").tobytes()).decode()
    return {"first": int(times[0]) if len(times) else start, "every": every, "prices": text}


async def answer_rpc(request: Request) -> Response:
    """Answer JSON-RPC about the chain, which is no part of the contract."""
    body = await read_bytes(request, MAX_RPC_BYTES)
    text = await asyncio.to_thread(request.app.state.backend.endpoint.answer, body)
    return Response(text, media_type="application/json") if text else Response(status_code=204)


async def api_error(request: Request, error: ApiError) -> JSONResponse:
    return _error(request, error.code, error.message)


async def invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    name = first["loc"][1]
    code = CODES.get(name, Code.INVALID_ARGUMENT)
    if request.url.path == f"{API}/account" and name == "accountId":
        code = Code.INVALID_ARGUMENT
    got = "" if first["input"] is None else f", got {printable(first['input'])}"
    return _error(request, code, f"{name}: {first['msg']}{got}")


async def http_error(request: Request, error: HTTPException) -> JSONResponse:
    headers = dict(error.headers or {})
    if "Allow" in headers:  # Starlette names the methods of one route only
        methods = request.app.openapi()["paths"].get(request.url.path, ())
        headers["Allow"] = ", ".join(methods).upper() or headers["Allow"]
    return _error(request, Code.INVALID_ARGUMENT, error.detail, error.status_code, headers)


async def store_error(request: Request, error: sqlite3.OperationalError) -> JSONResponse:
    """Answer a request that the store could not serve, mostly because another program kept it locked."""
    return _error(request, Code.UNKNOWN, "the relayer's store is busy: try again", 503)


async def internal_error(request: Request, error: Exception) -> JSONResponse:
    """Answer a request that met a defect of the relayer, without showing it."""
    return _error(request, Code.UNKNOWN, "internal error", 500)


def _error(request: Request, code: int, message: str, status: int = 400, headers: Any = None) -> JSONResponse:
    shape = request.app.state.backend.settings.error_shape
    return error_response(shape, code, message, status, headers)


def printable(text: str) -> str:
    """Shorten a client's text, and escape what is not printable ASCII."""
    return ascii(text if len(text) <= 40 else text[:40] + "...")


class RelayerApp(FastAPI):
    """FastAPI whose document also says what depends on the source and the settings."""

    def __init__(self, backend: Backend, **options: Any) -> None:
        super().__init__(**options)
        self.state.backend = backend

    def build_middleware_stack(self) -> ASGIApp:
        """Put the outermost layer around the layer that answers when there is a defect."""
        backend: Backend = self.state.backend
        hosts, shape = backend.settings.hosts, backend.settings.error_shape
        return Entrance(super().build_middleware_stack(), backend.source_header, hosts, shape)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is not None:
            return self.openapi_schema
        document, backend = super().openapi(), self.state.backend
        models, paths = document["components"]["schemas"], document["paths"]
        body = schemas.UpdateBody.model_json_schema(ref_template="#/components/schemas/{model}")
        models |= body.pop("$defs") | {"UpdateBody": body}
        content = {"application/json": {"schema": {"$ref": "#/components/schemas/UpdateBody"}}}
        paths[f"{API}/account"]["post"]["requestBody"] = {"required": True, "content": content}
        if backend.settings.key_seed_required:
            body["required"].append("keySeed")
        operations = [operation for methods in paths.values() for operation in methods.values()]
        for parameter in (each for operation in operations for each in operation.get("parameters", ())):
            # Pydantic allows null where a parameter may be absent; a URL cannot hold it.
            parameter["schema"] |= parameter["schema"].pop("anyOf", [{}])[0]
        trades = _parameters(paths[f"{API}/user/trades"])
        trades["accountId"]["schema"]["examples"] = backend.source.history.accounts[:3]
        trades["market"]["schema"]["enum"] = sorted(backend.markets)
        fee_key = _parameters(paths[f"{API}/user/offchainFee"])[KEY_HEADER]
        fee_key["required"] = backend.settings.fee_key == "required"
        for response in (each for operation in operations for each in operation["responses"].values()):
            response["headers"] = {SOURCE_HEADER: SOURCE_HEADER_RULES}
        if backend.settings.error_shape == "ok":
            for operation in operations:
                content = operation["responses"]["200"]["content"]["application/json"]
                error = {"$ref": "#/components/schemas/ErrorResponse"}
                content["schema"] = {"anyOf": [content["schema"], error]}
        if backend.settings.error_shape == "flat":
            models["ErrorResponse"] = schemas.FlatError.model_json_schema()
        return document


def _parameters(operations: dict[str, Any]) -> dict[str, Any]:
    return {parameter["name"]: parameter for parameter in operations["get"]["parameters"]}


def build_app(backend: Backend, counts: RequestCounts, clock: Callable[[], float]) -> FastAPI:
    handlers: dict[Any, Any] = {
        ApiError: api_error,
        RequestValidationError: invalid_request,
        HTTPException: http_error,
        sqlite3.OperationalError: store_error,
        Exception: internal_error,
    }
    app = RelayerApp(
        backend,
        title="Embedded relayer",
        version="3",
        description=f"Serves {backend.source.label}. Trades need the header {KEY_HEADER}. "
        f"Every response names its data in the header {SOURCE_HEADER}: {backend.source_header}",
        docs_url=None,
        redoc_url=None,
        exception_handlers=handlers,
    )
    app.router.routes.extend(router.routes)  # include_router would add a routing layer to each request
    app.add_api_route("/docs", read_docs, include_in_schema=False)
    app.add_api_route(RPC, answer_rpc, methods=["POST"], include_in_schema=False)
    paths = frozenset({RPC, *(route.path for route in router.routes if isinstance(route, APIRoute))})
    app.add_middleware(NetworkConditions, settings=backend.settings, counts=counts, paths=paths, clock=clock)
    return app


def _encode(value: object) -> bytes:
    return to_json(value).encode()


async def read_docs(request: Request) -> HTMLResponse:
    return HTMLResponse(docs_page(request.app.openapi()))


def docs_page(document: dict[str, Any]) -> str:
    """Return an OpenAPI document as HTML that has no scripts and loads nothing, so that it works offline."""
    operations = (
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    )
    models = (
        f"<h3>{escape(name)}</h3><pre>{escape(json.dumps(schema, indent=1))}</pre>"
        for name, schema in document["components"]["schemas"].items()
    )
    return Template(DOCS.read_text(encoding="utf-8")).substitute(
        title=escape(document["info"]["title"]),
        description=escape(document["info"]["description"]),
        operations="".join(operations),
        schemas="".join(models),
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = [(item["name"], item["description"], item["schema"]) for item in operation.get("parameters", ())]
    bodies = {"request body": {"description": "JSON", **operation.get("requestBody", {})}}
    bodies |= {f"response {status}": response for status, response in operation["responses"].items()}
    for name, body in bodies.items():
        if "content" in body:
            rows.append((name, body["description"], body["content"]["application/json"]["schema"]))
    lines = "".join(_line(name, meaning, _rules(schema)) for name, meaning, schema in rows)
    heading = f"<h2>{escape(operation['summary'])}: <code>{method.upper()} {escape(path)}</code></h2>"
    return f"{heading}<table>{_line('Name', 'Meaning', 'Schema')}{lines}</table>"


def _line(*cells: str) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _rules(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_rules(part) for part in schema["anyOf"])
    if "items" in schema:
        return "list of " + _rules(schema["items"])
    rules = {name: rule for name, rule in schema.items() if name not in ("title", "description")}
    return ", ".join(f"{name} {json.dumps(rule)}" for name, rule in rules.items())
