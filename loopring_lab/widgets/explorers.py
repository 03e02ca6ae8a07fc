"""Explorers of fees and fills, without a view: trades loaded with progress, tables, figures, code."""

from __future__ import annotations

import io
import operator
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from traitlets import Bool, Int, observe, validate

from loopring_lab.amounts import show
from loopring_lab.amounts.display import Shown
from loopring_lab.client import Client
from loopring_lab.errors import LabError, NotAuthorized
from loopring_lab.redaction import hide
from loopring_lab.widgets.background import Report, Working
from loopring_lab.widgets.traits import (
    Choice,
    account_number,
    columns,
    day,
    named,
    one_of,
    period,
    text,
    unknown,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


DPI = 150
"""Figures are 9 inches wide and shown at 900 pixels: sharp, and still on screens that zoom."""


class Call(NamedTuple):
    """A call of the library on trades, to be run and to be written."""

    name: str
    arguments: Mapping[str, Any]

    def run(self, trades: pd.DataFrame) -> Any:
        """Call it."""
        module, name = self.name.split(".")
        return getattr(import_module(f"loopring_lab.{module}"), name)(trades, **self._given)

    def written(self, trades: str) -> str:
        """Write it."""
        given = [f"{name}={value!r}" for name, value in self._given.items()]
        return f"lab.{self.name}({', '.join([trades, *given])})"

    @property
    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in self.arguments.items() if value is not None}


class Scene(NamedTuple):
    """A figure that an explorer offers, and the table beside it."""

    label: str
    table: str
    options: Mapping[str, str]
    shared: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    one_quote: bool = False


