"""Fees in one token: the same digits in many windows of time as in one, on every engine."""

import math
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import oracle
from support.engines import collected, on, result_rows

import loopring_lab as lab
from loopring_lab.amounts.scaling import UNIT, from_integers
from loopring_lab.engines import limits
from loopring_lab.errors import AmountError, LabError

OUTSIDE = ["created_at", "base", "quote", "price"]


@pytest.fixture(scope="module")
def history() -> pd.DataFrame:
    """Read a year of three accounts, with ties, orders without a hash, and unknown times."""
    client = lab.connect()
    trades = pd.concat([client.trades(account, limit=250) for account in (10083, 11519, 58344)])
    trades = trades.sample(frac=1, random_state=5, ignore_index=True)
    number = np.arange(len(trades))
    same = trades["created_at"].dt.floor("1h").where(number % 7 == 0, trades["created_at"])
    return trades.assign(
        created_at=same.where(number % 97 != 0), order_hash=trades["order_hash"].where(number % 5 != 0)
    )


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "rows_at_once", lambda bytes_per_row: 120)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """Read rows; DuckDB's lengths of time arrive as months, days and nanoseconds."""
    rows = result_rows(collected(frame))
    for row in rows:
        for name in {"median_age", "max_age"} & {*row}:
            row[name] = row[name].nanoseconds // 10**6 if hasattr(row[name], "nanoseconds") else row[name]
    return rows


def in_order(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    return sorted(tuple(f"{name}={row[name]}" for name in sorted(row)) for row in rows)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["duckdb", "polars, lazy"])
@pytest.mark.parametrize("tolerance", ["7d", "1d", None])
def test_windows_change_no_digit(
    history: pd.DataFrame, engine: str, tolerance: str | None, small_windows: None
) -> None:
    trades = on(engine, history)
    for prices in (None, history[OUTSIDE].iloc[::3]):
        for by in (None, [], ["market", "account_id"]):
            expected = lab.fees.in_token(history, "USDC", prices, by, tolerance)
            found = lab.fees.in_token(trades, "USDC", prices, by, tolerance)
            rows = rows_of(found), rows_of(expected)
            assert in_order(rows[0]) == in_order(rows[1]), by
            assert by is None or rows[0] == rows[1]


def test_every_value_is_what_trying_all_paths_gives(history: pd.DataFrame) -> None:
    some = history.head(250)
    names = ["trade_id", "side", "fee_value", "value_path", "priced_at"]
    found = lab.fees.in_token(some, "ETH", tolerance=None)
    fills = [oracle.Fill(**row) for row in result_rows(some)]
    by_hand = [{name: row[name] for name in names} for row in oracle.in_token(fills, "ETH", None)]
    assert result_rows(found[names]) == by_hand


def test_a_token_that_occurs_nowhere_is_refused_before_anything_is_read(
    history: pd.DataFrame, small_windows: None
) -> None:
    with pytest.raises(LabError, match=r"no fee is in 'USDD'. Did you mean"):
        lab.fees.in_token(on("duckdb", history), "USDD", by=[])


# How far sums may be off


Fills = list[oracle.Fill]


