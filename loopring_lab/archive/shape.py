"""What the tables of an archive look like."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["LISTINGS", "SCHEMAS", "STATISTICS", "SYNCS", "TRADES"]

TRADES, LISTINGS, SYNCS = "trades", "listings", "syncs"
MOMENT = pa.timestamp("us", "UTC")
AMOUNT = pa.decimal128(38, 18)
SCHEMAS = {
    TRADES: pa.schema(
        [
            ("created_at", MOMENT),
            ("trade_id", pa.int64()),
            ("account_id", pa.int64()),
            *((name, pa.string()) for name in ("market", "base", "quote", "side", "fill_type", "role")),
            *((name, AMOUNT) for name in ("size", "price", "notional", "fee")),
            ("fee_token", pa.string()),
            ("fee_bps", pa.float64()),
            ("order_hash", pa.string()),
            *((name, pa.int64()) for name in ("block_id", "index_in_block", "token_id", "storage_id")),
            ("extra", pa.string()),
            ("asked", pa.string()),
            ("verbatim", pa.string()),
            ("retrieved_at", MOMENT),
            ("listing", pa.string()),
            ("version", pa.int32()),
            ("current", pa.bool_()),
        ]
    ),
    LISTINGS: pa.schema(
        [
            *((name, pa.string()) for name in ("listing", "tokens", "markets", "source")),
            ("synthetic", pa.bool_()),
            ("retrieved_at", MOMENT),
        ]
    ),
    SYNCS: pa.schema(
        [
            ("account_id", pa.int64()),
            ("fill_type", pa.string()),
            ("synced_at", MOMENT),
            *((name, pa.int64()) for name in ("total", "gone", "requests")),
            ("since", MOMENT),
        ]
    ),
}
"""The tables of an archive, in the order in which they are made."""
STATISTICS = {"delta.dataSkippingStatsColumns": "created_at,trade_id,asked,version,current,extra"}
