"""Rows of an archive: pages to rows, rows to the frame that the client returns."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.amounts import AMOUNT
from loopring_lab.archive.schema import TYPED
from loopring_lab.bounded import to_json
from loopring_lab.engine import frames
from loopring_lab.errors import AmountError, LabError, UnexpectedAnswer
from loopring_lab.tables import rows, wire
from loopring_lab.tables.identity import SIDES
from loopring_lab.tables.listings import MarketLookup

TOKENS = ("base", "quote", "fee_token")

HistoryKey = tuple[int, str]
"""Account id and fill type."""


class RawPage(NamedTuple):
    """A page as received, when it was received (milliseconds), and its rows as text columns."""

    body: bytes
    retrieved_at: int
    batch: wire.Batch


@dataclass(frozen=True)
class ListingSnapshot:
    """Tokens and markets as a source listed them at one time."""

    tokens: str
    markets: str
    retrieved_at: int
    frames: tuple[pd.DataFrame, pd.DataFrame] = field(
        init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Read both, so that anything else is refused before it is stored."""
        tokens = tables.tokens(self.tokens)
        object.__setattr__(
            self, "frames", (tokens, tables.markets(self.markets, tokens))
        )

    @property
    def digest(self) -> str:
        """16 hex digits that identify the content, whenever it was retrieved."""
        content = json.dumps([self.tokens, self.markets])
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def convert(
    batch: Mapping[HistoryKey, Sequence[RawPage]], listing: ListingSnapshot
) -> tuple[pa.Table | list[Any], dict[HistoryKey, LabError]]:
    """Convert pages to rows, account by account; return the errors of histories that are left out."""
    parts: list[pa.Table] = []
    errors: dict[HistoryKey, LabError] = {}
    for key, pages in sorted(batch.items(), key=lambda one: one[0]):
        try:
            wire.refuse_without_trades(page.batch for page in pages)
            parts.append(to_rows(key, pages, listing))
        except (UnexpectedAnswer, AmountError) as error:
            errors[key] = error
    return pa.concat_tables(parts) if parts else [], errors


def to_rows(
    key: HistoryKey, pages: Sequence[RawPage], listing: ListingSnapshot
) -> pa.Table:
    """Convert pages of one history to rows, as `merge.add` takes them.

    `run` numbers the pages that were retrieved at one moment, in the order of reading.
    """
    account_id, fill_type = key
    lookup = MarketLookup(*listing.frames)
    batch = wire.concat([page.batch for page in pages])
    typed = rows.convert(
        batch, [rows.FILL_TYPES.index(fill_type)] * len(pages), lookup, "received"
    )
    others = typed.filter(
        pc.not_equal(typed["account_id"], account_id).fill_null(False)
    )
    if len(others):
        raise UnexpectedAnswer(
            f"accountId of {fill_type} trades",
            expected=f"account {account_id}, which was asked for",
            got=f"account {others['account_id'][0]}",
            hint="Check base_url, or the name of the saved file: the rows belong to another account.",
        )
    columns = {name: typed[name] for name in TYPED}
    for name, words in _categories(lookup).items():
        codes = typed[name].to_numpy()
        columns[name] = pa.array(words, pa.string()).take(
            pa.array(codes, pa.int64(), mask=codes < 0)
        )
    moments = np.array([page.retrieved_at for page in pages], np.int64)
    runs = np.cumsum(np.diff(moments, prepend=moments[:1]) != 0)
    columns["account_id"] = pa.repeat(account_id, len(typed))
    columns["created_at"] = typed["created_at"].cast(frames.TIMESTAMP)
    columns["verbatim"] = _row_texts(pages)
    columns["retrieved_at"] = pa.array(np.repeat(moments, batch.counts)).cast(
        frames.TIMESTAMP
    )
    columns["listing"] = pa.repeat(listing.digest, len(typed))
    columns["run"] = pa.array(np.repeat(runs, batch.counts))
    return stored(frames.portable(pa.table(columns)))


def stored(table: pa.Table) -> pa.Table:
    """See amounts as the whole numbers that an archive stores."""
    for name in frames.AMOUNTS:
        column = frames.to_hugeint(pa.chunked_array(table[name]))
        table = table.set_column(table.column_names.index(name), name, column)
    return table


def to_frame(
    table: pa.Table, listing: ListingSnapshot, *, in_order: bool
) -> pd.DataFrame:
    """Convert rows of the archive to the frame that the client returns; those of blocks are `in_order`."""
    lookup = MarketLookup(*listing.frames)
    lookup.tokens += sorted(
        {word for name in TOKENS for word in _words(table[name])} - set(lookup.tokens)
    )
    lookup.markets += sorted(_words(table["market"]) - set(lookup.markets))
    columns: dict[str, Any] = {name: table[name] for name in TYPED}
    for name, words in _categories(lookup).items():
        columns[name] = pc.index_in(
            table[name], value_set=pa.array(words, pa.string())
        ).fill_null(-1)
    try:
        for name in frames.AMOUNTS:
            columns[name] = frames.from_hugeint(table[name]).cast(AMOUNT.pyarrow_dtype)
    except pa.ArrowInvalid:
        # A file that somebody else made may hold any number.
        raise AmountError(
            f"{name}: the archive holds amounts of more digits than trades have. Sync anew."
        ) from None
    columns["created_at"] = table["created_at"].cast(frames.TIMESTAMP).cast(pa.int64())
    typed = pa.table(columns).combine_chunks()
    return (
        tables.assemble(typed, lookup)
        if in_order
        else tables.join_typed([typed], lookup)
    )


def row_texts(body: bytes) -> list[str]:
    """Split a page into the JSON text of its rows: members as they were sent, without white space."""
    return [to_json(row) for row in wire.page_rows(wire.parse(body, "page"), "page")]


def _row_texts(pages: Sequence[RawPage]) -> pa.Array:
    """Cut pages into rows: quickly where all of them are regular."""
    quick = wire.cut_rows([page.body for page in pages])
    if quick is not None:
        return quick
    return pa.array(
        [row for page in pages for row in row_texts(page.body)], pa.string()
    )


def _words(column: pa.ChunkedArray) -> set[str]:
    return set(pc.unique(column.drop_null()).to_pylist())


def _categories(lookup: MarketLookup) -> dict[str, Sequence[str]]:
    """Return the columns of codes, each with the words that the codes stand for."""
    words: dict[str, Sequence[str]] = dict.fromkeys(TOKENS, lookup.tokens)
    return words | {
        "market": lookup.markets,
        "side": SIDES,
        "fill_type": rows.FILL_TYPES,
        "role": rows.ROLES,
    }
