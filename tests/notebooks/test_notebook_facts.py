"""Sentences of notebooks that state a fact about data without a number: each is true of every source they run on."""

import tempfile
from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import pytest
from support.optional import thorough

import loopring_lab as lab
from loopring_lab.relayer.server import embedded

pytestmark = pytest.mark.contract

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
PLACES = Decimal("1e-8")
Trades = pd.DataFrame


def fees_are_in_what_is_received(trades: Trades, client: Any) -> None:
    known = trades.dropna(subset=["base", "fee_token"])
    bought = known["base"].astype("object")
    received = bought.where(known["side"] == "BUY", known["quote"].astype("object"))
    assert (known["fee_token"].astype("object") == received).all()
    assert len(known) > 0.99 * len(trades)


def takers_are_charged(trades: Trades, client: Any) -> None:
    paid = trades["fee"] > 0
    assert paid[trades["role"] == "taker"].mean() > 0.99


def prices_are_cut(trades: Trades, client: Any) -> None:
    assert all(price == price.quantize(PLACES) for price in trades["price"])
    assert (trades["notional"] == trades["size"] * trades["price"]).mean() < 1


def quotes_of_blocks_are_exact(trades: Trades, client: Any) -> None:
    """The legs are the chain's integers, and the price is their ratio to 18 decimals."""
    decimals = client.tokens().set_index("token_id")["decimals"]
    facts = client.store.blocks().fills().set_index("trade_id")
    takers = trades[(trades["role"] == "taker") & trades["market"].notna()]
    for row in takers.itertuples():
        fact = facts.loc[row.trade_id]
        legs = [
            Decimal(int(fact["fill_a"])).scaleb(-int(decimals[fact["sell_a"]])),
            Decimal(int(fact["fill_b"])).scaleb(-int(decimals[fact["sell_b"]])),
        ]
        sold, bought = legs
        expected = (bought, sold) if row.side == "BUY" else (sold, bought)
        assert (row.size, row.notional) == expected
        base, quote = expected
        ratio = quote / base
        assert row.price == ratio.quantize(Decimal("1e-18"), ROUND_FLOOR)
    assert len(takers) > 100


def a_tier_is_charged_from_first_to_last(trades: Trades, client: Any) -> None:
    tokens = client.tokens()
    groups = ["fill_type", "role", "tier_bps"]
    tiered = lab.fees.with_tiers(trades, tokens=tokens).dropna(subset="tier_bps")
    times = tiered.groupby(groups, observed=True)["created_at"].agg(["min", "max"])
    tiers = lab.fees.tiers(trades, by=["fill_type", "role"], tokens=tokens)
    known = tiers.dropna(subset="tier_bps").set_index(groups)
    for group, row in times.iterrows():
        assert known.loc[group, "first"] == row["min"]
        assert known.loc[group, "last"] == row["max"]
    assert len(times)


def the_sample_is_of_march_2022(trades: Trades, client: Any) -> None:
    assert set(trades["created_at"].dt.strftime("%Y-%m")) == {"2022-03"}


def a_block_has_one_time(trades: Trades, client: Any) -> None:
    assert trades.groupby("block_id", dropna=False)["created_at"].nunique().max() == 1


def other_transactions_stand_between_trades(trades: Trades, client: Any) -> None:
    blocks = client.store.blocks()
    at = blocks.table("spot_trade")["index_in_block"].to_pylist()
    for kind in ("deposit", "withdrawal", "account_update"):
        places = blocks.table(kind)["index_in_block"].to_pylist()
        assert min(at) < min(places) <= max(places) < max(at)


def what_one_balance_gains_the_other_loses(trades: Trades, client: Any) -> None:
    balances = client.pool_balances()
    fills = trades[trades["role"] == "maker"].set_index("index_in_block")
    pool = balances[balances["account_id"] == 1].set_index("index_in_block")
    change = pool[["base_balance", "quote_balance"]].diff().iloc[1:]
    traded = change[change.index.isin(fills.index[fills["account_id"] == 1])]
    assert ((traded["base_balance"] > 0) == (traded["quote_balance"] < 0)).all()
    assert len(traded) > 20


def difficult_accounts_are_four(trades: Trades, client: Any) -> None:
    assert len(embedded().difficult) == 4


def each_token_has_a_line(trades: Trades, client: Any) -> None:
    (axes,) = lab.figures.fee_rates(trades, by="fee_token").axes
    labels = [line.get_label() for line in axes.lines]
    tokens = trades["fee_token"].value_counts()
    assert set(labels) <= set(tokens.index)
    assert len(labels) == min(5, (tokens > 0).sum())


