from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.wire_rows import whole

from loopring_lab.amounts import (
    AMOUNT,
    LIMIT,
    Amount,
    multiply,
    to_float,
    to_smallest,
    to_units,
    total,
)
from loopring_lab.errors import AmountError, LabError

WIDE = pd.ArrowDtype(pa.decimal256(76, 30))
decimals_of_tokens = st.integers(0, 30)


@given(
    st.lists(st.tuples(st.integers(-(10**44), 10**44), decimals_of_tokens), min_size=1)
)
def test_units_are_the_integers_divided_by_a_power_of_ten_and_come_back(pairs):
    numbers, decimals = map(list, zip(*pairs, strict=True))
    units = to_units(numbers, decimals, dtype=WIDE)
    assert [
        whole(unit, places) for unit, places in zip(units, decimals, strict=True)
    ] == numbers
    assert to_smallest(units, decimals).tolist() == numbers


@given(st.integers(0, 10**60), decimals_of_tokens)
def test_a_value_is_held_exactly_or_refused(number, decimals):
    fits = number % 10 ** max(0, decimals - 18) == 0 and number < 10 ** (20 + decimals)
    if fits:
        assert whole(to_units([str(number)], decimals)[0], decimals) == number
    else:
        with pytest.raises(
            AmountError,
            match=r"TKN.*does not fit decimal128\(38, 18\): at most 20 digits",
        ):
            to_units([str(number)], decimals, token="TKN")


NO_WHOLE_NUMBERS = [
    "1.5",
    "",
    "0x1",
    "1_0",
    "٣",
    1.0,
    True,
    "ten",
]


@pytest.mark.parametrize(
    ("values", "decimals", "said"),
    [
        *(
            (["1", no], 18, "LRC, value 1: .*not a whole number of smallest units")
            for no in NO_WHOLE_NUMBERS
        ),
        ([10**76], 30, "at most 76 digits"),
        ([1], -1, "decimals -1 are outside 0 to 30"),
        ([1], 31, "decimals 31 are outside 0 to 30"),
        (["1", "2"], "x", "decimals='x': expected a whole number from 0 to 30"),
        ([1, 2], [18, None], r"decimals=\[18, None\]: expected"),
        ([1, 2], [6, 6, 6], "or one for each of 2 values. Give those of the token"),
        ([1], 2**70, "decimals=1180591620717411303424: expected"),
        ([10**39], 8, "does not fit"),
        ([np.float32(1)], 18, "floats are not exact"),
        # Not two values of one digit.
        ("12", 18, "'12' is one value, where several are expected"),
        (12, 18, "12 is one value"),
    ],
)
def test_what_is_no_amount_is_named(values, decimals, said):
    with pytest.raises(AmountError, match=said):
        to_units(values, decimals, token="LRC")


@pytest.mark.parametrize("make", [pa.decimal32, pa.decimal64, pa.decimal128])
def test_types_of_any_bytes_hold_the_units(make):
    kind = pd.ArrowDtype(make(9, 3))
    numbers = [12345, 7, -99, None]
    known = [Decimal("123.45"), Decimal("0.07"), Decimal("-0.99"), pd.NA]
    assert to_units(numbers, 2, dtype=kind).tolist() == known
    # One that does not fit is found one by one.
    with pytest.raises(AmountError, match="does not fit decimal"):
        to_units([7, 10**9], 2, dtype=kind)
    assert to_units(numbers, 2, dtype="amount").tolist()[:3] == known[:3]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: to_units([1], 2, dtype=pd.ArrowDtype(pa.int64())), "dtype=int64"),
        (lambda: to_smallest(["1"], 2), "expected a pandas Series of amounts"),
        (lambda: multiply(Amount(1), Amount(2)), "first, got Amount"),
    ],
)
def test_what_is_no_column_or_type_of_amounts_is_named(wrong, said):
    with pytest.raises(AmountError, match=f"(?i){said}"):
        wrong()


def test_limits_hold_the_largest_amount_of_the_contract():
    assert to_units([10**39], 8, dtype=LIMIT)[0] == Decimal(10) ** 31
    assert to_units([10**75], 30, dtype=WIDE)[0] == Decimal(10) ** 45


def test_null_stays_null_and_the_index_stays():
    units = to_units(pd.Series(["5", None], index=["a", "b"]), 1)
    assert units.isna().tolist() == [False, True]
    assert units.index.tolist() == ["a", "b"]
    assert units.dtype == AMOUNT


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**36)), min_size=1))
def test_totals_equal_the_sums_of_integers(pairs):
    groups, numbers = map(list, zip(*pairs, strict=True))
    units = to_units(numbers, 18)
    assert whole(total(units, token="ETH"), 18) == sum(numbers)
    sums: dict[str, int] = {}
    for group, number in pairs:
        sums[group] = sums.get(group, 0) + number
    try:
        found = total(units, by=groups)
    except AmountError:
        assert max(sums.values()) >= 10**38
    else:
        assert {group: whole(amount, 18) for group, amount in found.items()} == sums
        assert found.dtype == AMOUNT


