import json
import re
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.clients import client_at, client_of
from support.other_wires import ORDERS, Rewired
from support.recorded import save
from support.scripted_server import by_path, scripted
from support.wire_rows import page, whole

import loopring_lab as lab
from loopring_lab import tables
from loopring_lab.errors import LabError, RelayerError, UnexpectedAnswer
from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, World
from loopring_lab.sources.client import Client

ACCOUNT = 10083


@pytest.fixture(scope="module")
def client() -> Client:
    return lab.connect()


@pytest.fixture(scope="module")
def trades(client: Client) -> pd.DataFrame:
    return client.trades(ACCOUNT)


@pytest.fixture
def small() -> World:
    return World(seed=5, size=0.05)


# The tour


def test_the_embedded_relayer_says_what_it_is(capsys):
    client = lab.connect()
    said = capsys.readouterr().out
    assert (
        said
        == "Embedded relayer: synthetic world, seed 1. Nothing here is real market data.\n"
    )
    assert repr(client) == "Client(synthetic world, seed 1, 64 accounts)"
    assert client.accounts is not None
    assert ACCOUNT in client.accounts


def test_trades_equal_the_world_s_own_integers(client, trades):
    mine = {
        (fill.id, "BUY" if buys else "SELL"): fill
        for fill in World().fills
        for who, buys in (
            (fill.taker, fill.side == "BUY"),
            (fill.maker, fill.side == "SELL"),
        )
        if who == ACCOUNT
    }
    decimals = client.tokens()["decimals"].to_dict()
    assert len(trades) == len(mine)
    for row in trades.itertuples():
        fill = mine[row.trade_id, row.side]
        assert whole(row.size, decimals[row.base]) == fill.size
        due = fill.fee if row.role == "taker" else 0
        assert whole(row.fee, decimals[row.fee_token]) == due
        assert row.created_at == pd.Timestamp(fill.time_ms, unit="ms", tz="UTC")
    assert lab.anomalies(trades).empty
    assert trades.attrs == {
        "source": "synthetic world, seed 1",
        "synthetic": True,
    }


# Arguments


def test_one_fill_type(client, trades):
    only = client.trades(ACCOUNT, fill_type="amm")
    assert_frame_equal(
        only, trades[trades["fill_type"] == "amm"].reset_index(drop=True)
    )


def test_a_period_is_half_open_and_utc(client, trades):
    start, end = trades["created_at"].iloc[[100, 200]]
    got = client.trades(ACCOUNT, since=start, until=end)
    assert_frame_equal(got, trades.iloc[100:200].reset_index(drop=True))
    assert_frame_equal(
        client.trades(ACCOUNT, since=start.tz_convert("Asia/Tokyo"), until=str(end)),
        got,
    )
    assert client.trades(ACCOUNT, since="2022-06-01")[
        "created_at"
    ].min() >= pd.Timestamp("2022-06-01", tz="UTC")


@pytest.mark.parametrize("order", ORDERS)
def test_a_limit_gives_the_newest(small, order):
    with Relayer(Rewired(small, order)) as relayer:
        client = client_of(relayer)
        account = relayer.accounts[0]
        everything = client.trades(account)
        assert_frame_equal(
            client.trades(account, limit=70), everything.tail(70).reset_index(drop=True)
        )


NO_ACCOUNTS = [-1, "10083x", "", "-1", "10083.0", "1e3", "\u0663", "9" * 20, True]


NO_TIMES = ["last week", "2022-13-01", "Apr 12 2023"]


ONE = {"account_id": 94680}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {},
            "neither an account nor an order is given. Give account_id= or order_hash=.",
        ),
        *(
            (
                {"account_id": no},
                f"account_id={no!r} is not a valid account id. Give a whole number, such as 10083.",
            )
            for no in NO_ACCOUNTS
        ),
        *(
            ({"account_id": no}, "account_id=")
            for no in ([], ["x"], [10083, None], (-1,))
        ),
        *(
            (ONE | {"market": no}, "is not the name of a market")
            for no in (["LRC-ETH"], 5, ("LRC-ETH", "ETH-USDT"))
        ),
        (
            ONE | {"market": "AMM-LRC-ETH", "fill_type": "dex"},
            "is the name of a pool, which has no order-book fills. Leave out fill_type='dex'.",
        ),
        (
            ONE | {"fill_type": "pool"},
            "fill_type='pool': give 'amm', 'dex', or nothing for both.",
        ),
        *(
            (ONE | {"limit": no}, f"limit={no!r}: give a number of trades above 0")
            for no in ("5", 1.5, 0, -1, True)
        ),
        *(
            (
                ONE | {"since": no},
                f"since={no!r} is not a time. Give one like '2022-03-31'",
            )
            for no in NO_TIMES
        ),
        (
            ONE | {"since": 1648752226000},
            "since=1648752226000 is not a time: a number may count seconds or",
        ),
        (
            ONE | {"until": 1648752226.5},
            "pandas.Timestamp(number, unit='ms', tz='UTC')",
        ),
        (
            ONE | {"since": "12.04.2023"},
            "Give one like '2022-03-31' or '2022-03-31T18:00Z', with the year first.",
        ),
        (
            ONE | {"since": "2022-03-01", "until": "2022-02-01"},
            "since='2022-03-01' is after until='2022-02-01'",
        ),
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_used_is_named(client, arguments, said):
    with pytest.raises(LabError) as caught:
        client.trades(**arguments)
    assert said in str(caught.value)


