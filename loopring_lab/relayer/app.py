"""The relayer's HTTP side: endpoints, their parameters, and error responses."""

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from loopring_lab.bounded import shown
from loopring_lab.errors import LabError
from loopring_lab.relayer import schemas
from loopring_lab.relayer.accounts import Accounts, KeyRequest
from loopring_lab.relayer.chain import MAX_BYTES as MAX_RPC_BYTES
from loopring_lab.relayer.chain import Endpoint
from loopring_lab.relayer.history import POOL_PREFIX, Pager, TradeQuery
from loopring_lab.relayer.key_updates import (
    MAX_BODY_BYTES,
    KeyUpdates,
    Update,
    read_body,
    read_update,
)
from loopring_lab.relayer.network import API, RPC, NetworkConditions, RequestCounts
from loopring_lab.relayer.schemas import (
    AccountId,
    ApiError,
    Code,
    TimeMs,
    error_response,
)
from loopring_lab.relayer.settings import Address, Settings
from loopring_lab.relayer.world import World

KEY_HEADER = "X-API-KEY"
SIGNATURE_HEADER = "X-API-SIG"

# The names that a relayer answers to: a web page can give another name the address 127.0.0.1, and then read it.
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

# Error codes of parameters that are missing or not valid; `Code.INVALID_ARGUMENT` for all others.
CODES = {
    "accountId": Code.INVALID_ACCOUNT,
    KEY_HEADER: Code.EMPTY_KEY,
    SIGNATURE_HEADER: Code.NO_SIGNATURE,
}

PORT = re.compile(":[0-9]+$")  # of a host; the colons of IPv6 are in brackets


# Each relayer has one, as the routes below are shared by all relayers of a process.
@dataclass
class Backend:
    """What the endpoints of one relayer answer from."""

    source: World
    settings: Settings
    pager: Pager
    accounts: Accounts
    updates: KeyUpdates
    endpoint: Endpoint

    @cached_property
    def markets(self) -> frozenset[str]:
        """The names that select trades, also with the prefix of pools."""
        names = {record["market"] for record in self.source.markets()}
        return frozenset(names | {POOL_PREFIX + name for name in names})


