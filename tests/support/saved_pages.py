"""Saved responses of a relayer in a folder, as a recording keeps them."""

import json
from pathlib import Path

from support.ledger import FILL_TYPES, Ledger
from support.wire_rows import DECIMALS, NAMES, SYMBOLS


def save(ledger: Ledger, folder: Path, source: str | None = None) -> Path:
    """Save the listings and every row of a ledger, newest first; a named source is synthetic."""
    (folder / "trades").mkdir(parents=True)
    (folder / "tokens.json").write_text(json.dumps(ledger.tokens()))
    (folder / "markets.json").write_text(json.dumps({"markets": ledger.markets()}))
    if source is not None:
        stated = {"name": source, "synthetic": True}
        (folder / "source.json").write_text(json.dumps(stated))
    for account in ledger.accounts:
        for kind in FILL_TYPES:
            numbers = ledger.history.row_numbers(account, None, kind)
            rows = [ledger.rows[number] for number in reversed(numbers)]
            file = folder / "trades" / f"{account}-{kind}.json"
            file.write_text(json.dumps({"totalNum": len(rows), "trades": rows}))
    return folder


def save_listings(folder: Path):
    """Save the tokens and markets of `wire_rows`."""
    tokens = [
        {"tokenId": token, "symbol": SYMBOLS[token], "decimals": places}
        for token, places in DECIMALS.items()
    ]
    markets = [
        {"market": name, "baseTokenId": base, "quoteTokenId": quote}
        for name, (base, quote) in NAMES.items()
    ]
    (folder / "tokens.json").write_text(json.dumps(tokens))
    (folder / "markets.json").write_text(json.dumps({"markets": markets}))
