"""One archive on every engine: the same digits as integer arithmetic, and the same frames."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.ledger import Ledger, client_of
from support.optional import first_often, often, package_or_skip, skip_without_java
from support.saved_pages import save_listings
from support.wire_rows import page, row, whole

import loopring_lab as lab
from loopring_lab.archive import Archive
from loopring_lab.engine import database, portable, set_memory
from loopring_lab.engine.ask import given
from loopring_lab.errors import ArchiveError, DiskRefused, LabError
from loopring_lab.origin import Source
from loopring_lab.relayer import Relayer

ENGINES = ["pyarrow", "duckdb", "polars", "spark"]
AMOUNTS = ["size", "price", "notional", "fee"]
DECIMALS = {"ETH": 18, "LRC": 18, "USDC": 6}


@pytest.fixture
def engine(request):
    name: str = request.param
    package_or_skip({"spark": "pyspark"}.get(name, name))
    if name == "spark":
        skip_without_java()
    return name


def collected(frame):
    """Take any engine's frame as pandas, times as whole milliseconds."""
    table = given(frame, "test").read()
    assert table.schema.field("size").type == pa.decimal128(38, 18)
    assert table.schema.field("created_at").type.tz in ("UTC", "Etc/UTC")
    moments = table["created_at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return (
        table.set_column(0, "created_at", moments)
        .replace_schema_metadata(None)
        .to_pandas()
    )


def sums(frame, engine):
    """Add up fees by market and fee token with the engine's own means, as integers of 1e-18."""
    keys = ["market", "fee_token"]
    if engine == "duckdb":
        rows = frame.aggregate("market, fee_token, sum(fee)").fetchall()
    elif engine == "spark":
        rows = frame.groupBy(*keys).agg({"fee": "sum"}).collect()
    elif engine == "polars":
        rows = frame.group_by(keys).agg(pl.col("fee").sum()).collect().rows()
    else:
        table = frame.group_by(keys).aggregate([("fee", "sum")])
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return {(market, token): whole(fee, 18) for market, token, fee in rows}


def truth(ledger):
    found: Counter[tuple[str, str]] = Counter()
    for sent in ledger.rows:
        market = sent[5].removeprefix("AMM-")
        token = market.split("-")[sent[2] == "SELL"]
        found[market, token] += int(sent[6]) * 10 ** (18 - DECIMALS[token])
    return dict(found)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_engine_gives_the_same_digits(archive, small, engine):
    frame = archive.scan(engine)
    assert sums(frame, engine) == truth(small)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_engine_has_every_column_of_every_row(archive, engine):
    expected = portable(archive.trades())
    moments = expected["created_at"].cast(pa.int64())
    ours = (
        expected.set_column(0, "created_at", moments)
        .to_pandas()
        .sort_values("trade_id", ignore_index=True)
    )
    theirs = collected(archive.scan(engine)).sort_values("trade_id", ignore_index=True)
    pd.testing.assert_frame_equal(theirs[list(ours)], ours, check_dtype=False)
    assert list(theirs) == list(ours)


def test_only_current_versions_are_given(archive, small):
    changed = Ledger(2, 120, seed=3)
    changed.rows[-1] = (*changed.rows[-1][:7], "777777", *changed.rows[-1][8:])
    with Relayer(changed) as relayer:
        report = archive.sync(client_of(relayer), accounts=small.accounts)
    assert report["second_versions"].sum() == 1
    rows = collected(archive.scan("pyarrow"))
    assert len(rows) == 240
    assert (rows["block_id"] == 777_777).sum() == 1


def ids(frame):
    """Take any engine's frame as sorted trade ids."""
    return sorted(int(one) for one in collected(frame)["trade_id"])


