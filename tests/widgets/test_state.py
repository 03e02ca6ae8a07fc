"""Choices of widgets: the values they accept, and the messages for the rest."""

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopring_lab.errors import LabError
from loopring_lab.widgets import state
from loopring_lab.widgets.state import Choice, WidgetState


class Some(WidgetState):
    """One choice of each kind."""

    CHOICES = ("account", "side", "listing", "since", "every", "by", "market")

    account = Choice(state.parse_accounts)
    side = Choice(state.one_of("BUY", "SELL", None))
    listing = Choice(state.one_of("markets", "tokens"), "markets")
    since = Choice(state.parse_day)
    every = Choice(state.parse_period)
    by = Choice(state.columns_of("market", "side"), ("market",))
    market = Choice(state.parse_text)

    def __init__(self, **choices: Any) -> None:
        super().__init__(choices)


@given(st.integers(0, 10**12))
def test_an_account_is_taken_as_number_and_as_text(number: int) -> None:
    some = Some(account=number)
    assert some.account == number
    some.account = f" {number} "
    assert some.account == number


@pytest.mark.parametrize("given", ["10083, 11519", " 10083;11519,10083 ", [10083, "11519"], (10083, 11519)])
def test_several_accounts_are_taken_as_text_and_as_a_list(given: Any) -> None:
    assert Some(account=given).account == (10083, 11519)


@given(st.dates())
def test_a_day_is_taken_as_date_time_and_text(day: dt.date) -> None:
    for given_as in (day, day.isoformat(), dt.datetime.combine(day, dt.time(13))):
        assert Some(since=given_as).since == day


@pytest.mark.parametrize("name", ["account", "side", "since", "every", "market"])
def test_nothing_is_none(name: str) -> None:
    assert getattr(Some(**{name: ""}), name) is None
    assert getattr(Some(**{name: None}), name) is None


def test_text_is_taken_without_blanks_and_a_period_as_written() -> None:
    some = Some(market=" LRC-ETH ", every="6h")
    assert (some.market, some.every) == ("LRC-ETH", "6h")


def test_columns_are_kept_in_order_and_once() -> None:
    assert Some(by=["side", "market", "side"]).by == ("side", "market")
    assert Some(by="side").by == ("side",)
    assert Some(by=None).by == ()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "account",
            "1o083",
            "account='1o083' is not a valid account id. Give a whole number, such as 10083.",
        ),
        ("account", -1, "account=-1 is not a valid account id. Give a whole number, such as 10083."),
        ("account", "١٢", "account='١٢' is not a valid account id. Give a whole number, such as 10083."),
        ("account", "10083, x", "account='x' is not a valid account id."),
        ("side", "buy", "side='buy' is not known. Did you mean 'BUY'?"),
        ("side", 3, "side=3 is not known. Give one of: BUY, SELL; or None for all."),
        ("listing", None, "listing=None is not known. Give one of: markets, tokens."),
        ("listing", ["markets"], "listing=['markets'] is not known."),
        ("since", "31.3.2022", "since='31.3.2022' is not a day. Give one like '2022-03-31'."),
        ("since", 5, "since=5 is not a day."),
        ("every", "fortnight", "every='fortnight' is not a period."),
        ("by", "colour", "by='colour' is not known. Give one of: market, side."),
        ("market", 5, "market=5 is not text. Give text, or None for nothing."),
    ],
)
def test_an_invalid_value_is_refused_and_the_old_one_stays(name: str, value: Any, words: str) -> None:
    some = Some(account=1, side="SELL", since="2022-01-02", every="1d", market="LRC-ETH")
    before = some.trait_values()
    with pytest.raises(LabError) as caught:
        setattr(some, name, value)
    assert str(caught.value).startswith(words)
    assert some.trait_values() == before


def test_a_choice_that_is_none_is_named_with_the_nearest() -> None:
    with pytest.raises(LabError, match=r"Some has no choice 'markt'\. Did you mean 'market'\?"):
        Some(markt=1)
    with pytest.raises(LabError, match=r"It has account, side, listing, since, every, by, market\."):
        Some(zzz=1)
