"""The market explorer: listed markets and tokens, and checks of an amount against limits."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from loopring_lab.amounts.display import format_amount, name_of
from loopring_lab.amounts.scalar import power_of_ten
from loopring_lab.bounded import parse_decimal
from loopring_lab.errors import AmountError, LabError
from loopring_lab.sources.client import Client
from loopring_lab.sources.trade_source import is_trade_source
from loopring_lab.widgets.background import ReportProgress
from loopring_lab.widgets.state import (
    Choice,
    MarketChoice,
    WidgetState,
    known_market,
    one_of,
    parse_text,
)

if TYPE_CHECKING:
    from loopring_lab.sources.trade_source import TradeSource

# Rows of the list in exported code, which fit a screen above the limits.
ROWS = 12
# Amounts on the wire have 96 bits, 29 digits; nobody means a number longer than this.
MAX_DIGITS = 80
MARKET_COLUMNS = [
    "base",
    "quote",
    "amm_open",
    "orderbook_open",
    "enabled",
]
LIMITS = [
    "decimals",
    "precision",
    "precision_for_order",
    "order_amounts_minimum",
    "order_amounts_maximum",
    "order_amounts_dust",
]
TOKEN_COLUMNS = ["name", "token_id", "type", *LIMITS, "enabled"]
# When an amount is beyond a limit, and what to do then.
BOUNDS = (
    (
        "maximum",
        operator.gt,
        "{amount} is above the maximum of an order, {limit}. Split it, or give {limit} or less.",
    ),
    (
        "minimum",
        operator.lt,
        "{amount} is below the minimum of an order, {limit}. Give {limit} or more.",
    ),
)
FINDING_ORDER = ("refused", "fits", "note")


class Finding(NamedTuple):
    """One result of checking an amount.

    Parameters
    ----------
    kind : {'refused', 'note', 'fits'}
        The relayer's limits refuse it; worth knowing; or within all limits.
    words : str
        The finding, and what to do about it.

    Examples
    --------
    >>> lab.widgets.Finding("fits", "0.5 ETH is within the relayer's limits.").kind
    'fits'
    """

    kind: str
    words: str


def check_amount(
    client: Client, market: str, amount: str, of: str = "base"
) -> list[Finding]:
    """Check an amount against the limits of its token and the status of its market.

    Parameters
    ----------
    client : Client
        From `connect`.
    market : str
        Such as ``LRC-ETH``, in any case.
    amount : str
        Units of the token, such as ``"12.5"``.
    of : {'base', 'quote'}
        Which of the market's tokens the amount is of.

    Returns
    -------
    list of Finding
        Reasons for refusal first. If there is none, one finding says that the amount fits. Limits are the
        relayer's ``orderAmounts``, and are inclusive.

    Raises
    ------
    LabError
        The market or its token is not listed, or `of` is not 'base' or 'quote'.
    AmountError
        The amount is not a number of 0 or more.
    RelayerError, TransportError, UnexpectedAnswer
        The relayer refuses, cannot be reached, or gives an unexpected answer.

    Examples
    --------
    >>> print(lab.widgets.check_amount(client, "LRC-ETH", "0.5")[0].words)
    0.5 LRC is below the minimum of an order, 2 LRC. Give 2 LRC or more.
    """
    markets = client.markets()
    tokens = client.tokens()
    market = known_market(market, markets.index)
    one_of("base", "quote")("of", of)
    # A market can name a token that the relayer does not list.
    symbol = str(markets.loc[market, of])
    if symbol not in tokens.index:
        raise LabError(
            f"{market}: its {of} token is not listed. Look at client.tokens()."
        )
    units = _parse_amount(amount)
    findings = [
        *_market_findings(markets.loc[[market]].iloc[0], market),
        *_token_findings(units, symbol, tokens.loc[[symbol]].iloc[0]),
    ]
    if all(finding.kind != "refused" for finding in findings):
        words = f"{format_amount(units)} {symbol} is within the relayer's limits."
        findings.append(Finding("fits", words))
    return sorted(findings, key=lambda one: FINDING_ORDER.index(one.kind))


class MarketExplorer(WidgetState):
    """Explore markets and tokens, and check an amount against the limits of its token.

    Parameters
    ----------
    client : Client
        From `connect`.
    **choices
        Initial values: ``listing`` ('markets' or 'tokens'), ``market`` (in any case), ``of`` ('base' or 'quote')
        and ``amount``.

    Notes
    -----
    Run again in JupyterLab, a cell's widget keeps the choices made in it; arguments in the cell win.

    Examples
    --------
    >>> explorer = lab.widgets.MarketExplorer(client, market="LRC-ETH", amount="0.5")
    >>> print(explorer.export())
    import loopring_lab as lab
    markets = client.markets()
    lab.show(markets[['base', 'quote', 'amm_open', 'orderbook_open', 'enabled']], rows=12)
    lab.widgets.check_amount(client, 'LRC-ETH', '0.5', of='base')
    """

    ABOUT = "markets and tokens, and the limits of orders"
    CHOICES = (
        "listing",
        "market",
        "of",
        "amount",
    )

    listing = Choice(one_of("markets", "tokens"), "markets")
    market = MarketChoice()
    # Sizes of orders are in the base token.
    of = Choice(one_of("base", "quote"), "base")
    amount = Choice(parse_text)

    model: Lists
    _view_class = ("views", "MarketView")

    def __init__(self, client: Client, **choices: Any) -> None:
        if not is_trade_source(client):
            raise LabError(
                f"{type(self).__name__}: expected a client. Give lab.connect()."
            )
        super().__init__(choices)
        self.model = Lists(self, client)
        self._recall(choices)


class Lists:
    """Markets and tokens, and what a market explorer's choices leave of them."""

    def __init__(self, choices: MarketExplorer, client: TradeSource) -> None:
        self._choices = choices
        self._client: Any = client
        self._markets = pd.DataFrame()
        self._tokens = pd.DataFrame()
        self.is_read = False

    def read(self) -> None:
        """Read both in the background."""

        def read_both(
            report: ReportProgress,
        ) -> tuple[pd.DataFrame, pd.DataFrame]:
            report(0, 2)
            tokens = self._client.tokens()
            report(1, 2)
            return self._client.markets(), tokens

        self._choices.background.begin(
            "Reading markets and tokens", read_both, self._set
        )

    def _set(self, lists: tuple[pd.DataFrame, pd.DataFrame]) -> None:
        self._markets, self._tokens = lists
        self.is_read = True
        choices = self._choices
        # The market may have been chosen in another case; one that is not listed stays.
        with contextlib.suppress(LabError):
            # Something is shown at once, without a click.
            choices.market = choices.market or next(iter(self.market_names), None)

    @property
    def market_names(self) -> list[str]:
        """Names of all markets."""
        return list(self._markets.index)

    @property
    def shown(self) -> pd.DataFrame:
        """The columns of the list that is on screen."""
        if self._choices.listing == "tokens":
            return self._tokens[TOKEN_COLUMNS]
        return self._markets[MARKET_COLUMNS]

    @property
    def limits(self) -> pd.DataFrame:
        """The limits of orders, a column for each token of the market that is listed."""
        market = known_market(self._choices.market, self.market_names)
        pair = self._markets.loc[market, ["base", "quote"]]
        symbols = [symbol for symbol in pair if symbol in self._tokens.index]
        return self._tokens.loc[symbols, LIMITS].T.rename_axis("limit")

    @property
    def findings(self) -> list[Finding]:
        """The findings about the amount; none if there is no amount or no market."""
        choices = self._choices
        # Half an entry is no mistake yet.
        if choices.amount is None or choices.market is None:
            return []
        return check_amount(
            self._client,
            choices.market,
            choices.amount,
            choices.of,
        )

    def export(self) -> str:
        """Write code for what is on screen."""
        choices = self._choices
        listing = choices.listing
        columns = TOKEN_COLUMNS if listing == "tokens" else MARKET_COLUMNS
        client = name_of(self._client, "client")
        lines = [
            "import loopring_lab as lab",
            f"{listing} = {client}.{listing}()",
            f"lab.show({listing}[{columns!r}], rows={ROWS})",
        ]
        if choices.market is not None and self.is_read:
            limits = f"{client}.tokens().loc[{list(self.limits)!r}, {LIMITS!r}]"
            lines.append(f"lab.show({limits}.T.rename_axis('limit'))")
        if choices.market is not None and choices.amount is not None:
            of = f"{choices.market!r}, {choices.amount!r}, of={choices.of!r}"
            lines.append(f"lab.widgets.check_amount({client}, {of})")
        return "\n".join(lines)


