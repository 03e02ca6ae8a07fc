"""What questions take in the columns that they know, and what they refuse."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.engines import on, result_rows

import loopring_lab as lab
from loopring_lab.engine import portable

IN_MEMORY = ("pandas", "pyarrow")


@pytest.fixture(scope="module")
def trades() -> pd.DataFrame:
    return lab.connect().trades(10083, limit=100)


def with_column(trades: pd.DataFrame, name: str, column: Any) -> pa.Table:
    table = portable(trades)
    return table.set_column(table.column_names.index(name), name, column)


# Texts


@pytest.mark.parametrize("name", ["order_hash", "market", "side", "fee_token"])
@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.dictionary(pa.int32(), pa.large_string())], ids=str
)
def test_texts_of_every_type_are_the_same(trades, name, kind):
    column = portable(trades)[name].cast(kind)
    found = lab.fills.orders(with_column(trades, name, column))
    assert result_rows(found) == result_rows(lab.fills.orders(portable(trades)))


@pytest.mark.parametrize("name", ["order_hash", "market", "side", "fee_token"])
@pytest.mark.parametrize("engine", [*IN_MEMORY, "duckdb"])
def test_bytes_and_numbers_are_no_texts(trades, engine, name):
    octets = [str(text).encode() for text in trades[name]]
    for column in (octets, pd.Categorical(octets), range(len(trades))):
        if engine == "duckdb" and isinstance(column, pd.Categorical):
            continue
        with pytest.raises(lab.LabError, match=rf"orders: {name} is .*, not text\."):
            lab.fills.orders(on(engine, trades.assign(**{name: column})))


@pytest.mark.parametrize("engine", IN_MEMORY)
def test_a_column_of_nothing_is_unknown_whatever_its_type(trades, engine):
    for name in ("order_hash", "role"):
        without = lab.fills.orders(
            on(engine, trades.assign(**{name: pd.Series(None, trades.index, "str")}))
        )
        empty = on(engine, trades.assign(**{name: np.nan}))
        assert result_rows(lab.fills.orders(empty)) == result_rows(without)
