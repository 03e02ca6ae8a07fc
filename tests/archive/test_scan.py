"""One archive on every engine: the same digits as integer arithmetic, and the same frames."""

from collections import Counter
from typing import Any

import narwhals as nw
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.ledger import Ledger, client_of
from support.optional import package_or_skip, skip_without_java

import loopring_lab as lab
from loopring_lab.archive import Archive
from loopring_lab.errors import LabError
from loopring_lab.relayer import Relayer

ENGINES = ["pyarrow", "duckdb", "polars", "dask", "spark"]
DECIMALS = {"ETH": 18, "LRC": 18, "USDC": 6}


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    package_or_skip({"spark": "pyspark"}.get(name, name))
    if name == "spark":
        skip_without_java()
    return name


def collected(frame: Any) -> pd.DataFrame:
    """Take any engine's frame as pandas, times as whole milliseconds."""
    if hasattr(frame, "sparkSession"):
        table = frame.toArrow()
    elif hasattr(frame, "compute"):
        table = pa.Table.from_pandas(frame.compute(), preserve_index=False)
    else:
        table = nw.from_native(frame).lazy().collect("pyarrow").to_native()
    assert table.schema.field("size").type == pa.decimal128(38, 18)
    assert table.schema.field("created_at").type.tz in ("UTC", "Etc/UTC")
    moments = table["created_at"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return table.set_column(0, "created_at", moments).replace_schema_metadata(None).to_pandas()


def sums(frame: Any, engine: str) -> dict[tuple[str, str], int]:
    """Add up fees by market and fee token with the engine's own means, as integers of 1e-18."""
    if engine == "duckdb":
        rows = frame.aggregate("market, fee_token, sum(fee)").fetchall()
    elif engine == "spark":
        rows = [tuple(row) for row in frame.groupBy("market", "fee_token").agg({"fee": "sum"}).collect()]
    elif engine == "polars":
        rows = frame.group_by("market", "fee_token").agg(pl.col("fee").sum()).collect().rows()
    elif engine == "dask":
        total = frame.groupby(["market", "fee_token"])["fee"].sum().compute()
        rows = [(*key, value) for key, value in total.items()]
    else:
        rows = frame.group_by(["market", "fee_token"]).aggregate([("fee", "sum")]).to_pylist()
        rows = [tuple(row.values()) for row in rows]
    return {(market, token): int(str(fee.scaleb(18)).partition(".")[0]) for market, token, fee in rows}


def truth(ledger: Ledger) -> dict[tuple[str, str], int]:
    found: Counter[tuple[str, str]] = Counter()
    for row in ledger.rows:
        market = row[5].removeprefix("AMM-")
        token = market.split("-")[row[2] == "SELL"]
        found[market, token] += int(row[6]) * 10 ** (18 - DECIMALS[token])
    return dict(found)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_engine_gives_the_same_digits(archive: Archive, small: Ledger, engine: str) -> None:
    frame = archive.scan(engine)
    assert sums(frame, engine) == truth(small)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_engine_has_every_column_of_every_row(archive: Archive, engine: str) -> None:
    expected = lab.engines.portable(archive.trades())
    moments = expected["created_at"].cast(pa.int64())
    ours = (
        expected.set_column(0, "created_at", moments).to_pandas().sort_values("trade_id", ignore_index=True)
    )
    theirs = collected(archive.scan(engine)).sort_values("trade_id", ignore_index=True)
    pd.testing.assert_frame_equal(theirs[list(ours)], ours, check_dtype=False)
    assert list(theirs) == list(ours)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_summaries_are_those_of_pandas(archive: Archive, engine: str) -> None:
    expected = lab.fees.summary(archive.trades(), by=["market"])
    found = lab.fees.summary(archive.scan(engine), by=["market"])
    table = found.toArrow() if engine == "spark" else found if engine == "pyarrow" else None
    if engine == "dask":
        table = pa.Table.from_pandas(found.compute(), preserve_index=False)
    table = nw.from_native(found).lazy().collect("pyarrow").to_native() if table is None else table
    for name in ("fills", "fee", "notional"):
        assert [str(one) for one in table[name].to_pylist()] == [str(one) for one in expected[name]]


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_only_current_versions_are_given(archive: Archive, small: Ledger, engine: str) -> None:
    changed = Ledger(2, 120, seed=3)
    changed.rows[-1] = (*changed.rows[-1][:7], "777777", *changed.rows[-1][8:])
    with Relayer(changed) as relayer:
        report = archive.sync(client_of(relayer), accounts=small.accounts)
    assert report["second_versions"].sum() == 1
    rows = collected(archive.scan(engine))
    assert len(rows) == 240
    assert (rows["block_id"] == 777_777).sum() == 1


def test_a_scan_stays_as_it_is_while_others_write(archive: Archive, small: Ledger) -> None:
    frames = {name: archive.scan(name) for name in ("duckdb", "polars", "dask")}
    more = Ledger(3, 120, seed=9)
    with Relayer(more) as relayer:
        archive.sync(client_of(relayer), account_id=more.accounts[2])
    archive.compact()
    for name, frame in frames.items():
        assert sums(frame, name) == truth(small)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_an_archive_of_no_trades_scans_as_no_rows(tmp_path: Any, engine: str) -> None:
    with Relayer(Ledger(1, 0)) as relayer:
        archive = Archive(tmp_path / "a")
        archive.sync(client_of(relayer), account_id=20_000)
    assert len(collected(archive.scan(engine))) == 0
    assert archive.report()["rows"].sum() == 0


def test_an_unknown_engine_is_refused(archive: Archive) -> None:
    with pytest.raises(
        LabError, match="'duckdb', 'polars', 'dask', 'spark', 'pyarrow'; for pandas there is trades"
    ):
        archive.scan("excel")


def test_an_engine_that_is_not_installed_is_named(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(LabError, match="engine='polars' needs the package polars"):
        archive.scan("polars")
