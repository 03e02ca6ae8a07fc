"""Failures, counts and rate limits as a client sees them."""

from collections import Counter
from types import SimpleNamespace

import pytest

from loopring_lab.relayer import Settings
from loopring_lab.relayer.network import FaultSchedule

ACCOUNT = 94680


@pytest.mark.parametrize("kind", ["429", "500", "503"])
def test_a_fault_is_a_status_in_the_shape_of_errors(serve, kind):
    relayer = serve(faults={kind: 1.0})
    answer = relayer.get("/user/trades", accountId=ACCOUNT)
    assert answer.status_code == int(kind)
    assert answer.json()["resultInfo"]["code"] == 100000
    assert "Retry-After" not in answer.headers
    assert relayer.relayer.counts.faults == {kind: 1}


def test_whoever_tries_again_gets_through(serve):
    relayer = serve(faults={"503": 1.0})
    for path in ("/mix/markets", "/exchange/tokens"):
        statuses = [relayer.get(path).status_code for _ in range(8)]
        assert statuses == 2 * [503, 503, 503, 200]


def test_faults_come_in_their_shares_and_again_in_the_same_places():
    def drawn():
        faults = FaultSchedule(Settings(faults={"429": 0.2, "500": 0.1}))
        return [faults.next_fault(b"/%d" % number) for number in range(2000)]

    assert drawn() == drawn()
    counted = Counter(drawn())
    assert abs(counted["429"] - 400) < 80  # more than four standard deviations
    assert abs(counted["500"] - 200) < 60


def test_the_rate_limit_is_of_each_endpoint_in_any_second(serve, monkeypatch):
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("loopring_lab.relayer.network.time", clock)
    relayer = serve(rate_limit=2)

    def statuses():
        return [relayer.get("/mix/markets").status_code for _ in range(3)]

    assert statuses() == [200, 200, 429]
    assert relayer.get("/exchange/tokens").status_code == 200
    now[0] = 100.999
    assert relayer.get("/mix/markets").status_code == 429
    now[0] = 101.0
    assert statuses() == [200, 200, 429]
    counts = relayer.relayer.counts
    assert counts.rate_limited == {"/mix/markets": 3}
    assert counts.requests == {"/mix/markets": 7, "/exchange/tokens": 1}
