"""Roles that follow with certainty, fills counted once, and results that say where both sides are counted."""

from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from support.engines import assert_same, collected
from support.settled_block import Settled
from support.trade_histories import Drawn, assert_refused, frame_of
from support.wire_rows import page, row

import loopring_lab as lab
from loopring_lab.relayer import World

Roles = dict[tuple[int, str], str]
COLUMNS = ["role", "role_source"]


@pytest.fixture(scope="module")
def roles(settled: Settled) -> Roles:
    return {key: fact["role"] for key, fact in settled.items()}


@pytest.fixture(scope="module")
def world() -> World:
    return World(seed=4, size=0.03)


@pytest.fixture(scope="module")
def everybody(world: World) -> pd.DataFrame:
    """Read both sides of every fill of a small world, those of pools too, as sent before 2023."""
    rows: dict[str, list[Any]] = defaultdict(list)
    for number, fill in enumerate(world.fills):
        for side in (0, 1):
            rows[fill.venue].append(world.history.row(2 * number + side)[:13])
    tokens = lab.tables.tokens(world.tokens())
    pages = [page(rows[venue]) for venue in ("amm", "dex")]
    markets = lab.tables.markets(world.markets(), tokens)
    return lab.tables.trades(pages, tokens, markets, fill_type=["amm", "dex"])


@pytest.fixture(scope="module")
def truth(world: World) -> Roles:
    found = {}
    for fill in world.fills:
        found[fill.id, fill.side] = "taker"
        found[fill.id, "SELL" if fill.side == "BUY" else "BUY"] = "maker"
    return found


def judge(found: pd.DataFrame, roles: Roles) -> Counter[tuple[str, str | None]]:
    """Count rows by fill type and role found; none may differ from the truth, and each says how it is known."""
    counts: Counter[tuple[str, str | None]] = Counter()
    for line in (
        found[["trade_id", "side", "fill_type", *COLUMNS]].astype(object).itertuples()
    ):
        role, source = (
            None if pd.isna(cell) else cell for cell in (line.role, line.role_source)
        )
        assert role in (None, roles[line.trade_id, line.side])
        assert (role is None) == (source is None)
        counts[line.fill_type, role] += 1
    return counts


def drawn(
    number: int,
    side: str,
    account: int | None,
    fee: str = "0",
    role: str | None = None,
    **more: Any,
) -> Drawn:
    """Make one side of a fill of LRC-ETH."""
    kind = more.pop("kind", "dex")
    members = row(
        id=str(number),
        side=side,
        accountId=account and str(account),
        feeAmount=fee,
        type=role,
        tokenId="0" if side == "BUY" else "1",
        orderHash=f"0x{number}{side}",
        **more,
    )
    return kind, members


def trades_from(*fills: Drawn) -> pd.DataFrame:
    frame = frame_of(list(fills))
    ids = {members[12]: int(members[1]) for _, members in fills}
    return frame.assign(trade_id=[ids[order] for order in frame["order_hash"]])


def roles_of(
    trades: pd.DataFrame, pools: Any = None
) -> list[tuple[str | None, str | None]]:
    found = collected(lab.fills.with_roles(trades, pools)).select(COLUMNS).to_pylist()
    return [(line["role"], line["role_source"]) for line in found]


# Roles


def test_all_takers_of_pool_fills_are_found_and_no_role_is_wrong(block, roles, settled):
    assert block["role"].isna().all()
    counts = judge(lab.fills.with_roles(block), roles)
    real = Counter((fact["fill_type"], fact["role"]) for fact in settled.values())
    for role in ("taker", "maker"):
        assert counts["amm", role] == real["amm", role]
        assert counts["dex", role] <= real["dex", role]


def test_all_accounts_together_tell_every_role_but_those_of_free_book_fills(
    everybody, truth, world
):
    free = sum(fill.venue == "dex" and not fill.fee for fill in world.fills)
    counts = judge(lab.fills.with_roles(everybody), truth)
    assert counts["amm", None] == 0
    assert counts["dex", None] == 2 * free


def test_a_reported_role_is_kept_even_if_others_contradict_it():
    trades = trades_from(
        drawn(1, "BUY", 5, "7", "maker", kind="amm"),
        drawn(1, "SELL", 6, "9", None, kind="amm"),
        drawn(2, "BUY", 5, "0", "taker"),
        drawn(2, "SELL", 6, "9", "taker"),
    )
    found = lab.fills.with_roles(trades, {"LRC-ETH": 6}).set_index(["trade_id", "side"])
    assert found[COLUMNS].to_dict("index") == {
        (1, "BUY"): {"role": "maker", "role_source": "reported"},
        (1, "SELL"): {"role": "maker", "role_source": "pool"},
        (2, "BUY"): {"role": "taker", "role_source": "reported"},
        (2, "SELL"): {"role": "taker", "role_source": "reported"},
    }


