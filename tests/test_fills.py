"""Fills: the settled facts of a block, properties that hold for all trades, and errors."""

from collections import Counter
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from support.engines import QUICK, assert_same_rows, on, result_rows
from support.settled_block import COUNTS, Settled, client_of, settled_of, trades_of
from support.trade_histories import Drawn, assert_refused, frame_of, histories
from support.wire_rows import row

import loopring_lab as lab
from loopring_lab.engine.frames import DECIMAL_128
from loopring_lab.engine.query import run
from loopring_lab.fills.averages import with_average
from loopring_lab.fills.pools import product_sql

UNIT = 10**18
EXACT = Context(prec=60)


@pytest.fixture(scope="module")
def block(block_folder: Path) -> pd.DataFrame:
    return trades_of(client_of(block_folder))


@pytest.fixture(scope="module")
def settled(block_folder: Path) -> Settled:
    return settled_of(block_folder)


@pytest.fixture(scope="module")
def history() -> pd.DataFrame:
    """Read what two accounts of the synthetic world did in a year."""
    client = lab.connect()
    return pd.concat([client.trades(account) for account in (10083, 11519)], ignore_index=True)


# Against the facts of a settled block


@pytest.mark.parametrize("engine", QUICK)
def test_shares_per_fill_type_are_the_chain_s_counts(
    block: pd.DataFrame, settled: Settled, block_folder: Path, engine: str
) -> None:
    rows, _, amm, dex, _ = COUNTS[block_folder.name]
    counts = Counter(fact["fill_type"] for fact in settled.values())
    assert counts == {"amm": amm, "dex": dex}
    found = result_rows(lab.fills.breakdown(on(engine, block)))
    assert {line["fill_type"]: (line["fills"], line["share"]) for line in found} == {
        name: (count, count / rows) for name, count in counts.items()
    }
    by_market = Counter((fact["market"], fact["fill_type"]) for fact in settled.values())
    found = result_rows(lab.fills.breakdown(on(engine, block), by="market"))
    assert {(line["market"], line["fill_type"]): line["fills"] for line in found} == by_market


@pytest.mark.parametrize("engine", QUICK)
def test_maker_and_taker_shares_are_the_chain_s(block: pd.DataFrame, settled: Settled, engine: str) -> None:
    known = block.assign(role=[settled[pair]["role"] for pair in zip(block["trade_id"], block["side"], strict=True)])
    sizes: Counter[tuple[str, str | None]] = Counter()
    for line in known.itertuples():
        size = int(settled[line.trade_id, line.side]["size"])
        sizes[line.order_hash, line.role] += size
        sizes[line.order_hash, None] += size
    found = result_rows(lab.fills.orders(on(engine, known)))
    assert {line["order_hash"] for line in found} == set(block["order_hash"])
    for line in found:
        whole = sizes[line["order_hash"], None]
        for role in ("maker", "taker"):
            assert line[f"{role}_share"] == float(Fraction(sizes[line["order_hash"], role], whole))


def test_orders_filled_in_parts_are_put_together(block: pd.DataFrame) -> None:
    counts = Counter(block["order_hash"])
    found = lab.fills.orders(block).set_index("order_hash")
    assert found["fills"].to_dict() == counts
    assert found["fills"].max() > 1
    parts = block[block["order_hash"] == found["fills"].idxmax()]
    prices = [Fraction(price) for price in parts["price"]]
    assert min(prices) <= Fraction(found.loc[found["fills"].idxmax(), "average_price"]) <= max(prices)


# Prices against others


@pytest.mark.parametrize("tolerance", ["60s", "1h", None])
def test_the_nearest_earlier_fill_of_the_other_type_is_taken(history: pd.DataFrame, tolerance: str | None) -> None:
    found = lab.fills.price_gap(history, tolerance)
    window = None if tolerance is None else pd.Timedelta(tolerance)
    matched = found[found["other_at"].notna()]
    assert len(found) == len(history)
    assert len(matched) > 20
    assert (matched["other_at"] <= matched["created_at"]).all()
    for fill in pd.concat([found.iloc[::31], matched.iloc[:60]]).itertuples():
        others = history[
            (history["market"] == fill.market)
            & (history["side"] == fill.side)
            & (history["fill_type"] != fill.fill_type)
            & (history["created_at"] <= fill.created_at)
        ]
        if window is not None:
            others = others[others["created_at"] >= fill.created_at - window]
        nearest = others["created_at"].max()
        assert fill.other_at == nearest or (pd.isna(fill.other_at) and others.empty)
        if not others.empty:
            assert fill.other_price in set(others.loc[others["created_at"] == nearest, "price"])
            relative = Fraction(fill.price) / Fraction(fill.other_price) - 1
            assert fill.gap_bps == pytest.approx(float(relative * 10_000), rel=1e-12)
            sign = 1 if fill.side == "BUY" else -1
            assert fill.worse_bps == pytest.approx(sign * fill.gap_bps, rel=1e-12)


