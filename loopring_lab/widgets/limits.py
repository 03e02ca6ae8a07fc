"""Whether a market would take an amount: the token's limits, in words."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NamedTuple

import pandas as pd

from loopring_lab.amounts.readable import number
from loopring_lab.amounts.scaling import decimal
from loopring_lab.client import Client
from loopring_lab.errors import AmountError, LabError
from loopring_lab.widgets.choices import one_of, unknown

__all__ = ["LIMITS", "Finding", "check_amount"]

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
        found.append(Finding("fits", f"{number(units)} {name} is within the limits the relayer names."))
    return sorted(found, key=lambda finding: KINDS.index(finding.kind))


def _row(frame: pd.DataFrame, name: str) -> pd.Series:
    return frame.loc[[name]].iloc[0]


def _amount(amount: object) -> Decimal:
    units = decimal(amount.strip()) if isinstance(amount, str) else None
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
    shown = f"{number(units)} {symbol}"
    found = [
        _above(units, token["order_amounts_maximum"], shown, symbol),
        _below(units, token["order_amounts_minimum"], shown, symbol),
        _digits(units, token, shown),
    ]
    if not pd.isna(token["order_amounts_dust"]) and units < token["order_amounts_dust"]:
        dust = f"{number(token['order_amounts_dust'])} {symbol}"
        found.append(Finding("note", f"It is dust: the rest of an order below {dust} counts as filled."))
    if _is(token["enabled"], False):
        words = f"Deposits and withdrawals of {symbol} are off; what that means for orders is not documented."
        found.append(Finding("note", words))
    return [finding for finding in found if finding is not None]


def _below(units: Decimal, least: Any, shown: str, symbol: str) -> Finding | None:
    if pd.isna(least):
        return Finding("note", f"The relayer names no least amount of {symbol} for an order.")
    limit = f"{number(least)} {symbol}"
    if units >= least:
        return None
    words = f"{shown} is below the least that an order may hold, {limit}. Give {limit} or more."
    return Finding("refused", words)


def _above(units: Decimal, most: Any, shown: str, symbol: str) -> Finding | None:
    if pd.isna(most):
        return Finding("note", f"The relayer names no greatest amount of {symbol} for an order.")
    limit = f"{number(most)} {symbol}"
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