def _parse_amount(amount: object) -> Decimal:
    units = None
    if isinstance(amount, str):
        units = parse_decimal(amount.strip())
    if units is None or units.is_signed() or abs(units.adjusted()) > MAX_DIGITS:
        raise AmountError(
            f"amount={amount!r} is not a valid amount. Give units of the token without commas, like '1250.5'."
        )
    return units


def _market_findings(row: pd.Series, market: str) -> Iterator[Finding]:
    pool_closed = _is_false(row["amm_open"])
    book_closed = _is_false(row["orderbook_open"])
    if _is_false(row["enabled"]):
        words = f"Trading in {market} is disabled. Choose another market."
        yield Finding("refused", words)
    # One open venue is enough for a trade; none is a refusal.
    elif pool_closed and book_closed:
        words = f"The pool and the order book of {market} are closed. Choose another."
        yield Finding("refused", words)
    elif pool_closed or book_closed:
        venue = "pool" if pool_closed else "order book"
        words = f"The {venue} of {market} is closed; the other one is open."
        yield Finding("note", words)


def _token_findings(units: Decimal, symbol: str, token: pd.Series) -> Iterator[Finding]:
    # Zero would pass every other check of a token without a minimum.
    if not units:
        yield Finding("refused", "An order cannot be for 0. Give more.")
        return
    amount = f"{format_amount(units)} {symbol}"
    # The contract lets a relayer leave out any limit, and then nobody knows it.
    for bound, is_beyond, words in BOUNDS:
        limit = token[f"order_amounts_{bound}"]
        if pd.isna(limit):
            note = f"The relayer gives no {bound} order amount of {symbol}."
            yield Finding("note", note)
        elif is_beyond(units, limit):
            listed = f"{format_amount(limit)} {symbol}"
            yield Finding("refused", words.format(amount=amount, limit=listed))
    yield from _digit_findings(units, amount, token)
    dust = token["order_amounts_dust"]
    # An order with less than this left counts as filled, so a new one of less would be filled at once.
    if not pd.isna(dust) and units < dust:
        left = f"{format_amount(dust)} {symbol}"
        note = f"It is dust: an order with less than {left} left counts as filled."
        yield Finding("note", note)
    if _is_false(token["enabled"]):
        note = f"Deposits and withdrawals of {symbol} are disabled; the effect on orders is not documented."
        yield Finding("note", note)


def _digit_findings(units: Decimal, amount: str, token: pd.Series) -> Iterator[Finding]:
    """Check digits that the token does not have, or that orders do not use."""
    # This does not use `Decimal.normalize`, which rounds to the 28 digits of its context.
    fraction = f"{units:f}".partition(".")[2]
    places = len(fraction.rstrip("0"))
    decimals = int(token["decimals"])
    precision = token["precision"]
    for_order = token["precision_for_order"]
    # The order of these three is that of their weight: only the last lets an order through.
    if places > decimals:
        problem = f"{amount} has digits below the token's smallest unit. Give at most {decimals} decimal places."
        yield Finding("refused", problem)
    elif not pd.isna(precision) and units < power_of_ten(-int(precision)):
        problem = f"{amount} counts as zero: the token's precision is {precision} decimal places. Give more."
        yield Finding("refused", problem)
    elif not pd.isna(for_order) and places > int(for_order):
        note = f"Orders use {for_order} decimal places; whether more are cut or refused is not documented."
        yield Finding("note", note)


def _is_false(flag: Any) -> bool:
    """Return whether a flag is known, and not set."""
    return not pd.isna(flag) and not flag
