"""Sources with names of their own, relayers that state none, and races of first syncs between them."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import requests
from support.clients import client_at
from support.ledger import Ledger, count_rows
from support.scripted_server import Answer, ScriptedServer, scripted

from loopring_lab.archive import Archive
from loopring_lab.errors import ArchiveError
from loopring_lab.relayer import Relayer
from loopring_lab.sources.client import Client

HEADER = "X-Loopring-Lab-Source"


class Named(Ledger):
    """A ledger with a name of its own; all have the same account ids."""

    def __init__(
        self,
        name: str,
        seed: int,
        accounts: int = 1,
        trades: int = 30,
        synthetic: bool = True,
    ):
        super().__init__(accounts, trades, seed)
        self.name = name
        self.synthetic = synthetic


class Racer(NamedTuple):
    """What a racing process needs to know of a relayer."""

    base_url: str
    api_key: str
    accounts: list[int]


def addressed(relayer: Relayer | Racer, base_url: str | None = None) -> Client:
    """Connect by address only, as a user does."""
    url = base_url or relayer.base_url
    return client_at(url, api_key=relayer.api_key[:])


@contextmanager
def silent(
    relayer: Relayer, stated: str | None = None, path: str = ""
) -> Iterator[ScriptedServer]:
    """Serve what a relayer serves, at another address, without its identity or with another one."""

    def script(number, request):
        passed = {
            name: text for name, text in request.headers.items() if name == "x-api-key"
        }
        url = relayer.base_url + request.path.removeprefix(path)
        found = requests.get(url, headers=passed, timeout=600)
        return Answer(
            found.status_code, found.content, {} if stated is None else {HEADER: stated}
        )

    with scripted(script) as server:
        yield server


def held(path: Path) -> Counter[Any]:
    """Count the trades that an archive holds, by identity."""
    rows = Archive(path).query("SELECT account_id, fill_type, verbatim FROM rows")
    each = rows.itertuples(index=False)
    return count_rows(
        (account, kind, json.loads(text)) for account, kind, text in each
    )[0]


def race(racer: Racer, path: Path, at: float) -> str:
    """Sync into a folder at a given moment; tell how that ended."""
    while time.time() < at:
        time.sleep(0)
    try:
        Archive(path).sync(addressed(racer), accounts=racer.accounts, progress=False)
    except ArchiveError as error:
        return str(error)
    return "done"


def race_once(
    racers: list[Racer], truths: list[Counter[Any]], path: Path, pool: Executor
) -> int:
    """Let first syncs of one folder race; check that one source alone got in, and return its number."""
    at = time.time() + 0.02
    outcomes = [
        one.result(60)
        for one in [pool.submit(race, racer, path, at) for racer in racers]
    ]
    assert outcomes.count("done") == 1, outcomes
    winner = outcomes.index("done")
    assert held(path) == truths[winner], "rows of two sources are mixed"
    assert Archive(path).report()["complete"].all()
    for number, outcome in enumerate(outcomes):
        if number != winner:
            assert f"world {winner}" in outcome, outcome
            assert f"world {number}" in outcome, outcome
    return winner


@contextmanager
def racing(count: int) -> Iterator[tuple[list[Racer], list[Counter[Any]]]]:
    """Run relayers of different worlds with the same accounts."""
    worlds = [
        Named(f"world {number}", number, accounts=2, trades=20)
        for number in range(count)
    ]
    relayers = [Relayer(world).start() for world in worlds]
    try:
        racers = [
            Racer(one.base_url, one.api_key[:], worlds[0].accounts) for one in relayers
        ]
        yield racers, [world.truth()[0] for world in worlds]
    finally:
        for relayer in relayers:
            relayer.stop()
