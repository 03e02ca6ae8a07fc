"""An accepted key update: its states, its effect, and the old key it voids."""

import threading
import time

import pytest
from support.key_update_requests import (
    ask_for_key,
    error_code,
    get,
    new_key,
    signed_update,
    stored,
)

from loopring_lab.errors import LabError

ACCOUNT = 10083
OTHER = 11519


def get_json(relayer, path, key="", **query):
    answer = get(relayer, path, {"X-API-KEY": key}, **query)
    body = answer.json()
    return body["resultInfo"] if answer.status_code == 400 else body


def test_an_update_goes_through_its_states_and_takes_effect_at_the_last(
    relayers, posters
):
    times = iter(range(1_800_000_000, 1_800_001_000))
    relayer = relayers(now=lambda: float(next(times)))
    before = get_json(relayer, "/account", accountId=ACCOUNT)
    assert (before["frozen"], before["nonce"], before["keyNonce"]) == (False, 1, 1)
    body = signed_update(relayer, ACCOUNT)
    _, answer = posters(relayer).send(body)
    assert len(answer["hash"]) == 66
    assert answer == {
        "hash": answer["hash"],
        "status": "processing",
        "isIdempotent": False,
        "accountId": ACCOUNT,
        "tokenId": 0,
        "storageId": 1,
    }
    frozen = get_json(relayer, "/account", accountId=ACCOUNT)
    assert frozen == {**before, "frozen": True}
    assert updates(relayer)[0]["status"] == "processing"
    assert relayer.step() == 1
    assert relayer.step() == 0
    assert get_json(relayer, "/account", owner=before["owner"]) == {
        **before,
        "publicKey": body["publicKey"],
        "nonce": 2,
        "keyNonce": 2,
        "keySeed": body["keySeed"],
    }
    [record] = updates(relayer)
    assert (record["hash"], record["status"]) == (answer["hash"], "processed")
    assert record["reason"] == ""
    assert (record["feeTokenSymbol"], record["feeAmount"]) == ("ETH", "19000000000000")
    assert record["timestamp"] < record["updatedAt"]
    assert get_json(relayer, "/account", accountId=OTHER)["nonce"] == 1


def test_the_same_request_again_changes_nothing(relayers, posters):
    relayer = relayers()
    body = signed_update(relayer, ACCOUNT)
    otherwise_signed = {**body, "ecdsaSignature": body["ecdsaSignature"][:-2]}
    poster = posters(relayer)
    first = poster.send(body)[1]
    dump = stored(relayer)
    for again in (body, otherwise_signed):
        assert poster.send(again)[1] == {**first, "isIdempotent": True}
    assert stored(relayer) == dump
    relayer.step()
    assert error_code(poster.send(body)) == 102021
    assert get_json(relayer, "/account", accountId=ACCOUNT)["nonce"] == 2


def test_the_same_request_again_is_known_after_its_end_of_validity(relayers, posters):
    now = 1_800_000_000.0
    relayer = relayers(now=lambda: now)
    body = signed_update(relayer, ACCOUNT, validUntil=int(now) + 1)
    assert posters(relayer).send(body)[1]["isIdempotent"] is False
    now += 100
    assert posters(relayer).send(body)[1]["isIdempotent"] is True


@pytest.mark.parametrize(
    "changes",
    [{"validUntil": 3_000_000_000}, {"keySeed": "Another text with key nonce: 1"}],
)
def test_another_request_while_frozen_is_a_duplicate(relayers, posters, changes):
    relayer = relayers()
    poster = posters(relayer)
    assert poster.send(signed_update(relayer, ACCOUNT))[0] == 200
    dump = stored(relayer)
    assert error_code(poster.send(signed_update(relayer, ACCOUNT, **changes))) == 100204
    assert stored(relayer) == dump
    assert (
        poster.send(signed_update(relayer, OTHER))[0] == 200
    )  # another account is free


