"""Every response says which data it is from, in a form that programs can read."""

import json

import pytest
import requests

from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.relayer import Recording, Relayer, Settings

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
        answers = [requests.get(relayer.base_url + path, timeout=60) for path in PATHS]
        answers.append(
            requests.delete(relayer.base_url + "/api/v3/account", timeout=60)
        )
    expected = {"name": "synthetic world, seed 1, size 0.05", "synthetic": True}
    assert [named(answer) for answer in answers] == [expected] * len(answers)
    assert len({answer.status_code for answer in answers}) >= 3 - bool(faults)


def test_a_recording_is_named_by_its_file_its_owner_or_its_folder(serve, folder):
    assert (Recording(folder).name, Recording(folder).synthetic) == (
        str(folder.resolve()),
        False,
    )
    saved = {"name": "Börse, März 2022", "exchange": "0x" + "1" * 40, "chainId": 1}
    (folder / "source.json").write_text(json.dumps(saved), encoding="utf-8")
    assert Recording(folder, "mine").name == "mine"
    answer = serve(recording=folder).get("/exchange/tokens")
    assert named(answer) == {"name": "Börse, März 2022", "synthetic": False}
    assert answer.headers[HEADER].isascii()
    with Relayer(recording=folder, source="mine") as relayer:
        assert relayer.source == f"recording {folder.name}"
        assert (
            named(requests.get(relayer.base_url + "/docs", timeout=60))["name"]
            == "mine"
        )


@pytest.mark.parametrize(
    "saved", ['{"name": 1}', "{}", "[]", '{"name": ""}', '{"name": "a\\nb"}', "{"]
)
def test_a_source_file_without_a_name_is_an_error(folder, saved):
    (folder / "source.json").write_text(saved)
    with pytest.raises(UnexpectedAnswer, match=r"source\.json"):
        Recording(folder)


def test_a_name_is_for_recordings(world, folder):
    with pytest.raises(UnexpectedAnswer, match="source"):
        Relayer(recording=folder, source="x" * 201)
    with pytest.raises(LabError, match="Leave it out"):
        Relayer(world, source="mine")
