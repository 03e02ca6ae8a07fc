"""The relayer's file store: what survives a restart or a kill, who can read it, and which files it rejects."""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.key_update_requests import ask_for_key, get, signed_update, stored
from support.relayer_kills import kill_repeatedly

from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, Settings, World
from loopring_lab.relayer.store import Account, Store

pytestmark = pytest.mark.contract

ACCOUNT = 10083
MANUAL = Settings(update_seconds=None)


def account_of(relayer, account_id=ACCOUNT):
    return get(relayer, "/account", accountId=account_id).json()


def test_a_restart_goes_on_where_it_was(tmp_path, relayers, posters):
    path = tmp_path / "relayer.json"
    first = relayers(store=path)
    first.add_account(500, "0x" + 40 * "1")
    headers = {
        "X-API-KEY": ask_for_key(first, ACCOUNT, first.l2_key(ACCOUNT))["apiKey"]
    }
    body = signed_update(first, ACCOUNT)
    posters(first).send(body)
    first.step()
    first.stop()
    second = relayers(store=path)
    assert account_of(second, 500)["owner"] == "0x" + 40 * "1"
    trades = get(second, "/user/trades", headers, accountId=ACCOUNT)
    assert trades.status_code == 200
    assert posters(second).send(body)[1]["isIdempotent"] is True
    assert second.step() == 1
    assert account_of(second)["nonce"] == 2
    trades = get(second, "/user/trades", headers, accountId=ACCOUNT)
    assert trades.status_code == 400


def test_two_relayers_on_one_file_apply_once(tmp_path, relayers, posters):
    path = tmp_path / "relayer.json"
    first = relayers(store=path)
    second = relayers(store=path)
    posters(first).send(signed_update(first, ACCOUNT))
    assert (
        posters(second).send(signed_update(second, ACCOUNT))[1]["isIdempotent"] is True
    )
    assert (first.step(), second.step(), first.step()) == (1, 1, 0)
    assert account_of(first)["nonce"] == account_of(second)["nonce"] == 2


@pytest.mark.parametrize(
    ("world", "settings"),
    [
        (World(seed=2, size=0.001), MANUAL),
        (World(size=0.001), Settings(chain_id=5)),
        (World(size=0.001), Settings(exchange="0x" + 40 * "1")),
    ],
)
def test_a_file_of_another_relayer_is_refused(tmp_path, world, settings):
    path = tmp_path / "relayer.json"
    Relayer(World(size=0.001), MANUAL, store=path)
    with pytest.raises(LabError, match=r"was created with .* Give another file"):
        Relayer(world, settings, store=path)


STRANGE_UPDATE = '[[1, [5, "0x", "", "", 1, "", 0, "0", 9], 0, 0, "received", ""]]'


@pytest.mark.parametrize(
    "content",
    [
        "nothing of the kind",
        "[]",
        '[{}, {"a": 1}, []]',
        "[{}, {}, [1]]",
        f"[{{}}, {{}}, {STRANGE_UPDATE}]",
        "\x00",
        None,
    ],
)
def test_a_file_that_is_no_store_is_refused(tmp_path, content):
    path = tmp_path / "notes.txt"
    if content is None:
        path = tmp_path / "nowhere" / "relayer.json"
    else:
        path.write_text(content)
    with pytest.raises(LabError, match=r"cannot be used(?s:.*)a new path"):
        Relayer(World(size=0.001), store=path)
    assert content is None or path.read_text() == content


def test_a_file_with_odd_keys_does_no_harm(tmp_path):
    path = tmp_path / "relayer.json"
    account = [ACCOUNT, "0xab", "zz", "zz", 1, 1, ""]
    path.write_text(json.dumps([{"secret": "zz"}, {ACCOUNT: account}, []]))
    relayer = Relayer(World(size=0.001), MANUAL, store=path)
    with pytest.raises(LabError, match="was updated since"):
        relayer.l2_key(ACCOUNT)


def test_what_cannot_be_saved_has_not_happened(
    tmp_path, relayers, posters, monkeypatch
):
    relayer = relayers(store=tmp_path / "relayer.json")
    body = signed_update(relayer, ACCOUNT)
    before = stored(relayer)

    def full(number):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("os.fsync", full)
        status, answer = posters(relayer).send(body)
        assert (status, answer["resultInfo"]["code"]) == (503, 100000)
    assert stored(relayer) == before
    assert posters(relayer).send(body)[0] == 200
    assert (relayer.step(), relayer.step()) == (1, 1)
    assert account_of(relayer)["nonce"] == 2


@pytest.mark.skipif(os.name != "posix", reason="file modes: run on Linux or macOS")
def test_the_file_is_the_owners_alone(tmp_path):
    """In a process of its own, for the umask is the process's."""
    code = (
        "import os, sys; os.umask(0)\n"
        "from loopring_lab.relayer import Relayer, World\n"
        "Relayer(World(size=0.001), store=sys.argv[1])\n"
    )
    path = tmp_path / "relayer.json"
    subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=True)
    assert [file.name for file in tmp_path.iterdir()] == ["relayer.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    Relayer(World(size=0.001), store=path).add_account(500, "0x" + 40 * "1")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.thorough
@pytest.mark.skipif(
    not hasattr(os, "fork"),
    reason="needs os.fork for the relayer to kill: run on Linux or macOS",
)
def test_kills_lose_and_repeat_nothing(tmp_path):
    tally = kill_repeatedly(tmp_path / "relayer.json", kills=8, seed=7)
    assert tally.accepted.total() >= 8


@pytest.mark.skipif(
    sys.platform == "win32", reason="needs locks: run on Linux or macOS"
)
def test_relayers_that_share_a_file_lose_none_of_their_changes(tmp_path):
    stores = [Store(tmp_path / "relayer.json", {}) for _ in range(2)]

    def add(number: int) -> int:
        owner = f"0x{number:040x}"
        return stores[number % 2].add([Account(number, owner, "", "", 0, 0, "")])

    with ThreadPoolExecutor(4) as threads:
        added = list(threads.map(add, range(1, 41)))
    assert added == [1] * 40
    held = Store(tmp_path / "relayer.json", {})
    assert all(held.account(number) for number in range(1, 41))
