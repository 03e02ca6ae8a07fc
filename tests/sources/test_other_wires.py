"""The client reads the same history whatever a relayer's rows look like, and while it grows and fails."""

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.clients import client_of
from support.other_wires import Rewired, as_numbers, without_prefix

from loopring_lab import tables
from loopring_lab.relayer import Relayer, Settings, World

pytestmark = pytest.mark.contract

ROWS = 263
LACKING = {
    7: [
        "block_id",
        "index_in_block",
        "token_id",
        "storage_id",
        "order_hash",
        "role",
    ],
    13: ["role"],
    14: [],
    15: [],
}


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=3, size=0.1)


@pytest.fixture(scope="module")
def account(world: World) -> int:
    """Choose the account of about so many rows that has two pages of each fill type."""
    relayer = Relayer(world)
    counts = {
        one: [len(relayer.rows(one, kind)) for kind in ("amm", "dex")]
        for one in relayer.accounts
    }
    both = [one for one in counts if min(counts[one]) > 60]
    return min(both, key=lambda one: abs(sum(counts[one]) - ROWS))


@pytest.fixture(scope="module")
def truth(world: World, account: int) -> pd.DataFrame:
    """Every row, from the relayer's own memory through the tolerant path."""
    relayer = Relayer(world)
    pages = [{"trades": relayer.rows(account, kind)} for kind in ("amm", "dex")]
    names = tables.tokens(world.tokens())
    return tables.trades(
        pages, names, tables.markets(world.markets(), names), fill_type=["amm", "dex"]
    )


@pytest.mark.parametrize("order", ["oldest", "shuffled"])
def test_rows_in_any_order(world, account, truth, order):
    with Relayer(Rewired(world, order)) as relayer:
        got = client_of(relayer).trades(account)
    assert_frame_equal(got, truth)


@pytest.mark.parametrize("length", LACKING)
def test_rows_of_every_length(world, account, truth, length):
    change = lambda row: (*row, "0")[:length]  # noqa: E731
    with Relayer(Rewired(world, change=change)) as relayer:
        got = client_of(relayer).trades(account)
    lacking = [*LACKING[length], "extra"]
    assert_frame_equal(got.drop(columns=lacking), truth.drop(columns=lacking))
    assert got[LACKING[length]].isna().all(axis=None)
    assert len(tables.anomalies(got)) == (len(got) if length == 15 else 0)


def test_members_as_numbers(world, account, truth):
    with Relayer(Rewired(world, change=as_numbers)) as relayer:
        got = client_of(relayer).trades(account)
    assert_frame_equal(got, truth)


def test_a_history_that_grows_while_it_is_read(world, account, truth):
    with Relayer(world, Settings(growth=3)) as relayer:
        at_first = len(relayer.rows(account))
        got = client_of(relayer).trades(account)
    assert at_first < len(got) <= len(truth)
    for fill_type in ("amm", "dex"):
        read = got[got["fill_type"] == fill_type].reset_index(drop=True)
        # The newest rows show last.
        expected = truth[truth["fill_type"] == fill_type].head(len(read))
        assert_frame_equal(read, expected.reset_index(drop=True))


def test_a_relayer_that_fails_now_and_then(world, account, truth):
    faults = {"429": 0.1, "500": 0.1, "503": 0.1}
    with Relayer(world, Settings(faults=faults)) as relayer:
        got = client_of(relayer, attempts=12).trades(account)
        assert relayer.counts.faults.total() > 0
    assert_frame_equal(got, truth)


@pytest.mark.parametrize("change", [None, without_prefix])
def test_a_market_is_whole_whether_or_not_its_pool_is_named_apart(
    world, account, truth, change
):
    kinds = truth.groupby("market", observed=True)["fill_type"].nunique()
    market = kinds[kinds == 2].index[0]
    source = world if change is None else Rewired(world, change=change)
    with Relayer(source) as relayer:
        got = client_of(relayer).trades(account, market=market)
    assert_frame_equal(got, truth[truth["market"] == market].reset_index(drop=True))
    assert got["fill_type"].nunique() == 2
