"""An archive compared with the relayer it was synced from: complete, exact, few requests, no duplicates."""

import json
import multiprocessing
import random
import subprocess
import sys
from decimal import Decimal

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.archive_kills import check
from support.ledger import Ledger, client_of, count_rows, served
from support.optional import thorough
from support.other_wires import ORDERS, Rewired

from loopring_lab.archive import Archive
from loopring_lab.errors import (
    IncompleteHistory,
    LabError,
    NotAuthorized,
    UnexpectedAnswer,
)
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, Settings
from loopring_lab.sources.client import Client

PAGE = 50


@pytest.fixture(scope="module")
def ledger():
    return Ledger(accounts=3, trades=420)


@pytest.fixture(scope="module")
def filled(ledger, tmp_path_factory):
    with Relayer(ledger) as relayer:
        archive = Archive(tmp_path_factory.mktemp("archive") / "filled")
        archive.sync(client_of(relayer), accounts=ledger.accounts)
        yield archive, client_of(relayer)


def changed(client, change):
    """Change a client's pages on their way."""
    get = client._transport.get

    def get_changed(path, params=None, **how):
        body = get(path, params, **how)
        if path != "/user/trades":
            return body
        answer = json.loads(body)
        change(answer, params)
        return json.dumps(answer).encode()

    client._transport.get = get_changed  # type: ignore[method-assign]
    return client


@pytest.mark.parametrize(
    "span",
    [thorough({}), {"since": "2021-12-20T11:40", "until": "2021-12-20T11:45Z"}],
)
def test_the_archive_gives_the_frame_that_the_client_gives(filled, ledger, span):
    archive, client = filled
    for account in ledger.accounts:
        ours = archive.trades(account, **span)
        theirs = client.trades(account, **span)
        assert_frame_equal(ours, theirs)
        assert ours.attrs == theirs.attrs
        assert ours["market"].cat.categories.equals(theirs["market"].cat.categories)
        assert (0 < len(ours) < 420) is bool(span)
    check(archive._file.path, *ledger.truth())


def test_times_finer_than_those_of_trades_select_what_pandas_selects(filled):
    archive, _ = filled
    trades = archive.trades()
    moment = trades["created_at"][500]
    for nanoseconds in (-1_000_001, -1_000, -1, 0, 1, 999, 1_000, 999_999):
        span = moment + pd.Timedelta(nanoseconds, "ns")
        later = trades["created_at"] >= span
        assert len(archive.trades(since=span)) == later.sum()
        assert len(archive.trades(until=span)) == len(trades) - later.sum()
    # The last and the first time of pandas's nanoseconds serve as no limit.
    assert len(archive.trades(since=pd.Timestamp.min, until=pd.Timestamp.max)) == 1_260


def test_the_report_says_what_is_held(filled, ledger):
    archive, client = filled
    report = archive.report()
    assert report["account_id"].tolist() == sorted(ledger.accounts * 2)
    assert report["fill_type"].tolist() == ["amm", "dex"] * 3
    for line in report.itertuples():
        trades = client.trades(line.account_id, fill_type=line.fill_type)
        assert line.rows == line.total == len(trades)
        assert line.first == trades["created_at"].min()
        assert line.last == trades["created_at"].max()
    assert report["missing"].tolist() == [0] * 6
    assert report["complete"].all()
    assert str(report["synced_at"].dtype) == "datetime64[ms, UTC]"


# Economy


