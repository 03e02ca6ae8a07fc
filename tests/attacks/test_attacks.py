"""Hostile answers and files end in a LabError or a right answer, in 5 s and 200 MB: some of every kind.

All of them: ``python benchmarks/bench_attacks.py``.
"""

from collections import Counter
from decimal import Decimal

import pandas as pd
import pytest
from attacks import answers, cases, pool, truth

from loopring_lab import tables

STEP = 52


def sample() -> list[int]:
    """Return every so many cases of each door, so that each door and behaviour has its turn as cases are added."""
    every = cases.every_case()
    doors = {door: [n for n in cases.attacks() if every[n].door == door] for door in {one.door for one in every}}
    return sorted(number for numbers in doors.values() for number in numbers[::STEP])


def test_there_are_enough_attacks_of_every_kind() -> None:
    every = [cases.every_case()[number] for number in cases.attacks()]
    assert len({case.id for case in every}) == len(every) >= 1_500
    assert {case.door for case in every} == {*cases.DOORS}
    assert {case.answer for case in every if case.door == "http"} == {*answers.REGULAR}
    spoiled = {(case.answer, case.path) for case in every if case.door == "http"}
    assert spoiled == {(answer, path) for answer in answers.REGULAR for path in answers.members(answer)}
    assert {case.value for case in every} >= {*answers.VALUES}
    assert len(sample()) >= 150


@pytest.mark.thorough
def test_a_sample_of_the_attacks() -> None:
    outcomes = pool.run(sample(), children=3)
    assert len(outcomes) == len(sample())
    bad = [outcome for outcome in outcomes if not outcome.is_good]
    assert bad == [], pool.told(outcomes)
    assert Counter(outcome.kind for outcome in outcomes)["right"] >= len(cases.DOORS) - 3


@pytest.mark.thorough
def test_the_pool_notices_everything_that_an_attack_may_do() -> None:
    controls = range(cases.attacks().stop, len(cases.every_case()))
    kinds = {one.case.rpartition(" | ")[2]: one.kind for one in pool.run(controls, children=2, seconds=1.0)}
    expected = ("wrong", "raw", "died", "hung", "grew", "secret", "traceback")
    assert kinds == dict(zip(cases.CONTROLS, expected, strict=True))


def frame() -> pd.DataFrame:
    tokens = tables.tokens(answers.regular("tokens"))
    markets = tables.markets(answers.regular("markets"), tokens)
    return tables.trades(answers.regular("trades"), tokens, markets, fill_type="dex").copy()


def judge(trades: object) -> None:
    listings = [answers.regular(name) for name in ("tokens", "markets")]
    truth.check_trades(trades, {"dex": [answers.regular("trades")]}, *listings, answers.ACCOUNT)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("created_at", pd.Timestamp("2022-01-01", tz="UTC")),
        ("trade_id", 7),
        ("account_id", 999),
        ("side", "BUY"),
        ("fill_type", "amm"),
        ("role", "maker"),
        ("market", "ETH-USDC"),
        ("base", "ETH"),
        ("size", Decimal("453.000000000000000001")),
        ("price", Decimal("0.0003567")),
        ("notional", Decimal("0.1")),
        ("fee", Decimal("0")),
        ("fee_token", "LRC"),
        ("fee_bps", 9.99),
        ("order_hash", "0x"),
        ("block_id", 1),
        ("token_id", 0),
        ("storage_id", None),
    ],
)
def test_the_judge_sees_a_wrong_value_in_any_column(column: str, value: object) -> None:
    judge(frame())
    wrong = frame()
    wrong.loc[0, column] = value
    with pytest.raises(truth.Wrong):
        judge(wrong)


def test_the_judge_sees_a_row_too_few_or_too_many() -> None:
    for wrong in (frame().iloc[:2], frame().iloc[[0, 1, 2, 2]]):
        with pytest.raises(truth.Wrong, match="rows for 3"):
            judge(wrong)


def test_a_number_is_read_without_making_it() -> None:
    assert truth.number("1e999999999") == truth.Whole(False, "1", 999_999_999)
    assert truth.number("-0.00120E+3") == truth.Whole(True, "12", -1)
    assert truth.number("000") == truth.number("0e999999999") == truth.Whole(False, "", 0)
    for text in ("", ".", "1_0", " 1", "1\n", "0x1", "NaN", "\uff11", "1e", "--1", 5, None):
        assert truth.number(text) is None
