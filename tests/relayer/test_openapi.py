"""The relayer conforms to its own OpenAPI document, whatever the request."""

from collections import Counter

import pytest

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
def test_no_defect_and_no_violation_in_any_phase():
    import schemathesis
    from schemathesis import engine
    from schemathesis.config import SchemathesisConfig

    relayer = Relayer(
        World(size=0.01),
        Settings(hosts=("testserver",)),
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


def test_the_document_describes_the_body_of_a_key_update():
    body = Relayer(World(size=0.01)).app.openapi()["components"]["schemas"]
    assert "keySeed" in body["UpdateBody"]["required"]
    assert body["UpdateBody"]["additionalProperties"] is False
    assert {"PublicKey", "TokenVolume", "CounterFactualInfo"} <= set(body)
