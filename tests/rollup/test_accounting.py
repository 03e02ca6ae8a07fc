"""A pool's balances and fees from blocks, against plain integers and the exchange's own formula."""

from fractions import Fraction

import pytest
from support.rollup_blocks import recorded

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.figures.balance_figures import NEEDED

POOLS = {
    108: (1, 6),
    1: (1, 0),
}  # accounts with updates in the recorded block, and their tokens


@pytest.fixture(scope="module")
def block():
    return lab.rollup.decode_data((recorded() / "data.hex").read_text())


@pytest.fixture(scope="module")
def tokens():
    folder = recorded().parent
    return lab.connect(recording=folder / "mainnet_block_a").tokens()


@pytest.fixture(scope="module")
def world():
    return lab.connect(blocks="demo").store.blocks(last=20_200)


@pytest.mark.parametrize("pool", POOLS)
def test_published_balances_of_a_real_block_follow_from_all_changes(block, pool):
    frame = block.balances(pool)
    assert (frame["change"] != 0).all()
    stated = frame.dropna(subset="published")
    known = stated.dropna(subset="recomputed")
    assert len(known) == len(stated) - len(POOLS[pool]) > 0
    assert (known["published"] == known["recomputed"]).all()


def test_a_pool_keeps_what_its_updates_state_and_no_less(block, world):
    for blocks, pool in ((block, 108), (world, 1)):
        (stated,) = set(blocks.amm_updates().query("account_id == @pool")["fee_bips"])
        fills = blocks.pool_fills(pool).dropna(subset="kept")
        assert len(fills) > 20
        for row in fills.itertuples():
            paid = int(row.amount_in)
            kept = int(row.kept)
            before = int(row.balance_in) * int(row.balance_out)
            left = int(row.balance_out) - int(row.amount_out)
            # The product of both balances does not fall, and would with a unit more kept.
            most = int(row.balance_in) + paid - kept
            assert (most - 1) * left < before <= most * left
            assert Fraction(kept + 1, paid) >= Fraction(stated, 10_000)
            assert row.kept_bps == pytest.approx(10_000 * kept / paid)


def test_units_symbols_and_source_come_along(block, tokens, world):
    frame = block.balances(108, tokens)
    assert set(frame["token"].dropna()) >= {"LRC", "USDC"}
    row = frame[frame["token"] == "USDC"].dropna(subset="published").iloc[0]
    assert Fraction(row["published_units"]) == Fraction(int(row["published"]), 10**6)
    fills = block.pool_fills(108, tokens)
    assert {"token_in", "kept_units"} <= set(fills.columns)
    assert world.balances(1).attrs["synthetic"]
    assert world.balances(1).attrs["account_id"] == 1


def test_nothing_is_an_empty_frame_and_nonsense_is_refused(block, tokens):
    assert block.balances(999_999, tokens).empty
    assert (
        block.pool_fills(999_999, tokens).columns.tolist()
        == block.pool_fills(108, tokens).columns.tolist()
    )
    assert block.balances(999_999).dtypes.equals(block.balances(108).dtypes)
    with pytest.raises(LabError, match="account"):
        block.balances("me")


def test_the_figure_says_what_it_draws(block, tokens):
    frame = block.balances(108, tokens)
    axes = lab.figures.pool_balance(frame, token="USDC").axes[0]
    assert axes.get_title(loc="left") == "Balance of account 108 in USDC"
    said = "4 balances published, and 3 of the 3 that can be recomputed are equal"
    assert any(said in text.get_text() for text in axes.texts)
    assert axes.get_xlabel() == "transaction in the block"
    line, dots = axes.get_lines()
    stated = frame.query("token == 'USDC'")["published_units"].dropna()
    assert dots.get_ydata().tolist() == stated.astype(float).tolist()
    assert set(dots.get_ydata()) <= set(line.get_ydata())
    first = frame[frame["published"].notna() & (frame["token"] == "USDC")].head(1)
    axes = lab.figures.pool_balance(first).axes[0]
    said = "0 changes; 1 balance published, and none can be recomputed"
    assert any(said in text.get_text() for text in axes.texts)
    places = axes.get_xticks()
    assert places.tolist() == places.round().tolist()
    with pytest.raises(LabError, match="no balance of ETH was published"):
        lab.figures.pool_balance(frame, token="ETH")
    with pytest.raises(LabError, match="no balance of any token was published"):
        lab.figures.pool_balance(block.balances(58344, tokens))


def test_a_figure_without_a_column_is_the_same_or_names_it(block, tokens):
    frame = block.balances(108, tokens)
    whole = lab.figures.pool_balance(frame)
    for column in set(frame) - NEEDED:
        assert lab.figures.pool_balance(frame.drop(columns=column)).marks == whole.marks
    for column in NEEDED:
        with pytest.raises(LabError, match=f"without {column}\\."):
            lab.figures.pool_balance(frame.drop(columns=column))
