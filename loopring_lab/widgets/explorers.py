"""Explorers of fees and fills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pandas as pd
from traitlets import Int

from loopring_lab.amounts.display import name_of
from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.widgets.background import ReportProgress
from loopring_lab.widgets.explorer import BY, ROLES, Explorer, FigureSpec
from loopring_lab.widgets.traits import ParsedTrait, parse_choice, parse_columns, parse_text

PER_PERIOD = {"every": "every"}
HORIZONS = {"60s": ("1min", "5min", "1h"), "10min": ("10min", "1h", "6h"), "1h": ("1h", "6h", "1d")}
"""Times after a fill at which prices as far apart as these say something."""
AGE, PRICES = {"tolerance": "tolerance"}, {"prices": "prices"}
FEE_COLUMNS = ("fee_token", "fills", "fee", "bps", "median_bps", "zero_fee_share", "received", "unknown")
SIZE_RANGE = ("quote", "quantile", "smallest", "largest")
SIZE_COLUMNS = (*SIZE_RANGE, "fill_type", "fills", "share", "notional", "median_bps")


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
        ``by`` ('market', 'fill_type', 'side', 'role').

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
        "fee_rates": FigureSpec("Fee rate over time", "fees.summary", PER_PERIOD, columns=FEE_COLUMNS),
        "fee_tiers": FigureSpec("Fee tiers over time", "fees.summary", PER_PERIOD, columns=FEE_COLUMNS),
        "fees_by_token": FigureSpec("Fees by token", "fees.summary", {}, columns=FEE_COLUMNS),
    }
    GROUPS: ClassVar[tuple[str, ...]] = ("market", "fill_type", "side", "role")

    role = ParsedTrait(parse_choice(*ROLES), "taker")
    figure = ParsedTrait(parse_choice(*FIGURES), "fee_rates")
    by = ParsedTrait(parse_columns(*GROUPS), ("market",))


class FillExplorer(Explorer):
    """Explore fills: AMM pool against order book.

    Parameters
    ----------
    source : Client or pandas.DataFrame
        A client, to read the trades of one account or several, or trades.
    prices : pandas.DataFrame, optional
        Prices from outside the exchange, as for `fills.compare_venues`; by default read from the client's
        synthetic world where 'venue_differences' or 'markouts' needs them.
    **choices
        As for `FeeExplorer`, but ``role`` is None by default, ``figure`` is 'fill_shares', 'price_gaps',
        'size_profile', 'cost_curve', 'venue_differences' or 'markouts', ``by`` is any of 'market', 'quote',
        'side', ``tolerance`` ('60s', '10min', '1h', '1d') is the most time between two prices that are
        compared, and ``quote`` is the quote token of sizes.

    Examples
    --------
    >>> explorer = lab.widgets.FillExplorer(client.trades(account_id=10083, limit=100))
    >>> explorer.market = "lrc-eth"
    >>> explorer.market
    'LRC-ETH'
    """

    ABOUT = "AMM pool against order book: shares, prices and sizes, as a figure and a table"
    CHOICES: ClassVar[tuple[str, ...]] = (*Explorer.CHOICES, "tolerance", "quote")
    FIGURES: ClassVar[Mapping[str, FigureSpec]] = {
        "fill_shares": FigureSpec("Share over time", "fills.breakdown", PER_PERIOD),
        "price_gaps": FigureSpec("Price gap", "fills.price_gap", AGE, AGE | BY),
        "size_profile": FigureSpec(
            "Size profile", "fills.size_profile", {"quote": "quote_shown"}, BY, SIZE_COLUMNS, one_quote=True
        ),
        "cost_curve": FigureSpec("Cost by size", "fills.all_in_cost", {"quote": "quote_shown"} | AGE, AGE | BY),
        "venue_differences": FigureSpec(
            "Venue comparison",
            "fills.compare_venues",
            PRICES | {"by": "compared_by", "horizon": "tolerance"},
            PRICES | BY | {"horizon": "tolerance"},
        ),
        "markouts": FigureSpec(
            "Markouts",
            "fills.markouts",
            PRICES | {"horizons": "horizons"},
            PRICES | {"by": "markouts_by", "horizons": "horizons"},
        ),
    }
    GROUPS: ClassVar[tuple[str, ...]] = ("market", "quote", "side")

    figure = ParsedTrait(parse_choice(*FIGURES), "fill_shares")
    by = ParsedTrait(parse_columns(*GROUPS), ())
    tolerance = ParsedTrait(parse_choice("60s", "10min", "1h", "1d"), "1h")
    quote = ParsedTrait(parse_text)
    prices_read = Int()

    def __init__(self, source: Client | pd.DataFrame, *, prices: pd.DataFrame | None = None, **choices: Any) -> None:
        self._given_prices, self._asked = prices, None
        super().__init__(source, **choices)

    @property
    def prices(self) -> pd.DataFrame:
        """Prices from outside the exchange: as given, or as read for these filters; else a LabError."""
        if self._given_prices is not None:
            return self._given_prices
        found: pd.DataFrame | None = self._cache.get(self._prices_key)
        if found is None:
            raise LabError(f"{self.figure_spec.label} needs prices from outside the exchange. {self._way_to_prices}")
        return found

    def prepare(self) -> bool:
        """Begin to read the prices that the figure lacks, once, and say whether they are being read."""
        if "prices" not in self.figure_spec.options:
            self._asked = None
            return False
        if self._given_prices is not None or self._prices_key in self._cache or not self._can_read_prices:
            return False
        if self._asked != self._prices_key:
            self.read_prices()
        return self._job is not None

    def read_prices(self) -> None:
        """Read prices from outside the exchange for these filters in a thread; `wait` waits for them."""
        client, chosen, key = self._client, self.chosen, self._prices_key
        if client is None:
            raise LabError(f"There is no client to read prices with. {self._way_to_prices}")
        self._asked = key

        def read(_: ReportProgress) -> pd.DataFrame:
            prices = client.outside_prices(chosen, every=self._prices_every)
            if prices is None:
                raise LabError(f"The relayer has no prices from outside. {self._way_to_prices}")
            return prices

        def keep(prices: pd.DataFrame) -> None:
            self._cache[key] = prices
            self.prices_read += 1

        self.begin("Reading prices from outside the exchange", read, keep)

    @property
    def compared_by(self) -> list[str]:
        """The columns with a line each in the comparison of venues."""
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
    def _can_read_prices(self) -> bool:
        return self._client is not None and self._client.synthetic

    @property
    def _prices_every(self) -> str:
        return str(self.tolerance) if self.tolerance in HORIZONS else "1h"

    @property
    def _prices_key(self) -> Any:
        return "prices", self._prices_every, *self._conditions

    @property
    def _way_to_prices(self) -> str:
        if self._can_read_prices:
            return "Call read_prices(), then wait()."
        return "Give prices=, a frame such as lab.tables.prices reads from a file."

    def _export_prices(self) -> list[str]:
        if "prices" not in self.figure_spec.options or self._given_prices is not None:
            return []
        client = name_of(self._client, "client")
        return [f"prices = {client}.outside_prices(chosen, every={self._prices_every!r})"]
