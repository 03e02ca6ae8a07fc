"""Every response says which data it is from, in a form that programs can read."""

import json

import pytest
import requests

from loopring_lab.relayer import Relayer, Settings

HEADER = "X-Loopring-Lab-Source"
PATHS = (
    "/api/v3/exchange/info",
    "/api/v3/user/trades?accountId=7",
    "/api/v3/user/trades?accountId=seven",
    "/api/v3/nothing",
    "/docs",
    "/openapi.json",
)


def named(answer):
    return json.loads(answer.headers[HEADER])


@pytest.mark.parametrize("faults", [{}, {"429": 1}, {"500": 1}])
def test_every_response_names_the_data(world, faults):
    with Relayer(world, Settings(faults=faults)) as relayer:
        answers = [requests.get(relayer.base_url + path, timeout=600) for path in PATHS]
        answers.append(
            requests.delete(relayer.base_url + "/api/v3/account", timeout=600)
        )
    expected = {"name": "synthetic world, seed 1, size 0.05", "synthetic": True}
    assert [named(answer) for answer in answers] == [expected] * len(answers)
    assert len({answer.status_code for answer in answers}) >= 3 - bool(faults)