BEGIN = 1_640_000_000_000
EVER = 10**14
MIDDLE = BEGIN + 977 * 30
BOTH = {20_000, 20_001}
ASKED: list[tuple[dict[str, Any], int, int, set[int]]] = [
    ({}, 0, EVER, BOTH),
    ({"since": pd.Timestamp(MIDDLE, unit="ms", tz="UTC")}, MIDDLE, EVER, BOTH),
    ({"until": pd.Timestamp(MIDDLE, unit="ms", tz="Asia/Kolkata")}, 0, MIDDLE, BOTH),
    (
        {"since": "2021-12-20T11:34", "until": "2021-12-20T11:35:00.001"}
        | {"accounts": [20_001]},
        BEGIN + 40_000,
        BEGIN + 100_001,
        {20_001},
    ),
    ({"accounts": []}, 0, EVER, set()),
    ({"since": "2035"}, EVER, EVER, set()),
]


@pytest.mark.parametrize("engine", often(["duckdb"], ENGINES), indirect=True)
def test_a_scan_gives_the_time_and_the_accounts_asked_for(archive, small, engine):
    for asked, first, end, accounts in ASKED:
        expected = [
            int(row[1])
            for row in small.rows
            if first <= int(row[0]) < end and int(row[9]) in accounts
        ]
        assert ids(archive.scan(engine, **asked)) == sorted(expected)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"since": "soon"}, "since='soon' is not a time"),
        ({"accounts": 20_000}, r"give a list of account ids, such as \[20000\]"),
        ({"accounts": [-1]}, "-1 is not a valid account id"),
        (
            {"accounts": [20_001, 99]},
            "does not hold account 99; archive.report",
        ),
        ({"since": "2022", "until": "2021"}, "since='2022' is after until='2021'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(archive, asked, message):
    with pytest.raises(LabError, match=message):
        archive.scan("duckdb", **asked)


def test_an_account_that_is_not_held_is_refused_and_one_without_trades_is_not(
    archive, small
):
    with pytest.raises(LabError, match="does not hold account 99; archive.report"):
        archive.trades(99)
    assert archive.trades(20_001, until="2021").empty
    with Relayer(small) as relayer:
        relayer.add_account(99, "0x" + 40 * "a")
        archive.sync(client_of(relayer), account_id=99)
    assert archive.trades(99).empty
    assert len(archive.trades("20001")) == 120  # type: ignore[arg-type]


@pytest.mark.thorough
def test_duckdb_works_within_the_limit_and_spills_into_a_folder_of_its_own(
    archive, tmp_path, monkeypatch
):
    package_or_skip("duckdb")
    (tmp_path / "here").mkdir()
    (tmp_path / "spilled").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = archive.scan("duckdb")
    set_memory("100MiB", tmp_path / "spilled")
    try:
        trades = archive.scan("duckdb")
        setting = "SELECT current_setting('memory_limit'), current_setting('TimeZone')"
        assert trades.query("trades", setting).fetchall() == [("100.0 MiB", "UTC")]
        text = "SELECT hash(a) AS h, a || ' and some text' FROM range(3_000_000) AS t(a) ORDER BY h"
        large = trades.query("trades", text)
        reader = large.to_arrow_reader(1000)
        assert len(reader.read_next_batch()) == 1000
        assert any(file.is_file() for file in (tmp_path / "spilled").rglob("*"))
        del reader, large
        assert not list((tmp_path / "here").iterdir())
        assert sums(before, "duckdb") == sums(trades, "duckdb")
    finally:
        set_memory()


def test_frames_of_two_archives_join(archive, tmp_path):
    shutil.copy(archive._file.path, tmp_path / "copy")
    one, two = archive.scan("duckdb"), Archive(tmp_path / "copy").scan("duckdb")
    joined = one.set_alias("one").join(
        two.set_alias("two"), "one.trade_id = two.trade_id"
    )
    assert len(joined.project("one.trade_id").fetchall()) == 240


def test_a_scan_never_mixes_two_states_of_an_archive(archive, small):
    frames = {name: archive.scan(name) for name in ("duckdb", "polars", "pyarrow")}
    more = Ledger(3, 120, seed=9)
    with Relayer(more) as relayer:
        archive.sync(client_of(relayer), account_id=more.accounts[2])
    for name in ("polars", "pyarrow"):
        assert sums(frames[name], name) == truth(small)
    with pytest.raises(
        Exception,
        match=r"the archive has changed since. Call archive.scan\(...\) again",
    ):
        sums(frames["duckdb"], "duckdb")
    assert archive.scan("duckdb").aggregate("count(*)").fetchall() == [(360,)]


def test_a_question_about_a_relation_says_why_it_cannot_be_read(archive):
    """DuckDB wraps what our own code says, and Arrow does so once more."""
    relation = archive.scan("duckdb")
    elsewhere = duckdb.connect().from_arrow(portable(archive.trades()))
    for trades, prices in ((relation, elsewhere), (elsewhere, relation)):
        with pytest.raises(LabError, match="are relations of two DuckDB databases"):
            lab.fees.in_token(trades, "ETH", prices=prices)
    with archive._file.writing() as connection:
        connection.execute("DELETE FROM held.main.rows WHERE account_id = 20000")
    for trades in (relation, relation.filter("side = 'BUY'")):
        with pytest.raises(LabError) as caught:
            lab.fees.summary(trades)
        assert str(caught.value) == (
            f"lab.fees.summary: {archive._file.shown}: the archive has changed since. Call archive.scan(...) again."
        )


def test_a_scan_that_waits_for_a_writer_has_one_state_too(archive):
    relation = archive.scan("duckdb")
    is_open = threading.Event()

    def remove_an_account():
        with archive._file.writing() as connection:
            connection.execute("DELETE FROM held.main.rows WHERE account_id = 20000")
            is_open.set()
            time.sleep(0.2)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(remove_an_account)
        is_open.wait(60)
        with pytest.raises(Exception, match="the archive has changed since"):
            relation.aggregate("count(*)").fetchall()
        writing.result()
        is_open.clear()
        writing = pool.submit(remove_an_account)
        is_open.wait(60)
        # This one is made of what is there when the writer is done.
        assert archive.scan("pyarrow").num_rows == 120
        writing.result()


def test_a_scan_keeps_nobody_from_writing_and_opened_does(archive, monkeypatch, caplog):
    monkeypatch.setattr(database, "PATIENCE", 0.3)
    monkeypatch.setattr(database, "QUIET", 0.1)
    relation = archive.scan("duckdb")
    with archive._file.writing():
        pass
    assert len(relation) == 240
    with archive.opened() as trades:
        assert trades.aggregate("sum(fee), count(*)").fetchall()[0][1] == 240
        assert archive.report()["complete"].all(), "readers share the file"
        said = "in use by another thread of this process. Nothing was changed"
        with pytest.raises(ArchiveError, match=said), archive._file.writing():
            pass
    assert "another thread of this process. Waiting for it." in caplog.text
    with archive._file.writing():
        pass


def test_sql_gives_exact_amounts_and_reaches_nothing_else(archive, tmp_path):
    found = archive.query(
        "SELECT sum(fee) AS fee, sum(trade_id) AS ids, count(*) AS rows FROM trades"
    )
    expected = archive.trades()
    assert found["fee"][0] == sum(expected["fee"])
    assert found["ids"][0] == expected["trade_id"].sum()
    for name in ("rows", "syncs", "listings", "source", "blocks"):
        assert list(archive.query(f"FROM {name}"))
    canary = tmp_path / "canary.csv"
    canary.write_text("a\n1\n")
    before = archive._file.path.read_bytes()
    for sql in (
        f"FROM '{canary}'", f"FROM read_text('{canary}')", f"COPY trades TO '{tmp_path / 'out.csv'}'",
        f"ATTACH '{tmp_path / 'other'}'", "INSTALL httpfs", "LOAD httpfs", "SET enable_external_access = true",
        "DELETE FROM held.main.rows", "DROP TABLE held.main.rows", "SELEC 1", "FROM nowhere",
        "SELECT 1; SELECT 2", 5, None, b"FROM trades", "SELECT '\ud800'",
    ):  # fmt: skip
        with pytest.raises(LabError):
            archive.query(sql)
    assert archive._file.path.read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "canary.csv",
        archive._file.path.name,
    ]
    assert canary.read_text() == "a\n1\n"


