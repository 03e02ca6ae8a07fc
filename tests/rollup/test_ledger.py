"""An account's ledger as CSV: to the last unit what its balances change by, fees apart, both legs of each trade."""

import csv
import json
import resource
from collections import Counter, defaultdict
from decimal import Decimal

import pytest
from support.optional import thorough
from support.rollup_blocks import block_data, recorded_facts, slot
from support.rollup_stores import opened

import loopring_lab as lab
from loopring_lab.cli import main
from loopring_lab.errors import DiskRefused, LabError

# What each type of transaction does to whom, as the recorded block's facts name it: account, token, amount, sign, and
# whether it is a fee.
MOVES = {
    "deposit": [("account", "token", "amount", 1, False)],
    "withdrawal": [
        ("account", "token", "amount", -1, False),
        ("account", "fee_token", "fee", -1, True),
    ],
    "transfer": [
        ("sender", "token", "amount", -1, False),
        ("sender", "fee_token", "fee", -1, True),
        ("receiver", "to_token", "amount", 1, False),
    ],
    "account_update": [("account", "fee_token", "fee", -1, True)],
    "nft_mint": [
        ("minter", "fee_token", "fee", -1, True),
        ("receiver", "to_token", "amount", 1, False),
    ],
    "spot_trade": [
        ("account_a", "sell_a", "fill_a", -1, False),
        ("account_a", "buy_a", "fill_b", 1, False),
        ("account_a", "fee_token_a", "fee_a", -1, True),
        ("account_b", "sell_b", "fill_b", -1, False),
        ("account_b", "buy_b", "fill_a", 1, False),
        ("account_b", "fee_token_b", "fee_b", -1, True),
    ],
}
HEADER = (
    "Date,Sent Amount,Sent Currency,Received Amount,Received Currency,Fee Amount,Fee Currency,"
    "Net Worth Amount,Net Worth Currency,Label,Description,TxHash"
)


@pytest.fixture(scope="module")
def sample():
    return lab.connect(blocks="sample").store


@pytest.fixture(scope="module")
def demo():
    return lab.connect(blocks="demo")


@pytest.fixture
def ledger(tmp_path):
    def read(store, account):
        file = tmp_path / f"{account}.csv"
        count = store.export(file, account)
        with file.open(newline="") as text:
            rows = list(csv.DictReader(text))
        assert len(rows) == count
        return rows

    return read


def changes(rows, tokens):
    """Add up a file in smallest units: what fees took, and what all else changed."""
    listed = tokens[["token_id", "decimals"]].to_dict("index")
    found: Counter[tuple[int, bool]] = Counter()
    for row in rows:
        for side, sign in (("Received", 1), ("Sent", -1)):
            symbol = row[f"{side} Currency"]
            if not symbol:
                assert not row[f"{side} Amount"]
                continue
            nft = {"token_id": symbol.removeprefix("NFT"), "decimals": 0}
            token = listed.get(symbol, nft)
            amount = Decimal(row[f"{side} Amount"]).scaleb(int(token["decimals"]))
            assert amount == int(amount) > 0
            found[int(token["token_id"]), row["Label"] == "cost"] += sign * int(amount)
    return {key: amount for key, amount in found.items() if amount}


@pytest.mark.thorough
def test_every_balance_of_a_real_block_changes_as_its_transactions_say(sample, ledger):
    expected: dict[int, Counter[tuple[int, bool]]] = defaultdict(Counter)
    kinds = defaultdict(set)
    for fact in recorded_facts():
        for account, token, amount, sign, is_fee in MOVES.get(fact["type"], []):
            if int(fact[amount]):
                kinds[fact["type"], sign, is_fee].add(fact[account])
                expected[fact[account]][fact[token], is_fee] += sign * int(fact[amount])
    # Three accounts of each kind of change, pools among them.
    accounts = {one for some in kinds.values() for one in sorted(some)[:3]}
    assert len(accounts) > 20
    for account in sorted(accounts):
        known = {key: amount for key, amount in expected[account].items() if amount}
        assert changes(ledger(sample, account), sample.tokens()) == known


def test_a_pool_s_file_leads_from_one_published_balance_to_the_last(sample, ledger):
    blocks = sample.blocks()
    stated = blocks.balances(108).dropna(subset="published")
    rows = ledger(sample, 108)
    for token_id, of_token in stated.groupby("token_id"):
        first, last = of_token.iloc[0], of_token.iloc[-1]
        between = [
            row
            for row in rows
            if first["index_in_block"] < int(row["TxHash"]) < last["index_in_block"]
        ]
        found = changes(between, sample.tokens())
        change = found.get((token_id, False), 0) + found.get((token_id, True), 0)
        assert change == int(last["published"]) - int(first["published"]) != 0


