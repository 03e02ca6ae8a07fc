"""`AmountDtype` and `AmountArray`: columns of exact amounts that pandas takes for numbers."""

from __future__ import annotations

import inspect
import operator
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pandas.api.extensions import (  # type: ignore[attr-defined]
    ExtensionArray,
    ExtensionDtype,
    ExtensionScalarOpsMixin,
    no_default,
    register_extension_dtype,
)
from pandas.api.types import infer_dtype, is_list_like, pandas_dtype, union_categoricals

from loopring_lab.amounts import arithmetic
from loopring_lab.amounts.arithmetic import AMOUNT_TYPE
from loopring_lab.amounts.scalar import Amount
from loopring_lab.amounts.scaling import combined, rescale
from loopring_lab.errors import AmountError

# The hooks of pandas (tried with 3.1) that are not in its documented interface of extension types:
# `_is_numeric` and `_get_common_dtype` of types; of arrays `_readonly`, `_from_scalars`, `_reduce`, `_accumulate`,
# `_groupby_op`, `_groupby_quantile`, `_quantile`, `_mode`, `_values_for_argsort` (also used by ranks),
# `_values_for_json`, and `_create_arithmetic_method` and `_create_comparison_method` of `ExtensionScalarOpsMixin`.
# From pandas' own arrays, `_groupby_op` and `_groupby_quantile` are called.

# The kinds of values in arithmetic, by pandas' names of what an array holds; values of other names are no numbers.
_KINDS = {
    "integer": "integer",
    "boolean": "integer",
    "decimal": "amount",
    "mixed-integer": "amount",
    "empty": "amount",
    "floating": "float",
    "mixed-integer-float": "float",
}
_COMPARISONS = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
# Where the code of NumPy, pandas and this package is: a warning points to the first caller elsewhere.
_LIBRARIES = (
    str(Path(np.__file__).parent),
    str(Path(pd.__file__).parent),
    str(Path(__file__).parents[1]),
)


class AmountType(pa.ExtensionType):  # type: ignore[misc]
    """Marks decimals as amounts in Arrow's tables, so that Parquet and Feather files give amounts back.

    pyarrow keeps no pandas type of plain decimals. DuckDB and Spark read the decimals, without the mark.
    """

    def __init__(self) -> None:
        super().__init__(AMOUNT_TYPE, "loopring_lab.amount")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(
        cls, storage_type: Any, serialized: Any
    ) -> AmountType:
        # Arrow takes the bytes of a column for those of the type returned, whatever a file says that they are.
        if storage_type != AMOUNT_TYPE:
            raise AmountError(
                f"A column is marked as amounts, but holds {storage_type}, not {AMOUNT_TYPE}. Get the file again."
            )
        return cls()

    def to_pandas_dtype(self) -> AmountDtype:
        return AmountDtype()


# A notebook that loads this module again has registered the type before.
with suppress(pa.ArrowKeyError):
    pa.register_extension_type(AmountType())


