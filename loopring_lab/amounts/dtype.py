"""`AmountDtype` and `AmountArray`: columns of exact amounts that pandas takes for numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import ExtensionArray, ExtensionDtype, no_default, register_extension_dtype
from pandas.api.types import infer_dtype, is_float_dtype, is_integer_dtype, is_list_like, pandas_dtype

from loopring_lab.amounts import arithmetic
from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.scalar import Amount
from loopring_lab.amounts.scaling import combined
from loopring_lab.errors import AmountError

# What values are to arithmetic, by pandas' name of what an array holds.
_KINDS = {
    "integer": "integer",
    "boolean": "integer",
    "decimal": "amount",
    "mixed-integer": "amount",
    "floating": "float",
    "mixed-integer-float": "float",
    "empty": "amount",
}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}


@register_extension_dtype
class AmountDtype(ExtensionDtype):
    """Exact amounts with 18 decimals that behave like numbers.

    Sums, differences, extremes and comparisons are exact; quotients, means and every other function of numbers
    are float64. An amount has at most 20 digits before the point, and what does not fit raises an `AmountError`.

    Examples
    --------
    >>> fees = pd.Series(["0.1", "0.2"], dtype="amount")
    >>> fees.sum(), fees.mean()
    (Amount('0.3'), np.float64(0.15000000000000002))
    """

    name = "amount"
    type = Amount
    # As of floats: what asks for numbers, such as SQL writers and scikit-learn, takes them for such.
    kind = "f"
    na_value = np.nan
    _is_numeric = True
    _metadata = ()

    @classmethod
    def construct_array_type(cls) -> type[AmountArray]:
        return AmountArray

    def __from_arrow__(self, array: pa.Array | pa.ChunkedArray) -> AmountArray:
        return AmountArray(arithmetic.from_arrow(array))

    def _get_common_dtype(self, dtypes: list[Any]) -> Any:
        others = [dtype for dtype in dtypes if not isinstance(dtype, AmountDtype)]
        if all(_is_exact(dtype) for dtype in others):
            return self
        if all(_is_exact(dtype) or is_float_dtype(dtype) for dtype in others):
            return np.dtype("float64")
        return None


def _is_exact(dtype: Any) -> bool:
    if isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype):
        return True
    return is_integer_dtype(dtype)


class AmountArray(ExtensionArray):
    """An array of exact amounts, held as Arrow decimals of 16 bytes.

    Parameters
    ----------
    values : pyarrow.Array, pyarrow.ChunkedArray or sequence
        Decimals, integers, floats (by their shortest decimals, cut to 18), texts; None, NA and nan are missing.

    Raises
    ------
    AmountError
        A value does not fit: more than 20 digits before the point, or more than 18 decimals that are exact.

    Examples
    --------
    >>> lab.amounts.AmountArray(["1.50", 2, None])
    <AmountArray>
    [1.5, 2, nan]
    Length: 3, dtype: amount
    """

    # NumPy leaves operations with its arrays to this one.
    __array_priority__ = 1000

    def __init__(self, values: Any) -> None:
        if isinstance(values, pa.Array) and values.type == AMOUNT_TYPE:
            self._decimals = values
        else:
            self._decimals = arithmetic.from_values(values)

    # ---- What every extension array has

    @classmethod
    def _from_sequence(cls, scalars: Any, *, dtype: Any = None, copy: bool = False) -> AmountArray:
        values = getattr(scalars, "array", scalars)
        if isinstance(values, cls):
            return values.copy()
        if not hasattr(values, "__len__"):
            values = list(values)
        return cls(values)

    @classmethod
    def _from_sequence_of_strings(cls, strings: Any, *, dtype: Any, copy: bool = False) -> AmountArray:
        return cls._from_sequence(list(strings))

    @classmethod
    def _from_scalars(cls, scalars: Any, *, dtype: Any) -> AmountArray:
        if not all(isinstance(one, Amount) or pd.isna(one) for one in scalars):
            raise AmountError("These are not amounts only. Convert them with .astype('amount').")
        return cls._from_sequence(scalars)

    @classmethod
    def _from_factorized(cls, values: Any, original: AmountArray) -> AmountArray:
        return cls._from_sequence(values)

    @classmethod
    def _concat_same_type(cls, to_concat: Any) -> AmountArray:
        return cls(pa.concat_arrays([one._decimals for one in to_concat]))

    @property
    def dtype(self) -> AmountDtype:
        return AmountDtype()

    @property
    def nbytes(self) -> int:
        return int(self._decimals.nbytes)

    def __len__(self) -> int:
        return len(self._decimals)

    def isna(self) -> np.ndarray:
        return self._decimals.is_null().to_numpy(zero_copy_only=False)

    def copy(self) -> AmountArray:
        # Arrow arrays do not change, so they are shared.
        return AmountArray(self._decimals)

    def __getitem__(self, item: Any) -> Any:
        found = self._in_pandas()[item]
        if isinstance(found, ExtensionArray):
            part = AmountArray(combined(pa.array(found)))
            part._readonly = self._readonly and isinstance(item, slice)
            return part
        return np.nan if pd.isna(found) else Amount(found)

    def __iter__(self) -> Any:
        for value in self._decimals.to_pylist():
            yield np.nan if value is None else Amount(value)

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._readonly:
            raise ValueError("Cannot modify read-only array")
        if is_list_like(value):
            value = self._from_sequence(value)._in_pandas()
        else:
            value = arithmetic.to_decimal(value)
        changed = self._in_pandas()
        changed[key] = value
        self._decimals = combined(pa.array(changed))

    def take(self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None) -> AmountArray:
        taken = self._in_pandas().take(
            indices, allow_fill=allow_fill, fill_value=arithmetic.to_decimal(fill_value)
        )
        return AmountArray(combined(pa.array(taken)))

    def _in_pandas(self) -> Any:
        """Return pandas' own array of these decimals, which knows every kind of index."""
        return pd.arrays.ArrowExtensionArray(pa.chunked_array([self._decimals]))

    # ---- Out of amounts

    def to_arrow(self) -> pa.Array:
        """Return the amounts as ``decimal128(38, 18)``."""
        return self._decimals

    def __arrow_array__(self, type: pa.DataType | None = None) -> pa.Array:
        return self._decimals if type is None else self._decimals.cast(type)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("Amounts cannot become a NumPy array without a copy. Leave out copy=False.")
        return self.to_numpy(dtype)

    def to_numpy(self, dtype: Any = None, copy: bool = False, na_value: Any = no_default) -> np.ndarray:
        """Return floats, or for ``object`` the amounts themselves, which are Decimals."""
        dtype = np.dtype("float64" if dtype is None else dtype)
        if dtype.kind == "O":
            found = np.empty(len(self), object)
            found[:] = list(self)
        elif dtype.kind in "US":
            found = np.array(self._texts(), dtype)
        elif dtype.kind == "b":
            found = self._compare(0, "ne")
        elif dtype.kind in "iu" and not self._hasna:
            # Digits after the point are cut, as of floats.
            found = self._decimals.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False).astype(dtype)
        else:
            # By their texts, so that each is the float that Python reads from it.
            floats = self._decimals.cast(pa.string()).cast(pa.float64())
            found = floats.to_numpy(zero_copy_only=False).astype(dtype)
        if na_value is not no_default and self._hasna:
            found = found.copy()
            found[self.isna()] = na_value
        return found

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        dtype = pandas_dtype(dtype)
        if isinstance(dtype, AmountDtype):
            return self.copy() if copy else self
        if isinstance(dtype, pd.StringDtype):
            return pd.array(self._texts(), dtype=dtype)
        if isinstance(dtype, pd.ArrowDtype):
            if pa.types.is_string(dtype.pyarrow_dtype):
                return pd.array(self._texts(), dtype=dtype)
            return self._in_pandas().astype(dtype)
        if isinstance(dtype, ExtensionDtype) and dtype.kind in "fiu":
            return pd.array(self.to_numpy(), dtype=dtype)
        if isinstance(dtype, ExtensionDtype):
            return super().astype(dtype, copy)
        if dtype.kind in "iu" and self._hasna:
            raise ValueError("Missing amounts cannot become integers. Fill them first, with .fillna(0).")
        return self.to_numpy(dtype)

    def _texts(self) -> list[str | None]:
        return arithmetic.to_texts(self._decimals).to_pylist()

    def _formatter(self, boxed: bool = False) -> Callable[[Any], str]:
        return str

    # ---- Order and identity

    def _values_for_argsort(self) -> np.ndarray:
        """Return floats that sort as the amounts do, or ranks where two amounts would be one float."""
        floats = arithmetic.to_floats(self._decimals)
        order = pa.array(np.argsort(floats))
        in_order = self._decimals.take(order)
        lower = in_order.slice(0, max(len(self) - 1, 0))
        upper = in_order.slice(1)
        is_new = floats[order[1:]] != floats[order[:-1]]
        if (is_new | arithmetic.compare_arrays(lower, upper, "equal")).all():
            return floats
        return self._ranks()

    def _ranks(self) -> np.ndarray:
        ranks = pc.rank(self._decimals, tiebreaker="dense").to_numpy()
        return ranks.astype("int64")

    def factorize(self, use_na_sentinel: bool = True) -> tuple[np.ndarray, AmountArray]:
        codes, uniques = self._in_pandas().factorize(use_na_sentinel)
        return codes, AmountArray(combined(pa.array(uniques)))

    def unique(self) -> AmountArray:
        return AmountArray(self._decimals.unique())

    def duplicated(self, keep: Any = "first") -> np.ndarray:
        codes, _ = self.factorize(use_na_sentinel=False)
        return pd.Series(codes).duplicated(keep).to_numpy()

    def value_counts(self, dropna: bool = True) -> pd.Series:
        codes, uniques = self.factorize(use_na_sentinel=dropna)
        counts = np.bincount(codes[codes >= 0], minlength=len(uniques))
        return pd.Series(counts, index=pd.Index(uniques), name="count", dtype="int64")

    def _mode(self, dropna: bool = True) -> AmountArray:
        counts = self.value_counts(dropna)
        most = counts.index[counts == counts.max()]
        return most.sort_values().array

    def isin(self, values: Any) -> np.ndarray:
        known = []
        for value in values:
            try:
                known.append(arithmetic.to_decimal(value))
            except AmountError:
                # No amount equals what is not a valid one.
                continue
        return pc.is_in(self._decimals, pa.array(known, AMOUNT_TYPE)).to_numpy(zero_copy_only=False)

    # ---- Arithmetic

    def __neg__(self) -> AmountArray:
        return AmountArray(pc.negate(self._decimals))

    def __pos__(self) -> AmountArray:
        return self.copy()

    def __abs__(self) -> AmountArray:
        return AmountArray(pc.abs(self._decimals))

    def round(self, decimals: int = 0, *_: Any, **__: Any) -> AmountArray:
        return AmountArray(arithmetic.checked(pc.round(self._decimals, min(decimals, 18), "half_to_even")))

    def _compute(self, other: Any, name: str, is_reflected: bool) -> Any:
        """Compute exactly where both sides are exact and the result is, else with floats."""
        kind = _kind(other)
        if kind is None or isinstance(other, (pd.Series, pd.Index, pd.DataFrame)):
            return NotImplemented
        if name == "mul" and kind == "integer":
            integers = pa.array(other).cast(pa.decimal128(20, 0)) if is_list_like(other) else int(other)
            return AmountArray(arithmetic.multiply_by_integers(self._decimals, integers))
        is_exact = name in arithmetic.EXACT_OPERATIONS and kind != "float"
        if is_exact:
            compute = arithmetic.EXACT_OPERATIONS[name]
            ours = self._decimals
            theirs = self._broadcast(other)._decimals
        else:
            compute = getattr(operator, name)
            ours = arithmetic.to_floats(self._decimals)
            theirs = _floats(other)
        left, right = (theirs, ours) if is_reflected else (ours, theirs)
        with np.errstate(all="ignore"):
            found = compute(left, right)
        return AmountArray(found) if is_exact else found

    def _compare(self, other: Any, name: str) -> Any:
        """Compare with amounts, integers, Decimals and texts, and with floats by their shortest decimals."""
        if isinstance(other, (pd.Series, pd.Index, pd.DataFrame)):
            return NotImplemented
        kernel = _COMPARISONS[name]
        is_float_array = is_list_like(other) and _kind(other) == "float"
        if is_float_array and not isinstance(other, AmountArray):
            return arithmetic.compare_floats(self._decimals, _floats(other), kernel)
        try:
            if is_list_like(other):
                theirs = self._from_sequence(other)._decimals
                return arithmetic.compare_arrays(self._decimals, theirs, kernel)
            return arithmetic.compare(self._decimals, arithmetic.to_number(other), kernel)
        except AmountError:
            # What is no number differs from every amount, and comes neither before nor after one.
            if name in ("eq", "ne"):
                return np.full(len(self), name == "ne")
            raise TypeError(f"Invalid comparison between amounts and {type(other).__name__}") from None

    def _broadcast(self, other: Any) -> AmountArray:
        if is_list_like(other):
            return self._from_sequence(other)
        scalar = pa.scalar(arithmetic.to_decimal(other), AMOUNT_TYPE)
        return AmountArray(pa.repeat(scalar, len(self)))

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    # ---- Totals and groups

    def _reduce(self, name: str, *, skipna: bool = True, keepdims: bool = False, **options: Any) -> Any:
        found = self._reduced(name, skipna, **options)
        if not keepdims:
            return found
        if name in ("sum", "min", "max"):
            return AmountArray([found])
        return pd.array([found], dtype=np.dtype(type(found)))

    def _reduced(self, name: str, skipna: bool, min_count: int = 0, **options: Any) -> Any:
        known = self._decimals.drop_null()
        if name == "count":
            return len(known)
        if name in ("any", "all"):
            return getattr(AmountArray(known).to_numpy(bool), name)()
        if name not in ("sum", "min", "max"):
            floats = pd.Series(arithmetic.to_floats(self._decimals))
            return getattr(floats, name)(skipna=skipna, **options)
        is_unknown = self._hasna and not skipna
        least = min_count if name == "sum" else 1
        if is_unknown or len(known) < least:
            return np.nan
        if name == "sum":
            return Amount(arithmetic.total(known))
        return Amount(pc.min_max(known)[name].as_py())

    def sum(self, **options: Any) -> Any:
        return self._reduce("sum", **_without_axis(options))

    def min(self, **options: Any) -> Any:
        return self._reduce("min", **_without_axis(options))

    def max(self, **options: Any) -> Any:
        return self._reduce("max", **_without_axis(options))

    def mean(self, **options: Any) -> Any:
        return self._reduce("mean", **_without_axis(options))

    def _accumulate(self, name: str, *, skipna: bool = True, **options: Any) -> Any:
        # All rows are one group.
        ids = np.zeros(len(self), np.intp)
        return self._groupby_op(
            how=name, has_dropped_na=False, min_count=-1, ngroups=1, ids=ids, skipna=skipna
        )

    def _groupby_op(self, *, how: str, **options: Any) -> Any:
        if how in ("first", "last"):
            return super()._groupby_op(how=how, **options)
        if how in ("sum", "min", "max"):
            roomy = pd.arrays.ArrowExtensionArray(pa.chunked_array([arithmetic.roomy(self._decimals)]))
            found = roomy._groupby_op(how=how, **options)
            return AmountArray(arithmetic.checked(combined(pa.array(found)), "sum of a group"))
        if how == "cumsum":
            return self._cumulative_sums(options)
        if how in ("cummin", "cummax", "rank"):
            codes, order = self._codes()
            found = self._masked(codes)._groupby_op(how=how, **options)
            if how == "rank":
                return _as_numpy(found)
            return AmountArray(order).take(found.to_numpy("int64", na_value=-1), allow_fill=True)
        found = self._masked(arithmetic.to_floats(self._decimals))._groupby_op(how=how, **options)
        return found if how in ("any", "all") else _as_numpy(found)

    def _cumulative_sums(self, options: dict[str, Any]) -> AmountArray:
        sums = []
        for word in arithmetic.words(self._decimals):
            sums.append(self._masked(word)._groupby_op(how="cumsum", **options))
        words = [one.to_numpy("int64", na_value=0) for one in sums]
        return AmountArray(arithmetic.from_words(words, sums[0].isna()))

    def _groupby_quantile(self, **options: Any) -> Any:
        floats = self._masked(arithmetic.to_floats(self._decimals))
        return _as_numpy(floats._groupby_quantile(**options))

    def _quantile(self, qs: np.ndarray, interpolation: Any) -> Any:
        return pd.Series(arithmetic.to_floats(self._decimals)).quantile(qs, interpolation).to_numpy()

    def interpolate(self, *, method: Any, index: Any, copy: bool, axis: int, **options: Any) -> Any:
        floats = pd.Series(arithmetic.to_floats(self._decimals), index=index)
        return floats.interpolate(method, **options).array

    def _codes(self) -> tuple[np.ndarray, pa.Array]:
        """Return the rank of each amount from 0, and one amount for each rank."""
        codes = self._ranks() - 1
        positions = np.empty(int(codes.max(initial=-1)) + 1, "int64")
        positions[codes] = np.arange(len(self))
        return codes, self._decimals.take(pa.array(positions))

    def _masked(self, values: np.ndarray) -> Any:
        """Return numbers that stand for the amounts as pandas' own type, missing where these are."""
        is_missing = self.isna()
        kinds = {"f": pd.arrays.FloatingArray, "i": pd.arrays.IntegerArray}
        return kinds[values.dtype.kind](np.where(is_missing, 0, values), is_missing)


def _define(name: str, is_reflected: bool = False) -> None:
    def method(self: AmountArray, other: Any) -> Any:
        if name in _COMPARISONS:
            return self._compare(other, name)
        return self._compute(other, name, is_reflected)

    prefix = "r" if is_reflected else ""
    setattr(AmountArray, f"__{prefix}{name}__", method)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    _define(_name)
    _define(_name, is_reflected=True)
for _name in _COMPARISONS:
    _define(_name)


def _kind(other: Any) -> str | None:
    """Return what a value or an array of values is: integer, amount or float; None if it is no number."""
    if isinstance(other, AmountArray):
        return "amount"
    values = other if is_list_like(other) else [other]
    return _KINDS.get(infer_dtype(values, skipna=True))


def _floats(values: Any) -> Any:
    if isinstance(values, AmountArray):
        return arithmetic.to_floats(values._decimals)
    if is_list_like(values):
        return pd.array(values, dtype="float64").to_numpy()
    return np.nan if pd.isna(values) else float(values)


def _as_numpy(found: Any) -> np.ndarray:
    if isinstance(found, np.ndarray):
        return found
    return found.to_numpy("float64", na_value=np.nan)


def _without_axis(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("axis", "dtype", "out")}
