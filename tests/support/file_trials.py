"""Trials of the files of archives: power cuts during commits, flipped bits, and files made to do harm."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from support.archive_kills import hosted
from support.child_output import wait
from support.ledger import Ledger, client_of
from support.power_loss import cut_power, watched

import loopring_lab as lab
from loopring_lab.archive import Archive, merge
from loopring_lab.archive.conversion import as_stored
from loopring_lab.columns import TRADES
from loopring_lab.engine import portable
from loopring_lab.errors import LabError
from loopring_lab.origin import Source
from loopring_lab.relayer import Relayer

SOURCE = Source("made up", True)
BATCH = 300

# Power cuts


def made_rows(first: int, count: int = BATCH) -> pa.Table:
    """Return rows whose every value follows from their id."""
    ids = list(range(first, first + count))
    columns: dict[str, Any] = {
        name: pa.nulls(count, column.arrow) for name, column in TRADES.items()
    }
    columns |= {"trade_id": ids, "account_id": [number % 7 for number in ids]}
    columns["created_at"] = pa.array(
        [1_640_000_000_000 + 977 * number for number in ids]
    ).cast(pa.timestamp("ms", "UTC"))
    columns |= {
        "side": pa.array(["BUY"] * count),
        "fill_type": pa.array(["dex"] * count),
    }
    columns["fee_bps"] = pa.array([float(number) for number in ids])
    for place, name in enumerate(("size", "price", "notional", "fee")):
        amounts = pa.array([number * 7919 + place for number in ids])
        columns[name] = amounts.cast(pa.decimal128(20, 0)).cast(pa.decimal128(38, 18))
    columns["verbatim"] = [f'["{number * 104_729}"]' for number in ids]
    columns["retrieved_at"] = columns["created_at"]
    return as_stored(portable(pa.table(columns)))


def add_host(path: str):
    """Fork, for every line that comes in, a process that adds rows until it dies, and tells each commit."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            print("start", os.getpid(), flush=True)
            first, syncs = json.loads(line)
            os.environ["POWER_SYNCS"] = str(syncs)
            file = Archive(path)._file
            for start in range(first, first + 60 * BATCH, BATCH):
                with file.writing(SOURCE) as connection:
                    merge.add(connection, made_rows(start), imported=False)
                print(start + BATCH, flush=True)
            print("done", flush=True)
            os._exit(0)


def cut_power_again_and_again(
    folder: Path, library: Path, cuts: int, most_syncs: int, seed: int = 1
) -> int:
    """Cut the power during commits; return the rows in the end. AssertionError if a reported row is lost."""
    dice, root, notes = random.Random(seed), folder / "disk", folder / "notes"
    root.mkdir()
    notes.mkdir()
    path, held = root / "a.duckdb", 0
    variables = watched(library, root, notes)
    with hosted(f"add_host({str(path)!r})", "file_trials", variables) as host:
        for _ in range(cuts):
            reported = one_life(host, held, dice.randint(1, most_syncs))
            cut_power(root, notes, dice)
            held = check_made(path, reported)
    return held


def one_life(host: subprocess.Popen[bytes], first: int, syncs: int) -> int:
    """Start a process that dies at its sync of a number; return how many rows it reported."""
    host.stdin.write(json.dumps([first, syncs]).encode() + b"\n")
    process = Path("/proc", host.stdout.readline().decode().split()[1])
    reported = first
    while wait(host.stdout, 0.02) or process.exists():
        if wait(host.stdout, 0.02):
            line = host.stdout.readline()
            if line == b"done\n":
                break
            reported = int(line)
    return reported


def check_made(path: Path, reported: int) -> int:
    """Check an archive after a cut: every row that was reported, whole transactions, each value as made."""
    archive = Archive(path)
    if archive.source is None:
        assert reported == 0, f"reported {reported} rows, and none is there"
        return 0
    rows = archive.query(
        "SELECT trade_id, verbatim, size, fee_bps FROM rows ORDER BY trade_id"
    )
    held = len(rows)
    assert held >= reported, f"reported {reported} rows, held {held}"
    assert held % BATCH == 0, f"{held} rows: a part of a transaction"
    assert rows["trade_id"].tolist() == list(range(held))
    assert rows["verbatim"].tolist() == [
        f'["{number * 104_729}"]' for number in range(held)
    ]
    assert [int(size) for size in rows["size"]] == [
        number * 7919 for number in range(held)
    ]
    assert rows["fee_bps"].tolist() == [float(number) for number in range(held)]
    assert archive.verify().empty
    return held


# Flipped bits


def make_archive(path: Path):
    """Make an archive of several transactions, the last of which are still in the log."""
    ledger = Ledger(2, 300, seed=3)
    with Relayer(ledger) as relayer:
        Archive(path).sync(client_of(relayer), accounts=ledger.accounts, progress=False)
    changed = Ledger(2, 300, seed=3)
    changed.rows[-1] = (*changed.rows[-1][:7], "777777", *changed.rows[-1][8:])
    with Relayer(changed) as relayer:
        Archive(path).sync(
            client_of(relayer), accounts=ledger.accounts, full=True, progress=False
        )
    # A process that is killed before it has folded in its log leaves it beside the file.
    for start in (0, BATCH):
        with duckdb.connect() as connection:
            connection.execute("PRAGMA disable_checkpoint_on_shutdown")
            connection.execute(f"ATTACH '{path}' AS held")
            merge.add(connection, made_rows(start), imported=False)
    assert Path(f"{path}.wal").exists()


