"""An archive holds the trades of one source: who may write to it, and who is refused."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.archive_kills import check
from support.named_sources import Named, addressed, held, race_once, racing, silent
from support.saved_pages import save

import loopring_lab as lab
from loopring_lab.archive import Archive
from loopring_lab.archive import sync as syncing
from loopring_lab.errors import ArchiveError, LabError, UnexpectedAnswer
from loopring_lab.origin import Source
from loopring_lab.relayer import Relayer, Settings

ONE, OTHER = Named("world one", 1), Named("world two", 2)
REAL = Named("world one", 3, synthetic=False)
ACCOUNT = ONE.accounts[0]
EXCHANGE = "0x" + "12" * 20


@pytest.fixture(scope="module")
def of_world_one(tmp_path_factory):
    file = tmp_path_factory.mktemp("world one") / "a"
    with Relayer(ONE) as relayer:
        Archive(file).sync(addressed(relayer), account_id=ACCOUNT)
    return file


@pytest.fixture
def archive(of_world_one, tmp_path):
    """An archive of world one, the test's own."""
    return Archive(shutil.copy(of_world_one, tmp_path / "a"))


def contents(path):
    return {
        file: file.read_bytes()
        for file in path.parent.glob(f"{path.name}*")
        if file.is_file()
    }


def assert_refused(archive, client, *said):
    """Check that a sync is refused, that the error names both sources, and that nothing is written."""
    before = contents(archive._file.path)
    with pytest.raises(ArchiveError) as caught:
        archive.sync(client, account_id=ACCOUNT)
    for words in (*said, "nothing was added", "use another file"):
        assert words in str(caught.value)
    assert contents(archive._file.path) == before


@pytest.mark.parametrize(
    "other", [OTHER, REAL], ids=["another world", "real data of the same name"]
)
def test_another_source_is_refused(archive, other):
    with Relayer(other) as relayer:
        assert_refused(
            archive,
            addressed(relayer),
            "'world one' (synthetic",
            f"are from '{other.name}'",
        )


@pytest.mark.parametrize(("name", "value"), [("exchange", EXCHANGE), ("chain_id", 5)])
def test_another_exchange_at_the_same_address_is_refused(archive, name, value):
    with Relayer(ONE, Settings(**{name: value})) as relayer:
        assert_refused(archive, addressed(relayer), f"{name.partition('_')[0]} {value}")


def test_an_exchange_once_known_is_kept_to(tmp_path, saved):
    archive = Archive(tmp_path / "a")
    (saved / "source.json").write_text('{"name": "world one", "synthetic": true}')
    archive.import_pages(saved)
    assert archive._file.source() == Source("world one", True)
    with Relayer(ONE) as relayer:
        archive.sync(addressed(relayer), account_id=ACCOUNT)
    assert archive._file.source().chain_id == Settings().chain_id
    assert archive.verify().empty
    with Relayer(ONE, Settings(exchange=EXCHANGE)) as relayer:
        assert_refused(archive, addressed(relayer), EXCHANGE)


def test_the_same_source_at_another_address_is_accepted(archive):
    with Relayer(ONE) as relayer:  # on a port of its own
        by_name = relayer.base_url.replace("127.0.0.1", "localhost")
        for url in (relayer.base_url, by_name + "/api/v3/"):
            assert archive.sync(addressed(relayer, url), account_id=ACCOUNT)[
                "complete"
            ].all()
    check(archive._file.path, *ONE.truth())


def test_a_relayer_that_states_nothing_is_known_by_its_address(tmp_path):
    archive = Archive(tmp_path / "a")
    with Relayer(ONE) as relayer, silent(relayer) as server, silent(relayer) as other:
        url = server.base_url
        for address in (url, url.replace("http", "HTTP") + "/"):
            archive.sync(addressed(relayer, address), account_id=ACCOUNT)
        assert archive.source == url
        moved = addressed(relayer, other.base_url)
        assert_refused(archive, moved, url, other.base_url)
        moved._name = url  # as connect(address, source=archive.source) does
        assert archive.sync(moved, account_id=ACCOUNT)["complete"].all()
    assert archive.trades().attrs["synthetic"] is False


