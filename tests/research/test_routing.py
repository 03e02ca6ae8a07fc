"""What orders on the book would have cost at the pool: exact against synthetic worlds, and unknown where it is."""

from decimal import Decimal

import pandas as pd
import pytest
from figures.test_figures import assert_legible
from support.optional import thorough
from support.worlds import pool_balances, trades_of

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.relayer import Fill, World
from loopring_lab.relayer.mainnet import MARKETS

WORLDS = [
    World(3, 0.1, "neither", switched=("2022-05-01", "pool")),
    World(4, 1, "book", book_arbitrage=True),
]


def orders_of(world: World) -> dict[str, list[Fill]]:
    """Return the fills of each order on the book, in their order."""
    found: dict[str, list[Fill]] = {}
    for fill in world.fills:
        if fill.venue == "dex":
            found.setdefault(fill.taker_hash, []).append(fill)
    return found


def in_units(amount: int | None, market: str) -> Decimal | None:
    if amount is None:
        return None
    return Decimal(amount).scaleb(-MARKETS[market].quote.decimals)


@pytest.fixture(scope="module")
def world() -> World:
    return World(2, 0.1, "book", book_arbitrage=True)


@pytest.fixture(scope="module")
def trades(world: World) -> pd.DataFrame:
    return trades_of(world)


@pytest.fixture(scope="module")
def balances(world: World) -> pd.DataFrame:
    return pool_balances(world)


@pytest.fixture(scope="module")
def quotes(trades: pd.DataFrame, balances: pd.DataFrame) -> pd.DataFrame:
    return lab.research.pool_quotes(trades, balances)


def test_quotes_are_the_pools_to_the_last_unit(world, quotes):
    assert_quotes(world, quotes)


@pytest.mark.thorough
@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_quotes_in_other_worlds_are_the_pools(world):
    quotes = lab.research.pool_quotes(trades_of(world), pool_balances(world))
    assert_quotes(world, quotes)


def assert_quotes(world: World, quotes: pd.DataFrame) -> None:
    truth = orders_of(world)
    assert set(quotes["order_hash"]) == set(truth)
    for row in quotes.itertuples():
        # The world notes what the pool would have given for the whole order just before its first fill.
        first, *others = truth[row.order_hash]
        assert row.fills == 1 + len(others)
        expected = in_units(first.pool_quote, first.market)
        found = None if pd.isna(row.pool_quote) else Decimal(str(row.pool_quote))
        assert found == expected, first


def test_what_an_order_lost_is_the_difference_of_two_costs(world, quotes):
    quotes = quotes.set_index("order_hash")
    for order_hash, fills in orders_of(world).items():
        quote = fills[0].pool_quote
        if quote is None:
            continue
        paid = sum(fill.quote for fill in fills)
        size = sum(fill.size for fill in fills)
        fee = sum(fill.fee for fill in fills)
        if fills[0].side == "BUY":
            book = paid / (size - fee)
            # The fee of 10 basis points is taken from what is received.
            pool = quote / (size * 0.999)
            expected = (book / pool - 1) * 10_000
        else:
            book = (paid - fee) / size
            pool = quote * 0.999 / size
            expected = (1 - book / pool) * 10_000
        found = quotes.loc[order_hash, "opportunity_bps"]
        # Of relayers' rows, what was paid is size times a price of 8 decimals.
        assert found == pytest.approx(expected, abs=0.5)


def test_quotes_are_amounts_of_the_quote_token(quotes):
    known = quotes.dropna(subset="pool_quote")
    added = lab.amounts.total(known, "pool_quote")
    for token, rows in known.groupby("quote", observed=True):
        assert added[token] == rows["pool_quote"].sum()
    last = known.tail(3)
    shown = lab.show(last).frame
    units = [text.rpartition(" ")[2] for text in shown["pool_quote"]]
    assert units == last["quote"].tolist()


def test_orders_without_reserves_have_no_quote_and_are_counted(trades, balances):
    later = balances[balances["created_at"] > "2022-07-01"]
    quotes = lab.research.pool_quotes(trades, later)
    has_quote = quotes["pool_quote"].notna()
    assert not has_quote[quotes["first"] < "2022-07-01"].any()
    assert has_quote.any()
    assert quotes.loc[~has_quote, "opportunity_bps"].isna().all()
    unquoted = (~has_quote).sum()
    assert quotes.attrs["notes"] == [
        f"{unquoted:,} of {len(quotes):,} orders have no quote: no reserves of a pool are known just before them, "
        "they are more than the pool held, or an amount is not known."
    ]
    by_side = lab.research.pool_quotes(trades, later, by="side")
    assert by_side["unquoted"].sum() == unquoted
    assert by_side["orders"].sum() == len(quotes)


def test_an_order_does_not_see_what_happened_after_it(trades, balances, quotes):
    order = quotes[quotes["pool_quote"].notna()].iloc[50]
    before = balances[balances["created_at"] < order["first"]]
    of_the_moment = before.tail(1).assign(
        created_at=order["first"],
        market=order["market"],
        block_id=1,
        index_in_block=100_000,
    )
    again = lab.research.pool_quotes(trades, pd.concat([before, of_the_moment]))
    found = again[again["order_hash"] == order["order_hash"]]
    assert found["pool_quote"].tolist() == [order["pool_quote"]]


def test_two_states_of_one_moment_are_none(trades, balances):
    twice = pd.concat([balances, balances])
    assert lab.research.pool_quotes(trades, twice)["pool_quote"].isna().all()