@register_extension_dtype
class AmountDtype(ExtensionDtype):
    """Exact amounts with 18 decimals that behave like numbers.

    Sums, differences, extremes and comparisons are exact; quotients, means and every other function of numbers
    are float64. An amount has at most 20 digits before the point; what does not fit raises an `AmountError`.

    Examples
    --------
    >>> import pandas as pd
    >>> fees = pd.Series(["0.1", "0.2"], dtype="amount")
    >>> fees.sum(), fees.mean()
    (Amount('0.3'), np.float64(0.15000000000000002))
    """

    name = "amount"
    type = Amount
    # This is the kind of floats, so that code that looks for numbers, such as writers of SQL, finds some.
    kind = "f"
    na_value = np.nan
    itemsize = 16
    # NumPy makes floats of this type, for example where seaborn labels sizes. They are in the byte order that no column
    # has, so that no comparison of types takes amounts for floats.
    __numpy_dtype__ = np.dtype("float64").newbyteorder()
    _is_numeric = True

    def __repr__(self) -> str:
        return self.name

    @classmethod
    def construct_array_type(cls) -> Any:
        """Return the class of arrays of this type, which pandas asks for.

        Returns
        -------
        type
            `AmountArray`.

        Examples
        --------
        >>> lab.amounts.AmountDtype.construct_array_type().__name__
        'AmountArray'
        """
        return AmountArray

    def __from_arrow__(
        self,
        array: pa.Array | pa.ChunkedArray,
    ) -> AmountArray:
        return AmountArray(array)

    def _get_common_dtype(
        self,
        dtypes: list[Any],
    ) -> Any:
        others = [dtype for dtype in dtypes if not isinstance(dtype, AmountDtype)]
        kinds = {dtype.kind for dtype in others}
        if not kinds <= {"i", "u", "f"}:
            return None
        if "f" not in kinds:
            return self
        # Arrow's integers are asked first, and ask here in NumPy's name: they must not promise Arrow's floats,
        # which amounts are not converted to. With this answer pandas asks here next.
        if any(isinstance(dtype, np.dtype) and dtype.kind != "f" for dtype in others):
            return None
        return np.dtype("float64")