def test_a_single_row_that_paid_took_and_one_that_did_not_is_unknown():
    assert roles_of(trades_from(drawn(1, "BUY", 5, "7"))) == [("taker", "fee")]
    assert roles_of(trades_from(drawn(1, "BUY", 5, "7", kind="amm"))) == [
        ("taker", "fee")
    ]
    assert roles_of(trades_from(drawn(1, "BUY", 5))) == [(None, None)]
    assert roles_of(trades_from(drawn(1, "BUY", 5, kind="amm"))) == [(None, None)]


def test_fees_prove_nothing_on_a_book_where_a_maker_paid():
    """Both sides paid for one fill, so that a fee is no sign of the taker in the others."""
    both = [drawn(1, "BUY", 5, "7"), drawn(1, "SELL", 6, "3")]
    assert set(roles_of(trades_from(*both, drawn(2, "BUY", 5, "7")))) == {(None, None)}
    reported = drawn(3, "SELL", 9, "7", "maker")
    found = lab.fills.with_roles(
        trades_from(
            reported, drawn(2, "BUY", 5, "7"), drawn(4, "BUY", 5, "7", kind="amm")
        )
    )
    assert found.set_index("trade_id")["role"].astype(object).fillna("?").to_dict() == {
        3: "maker",
        2: "?",
        4: "taker",
    }


def test_an_account_proven_to_be_a_pool_is_it_in_all_pool_fills_of_its_market():
    proof = [drawn(1, "BUY", 5, "7", kind="amm"), drawn(1, "SELL", 900, kind="amm")]
    free = [drawn(2, "BUY", 900, kind="amm"), drawn(3, "SELL", 8, kind="amm")]
    found = lab.fills.with_roles(trades_from(*proof, *free)).set_index(
        ["trade_id", "account_id"]
    )
    assert found["role"].astype(object).to_dict() == {
        (1, 5): "taker",
        (1, 900): "maker",
        (2, 900): "maker",
        (3, 8): "taker",
    }
    elsewhere = drawn(4, "BUY", 900, kind="amm", market="WBTC-ETH", size="100000000")
    assert roles_of(trades_from(*proof, elsewhere)).count((None, None)) == 1


def test_pools_are_given_by_market_or_as_a_list(everybody):
    free = trades_from(drawn(1, "BUY", 900, kind="amm"), drawn(2, "BUY", 5, kind="amm"))
    assert sorted(roles_of(free, {"LRC-ETH": 900})) == [
        ("maker", "pool"),
        ("taker", "pool"),
    ]
    assert sorted(roles_of(free, {"AMM-LRC-ETH": [900, 901]})) == [
        ("maker", "pool"),
        ("taker", "pool"),
    ]
    assert sorted(roles_of(free, [900])) == [("maker", "pool"), ("taker", "pool")]
    assert (
        roles_of(free, [7]) == roles_of(free, {"WBTC-ETH": 900}) == [(None, None)] * 2
    )
    for wrong in ("LRC-ETH", {"LRC-ETH": "x"}, [None], {1: 900}, 1.5):
        assert_refused(
            lambda frame, wrong=wrong: lab.fills.with_roles(frame, wrong),
            "pools=",
            free,
        )


def test_what_is_known_of_one_market_tells_roles_in_others():
    """An account that trades on the book is no pool, so who it meets at a pool is; then all others take there."""
    trades = trades_from(
        drawn(1, "BUY", 5),
        drawn(2, "BUY", 5, kind="amm"),
        drawn(2, "SELL", 900, kind="amm"),
        drawn(3, "SELL", 6, kind="amm"),
        drawn(4, "BUY", 6, kind="amm", market="WBTC-ETH", size="100000000"),
        drawn(4, "SELL", 901, kind="amm", market="WBTC-ETH", size="100000000"),
    )
    found = (
        lab.fills.with_roles(trades)
        .set_index(["trade_id", "account_id"])["role"]
        .astype(object)
    )
    assert found.drop((1, 5)).to_dict() == {
        (2, 5): "taker",
        (2, 900): "maker",
        (3, 6): "taker",
        (4, 6): "taker",
        (4, 901): "maker",
    }
    assert pd.isna(found.loc[1, 5])


# Each fill once


