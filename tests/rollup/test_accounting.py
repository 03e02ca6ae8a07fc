"""A pool's balances and fees from blocks, against plain integers and the exchange's own formula."""

from fractions import Fraction

import pytest
from support.rollup_blocks import recorded

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.rollup.balances import CHANGES

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
def world(tmp_path_factory):
    store = lab.rollup.Store(tmp_path_factory.mktemp("pool") / "blocks")
    store.sync(to_block=11_165_000, progress=False)
    return store.blocks()


def walked(blocks, account):
    """Return balances after each place, by token, and what was published, with a plain walk over all slots."""
    events = []
    for kind, changes in CHANGES.items():
        for row in blocks.table(kind).to_pylist():
            for name, token, amount, sign in changes:
                if row[name] == account:
                    events.append(
                        (
                            row["block"],
                            row["index_in_block"],
                            row[token],
                            sign * int(row[amount]),
                            None,
                        )
                    )
    stated = [
        row
        for row in blocks.table("amm_update").to_pylist()
        if row["account"] == account
    ]
    events += [
        (row["block"], row["index_in_block"], row["token"], 0, int(row["balance"]))
        for row in stated
    ]
    balance = {}
    after = {}
    for block, index, token, change, published in sorted(
        events, key=lambda event: event[:2]
    ):
        if token in balance:
            balance[token] += change
        after[block, index, token] = balance.get(token)
        if published is not None:
            balance[token] = published
    return after


@pytest.mark.parametrize("pool", POOLS)
def test_published_balances_of_a_real_block_follow_from_all_changes(block, pool):
    frame = block.balances(pool)
    assert (frame["change"] != 0).all()
    after = walked(block, pool)
    for row in frame.astype(object).where(frame.notna(), None).itertuples():
        told = None if row.recomputed is None else int(row.recomputed)
        assert after[row.block, row.index_in_block, row.token_id] == told
    stated = frame.dropna(subset="published")
    known = stated.dropna(subset="recomputed")
    assert len(known) == len(stated) - len(POOLS[pool])
    assert (known["published"] == known["recomputed"]).all()


def test_a_pool_keeps_what_its_updates_state_and_no_less(block, world):
    for blocks, pool in ((block, 108), (world, 1)):
        (stated,) = set(blocks.amm_updates().query("account_id == @pool")["fee_bips"])
        fills = blocks.pool_fills(pool).dropna(subset="kept")
        assert len(fills) > 20
        for row in fills.itertuples():
            got, gave, into, out = (
                int(x)
                for x in (
                    row.amount_in,
                    row.amount_out,
                    row.balance_in,
                    row.balance_out,
                )
            )
            assert (into + got - int(row.kept)) * (
                out - gave
            ) >= into * out  # the product does not fall
            assert (into + got - int(row.kept) - 1) * (out - gave) < into * out
            assert Fraction(int(row.kept) + 1, got) >= Fraction(stated, 10_000)
            assert row.kept_bps == pytest.approx(10_000 * int(row.kept) / got)


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
    figure = lab.figures.pool_balance(block.balances(108, tokens), token="USDC")
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "Balance of account 108 in USDC"
    assert (
        "4 balances published, and 3 of the 3 that can be recomputed are equal"
        in texts(axes)
    )
    assert axes.get_xlabel() == "transaction in the block"
    line, dots = axes.get_lines()
    assert dots.get_ydata().tolist() == [
        7349988.044072,
        7350091.432072,
        7321028.094072,
        7321205.538072,
    ]
    assert set(dots.get_ydata()) <= set(line.get_ydata())
    with pytest.raises(LabError, match="no balance of ETH was published"):
        lab.figures.pool_balance(block.balances(108, tokens), token="ETH")
    with pytest.raises(LabError, match="no balance of any token was published"):
        lab.figures.pool_balance(block.balances(58344, tokens))


def texts(axes):
    return "\n".join(text.get_text() for text in axes.texts)
