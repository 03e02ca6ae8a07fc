"""A block of settled fills, served over HTTP and read by the client, against independent facts of each fill."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.settled_block import COUNTS, Settled, client_of, settled_of, trades_of
from support.wire_rows import whole

import loopring_lab as lab

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def client(block_folder: Path) -> lab.Client:
    return client_of(block_folder)


@pytest.fixture(scope="module")
def settled(block_folder: Path) -> Settled:
    return settled_of(block_folder)


@pytest.fixture(scope="module")
def trades(client: lab.Client) -> pd.DataFrame:
    return trades_of(client)


@pytest.fixture(scope="module")
def decimals(client: lab.Client) -> dict[str, int]:
    found: dict[str, int] = client.tokens()["decimals"].to_dict()
    return found


def paired(
    trades: pd.DataFrame, settled: Settled
) -> Iterator[tuple[Any, dict[str, Any]]]:
    for row in trades.itertuples():
        yield row, settled[row.trade_id, row.side]


def test_every_row_of_every_account_arrives(client, trades, settled, block_folder):
    assert client.accounts is not None
    venues = trades["fill_type"].value_counts()
    counts = (len(trades), len(client.accounts), venues["amm"], venues["dex"])
    assert counts == COUNTS[block_folder.name][:4]
    assert set(zip(trades["trade_id"], trades["side"], strict=True)) == settled.keys()
    assert lab.anomalies(trades).empty


def test_size_and_fee_are_the_chain_s_integers(trades, settled, decimals):
    for row, fact in paired(trades, settled):
        assert whole(row.size, decimals[row.base]) == int(fact["size"])
        assert whole(row.fee, decimals[row.fee_token]) == int(fact["fee"])


def test_accounts_markets_fill_types_and_fee_tokens_are_the_chain_s(trades, settled):
    for row, fact in paired(trades, settled):
        got = (
            row.account_id,
            row.market,
            row.base,
            row.quote,
            row.fill_type,
            row.fee_token,
        )
        names = ("account_id", "market", "base", "quote", "fill_type", "fee_token")
        assert got == tuple(fact[name] for name in names)


def test_totals_per_fee_token_equal_the_sums_of_integers(trades, settled, decimals):
    sums: dict[str, int] = defaultdict(int)
    for fact in settled.values():
        sums[fact["fee_token"]] += int(fact["fee"])
    totals = lab.amounts.total(trades, "fee")
    assert {
        token: whole(amount, decimals[token]) for token, amount in totals.items()
    } == sums


def test_fee_rates_round_to_the_chain_s_basis_points(trades, settled, block_folder):
    checked = 0
    for row, fact in paired(trades, settled):
        # A fee of fewer digits is cut too coarsely to round to its basis points.
        if len(fact["fee"]) >= 4 or fact["fee_bips"] == 0:
            assert round(row.fee_bps) == fact["fee_bips"]
            checked += 1
    assert checked == COUNTS[block_folder.name][4]


def test_notional_is_within_the_price_s_cut_of_the_settled_quote(
    trades, settled, decimals
):
    for row, fact in paired(trades, settled):
        exact = int(fact["quote_amount"])
        got = int(row.notional.scaleb(18))
        scaled = exact * 10 ** (18 - decimals[row.quote])
        # A price cut to 8 decimals is low by less than 1e-8, so the notional by less than size times that.
        assert abs(got - scaled) * int(row.price.scaleb(18)) <= scaled * 10**10


def test_an_order_s_fills_are_found_without_its_account(client, trades):
    order = trades["order_hash"].value_counts().index[0]
    found = client.trades(order_hash=order)
    expected = trades[trades["order_hash"] == order]
    assert sorted(found["trade_id"]) == sorted(expected["trade_id"])
    assert set(found["account_id"]) == set(expected["account_id"])


def test_a_recording_is_not_called_synthetic(client, trades, block_folder):
    assert not client.synthetic
    assert client.source == str(block_folder.resolve())
    assert trades.attrs["synthetic"] is False


def test_liquidity_counts_the_fills_of_each_pool(trades, settled):
    made = Counter(
        fact["account_id"]
        for fact in settled.values()
        if fact["fill_type"] == "amm" and fact["role"] == "maker"
    )
    found = lab.research.liquidity(lab.fills.with_roles(trades))
    assert found.groupby("account_id")["fills"].sum().to_dict() == made