def test_trades_have_both_legs_and_their_fee_in_a_row_of_its_own(demo, ledger):
    account = 10083
    trades = demo.trades(account).set_index("trade_id")
    rows = [row for row in ledger(demo.store, account) if "spot" in row["Description"]]
    fills = [row for row in rows if row["Label"] == ""]
    assert len(fills) == len(trades) > 100
    for row in fills:
        trade = trades.loc[int(row["TxHash"])]
        base, quote = (
            (trade["size"], trade["base"]),
            (trade["notional"], trade["quote"]),
        )
        sent, received = (quote, base) if trade["side"] == "BUY" else (base, quote)
        assert (Decimal(row["Sent Amount"]), row["Sent Currency"]) == sent
        assert (Decimal(row["Received Amount"]), row["Received Currency"]) == received
        assert row["Fee Amount"] == row["Fee Currency"] == ""
        assert row["Date"] == trade["created_at"].strftime("%Y-%m-%d %H:%M:%S UTC")
    fees = {int(row["TxHash"]): row for row in rows if row["Label"] == "cost"}
    paid = trades[trades["fee"] > 0]
    assert set(fees) == set(paid.index)
    for number, row in fees.items():
        fee = (paid.loc[number, "fee"], paid.loc[number, "fee_token"])
        assert (Decimal(row["Sent Amount"]), row["Sent Currency"]) == fee
        assert row["Description"] == "fee of spot trade"


@pytest.mark.parametrize(
    "symbol", ["\u200b=1+1", *map(thorough, ("=1+1", " -1", "\uff1d1"))]
)
def test_no_symbol_of_a_token_is_a_formula(sample, tmp_path, symbol):
    store = sample.copy(tmp_path / "blocks.duckdb")
    listing = tmp_path / "tokens.json"
    listing.write_text(json.dumps([{"symbol": symbol, "tokenId": 0, "decimals": 18}]))
    store.import_files([], tokens=listing)
    store.export(tmp_path / "ledger.csv", 99583)
    with (tmp_path / "ledger.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["Received Currency"] or row["Sent Currency"] for row in rows} == {
        f"'{symbol}"
    }


@pytest.mark.thorough
def test_what_cannot_be_written_is_refused(sample, tmp_path):
    file = tmp_path / "ledger.csv"
    sample.export(file, 99583)
    before = file.read_bytes()
    assert before.decode().splitlines()[0] == HEADER
    for taken in (file, tmp_path / "no folder" / "ledger.csv"):
        with pytest.raises(DiskRefused, match="cannot be written"):
            sample.export(taken, 99583)
    assert file.read_bytes() == before
    with pytest.raises(LabError, match="says nothing of the money of account 777777"):
        sample.export(tmp_path / "none.csv", 777_777)
    store = sample.copy(tmp_path / "blocks.duckdb")
    listing = tmp_path / "tokens.json"
    listing.write_text('[{"symbol": "LRC", "tokenId": 1, "decimals": 18}]')
    store.import_files([], tokens=listing)
    with pytest.raises(LabError, match="amounts of token 0, which no listing has"):
        store.export(tmp_path / "none.csv", 99583)
    assert not (tmp_path / "none.csv").exists()


def test_a_full_disk_leaves_no_part_of_a_ledger(sample, tmp_path):
    file = tmp_path / "ledger.csv"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(HEADER), hard))
    try:
        with pytest.raises(DiskRefused, match=r"ledger\.csv: cannot be written"):
            sample.export(file, 99583)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    count = sample.export(file, 99583)
    assert len(file.read_text().splitlines()) == count + 1


def test_a_store_that_knows_blocks_by_their_events_alone_has_no_ledger(tmp_path):
    store = opened(tmp_path / "blocks.duckdb")
    store.file.store_tokens('[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]')
    with pytest.raises(LabError, match="says nothing of the money of account 7"):
        store.export(tmp_path / "ledger.csv", account_id=7)
    assert not (tmp_path / "ledger.csv").exists()


def test_the_command_writes_it_and_says_what_is_missing(tmp_path, capsys):
    deposit = slot("deposit", account=20_000, token=0, amount=15)
    (tmp_path / "2.hex").write_text(block_data([deposit], size=16).hex())
    listing = tmp_path / "tokens.json"
    listing.write_text('[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]')
    store = lab.rollup.Store(tmp_path / "blocks")
    store.import_files(tmp_path / "2.hex", tokens=listing, first_block=2)
    file = tmp_path / "ledger.csv"
    words = ["blocks", "export", str(tmp_path / "blocks"), str(file), "--account"]
    assert main([*words, "20000"]) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"1 rows written to {file}\n")
    assert said.endswith("1 block, 1 missing. Run blocks sync to download them.\n")
    [row] = csv.DictReader(file.read_text().splitlines())
    # The smallest amounts have no exponent.
    assert row["Received Amount"] == "0.000000000000000015"
    assert row["TxHash"] == "200000"
    assert main([*words, "20000"]) == 2
    assert "cannot be written" in capsys.readouterr().err
