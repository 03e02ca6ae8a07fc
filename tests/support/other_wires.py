"""A source as other deployments of the relayer might serve it: rows in another order, or of another form."""

import random
from collections.abc import Callable
from typing import Any

from loopring_lab.relayer.history import History
from loopring_lab.relayer.world import World

ORDERS = ("newest", "oldest", "shuffled")


class Rewired:
    """What a source holds, with its rows in an order, each as `change` makes it."""

    def __init__(
        self,
        source: World,
        order: str = "newest",
        change: Callable[[Any], Any] = lambda row: row,
    ):
        self._source = source
        whole = source.history
        # Rows are numbered oldest first, and served with the largest number first.
        numbers = list(range(len(whole.keys)))
        if order == "oldest":
            numbers.reverse()
        if order == "shuffled":
            random.Random(1).shuffle(numbers)
        self.history = History(
            (whole.keys[number] for number in numbers),
            lambda number: change(whole.row(numbers[number])),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def as_numbers(row: tuple[str, ...]) -> tuple[Any, ...]:
    """Write numeric members as JSON numbers."""
    return tuple(number(member) for member in row)


def number(member: str) -> Any:
    for kind in (int, float):
        try:
            return kind(member)
        except ValueError:
            continue
    return member


def without_prefix(row: tuple[str, ...]) -> tuple[str, ...]:
    return (*row[:5], row[5].removeprefix("AMM-"), *row[6:])
