"""Windows of time: each row answered for once, with what lies around it, and the same digits as all at once."""

import functools
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import collected, on
from support.trade_histories import many

import loopring_lab as lab
from loopring_lab.engines import arrays, cuts, limits, orders, windows
from loopring_lab.engines.arrays import NAT
from loopring_lab.engines.asof import PriceHistory
from loopring_lab.engines.convert import to_table
from loopring_lab.engines.orders import order_span
from loopring_lab.errors import LabError

FEW = 60  # rows of a window
HOUR = 3_600_000
COLUMNS = ["created_at", "trade_id", "market", "price"]
ORDER = ["order_hash", "account_id", "token_id", "storage_id"]
BY = ["market", "side"]


@pytest.fixture
def spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make windows small, and return the folder of what is on disk."""
    monkeypatch.setattr(limits, "rows_at_once", lambda bytes_per_row: FEW)
    monkeypatch.setattr(limits, "spill_folder", lambda: tmp_path)
    yield tmp_path
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@functools.cache
def crowded() -> pd.DataFrame:
    """Draw fills at few moments before and after 1970, of few orders that go on for long, some unknown."""
    frame = many(60).drop(columns="label")
    dice = np.random.default_rng(4)
    hours = np.sort(dice.integers(-60, 60, len(frame))) * HOUR + dice.choice([0, 0, 1, 1_000], len(frame))
    times = pd.Series(pd.to_datetime(hours, unit="ms", utc=True), index=frame.index).astype(
        frame["created_at"].dtype
    )
    orders = pd.Series(
        [f"0x{number:064x}" for number in dice.integers(0, 150, len(frame))], index=frame.index
    )
    frame = frame.assign(
        created_at=times.where(frame["created_at"].notna() & (dice.random(len(frame)) > 0.02)),
        order_hash=orders.where(dice.random(len(frame)) > 0.3).astype(frame["order_hash"].dtype),
        trade_id=pd.Series(dice.integers(0, len(frame) // 2, len(frame)), frame.index).astype("Int64"),
    )
    return frame.sample(frac=1, random_state=5, ignore_index=True)


def prices_of(frame: pd.DataFrame, kind: str) -> pd.DataFrame | None:
    if kind == "own":
        return None
    others = frame.sample(frac=0.8, random_state=6, ignore_index=True)
    later = others.assign(created_at=others["created_at"] + pd.Timedelta("2h"))
    both = pd.concat([others, later], ignore_index=True)
    if kind == "trades":
        return both
    outside = both[["created_at", "market", "side", "fill_type", "price"]]
    if kind == "alike":
        return outside
    return outside.assign(created_at=outside["created_at"] + pd.Timedelta("17ms"))


def content(result: Any) -> tuple[list[str], Counter[Any]]:
    table = collected(result)
    return table.column_names, Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


QUESTIONS: dict[str, Callable[..., Any]] = {
    "price_gap": lambda f, p, **k: lab.fills.price_gap(f, "3h", prices=p, **k),
    "next": lambda f, p, **k: lab.fills.all_in_cost(f, "next", "3h", prices=p, **k),
    "last": lambda f, p, **k: lab.fills.all_in_cost(f, "last", "3h", prices=p, **k),
    "of prices": lambda f, p, **k: lab.fills.all_in_cost(f, f if p is None else p, "1h", **k),
    "shortfall": lambda f, p, **k: lab.fills.shortfall(f, p, tolerance="3h", **k),
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "by"), [("own", None), ("own", BY), ("trades", None), ("alike", None), ("outside", BY)]
)
@pytest.mark.parametrize("question", QUESTIONS)
def test_windows_give_the_digits_of_all_at_once(
    question: str, kind: str, by: list[str] | None, spilled: Path
) -> None:
    ask, frame, prices = QUESTIONS[question], crowded(), prices_of(crowded(), kind)
    asked = {} if by is None else {"by": by}
    expected = ask(frame, prices, **asked)
    given_prices = prices if prices is None or question == "last" else on("duckdb", prices)
    found = ask(on("duckdb", frame), given_prices, **asked)
    assert content(found) == content(expected)
    assert question == "price_gap" or len(set(content(expected)[1])) > 1


def seen(frame: pd.DataFrame, **asked: Any) -> list[tuple[pd.DataFrame, windows.Window]]:
    """Return the rows of each window, with the number of each in the frame, and the window."""
    frame = frame.assign(number=np.arange(len(frame)))
    found: list[tuple[pd.DataFrame, windows.Window]] = []

    def work(window: windows.Window) -> pa.Table:
        found.append((window.rows.to_pandas(), window))
        return window.own(window.rows).select(["number"])

    parts = windows.over(on("duckdb", frame), "here", [*COLUMNS, "number"], ORDER, work=work, **asked)
    answered = pa.concat_tables(parts)["number"].to_pylist()
    assert sorted(answered) == list(range(len(frame)))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("placed_by", ["moment", "first", "last"])
def test_each_row_is_inside_one_window_that_has_all_rows_some_time_after_it(
    placed_by: str, spilled: Path
) -> None:
    frame, after = crowded(), HOUR
    whole = to_table(frame, "here", COLUMNS, ORDER)
    moments = whole["moment"].fill_null(NAT).to_numpy()
    spans = dict(zip(("first", "last"), order_span(whole), strict=True)) | {"moment": moments}
    found = seen(frame, after=after, placed_by=placed_by)
    assert len(found) > 3
    assert sum(window.here.sum() for _, window in found) == len(frame)
    for rows, window in found:
        own = rows[window.inside]
        assert ({"first", "last"} <= {*rows}) == (placed_by != "moment")
        for name in {"first", "last"} & {*rows}:
            assert (own[name].to_numpy() == spans[name][own["number"]]).all()
        for time in np.unique(spans[placed_by][own["number"]]):
            if time != NAT:
                around = np.flatnonzero((moments >= time) & (moments <= time + after))
                assert set(around) <= set(rows["number"])
                assert set(around) <= set(window.prices["number"].to_pylist())


def test_windows_are_about_as_large_as_memory_allows(spilled: Path) -> None:
    _, *sizes = [len(rows) for rows, _ in seen(crowded())]  # unknown times are in the first
    assert max(sizes) <= 2 * FEW
    assert len(sizes) <= 3 * len(crowded()) // FEW


@pytest.mark.thorough
@pytest.mark.parametrize("tolerance", ["7d", None])
def test_windows_hold_few_prices_beside_their_own_however_old_these_may_be(
    tolerance: str | None, monkeypatch: pytest.MonkeyPatch, spilled: Path
) -> None:
    held = []

    def counted(prices: pa.Table, *arguments: Any) -> PriceHistory:
        held.append(len(prices))
        return PriceHistory(prices, *arguments)

    monkeypatch.setattr("loopring_lab.fills.prices.PriceHistory", counted)
    frame = crowded().assign(order_hash=[f"0x{number}" for number in range(len(crowded()))])
    lab.fills.price_gap(on("duckdb", frame), tolerance)
    assert 2 * max(held) < len(frame)


@pytest.mark.thorough
def test_orders_whose_hashes_collide_are_one_order_in_windows_too(
    monkeypatch: pytest.MonkeyPatch, spilled: Path
) -> None:
    monkeypatch.setattr(orders, "numbers_of_texts", lambda names: np.full(len(names), 7, np.uint64))
    expected = content(lab.fills.all_in_cost(crowded(), "last", "3h"))
    assert content(lab.fills.all_in_cost(on("duckdb", crowded()), "last", "3h")) == expected


def test_rows_of_one_moment_are_one_window(spilled: Path) -> None:
    frame = crowded().assign(created_at=crowded()["created_at"].dropna().iloc[0])
    assert len(seen(frame, after=HOUR)) == 1
    assert len(seen(crowded().assign(created_at=crowded()["created_at"].iloc[:1]))) == 1


@settings(max_examples=40)
@given(st.lists(st.integers(-100, 100), max_size=80), st.integers(1, 9), st.integers(0, 30))
def test_edges_rise_and_leave_each_window_some_rows(moments: list[int], most: int, after: int) -> None:
    spread = np.sort(np.array(moments, np.int64))
    edges = cuts._edges(spread, most, after)
    ends = [-(10**6), *edges, 10**6]
    counts = np.diff(np.searchsorted(spread, ends))
    assert edges == sorted(set(edges))
    assert not len(spread) or (counts > 0).all()


def first_value(relation: Any) -> Any:
    return relation.fetchall()[0][0]


def height(frame: Any) -> int:
    return int(frame.collect().height)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["duckdb", "polars, lazy"])
def test_files_of_a_result_live_as_long_as_frames_that_read_them(engine: str, spilled: Path) -> None:
    found = lab.fills.price_gap(on(engine, crowded()), "3h")
    gc.collect()
    (folder,) = spilled.iterdir()
    if engine == "duckdb":
        rows = found.filter("side = 'BUY'").aggregate("count(*) AS n")
        count = partial(first_value, rows)
    else:
        rows = found.filter(side="BUY").select("side")
        count = partial(height, rows)
    expected = sum(row[3] == "BUY" for row in content(found)[1].elements())
    del found
    gc.collect()
    assert folder.is_dir()
    assert count() == expected > 100
    del rows, count
    gc.collect()
    assert not folder.exists()


def test_files_of_a_result_are_read_whatever_their_folder_is_called(
    monkeypatch: pytest.MonkeyPatch, spilled: Path
) -> None:
    folder = spilled / "of='a'[b]{c}"
    folder.mkdir()
    monkeypatch.setattr(limits, "spill_folder", lambda: folder)
    trades = crowded()
    found = lab.fills.price_gap(on("duckdb", trades), "3h")
    assert [*folder.iterdir()]
    assert content(found) == content(lab.fills.price_gap(trades, "3h"))
    del found
    gc.collect()
    folder.rmdir()


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["pandas", "pyarrow", "polars", "polars, lazy", "duckdb", "dask"])
@pytest.mark.parametrize("after", [0, HOUR])
def test_columns_are_added_to_trades_of_any_engine(engine: str, after: int, spilled: Path) -> None:
    def beside(window: windows.Window) -> dict[str, pa.Array]:
        own = window.own(window.rows)
        return {"here too": own["trade_id"].combine_chunks(), "price": own["price"].combine_chunks()}

    def batch(rows: pa.Table) -> dict[str, pa.Array]:
        return {"here too": rows["trade_id"].combine_chunks(), "price": rows["price"].combine_chunks()}

    frame, trades = crowded(), on(engine, crowded())
    expected = content(frame.assign(**{"here too": frame["trade_id"]}))
    assert content(windows.add_columns(trades, "here", COLUMNS, after=after, work=beside)) == expected
    assert content(windows.map_batches(trades, "here", COLUMNS, work=batch)) == expected


def test_hashes_of_texts_are_equal_where_the_texts_are(spilled: Path) -> None:
    texts = ["", "a", "b", "ab", "a\0", None, "0x" + "f" * 64, "0x" + "f" * 63, "é" * 9, "a" * 8, "a" * 16]
    column = pa.array([*texts, *texts[::-1]])
    hashes = arrays.numbers_of_texts(column.slice(3))
    assert len({*hashes[: len(texts) - 3].tolist()}) == len(texts) - 3
    again = arrays.numbers_of_texts(column)
    known = [n for n, text in enumerate(texts) if text is not None]
    assert (again[3:][known[4:]] == hashes[known[4:]]).all()
    assert (again[: len(texts)][known] == again[len(texts) :][::-1][known]).all()


def test_prices_of_a_file_are_refused_with_the_way_to_read_them() -> None:
    for ask in (lab.fills.price_gap, lab.fills.shortfall):
        with pytest.raises(LabError, match=r"lab\.tables\.prices\('x\.csv'\)"):
            ask(crowded(), prices="x.csv")


def test_rows_that_no_later_window_reads_leave_the_disk(spilled: Path) -> None:
    files: list[int] = []

    def work(window: windows.Window) -> pa.Table:
        files.append(sum(path.is_file() for path in spilled.rglob("*")))
        return window.own(window.rows).select(["trade_id"])

    for _ in windows.over(on("duckdb", crowded()), "here", COLUMNS, ORDER, after=2 * HOUR, work=work):
        pass
    assert len(files) > 4
    assert files == sorted(files, reverse=True)
    assert files[-1] < files[0] // 2