async def get_backend(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    return backend


AnyBackend = Annotated[Backend, Depends(get_backend)]


async def check_key(
    request: Request,
    api_key: Annotated[
        str,
        Header(alias=KEY_HEADER, min_length=1, description="The API key."),
    ],
) -> None:
    request.app.state.backend.accounts.check_key(api_key)


async def check_query(request: Request) -> None:
    """Refuse a parameter with two values, of which a client would get the answer to one; the same twice is fine."""
    query = request.query_params
    if len(set(query.multi_items())) > len(query):
        raise ApiError(
            Code.INVALID_ARGUMENT,
            "a parameter has two values: separate those of a list by commas",
        )


async def existing_account(
    backend: AnyBackend,
    account_id: Annotated[
        AccountId, Query(alias="accountId", description="Account id.")
    ],
) -> int:
    if not backend.accounts.exists(account_id):
        raise ApiError(
            Code.INVALID_ACCOUNT,
            f"accountId: there is no account {account_id}",
        )
    return account_id


async def read_bytes(request: Request, most: int) -> bytes:
    """Read one byte more than allowed, and drop the rest, so that the sender gets a response."""
    data = b""
    async for chunk in request.stream():
        data += chunk[: most + 1 - len(data)]
    return data


def signature_header(description: str) -> Any:
    return Header(alias=SIGNATURE_HEADER, min_length=1, description=description)


ExistingAccount = Annotated[int, Depends(existing_account)]
OwnerSignature = Annotated[
    str,
    signature_header(
        "L1 signature of the EIP-712 digest: 65 bytes and a type byte, 0x hex."
    ),
]
KeySignature = Annotated[
    str, signature_header("EdDSA signature of the request by the L2 key.")
]

ERRORS: dict[int | str, Any] = {
    "4XX": {"model": schemas.ErrorResponse, "description": "Error"}
}
router = APIRouter(prefix=API, responses=ERRORS, dependencies=[Depends(check_query)])
# The exchange answers about wallets on Ethereum beside its other operations.
wallets = APIRouter(prefix="/api/wallet/v3", responses=ERRORS)


@router.get(
    "/exchange/tokens",
    summary="Tokens",
    response_model=list[schemas.TokenRecord],
)
async def read_tokens(backend: AnyBackend) -> Response:
    return JSONResponse(backend.source.tokens())


@router.get(
    "/mix/markets",
    summary="Markets",
    response_model=schemas.MarketsResponse,
)
async def read_markets(backend: AnyBackend) -> Response:
    return JSONResponse({"markets": backend.source.markets()})


@router.get(
    "/exchange/markets",
    summary="Markets without their status",
    response_model=schemas.PairsResponse,
)
async def read_pairs(backend: AnyBackend) -> dict[str, Any]:
    """List the markets with the members of the exchange's older operation, which many clients ask when they start."""
    return {"markets": backend.source.markets()}


@router.get("/amm/pools", summary="AMM pools")
async def read_pools(backend: AnyBackend) -> dict[str, Any]:
    """List the AMM pools; ``/account?owner=<address>`` tells the account of a pool."""
    return {"pools": backend.source.pool_records()}


@router.get(
    "/user/trades",
    summary="Trade history",
    response_model=schemas.TradesResponse,
    dependencies=[Depends(check_key)],
)
async def read_trades(
    backend: AnyBackend, params: Annotated[schemas.TradesParams, Query()]
) -> Response:
    if not params.model_fields_set & {"account_id", "order_hash"}:
        raise ApiError(
            Code.INVALID_ACCOUNT, "accountId, orderHash: give at least one of them"
        )
    # An order can be asked for without an account, which is then 0.
    if params.account_id or params.order_hash is None:
        await existing_account(backend, params.account_id)
    if params.market is not None and params.market not in backend.markets:
        expected = "a market of /mix/markets, with or without the prefix AMM-"
        raise ApiError(
            Code.INVALID_ARGUMENT,
            f"market: Input should be {expected}, got {shown(params.market, 40)}",
        )
    order_hash = params.order_hash
    if order_hash is not None:
        # Sources have hashes in lower case, but those of a request may be in either.
        order_hash = order_hash.lower()
    fill_types = tuple(params.fill_types.split(","))
    query = TradeQuery(
        params.account_id,
        params.market,
        order_hash,
        fill_types,
        params.offset,
        params.limit or schemas.MAX_LIMIT,
    )
    total, rows = backend.pager.page(query)
    return JSONResponse({"totalNum": total, "trades": rows})


@router.get("/exchange/info", summary="Exchange")
async def read_exchange(backend: AnyBackend) -> schemas.ExchangeResponse:
    return schemas.ExchangeResponse(
        chain_id=backend.settings.chain_id,
        exchange_address=backend.settings.exchange,
    )


@router.get("/timestamp", summary="Time")
async def read_time(backend: AnyBackend) -> schemas.TimeResponse:
    return schemas.TimeResponse(timestamp=backend.updates.time_ms)


@router.get("/account", summary="Account")
async def read_account(
    backend: AnyBackend, params: Annotated[schemas.AccountParams, Query()]
) -> schemas.AccountResponse:
    if params.account_id is None and params.owner is None:
        raise ApiError(
            Code.INVALID_ARGUMENT,
            "accountId, owner: give at least one of them",
        )
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


# The body is read by `read_update`, which is stricter than FastAPI; the document has to be told of it.
UPDATE_SCHEMA = {
    "application/json": {"schema": {"$ref": "#/components/schemas/UpdateBody"}}
}


@router.post(
    "/account",
    summary="Update the key",
    openapi_extra={"requestBody": {"required": True, "content": UPDATE_SCHEMA}},
)
async def update_key(
    request: Request,
    backend: AnyBackend,
    signature: OwnerSignature,
) -> schemas.UpdateResponse:
    body = await read_bytes(request, MAX_BODY_BYTES)
    # This runs in a thread, because signatures take a while to check.
    update, is_pending = await asyncio.to_thread(
        backend.updates.submit, read_update(body), signature
    )
    return schemas.UpdateResponse(
        hash=update.hash,
        status=update.status,
        is_idempotent=is_pending,
        account_id=update.body.account_id,
        token_id=update.body.max_fee.token_id,
        storage_id=update.body.nonce,
    )


@router.get("/apiKey", summary="API key")
async def read_api_key(
    request: Request,
    backend: AnyBackend,
    account_id: ExistingAccount,
    signature: KeySignature,
) -> schemas.KeyResponse:
    """Return the API key of an account to the holder of its L2 key."""
    params = dict(request.query_params)
    asked = KeyRequest(account_id, "GET", signed_urls(request), params)
    return schemas.KeyResponse(api_key=backend.accounts.issue_key(asked, signature))


# The operation reads the body itself, because the signature is of the members as they were sent.
KEY_SCHEMA = {"application/json": {"schema": {"$ref": "#/components/schemas/KeyBody"}}}


@router.post(
    "/apiKey",
    summary="New API key",
    openapi_extra={"requestBody": {"required": True, "content": KEY_SCHEMA}},
)
async def replace_api_key(
    request: Request, backend: AnyBackend, signature: KeySignature
) -> schemas.KeyResponse:
    """Return a new API key to the holder of an account's L2 key; the old one ends."""
    members = read_body(await read_bytes(request, MAX_BODY_BYTES), schemas.KeyBody)
    account_id = int(members["accountId"])
    asked = KeyRequest(account_id, "POST", signed_urls(request), members)
    return schemas.KeyResponse(api_key=backend.accounts.issue_key(asked, signature))


def signed_urls(request: Request) -> tuple[str, ...]:
    """Return the URLs that the sender of a request may have signed."""
    # A proxy that ends TLS hides the scheme that the sender signed.
    # The client signed the address as it knows it, so the host is the one that it sent.
    place = request.headers.get("host", "") + request.url.path
    return (f"http://{place}", f"https://{place}")


@router.get("/storageId", summary="Next storage ids", dependencies=[Depends(check_key)])
def read_storage_ids(
    backend: AnyBackend,
    account_id: ExistingAccount,
    params: Annotated[schemas.StorageParams, Query()],
) -> schemas.StorageResponse:
    account = backend.accounts.held.get(account_id)
    return schemas.StorageResponse(
        order_id=backend.pager.next_storage_id(account_id, params.sell_token_id),
        offchain_id=2 * account.nonce + 1 if account else 1,
    )


@router.get("/user/balances", summary="Balances", dependencies=[Depends(check_key)])
async def read_balances(
    backend: AnyBackend,
    account_id: ExistingAccount,
    params: Annotated[schemas.BalancesParams, Query()],
) -> list[schemas.BalanceRecord]:
    asked = {int(token) for token in params.tokens.split(",") if token}
    locked = {
        update.body.max_fee.token_id: update.fee
        for update in backend.updates.of_account(account_id)
        if update.is_pending
    }
    records = []
    for token_id in sorted(each["tokenId"] for each in backend.source.tokens()):
        total = backend.accounts.balance(account_id, token_id)
        if total and (not asked or token_id in asked):
            frozen = min(total, locked.get(token_id, 0))
            record = schemas.BalanceRecord(
                account_id=account_id,
                token_id=token_id,
                total=str(total),
                locked=str(frozen),
            )
            records.append(record)
    return records


@router.get("/user/offchainFee", summary="Fee of a request")
async def read_fee(
    backend: AnyBackend,
    account_id: ExistingAccount,
    params: Annotated[schemas.FeeParams, Query()],
) -> schemas.FeesResponse:
    """Return the fee of a key update in each token that can pay for it."""
    fees = backend.updates.fees.values()
    return schemas.FeesResponse(
        fees=[schemas.TokenFee(token=symbol, fee=str(fee)) for symbol, fee in fees]
    )


@router.get(
    "/user/updateInfo",
    summary="Key updates",
    dependencies=[Depends(check_key)],
)
async def read_updates(
    backend: AnyBackend, account_id: ExistingAccount
) -> schemas.UpdatesResponse:
    owner = backend.accounts.find(account_id, None).owner
    records = [
        update_record(update, owner, backend)
        for update in backend.updates.of_account(account_id)
    ]
    return schemas.UpdatesResponse(total_num=len(records), transactions=records)


def update_record(update: Update, owner: str, backend: Backend) -> schemas.UpdateRecord:
    symbol, _ = backend.updates.fees[update.body.max_fee.token_id]
    return schemas.UpdateRecord(
        id=update.number,
        hash=update.hash,
        owner=owner,
        fee_token_symbol=symbol,
        fee_amount=str(update.fee),
        status=update.status,
        # As the documents show it of each status; nothing tells how the exchange computes it.
        progress="50%" if update.is_pending else "100%",
        timestamp=update.received_at,
        updated_at=update.changed_at,
        reason=update.reason,
    )


@router.get("/counterFactualInfo", summary="Wallet")
async def read_wallet(
    backend: AnyBackend, account_id: ExistingAccount
) -> schemas.WalletResponse:
    wallet = backend.accounts.wallet_of(account_id)
    if wallet is None:
        raise ApiError(
            Code.INVALID_ARGUMENT,
            f"accountId: no wallet owns account {account_id}",
        )
    return schemas.WalletResponse(
        account_id=account_id,
        wallet=backend.accounts.owner(account_id).address,
        wallet_factory=wallet.factory,
        wallet_owner=wallet.owner,
        wallet_salt=wallet.salt,
    )


@wallets.get("/wallet/type", summary="Kind of wallet")
async def read_wallet_type(
    backend: AnyBackend,
    wallet: Annotated[Address, Query(description="Address of an owner.")],
) -> schemas.WalletTypeResponse:
    """Tell whether an address is that of a contract; no operation of the contract, but clients ask for it."""
    kind = schemas.WalletType(is_in_counter_factual_status=False, is_contract=False)
    with suppress(ApiError):
        account_id = backend.accounts.find(None, wallet).id
        kind = schemas.WalletType(
            is_in_counter_factual_status=bool(backend.accounts.wallet_of(account_id)),
            is_contract=backend.accounts.is_contract(account_id),
        )
    return schemas.WalletTypeResponse(data=kind)


@router.get("/lab/outsidePrices", include_in_schema=False)
def read_outside_prices(
    backend: AnyBackend,
    market: str,
    start: TimeMs,
    end: TimeMs,
    every: TimeMs,
) -> Response:
    """Return the made-up prices of another market, which no real relayer has: outside of the contract."""
    try:
        times, prices = backend.source.outside_prices(market, start, end, every)
    except LabError as error:
        raise ApiError(Code.INVALID_ARGUMENT, str(error)) from None
    # A year of minutes has half a million prices. They go out as little-endian int64, after the time of the first one
    # and the time from one to the next.
    first = int(times[0]) if len(times) else start
    head = first.to_bytes(8, "little") + every.to_bytes(8, "little")
    body = head + prices.astype("<i8", copy=False).tobytes()
    return Response(body, media_type="application/octet-stream")


async def answer_rpc(request: Request) -> Response:
    """Answer JSON-RPC about the chain, which is no part of the contract."""
    body = await read_bytes(request, MAX_RPC_BYTES)
    endpoint = request.app.state.backend.endpoint
    return JSONResponse(await asyncio.to_thread(endpoint.answer, body))


async def read_docs(request: Request) -> HTMLResponse:
    """Show the operations and their parameters; FastAPI's own page needs scripts from the internet."""
    document = request.app.openapi()
    lines = [
        f"<p>{escape(document['info']['description'])} <a href='/openapi.json'>OpenAPI</a></p>"
    ]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines.append(
                f"<h3>{method.upper()} {escape(path)}</h3><p>{escape(operation['summary'])}</p><ul>"
            )
            for parameter in operation.get("parameters", ()):
                name = escape(parameter["name"])
                meaning = escape(parameter.get("description", ""))
                lines.append(f"<li><code>{name}</code> {meaning}</li>")
            lines.append("</ul>")
    head = f"<!doctype html><meta charset='utf-8'><title>{escape(document['info']['title'])}</title>"
    return HTMLResponse(head + "".join(lines))


async def api_error(request: Request, error: ApiError) -> JSONResponse:
    return error_response(error.code, error.message)


async def invalid_request(
    request: Request, error: RequestValidationError
) -> JSONResponse:
    # One problem is enough to answer; the place of a parameter is (query or header, its name).
    first = error.errors()[0]
    name = first["loc"][1]
    code = CODES.get(name, Code.INVALID_ARGUMENT)
    # The contract's code for an account id that is not valid is one of the trades.
    if request.url.path == f"{API}/account" and name == "accountId":
        code = Code.INVALID_ARGUMENT
    message = f"{name}: {first['msg']}"
    # If a parameter is missing, the input is no text: it is None, or all the others.
    if isinstance(first["input"], str):
        message += f", got {shown(first['input'], 40)}"
    return error_response(code, message)


async def http_error(request: Request, error: HTTPException) -> JSONResponse:
    headers = dict(error.headers or {})
    if "Allow" in headers:
        # A path with two methods has two routes, and Starlette names the methods of one.
        methods = request.app.openapi()["paths"].get(request.url.path, ())
        headers["Allow"] = ", ".join(methods).upper() or headers["Allow"]
    return error_response(
        Code.INVALID_ARGUMENT, error.detail, error.status_code, headers
    )


async def internal_error(request: Request, error: Exception) -> JSONResponse:
    """Answer a request that met a defect of the relayer, without showing it."""
    return error_response(Code.UNKNOWN, "internal error", 500)


class RelayerApp(FastAPI):
    """FastAPI that answers HEAD, under its own names only, and documents the bodies that it does not read itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request for this host; HEAD as a GET, of which uvicorn leaves the body out, by its own scope."""
        app = super().__call__
        if scope.get("method") == "HEAD":
            scope = {**scope, "method": "GET"}
        if "method" in scope:
            # Requests for others are refused first of all, and not even counted.
            host = PORT.sub("", Request(scope).headers.get("host", ""))
            if host.lower() not in self.state.hosts:
                app = error_response(Code.INVALID_ARGUMENT, "invalid host header")
        await app(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Add what FastAPI cannot know."""
        if self.openapi_schema is None:
            models = super().openapi()["components"]["schemas"]
            body = schemas.UpdateBody.model_json_schema(
                ref_template="#/components/schemas/{model}"
            )
            models.update(body.pop("$defs"))
            models["UpdateBody"] = body
            models["KeyBody"] = schemas.KeyBody.model_json_schema()
        return self.openapi_schema or {}


def build_app(backend: Backend, counts: RequestCounts) -> FastAPI:
    """Put the endpoints of a relayer together."""
    handlers: dict[Any, Any] = {
        ApiError: api_error,
        RequestValidationError: invalid_request,
        HTTPException: http_error,
        Exception: internal_error,
    }
    app = RelayerApp(
        title="Embedded relayer",
        version="3",
        description=f"Serves {backend.source.name}. Trades need the header {KEY_HEADER}.",
        docs_url=None,
        redoc_url=None,
        exception_handlers=handlers,
    )
    app.state.backend = backend
    # The routes are the same for every relayer; to include the router would build them anew, which takes a while.
    operations = (*router.routes, *wallets.routes)
    app.router.routes.extend(operations)
    # These are outside of the contract, and so in no document.
    app.add_api_route("/docs", read_docs, include_in_schema=False)
    app.add_api_route(RPC, answer_rpc, methods=["POST"], include_in_schema=False)
    paths = frozenset(
        {
            RPC,
            *(route.path for route in operations if isinstance(route, APIRoute)),
        }
    )
    app.add_middleware(
        NetworkConditions,
        settings=backend.settings,
        counts=counts,
        paths=paths,
    )
    named = {PORT.sub("", host) for host in backend.settings.hosts}
    app.state.hosts = named.union(LOOPBACK)
    return app
