"""The explorers of fees and fills: their choices, and the figures they offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pandas as pd
from pandas.api.types import is_datetime64_any_dtype

from loopring_lab.engine.ask import given
from loopring_lab.engine.values import no_moment
from loopring_lab.errors import LabError
from loopring_lab.sources.client import Client
from loopring_lab.sources.trade_source import is_trade_source
from loopring_lab.widgets.selection import BY, ROLES, FigureSpec, Selection
from loopring_lab.widgets.state import (
    Choice,
    MarketChoice,
    WidgetState,
    columns_of,
    one_of,
    parse_accounts,
    parse_day,
    parse_period,
    parse_text,
)

PER_PERIOD = {"every": "every"}
AGE = {"tolerance": "tolerance"}
PRICES = {"prices": "prices"}
PRICES_IF_ANY = {"prices": "prices_if_any"}
ONE_QUOTE = {"quote": "quote_shown"}
FEE_COLUMNS = (
    "fee_token",
    "fills",
    "fee",
    "bps",
    "median_bps",
    "zero_fee_share",
    "received",
    "unknown",
)
SIZE_COLUMNS = (
    "quote",
    "quantile",
    "smallest",
    "largest",
    "fill_type",
    "fills",
    "share",
    "notional",
    "median_bps",
)
NEEDED_COLUMNS = (
    "created_at",
    "trade_id",
    "fill_type",
    "market",
    "quote",
    "side",
    "role",
)
"""What tells a frame of trades from other frames, and what filters compare."""


class Explorer(WidgetState):
    """Trades, the filters applied to them, and the table and figure of what is left."""

    FIGURES: ClassVar[Mapping[str, FigureSpec]]
    GROUPS: ClassVar[tuple[str, ...]] = (
        "market",
        "fill_type",
        "side",
    )
    CHOICES: ClassVar[tuple[str, ...]] = (
        "account",
        "market",
        "side",
        "fill_type",
        "role",
        "since",
        "until",
        "figure",
        "every",
        "by",
    )

    # Each is a control of the view, and an argument of the constructor.
    account = Choice(parse_accounts)
    # This is any text until there are trades: the market of an account is known only then.
    market = MarketChoice()
    side = Choice(one_of("BUY", "SELL", None))
    fill_type = Choice(one_of("amm", "dex", None))
    role = Choice(one_of(*ROLES))
    since = Choice(parse_day)
    until = Choice(parse_day)
    figure: Choice
    every = Choice(parse_period)
    by: Choice

    model: Selection
    _view_class = ("views", "TradesView")

    def __init__(self, source: Client | pd.DataFrame, **choices: Any) -> None:
        widget = type(self).__name__
        first: dict[str, Any] = {}
        if is_trade_source(source):
            if source.accounts:
                # A relayer that knows its accounts, as the embedded one, shows something at once.
                first = {"account": source.accounts[0]}
        elif not isinstance(source, pd.DataFrame):
            raise LabError(
                f"{widget}: expected a client, or trades as a pandas DataFrame. Give lab.connect() or "
                "client.trades(...)."
            )
        else:
            given(source, widget).check(NEEDED_COLUMNS)
            times = source["created_at"].infer_objects()
            # Those of a CSV file are texts, unless lab.tables.read_csv reads it.
            if not (is_datetime64_any_dtype(times) and times.dt.tz):
                raise no_moment("created_at", times.dtype, widget)
            # If account= were taken in silence, it would look like a filter.
            if "account" in choices:
                raise LabError(
                    f"{widget}: account= needs a client, and these are trades already. Give a client."
                )
        super().__init__(first | choices)
        self.model = Selection(self, source)
        self.model.check_dates()
        # The market is checked again, as there may be trades to compare it with now.
        self.market = self.market
        # The last choices of the cell come after those that this call gives, and only where it gives none.
        self._recall(choices)
        try:
            self.model.check_dates()
        except LabError:
            # Only a day that was recalled can be on the wrong side of one that was given.
            self.since = choices.get("since")
            self.until = choices.get("until")
        # This is not observed before, because the first account is read when the view is shown.
        self.observe(self._read_other_account, "account")

    def read(self) -> None:
        """Read the trades of the chosen accounts, as the view does by itself; `wait` waits for them."""
        self.model.read()

    @property
    def chosen(self) -> pd.DataFrame:
        """The trades that match the filters; a LabError if none does, or none is read yet."""
        return self.model.chosen

    @property
    def table(self) -> pd.DataFrame:
        """The table of the chosen trades, from the library function that `export` names."""
        return self.model.table

    def _read_other_account(self, change: Any) -> None:
        if change["new"] is None:
            self.model.forget()
            self.background.drop()
        else:
            self.model.read()


class FeeExplorer(Explorer):
    """Explore fees: how much was charged, in which markets, and at what rate.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, to read the trades of one account or several, or trades.
    **choices
        Initial values: ``account`` (with a client: an id, or several such as ``"10083, 11519"``),
        ``market`` (in any case), ``side``, ``fill_type`` ('amm' or 'dex'), ``role`` ('taker', by default, as
        makers pay other rates or none; 'maker', 'unknown' or None for all), ``since``, ``until`` (a day,
        exclusive), ``figure`` ('fee_rates', 'fee_tiers' or 'fees_by_token'), ``every`` (such as '1d') and
        ``by`` ('market', 'fill_type', 'side', 'role', 'account_id').

    Notes
    -----
    Run again in JupyterLab, a cell's widget keeps the choices made in it; arguments in the cell win. Roles
    that are not reported are found as by `fills.with_roles`.

    Examples
    --------
    >>> trades = client.trades(account_id=10083, limit=100)
    >>> explorer = lab.widgets.FeeExplorer(trades, figure="fee_tiers", every="1d")
    >>> print(explorer.export())
    import loopring_lab as lab
    chosen = trades
    chosen = chosen[chosen['role'] == 'taker']
    table = lab.fees.summary(chosen, by=['market'])
    lab.show(table[...], precision=8, rows=24)
    lab.figures.fee_tiers(chosen, every='1d')
    """

    ABOUT = "fees by market, side, time and fill type, as a figure and a table"
    FIGURES: ClassVar[Mapping[str, FigureSpec]] = {
        "fee_rates": FigureSpec(
            "Fee rate over time",
            "fees.summary",
            PER_PERIOD,
            columns=FEE_COLUMNS,
        ),
        "fee_tiers": FigureSpec(
            "Fee tiers over time",
            "fees.summary",
            PER_PERIOD,
            columns=FEE_COLUMNS,
        ),
        "fees_by_token": FigureSpec(
            "Fees by token",
            "fees.summary",
            {},
            columns=FEE_COLUMNS,
        ),
    }
    GROUPS: ClassVar[tuple[str, ...]] = (
        "market",
        "fill_type",
        "side",
        "role",
        "account_id",
    )

    # Makers pay other rates or none: drawn together, the rate falls to 0 where they trade.
    role = Choice(one_of(*ROLES), "taker")
    figure = Choice(one_of(*FIGURES), "fee_rates")
    by = Choice(columns_of(*GROUPS), ("market",))


class FillExplorer(Explorer):
    """Explore fills: AMM pool against order book.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, to read the trades of one account or several, or trades.
    prices : pandas.DataFrame, optional
        Prices from outside the exchange, as for `fills.compare_venues`, and the reference of all figures but
        'price_gaps'; by default read from the client's synthetic world. Without any, 'cost_curve' takes the
        trades themselves, 'venue_differences' and 'markouts' are not drawn, and nothing is known by 'flow'.
    **choices
        As for `FeeExplorer`, but ``role`` is None by default, ``figure`` is 'fill_shares', 'price_gaps',
        'size_profile', 'cost_curve', 'venue_differences' or 'markouts', ``by`` is any of 'market', 'quote', 'side',
        'account_id', 'flow' (of `research.with_flow`, judged from the trades chosen), ``tolerance`` ('60s', '10min',
        '1h', '1d') is the most time between two prices that are compared, and ``quote`` is the quote token
        of sizes.

    Examples
    --------
    >>> explorer = lab.widgets.FillExplorer(client.trades(account_id=10083, limit=100))
    >>> explorer.market = "lrc-eth"
    >>> explorer.market
    'LRC-ETH'
    """

    ABOUT = (
        "AMM pool against order book: shares, prices and sizes, as a figure and a table"
    )
    CHOICES: ClassVar[tuple[str, ...]] = (
        *Explorer.CHOICES,
        "tolerance",
        "quote",
    )
    FIGURES: ClassVar[Mapping[str, FigureSpec]] = {
        "fill_shares": FigureSpec("Share over time", "fills.breakdown", PER_PERIOD),
        "price_gaps": FigureSpec("Price gap", "fills.price_gap", AGE, AGE | BY),
        "size_profile": FigureSpec(
            label="Size profile",
            table="fills.size_profile",
            options=ONE_QUOTE,
            columns=SIZE_COLUMNS,
            one_quote=True,
        ),
        "cost_curve": FigureSpec(
            "Cost by size",
            "fills.all_in_cost",
            ONE_QUOTE | AGE | PRICES_IF_ANY,
            AGE | BY | PRICES_IF_ANY,
        ),
        "venue_differences": FigureSpec(
            label="Venue comparison",
            table="fills.compare_venues",
            options=PRICES | {"by": "compared_by", "horizon": "tolerance"},
            table_options=PRICES | BY | {"horizon": "tolerance"},
            slow=True,
        ),
        "markouts": FigureSpec(
            label="Markouts",
            table="fills.markouts",
            options=PRICES | {"horizons": "horizons"},
            table_options=PRICES | {"by": "markouts_by", "horizons": "horizons"},
            slow=True,
        ),
    }
    GROUPS: ClassVar[tuple[str, ...]] = (
        "market",
        "quote",
        "side",
        "account_id",
        "flow",
    )

    figure = Choice(one_of(*FIGURES), "fill_shares")
    # Pool against order book first of all; markets are a second question.
    by = Choice(columns_of(*GROUPS), ())
    # The default of `fills.price_gap`, so that both say the same.
    tolerance = Choice(one_of("60s", "10min", "1h", "1d"), "1h")
    quote = Choice(parse_text)

    def __init__(
        self,
        source: Client | pd.DataFrame,
        *,
        prices: pd.DataFrame | None = None,
        **choices: Any,
    ) -> None:
        super().__init__(source, **choices)
        self.model.given_prices = prices
