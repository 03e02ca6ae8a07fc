"""A relayer whose clock and steps a test drives, and a client that keeps what it sent."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from eth_account.messages import encode_defunct

import loopring_lab as lab
from loopring_lab.client import Client
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.transport import Outcome, Transport

ACCOUNT = 10083
NOW = datetime(2022, 1, 1, tzinfo=UTC)
UNTIL = datetime(2030, 1, 1, tzinfo=UTC)


class Sent(NamedTuple):
    body: bytes
    signature: str


class Recorder(Transport):
    """A transport that keeps what it posts."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self.sent: list[Sent] = []

    def post(self, path: str, body: bytes, *, signature: str) -> Outcome:
        assert path == "/account"
        self.sent.append(Sent(bytes(body), signature[:]))
        return super().post(path, body, signature=signature)


class Desk:
    """A relayer, a client of it, and its time."""

    def __init__(self, **settings: Any) -> None:
        self.now = NOW.timestamp()
        chosen = Settings(**{"update_seconds": None} | settings)
        self.relayer = Relayer(World(size=0.001), chosen, now=lambda: self.now)

    def connect(self, **how: Any) -> None:
        how = {"api_key": self.relayer.api_key, "rate": None, "proxies": False} | how
        self.transport = Recorder(self.relayer.base_url, **how)
        self.client = Client(self.transport)

    def prepare(self, account: int = ACCOUNT, **how: Any) -> lab.KeyUpdate:
        if "signer" not in how:
            how["signer"] = self.relayer.signer(account)
        return lab.KeyUpdate.prepare(self.client, account_id=account, **{"valid_for": UNTIL} | how)

    def finish(self) -> None:
        """Take every update to its end."""
        while self.relayer.step():
            pass


@contextmanager
def desk(**settings: Any) -> Iterator[Desk]:
    """Open a desk; settings are the relayer's."""
    made = Desk(**settings)
    with made.relayer:
        made.connect()
        try:
            yield made
        finally:
            made.client.close()


def personally(signer: Any, text: str) -> bytes:
    """Sign as a wallet does with personal_sign."""
    return bytes(signer.sign_message(encode_defunct(text=text)).signature)


def typed(signer: Any, data: dict[str, Any]) -> bytes:
    """Sign as a wallet does with eth_signTypedData_v4."""
    return bytes(signer.sign_typed_data(full_message=data).signature)
