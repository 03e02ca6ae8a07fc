"""The market explorer, without a view: which markets are listed, which is looked at, and what it takes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd
from traitlets import Int

from loopring_lab.amounts.display import Shown, format_amount, show
from loopring_lab.amounts.scaling import parse_decimal
from loopring_lab.client import Client
from loopring_lab.errors import AmountError, LabError
from loopring_lab.widgets.background import Report, Working
from loopring_lab.widgets.traits import Choice, named, one_of, text, unknown

LIMITS = ["decimals", "precision", "precision_for_order"]
LIMITS += [f"order_amounts_{bound}" for bound in ("minimum", "maximum", "dust")]
KINDS = ("refused", "fits", "note")
MOST_DIGITS = 80


class Finding(NamedTuple):
    """One thing found about an amount.

    Parameters
    ----------
    kind : {'refused', 'note', 'fits'}
        Refused by what the relayer says; worth knowing; or in order.
    words : str
        What, and what to do.

    Examples
    --------
    >>> Finding("fits", "0.5 ETH is within the limits the relayer names.").kind
    'fits'
    """

    kind: str
    words: str


def check_amount(client: Client, market: str, amount: str, of: str = "base") -> list[Finding]:
    """Hold an amount against the limits of its token and the state of its market.

    Parameters
    ----------
    client : Client
        From `connect`.
    market : str
        Such as ``LRC-ETH``.
    amount : str
        Units of the token, such as ``"12.5"``.
    of : {'base', 'quote'}
        Which of the market's tokens.

    Returns
    -------
    list of Finding
        What would be refused first, and why. A single one that fits where nothing speaks against it. Limits
        are the relayer's ``orderAmounts``; an amount equal to a limit is within it.

    Raises
    ------
    LabError
        The market or its token is not listed, or `of` is neither.
    AmountError
        The amount is no number of 0 or more.
    RelayerError, TransportError, UnexpectedAnswer
        The relayer refuses, cannot be reached, or answers something else.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> client = lab.connect()
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> print(lab.widgets.check_amount(client, "LRC-ETH", "0.5")[0].words)
    0.5 LRC is below the least that an order may hold, 2 LRC. Give 2 LRC or more.
    """
    markets, tokens = client.markets(), client.tokens()
    if market not in markets.index:
        raise unknown("market", market, markets.index)
    one_of("base", "quote")("of", of)
    symbol = markets.loc[market, of]
    if symbol not in tokens.index:
        raise LabError(f"{market}: its {of} token is not listed. Look at client.tokens().")
    name, units = str(symbol), _amount(amount)
    found = [*_of_market(_row(markets, market), market), *_of_token(units, name, _row(tokens, name))]
    if not any(finding.kind == "refused" for finding in found):
        found.append(
            Finding("fits", f"{format_amount(units)} {name} is within the limits the relayer names.")
        )
    return sorted(found, key=lambda finding: KINDS.index(finding.kind))


def _row(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame.loc[[name]].iloc[0]


def _amount(amount: object) -> Decimal:
    units = parse_decimal(amount.strip()) if isinstance(amount, str) else None
    if units is None or units.is_signed() or abs(units.adjusted()) > MOST_DIGITS:
        raise AmountError(f"amount={amount!r} is no amount. Give units of the token, such as '1250.5'.")
    return units


def _places(units: Decimal) -> int:
    """Count the decimals that a number needs."""
    _, digits, exponent = units.as_tuple()
    text = "".join(map(str, digits))
    return max(0, len(text.rstrip("0")) - len(text) - int(exponent))


def _of_market(row: pd.Series, market: str) -> list[Finding]:
    pool, book = _is(row["amm_open"], False), _is(row["orderbook_open"], False)
    if _is(row["enabled"], False):
        return [Finding("refused", f"Trading in {market} is off. Choose another market.")]
    if pool and book:
        return [Finding("refused", f"Neither pool nor order book of {market} is open. Choose another one.")]
    closed = [name for name, shut in (("pool", pool), ("order book", book)) if shut]
    return [Finding("note", f"The {name} of {market} is not open, the other is.") for name in closed]


def _of_token(units: Decimal, symbol: str, token: pd.Series) -> list[Finding]:
    if not units:
        return [Finding("refused", "An order cannot hold 0. Give more.")]
    shown = f"{format_amount(units)} {symbol}"
    found = [
        _above(units, token["order_amounts_maximum"], shown, symbol),
        _below(units, token["order_amounts_minimum"], shown, symbol),
        _digits(units, token, shown),
    ]
    if not pd.isna(token["order_amounts_dust"]) and units < token["order_amounts_dust"]:
        dust = f"{format_amount(token['order_amounts_dust'])} {symbol}"
        found.append(Finding("note", f"It is dust: the rest of an order below {dust} counts as filled."))
    if _is(token["enabled"], False):
        words = f"Deposits and withdrawals of {symbol} are off; what that means for orders is not documented."
        found.append(Finding("note", words))
    return [finding for finding in found if finding is not None]


def _below(units: Decimal, least: Any, shown: str, symbol: str) -> Finding | None:
    if pd.isna(least):
        return Finding("note", f"The relayer names no least amount of {symbol} for an order.")
    limit = f"{format_amount(least)} {symbol}"
    if units >= least:
        return None
    words = f"{shown} is below the least that an order may hold, {limit}. Give {limit} or more."
    return Finding("refused", words)


def _above(units: Decimal, most: Any, shown: str, symbol: str) -> Finding | None:
    if pd.isna(most):
        return Finding("note", f"The relayer names no greatest amount of {symbol} for an order.")
    limit = f"{format_amount(most)} {symbol}"
    if units <= most:
        return None
    words = f"{shown} is above the most that an order may hold, {limit}. Split it, or give {limit} or less."
    return Finding("refused", words)


def _digits(units: Decimal, token: pd.Series, shown: str) -> Finding | None:
    """Tell what becomes of digits that the token does not have, or that orders do not use."""
    places, decimals = _places(units), int(token["decimals"])
    if places > decimals:
        words = f"{shown} has digits below the token's smallest unit. Give at most {decimals} decimals."
        return Finding("refused", words)
    precision, for_order = token["precision"], token["precision_for_order"]
    if not pd.isna(precision) and 0 < units < Decimal(1).scaleb(-int(precision)):
        words = f"{shown} counts as zero: the token's precision is {precision} decimals. Give more."
        return Finding("refused", words)
    if not pd.isna(for_order) and places > int(for_order):
        words = f"Orders of it have {for_order} decimals; whether more are cut or refused is not documented."
        return Finding("note", words)
    return None


def _is(value: Any, wanted: bool) -> bool:
    """Compare a flag that may be unknown."""
    return not pd.isna(value) and bool(value) is wanted


ROWS = 12
STATUS: dict[str, dict[str, bool]] = {
    "amm": {"amm_open": True},
    "orderbook": {"orderbook_open": True},
    "both": {"amm_open": True, "orderbook_open": True},
    "closed": {"amm_open": False, "orderbook_open": False},
}
"""What must be open; markets of unknown status fit none of these."""
LISTED = ["base", "quote", "amm_open", "orderbook_open", "enabled"]
TOKEN = ["name", "token_id", "type", *LIMITS, "enabled"]


class Markets(Working):
    """Markets and tokens of a relayer, and what an amount would meet there.

    Parameters
    ----------
    client : Client
        From `connect`.
    **choices
        What to begin with, by the names below.

    Attributes
    ----------
    listing : {'markets', 'tokens'}
        What is listed.
    search : str or None
        Part of a market's name, or of a token's symbol or name; upper and lower case are the same.
    status : {'amm', 'orderbook', 'both', 'closed'} or None
        What must be open in a market; None for all, also those of unknown status.
    market : str or None
        The one looked at.
    of : {'base', 'quote'}
        Which of its tokens the amount is of.
    amount : str or None
        To be held against the limits.
    version : int
        Counts how often the lists were read.
    """

    CHOICES = ("listing", "search", "status", "market", "of", "amount")

    listing = Choice(one_of("markets", "tokens"), "markets")
    search = Choice(text)
    status = Choice(one_of(*STATUS, None))
    market = Choice(text)
    of = Choice(one_of("base", "quote"), "base")
    amount = Choice(text)
    version = Int()

    def __init__(self, client: Client, **choices: Any) -> None:
        if not isinstance(client, Client):
            raise LabError(f"{type(self).__name__}: expected a client. Give lab.connect().")
        self._client = client
        self._lists: tuple[pd.DataFrame, pd.DataFrame] | None = None
        super().__init__(**named(choices, self.CHOICES, type(self).__name__))

    def read(self) -> None:
        """Read markets and tokens, in a thread; `wait` waits for them."""

        def both(report: Report) -> tuple[pd.DataFrame, pd.DataFrame]:
            report(0, 2)
            tokens = self._client.tokens()
            report(1, 2)
            return self._client.markets(), tokens

        self.begin("Reading markets and tokens", both, self._take)

    @property
    def is_read(self) -> bool:
        """Whether the lists are read."""
        return self._lists is not None

    @property
    def names(self) -> list[str]:
        """Names of all markets, whatever is chosen."""
        return list(self._both[0].index)

    @property
    def markets(self) -> pd.DataFrame:
        """Markets that fit the choices.

        Raises
        ------
        LabError
            They are not read yet.
        """
        markets = self._both[0]
        for column, open_ in self._status:
            markets = markets[markets[column].eq(open_).fillna(False)]
        if self.search is None:
            return markets
        return markets[markets.index.str.contains(self.search, case=False, regex=False)]

    @property
    def tokens(self) -> pd.DataFrame:
        """Tokens that fit the search.

        Raises
        ------
        LabError
            They are not read yet.
        """
        tokens = self._both[1]
        if self.search is None:
            return tokens
        symbols = tokens.index.str.contains(self.search, case=False, regex=False)
        names = tokens["name"].str.contains(self.search, case=False, regex=False, na=False)
        return tokens[symbols | names]

    @property
    def shown(self) -> Shown:
        """The list on screen, for reading."""
        if self.listing == "tokens":
            return show(self.tokens[TOKEN], rows=ROWS)
        return show(self.markets[LISTED], rows=ROWS)

    @property
    def limits(self) -> pd.DataFrame:
        """The limits of both tokens of the market looked at, one row each.

        Raises
        ------
        LabError
            No market is chosen, or it is not listed.
        """
        markets, tokens = self._both
        if self.market is None:
            raise LabError("No market is chosen. Choose one to see the limits of its tokens.")
        if self.market not in markets.index:
            raise unknown("market", self.market, markets.index)
        pair = markets.loc[self.market, ["base", "quote"]]
        return tokens.loc[[symbol for symbol in pair if symbol in tokens.index], LIMITS]

    @property
    def limits_shown(self) -> pd.DataFrame:
        """The limits for reading: a column for each token.

        Raises
        ------
        LabError
            As for `limits`.
        """
        return show(self.limits).frame.T.rename_axis("limit")

    @property
    def findings(self) -> list[Finding]:
        """What is found about the amount; empty where none is given.

        Raises
        ------
        LabError
            No market is chosen, or the amount is no number.
        """
        if self.amount is None or self.market is None:
            return []
        return check_amount(self._client, self.market, self.amount, self.of)

    def export(self) -> str:
        """Write the code cell that gives the same lists and findings.

        Returns
        -------
        str
            Python. It uses ``client``: what the explorer was made from.
        """
        listing = self.listing
        columns, lines = LISTED, [f"{listing} = client.{listing}()"]
        if listing == "tokens":
            columns = TOKEN
        else:
            lines += [
                f"markets = markets[markets[{name!r}].eq({open_}).fillna(False)]"
                for name, open_ in self._status
            ]
        if self.search is not None:
            how = f".str.contains({self.search!r}, case=False, regex=False"
            names = f" | tokens['name']{how}, na=False)" if listing == "tokens" else ""
            lines.append(f"{listing} = {listing}[{listing}.index{how}){names}]")
        lines.append(f"display(lab.show({listing}[{columns!r}], rows={ROWS}))")
        if self.market is not None and self.is_read:
            pair = list(self.limits.index)
            lines.append(
                f"display(lab.show(client.tokens().loc[{pair!r}, {LIMITS!r}]).frame.T.rename_axis('limit'))"
            )
        if self.market is not None and self.amount is not None:
            words = f"client, {self.market!r}, {self.amount!r}, of={self.of!r}"
            lines.append(f"lab.widgets.check_amount({words})")
        return "\n".join(lines)

    def _take(self, lists: tuple[pd.DataFrame, pd.DataFrame]) -> None:
        self._lists = lists
        if self.market is None and len(lists[0]):
            self.market = str(lists[0].index[0])
        self.version += 1

    @property
    def _both(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        if self._lists is None:
            raise LabError("Markets and tokens are not read yet. Call read(), then wait().")
        return self._lists

    @property
    def _status(self) -> list[tuple[str, bool]]:
        return list(STATUS[self.status].items()) if self.status else []