class AmountArray(ExtensionScalarOpsMixin, ExtensionArray):  # type: ignore[misc]
    """An array of exact amounts, held as Arrow decimals of 16 bytes.

    Parameters
    ----------
    values : pyarrow.Array, pyarrow.ChunkedArray or sequence, shape (n,)
        Decimals, integers, texts, or floats by their shortest decimals, cut to 18. None, NA and nan are missing.

    Raises
    ------
    AmountError
        A value has more than 20 digits before the point, or more than 18 after it, or is no number.

    Examples
    --------
    >>> lab.amounts.AmountArray(["1.50", 2, None])
    <AmountArray>
    [Amount('1.5'), Amount('2'), nan]
    Length: 3, dtype: amount
    """

    # The token of each amount, which only frames of trades know. Selections and copies keep it; a result of arithmetic
    # has none, nor has an array that was written to.
    tokens: pd.Categorical | None = None
    _is_warned = False
    # An array of another type on the left would compute with floats, and Arrow's find every amount unequal. All have
    # the priority 1000, and leave the operation to one that has more; an index has 2000.
    __pandas_priority__ = 1500

    def __init__(
        self,
        values: Any,
    ) -> None:
        self._decimals = arithmetic.from_values(values)

    # ---- Members that every extension array has

    @classmethod
    def _from_sequence(
        cls,
        scalars: Any,
        **_: Any,
    ) -> AmountArray:
        return cls(scalars if hasattr(scalars, "__len__") else list(scalars))

    # pandas calls this when it reads a CSV file.
    _from_sequence_of_strings = _from_sequence

    @classmethod
    def _from_scalars(
        cls,
        scalars: Any,
        **_: Any,
    ) -> AmountArray:
        if infer_dtype(scalars, skipna=True) not in ("decimal", "empty"):
            raise AmountError(
                "These are no amounts. Convert them with .astype('amount')."
            )
        return cls(scalars)

    @classmethod
    def _concat_same_type(
        cls,
        to_concat: Any,
    ) -> AmountArray:
        joined = cls(pa.concat_arrays([one._decimals for one in to_concat]))
        tokens = [one.tokens for one in to_concat]
        if all(one is not None for one in tokens):
            joined.tokens = union_categoricals(tokens)
        return joined

    @property
    def dtype(self) -> AmountDtype:
        return AmountDtype()

    @property
    def nbytes(self) -> Any:
        return self._decimals.nbytes

    def __len__(self) -> int:
        return len(self._decimals)

    def isna(self) -> Any:
        return self._decimals.is_null().to_numpy(zero_copy_only=False)

    def copy(self) -> AmountArray:
        # Arrow arrays never change, so they are shared.
        copied = AmountArray(self._decimals)
        copied.tokens = self.tokens
        return copied

    def __getitem__(
        self,
        item: Any,
    ) -> Any:
        found = self._in_pandas()[item]
        if not isinstance(found, ExtensionArray):
            return np.nan if pd.isna(found) else Amount(found)
        part = AmountArray(found)
        part._readonly = self._readonly and isinstance(item, slice)
        if self.tokens is not None:
            part.tokens = self.tokens[item]
        return part

    def __iter__(self) -> Iterator[Any]:
        for value in self._decimals.to_pylist():
            yield np.nan if value is None else Amount(value)

    def __setitem__(
        self,
        key: Any,
        value: Any,
    ) -> None:
        if self._readonly:
            raise ValueError("Cannot modify read-only array")
        changed = self._in_pandas()
        changed[key] = (
            self._from_sequence(value)._in_pandas()
            if is_list_like(value)
            else arithmetic.to_decimal(value)
        )
        self._decimals = combined(pa.array(changed))
        self.tokens = None

    def take(
        self, indices: Any, *, allow_fill: bool = False, fill_value: Any = None
    ) -> AmountArray:
        fill = arithmetic.to_decimal(fill_value)
        taken = AmountArray(
            self._in_pandas().take(indices, allow_fill=allow_fill, fill_value=fill)
        )
        if self.tokens is not None:
            taken.tokens = self.tokens.take(indices, allow_fill=allow_fill)
        return taken

    def _in_pandas(self) -> Any:
        """Return pandas' own array of these decimals, which takes every kind of index."""
        return pd.arrays.ArrowExtensionArray(pa.chunked_array([self._decimals]))

    # ---- Out of amounts

    def to_arrow(self) -> pa.Array:
        """Return the amounts as ``decimal128(38, 18)``."""
        return self._decimals

    def __arrow_array__(
        self,
        type: pa.DataType | None = None,  # noqa: A002 - Arrow's name
    ) -> pa.Array:
        if type is None:
            return pa.ExtensionArray.from_storage(AmountType(), self._decimals)
        if pa.types.is_string(type) or pa.types.is_large_string(type):
            return arithmetic.to_texts(self._decimals).cast(type)
        try:
            if pa.types.is_decimal(type):
                return rescale(self._decimals, type)
            return self._decimals.cast(type)
        except pa.ArrowException as error:
            raise AmountError(
                f"These amounts do not become {type}, as digits would be lost or it holds no such numbers ({error}). "
                "Round them first, or use a wider type."
            ) from None

    def __array__(
        self,
        dtype: Any = None,
        copy: bool | None = None,
    ) -> Any:
        if copy is False:
            raise ValueError(
                "Amounts become a NumPy array only by a copy. Leave out copy=False."
            )
        return self.to_numpy("float64" if dtype is None else dtype)

    def to_numpy(
        self, dtype: Any = None, copy: bool = False, na_value: Any = no_default
    ) -> Any:
        """Return the amounts, which are Decimals, or numbers of the type that is asked for.

        pandas turns, stacks and replaces frames by way of these values: floats would lose digits.
        """
        dtype = np.dtype(dtype or object)
        if dtype.kind in "OUS":
            found = np.fromiter(self, object, len(self))
        elif dtype.kind in "iu" and not self._hasna:
            found = self._integers(dtype)
        else:
            # By way of its text, each is the float that its digits stand for.
            floats = self._decimals.cast(pa.string()).cast(pa.float64())
            found = floats.to_numpy(zero_copy_only=False, writable=True)
        if na_value is not no_default:
            found[self.isna()] = na_value
        return found.astype(dtype)

    def _values_for_json(self) -> Any:
        """Return texts, which pandas writes as they are; it makes floats of Decimals."""
        return self.astype(str).to_numpy(object, na_value=None)

    def _integers(self, dtype: np.dtype[Any]) -> Any:
        """Return integers of a type that holds them all; digits after the point are cut, as of floats."""
        # Arrow knows the byte order of this machine alone.
        arrow_type = pa.from_numpy_dtype(dtype.newbyteorder("="))
        try:
            whole = rescale(self._decimals, pa.decimal128(20, 0), truncate=True)
            integers = whole.cast(arrow_type)
        except pa.ArrowInvalid as error:
            raise AmountError(
                f"These amounts do not fit {dtype} ({error}). "
                "Use .astype(float), or .astype(object) for Decimals, which hold every amount."
            ) from None
        return integers.to_numpy(zero_copy_only=False, writable=True)

    def astype(
        self,
        dtype: Any,
        copy: bool = True,
    ) -> Any:
        dtype = pandas_dtype(dtype)
        arrow_type = getattr(dtype, "pyarrow_dtype", None)
        if isinstance(dtype, pd.StringDtype):
            texts = arithmetic.to_texts(self._decimals)
            return pd.array(texts.to_pylist(), dtype=dtype)
        if arrow_type is not None:
            return pd.arrays.ArrowExtensionArray(self.__arrow_array__(arrow_type))
        if isinstance(dtype, np.dtype) and dtype.kind in "SU":
            return self.to_numpy(dtype)
        if dtype.kind in "mM":
            raise AmountError(f"Amounts are no times: they do not become {dtype}.")
        if dtype.kind in "iu" and self._hasna:
            raise ValueError(
                "Missing amounts cannot become integers. Fill them first, with .fillna(0)."
            )
        return super().astype(dtype, copy)

    # ---- Order and identity

    def _values_for_argsort(self) -> Any:
        """Return floats that sort as the amounts do, or ranks where two amounts are one float."""
        floats = self._floats()
        in_order = self[np.argsort(floats)]
        differ = in_order[1:] != in_order[:-1]
        are_one_float = np.diff(in_order._floats()) == 0
        if not (differ & are_one_float).any():
            return floats
        return pc.rank(self._decimals, tiebreaker="dense").to_numpy().astype("int64")

    # pandas' own methods of the same names compare floats, which amounts that differ may share.
    def factorize(
        self,
        use_na_sentinel: bool = True,
    ) -> tuple[np.ndarray, AmountArray]:
        codes, uniques = self._in_pandas().factorize(use_na_sentinel)
        return codes, AmountArray(uniques)

    def unique(self) -> AmountArray:
        return AmountArray(self._decimals.unique())

    def duplicated(
        self,
        keep: Any = "first",
    ) -> Any:
        codes = self.factorize(use_na_sentinel=False)[0]
        return pd.Series(codes).duplicated(keep).to_numpy()

    def value_counts(
        self,
        dropna: bool = True,
    ) -> pd.Series:
        codes, uniques = self.factorize(use_na_sentinel=dropna)
        counts = np.bincount(codes[codes >= 0])
        return pd.Series(counts, pd.Index(uniques), name="count")

    def _mode(
        self,
        dropna: bool = True,
    ) -> AmountArray:
        counts = self.value_counts(dropna)
        return counts.index[counts == counts.max()].sort_values().array  # type: ignore[no-any-return]

    def isin(
        self,
        values: Any,
    ) -> Any:
        known = []
        for value in values:
            try:
                amount = arithmetic.to_decimal(value)
            except AmountError:
                # No amount equals it.
                continue
            # A float equals no amount either if its digits were cut to make one.
            if amount == arithmetic.to_number(value):
                known.append(amount)
        found = pc.is_in(self._decimals, pa.array(known, AMOUNT_TYPE))
        return found.to_numpy(zero_copy_only=False)

    # ---- Arithmetic

    def __neg__(self) -> AmountArray:
        return AmountArray(pc.negate(self._decimals))

    def __pos__(self) -> AmountArray:
        return self.copy()

    def __abs__(self) -> AmountArray:
        return AmountArray(pc.abs(self._decimals))

    def round(
        self,
        decimals: int = 0,
    ) -> AmountArray:
        """Round exactly, halves to the even digit."""
        return AmountArray(arithmetic.rounded(self._decimals, decimals))

    @classmethod
    def _create_arithmetic_method(
        cls,
        op: Any,
    ) -> Any:
        return lambda self, other: self._compute(op, _plain(other))

    @classmethod
    def _create_comparison_method(
        cls,
        op: Any,
    ) -> Any:
        return lambda self, other: self._compare(op.__name__, _plain(other))

    def _compute(
        self,
        operation: Any,
        other: Any,
    ) -> Any:
        """Compute exactly where both sides are exact and the result is, else with floats."""
        if isinstance(other, pd.arrays.TimedeltaArray):
            # A length of time is weighed by floats.
            return operation(self._floats(), other)
        kind = _kind(other)
        if kind is None:
            return NotImplemented
        name = operation.__name__
        is_reflected = name.startswith("r")
        name = name.removeprefix("r")
        if name == "divmod":
            left, right = (other, self) if is_reflected else (self, other)
            return left // right, left % right
        if name == "mul" and kind == "integer":
            dtype = getattr(other, "dtype", arithmetic.OBJECTS)
            if is_list_like(other) and dtype != arithmetic.OBJECTS:
                # Truth values times one are integers.
                factors = pa.array(1 * other)
            else:
                # Python's integers may have any number of digits.
                exact = self._from_sequence(_listed(other))
                factors = rescale(exact.to_arrow(), pa.decimal128(20, 0))
            product = arithmetic.multiply_by_integers(self._decimals, factors)
            return AmountArray(product)
        if name in arithmetic.OPERATIONS and kind != "float":
            theirs = self._from_sequence(_listed(other))
            if not is_list_like(other):
                theirs = theirs.repeat(len(self))
            left, right = (theirs, self) if is_reflected else (self, theirs)
            return AmountArray(
                arithmetic.OPERATIONS[name](left._decimals, right._decimals)
            )
        with np.errstate(all="ignore"):
            return operation(self._floats(), _floats(other))

    def _compare(
        self,
        name: str,
        other: Any,
    ) -> Any:
        """Compare with amounts, integers, Decimals and texts, and with floats by their shortest decimals."""
        if isinstance(other, (pd.Series, pd.Index, pd.DataFrame)):
            return NotImplemented
        kernel = _COMPARISONS[name]
        if is_list_like(other) and _kind(other) == "float":
            return arithmetic.compare_floats(self._decimals, _floats(other), kernel)
        try:
            if not is_list_like(other):
                number = arithmetic.to_number(other)
                return arithmetic.compare(self._decimals, number, kernel)
            with suppress(AmountError):
                theirs = self._from_sequence(other)._decimals
                return arithmetic.compare_arrays(self._decimals, theirs, kernel)
            return self._compare_each(name, other)
        except AmountError:
            # A value that is no number differs from every amount, and comes neither before nor after one.
            if name in ("eq", "ne"):
                return np.full(len(self), name == "ne")
        raise TypeError(
            f"Invalid comparison between amounts and {type(other).__name__}"
        )

    def _compare_each(
        self,
        name: str,
        others: Any,
    ) -> Any:
        """Compare one by one, where not all others are amounts: one that does not fit has no say in the rest."""
        compare = getattr(operator, name)
        found = []
        for amount, other in zip(self._decimals.to_pylist(), others, strict=True):
            number = None
            try:
                number = arithmetic.to_number(other)
            except AmountError:
                # A value that is no number differs, as a missing one does, and has no order.
                if name not in ("eq", "ne"):
                    raise
            is_known = amount is not None and number is not None
            found.append(compare(amount, number) if is_known else name == "ne")
        return np.array(found, bool)

    def _floats(self) -> Any:
        return arithmetic.to_floats(self._decimals)

    # ---- Totals and groups

    def _reduce(
        self, name: str, *, skipna: bool = True, keepdims: bool = False, **options: Any
    ) -> Any:
        if name == "count":
            return self.count()
        if name in ("sum", "min", "max"):
            found = self._exact_reduction(name, skipna, **options)
            dtype: Any = self.dtype
        elif name in ("argmin", "argmax"):
            found = getattr(super(), name)(skipna)
            dtype = np.dtype("int64")
        else:
            found = getattr(pd.Series(self._floats()), name)(skipna=skipna, **options)
            dtype = np.dtype(type(found))
        return pd.array([found], dtype=dtype) if keepdims else found

    def _exact_reduction(
        self, name: str, skipna: bool, min_count: int = 0, **_: Any
    ) -> Any:
        least = min_count if name == "sum" else 1
        if len(self) - self._decimals.null_count < least or (
            self._hasna and not skipna
        ):
            return np.nan
        if name == "sum":
            self._warn_of_tokens(np.zeros(len(self), np.intp))
            return Amount(arithmetic.total(self._decimals))
        return Amount(pc.min_max(self._decimals)[name].as_py())

    def _accumulate(
        self,
        name: str,
        *,
        skipna: bool = True,
        **_: Any,
    ) -> Any:
        if name == "cumsum":
            is_missing = self.isna()
            if not skipna:
                is_missing = np.logical_or.accumulate(is_missing)
            return AmountArray(
                arithmetic.running_sums(self._decimals, np.cumsum, is_missing)
            )
        # All rows are reduced as one group.
        ids = np.zeros(len(self), np.intp)
        return self._groupby_op(
            how=name,
            has_dropped_na=False,
            min_count=-1,
            ngroups=1,
            ids=ids,
            skipna=skipna,
        )

    def _groupby_op(
        self,
        *,
        how: str,
        **options: Any,
    ) -> Any:
        if how in ("first", "last"):
            return super()._groupby_op(how=how, **options)
        if how == "sum":
            self._warn_of_tokens(options["ids"])
        if how in ("sum", "min", "max"):
            roomy = pa.chunked_array([arithmetic.roomy(self._decimals)])
            groups: Any = pd.arrays.ArrowExtensionArray(roomy)
            return AmountArray(groups._groupby_op(how=how, **options))
        if how == "cumsum":

            def add(halves: np.ndarray) -> Any:
                masked: Any = pd.arrays.IntegerArray(halves, self.isna())
                return masked._groupby_op(how=how, **options)

            is_missing = add(np.zeros(len(self), "int64")).isna()
            return AmountArray(
                arithmetic.running_sums(
                    self._decimals,
                    lambda halves: add(halves).to_numpy(halves.dtype, na_value=0),
                    is_missing,
                )
            )
        is_order = how in ("rank", "idxmin", "idxmax")
        numbers = self._values_for_argsort() if is_order else self._floats()
        found = self._masked(numbers)._groupby_op(how=how, **options)
        return found if how in ("any", "all") else np.asarray(found, "float64")

    def _warn_of_tokens(self, groups: np.ndarray) -> None:
        """Warn, once a session, where the amounts to add up in a group are known to be of several tokens."""
        if self.tokens is None or AmountArray._is_warned:
            return
        codes = self.tokens.codes
        if (codes == codes[:1]).all():
            return
        is_known = (codes >= 0) & ~self.isna() & (groups >= 0)
        codes = codes[is_known]
        added_up = groups[is_known]
        # A group of one token has that of any of its amounts.
        token_of = np.zeros(groups.max() + 1, codes.dtype)
        token_of[added_up] = codes
        if (token_of[added_up] == codes).all():
            return
        AmountArray._is_warned = True
        frame = inspect.currentframe()
        level = 1
        while frame and frame.f_code.co_filename.startswith(_LIBRARIES):
            frame = frame.f_back
            level += 1
        count = len(np.unique(codes))
        warnings.warn(
            f"This sum adds up amounts of {count} tokens, so it has no unit. Add up each token by itself: "
            "lab.amounts.total(trades, 'fee'), or group by the column of the token. (Said once in a session.)",
            stacklevel=level,
        )

    def _groupby_quantile(
        self,
        **options: Any,
    ) -> Any:
        found = self._masked(self._floats())._groupby_quantile(**options)
        return np.asarray(found, "float64")

    def _quantile(
        self,
        qs: np.ndarray,
        interpolation: Any,
    ) -> Any:
        return pd.Series(self._floats()).quantile(qs, interpolation).to_numpy()

    def interpolate(
        self,
        *,
        index: Any,
        copy: bool,
        axis: int,
        **options: Any,
    ) -> Any:
        """Fill missing amounts with floats between their neighbours."""
        found = pd.Series(self._floats(), index).interpolate(**options)
        # pandas puts the result where the amounts were, where only its arrays of extension types work.
        return found.astype("Float64").array

    def _masked(
        self,
        numbers: np.ndarray,
    ) -> Any:
        """Return numbers that stand for the amounts, missing where these are, in pandas' own type."""
        found = pd.array(numbers)
        found[self.isna()] = pd.NA
        return found


