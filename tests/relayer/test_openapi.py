"""The relayer conforms to its own OpenAPI document, whatever the request."""

from collections import Counter

import pytest
import requests

from loopring_lab.relayer import Relayer, Settings, World

RULES = {
    "seed": 1,
    "headers": {"X-API-KEY": "key"},
    "generation": {"max-examples": 30},
    # Whether accountId is needed depends on orderHash, which OpenAPI cannot say; so 400 may be the answer to
    # what the document allows. Every other check is as strict as it comes.
    "checks": {"positive_data_acceptance": {"expected-statuses": ["2xx", "400"]}},
}


@pytest.mark.thorough
@pytest.mark.parametrize("shape", ["result_info", "flat"])
def test_no_defect_and_no_violation_in_any_phase(shape):
    import schemathesis
    from schemathesis import engine
    from schemathesis.config import SchemathesisConfig

    relayer = Relayer(
        World(size=0.01),
        Settings(error_shape=shape, hosts=("testserver",)),
        api_key="key",
    )
    config = SchemathesisConfig.from_dict(RULES)
    schema = schemathesis.openapi.from_asgi("/openapi.json", relayer.app, config=config)
    events = list(engine.from_schema(schema).execute())

    names = {type(event).__name__ for event in events}
    assert not names & {"NonFatalError", "FatalError", "Interrupted"}
    finished = [
        event for event in events if isinstance(event, engine.events.ScenarioFinished)
    ]
    statuses = Counter((event.phase.value, event.status.value) for event in finished)
    assert {status for _, status in statuses} <= {"success", "skip"}, failures(finished)
    assert {phase for phase, status in statuses if status == "success"} >= {
        "coverage",
        "fuzzing",
    }
    assert sum(relayer.counts.requests.values()) > 200


def failures(finished):
    return [
        failure
        for event in finished
        for checks in event.recorder.checks.values()
        for check in checks
        if (failure := check.failure_info)
    ]


@pytest.mark.parametrize("required", [True, False])
def test_the_document_tells_the_body_of_an_update(required):
    relayer = Relayer(World(size=0.01), Settings(key_seed_required=required))
    document = relayer.app.openapi()
    asked = document["paths"]["/api/v3/account"]["post"]
    schemas = document["components"]["schemas"]
    name = asked["requestBody"]["content"]["application/json"]["schema"][
        "$ref"
    ].rpartition("/")[2]
    needed = {
        "exchange",
        "owner",
        "accountId",
        "publicKey",
        "maxFee",
        "validUntil",
        "nonce",
    }
    assert set(schemas[name]["required"]) == needed | (
        {"keySeed"} if required else set()
    )
    assert schemas[name]["additionalProperties"] is False
    assert schemas["TokenVolume"]["properties"]["tokenId"]["exclusiveMaximum"] == 2**15
    assert [item["name"] for item in asked["parameters"]] == ["X-API-SIG"]
    assert "example" not in str(asked) + str(schemas[name])


def test_a_wrong_method_is_told_the_right_ones():
    with Relayer(World(size=0.01)) as relayer:
        answer = requests.delete(relayer.base_url + "/api/v3/account", timeout=60)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, POST")
