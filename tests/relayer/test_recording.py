"""Recordings are served as saved; errors in one name the file and the place."""

import json

import pytest
from support.settled_block import COUNTS

from loopring_lab.errors import UnexpectedAnswer
from loopring_lab.relayer import Recording, Relayer


@pytest.fixture(scope="module")
def block(block_folder):
    return block_folder


def test_every_recorded_row_is_served_as_recorded(serve, block):
    relayer = serve(recording=block)
    assert relayer.relayer.source == f"recording {block.name}"
    rows = 0
    for path in (block / "trades").glob("*.json"):
        account, _, kind = path.stem.partition("-")
        recorded = json.loads(path.read_bytes())
        assert relayer.pages(accountId=account, fillTypes=kind) == recorded["trades"]
        assert (
            relayer.trades(accountId=account, fillTypes=kind)[0] == recorded["totalNum"]
        )
        if recorded["totalNum"] <= 50:
            text = relayer.get("/user/trades", accountId=account, fillTypes=kind).text
            assert text == json.dumps(recorded, separators=(",", ":"))
        rows += recorded["totalNum"]
    assert (rows, len(relayer.relayer.accounts)) == COUNTS[block.name][:2]
    for name in ("tokens", "markets"):
        path = "/exchange/tokens" if name == "tokens" else "/mix/markets"
        assert relayer.get(path).json() == json.loads(
            (block / f"{name}.json").read_bytes()
        )


GOOD = ["1700000000002", "12", "BUY", "5", "3.5669E-4", "LRC-ETH", "1"]


def saved(total, *rows):
    return json.dumps({"totalNum": total, "trades": rows})


@pytest.mark.parametrize("saved_hash", ["0xaB12", "0xAB12", "0xab12"])
def test_an_order_is_found_by_its_hash_in_either_case(serve, folder, saved_hash):
    row = [*GOOD, "0", "0", "7", "0", "4", saved_hash]
    (folder / "trades" / "7-amm.json").write_text(saved(1, row))
    relayer = serve(recording=folder)
    for asked in ("0xab12", "0xAB12", "0xaB12"):
        assert relayer.trades(orderHash=asked) == (1, [row])


@pytest.mark.parametrize("length", [None, 13])
def test_rows_of_any_content_are_served_as_they_are(serve, folder, length):
    """Short ones are not filled up, and those that are no trades or say no time are not left out."""
    rows = [GOOD, GOOD[:6], ["soon", *GOOD[1:]], {}, "x", None, []]
    rows.append([str(number) for number in range(19)])
    (folder / "trades" / "7-amm.json").write_text(saved(len(rows), *rows))
    relayer = serve(recording=folder, row_length=length)
    assert relayer.trades(accountId=7)[0] == len(rows)
    assert relayer.trades(accountId=7)[1][:3] == rows[:3]
    if length is None:
        assert relayer.trades(accountId=7)[1] == relayer.relayer.rows(7) == rows


def test_members_keep_their_own_json(serve, folder):
    digits = "7" * 5_000
    file = folder / "trades" / "7-amm.json"
    file.write_text(file.read_text().replace("0.5", digits))
    relayer = serve(recording=folder)
    text = relayer.get("/user/trades", accountId=7).text
    assert f'"SELL",5,null,"AMM-LRC-ETH",{digits},' in text
    assert relayer.relayer.rows(7)[1][6] == digits
    assert relayer.trades(accountId=8) == (0, [])
    assert relayer.relayer.accounts == [7, 8]
    answer = relayer.get("/user/trades", accountId=9).json()
    assert answer["resultInfo"]["code"] == 104003


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "tokens.json",
            "[",
            "tokens.json: expected JSON, got 1 characters that break off",
        ),
        (
            "tokens.json",
            '{"a": 1}',
            "tokens.json: expected a list of records, got {'a': 1}",
        ),
        ("tokens.json", "[1]", "tokens.json: expected a list of records"),
        (
            "markets.json",
            "[]",
            "markets.json, member markets: expected a list of records, got None",
        ),
        (
            "markets.json",
            None,
            "markets.json: expected a readable file, got no such file.",
        ),
        (
            "trades/7-amm.json",
            "[]",
            "trades/7-amm.json: expected totalNum and a list trades",
        ),
        (
            "trades/7-amm.json",
            saved(2, GOOD),
            "totalNum: expected the number of rows, 1, got 2",
        ),
        (
            "trades/7-pool.json",
            saved(0),
            "expected <accountId>-<amm or dex>.json, got 7-pool.json",
        ),
    ],
)
def test_a_broken_recording_is_refused_by_file_and_place(
    folder, file, content, message
):
    path = folder / file
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(UnexpectedAnswer) as caught:
        Relayer(recording=folder)
    assert message in str(caught.value)
    assert str(caught.value).endswith("trades/<accountId>-<amm or dex>.json.")
    assert str(folder) not in str(caught.value)


def test_a_folder_that_is_no_recording_is_named(folder):
    for name in ("tokens.json", "markets.json"):
        (folder / name).unlink()
    with pytest.raises(UnexpectedAnswer) as caught:
        Relayer(recording=folder)
    assert str(caught.value).startswith(
        f"recording {folder}: expected a folder of saved responses, got a folder without tokens.json and "
        "markets.json. Give the folder that holds tokens.json"
    )


def test_a_folder_without_trades_is_refused(tmp_path, folder):
    for path in (folder / "trades").iterdir():
        path.unlink()
    with pytest.raises(UnexpectedAnswer, match="at least one file of trades"):
        Recording(folder)
    with pytest.raises(UnexpectedAnswer, match=r"tokens\.json"):
        Recording(tmp_path / "nowhere")
