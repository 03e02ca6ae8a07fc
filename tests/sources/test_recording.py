"""Recordings are read as saved; errors in one name the file and the place."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.recorded import save
from support.saved_pages import save_listings
from support.settled_block import COUNTS
from support.wire_rows import page, row

import loopring_lab as lab
from loopring_lab.errors import LabError, UnexpectedAnswer
from loopring_lab.sources import Recording

ACCOUNT = 147661
HASH = "0x" + "aB" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recording of one account with two pool fills and one of the order book."""
    place = tmp_path / "saved"
    (place / "trades").mkdir(parents=True)
    save_listings(place)
    pool = [row(id=str(number), market="AMM-LRC-ETH") for number in (5, 6)]
    book = [row(id="7", createdAt="1657638459700", side="BUY", orderHash=HASH)]
    pages = {"amm": pool, "dex": book}
    return save(
        place, {f"trades/{ACCOUNT}-{kind}": page(rows) for kind, rows in pages.items()}
    )


def opened(folder: Path) -> Recording:
    client = lab.connect(recording=folder)
    assert isinstance(client, Recording)
    return client


def test_every_recorded_row_is_read_as_recorded(block_folder):
    client = opened(block_folder)
    rows = 0
    for account in client.accounts:
        trades = client.trades(account)
        for kind in ("amm", "dex"):
            file = block_folder / "trades" / f"{account}-{kind}.json"
            saved = json.loads(file.read_bytes()) if file.exists() else {"trades": []}
            of_kind = trades[trades["fill_type"] == kind]
            sent = sorted((int(one[1]), one[2], one[12]) for one in saved["trades"])
            found = of_kind[["trade_id", "side", "order_hash"]].to_numpy().tolist()
            assert sorted(map(tuple, found)) == sent
            assert client.count(account, kind) == len(sent)
            rows += len(sent)
        assert client.count(account) == len(trades)
        assert lab.anomalies(trades).empty
    assert (rows, len(client.accounts)) == COUNTS[block_folder.name][:2]
    assert len(client.tokens()) == len(
        json.loads((block_folder / "tokens.json").read_bytes())
    )


def test_filters_select_what_they_say(folder):
    client = opened(folder)
    everything = client.trades(ACCOUNT)
    assert everything["trade_id"].tolist() == [5, 6, 7]
    assert everything.attrs["source"] == str(folder.resolve())
    assert everything.attrs["synthetic"] is False

    def ids(**asked: Any) -> list[int]:
        return client.trades(**asked)["trade_id"].tolist()

    assert ids(account_id=ACCOUNT, fill_type="amm") == [5, 6]
    # A market's pool fills are listed under the same name.
    assert ids(account_id=ACCOUNT, market="lrc-eth") == [5, 6, 7]
    assert ids(account_id=ACCOUNT, market="ETH-USDT") == []
    assert ids(account_id=ACCOUNT, limit=2) == [6, 7]
    assert ids(account_id=ACCOUNT, since="2022-07-12T15:07:39.700Z") == [7]
    assert ids(account_id=ACCOUNT, until="2022-07-12T15:07:39.700Z") == [5, 6]
    assert ids(account_id=[ACCOUNT]) == [5, 6, 7]
    for asked in (HASH, HASH.lower(), HASH.upper().replace("X", "x")):
        assert ids(order_hash=asked) == [7]
    assert "no trades of account_id" in client.trades(ACCOUNT, "ETH-USDT").attrs["notes"][0]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"account_id": 9},
            f"not in this recording. It has 1, such as {ACCOUNT}: cl",
        ),
        ({"account_id": ACCOUNT, "market": "ETH-LRC"}, "Did you mean 'LRC-ETH'"),
        ({}, "Give account_id= or order_hash="),
        ({"account_id": ACCOUNT, "fill_type": "pool"}, "give 'amm', 'dex'"),
    ],
)
def test_what_is_not_in_a_recording_is_named(folder, asked, said):
    with pytest.raises(LabError, match=said):
        opened(folder).trades(**asked)


def test_a_recording_says_what_it_is(folder, capsys):
    client = opened(folder)
    assert not capsys.readouterr().out
    assert repr(client) == f"Recording({folder.resolve()}, 1 account)"
    assert client.outside_prices(client.trades(ACCOUNT)) is None
    with pytest.raises(LabError, match="does not say of which exchange"):
        client.exchange()
    stated = {"name": "one", "synthetic": True, "exchange": "0xAb", "chainId": 5}
    (folder / "source.json").write_text(json.dumps(stated))
    client = opened(folder)
    assert (client.source, client.synthetic) == ("one", True)
    assert (client.exchange().address, client.exchange().chain_id) == ("0xab", 5)


