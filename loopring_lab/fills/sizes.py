"""Fills by size: who trades where, and at what rate, from the smallest tenth to the largest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import frames
from loopring_lab.engines.answers import answer, share_of
from loopring_lab.engines.cube import MILLI, SUM, keys_of
from loopring_lab.engines.groups import Groups, ratio
from loopring_lab.errors import LabError

__all__ = ["size_profile"]

MOST = 1000


def size_profile(trades: Any, quantiles: int = 10, by: str | Sequence[str] | None = None) -> Any:
    """Split fills into equally many by size, and compare fill types within each part.

    Size is the notional; sizes in different quote tokens are never compared. Fills of the same size stand in
    the same part, so that parts may differ in number.

    Parameters
    ----------
    trades : frame of pandas, pyarrow, Polars, DuckDB, Dask or Spark
        From `Client.trades`, `Archive.scan` or `engines.portable`.
    quantiles : int
        Number of parts, 1 to 1,000.
    by : str or sequence of str, optional
        Columns to group by; parts are made within each group and quote token.

    Returns
    -------
    frame of the same kind, one row a group
        `by`, ``quote``, ``quantile`` (1 for the smallest; null where the size is not known), ``smallest``
        and ``largest`` size of that part (quote units), ``fill_type``, ``fills``, ``share`` (of the fills
        of that part, 0 to 1), ``notional``, ``notional_share`` (of that part) and ``median_bps``.

    Raises
    ------
    LabError
        The frame is not one of trades, `by` names no column, or `quantiles` is no such number.
    AmountError
        An amount is not an exact decimal.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> trades = lab.connect().trades(account_id=10083, market="LRC-ETH", limit=100)
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> halves = lab.fills.size_profile(trades, quantiles=2)
    >>> halves.loc[halves["fill_type"] == "amm", ["quantile", "fill_type", "share"]]
       quantile fill_type  share
    0         1       amm   0.02
    2         2       amm   0.26
    """
    what = "fills.size_profile"
    if type(quantiles) is not int or not 1 <= quantiles <= MOST:
        raise LabError(f"{what}: quantiles={quantiles!r}. Give a whole number from 1 to {MOST}, such as 10.")
    around = list(dict.fromkeys([*keys_of(by, what, "whole"), "quote"]))
    needed = list(dict.fromkeys([*around, "fill_type", "notional", "fee_bps"]))
    table = pa.concat_tables(list(frames.batches(trades, needed, what)))
    table = table.append_column("whole", pa.array(Groups(table, around).ids))
    table = table.sort_by([("whole", "ascending"), ("notional", "ascending")])
    table = table.append_column("quantile", _parts(table, quantiles))
    milli = np.floor(table["fee_bps"].to_numpy() * MILLI + 0.5)
    table = table.append_column("milli_bps", pa.array(milli)).append_column(
        "fills", pa.array(np.ones(len(table), np.int64))
    )
    part = Groups(table, [*around, "quantile"])
    groups = Groups(table, [*part.keys, *([] if "fill_type" in around else ["fill_type"])])
    whole = part.ids[groups.where]
    fills, notional = groups.sum("fills"), groups.sum("notional")
    columns: dict[str, Any] = {name: groups.key(name) for name in part.keys}
    columns |= {
        name: part.extreme("notional", how).take(pa.array(whole))
        for name, how in [("smallest", "min"), ("largest", "max")]
    }
    columns |= {"fill_type": groups.key("fill_type"), "fills": fills, "share": share_of(fills, whole)}
    columns["notional"] = notional
    columns["notional_share"] = ratio(
        notional.cast(SUM), part.sum("notional").take(pa.array(whole)).cast(SUM)
    )
    return answer(trades, columns | {"median_bps": pa.array(groups.median_bps(), from_pandas=True)})


def _parts(table: pa.Table, quantiles: int) -> pa.Array:
    """Number the parts of rows sorted by group and size; equal sizes get the number of their first."""
    whole, size = table["whole"].to_numpy(), table["notional"].combine_chunks()
    known = size.is_valid().to_numpy(zero_copy_only=False)
    start = np.searchsorted(whole, whole, "left")
    counts = np.bincount(whole[known], minlength=int(whole.max(initial=0)) + 1)
    position = np.arange(len(whole)) - start
    number = position * quantiles // np.maximum(counts[whole], 1) + 1
    if len(whole) > 1:
        same = pc.fill_null(pc.equal(size[1:], size[:-1]), False).to_numpy(zero_copy_only=False)
        fresh = np.concatenate([[True], ~(same & (whole[1:] == whole[:-1]))])
        number = number[np.maximum.accumulate(np.where(fresh, np.arange(len(whole)), 0))]
    return pa.array(number, pa.int64(), mask=~known)
