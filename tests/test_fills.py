"""Fills: the settled facts of a block, properties that hold for all trades, and errors."""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.engines import QUICK, assert_same_rows, on, result_rows
from support.settled_block import COUNTS, Settled, client_of, settled_of, trades_of
from support.trade_histories import assert_refused

import loopring_lab as lab


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
    return pd.concat(
        [client.trades(account) for account in (10083, 11519)], ignore_index=True
    )


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
    by_market = Counter(
        (fact["market"], fact["fill_type"]) for fact in settled.values()
    )
    found = result_rows(lab.fills.breakdown(on(engine, block), by="market"))
    assert {
        (line["market"], line["fill_type"]): line["fills"] for line in found
    } == by_market


@pytest.mark.parametrize("engine", QUICK)
def test_maker_and_taker_shares_are_the_chain_s(
    block: pd.DataFrame, settled: Settled, engine: str
) -> None:
    known = block.assign(
        role=[
            settled[pair]["role"]
            for pair in zip(block["trade_id"], block["side"], strict=True)
        ]
    )
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
            assert line[f"{role}_share"] == float(
                Fraction(sizes[line["order_hash"], role], whole)
            )


def test_orders_filled_in_parts_are_put_together(block: pd.DataFrame) -> None:
    counts = Counter(block["order_hash"])
    found = lab.fills.orders(block).set_index("order_hash")
    assert found["fills"].to_dict() == counts
    assert found["fills"].max() > 1
    parts = block[block["order_hash"] == found["fills"].idxmax()]
    prices = [Fraction(price) for price in parts["price"]]
    assert (
        min(prices)
        <= Fraction(found.loc[found["fills"].idxmax(), "average_price"])
        <= max(prices)
    )


# Prices against others


# Whatever the trades


# Whole numbers of 128 bits


# Edges and refusals

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "breakdown": lambda f: lab.fills.breakdown(f, "1w", by="market"),
    "vwap": lambda f: lab.fills.vwap(f, by="account_id"),
    "orders": lab.fills.orders,
    "size_profile": lambda f: lab.fills.size_profile(f, by="market"),
    "price_gap": lab.fills.price_gap,
    "price_gap by": lambda f: lab.fills.price_gap(f, by=["account_id", "market"]),
    "all_in_cost": lab.fills.all_in_cost,
    "all_in_cost by": lambda f: lab.fills.all_in_cost(
        f, "last", by=["account_id", "market"]
    ),
}
EDGES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "no rows": lambda f: f.iloc[:0],
    "one row": lambda f: f.iloc[[7]],
    "one market": lambda f: f[f["market"] == "LRC-ETH"],
    "only pools": lambda f: f[f["fill_type"] == "amm"],
    "unknown fee tokens": lambda f: f.assign(fee_token=None),
    "unknown fill types": lambda f: f.assign(fill_type=None),
    "unknown accounts": lambda f: f.assign(account_id=None),
    "unknown times": lambda f: f.assign(
        created_at=pd.Series(pd.NaT, f.index, "datetime64[ms, UTC]")
    ),
    "unknown amounts": lambda f: f.assign(
        **{
            name: f[name].where(f[name].isna())
            for name in ("size", "price", "notional", "fee")
        },
        fee_bps=np.nan,
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_edges_are_answered_alike_on_every_engine(
    history: pd.DataFrame, name: str, edge: str
) -> None:
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
def test_what_makes_no_sense_is_refused_in_words(
    history: pd.DataFrame, case: str
) -> None:
    assert_refused(*REFUSED[case], history.head(20))