def few_days_have_no_arbitrage(trades: Trades, client: Any) -> None:
    newest = trades["created_at"].max()
    found = {}
    for days in (2, 30):
        since = newest - pd.Timedelta(days=days)
        taken = client.trades(client.accounts, since=since, progress=False)
        judged = lab.research.with_flow(taken, client.outside_prices(taken))
        found[days] = set(judged["flow"].dropna().unique()) - {"unknown"}
    assert found == {2: {"user"}, 30: {"user", "arbitrage"}}


def odd_rows_are_not_all_anomalies(trades: Trades, client: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        archive = lab.Archive(Path(folder, "trades.duckdb"))
        odd = archive.sync(client, accounts=[70002])["odd"].sum()
        held = archive.trades()
    listed = lab.anomalies(held).index
    assert odd == held["extra"].count()
    assert set(held.index[held["extra"].notna()]) < set(listed)


EVERYWHERE = ("relayer", "recording", "sample")
ANSWERED = ("relayer", "recording")
SIMULATED = ("relayer",)
BLOCKS = ("sample",)
# What a notebook says, and the sources of which it must be true.
FACTS: list[tuple[str, str, tuple[str, ...], Callable[[Trades, Any], None]]] = [
    (
        "01_first_look",
        "token **received**: the base token of a BUY, the quote token of a SELL",
        EVERYWHERE,
        fees_are_in_what_is_received,
    ),
    ("01_first_look", "The exchange charges takers", EVERYWHERE, takers_are_charged),
    (
        "01_first_look",
        "A relayer truncates `price` to eight decimals",
        ANSWERED,
        prices_are_cut,
    ),
    (
        "01_first_look",
        "From blocks `notional` is exact, too",
        BLOCKS,
        quotes_of_blocks_are_exact,
    ),
    (
        "02_fee_analysis",
        '`by="fee_token"` draws a line for each token, up to five',
        EVERYWHERE,
        each_token_has_a_line,
    ),
    (
        "02_fee_analysis",
        "token **received**: the base token of a BUY, the quote token of a SELL",
        EVERYWHERE,
        fees_are_in_what_is_received,
    ),
    (
        "02_fee_analysis",
        "`first` and `last` say when a tier was first and last charged",
        EVERYWHERE,
        a_tier_is_charged_from_first_to_last,
    ),
    (
        "02_fee_analysis",
        "from blocks, amounts of the quote token are exact, too",
        BLOCKS,
        quotes_of_blocks_are_exact,
    ),
    (
        "04_key_update",
        "The embedded relayer has four more",
        ("relayer",),
        difficult_accounts_are_four,
    ),
    (
        "03_amm_versus_orderbook",
        "over a few days arbitrage stays among the users",
        SIMULATED,
        few_days_have_no_arbitrage,
    ),
    (
        "05_archive_and_scale",
        "`odd` counts rows that could not be read as they were sent",
        SIMULATED,
        odd_rows_are_not_all_anomalies,
    ),
    (
        "06_real_trades",
        "one transaction of March 2022",
        BLOCKS,
        the_sample_is_of_march_2022,
    ),
    (
        "06_real_trades",
        "key updates stand between the trades",
        BLOCKS,
        other_transactions_stand_between_trades,
    ),
    (
        "06_real_trades",
        "and `price` is their ratio, cut to 18 decimals",
        BLOCKS,
        quotes_of_blocks_are_exact,
    ),
    (
        "06_real_trades",
        "All fills of a block have the same time",
        BLOCKS,
        a_block_has_one_time,
    ),
    (
        "06_real_trades",
        "the pool's other balance falls",
        BLOCKS,
        what_one_balance_gains_the_other_loses,
    ),
    (
        "07_liquidity",
        "All fills of a block have one time",
        BLOCKS,
        a_block_has_one_time,
    ),
]


@pytest.fixture(
    scope="module", params=[thorough("relayer"), thorough("recording"), "sample"]
)
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def read(source: str, request: pytest.FixtureRequest) -> tuple[Trades, Any]:
    """The trades that notebooks read of a source, with roles, and its client."""
    if source == "relayer":
        client = lab.connect()
        trades = client.trades(10083, progress=False)
    elif source == "recording":
        folder = request.getfixturevalue("recordings") / "mainnet_block_a"
        client = lab.connect(recording=folder)
        trades = client.trades(client.accounts, progress=False)
    else:
        client = lab.connect(blocks="sample")
        trades = client.trades()
    return lab.fills.with_roles(trades), client


def test_sentences_without_a_number_are_true_of_what_is_read(source, read):
    for name, words, sources, is_true in FACTS:
        cells = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells
        prose = [cell.source for cell in cells if cell.cell_type == "markdown"]
        assert words in " ".join(prose), f"{name} says this no longer: {words}"
        if source in sources:
            is_true(*read)
