"""The market explorer: listed markets and tokens, and checks of an amount against limits."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd
from traitlets import Int, validate

from loopring_lab.amounts.display import format_amount, name_of
from loopring_lab.bounded import parse_decimal
from loopring_lab.client import Client
from loopring_lab.errors import AmountError, LabError
from loopring_lab.trade_source import TradeSource
from loopring_lab.widgets.background import ReportProgress, WidgetState
from loopring_lab.widgets.traits import ParsedTrait, check_choices, known_name, parse_choice, parse_text

ROWS = 12
MAX_DIGITS = 80
STATUS: dict[str, dict[str, bool]] = {
    "amm": {"amm_open": True},
    "orderbook": {"orderbook_open": True},
    "both": {"amm_open": True, "orderbook_open": True},
    "closed": {"amm_open": False, "orderbook_open": False},
}
"""What must be open or closed; a market of unknown status matches none of these."""
MARKET_COLUMNS = ["base", "quote", "amm_open", "orderbook_open", "enabled"]
ORDER_AMOUNTS = ["order_amounts_minimum", "order_amounts_maximum", "order_amounts_dust"]
LIMITS = ["decimals", "precision", "precision_for_order", *ORDER_AMOUNTS]
TOKEN_COLUMNS = ["name", "token_id", "type", *LIMITS, "enabled"]
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
    >>> Finding("fits", "0.5 ETH is within the relayer's limits.").kind
    'fits'
    """

    kind: str
    words: str


def check_amount(client: Client, market: str, amount: str, of: str = "base") -> list[Finding]:
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
    markets, tokens = client.markets(), client.tokens()
    market = known_name("market", market, markets.index)
    parse_choice("base", "quote")("of", of)
    symbol = markets.loc[market, of]
    if symbol not in tokens.index:
        raise LabError(f"{market}: its {of} token is not listed. Look at client.tokens().")
    name, units = str(symbol), _parse_amount(amount)
    findings = _market_findings(markets.loc[[market]].iloc[0], market)
    findings += _token_findings(units, name, tokens.loc[[name]].iloc[0])
    if not any(finding.kind == "refused" for finding in findings):
        findings.append(Finding("fits", f"{format_amount(units)} {name} is within the relayer's limits."))
    return sorted(findings, key=lambda finding: FINDING_ORDER.index(finding.kind))


