"""Trades on other engines: the same exact numbers from pandas, pyarrow, Polars, DuckDB, Dask and Spark.

`portable` converts a frame to an Arrow table that every engine reads. The functions of `fees` and `fills`
take frames of any of them and return frames of the same kind.
"""

from loopring_lab.engines.adapters import portable

__all__ = ["portable"]


def __dir__() -> list[str]:
    return sorted(__all__)
