"""Answers of a relayer as others keep them: whole, in a browser's HAR file, or in what the exchange's SDK returns."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from loopring_lab.bounded import parse_integer, parse_json, printable
from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.origin import HEADER, Source
from loopring_lab.tables import wire
from loopring_lab.tables.rows import FILL_TYPES
from loopring_lab.tables.wire import Page

# This is in the first bytes of a HAR file.
START = re.compile(rb'"log"\s*:\s*\{')
# The requests of a HAR file whose answers are read.
_TRADES = "user/trades"
_TOKENS = "exchange/tokens"
_MARKETS = "mix/markets"
_URL = re.compile(
    rf"(?P<address>[a-zA-Z]+://[^/?#]*)?[^?#]*/(?P<endpoint>{_TRADES}|{_TOKENS}|{_MARKETS})/?"
    r"(?:\?(?P<query>[^#]*))?(?:#.*)?"
)
# What a request for a whole history has. ``totalNum`` may count less than that under any other filter.
_UNFILTERED = {"accountId", "fillTypes", "offset", "limit"}
_OK = "200"
_HINT = "Open the trade history with the browser's network tools open, and save all as HAR with content."


class Har(NamedTuple):
    """The relayer's answers in a HAR file.

    `listing` is those with the tokens and the markets, if it has both; `source` the identity that the relayer stated,
    and `relayer` its address, if that is known.
    """

    pages: list[Page]
    listing: tuple[str, str] | None
    source: str | None
    relayer: str | None


def pages_in(answer: Any, place: str) -> list[Page]:
    """Return the pages in a parsed answer: itself, those of a HAR file, or the one that the SDK got."""
    if isinstance(answer, dict) and isinstance(answer.get("log"), dict):
        return read_har(answer, place).pages
    if isinstance(answer, dict) and isinstance(answer.get("raw_data"), dict):
        return [wire.read_page(answer["raw_data"], f"{place}.raw_data")]
    return [wire.read_page(answer, place)]


def read_har(answer: Any, place: str) -> Har:
    """Take a relayer's answers out of a parsed HAR file."""
    entries = _member(_member(answer, "log"), "entries")
    if not isinstance(entries, list):
        raise UnexpectedAnswer(
            f"{place}.log.entries",
            expected="the requests of a HAR file",
            got=wire.short(entries),
            hint=_HINT,
        )
    pages: list[Page] = []
    listings = {}
    relayers: set[tuple[str | None, str | None]] = set()
    for number, entry in enumerate(entries):
        where = f"{place}.log.entries[{number}]"
        request = _member(entry, "request")
        url = _member(request, "url")
        # Before a request, browsers may ask by OPTIONS whether they may send it.
        if not isinstance(url, str) or _member(request, "method") not in (None, "GET"):
            continue
        asked = _URL.fullmatch(url)
        if not asked:
            continue
        endpoint = asked["endpoint"]
        body = _body(entry, where, is_needed=endpoint == _TRADES)
        if body is None:
            continue
        relayers.add((_relayer(asked["address"]), _stated_source(entry)))
        if endpoint == _TRADES:
            page = _requested(body, where, asked["query"] or "")
            pages += [page] if page else []
        else:
            listings[endpoint] = body
    if len(relayers) > 1:
        # Tokens and accounts of one exchange have the numbers of others on another, and so have those of two worlds
        # that were served at one address.
        named = [" ".join(filter(None, one)) or "no address" for one in relayers]
        raise UnexpectedAnswer(
            place,
            expected="answers of one relayer",
            got=printable(" and ".join(sorted(named)), 200),
            hint="Save the requests to each of them in a file of its own.",
        )
    if not pages:
        raise UnexpectedAnswer(
            place,
            expected="a HAR file with answers of GET /user/trades",
            got=f"{len(entries)} requests, none of them with such an answer",
            hint=_HINT,
        )
    [(relayer, source)] = relayers
    is_listed = len(listings) == 2
    listing = (listings[_TOKENS], listings[_MARKETS]) if is_listed else None
    return Har(pages, listing, source, relayer)


def _relayer(address: str | None) -> str | None:
    """Name a relayer, however its address is written, without a user and a password; None without an address."""
    try:
        return Source.at(address).name if address else None
    except ValueError:  # of brackets, and of a port that is no number
        return None


def _requested(body: str, where: str, query: str) -> Page | None:
    """Return the page in an answer of GET /user/trades with what its request says of it; None for a refusal."""
    answer = parse_json(body, where, hint=_HINT)
    # Some relayers send a refusal with the status 200.
    if isinstance(answer, dict) and "resultInfo" in answer:
        return None
    page = wire.read_page(answer, where)
    asked = parse_qs(query)
    fill_type = ",".join(asked.get("fillTypes", []))
    return page._replace(
        total=page.total if asked.keys() <= _UNFILTERED else None,
        account_id=parse_integer(",".join(asked.get("accountId", []))),
        fill_type=fill_type if fill_type in FILL_TYPES else None,
    )


def _body(entry: Any, where: str, *, is_needed: bool) -> str | None:
    """Return the text of an answer; None for a refusal, and for what nobody needs."""
    response = _member(entry, "response")
    status = _member(response, "status")
    content = _member(response, "content")
    text = _member(content, "text")
    if status is not None and str(status) != _OK:
        return None
    place = f"{where}.response.content.text"
    if not isinstance(text, str) or not text:
        if not is_needed:
            return None
        raise UnexpectedAnswer(
            place, expected="the answer", got=wire.short(text), hint=_HINT
        )
    if _member(content, "encoding") != "base64":
        return text
    try:
        return base64.b64decode(text, validate=True).decode("utf-8-sig")
    except (binascii.Error, ValueError):
        got = "text that is not base64 of UTF-8"
    raise UnexpectedAnswer(place, expected="the answer", got=got, hint=_HINT)


def _stated_source(entry: Any) -> str | None:
    """Return the identity that a relayer stated in a header, by which made-up data stays known as such."""
    headers = _member(_member(entry, "response"), "headers")
    for header in headers if isinstance(headers, list) else []:
        # Headers have names in any case.
        if str(_member(header, "name")).lower() == HEADER.lower():
            return str(_member(header, "value"))
    return None


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None
