"""An archive's rows: pages to rows to frames, the listings that scale them, and the relayer's counts."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.amounts import AMOUNT
from loopring_lab.archive.delta import LISTINGS, SCHEMAS, SYNCS, TRADES, DeltaFolder
from loopring_lab.archive.merge import retry_on_conflict
from loopring_lab.engines import portable
from loopring_lab.errors import AmountError, ArchiveError, LabError, UnexpectedAnswer
from loopring_lab.tables import rows, wire
from loopring_lab.tables.listings import MarketLookup

TOKENS = ("base", "quote", "fee_token")
TYPED = SCHEMAS[TRADES].names[:21]


class Page(NamedTuple):
    """An answer of the trades endpoint: what was asked for, when it came (milliseconds), and from where."""

    account_id: int
    fill_type: str
    body: bytes
    moment: int
    where: str


@dataclass(frozen=True)
class ListingSnapshot:
    """Tokens and markets as a relayer told them at one time."""

    tokens: str
    markets: str
    source: str
    synthetic: bool
    moment: int
    frames: tuple[pd.DataFrame, pd.DataFrame] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Read both, so that what is not a listing is refused before anything is stored."""
        tokens = tables.tokens(self.tokens)
        object.__setattr__(self, "frames", (tokens, tables.markets(self.markets, tokens)))

    @property
    def name(self) -> str:
        """16 hex digits that stand for the content, whenever it came."""
        content = json.dumps([self.tokens, self.markets, self.source, self.synthetic])
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def to_rows(pages: Sequence[Page], listed: ListingSnapshot) -> pa.Table:
    """Turn pages of one account and fill type into rows of the archive."""
    account, asked = pages[0].account_id, pages[0].fill_type
    listing = MarketLookup(*listed.frames)
    try:
        batch = wire.read([page.body for page in pages])
        labels = [rows.FILL_TYPES.index(asked)] * len(pages)
        typed = rows.typed(batch, labels, listing, "received")
        texts = _verbatim([page.body for page in pages], len(typed))
    except (UnexpectedAnswer, AmountError) as error:
        _locate(error, pages)
        raise
    moments = np.repeat([page.moment * 1000 for page in pages], batch.rows)
    if batch.turned:
        texts, moments = texts[::-1], moments[::-1]
    _own(typed["account_id"], account, asked)
    count = len(typed)
    columns = {name: typed[name] for name in TYPED}
    columns |= {name: _named(typed[name].to_numpy(), known) for name, known in _words(listing).items()}
    columns["account_id"] = pa.array(np.full(count, account))
    columns["created_at"] = typed["created_at"].cast(pa.timestamp("ms", "UTC"))
    found = portable(pa.table(columns))
    beside = {
        "asked": pa.repeat(asked, count),
        "verbatim": pa.array(texts, pa.string()),
        "retrieved_at": pa.array(moments, pa.int64()).cast(pa.timestamp("us", "UTC")),
        "listing": pa.repeat(listed.name, count),
        "version": pa.repeat(pa.scalar(1, pa.int32()), count),
        "current": pa.repeat(True, count),
    }
    for name, column in beside.items():
        found = found.append_column(name, column)
    return found.cast(SCHEMAS[TRADES])


def to_frame(table: pa.Table, listed: ListingSnapshot) -> pd.DataFrame:
    """Turn rows of the archive into the frame that the client gives."""
    listing = MarketLookup(*listed.frames)
    tokens = pc.unique(pa.chunked_array([c for n in TOKENS for c in table[n].chunks], pa.string()))
    listing.tokens += sorted(set(tokens.drop_null().to_pylist()) - set(listing.tokens))
    named = pc.unique(table["market"]).drop_null().to_pylist()
    listing.markets += [name for name in named if name not in set(listing.markets)]
    columns: dict[str, Any] = {name: table[name] for name in TYPED}
    for name, known in _words(listing).items():
        place = pc.index_in(table[name], value_set=pa.array(known, pa.string()))
        columns[name] = place.fill_null(-1)
    for name in ("size", "price", "notional", "fee"):
        columns[name] = table[name].cast(AMOUNT.pyarrow_dtype)
    columns["created_at"] = table["created_at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return tables.joined([pa.table(columns).combine_chunks()], listing)


def verbatim(body: bytes) -> list[str]:
    """Cut a page into the JSON text of its rows: members as they were sent, without white space."""
    return [_compact(row) for row in wire.page_rows(_kept(body), "page")]


def _verbatim(bodies: list[bytes], count: int) -> list[str]:
    """Cut pages into rows, quickly where they are plain; a cut at a wrong place gives too many."""
    quick = [row for body in bodies for row in _cut(body)]
    return quick if len(quick) == count else [row for body in bodies for row in verbatim(body)]


def _cut(body: bytes) -> list[str]:
    begin, end = body.find(b'"trades":[['), body.rfind(b"]]")
    inner = body[begin + 11 : end] if 0 <= begin < end else b""
    if not inner or not body.isascii() or any(sign in inner for sign in _UNPLAIN):
        return verbatim(body)
    return [f"[{row}]" for row in inner.decode().split("],[")]


_UNPLAIN = (b"\\", b" ", b"\n", b"\t", b"\r", b"]]", b"[[", b"{")


class _Bare(str):
    """A JSON number, as its text."""

    __slots__ = ()


def _kept(body: bytes) -> Any:
    wire.parse(body, "page")  # refuses what is no JSON, or nests too deep
    return json.loads(body, parse_int=_Bare, parse_float=_Bare)


def _compact(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ",".join(map(_compact, value)) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_compact(name)}:{_compact(one)}" for name, one in value.items()) + "}"
    return str(value) if isinstance(value, _Bare) else json.dumps(value, ensure_ascii=False)