def test_made_up_data_never_passes_as_real(tmp_path):
    archive = Archive(tmp_path / "a")
    assert archive.source is None
    with Relayer(ONE) as relayer:
        how = {"api_key": relayer.api_key, "source": "my exchange", "rate": None}
        archive.sync(lab.connect(relayer.base_url, **how), account_id=ACCOUNT)
    assert archive.trades().attrs["synthetic"] is True
    assert archive.trades().attrs["source"] == archive.source


@pytest.mark.thorough
def test_a_relayer_that_becomes_another_during_a_sync_adds_nothing_more(tmp_path):
    archive = Archive(tmp_path / "a")
    with Relayer(ONE) as relayer, Relayer(OTHER) as other:
        client = addressed(relayer)
        archive.sync(client, account_id=ACCOUNT)
        before = contents(tmp_path / "a")
        client._transport.base_url = other.base_url
        with pytest.raises(UnexpectedAnswer, match="connect again"):
            archive.sync(client, account_id=ACCOUNT)
    assert contents(tmp_path / "a") == before


def test_an_archive_that_is_replaced_during_a_sync_is_not_written_to(
    archive, monkeypatch
):
    path = archive._file.path
    with Relayer(ONE) as relayer, Relayer(OTHER) as other:

        def replaced(*words):
            monkeypatch.undo()
            path.unlink()
            Archive(path).sync(addressed(other), account_id=ACCOUNT)
            return convert(*words)

        convert = syncing.to_rows
        monkeypatch.setattr("loopring_lab.archive.sync.to_rows", replaced)
        with pytest.raises(ArchiveError, match=r"'world two'.* are from 'world one'"):
            archive.sync(addressed(relayer), account_id=ACCOUNT, full=True)
    assert held(path) == OTHER.truth()[0]


@pytest.mark.thorough
def test_first_syncs_of_different_sources_never_mix(tmp_path):
    with racing(3) as (racers, truths), ThreadPoolExecutor(3) as pool:
        for number in range(6):
            race_once(racers, truths, tmp_path / str(number), pool)


# Saved pages


@pytest.fixture
def saved(tmp_path):
    return save(ONE, tmp_path / "saved")


def test_saved_pages_are_known_by_their_folder(tmp_path, saved):
    archive, other = Archive(tmp_path / "a"), save(OTHER, tmp_path / "other")
    archive.import_pages(saved)
    assert archive.source == str(saved.resolve())
    assert archive.import_pages(saved / "trades" / f"{ACCOUNT}-amm.json")[
        "complete"
    ].all()
    assert archive.sync(lab.connect(recording=saved), account_id=ACCOUNT)[
        "complete"
    ].all()
    before = contents(tmp_path / "a")
    with pytest.raises(
        ArchiveError, match=r"source=archive\.source, or a source\.json"
    ):
        archive.import_pages(other)
    assert contents(tmp_path / "a") == before
    assert archive.import_pages(other, source=archive.source)["rows"].sum() == 60


def test_a_name_beside_saved_pages_counts_wherever_they_are(tmp_path, saved):
    (saved / "source.json").write_text('{"name": "my exchange"}')
    archive = Archive(tmp_path / "a")
    archive.import_pages(saved)
    moved = saved.rename(tmp_path / "moved")
    archive.import_pages(moved / "trades")
    assert archive.sync(lab.connect(recording=moved), account_id=ACCOUNT)[
        "complete"
    ].all()
    assert archive.source == "my exchange"
    with pytest.raises(LabError, match="names 'my exchange'. Leave one of them out"):
        archive.import_pages(moved, source="another")


def test_pages_saved_from_a_synthetic_world_stay_synthetic(archive, saved):
    with pytest.raises(ArchiveError, match="nothing was added"):
        archive.import_pages(saved)
    archive.import_pages(saved, source=archive.source)
    assert archive.trades().attrs["synthetic"] is True
    (saved / "source.json").write_text('{"name": "world one"}')
    with pytest.raises(ArchiveError, match=r"'world one' \(synthetic"):
        archive.import_pages(saved)