def test_each_fill_of_the_block_is_counted_once_as_its_taker(block, roles):
    once = lab.fills.one_side(block)
    assert once["trade_id"].tolist() == sorted({number for number, _ in roles})
    assert {roles[key] for key in zip(once["trade_id"], once["side"], strict=True)} == {
        "taker"
    }
    assert list(once.columns) == list(block.columns)
    assert lab.fills.breakdown(once)["fills"].sum() == len(roles) // 2


def test_the_book_s_share_is_that_of_fills_not_of_rows(everybody, world):
    """Point 2: with all users' accounts each book fill stands twice, each pool fill once."""
    users = everybody[everybody["account_id"].isin(world.accounts)]
    twice, once = (
        lab.fills.breakdown(frame).set_index("fill_type")
        for frame in (users, lab.fills.one_side(users))
    )
    venues = Counter(fill.venue for fill in world.fills)
    assert once["fills"].to_dict() == venues
    assert Fraction(once.loc["dex", "share"]).limit_denominator(10**6) == Fraction(
        venues["dex"], venues.total()
    )
    assert twice.loc["dex", "both_sides"] == venues["dex"]
    assert twice.loc["amm", "both_sides"] == once["both_sides"].sum() == 0
    assert twice.attrs["notes"] == [
        f"Both sides of {venues['dex']:,} fills are counted; lab.fills.one_side(trades) counts each fill once."
    ]
    assert twice.attrs["notes"][0] in str(lab.show(twice))
    assert "notes" not in once.attrs


def test_of_two_unknown_sides_the_buy_is_kept_and_of_two_versions_the_one_in_a_block():
    buy = drawn(1, "BUY", 5)
    sell = drawn(1, "SELL", 6)
    assert lab.fills.one_side(trades_from(sell, buy))["side"].tolist() == ["BUY"]
    early = trades_from(drawn(1, "BUY", 5, blockId="0", indexInBlock="0"))
    late = trades_from(drawn(1, "BUY", 5, blockId="7", indexInBlock="3"))
    for parts in ([early, late], [late, early]):
        assert lab.fills.one_side(pd.concat(parts))["block_id"].tolist() == [7]


def test_rows_without_a_trade_id_are_all_kept():
    trades = trades_from(drawn(1, "BUY", 5), drawn(2, "SELL", 6), drawn(3, "SELL", 6))
    unnumbered = trades.assign(trade_id=pd.array([None, None, 3], "Int64"))
    assert len(lab.fills.one_side(pd.concat([unnumbered, unnumbered]))) == 5
    assert (
        len(lab.fills.one_side(trades.iloc[:0]))
        == len(lab.fills.with_roles(trades.iloc[:0]))
        == 0
    )


# Results that say so


SUMMARIES: dict[str, Callable[[Any], Any]] = {
    "summary": lambda f: lab.fees.summary(f, by=["fill_type", "fee_token"]),
    "over_time": lambda f: lab.fees.over_time(f, "1h", by="market"),
    "breakdown": lambda f: lab.fills.breakdown(f, by="market"),
    "vwap": lab.fills.vwap,
    "orders": lab.fills.orders,
    "size_profile": lambda f: lab.fills.size_profile(f, 3),
    "tiers": lambda f: lab.fees.tiers(f, by="market"),
    "in_token": lambda f: lab.fees.in_token(f, "ETH", by=[], tolerance=None),
}


@pytest.mark.parametrize("name", SUMMARIES)
def test_a_frame_that_cannot_tell_gives_null_and_one_account_gives_0(block, name):
    ask = SUMMARIES[name]
    one = block[block["account_id"] == block["account_id"].iloc[0]]
    assert set(ask(one)["both_sides"]) == {0}
    assert "notes" not in ask(one).attrs
    assert ask(one)["both_sides"].dtype == "int64"
    if name != "orders":
        assert ask(block.drop(columns="trade_id"))["both_sides"].isna().all()
        assert (
            collected(ask(block.drop(columns="side")))["both_sides"].type == pa.int64()
        )


@pytest.mark.parametrize("name", SUMMARIES)
def test_notes_name_the_fills_of_which_both_sides_are_in_the_frame(block, name):
    number = block["trade_id"].nunique()
    note = f"Both sides of {number} fills are counted; lab.fills.one_side(trades) counts each fill once."
    found = SUMMARIES[name](block)
    assert found.attrs["notes"] == [note]
    assert note in str(lab.show(found))
    assert note in lab.show(found)._repr_html_()
    if name in ("breakdown", "vwap", "size_profile"):
        assert found["both_sides"].sum() == number