# Pages


def test_pages_hold_the_history_as_it_was_sent(client, trades):
    pages = list(client.pages([(ACCOUNT, "amm"), (ACCOUNT, "dex")]))
    offsets = {
        kind: [page.offset for page in pages if page.history.fill_type == kind]
        for kind in ("amm", "dex")
    }
    for kind, starts in offsets.items():
        count = int((trades["fill_type"] == kind).sum())
        assert starts == [*range(0, count, 50), count]
    frame = tables.trades(
        [page.body for page in pages],
        client.tokens(),
        client.markets(),
        fill_type=[page.history.fill_type for page in pages],
        account_id=ACCOUNT,
    )
    assert_frame_equal(frame, trades)
    assert sum(len(page.batch.columns) for page in pages) == len(trades)


def test_the_error_of_one_history_is_raised_when_the_others_are_read(small):
    with Relayer(small) as relayer:
        account = relayer.accounts[0]
        pages = client_of(relayer).pages(
            [(4_000_000, "amm"), (account, "amm"), (account, "dex")]
        )
        read: list[Any] = []
        with pytest.raises(RelayerError, match="No such account"):
            read.extend(
                row for page in pages for row in json.loads(page.body)["trades"]
            )
        assert len(read) == len(relayer.rows(account))


# Refusals


def test_a_relayer_that_does_not_tell_fill_types_apart_is_not_believed(small):
    with Relayer(small) as relayer:
        account = relayer.accounts[-1]
        tokens = json.dumps(small.tokens()).encode()
        markets = json.dumps(small.markets()).encode()
        rows = relayer.rows(account)[:40]
        body = json.dumps({"totalNum": len(rows), "trades": rows}).encode()

    bodies = {"tokens": tokens, "markets": markets, "": body}
    with scripted(by_path(bodies)) as server:
        client = client_at(server.base_url)
        with pytest.raises(
            UnexpectedAnswer,
            match=rf"got {len(rows)} fills as both. .*Read one of them, with fill_type=",
        ):
            client.trades(account)
        assert len(client.trades(account, fill_type="dex")) == len(rows)
        client.close()


# connect()


def test_the_environment_decides(monkeypatch, small):
    with Relayer(small) as relayer:
        monkeypatch.setenv("LOOPRING_BASE_URL", relayer.base_url)
        monkeypatch.setenv("LOOPRING_API_KEY", relayer.api_key)
        client = lab.connect(rate=None)
        assert (client.source, client.synthetic, client.accounts) == (
            relayer.base_url,
            False,
            None,
        )
        assert len(client.trades(relayer.accounts[-1])) == len(
            relayer.rows(relayer.accounts[-1])
        )


def test_a_recording_can_come_from_the_environment(monkeypatch, any_block_folder):
    monkeypatch.setenv("LOOPRING_RECORDING", str(any_block_folder))
    assert lab.connect().source == str(any_block_folder.resolve())


def test_two_sources_are_one_too_many(tmp_path):
    with pytest.raises(LabError, match="base_url and recording are given"):
        lab.connect("https://host", recording=tmp_path)


def test_the_embedded_relayer_is_started_once(client):
    before = set(threading.enumerate())
    assert lab.connect().source == client.source
    assert set(threading.enumerate()) == before


def saved(folder: Path, trades: dict[str, list[list[str]]]) -> Path:
    """Save the tokens and markets of the synthetic world, and some trades."""
    pages = {f"trades/{name}": page(rows) for name, rows in trades.items()}
    listings = {"tokens": World().tokens(), "markets": {"markets": World().markets()}}
    return save(folder, listings | pages)


ROW = [
    "1648752226000",
    "7",
    "SELL",
    "12" + 20 * "0",
    "0.00042",
    "LRC-ETH",
    "504" + 12 * "0",
]


