"""What makes two rows the same trade: paging, archive and `anomalies` use this one definition."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.columns import TRADES
from loopring_lab.engine.hashes import known_hashes
from loopring_lab.tables import wire
from loopring_lab.tables.numbers import to_integers

# An id is of a fill, which both of its sides have; one order may fill several times.
IDENTITY = ["trade_id", "side", "order_hash"]
SIDES = TRADES["side"].words

# This stands between members that are hashed. The relayer does not know it, so it cannot make rows collide.
_SEPARATOR = secrets.token_hex(8)


class RowKeys(NamedTuple):
    """For each row of a page: hashes of its identity and its whole content, and its time in milliseconds."""

    identities: list[int]
    contents: list[int]
    moments: list[int]


def row_keys(batch: wire.Batch) -> RowKeys:
    """Return the keys of the rows of a page."""
    columns = batch.columns
    identities = hash_identities(
        to_integers(columns["id"]),
        pc.ascii_upper(columns["side"]),
        columns["orderHash"],
        columns["no_trade"],
    )
    # The contents are what a row says, in whatever form it says it.
    contents = _hash_rows(columns.drop_columns(["text"]).columns)
    moments = to_integers(columns["createdAt"]).fill_null(0)
    return RowKeys(identities, contents, moments.to_pylist())


def hash_identities(
    trade_ids: pa.Array,
    sides: pa.Array,
    order_hashes: pa.Array,
    no_trades: pa.Array,
) -> list[int]:
    """Hash the identities of rows, which for rows that are no trade are their text.

    Hashes can be compared within this process only.
    """
    # A side that is neither is null in the frame and in archives, so it is here.
    known = pc.if_else(
        pc.is_in(
            sides,
            value_set=pa.array(SIDES),
        ),
        sides,
        None,
    )
    return _hash_rows(
        [
            trade_ids.cast(pa.string()),
            known,
            known_hashes(order_hashes),
            no_trades,
        ]
    )


def _hash_rows(columns: Sequence[pa.Array]) -> list[int]:
    texts = pc.binary_join_element_wise(
        *columns,
        _SEPARATOR,
        null_handling="replace",
        null_replacement="\0",
    )
    return list(map(hash, texts.to_numpy(zero_copy_only=False)))
