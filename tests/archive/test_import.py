"""Importing saved responses into an archive: a settled block, and every file format and name."""

import gzip
import json
import os
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal
from support.archive_kills import check
from support.optional import thorough
from support.saved_pages import save_listings
from support.settled_block import COUNTS
from support.wire_rows import page, row, whole

import loopring_lab as lab
from loopring_lab.archive import Archive
from loopring_lab.errors import LabError, UnexpectedAnswer


def test_a_real_block_is_complete_and_its_totals_are_the_chain_s(
    block_folder, tmp_path
):
    block = block_folder
    archive = Archive(tmp_path / "a")
    report = archive.import_pages(block / "trades")
    facts = [
        json.loads(line) for line in (block / "settled.jsonl").read_text().splitlines()
    ]
    assert report["complete"].all()
    assert (report["rows"].sum(), report["account_id"].nunique()) == COUNTS[block.name][
        :2
    ]
    assert len(facts) == COUNTS[block.name][0]
    expected: dict[tuple[str, str], int] = defaultdict(int)
    for fact in facts:
        expected["size", fact["base"]] += int(fact["size"])
        expected["fee", fact["fee_token"]] += int(fact["fee"])
    trades = archive.trades()
    decimals = lab.tables.tokens((block / "tokens.json").read_bytes())["decimals"]
    sums = {
        (amount, token): whole(total, decimals[token])
        for amount, key in (("size", "base"), ("fee", "fee_token"))
        for token, total in lab.amounts.total(trades, amount, by=key).items()
    }
    assert sums == expected
    client = lab.connect(recording=block)
    for account in (client.accounts or [])[:5]:
        assert_frame_equal(archive.trades(account), client.trades(account))
        assert archive.trades(account).attrs == client.trades(account).attrs


@pytest.mark.thorough
def test_importing_the_same_files_again_creates_no_duplicates_and_a_sync_adds_nothing(
    block_folder, tmp_path
):
    block, archive = block_folder, Archive(tmp_path / "a")
    first = archive.import_pages(block)
    archive.import_pages([block / "trades"])
    client = lab.connect(recording=block)
    again = archive.sync(client, accounts=client.accounts).set_index(
        ["account_id", "fill_type"]
    )
    first = first.set_index(["account_id", "fill_type"])
    assert again["rows"].sum() == COUNTS[block.name][0]
    assert again.loc[first.index, "rows"].equals(first["rows"])
    assert again["second_versions"].sum() == 0
    assert again["complete"].all()


@pytest.fixture
def saved(tmp_path, small):
    """A folder with the tokens and markets that `small` uses."""
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "tokens.json").write_text(json.dumps(small.tokens()))
    (folder / "markets.json").write_text(json.dumps({"markets": small.markets()}))
    return folder


NO_TRADES = [
    {},
    "x",
    None,
    [],
    ["1", "2"],
    [str(number) for number in range(19)],
    [["1"]] * 6,
]
UNREADABLE = [
    row(id="70", size="9" * 200),
    row(id="71", createdAt="soon"),
    row(id="72", market={"a": [1]}),
]


@pytest.fixture
def odd(tmp_path):
    """Saved responses of an account with rows of every odd kind, over several pages of both fill types."""
    folder = tmp_path / "odd"
    (folder / "trades").mkdir(parents=True)
    save_listings(folder)
    for first, name in ((1000, "dex"), (2000, "amm")):
        good = [
            row(id=str(first + n), createdAt=str(1_600_000_000_000 - n))
            for n in range(103)
        ]
        rows = [*good[:48], *NO_TRADES, *UNREADABLE, *good[48:], "the last"]
        if name == "amm":
            rows = [{"another": 1}, None, *good]
        (folder / "trades" / f"147661-{name}.json").write_bytes(page(rows))
    return folder


