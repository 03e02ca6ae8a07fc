"""Trades of several accounts in one frame, and outside prices that pandas joins to them."""

import pytest
from pandas.testing import assert_frame_equal
from support.optional import thorough

import loopring_lab as lab
from loopring_lab.sources.client import Client

ACCOUNTS = [71468, 94680, 71468]


@pytest.fixture(scope="module")
def client() -> Client:
    return lab.connect()


def test_they_are_those_of_each_oldest_first(client):
    each = [client.trades(account) for account in ACCOUNTS[:2]]
    joined = client.trades(ACCOUNTS)
    assert len(joined) == sum(map(len, each))
    assert joined["created_at"].is_monotonic_increasing
    for frame in each:
        account = frame["account_id"].iloc[0]
        part = joined[joined["account_id"] == account].reset_index(drop=True)
        assert_frame_equal(part, frame, check_categorical=False)
    assert joined.dtypes["market"] == "category"
    assert joined.dtypes["fee"] == each[0].dtypes["fee"]
    assert joined.attrs["source"] == client.source


def test_the_newest_are_the_newest_of_all(client):
    newest = client.trades(ACCOUNTS, limit=30)
    everything = client.trades(ACCOUNTS)
    assert newest["trade_id"].tolist() == everything["trade_id"].tail(30).tolist()


@pytest.mark.parametrize(
    ("count", "labels"),
    [
        (2, {"account 71468", "account 94680"}),
        thorough(6, {"AMM pool", "order book"}),
    ],
)
def test_fee_rates_has_a_line_for_each_of_a_few_accounts(client, count, labels):
    accounts = [71468, 94680, *(client.accounts or [])]
    trades = client.trades(accounts[:count])
    axes = lab.figures.fee_rates(trades, every="1q").axes[0]
    assert {line.get_label() for line in axes.lines} == labels


def test_blocks_give_several_accounts_too():
    blocks = lab.connect(blocks="sample")
    both = blocks.trades()["account_id"].drop_duplicates().head(2).tolist()
    joined = blocks.trades(both)
    assert len(joined) == sum(blocks.count(account) for account in both)


def test_fills_of_one_block_are_in_its_order_whichever_account_is_named_first():
    blocks = lab.connect(blocks="sample")
    both = blocks.trades()["account_id"].drop_duplicates().head(2).tolist()
    joined = blocks.trades(both)
    assert joined["trade_id"].is_monotonic_increasing
    assert_frame_equal(blocks.trades(both[::-1]), joined, check_categorical=False)
    newest = blocks.trades(both, limit=1)
    assert newest["trade_id"].tolist() == [joined["trade_id"].max()]