def test_grouped_answers_carry_the_notes_that_those_of_frames_have(archive, tmp_path):
    """An archive of both sides of fills: each row, and one of the other side by another account."""
    both = Archive(tmp_path / "both")
    with archive._file.reading() as connection:
        rows = connection.sql("FROM held.main.rows").to_arrow_table()
    with both._file.writing(Source("both sides")) as connection:
        connection.register("sent", rows)
        connection.execute("""
            INSERT INTO held.main.rows FROM sent WHERE account_id = 20000;
            INSERT INTO held.main.rows
                SELECT * REPLACE (20001 AS account_id, if(side = 'BUY', 'SELL', 'BUY') AS side)
                FROM sent WHERE account_id = 20000;
            INSERT INTO held.main.listings VALUES ('[]', '{"markets": []}', now())
        """)
    notes = lab.fees.summary(both, by="market").attrs["notes"]
    assert notes[0].startswith("Both sides of 120 fills are counted; ")
    assert notes == lab.fees.summary(both.trades(), by="market").attrs["notes"]
    assert "notes" not in lab.fees.summary(archive, by="market").attrs


def test_an_export_is_read_by_others_and_is_whole_or_absent(archive, tmp_path):
    assert archive.export(tmp_path / "out", accounts=[20_000]) == 120
    files = (tmp_path / "out").rglob("*.parquet")
    assert {file.parent.parent.name for file in files} == {"account_id=20000"}
    read = duckdb.read_parquet(str(tmp_path / "out/**/*.parquet"))
    scanned = archive.scan("duckdb", accounts=[20_000])
    for total in ("count(*)", "sum(fee)"):
        expected = scanned.aggregate(total).fetchall()
        assert read.aggregate(total).fetchall() == expected
    foreign = tmp_path / "foreign"
    (foreign / "some" / "thing").mkdir(parents=True)
    for taken in (foreign, archive._file.path):
        with pytest.raises(LabError, match="is there already"):
            archive.export(taken)
    (foreign / "some" / "thing" / "a.parquet").write_text("not one")
    with pytest.raises(LabError, match="is there already"):
        archive.export(foreign)
    assert len(list(foreign.rglob("*"))) == 3
    with pytest.raises(DiskRefused, match="cannot be written"):
        archive.export(archive._file.path / "below a file")


