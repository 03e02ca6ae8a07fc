"""What the explorers of trades share: trades, the filters applied to them, tables, figures, code."""

from __future__ import annotations

import contextlib
import datetime as dt
import operator
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pandas as pd
from traitlets import Bool, Int, observe, validate

from loopring_lab.amounts.display import name_of
from loopring_lab.client import Client
from loopring_lab.errors import LabError, NotAuthorized
from loopring_lab.query import parse_span
from loopring_lab.redaction import hide
from loopring_lab.trade_source import TradeSource
from loopring_lab.widgets.background import ReportProgress, WidgetState
from loopring_lab.widgets.traits import (
    ParsedTrait,
    check_choices,
    known_name,
    parse_accounts,
    parse_choice,
    parse_day,
    parse_period,
    parse_text,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DECIMALS, ROWS, CACHE_SIZE = 8, 24, 64
FILTERS = ("market", "side", "fill_type", "role", "since", "until")
FILTER_LABELS = {"since": "from", "until": "before", "fill_type": "type"}
COMPARISONS = {"==": operator.eq, ">=": operator.ge, "<": operator.lt}
ROLES = ("taker", "maker", "unknown", None)
UNKNOWN, IS_NULL = "unknown", "isna()"
SPANS = {
    "7 days": pd.DateOffset(days=7),
    "30 days": pd.DateOffset(days=30),
    "quarter": pd.DateOffset(months=3),
    "year": pd.DateOffset(years=1),
}
BY = {"by": "groups"}
NO_ACCOUNT = "No account is chosen. Enter an account id, such as 10083, or several."

Condition = tuple[str, str, str]


class FigureSpec(NamedTuple):
    """A figure that an explorer offers, and the table beside it.

    ``options`` and ``table_options`` map arguments of the two to attributes of the explorer.
    """

    label: str
    table: str
    options: Mapping[str, str]
    table_options: Mapping[str, str] = BY
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
        values = {
            name: name_of(value, name) if isinstance(value, pd.DataFrame) else repr(value)
            for name, value in self._set_options.items()
        }
        options = [f"{name}={value}" for name, value in values.items()]
        return f"lab.{self.function}({', '.join([trades, *options])})"

    @property
    def _set_options(self) -> dict[str, Any]:
        return {name: value for name, value in self.options.items() if value is not None}


class Explorer(WidgetState):
    """Trades, the filters applied to them, and the table and figure of what is left.

    ``version`` counts how often the trades changed; ``needs_key`` says whether the relayer asks for another
    API key.
    """

    VIEW = "views.TradesView"
    FIGURES: ClassVar[Mapping[str, FigureSpec]]
    GROUPS: ClassVar[tuple[str, ...]] = ("market", "fill_type", "side")
    CHOICES: ClassVar[tuple[str, ...]] = ("account", *FILTERS, "figure", "every", "by")

    account = ParsedTrait(parse_accounts)
    market = ParsedTrait(parse_text)
    side = ParsedTrait(parse_choice("BUY", "SELL", None))
    fill_type = ParsedTrait(parse_choice("amm", "dex", None))
    role = ParsedTrait(parse_choice(*ROLES))
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
        self._client = source if isinstance(source, TradeSource) else None
        self._trades = None if isinstance(source, TradeSource) else _checked_trades(source, widget)
        if self._client is None and "account" in choices:
            raise LabError(f"{widget}: account= needs a client, and these are trades already. Give a client.")
        first = {"account": self._client.accounts[0]} if self._client and self._client.accounts else {}
        super().__init__(**first | choices)
        self._check_dates()
        self.recall(choices)
        try:
            self._check_dates()
        except LabError:  # only with a day that was recalled
            self.since, self.until = choices.get("since"), choices.get("until")
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
        """Read the trades of the account, or of all of several, in a thread; `wait` waits for them."""
        client, accounts = self._client, self._accounts
        if client is None or not accounts:
            raise LabError(NO_ACCOUNT if client else "These are trades. Give a client to read others.")
        self._trades = None
        self.version += 1

        def read(report: ReportProgress) -> pd.DataFrame:
            import_module("loopring_lab.figures")  # takes a second the first time: better here in the thread
            expected = sum(map(client.count, accounts))
            report(0, expected)
            frames: list[pd.DataFrame] = []
            for account in accounts:
                before = sum(map(len, frames))
                frames.append(client.trades(account, progress=_further(report, before, expected)))
            return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)

        names = ", ".join(map(str, accounts))
        self.begin(f"Reading the trades of account{'s' * (len(accounts) > 1)} {names}", read, self._set_trades)

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
    def shown(self) -> pd.DataFrame:
        """The columns and rows of the table that are on screen."""
        table, columns = self.table, self._columns
        if self.figure_spec.one_quote:
            table = table[table["quote"] == self.quote_shown]
        return table[columns] if columns else table

    @property
    def groups(self) -> list[str]:
        """The columns that the table is grouped by."""
        return list(self.by)

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
        """How many trades match, the filters, and how many trades of unknown role a role leaves out."""
        counts = f"{len(self.chosen):,} of {len(self.trades):,} trades"
        left_out = self._cached("unknown roles", self._count_unknown_roles)
        unknown = f"; {left_out:,} of unknown role are left out" if left_out else ""
        return f"{counts}: {self._filter_text}{unknown}" if self._filter_text else counts

    def first_day(self, span: str) -> dt.date:
        """Return the first day of the '7 days', '30 days', 'quarter' or 'year' up to the newest trade."""
        newest = self.trades["created_at"].max().normalize()
        first: dt.date = (newest + pd.Timedelta(days=1) - SPANS[span]).date()
        return first

    def draw(self) -> Figure:
        """Draw the figure on screen, with the library function that `export` names."""
        figure: Figure = self._figure_call.run(self.chosen)
        return figure

    @property
    def figure_key(self) -> object:
        """What the figure depends on: it is the same while this is."""
        return self.version, self._figure_call.code("chosen"), *self._conditions

    def export(self) -> str:
        """Return code for the same table and figure, from the source as the notebook names it, or as here."""
        lines, accounts = ["import loopring_lab as lab"], self._accounts
        client = name_of(self._client, "client")
        trades = "trades" if self._client else name_of(self._trades, "trades")
        if len(accounts) > 1:
            frames = f"{client}.trades(account_id=account) for account in {accounts}"
            lines += ["import pandas as pd", f"trades = pd.concat([{frames}], ignore_index=True)"]
        elif self._client is not None:
            if not accounts:
                raise LabError(NO_ACCOUNT)
            lines.append(f"trades = {client}.trades(account_id={accounts[0]})")
        lines.append(f"chosen = {f'lab.fills.with_roles({trades})' if self._finds_roles else trades}")
        lines += [f"chosen = chosen[{_condition(*one)}]" for one in self._conditions]
        lines += self._export_prices()
        lines.append(f"table = {self._table_call.code('chosen')}")
        if self.figure_spec.one_quote:
            lines.append(f"table = table[table['quote'] == {self.quote_shown!r}]")
        columns = f"[{self._columns}]" if self._columns else ""
        lines.append(f"lab.show(table{columns}, precision={DECIMALS}, rows={ROWS})")
        return "\n".join([*lines, self._figure_call.code("chosen")])

    def prepare(self) -> bool:
        """Begin to read what the figure lacks, and say whether that is being read."""
        return False

    def _export_prices(self) -> list[str]:
        return []

    @observe("account")
    def _read_new_account(self, change: Any) -> None:
        if not self._ready or self._client is None:
            return
        if change["new"] is not None:
            self.read()
        else:
            self._drop()
            self._trades = None
            self.version += 1

    @property
    def _accounts(self) -> tuple[int, ...]:
        if self._client is None or self.account is None:
            return ()
        return self.account if isinstance(self.account, tuple) else (self.account,)

    def _set_trades(self, trades: pd.DataFrame) -> None:
        self._trades, self.needs_key = trades, False
        with contextlib.suppress(LabError):
            self.market = self.market  # in the case that the trades have it
        self.version += 1

    @validate("market")
    def _known_market(self, proposal: Any) -> Any:
        market = proposal["value"]
        if market is None or self._trades is None:
            return market
        return known_name("market", market, self.markets, optional=True)

    @observe("version")
    def _clear_cache(self, _: object) -> None:
        self._cache.clear()

    def _filtered(self) -> pd.DataFrame:
        if self.trades.empty:
            whose = f"Account {self.account} has" if len(self._accounts) == 1 else "There are"
            raise LabError(f"{whose} no trades. Choose another account, or give other trades.")
        self._check_dates()
        frame = self._matching(self._conditions)
        if frame.empty:
            filters = self._filter_text or "no filter"
            none = f"None of {len(self.trades):,} trades matches ({filters})."
            raise LabError(f"{none}{self._other_roles()} Widen the filters.")
        return frame

    def _matching(self, conditions: list[Condition]) -> pd.DataFrame:
        frame = self._with_roles if self._finds_roles else self.trades
        for column, sign, value in conditions:
            known = frame[column]
            frame = frame[known.isna() if sign == IS_NULL else COMPARISONS[sign](known, value)]
        return frame

    def _other_roles(self) -> str:
        """Say what roles the trades have that match but for their role."""
        if self.role is None:
            return ""
        roles = self._matching([one for one in self._conditions if one[0] != "role"])["role"]
        counts = roles.astype("object").fillna(UNKNOWN).value_counts()
        return f" By role: {', '.join(f'{name} {count:,}' for name, count in counts.items())}." if len(counts) else ""

    def _count_unknown_roles(self) -> int:
        if self.role in (None, UNKNOWN):
            return 0
        others = [one for one in self._conditions if one[0] != "role"]
        return int(self._matching(others)["role"].isna().sum())

    @property
    def _finds_roles(self) -> bool:
        """Whether a role is wanted, and not all are known."""
        return self.role is not None and self._trades is not None and self._trades["role"].hasnans

    @property
    def _with_roles(self) -> pd.DataFrame:
        if "roles" not in self._cache:
            self._cache["roles"] = import_module("loopring_lab.fills").with_roles(self.trades)
        found: pd.DataFrame = self._cache["roles"]
        return found

    def _check_dates(self) -> None:
        parse_span(*(None if day is None else day.isoformat() for day in (self.since, self.until)))

    @property
    def _filter_text(self) -> str:
        values = {name: getattr(self, name) for name in FILTERS}
        labels = {name: FILTER_LABELS.get(name, name) for name in FILTERS}
        return ", ".join(f"{labels[name]} {value}" for name, value in values.items() if value is not None)

    @property
    def _conditions(self) -> list[Condition]:
        equal = [(name, "==", getattr(self, name)) for name in ("market", "side", "fill_type")]
        equal.append(("role", IS_NULL if self.role == UNKNOWN else "==", self.role))
        times = [("created_at", ">=", self.since), ("created_at", "<", self.until)]
        return [(column, sign, str(value)) for column, sign, value in [*equal, *times] if value is not None]

    @property
    def _figure_call(self) -> LibraryCall:
        return LibraryCall(f"figures.{self.figure}", self._options(self.figure_spec.options))

    @property
    def _table_call(self) -> LibraryCall:
        return LibraryCall(self.figure_spec.table, self._options(self.figure_spec.table_options))

    def _options(self, attributes: Mapping[str, str]) -> dict[str, Any]:
        return {name: getattr(self, attribute) for name, attribute in attributes.items()}

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


def _further(report: ReportProgress, before: int, expected: int) -> ReportProgress:
    """Return what reports an account's progress as that of all, of which some are read before."""
    return lambda held, _: report(before + held, max(expected, before + held))


def _condition(column: str, sign: str, value: str) -> str:
    """Return the code of a condition on the trades chosen so far."""
    held = f"chosen[{column!r}]"
    return f"{held}.{IS_NULL}" if sign == IS_NULL else f"{held} {sign} {value!r}"


def _checked_trades(source: Any, widget: str) -> pd.DataFrame:
    if isinstance(source, pd.DataFrame) and {"created_at", "trade_id", "fill_type"} <= set(source.columns):
        return source
    raise LabError(
        f"{widget}: expected a client, or trades as a pandas DataFrame. Give lab.connect() or client.trades(...)."
    )
