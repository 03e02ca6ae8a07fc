"""What the market and the tokens of a trade row mean: the look-up that scaling rows needs."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import NamedTuple

import numpy as np
import pandas as pd

from loopring_lab.errors import LabError

__all__ = ["Listing"]

PREFIXES = ("AMM-", "LP-", "COMBINE-")


class Pair(NamedTuple):
    """What a row's market means: codes into the listing, -1 where unknown."""

    market: int
    base: int
    quote: int
    pool: bool
    reason: str | None


class Listing:
    """Names, ids and decimals of tokens and markets, as the frames of `tables` hold them.

    Parameters
    ----------
    tokens, markets : pandas.DataFrame
        From `tables.tokens` and `tables.markets`.

    Raises
    ------
    LabError
        They are something else.
    """

    def __init__(self, tokens: pd.DataFrame, markets: pd.DataFrame) -> None:
        _check("tokens", tokens, {"token_id", "decimals"})
        _check("markets", markets, {"base_token_id", "quote_token_id"})
        self.tokens: list[str] = tokens.index.tolist()
        self.token_ids = _sentinel(tokens["token_id"])
        self.decimals = _sentinel(tokens["decimals"])
        self._code = {int(token_id): code for code, token_id in enumerate(self.token_ids[:-1])}
        self.markets: list[str] = markets.index.tolist()
        self._ids = list(zip(markets["base_token_id"], markets["quote_token_id"], strict=True))
        self.known = len(self.markets)
        self._exact = {name: code for code, name in enumerate(self.markets)}
        self._folded: dict[str, list[int]] = defaultdict(list)
        for name, code in self._exact.items():
            self._folded[name.casefold()].append(code)
        self._lock = threading.Lock()

    def code(self, token_id: int | None) -> int:
        """Find a token.

        Parameters
        ----------
        token_id : int or None
            Its id on the wire.

        Returns
        -------
        int
            Its position in the tokens table, -1 where it is not listed.
        """
        return -1 if token_id is None else self._code.get(token_id, -1)

    def pair(self, raw: str | None) -> Pair:
        """Find a market: as written, without a pool's prefix, or in another case.

        Parameters
        ----------
        raw : str or None
            The market member of a row.

        Returns
        -------
        Pair
            Codes of the market and its tokens, and why, where something about them is not known.
        """
        if raw is None:
            return Pair(-1, -1, -1, False, None)
        pool = raw[:4].upper() == "AMM-"
        found = self._find(raw)
        if not isinstance(found, int):
            with self._lock:
                code = self._exact.setdefault(raw, len(self._exact))
                self.markets += [raw] * (code == len(self.markets))
            return Pair(code, -1, -1, pool, found)
        base, quote = map(self.code, self._ids[found])
        missing = [i for i, code in zip(self._ids[found], (base, quote), strict=True) if code < 0]
        reason = f"tokenId {missing[0]} of market {raw!r} is not in the tokens table" if missing else None
        return Pair(found, base, quote, pool, reason)

    def _find(self, raw: str) -> int | str:
        names = [raw, *(raw[len(prefix) :] for prefix in PREFIXES if raw.upper().startswith(prefix))]
        for name in names:
            code = self._exact.get(name, self.known)
            if code < self.known:
                return code
        for name in names:
            codes = self._folded.get(name.casefold(), [])
            if len(codes) == 1:
                return codes[0]
            if codes:
                return f"market {raw!r} could be any of {', '.join(self.markets[code] for code in codes)}"
        return f"market {raw!r} is not in the markets table"


def _check(name: str, frame: object, needed: set[str]) -> None:
    if not isinstance(frame, pd.DataFrame) or not needed <= set(frame.columns):
        raise LabError(
            f"{name}: expected the frame that tables.{name} makes, got {type(frame).__name__}. "
            f"Read the relayer's answer with tables.{name}(answer) first."
        )


def _sentinel(numbers: pd.Series) -> np.ndarray:
    """Put -1 behind the numbers, so that the code -1 finds it."""
    return np.append(numbers.fillna(-1).to_numpy(np.int64), -1)
