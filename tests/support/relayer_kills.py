"""Kills a relayer at random moments while keys are updated, and counts what became of each request.

A host process imports everything once and forks a relayer for each run, so that a run starts in milliseconds.
A request whose answer was lost is sent again in the next run: the response tells whether it had been accepted.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from support.key_update_requests import signed_update

from loopring_lab.relayer import Relayer, Settings, World

ACCOUNTS = (10083, 11519, 58344, 94680)
KEY = "operator"
SETTINGS = Settings(update_seconds=0.01)
LONGEST_RUN = 0.1  # seconds after the first request is accepted
TIMEOUT = 20  # seconds


def fork_relayers(path: str) -> None:
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


@contextmanager
def forking_host(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a host until the end of the block."""
    code = (
        f"from support.relayer_kills import fork_relayers; fork_relayers({str(path)!r})"
    )
    folder = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the host and any relayer left


@dataclass
class Tally:
    """What became of the requests, over all runs."""

    accepted: Counter[int] = field(default_factory=Counter)
    hashes: list[str] = field(default_factory=list)
    unanswered: dict[int, dict[str, Any]] = field(default_factory=dict)
    resolved: Counter[str] = field(default_factory=Counter)
    pending_at_start: int = 0


class Client:
    """Updates the keys of a few accounts, and remembers which requests were accepted."""

    def __init__(self) -> None:
        self.tally = Tally()
        self._owners = Relayer(World(size=0.001), SETTINGS)
        self._url = ""
        self._session = requests.Session()
        self._on_first_accepted: Callable[[], None] = _nothing

    def run_until_killed(
        self, url: str, deadline: float, on_first_accepted: Callable[[], None]
    ) -> None:
        """Send updates until the relayer is gone; call back when the first was accepted."""
        self._url = url + "/api/v3"
        self._session = requests.Session()
        self._on_first_accepted = on_first_accepted
        try:
            self.tally.pending_at_start += sum(
                self.account(each)["frozen"] for each in ACCOUNTS
            )
            for account_id, body in list(self.tally.unanswered.items()):
                self._resend(account_id, body)
            while time.monotonic() < deadline:
                for account_id in ACCOUNTS:
                    account = self.account(account_id)
                    if not account["frozen"]:
                        self._update(account_id, account["nonce"])
        except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError):
            pass
        finally:
            self._session.close()

    def account(self, account_id: int) -> dict[str, Any]:
        return self._session.get(
            f"{self._url}/account", params={"accountId": account_id}, timeout=5
        ).json()

    def updates(self, account_id: int) -> list[dict[str, Any]]:
        """Read every update of an account."""
        found: list[dict[str, Any]] = []
        while True:
            query = {"accountId": account_id, "offset": len(found)}
            answer = self._session.get(
                f"{self._url}/user/updateInfo",
                params=query,
                headers={"X-API-KEY": KEY},
                timeout=5,
            ).json()
            found += answer["transactions"]
            if len(found) >= answer["totalNum"]:
                return found

    def expected_key(self, account_id: int, nonce: int) -> dict[str, str]:
        return signed_update(self._owners, account_id, nonce)["publicKey"]

    def _update(self, account_id: int, nonce: int) -> None:
        body = signed_update(self._owners, account_id, nonce)
        self.tally.unanswered[account_id] = body
        answer = self._post(body)
        assert answer.status_code == 200, answer.text
        self._accepted(account_id, answer.json())

    def _resend(self, account_id: int, body: dict[str, Any]) -> None:
        """Send a request again whose answer was lost."""
        answer = self._post(body)
        if answer.status_code == 200:
            self.tally.resolved[
                "pending" if answer.json()["isIdempotent"] else "never accepted"
            ] += 1
            self._accepted(account_id, answer.json())
        else:
            assert answer.json()["resultInfo"]["code"] == 102021, answer.text
            self.tally.resolved["processed"] += 1
            self.tally.accepted[account_id] += 1
            del self.tally.unanswered[account_id]

    def _post(self, body: dict[str, Any]) -> requests.Response:
        headers = {"X-API-SIG": body["ecdsaSignature"]}
        return self._session.post(
            f"{self._url}/account", json=body, headers=headers, timeout=5
        )

    def _accepted(self, account_id: int, answer: dict[str, Any]) -> None:
        self.tally.accepted[account_id] += 1
        self.tally.hashes.append(answer["hash"])
        del self.tally.unanswered[account_id]
        self._on_first_accepted()
        self._on_first_accepted = _nothing


def kill_repeatedly(path: Path, kills: int, seed: int = 1) -> Tally:
    """Kill a relayer many times during updates; every accepted request must be processed exactly once."""
    client = Client()
    rng = random.Random(seed)
    with forking_host(path) as process:
        for _ in range(kills):
            pid, url = start_relayer(process)
            killer = threading.Timer(
                rng.uniform(0, LONGEST_RUN), os.kill, (pid, signal.SIGKILL)
            )
            client.run_until_killed(url, time.monotonic() + TIMEOUT, killer.start)
            killer.join()
        pid, url = start_relayer(process)
        client.run_until_killed(url, time.monotonic(), _nothing)
        check(client)
        os.kill(pid, signal.SIGKILL)
    return client.tally


def _nothing() -> None:
    pass


def start_relayer(process: subprocess.Popen[str]) -> tuple[int, str]:
    process.stdin.write("go\n")
    process.stdin.flush()
    pid, url = process.stdout.readline().split()
    return int(pid), url


def check(client: Client) -> None:
    deadline = time.monotonic() + TIMEOUT
    while any(client.account(each)["frozen"] for each in ACCOUNTS):
        assert time.monotonic() < deadline, "an update is stuck"
        time.sleep(0.01)
    found: list[str] = []
    for account_id in ACCOUNTS:
        account = client.account(account_id)
        accepted = client.tally.accepted[account_id]
        assert account["nonce"] == account["keyNonce"] == 1 + accepted, (
            account,
            accepted,
        )
        if accepted:
            assert account["publicKey"] == client.expected_key(account_id, accepted)
        updates = client.updates(account_id)
        assert [update["status"] for update in updates] == ["processed"] * accepted
        found += [update["hash"] for update in updates]
    assert len(set(found)) == len(found) == client.tally.accepted.total()
    assert set(client.tally.hashes) <= set(found)
    assert not client.tally.unanswered
