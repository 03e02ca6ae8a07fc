"""Roles that follow with certainty, fills counted once, and results that say where both sides are counted."""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from support.engines import collected
from support.optional import often
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
        orderHash=f"0x{number:063x}{1 if side == 'BUY' else 2}",
        **more,
    )
    return kind, members


def trades_from(*fills: Drawn) -> pd.DataFrame:
    frame = frame_of(list(fills))
    ids = {members[12]: int(members[1]) for _, members in fills}
    return frame.assign(trade_id=[ids[order] for order in frame["order_hash"]])


def at_pool(number: int, side: str, account: int, *more: Any, **members: Any) -> Drawn:
    return drawn(number, side, account, *more, kind="amm", **members)


OTHER_MARKET = {"market": "WBTC-ETH", "size": "100000000"}


FREE = [at_pool(1, "BUY", 900), at_pool(2, "BUY", 5)]


GIVEN = {"1 BUY": "maker pool", "2 BUY": "taker pool"}


NOT_GIVEN = {"1 BUY": "unknown", "2 BUY": "unknown"}


# Fills, pools as they are given, and the role of each fill by its number and side, with its source where it counts.
TOLD: dict[str, tuple[list[Drawn], Any, dict[str, str]]] = {
    "a reported role is kept even if others contradict it": (
        [
            at_pool(1, "BUY", 5, "7", "maker"),
            at_pool(1, "SELL", 6, "9"),
            drawn(2, "BUY", 5, "0", "taker"),
            drawn(2, "SELL", 6, "9", "taker"),
        ],
        {"LRC-ETH": 6},
        {
            "1 BUY": "maker reported",
            "1 SELL": "maker pool",
            "2 BUY": "taker reported",
            "2 SELL": "taker reported",
        },
    ),
    "who paid at a pool took": (
        [at_pool(1, "BUY", 5, "7")],
        None,
        {"1 BUY": "taker fee"},
    ),
    "who paid nothing on the book may be either": (
        [drawn(1, "BUY", 5)],
        None,
        {"1 BUY": "unknown"},
    ),
    "where both sides paid a fee is no sign of the taker": (
        [
            drawn(1, "BUY", 5, "7"),
            drawn(1, "SELL", 6, "3"),
            drawn(2, "BUY", 5, "7"),
        ],
        None,
        {"1 BUY": "unknown", "1 SELL": "unknown", "2 BUY": "unknown"},
    ),
    "nor where a maker paid, but at pools": (
        [
            drawn(3, "SELL", 9, "7", "maker"),
            drawn(2, "BUY", 5, "7"),
            at_pool(4, "BUY", 5, "7"),
        ],
        None,
        {"3 SELL": "maker", "2 BUY": "unknown", "4 BUY": "taker"},
    ),
    "who trades on the book is no pool, so it takes there": (
        [drawn(1, "BUY", 5), at_pool(2, "BUY", 5)],
        None,
        {"1 BUY": "unknown", "2 BUY": "taker"},
    ),
    "a proven pool is one in all pool fills of its market": (
        [
            at_pool(1, "BUY", 5, "7"),
            at_pool(1, "SELL", 900),
            at_pool(2, "BUY", 900),
            at_pool(3, "SELL", 8),
            at_pool(4, "BUY", 900, **OTHER_MARKET),
        ],
        None,
        {
            "1 BUY": "taker",
            "1 SELL": "maker",
            "2 BUY": "maker",
            "3 SELL": "taker",
            "4 BUY": "unknown",
        },
    ),
    # An account that trades on the book is no pool, so who it meets at a pool is; then all others take there.
    "what is known of one market tells roles in others": (
        [
            drawn(1, "BUY", 5),
            at_pool(2, "BUY", 5),
            at_pool(2, "SELL", 900),
            at_pool(3, "SELL", 6),
            at_pool(4, "BUY", 6, **OTHER_MARKET),
            at_pool(4, "SELL", 901, **OTHER_MARKET),
        ],
        None,
        {
            "1 BUY": "unknown",
            "2 BUY": "taker",
            "2 SELL": "maker",
            "3 SELL": "taker",
            "4 BUY": "taker",
            "4 SELL": "maker",
        },
    ),
    "a pool by its market": (FREE, {"LRC-ETH": 900}, GIVEN),
    "pools by the pool's name": (FREE, {"AMM-LRC-ETH": [900, 901]}, GIVEN),
    "pools as a list": (FREE, [900], GIVEN),
    "the pool of another market": (FREE, {"WBTC-ETH": 900}, NOT_GIVEN),
}


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
    # Where nobody paid, neither side shows who took.
    free = sum(fill.venue == "dex" and not fill.fee for fill in world.fills)
    counts = judge(lab.fills.with_roles(everybody), truth)
    assert counts["amm", None] == 0
    assert counts["dex", None] == 2 * free


@pytest.mark.parametrize("case", TOLD)
def test_roles_are_told_where_they_follow(case):
    fills, pools, expected = TOLD[case]
    found = {}
    for line in lab.fills.with_roles(trades_from(*fills), pools).itertuples():
        known = pd.notna(line.role)
        role = f"{line.role} {line.role_source}" if known else "unknown"
        found[f"{line.trade_id} {line.side}"] = role
    assert found.keys() == expected.keys()
    for fill, role in found.items():
        assert role.startswith(expected[fill]), fill


@pytest.mark.parametrize(
    "pools", ["LRC-ETH", {"LRC-ETH": "x"}, [None], {1: 900}, 1.5], ids=str
)
def test_pools_that_are_none_are_refused(pools):
    ask = functools.partial(lab.fills.with_roles, pools=pools)
    assert_refused(ask, "pools=", trades_from(*FREE))


def test_pools_may_come_one_by_one():
    frame = trades_from(*FREE)
    expected = lab.fills.with_roles(frame, pools=[900])
    assert expected["role"].notna().any()
    pd.testing.assert_frame_equal(
        lab.fills.with_roles(frame, pools=(one for one in [900])), expected
    )


# Each fill once


def test_each_fill_of_the_block_is_counted_once_as_its_taker(block, roles):
    once = lab.fills.one_side(block)
    # The facts name both sides of each fill.
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
    "in_token": lambda f: lab.fees.in_token(f, "ETH", by=[], tolerance=None),
    "orders": lab.fills.orders,
    "size_profile": lambda f: lab.fills.size_profile(f, 3),
}


@pytest.mark.parametrize("name", often(["in_token", "size_profile"], SUMMARIES))
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


@pytest.mark.parametrize("name", often(["breakdown", "size_profile"], SUMMARIES))
def test_notes_name_the_fills_of_which_both_sides_are_in_the_frame(block, name):
    number = block["trade_id"].nunique()
    note = f"Both sides of {number} fills are counted; lab.fills.one_side(trades) counts each fill once."
    found = SUMMARIES[name](block)
    assert found.attrs["notes"] == [note]
    assert note in str(lab.show(found))
    assert note in lab.show(found)._repr_html_()
    if name in ("breakdown", "size_profile"):
        assert found["both_sides"].sum() == number
