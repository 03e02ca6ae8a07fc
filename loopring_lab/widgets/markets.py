"""What the market explorer chooses and computes, without a view: which are listed, and which is looked at."""

from __future__ import annotations

from typing import Any

import pandas as pd
from traitlets import Int

from loopring_lab.amounts.readable import Shown, show
from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.widgets.choices import Choice, named, one_of, text, unknown
from loopring_lab.widgets.limits import LIMITS, Finding, check_amount
from loopring_lab.widgets.work import Report, Working

__all__ = ["Markets"]

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
