"""Operations that stall, run in a child that is interrupted: `run` serves the names that stdin gives."""

import contextlib
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from attacks import files
from attacks.answers import ACCOUNT, regular, row

import loopring_lab as lab
from loopring_lab.client import Client
from loopring_lab.http.transport import Transport
from loopring_lab.models import Submission

PATIENT = 60.0
PAGES = 20_000


def client(url: str, rate: float | None) -> Client:
    return Client(Transport(url, api_key="not secret", rate=rate, timeout=PATIENT, proxies=False))


def wait_for_receipt(relayer: Client) -> None:
    update = type("Sent", (), {"account_id": ACCOUNT, "nonce": 4})
    lab.Receipt(relayer, update, None, Submission("received", "0x" + "ab" * 32)).wait(PATIENT)


def sync(relayer: Client) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lab.Archive(f"{folder}/trades.duckdb").sync(relayer, accounts=[ACCOUNT, 10084, 10085], progress=False)


def import_many(_: Client) -> None:
    """Import a file that takes minutes, and tell when it has begun."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files.lay_regular(folder)
        pages = (
            json.dumps({"totalNum": PAGES * 50, "trades": [row(50 * page + place) for place in range(50)]})
            for page in range(PAGES)
        )
        (folder / "trades" / files.TRADES).write_text("\n".join(pages))
        say("stalls")
        lab.Archive(folder / "archive").import_pages(folder, progress=False)


def ask_twice(relayer: Client) -> None:
    """Wait for the turn of a second request."""
    for _ in range(2):
        relayer.account(ACCOUNT)


STALLS: dict[str, Callable[[Client], object]] = {
    "head": lambda relayer: relayer.account(ACCOUNT),
    "silence": lambda relayer: relayer.account(ACCOUNT),
    "body": lambda relayer: relayer.tokens(),
    "100 Continue": lambda relayer: relayer.account(ACCOUNT),
    "redirects": lambda relayer: relayer.account(ACCOUNT),
    "gzip bomb": lambda relayer: relayer.tokens(),
    "retry": lambda relayer: relayer.exchange(),
    "rate": ask_twice,
    "threads": lambda relayer: relayer.trades(ACCOUNT, progress=False),
    "progress bar": lambda relayer: relayer.trades(ACCOUNT, progress=True),
    "sync": sync,
    "submission": lambda relayer: relayer.update_account({"nonce": 4, "ecdsaSignature": "0x00"}),
    "receipt": wait_for_receipt,
    "import": import_many,
}


def say(word: str) -> None:
    print(word, flush=True)


def run(port: int) -> None:
    """Stall in the ways that stdin names, and tell how each ended.

    Python ignores a Ctrl-C that arrives in a finalizer, so that none is left for the next operation.
    """
    regular("tokens")
    say("ready")
    for line in sys.stdin:
        name = line.strip()
        url, rate = f"http://127.0.0.1:{port}/{name.replace(' ', '-')}", 0.01 if name == "rate" else None
        gc.collect()
        try:
            with contextlib.closing(client(url, rate)) as relayer:
                STALLS[name](relayer)
            ended = "an answer"
        except KeyboardInterrupt:
            ended = "interrupted"
        except Exception as error:  # noqa: BLE001 - told to the test
            ended = f"{type(error).__name__}: {error}"
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(0)
        say(ended)
