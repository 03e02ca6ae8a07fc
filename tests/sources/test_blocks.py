"""A client over a store of blocks answers as a client of the relayer that settled them, or says why not."""

import json

import pandas as pd
import pytest
from support.rollup_blocks import block_data, slot

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.relayer import Settings, World

WORLD = World()


@pytest.fixture(scope="module")
def client():
    return lab.connect(blocks="demo")


def test_accounts_are_listed_by_fills_and_pools_last(client):
    counts = client.trades()["account_id"].value_counts()
    pools = set(WORLD.pools.values())
    users = [account for account in client.accounts if account not in pools]
    assert client.accounts[: len(users)] == users
    assert [counts[account] for account in users] == sorted(
        (counts[u] for u in users), reverse=True
    )
    assert set(client.accounts) == set(counts.index)
    assert [client.count(account) for account in users] == [
        counts[account] for account in users
    ]


def test_markets_and_tokens_are_the_relayers(client):
    by_relayer = lab.connect()
    known = by_relayer.markets()
    traded = client.markets()
    assert set(traded.index) == set(client.trades()["market"])
    for name in ("base", "quote", "base_token_id", "quote_token_id"):
        assert traded[name].tolist() == known.loc[traded.index, name].tolist()
    listed = by_relayer.tokens()
    assert (
        client.tokens()["decimals"].to_dict().items()
        <= listed["decimals"].to_dict().items()
    )


def test_filters_select_as_the_relayers_client_does(client):
    account = WORLD.accounts[0]
    everything = client.trades(account)
    market = everything["market"].mode()[0]
    middle = everything["created_at"].iloc[len(everything) // 2]
    assert everything["created_at"].is_monotonic_increasing
    for name, value in (("market", market), ("fill_type", "amm"), ("fill_type", "dex")):
        chosen = client.trades(account, **{name: value})
        assert len(chosen) == (everything[name] == value).sum() > 0
        assert name == "market" or client.count(account, value) == len(chosen)
    after = client.trades(account, since=middle)
    assert (after["created_at"] >= middle).all()
    before = client.trades(account, until=middle)
    assert len(after) + len(before) == len(everything)
    newest = client.trades(account, limit=3)
    pd.testing.assert_frame_equal(newest, everything.tail(3).reset_index(drop=True))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda client: client.trades(order_hash="0x12"),
            "rows of one account_id, token_id and storage_id",
        ),
        (lambda client: client.trades(market="LRC-ETHH"), "Did you mean 'LRC-ETH'"),
        (
            lambda client: client.trades(market="AMM-LRC-ETH", fill_type="dex"),
            "name of a pool",
        ),
        (lambda client: client.trades(fill_type="pool"), "'amm', 'dex'"),
        (lambda client: client.trades(account_id="me"), "not a valid account id"),
    ],
)
def test_what_blocks_cannot_answer_is_refused_with_a_way_out(client, call, says):
    with pytest.raises(LabError, match=says):
        call(client)


def test_the_client_says_what_it_reads(client):
    exchange = client.exchange()
    assert exchange.address == Settings().exchange.lower()
    assert exchange.chain_id == 31337
    assert client.outside_prices(client.trades()) is None
    blocks = client.store.report()["blocks"].sum()
    assert repr(client) == f"BlocksClient({client.source}, {blocks:,} blocks)"
    assert "trades(account_id)" in client._repr_html_()


def test_trade_ids_of_blocks_without_a_number_are_unique_in_a_store(tmp_path):
    trade = slot("spot_trade", account_a=20_001, account_b=7, sell_a=1, fill_a=11)
    for place in range(3):
        data = block_data([trade, trade], timestamp=1_600_000_000 + place)
        (tmp_path / f"{place}.bin").write_bytes(data)
    store = lab.rollup.Store(tmp_path / "blocks")
    store.import_files(tmp_path / "1.bin", first_block=40)
    store.import_files([tmp_path / "0.bin", tmp_path / "2.bin"])
    tokens = lab.connect().tokens()
    ids = [
        one for batch in store.batches(1) for one in batch.trades(tokens)["trade_id"]
    ]
    assert ids == [n * 100_000 + index for n in (40, 41, 42) for index in (0, 0, 1, 1)]
    assert store.blocks().trades(tokens)["trade_id"].tolist() == ids
    assert store.blocks().fills()["trade_id"].tolist() == ids[::2]


def test_the_newest_trades_are_the_newest_though_their_block_has_a_number(tmp_path):
    trade = slot("spot_trade", account_a=20_001, account_b=20_002, sell_a=1, fill_a=11)
    tokens = tmp_path / "tokens.json"
    tokens.write_text('[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]')
    store = lab.rollup.Store(tmp_path / "blocks.duckdb")
    for second, first_block in ((7, 40), (5, None)):
        file = tmp_path / f"{second}.bin"
        file.write_bytes(block_data([trade], timestamp=second))
        store.import_files(file, first_block=first_block, tokens=tokens)
    client = lab.connect(blocks=store)
    assert client.trades()["block_id"].isna().tolist() == [True, True, False, False]
    assert client.trades(20_001, limit=1)["block_id"].tolist() == [40]


def test_what_is_added_to_a_store_is_seen(tmp_path):
    store = lab.rollup.Store(tmp_path / "store.duckdb")
    tokens = tmp_path / "tokens.json"
    listed = [
        {"symbol": symbol, "tokenId": number, "decimals": 18}
        for number, symbol in enumerate(["ETH", "LRC", "USDT"])
    ]
    tokens.write_text(json.dumps(listed))
    files = []
    for number, sold in enumerate([(0, 1), (1, 2)], start=1):
        file = tmp_path / f"{number}.hex"
        sells = dict(zip(("sell_a", "sell_b"), sold, strict=True))
        fills = {"fill_a": 0x780001, "fill_b": 0x780001}
        trade = slot("spot_trade", account_a=20_001, account_b=20_002, **sells, **fills)
        roots = {"before": number, "after": number + 1}
        file.write_text(block_data([trade], **roots).hex())
        files.append(file)
    store.import_files(files[0], tokens=tokens, first_block=1)
    client = lab.connect(blocks=store)
    before = (len(client.trades()), client.markets().index.tolist())
    store.import_files(files[1])
    # Both sides of each fill.
    assert before == (2, ["LRC-ETH"])
    assert len(client.trades(market="LRC-USDT")) == 2
    assert set(client.markets().index) == {"LRC-ETH", "LRC-USDT"}
    assert [client.count(account) for account in client.accounts] == [2, 2]


def test_a_store_without_blocks_yet_has_no_trades(tmp_path):
    store = lab.rollup.Store(tmp_path / "blocks.duckdb")
    before_all_blocks = 11_149_900
    assert store.sync(to_block=before_all_blocks).empty
    client = lab.connect(blocks=store)
    assert client.accounts == []
    assert client.markets().empty
    assert client.trades().empty
    assert client.pool_balances().empty
