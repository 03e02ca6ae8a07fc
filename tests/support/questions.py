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
            if name == "describe":  # says in words what another function found
                yield f"{room}.{name}", describe
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
    yield "fills.compare_venues, flow", compare_classes


def unchanged(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def describe(frame: pd.DataFrame, give: Give = unchanged) -> str:
    return lab.fills.describe(lab.fills.compare_venues(give(frame)))


def compare_classes(frame: pd.DataFrame, give: Give = unchanged) -> Any:
    """Compare venues in trades that say of which class each taker is; of some it is not known."""
    classes = {0: "arbitrage", 1: "user", 2: None}
    flow = (frame["trade_id"].fillna(0).astype(int) % 3).map(classes)
    return lab.fills.compare_venues(
        give(frame.assign(flow=flow)), by="side", horizon="1h"
    )


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