def test_unknown_balances_end_what_was_known(trades, balances):
    gap = pd.Timestamp("2022-07-01", tz="UTC")
    known = balances[balances["created_at"] < gap]
    ends = known.drop_duplicates("market").assign(
        created_at=gap, base_balance=None, quote_balance=None
    )
    ends = ends.astype({"base_balance": "amount", "quote_balance": "amount"})
    quotes = lab.research.pool_quotes(trades, pd.concat([known, ends]))
    assert quotes.loc[quotes["first"] >= gap, "pool_quote"].isna().all()
    assert quotes.loc[quotes["first"] < gap, "pool_quote"].notna().any()


def test_orders_without_a_size_have_no_class_and_move_none(trades, balances):
    is_empty = trades["order_hash"].isin(trades["order_hash"].dropna().unique()[::3])
    emptied = trades.assign(size=trades["size"].mask(is_empty, Decimal(0)))
    found = lab.research.pool_quotes(emptied, balances)
    assert (found["size"] == 0).any()
    assert found["size_class"].isna().equals(found["size"] == 0)
    alone = lab.research.pool_quotes(trades[~is_empty], balances)
    classes = found.dropna(subset=["size_class"]).set_index("order_hash")["size_class"]
    expected = alone.set_index("order_hash")["size_class"]
    assert classes.to_dict() == expected.to_dict()


@pytest.mark.parametrize(
    "by", [thorough("size_class"), ["market", 'first "digit", of account']]
)
def test_groups_are_columns_of_orders_or_of_trades(by, trades, balances, quotes):
    digit = trades["account_id"].astype(str).str[:1]
    labelled = trades.assign(**{'first "digit", of account': digit})
    found = lab.research.pool_quotes(labelled, balances, by=by)
    assert found["orders"].sum() == len(quotes)
    assert found["fills"].sum() == quotes["fills"].sum()


def test_groups_may_come_one_by_one_and_must_be_names(trades, balances):
    expected = lab.research.pool_quotes(trades, balances, by=["market"])
    found = lab.research.pool_quotes(trades, balances, by=iter(["market"]))
    pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(LabError, match="by= cannot include int"):
        lab.research.pool_quotes(trades, balances, by=5)


def test_on_the_recorded_block_orders_are_quoted_where_balances_are_stated():
    client = lab.connect(blocks="sample")
    balances = client.pool_balances()
    assert set(balances["market"]) == {"LRC-ETH", "LRC-USDC"}
    quotes = lab.research.pool_quotes(client.trades(), balances)
    assert len(quotes) == 21
    quoted = quotes[quotes["pool_quote"].notna()]
    assert quoted["market"].value_counts().to_dict() == {"LRC-USDC": 10, "LRC-ETH": 2}
    # A pool's quote includes its fee, so nobody is far from it by more than both fees and a little, but while the
    # block begins: arbitrageurs are still bringing the pool of LRC-USDC down from 1.13 USDC.
    assert quoted["before_fees_bps"].abs().max() < 130
    assert quoted["before_fees_bps"].iloc[4:].abs().max() < 60


def test_means_are_said_in_words_and_drawn(trades, balances):
    overall = lab.research.pool_quotes(trades, balances, by=[])
    (row,) = overall.to_dict("records")
    said = lab.research.describe(overall)
    quoted = row["orders"] - row["unquoted"]
    cost, low, high = (
        f"{row[f'{name}_opportunity_bps']:,.1f}" for name in ("weighted", "low", "high")
    )
    assert f"the opportunity cost is {cost} bps (interval {low} to {high})" in said
    assert (
        f"over the {quoted:,} of {row['orders']:,} orders on the book that have a quote."
        in said
    )
    is_undecided = row["low_opportunity_bps"] < 0 < row["high_opportunity_bps"]
    assert said.startswith("Undecided: ") == is_undecided
    wide = lab.research.pool_quotes(trades, balances, by=[], intervals=0.99)
    assert f"{cost} bps (99 % interval " in lab.research.describe(wide)
    table = lab.research.pool_quotes(trades, balances, by="market")
    lines = lab.research.describe(table).splitlines()
    assert [line.partition(":")[0] for line in lines] == table["market"].tolist()
    unknown = table["weighted_opportunity_bps"].isna()
    assert sum("No quotes" in line for line in lines) == unknown.sum()
    # The same in the figure: all orders first, then each market with a quote.
    figure = lab.research.figures.routing(trades, balances)
    drawn = figure.table
    assert drawn["group"].iloc[0] == "all"
    assert set(drawn["group"].iloc[1:]) == set(table.loc[~unknown, "market"])
    means = table.set_index("market")["weighted_opportunity_bps"]
    for found in drawn.iloc[1:].to_dict("records"):
        mean = means[found["group"]]
        assert found["weighted_opportunity_bps"] == pytest.approx(mean, rel=1e-12)
    assert_legible(figure)
    many = lab.research.figures.routing(trades, balances, by=["market", "side"])
    assert "by market, side (11 of 12)" in many.axes[0].get_title(loc="left")
    assert_legible(many)
    alone = lab.research.figures.routing(trades, balances, by=[])
    assert list(alone.table["group"]) == ["all"]
    assert alone.table["quoted"].tolist() == [quoted]


def test_without_quotes_nothing_is_said_or_drawn(trades, balances):
    at_pools = trades[trades["fill_type"] == "amm"]
    nothing = lab.research.pool_quotes(at_pools, balances, by=[])
    assert lab.research.describe(nothing).startswith("No quotes: ")
    with pytest.raises(
        LabError, match=r"lab\.research\.figures\.routing: no order on the book"
    ):
        lab.research.figures.routing(at_pools, balances)
