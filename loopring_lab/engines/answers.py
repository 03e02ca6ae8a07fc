"""What a group of trades amounts to: the columns that fees and fills have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines import frames, kinds
from loopring_lab.engines.groups import Groups, ratio

__all__ = ["amounts_of", "answer", "share_of"]


def amounts_of(groups: Groups) -> dict[str, pa.Array]:
    """Work out the exact sums and the ratios of each group.

    Parameters
    ----------
    groups : Groups
        Of a cube.

    Returns
    -------
    dict of pyarrow.Array
        ``fills``; ``base`` and ``volume``, ``quote`` and ``notional``, ``fee_token`` with ``received``
        (gross) and ``fee``: a token and the sum of what is known in it, null where a group mixes tokens;
        ``bps``, the fee per received amount of the fills of which all amounts are known; ``median_bps``;
        ``zero_fee_share`` of the fills whose fee is known; ``unknown``, fills with an amount that is not
        known.
    """
    table = groups.table
    clear = np.asarray(table["unknown"]) == 0
    token = groups.only("fee_token")
    rated = clear & table["received"].is_valid().to_numpy()
    fee = pc.if_else(token.is_valid(), groups.sum("fee", rated), pa.scalar(None, table["fee"].type))
    charged = groups.sum("charged", np.asarray(table["charged"]) > 0)
    return {
        "fills": groups.sum("fills"),
        "base": groups.only("base"),
        "volume": _in_one(groups, "base", "size"),
        "quote": groups.only("quote"),
        "notional": _in_one(groups, "quote", "notional"),
        "fee_token": token,
        "received": _in_one(groups, "fee_token", "received"),
        "fee": _in_one(groups, "fee_token", "fee"),
        "bps": ratio(fee, groups.sum("received", rated), 10_000),
        "median_bps": pa.array(groups.median_bps(), from_pandas=True),
        "zero_fee_share": pc.divide(groups.sum("zero").cast(pa.float64()), charged.cast(pa.float64())),
        "unknown": groups.sum("fills", ~clear).fill_null(0),
    }


def share_of(fills: pa.Array, whole: np.ndarray) -> pa.Array:
    """Divide counts by the count of the whole they belong to.

    Parameters
    ----------
    fills : pyarrow.Array of int64, shape (n,)
        Counts.
    whole : numpy.ndarray of int64, shape (n,)
        Which whole each belongs to, from 0.

    Returns
    -------
    pyarrow.Array of float64, shape (n,)
        Shares from 0 to 1.
    """
    counts = fills.to_numpy()
    totals = np.zeros(int(whole.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, whole, counts)
    return pa.array(counts / totals[whole])


def answer(frame: Any, columns: Mapping[str, Any]) -> Any:
    """Give columns as a frame of the engine that asked.

    Parameters
    ----------
    frame : frame of any engine
        What the caller gave.
    columns : mapping of str to pyarrow.Array
        Sums may be wider than amounts; counts are declared to have no nulls.

    Returns
    -------
    frame of that engine
        Amounts checked to fit.

    Raises
    ------
    AmountError
        A sum has more than 19 digits before the point.
    """
    fields, arrays = [], []
    for name, column in columns.items():
        wide = pa.types.is_decimal(column.type)
        arrays.append(kinds.cast(column, kinds.WIDE, name) if wide else column)
        counted = pa.types.is_int64(column.type) and not column.null_count
        fields.append(pa.field(name, arrays[-1].type, nullable=not counted))
    return frames.as_kind_of(frame, pa.Table.from_arrays(arrays, schema=pa.schema(fields)))


def _in_one(groups: Groups, token: str, amount: str) -> pa.Array:
    total = groups.sum(amount)
    return pc.if_else(groups.only(token).is_valid(), total, pa.scalar(None, total.type))
