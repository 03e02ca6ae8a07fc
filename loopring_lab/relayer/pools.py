"""AMM pools as ``GET /amm/pools`` lists them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loopring_lab.relayer.history import POOL_PREFIX

LP_PREFIX = "LP-"
VERSION = "1.0.0"
AMM_BIT = 1
OPEN, CLOSED = 7, 0
"""Status of a pool: 7 in the public document's example, whose bits it does not explain."""

Record = dict[str, Any]


def pool_record(market: Record, address: str, lp_token: int | None, **more: Any) -> Record:
    """Return a pool's record, as far as its market's record and the arguments tell."""
    name = POOL_PREFIX + market["market"]
    tokens = {"pooled": [market["baseTokenId"], market["quoteTokenId"]], "lp": lp_token}
    record = {"name": name, "market": name, "address": address, "version": VERSION, "tokens": tokens, **more}
    if isinstance(market.get("status"), int):
        record["status"] = OPEN if market["status"] & AMM_BIT else CLOSED
    return record | {"createdAt": market["createdAt"]} if "createdAt" in market else record


def listed_pools(tokens: Iterable[Record], markets: Iterable[Record]) -> list[Record]:
    """Return the pools that listings tell of: markets with one LP token, whose address is the pool's."""
    known: dict[str, list[Record]] = {}
    for token in tokens:
        if {"symbol", "address", "tokenId"} <= set(token):
            known.setdefault(token["symbol"], []).append(token)
    pools = []
    for market in markets:
        if {"market", "baseTokenId", "quoteTokenId"} <= set(market):
            found = known.get(f"{LP_PREFIX}{market['market']}", [])
            # Symbols repeat; of several tokens at most one is in use.
            found = [token for token in found if token.get("enabled")] if len(found) > 1 else found
            if len(found) == 1:
                pools.append(pool_record(market, found[0]["address"], found[0]["tokenId"]))
    return pools
