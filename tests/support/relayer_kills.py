"""Kills a relayer at random moments while keys are updated, and counts what became of each request.

A host process imports everything once and forks a relayer for each run, so that a run starts in milliseconds.
A request whose answer was lost is sent again in the next run: the response tells whether it had been accepted.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from support.archive_kills import ask, hosted
from support.key_update_requests import signed_update

from loopring_lab.relayer import Relayer, Settings, World

ACCOUNTS = (10083, 11519, 58344, 94680)
KEY = "operator"
SETTINGS = Settings(update_seconds=0.01)
LONGEST_RUN = 0.1  # seconds after the first request is accepted
TIMEOUT = 20  # seconds
NONCE_USED = 102021


def fork_relayers(path: str):
    """Fork a relayer with a file store for every line that comes in, and print its process and port."""
    import eth_account  # noqa: F401
    import uvicorn  # noqa: F401

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    world = World(size=0.001)
    warm = Relayer(world, SETTINGS)
    warm.app.openapi()
    warm.add_account(1000, "0x" + 40 * "1")  # derives the owners once for all runs
    for _ in sys.stdin:
        if os.fork() == 0:
            relayer = Relayer(world, SETTINGS, store=path, api_key=KEY).start()
            print(os.getpid(), relayer.base_url, flush=True)
            threading.Event().wait()


@dataclass
class Tally:
    """What became of the requests, over all runs."""

    accepted: Counter[int] = field(default_factory=Counter)
    hashes: set[str] = field(default_factory=set)
    unanswered: dict[int, dict[str, Any]] = field(default_factory=dict)
    resolved: Counter[str] = field(default_factory=Counter)
    pending_at_start: int = 0


class Desk:
    """Asks the relayer of one run."""

    def __init__(self, url: str):
        self.url = url + "/api/v3"
        self.session = requests.Session()

    def account(self, account_id: int) -> dict[str, Any]:
        query = {"accountId": account_id}
        return self.session.get(f"{self.url}/account", params=query, timeout=60).json()

    def updates(self, account_id: int) -> list[dict[str, Any]]:
        """Read every update of an account."""
        found: list[dict[str, Any]] = []
        while True:
            answer = self.session.get(
                f"{self.url}/user/updateInfo",
                params={"accountId": account_id, "offset": len(found)},
                headers={"X-API-KEY": KEY},
                timeout=60,
            ).json()
            found += answer["transactions"]
            if len(found) >= answer["totalNum"]:
                return found

    def post(self, body: dict[str, Any]) -> requests.Response:
        headers = {"X-API-SIG": body["ecdsaSignature"]}
        url = f"{self.url}/account"
        return self.session.post(url, json=body, headers=headers, timeout=60)


def send(desk: Desk, tally: Tally, account_id: int):
    """Send the request of an account that has no answer yet; it may have been sent before a kill."""
    answer = desk.post(tally.unanswered[account_id])
    body = answer.json()
    if answer.status_code == 200:
        tally.hashes.add(body["hash"])
        tally.resolved["pending" if body["isIdempotent"] else "new"] += 1
    else:
        assert body["resultInfo"]["code"] == NONCE_USED, body
        tally.resolved["processed"] += 1
    tally.accepted[account_id] += 1
    del tally.unanswered[account_id]


def update_until_killed(
    desk: Desk, tally: Tally, owners: Relayer, killer: threading.Timer
):
    """Update keys until the relayer is gone, which the killer sees to after the first was accepted."""
    deadline = time.monotonic() + TIMEOUT
    with contextlib.suppress(
        requests.ConnectionError, requests.exceptions.ChunkedEncodingError
    ):
        tally.pending_at_start += sum(desk.account(a)["frozen"] for a in ACCOUNTS)
        for account_id in list(tally.unanswered):
            send(desk, tally, account_id)
        while time.monotonic() < deadline:
            for account_id in ACCOUNTS:
                account = desk.account(account_id)
                if account["frozen"]:
                    continue
                body = signed_update(owners, account_id, account["nonce"])
                tally.unanswered[account_id] = body
                send(desk, tally, account_id)
                if killer.ident is None:
                    killer.start()


def start_relayer(process: subprocess.Popen[bytes]) -> tuple[int, Desk]:
    pid, url = ask(process).split()
    return int(pid), Desk(url)


def kill_repeatedly(path: Path, kills: int, seed: int = 1) -> Tally:
    """Kill a relayer many times during updates; every accepted request must be processed exactly once."""
    tally = Tally()
    owners = Relayer(World(size=0.001), SETTINGS)
    dice = random.Random(seed)
    with hosted(f"fork_relayers({str(path)!r})", "relayer_kills") as process:
        for _ in range(kills):
            pid, desk = start_relayer(process)
            life = dice.uniform(0, LONGEST_RUN)
            killer = threading.Timer(life, os.kill, (pid, signal.SIGKILL))
            update_until_killed(desk, tally, owners, killer)
            killer.join()
            desk.session.close()
        pid, desk = start_relayer(process)
        for account_id in list(tally.unanswered):
            send(desk, tally, account_id)
        check(desk, tally, owners)
        desk.session.close()
        os.kill(pid, signal.SIGKILL)
    return tally


def check(desk: Desk, tally: Tally, owners: Relayer):
    """Each accepted request was processed once, and no other."""
    deadline = time.monotonic() + TIMEOUT
    while any(desk.account(each)["frozen"] for each in ACCOUNTS):
        assert time.monotonic() < deadline, "an update is stuck"
        time.sleep(0.01)
    found: list[str] = []
    for account_id in ACCOUNTS:
        account = desk.account(account_id)
        accepted = tally.accepted[account_id]
        assert account["nonce"] == account["keyNonce"] == 1 + accepted, account
        if accepted:
            last = signed_update(owners, account_id, accepted)
            assert account["publicKey"] == last["publicKey"]
        updates = desk.updates(account_id)
        assert [update["status"] for update in updates] == ["processed"] * accepted
        found += [update["hash"] for update in updates]
    assert len(set(found)) == len(found) == tally.accepted.total()
    assert tally.hashes <= set(found)
    assert not tally.unanswered
