"""A relayer with chosen settings, and a plain way to ask it."""

from typing import Any

import pytest
import requests
from support.key_update_requests import Poster

from loopring_lab.relayer import Relayer, Settings, World

TRADES = "/user/trades"


class ApiClient:
    """A plain client of one relayer."""

    def __init__(self, relayer):
        self.relayer = relayer
        self.session = requests.Session()

    def get(self, path, key=None, **query):
        headers = {"X-API-KEY": self.relayer.api_key if key is None else key}
        url = self.relayer.base_url + "/api/v3" + path
        return self.session.get(url, headers=headers, params=query, timeout=600)

    def trades(self, **query):
        answer = self.get(TRADES, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()["totalNum"], answer.json()["trades"]

    def pages(self, **query):
        rows: list[list[Any]] = []
        while True:
            total, page = self.trades(offset=len(rows), limit=50, **query)
            rows += page
            if len(rows) >= total or not page:
                return rows


@pytest.fixture(scope="session")
def world():
    return World(seed=1, size=0.05)


@pytest.fixture
def serve(world):
    """Start relayers of the small world with any settings, and give clients of them."""
    made: list[ApiClient] = []

    def make(**settings):
        relayer = Relayer(world, Settings(**settings))
        made.append(ApiClient(relayer.start()))
        return made[-1]

    yield make
    for client in made:
        client.session.close()
        client.relayer.stop()


@pytest.fixture
def relayers():
    """Make relayers whose key updates move only when a test says so, and stop them afterwards."""
    made: list[Relayer] = []
    small = World(size=0.002)  # in which no pool has the account id of a vector

    def make(*, now=None, **settings):
        more = {} if now is None else {"now": now}
        relayer = Relayer(
            small, Settings(**{"update_seconds": None, **settings}), **more
        )
        made.append(relayer.start())
        return relayer

    yield make
    for relayer in made:
        relayer.stop()


@pytest.fixture
def posters():
    """Make senders of POST /account, and close them afterwards."""
    made: list[Poster] = []

    def make(relayer):
        made.append(Poster(relayer))
        return made[-1]

    yield make
    for poster in made:
        poster.close()