@pytest.mark.thorough
def test_rows_that_are_no_trades_keep_no_account_from_being_read_imported_or_synced(
    odd, tmp_path
):
    """Each is kept once, in the frame and in the archive, with its reason."""
    client = lab.connect(recording=odd)
    read = client.trades(147661)
    listed = lab.anomalies(read)
    strange = listed["reason"].str.startswith("the row is not a trade")
    assert (len(read), int(strange.sum()), int((~strange).sum())) == (
        2 * 103 + 3 + 8 + 2,
        10,
        3,
    )
    imported, synced = Archive(tmp_path / "imported"), Archive(tmp_path / "synced")
    imported.import_pages(odd)
    synced.sync(client, account_id=147661)
    for archive in (imported, synced):
        assert archive.report()["missing"].tolist() == [0, 0]
        assert archive.report()["rows"].tolist() == [105, 114]
        assert_frame_equal(archive.trades(147661), read)
        assert (
            lab.anomalies(archive.trades())["reason"].tolist()
            == listed["reason"].tolist()
        )
        before = archive.report()
        archive.sync(client, account_id=147661)
        archive.import_pages(odd / "trades", source=archive.source)
        assert_frame_equal(archive.trades(147661), read)
        after = archive.report()
        assert after["rows"].equals(before["rows"])
        assert after["second_versions"].sum() == 0
        assert archive.verify().empty


def test_a_history_of_an_endpoint_without_trades_is_refused_by_place(odd, tmp_path):
    for name in ("dex", "amm"):
        (odd / "trades" / f"147661-{name}.json").write_bytes(
            page([{"price": 1}, {"price": 2}])
        )
    expected = (
        r"\.trades\[0\]: expected a list of members, got dict .*GET /api/v3/user/trades"
    )
    client = lab.connect(recording=odd)
    for read in (
        lambda: client.trades(147661),
        lambda: Archive(tmp_path / "a").sync(client, account_id=147661),
        lambda: Archive(tmp_path / "b").import_pages(odd),
    ):
        with pytest.raises(UnexpectedAnswer, match=expected):
            read()


def pages(ledger, account, kind):
    numbers = ledger.history.row_numbers(account, None, kind)
    rows = [ledger.history.row(number) for number in reversed(numbers)]
    return [
        json.dumps(
            {"totalNum": len(rows), "trades": rows[at : at + 50]}, separators=(",", ":")
        ).encode()
        for at in range(0, len(rows), 50)
    ]


@pytest.mark.parametrize(
    ("form", "packed"),
    [
        ("lines", True),
        ("a file each", False),
        thorough("lines", False),
        thorough("a file each", True),
        thorough("a file each, indented", False),
    ],
)
def test_however_pages_are_saved_the_rows_are_the_same(
    saved, small, tmp_path, form, packed
):
    for account in small.accounts:
        for kind in ("amm", "dex"):
            files = {
                f".{at}.json": one for at, one in enumerate(pages(small, account, kind))
            }
            if form == "lines":
                files = {".jsonl": b"\n\n".join(files.values()) + b"\n"}
            for ending, content in files.items():
                if "indented" in form:
                    content = json.dumps(json.loads(content), indent=1).encode()
                path = saved / f"{account}-{kind}{ending}"
                if packed:
                    path = path.with_name(f"{path.name}.gz")
                    content = gzip.compress(content)
                path.write_bytes(content)
    Archive(tmp_path / "a").import_pages(saved)
    check(tmp_path / "a", *small.truth())


def test_account_and_fill_type_can_come_from_arguments(saved, small, tmp_path):
    archive = Archive(tmp_path / "a")
    for number, account in enumerate(small.accounts):
        (saved / f"pool{number}.jsonl").write_bytes(
            b"\n".join(pages(small, account, "amm"))
        )
        (saved / f"book{number}.jsonl").write_bytes(
            b"\n".join(pages(small, account, "dex"))
        )
        archive.import_pages(saved / f"pool{number}.jsonl", account, "amm")
        archive.import_pages(saved / f"book{number}.jsonl", account, "dex")
    check(tmp_path / "a", *small.truth())


def test_a_fill_type_that_contradicts_a_file_s_name_is_refused(saved, small, tmp_path):
    """Given for a folder of both, it made fills of the book ones of pools."""
    account = small.accounts[0]
    for kind in ("amm", "dex"):
        file = saved / f"{account}-{kind}.jsonl"
        file.write_bytes(b"\n".join(pages(small, account, kind)))
    archive = Archive(tmp_path / "a")
    said = f"{account}-dex.jsonl, fill_type: expected amm, as given, got dex"
    with pytest.raises(UnexpectedAnswer, match=said):
        archive.import_pages(saved, fill_type="amm")
    [line] = archive.report().to_dict("records")
    assert (line["fill_type"], line["complete"]) == ("amm", True)