@pytest.mark.thorough
def test_a_name_given_to_pages_is_completed_by_the_source_itself(tmp_path, saved):
    archive = Archive(tmp_path / "a")
    with Relayer(ONE) as relayer:
        client = addressed(relayer)
        client.tokens()  # it states its name in its first answer
        archive.import_pages(saved, source=client.source)
        assert archive.source == client.source == "world one"
        assert archive.sync(client, account_id=ACCOUNT)["complete"].all()
    # From here on the archive knows what it holds: that is made up, and of one exchange.
    assert archive.synthetic is True
    assert archive.trades().attrs["synthetic"] is True
    check(archive._file.path, *ONE.truth())
    with Relayer(REAL) as relayer:
        assert_refused(archive, addressed(relayer), "'world one' (synthetic")
    archive.import_pages(saved, source=archive.source)
    assert archive.synthetic is True


def test_the_advice_to_give_a_source_the_archive_s_name_helps(tmp_path, saved):
    archive = Archive(tmp_path / "a")
    archive.import_pages(saved, source="my own name")
    with Relayer(ONE) as relayer:
        assert_refused(archive, addressed(relayer), "source=archive.source")
        how = {"api_key": relayer.api_key, "source": archive.source, "rate": None}
        client = lab.connect(relayer.base_url, **how)
        assert archive.sync(client, account_id=ACCOUNT)["complete"].all()
    assert archive.source == "my own name"
    assert archive.synthetic is True


def test_pages_far_from_listings_use_those_of_the_archive(archive, tmp_path, saved):
    alone = tmp_path / "far" / "away" / f"{ACCOUNT}-dex.json"
    alone.parent.mkdir(parents=True)
    (saved / "trades" / alone.name).rename(alone)
    with pytest.raises(ArchiveError, match="nothing was added"):
        archive.import_pages(alone)
    assert archive.import_pages(alone, source=archive.source)["complete"].all()


class Rescaled(Named):
    """A source that lists LRC with other decimals."""

    def tokens(self):
        changed = {"LRC": {"decimals": 15}}
        return [token | changed.get(token["symbol"], {}) for token in super().tokens()]


def test_another_scale_of_a_token_is_refused_before_anything_is_written(
    archive, tmp_path
):
    """Whichever listing of the archive has it, as one may leave a token out."""
    changed = Rescaled("world one", 1, trades=40)
    said = "token LRC (tokenId 1) has 18 decimals as listed on "
    with Relayer(changed) as relayer:
        assert_refused(
            archive, addressed(relayer), said, "and 15 in the listing of world one"
        )
    folder = save(changed, tmp_path / "rescaled")
    listed = folder / "tokens.json"
    others = [one for one in changed.tokens() if one["symbol"] != "LRC"]
    text = listed.read_text()
    listed.write_text(json.dumps(others))
    archive.import_pages(folder, source=archive.source)
    listed.write_text(text)
    before = contents(archive._file.path)
    with pytest.raises(ArchiveError) as caught:
        archive.import_pages(folder, source=archive.source)
    for words in (
        said,
        f"and 15 in the listing of {folder}",
        "nothing was added",
        "use another file",
    ):
        assert words in str(caught.value)
    assert contents(archive._file.path) == before


@pytest.mark.parametrize("name", [5, True, b"x", "", " ", 4097 * "a"])
def test_a_name_of_a_source_is_text(tmp_path, saved, name):
    for use in (
        lambda: lab.connect("https://host", source=name),
        lambda: lab.connect(recording=saved, source=name),
        lambda: Archive(tmp_path / "a").import_pages(saved, source=name),
    ):
        with pytest.raises(LabError, match="source: expected a name of 1 to 4,096"):
            use()
    assert not (tmp_path / "a").exists()


def test_a_relayer_without_markets_is_not_taken_for_blocks(tmp_path, saved):
    archive = Archive(tmp_path / "a")
    markets = (saved / "markets.json").read_text()
    (saved / "markets.json").write_text("[]")
    assert archive.import_pages(saved)["odd"].sum() == 30
    assert archive.trades()["market"].notna().all()
    (saved / "markets.json").write_text(markets)
    assert archive.import_pages(saved)["odd"].sum() == 0


@pytest.mark.parametrize("text", ["[]", "{", '{"name": ""}', '{"name": "x", "synthetic": "no"}', '{"name": "x", "chainId": "1"}'])  # fmt: skip
def test_a_source_file_that_cannot_be_read_is_named(tmp_path, saved, text):
    (saved / "source.json").write_text(text)
    with pytest.raises(UnexpectedAnswer, match=r"source\.json: expected"):
        Archive(tmp_path / "a").import_pages(saved)
    assert not (tmp_path / "a").exists()
