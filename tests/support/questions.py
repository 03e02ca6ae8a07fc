"""Every public function that takes trades, with its defaults and with each further argument that it takes."""

import functools
import inspect
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pandas as pd

import loopring_lab as lab

POOL = 1  # an account that is a pool in the trades that are asked about
NEEDED = {
    "token": "ETH",
    "schedule": [{"fill_type": "amm", "bps": 10}, {"bps": 20}],
}
"""Arguments without a default; those of a new function are added here, or to `MADE`."""


def outside(frame: pd.DataFrame) -> pd.DataFrame:
    """Return prices like those of an outside market, a second before each row and a little higher."""
    prices = frame[["created_at", "market", "price"]]
    return prices.assign(
        created_at=prices["created_at"] - pd.Timedelta("1237ms"),
        price=prices["price"] + Decimal("0.0001"),
    )


def reserves(frame: pd.DataFrame) -> pd.DataFrame:
    """Return balances of pools, a second before each row, a thousand times as large as it."""
    return pd.DataFrame(
        {
            "created_at": frame["created_at"] - pd.Timedelta("1237ms"),
            "market": frame["market"],
            "base_balance": frame["size"] * 1000,
            "quote_balance": frame["notional"] * 1000,
            "base_decimals": 18,
            "quote_decimals": 6,
        }
    )


MADE = {"prices": outside, "balances": reserves}
"""Arguments without a default that are made of the frame that is asked about."""
FURTHER: dict[str, Any] = {
    "by": ["market", "role"],
    "every": "1h",
    "horizons": ["10s", "1min"],
    "reference": "last",
}
# Questions that Spark's workers cannot answer on a part of the rows, with their defaults.
NOT_BY_MARKET = {"fees.in_token"}
# Functions that take the answer of another one.
ABOUT: dict[Callable[..., Any], Callable[..., Any]] = {
    lab.fees.describe: lab.fees.summary,
    lab.research.crossing: lab.research.cost_curves,
    lab.fills.describe: lab.fills.compare_venues,
    lab.research.describe: lab.research.liquidity,
}
ROOMS = {"fees": lab.fees, "fills": lab.fills, "research": lab.research}
SOME = range(POOL, 10**6, 2)

Give = Callable[[pd.DataFrame], Any]
Ask = Callable[..., Any]
"""Asks about a pandas frame, or about the frame of another kind that it is turned into first."""


def questions() -> Iterator[tuple[str, Ask]]:
    """Ask every public function with its defaults, and again with each further argument that it takes."""
    for room, module in ROOMS.items():
        for name in module.__all__:
            if name == "figures":
                continue
            function = getattr(module, name)
            if function in ABOUT:
                asked = functools.partial(about, function, ABOUT[function])
                yield f"{room}.{name}", asked
                continue
            parameters = inspect.signature(function).parameters
            _, *others = parameters.values()
            required = {
                one.name for one in others if one.default is inspect.Parameter.empty
            }
            made = [each for each in MADE if each in required]
            needed = {each: NEEDED[each] for each in required.difference(MADE)}
            yield f"{room}.{name}", functools.partial(plainly, function, needed, made)
            for argument in sorted(FURTHER.keys() & parameters.keys()):
                given = needed | {argument: FURTHER[argument]}
                yield (
                    f"{room}.{name}, {argument}",
                    functools.partial(plainly, function, given, made),
                )
            if "prices" in parameters and "prices" not in made:
                yield (
                    f"{room}.{name}, prices",
                    functools.partial(with_prices, function, needed),
                )


def unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def about(
    function: Callable[..., Any],
    asked_first: Callable[..., Any],
    frame: pd.DataFrame,
    give: Give = unchanged,
):
    """Ask about the answer of another function."""
    return function(asked_first(give(frame)))


def plainly(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    made: list[str],
    frame: pd.DataFrame,
    give: Give = unchanged,
):
    frames = {name: give(MADE[name](frame)) for name in made}
    return function(give(frame), **arguments, **frames)


def with_prices(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    frame: pd.DataFrame,
    give: Give = unchanged,
):
    """Ask about every other account, with all rows as prices."""
    return function(
        give(frame[frame["account_id"].isin(SOME)]), **arguments, prices=give(frame)
    )


QUESTIONS = dict(questions())
