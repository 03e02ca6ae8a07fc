"""What files of archives stand: kills, power cuts, flipped bits, and files that somebody made to do harm."""

import random
import resource
import time
from pathlib import Path

import pytest
from support import kill_rig
from support.file_trials import (
    cut_power_again_and_again,
    flip_bits,
    hostile_files,
    make_archive,
    open_all,
    write_to,
)
from support.optional import often
from support.power_loss import compiled

SECONDS, MEGABYTES = 5, 200


@pytest.mark.thorough
@pytest.mark.parametrize(
    "kind",
    [
        "syncs",
        "page_imports",
        "block_syncs",
        "block_imports",
        "exports",
        "copies",
        "block_copies",
    ],
)
def test_killed_work_loses_and_doubles_nothing(tmp_path, kind):
    tally = getattr(kill_rig, kind)(tmp_path, kills=3, longest=0.5)
    assert tally.lives_with_commits > 0


@pytest.mark.thorough
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc: run on Linux")
def test_what_was_reported_survives_a_power_cut(tmp_path):
    library = compiled(tmp_path)
    if library is None:
        pytest.skip("needs a C compiler")
    assert cut_power_again_and_again(tmp_path, library, cuts=3, most_syncs=15) > 0


@pytest.mark.thorough
def test_flipped_bits_never_give_wrong_values(tmp_path):
    make_archive(tmp_path / "a.duckdb")
    tally = flip_bits(tmp_path / "a.duckdb", flips=6, seed=5)
    assert tally.total() == 6


# Files whose catalogue holds more than ours, which are never written to.
FOREIGN = {
    "a trigger",
    "a trigger that copies",
    "a sequence",
    "a type",
    "another schema",
    "a further table",
    "a further view",
    "an index",
    "a unique index",
    "a default",
    "a check",
    "a text as its log",
    "a text as the log of a checkpoint",
}
NAMES = hostile_files(Path(), Path("good"), Path("canary"), random.Random())
# One of each kind of harm; triggers are tried in `test_files_of_others`.
OFTEN = ["noise", "linked log", "rows is a view that reads"]


@pytest.mark.parametrize("name", often(OFTEN, NAMES))
def test_files_made_to_do_harm_do_none(archive, tmp_path, name):
    canary = tmp_path / "canary" / "secret.txt"
    canary.parent.mkdir()
    canary.write_text("a secret of the user\n")
    before = canary.stat()
    work = tmp_path / "work"
    work.mkdir()
    path = work / "theirs.duckdb"
    hostile_files(tmp_path, archive._file.path, canary, random.Random(1))[name](path)
    made = {file.name: file.lstat().st_mtime_ns for file in work.iterdir()}
    begun, memory = (
        time.process_time(),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )
    open_all(path)
    assert time.process_time() - begun < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < MEGABYTES << 10
    assert {file.name: file.lstat().st_mtime_ns for file in work.iterdir()} == made
    ended = write_to(path)
    assert ended != "written" or name not in FOREIGN
    assert list(canary.parent.iterdir()) == [canary]
    after = canary.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_ino) == (
        before.st_mtime_ns,
        before.st_size,
        before.st_ino,
    )