def as_png(figure: Figure) -> bytes:
    """Draw a figure as a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    picture = io.BytesIO()
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    Image.fromarray(pixels).convert("RGB").save(picture, "png", compress_level=1)
    return picture.getvalue()


class Reading(Working):
    """Trades, given or read from a client.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, whose accounts are read one at a time; or trades.
    **choices
        What to begin with.

    Attributes
    ----------
    account : int or None
        Whose trades; with a client only. Another one is read at once.
    version : int
        Counts how often the trades changed.
    needs_key : bool
        Whether the relayer asks for another API key.
    """

    account = Choice(account_number)
    version = Int()
    needs_key = Bool()

    _ready = False

    def __init__(self, source: Client | pd.DataFrame, **choices: Any) -> None:
        what = type(self).__name__
        self._client = source if isinstance(source, Client) else None
        self._trades = None if isinstance(source, Client) else _trades(source, what)
        if self._client is not None and self._client.accounts:
            choices.setdefault("account", self._client.accounts[0])
        elif self._client is None and "account" in choices:
            raise LabError(f"{what}: these are trades already, so account= chooses nothing. Give a client.")
        super().__init__(**choices)
        self._ready = True

    @property
    def is_read(self) -> bool:
        """Whether there are trades."""
        return self._trades is not None

    @property
    def client(self) -> Client | None:
        """The client it reads with, if any."""
        return self._client

    @property
    def trades(self) -> pd.DataFrame:
        """All trades, before any choice.

        Raises
        ------
        LabError
            They are not read yet.
        """
        if self._trades is None:
            raise LabError("No trades are read yet. Choose an account, and read() its trades.")
        return self._trades

    @property
    def markets(self) -> list[str]:
        """Markets of the trades, those with most trades first."""
        return self.names("market")

    def names(self, column: str) -> list[str]:
        """List the names in a column of the trades.

        Parameters
        ----------
        column : str
            Such as ``quote``.

        Returns
        -------
        list of str
            Those with most trades first; empty where no trades are read.
        """
        if self._trades is None:
            return []
        return [str(one) for one, count in self._trades[column].value_counts().items() if count]

    def read(self) -> None:
        """Read the account's trades, in a thread; `wait` waits for them.

        Raises
        ------
        LabError
            There is nothing to read.
        """
        client, number = self._client, self.account
        if client is None or number is None:
            raise LabError("There is no account to read. Give a client, and an account's number.")
        self._trades = None
        self.version += 1
        self.begin(
            f"Reading the trades of account {number}",
            lambda report: _ready_to_draw(history(client, number, report)),
            self._take,
        )

    def unlock(self, api_key: str) -> None:
        """Read with another API key.

        Parameters
        ----------
        api_key : str
            Kept hidden, by the client only.

        Raises
        ------
        LabError
            There is nothing to read.
        """
        key = hide(api_key)
        del api_key
        if self._client is not None:
            self._client = self._client.with_api_key(key)
        self.needs_key = False
        self.read()

    def failed(self, error: LabError) -> None:
        """Take the end of a reading that failed; ask for an API key where that is why.

        Parameters
        ----------
        error : LabError
            Why.
        """
        self.needs_key = isinstance(error, NotAuthorized)
        super().failed(error)

    @observe("account")
    def _another_account(self, change: Any) -> None:
        if self._ready and change["new"] is not None:
            self.read()

    def _take(self, trades: pd.DataFrame) -> None:
        self._trades, self.needs_key = trades, False
        self.version += 1


def history(client: Client, account: int, report: Report) -> pd.DataFrame:
    """Read every trade of an account."""
    whole = client.count(account)
    report(0, whole)
    return client.trades(account, progress=lambda held, expected: report(held, max(whole, expected)))


def _ready_to_draw(trades: pd.DataFrame) -> pd.DataFrame:
    """Load what draws while still in a thread: that takes a second, the first time."""
    import_module("loopring_lab.figures")
    return trades


def _trades(source: Any, what: str) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame) and {"created_at", "trade_id", "fill_type"} <= set(source.columns):
        return source
    raise LabError(
        f"{what}: expected a client, or trades as a pandas frame. Give lab.connect() or client.trades(...)."
    )


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


SHOWN = ("fee_token", "fills", "fee", "bps", "median_bps", "zero_fee_share", "received", "unknown")

SIZES = ("quote", "quantile", "smallest", "largest", "fill_type", "fills", "share", "notional", "median_bps")


class Fees(Explorer):
    """An explorer of fees.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        As for `Explorer`.
    **choices
        As for `Explorer`.
    """

    SCENES: ClassVar[Mapping[str, Scene]] = {
        "fee_rates": Scene("Fee rate over time", "fees.summary", {"every": "every"}, columns=SHOWN),
        "fee_tiers": Scene("Fee tiers over time", "fees.summary", {"every": "every"}, columns=SHOWN),
        "fees_by_token": Scene("Fees by token", "fees.summary", {}, columns=SHOWN),
    }

    GROUPS: ClassVar[tuple[str, ...]] = ("market", "fill_type", "side", "role")

    figure = Choice(one_of(*SCENES), "fee_rates")
    by = Choice(columns(*GROUPS), ("market",))


class Fills(Explorer):
    """An explorer of fills: pool against order book.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        As for `Explorer`.
    **choices
        As for `Explorer`, and ``tolerance``.

    Attributes
    ----------
    tolerance : str
        How far off in time a price may be that another is compared with.
    quote : str or None
        The quote token of figures that are of one; None for the one with the most fills.
    """

    CHOICES: ClassVar[tuple[str, ...]] = (*Explorer.CHOICES, "tolerance", "quote")
    SCENES: ClassVar[Mapping[str, Scene]] = {
        "fill_shares": Scene("Share over time", "fills.breakdown", {"every": "every"}),
        "price_gaps": Scene("Price gap", "fills.price_gap", {"tolerance": "tolerance"}, ("tolerance",)),
        "size_profile": Scene(
            "Size profile", "fills.size_profile", {"quote": "quote_shown"}, columns=SIZES, one_quote=True
        ),
        "cost_curve": Scene(
            "Cost by size",
            "fills.all_in_cost",
            {"quote": "quote_shown", "tolerance": "tolerance"},
            ("tolerance",),
        ),
    }

    GROUPS: ClassVar[tuple[str, ...]] = ("market", "quote", "side")

    figure = Choice(one_of(*SCENES), "fill_shares")
    by = Choice(columns(*GROUPS), ())
    tolerance = Choice(one_of("60s", "10min", "1h", "1d"), "1h")
    quote = Choice(text)

    @property
    def quote_shown(self) -> str | None:
        """The quote token of what is on screen, where that is one."""
        return self.quote or super().quote_shown