def _words(listing: MarketLookup) -> dict[str, Sequence[str]]:
    """Name the columns of codes, with the names that the codes stand for."""
    tokens: dict[str, Sequence[str]] = dict.fromkeys(TOKENS, listing.tokens)
    return tokens | {
        "market": listing.markets,
        "side": rows.SIDES,
        "fill_type": rows.FILL_TYPES,
        "role": rows.ROLES,
    }


def _named(codes: np.ndarray, names: Sequence[str]) -> pa.Array:
    return pa.array(list(names), pa.string()).take(pa.array(codes, pa.int64(), mask=codes < 0))


def _locate(error: LabError, pages: Sequence[Page]) -> None:
    """Say in an error where its page is from, instead of its number."""

    def named(text: str) -> str:
        return re.sub(r"pages\[(\d+)\]", lambda found: pages[int(found[1])].where, text)

    error.args = (named(str(error)),)
    if isinstance(error, UnexpectedAnswer):
        error.field = named(error.field)


def _own(told: pa.ChunkedArray, account: int, asked: str) -> None:
    """Refuse rows that name another account than the one asked for."""
    others = pc.unique(told.filter(pc.not_equal(told, account).fill_null(False))).to_pylist()
    if others:
        raise UnexpectedAnswer(
            f"accountId of {asked} trades",
            expected=f"account {account}, which was asked for",
            got=f"account {others[0]}",
            hint="Check base_url, or the name of the saved file: the rows are of somebody else.",
        )


History = tuple[int, str]
MOMENTS = ("synced_at", "since")


class Count(NamedTuple):
    """What the relayer counted of one history, and what was held then."""

    account_id: int
    fill_type: str
    synced_at: int
    total: int
    gone: int | None
    requests: int = 0
    since: int | None = None


def now_ms() -> int:
    """Tell the time."""
    return time.time_ns() // 1_000_000


def held_identities(disk: DeltaFolder, history: History) -> set[int]:
    """Hash the identities that are held of a history, as `paging.Course` does."""
    where = (pc.field("asked") == history[1]) & (pc.field("version") == 1)
    rows = disk.read(TRADES, ["trade_id", "side", "order_hash"], where, [history[0]])
    return set(map(hash, zip(*(column.to_pylist() for column in rows.columns), strict=True)))


def keep_listing(disk: DeltaFolder, listed: ListingSnapshot) -> None:
    """Store a listing unless the same is there."""

    def attempt() -> None:
        table = disk.table(LISTINGS)
        known = listings(disk)
        for one in known.values():
            _kindred(disk, one, listed)
        if listed.name not in known:
            moment = pa.scalar(listed.moment, pa.timestamp("ms", "UTC"))
            row = [listed.name, listed.tokens, listed.markets, listed.source, listed.synthetic, moment]
            columns = dict(zip(SCHEMAS[LISTINGS].names, ([value] for value in row), strict=True))
            disk.append(LISTINGS, pa.table(columns), table, [listed.name])

    retry_on_conflict(attempt)


def listings(disk: DeltaFolder) -> dict[str, ListingSnapshot]:
    """Read every listing."""
    rows = disk.read(LISTINGS).sort_by("retrieved_at")
    moments = rows["retrieved_at"].cast(pa.int64()).to_pylist()
    found = {}
    for row, moment in zip(rows.to_pylist(), moments, strict=True):
        listed = ListingSnapshot(
            row["tokens"], row["markets"], row["source"], row["synthetic"], moment // 1000
        )
        found[row["listing"]] = listed
    return found


def keep_counts(disk: DeltaFolder, fresh: Iterable[Count]) -> None:
    """Store what the relayer counted."""
    rows = [one._asdict() for one in fresh]
    if rows:
        columns = {name: [row[name] for row in rows] for name in SCHEMAS[SYNCS].names}
        whole = {name: pa.array(columns[name], pa.int64()) for name in columns if name != "fill_type"}
        table = pa.table({name: whole.get(name, columns[name]) for name in columns})
        for name in MOMENTS:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table[name].cast(pa.timestamp("ms", "UTC")))
        retry_on_conflict(lambda: disk.append(SYNCS, table))


def counts(disk: DeltaFolder) -> dict[History, Count]:
    """Read what was counted last of each history."""
    rows = disk.read(SYNCS).sort_by("synced_at")
    for name in MOMENTS:
        place = rows.schema.get_field_index(name)
        rows = rows.set_column(place, name, rows[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()))
    found: dict[History, Count] = {}
    for row in rows.to_pylist():
        one = Count(**row)
        before = found.get((one.account_id, one.fill_type))
        gone = one.gone if one.gone is not None else before.gone if before else 0
        found[one.account_id, one.fill_type] = one._replace(gone=gone)
    return found


def _kindred(disk: DeltaFolder, held: ListingSnapshot, fresh: ListingSnapshot) -> None:
    """Refuse to mix made-up trades with real ones, or with those of another made-up world."""
    if held.synthetic != fresh.synthetic or (held.synthetic and held.source != fresh.source):
        raise ArchiveError(
            f"{disk.path}: holds trades from {held.source}, and these are from {fresh.source}. Made-up "
            "trades are not mixed with others: keep them in an archive of their own. Nothing was added."
        )
