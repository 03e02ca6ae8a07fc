"""One saved file of trades: as it is, and as a folder that the embedded relayer serves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, Self

from loopring_lab.bounded import (
    parse_json,
    pieces,
    printable,
    read_documents,
    read_file,
    read_text,
    to_json,
)
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.source import FILE, Source
from loopring_lab.tables import unwrapped, wire
from loopring_lab.tables.listings import POOL_PREFIX
from loopring_lab.tables.rows import FILL_TYPES

LISTING = ("tokens.json", "markets.json")
# Characters of a name that the embedded relayer takes.
LONGEST_NAME = 200
HINT = "Save it again, or give another file."


class HarFile(NamedTuple):
    """A HAR file, with the relayer's answers in it."""

    har: unwrapped.Har

    @classmethod
    def opened(cls, file: Path, hint: str = HINT) -> Self | None:
        """Read a file, if it is one."""
        if not is_har(file, hint):
            return None
        name = printable(file.name)
        answer = parse_json(read_file(file, hint=hint), name, hint=hint)
        return cls(unwrapped.read_har(answer, name))

    @property
    def listing(self) -> tuple[str, str] | None:
        """The answers with the tokens and the markets, if it has both."""
        tokens, markets = self.har.tokens, self.har.markets
        return None if tokens is None or markets is None else (tokens, markets)


def is_har(file: Path, hint: str = HINT) -> bool:
    """Tell whether a file begins as a HAR file does."""
    start = next(pieces(file, printable(file.name), hint), b"")
    return unwrapped.starts_as_har(start)


def source_of(
    saved: Path, name: str | None, places: Iterable[Path], har: HarFile | None
) -> Source:
    """Return the identity of a file: as the relayer in it stated, or as that of saved responses."""
    if har is None or har.har.source is None:
        return Source.of_saved(saved, name, *places)
    stated = Source.read(har.har.source, f"{printable(saved.name)}, {FILE}")
    if name not in (None, stated.name):
        raise LabError(
            f"source={name!r}: the relayer in the file names itself {stated.name!r}. Leave source= out."
        )
    return stated


def write_recording(file: Path, folder: Path, source: str | None) -> tuple[Source, str]:
    """Write a file as a folder of saved responses; return its identity, and a note on what it rests on."""
    har = HarFile.opened(file)
    name = printable(file.name)
    documents = har.har.pages if har else read_documents(file, hint=HINT)
    # Of each account and fill type, by their text.
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    totals: dict[tuple[int, str], int] = {}
    for page in unwrapped.histories(name, documents, None, None):
        key = (page.account_id, page.fill_type)
        listed = wire.page_rows(wire.parse(page.body, name), name)
        # A row that is on two pages is one row; pages come in the order in which they were asked for.
        rows.setdefault(key, {}).update({to_json(row): row for row in listed})
        if page.batch.totals[0] is not None:
            totals[key] = max(totals.get(key, 0), wire.read_total(page.batch))
    # A relayer of nothing would answer every account with no trades.
    if not rows:
        raise UnexpectedAnswer(
            name, expected="pages of trades", got="pages without rows", hint=HINT
        )
    identity = source_of(file, source, [file.parent], har)
    listing, whence = _listing(file, har, rows)
    for place, text in zip(LISTING, listing, strict=True):
        (folder / place).write_text(text, encoding="utf-8")
    # Every response carries the name, so that the relayer cuts long ones; its client knows the whole one.
    label = Source(printable(identity.name, LONGEST_NAME), identity.synthetic)
    (folder / FILE).write_text(label.to_json(), encoding="utf-8")
    (folder / "trades").mkdir()
    for (account, fill_type), once in rows.items():
        whole = {"totalNum": len(once), "trades": list(once.values())}
        saved = folder / "trades" / f"{account}-{fill_type}.json"
        saved.write_text(to_json(whole), encoding="utf-8")
    notes = [f"tokens and markets are {whence}"]
    notes += [
        f"account {account} has {len(rows[account, kind]):,} of {total:,} {kind} fills"
        for (account, kind), total in totals.items()
        if total > len(rows[account, kind])
    ]
    notes += [
        f"account {account} has no {other} fills in it"
        for account, kind in rows
        for other in FILL_TYPES
        if (account, other) not in rows
    ]
    return identity, "; ".join(notes)


def _listing(
    file: Path, har: HarFile | None, rows: dict[tuple[int, str], dict[str, Any]]
) -> tuple[tuple[str, str], str]:
    """Return the text of tokens and markets, and where they come from."""
    if har and har.listing:
        return har.listing, "those in the file"
    beside = [file.parent / name for name in LISTING]
    if all(place.is_file() for place in beside):
        tokens, markets = map(read_text, beside)
        return (tokens, markets), f"those in {' and '.join(LISTING)} beside it"
    return _bundled_listing(
        file, rows
    ), "the exchange's own, as this package brings them"


def _bundled_listing(
    file: Path, rows: dict[tuple[int, str], dict[str, Any]]
) -> tuple[str, str]:
    """Return ids and decimals of the real exchange, if the package has those of all markets of the rows."""
    # Imported late: only a file without a listing needs it.
    from loopring_lab.relayer.mainnet import MARKETS, TOKENS

    place = wire.MEMBERS.index("market")
    every = [row for listed in rows.values() for row in listed.values()]
    names = {
        row[place].removeprefix(POOL_PREFIX)
        for row in every
        if wire.fault_of(row) is None and isinstance(row[place], str)
    }
    missing = sorted(names - set(MARKETS))
    if missing:
        raise LabError(
            f"{file}: no {' and '.join(LISTING)} beside it, and the package does not bring the market "
            f"{printable(missing[0], 40)}. They scale amounts: save the answers of GET /exchange/tokens and "
            "GET /mix/markets there."
        )
    # Only what is the exchange's own: the package makes limits and dates up for its world.
    tokens = [
        {
            "type": "ERC20" if token.id else "ETH",
            "tokenId": token.id,
            "symbol": token.symbol,
            "name": token.name,
            "address": token.address,
            "decimals": token.decimals,
        }
        for token in TOKENS.values()
    ]
    markets = [
        {"market": name, "baseTokenId": market.base.id, "quoteTokenId": market.quote.id}
        for name, market in MARKETS.items()
    ]
    return json.dumps(tokens), json.dumps({"markets": markets})
