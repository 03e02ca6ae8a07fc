"""The limit of memory, and folders for what does not fit: private, and gone afterwards."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import loopring_lab as lab
from loopring_lab.engines import limits
from loopring_lab.errors import LabError

HOLD = """
import sys, time
import loopring_lab as lab
from loopring_lab.engines import limits
lab.engines.set_memory(spill_folder=sys.argv[1])
print(limits.spill_folder(), flush=True)
time.sleep(float(sys.argv[2]))
"""
posix = pytest.mark.skipif(os.name != "posix", reason="needs locks and signals: run on Linux or macOS")


@pytest.fixture(autouse=True)
def _default() -> Iterator[None]:
    yield
    lab.engines.set_memory()


def started(folder: Path, seconds: float) -> tuple["subprocess.Popen[str]", Path]:
    words = [sys.executable, "-W", "error", "-c", HOLD, str(folder), str(seconds)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("1GB", 10**9), ("1.5 GiB", 3 << 29), (10**9, 10**9), ("64mib", 1 << 26), ("2TB", 2 * 10**12)],
)
def test_a_limit_is_bytes_or_text_with_a_unit(limit: str | int, expected: int) -> None:
    lab.engines.set_memory(limit)
    assert limits.memory_limit() == expected
    assert limits.rows_at_once(1) * limits.COPIES in range(expected - limits.COPIES, expected + 1)
    lab.engines.set_memory()
    assert limits.memory_limit() == 1 << 30


@pytest.mark.parametrize("limit", ["much", "1 GX", "", "-1GB", "nan", True, None, "9" * 400, 1 << 20, "0"])
def test_a_limit_that_is_none_changes_nothing(limit: object) -> None:
    lab.engines.set_memory("2GiB")
    with pytest.raises(LabError, match=r"limit=.* such as '(2|1)GiB'\.$"):
        lab.engines.set_memory(limit)  # type: ignore[arg-type]
    assert limits.memory_limit() == 2 << 30


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no such folder.* Create it first"):
        lab.engines.set_memory(spill_folder=tmp_path / "missing")


def test_the_folder_is_private_and_made_once(tmp_path: Path) -> None:
    lab.engines.set_memory(spill_folder=tmp_path)
    assert not list(tmp_path.iterdir())
    made = limits.spill_folder()
    assert made.parent == tmp_path
    assert made == limits.spill_folder()
    assert made.stat().st_mode & 0o077 == 0
    lab.engines.set_memory("2GiB", tmp_path)
    assert made == limits.spill_folder()
    lab.engines.set_memory()
    assert limits.spill_folder().parent != tmp_path


@pytest.mark.thorough
@posix
def test_the_folder_goes_at_the_end_also_after_ctrl_c(tmp_path: Path) -> None:
    for stop in (None, signal.SIGINT):
        process, folder = started(tmp_path, 0 if stop is None else 60)
        assert folder.is_dir() or stop is None
        if stop is not None:
            process.send_signal(stop)
        said = process.communicate(timeout=30)
        assert "Warning" not in said[1]
        assert not list(tmp_path.iterdir())


@posix
def test_a_killed_process_leaves_a_folder_that_the_next_one_removes(tmp_path: Path) -> None:
    killed, abandoned = started(tmp_path, 60)
    alive, kept = started(tmp_path, 60)
    try:
        killed.kill()
        killed.communicate()
        (abandoned / "part").write_bytes(b"1")
        lab.engines.set_memory(spill_folder=tmp_path)
        mine = limits.spill_folder()
        assert {*tmp_path.iterdir()} == {mine, kept}
    finally:
        alive.kill()
        alive.communicate()


@posix
def test_a_forked_process_has_a_folder_of_its_own(tmp_path: Path) -> None:
    code = (
        HOLD
        + """
import os
mine = limits.spill_folder()
if (child := os.fork()) == 0:
    assert limits.spill_folder() != mine and mine.is_dir()
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0 and mine.is_dir()
print(len(list(mine.parent.iterdir())))
"""
    )
    words = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning"]
    ran = subprocess.run([*words, "-c", code, str(tmp_path), "0"], capture_output=True, text=True)
    assert ran.stderr == ""
    assert ran.stdout.endswith("\n1\n")
    assert not list(tmp_path.iterdir())
