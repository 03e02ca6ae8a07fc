"""What a count does not show: rows changed, inserted or removed inside a history, and versions in order of commits."""

import json

import pandas as pd
import pytest
from support.archive_kills import check
from support.ledger import Ledger, client_of
from support.saved_pages import save

from loopring_lab.archive import Archive
from loopring_lab.cli import main
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer
from loopring_lab.relayer.history import RowKey

pytestmark = pytest.mark.thorough

ACCOUNT, TRADES, PLANTED = 20_000, 500, 30
NOW = "loopring_lab.archive.sync.now_ms"


def ledger(change=lambda _: None):
    made = Ledger(1, TRADES)
    change(made)
    return made


def sync(archive, source, **how):
    with Relayer(source) as relayer:
        return archive.sync(client_of(relayer), account_id=ACCOUNT, **how)


def with_member(row, place, text):
    return (*row[:place], text, *row[place + 1 :])


def exchanged(source):
    """Remove rows from inside of both histories, and insert as many others there."""
    for number in range(150, 150 + PLANTED):
        order = f"0x{number:064x}"
        row = with_member(
            with_member(source.rows[number], 1, str(900_000 + number)), 12, order
        )
        source.rows[number], key = row, source.keys[number]
        source.keys[number] = RowKey(key.account, key.market, key.fill_type, order)


def rewritten(source):
    for number in range(100, 200):  # ten times as far from the newest as a page reaches
        source.rows[number] = with_member(source.rows[number], 6, "7")


@pytest.fixture
def archive(tmp_path):
    made = Archive(tmp_path / "a")
    assert sync(made, ledger())["complete"].all()
    return made


def test_rows_exchanged_inside_a_history_are_found_by_a_full_sync(archive):
    before = archive.report()
    assert (
        sync(archive, ledger(exchanged))["rows"].sum() == TRADES
    )  # as many as the relayer counts
    assert archive.report()["checked_at"].equals(before["checked_at"])
    report = sync(archive, ledger(exchanged), full=True)
    assert (report["checked_at"] > before["checked_at"]).all()
    assert report["complete"].all()
    assert (report["rows"].sum(), report["total"].sum()) == (TRADES + PLANTED, TRADES)
    assert report["gone"].sum() == PLANTED
    ids = set(archive.trades()["trade_id"])
    old, new = (
        {int(row[1]) for row in one.rows} for one in (ledger(), ledger(exchanged))
    )
    assert ids == old | new
    again = sync(archive, ledger(exchanged))
    assert again["complete"].all()
    assert again["rows"].sum() == TRADES + PLANTED
    assert again["checked_at"].equals(report["checked_at"])


def test_rows_rewritten_beyond_the_first_page_are_found_by_a_full_sync(archive):
    assert sync(archive, ledger(rewritten))["second_versions"].sum() == 0
    for _ in range(2):
        report = sync(archive, ledger(rewritten), full=True)
        assert report["second_versions"].sum() == 100
        assert report["complete"].all()
        assert current(archive) == {int(row[1]): row for row in ledger(rewritten).rows}


def current(archive):
    """Return the current version of each row, as it was sent."""
    held = archive.query("SELECT trade_id, verbatim FROM rows WHERE current")
    assert len(held) == len(archive.trades()) == TRADES
    texts = map(json.loads, held["verbatim"])
    return dict(zip(held["trade_id"], map(tuple, texts), strict=True))


