"""One test over all settings of the embedded relayer: the client always reads the whole history."""

import itertools
from collections.abc import Iterator

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.clients import client_of

from loopring_lab import tables
from loopring_lab.http.budget import Budget
from loopring_lab.relayer import Relayer, Settings, World

pytestmark = pytest.mark.contract

ROWS = 263
LENGTHS = [7, 8, 10, 12, 13, 14, 15]
ORDERS = ["newest", "oldest", "shuffled"]
NUMBERS = ["string", "number"]
GROWTH = [0, 3]
FAULTS: list[dict[str, float]] = [
    {},
    {"429": 0.1, "500": 0.1, "503": 0.1},
    {"reset": 0.15, "truncated": 0.15, "slow": 0.05},
]
COMBINATIONS = list(itertools.product(LENGTHS, ORDERS, NUMBERS, GROWTH, FAULTS))
LACKING = {
    7: [
        "block_id",
        "index_in_block",
        "token_id",
        "storage_id",
        "order_hash",
        "role",
    ],
    8: ["index_in_block", "token_id", "storage_id", "order_hash", "role"],
    10: ["block_id", "index_in_block", "order_hash", "role"],
    12: ["order_hash", "role"],
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


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Budget, "pause", lambda self, seconds: None)


def visible(truth: pd.DataFrame, got: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Return the oldest rows of each fill type, as many as were read: growth shows the newest ones last."""
    for fill_type in ("amm", "dex"):
        read = int((got["fill_type"] == fill_type).sum())
        yield truth[truth["fill_type"] == fill_type].head(read)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("length", "order", "numbers", "growth", "faults"),
    COMBINATIONS,
    ids=[
        "-".join(map(str, [*words, "+".join(faults) or "calm"]))
        for *words, faults in COMBINATIONS
    ],
)
def test_the_history_is_whole_and_the_same(
    world, account, truth, length, order, numbers, growth, faults
):
    settings = Settings(
        row_length=length,
        order=order,
        numbers=numbers,
        growth=growth,
        growth_reserve=40,
        faults=faults,
        slow_seconds=0.01,
    )
    with Relayer(world, settings) as relayer:
        at_first = len(relayer.rows(account))
        got = client_of(relayer, attempts=12).trades(account)
    assert at_first <= len(got) <= len(truth)
    assert growth or len(got) == len(truth)
    expected = pd.concat(visible(truth, got)).sort_index().reset_index(drop=True)
    lacking = LACKING[length]
    assert_frame_equal(
        got.drop(columns=[*lacking, "extra"]),
        expected.drop(columns=[*lacking, "extra"]),
    )
    assert got[lacking].isna().all(axis=None)
    assert len(tables.anomalies(got)) == (len(got) if length == 15 else 0)


@pytest.mark.parametrize("market_filter", ["exact", "inclusive"])
@pytest.mark.parametrize("prefix", [True, False])
def test_a_market_is_whole_whether_or_not_its_pool_is_kept_apart(
    world, account, truth, market_filter, prefix
):
    kinds = truth.groupby("market", observed=True)["fill_type"].nunique()
    market = kinds[kinds == 2].index[0]
    with Relayer(
        world, Settings(market_filter=market_filter, prefix=prefix)
    ) as relayer:
        got = client_of(relayer, attempts=12).trades(account, market=market)
    assert_frame_equal(got, truth[truth["market"] == market].reset_index(drop=True))
    assert got["fill_type"].nunique() == 2
