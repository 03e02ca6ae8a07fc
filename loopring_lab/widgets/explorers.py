"""Explorers of fees and fills: trades, the filters applied to them, tables, figures, code."""

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
from loopring_lab.widgets.background import ReportProgress, WidgetState
from loopring_lab.widgets.traits import (
    ParsedTrait,
    check_choices,
    parse_account,
    parse_choice,
    parse_columns,
    parse_day,
    parse_period,
    parse_text,
    unknown_value,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 150
"""Figures are 9 inches wide and shown at 900 pixels: sharp, and still sharp on screens that zoom."""
DECIMALS, ROWS, CACHE_SIZE = 8, 24, 64
FILTERS = ("market", "side", "fill_type", "since", "until")
FILTER_LABELS = {"since": "from", "until": "before", "fill_type": "type"}
COMPARISONS = {"==": operator.eq, ">=": operator.ge, "<": operator.lt}
PER_PERIOD = {"every": "every"}
FEE_COLUMNS = ("fee_token", "fills", "fee", "bps", "median_bps", "zero_fee_share", "received", "unknown")
SIZE_RANGE = ("quote", "quantile", "smallest", "largest")
SIZE_COLUMNS = (*SIZE_RANGE, "fill_type", "fills", "share", "notional", "median_bps")


class FigureSpec(NamedTuple):
    """A figure that an explorer offers, and the table beside it.

    ``options`` maps arguments of the figure to attributes of the explorer; the table shares some of them.
    """

    label: str
    table: str
    options: Mapping[str, str]
    shared: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    one_quote: bool = False


class LibraryCall(NamedTuple):
    """A call of a library function on trades, to be run or written as code, without options that are None."""

    function: str
    options: Mapping[str, Any]

    def run(self, trades: pd.DataFrame) -> Any:
        module, name = self.function.split(".")
        return getattr(import_module(f"loopring_lab.{module}"), name)(trades, **self._set_options)

    def code(self, trades: str) -> str:
        options = [f"{name}={value!r}" for name, value in self._set_options.items()]
        return f"lab.{self.function}({', '.join([trades, *options])})"

    @property
    def _set_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if value is not None}


