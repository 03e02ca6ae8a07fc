"""What tests of key updates need: a relayer whose clock and progress they control, and a recording client."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import requests
from eth_account.messages import encode_defunct

import loopring_lab as lab
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.sources.client import Client

ACCOUNT = 10083
NOW = datetime(2022, 1, 1, tzinfo=UTC)
UNTIL = datetime(2030, 1, 1, tzinfo=UTC)


class Sent(NamedTuple):
    body: bytes
    signature: str


class RecordingTransport(Transport):
    """A transport that records what it posts."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.sent: list[Sent] = []

    def post(self, path: str, body: bytes, *, signature: str, **others: Any) -> bytes:
        assert path == "/account"
        self.sent.append(Sent(bytes(body), signature[:]))
        return super().post(path, body, signature=signature, **others)


class CountingSigner:
    """A signer that counts the signatures it makes."""

    def __init__(self, signer):
        self.address = signer.address
        self._signer = signer
        self.signatures = 0

    def sign_message(self, signable_message):
        self.signatures += 1
        return self._signer.sign_message(signable_message)

    def sign_typed_data(self, *, full_message: dict[str, Any]):
        self.signatures += 1
        return self._signer.sign_typed_data(full_message=full_message)


class KeyUpdateSetup:
    """A relayer, its clock, and a client of it."""

    def __init__(self, **settings):
        self.now = NOW.timestamp()
        merged = Settings(**{"update_seconds": None} | settings)
        self.relayer = Relayer(World(seed=2, size=0.001), merged, now=lambda: self.now)

    def connect(self, **options):
        options = {
            "api_key": self.relayer.api_key,
            "rate": None,
            "proxies": False,
        } | options
        self.transport = RecordingTransport(self.relayer.base_url, **options)
        self.client = Client(self.transport)

    def prepare(self, account: int = ACCOUNT, **options) -> lab.KeyUpdate:
        if "signer" not in options:
            options["signer"] = self.relayer.signer(account)
        return lab.KeyUpdate.prepare(
            self.client, account_id=account, **{"valid_for": UNTIL} | options
        )

    @property
    def source(self) -> dict[str, str]:
        """The header in which the relayer names its data."""
        answer = requests.get(f"{self.relayer.base_url}/api/v3/timestamp", timeout=600)
        return {"X-Loopring-Lab-Source": answer.headers["X-Loopring-Lab-Source"]}

    @contextmanager
    def redirected(self, base_url: str) -> Iterator[None]:
        """Let the client talk to another server for a while."""
        self.transport.base_url = base_url
        try:
            yield
        finally:
            self.transport.base_url = self.relayer.base_url

    def finish(self):
        """Process every pending update."""
        while self.relayer.step():
            pass


@contextmanager
def key_update_setup(**settings) -> Iterator[KeyUpdateSetup]:
    """Start a relayer with these settings, and a client of it."""
    setup = KeyUpdateSetup(**settings)
    with setup.relayer:
        setup.connect()
        try:
            yield setup
        finally:
            setup.client.close()


def personal_sign(signer, text: str) -> bytes:
    """Sign as a wallet does with personal_sign."""
    return bytes(signer.sign_message(encode_defunct(text=text)).signature)


def sign_typed_data(signer, data: dict[str, Any]) -> bytes:
    """Sign as a wallet does with eth_signTypedData_v4."""
    return bytes(signer.sign_typed_data(full_message=data).signature)
