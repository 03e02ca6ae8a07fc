"""What others saved of a relayer's answers, through all three doors, and everything else refused in one sentence."""

import base64
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pandas.testing import assert_frame_equal
from support.optional import thorough
from support.recorded import save
from support.wire_rows import markets, page, row, tokens

import loopring_lab as lab
from loopring_lab.errors import ArchiveError, LabError, UnexpectedAnswer

HASH = "0x" + "ab" * 32
SELL = row()
BUY = row(
    id="8919528",
    side="BUY",
    feeAmount="453794000000000000",
    orderHash=HASH,
    type="maker",
)
ROWS = [SELL, BUY]
PAGE = {"totalNum": 2, "trades": ROWS}
ACCOUNT = int(SELL[9])
NAME = f"{ACCOUNT}-dex.json"
API = "https://api3.example.org/api/v3"
EXPLORER = "Tx ID,Type,From,To,Pair,Side,Amount,Price,Total,Fee,Verified At\n1-2,Trade,a,b,LRC/ETH,Sell,453.7940,0.0003,0.1618,0.0001,2022-07-12\n"


def sdk_trade(members: list[str]) -> dict[str, Any]:
    """Return what the SDK makes of a row, which is not read: the row itself is in ``raw_data``."""
    names = ("tradeTime", "tradeId", "side", "volume", "price", "market", "fee")
    made: dict[str, Any] = dict(zip(names, members, strict=False))
    return made | {"tradeTime": int(members[0]), "type": members[13]}


def entry(
    path: str, answer: Any, *, encoded: bool = False, status: int = 200
) -> dict[str, Any]:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    content = {"mimeType": "application/json", "text": text}
    if encoded:
        content["text"] = base64.b64encode(text.encode()).decode()
        content["encoding"] = "base64"
    headers = [{"name": "X-API-KEY", "value": "a secret"}]
    return {
        "request": {"method": "GET", "url": f"{API}{path}", "headers": headers},
        "response": {"status": status, "headers": [], "content": content},
    }


def har(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"log": {"version": "1.2", "entries": list(entries)}}


def asked(kind: str = "dex", offset: int = 0) -> str:
    return f"/user/trades?accountId={ACCOUNT}&fillTypes={kind}&offset={offset}&limit=1"


