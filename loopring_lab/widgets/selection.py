"""What the explorers of trades share: the trades, the filters on them, tables, figures, and the code of these."""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import operator
from collections.abc import Callable, Mapping
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from loopring_lab.amounts.display import name_of
from loopring_lab.arguments import parse_span
from loopring_lab.errors import LabError, NotAuthorized
from loopring_lab.redaction import hide
from loopring_lab.widgets.background import Background, ReportProgress, Result

if TYPE_CHECKING:
    from loopring_lab.figures import Figure
    from loopring_lab.sources.trade_source import TradeSource

# Decimals of amounts on screen: the precision of the tokens in the synthetic world is 7 at most. The CSV file has all.
DECIMALS = 8
# Rows of the table in exported code, which fit a screen beside its figure.
ROWS = 24
# Tables, figures and selections that are kept, so that going back to a choice is instant: three for each of some
# twenty choices.
CACHE_SIZE = 64
# More trades than this are drawn in the background, whatever the figure: they may take more than a moment.
MANY = 50_000
COMPARISONS = {
    "==": operator.eq,
    ">=": operator.ge,
    "<": operator.lt,
}
UNKNOWN = "unknown"
ROLES = ("taker", "maker", UNKNOWN, None)
IS_NULL = "isna()"
# Periods on offer, up to the newest trade.
SPANS = {
    "7 days": pd.DateOffset(days=7),
    "30 days": pd.DateOffset(days=30),
    "quarter": pd.DateOffset(months=3),
    "year": pd.DateOffset(years=1),
}
# Times after a fill at which prices as far apart as these say something.
HORIZONS = {
    "60s": ("1min", "5min", "1h"),
    "10min": ("10min", "1h", "6h"),
    "1h": ("1h", "6h", "1d"),
}
BY = {"by": "groups"}
# The column that `research.with_flow` adds, and how old its prices may be: it looks for gaps of minutes.
FLOW = "flow"
FLOW_PRICES = "60s"
NO_ACCOUNT = "No account is chosen. Enter an account id, such as 10083, or several."


class FigureSpec(NamedTuple):
    """A figure that an explorer offers, and the table beside it.

    ``options`` and ``table_options`` map arguments of the two to attributes of the `Selection`. The figure is drawn by
    the function of its name in `figures`, in the background if it is ``slow``.
    """

    label: str
    table: str
    options: Mapping[str, str]
    table_options: Mapping[str, str] = BY
    columns: tuple[str, ...] = ()
    one_quote: bool = False
    slow: bool = False


class Drawn(NamedTuple):
    """What is on screen: a table without a figure where only the figure cannot be drawn, and why."""

    table: pd.DataFrame | None = None
    figure: Figure | None = None
    problem: LabError | None = None


class LibraryCall(NamedTuple):
    """A call of a library function on trades, to be run or written as code.

    Screen and code come from the same call, so that they cannot differ.
    """

    function: str
    options: Mapping[str, Any]

    def run(self, trades: pd.DataFrame) -> Any:
        """Call the function."""
        # The function is imported by name, because figures bring matplotlib, which code alone does not need.
        module, _, name = self.function.rpartition(".")
        function = getattr(import_module(f"loopring_lab.{module}"), name)
        return function(trades, **self.options)

    def code(self, trades: str) -> str:
        """Write the call."""
        arguments = [trades]
        for name, value in self.options.items():
            # A frame cannot be written out; the notebook has a name for it.
            is_frame = isinstance(value, pd.DataFrame)
            written = name_of(value, name) if is_frame else repr(value)
            arguments.append(f"{name}={written}")
        return f"lab.{self.function}({', '.join(arguments)})"


WITH_ROLES = LibraryCall("fills.with_roles", {})


class Condition(NamedTuple):
    """A filter on one column, to be applied to trades or written as code; `label` is for a summary."""

    label: str
    column: str
    sign: str
    value: str

    def apply(self, trades: pd.DataFrame) -> pd.DataFrame:
        """Keep the trades that meet it."""
        column = trades[self.column]
        if self.sign == IS_NULL:
            return trades[column.isna()]
        is_met: pd.Series = COMPARISONS[self.sign](column, self.value)
        return trades[is_met]

    def code(self) -> str:
        """Write it as a condition on the trades chosen so far."""
        column = f"chosen[{self.column!r}]"
        if self.sign == IS_NULL:
            return f"{column}.{IS_NULL}"
        return f"{column} {self.sign} {self.value!r}"