def test_a_recording_that_grew_is_read_again(tmp_path):
    folder = saved(tmp_path / "saved", {"5-amm": [ROW], "5-dex": []})
    assert len(lab.connect(recording=folder).trades(5)) == 1
    again = [*ROW[:1], "8", *ROW[2:]]
    saved(folder, {"5-dex": [again], "6-amm": [ROW], "6-dex": []})
    client = lab.connect(recording=folder)
    assert client.accounts == [5, 6]
    assert client.trades(5)["fill_type"].tolist() == ["amm", "dex"]


def test_a_recording_with_half_a_history_says_so(tmp_path, capsys):
    folder = saved(
        tmp_path / "halves",
        {"5-amm": [ROW], "5-dex": [], "6-amm": [ROW], "7-amm": [ROW]},
    )
    capsys.readouterr()
    lab.connect(recording=folder)
    assert capsys.readouterr().out == (
        "recording halves: 2 accounts are saved with one fill type only; a missing file counts as no "
        "trades. If there may be some, save them too: trades/6-dex.json.\n"
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            {"market": "ETH-LRC"},
            "Did you mean 'LRC-ETH'? (GET /api/v3/user/trades, code 100001, HTTP 400)",
        ),
        (
            {"account_id": 7},
            "client.accounts lists those that are known "
            "(GET /api/v3/user/trades, code 104003, HTTP 400).",
        ),
    ],
)
def test_what_was_probably_meant_is_said(client, asked, words):
    with pytest.raises(LabError, match=re.escape(words) + "$"):
        client.trades(**{"account_id": ACCOUNT} | asked)


@pytest.mark.parametrize(("progress", "ci"), [(None, "true"), (False, "")])
def test_progress_is_quiet_in_ci_or_when_told(
    client, capsys, monkeypatch, progress, ci
):
    monkeypatch.setenv("CI", ci)
    client.trades(ACCOUNT, fill_type="amm", progress=progress)
    assert capsys.readouterr().err == ""


# Progress


def test_a_function_is_told_of_both_fill_types_together(client):
    reports: list[tuple[int, int]] = []
    trades = client.trades(
        ACCOUNT, progress=lambda held, expected: reports.append((held, expected))
    )
    held = [one for one, _ in reports]
    assert held == sorted(held)
    pool = client.count(ACCOUNT, "amm")
    assert reports[-1] == (len(trades), len(trades))
    assert (pool, pool) in reports


# Secrets and weight


def test_frames_are_the_caller_s_own(client):
    tokens = client.tokens()
    tokens["decimals"] = 0
    assert client.tokens()["decimals"].max() == 18
    assert (
        tables.tokens(World().tokens()).index.tolist() == client.tokens().index.tolist()
    )


def test_a_notebook_shows_a_client_in_two_lines():
    shown = lab.connect()._repr_html_()
    assert "synthetic world, seed 1" in shown
    assert "64 accounts, such as 58344" in shown
    assert "Synthetic data." in shown
    odd = lab.Client(
        Transport("https://a.example", api_key="KEY-abc"), source="<b>odd</b>"
    )
    assert "&lt;b&gt;odd" in odd._repr_html_()
    assert "KEY-abc" not in odd._repr_html_()


# What can be understood is accepted; what cannot be meant is refused


def test_an_account_as_text_and_a_market_in_any_case_are_accepted(client):
    wanted = client.trades(94680, market="LRC-ETH")
    assert len(wanted) > 0
    assert client.trades("94680", market="lrc-eth").equals(wanted)
    pool = wanted[wanted["fill_type"] == "amm"].reset_index(drop=True)
    assert 0 < len(pool) < len(wanted)
    assert_frame_equal(client.trades(94680, market="amm-lrc-eth"), pool)
    assert client.account("94680").account_id == 94680


def test_no_trades_are_said_to_be_none(client):
    empty = client.trades(94680, market="WBTC-ETH")
    said = "There are no trades of account_id=94680, market='WBTC-ETH'."
    assert empty.attrs["notes"] == [said]
    assert said in str(lab.show(empty))
    late = client.trades(94680, until="2021-01-01")
    assert late.attrs["notes"] == [
        "There are no trades of account_id=94680 in the time asked for, but some outside it."
    ]
    # Of 320 trades only the newest pages are read.
    later = client.trades(94669, since="2023-06-01")
    assert later.attrs["notes"] == [
        "There are no trades of account_id=94669 in the time asked for, but some outside it."
    ]
    several = client.trades([94680, 10083, 94669], since="2022-12-31")
    assert set(several["account_id"]) == {10083}
    assert several.attrs["notes"] == ["Accounts without such trades: 2 of 3."]
    assert client.trades(94680, since="2022-03-01", until="2022-03-01").empty
    assert "notes" not in client.trades(94680).attrs
