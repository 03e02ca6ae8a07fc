"""The engine's memory and its folder for what does not fit; threads and forks, each with a connection of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from pyarrow.dataset import dataset
from support.engines import assert_same
from support.interrupts import interrupted, may_drop_an_interrupt
from support.optional import first_often, thorough
from support.trade_histories import many

import loopring_lab as lab
from loopring_lab.engine import running, session
from loopring_lab.errors import LabError

HOLD = """
import sys, time
import loopring_lab as lab
from loopring_lab.engine import session
lab.engine.set_memory(spill_folder=sys.argv[1])
connection = session.cursor()
print("open", flush=True)
time.sleep(float(sys.argv[2]))
"""
# A child asks after its parent has, and ends as any process does; then the parent asks again.
FORK = """
import os, sys
import duckdb
import pandas as pd
import loopring_lab as lab
lab.engine.set_memory(spill_folder=sys.argv[1])
trades = pd.read_pickle(sys.argv[2])
expected = lab.fees.summary(trades)
mine = os.listdir(sys.argv[1])
child = os.fork()
if child == 0:
    pd.testing.assert_frame_equal(lab.fees.summary(trades), expected)
    assert len(os.listdir(sys.argv[1])) == 2
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
pd.testing.assert_frame_equal(lab.fees.summary(trades), expected)
assert os.listdir(sys.argv[1]) == mine
print("both answered")
"""
posix = pytest.mark.skipif(
    os.name != "posix", reason="needs signals and forks: run on Linux or macOS"
)


@pytest.fixture(autouse=True)
def _default() -> Iterator[None]:
    yield
    lab.engine.set_memory()


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return many(60)


def setting(name: str) -> Any:
    """Return a setting of DuckDB as questions have it."""
    return session.cursor().execute(f"SELECT current_setting('{name}')").fetchone()[0]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        thorough("1GB", "953.6 MiB"),
        ("1.5 GiB", "1.5 GiB"),
        (2**27, "128.0 MiB"),
        thorough("64mib", "64.0 MiB"),
        thorough("2TB", "1.8 TiB"),
    ],
)
def test_a_limit_is_bytes_or_text_with_a_unit(limit, expected):
    lab.engine.set_memory(limit)
    assert setting("memory_limit") == expected
    lab.engine.set_memory()
    assert setting("memory_limit") == "1.0 GiB"


@pytest.mark.parametrize(
    "limit",
    first_often(
        3, ["much", 1 << 20, "-1GB", "1 GX", "", "nan", True, None, "9" * 400, "0"]
    ),
)
def test_a_limit_that_is_none_changes_nothing(limit):
    lab.engine.set_memory("2GiB")
    with pytest.raises(LabError, match=r"limit=.* such as '(2|1)GiB'\.$"):
        lab.engine.set_memory(limit)  # type: ignore[arg-type]
    assert setting("memory_limit") == "2.0 GiB"


def test_a_folder_that_is_none_is_named(tmp_path):
    with pytest.raises(LabError, match="no such folder.* Create it first"):
        lab.engine.set_memory(spill_folder=tmp_path / "missing")


def test_the_folder_is_private_and_made_when_it_is_needed(tmp_path):
    lab.engine.set_memory(spill_folder=tmp_path)
    assert not list(tmp_path.iterdir())
    folder = Path(setting("temp_directory"))
    assert folder.parent == tmp_path
    assert folder == Path(setting("temp_directory"))
    assert folder.stat().st_mode & 0o077 == 0
    lab.engine.set_memory()
    assert Path(setting("temp_directory")).parent != tmp_path


def test_what_does_not_fit_into_memory_is_put_into_the_folder(tmp_path):
    lab.engine.set_memory("100MiB", tmp_path)
    connection = session.cursor()
    text = "SELECT hash(a) AS h, a || ' and some text' FROM range(3_000_000) AS t(a) ORDER BY h"
    reader = connection.sql(text).to_arrow_reader(1000)
    assert len(reader.read_next_batch()) == 1000
    assert any(file.is_file() for file in tmp_path.rglob("*"))


@pytest.mark.thorough
def test_a_question_that_needs_more_says_so(trades):
    lab.engine.set_memory("64MiB")
    large = pd.concat(
        [trades.assign(label=str(number) * 500) for number in range(400)],
        ignore_index=True,
    )
    large["label"] += large.index.astype(str)
    try:
        lab.fees.summary(large, by="label")
    except LabError as error:
        assert "lab.engine.set_memory('4GiB')" in str(error)  # noqa: PT017 - where it is enough, the better


@pytest.mark.thorough
@posix
def test_the_folder_goes_at_the_end_also_after_ctrl_c(tmp_path):
    for stop in (None, signal.SIGINT):
        words = [
            sys.executable,
            "-W",
            "error",
            "-c",
            HOLD,
            str(tmp_path),
            "0" if stop is None else "60",
        ]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        if stop is not None:
            assert len(list(tmp_path.iterdir())) == 1
            process.send_signal(stop)
        said = process.communicate(timeout=600)
        assert "Warning" not in said[1]
        assert not list(tmp_path.iterdir())


@pytest.mark.thorough
@posix
def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path):
    def started(seconds: int) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", HOLD, str(tmp_path), str(seconds)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    link = tmp_path / f"{session.PREFIX}link"
    link.symlink_to(tmp_path)
    with started(60) as living, started(60) as killed:
        for process in (living, killed):
            assert process.stdout.readline() == "open\n"
        killed.kill()
        killed.wait()
        folders = set(tmp_path.iterdir()) - {link}
        assert len(folders) == 2
        an_hour_ago = time.time() - 3600
        for folder in folders:
            (folder / "spilled").write_bytes(b"rows")
            os.utime(folder, (an_hour_ago, an_hour_ago))
        # Somebody is about to hold it.
        new = tmp_path / f"{session.PREFIX}new"
        new.mkdir()
        with started(0) as next_one:
            next_one.communicate()
        (held,) = set(tmp_path.iterdir()) - {link, new}
        assert new.is_dir()
        assert (held / "spilled").read_bytes() == b"rows"
        living.kill()


@pytest.mark.thorough
@posix
def test_a_forked_process_asks_on_a_database_of_its_own(trades, tmp_path):
    trades.to_pickle(tmp_path / "trades")
    (tmp_path / "spilled").mkdir()
    # From 3.12 on Python warns of forks beside threads, which is what is tested here.
    words = [
        sys.executable,
        "-W",
        "error",
        "-W",
        "ignore::DeprecationWarning",
        "-c",
        FORK,
    ]
    words += [str(tmp_path / "spilled"), str(tmp_path / "trades")]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert (ran.stdout, ran.stderr) == ("both answered\n", "")
    assert not list((tmp_path / "spilled").iterdir())


def test_threads_ask_at_once(trades):
    asked = [lab.fees.summary, lab.fills.vwap, lab.fills.orders]
    expected = [ask(trades) for ask in asked] * 2
    with ThreadPoolExecutor(4) as pool:
        for found, one in zip(
            pool.map(lambda ask: ask(trades), asked * 2), expected, strict=True
        ):
            assert_same(found, one)


@posix
@may_drop_an_interrupt
def test_ctrl_c_ends_a_query_at_once_and_the_next_one_answers() -> None:
    """DuckDB would see it between its own tasks, in the main thread only."""
    forever = "SELECT sum(hash(a + b)) FROM range(10_000_000) AS s(a), range(10_000_000) AS t(b)"
    with interrupted(0.5):
        running.run(forever, "test")
    assert running.run("SELECT 1 AS one", "test").to_pylist() == [{"one": 1}]


def test_lookups_of_a_source_of_unknown_length_compare_no_pairs(
    trades: pd.DataFrame,
) -> None:
    """DuckDB takes such a source for one row; comparing all pairs, 80,000 trades took half a minute."""
    connection = duckdb.connect()
    source = connection.from_arrow(dataset(lab.engine.portable(trades)))
    plan = lab.fills.all_in_cost(source).explain()
    assert "Asof Join" in plan
    assert "Nested Loop Join" not in plan
