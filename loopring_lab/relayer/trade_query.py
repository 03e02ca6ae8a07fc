"""Requests for trades: what they may ask, and what each may not."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from starlette.datastructures import QueryParams

from loopring_lab.relayer.history import FILL_TYPES, History, TradeQuery
from loopring_lab.relayer.schemas import INVALID_ACCOUNT, Refusal, invalid, printable

__all__ = [
    "MAX_LIMIT",
    "key_parameter",
    "parameters",
    "query_parameter",
    "read_account",
    "read_query",
    "read_whole",
]

MAX_LIMIT = 50
MAX_OFFSET = 2**31 - 1
MAX_ACCOUNT = 2**32 - 1
WHOLE, DIGITS = re.compile(r"[0-9]{1,10}"), re.compile(r"[0-9]{1,20}")
ORDER_HASH = r"^0x[0-9a-fA-F]{1,64}$"
FILL_TYPE_LISTS = (*FILL_TYPES, ",".join(FILL_TYPES), ",".join(reversed(FILL_TYPES)))
NAMES = ("accountId", "market", "orderHash", "offset", "limit", "fillTypes")


def read_query(params: QueryParams, exists: Callable[[int], bool], markets: Collection[str]) -> TradeQuery:
    """Check a request for trades."""
    account = _account(params, exists)
    for name in NAMES:
        if len(params.getlist(name)) > 1:
            raise invalid(name, ",".join(params.getlist(name)), "one value")
    return TradeQuery(
        account,
        _market(params.get("market"), markets),
        _order_hash(params.get("orderHash")),
        _fill_types(params.get("fillTypes")),
        read_whole(params, "offset", 0, 0, MAX_OFFSET),
        read_whole(params, "limit", MAX_LIMIT, 1, MAX_LIMIT),
    )


def parameters(history: History, markets: Collection[str]) -> list[dict[str, Any]]:
    """The parameters of a request for trades, as OpenAPI describes them."""
    rules: dict[str, tuple[str, dict[str, Any]]] = {
        "accountId": (
            "Whose trades. Needed unless orderHash is given; 0 stands for none.",
            {"type": "integer", "minimum": 0, "maximum": MAX_ACCOUNT, "examples": history.accounts[:3]},
        ),
        "market": ("Only this market.", {"type": "string", "enum": sorted(markets)}),
        "orderHash": ("Only fills of this order.", {"type": "string", "pattern": ORDER_HASH}),
        "offset": (
            "Rows to leave out at the start.",
            {"type": "integer", "minimum": 0, "maximum": MAX_OFFSET, "default": 0},
        ),
        "limit": (
            "Most rows to answer.",
            {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": MAX_LIMIT},
        ),
        "fillTypes": ("Only these; both if absent.", {"type": "string", "enum": list(FILL_TYPE_LISTS)}),
    }
    return [query_parameter(name, text, schema) for name, (text, schema) in rules.items()]


def query_parameter(name: str, text: str, schema: dict[str, Any], required: bool = False) -> dict[str, Any]:
    """A parameter in the URL, as OpenAPI describes it."""
    return {"name": name, "in": "query", "required": required, "description": text, "schema": schema}


def key_parameter(
    name: str = "X-API-KEY", text: str = "The API key.", required: bool = True
) -> dict[str, Any]:
    """A header with a key or signature, as OpenAPI describes it."""
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "header", "required": required, "description": text, "schema": schema}


def _account(params: QueryParams, exists: Callable[[int], bool]) -> int | None:
    if "orderHash" in params and params.getlist("accountId") in ([], ["0"]):
        return None
    return read_account(params, exists)


def read_account(params: QueryParams, exists: Callable[[int], bool]) -> int:
    """The account that a request is about."""
    texts = params.getlist("accountId")
    if len(texts) != 1 or not WHOLE.fullmatch(texts[0]) or not exists(int(texts[0])):
        got = printable(",".join(texts)) if texts else "nothing"
        raise Refusal(INVALID_ACCOUNT, f"accountId: expected the id of an account, got {got}")
    return int(texts[0])


def _market(text: str | None, markets: Collection[str]) -> str | None:
    if text is not None and text not in markets:
        raise invalid("market", text, "a market of /mix/markets, or AMM- and one")
    return text


def _order_hash(text: str | None) -> str | None:
    if text is not None and not re.fullmatch(ORDER_HASH, text):
        raise invalid("orderHash", text, "0x and up to 64 hexadecimal digits")
    return text


def _fill_types(text: str | None) -> tuple[str, ...]:
    if text is None:
        return FILL_TYPES
    if text not in FILL_TYPE_LISTS:
        raise invalid("fillTypes", text, "dex, amm, or both with a comma")
    return tuple(kind for kind in FILL_TYPES if kind in text)


def read_whole(params: QueryParams, name: str, default: int, least: int, most: int) -> int:
    """A whole number in the URL."""
    text = params.get(name)
    if text is None:
        return default
    if not DIGITS.fullmatch(text) or not least <= int(text) <= most:
        raise invalid(name, text, f"a whole number from {least} to {most}")
    return int(text)
