"""What explorers of trades have in common, without a view: filters, table, figure, code."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from traitlets import observe, validate

from loopring_lab.amounts import show
from loopring_lab.amounts.readable import Shown
from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.widgets.calls import Call, Scene, as_png
from loopring_lab.widgets.choices import (
    Choice,
    day,
    named,
    one_of,
    period,
    text,
    unknown,
)
from loopring_lab.widgets.reading import Reading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Explorer"]

DECIMALS, ROWS, REMEMBERED = 8, 24, 64
FILTERS = ("market", "side", "fill_type", "since", "until")
SIGNS = {"==": operator.eq, ">=": operator.ge, "<": operator.lt}


class Explorer(Reading):
    """Trades, what is chosen of them, and what is computed of that.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, whose accounts are read one at a time; or trades.
    **choices
        What to begin with, by the names below; ``account`` too, with a client.

    Attributes
    ----------
    market, side, fill_type : str or None
        Which of them; None for all.
    since, until : datetime.date or None
        From the first day on, and before the second, UTC; a fill of unknown time is then left out.
    figure : str
        A function of `figures`.
    every : str or None
        Length of the figure's periods; None for one that suits.
    by : tuple of str
        Columns that the table is grouped by.
    """

    SCENES: ClassVar[Mapping[str, Scene]]
    GROUPS: ClassVar[tuple[str, ...]] = ("market", "fill_type", "side")
    CHOICES: ClassVar[tuple[str, ...]] = ("account", *FILTERS, "figure", "every", "by")

    market = Choice(text)
    side = Choice(one_of("BUY", "SELL", None))
    fill_type = Choice(one_of("amm", "dex", None))
    since = Choice(day)
    until = Choice(day)
    figure: Choice
    every = Choice(period)
    by: Choice

    def __init__(self, source: Client | pd.DataFrame, **choices: Any) -> None:
        self._remembered: dict[Any, Any] = {}
        super().__init__(source, **named(choices, self.CHOICES, type(self).__name__))

    @property
    def is_chosen(self) -> bool:
        """Whether any of them fits the choices."""
        try:
            return not self.chosen.empty
        except LabError:
            return False

    @property
    def chosen(self) -> pd.DataFrame:
        """The trades that fit the choices.

        Raises
        ------
        LabError
            None fits, or none is read yet.
        """
        chosen: pd.DataFrame = self._once("chosen", self._choose)
        return chosen

    @property
    def table(self) -> pd.DataFrame:
        """The table on screen, of the library's function that `export` names."""
        call = self._table_call
        table: pd.DataFrame = self._once(call.written("chosen"), lambda: call.run(self.chosen))
        return table

    @property
    def shown(self) -> Shown:
        """The table on screen, for reading."""
        table, columns = self.table, self._columns
        if self.scene.one_quote:
            table = table[table["quote"] == self.quote_shown]
        return show(table[columns] if columns else table, precision=DECIMALS, rows=ROWS)

    @property
    def quote_shown(self) -> str | None:
        """The quote token of what is on screen, where that is one: the one with the most fills."""
        counts = self.chosen["quote"].value_counts()
        return str(counts.idxmax()) if counts.any() else None

    @property
    def summary(self) -> str:
        """What is chosen, in words."""
        parts = [f"{name} {value}" for name, value in self._words.items()]
        return f"{len(self.chosen):,} of {len(self.trades):,} trades" + ": " * bool(parts) + ", ".join(parts)

    def draw(self) -> Figure:
        """Draw the figure on screen.

        Returns
        -------
        matplotlib.figure.Figure
            Of the library's function that `export` names.

        Raises
        ------
        LabError
            There is nothing to draw.
        """
        figure: Figure = self._figure_call.run(self.chosen)
        return figure

    def png(self) -> bytes:
        """Draw the figure on screen as a picture.

        Returns
        -------
        bytes
            PNG, 1350 pixels wide.

        Raises
        ------
        LabError
            There is nothing to draw.
        """
        picture: bytes = self._once(self._figure_call.written("chosen"), lambda: as_png(self.draw()))
        return picture

    def export(self) -> str:
        """Write the code cell that gives the same table and figure.

        Returns
        -------
        str
            Python. It uses ``client``, or ``trades``: what the explorer was made from.
        """
        lines = [] if self._client is None else [f"trades = client.trades(account_id={self.account})"]
        lines.append("chosen = trades")
        lines += [f"chosen = chosen[chosen[{a!r}] {sign} {b!r}]" for a, sign, b in self._conditions]
        lines.append(f"table = {self._table_call.written('chosen')}")
        if self.scene.one_quote:
            lines.append(f"table = table[table['quote'] == {self.quote_shown!r}]")
        part = f"[{self._columns}]" if self._columns else ""
        lines.append(f"display(lab.show(table{part}, precision={DECIMALS}, rows={ROWS}))")
        return "\n".join([*lines, self._figure_call.written("chosen")])

    @validate("market")
    def _known_market(self, proposal: Any) -> Any:
        market = proposal["value"]
        if market is not None and self._trades is not None and market not in self.markets:
            raise unknown("market", market, self.markets, optional=True)
        return market

    @observe("version")
    def _forget(self, _: object) -> None:
        self._remembered.clear()

    def _choose(self) -> pd.DataFrame:
        frame = self.trades
        if frame.empty:
            raise LabError("There are no trades at all. Choose another account, or give other trades.")
        for column, sign, value in self._conditions:
            frame = frame[SIGNS[sign](frame[column], value)]
        if frame.empty:
            parts = ", ".join(f"{name} {value}" for name, value in self._words.items()) or "any"
            raise LabError(f"No trade of {len(self.trades):,} fits ({parts}). Choose less narrowly.")
        return frame

    @property
    def _words(self) -> dict[str, Any]:
        names = {"since": "from", "until": "before", "fill_type": "type"}
        return {names.get(n, n): getattr(self, n) for n in FILTERS if getattr(self, n) is not None}

    @property
    def _conditions(self) -> list[tuple[str, str, str]]:
        equal = [(name, "==", getattr(self, name)) for name in ("market", "side", "fill_type")]
        spans = [("created_at", ">=", self.since), ("created_at", "<", self.until)]
        return [(name, sign, str(value)) for name, sign, value in [*equal, *spans] if value is not None]

    @property
    def scene(self) -> Scene:
        """What is on screen: a figure, and the table beside it."""
        return self.SCENES[self.figure]

    @property
    def _figure_call(self) -> Call:
        options = self.scene.options.items()
        return Call(f"figures.{self.figure}", {name: getattr(self, choice) for name, choice in options})

    @property
    def _table_call(self) -> Call:
        shared = {name: getattr(self, self.scene.options[name]) for name in self.scene.shared}
        return Call(self.scene.table, shared | {"by": list(self.by)})

    @property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys([*self.by, *self.scene.columns])) if self.scene.columns else []

    def _once(self, what: Any, compute: Callable[[], Any]) -> Any:
        """Compute once for the same choices."""
        with self.lock:
            key = (what, tuple(self._conditions))
            if key not in self._remembered:
                if len(self._remembered) >= REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = compute()
            return self._remembered[key]
