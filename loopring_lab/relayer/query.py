"""Requests for trades: what they may ask, and what each may not."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from starlette.datastructures import QueryParams

from loopring_lab.relayer.answers import INVALID_ACCOUNT, INVALID_ARGUMENT, Refusal
from loopring_lab.relayer.history import FILL_TYPES, History
from loopring_lab.relayer.view import TradeQuery

__all__ = ["MAX_LIMIT", "parameters", "read_query"]

MAX_LIMIT = 50
MAX_OFFSET = 2**31 - 1
MAX_ACCOUNT = 2**32 - 1
WHOLE = re.compile(r"[0-9]{1,10}")
ORDER_HASH = r"^0x[0-9a-fA-F]{1,64}$"
FILL_TYPE_LISTS = (*FILL_TYPES, ",".join(FILL_TYPES), ",".join(reversed(FILL_TYPES)))
NAMES = ("accountId", "market", "orderHash", "offset", "limit", "fillTypes")


def read_query(params: QueryParams, history: History, markets: Collection[str]) -> TradeQuery:
    """Check a request for trades.

    Parameters
    ----------
    params : QueryParams
        As the URL has them.
    history : History
        Tells which accounts exist.
    markets : collection of str
        Markets that exist, with and without prefix.

    Returns
    -------
    TradeQuery
        What is asked for.

    Raises
    ------
    Refusal
        104003 for the account; 100001 for anything else, naming the parameter and its value.
    """
    account = _account(params, history)
    for name in NAMES:
        if len(params.getlist(name)) > 1:
            raise _invalid(name, ",".join(params.getlist(name)), "one value")
    return TradeQuery(
        account,
        _market(params.get("market"), markets),
        _order_hash(params.get("orderHash")),
        _fill_types(params.get("fillTypes")),
        _whole(params, "offset", 0, 0, MAX_OFFSET),
        _whole(params, "limit", MAX_LIMIT, 1, MAX_LIMIT),
    )


def parameters(history: History, markets: Collection[str]) -> list[dict[str, Any]]:
    """The parameters of a request for trades, as OpenAPI describes them.

    Parameters
    ----------
    history : History
        Tells which accounts exist.
    markets : collection of str
        Markets that exist, with and without prefix.

    Returns
    -------
    list of dict
        One record a parameter.
    """
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
    return [
        {"name": name, "in": "query", "required": False, "description": text, "schema": schema}
        for name, (text, schema) in rules.items()
    ]


def _account(params: QueryParams, history: History) -> int | None:
    texts = params.getlist("accountId")
    if "orderHash" in params and texts in ([], ["0"]):
        return None
    if len(texts) != 1 or not WHOLE.fullmatch(texts[0]) or not history.has_account(int(texts[0])):
        got = _printable(",".join(texts)) if texts else "nothing"
        raise Refusal(INVALID_ACCOUNT, f"accountId: expected the id of an account, got {got}")
    return int(texts[0])


def _market(text: str | None, markets: Collection[str]) -> str | None:
    if text is not None and text not in markets:
        raise _invalid("market", text, "a market of /mix/markets, or AMM- and one")
    return text


def _order_hash(text: str | None) -> str | None:
    if text is not None and not re.fullmatch(ORDER_HASH, text):
        raise _invalid("orderHash", text, "0x and up to 64 hexadecimal digits")
    return text


def _fill_types(text: str | None) -> tuple[str, ...]:
    if text is None:
        return FILL_TYPES
    if text not in FILL_TYPE_LISTS:
        raise _invalid("fillTypes", text, "dex, amm, or both with a comma")
    return tuple(kind for kind in FILL_TYPES if kind in text)


def _whole(params: QueryParams, name: str, default: int, least: int, most: int) -> int:
    text = params.get(name)
    if text is None:
        return default
    if not WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise _invalid(name, text, f"a whole number from {least} to {most}")
    return int(text)


def _invalid(name: str, text: str, expected: str) -> Refusal:
    return Refusal(INVALID_ARGUMENT, f"{name}: expected {expected}, got {_printable(text)}")


def _printable(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "...")
