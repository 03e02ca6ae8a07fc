"""Rows of an archive: pages to rows, rows to the frame that the client returns; `tables.rows` types them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.bounded import parse_integer
from loopring_lab.engine import frames
from loopring_lab.engine.kinds import portable
from loopring_lab.errors import DamagedArchive, UnexpectedAnswer
from loopring_lab.tables import rows, wire
from loopring_lab.tables.listings import MarketLookup
from loopring_lab.tables.wire import HistoryKey

NO_MARKETS = "[]"  # listed beside trades that were read from blocks


class Page(NamedTuple):
    """A page: of which history, its rows, and when it was received (milliseconds)."""

    key: HistoryKey
    batch: wire.Batch
    retrieved_at: int


class Converted(NamedTuple):
    """Rows as `merge.add` takes them, what pages count of each history, and why histories were left out."""

    rows: pa.Table
    totals: dict[HistoryKey, int | None]
    errors: dict[HistoryKey, UnexpectedAnswer]


class ListingSnapshot(NamedTuple):
    """Tokens and markets as a source listed them at one time; `whence` is for messages."""

    tokens: str
    markets: str
    retrieved_at: int
    whence: str = "the archive"

    @classmethod
    def of_relayer(
        cls, tokens: str, markets: str, retrieved_at: int, whence: str
    ) -> ListingSnapshot:
        """Take the answers of a relayer; one of no markets is written in another form than stands for blocks."""
        if markets == NO_MARKETS:
            markets = f'{{"markets": {NO_MARKETS}}}'
        return cls(tokens, markets, retrieved_at, whence)

    @property
    def is_of_blocks(self) -> bool:
        return self.markets == NO_MARKETS

    def lookup(self) -> MarketLookup:
        """Read both, or raise an `UnexpectedAnswer`."""
        try:
            tokens = tables.tokens(self.tokens)
            markets = tables.markets(self.markets, tokens)
        except UnexpectedAnswer as fault:
            raise UnexpectedAnswer(
                f"{self.whence}, {fault.field}",
                expected=fault.expected,
                got=fault.got,
                hint="Check that it is the answer of a relayer, and save it again.",
            ) from None
        return MarketLookup(tokens, markets)


def to_rows(pages: Sequence[Page], lookup: MarketLookup) -> Converted:
    """Convert pages to rows, those of one history together; leave out histories with an error."""
    ordered = sorted(pages, key=lambda page: page.key)
    totals: dict[HistoryKey, int | None] = {}
    errors: dict[HistoryKey, UnexpectedAnswer] = {}
    kept: list[Page] = []
    for key, of_history in itertools.groupby(ordered, lambda page: page.key):
        read = list(of_history)
        try:
            totals[key] = _checked_total(key, [page.batch for page in read])
        except UnexpectedAnswer as error:
            errors[key] = error
        else:
            kept += read
    return Converted(_typed(kept, lookup), totals, errors)


def _checked_total(key: HistoryKey, batches: Sequence[wire.Batch]) -> int | None:
    """Return how many rows the last page of a history counts, or raise what is wrong with one."""
    wire.refuse_without_trades(batches)
    texts = pa.chunked_array(one.columns["accountId"] for one in batches)
    counts = {
        parse_integer(one["values"]): one["counts"]
        for one in pc.value_counts(texts).to_pylist()
    }
    tables.refuse_other_accounts(counts, key[0], "Nothing of that history was added. ")
    counting = [batch for batch in batches if batch.totals[0] is not None]
    return wire.read_total(counting[-1]) if counting else None


def _typed(pages: Sequence[Page], lookup: MarketLookup) -> pa.Table:
    """Convert rows, and put beside them their texts and when they were received."""
    batch = wire.concat([page.batch for page in pages])
    fill_types = [page.key[1] for page in pages]
    typed = rows.convert(batch, fill_types, lookup)
    frame = tables.assemble(typed, lookup)
    table = as_stored(portable(frame))
    # The account and the time of each page are repeated for each of its rows.
    account = [page.key[0] for page in pages]
    moment = [page.retrieved_at for page in pages]
    accounts = pa.array(np.repeat(account, batch.counts), pa.int64())
    moments = pa.array(np.repeat(moment, batch.counts), pa.int64())
    retrieved_at = moments.cast(frames.TIMESTAMP)
    table = frames.replaced(table, "account_id", accounts)
    table = table.append_column("verbatim", batch.columns["text"])
    return table.append_column("retrieved_at", retrieved_at)


def as_stored(table: pa.Table) -> pa.Table:
    """Return a table with amounts as the whole numbers that an archive stores."""
    for name in frames.AMOUNTS:
        column = frames.to_hugeint(pa.chunked_array(table[name]))
        table = frames.replaced(table, name, column)
    return table


def to_frame(table: pa.Table, listing: ListingSnapshot) -> pd.DataFrame:
    """Convert rows of the archive to the frame that the client returns."""
    lookup = listing.lookup()
    words = tables.word_lists(lookup)
    # An earlier listing may have named others.
    for name in rows.NAMED:
        found = set(table[name].unique().to_pylist())
        known = {None, *words[name]}
        words[name] += sorted(found - known)
    if listing.is_of_blocks:
        # Rows are sorted as in `rollup.settled`: by place in the blocks, the taker's row of a fill before the maker's.
        order = [("trade_id", "ascending"), ("role", "descending")]
        table = table.sort_by(order)
    for name, listed in words.items():
        names = pa.array(listed, pa.string())
        codes = pc.index_in(table[name], value_set=names)
        if codes.null_count > table[name].null_count:
            raise _not_ours(f"other words in {name} than it knows")
        table = frames.replaced(table, name, codes.fill_null(-1))
    try:
        moments = table["created_at"].cast(frames.TIMESTAMP)
    except pa.ArrowInvalid:
        raise _not_ours("times that are not whole milliseconds") from None
    table = frames.replaced(table, "created_at", moments.cast(pa.int64()))
    typed = table.combine_chunks()
    if listing.is_of_blocks:
        return tables.assemble(typed, lookup)
    return tables.join_typed([typed], lookup)


def _not_ours(values: str) -> DamagedArchive:
    return DamagedArchive(
        f"The archive holds {values}, which loopring-lab does not write. Use the file that this one was made from, or "
        "fill a new one."
    )
