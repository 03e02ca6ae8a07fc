"""The relayer's file store: what survives a restart or a kill, and which files it rejects."""

import os
import sqlite3

import pytest
from support.key_update_requests import request_signature, signed_update, stored_sql
from support.relayer_kills import kill_repeatedly

from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer, Settings, World

ACCOUNT = 10083
MANUAL = Settings(update_seconds=None)


def test_a_restart_goes_on_where_it_was(tmp_path, relayers, posters):
    import requests

    path = tmp_path / "relayer.db"
    first = relayers(store=path)
    first.add_account(500, "0x" + 40 * "1")
    signature = request_signature(first.base_url, first.l2_key(ACCOUNT), ACCOUNT)
    url = f"{first.base_url}/api/v3/apiKey?accountId={ACCOUNT}"
    key = requests.get(url, headers={"X-API-SIG": signature}, timeout=5).json()["apiKey"]
    body = signed_update(first, ACCOUNT)
    posters(first).send(body)
    first.step()
    first.stop()
    second = relayers(store=path)
    assert second._accounts.find(500, None).owner == "0x" + 40 * "1"
    trades = f"{second.base_url}/api/v3/user/trades?accountId={ACCOUNT}"
    assert requests.get(trades, headers={"X-API-KEY": key}, timeout=5).status_code == 200
    assert posters(second).send(body)[1]["isIdempotent"] is True
    assert second.step() == 1
    assert second._accounts.find(ACCOUNT, None).nonce == 2
    assert requests.get(trades, headers={"X-API-KEY": key}, timeout=5).status_code == 400


def test_two_relayers_on_one_file_apply_once(tmp_path, relayers, posters):
    path = tmp_path / "relayer.db"
    first, second = relayers(store=path), relayers(store=path)
    posters(first).send(signed_update(first, ACCOUNT))
    assert posters(second).send(signed_update(second, ACCOUNT))[1]["isIdempotent"] is True
    stale = first._accounts.store._updates("status = 'received'")
    assert (first.step(), second.step()) == (1, 1)
    assert second._accounts.find(ACCOUNT, None).nonce == 2
    assert not first._accounts.store._move(stale[0], 0, lambda update: "")  # moved by somebody else meanwhile
    assert first._accounts.find(ACCOUNT, None).nonce == 2


@pytest.mark.parametrize(
    ("world", "settings"),
    [
        (World(seed=2, size=0.001), MANUAL),
        (World(size=0.001), Settings(chain_id=5)),
        (World(size=0.001), Settings(exchange="0x" + 40 * "1")),
    ],
)
def test_a_file_of_another_relayer_is_refused(tmp_path, world, settings):
    path = tmp_path / "relayer.db"
    Relayer(World(size=0.001), MANUAL, store=path)
    with pytest.raises(LabError, match=r"was created with .* Give another file"):
        Relayer(world, settings, store=path)


def test_a_file_that_is_no_store_is_refused(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("nothing of the kind " * 100)
    for wrong in (path, tmp_path / "nowhere" / "relayer.db"):
        with pytest.raises(LabError, match="cannot be used.*a new path"):
            Relayer(World(size=0.001), store=wrong)


def test_a_step_happens_whole_or_not_at_all(tmp_path, relayers, posters):
    relayer = relayers(store=tmp_path / "relayer.db")
    posters(relayer).send(signed_update(relayer, ACCOUNT))
    relayer.step()
    before, database = stored_sql(relayer), relayer._accounts.store._db
    database.execute(
        "CREATE TEMP TRIGGER fail BEFORE UPDATE ON main.accounts BEGIN SELECT RAISE(ABORT, 'disk full'); END"
    )
    with pytest.raises(sqlite3.Error, match="disk full"):
        relayer.step()
    database.execute("DROP TRIGGER fail")
    assert stored_sql(relayer) == before
    assert relayer.step() == 1
    assert relayer._accounts.find(ACCOUNT, None).nonce == 2


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork for the relayer to kill: run on Linux or macOS")
def test_kills_lose_and_repeat_nothing(tmp_path):
    tally = kill_repeatedly(tmp_path / "relayer.db", kills=8, seed=7)
    assert tally.accepted.total() >= 8