def test_nothing_adds_up_to_zero_and_what_is_unknown_to_no_total():
    assert total(to_units([], 18), token="ETH") == Decimal(0)
    with pytest.raises(AmountError, match=r"1 of 2 amounts in 'fee' are null.*anomal"):
        total(to_units([1, None], 0).rename("fee"))
    with pytest.raises(AmountError, match="'fee' is float64, not an exact amount"):
        total(pd.Series([1.0], name="fee"))


def test_what_no_amount_holds_has_no_total():
    amounts = to_units([10**20], 0, dtype=LIMIT).rename("volume")
    with pytest.raises(AmountError, match="'volume' at 0: 10{20}.0*,? ?.*does not fit"):
        total(amounts, token="ETH")
    assert issubclass(AmountError, ValueError)
    assert issubclass(AmountError, LabError)


def test_only_exact_columns_become_floats():
    frame = pd.DataFrame(
        {"size": to_units(["25", None], 1), "market": ["LRC-ETH", "ETH-USDC"]}
    )
    floats = to_float(frame)
    assert floats["size"].dtype == "float64"
    assert floats["size"].isna().tolist() == [False, True]
    assert floats["market"].equals(frame["market"])
    assert to_float(frame["market"]).equals(frame["market"])


@pytest.mark.parametrize("dtype", [AMOUNT, LIMIT])
def test_columns_of_any_names_become_floats(dtype):
    frame = pd.DataFrame({number: to_units([25], 1, dtype=dtype) for number in (0, 1)})
    assert to_float(frame).dtypes.tolist() == ["float64", "float64"]
    assert to_float(frame).to_numpy().tolist() == [[2.5, 2.5]]


def test_columns_of_one_name_become_floats_each_by_itself():
    sizes = to_units([15, 20], 1).rename("size")
    texts = pd.Series(["a", "2"], name="size")
    floats = to_float(pd.concat([sizes, texts], axis=1))
    assert floats.iloc[:, 0].tolist() == [1.5, 2.0]
    assert floats.iloc[:, 1].equals(texts)


@pytest.mark.parametrize(
    "number", [Decimal("2.5"), Amount("2.5"), 2.5, np.float32(2.5)]
)
def test_numbers_become_floats(number):
    assert to_float(number) == 2.5
    assert type(to_float(number)) is float


@pytest.mark.parametrize("other", ["2.5", None, [Decimal(1)], pd.NA])
def test_what_is_no_number_does_not_become_a_float(other):
    with pytest.raises(
        LabError, match="to_float: expected a frame, a column or a number"
    ):
        to_float(other)


def fills() -> pd.DataFrame:
    """Three fees in two tokens, one of them in two markets."""
    return pd.DataFrame(
        {
            "market": ["LRC-ETH", "LRC-ETH", "ETH-USDC"],
            "fee": to_units([15, 20, 5], 1),
            "fee_token": pd.Categorical(["ETH", "LRC", "ETH"]),
            "other": to_units([1, 2, 3], 0),
        }
    )


def test_a_frame_is_added_up_by_the_token_of_the_column():
    found = total(fills(), "fee")
    assert found.to_dict() == {"ETH": Decimal(2), "LRC": Decimal(2)}
    assert found.dtype == AMOUNT
    assert (found.name, found.index.name) == ("fee", "fee_token")
    assert total(fills(), "fee", token="ETH") == Decimal(2)
    by_token = fills().set_index("fee_token")
    assert total(by_token, "fee").to_dict() == found.to_dict()


@pytest.mark.parametrize(
    "by", [["market", "fee_token"], [fills()["market"], fills()["fee_token"]]]
)
def test_a_frame_is_added_up_by_columns_or_their_names(by):
    assert total(fills(), "fee", by=by).to_dict() == {
        ("ETH-USDC", "ETH"): Decimal("0.5"),
        ("LRC-ETH", "ETH"): Decimal("1.5"),
        ("LRC-ETH", "LRC"): Decimal(2),
    }
    by_market = total(fills(), "fee", by="market", token="ETH")
    assert by_market.to_dict() == {
        "ETH-USDC": Decimal("0.5"),
        "LRC-ETH": Decimal("1.5"),
    }


def test_a_group_without_a_name_is_kept():
    found = total(fills()["other"], by=["a", None, "a"])
    assert found.tolist() == [Decimal(4), Decimal(2)]


