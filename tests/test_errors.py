"""Errors as other processes get them."""

import inspect
import pickle

import pytest

from loopring_lab import errors
from loopring_lab.http.failures import TooLarge
from loopring_lab.rollup.fetching import MissingBlocks

GIVEN = {"status": 500, "code": 7, "maybe_received": True}
CLASSES = [getattr(errors, name) for name in errors.__all__]


def example(kind: type[errors.LabError]) -> errors.LabError:
    """Make an error with a value for each argument of its class."""
    arguments = inspect.signature(kind.__init__).parameters.values()
    named = {
        one.name: GIVEN.get(one.name, one.name)
        for one in arguments
        if one.kind is one.KEYWORD_ONLY
    }
    positional = [
        one.name
        for one in arguments
        if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"
    ]
    return kind(*positional, **named) if named or positional else kind("message")


@pytest.mark.parametrize("kind", [*CLASSES, TooLarge, MissingBlocks])
def test_an_error_is_the_same_after_pickling(kind):
    before = example(kind)
    after = pickle.loads(pickle.dumps(before))
    assert type(after) is kind
    assert str(after) == str(before)
    assert after.__dict__ == before.__dict__
