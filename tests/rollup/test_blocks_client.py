"""A client over a store of blocks answers as a client of the relayer that settled them, or says why not."""

import pandas as pd
import pytest
from support.optional import thorough
from support.rollup_blocks import EXCHANGE, block_data, recorded, slot
from support.settled_block import client_of, trades_of

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.relayer import Settings, World

WORLD = World()
UNTIL = 11_149_814 + 150 * 48 * 10  # 10 days


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = lab.rollup.Store(tmp_path_factory.mktemp("chain") / "blocks")
    store.sync(to_block=UNTIL, progress=False)
    return store


@pytest.fixture(scope="module")
def client(store):
    return lab.connect(blocks=store)


@pytest.fixture(scope="module")
def last(store):
    return store.report()["last"].iloc[-1]


def test_without_an_account_both_sides_of_every_fill_are_read(client, last):
    trades = client.trades()
    fills = [fill for fill in WORLD.fills if 0 < fill.block_id <= last]
    assert len(trades) == 2 * len(fills)
    assert sorted(trades["account_id"]) == sorted(
        [f.taker for f in fills] + [f.maker for f in fills]
    )
    assert trades["created_at"].is_monotonic_increasing
    assert (trades.attrs["source"], trades.attrs["synthetic"]) == (client.source, True)
    assert lab.fees.summary(trades, by=["market"])["both_sides"].sum() > 0


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
    everything = client.trades(WORLD.accounts[0])
    market = everything["market"].mode()[0]
    middle = everything["created_at"].iloc[len(everything) // 2]
    assert (
        len(client.trades(WORLD.accounts[0], market=market))
        == (everything["market"] == market).sum()
    )
    for fill_type in ("amm", "dex"):
        chosen = client.trades(WORLD.accounts[0], fill_type=fill_type)
        assert len(chosen) == (everything["fill_type"] == fill_type).sum()
        assert client.count(WORLD.accounts[0], fill_type) == len(chosen)
    after = client.trades(WORLD.accounts[0], since=middle)
    assert (after["created_at"] >= middle).all()
    assert len(after) + len(client.trades(WORLD.accounts[0], until=middle)) == len(
        everything
    )
    newest = client.trades(WORLD.accounts[0], limit=3)
    pd.testing.assert_frame_equal(newest, everything.tail(3).reset_index(drop=True))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda client: client.trades(order_hash="0x12"),
            "rows of one account_id, token_id and storage_id",
        ),
        (lambda client: client.trades(market="LRC-ETHH"), "Did you mean 'LRC-ETH'"),
        (lambda client: client.trades(market="AMM-LRC-ETH"), "fill_type='amm'"),
        (lambda client: client.trades(fill_type="pool"), "'amm', 'dex'"),
        (lambda client: client.trades(account_id="me"), "not a valid account id"),
        (lambda client: client.account(10083), "only a relayer can answer"),
        (lambda client: client.update_fee(10083), "only a relayer can answer"),
        (lambda client: client.with_api_key("key"), "only a relayer can answer"),
        (lambda client: client.listings(), "archive.import_blocks"),
    ],
)
def test_what_blocks_cannot_answer_is_refused_with_a_way_out(client, call, says):
    with pytest.raises(LabError, match=says):
        call(client)


def test_the_exchange_is_the_one_that_the_blocks_name(client):
    exchange = client.exchange()
    assert (exchange.address, exchange.chain_id) == (
        Settings().exchange.lower(),
        31337,
    )
    assert client.outside_prices(client.trades()) is None


def test_the_client_names_its_store(client, store):
    assert (
        repr(client)
        == f"BlocksClient({client.source}, {store.report()['blocks'].sum():,} blocks)"
    )
    assert "trades(account_id)" in client._repr_html_()


@pytest.mark.parametrize(
    "file",
    [
        "calldata_plain.hex",
        thorough("calldata_packed.hex"),
        thorough("data.hex"),
    ],
)
def test_the_recorded_block_is_read_as_the_relayer_would_have_served_it(file, tmp_path):
    folder = recorded()
    store = lab.rollup.Store(tmp_path / "blocks")
    tokens = folder.parent / "mainnet_registered_tokens_v36.json"
    store.import_files(folder / file, tokens=tokens)
    client = lab.connect(blocks=tmp_path / "blocks")
    expected = trades_of(client_of(folder.parent / "mainnet_block_a"))
    found = client.trades()
    # Without the trade of an NFT, which relayers list elsewhere.
    found = found[found["base"].notna()]
    keys = ["account_id", "storage_id", "market", "size"]
    rows = [frame.sort_values(keys) for frame in (expected, found)]
    for name in (*keys, "side", "fill_type", "fee", "fee_token"):
        assert rows[1][name].tolist() == rows[0][name].tolist(), name


def test_trade_ids_of_blocks_without_a_number_are_unique_in_a_store(tmp_path):
    trade = slot(
        "spot_trade",
        account_a=20_001,
        account_b=7,
        sell_a=1,
        fill_a=11,
        fill_b=5,
        storage_b=1,
    )
    for place in range(3):
        data = block_data(
            [trade, trade], exchange=EXCHANGE, timestamp=1_600_000_000 + place
        )
        (tmp_path / f"{place}.bin").write_bytes(data)
    store = lab.rollup.Store(tmp_path / "blocks")
    store.import_files(tmp_path / "1.bin", first_block=40)
    store.import_files([tmp_path / "0.bin", tmp_path / "2.bin"])
    tokens = client_tokens()
    ids = [
        one for batch in store.batches(1) for one in batch.trades(tokens)["trade_id"]
    ]
    assert ids == [n * 100_000 + index for n in (40, 41, 42) for index in (0, 0, 1, 1)]
    assert store.blocks().trades(tokens)["trade_id"].tolist() == ids
    assert store.blocks().fills()["trade_id"].tolist() == ids[::2]


def client_tokens():
    return lab.tables.tokens(
        '[{"symbol": "ETH", "tokenId": 0, "decimals": 18}, {"symbol": "LRC", "tokenId": 1, "decimals": 18}]'
    )