_REDUCTIONS = (
    "sum",
    "min",
    "max",
    "mean",
    "median",
    "prod",
    "std",
    "var",
    "sem",
    "skew",
    "kurt",
    "any",
    "all",
)
for _name in _REDUCTIONS:
    setattr(AmountArray, _name, partialmethod(AmountArray._reduce, _name))
AmountArray._add_arithmetic_ops()
AmountArray._add_comparison_ops()


def _kind(other: Any) -> str | None:
    """Return what a value or an array is for arithmetic: "integer", "amount", "float", or None for no number."""
    if isinstance(other, (pd.Series, pd.Index, pd.DataFrame)):
        return None
    if isinstance(other, AmountArray):
        return "amount"
    return _KINDS.get(infer_dtype(_listed(other), skipna=True))


def _plain(other: Any) -> Any:
    """Return an array of values for one of categories, such as `side.map({"BUY": 1, "SELL": -1})`, or a sparse one."""
    if isinstance(other, (pd.Categorical, pd.arrays.SparseArray)):
        return other.astype(object)
    return other


def _listed(other: Any) -> Any:
    return other if is_list_like(other) else [other]


def _floats(other: Any) -> Any:
    if _kind(other) == "amount":
        return AmountArray(_listed(other))._floats()
    return np.asarray(other, "float64")


