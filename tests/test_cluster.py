"""A Dask cluster: a real scheduler and two worker processes on loopback, over partitioned Parquet files."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engines import collected, without_warnings
from support.ledger import Ledger, client_of
from support.optional import package_or_skip
from support.trade_histories import many

import loopring_lab as lab
from loopring_lab.engines import limits, portable, windows, workers
from loopring_lab.relayer import Relayer


@pytest.fixture(scope="module")
def odd() -> pd.DataFrame:
    return many(60)


@pytest.fixture(scope="module")
def parquet(odd: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trades")
    pq.write_to_dataset(portable(odd), folder, partition_cols=["market"])
    assert len(list(folder.rglob("*.parquet"))) > 3
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    distributed = package_or_skip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        local_directory=str(tmp_path_factory.mktemp("workers")),
    ) as cluster:
        with distributed.Client(cluster) as client:
            yield client
        workers = [worker.pid for worker in cluster.workers.values()]
    assert len(workers) == 2
    for pid in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.thorough
def test_two_workers_give_the_same_to_the_last_digit(cluster: Any, parquet: Path, odd: pd.DataFrame) -> None:
    from dask import dataframe

    trades = dataframe.read_parquet(parquet, dtype_backend="pyarrow")
    assert trades.npartitions > 2
    assert len(cluster.run(os.getpid)) == 2
    for ask in (
        lambda f: lab.fees.summary(f, by=["market", "fill_type"]),
        lambda f: lab.fees.over_time(f, "1w", by="side"),
        lambda f: lab.fills.breakdown(f, "1mo"),
    ):
        assert collected(without_warnings(ask, trades)).equals(collected(ask(odd)))


@pytest.mark.thorough
def test_lookups_in_time_read_the_partitions_on_the_workers(
    cluster: Any, parquet: Path, odd: pd.DataFrame
) -> None:
    from dask import dataframe

    trades = dataframe.read_parquet(parquet, dtype_backend="pyarrow")
    for ask in (
        lambda f: lab.fills.all_in_cost(f, by=["market", "fill_type"]),
        lambda f: lab.fills.price_gap(f, by="side"),
    ):
        assert collected(without_warnings(ask, trades)).equals(collected(ask(odd)))


LOOKUPS = {
    "all_in_cost, by": lambda f: lab.fills.all_in_cost(f, by=["market", "fill_type"]),
    "all_in_cost, last": lambda f: lab.fills.all_in_cost(f, "last"),
    "price_gap": lambda f: lab.fills.price_gap(f, by="side"),
    "in_token": lambda f: lab.fees.in_token(f, "ETH", by=[]),
    "markouts": lambda f: lab.fills.markouts(f, horizons=["10s", "1min"], by=[]),
    "shortfall": lambda f: lab.fills.shortfall(f, by="side"),
    "compare_venues": lab.fills.compare_venues,
    "in_token, rows": lambda f: lab.fees.in_token(f, "ETH"),
    "with_roles": lab.fills.with_roles,
    "one_side": lab.fills.one_side,
}


@pytest.mark.thorough
@pytest.mark.parametrize("question", LOOKUPS)
def test_windows_on_the_workers_give_the_same_digits(
    cluster: Any, odd: pd.DataFrame, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dask import dataframe

    def deal_out(rows: int) -> int:
        from loopring_lab.engines import cluster

        before, cluster.DEALT_AT_ONCE = cluster.DEALT_AT_ONCE, rows
        return before

    ask = LOOKUPS[question]
    expected = collected(ask(odd)).to_pylist()
    before = cluster.run(deal_out, 7)
    monkeypatch.setattr(limits, "rows_at_once", lambda bytes_per_row: 60)
    for name in ("_windows", "_whole_windows"):  # of this process
        monkeypatch.setattr(windows, name, None)
    found = collected(without_warnings(ask, dataframe.from_pandas(odd, npartitions=5))).to_pylist()
    assert set(cluster.run(deal_out, max(before.values())).values()) == {7}
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_small_frames_that_lambdas_made_are_read_from_the_workers(cluster: Any, odd: pd.DataFrame) -> None:
    from dask import dataframe

    parts = dataframe.from_pandas(odd, npartitions=2)
    made = parts.map_partitions(lambda part: part, meta=parts._meta)
    found, expected = (collected(lab.fees.in_token(one, "USDT")) for one in (made, odd))
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


@pytest.mark.thorough
def test_prices_from_this_process_are_sent_to_the_workers(
    cluster: Any, odd: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dask import dataframe

    prices = odd[["created_at", "market", "price"]].sample(frac=0.5, random_state=1)
    expected = collected(lab.fills.all_in_cost(odd, prices, by="side"))
    monkeypatch.setattr(limits, "rows_at_once", lambda bytes_per_row: 60)
    found = lab.fills.all_in_cost(dataframe.from_pandas(odd, npartitions=3), prices, by="side")
    assert collected(found).equals(expected)


def test_tables_come_in_the_order_of_their_frames(cluster: Any) -> None:
    frames = package_or_skip("dask.dataframe")

    def of(frame: pd.DataFrame) -> pa.Table:
        number = int(frame["number"].iloc[0])
        time.sleep(0.05 * (number % 3))
        return pa.table({"number": [number] * 3, "worker": [os.getpid()] * 3})

    numbers = frames.from_pandas(pd.DataFrame({"number": range(7)}), npartitions=7)
    found = list(workers.apply(of, numbers))
    assert [table["number"].to_pylist() for table in found] == [[number] * 3 for number in range(7)]
    assert len(set(pa.concat_tables(found)["worker"].to_pylist()) - {os.getpid()}) == 2


def test_tables_are_made_by_the_current_client(cluster: Any) -> None:
    distributed, frames = package_or_skip("distributed"), package_or_skip("dask.dataframe")
    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options) as other,
        distributed.Client(other),
        cluster.as_current(),
    ):
        numbers = frames.from_pandas(pd.DataFrame({"number": range(3)}), npartitions=3)
        made = workers.apply(lambda _: pa.table({"pid": [os.getpid()]}), numbers)
        pids = pa.concat_tables(made)["pid"].to_pylist()
    assert len(pids) == 3
    assert os.getpid() not in pids
