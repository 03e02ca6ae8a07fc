"""Faults and rate limits as a client sees them."""

import re
import socket
from collections import Counter

import pytest
import requests

from loopring_lab.relayer import Settings
from loopring_lab.relayer.network import FaultSchedule

ACCOUNT = 94680


@pytest.mark.parametrize("kind", ["429", "500", "503"])
def test_status_faults(serve, kind):
    relayer = serve(faults={kind: 1.0})
    answer = relayer.get("/user/trades", accountId=ACCOUNT)
    assert answer.status_code == int(kind)
    assert answer.json()["resultInfo"]["code"] == 100000
    assert "Retry-After" not in answer.headers
    assert relayer.relayer.counts.faults == {kind: 1}


def test_retry_after_can_be_sent(serve):
    answer = serve(faults={"429": 1.0}, retry_after=True).get("/mix/markets")
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "1")


def test_reset_is_a_tcp_reset(serve):
    relayer = serve(faults={"reset": 1.0})
    port = int(relayer.relayer.base_url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(
            b"GET /api/v3/mix/markets HTTP/1.1\r\nHost: localhost:%d\r\n\r\n" % port
        )
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    with pytest.raises(requests.ConnectionError):
        relayer.get("/user/trades", accountId=ACCOUNT)


def test_truncated_announces_more_than_it_sends(serve):
    relayer = serve(faults={"truncated": 1.0})
    with pytest.raises(requests.exceptions.ChunkedEncodingError) as caught:
        relayer.get("/user/trades", accountId=ACCOUNT)
    read, missing = map(
        int,
        re.search(r"(\d+) bytes read, (\d+) more expected", str(caught.value)).groups(),
    )
    whole = len(serve().get("/user/trades", accountId=ACCOUNT).content)
    assert (read, missing) == (whole // 2, whole - whole // 2)


def test_slow_stalls_in_the_body_and_is_complete_in_the_end(serve):
    relayer = serve(faults={"slow": 1.0}, slow_seconds=0.6)
    with relayer.session.get(
        relayer.relayer.base_url + "/api/v3/mix/markets", stream=True, timeout=60
    ) as answer:
        assert answer.json()["markets"]
    with pytest.raises(requests.exceptions.ConnectionError, match="timed out"):
        requests.get(relayer.relayer.base_url + "/api/v3/exchange/tokens", timeout=0.1)


@pytest.mark.parametrize("most", [1, 3])
def test_whoever_tries_again_gets_through(serve, most):
    relayer = serve(faults={"503": 1.0}, max_faults_in_a_row=most)
    for path in ("/mix/markets", "/exchange/tokens"):
        statuses = [relayer.get(path).status_code for _ in range(2 * (most + 1))]
        assert statuses == 2 * ([503] * most + [200])


def test_faults_depend_on_seed_and_number_only():
    def drawn(seed):
        faults = FaultSchedule(
            Settings(
                faults={"429": 0.2, "reset": 0.1},
                fault_seed=seed,
                max_faults_in_a_row=1000,
            )
        )
        return [faults.next_fault(b"/") for _ in range(2000)]

    assert drawn(1) == drawn(1) != drawn(2)
    counted = Counter(drawn(1))
    assert abs(counted["429"] - 400) < 80  # more than four standard deviations
    assert abs(counted["reset"] - 200) < 60


def test_rate_limit_over_http_per_endpoint(serve):
    now = [100.0]
    relayer = serve(rate_limit=2, clock=lambda: now[0])
    assert [relayer.get("/mix/markets").status_code for _ in range(3)] == [
        200,
        200,
        429,
    ]
    assert relayer.get("/exchange/tokens").status_code == 200
    now[0] = 100.999
    assert relayer.get("/mix/markets").status_code == 429
    now[0] = 101.0
    assert [relayer.get("/mix/markets").status_code for _ in range(3)] == [
        200,
        200,
        429,
    ]
    counts = relayer.relayer.counts
    assert counts.rate_limited == {"/mix/markets": 3}
    assert counts.requests == {"/mix/markets": 7, "/exchange/tokens": 1}
