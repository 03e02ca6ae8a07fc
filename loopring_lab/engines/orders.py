"""Orders: what tells them apart, and when each was first and last filled."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.engines.arrays import (
    GAMMA,
    NAT,
    SHORT_BITS,
    as_text,
    integers,
    mixed,
    numbers_of_ids,
    numbers_of_texts,
)

LAST = np.iinfo(np.int64).max
ORDER = ("order_hash", "account_id", "token_id", "storage_id")
"""What tells orders apart: the hash, or without one the account, the token sold and the storage id."""
ORDER_ID = "id of the order"
"""A column of `order_ids`, named unlike those of trades."""
ORDER_NUMBER = "number of the order"
"""A column that numbers the orders of one table."""
SPAN = ("first", "last")
"""When the order of a row was first and last filled in a whole frame, in ms."""
PART_BITS = 14
"""Ids are told apart in parts of about so many binary digits of rows, which stay in a processor's cache."""

Span = tuple[np.ndarray, np.ndarray]


def order_ids(rows: pa.Table) -> np.ndarray:
    """Return a number of 64 bits for the order of each row, alike for equal ones anywhere; 0 for unknown.

    It is made of the hash, or without one of the account, the token sold and the storage id.
    """
    if ORDER_ID in rows.column_names:
        return np.asarray(rows[ORDER_ID].to_numpy())
    ids = numbers_of_texts(as_text(column_of(rows, ORDER[0])))
    unhashed = np.flatnonzero(ids == 0)
    if len(unhashed):
        found, known = np.zeros(len(unhashed), np.uint64), np.ones(len(unhashed), bool)
        for name in ORDER[1:]:
            column = column_of(rows, name).take(pa.array(unhashed))
            found = mixed(found + np.uint64(GAMMA) ^ numbers_of_ids(column))
            known &= np.asarray(column.is_valid())
        ids[unhashed] = np.where(known, found, np.uint64(0))
    return ids


def numbered_orders(*tables: pa.Table) -> list[np.ndarray]:
    """Number the orders of rows, alike in all of the tables; -1 for unknown."""
    if len(tables) == 1 and ORDER_NUMBER in tables[0].column_names:
        return [tables[0][ORDER_NUMBER].to_numpy()]
    ids = np.concatenate([*map(order_ids, tables)])
    bits = min(max(len(ids).bit_length() - PART_BITS, 0), SHORT_BITS)
    parts = (ids >> np.uint64(64 - bits)).astype(np.uint16)
    order, count = np.argsort(parts, kind="stable"), 0
    numbers = np.empty(len(ids), np.int64)
    for rows in np.split(order, np.cumsum(np.bincount(parts))[:-1]):
        found, different = pd.factorize(ids[rows])
        numbers[rows], count = found + count, count + len(different)
    numbers[ids == 0] = -1
    return np.split(numbers, np.cumsum([*map(len, tables)])[:-1])


def sold_by_order(rows: pa.Table) -> dict[str, pa.Array]:
    """Return token sold and storage id of the orders that have no hash; null for the others."""
    by_hash, columns = column_of(rows, "order_hash").is_valid(), {n: column_of(rows, n) for n in ORDER[1:]}
    for column in columns.values():  # without one of them it is not known either
        by_hash = pc.or_(by_hash, column.is_null())
    return {
        n: pc.if_else(by_hash, pa.scalar(None, columns[n].type), columns[n]).cast(pa.int64())
        for n in ORDER[2:]
    }


def has_span(rows: pa.Table) -> bool:
    """Tell whether rows have the columns `SPAN`, in milliseconds."""
    return all(n in rows.column_names and pa.types.is_int64(rows[n].type) for n in SPAN)


def order_span(rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """Return when the order of each row was first and last filled; `NAT` if a time of it is unknown.

    A row of an unknown order stands for itself. Rows that have the columns ``first`` and ``last`` say so.
    """
    if has_span(rows):
        first, last = (np.asarray(rows[name], np.int64) for name in SPAN)
        return first, last
    first, last = (moments_of(rows).copy() for _ in range(2))
    (orders,) = numbered_orders(rows)
    known = np.flatnonzero(orders >= 0)
    orders = orders[known]
    starts, ends = first_and_last(orders, first[known], orders.max(initial=-1) + 1)
    first[known], last[known] = starts[orders], ends[orders]
    last[first == NAT] = NAT
    return first, last


def first_and_last(numbers: np.ndarray, moments: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first and the last moment of each number below a count."""
    first, last = np.full((2, count), [[LAST], [NAT]])
    np.minimum.at(first, numbers, moments)
    np.maximum.at(last, numbers, moments)
    return first, last


def moments_of(rows: pa.Table, name: str = "moment") -> np.ndarray:
    """Return a column of times in ms as integers, unknown ones as `NAT`."""
    return integers(rows[name], NAT)


def column_of(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """Return a column; nulls where there is none."""
    return rows[name] if name in rows.column_names else pa.chunked_array([pa.nulls(len(rows), pa.int64())])