WRAPPED = {
    "as documented": PAGE,
    "SDK": {"totalNum": 2, "userTrades": list(map(sdk_trade, ROWS)), "raw_data": PAGE},
    "HAR": har(
        entry(asked(), {"totalNum": 2, "trades": [SELL]}),
        entry(asked(offset=1), {"totalNum": 2, "trades": [BUY]}, encoded=True),
        entry(asked(), {"resultInfo": {"code": 104002}}, status=400),
        entry("/user/trades/../nft/trades", "no trades"),
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the listing of `wire_rows` and no trades."""
    return save(tmp_path, LISTING)


def listing() -> dict[str, Any]:
    """Return the tokens and markets of `wire_rows`, as an exchange answers."""
    listed = tokens().reset_index()[["token_id", "symbol", "decimals"]]
    pairs = markets().reset_index()[["market", "base_token_id", "quote_token_id"]]
    return {
        "tokens": [
            {"tokenId": number, "symbol": symbol, "decimals": decimals}
            for number, symbol, decimals in listed.to_numpy().tolist()
        ],
        "markets": {
            "markets": [
                {"market": name, "baseTokenId": base, "quoteTokenId": quote}
                for name, base, quote in pairs.to_numpy().tolist()
            ]
        },
    }


LISTING = listing()


def read(answer: Any, **how: Any) -> pd.DataFrame:
    return lab.tables.trades(answer, tokens(), markets(), **how)


@pytest.mark.parametrize("wrapping", WRAPPED)
def test_tables_read_each_wrapping_as_the_page_in_it(wrapping):
    answer = WRAPPED[wrapping]
    text = json.dumps(answer, indent=1)
    for form in (answer, text, text.encode()):
        found = read(form, fill_type="dex")
        assert_frame_equal(found, read(page(ROWS), fill_type="dex"))
    assert lab.anomalies(found).empty


@pytest.mark.parametrize("wrapping", WRAPPED)
def test_files_of_each_wrapping_are_imported_and_served(wrapping, folder):
    file = folder / NAME
    file.write_text(json.dumps(WRAPPED[wrapping], indent=1))
    expected = read(page(ROWS), fill_type="dex")
    archive = lab.Archive(folder / "a.duckdb")
    report = archive.import_pages(file)
    assert report["rows"].tolist() == [2]
    assert_frame_equal(archive.trades(), expected)
    client = lab.connect(recording=file)
    assert client.accounts == [ACCOUNT]
    assert client.synthetic is False
    assert_frame_equal(client.trades(ACCOUNT), expected)
    # A client is named after the file itself, unless that tells the relayer.
    if wrapping == "HAR":
        assert archive.source == client.source == "https://api3.example.org"
    else:
        assert archive.source != client.source == str(file)


@pytest.mark.parametrize("packed", [thorough(False), True])
def test_a_file_may_have_one_page_a_line_and_be_compressed(packed, folder):
    pages = [{"totalNum": 2, "trades": [one]} for one in ROWS]
    text = "\n\n".join(map(json.dumps, pages)).encode()
    file = folder / f"{ACCOUNT}-dex.jsonl"
    if packed:
        file = folder / f"{ACCOUNT}-dex.jsonl.gz"
        text = gzip.compress(text)
    file.write_bytes(text)
    expected = read(pages, fill_type="dex")
    assert_frame_equal(lab.connect(recording=file).trades(ACCOUNT), expected)
    archive = lab.Archive(folder / "a.duckdb")
    assert archive.import_pages(file)["missing"].tolist() == [0]
    assert_frame_equal(archive.trades(), expected)


def test_a_har_file_says_whose_trades_it_has_and_of_which_type(folder):
    """Rows of seven members, two fill types, two accounts, tokens and markets: all of it from the requests."""
    pool = ["1657638459611", "5", "SELL", "1" + 18 * "0", "3.5E-4", "AMM-LRC-ETH", "0"]
    other = asked().replace(str(ACCOUNT), "7")
    saved = har(
        entry("/exchange/tokens", LISTING["tokens"]),
        entry("/mix/markets", LISTING["markets"], encoded=True),
        entry(asked(), {"totalNum": 137, "trades": [SELL[:7]]}),
        entry(asked("amm"), {"totalNum": 1, "trades": [pool]}),
        entry(other, {"totalNum": 1, "trades": [BUY[:7]]}),
        entry(other + "&market=LRC-ETH", {"totalNum": 9, "trades": [BUY[:7]]}),
    )
    file = folder / "saved" / "trades.har"
    file.parent.mkdir()
    file.write_text(json.dumps(saved))
    # Beside the file and above it are listings of something else.
    for place in (folder, file.parent):
        (place / "tokens.json").write_text("[]")
        (place / "markets.json").write_text("[]")
    report = lab.Archive(folder / "a.duckdb").import_pages(file)
    found = report.set_index(["account_id", "fill_type"])[["rows", "missing"]]
    # A request with a filter does not count the whole history.
    assert found.to_dict("index") == {
        (7, "dex"): {"rows": 1, "missing": 0},
        (ACCOUNT, "amm"): {"rows": 1, "missing": 0},
        (ACCOUNT, "dex"): {"rows": 1, "missing": 136},
    }
    assert report["odd"].tolist() == [0, 0, 0]
    client = lab.connect(recording=file)
    assert client.trades(ACCOUNT)["size"].notna().all()
    frame = read(saved).set_index("trade_id")
    assert frame["fill_type"].isna().sum() == 0
    owners = frame["account_id"].to_dict()
    assert owners == {5: ACCOUNT, int(SELL[1]): ACCOUNT, int(BUY[1]): 7}
    of_folder = lab.Archive(folder / "b.duckdb").import_pages(file.parent)
    assert of_folder["rows"].tolist() == report["rows"].tolist()


def test_a_request_for_both_fill_types_says_neither():
    page = {"totalNum": 1, "trades": [SELL]}
    found = read(har(entry(asked("dex") + "&fillTypes=amm", page)))
    assert found["fill_type"].isna().tolist() == [True]


def test_connect_says_what_a_file_rests_on(folder, capsys):
    file = folder / NAME
    file.write_text(json.dumps({"totalNum": 137, "trades": ROWS}))
    lab.connect(recording=file)
    printed = capsys.readouterr().out
    assert "those in tokens.json and markets.json beside it" in printed
    assert f"account {ACCOUNT} has 2 of 137 DEX fills" in printed
    for name in LISTING:
        (folder / f"{name}.json").unlink()
    client = lab.connect(recording=file)
    assert "the exchange's own, as this package brings them" in capsys.readouterr().out
    assert client.trades(ACCOUNT)["size"].tolist() == read(page(ROWS))["size"].tolist()
    # What the package makes up for its world is not given as the exchange's.
    assert client.tokens()["order_amounts_dust"].isna().all()
    file.write_bytes(page([row(market="NEW-COIN")]))
    with pytest.raises(LabError, match="does not bring the market NEW-COIN"):
        lab.connect(recording=file)


@pytest.mark.parametrize("name", [NAME, "a.har"])
def test_a_file_of_a_recording_is_read_with_what_the_recording_states(
    folder, name, capsys
):
    # LRC has another number of decimals here than on the real exchange.
    tokens = [token | {"decimals": 6} for token in LISTING["tokens"]]
    stated = {"name": "a world", "synthetic": True}
    saved = har(entry(asked(), PAGE)) if name.endswith("har") else PAGE
    (folder / "trades").mkdir()
    files = {"tokens": tokens, "source": stated}
    for file, content in files.items():
        (folder / f"{file}.json").write_text(json.dumps(content))
    file = folder / "trades" / name
    file.write_text(json.dumps(saved))
    client = lab.connect(recording=file)
    assert "markets.json in the folder above" in capsys.readouterr().out
    assert (client.source, client.synthetic) == ("a world", True)
    # The rows have sizes of the smallest unit: 10**-6 of this listing's.
    sizes = [Decimal(members[3]).scaleb(-6) for members in ROWS]
    trades = client.trades(ACCOUNT)
    assert sorted(trades["size"]) == sorted(sizes)
    archive = lab.Archive(folder / "a.duckdb")
    archive.import_pages(file)
    assert_frame_equal(archive.trades(ACCOUNT), trades, check_like=True)


def test_a_row_that_comes_again_with_numbers_for_texts_is_counted_once(folder):
    file = folder / NAME
    again = [int(text) if text.isdigit() else text for text in SELL]
    pages = [{"totalNum": 1, "trades": [members]} for members in (SELL, again)]
    file.write_text("\n".join(map(json.dumps, pages)))
    client = lab.connect(recording=file)
    assert client.count(ACCOUNT) == client.count(ACCOUNT, "dex") == 1
    assert len(client.trades(ACCOUNT)) == 1


def test_pools_and_book_in_one_page_are_told_apart_by_the_prefix(folder):
    file = folder / "all.json"
    file.write_bytes(page([SELL, row(id="3", market="AMM-LRC-ETH")]))
    client = lab.connect(recording=file)
    assert client.trades(ACCOUNT)["fill_type"].tolist() == ["amm", "dex"]
    report = lab.Archive(folder / "a.duckdb").import_pages(file)
    assert report["rows"].tolist() == [1, 1]
    assert report["total"].isna().all()
    file.write_bytes(page([SELL]))
    with pytest.raises(UnexpectedAnswer, match=r"name the file <accountId>-<amm or"):
        lab.connect(recording=file)


def test_made_up_trades_in_a_har_file_stay_made_up(folder):
    made_up = entry(asked(), PAGE)
    stated = json.dumps({"name": "a world", "synthetic": True})
    header = {"name": "x-loopring-lab-source", "value": stated}
    made_up["response"]["headers"] = [header]
    file = folder / "a.har"
    file.write_text(json.dumps(har(made_up)))
    client = lab.connect(recording=file)
    assert (client.source, client.synthetic) == ("a world", True)
    archive = lab.Archive(folder / "a.duckdb")
    archive.import_pages(file)
    assert archive.trades().attrs["synthetic"] is True


DOORS = ("tables.trades", "import_pages", "recording")


def through(door: str, file: Path) -> Any:
    if door == "tables.trades":
        return read(file.read_bytes())
    if door == "import_pages":
        return lab.Archive(file.parent / "a.duckdb").import_pages(file)
    return lab.connect(recording=file)


REFUSED = {
    "a block explorer's CSV": EXPLORER,
    "rows without their page": json.dumps(ROWS),
    "objects": json.dumps([sdk_trade(one) for one in ROWS]),
    "version 2 of the API": json.dumps({"data": PAGE}),
    "the SDK's objects": json.dumps({"userTrades": [sdk_trade(SELL)]}),
    "another answer": json.dumps(LISTING["markets"]),
    "a number": "5",
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("saved", REFUSED)
def test_anything_else_is_refused_with_what_to_save(door, saved, folder):
    file = folder / "file.json"
    file.write_text(REFUSED[saved])
    with pytest.raises(UnexpectedAnswer) as caught:
        through(door, file)
    assert "save the answer of GET /api/v3/user/trades as it is" in str(caught.value)


EXPORTED = {
    "privateKey": "a secret",
    "words": ["a secret", "another secret"],
    "accountId": 5,
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("given", [EXPORTED, [EXPORTED], {"trades": EXPORTED}])
def test_keys_in_a_file_that_was_given_by_mistake_are_not_shown(door, given, folder):
    file = folder / NAME
    file.write_text(json.dumps(given))
    with pytest.raises(LabError, match="privateKey") as caught:
        through(door, file)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("door", DOORS)
def test_a_saved_frame_leads_to_its_reader(door, folder):
    trades = read(page(ROWS))
    csv = folder / "file.csv"
    parquet = folder / "file.parquet"
    trades.to_csv(csv)
    trades.to_parquet(parquet)
    for file in (csv, parquet):
        with pytest.raises(UnexpectedAnswer) as caught:
            through(door, file)
        assert "lab.tables.read_csv(file)" in str(caught.value)
        assert "pyarrow.parquet.read_table(file)" in str(caught.value)
    table = pq.read_table(parquet)
    assert lab.fees.summary(table).to_pandas()["fee"].tolist() == (
        lab.fees.summary(trades)["fee"].tolist()
    )


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        ({"log": {}}, r"log\.entries: expected the requests of a HAR file"),
        (har(entry(asked(), "")), r"entries\[0\].response.content.text: expected the"),
        (
            har(entry(asked(), PAGE), entry(asked(), "{")),
            r"entries\[1\]: expected JSON",
        ),
        (
            har(
                entry(asked(), PAGE),
                entry("/../../" + asked(), PAGE)
                | {"request": {"url": "https://b.example/user/trades"}},
            ),
            "answers of one relayer",
        ),
        ({"log": {"entries": [1, None, {"request": []}]}}, "3 requests"),
    ],
)
def test_a_har_file_without_trades_is_refused_by_its_place(saved, said):
    with pytest.raises(UnexpectedAnswer, match=said) as caught:
        read(saved)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked_for", "total"),
    [("", 2), ("&market=&orderHash=", 2), ("&market=LRC-ETH", None), ("&from=1", None)],
)
def test_only_a_request_without_filters_counts_a_history(
    asked_for, total, folder, capsys
):
    file = folder / "a.har"
    file.write_text(json.dumps(har(entry(asked() + asked_for, PAGE))))
    client = lab.connect(recording=file)
    is_said = "has 2 of an unknown number of DEX fills" in capsys.readouterr().out
    assert is_said is (total is None)
    for fill in ("sync", "import_pages"):
        archive = lab.Archive(folder / f"{fill}.duckdb")
        if fill == "sync":
            archive.sync(client, accounts=[ACCOUNT])
        else:
            archive.import_pages(file)
        # Nobody has counted the fills of pools: they were not asked for.
        [of_book] = archive.report().to_dict("records")
        assert of_book["fill_type"] == "dex"
        assert of_book["rows"] == 2
        assert of_book["complete"] is (total is not None)
        assert of_book["total"] == total if total else pd.isna(of_book["total"])


def stated(name: str | None, members: list[str]) -> dict[str, Any]:
    """Return a page that a relayer sent with its name."""
    made = entry(asked(), {"totalNum": 1, "trades": [members]})
    if name:
        value = json.dumps({"name": name, "synthetic": True})
        header = {"name": "X-Loopring-Lab-Source", "value": value}
        made["response"]["headers"] = [header]
    return made


@pytest.mark.parametrize("other", ["seed 2", None])
def test_two_sources_at_one_address_are_not_one_in_a_har_file(other, folder):
    file = folder / "a.har"
    mixed = har(stated("seed 1", SELL), stated(other, BUY))
    file.write_text(json.dumps(mixed))
    for door in DOORS:
        with pytest.raises(UnexpectedAnswer, match="answers of one relayer.*seed 1"):
            through(door, file)
    # What tools write in front of the log changes nothing.
    alone = {"comment": "saved by a proxy"} | har(stated("seed 1", SELL))
    file.write_text(json.dumps(alone))
    client = lab.connect(recording=file)
    assert (client.source, client.synthetic) == ("seed 1", True)


@pytest.mark.parametrize("address", ["/api/v3", "api3.loopring.io/api/v3"])
def test_a_har_file_without_addresses_is_read_under_its_own_name(address, folder):
    """Tools that make a HAR file anonymous leave paths."""
    file = folder / "a.har"
    saved = har(entry(asked(), PAGE))
    [one] = saved["log"]["entries"]
    one["request"]["url"] = address + asked()
    file.write_text(json.dumps(saved))
    client = lab.connect(recording=file)
    assert len(client.trades(ACCOUNT)) == 2
    assert client.source == str(file)
    file.write_text(json.dumps(har(one, entry(asked(), PAGE))))
    with pytest.raises(UnexpectedAnswer, match="answers of one relayer"):
        lab.connect(recording=file)


def at(address: str) -> dict[str, Any]:
    """Return a page of trades that was asked of a relayer."""
    url = {"url": f"{address}/api/v3{asked()}"}
    return entry(asked(), PAGE) | {"request": url}


def test_a_relayer_in_a_har_file_is_known_by_its_host_without_a_password():
    one = "https://user:s3cret-word@a.example"
    read(har(at(one), at("HTTPS://A.example:443"), at("https://a.example")))
    for other in ("https://b.example", f"{one}:8443", f"{one}:port"):
        with pytest.raises(UnexpectedAnswer) as caught:
            read(har(at(one), at(other)))
        assert "answers of one relayer, got" in str(caught.value)
        assert "s3cret" not in str(caught.value)


def test_har_files_of_two_relayers_in_one_folder_are_two_sources(folder):
    for name in "ab":
        saved = har(at(f"https://{name}.example"))
        (folder / f"{name}.har").write_text(json.dumps(saved))
    archive = lab.Archive(folder / "a.duckdb")
    with pytest.raises(
        ArchiveError, match="holds trades from 'https://a.example', and"
    ):
        archive.import_pages(folder)
    # One relayer is one source, wherever its file is.
    elsewhere = folder / "later" / "c.har"
    elsewhere.parent.mkdir()
    (folder / "a.har").rename(elsewhere)
    assert archive.import_pages(elsewhere)["rows"].tolist() == [2]


@pytest.mark.parametrize("wrong", [{"fill_type": "amm"}, {"account_id": 3}])
def test_an_argument_that_contradicts_the_request_is_refused(wrong, folder):
    saved = har(entry(asked(), PAGE))
    with pytest.raises(UnexpectedAnswer, match="Leave .*= out"):
        read(saved, **wrong)
    (folder / "a.har").write_text(json.dumps(saved))
    with pytest.raises(UnexpectedAnswer, match="Leave .*= out"):
        lab.Archive(folder / "a.duckdb").import_pages(folder / "a.har", **wrong)


def test_pages_before_a_file_s_fault_are_imported(folder):
    file = folder / f"{ACCOUNT}-dex.jsonl"
    file.write_text(f"{json.dumps(PAGE)}\n{EXPLORER.splitlines()[0]}\n")
    archive = lab.Archive(folder / "a.duckdb")
    with pytest.raises(UnexpectedAnswer, match="page 2: expected JSON"):
        archive.import_pages(file)
    assert len(archive.trades()) == 2
