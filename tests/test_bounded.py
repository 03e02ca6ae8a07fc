"""Files that somebody gives: their paths are as written, and what is not text in UTF-8 is named."""

import errno
import gzip
import os
from pathlib import Path

import pytest

import loopring_lab as lab
from loopring_lab import bounded

ODD = "a*b[c]{d,e} 50% it's $HOME"
PRICES = "created_at,market,price\n2022-03-31T18:01Z,LRC-ETH,0.5\n"


@pytest.mark.parametrize("name", ["~", ODD])
def test_every_path_argument_takes_it_as_it_is(tmp_path, monkeypatch, name):
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    place = home if name == "~" else tmp_path / name
    place.mkdir()
    given = name if name == "~" else str(place)
    client = lab.connect()

    (place / "prices.csv").write_text(PRICES)
    assert len(lab.tables.prices(f"{given}/prices.csv")) == 1

    archive = lab.Archive(f"{given}/trades.duckdb")
    archive.sync(client, 94680)
    archive.export(f"{given}/exported")
    assert len(lab.fees.summary(archive)) > 0

    (place / "blocks.hex").write_text("0x")
    with pytest.raises(lab.LabError, match=r"blocks\.hex"):
        lab.rollup.Store(f"{given}/blocks.duckdb").import_files(f"{given}/blocks.hex")
    with pytest.raises(lab.LabError, match="trades"):
        lab.connect(recording=f"{given}/exported")

    lab.engine.set_memory(spill_folder=given)
    lab.engine.set_memory()
    assert (place / "trades.duckdb").is_file()
    assert (place / "exported").is_dir()
    assert not Path("~").exists()


def test_a_home_folder_of_nobody_is_named():
    with pytest.raises(lab.LabError, match="nobody here has that home folder"):
        lab.Archive("~no-such-user/trades.duckdb")


@pytest.mark.parametrize("method", ["stat", "iterdir"])
def test_a_place_that_is_closed_to_the_user_is_named(tmp_path, monkeypatch, method):
    def refused(self, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    with monkeypatch.context() as closed:
        closed.setattr(Path, method, refused)
        with pytest.raises(lab.LabError, match="Permission denied.*another") as caught:
            lab.connect(blocks=tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("path", [None, 5, b"trades.duckdb"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(lab.LabError, match="A path is text or a pathlib.Path, not of"):
        lab.Archive(path)
    with pytest.raises(lab.LabError, match="A path is text or a pathlib.Path, not of"):
        lab.Archive("trades.duckdb").import_pages(path)


BODY = '{"totalNum": 0, "trades": []}'


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (BODY.encode("utf-16"), "text in UTF-16"),
        (BODY.encode("utf-16-le"), "text in UTF-16"),
        (BODY.encode("utf-16-be"), "text in UTF-16"),
        (b"PK\x03\x04rest", "a ZIP archive, such as a spreadsheet"),
        (b"\x28\xb5\x2f\xfdrest", "a file compressed with Zstandard"),
        (b"ARROW1\0\0rest", "a Feather file"),
        (b"PAR1rest", "a Parquet file"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_formats_given_by_mistake_are_named(tmp_path, data, name, packed):
    for reader, ending in (
        (lab.Archive(tmp_path / "a.duckdb").import_pages, "json"),
        (lab.tables.prices, "csv"),
        (lab.tables.read_csv, "csv"),
        (lab.rollup.Store(tmp_path / "b.duckdb").import_files, "csv"),
        (lab.rollup.Store(tmp_path / "b.duckdb").import_files, "json"),
        (lab.rollup.Store(tmp_path / "b.duckdb").import_files, "hex"),
    ):
        file = tmp_path / f"saved.{ending}"
        file.write_bytes(gzip.compress(data) if packed else data)
        with pytest.raises(lab.LabError, match=f"got {name}"):
            reader(file)


def test_a_pipe_among_files_to_read_is_called_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    missing = tmp_path / "none"
    for path, problem in ((pipe, "a pipe or a device"), (missing, "no such file")):
        with pytest.raises(lab.LabError, match=problem):
            bounded.find_files(path, (".json",), "Give another.", besides=())


@pytest.mark.parametrize(
    "give",
    [
        lambda: lab.connect(blocks=""),
        lambda: lab.connect(recording=""),
        lambda: lab.Archive(""),
        lambda: lab.tables.prices(""),
    ],
)
def test_an_empty_path_is_none(give):
    with pytest.raises(lab.LabError, match="An empty text is no path"):
        give()