def multiply(
    size: pd.Series,
    price: Any,
) -> pd.Series:
    """Multiply amounts exactly, and cut the products to 18 decimals, as the exchange does.

    Parameters
    ----------
    size : pandas.Series of amount, shape (n,)
        Amounts.
    price : pandas.Series of amount, shape (n,), or Decimal or int
        What they are multiplied by; a series is aligned by its index.

    Returns
    -------
    pandas.Series of amount, shape (n,)
        The products, with the index of `size`.

    Raises
    ------
    AmountError
        A product has more than 20 digits before the point, or `size` is no series.

    Examples
    --------
    >>> import pandas as pd
    >>> sizes = pd.Series(["1.5", "2"], dtype="amount")
    >>> lab.amounts.multiply(sizes, lab.amounts.Amount("0.1")).tolist()
    [Amount('0.15'), Amount('0.2')]
    """
    if not isinstance(size, pd.Series):
        raise AmountError(
            f"multiply: expected a pandas Series of amounts first, got {type(size).__name__}. A single amount becomes "
            "one with pandas.Series([amount], dtype='amount')."
        )
    sizes = AmountArray(size)
    prices = AmountArray(pd.Series(price, size.index))
    product = arithmetic.multiply(sizes.to_arrow(), prices.to_arrow())
    return pd.Series(AmountArray(product), size.index)
