"""Workers of Spark that cannot answer are found before any of them starts."""

import sys

import pytest
from support.drawn_trades import drawn
from support.engines import assert_same, on, spark_session

import loopring_lab as lab
from loopring_lab.errors import LabError

# Starting Spark takes half a minute.
pytestmark = pytest.mark.thorough

VERSION = "{}.{}".format(*sys.version_info)
PYTHONS = {
    "not there": None,
    "without the package": f'exec {sys.executable} -I -S -c "$2"',
    "another version": f'exec {sys.executable} -c "import sys; sys.version_info = (3, 10, 1); $2"',
}


@pytest.mark.parametrize("case", PYTHONS)
def test_a_python_that_cannot_answer_is_named_with_the_one_that_can(
    tmp_path, monkeypatch, case
):
    """Without PYSPARK_PYTHON, workers run the first python3 of the PATH, and die one by one where that is another."""
    script = PYTHONS[case]
    python = tmp_path / "python3"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        python.chmod(0o755)
    trades = on("spark", drawn(1))
    context = spark_session().sparkContext
    with monkeypatch.context() as patched:
        patched.setattr(context, "pythonExec", str(python))
        with pytest.raises(LabError) as refused:
            lab.fees.summary(trades, by="market")
    reason = f"which is not Python {VERSION} with loopring_lab"
    assert f"would run {str(python)!r}, {reason}" in str(refused.value)
    assert f"os.environ['PYSPARK_PYTHON'] = {sys.executable!r}" in str(refused.value)


def test_one_that_can_is_asked():
    trades = drawn(1)
    found = lab.fees.summary(on("spark", trades), by="market")
    assert_same(found, lab.fees.summary(trades, by="market"))
