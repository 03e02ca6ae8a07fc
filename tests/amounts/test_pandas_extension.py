"""pandas' own tests of extension types, on amounts."""

from decimal import Decimal
from itertools import accumulate

import numpy as np
import pandas as pd
import pytest
from matplotlib import units
from pandas import _testing as tm
from pandas.tests.extension import base
from pandas.tests.extension.conftest import *  # noqa: F403 - the fixtures that the tests ask for

from loopring_lab.amounts.dtype import AmountArray, AmountDtype
from loopring_lab.amounts.scalar import Amount

EXACT_REDUCTIONS = {"sum": sum, "min": min, "max": max}


def amounts(values):
    return AmountArray(values)


@pytest.fixture(autouse=True)
def known_to_matplotlib(monkeypatch):
    """The tests of plots look for a scalar's own class; matplotlib itself takes its base class, Decimal."""
    monkeypatch.setitem(units.registry, Amount, units.DecimalConverter())


@pytest.fixture
def dtype():
    return AmountDtype()


@pytest.fixture
def data():
    return amounts([Decimal(i) / 4 for i in range(1, 11)])


@pytest.fixture
def data_for_twos():
    return amounts([2] * 10)


@pytest.fixture
def data_missing():
    return amounts([None, Decimal(1)])


@pytest.fixture
def data_for_sorting():
    # Two of these are one float.
    return amounts([Decimal("1.000000000000000001"), 2, 1])


@pytest.fixture
def data_missing_for_sorting():
    return amounts([1, None, 0])


@pytest.fixture
def data_for_grouping():
    return amounts([1, 1, None, None, 0, 0, 1, 2])


@pytest.fixture
def na_cmp():
    return lambda left, right: pd.isna(left) and pd.isna(right)


NO_VIEWS = pytest.mark.skip(
    reason="Arrow arrays never change, so a view keeps its values when its origin gets new ones"
)


class TestAmount(base.ExtensionTests):
    test_view = NO_VIEWS(base.ExtensionTests.test_view)
    test_transpose = NO_VIEWS(base.ExtensionTests.test_transpose)
    test_setitem_preserves_views = NO_VIEWS(
        base.ExtensionTests.test_setitem_preserves_views
    )

    def test_to_numpy(self, data):
        # By default the values themselves, as pandas itself takes them; floats where they are asked for.
        assert pd.Series(data).to_numpy().tolist() == data.tolist()
        tm.assert_equal(data.to_numpy(float), np.asarray(data))

    series_scalar_exc = None
    frame_scalar_exc = None
    series_array_exc = None
    divmod_exc = None

    def _get_expected_exception(self, op_name, obj, other):
        return TypeError if isinstance(other, str) else None

    def _supports_accumulation(self, ser, op_name):
        return True

    def _supports_reduction(self, ser, op_name):
        return True

    def check_accumulate(self, ser, op_name, skipna):
        found = getattr(ser, op_name)(skipna=skipna)
        if op_name != "cumsum":
            expected = getattr(ser.astype(float), op_name)(skipna=skipna)
            tm.assert_series_equal(found, expected)
            return
        known = [Decimal(one) for one in ser.dropna()]
        sums = iter(accumulate(known))
        expected = [None if pd.isna(one) else next(sums) for one in ser]
        if not skipna and ser.hasnans:
            first = int(np.argmax(ser.isna()))
            expected[first:] = [None] * (len(ser) - first)
        assert [None if pd.isna(one) else Decimal(one) for one in found] == expected

    def check_reduce(self, ser, op_name, skipna):
        if op_name == "count":
            super().check_reduce(ser, op_name, skipna)
            return
        found = getattr(ser, op_name)(skipna=skipna)
        if op_name in EXACT_REDUCTIONS and (skipna or not ser.hasnans):
            known = [Decimal(one) for one in ser.dropna()]
            assert found == EXACT_REDUCTIONS[op_name](known)
            return
        expected = getattr(ser.astype(float), op_name)(skipna=skipna)
        tm.assert_almost_equal(float(found), float(expected))

    def _get_expected_reduction_dtype(self, arr, op_name, skipna):
        if op_name == "count":
            return np.dtype("int64")
        return AmountDtype() if op_name in EXACT_REDUCTIONS else np.dtype("float64")