def variances(fills: Fills) -> tuple[float, float]:
    """Return how much the log price of a market varies from trade to trade, and per ms, added up exactly."""
    known = sorted((one for one in fills if one.price and one.created_at), key=oracle.total_order)
    squares: dict[int, Fraction] = defaultdict(Fraction)
    counts: Counter[int] = Counter()
    for one, after in pairwise(known):
        if gap := after.created_at - one.created_at:
            shift = max(gap.bit_length() - 12, 0)
            squares[gap >> shift << shift] += Fraction(math.log(after.price) - math.log(one.price)) ** 2
            counts[gap >> shift << shift] += 1
    if not counts:
        return math.nan, math.nan
    quarter = left = -(-counts.total() // 4)
    noise = Fraction(0)
    for gap in sorted(counts):
        taken = min(left, counts[gap])
        noise, left = noise + squares[gap] * Fraction(taken, counts[gap]), left - taken
    passed = known[-1].created_at - known[0].created_at
    return float(noise / quarter / 2), float(sum(squares.values()) / passed)


def within_bps(fills: Fills, token: str, tolerance: int | None) -> dict[str, float]:
    """Return by fee token how far sums may be off, every price used looked up and counted once."""
    markets: dict[tuple[str, str], Fills] = defaultdict(list)
    for fill in fills:
        markets[fill.base, fill.quote].append(fill)
    moves = {pair: variances(some) for pair, some in markets.items()}
    errors: dict[str, dict[int, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    changes: dict[str, Fraction] = defaultdict(Fraction)
    values: Counter[str] = Counter()
    for fill, row in zip(fills, oracle.in_token(fills, token, tolerance), strict=True):
        if row["fee_value"] is None:
            continue
        moved = 0.0
        for here, there in pairwise(row["value_path"].split(">")):
            pair = (here, there) if (here, there) in markets else (there, here)
            is_own = pair == (fill.base, fill.quote)
            others = oracle.not_its_own(fill, markets[pair]) if is_own else markets[pair]
            used = oracle.last_known(oracle.not_later(others, fill), fill.created_at, None)
            after = oracle.first_known(others, fill.created_at, None)
            assert used
            noise, drift = moves[pair]
            error = row["fee_value"] * math.sqrt(noise + drift * (fill.created_at - used.created_at))
            errors[fill.fee_token][id(used)] += Fraction(error)
            if after:
                moved += (math.log(after.price) - math.log(used.price)) * (1 if pair[0] == here else -1)
        changes[fill.fee_token] += Fraction(row["fee_value"] * math.expm1(moved))
        values[fill.fee_token] += row["fee_value"]
    found = {}
    for name, value in values.items():
        deviation = math.sqrt(sum(error**2 for error in errors[name].values()))
        found[name] = 10_000 * (1.96 * deviation + abs(float(changes[name]))) / value
    return found


@pytest.mark.parametrize(("token", "tolerance"), [("USDC", None), ("ETH", None), ("USDT", "7d")])
def test_how_far_sums_may_be_off_is_what_counting_each_price_once_gives(
    history: pd.DataFrame, token: str, tolerance: str | None
) -> None:
    some = history[history["created_at"].notna()].sort_values("created_at").head(260)
    fills = [oracle.Fill(**row) for row in result_rows(some)]
    shared = within_bps(fills, token, None if tolerance is None else 7 * oracle.DAY)
    found = {
        row["fee_token"]: row["within_bps"]
        for row in rows_of(lab.fees.in_token(some, token, by=[], tolerance=tolerance))
        if row["within_bps"] is not None
    }
    assert len(found) > 2
    assert found == {
        name: pytest.approx(bps, rel=1e-9, abs=1e-6) for name, bps in shared.items() if not math.isnan(bps)
    }


@pytest.mark.thorough
@settings(max_examples=25)
@given(st.lists(st.integers(10**36, 2 * 10**36), min_size=1, max_size=4), st.integers(1, 4 * UNIT))
def test_fees_of_37_digits_are_valued_and_added_exactly(fees: list[int], price: int) -> None:
    count = len(fees)
    columns: dict[str, Any] = {
        "created_at": pa.array([0, *range(1_000, 1_000 + count)], pa.timestamp("ms", "UTC")),
        "base": ["LRC"] * (count + 1),
        "quote": ["ETH"] * (count + 1),
        "fee_token": ["LRC"] * (count + 1),
        "order_hash": [f"0x{number:064x}" for number in range(count + 1)],
        "price": from_integers([price, *[0] * count], pa.decimal256(37, 18)),
        "fee": from_integers([0, *fees], pa.decimal256(37, 18)),
    }
    values = [fee * price // UNIT for fee in fees]
    for engine in ("pandas", "polars, lazy", "duckdb"):
        trades = on(engine, pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype))
        if max(sum(values), sum(fees)) >= 10**37:
            with pytest.raises(AmountError):
                collected(lab.fees.in_token(trades, "ETH", by=[]))
            continue
        (line,) = rows_of(lab.fees.in_token(trades, "ETH", by=[]))
        assert (line["fee"], line["fee_value"]) == (sum(fees), sum(values))
