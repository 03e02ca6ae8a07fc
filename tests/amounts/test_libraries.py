"""Amounts in other libraries: numbers to those that compute or draw, plain decimals or numbers in files."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.amount_trades import AMOUNTS, trades

from loopring_lab.amounts.dtype import AmountArray
from loopring_lab.errors import AmountError

PLAIN = pa.decimal128(38, 18)


@pytest.fixture
def frame():
    return trades()


@pytest.fixture
def known(frame):
    return frame.dropna(subset=AMOUNTS)


@pytest.mark.parametrize("kind", ["parquet", "feather", "pickle"])
def test_files_keep_amounts(frame, kind, tmp_path):
    path = tmp_path / f"trades.{kind}"
    getattr(frame, f"to_{kind}")(path)
    found = getattr(pd, f"read_{kind}")(path)
    assert (found.dtypes[AMOUNTS] == "amount").all()
    pd.testing.assert_frame_equal(found, frame)


@pytest.mark.parametrize("kind", [pa.decimal128(38, 2), pa.int64(), pa.string()])
def test_a_mark_on_other_values_makes_no_amounts_of_them(frame, kind, tmp_path):
    # The mark as files have it: names and bytes beside a field of any type.
    known = pa.Table.from_pandas(frame[["fee"]]).schema.field("fee").type
    mark = {
        "ARROW:extension:name": known.extension_name,
        "ARROW:extension:metadata": "",
    }
    column = pa.array(["1", "3"]).cast(kind)
    fees = pa.table([column], pa.schema([pa.field("fee", kind, metadata=mark)]))
    path = tmp_path / "theirs.feather"
    with pa.ipc.new_file(path, fees.schema) as file:
        file.write_table(fees)
    with pytest.raises(AmountError, match=f"but holds {re.escape(str(kind))}, not"):
        pd.read_feather(path)


def test_parquet_holds_decimals_for_others(frame, tmp_path):
    path = tmp_path / "trades.parquet"
    frame.to_parquet(path)
    # Arrow without the toolkit, DuckDB, Polars
    code = "import sys; from pyarrow import parquet; print(parquet.read_table(sys.argv[1])['fee'].type)"
    found = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "decimal128(38, 18)"
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    assert (
        duckdb.sql(f"select sum(fee) from '{path}'").fetchall()[0][0]
        == frame["fee"].sum()
    )
    polars = pytest.importorskip("polars", reason="polars is not installed")
    marked = polars.read_parquet(path)["fee"]
    assert marked.ext.storage().sum() == frame["fee"].sum()


def test_arrow(frame):
    table = pa.Table.from_pandas(frame)
    assert {table.schema.field(name).type.storage_type for name in AMOUNTS} == {PLAIN}
    assert frame["fee"].array.to_arrow().type == PLAIN
    pd.testing.assert_frame_equal(table.to_pandas(), frame)
    plain = frame["fee"].array.to_arrow()
    for to in (pa.decimal256(37, 18), pa.decimal128(38, 18), pa.decimal256(76, 18)):
        column = pa.chunked_array([plain.cast(to)] * 2)
        assert AmountArray(column).to_arrow().equals(pa.concat_arrays([plain] * 2))
        assert pa.array(frame["fee"].array, to).equals(plain.cast(to))


def test_csv_has_no_trailing_zeros_and_reads_back(frame, tmp_path):
    path = tmp_path / "trades.csv"
    frame[AMOUNTS].to_csv(path, index=False)
    text = path.read_text()
    assert "E-" not in text
    assert ",0\n" in text
    pd.testing.assert_frame_equal(pd.read_csv(path, dtype="amount"), frame[AMOUNTS])


def test_duckdb(frame):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    found = duckdb.sql(
        "select sum(fee) as fees, sum(fee) / sum(notional) as rate from frame"
    )
    (total, rate) = found.fetchall()[0]
    assert total == frame["fee"].sum()
    assert rate == pytest.approx(frame["fee"].sum() / frame["notional"].sum())
    assert duckdb.sql("select fee from frame").types == ["DECIMAL(38,18)"]
    # Without another column of Arrow's types DuckDB looks for NumPy's; Arrow's table is plain.
    fee = frame[["fee"]]
    with pytest.raises(duckdb.NotImplementedException, match="'amount' not recognized"):
        duckdb.sql("from fee")
    fees = pa.Table.from_pandas(fee)  # noqa: F841 - DuckDB finds tables by the names of variables
    assert (
        duckdb.sql("select sum(fee) from fees").fetchall()[0][0] == frame["fee"].sum()
    )


@pytest.mark.thorough
def test_seaborn(known):
    seaborn = pytest.importorskip("seaborn", reason="seaborn is not installed")
    from matplotlib import pyplot as plt

    drawn = seaborn.regplot(known, x="notional", y="fee")
    np.testing.assert_allclose(
        drawn.collections[0].get_offsets()[:, 1], known["fee"].astype(float)
    )
    plt.close("all")
    seaborn.scatterplot(known, x="notional", y="fee", size="size", hue="market")
    plt.close("all")
    seaborn.heatmap(known[AMOUNTS].corr())
    plt.close("all")
    fees = known.pivot_table(
        values="fee", index="market", columns="side", aggfunc="sum", observed=True
    )
    drawn = seaborn.heatmap(fees.astype(float))
    np.testing.assert_allclose(
        drawn.collections[0].get_array().ravel(), fees.astype(float).to_numpy().ravel()
    )
    plt.close("all")
