"""Questions that make no sense are refused in words that end with what to do next."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.questions import outside, reserves
from support.trade_histories import assert_refused

import loopring_lab as lab

NOON = datetime(2022, 1, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=20)


def of_pool(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(role="maker", fill_type="amm")


def half_naive(frame: pd.DataFrame, name: str = "created_at") -> pd.DataFrame:
    """Put a frame with a time zone and one without together."""
    times = frame["created_at"].dt.tz_convert("Asia/Tokyo")
    local = frame.assign(**{name: times.dt.tz_localize(None)})
    return pd.concat([local[::2], frame.assign(**{name: times})[1::2]])


# What every question checks is asked once; what one function checks, of that function.
REFUSED: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "nothing": (lambda f: lab.fees.tiers(None), r"got NoneType. Pass a pandas"),
    "a column in place of prices": (
        lambda f: lab.fees.in_token(f, "ETH", prices=f["price"]),
        r"in_token: prices=: expected a frame, got pandas.Series. Pass a pandas",
    ),
    "no amount": (
        lambda f: lab.fees.summary(f.drop(columns="fee")),
        r"has no column 'fee'. Did you mean 'fee_bps'\?",
    ),
    "the time to group by": (
        lambda f: lab.fees.tiers(f, by="created_at"),
        r"'created_at'. Use every= to group by period",
    ),
    "an answer's name": (
        lambda f: lab.fees.summary(f.assign(fills=1), by="fills"),
        r"'fills'. The result has its own column",
    ),
    "twice by": (
        lambda f: lab.fees.summary(f, by=["side", "side"]),
        r"'side'. Name it once",
    ),
    "a column in place of its name": (
        lambda f: lab.fees.summary(f, by=f["side"]),
        r"by= cannot include '(BUY|SELL)'. It takes names of columns, such as 'market'",
    ),
    "a name that is empty": (
        lambda f: lab.fees.summary(f.assign(**{"": 1}), by=""),
        r"by= cannot include ''. DuckDB has no columns of such a name: rename yours",
    ),
    "a name with a NUL": (
        lambda f: lab.fees.summary(f.assign(**{"a\0b": 1}), by=["side", "a\0b"]),
        r"by= cannot include 'a\\x00b'. DuckDB has no columns of such a name",
    ),
    "a name and a column": (
        lambda f: lab.fees.summary(f, by=["side", f["market"]]),
        r"by= cannot include Series. It takes names of columns",
    ),
    "the time in the index": (
        lambda f: lab.fees.over_time(f.set_index("created_at")),
        r"has no column 'created_at'. Its index has that name: .*\.reset_index\(\)",
    ),
    "a key in the index": (
        lambda f: lab.fees.summary(f.set_index(["market", "side"]), by="side"),
        r"has no column 'side'. Its index has that name",
    ),
    "prices by time": (
        lambda f: lab.fills.all_in_cost(f, prices=f.set_index("created_at")),
        r"prices=: the frame has no column 'created_at'. Its index has that name",
    ),
    "wrong every": (
        lambda f: lab.fees.over_time(f, "1M"),
        r"every='1M' is not a period. Give a number and a unit",
    ),
    "naive times": (
        lambda f: lab.fees.summary(
            f.assign(created_at=f["created_at"].dt.tz_localize(None))
        ),
        r"not a time with a time zone. Convert it",
    ),
    "times of which some are naive": (
        lambda f: lab.fees.summary(half_naive(f)),
        r"some values of created_at have a time zone, and some have none or are dates. Give each part its zone",
    ),
    "prices of which some are naive": (
        lambda f: lab.fills.all_in_cost(f, prices=half_naive(outside(f))),
        r"prices=: some values of created_at have a time zone, and some have none",
    ),
    "a key of times of which some are naive": (
        lambda f: lab.fees.summary(half_naive(f[::-1], "desk"), by="desk"),
        r"some values of desk have a time zone, and some have none",
    ),
    "a key of dates and times": (
        lambda f: lab.fees.summary(
            f.assign(desk=[NOON.date(), NOON] * (len(f) // 2)), by="desk"
        ),
        r"some values of desk have .* or are dates. .* or make times of dates, before",
    ),
    "lists as a key": (
        lambda f: lab.fees.tiers(f.assign(desk=[[1]] * len(f)), by="desk"),
        r"tiers: desk is BIGINT\[\], and no column of lists .*Convert it to text",
    ),
    "a schedule by structures": (
        lambda f: lab.fees.schedule_check(
            f.assign(desk=[{"a": 1}] * len(f)), [{"desk": 1, "bps": 20}]
        ),
        r"schedule_check: desk is STRUCT.*, and no column of lists or structures is .*matched",
    ),
    "numbers of 16 bits as a key": (
        lambda f: lab.fees.summary(f.assign(desk=np.float16(1)), by="desk"),
        r"summary: no column of such a type is understood .*Convert that column to text",
    ),
    "unlike objects": (
        lambda f: lab.fees.summary(f.assign(desk=[1, "a"] * (len(f) // 2)), by="desk"),
        r"Arrow cannot hold the frame's values: .*column desk.*Clean that column first",
    ),
    "an integer of more than 64 bits": (
        lambda f: lab.fills.orders(f.assign(storage_id=[2**70] * len(f))),
        r"Arrow cannot hold the frame's values: .*too large.*Clean that column first",
    ),
    "a time that is none": (
        lambda f: lab.anomalies(f.assign(created_at="2022-01-01")),
        r"anomalies: created_at is str, not a time. Pass whole rows",
    ),
    "sparse values": (
        lambda f: lab.fees.summary(
            f.assign(desk=pd.arrays.SparseArray([0] * len(f))), by="desk"
        ),
        r"Sparse pandas data \(column desk\) not supported\. Clean that column first",
    ),
    "unknown token": (
        lambda f: lab.fees.in_token(f, "ETHH"),
        r"no fee is in 'ETHH'. Did you mean 'ETH'\?",
    ),
    "tokens without decimals": (
        lambda f: lab.fees.tiers(f, tokens=pd.DataFrame()),
        r"no column 'decimals'. Pass client.tokens",
    ),
    "no schedule": (
        lambda f: lab.fees.schedule_check(f, None),
        r"None is not a rate. Give basis points from 0 to",
    ),
    "a line without rate": (
        lambda f: lab.fees.schedule_check(f, [{"market": "LRC-ETH"}]),
        r"line 0 .*has no bps. Give",
    ),
    "a line by the time": (
        lambda f: lab.fees.schedule_check(f, {"created_at": 1, "bps": 1}),
        r"Use since and until",
    ),
    "a line that ends before it begins": (
        lambda f: lab.fees.schedule_check(
            f, [{"since": "2022-05", "until": "2022-04", "bps": 1}]
        ),
        r"ends before it begins",
    ),
    "a line that matches nothing": (
        lambda f: lab.fees.schedule_check(f, [{"market": [], "bps": 1}]),
        r"matches nothing",
    ),
    "a wrong absent": (
        lambda f: lab.fees.schedule_check(f, 1, absent="maybe"),
        r"absent='maybe' is not valid. Use",
    ),
    # Fills
    "no price": (
        lambda f: lab.fills.price_gap(f.drop(columns="price")),
        r"no column 'price'. It has .*notional",
    ),
    "no parts": (
        lambda f: lab.fills.size_profile(f, 0),
        r"quantiles=0 is not valid. Give a whole number from 1 to 100",
    ),
    "unknown reference": (
        lambda f: lab.fills.all_in_cost(f, "mid"),
        r"reference='mid' is not known. Give 'next', 'last'",
    ),
    "no horizon": (
        lambda f: lab.fills.markouts(f, horizons=[]),
        r"horizons=\[\] is empty",
    ),
    "a horizon of nothing": (
        lambda f: lab.fills.markouts(f, horizons=["0s"]),
        r"has a length of 0",
    ),
    "a horizon twice": (
        lambda f: lab.fills.markouts(f, horizons=["60s", "1min"]),
        r"or one twice",
    ),
    "two frames": (
        lambda f: lab.fills.all_in_cost(f, f, prices=f),
        r"reference= and prices= are both frames",
    ),
    # Venues, pools and changes
    "a percentage": (
        lambda f: lab.fills.compare_venues(f, intervals=95),
        r"intervals=95 is not a level between 0 and 1",
    ),
    "a level within rounding of 1": (
        lambda f: lab.fills.price_gap(f, by=[], intervals=1 - 1e-16),
        r"is not a level between 0 and 1",
    ),
    "a key with the name of an estimate": (
        lambda f: lab.fills.all_in_cost(f.assign(low_fee_bps=1), by="low_fee_bps"),
        r"by= cannot include 'low_fee_bps'. The result has its own column",
    ),
    "no cluster": (
        lambda f: lab.fills.compare_venues(f, cluster="hour"),
        r"cluster='hour' is not known",
    ),
    "by the venue": (
        lambda f: lab.fills.compare_venues(f, by=["side", "fill_type"]),
        r"'fill_type', whose values are compared",
    ),
    "other markets": (
        lambda f: lab.fills.compare_venues(
            f, f[["created_at", "price"]].assign(market="LRCETH")
        ),
        r"prices= has no price of a market in trades",
    ),
    "no comparison": (
        lambda f: lab.fills.describe(f),
        r"lab.fills.describe: the frame has no column 'fills'. Pass an answer of .*compare_venues",
    ),
    "another answer": (
        lambda f: lab.fills.describe(lab.fills.breakdown(f)),
        r"no column 'unpriced'. Pass an answer of lab.fills.compare_venues",
    ),
    "trades of pools": (
        lambda f: lab.research.describe(f),
        r"no answer of lab.research.liquidity, nor of lab.research.pool_quotes with by=",
    ),
    "values by fill": (
        lambda f: lab.fees.describe(lab.fees.in_token(f, "ETH")),
        r"lab.fees.describe: .*Pass an answer of .*, or of lab.fees.in_token with by=",
    ),
    "no pool's fills": (
        lambda f: lab.research.liquidity(f.assign(role="taker")),
        r"no fills of a pool",
    ),
    "trades for balances": (
        lambda f: lab.research.liquidity(of_pool(f), f),
        r"balances=: the frame has no",
    ),
    "a fee as text": (
        lambda f: lab.research.pool_quotes(f, reserves(f), taker_fee_bps="10"),
        r"taker_fee_bps='10' is not a fee",
    ),
    "all as fee": (
        lambda f: lab.research.pool_quotes(f, reserves(f), taker_fee_bps=10_000),
        r"taker_fee_bps=10000 is not a fee",
    ),
    "quotes by time": (
        lambda f: lab.research.pool_quotes(f, reserves(f), by="created_at"),
        r"by= cannot include 'created_at'",
    ),
    "quotes by an answer": (
        lambda f: lab.research.pool_quotes(f, reserves(f), by="unquoted"),
        r"by= cannot include 'unquoted'",
    ),
    "balances without decimals": (
        lambda f: lab.research.pool_quotes(
            f, reserves(f).drop(columns="base_decimals")
        ),
        r"balances=: the frame has no column",
    ),
    "flow without prices": (
        lambda f: lab.research.with_flow(f, None),
        r"no prices of an outside market",
    ),
    "flow soon": (
        lambda f: lab.research.with_flow(f, outside(f), tolerance="soon"),
        r"tolerance='soon'",
    ),
    "curves without time": (
        lambda f: lab.research.cost_curves(f, horizon="0s"),
        r"leaves no time for a price",
    ),
    "a crossing of trades": (
        lambda f: lab.research.crossing(f),
        r"the frame has no column 'venue'",
    ),
    "changes by period": (
        lambda f: lab.research.changes(f, by="period"),
        r"by= cannot include 'period'",
    ),
    "a rate too high": (
        lambda f: lab.fees.schedule_check(f, 10_001),
        r"10001 is not a rate",
    ),
    "a line misspelt": (
        lambda f: lab.fees.schedule_check(f, [{"markt": "x", "bps": 1}]),
        r"Did you mean 'market'",
    ),
    "a horizon as a number": (
        lambda f: lab.fills.markouts(f, horizons=[60]),
        r"horizons=60 is not a length of time",
    ),
    "prices without a market": (
        lambda f: lab.fills.shortfall(f, f[["created_at", "price"]]),
        r"no column 'market'",
    ),
    "no unit": (
        lambda f: lab.fills.compare_venues(f, horizon="60"),
        r"horizon='60' is not a length of time",
    ),
    "a share of a pool": (
        lambda f: lab.research.liquidity(f, pool_fee_bps=0.2),
        r"is not a fee",
    ),
    "balances by time": (
        lambda f: lab.research.pool_quotes(f, reserves(f).set_index("created_at")),
        r"balances=: the frame has no column 'created_at'. Its index has that name",
    ),
    "a number for balances": (
        lambda f: lab.research.liquidity(of_pool(f), 5),
        r"expected a",
    ),
    "too small a fee": (
        lambda f: lab.research.pool_quotes(f, reserves(f), pool_fee_bps=0.002),
        r"pool_fee_bps=0.002 is not a fee",
    ),
    "sure flow": (
        lambda f: lab.research.with_flow(f, outside(f), intervals=1),
        r"intervals=1 is not a level",
    ),
    "curves by week": (
        lambda f: lab.research.cost_curves(f, cluster="month"),
        r"cluster='month' is not known",
    ),
    "curves by two clusters": (
        lambda f: lab.research.cost_curves(f, cluster=["account", "day"]),
        r"cluster=\['account', 'day'\] is not known",
    ),
    "curves with a percentage": (
        lambda f: lab.research.cost_curves(f, intervals=95),
        r"not a level between 0 and 1",
    ),
    "changes by venue": (
        lambda f: lab.research.changes(f, by="fill_type"),
        r"fill_type",
    ),
    "time backwards": (
        lambda f: lab.fills.price_gap(f, "-1s"),
        r"tolerance='-1s' is not a length of time. Give a number",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_words(trades, case):
    assert_refused(*REFUSED[case], trades)


def test_intervals_in_a_table_of_arrow_are_no_keys(trades):
    table = pa.Table.from_pandas(trades.assign(part=pd.cut(range(20), [0, 5, 9, 15])))
    assert_refused(
        lambda given: lab.fees.summary(given, by="part"),
        r"part is STRUCT.*, and no column of lists or structures is grouped by",
        table,
    )


def test_the_next_question_is_answered_after_an_error_inside_of_duckdb(trades):
    words = pa.array(["a", "b"] * 10).dictionary_encode()
    twice = pa.DictionaryArray.from_arrays(pa.array(range(20)), words)
    table = pa.Table.from_pandas(trades).append_column("desk", twice)
    assert_refused(
        lambda given: lab.fees.summary(given, by="desk"),
        r"summary: DuckDB fails .*INTERNAL.*Convert columns of unusual types to text",
        table,
    )
    assert lab.fees.summary(trades, by=[])["fills"].sum() == 20
