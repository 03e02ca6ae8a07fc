"""Workers of Spark that cannot answer are found before any of them starts."""

import sys
from pathlib import Path

import pytest
from support.drawn_trades import drawn
from support.engines import assert_same, on, spark_session

import loopring_lab as lab
from loopring_lab.errors import LabError

# Starting Spark takes half a minute.
pytestmark = pytest.mark.thorough
PYTHON = "python.exe" if sys.platform == "win32" else "python3"


@pytest.fixture
def context():
    return spark_session().sparkContext


@pytest.mark.parametrize(
    ("python", "reason"),
    [
        (str(Path(sys.base_prefix) / "bin" / PYTHON), "which cannot import loopring_"),
        ("python-of-nobody", "which is not there"),
    ],
)
def test_a_python_that_cannot_answer_is_named_with_the_one_that_can(
    context, monkeypatch, python, reason
):
    """Without PYSPARK_PYTHON, workers run the first python3 of the PATH, and die one by one where that is another."""
    trades = on("spark", drawn(1))
    monkeypatch.setattr(context, "pythonExec", python)
    with pytest.raises(LabError) as refused:
        lab.fees.summary(trades, by="market")
    assert f"would run {python!r}, {reason}" in str(refused.value)
    assert f"os.environ['PYSPARK_PYTHON'] = {sys.executable!r}" in str(refused.value)
    monkeypatch.setattr(context, "pythonExec", sys.executable)
    assert_same(
        lab.fees.summary(trades, by="market"), lab.fees.summary(drawn(1), by="market")
    )
