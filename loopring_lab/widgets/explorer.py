"""What the explorers of trades share: the trades, the filters on them, tables, figures, and the code of these."""

from __future__ import annotations

import contextlib
import datetime as dt
import operator
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
from traitlets import Bool, HasTraits, Int

from loopring_lab.amounts.display import name_of
from loopring_lab.client import Client
from loopring_lab.errors import LabError, NotAuthorized
from loopring_lab.query import parse_span
from loopring_lab.redaction import hide
from loopring_lab.widgets.background import Background, ReportProgress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECIMALS = 8  # of amounts on screen; the CSV file has all
ROWS = 24  # of the table in exported code, which fit a screen beside its figure
CACHE_SIZE = 64  # tables and selections, so that going back to a choice is instant
FILTERS = (
    "market",
    "side",
    "fill_type",
    "role",
    "since",
    "until",
)
FILTER_LABELS = {
    "since": "from",
    "until": "before",
    "fill_type": "type",
}
COMPARISONS = {
    "==": operator.eq,
    ">=": operator.ge,
    "<": operator.lt,
}
UNKNOWN = "unknown"
ROLES = ("taker", "maker", UNKNOWN, None)
IS_NULL = "isna()"
SPANS = {
    "7 days": pd.DateOffset(days=7),
    "30 days": pd.DateOffset(days=30),
    "quarter": pd.DateOffset(months=3),
    "year": pd.DateOffset(years=1),
}
HORIZONS = {
    "60s": ("1min", "5min", "1h"),
    "10min": ("10min", "1h", "6h"),
    "1h": ("1h", "6h", "1d"),
}
"""Times after a fill at which prices as far apart as these say something."""
BY = {"by": "groups"}
NO_ACCOUNT = "No account is chosen. Enter an account id, such as 10083, or several."


class FigureSpec(NamedTuple):
    """A figure that an explorer offers, and the table beside it.

    ``options`` and ``table_options`` map arguments of the two to attributes of the `Selection`.
    """

    label: str
    table: str
    options: Mapping[str, str]
    table_options: Mapping[str, str] = BY
    columns: tuple[str, ...] = ()
    one_quote: bool = False


class LibraryCall(NamedTuple):
    """A call of a library function on trades, to be run or written as code, without options that are None.

    Screen and code come from the same call, so that they cannot differ.
    """

    function: str
    options: Mapping[str, Any]

    def run(self, trades: pd.DataFrame) -> Any:
        """Call the function."""
        # By name, because figures bring matplotlib, which code alone does not need.
        module, name = self.function.split(".")
        function = getattr(import_module(f"loopring_lab.{module}"), name)
        return function(trades, **self._given())

    def code(self, trades: str) -> str:
        """Write the call."""
        arguments = [trades]
        for name, value in self._given().items():
            # A frame cannot be written out; the notebook has a name for it.
            is_frame = isinstance(value, pd.DataFrame)
            written = name_of(value, name) if is_frame else repr(value)
            arguments.append(f"{name}={written}")
        return f"lab.{self.function}({', '.join(arguments)})"

    def _given(self) -> dict[str, Any]:
        return {
            name: value for name, value in self.options.items() if value is not None
        }


class Condition(NamedTuple):
    """A filter on one column, to be applied to trades or written as code."""

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