def test_a_full_sync_reads_each_page_once(archive):
    with Relayer(ledger()) as relayer:
        archive.sync(client_of(relayer), account_id=ACCOUNT, full=True)
        pages = sum(
            -(-len(relayer.rows(ACCOUNT, kind)) // 50) for kind in ("amm", "dex")
        )
        # And one of each history that shows its end.
        assert relayer.counts.requests["/user/trades"] == pages + 2
    check(archive._file.path, *ledger().truth())


def test_only_a_whole_reading_counts_as_a_check(tmp_path):
    archive = Archive(tmp_path / "a")
    assert sync(archive, ledger(), since="2021-12-20T12:30")["checked_at"].isna().all()
    report = sync(archive, ledger())
    assert report["complete"].all()
    assert report["checked_at"].isna().all(), (
        "the newest page was read before, and not again"
    )
    assert sync(archive, ledger(), full=True)["checked_at"].notna().all()
    with pytest.raises(LabError, match="Leave out since="):
        sync(archive, ledger(), full=True, since="2022-01-01")


def test_the_command_reads_everything_too(archive, monkeypatch, capsys):
    with Relayer(ledger(rewritten)) as relayer:
        client = client_of(relayer)
        monkeypatch.setenv("LOOPRING_API_KEY", "of the relayer")
        monkeypatch.setattr(
            "loopring_lab.sources.connect.connect", lambda *_, **__: client
        )
        words = ["--account", str(ACCOUNT), "--base-url", relayer.base_url, "--full"]
        assert main(["sync", str(archive._file.path), *words]) == 0
    assert "checked_at" in capsys.readouterr().out
    assert archive.report()["second_versions"].sum() == 100


# Versions in the order of commits


def newest(text):
    """Give the newest row another block."""

    def change(source):
        source.rows[-1] = with_member(source.rows[-1], 7, text)

    return change


def block_of_newest(archive):
    found: int = archive.trades()["block_id"].iloc[-1]
    return found


@pytest.mark.thorough
def test_a_content_that_comes_back_is_current_again(archive):
    first = block_of_newest(archive)
    for change, block, versions in (
        (newest("77"), 77, 1),
        (lambda _: None, first, 1),
        (newest("78"), 78, 2),
        (newest("77"), 77, 2),
    ):
        report = sync(archive, ledger(change))
        assert block_of_newest(archive) == block
        assert report["second_versions"].sum() == versions
        assert len(archive.trades()) == TRADES
    assert len(archive.scan("pyarrow")) == TRADES


@pytest.fixture
def clock(monkeypatch):
    """Set this machine's clock, in milliseconds."""
    now = [1_700_000_000_000]
    for name in (NOW, "loopring_lab.sources.paging.now_ms"):
        monkeypatch.setattr(name, lambda: now[0])
    return now


def test_no_clock_decides_which_version_and_which_count_is_current(tmp_path, clock):
    archive = Archive(tmp_path / "a")
    year = 365 * 86_400_000
    for offset, change in (
        (5 * year, rewritten),
        (0, lambda _: None),
        (-5 * year, rewritten),
    ):
        clock[0] = 1_700_000_000_000 + offset
        report = sync(archive, ledger(change), full=True)
        assert current(archive) == {int(row[1]): row for row in ledger(change).rows}
        moment = pd.Timestamp(clock[0], unit="ms", tz="UTC")
        assert (report["checked_at"] == moment).all()
    clock[0] -= year
    assert sync(archive, Ledger(1, TRADES + 7))["total"].sum() == TRADES + 7


# Saved pages


def saved(source, folder):
    return save(source, folder, source="ledger")


def test_saved_pages_never_replace_what_a_sync_saw(archive, tmp_path):
    seen = block_of_newest(archive)
    report = archive.import_pages(saved(ledger(newest("5")), tmp_path / "old"))
    assert block_of_newest(archive) == seen
    assert report["second_versions"].sum() == 1
    assert sync(archive, ledger(newest("6")))["second_versions"].sum() == 2
    archive.import_pages(tmp_path / "old")
    assert block_of_newest(archive) == 6
    assert report["complete"].all()


def test_what_was_imported_last_is_current_until_a_sync_sees_it(tmp_path):
    archive = Archive(tmp_path / "a")
    folders = [
        saved(ledger(newest(str(block))), tmp_path / str(block)) for block in (5, 6)
    ]
    for folder, block in ((folders[0], 5), (folders[1], 6), (folders[0], 5)):
        archive.import_pages(folder)
        assert block_of_newest(archive) == block
    sync(archive, ledger(newest("6")))
    archive.import_pages(folders[0])
    assert block_of_newest(archive) == 6


def test_an_old_saved_count_does_not_replace_a_newer_one(archive, tmp_path):
    folder = saved(Ledger(1, TRADES - 40), tmp_path / "old")
    report = archive.import_pages(folder)
    assert (report["total"].sum(), bool(report["complete"].all())) == (TRADES, True)
    for kind in ("amm", "dex"):
        file = folder / "trades" / f"{ACCOUNT}-{kind}.json"
        file.write_text(
            json.dumps(json.loads(file.read_text()) | {"totalNum": TRADES + 9})
        )
    report = archive.import_pages(folder)
    assert report["missing"].sum() == 2 * (TRADES + 9) - TRADES
    assert sync(archive, ledger())["complete"].all()