def test_rows_of_another_account_are_an_error(folder):
    (folder / "trades" / "5-dex.json").write_bytes(page([row(id="9")]))
    client = opened(folder)
    said = f"accountId: expected account 5, .* such as account {ACCOUNT}"
    with pytest.raises(UnexpectedAnswer, match=said):
        client.trades(5)
    assert len(client.trades(ACCOUNT)) == 3


def test_a_fill_under_both_types_is_an_error(folder):
    file = folder / "trades" / f"{ACCOUNT}-dex.json"
    file.write_bytes((folder / "trades" / f"{ACCOUNT}-amm.json").read_bytes())
    client = opened(folder)
    with pytest.raises(UnexpectedAnswer, match=r"2 fills as both.*with fill_type="):
        client.trades(ACCOUNT)
    assert len(client.trades(ACCOUNT, fill_type="amm")) == 2


def asked_for(account: int, kind: str) -> bytes:
    """Return a HAR file of a history with one row, whose request says whose it is."""
    request = {"url": f"https://a.example/user/trades?accountId={account}&fillTypes={kind}"}  # fmt: skip
    content = {"text": page([row(accountId=str(account))]).decode()}
    entries = [{"request": request, "response": {"content": content}}]
    return json.dumps({"log": {"entries": entries}}).encode()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("markets.json", None, "markets.json: expected a readable file, got no such file."),
        ("trades/7-amm.json", b"[]", "trades/7-amm.json: expected an object with"),
        ("trades/7-amm.json", page([row()], 2), "totalNum: expected the number of rows, 1, got 2"),
        ("trades/7-amm.json", page([row(), row()]), "expected the number of rows, 1, got 2"),
        ("trades/7-pool.json", page([]), "expected <accountId>-<amm or dex>.json, got 7-pool.json"),
        ("trades/7-amm.json.gz", b"", "expected <accountId>-<amm or dex>.json, got 7-amm.json.gz"),
        ("trades/7-amm.jsonl", page([]), "expected <accountId>-<amm or dex>.json, got 7-amm.jsonl"),
        (f"trades/0{ACCOUNT}-amm.json", page([row()]), f"json, got 0{ACCOUNT}-amm.json"),
        ("trades/alice.har", b"", "expected <accountId>-<amm or dex>.json, got alice.har"),
        ("trades/all.jsonl.gz", b"", "expected <accountId>-<amm or dex>.json, got all.jsonl.gz"),
        ("trades/999999-dex.json", asked_for(ACCOUNT, "dex"), "account_id: expected 999999, as given, got 147661"),
        ("trades/7-amm.json", asked_for(7, "dex"), "fill_type: expected amm, as given, got dex"),
    ],
)  # fmt: skip
def test_a_broken_recording_is_refused_by_file_and_place(
    folder, file, content, message
):
    path = folder / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(UnexpectedAnswer) as caught:
        lab.connect(recording=folder)
    assert message in str(caught.value)
    assert str(caught.value).endswith("trades/<accountId>-<amm or dex>.json.")
    assert str(folder) not in str(caught.value)


def test_what_is_no_history_may_lie_beside_them(folder):
    for name in ("README.md", ".DS_Store", "._7-amm.json", "Thumbs.db"):
        (folder / "trades" / name).write_bytes(b"\0")
    (folder / "trades" / "old").mkdir()
    assert len(opened(folder).trades(ACCOUNT)) == 3


def test_a_folder_that_is_no_recording_is_named(tmp_path, folder):
    with pytest.raises(UnexpectedAnswer, match="got no such folder. Give the folder"):
        lab.connect(recording=tmp_path / "nowhere")
    for path in (folder / "trades").iterdir():
        path.unlink()
    with pytest.raises(UnexpectedAnswer, match="at least one file of trades"):
        lab.connect(recording=folder)
    for name in ("tokens.json", "markets.json"):
        (folder / name).unlink()
    with pytest.raises(UnexpectedAnswer) as caught:
        lab.connect(recording=folder)
    assert str(caught.value).startswith(
        f"recording {folder}: expected a folder of saved responses, got a folder without tokens.json and "
        "markets.json. Give the folder that holds tokens.json"
    )