def test_the_chosen_update_fails_with_its_reason_and_can_be_made_again(
    relayers, posters
):
    relayer = relayers(fail_updates={2: "balance too low"})
    poster = posters(relayer)
    other, body = (signed_update(relayer, each) for each in (OTHER, ACCOUNT))
    before = get_json(relayer, "/account", accountId=ACCOUNT)
    poster.send(other)
    failed = poster.send(body)[1]["hash"]
    relayer.step()
    relayer.step()
    assert get_json(relayer, "/account", accountId=OTHER)["nonce"] == 2
    assert get_json(relayer, "/account", accountId=ACCOUNT) == before
    [record] = updates(relayer)
    assert (record["hash"], record["status"]) == (failed, "failed")
    assert record["reason"] == "balance too low"
    again = poster.send(body)[1]
    assert (again["isIdempotent"], again["hash"]) == (False, failed)
    relayer.step()
    relayer.step()
    assert get_json(relayer, "/account", accountId=ACCOUNT)["nonce"] == 2
    statuses = [record["status"] for record in updates(relayer)]
    assert statuses == ["processed", "failed"]


def updates(relayer):
    """Return the updates of the account, newest first."""
    path = "/user/updateInfo"
    answer = get_json(relayer, path, relayer.api_key, accountId=ACCOUNT)
    assert answer["totalNum"] == len(answer["transactions"])
    return answer["transactions"]


def test_the_chosen_update_fails_without_a_reason(relayers, posters):
    """As on the real exchange, which gives none."""
    relayer = relayers(fail_updates={1: ""})
    posters(relayer).send(signed_update(relayer, ACCOUNT))
    relayer.step()
    [record] = updates(relayer)
    assert (record["status"], record["reason"]) == ("failed", "")
    assert get_json(relayer, "/account", accountId=ACCOUNT)["nonce"] == 1


def test_api_keys_end_with_the_update(relayers, posters):
    relayer = relayers()
    body = signed_update(relayer, ACCOUNT)
    old_key = relayer.l2_key(ACCOUNT)
    key = new_key(relayer.signer(ACCOUNT), body["keySeed"])
    old, other = (
        ask_for_key(relayer, a, relayer.l2_key(a))["apiKey"] for a in (ACCOUNT, OTHER)
    )
    assert old == ask_for_key(relayer, ACCOUNT, old_key)["apiKey"] != other
    assert ask_for_key(relayer, ACCOUNT, key)["resultInfo"]["code"] == 104005
    posters(relayer).send(body)
    assert get_json(relayer, "/user/trades", old, accountId=ACCOUNT)["totalNum"] > 0
    relayer.step()
    assert get_json(relayer, "/user/trades", old, accountId=ACCOUNT)["code"] == 104002
    assert ask_for_key(relayer, ACCOUNT, old_key)["resultInfo"]["code"] == 104005
    fresh = ask_for_key(relayer, ACCOUNT, key)["apiKey"]
    assert fresh != old
    for each in (fresh, other, relayer.api_key):  # a valid key opens other accounts too
        assert (
            get_json(relayer, "/user/trades", each, accountId=ACCOUNT)["totalNum"] > 0
        )
    with pytest.raises(LabError, match=r"was updated since.*keySeed"):
        relayer.l2_key(ACCOUNT)


def test_requests_at_the_same_time_have_one_effect(relayers, posters):
    relayer = relayers()
    bodies = [
        signed_update(relayer, ACCOUNT, validUntil=3_000_000_000 + n % 2)
        for n in range(8)
    ]
    senders = [posters(relayer) for _ in bodies]
    answers = []
    threads = [
        threading.Thread(target=lambda s=sender, b=body: answers.append(s.send(b)))
        for sender, body in zip(senders, bodies, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    taken = [body for status, body in answers if status == 200]
    assert [body["isIdempotent"] for body in taken].count(False) == 1
    assert (len(taken), len({body["hash"] for body in taken})) == (4, 1)
    assert {error_code(answer) for answer in answers if answer[0] != 200} == {100204}


def test_the_worker_does_it_by_itself(relayers, posters):
    before = set(threading.enumerate())
    relayer = relayers(update_seconds=0.005)
    poster = posters(relayer)
    for nonce in range(1, 11):
        assert poster.send(signed_update(relayer, ACCOUNT, nonce))[0] == 200
        while (account := get_json(relayer, "/account", accountId=ACCOUNT))["frozen"]:
            time.sleep(0.001)
        assert (
            account["nonce"] == nonce + 1
        )  # nobody sees it thawed and not yet updated
    relayer.stop()
    assert not [
        thread
        for thread in threading.enumerate()
        if thread not in before and "worker" in thread.name
    ]