def test_of_files_of_one_time_the_last_one_imported_is_current(tmp_path):
    """Files that were unpacked have one time; before and after its block is known, a trade has two contents."""
    save_listings(tmp_path)
    for number, block in enumerate(["0", "777"]):
        file = tmp_path / f"147661-dex.{number}.json"
        file.write_bytes(page([row(id="1", blockId=block)]))
        os.utime(file, (1.7e9, 1.7e9))
    pages_of_one_file = tmp_path / "147661-dex.2.jsonl"
    texts = [page([row(id="2", blockId=block)]) for block in ("0", "778")]
    pages_of_one_file.write_bytes(b"\n".join(texts))
    archive = Archive(tmp_path / "a")
    archive.import_pages(tmp_path)
    assert archive.trades().sort_values("trade_id")["block_id"].tolist() == [777, 778]
    assert lab.fees.summary(archive)["fills"].sum() == 2
    assert archive.scan("pyarrow").num_rows == 2


def test_a_market_that_is_listed_later_gives_its_trades_their_amounts(tmp_path):
    """A listing that lacks it once more takes nothing away."""
    archive = Archive(tmp_path / "a")
    (tmp_path / "source.json").write_text('{"name": "one exchange"}')
    amounts = []
    for number, is_listed in enumerate([False, True, False]):
        folder = tmp_path / str(number)
        folder.mkdir()
        save_listings(folder)
        if not is_listed:
            (folder / "markets.json").write_text('{"markets": []}')
        (folder / "147661-dex.json").write_bytes(page([row()]))
        [line] = archive.import_pages(folder).to_dict("records")
        amounts += archive.trades()["size"].astype(str).tolist()
        assert (line["rows"], line["second_versions"]) == (1, 0)
        assert line["odd"] == (number == 0)
    assert amounts[1:] == ["453.794", "453.794"]


def test_a_part_of_a_history_is_reported_as_missing_the_rest(saved, small, tmp_path):
    account = small.accounts[0]
    first, *rest = pages(small, account, "dex")
    (saved / f"{account}-dex.json").write_bytes(first)
    archive = Archive(tmp_path / "a")
    [line] = archive.import_pages(saved / f"{account}-dex.json").to_dict("records")
    assert (line["rows"], line["complete"]) == (50, False)
    assert line["missing"] == sum(len(json.loads(page)["trades"]) for page in rest) > 0
    (saved / f"{account}-dex.1.json").write_bytes(rest[0])
    assert archive.import_pages(saved)["complete"].all()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("1-dex.json", b'{"totalNum": 1, "trades": [[', "1-dex.json: expected JSON"),
        ("1-dex.json", b'{"markets": []}', "1-dex.json: expected an object with"),
        (
            "1-dex.jsonl.gz",
            gzip.compress(b'{"trades": []}' * 99, mtime=0)[:40],
            "a whole gzip file",
        ),
        ("x.json", page([row()[:7]]), "Give account_id="),
    ],
)
def test_a_file_that_cannot_be_used_is_named(saved, tmp_path, name, content, said):
    (saved / name).write_bytes(content)
    with pytest.raises(UnexpectedAnswer, match=said):
        Archive(tmp_path / "a").import_pages(saved / name)


def test_a_fill_type_is_not_guessed(saved, small, tmp_path):
    """Without a listing, too: that of the package depends on the markets of the trades."""
    elsewhere = tmp_path / "x.json"
    elsewhere.write_bytes(page([row()]))
    with pytest.raises(UnexpectedAnswer, match=r"x\.json, market: .*Give fill_type="):
        Archive(tmp_path / "b").import_pages(elsewhere)
    content = pages(small, small.accounts[0], "dex")[0]
    (saved / "book.json").write_bytes(content)
    with pytest.raises(UnexpectedAnswer, match="Give fill_type=, or name the file"):
        Archive(tmp_path / "a").import_pages(saved / "book.json", small.accounts[0])


def test_without_a_listing_the_real_exchange_s_is_taken_as_by_connect(tmp_path, capsys):
    folder = tmp_path / "deep" / "saved"
    folder.mkdir(parents=True)
    file = folder / "7-amm.json"
    file.write_bytes(page([row()[:7]], total=3))
    archive = Archive(tmp_path / "a")
    report = archive.import_pages(file)
    assert report[["rows", "missing"]].to_numpy().tolist() == [[1, 2]]
    absent = f"{folder}: no tokens.json and markets.json in it or in the folder above"
    said = f"{absent}; they are the exchange's own, as this package brings them.\n"
    assert capsys.readouterr().out == said
    client = lab.connect(recording=file)
    assert_frame_equal(archive.trades(), client.trades(7))
    # The listing is the archive's from now on.
    capsys.readouterr()
    archive.import_pages(file)
    assert not capsys.readouterr().out
    file.write_bytes(page([row(market="NEW-COIN")[:7]]))
    with pytest.raises(LabError, match="does not bring the market NEW-COIN") as caught:
        Archive(tmp_path / "b").import_pages(file)
    assert str(caught.value).startswith(absent)