class Explorer(WidgetState):
    """Trades, the filters applied to them, and the table and figure of what is left.

    ``version`` counts how often the trades changed; ``needs_key`` says whether the relayer asks for another
    API key.
    """

    VIEW = "TradesView"
    FIGURES: ClassVar[Mapping[str, FigureSpec]]
    GROUPS: ClassVar[tuple[str, ...]] = ("market", "fill_type", "side")
    CHOICES: ClassVar[tuple[str, ...]] = ("account", *FILTERS, "figure", "every", "by")

    account = ParsedTrait(parse_account)
    market = ParsedTrait(parse_text)
    side = ParsedTrait(parse_choice("BUY", "SELL", None))
    fill_type = ParsedTrait(parse_choice("amm", "dex", None))
    since = ParsedTrait(parse_day)
    until = ParsedTrait(parse_day)
    figure: ParsedTrait
    every = ParsedTrait(parse_period)
    by: ParsedTrait
    quote: Any = None
    version = Int()
    needs_key = Bool()

    _ready = False

    def __init__(self, source: Client | pd.DataFrame, **choices: Any) -> None:
        widget = type(self).__name__
        check_choices(choices, self.CHOICES, widget)
        self._cache: dict[Any, Any] = {}
        self._client = source if isinstance(source, Client) else None
        self._trades = None if isinstance(source, Client) else _checked_trades(source, widget)
        if self._client is not None and self._client.accounts:
            choices.setdefault("account", self._client.accounts[0])
        elif self._client is None and "account" in choices:
            raise LabError(f"{widget}: account= needs a client, and these are trades already. Give a client.")
        super().__init__(**choices)
        self._ready = True

    @property
    def is_read(self) -> bool:
        """Whether there are trades."""
        return self._trades is not None

    @property
    def client(self) -> Client | None:
        """The client that trades are read with, if any."""
        return self._client

    @property
    def trades(self) -> pd.DataFrame:
        """All trades, before any filter; a LabError if they are not read yet."""
        if self._trades is None:
            raise LabError("No trades are read yet. Choose an account, and read() its trades.")
        return self._trades

    @property
    def markets(self) -> list[str]:
        """Markets of the trades, those with most trades first."""
        return self.names("market")

    def names(self, column: str) -> list[str]:
        """List the names in a column of the trades, those with most trades first."""
        if self._trades is None:
            return []
        return [str(name) for name, count in self._trades[column].value_counts().items() if count]

    def read(self) -> None:
        """Read the account's trades in a thread; `wait` waits for them."""
        client, account = self._client, self.account
        if client is None or account is None:
            raise LabError("There is no account to read. Give a client and an account id.")
        self._trades = None
        self.version += 1

        def read(report: ReportProgress) -> pd.DataFrame:
            import_module("loopring_lab.figures")  # takes a second the first time: better here in the thread
            expected = client.count(account)
            report(0, expected)
            return client.trades(account, progress=lambda held, total: report(held, max(expected, total)))

        self.begin(f"Reading the trades of account {account}", read, self._set_trades)

    def unlock(self, api_key: str) -> None:
        """Read the trades with another API key, which only the client keeps, hidden."""
        key = hide(api_key)
        del api_key
        if self._client is not None:
            self._client = self._client.with_api_key(key)
        self.needs_key = False
        self.read()

    def failed(self, error: LabError) -> None:
        """Handle an error of reading: ask for an API key if that is the reason."""
        self.needs_key = isinstance(error, NotAuthorized)
        super().failed(error)

    @property
    def is_chosen(self) -> bool:
        """Whether any trade matches the filters."""
        try:
            return not self.chosen.empty
        except LabError:
            return False

    @property
    def chosen(self) -> pd.DataFrame:
        """The trades that match the filters; a LabError if none does, or none is read yet."""
        chosen: pd.DataFrame = self._cached("chosen", self._filtered)
        return chosen

    @property
    def table(self) -> pd.DataFrame:
        """The table on screen, from the library function that `export` names."""
        call = self._table_call
        table: pd.DataFrame = self._cached(call.code("chosen"), lambda: call.run(self.chosen))
        return table

    @property
    def shown(self) -> Shown:
        """The table on screen, formatted for reading."""
        table, columns = self.table, self._columns
        if self.figure_spec.one_quote:
            table = table[table["quote"] == self.quote_shown]
        return show(table[columns] if columns else table, precision=DECIMALS, rows=ROWS)

    @property
    def quote_shown(self) -> str | None:
        """The quote token of tables and figures that have just one; by default the one with most fills."""
        if self.quote:
            return str(self.quote)
        counts = self.chosen["quote"].value_counts()
        return str(counts.idxmax()) if counts.any() else None

    @property
    def figure_spec(self) -> FigureSpec:
        """The figure on screen, and the table beside it."""
        return self.FIGURES[self.figure]

    @property
    def summary(self) -> str:
        """How many trades match, and the filters."""
        counts = f"{len(self.chosen):,} of {len(self.trades):,} trades"
        return f"{counts}: {self._filter_text}" if self._filter_text else counts

    def draw(self) -> Figure:
        """Draw the figure on screen, with the library function that `export` names."""
        figure: Figure = self._figure_call.run(self.chosen)
        return figure

    def png(self) -> bytes:
        """Draw the figure on screen as a PNG, 1350 pixels wide."""
        png: bytes = self._cached(self._figure_call.code("chosen"), lambda: as_png(self.draw()))
        return png

    def export(self) -> str:
        """Return code for the same table and figure, from ``client`` or ``trades``, the explorer's source."""
        lines = [] if self._client is None else [f"trades = client.trades(account_id={self.account})"]
        lines.append("chosen = trades")
        lines += [f"chosen = chosen[chosen[{a!r}] {sign} {b!r}]" for a, sign, b in self._conditions]
        lines.append(f"table = {self._table_call.code('chosen')}")
        if self.figure_spec.one_quote:
            lines.append(f"table = table[table['quote'] == {self.quote_shown!r}]")
        columns = f"[{self._columns}]" if self._columns else ""
        lines.append(f"display(lab.show(table{columns}, precision={DECIMALS}, rows={ROWS}))")
        return "\n".join([*lines, self._figure_call.code("chosen")])

    @observe("account")
    def _read_new_account(self, change: Any) -> None:
        if self._ready and change["new"] is not None:
            self.read()

    def _set_trades(self, trades: pd.DataFrame) -> None:
        self._trades, self.needs_key = trades, False
        self.version += 1

    @validate("market")
    def _known_market(self, proposal: Any) -> Any:
        market = proposal["value"]
        if market is not None and self._trades is not None and market not in self.markets:
            raise unknown_value("market", market, self.markets, optional=True)
        return market

    @observe("version")
    def _clear_cache(self, _: object) -> None:
        self._cache.clear()

    def _filtered(self) -> pd.DataFrame:
        frame = self.trades
        if frame.empty:
            raise LabError("There are no trades. Choose another account, or give other trades.")
        for column, sign, value in self._conditions:
            frame = frame[COMPARISONS[sign](frame[column], value)]
        if frame.empty:
            filters = self._filter_text or "no filter"
            raise LabError(f"None of {len(self.trades):,} trades matches ({filters}). Widen the filters.")
        return frame

    @property
    def _filter_text(self) -> str:
        values = {name: getattr(self, name) for name in FILTERS}
        labels = {name: FILTER_LABELS.get(name, name) for name in FILTERS}
        return ", ".join(f"{labels[name]} {value}" for name, value in values.items() if value is not None)

    @property
    def _conditions(self) -> list[tuple[str, str, str]]:
        equal = [(name, "==", getattr(self, name)) for name in ("market", "side", "fill_type")]
        times = [("created_at", ">=", self.since), ("created_at", "<", self.until)]
        return [(column, sign, str(value)) for column, sign, value in [*equal, *times] if value is not None]

    @property
    def _figure_call(self) -> LibraryCall:
        options = {name: getattr(self, trait) for name, trait in self.figure_spec.options.items()}
        return LibraryCall(f"figures.{self.figure}", options)

    @property
    def _table_call(self) -> LibraryCall:
        spec = self.figure_spec
        shared = {name: getattr(self, spec.options[name]) for name in spec.shared}
        return LibraryCall(spec.table, shared | {"by": list(self.by)})

    @property
    def _columns(self) -> list[str]:
        columns = self.figure_spec.columns
        return list(dict.fromkeys([*self.by, *columns])) if columns else []

    def _cached(self, key: str, compute: Callable[[], Any]) -> Any:
        """Compute once for the same filters."""
        with self.lock:
            full_key = (key, tuple(self._conditions))
            if full_key not in self._cache:
                if len(self._cache) >= CACHE_SIZE:
                    self._cache.clear()
                self._cache[full_key] = compute()
            return self._cache[full_key]


