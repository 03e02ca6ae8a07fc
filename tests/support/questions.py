"""Every public function that takes trades, with its defaults and with each further argument that it takes."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

import loopring_lab as lab

POOL = 1  # an account that is a pool in the trades that are asked about
NEEDED = {
    "token": "ETH",
    "schedule": [{"fill_type": "amm", "bps": 10}, {"bps": 20}],
    "pool_account": POOL,
}
"""Arguments without a default; those of a new function are added here."""
FURTHER: dict[str, Any] = {
    "by": ["market", "role"],
    "every": "1h",
    "horizons": ["10s", "1min"],
    "reference": "last",
}
# Questions that Spark's workers cannot answer on a part of the rows, with their defaults.
NOT_BY_MARKET = {"fees.in_token"}
# Functions that take the answer of another one.
ABOUT = {
    "break_test": lab.fills.changes,
    "crossing": lab.fills.cost_curves,
    "describe": lab.fills.compare_venues,
}
ROOMS = {"fees": lab.fees, "fills": lab.fills}
SOME = range(POOL, 10**6, 2)

Give = Callable[[pd.DataFrame], Any]
Ask = Callable[..., Any]
"""Asks about a pandas frame, or about the frame of another kind that it is turned into first."""


def questions() -> Iterator[tuple[str, Ask]]:
    """Ask every public function with its defaults, and again with each further argument that it takes."""
    for room, module in ROOMS.items():
        for name in module.__all__:
            function = getattr(module, name)
            if name in ABOUT:
                yield f"{room}.{name}", functools.partial(about, function, ABOUT[name])
                continue
            parameters = inspect.signature(function).parameters
            _, *others = parameters.values()
            needed = {
                one.name: NEEDED[one.name]
                for one in others
                if one.default is inspect.Parameter.empty
            }
            yield f"{room}.{name}", functools.partial(plainly, function, needed)
            for argument in sorted(FURTHER.keys() & parameters.keys()):
                given = needed | {argument: FURTHER[argument]}
                yield (
                    f"{room}.{name}, {argument}",
                    functools.partial(plainly, function, given),
                )
            if "prices" in parameters:
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
) -> Any:
    """Ask about the answer of another function."""
    return function(asked_first(give(frame)))


def plainly(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    frame: pd.DataFrame,
    give: Give = unchanged,
) -> Any:
    return function(give(frame), **arguments)


def with_prices(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    frame: pd.DataFrame,
    give: Give = unchanged,
) -> Any:
    """Ask about every other account, with all rows as prices."""
    return function(
        give(frame[frame["account_id"].isin(SOME)]), **arguments, prices=give(frame)
    )


QUESTIONS = dict(questions())