def content(path: Path) -> tuple[Any, ...]:
    """Read everything that users see: rows with their members as received, trades, report."""
    archive = Archive(path)
    rows = archive.query("FROM rows ORDER BY account_id, fill_type, trade_id, version")
    report = archive.report()
    return (
        rows.to_csv(),
        archive.trades().astype(str).to_csv(),
        report.to_csv(),
        archive.source,
    )


def flip_bits(base: Path, flips: int, seed: int) -> Counter[tuple[str, str]]:
    """Flip one bit at a time in a copy; AssertionError where wrong values come out. Half are in the log."""
    dice, good = random.Random(seed), content(base)
    tally: Counter[tuple[str, str]] = Counter()
    for number in range(flips):
        with tempfile.TemporaryDirectory() as folder:
            work = Path(shutil.copy(base, folder))
            log = Path(shutil.copy(f"{base}.wal", folder))
            file = log if number % 2 else work
            body = bytearray(file.read_bytes())
            place = dice.randrange(8 * len(body))
            body[place // 8] ^= 1 << place % 8
            file.write_bytes(body)
            where = "log" if file == log else "file"
            try:
                assert content(work) == good, (
                    f"bit {place} of the {where}: wrong values"
                )
                tally[where, "as before"] += 1
            except LabError as error:
                tally[where, type(error).__name__] += 1
    return tally


# Files made to do harm

SHADOWS = (
    *(
        "sum",
        "count",
        "coalesce",
        "greatest",
        "make_timestamptz",
        "epoch_ms",
        "min",
        "max",
        "hash",
        "bit_xor",
        "now",
    ),
    *("year", "unnest", "json_valid", "row_number", "bool_or", "duckdb_tables"),
)


def hostile_files(  # noqa: C901 - a list
    folder: Path, good: Path, canary: Path, dice: random.Random
) -> dict[str, Callable[[Path], None]]:
    """Return ways to make files that do harm if they are trusted, by name."""

    def altered(*statements):
        def make(path):
            shutil.copy(good, path)
            with duckdb.connect(str(path)) as connection:
                for statement in statements:
                    connection.execute(statement)

        return make

    def noise(path):
        path.write_bytes(dice.randbytes(dice.randrange(1, 200_000)))

    def cut(path):
        path.write_bytes(good.read_bytes()[: dice.randrange(good.stat().st_size)])

    def spoiled(path):
        body = bytearray(good.read_bytes())
        for _ in range(dice.randrange(1, 500)):
            body[dice.randrange(len(body))] = dice.randrange(256)
        path.write_bytes(body)

    def log_of_noise(path):
        shutil.copy(good, path)
        Path(f"{path}.wal").write_bytes(dice.randbytes(dice.randrange(1, 50_000)))

    def linked_log(path):
        shutil.copy(good, path)
        Path(f"{path}.wal").symlink_to(canary)

    def text_as(suffix):
        def make(path):
            shutil.copy(good, path)
            Path(f"{path}.{suffix}").write_text("my notes\n" * 100)

        return make

    def linked_folder(path):
        shutil.copy(good, path)
        Path(f"{path}.tmp").symlink_to(canary.parent)

    other = folder / "other.duckdb"
    rows = "SELECT * FROM rows"
    return {
        "noise": noise, "an empty file": lambda path: path.touch(), "cut": cut, "spoiled": spoiled, "log of noise": log_of_noise,
        "linked log": linked_log, "linked folder": linked_folder,
        "link to the canary": lambda path: path.symlink_to(canary),
        "rows is a view that reads": altered(
            "ALTER TABLE rows RENAME TO held", f"CREATE VIEW rows AS SELECT held.*, c.content FROM held, read_text('{canary}') AS c"),
        "listings is a view that reads": altered(
            "DROP TABLE listings", f"CREATE VIEW listings AS SELECT content AS tokens, '[]' AS markets, now() AS retrieved_at FROM read_text('{canary}')"),
        "trades is a view that reads": altered("DROP VIEW trades", f"CREATE VIEW trades AS FROM read_text('{canary}')"),
        "a view without end": altered("CREATE OR REPLACE VIEW trades AS WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM t) FROM t"),
        "macros in the place of functions": altered(*(f"CREATE MACRO {name}(x) AS 42" for name in SHADOWS)),
        "a macro that reads": altered(f"CREATE MACRO report() AS TABLE FROM read_text('{canary}')"),
        "a schema of the same name": altered(
            "CREATE SCHEMA held", f"CREATE VIEW held.rows AS FROM read_csv('{canary}')", f"CREATE VIEW held.source AS FROM read_csv('{canary}')"),
        "macros of tables": altered(*(f"CREATE MACRO {name}() AS TABLE FROM read_csv('{canary}')" for name in ("duckdb_tables", "rows", "source"))),
        "another type": altered("DROP VIEW trades", "ALTER TABLE rows ALTER size TYPE VARCHAR"),
        "a further column": altered("ALTER TABLE rows ADD COLUMN more VARCHAR DEFAULT repeat('x', 1000000)"),
        "a generated column": altered(
            "DROP VIEW trades", "CREATE OR REPLACE TABLE syncs (number BIGINT, more VARCHAR GENERATED ALWAYS AS (repeat('x', 900000000)) VIRTUAL)"),
        "other tables": altered("DROP VIEW trades", "DROP TABLE rows", "CREATE TABLE rows AS SELECT 1 AS a"),
        "no source": altered("DELETE FROM source"), "two sources": altered("INSERT INTO source FROM source"),
        "a long name": altered("UPDATE source SET name = repeat('x', 5000000)"),
        "a long listing": altered("UPDATE listings SET tokens = repeat('[', 30000000)"),
        "a view of an attached database": altered(
            f"ATTACH '{other}' AS other", "CREATE OR REPLACE TABLE other.t AS SELECT 1 AS a", "CREATE OR REPLACE VIEW trades AS FROM other.t"),
        "rows without numbers": altered(f"INSERT INTO rows BY NAME ({rows.replace('*', '* REPLACE (NULL AS trade_id, NULL AS side)')} LIMIT 5)"),
        "a trigger": altered(
            "CREATE TRIGGER doubling AFTER INSERT ON syncs FOR EACH STATEMENT UPDATE rows SET size = size * 2"),
        "a trigger that copies": altered(
            "CREATE TRIGGER renaming AFTER INSERT ON syncs FOR EACH STATEMENT UPDATE source SET name = 'mainnet', synthetic = FALSE"),
        "a sequence": altered("CREATE SEQUENCE numbers"), "a type": altered("CREATE TYPE mood AS ENUM ('good')"),
        "another schema": altered("CREATE SCHEMA other", "CREATE TABLE other.rows AS FROM rows"),
        "a further table": altered("CREATE TABLE more AS SELECT 1 AS a"), "a further view": altered(f"CREATE VIEW more AS FROM read_text('{canary}')"),
        "an index": altered("CREATE INDEX more ON rows (account_id)"), "a unique index": altered("CREATE UNIQUE INDEX more ON rows (account_id, trade_id, fill_type, version)"),
        "a default": altered("ALTER TABLE syncs ALTER gone SET DEFAULT 5"), "a check": altered(
            "CREATE OR REPLACE TABLE blocks (block_id BIGINT NOT NULL, rows BIGINT NOT NULL, imported_at TIMESTAMPTZ NOT NULL, CHECK (rows < 0))"),
        "a text as its log": text_as("wal"), "a text as the log of a checkpoint": text_as("wal.checkpoint"),
        "huge amounts": altered("UPDATE rows SET size = 170141183460469231731687303715884105727"),
        "times beyond the calendar": altered("UPDATE syncs SET synced_at = '290000-01-01'"),
    }  # fmt: skip


def write_to(path: Path) -> str:
    """Add rows to a file; return how that ended. AssertionError if a file that is refused is changed."""
    body = path.read_bytes()
    names = sorted(path.parent.iterdir())
    held = ""
    try:
        file = Archive(path)._file
        held = str(file.source())
        with file.writing(Source("ledger", True)) as connection:
            merge.add(connection, made_rows(0), imported=False)
    except LabError as error:
        assert path.read_bytes() == body, f"{path}: refused, and changed"
        left = set(path.parent.iterdir()) - set(names)
        # Damage may be found only where the log is folded in; what was written stays in it then.
        if "is in the log beside it" in str(error):
            left.discard(Path(f"{path}.wal"))
        assert not left, f"{path}: refused, and left {left}"
        return type(error).__name__
    # Nothing that was in the file had a say in what was written.
    sizes = Archive(path).query(
        f"SELECT count(*) AS held FROM rows WHERE size = trade_id * 7919 AND trade_id < {BATCH}"
    )
    assert sizes["held"][0] == BATCH
    assert held in ("None", str(Archive(path)._file.source()))
    return "written"


def open_all(path: Path) -> str:
    """Use a file in every way that reads; return how that ended. Anything but a `LabError` is raised."""
    ended = "read"
    for use in (
        lambda archive: str(archive.report()),
        lambda archive: archive.trades(),
        lambda archive: archive.source,
        lambda archive: archive.verify(),
        lambda archive: archive.query("SELECT sum(fee), count(*) FROM trades"),
        lambda archive: archive.scan("pyarrow"),
        repr,
        lambda archive: archive._repr_html_(),
        lambda archive: archive.query("FROM held.main.trades LIMIT 5"),
        lambda archive: archive.query("FROM held.main.more"),
        lambda archive: lab.fees.summary(archive, by="market"),
    ):
        try:
            use(Archive(path))
        except LabError as error:
            ended = type(error).__name__
    return ended
