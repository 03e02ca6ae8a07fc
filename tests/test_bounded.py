"""Paths that somebody gives: ``~`` is the home folder, and every other character stands for itself."""

from pathlib import Path

import pytest

import loopring_lab as lab

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


@pytest.mark.parametrize("path", [None, 5, b"trades.duckdb"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(lab.LabError, match="A path is text or a pathlib.Path, not of"):
        lab.Archive(path)
    with pytest.raises(lab.LabError, match="A path is text or a pathlib.Path, not of"):
        lab.Archive("trades.duckdb").import_pages(path)
