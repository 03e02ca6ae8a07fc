"""Where an archive can be: odd names of folders, relative paths, links, forks, and places that have no room."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.ledger import Ledger, client_of
from support.optional import first_often

from loopring_lab.archive import Archive
from loopring_lab.cli import main
from loopring_lab.errors import ArchiveError, LabError
from loopring_lab.relayer import Relayer


def test_a_relative_path_stays_where_it_was(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(archive._file.path.parent)
    relative = Archive(archive._file.path.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(relative.trades()) == 240
    assert repr(relative) == "Archive('my archive, ü.duckdb')"


def test_a_link_to_an_archive_is_the_archive(archive, small, tmp_path):
    (tmp_path / "link").symlink_to(archive._file.path)
    linked = Archive(tmp_path / "link")
    with Relayer(Ledger(2, 140, seed=3)) as relayer:
        linked.sync(client_of(relayer), accounts=small.accounts)
    assert len(archive.trades()) == len(linked.trades()) == 280
    assert archive.verify().empty


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "loop", "a\udcffb", "a\\b", "a?b"])
def test_a_path_that_no_file_can_have_is_refused(tmp_path, small, name):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with (
        Relayer(small) as relayer,
        pytest.raises(LabError, match=r"Use another|Choose another"),
    ):
        Archive(f"{tmp_path}/{name}").sync(client_of(relayer), accounts=small.accounts)


NAMES = ["a'b", ":memory:", "*", "a%20b", "a[b]", "a|b", "a\nb", 'a"b', "é.duckdb"]


@pytest.mark.parametrize("name", first_often(2, NAMES))
def test_any_other_name_is_as_good_as_another(tmp_path, small, name):
    with Relayer(small) as relayer:
        Archive(tmp_path / name).sync(client_of(relayer), accounts=small.accounts[:1])
    assert [file.name for file in tmp_path.iterdir()] == [name]
    assert len(Archive(tmp_path / name).trades()) == 120


@pytest.mark.parametrize("path", ["/proc/no-such-folder/a", f"{__file__}/a"])
def test_a_place_where_no_folder_can_be_made_is_named(path, small, capsys, monkeypatch):
    if path.startswith("/proc") and not Path("/proc/self").exists():
        pytest.skip("needs /proc: run on Linux")
    with Relayer(small) as relayer:
        with pytest.raises(
            ArchiveError,
            match=r"cannot be (created|written) .*another (place|path)",
        ):
            Archive(path).sync(client_of(relayer), accounts=small.accounts)
        monkeypatch.setenv("LOOPRING_API_KEY", relayer.api_key[:])
        assert (
            main(["sync", path, "--account", "20000", "--base-url", relayer.base_url])
            == 2
        )
    assert "backup" not in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork: run on Linux or macOS")
@pytest.mark.parametrize("state", ["used", "unused", "open", "left"])
def test_a_forked_process_reads_as_its_parent_does(archive, state):
    code = """
import contextlib, os, sys
from loopring_lab.archive import Archive
archive = Archive(sys.argv[1])
if sys.argv[2] == "used":
    archive.report()
is_open = sys.argv[2] in ("open", "left")
with archive.opened() if is_open else contextlib.nullcontext():
    child = os.fork()
    if child == 0:
        print(len(Archive(sys.argv[1]).trades()), flush=True)
        if sys.argv[2] != "left":
            os._exit(0)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    words = [sys.executable, "-W", "ignore", "-c", code, str(archive._file.path), state]
    said = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert (said.stdout, said.stderr) == ("240\n", "")
