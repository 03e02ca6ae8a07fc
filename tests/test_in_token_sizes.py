"""Fees in one token: the same digits in many windows of time as in one, on every engine."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support import oracle
from support.engines import collected, on, result_rows

import loopring_lab as lab
from loopring_lab.engines import limits
from loopring_lab.errors import LabError

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