def test_the_current_folder_has_a_name_and_a_folder_above(
    saved, small, tmp_path, monkeypatch, capsys
):
    account = small.accounts[0]
    file = Path(f"{account}-dex.json")
    (saved / "trades").mkdir()
    monkeypatch.chdir(saved / "trades")
    file.write_bytes(pages(small, account, "dex")[0])
    assert Archive(tmp_path / "a").import_pages(file)["rows"].tolist() == [50]
    assert not capsys.readouterr().out
    file.write_text('{"totalNum": 0, "trades": []}')
    (saved / "tokens.json").unlink()
    with pytest.raises(LabError) as caught:
        Archive(tmp_path / "b").import_pages(file)
    assert str(caught.value).startswith(f"{saved / 'trades'}: no tokens.json")


def test_a_file_that_holds_no_pages_is_said_to_be_that_wherever_it_is_from(
    archive, tmp_path
):
    file = tmp_path / "t.csv"
    archive.trades().to_csv(file)
    for into in (archive, Archive(tmp_path / "new")):
        with pytest.raises(UnexpectedAnswer, match=r"t\.csv: .*lab\.tables\.read_csv"):
            into.import_pages(file)


@pytest.mark.parametrize("name", ["x.json", "8-dex.json"])
def test_an_import_that_adds_nothing_binds_a_new_archive_to_nothing(tmp_path, name):
    """The file may then be put where it belongs, beside a listing that was corrected."""
    archive = Archive(tmp_path / "a")
    for folder, file in (("downloads", name), ("saved", "147661-dex.json")):
        (tmp_path / folder).mkdir()
        save_listings(tmp_path / folder)
        (tmp_path / folder / file).write_bytes(page([row(id="1")]))
    listed = tmp_path / "downloads" / "tokens.json"
    listed.write_text(listed.read_text().replace("18", "17"))
    with pytest.raises(UnexpectedAnswer):
        archive.import_pages(tmp_path / "downloads")
    assert archive.source is None
    archive.import_pages(tmp_path / "saved")
    assert archive.source == str((tmp_path / "saved").resolve())
    assert archive.trades()["size"].tolist() == [Decimal("453.794")]


def test_listings_without_trades_and_no_paths_are_refused(saved, archive):
    """A folder that holds its trades elsewhere added nothing, in silence."""
    for paths in (saved, [saved / "tokens.json"]):
        with pytest.raises(LabError, match=rf"{saved}: no file besides tokens\.json"):
            archive.import_pages(paths)
    with pytest.raises(LabError, match=r"no file is given\. Give saved responses"):
        archive.import_pages([])
    for paths in (None, 5, [5]):
        with pytest.raises(LabError, match="A path is text or a"):
            archive.import_pages(paths)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "nowhere"),
        ("empty", "empty"),
        ("a" * 300, r"no file can have this path \(.*too long\)"),
    ],
)
def test_a_path_without_files_is_refused(tmp_path, path, said):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LabError, match=said):
        Archive(tmp_path / "a").import_pages(tmp_path / path)


