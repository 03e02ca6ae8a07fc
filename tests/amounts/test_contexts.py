"""Amounts do not depend on the context that a caller has set for Decimals."""

import decimal
import math
import operator
from decimal import Decimal

import pandas as pd
import pytest

import loopring_lab as lab

A = "98765432109876543.210987654321098765"
B = "0.000000000000000007"
SIGNALS = list(decimal.Context().flags)
CONTEXTS = {
    "one digit": decimal.Context(prec=1, traps=[]),
    "one digit, up": decimal.Context(prec=1, rounding=decimal.ROUND_UP, traps=[]),
    "half down": decimal.Context(rounding=decimal.ROUND_HALF_DOWN, traps=[]),
    "inexact raises": decimal.Context(prec=1, traps=[decimal.Inexact]),
    "everything raises": decimal.Context(prec=1, traps=SIGNALS),
    "no exponents": decimal.Context(prec=1, Emin=0, Emax=0, traps=SIGNALS),
}


def column():
    texts = [A, B, "-2.5", None, "99999999999999999999"]
    return pd.Series(texts, dtype="amount", name="fee")


def one():
    return lab.amounts.Amount(A)


OPERATIONS = {
    "sum of a column": lambda: pd.Series([A, B, A] * 40, dtype="amount").sum(),
    "sum by group": lambda: column().groupby([1, 1, 2, 2, 2]).sum().tolist()[0],
    "cumsum": lambda: column()[:2].cumsum().tolist(),
    "add": lambda: (column()[:3] + column()[:3]).tolist(),
    "times an integer": lambda: (column()[:3] * 7).tolist(),
    "negative": lambda: (-column()).dropna().tolist(),
    "abs": lambda: column().abs().dropna().tolist(),
    "round": lambda: column().round(0).dropna().tolist(),
    "floor divide": lambda: (column() // 3).dropna().tolist(),
    "compare with a Decimal": lambda: (column() > Decimal(A)).tolist(),
    "compare with much": lambda: (column() < Decimal("1e40")).tolist(),
    "compare with a float": lambda: (column() < 2.5).tolist(),
    "equal to little": lambda: (column() == Decimal("7e-18")).tolist(),
    "isin": lambda: column().isin([Decimal(A), 7]).tolist(),
    "min and max": lambda: [column().min(), column().max()],
    "mean": lambda: column()[:3].mean(),
    "sort": lambda: column().sort_values().dropna().tolist(),
    "from Decimals": lambda: pd.Series([Decimal(A)], dtype="amount").tolist(),
    "from floats": lambda: pd.Series([0.1, 1e-7], dtype="amount").tolist(),
    "to text": lambda: column().astype(str).tolist()[:3],
    "to floats": lambda: lab.amounts.to_float(column()).tolist()[:3],
    "to smallest": lambda: lab.amounts.to_smallest(column(), 18).dropna().tolist(),
    "to units": lambda: lab.amounts.to_units([10**30 + 1, "7"], 18).tolist(),
    "multiply": lambda: lab.amounts.multiply(column()[:2], one() // 10**15).tolist(),
    "total": lambda: lab.amounts.total(column().dropna()[:2], token="ETH"),
    "show": lambda: repr(lab.show(column().to_frame())),
    "show, cut": lambda: repr(lab.show(column().to_frame(), precision=3)),
    "one: sums": lambda: [one() + Decimal(B), one() - 1, one() * 3, sum([one()] * 3)],
    "one: quotients": lambda: [one() // 7, one() % 7, one() / 7, *divmod(one(), 7)],
    "one: reflected": lambda: [divmod(Decimal("1e19"), one()), 1 - one(), 10**19 % one()],
    "one: signs": lambda: [-one(), +one(), abs(-one())],
    "one: round": lambda: [round(one(), 2), round(one()), round(lab.amounts.Amount("2.5"))],
    "one: floor": lambda: [math.floor(one()), math.ceil(one()), int(one())],
    "one: compared": lambda: [one() > Decimal(B), one() == Decimal(A), one() < 1e17],
    "one: compared with nan": lambda: [one() < math.nan, one() != math.nan],
    "one: as text": lambda: [str(one()), f"{one():,.3f}", f"{one():.2e}", repr(one())],
    "one: in order": lambda: sorted([one(), lab.amounts.Amount(B)], key=operator.pos),
}  # fmt: skip


@pytest.mark.parametrize("context", CONTEXTS)
def test_operations_are_the_same_in_every_context(context):
    expected = {name: repr(compute()) for name, compute in OPERATIONS.items()}
    with decimal.localcontext(CONTEXTS[context]):
        found = {name: repr(compute()) for name, compute in OPERATIONS.items()}
    assert found == expected


def test_the_values_by_integers():
    """The expected values above, by another way: whole numbers of 1e-18."""
    units = int(A.replace(".", ""))
    with decimal.localcontext(CONTEXTS["one digit, up"]):
        total = OPERATIONS["sum of a column"]()
    assert int(f"{total:f}".replace(".", "")) == 80 * units + 40 * 7


@pytest.mark.parametrize("context", ["one digit, up", "everything raises"])
def test_public_frames_are_the_same_in_every_context(context):
    client = lab.connect()

    def answers():
        frame = client.trades(account_id=10083, limit=60, progress=False)
        summary = lab.fees.summary(frame)
        return frame, summary, repr(lab.show(summary)), repr(lab.show(frame))

    expected = answers()
    with decimal.localcontext(CONTEXTS[context]):
        found = answers()
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        pd.testing.assert_frame_equal(ours, theirs)
    assert found[2:] == expected[2:]
