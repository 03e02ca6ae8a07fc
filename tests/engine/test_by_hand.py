"""Functions of fees and fills against brute-force loops, and what is particular to each kind of frame."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from support import oracle
from support.engines import (
    ENGINES,
    assert_same,
    assert_same_rows,
    collected,
    on,
    read_from,
    without_warnings,
)
from support.optional import often, package_or_skip, thorough
from support.trade_histories import many
from support.wire_rows import DECIMALS, SYMBOLS, tokens

import loopring_lab as lab
from loopring_lab.amounts import to_units
from loopring_lab.engine import portable
from loopring_lab.errors import AmountError

pytestmark = pytest.mark.contract

UNITS = {
    symbol: 10 ** max(0, 18 - DECIMALS[number]) for number, symbol in SYMBOLS.items()
}
BY = ["market", "fill_type", "role"]

# Kinds that hand their columns over in different ways.
UNLIKE = ("pandas", "polars, lazy", "duckdb")

Ask = Callable[[Any], Any]
ByHand = Callable[[pd.DataFrame], oracle.Rows]


@functools.cache
def odd() -> pd.DataFrame:
    """Many histories, each with its own label, with irregular rows of every kind."""
    frame = many(140)
    assert len(frame) > 500
    odd_rows = [
        frame[name].isna().sum()
        for name in ("price", "size", "fee", "created_at", "base", "side", "role")
    ]
    assert (
        min(*odd_rows, frame["fill_type"].isna().sum(), (frame["fee"] == 0).sum()) > 5
    )
    return frame


def over(every: str, frame: pd.DataFrame) -> list[oracle.Fill]:
    return oracle.fills_of(frame, every)


def fills(frame: pd.DataFrame) -> list[oracle.Fill]:
    return oracle.fills_of(frame)


SUMS: dict[str, tuple[Ask, ByHand]] = {
    "summary": (lab.fees.summary, lambda f: oracle.summary(fills(f), [])),
    "summary by label": (
        lambda f: lab.fees.summary(f, by="label"),
        lambda f: oracle.summary(fills(f), ["label"]),
    ),
    "summary by three": (
        lambda f: lab.fees.summary(f, BY),
        lambda f: oracle.summary(fills(f), BY),
    ),
    **{
        f"over_time every {every}": (
            lambda f, every=every: lab.fees.over_time(f, every, by="label"),
            lambda f, every=every: oracle.summary(over(every, f), ["period", "label"]),
        )
        for every in ("30s", "6h", "1d", "1w", "1mo", "1q", "1y")
    },
    "breakdown": (lab.fills.breakdown, lambda f: oracle.breakdown(fills(f), [])),
    "breakdown by label": (
        lambda f: lab.fills.breakdown(f, by="label"),
        lambda f: oracle.breakdown(fills(f), ["label"]),
    ),
    "breakdown every 1w by side": (
        lambda f: lab.fills.breakdown(f, "1w", by=["side"]),
        lambda f: oracle.breakdown(over("1w", f), ["period", "side"]),
    ),
    "vwap": (lab.fills.vwap, lambda f: oracle.vwap(fills(f), [])),
    "vwap every 1mo by label": (
        lambda f: lab.fills.vwap(f, by="label", every="1mo"),
        lambda f: oracle.vwap(over("1mo", f), ["period", "label"]),
    ),
    "orders": (lab.fills.orders, lambda f: oracle.orders(fills(f))),
    "tiers": (
        lambda f: lab.fees.tiers(f, by="label", tokens=tokens()),
        lambda f: oracle.tiers(fills(f), ["label"], UNITS),
    ),
    "tiers every 1q": (
        lambda f: lab.fees.tiers(f, every="1q", tokens=tokens()),
        lambda f: oracle.tiers(over("1q", f), ["period"], UNITS),
    ),
    "size_profile": (
        lab.fills.size_profile,
        lambda f: oracle.size_profile(fills(f), 10, []),
    ),
    "size_profile by label": (
        lambda f: lab.fills.size_profile(f, 3, by="label"),
        lambda f: oracle.size_profile(fills(f), 3, ["label"]),
    ),
    "schedule_check": (
        lambda f: lab.fees.schedule_check(f, 15),
        lambda f: oracle.above(fills(f), 15),
    ),
}
ROWS: dict[str, tuple[Ask, ByHand]] = {
    "with_tiers": (
        lambda f: lab.fees.with_tiers(f, tokens=tokens()),
        lambda f: oracle.with_tiers(fills(f), UNITS),
    ),
    "in_token": (
        lambda f: lab.fees.in_token(f, "USDT"),
        lambda f: oracle.in_token(fills(f), "USDT"),
    ),
    # test_markouts.py compares costs, price gaps and markouts with the same loops.
    "shortfall": (
        lab.fills.shortfall,
        lambda f: oracle.shortfalls(fills(f), fills(f), 3_600_000),
    ),
}
QUESTIONS = SUMS | ROWS


@functools.cache
def with_other_sides() -> pd.DataFrame:
    """Put the other side beside every second fill, and the same side once more beside every third."""
    every_second = odd().iloc[::2]
    every_third = odd().iloc[::3]
    other = every_second["side"].cat.rename_categories({"BUY": "SELL", "SELL": "BUY"})
    other = other.cat.set_categories(odd()["side"].cat.categories)
    parts = [odd(), every_second.assign(side=other), every_third]
    return pd.concat(parts).sample(frac=1, random_state=1)


@functools.cache
def counted_by_hand(question: str) -> oracle.Rows:
    return QUESTIONS[question][1](odd())


# Every function, by hand; tests/engine/test_every_question.py asks the other kinds of frames


def assert_counted(found: Any, expected: oracle.Rows) -> None:
    names = expected[0]
    rows = oracle.to_rows(collected(found))
    assert_same_rows([{name: row[name] for name in names} for row in rows], expected)


@pytest.mark.parametrize(
    "question",
    often(
        [
            "summary by label",
            "summary by three",
            "over_time every 1w",
            "over_time every 1mo",
            "breakdown every 1w by side",
            "vwap",
            "orders",
            "tiers every 1q",
            "size_profile by label",
            "schedule_check",
        ],
        SUMS,
    ),
)
def test_sums_are_those_counted_by_hand(question):
    """Also of frames that hold both sides of fills, and fills twice."""
    ask, count = SUMS[question]
    expected = count(with_other_sides())
    assert_counted(ask(with_other_sides()), expected)
    if question == "summary by label":
        assert sum(row["both_sides"] for row in expected) > 30


@pytest.mark.thorough
@pytest.mark.parametrize("question", ROWS)
def test_what_looks_at_single_fills_is_what_is_found_by_hand(question):
    assert_counted(QUESTIONS[question][0](odd()), counted_by_hand(question))


def test_what_a_pandas_frame_is_labelled_with_is_kept():
    frame = odd().copy()
    frame.attrs["source"] = "synthetic world, seed 1"
    before = frame.copy(deep=True)
    # Sums, rows and periods.
    for name in ("summary", "orders", "with_tiers", "over_time every 1mo"):
        asked, _ = QUESTIONS[name]
        assert asked(frame).attrs.items() >= frame.attrs.items()
    pd.testing.assert_frame_equal(frame, before)


# Where frames come from


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trades")
    for number in range(2):
        pq.write_table(portable(odd().iloc[number::2]), folder / f"{number}.parquet")
    return folder


@pytest.mark.parametrize("engine", often(UNLIKE, ENGINES))
def test_parquet_is_read_by_every_engine(engine, parquet):
    trades = read_from(engine, parquet)
    answer = without_warnings(SUMS["summary by label"][0], trades)
    assert_counted(answer, counted_by_hand("summary by label"))


@pytest.mark.parametrize("zone", ["America/New_York", thorough("Asia/Kathmandu")])
@pytest.mark.parametrize("engine", UNLIKE)
def test_periods_are_cut_in_utc_whatever_zone_times_carry(engine, zone):
    moved = odd().assign(created_at=odd()["created_at"].dt.tz_convert(zone))
    trades = on(engine, moved)
    for question in ("over_time every 1mo", "breakdown every 1w by side"):
        assert_counted(SUMS[question][0](trades), counted_by_hand(question))


@pytest.mark.parametrize("unit", ["us", "ns"])
def test_finer_times_give_the_same(unit):
    kept = odd()[odd()["created_at"].notna()]
    finer = kept.assign(created_at=kept["created_at"].dt.as_unit(unit))
    expected = lab.fees.over_time(kept, "1w")
    for engine in UNLIKE:
        assert_same(lab.fees.over_time(on(engine, finer), "1w"), expected)
    assert_same(lab.fills.orders(finer), lab.fills.orders(kept))


GROUPED: dict[str, Ask] = {
    "summary": lambda f: lab.fees.summary(f, by="key"),
    "size_profile": lambda f: lab.fills.size_profile(f, 2, by="key"),
    "in_token": lambda f: lab.fees.in_token(f, "ETH", by="key"),
    "price_gap": lambda f: lab.fills.price_gap(f, by="key"),
}


def keys_of(question: str, trades: Any) -> list[Any]:
    """Return the keys of a result, in their order, each once."""
    found = collected(GROUPED[question](trades))
    return list(dict.fromkeys(found["key"].to_pylist()))


def keyed() -> tuple[pd.DataFrame, np.ndarray]:
    """Return trades at known times, with a number from 0 to 4 for each."""
    known = odd()["created_at"].notna() & odd()["fill_type"].notna()
    frame = odd()[known].reset_index(drop=True)
    return frame, np.arange(len(frame)) % 5


KEYS: dict[str, list[Any]] = {
    "bool[pyarrow]": [False, True, None],
    "int64[pyarrow]": [9, 10, None],
    "str": ["a", "b", None],
}


@pytest.mark.parametrize("dtype", KEYS)
@pytest.mark.parametrize("engine", UNLIKE)
def test_groups_stand_in_the_order_of_their_values_with_unknown_ones_last(
    engine, dtype
):
    frame, number = keyed()
    key = pd.array([KEYS[dtype][place] for place in number % 3], dtype=dtype)
    trades = on(engine, frame.assign(key=key))
    assert keys_of("summary", trades) == KEYS[dtype]
    assert keys_of("size_profile", trades) == KEYS[dtype]


@pytest.mark.parametrize("engine", UNLIKE)
def test_minus_zero_is_in_the_group_of_zero_on_every_engine(engine):
    frame, number = keyed()
    zeros = np.select([number == 0, number == 1], [-0.0, 0.0], number / 2)
    trades = on(engine, frame.assign(key=zeros))
    for name in GROUPED:
        found = keys_of(name, trades)
        assert [str(key) for key in found] == ["0.0", "1.0", "1.5", "2.0"], name
    narrow = on(engine, frame.assign(key=zeros.astype("float32")))
    assert keys_of("summary", narrow) == [0.0, 1.0, 1.5, 2.0]


def test_an_enum_of_polars_stands_in_its_order():
    polars = package_or_skip("polars")
    frame, number = keyed()
    words = ["small", "medium", "large", "huge", "more"]
    trades = on("polars", frame.assign(key=np.array(words)[number]))
    trades = trades.with_columns(polars.col("key").cast(polars.Enum(words)))
    assert keys_of("summary", trades) == words


CUT = ["(-1.0, 0.0]", "(0.0, 2.0]", "(2.0, 10.0]", None]
MONTHS = ["2021-11", "2021-12", "2022-01", "2022-02", "2022-03"]
SIZES = ["small", "medium", "large"]
NEWEST = pd.to_datetime(["2022-03-01", "2022-02-27", "2022-02-28"], utc=True)


def kinds_of_keys(number: np.ndarray) -> dict[str, tuple[Any, list[Any]]]:
    """Return columns of keys, each with its groups in their order."""
    cut = pd.cut(pd.Series(np.array([0, 1, 9, 9, 99])[number]), [-1.0, 0.0, 2.0, 10.0])
    months = pd.Series(pd.period_range("2021-11", periods=5, freq="M")[number[::-1]])
    codes = pd.Categorical.from_codes
    return {
        "cut": (cut, CUT),
        "intervals": (cut.astype(cut.cat.categories.dtype), CUT),
        "intervals, not ordered": (cut.cat.as_unordered(), CUT),
        "periods": (months, MONTHS),
        "categories of periods": (months.astype("category"), MONTHS),
        "some months": (
            months.where(months.astype(str) < "2022-03"),
            [*MONTHS[:4], None],
        ),
        "ordered": (codes(number % 4 - 1, SIZES, ordered=True), [*SIZES, None]),
        "ordered numbers": (codes(number % 3, [30, 2, 10], ordered=True), [30, 2, 10]),
        "ordered truth values": (
            codes(number % 2, [True, False], ordered=True),
            [True, False],
        ),
        "ordered times": (codes(number % 3, NEWEST, ordered=True), [*NEWEST]),
        "not ordered": (codes(number % 3, SIZES), sorted(SIZES)),
        "numbers": (codes(number % 2, [10, 2]), [2, 10]),
    }


def test_lengths_of_days_of_a_relation_are_shown_whole():
    with duckdb.connect() as connection:
        connection.register("history", lab.engine.portable(keyed()[0]))
        lengths = "INTERVAL (1 + trade_id % 2) DAY + INTERVAL 1 HOUR AS key"
        found = lab.fees.summary(
            connection.sql(f"SELECT *, {lengths} FROM history"), by="key"
        )
        keys = dict.fromkeys(found.to_arrow_table()["key"].to_pylist())
        hour = 3_600 * 10**9
        assert [key.nanoseconds for key in keys] == [25 * hour, 49 * hour]


def test_whole_numbers_of_a_relation_are_no_amounts():
    with duckdb.connect() as connection:
        connection.register("history", lab.engine.portable(keyed()[0]))
        counted = connection.sql(
            "SELECT *, sum(1) OVER (PARTITION BY side) AS key FROM history"
        )
        found = lab.fees.summary(counted, by=["side", "key"]).to_arrow_table()
        sizes = dict(
            connection.sql(
                "SELECT side, count(*) FROM history GROUP BY side"
            ).fetchall()
        )
        for side, key in zip(
            found["side"].to_pylist(), found["key"].to_pylist(), strict=True
        ):
            assert key == sizes[side]
        lines = [{"key": sizes["BUY"], "bps": 0}]
        found = lab.fees.schedule_check(counted, lines, others=10_000)
        matched = found.filter("line = 0").to_arrow_table()
        assert set(matched["side"].to_pylist()) == {"BUY"}
        whole = connection.sql("SELECT * REPLACE (1::HUGEINT AS fee) FROM history")
        with pytest.raises(AmountError, match="fee is INT128, not an exact amount"):
            lab.fees.summary(whole)


def test_amounts_of_a_relation_with_more_decimals_are_exact_or_refused():
    with duckdb.connect() as connection:
        connection.register("history", lab.engine.portable(keyed()[0]))
        half = "SELECT * REPLACE (({fee})::DECIMAL(38, 18) * 0.5 AS fee) FROM history"
        found = lab.fees.summary(connection.sql(half.format(fee="1")))
        fees = found.to_arrow_table()
        assert fees["fee"][0].as_py() * 2 == fees["fills"][0].as_py()
        with pytest.raises(AmountError, match=r"more than 18 decimals"):
            lab.fees.summary(connection.sql(half.format(fee="0.000000000000000001")))


@pytest.mark.parametrize(
    "kind",
    often(
        ["some months", "ordered", "not ordered", "numbers"],
        kinds_of_keys(np.arange(5)),
    ),
)
def test_keys_of_every_kind_are_groups_in_their_order(kind):
    frame, number = keyed()
    key, expected = kinds_of_keys(number)[kind]
    for name in GROUPED:
        assert keys_of(name, frame.assign(key=key)) == expected, name


# Sums too large


def huge(fees: list[int], engine: str) -> Any:
    one = (
        odd()[odd()["fee"].notna() & odd()["fee_token"].notna()]
        .iloc[[0] * len(fees)]
        .reset_index(drop=True)
    )
    return on(engine, one.assign(fee=to_units([str(fee) for fee in fees], 0)))


@pytest.mark.parametrize("engine", often(UNLIKE, ENGINES))
def test_the_largest_sum_that_fits_is_exact(engine):
    found = collected(
        without_warnings(lab.fees.summary, huge([9 * 10**18, 10**18 - 1], engine))
    )
    assert oracle.to_rows(found)[0]["fee"] == (10**19 - 1) * 10**18


@pytest.mark.parametrize("engine", often(UNLIKE, ENGINES))
@pytest.mark.parametrize(
    "times", [19, 38]
)  # 38 times nearly nothing is left where 128 bits wrap round
def test_a_sum_that_does_not_fit_is_refused_not_wrapped(engine, times):
    with pytest.raises(AmountError, match="Select fewer trades"):
        collected(
            without_warnings(
                lab.fees.summary, huge([2**128 // 38 // 10**18 + 1] * times, engine)
            )
        )


# What loads


def test_no_engine_is_loaded_before_it_is_used():
    code = """
import json, sys
import loopring_lab as lab, pandas as pd
lab.fees, lab.fills, lab.tables
loaded = [sorted(sys.modules)]
trades = lab.tables.trades('{"trades": []}', lab.tables.tokens("[]"), lab.tables.markets("[]"))
lab.fees.summary(trades), lab.fees.tiers(trades), lab.fills.orders(trades), lab.fills.price_gap(trades)
print(json.dumps([*loaded, sorted(sys.modules)]))
"""
    before, after = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    engines = {"duckdb", "polars", "pyspark"}
    assert [engines & set(before), engines & set(after)] == [set(), {"duckdb"}]