def test_a_file_that_cannot_be_used_keeps_no_other_from_being_imported(
    saved, small, tmp_path
):
    """One file is cut, and one has a row of another account: of neither a row is kept."""
    first, second = small.accounts
    for account in small.accounts:
        body = b"\n".join(pages(small, account, "amm"))
        (saved / f"{account}-amm.jsonl").write_bytes(body)
    cut = saved / f"{first}-dex.json"
    cut.write_bytes(b'{"totalNum": 9, "trades": ')
    archive = Archive(tmp_path / "a")
    with pytest.raises(UnexpectedAnswer, match=f"{first}-dex.json"):
        archive.import_pages(saved)
    cut.write_bytes(pages(small, second, "dex")[0])
    with pytest.raises(UnexpectedAnswer, match=f"expected account {first}"):
        archive.import_pages(saved)
    report = archive.report()
    assert report["account_id"].tolist() == small.accounts
    assert report["fill_type"].tolist() == ["amm", "amm"]
    assert report["complete"].all()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("2-dex.json.gz", gzip.compress(page([row()]), mtime=0)[:-9], "a whole gzip"),
        ("2.har", b'{"log": {"version": "1.2", "entries": [', "2.har: expected JSON"),
    ],
)
def test_a_file_that_is_cut_off_keeps_no_other_from_being_imported(
    tmp_path, name, content, said
):
    save_listings(tmp_path)
    (tmp_path / name).write_bytes(content)
    for account in ("1", "3"):
        saved = tmp_path / f"{account}-dex.json"
        saved.write_bytes(page([row(accountId=account)]))
    archive = Archive(tmp_path / "a")
    with pytest.raises(UnexpectedAnswer, match=f"{said}.*other files are imported"):
        archive.import_pages(tmp_path)
    assert archive.trades()["account_id"].tolist() == [1, 3]


def test_an_account_s_fills_saved_as_both_types_are_refused_until_one_is_gone(
    saved, small, tmp_path
):
    first = small.accounts[0]
    book = pages(small, first, "dex")
    files = [saved / f"{first}-{kind}.jsonl" for kind in ("amm", "dex")]
    for file in files:
        file.write_bytes(b"\n".join(book))
    archive = Archive(tmp_path / "a")
    said = f"account {first}, fillTypes: .* as both.*These files are not added"
    with pytest.raises(UnexpectedAnswer, match=said):
        archive.import_pages(saved)
    files[0].unlink()
    [line] = archive.import_pages(saved).to_dict("records")
    assert (line["account_id"], line["complete"]) == (first, True)


def huge(path):
    with path.open("wb") as file:
        file.truncate(10 << 30)


def packed(content, *, cut=0, level=9):
    """Make a way to write a gzip file, without its last bytes."""

    def make(path):
        packed = gzip.compress(content, level)
        path.write_bytes(packed[: len(packed) - cut])

    return make


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (huge, "a file of at most 32 MiB"),
        (packed(bytes(33 << 20), level=1), "a file of at most 32 MiB"),
        (packed(b'{"trades":[]}' + b"\n" * (5 << 20)), "a plausible gzip file"),
        (packed(b'{"trades":[]}', cut=6), "a whole gzip file"),
        (lambda path: path.write_bytes(b"[" * 300_000), "brackets nested over 64 deep"),
        (
            lambda path: path.write_bytes(rb'{"trades":[["\ud800"]]}'),
            "half of a surrogate pair at 13",
        ),
        (lambda path: path.symlink_to("/dev/zero"), "no such file|a pipe or a device"),
        (
            lambda path: path.symlink_to(path),
            "no file can have this path|a readable file",
        ),
        (os.mkfifo, "no such file|a pipe or a device"),
        (Path.mkdir, "a readable file|no file ends in"),
    ],
    ids=range(10),
)
@pytest.mark.parametrize("named", ["file", thorough("folder")])
def test_hostile_files_are_refused_by_name(saved, tmp_path, make, said, named):
    path = saved / "1-dex.json"
    make(path)
    with pytest.raises(LabError, match=f"1-dex.json.*({said})"):
        Archive(tmp_path / "a").import_pages(saved if named == "folder" else path)


def test_a_listing_that_cannot_be_read_is_named_with_its_folder(saved, tmp_path):
    (saved / "markets.json").write_text('[{"market": "A-B"}]')
    (saved / "1-dex.json").write_bytes(b'{"trades": []}')
    with pytest.raises(UnexpectedAnswer) as caught:
        Archive(tmp_path / "a").import_pages(saved)
    assert str(caught.value).startswith(
        f"{saved}, markets[0].base_token_id: expected a"
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "expected text in UTF-8"),
        (b"[" * 300_000, "nested over"),
        (b" " * (17 << 20), "at most 16 MiB"),
    ],
    ids=["not UTF-8", "deep", "long"],
)
def test_hostile_listings_are_refused_by_name(saved, tmp_path, content, said):
    (saved / "tokens.json").write_bytes(content)
    (saved / "1-dex.json").write_bytes(b'{"trades": []}')
    with pytest.raises(UnexpectedAnswer, match=f"tokens.*{said}"):
        Archive(tmp_path / "a").import_pages(saved)
