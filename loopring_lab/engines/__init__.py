"""Trades on other engines: the same exact numbers from pandas, pyarrow, Polars, DuckDB, Dask and Spark.

`portable` converts a frame to an Arrow table that every engine reads. The functions of `fees` and `fills`
take frames of any of them and return frames of the same kind. `set_memory` bounds the memory they use.
"""

from loopring_lab.engines.adapters import portable
from loopring_lab.engines.limits import set_memory

__all__ = ["portable", "set_memory"]


def __dir__() -> list[str]:
    return sorted(__all__)
