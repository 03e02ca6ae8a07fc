"""A session with secrets, run in a child that is interrupted at any moment: `run` says what it then showed."""

import contextlib
import itertools
import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from support import traces
from support.key_update_setup import UNTIL, personal_sign

import loopring_lab as lab
from loopring_lab import protocol
from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, Settings, World

READER = 10083
KEYED = 11375
UPDATED = 10083
_count = itertools.count()  # every third traceback is also shown by IPython and rich
KEY = "k3y-0f-the-operator/+=&%\"'<>-that-must-never-be-seen"


def run(log: str) -> None:
    """Do what stdin names until Ctrl-C; print the secrets that were shown, or nothing but `[]`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setrecursionlimit(
        1000
    )  # py_ecc raises it so far that showing a half-made pandas object overflows the stack
    logging.basicConfig(filename=log, level=logging.DEBUG, force=True)
    settings = Settings(update_seconds=0.05)
    with Relayer(World(size=0.002), settings, api_key=KEY) as relayer:
        transport = Transport(relayer.base_url, api_key=KEY, rate=None, proxies=False)
        client = Client(transport)
        secrets = {"operator's key": traces.forms(KEY)}
        actions = {"read": read, "key": request_key, "update": update_key}
        for line in sys.stdin:
            name = line.strip()
            action = actions[name](client, relayer, secrets)
            print("begins", flush=True)
            report(action, secrets)
        print(
            json.dumps(traces.leaks(Path(log).read_text(errors="replace"), secrets)),
            flush=True,
        )


def report(action: Callable[[], object], secrets: dict[str, set[str]]) -> None:
    """Run an action; Ctrl-C ends it as usual, and does nothing before and after."""
    began = time.monotonic()
    found = []
    interrupted = False
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(
            LabError
        ):  # an update that was interrupted makes the nonce of the next one stale
            action()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupted = True
        ways = ("its words", "its locals", "Verbose", "rich")
        found = [
            f"{name} in {how}"
            for how, text in zip(
                ways, traces.shown(error, quick=next(_count) % 3 > 0), strict=False
            )
            for name in traces.leaks(text, secrets)
        ]
    print(json.dumps([interrupted, found, time.monotonic() - began]), flush=True)


def read(
    client: Client, relayer: Relayer, secrets: dict[str, set[str]]
) -> Callable[[], object]:
    return lambda: (
        client.trades(READER, limit=100, progress=False),
        client.update_fee(READER),
    )


def request_key(
    client: Client, relayer: Relayer, secrets: dict[str, set[str]]
) -> Callable[[], object]:
    key = relayer.l2_key(KEYED)
    message = protocol.request_message(
        "GET", f"{relayer.base_url}/api/v3/apiKey", {"accountId": KEYED}
    )
    secrets["L2 secret"] = traces.forms(int(key.secret).to_bytes(32, "big")) | {
        str(int(key.secret))[:20]
    }
    secrets["request signature"] = traces.forms(
        str.__str__(protocol.sign_request(key.secret, message)[:])
    )
    return lambda: client.api_key(key, KEYED)


def update_key(
    client: Client, relayer: Relayer, secrets: dict[str, set[str]]
) -> Callable[[], object]:
    signer = relayer.signer(UPDATED)
    prepared = lab.KeyUpdate.prepare(
        client, account_id=UPDATED, signer=signer, valid_for=UNTIL
    )
    seed = personal_sign(signer, prepared.key_seed_message())
    new = protocol.l2_key(seed)
    secrets["wallet"] = traces.forms(bytes(signer.key))
    secrets["seed's signature"] = traces.forms(seed) | traces.forms(seed[:32])
    secrets["new L2 secret"] = traces.forms(int(new.secret).to_bytes(32, "big")) | {
        str(int(new.secret))[:20]
    }
    typed = signer.sign_typed_data(full_message=prepared.typed_data()).signature
    secrets["update's signature"] = traces.forms(bytes(typed))

    def update() -> None:
        again = lab.KeyUpdate.prepare(
            client, account_id=UPDATED, signer=signer, valid_for=UNTIL
        )
        again.submit().wait(20, progress=False)

    return update