@pytest.mark.parametrize(
    ("add_up", "message"),
    [
        (
            lambda: total(fills()["fee"]),
            "nothing says whether the amounts in 'fee' are of one token",
        ),
        (
            lambda: total(fills(), "fee", by="market"),
            "group 'LRC-ETH' of by='market' has amounts of 2 tokens",
        ),
        (
            lambda: total(fills(), "fee", by=fills()["market"]),
            "which do not add up. Group by the token as well, such as by=['market', 'fee_token']",
        ),
        (lambda: total(fills(), "fee", by="markte"), "by='markte' groups nothing"),
        (lambda: total(fills(), "fee", by=[]), "groups nothing"),
        (lambda: total(fills(), "fee", by=object()), "by=object groups nothing"),
        (lambda: total(fills(), "feee"), "no column 'feee'. Did you mean 'fee'"),
        (
            lambda: total(fills()),
            "expected a pandas DataFrame with the name of a column",
        ),
        # type: ignore[arg-type]
        # type: ignore[arg-type]
        (
            lambda: total(fills(), "fee", token="ETHH"),
            "no amount is of token 'ETHH'. Did you mean 'ETH'",
        ),
        (lambda: total(fills(), "market"), "'market' is"),
        (
            lambda: total(fills().assign(fee_token=["ETH", None, "ETH"]), "fee"),
            "1 of 3 amounts in 'fee' have no fee_token",
        ),
    ],
)
def test_totals_that_would_mix_tokens_or_mean_nothing_are_refused(add_up, message):
    with pytest.raises(AmountError) as caught:
        add_up()
    assert message in str(caught.value)


def amounts(*values) -> pd.Series:
    return pd.Series(values, dtype=AMOUNT)


@pytest.mark.parametrize("dtype", ["int64", "int32", ">i4", "uint8"])
def test_amounts_beyond_an_integer_are_refused(dtype):
    assert amounts("100.7", "0.9").astype(dtype).tolist() == [100, 0]
    with pytest.raises(AmountError, match=f"do not fit {dtype} .*Use .astype"):
        amounts("1", "10000000000000000000").astype(dtype)


@pytest.mark.parametrize(
    "number", [Decimal("1.5") * 10**18, Decimal("15e17"), Decimal(f"{15 * 10**17}.000")]
)
def test_a_decimal_is_exact_however_python_writes_it(number):
    column = pd.Series([number], dtype=pd.ArrowDtype(pa.decimal128(38, 3)))
    for numbers in ([number], column):
        assert to_units(numbers, 18).tolist() == [Decimal("1.5")]
    # Of a number in text, nobody knows whether it went through a float.
    with pytest.raises(AmountError, match="floats are not exact"):
        to_units([f"{15 * 10**17}.0"], 18)
    with pytest.raises(AmountError, match="is not a whole number"):
        to_units([number + Decimal("0.5")], 18)


def test_digits_after_the_point_of_integers_are_cut():
    found = amounts("3000000000.7", "-5.9").astype("int64")
    assert found.tolist() == [3_000_000_000, -5]
    assert amounts("1e19").astype("uint64").tolist() == [10**19]
    with pytest.raises(AmountError, match="do not fit uint64"):
        amounts("-5.9").astype("uint64")
    assert amounts("1").to_numpy("int64", na_value=0).tolist() == [1]


@pytest.mark.parametrize(
    "others",
    [
        to_units([10**39, 10**18], 18, dtype=LIMIT),
        pd.Series([10**40, 1], dtype=pd.ArrowDtype(pa.decimal256(76, 0))),
        [10**40, 1],
        ["1e40", Decimal("1.00")],
    ],
)
def test_a_number_that_is_no_amount_leaves_the_others_comparable(others):
    left = amounts("5", "1")
    assert (left == others).tolist() == [False, True]
    assert (left != others).tolist() == [True, False]
    assert (left < others).tolist() == [True, False]
    assert (left >= others).tolist() == [False, True]


def test_what_is_no_number_differs_and_leaves_the_others_comparable():
    left = amounts("1", "2", "3", None)
    others = ["1", "x", None, "x"]
    assert (left == others).tolist() == [True, False, False, False]
    assert (left != others).tolist() == [False, True, True, True]
    with pytest.raises(TypeError, match="Invalid comparison between amounts"):
        left < others  # noqa: B015 - the comparison raises


def test_isin_finds_only_what_is_exactly_an_amount():
    assert amounts("0", "1").isin([1e-19]).tolist() == [False, False]
    found = amounts("0.1", "2", None).isin([0.1, "2.0", 1e30, "x", None])
    assert found.tolist() == [True, True, True]
