"""Objects whose ``__init__`` refused: tracebacks that show variables ask them for their representation."""

import importlib
import inspect
import pkgutil

import pytest
from support.traces import trace_of

import loopring_lab as lab
from loopring_lab.amounts import AmountArray
from loopring_lab.errors import LabError
from loopring_lab.widgets.figure_view import FigureView
from loopring_lab.widgets.table_view import TableView


def classes_with_a_representation() -> list[type]:
    """Return the package's classes whose representation is written here, by its own list of modules."""
    found = {}
    for module in pkgutil.walk_packages(lab.__path__, "loopring_lab."):
        if module.name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if not inspect.isclass(value) or not value.__module__.startswith(
                "loopring_lab"
            ):
                continue
            # Tuples have their members before anything can refuse them.
            code = getattr(inspect.unwrap(value.__repr__), "__code__", None)
            is_own = code is not None and "loopring_lab" in code.co_filename
            if is_own and not issubclass(value, tuple | Exception):
                found[value.__qualname__] = value
    return [*found.values(), AmountArray]


@pytest.mark.parametrize("kind", classes_with_a_representation())
def test_an_object_that_was_not_made_has_a_representation(kind):
    assert repr(kind.__new__(kind))


@pytest.mark.parametrize(
    "make",
    [
        lambda: lab.relayer.World(seed=-1),
        lambda: lab.Archive(5),
        lambda: lab.rollup.Store(5),
        lambda: lab.connect(recording="no such folder"),
        lambda: lab.amounts.AmountArray(["x"]),
        lambda: TableView(5),
        lambda: FigureView(5),
    ],
)
def test_the_error_of_a_constructor_is_shown_whole(make):
    text = trace_of(make, LabError)
    assert "not made" in text