def test_what_happens_later_changes_no_gap(history: pd.DataFrame) -> None:
    for ask in (lab.fills.price_gap, lambda f: lab.fills.all_in_cost(f, "last")):
        found = ask(history)
        moment = history["created_at"].sort_values().iloc[1500]
        known = history["created_at"] <= moment
        whole = history.groupby("order_hash", observed=True)["created_at"].transform("max") <= moment
        now = ask(history[known])
        assert_frame_equal(now, found[known].reset_index(drop=True))
        assert whole.any()


def test_the_next_trade_is_the_first_after_the_order_is_done() -> None:
    def fill(moment: int, price: str, order: str, side: str = "BUY") -> Drawn:
        members = row(createdAt=str(moment), price=price, orderHash=order, side=side, market="ETH-USDT", size=str(UNIT),
                      feeAmount=str(UNIT // 1000), tokenId="3" if side == "BUY" else "0")  # fmt: skip
        return "amm", members

    drawn = [
        fill(1000, "100.0", "0xa"),
        fill(2000, "101.0", "0xa"),
        fill(2000, "500.0", "0xb"),
        fill(3000, "99.0", "0xc"),
    ]
    frame = frame_of(drawn)
    ahead = result_rows(lab.fills.all_in_cost(frame, "next"))
    assert [line["reference_price"] for line in ahead] == [99 * UNIT, 99 * UNIT, 99 * UNIT, None]
    behind = result_rows(lab.fills.all_in_cost(frame, "last"))
    assert [line["reference_price"] for line in behind][:3] == [None, None, 100 * UNIT]
    assert behind[3]["reference_price"] in (101 * UNIT, 500 * UNIT)
    assert ahead[0]["all_in_bps"] == float(Fraction(1, 99) * 10_000) + 10.0
    near = result_rows(lab.fills.all_in_cost(frame, "next", tolerance="1s"))
    assert [line["reference_price"] for line in near] == [99 * UNIT, 99 * UNIT, 99 * UNIT, None]
    assert all(
        line["price_bps"] is None for line in result_rows(lab.fills.all_in_cost(frame, "next", tolerance="0.999s"))
    )


def test_an_order_with_a_fill_of_unknown_time_has_no_end_to_look_from() -> None:
    def fill(moment: str, order: str) -> Drawn:
        return "amm", row(createdAt=moment, orderHash=order)

    frame = frame_of([fill("1000", "0xa"), fill("2000", "0xb"), fill("0", "0xb"), fill("3000", "0xc")])
    for reference, expected in (("next", {0}), ("last", {3})):
        costs = lab.fills.all_in_cost(frame, reference)
        assert set(costs.loc[costs["reference_price"].notna(), "trade_id"]) == expected


def test_a_frame_of_prices_is_a_reference(history: pd.DataFrame) -> None:
    trades = history[history["market"] == "LRC-ETH"].head(40)
    prices = trades[["created_at", "market"]].assign(price=lab.amounts.to_units(range(1, 41), 3).array).iloc[::4]
    found = lab.fills.all_in_cost(trades, prices, tolerance=None)
    at = prices["created_at"].tolist()
    for line in found.itertuples():
        before = [price for moment, price in zip(at, prices["price"], strict=True) if moment <= line.created_at]
        assert line.reference_price == before[-1]
    other_market = prices.assign(market="ETH-USDT")
    assert lab.fills.all_in_cost(trades, other_market)["reference_price"].isna().all()


def test_own_prices_without_ids_are_no_reference_either(history: pd.DataFrame) -> None:
    trades = history[history["market"] == "LRC-ETH"].drop_duplicates("created_at").tail(400)
    prices = trades[["created_at", "market", "price"]]
    found = lab.fills.all_in_cost(trades, prices, tolerance=None)
    assert set(found["reference"]) == {"own trades"}
    fills = list(trades.sort_values("created_at").itertuples())
    for line in found.tail(100).itertuples():
        mine = next(fill for fill in fills if fill.trade_id == line.trade_id)
        others = [fill for fill in fills if fill.created_at <= mine.created_at and fill.order_hash != mine.order_hash]
        assert line.reference_price == others[-1].price


def test_the_order_of_rows_changes_nothing_where_moments_differ(history: pd.DataFrame) -> None:
    once = history.drop_duplicates("created_at").reset_index(drop=True)
    assert len(once) > 1000
    mixed = once.sample(frac=1, random_state=5)
    for ask in (
        lab.fills.price_gap,
        lab.fills.all_in_cost,
        lambda f: lab.fills.all_in_cost(f, "last"),
        lambda f: lab.fees.in_token(f, "USDT"),
        lab.fees.with_tiers,
    ):
        found = ask(mixed).sort_values("created_at", ignore_index=True)
        assert_frame_equal(found, ask(once).sort_values("created_at", ignore_index=True))


# Whatever the trades


@pytest.mark.thorough
@settings(max_examples=15)
@given(histories(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_no_sum(history: list[Drawn], chance: Any) -> None:
    frame = frame_of(history)
    order = list(range(len(frame)))
    chance.shuffle(order)
    mixed = frame.iloc[order]
    for ask in (
        lambda f: lab.fills.breakdown(f, "1mo", by="market"),
        lambda f: lab.fills.vwap(f, every="1d"),
        lab.fills.orders,
        lambda f: lab.fills.size_profile(f, 4),
    ):
        assert_frame_equal(ask(mixed), ask(frame))


@pytest.mark.thorough
@settings(max_examples=15)
@given(histories())
def test_parts_make_up_the_whole(history: list[Drawn]) -> None:
    frame = frame_of(history)
    summed = Counter({line["market"]: 0 for line in result_rows(lab.fills.breakdown(frame, by="market"))})
    for line in result_rows(lab.fills.breakdown(frame, by="market")):
        summed[line["market"]] += line["share"]
    assert all(share == pytest.approx(1) for share in summed.values())
    assert sum(line["fills"] for line in result_rows(lab.fills.orders(frame))) == len(frame)
    profile = result_rows(lab.fills.size_profile(frame, 3))
    assert sum(line["fills"] for line in profile) == len(frame)
    for line in profile:
        if line["quantile"]:
            assert line["smallest"] <= line["largest"]
    sizes = {
        (line["quote"], line["quantile"]): (line["smallest"], line["largest"]) for line in profile if line["quantile"]
    }
    for (quote, number), (smallest, _) in sizes.items():
        below = [largest for (other, part), (_, largest) in sizes.items() if other == quote and part < number]
        assert all(largest < smallest for largest in below)


# Whole numbers of 128 bits


AMOUNTS = st.integers(0, 10**35) | st.integers(0, 10**22) | st.integers(0, 10**4)


@settings(max_examples=60)
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=20))
def test_average_prices_are_exact_to_18_decimals(pairs: list[tuple[int, int]]) -> None:
    pairs = [(notional, size) for notional, size in pairs if size == 0 or notional * UNIT // size < 10**37]
    amounts = {
        "known_notional": pa.array([Decimal(notional).scaleb(-18, EXACT) for notional, _ in pairs], DECIMAL_128),
        "known_size": pa.array([Decimal(size).scaleb(-18, EXACT) for _, size in pairs], DECIMAL_128),
    }
    found = run(with_average("sums"), "test", sums=pa.table(amounts)).to_pylist()
    for line in found:
        size = int(line["known_size"].scaleb(18, EXACT))
        notional = int(line["known_notional"].scaleb(18, EXACT))
        average = line["average"]
        assert average == (None if size == 0 else Decimal(notional * UNIT // size).scaleb(-18, EXACT))


@settings(max_examples=60)
@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=20))
def test_sizes_times_prices_are_cut_to_18_decimals(pairs: list[tuple[int, int]]) -> None:
    pairs = [(size, price) for size, price in pairs if size * price < 10**55]
    amounts = {
        "size": pa.array([Decimal(size).scaleb(-18, EXACT) for size, _ in pairs], DECIMAL_128),
        "price": pa.array([Decimal(price).scaleb(-18, EXACT) for _, price in pairs], DECIMAL_128),
    }
    text = f"SELECT *, {product_sql('size', 'price')} AS value FROM fills"
    for line in run(text, "test", fills=pa.table(amounts)).to_pylist():
        size = int(line["size"].scaleb(18, EXACT))
        price = int(line["price"].scaleb(18, EXACT))
        assert line["value"] == Decimal(size * price // UNIT).scaleb(-18, EXACT)


# Edges and refusals

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "breakdown": lambda f: lab.fills.breakdown(f, "1w", by="market"),
    "vwap": lambda f: lab.fills.vwap(f, by="account_id"),
    "orders": lab.fills.orders,
    "size_profile": lambda f: lab.fills.size_profile(f, by="market"),
    "price_gap": lab.fills.price_gap,
    "price_gap by": lambda f: lab.fills.price_gap(f, by=["account_id", "market"]),
    "all_in_cost": lab.fills.all_in_cost,
    "all_in_cost by": lambda f: lab.fills.all_in_cost(f, "last", by=["account_id", "market"]),
}
EDGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "no rows": lambda f: f.iloc[:0],
    "one row": lambda f: f.iloc[[7]],
    "one market": lambda f: f[f["market"] == "LRC-ETH"],
    "only pools": lambda f: f[f["fill_type"] == "amm"],
    "unknown fee tokens": lambda f: f.assign(fee_token=None),
    "unknown fill types": lambda f: f.assign(fill_type=None),
    "unknown accounts": lambda f: f.assign(account_id=None),
    "unknown times": lambda f: f.assign(created_at=pd.Series(pd.NaT, f.index, "datetime64[ms, UTC]")),
    "unknown amounts": lambda f: f.assign(
        **{name: f[name].where(f[name].isna()) for name in ("size", "price", "notional", "fee")},
        fee_bps=np.nan,
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_edges_are_answered_alike_on_every_engine(history: pd.DataFrame, name: str, edge: str) -> None:
    frame = EDGES[edge](history.head(80))
    expected = result_rows(FUNCTIONS[name](frame))
    for engine in ("polars, lazy", "duckdb"):
        assert_same_rows(result_rows(FUNCTIONS[name](on(engine, frame))), expected)
    if not (name.startswith("price_gap") and edge == "unknown fill types"):
        assert sum(line.get("fills", 1) for line in expected) == len(frame)


REFUSED: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "a dictionary": (lambda f: lab.fills.breakdown({}), r"expected a trades DataFrame, got dict. Pass a pandas"),
    "no price": (lambda f: lab.fills.price_gap(f.drop(columns="price")), r"no column 'price'. It has .*notional"),
    "wrong every": (lambda f: lab.fills.breakdown(f, "daily"), r"every='daily' is not a period. Give a number"),
    "an empty every": (lambda f: lab.fills.vwap(f, every=""), r"every='' is not a period"),
    "half a period": (lambda f: lab.fills.breakdown(f, "1.5h"), r"every='1.5h' is not a period"),
    "no parts": (lambda f: lab.fills.size_profile(f, 0), r"quantiles=0 is not valid. Give a whole number from 1 to 1000"),
    "half a part": (lambda f: lab.fills.size_profile(f, 2.5), r"quantiles=2.5 is not valid. Give a whole number"),
    "true parts": (lambda f: lab.fills.size_profile(f, True), r"quantiles=True is not valid. Give a whole number"),
    "time backwards": (lambda f: lab.fills.price_gap(f, "-1s"), r"tolerance='-1s' is not a length of time. Give a number"),
    "no time": (lambda f: lab.fills.price_gap(f, "soon"), r"tolerance='soon' is not a length of time"),
    "a bare number": (lambda f: lab.fills.all_in_cost(f, tolerance=60), r"tolerance=60 is not a length of time"),
    "not a time": (lambda f: lab.fills.all_in_cost(f, tolerance=pd.NaT), r"tolerance=NaT is not a length of time"),
    "unknown reference": (lambda f: lab.fills.all_in_cost(f, "mid"), r"reference='mid' is not known. Give 'next', 'last'"),
    "no reference": (lambda f: lab.fills.all_in_cost(f, None), r"expected a trades DataFrame, got NoneType"),
    "reference without price": (lambda f: lab.fills.all_in_cost(f, f[["market"]]), r"no column 'created_at'"),
    "by an answer's name": (lambda f: lab.fills.breakdown(f.assign(share=1), by="share"), r"'share'. The result has its own"),
    "by the time": (lambda f: lab.fills.price_gap(f, by="created_at"), r"'created_at'. Use every= to group by period"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_words(history: pd.DataFrame, case: str) -> None:
    assert_refused(*REFUSED[case], history.head(20))