class FeeExplorer(Explorer):
    """Explore fees: how much was charged, in which markets, and at what rate.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, whose accounts are read one at a time, or trades.
    **choices
        Initial values: ``account`` (with a client), ``market``, ``side``, ``fill_type`` ('amm' or
        'dex'), ``since``, ``until`` (a day, exclusive), ``figure`` ('fee_rates', 'fee_tiers' or
        'fees_by_token'), ``every`` (such as '1d') and ``by`` ('market', 'fill_type', 'side', 'role').

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> explorer = lab.widgets.FeeExplorer(trades, figure="fee_tiers", every="1d")
    >>> print(explorer.export())
    chosen = trades
    table = lab.fees.summary(chosen, by=['market'])
    display(lab.show(table[...], precision=8, rows=24))
    lab.figures.fee_tiers(chosen, every='1d')
    """

    ABOUT = "fees by market, side, time and fill type, as a figure and a table"
    FIGURES: ClassVar[Mapping[str, FigureSpec]] = {
        "fee_rates": FigureSpec("Fee rate over time", "fees.summary", PER_PERIOD, columns=FEE_COLUMNS),
        "fee_tiers": FigureSpec("Fee tiers over time", "fees.summary", PER_PERIOD, columns=FEE_COLUMNS),
        "fees_by_token": FigureSpec("Fees by token", "fees.summary", {}, columns=FEE_COLUMNS),
    }
    GROUPS: ClassVar[tuple[str, ...]] = ("market", "fill_type", "side", "role")

    figure = ParsedTrait(parse_choice(*FIGURES), "fee_rates")
    by = ParsedTrait(parse_columns(*GROUPS), ("market",))


class FillExplorer(Explorer):
    """Explore fills: AMM pool against order book.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, whose accounts are read one at a time, or trades.
    **choices
        As for `FeeExplorer`, but ``figure`` is 'fill_shares', 'price_gaps', 'size_profile' or 'cost_curve',
        ``by`` is any of 'market', 'quote', 'side', ``tolerance`` ('60s', '10min', '1h', '1d') is the most
        time between two prices that are compared, and ``quote`` is the quote token of sizes.

    Examples
    --------
    >>> explorer = lab.widgets.FillExplorer(client.trades(account_id=10083, limit=100))
    >>> explorer.market = "lrc-eth"
    Traceback (most recent call last):
    loopring_lab.errors.LabError: market='lrc-eth' is not known. Did you mean 'LRC-ETH'?
    """

    ABOUT = "AMM pool against order book: shares, prices and sizes, as a figure and a table"
    CHOICES: ClassVar[tuple[str, ...]] = (*Explorer.CHOICES, "tolerance", "quote")
    FIGURES: ClassVar[Mapping[str, FigureSpec]] = {
        "fill_shares": FigureSpec("Share over time", "fills.breakdown", PER_PERIOD),
        "price_gaps": FigureSpec("Price gap", "fills.price_gap", {"tolerance": "tolerance"}, ("tolerance",)),
        "size_profile": FigureSpec(
            "Size profile", "fills.size_profile", {"quote": "quote_shown"}, (), SIZE_COLUMNS, one_quote=True
        ),
        "cost_curve": FigureSpec(
            "Cost by size",
            "fills.all_in_cost",
            {"quote": "quote_shown", "tolerance": "tolerance"},
            ("tolerance",),
        ),
    }
    GROUPS: ClassVar[tuple[str, ...]] = ("market", "quote", "side")

    figure = ParsedTrait(parse_choice(*FIGURES), "fill_shares")
    by = ParsedTrait(parse_columns(*GROUPS), ())
    tolerance = ParsedTrait(parse_choice("60s", "10min", "1h", "1d"), "1h")
    quote = ParsedTrait(parse_text)


def as_png(figure: Figure) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    png = io.BytesIO()
    pixels = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    Image.fromarray(pixels).convert("RGB").save(png, "png", compress_level=1)
    return png.getvalue()


def _checked_trades(source: Any, widget: str) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame) and {"created_at", "trade_id", "fill_type"} <= set(source.columns):
        return source
    raise LabError(
        f"{widget}: expected a client, or trades as a pandas DataFrame. Give lab.connect() or "
        "client.trades(...)."
    )
