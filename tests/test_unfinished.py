"""Objects whose ``__init__`` refused have no representation; tracebacks that show variables show the error."""

import pytest
from support.traces import trace_of

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.widgets.figure_view import FigureView
from loopring_lab.widgets.table_view import TableView


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
    with pytest.raises(LabError) as caught:
        make()
    text = trace_of(make, LabError)
    assert "__init__" in text
    assert str(caught.value) in text