class Selection:
    """Trades, those that an explorer's choices select, and what is on screen of them.

    Each property raises a LabError that says what to choose where there is nothing to show.
    """

    def __init__(
        self,
        choices: Any,
        source: TradeSource | pd.DataFrame,
    ) -> None:
        self.choices = choices
        self.background: Background = choices.background
        # Whether the relayer asks for another API key.
        self.needs_key = False
        # The client to ask. With another API key it is a copy of the one given, for which the notebook has a name.
        self.client: TradeSource | None = None
        self._given = source
        self._trades: pd.DataFrame | None = None
        if isinstance(source, pd.DataFrame):
            self._trades = source
        else:
            self.client = source
        self.given_prices: pd.DataFrame | None = None
        # Prices that were read, by `_prices_key`.
        self._read_prices: dict[object, pd.DataFrame] = {}
        # The last thing that was to be read, whether or not it could be.
        self._tried: object = None
        # Trades with roles, and what `_cached` computes.
        self._cache: dict[Any, Any] = {}

    # Reading

    @property
    def trades(self) -> pd.DataFrame:
        """All trades, before any filter."""
        if self._trades is None:
            raise LabError(
                "No trades are read yet. Choose an account, and read() its trades."
            )
        return self._trades

    @property
    def accounts(self) -> list[int]:
        """The accounts whose trades are read."""
        account = self.choices.account
        if self.client is None or account is None:
            return []
        return [*account] if isinstance(account, tuple) else [account]

    @property
    def _account_argument(self) -> int | list[int]:
        """The accounts as `Client.trades` takes them."""
        return self.accounts if len(self.accounts) > 1 else self.accounts[0]

    def read_what_is_missing(self) -> bool:
        """Begin what takes long, and say whether it is under way: reading trades and prices, then a slow figure."""
        missing, begin = self._missing()
        work = self.background
        # Without an account `read` raises before anything counts as tried, and so says it each time.
        if begin is not None:
            if missing != self._tried or work.is_clear:
                begin()
        elif work.doing:
            # It is for earlier choices.
            work.drop()
        self._tried = missing
        return begin is not None and bool(work.doing)

    def _missing(self) -> tuple[object, Callable[[], None] | None]:
        """Return what is to be read next, to be told from other things, and what reads it."""
        if self._trades is None:
            return self.accounts, self.read
        if self._lacks_prices:
            return self._prices_key, self.read_prices
        if self._is_slow and self._choice_key not in self._cache:
            return self._choice_key, self.draw
        return None, None

    def read(self) -> None:
        """Read the trades of the accounts in the background."""
        client = self.client
        accounts = self.accounts
        if client is None:
            raise LabError("These are trades. Give a client to read others.")
        if not accounts:
            raise LabError(NO_ACCOUNT)
        self.forget()
        self._tried = accounts
        # The account is taken now, as the choice may change while the thread reads.
        account_id = self._account_argument

        def download(report: ReportProgress) -> pd.DataFrame:
            # It takes a second the first time, which is better spent in this thread than before a figure.
            import_module("loopring_lab.figures")
            try:
                return client.trades(account_id, progress=report)
            except NotAuthorized:
                self.needs_key = True
                raise

        names = ", ".join(map(str, accounts))
        noun = "account" if len(accounts) == 1 else "accounts"
        self.background.begin(
            f"Reading the trades of {noun} {names}",
            download,
            self._set_trades,
        )

    def forget(self) -> None:
        """Forget the trades."""
        self._trades = None
        # What is computed in the background meanwhile ends up in the old ones.
        self._read_prices = {}
        self._cache = {}
        self.needs_key = False

    def unlock(self, api_key: str) -> None:
        """Read the trades with another API key, which only the client keeps, hidden."""
        key = hide(api_key)
        del api_key
        client: Any = self.client
        self.client = client.with_api_key(key)
        self.read()

    def _set_trades(self, trades: pd.DataFrame) -> None:
        self._trades = trades
        # The market may have been chosen in another case; one that these trades lack stays.
        with contextlib.suppress(LabError):
            self.choices.market = self.choices.market

    def read_prices(self) -> None:
        """Read prices from outside the exchange for these filters in the background."""
        # All of these are taken now, as the filters may change while the thread reads.
        client: Any = self.client
        chosen = self.chosen
        every = self._prices_every
        key = self._prices_key

        def download(report: ReportProgress) -> pd.DataFrame:
            prices: pd.DataFrame | None = client.outside_prices(
                chosen, every=every, progress=report
            )
            if prices is None:
                raise LabError(
                    f"The relayer has no prices from outside. {self._way_to_prices}"
                )
            return prices

        self.background.begin(
            "Reading prices from outside the exchange",
            download,
            lambda prices: self._read_prices.update({key: prices}),
        )

    def draw(self) -> None:
        """Compute table and figure in the background."""
        # The choices may change while the thread computes, so it has a copy of them.
        chosen = {name: getattr(self.choices, name) for name in self.choices.CHOICES}
        as_now = copy.copy(self)
        as_now.choices = SimpleNamespace(**chosen, FIGURES=self.choices.FIGURES)
        key = self._choice_key
        self.background.begin(
            f"Drawing {self.spec.label}",
            lambda _: as_now.computed(),
            lambda drawn: as_now.keep(key, drawn),
        )

    def computed(self) -> Drawn:
        """Compute the table and the figure."""
        table = None
        try:
            table = self.shown
            return Drawn(table, self.figure)
        except LabError as error:
            return Drawn(table, problem=error)

    def drawn(self) -> Drawn:
        """Return the table and the figure; of slow ones what was computed, which is nothing if that was cancelled."""
        if self._trades is not None and self._is_slow:
            found: Drawn = self._cache.get(self._choice_key, Drawn())
            return found
        return self.computed()

    @property
    def is_drawing(self) -> bool:
        """Whether what these choices show is being computed."""
        return self._tried == self._choice_key and bool(self.background.doing)

    @property
    def _is_slow(self) -> bool:
        """Whether figure and table may take more than a moment."""
        return self.spec.slow or self._finds_flow or len(self.trades) > MANY

    @property
    def _choice_key(self) -> tuple[Any, ...]:
        return tuple(getattr(self.choices, name) for name in self.choices.CHOICES)

    # The selected trades

    @property
    def chosen(self) -> pd.DataFrame:
        """The trades that match the filters."""
        return self._cached("chosen", self._filtered)

    @property
    def summary(self) -> str:
        """The figure, how many trades match, the filters, and how many of unknown role a role leaves out."""
        counts = f"{len(self.chosen):,} of {len(self.trades):,} trades"
        if self._filter_text:
            counts += f": {self._filter_text}"
        if self._reference:
            counts += f"; reference: {self._reference}"
        # Without a role nothing is left out, and with "unknown" these are what is shown.
        if self.choices.role not in (None, UNKNOWN):
            left_out = self._cached("roles", self._count_roles).get(UNKNOWN)
            if left_out:
                counts += f"; without {left_out:,} of unknown role"
        return f"{self.spec.label}, {counts}"

    @property
    def market_names(self) -> list[str]:
        """The markets of the trades, those with most trades first."""
        return self.names("market")

    def names(self, column: str) -> list[str]:
        """List the names in a column of the trades, those with most trades first."""
        if self._trades is None:
            return []
        counts = self._trades[column].value_counts()
        return [str(name) for name in counts[counts > 0].index]

    @property
    def periods(self) -> dict[str, dt.date | None]:
        """The first days of the periods on offer, up to the newest trade."""
        periods: dict[str, dt.date | None] = {"all": None}
        newest = pd.NaT
        if self._trades is not None:
            newest = self._trades["created_at"].max()
        if pd.isna(newest):
            return periods
        end = newest.normalize() + pd.Timedelta(days=1)
        for span, length in SPANS.items():
            periods[f"{span} to {newest.day} {newest:%b %Y}"] = (end - length).date()
        return periods

    def check_dates(self) -> None:
        """Raise a LabError if the first day is after the last."""
        days = [self.choices.since, self.choices.until]
        since, until = (None if day is None else day.isoformat() for day in days)
        parse_span(since, until)

    @property
    def _conditions(self) -> list[Condition]:
        choices = self.choices
        # Trades of unknown role have none.
        role_sign = IS_NULL if choices.role == UNKNOWN else "=="
        wanted = [
            ("market", "market", "==", choices.market),
            ("side", "side", "==", choices.side),
            ("type", "fill_type", "==", choices.fill_type),
            ("role", "role", role_sign, choices.role),
            ("from", "created_at", ">=", choices.since),
            ("before", "created_at", "<", choices.until),
        ]
        return [
            Condition(label, column, sign, str(value))
            for label, column, sign, value in wanted
            if value is not None
        ]

    @property
    def _filter_text(self) -> str:
        return ", ".join(f"{one.label} {one.value}" for one in self._conditions)

    def _filtered(self) -> pd.DataFrame:
        if self.trades.empty:
            whose = "There are"
            if len(self.accounts) == 1:
                whose = f"Account {self.accounts[0]} has"
            raise LabError(
                f"{whose} no trades. Choose another account, or give other trades."
            )
        self.check_dates()
        frame = self._matching(self._conditions)
        if frame.empty:
            filters = self._filter_text or "no filter"
            none = f"None of {len(self.trades):,} trades matches ({filters})."
            roles = self._count_roles() if self.choices.role else {}
            if roles:
                counts = [f"{name} {count:,}" for name, count in roles.items()]
                none += f" By role: {', '.join(counts)}."
            raise LabError(f"{none} Widen the filters.")
        return frame

    def _matching(self, conditions: list[Condition]) -> pd.DataFrame:
        frame = self.trades
        # Finding roles takes longer than all filters, so it is done once, and only where one is chosen.
        if self._finds_roles:
            if "with roles" not in self._cache:
                self._cache["with roles"] = WITH_ROLES.run(frame)
            frame = self._cache["with roles"]
        for condition in conditions:
            frame = condition.apply(frame)
        return frame

    def _count_roles(self) -> dict[str, int]:
        """Count the trades that match all other filters by their role."""
        others = [one for one in self._conditions if one.column != "role"]
        roles = self._matching(others)["role"].astype("object").fillna(UNKNOWN)
        return dict(roles.value_counts())

    @property
    def _finds_roles(self) -> bool:
        """Whether a role is wanted, and not all are reported."""
        if self.choices.role is None or self._trades is None:
            return False
        return bool(self._trades["role"].hasnans)

    # The figure and the table on screen

    @property
    def spec(self) -> FigureSpec:
        """The figure on screen, and the table beside it."""
        spec: FigureSpec = self.choices.FIGURES[self.choices.figure]
        return spec

    @property
    def table(self) -> pd.DataFrame:
        """The table of the library function that `export` names."""
        table: pd.DataFrame = self._called(self._table_call)
        return table

    @property
    def shown(self) -> pd.DataFrame:
        """The columns and rows of the table that are on screen."""
        table = self.table
        # Amounts in several tokens have no common axis, so figure and table show one.
        if self.spec.one_quote:
            table = table[table["quote"] == self.quote_shown]
        if self._columns:
            table = table[self._columns]
        return table

    @property
    def figure(self) -> Figure:
        """The figure of the library function that `export` names; the same object for the same choices."""
        figure: Figure = self._called(self._figure_call)
        return figure

    def export(self) -> str:
        """Write code for the same table and figure, from the source as the notebook names it, or as here."""
        lines = ["import loopring_lab as lab"]
        client = name_of(self._given, "client")
        trades = "trades"
        if self.client is None:
            trades = name_of(self._trades, trades)
        else:
            if not self.accounts:
                raise LabError(NO_ACCOUNT)
            accounts = self._account_argument
            lines.append(f"trades = {client}.trades(account_id={accounts})")
        if self._finds_roles:
            trades = WITH_ROLES.code(trades)
        lines.append(f"chosen = {trades}")
        lines += [
            f"chosen = chosen[{condition.code()}]" for condition in self._conditions
        ]
        if self._uses_prices and self._reads_prices:
            every = repr(self._prices_every)
            lines.append(f"prices = {client}.outside_prices(chosen, every={every})")
        if self._finds_flow:
            prices = name_of(self.given_prices, "prices")
            lines.append(f"chosen = lab.research.with_flow(chosen, {prices})")
        lines.append(f"table = {self._table_call.code('chosen')}")
        if self.spec.one_quote:
            lines.append(f"table = table[table['quote'] == {self.quote_shown!r}]")
        columns = f"[{self._columns}]" if self._columns else ""
        lines.append(f"lab.show(table{columns}, precision={DECIMALS}, rows={ROWS})")
        lines.append(self._figure_call.code("chosen"))
        return "\n".join(lines)

    # Arguments of the library functions, as `FigureSpec` names them

    @property
    def every(self) -> str | None:
        """The period of figures over time."""
        every: str | None = self.choices.every
        return every

    @property
    def tolerance(self) -> str:
        """The most time between two prices that are compared."""
        return str(self.choices.tolerance)

    @property
    def groups(self) -> list[str]:
        """The columns that the table is grouped by."""
        return list(self.choices.by)

    @property
    def compared_by(self) -> list[str]:
        """The columns with a line each in the comparison of venues."""
        # Without a grouping, a line for each market shows whether they agree.
        return self.groups or ["market"]

    @property
    def markouts_by(self) -> list[str]:
        """The columns that markouts are grouped by: the fill type always, as in the figure."""
        return ["fill_type", *self.groups]

    @property
    def horizons(self) -> tuple[str, ...]:
        """The times after a fill at which its markouts are taken."""
        return HORIZONS[self._prices_every]

    @property
    def quote_shown(self) -> str | None:
        """The quote token of tables and figures that have just one; by default the one with most fills."""
        if self.choices.quote:
            return str(self.choices.quote)
        counts = self.chosen["quote"].value_counts()
        return str(counts.idxmax()) if counts.any() else None

    @property
    def prices(self) -> pd.DataFrame:
        """Prices from outside the exchange: as given, or as read for these filters."""
        if self.given_prices is not None:
            return self.given_prices
        if self._prices_key not in self._read_prices:
            what = "Flow" if self._finds_flow else self.spec.label
            raise LabError(
                f"{what} needs prices from outside the exchange. {self._way_to_prices}"
            )
        return self._read_prices[self._prices_key]

    @property
    def prices_if_any(self) -> pd.DataFrame | None:
        """`prices`; None where none are given and none can be read: the trades themselves are the reference then."""
        if self.given_prices is None and not self._reads_prices:
            return None
        return self.prices

    @property
    def _finds_flow(self) -> bool:
        """Whether trades are grouped by flow, and it is not known yet."""
        if FLOW not in self.groups or self._trades is None:
            return False
        return FLOW not in self._trades

    @property
    def _reference(self) -> str:
        """What the figure compares prices with: the same in all figures that can take it."""
        if "prices" in self.spec.options:
            is_outside = self.given_prices is not None or self._reads_prices
            return "outside prices" if is_outside else "these trades"
        takes_age = "tolerance" in self.spec.options
        return "the other venue's last fill" if takes_age else ""

    @property
    def _uses_prices(self) -> bool:
        return "prices" in self.spec.options or self._finds_flow

    @property
    def _lacks_prices(self) -> bool:
        """Whether the figure needs prices that can be read."""
        if not (self._uses_prices and self._reads_prices):
            return False
        return self._prices_key not in self._read_prices

    @property
    def _reads_prices(self) -> bool:
        """Whether prices are read where they are needed: none are given, and the client has some."""
        if self.given_prices is not None or self.client is None:
            return False
        # Only the synthetic world knows what tokens cost elsewhere.
        return self.client.synthetic

    @property
    def _prices_every(self) -> str:
        if self._finds_flow:
            return FLOW_PRICES
        # Over a day and longer, prices of every hour are fine enough.
        return self.tolerance if self.tolerance in HORIZONS else "1h"

    @property
    def _prices_key(self) -> tuple[Any, ...]:
        return (self._prices_every, *self._conditions)

    @property
    def _way_to_prices(self) -> str:
        if self._reads_prices:
            return "Show the widget, which reads them, or give prices=client.outside_prices(trades)."
        return "Give prices=, a frame such as lab.tables.prices reads from a file."

    # Helpers

    @property
    def _figure_call(self) -> LibraryCall:
        return self._call(f"figures.{self.choices.figure}", self.spec.options)

    @property
    def _table_call(self) -> LibraryCall:
        return self._call(self.spec.table, self.spec.table_options)

    def _call(self, function: str, attributes: Mapping[str, str]) -> LibraryCall:
        options = {name: getattr(self, of) for name, of in attributes.items()}
        # Options that are not chosen are left to the function.
        given = {name: one for name, one in options.items() if one is not None}
        return LibraryCall(function, given)

    def _called(self, call: LibraryCall) -> Any:
        """Call a library function on the chosen trades, once for the same arguments."""
        key = (call.code("chosen"), self._finds_flow)
        return self._cached(key, lambda: call.run(self._judged))

    @property
    def _judged(self) -> Any:
        """The chosen trades, with the flow of their takers where that is wanted."""
        if not self._finds_flow:
            return self.chosen
        judge = LibraryCall("research.with_flow", {"prices": self.prices})
        return self._cached("with flow", lambda: judge.run(self.chosen))

    @property
    def _columns(self) -> list[str]:
        if not self.spec.columns:
            return []
        return list(dict.fromkeys([*self.groups, *self.spec.columns]))

    def _cached(self, key: object, compute: Callable[[], Result]) -> Result:
        """Compute once for the same filters."""
        of_filters = (key, *self._conditions)
        found: Result | None = self._cache.get(of_filters)
        if found is None:
            found = compute()
            self.keep(of_filters, found)
        return found

    def keep(self, key: object, result: object) -> None:
        """Keep what was computed."""
        # Dropping everything is simple, and a whole round of choices fits again.
        if len(self._cache) >= CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = result