class Selection(HasTraits):
    """Trades, those that an explorer's choices select, and what is on screen of them.

    Each property raises a LabError that says what to choose where there is nothing to show.
    """

    version = Int()  # counts how often the trades, or the prices beside them, changed
    needs_key = Bool()  # whether the relayer asks for another API key

    def __init__(
        self,
        choices: Any,
        source: Client | pd.DataFrame,
        prices: pd.DataFrame | None,
    ) -> None:
        super().__init__()
        self.choices = choices
        self.background: Background = choices.background
        self.client: Client | None = None
        self._trades: pd.DataFrame | None = None
        if isinstance(source, pd.DataFrame):
            self._trades = source
        else:
            self.client = source
        self._given_prices = prices
        self._prices_asked_for: object = None
        self._cache: dict[Any, Any] = {}

    # Where the trades come from

    @property
    def is_read(self) -> bool:
        """Whether there are trades."""
        return self._trades is not None

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

    def read(self) -> None:
        """Read the trades of the accounts in the background."""
        client = self.client
        accounts = self.accounts
        if client is None:
            raise LabError("These are trades. Give a client to read others.")
        if not accounts:
            raise LabError(NO_ACCOUNT)
        self._set_trades(None)

        def read(report: ReportProgress) -> pd.DataFrame:
            # It takes a second the first time, which is better spent in this thread than before a figure.
            import_module("loopring_lab.figures")
            expected = sum(client.count(account) for account in accounts)
            report(0, expected)
            frames: list[pd.DataFrame] = []
            before = 0

            def report_all(held: int, _: int) -> None:
                # An account that trades meanwhile has more than was counted.
                report(before + held, max(expected, before + held))

            for account in accounts:
                frame = client.trades(account, progress=report_all)
                frames.append(frame)
                before += len(frame)
            if len(frames) == 1:
                return frames[0]
            return pd.concat(frames, ignore_index=True)

        def ask_for_key(error: LabError) -> None:
            self.needs_key = isinstance(error, NotAuthorized)

        names = ", ".join(map(str, accounts))
        noun = "account" if len(accounts) == 1 else "accounts"
        self.background.begin(
            f"Reading the trades of {noun} {names}",
            read,
            self._set_trades,
            ask_for_key,
        )

    def forget(self) -> None:
        """Forget the trades, and any that are being read."""
        self.background.drop()
        self._set_trades(None)

    def unlock(self, api_key: str) -> None:
        """Read the trades with another API key, which only the client keeps, hidden."""
        key = hide(api_key)
        del api_key
        if self.client is not None:
            self.client = self.client.with_api_key(key)
        self.needs_key = False
        self.read()

    def _set_trades(self, trades: pd.DataFrame | None) -> None:
        self._trades = trades
        self._cache.clear()
        if trades is not None:
            self.needs_key = False
            # The market may have been chosen in another case; one that these trades lack stays.
            with contextlib.suppress(LabError):
                self.choices.market = self.choices.market
        self.version += 1

    # Which of the trades are selected

    @property
    def chosen(self) -> pd.DataFrame:
        """The trades that match the filters."""
        chosen: pd.DataFrame = self._cached("chosen", self._filtered)
        return chosen

    @property
    def is_chosen(self) -> bool:
        """Whether any trade matches the filters."""
        try:
            return not self.chosen.empty
        except LabError:
            return False

    @property
    def summary(self) -> str:
        """How many trades match, the filters, and how many trades of unknown role a role leaves out."""
        counts = f"{len(self.chosen):,} of {len(self.trades):,} trades"
        if self._filter_text:
            counts += f": {self._filter_text}"
        left_out = self._cached("unknown roles", self._count_unknown_roles)
        if left_out:
            counts += f"; {left_out:,} of unknown role are left out"
        return counts

    def names(self, column: str) -> list[str]:
        """List the names in a column of the trades, those with most trades first."""
        if self._trades is None:
            return []
        counts = self._trades[column].value_counts()
        return [str(name) for name in counts[counts > 0].index]

    @property
    def newest(self) -> pd.Timestamp | None:
        """The day of the newest trade, with which the periods on offer end."""
        if self._trades is None:
            return None
        newest = self._trades["created_at"].max()
        return None if pd.isna(newest) else newest.normalize()

    def first_day(self, span: str) -> dt.date:
        """Return the first day of one of the `SPANS` up to the newest trade."""
        end = self.trades["created_at"].max().normalize() + pd.Timedelta(days=1)
        first: dt.date = (end - SPANS[span]).date()
        return first

    def check_dates(self) -> None:
        """Raise a LabError if the first day is after the last."""
        days = (self.choices.since, self.choices.until)
        parse_span(*(day and day.isoformat() for day in days))

    @property
    def _conditions(self) -> list[Condition]:
        choices = self.choices
        wanted = [
            ("market", "==", choices.market),
            ("side", "==", choices.side),
            ("fill_type", "==", choices.fill_type),
            (
                "role",
                IS_NULL if choices.role == UNKNOWN else "==",
                choices.role,
            ),
            ("created_at", ">=", choices.since),
            ("created_at", "<", choices.until),
        ]
        return [
            Condition(column, sign, str(value))
            for column, sign, value in wanted
            if value is not None
        ]

    @property
    def _filter_text(self) -> str:
        texts = []
        for name in FILTERS:
            value = getattr(self.choices, name)
            if value is not None:
                texts.append(f"{FILTER_LABELS.get(name, name)} {value}")
        return ", ".join(texts)

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
            raise LabError(f"{none}{self._other_roles()} Widen the filters.")
        return frame

    def _matching(self, conditions: list[Condition]) -> pd.DataFrame:
        # Finding roles takes longer than all filters, so it is done only where one is chosen.
        frame = self._with_roles() if self._finds_roles else self.trades
        for condition in conditions:
            frame = condition.apply(frame)
        return frame

    def _matching_but_for_role(self) -> pd.Series:
        """Return the roles of the trades that match all other filters."""
        others = [
            condition for condition in self._conditions if condition.column != "role"
        ]
        return self._matching(others)["role"]

    def _other_roles(self) -> str:
        """Say what roles the trades have that match but for their role."""
        if self.choices.role is None:
            return ""
        roles = self._matching_but_for_role().astype("object").fillna(UNKNOWN)
        counts = [f"{name} {count:,}" for name, count in roles.value_counts().items()]
        return f" By role: {', '.join(counts)}." if counts else ""

    def _count_unknown_roles(self) -> int:
        # Without a role nothing is left out, and with "unknown" these are what is shown.
        if self.choices.role in (None, UNKNOWN):
            return 0
        return int(self._matching_but_for_role().isna().sum())

    @property
    def _finds_roles(self) -> bool:
        """Whether a role is wanted, and not all are reported."""
        if self.choices.role is None or self._trades is None:
            return False
        return bool(self._trades["role"].hasnans)

    def _with_roles(self) -> pd.DataFrame:
        if "roles" not in self._cache:
            self._cache["roles"] = import_module("loopring_lab.fills").with_roles(
                self.trades
            )
        found: pd.DataFrame = self._cache["roles"]
        return found

    # What is on screen of them

    @property
    def spec(self) -> FigureSpec:
        """The figure on screen, and the table beside it."""
        spec: FigureSpec = self.choices.FIGURES[self.choices.figure]
        return spec

    @property
    def table(self) -> pd.DataFrame:
        """The table of the library function that `export` names."""
        call = self._table_call
        table: pd.DataFrame = self._cached(
            call.code("chosen"), lambda: call.run(self.chosen)
        )
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

    def draw(self) -> Figure:
        """Draw the figure, with the library function that `export` names."""
        figure: Figure = self._figure_call.run(self.chosen)
        return figure

    @property
    def figure_key(self) -> object:
        """What the figure depends on: it is the same while this is."""
        return (
            self.version,
            self._figure_call.code("chosen"),
            *self._conditions,
        )

    def export(self) -> str:
        """Write code for the same table and figure, from the source as the notebook names it, or as here."""
        lines = [
            "import loopring_lab as lab",
            *self._code_of_trades(),
        ]
        lines += [
            f"chosen = chosen[{condition.code()}]" for condition in self._conditions
        ]
        if self._uses_prices and self._given_prices is None:
            client = name_of(self.client, "client")
            lines.append(
                f"prices = {client}.outside_prices(chosen, every={self._prices_every!r})"
            )
        lines.append(f"table = {self._table_call.code('chosen')}")
        if self.spec.one_quote:
            lines.append(f"table = table[table['quote'] == {self.quote_shown!r}]")
        columns = f"[{self._columns}]" if self._columns else ""
        lines.append(f"lab.show(table{columns}, precision={DECIMALS}, rows={ROWS})")
        lines.append(self._figure_call.code("chosen"))
        return "\n".join(lines)

    def _code_of_trades(self) -> list[str]:
        lines = []
        trades = "trades"
        if self.client is None:
            trades = name_of(self._trades, trades)
        else:
            if not self.accounts:
                raise LabError(NO_ACCOUNT)
            client = name_of(self.client, "client")
            if len(self.accounts) == 1:
                lines.append(f"trades = {client}.trades(account_id={self.accounts[0]})")
            else:
                frames = f"{client}.trades(account_id=account) for account in {tuple(self.accounts)}"
                lines.append("import pandas as pd")
                lines.append(f"trades = pd.concat([{frames}], ignore_index=True)")
        if self._finds_roles:
            trades = f"lab.fills.with_roles({trades})"
        return [*lines, f"chosen = {trades}"]

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
        if self._given_prices is not None:
            return self._given_prices
        found: pd.DataFrame | None = self._cache.get(self._prices_key)
        if found is None:
            raise LabError(
                f"{self.spec.label} needs prices from outside the exchange. {self._way_to_prices}"
            )
        return found

    # Prices from outside the exchange

    def prepare(self) -> bool:
        """Begin to read the prices that the figure lacks, once, and say whether they are being read."""
        if not self._uses_prices:
            self._prices_asked_for = None
            return False
        is_there = self._given_prices is not None or self._prices_key in self._cache
        if is_there or not self._can_read_prices:
            return False
        # Prices that could not be read are not asked for again until something else is chosen.
        if self._prices_asked_for != self._prices_key:
            self.read_prices()
        return bool(self.background.doing)

    def read_prices(self) -> None:
        """Read prices from outside the exchange for these filters in the background."""
        # Kept now, as the filters may change while the thread reads.
        client = self.client
        chosen = self.chosen
        key = self._prices_key
        if client is None:
            raise LabError(
                f"There is no client to read prices with. {self._way_to_prices}"
            )
        self._prices_asked_for = key

        def read(_: ReportProgress) -> pd.DataFrame:
            prices = client.outside_prices(chosen, every=self._prices_every)
            if prices is None:
                raise LabError(
                    f"The relayer has no prices from outside. {self._way_to_prices}"
                )
            return prices

        def keep(prices: pd.DataFrame) -> None:
            self._cache[key] = prices
            self.version += 1

        self.background.begin(
            "Reading prices from outside the exchange",
            read,
            keep,
        )

    @property
    def _uses_prices(self) -> bool:
        return "prices" in self.spec.options

    @property
    def _can_read_prices(self) -> bool:
        # Only the synthetic world knows what tokens cost elsewhere.
        return self.client is not None and self.client.synthetic

    @property
    def _prices_every(self) -> str:
        # Over a day and longer, prices of every hour are fine enough.
        return self.tolerance if self.tolerance in HORIZONS else "1h"

    @property
    def _prices_key(self) -> object:
        return "prices", self._prices_every, *self._conditions

    @property
    def _way_to_prices(self) -> str:
        if self._can_read_prices:
            return "Show the widget, which reads them, or give prices=client.outside_prices(trades)."
        return "Give prices=, a frame such as lab.tables.prices reads from a file."

    # Helpers

    @property
    def _figure_call(self) -> LibraryCall:
        options = self._arguments(self.spec.options)
        return LibraryCall(f"figures.{self.choices.figure}", options)

    @property
    def _table_call(self) -> LibraryCall:
        options = self._arguments(self.spec.table_options)
        return LibraryCall(self.spec.table, options)

    def _arguments(self, attributes: Mapping[str, str]) -> dict[str, Any]:
        return {
            name: getattr(self, attribute) for name, attribute in attributes.items()
        }

    @property
    def _columns(self) -> list[str]:
        if not self.spec.columns:
            return []
        return list(dict.fromkeys([*self.groups, *self.spec.columns]))

    def _cached(self, key: str, compute: Callable[[], Any]) -> Any:
        """Compute once for the same filters."""
        with self.background.lock:
            full_key = (key, *self._conditions)
            if full_key not in self._cache:
                # Dropping everything is simple, and a whole round of choices fits again.
                if len(self._cache) >= CACHE_SIZE:
                    self._cache.clear()
                self._cache[full_key] = compute()
            return self._cache[full_key]
