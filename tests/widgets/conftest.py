"""Fixtures of the widget tests: a client and its trades."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

import loopring_lab as lab
from loopring_lab.client import Client
from loopring_lab.http.transport import Transport

SMALL = 10083


class Gated(Transport):
    """A transport whose pages of trades wait until a test lets them through."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.asked, self.let = threading.Event(), threading.Event()

    def get(self, path: str, params: Any = None, **how: Any) -> bytes:
        if path == "/user/trades":
            self.asked.set()
            assert self.let.wait(20)
        return super().get(path, params, **how)


@pytest.fixture(scope="session")
def client() -> Client:
    return lab.connect()


@pytest.fixture(scope="session")
def trades(client: Client) -> pd.DataFrame:
    return client.trades(SMALL)


@pytest.fixture
def gated(client: Client) -> Iterator[Callable[[], tuple[Client, Gated]]]:
    """Make clients of the same relayer whose trades wait."""
    made = []

    def make() -> tuple[Client, Gated]:
        base = client._transport
        transport = Gated(base.base_url, api_key=base._key, rate=None, proxies=False)
        made.append(transport)
        return Client(transport, client.source, synthetic=True, accounts=client.accounts), transport

    yield make
    for transport in made:
        transport.let.set()
        transport.close()
