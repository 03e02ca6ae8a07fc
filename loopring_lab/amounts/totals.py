"""Exact totals in which tokens do not mix."""

from __future__ import annotations

from typing import Any

import pandas as pd

from loopring_lab.amounts.display import only_column, tokens_of
from loopring_lab.amounts.series import cast
from loopring_lab.errors import AmountError, did_you_mean

# Names that no frame has.
_AMOUNTS = "amounts to add up"
_TOKENS = "tokens of the amounts to add up"


def total(
    amounts: pd.DataFrame | pd.Series,
    column: str | None = None,
    *,
    by: Any = None,
    token: str | None = None,
) -> Any:
    """Sum amounts exactly, each token by itself; unknown amounts raise an error instead of being skipped.

    Parameters
    ----------
    amounts : pandas.DataFrame or pandas.Series, shape (n,)
        A frame of trades or of a summary, or one column of it. A column of trades knows the tokens that it was read
        with; any other column needs `by` or `token`.
    column : str, optional
        The column of a frame to add up, such as ``"fee"``. By default there is one sum for each token.
    by : optional
        One sum for each group: a column of the frame or its name, a list of these, or anything else that
        `pandas.Series.groupby` takes. Groups with amounts of several tokens are refused where tokens are known.
    token : str, optional
        Add up this token alone; of a column that does not know its tokens, it says that there is no other.

    Returns
    -------
    pandas.Series of amount, or Amount
        Units, one row for each token or group; one amount with `token` and without `by`.

    Raises
    ------
    AmountError
        The tokens are not known or would mix, an amount is null, so that the sum would be too small, or a sum
        does not fit.
    LabError
        The frame has two columns of the name.

    Examples
    --------
    >>> lab.amounts.total(client.trades(account_id=10083), "fee")["ETH"]
    Amount('0.155625849767')
    >>> lab.amounts.total(lab.amounts.to_units(["1500000", "2500000"], 6), token="USDC")
    Amount('4')
    """
    values = _values(amounts, column)
    tokens = _tokens(amounts, column)
    if token is not None and tokens is not None:
        is_of_token = _is_of(tokens, token)
        amounts = amounts[is_of_token]
        values = values[is_of_token]
        tokens = tokens[is_of_token]
    # pandas would skip what is not known, and the sum would be too small.
    missing = values.isna().sum()
    if missing:
        raise AmountError(
            f"{missing} of {len(values)} amounts in {values.name!r} are null, so their total is unknown. "
            "Inspect them with lab.anomalies(trades), or drop them with .dropna()."
        )
    if by is not None:
        return _by_group(amounts, values, tokens, by)
    if token is not None:
        return values.sum()
    if tokens is None:
        raise AmountError(
            f"total: nothing says whether the amounts in {values.name!r} are of one token. Pass the frame, as in "
            "total(trades, 'fee'), the tokens as by=, or the one token that all are of, as in token='ETH'."
        )
    if tokens.isna().any():
        raise AmountError(
            f"{tokens.isna().sum()} of {len(tokens)} amounts in {values.name!r} have no {tokens.name}, so they "
            "have no total. Inspect them with lab.anomalies(trades), or drop them with .dropna()."
        )
    return values.groupby(tokens, observed=True).sum()


def _values(amounts: Any, column: Any) -> pd.Series:
    """Return the amounts to add up."""
    if isinstance(amounts, pd.Series) and column is None:
        return cast(amounts)
    if not isinstance(amounts, pd.DataFrame) or not isinstance(column, str):
        got = f"{type(amounts).__name__} and {column!r}"
        raise AmountError(
            f"total: expected a pandas DataFrame with the name of a column, or a pandas Series, got {got}. Write "
            "total(trades, 'fee'), or of a column total(fees, by=tokens)."
        )
    if column not in amounts.columns:
        listed = f"It has {', '.join(map(str, amounts.columns)) or 'no columns'}."
        hint = did_you_mean(column, amounts.columns, listed)
        raise AmountError(f"total: the frame has no column {column!r}. {hint}")
    return cast(only_column(amounts, column))


def _tokens(amounts: Any, column: str | None) -> pd.Series | None:
    """Return the token of each amount: as a frame says it, or as a column of trades was read with it."""
    if column is not None:
        return tokens_of(amounts, column)
    known = getattr(amounts.array, "tokens", None)
    return None if known is None else pd.Series(known, amounts.index, name="token")


def _is_of(tokens: pd.Series, token: str) -> Any:
    """Return which rows are of a token; there must be some."""
    found = tokens.astype(object) == token
    if len(tokens) and not found.any():
        known = tokens.dropna().unique()
        hint = did_you_mean(token, known, f"There are {', '.join(map(str, known))}.")
        raise AmountError(f"total: no amount is of token {token!r}. {hint}")
    return found.to_numpy()


def _by_group(
    amounts: Any,
    values: pd.Series,
    tokens: pd.Series | None,
    by: Any,
) -> Any:
    """Add up each group; a frame knows columns by name."""
    table = amounts
    if isinstance(amounts, pd.Series):
        table = pd.DataFrame(index=amounts.index)
    table = table.assign(**{_AMOUNTS: values, _TOKENS: tokens})
    try:
        groups = table.groupby(by, observed=True, dropna=False)
    except (KeyError, TypeError, ValueError) as error:
        raise AmountError(
            f"total: by={_brief(by)} groups nothing ({error}). Give a column of the frame or its name, or as many "
            "values as there are amounts; a column alone knows no names."
        ) from None
    if tokens is not None:
        kinds = groups[_TOKENS].nunique(dropna=False)
        if (kinds > 1).any():
            mixed = kinds.index[kinds > 1][0]
            raise AmountError(
                f"total: group {mixed!r} of by={_brief(by)} has amounts of {kinds[mixed]} tokens, which do not add up. "
                "Group by the token as well, such as by=['market', 'fee_token'], or choose one, as in token='ETH'."
            )
    return groups[_AMOUNTS].sum().rename(values.name)


def _brief(by: Any) -> str:
    return repr(by) if isinstance(by, (str, list)) else type(by).__name__