def test_pandas_reads_an_export_as_amounts_with_their_source(archive, tmp_path):
    archive.export(tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out")
    held = archive.trades()
    assert {str(found[name].dtype) for name in AMOUNTS} == {"amount"}
    assert found.attrs == held.attrs
    by = ["trade_id", "account_id", "side"]
    keys = found[by].astype({"account_id": "int64", "side": str})
    found = found.iloc[keys.sort_values(by).index]
    keys = held[by].astype({"account_id": "int64", "side": str})
    held = held.iloc[keys.sort_values(by).index]
    for name in AMOUNTS:
        assert found[name].tolist() == held[name].tolist()
    assert lab.fees.summary(found).equals(lab.fees.summary(held))
    [file, *_] = (tmp_path / "out").rglob("*.parquet")
    facts = pq.read_schema(file).metadata
    assert facts[b"source"].decode() == archive.source
    assert facts[b"synthetic"] == json.dumps(archive.synthetic).encode()
    assert "source" not in found
    archive.export(tmp_path / "named", source_columns=True)
    named = pd.read_parquet(tmp_path / "named")
    assert set(named["source"]) == {archive.source}
    assert named["synthetic"].dtype == bool
    assert set(named["synthetic"]) == {archive.synthetic}


def test_an_export_goes_on_with_what_is_new(small, tmp_path):
    folder = tmp_path / "out"
    with Relayer(small) as relayer:
        archive = Archive(tmp_path / "a")
        archive.sync(client_of(relayer), account_id=20_000)
        archive.export(folder)
        [file] = folder.rglob("*.parquet")
        first = file.stat()
        archive.sync(client_of(relayer), account_id=20_001)
        assert archive.export(folder) == 240
    found = pd.read_parquet(folder)
    assert sorted(found["trade_id"]) == sorted(archive.trades()["trade_id"])
    # The file of the account of which nothing is new is the same one.
    again = file.stat()
    assert (again.st_ino, again.st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    for other in ({"since": "2021-01-01"}, {"source_columns": True}):
        with pytest.raises(
            LabError, match="is there already.* Give these, or a folder"
        ):
            archive.export(folder, **other)
    assert len(pd.read_parquet(folder)) == 240


def test_an_export_of_trades_of_unknown_time_is_read_by_every_reader(tmp_path):
    save_listings(tmp_path)
    saved = tmp_path / "147661-dex.json"
    saved.write_bytes(page([row(id="1", createdAt="0"), row(id="2")]))
    archive = Archive(tmp_path / "a")
    archive.import_pages(saved)
    archive.export(tmp_path / "out")
    found = pd.read_parquet(tmp_path / "out").sort_values("trade_id")
    assert found["year"].tolist() == [0, 2022]
    assert found["created_at"].isna().tolist() == [True, False]
    files = str(tmp_path / "out/*/*/*.parquet")
    read = duckdb.read_parquet(files, hive_partitioning=True)
    assert read.order("trade_id").project("year").fetchall() == [(0,), (2022,)]
    kept = archive.query("FROM rows WHERE imported ORDER BY trade_id")
    assert kept["current"].dtype == bool
    assert kept[kept["current"]]["trade_id"].tolist() == [1, 2]


def test_a_trade_whose_time_is_corrected_is_exported_once(tmp_path):
    save_listings(tmp_path)
    saved = tmp_path / "147661-dex.json"
    archive = Archive(tmp_path / "a")
    for moment in ("0", "1609459199999", "1609459200000"):
        saved.write_bytes(page([row(id="1", createdAt=moment), row(id="2")]))
        archive.import_pages(saved)
        assert archive.export(tmp_path / "out") == 2
        found = pd.read_parquet(tmp_path / "out")
        assert sorted(found["trade_id"]) == [1, 2]
    assert sorted(found["year"]) == [2021, 2022]


def test_a_log_that_goes_into_the_file_meanwhile_is_no_error(archive, monkeypatch):
    """Another process moves it between two looks at it."""
    monkeypatch.setattr(Path, "exists", lambda *given, **how: True)
    assert archive.scan("pyarrow").num_rows == 240


def test_an_export_of_nothing_is_refused_and_leaves_nothing(archive, tmp_path):
    with pytest.raises(LabError, match="no trades are selected.* Change since=") as no:
        archive.export(tmp_path / "out", since="2099-01-01")
    assert not isinstance(no.value, DiskRefused)
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


KILLED = """
import os, signal, sys
import pyarrow.dataset
from loopring_lab.archive import Archive
write = pyarrow.dataset.write_dataset
def write_and_die(*args, **kwargs):
    write(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
pyarrow.dataset.write_dataset = write_and_die
Archive(sys.argv[1]).export(sys.argv[2])
"""


def test_no_folder_that_somebody_keeps_is_taken_for_an_unfinished_one(
    archive, tmp_path
):
    kept = [tmp_path / f"loopring-lab-{what}-2022" for what in ("export", "copy")]
    archive.export(kept[0])
    archive.copy(kept[1] / "a.duckdb")
    for folder in kept:
        os.utime(folder, (0, 0))
    archive.export(tmp_path / "loopring-lab-export-2023")
    archive.copy(tmp_path / "b.duckdb")
    assert len(pd.read_parquet(kept[0])) == len(Archive(kept[1] / "a.duckdb").trades())


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform == "win32", reason="kills: run on Linux or macOS")
def test_what_a_killed_export_left_goes_with_the_next_one(archive, tmp_path):
    place = tmp_path / "exports"
    mine = place / "out.backup"
    mine.mkdir(parents=True)
    words = [sys.executable, "-W", "ignore", "-c", KILLED]
    files = [str(archive._file.path), str(place / "out")]
    assert subprocess.run([*words, *files]).returncode == -9
    [left] = set(place.iterdir()) - {mine}
    assert list(left.rglob("*.parquet"))
    # Long ago, so that no process can be about to lock it.
    for folder in (left, mine):
        os.utime(folder, (0, 0))
    assert archive.export(place / "out") == 240
    assert set(place.iterdir()) == {mine, place / "out"}


@pytest.mark.parametrize("engine", often(["polars"], ENGINES), indirect=True)
def test_an_archive_of_no_trades_scans_as_no_rows(tmp_path, engine):
    with Relayer(Ledger(1, 0)) as relayer:
        archive = Archive(tmp_path / "a")
        archive.sync(client_of(relayer), account_id=20_000)
    assert len(collected(archive.scan(engine))) == 0
    assert archive.report()["rows"].sum() == 0


def test_an_unknown_engine_is_refused(archive):
    with pytest.raises(
        LabError,
        match="'duckdb', 'polars', 'spark', 'pyarrow'; for pandas there is trades",
    ):
        archive.scan("excel")


def test_an_engine_that_is_not_installed_is_named(archive, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(LabError, match="engine='polars' needs the package polars"):
        archive.scan("polars")


@pytest.mark.parametrize(
    ("sql", "number"),
    first_often(
        3,
        [
            ("-7::HUGEINT", -7),
            ("340282366920938463463374607431768211455::UHUGEINT", 2**128 - 1),
            ("sum(1)", 1),
            ("5::UHUGEINT", 5),
            ("170141183460469231731687303715884105727::HUGEINT", 2**127 - 1),
        ],
    ),
)
def test_whole_numbers_of_any_size_are_whole_numbers(archive, sql, number):
    found = archive.query(f"SELECT {sql} AS n")["n"]
    assert found.tolist() == [number]
    beside = archive.query(f"SELECT {sql} AS n UNION ALL SELECT NULL ORDER BY n")["n"]
    assert beside.dropna().tolist() == [number]
    assert beside.isna().sum() == 1


@pytest.mark.parametrize(
    ("sql", "said"),
    first_often(
        4,
        [
            (
                "SELECT 1 AS n, 2 AS n",
                "several columns of the result are named 'n'. Give",
            ),
            ("SELECT [1::HUGEINT] AS n", "'n' has a type or a value of DuckDB's own"),
            ("SELECT 'infinity'::TIMESTAMP AS n", "'n' has a type or a value of"),
            ("SELECT '10000-01-01'::DATE AS n", r"a column \(year 10000 .*VARCHAR"),
            (
                "SELECT size, size FROM trades",
                "are named 'size'. Give each its own name",
            ),
            ("SELECT 2::BIGNUM AS n", "'n' has a type or a value of DuckDB's own"),
            ("SELECT '-infinity'::TIMESTAMPTZ AS n", "'n' has a type or a value of"),
            ("SELECT '24:00:00'::TIME AS n", "a column .hour must be in"),
            ("SELECT union_value(a := 1) AS n", "a column .* cannot hold"),
            (
                "SELECT 1e36::DECIMAL(38, 1) AS n",
                "^n: a number needs more than 20 digits",
            ),
        ],
    ),
)
def test_an_answer_that_no_frame_holds_is_refused(archive, sql, said):
    with pytest.raises(LabError, match=said):
        archive.query(sql)