@pytest.mark.parametrize(
    "order",
    [
        thorough("newest"),
        thorough("oldest"),
        "shuffled",
    ],
)
def test_a_sync_with_nothing_new_asks_at_most_twice(tmp_path, order):
    ledger = Ledger(accounts=2, trades=420)
    with Relayer(Rewired(ledger, order)) as relayer:
        archive, client = Archive(tmp_path / "a"), client_of(relayer)
        archive.sync(client, accounts=ledger.accounts)
        before = relayer.counts.requests["/user/trades"]
        rows = [
            len(relayer.rows(account, kind))
            for account in ledger.accounts
            for kind in ("amm", "dex")
        ]
        # The pages of each history, and one that shows its end.
        assert before == sum(-(-count // PAGE) + 1 for count in rows)
        archive.sync(client, accounts=ledger.accounts)
        assert relayer.counts.requests["/user/trades"] - before <= 2 * 2 * 2


class Growing(Ledger):
    """A ledger of which only the oldest rows are shown at first."""

    def __init__(self, trades, shown):
        super().__init__(1, trades)
        self.keys = [
            key._replace(fill_type="dex", market="LRC-ETH") for key in self.keys
        ]
        sold = {"SELL": "1", "BUY": "0"}
        self.rows = [
            (*row[:5], "LRC-ETH", *row[6:10], sold[row[2]], *row[11:])
            for row in self.rows
        ]
        self.all_keys, self.keys = self.keys, self.keys[:shown]

    def show(self, shown):
        self.keys = self.all_keys[:shown]
        vars(self).pop("history", None)
        return self


@pytest.mark.parametrize(
    ("order", "fresh"),
    [
        ("newest", 51),
        thorough("oldest", 120),
        *(
            thorough(order, fresh)
            for order in ("newest", "oldest")
            for fresh in (1, 50)
        ),
    ],
)
def test_so_many_new_trades_cost_no_more_than_their_pages_and_two(
    tmp_path, order, fresh
):
    ledger = Growing(500, 273)
    archive = Archive(tmp_path / "a")
    for shown in (273, 273 + fresh):
        with Relayer(Rewired(ledger.show(shown), order)) as relayer:
            report = archive.sync(client_of(relayer), account_id=20_000)
            asked = relayer.counts.requests["/user/trades"]
            truth = count_rows(served(relayer, [20_000]))
    assert report["rows"].sum() == 273 + fresh
    assert report["complete"].all()
    # One is for the empty history of the other fill type.
    assert asked <= 1 + -(-fresh // PAGE) + 2
    check(tmp_path / "a", *truth)


def test_an_interrupted_sync_is_resumed_at_both_ends(tmp_path):
    ledger = Growing(3_000, 2_000)
    archive = Archive(tmp_path / "a")
    pages = iter(range(15))

    def interrupted(answer, params):
        if next(pages, None) is None:
            raise KeyboardInterrupt

    with Relayer(ledger) as relayer:
        client = changed(client_of(relayer), interrupted)
        with pytest.raises(KeyboardInterrupt):
            archive.sync(client, account_id=20_000)
        held = archive.report()["rows"].sum()
        assert 0 < held < 2_000
    with Relayer(ledger.show(2_030)) as relayer:
        report = archive.sync(client_of(relayer), account_id=20_000)
        assert relayer.counts.requests["/user/trades"] <= 1 + (2_030 - held) // PAGE + 4
        truth = count_rows(served(relayer, [20_000]))
    assert report["complete"].all()
    check(tmp_path / "a", *truth)


def test_since_reads_no_further_than_it_must_and_the_rest_comes_later(tmp_path):
    ledger = Growing(2_000, 2_000)
    archive = Archive(tmp_path / "a")
    moment = pd.Timestamp(1_640_000_000_000 + 977 * 1_900, unit="ms", tz="UTC")
    with Relayer(ledger) as relayer:
        report = archive.sync(
            client_of(relayer), account_id=20_000, since=moment
        ).set_index("fill_type")
        assert relayer.counts.requests["/user/trades"] <= 1 + 4
        assert 100 <= report.loc["dex", "rows"] <= 200
        assert report.loc["dex", "missing"] == 2_000 - report.loc["dex", "rows"]
        assert not report.loc["dex", "complete"]
        assert len(archive.trades(20_000, since=moment)) == 100
        assert archive.sync(client_of(relayer), account_id=20_000)["complete"].all()
        check(tmp_path / "a", *count_rows(served(relayer, [20_000])))


# Changes, growth, two at once


def test_a_changed_row_is_kept_as_a_second_version(tmp_path):
    ledger = Growing(120, 120)
    archive = Archive(tmp_path / "a")
    old = ledger.rows[119]
    for block in (old[7], "777777"):
        ledger.rows[119] = (*old[:7], block, *old[8:])
        with Relayer(ledger) as relayer:
            client = client_of(relayer)
            report = archive.sync(client, account_id=20_000).set_index("fill_type")
            assert_frame_equal(archive.trades(20_000), client.trades(20_000))
    assert (report.loc["dex", "rows"], report.loc["dex", "second_versions"]) == (120, 1)
    assert report["complete"].all()
    versions = archive.query(
        f"FROM rows WHERE trade_id = {old[1]} ORDER BY version"
    ).to_dict("records")
    assert [
        (one["version"], one["current"], json.loads(one["verbatim"])[7])
        for one in versions
    ] == [(1, False, old[7]), (2, True, "777777")]


class Relisted(Ledger):
    """A source that has changed the decimals and the id of LRC, and uses the id in rows from `start` on."""

    decimals, token_id = 15, 77

    def __init__(self, trades, start):
        super().__init__(1, trades)
        for place, row in enumerate(self.rows[start:], start):
            token = str(self.token_id) if row[10] == "1" else row[10]
            self.rows[place] = (*row[:10], token, *row[11:])

    def tokens(self):
        changed = {"tokenId": self.token_id, "decimals": self.decimals}
        return [
            token | changed if token["symbol"] == "LRC" else token
            for token in super().tokens()
        ]

    def markets(self):
        changed = {"baseTokenId": self.token_id}
        return [
            one | changed if one["market"].startswith("LRC-") else one
            for one in super().markets()
        ]


def test_rows_keep_the_decimals_and_ids_of_their_time(tmp_path):
    earlier, later = Ledger(1, 40), Relisted(60, start=40)
    account = earlier.accounts
    for source in (earlier, later):
        with Relayer(source) as relayer:
            archive = Archive(tmp_path / "a")
            for full in (False, source is later):
                assert archive.sync(client_of(relayer), accounts=account, full=full)[
                    "complete"
                ].all()
    units = [18] * 40 + [Relisted.decimals] * 20
    for read in (archive.trades(), Archive(tmp_path / "a").trades()):
        for size, row, decimals in zip(read["size"], later.rows, units, strict=True):
            assert size == Decimal(row[3]).scaleb(
                -decimals if "LRC-ETH" in row[5] else -18
            )
        assert read["token_id"].tolist() == [int(row[10]) for row in later.rows]
    assert {77, 1} < set(archive.trades()["token_id"])
    assert archive.report()["second_versions"].sum() == 0


def test_what_the_relayer_lists_no_more_stays(tmp_path):
    ledger = Growing(300, 300)
    archive = Archive(tmp_path / "a")
    with Relayer(ledger) as relayer:
        archive.sync(client_of(relayer), account_id=20_000)
    # The oldest are gone.
    ledger.all_keys = ledger.all_keys[60:]
    ledger.rows = ledger.rows[60:]
    with Relayer(ledger.show(240)) as relayer:
        client = client_of(relayer)
        report = archive.sync(client, account_id=20_000).set_index("fill_type")
        assert (report.loc["dex", "rows"], report.loc["dex", "total"]) == (300, 240)
        assert report["complete"].all()
        assert report["gone"].to_dict() == {"amm": 0, "dex": 60}
        before = relayer.counts.requests["/user/trades"]
        archive.sync(client, account_id=20_000)
        assert relayer.counts.requests["/user/trades"] - before <= 2


@pytest.mark.thorough
@pytest.mark.parametrize("order", ORDERS)
def test_a_relayer_that_grows_while_it_is_read_is_whole_in_the_end(tmp_path, order):
    ledger = Ledger(accounts=3, trades=400, seed=4)
    with Relayer(Rewired(ledger, order), Settings(growth=4)) as relayer:
        archive, client = Archive(tmp_path / "a"), client_of(relayer)
        for _ in range(20):
            archive.sync(client, accounts=ledger.accounts)
            if archive.report()["rows"].sum() == 3 * 400:
                break
    check(tmp_path / "a", *ledger.truth())


def sync_alone(path, url, key, accounts, seed):
    random.Random(seed).shuffle(accounts)
    client = Client(
        Transport(url, api_key=key, rate=None, proxies=False), "ledger", synthetic=True
    )
    Archive(path).sync(client, accounts=accounts, progress=False)


@pytest.mark.thorough
def test_concurrent_syncs_both_succeed_and_create_no_duplicates(tmp_path):
    ledger = Ledger(accounts=3, trades=600)
    spawn = multiprocessing.get_context("spawn")
    with Relayer(ledger) as relayer:
        words = (tmp_path / "a", relayer.base_url, relayer.api_key[:], ledger.accounts)
        both = [
            spawn.Process(target=sync_alone, args=(*words, seed)) for seed in (1, 2)
        ]
        for process in both:
            process.start()
        for process in both:
            process.join(600)
    assert [process.exitcode for process in both] == [0, 0]
    check(tmp_path / "a", *ledger.truth())
    assert Archive(tmp_path / "a").verify().empty


# Refusals


def test_one_history_that_cannot_be_read_does_not_keep_others_from_it(tmp_path, ledger):
    first = ledger.accounts[0]

    def short(answer, params):
        if params["accountId"] == first:
            answer["totalNum"] += 5

    archive = Archive(tmp_path / "a")
    with (
        Relayer(ledger) as relayer,
        pytest.raises(IncompleteHistory, match=f"account {first}, "),
    ):
        archive.sync(changed(client_of(relayer), short), accounts=ledger.accounts)
    report = archive.report()
    lacking = report[~report["complete"]]
    assert lacking["account_id"].tolist() == [first] * 2
    assert lacking["missing"].tolist() == [5, 5]
    assert report["rows"].sum() == 3 * 420


def test_a_history_whose_turn_never_came_is_not_complete(tmp_path):
    ledger = Ledger(accounts=1, trades=20)
    account = ledger.accounts[0]

    def stopped(answer, params):
        if params["fillTypes"] == "dex":
            raise KeyboardInterrupt

    archive = Archive(tmp_path / "a")
    with Relayer(ledger) as relayer:
        with pytest.raises(KeyboardInterrupt):
            archive.sync(changed(client_of(relayer), stopped), account)
        report = archive.report()
        assert report["fill_type"].tolist() == ["amm", "dex"]
        assert report["complete"].tolist() == [True, False]
        assert report["rows"].tolist() == [len(archive.trades()), 0]
        assert report.iloc[1][["total", "missing", "gone"]].isna().all()
        said = "0 missing; 1 histories have not been read completely yet."
        assert said in archive._repr_html_()
        assert archive.sync(client_of(relayer), account)["complete"].all()


def test_a_wrong_key_stops_at_once(tmp_path, ledger):
    with Relayer(ledger) as relayer:
        with pytest.raises(NotAuthorized):
            Archive(tmp_path / "a").sync(
                client_of(relayer, api_key="wrong"), accounts=ledger.accounts
            )
        assert relayer.counts.requests["/user/trades"] <= 12


def test_rows_of_another_account_or_of_both_fill_types_are_refused(tmp_path):
    ledger = Ledger(1, 20)

    def another(answer, params):
        for row in answer["trades"][:1]:
            row[9] = "77"

    def same(answer, params):
        rows = relayer.rows(ledger.accounts[0])
        answer |= {"totalNum": len(rows), "trades": rows}

    with Relayer(ledger) as relayer:
        for change, said in (
            (another, "such as account 77"),
            (same, "20 fills as both"),
        ):
            archive = Archive(tmp_path / change.__name__)
            with pytest.raises(UnexpectedAnswer, match=said):
                archive.sync(
                    changed(client_of(relayer), change), accounts=ledger.accounts
                )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({}, "no account to ask for"),
        ({"account_id": -1}, "is not a valid account id"),
        ({"account_id": 1, "since": "soon"}, "is not a time"),
        (
            {"account_id": 1, "since": 1648752226000},
            "since=1648752226000 is not a time: a number may count seconds or",
        ),
        ({"accounts": 10083}, r"give a list of account ids, such as \[10083\]"),
        ({"accounts": "10083"}, r"give a list of account ids, such as \[10083\]"),
    ],
)
def test_arguments_that_cannot_be_used_are_refused(filled, words, said):
    with pytest.raises(LabError, match=said):
        filled[0].sync(filled[1], **words)


def test_what_is_shown_of_an_archive_is_short_and_says_what_is_missing(
    tmp_path, filled
):
    archive, _ = filled
    assert repr(archive) == f"Archive('{archive._file.path}')"
    assert (
        "1,260 trades of 3 accounts, complete per the source's count."
        in archive._repr_html_()
    )
    empty = Archive(tmp_path / "<a>")
    assert repr(empty).endswith("<a>', empty)")
    assert "&lt;a&gt;: empty" in empty._repr_html_()


def test_importing_the_package_does_not_load_duckdb():
    code = (
        "import sys, loopring_lab, loopring_lab.archive; print('duckdb' in sys.modules)"
    )
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said == "False\n"


def test_progress_ends_at_the_whole_and_the_key_is_in_no_file(tmp_path, ledger):
    seen: list[tuple[int, int]] = []
    with Relayer(ledger) as relayer:
        Archive(tmp_path / "a").sync(
            client_of(relayer),
            accounts=ledger.accounts,
            progress=lambda held, expected: seen.append((held, expected)),
        )
        key = relayer.api_key[:].encode()
    assert seen[-1] == (3 * 420, 3 * 420)
    for file in tmp_path.iterdir():
        assert key not in file.read_bytes()
