"""One saved file of trades: as it is, and as a folder that the embedded relayer serves."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from loopring_lab.bounded import (
    MAX_ANSWER,
    parse_json,
    pieces,
    printable,
    read_documents,
    read_file,
    read_text,
)
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.origin import FILE, Source
from loopring_lab.tables import unwrapped, wire
from loopring_lab.tables.listings import POOL_PREFIX
from loopring_lab.tables.rows import FILL_TYPES
from loopring_lab.tables.unwrapped import Har

LISTING = ("tokens.json", "markets.json")
SAVE_LISTING = "They scale amounts: save the answers of GET /exchange/tokens and GET /mix/markets there."
BUNDLED = "the exchange's own, as this package brings them"
# Characters of a name that the embedded relayer takes.
LONGEST_NAME = 200
HINT = "Save it again, or give another file."


def open_har(file: Path, hint: str = HINT) -> Har | None:
    """Read a HAR file; None for any other."""
    if not is_har(file, hint):
        return None
    name = printable(file.name)
    answer = parse_json(read_file(file, hint=hint), name, hint=hint)
    return unwrapped.read_har(answer, name)


def is_har(file: Path, hint: str) -> bool:
    """Tell whether a file begins as a HAR file does."""
    start = next(pieces(file, printable(file.name), hint), b"")
    return unwrapped.starts_as_har(start)


def read_listing(folder: Path) -> tuple[str, str] | None:
    """Read the answers with the tokens and the markets, if a folder has both."""
    files = [folder / name for name in LISTING]
    if not all(file.is_file() for file in files):
        return None
    tokens, markets = (read_text(file, size=MAX_ANSWER) for file in files)
    return tokens, markets


def source_of(
    saved: Path, name: str | None, places: Iterable[Path], har: Har | None
) -> Source:
    """Return the identity of a file: as the relayer in it stated, or as that of saved responses."""
    if har is None or har.source is None:
        return Source.of_saved(saved, name, *places)
    stated = Source.read(har.source, f"{printable(saved.name)}, {FILE}")
    if name not in (None, stated.name):
        raise LabError(
            f"source={name!r}: the relayer in the file names itself {stated.name!r}. Leave source= out."
        )
    return stated


def write_recording(file: Path, folder: Path, source: str | None) -> tuple[Source, str]:
    """Write a file as a folder of saved responses; return its identity, and a note on what it rests on."""
    har = open_har(file)
    name = printable(file.name)
    documents = har.pages if har else read_documents(file, hint=HINT)
    # Texts of rows, of each account and fill type. A row that is on two pages is one row; pages come in the order in
    # which they were asked for.
    rows: dict[unwrapped.HistoryKey, dict[str, None]] = {}
    totals: dict[unwrapped.HistoryKey, int] = {}
    markets: set[str] = set()
    for key, batch in unwrapped.histories(name, documents, None, None):
        texts = wire.texts_of(batch.columns).to_pylist()
        rows.setdefault(key, {}).update(dict.fromkeys(texts))
        markets.update(batch.columns["market"].drop_null().to_pylist())
        if batch.totals[0] is not None:
            totals[key] = max(totals.get(key, 0), wire.read_total(batch))
    # A relayer of nothing would answer every account with no trades.
    if not rows:
        raise UnexpectedAnswer(
            name, expected="pages of trades", got="pages without rows", hint=HINT
        )
    identity = source_of(file, source, [file.parent], har)
    listing, whence = _listing(file, har, markets)
    for place, text in zip(LISTING, listing, strict=True):
        (folder / place).write_text(text, encoding="utf-8")
    # Every response carries the name, so that the relayer cuts long ones; its client knows the whole one.
    label = Source(printable(identity.name, LONGEST_NAME), identity.synthetic)
    (folder / FILE).write_text(label.to_json(), encoding="utf-8")
    (folder / "trades").mkdir()
    for (account, fill_type), once in rows.items():
        whole = f'{{"totalNum":{len(once)},"trades":[{",".join(once)}]}}'
        saved = folder / "trades" / f"{account}-{fill_type}.json"
        saved.write_text(whole, encoding="utf-8")
    notes = [f"tokens and markets are {whence}"]
    notes += [
        f"account {account} has {len(rows[account, kind]):,} of {total:,} {kind.upper()} fills"
        for (account, kind), total in totals.items()
        if total > len(rows[account, kind])
    ]
    notes += [
        f"account {account} has no {other.upper()} fills in it"
        for account, kind in rows
        for other in FILL_TYPES
        if (account, other) not in rows
    ]
    return identity, "; ".join(notes)


def _listing(
    file: Path, har: Har | None, markets: set[str]
) -> tuple[tuple[str, str], str]:
    """Return the text of tokens and markets, and where they come from."""
    if har and har.listing:
        return har.listing, "those in the file"
    beside = read_listing(file.parent)
    if beside:
        return beside, f"those in {' and '.join(LISTING)} beside it"
    absent = f"{file}: no {' and '.join(LISTING)} beside it"
    return bundled_listing(absent, markets), BUNDLED


def bundled_listing(absent: str, used: set[str]) -> tuple[str, str]:
    """Return ids and decimals of the real exchange, if the package has those of all markets that rows use.

    `absent` begins the message otherwise: which listing would have been needed.
    """
    # Imported late: only a file without a listing needs it.
    from loopring_lab.relayer.mainnet import MARKETS, TOKENS

    names = {name.removeprefix(POOL_PREFIX) for name in used}
    missing = sorted(names - set(MARKETS))
    if missing:
        raise LabError(
            f"{absent}, and the package does not bring the market {printable(missing[0], 40)}. {SAVE_LISTING}"
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
