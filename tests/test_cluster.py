"""A Dask cluster: a real scheduler and two worker processes on loopback, over partitioned Parquet files."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from support.engines import collected, without_warnings
from support.optional import package_or_skip
from support.trade_histories import many

import loopring_lab as lab
from loopring_lab.engines import portable


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