class MarketExplorer(WidgetState):
    """Explore markets and tokens, and check an amount against the limits of its token.

    Parameters
    ----------
    client : Client
        From `connect`.
    **choices
        Initial values: ``listing`` ('markets' or 'tokens'), ``search`` (part of a name, in any case),
        ``status`` ('amm', 'orderbook', 'both' or 'closed'), ``market`` (in any case), ``of`` ('base' or
        'quote') and ``amount``.

    Notes
    -----
    Run again in JupyterLab, a cell's widget keeps the choices made in it; arguments in the cell win.

    Examples
    --------
    >>> explorer = lab.widgets.MarketExplorer(client, market="LRC-ETH", amount="0.5")
    >>> explorer.read()
    >>> explorer.wait()
    >>> print(explorer.findings[0].words)
    0.5 LRC is below the minimum of an order, 2 LRC. Give 2 LRC or more.
    """

    ABOUT = "markets and tokens, and the limits of orders"
    VIEW = "views.MarketView"
    CHOICES = ("listing", "search", "status", "market", "of", "amount")

    listing = ParsedTrait(parse_choice("markets", "tokens"), "markets")
    search = ParsedTrait(parse_text)
    status = ParsedTrait(parse_choice(*STATUS, None))
    market = ParsedTrait(parse_text)
    of = ParsedTrait(parse_choice("base", "quote"), "base")
    amount = ParsedTrait(parse_text)
    version = Int()

    def __init__(self, client: Client, **choices: Any) -> None:
        if not isinstance(client, TradeSource):
            raise LabError(f"{type(self).__name__}: expected a client. Give lab.connect().")
        self._client = client
        self._lists: tuple[pd.DataFrame, pd.DataFrame] | None = None
        super().__init__(**check_choices(choices, self.CHOICES, type(self).__name__))
        self.recall(choices)

    def read(self) -> None:
        """Read markets and tokens in a thread; `wait` waits for them."""

        def read_both(report: ReportProgress) -> tuple[pd.DataFrame, pd.DataFrame]:
            report(0, 2)
            tokens = self._client.tokens()
            report(1, 2)
            return self._client.markets(), tokens

        self.begin("Reading markets and tokens", read_both, self._set_lists)

    @property
    def is_read(self) -> bool:
        """Whether the lists are read."""
        return self._lists is not None

    @property
    def names(self) -> list[str]:
        """Names of all markets, whatever the filters."""
        return list(self._read_lists[0].index)

    @property
    def markets(self) -> pd.DataFrame:
        """The markets that match the filters; a LabError if they are not read yet."""
        markets = self._read_lists[0]
        for column, is_open in self._open_flags:
            markets = markets[markets[column].eq(is_open).fillna(False)]
        if self.search is None:
            return markets
        return markets[markets.index.str.contains(self.search, case=False, regex=False)]

    @property
    def tokens(self) -> pd.DataFrame:
        """The tokens that match the search; a LabError if they are not read yet."""
        tokens = self._read_lists[1]
        if self.search is None:
            return tokens
        symbols = tokens.index.str.contains(self.search, case=False, regex=False)
        names = tokens["name"].str.contains(self.search, case=False, regex=False, na=False)
        return tokens[symbols | names]

    @property
    def shown(self) -> pd.DataFrame:
        """The columns of the list that are on screen."""
        return self.tokens[TOKEN_COLUMNS] if self.listing == "tokens" else self.markets[MARKET_COLUMNS]

    @property
    def limits(self) -> pd.DataFrame:
        """The limits of both tokens of the market, one row each; a LabError if none is selected or listed."""
        markets, tokens = self._read_lists
        if self.market is None:
            raise LabError("No market is selected. Select one to see the limits of its tokens.")
        pair = markets.loc[known_name("market", self.market, markets.index), ["base", "quote"]]
        return tokens.loc[[symbol for symbol in pair if symbol in tokens.index], LIMITS]

    @property
    def limits_shown(self) -> pd.DataFrame:
        """The limits as they are on screen, one column for each token."""
        return self.limits.T.rename_axis("limit")

    @property
    def findings(self) -> list[Finding]:
        """The findings about the amount; none if there is no amount or no market."""
        if self.amount is None or self.market is None:
            return []
        return check_amount(self._client, self.market, self.amount, self.of)

    def export(self) -> str:
        """Return code for the same lists and findings, from the explorer's source, else ``client``."""
        listing, columns, client = self.listing, MARKET_COLUMNS, name_of(self._client, "client")
        lines = ["import loopring_lab as lab", f"{listing} = {client}.{listing}()"]
        if listing == "tokens":
            columns = TOKEN_COLUMNS
        else:
            for name, is_open in self._open_flags:
                lines.append(f"markets = markets[markets[{name!r}].eq({is_open}).fillna(False)]")
        if self.search is not None:
            contains = f".str.contains({self.search!r}, case=False, regex=False"
            names = f" | tokens['name']{contains}, na=False)" if listing == "tokens" else ""
            lines.append(f"{listing} = {listing}[{listing}.index{contains}){names}]")
        lines.append(f"lab.show({listing}[{columns!r}], rows={ROWS})")
        if self.market is not None and self.is_read:
            limits = f"{client}.tokens().loc[{list(self.limits.index)!r}, {LIMITS!r}]"
            lines.append(f"lab.show({limits}.T.rename_axis('limit'))")
        if self.market is not None and self.amount is not None:
            arguments = f"{client}, {self.market!r}, {self.amount!r}, of={self.of!r}"
            lines.append(f"lab.widgets.check_amount({arguments})")
        return "\n".join(lines)

    def _set_lists(self, lists: tuple[pd.DataFrame, pd.DataFrame]) -> None:
        self._lists = lists
        if self.market is None and len(lists[0]):
            self.market = str(lists[0].index[0])
        with contextlib.suppress(LabError):
            self.market = self.market  # as the list writes it
        self.version += 1

    @validate("market")
    def _known_market(self, proposal: Any) -> Any:
        market = proposal["value"]
        return market if market is None or not self.is_read else known_name("market", market, self.names)

    @property
    def _read_lists(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        if self._lists is None:
            raise LabError("Markets and tokens are not read yet. Call read(), then wait().")
        return self._lists

    @property
    def _open_flags(self) -> list[tuple[str, bool]]:
        return list(STATUS[self.status].items()) if self.status else []


def _parse_amount(amount: object) -> Decimal:
    units = parse_decimal(amount.strip()) if isinstance(amount, str) else None
    if units is None or units.is_signed() or abs(units.adjusted()) > MAX_DIGITS:
        raise AmountError(f"amount={amount!r} is not a valid amount. Give units of the token, like '1250.5'.")
    return units


def _decimal_places(units: Decimal) -> int:
    """Count the decimal places that a number needs."""
    _, digits, exponent = units.as_tuple()
    text = "".join(map(str, digits))
    return max(0, len(text.rstrip("0")) - len(text) - int(exponent))


def _market_findings(row: pd.Series, market: str) -> list[Finding]:
    if _is_false(row["enabled"]):
        return [Finding("refused", f"Trading in {market} is disabled. Choose another market.")]
    venues = {"pool": row["amm_open"], "order book": row["orderbook_open"]}
    closed = [venue for venue, is_open in venues.items() if _is_false(is_open)]
    if len(closed) == len(venues):
        return [Finding("refused", f"The pool and the order book of {market} are closed. Choose another.")]
    return [Finding("note", f"The {venue} of {market} is closed; the other one is open.") for venue in closed]


def _token_findings(units: Decimal, symbol: str, token: pd.Series) -> list[Finding]:
    if not units:
        return [Finding("refused", "An order cannot be for 0. Give more.")]
    amount, dust = f"{format_amount(units)} {symbol}", token["order_amounts_dust"]
    findings = [*_limit_findings(units, amount, symbol, token), *_digit_findings(units, amount, token)]
    if not pd.isna(dust) and units < dust:
        left = f"{format_amount(dust)} {symbol}"
        findings.append(Finding("note", f"It is dust: an order with less than {left} left counts as filled."))
    if _is_false(token["enabled"]):
        note = f"Deposits and withdrawals of {symbol} are disabled; the effect on orders is not documented."
        findings.append(Finding("note", note))
    return findings


def _limit_findings(units: Decimal, amount: str, symbol: str, token: pd.Series) -> list[Finding]:
    minimum, maximum = token["order_amounts_minimum"], token["order_amounts_maximum"]
    findings = []
    if pd.isna(maximum):
        findings.append(Finding("note", f"The relayer gives no maximum order amount of {symbol}."))
    elif units > maximum:
        limit = f"{format_amount(maximum)} {symbol}"
        problem = f"{amount} is above the maximum of an order, {limit}. Split it, or give {limit} or less."
        findings.append(Finding("refused", problem))
    if pd.isna(minimum):
        findings.append(Finding("note", f"The relayer gives no minimum order amount of {symbol}."))
    elif units < minimum:
        limit = f"{format_amount(minimum)} {symbol}"
        problem = f"{amount} is below the minimum of an order, {limit}. Give {limit} or more."
        findings.append(Finding("refused", problem))
    return findings


def _digit_findings(units: Decimal, amount: str, token: pd.Series) -> list[Finding]:
    """Check digits that the token does not have, or that orders do not use."""
    places, decimals = _decimal_places(units), int(token["decimals"])
    precision, for_order = token["precision"], token["precision_for_order"]
    if places > decimals:
        problem = f"{amount} has digits below the token's smallest unit. Give at most {decimals} decimal places."
        return [Finding("refused", problem)]
    if not pd.isna(precision) and units < Decimal(1).scaleb(-int(precision)):
        problem = f"{amount} counts as zero: the token's precision is {precision} decimal places. Give more."
        return [Finding("refused", problem)]
    if not pd.isna(for_order) and places > int(for_order):
        note = f"Orders use {for_order} decimal places; whether more are cut or refused is not documented."
        return [Finding("note", note)]
    return []


def _is_false(flag: Any) -> bool:
    return not pd.isna(flag) and not flag
