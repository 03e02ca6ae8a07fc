"""What the contract leaves open, and what can go wrong: one setting for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, get_args

from loopring_lab.errors import LabError

__all__ = ["FAULTS", "Settings"]

Order = Literal["newest", "oldest", "shuffled"]
Numbers = Literal["string", "number"]
MarketFilter = Literal["exact", "inclusive"]
ErrorShape = Literal["result_info", "flat", "ok"]
FeeKey = Literal["ignored", "required"]

FAULTS = ("429", "500", "503", "reset", "truncated", "slow")
"""Every kind of fault: three statuses, a TCP reset, a body shorter than announced, a body that stalls."""

_CHOICES = {
    "order": get_args(Order),
    "numbers": get_args(Numbers),
    "market_filter": get_args(MarketFilter),
    "error_shape": get_args(ErrorShape),
    "fee_key": get_args(FeeKey),
}
_LEAST = {"growth": 0, "growth_reserve": 0, "latency": 0, "slow_seconds": 0, "max_faults_in_a_row": 1}
SHORTEST_ROW, LONGEST_ROW = 7, 15
ADDRESS = re.compile(r"0x[0-9a-fA-F]{40}")
HASH = re.compile(r"0x[0-9a-fA-F]{64}")
UPDATE_FEES = {
    "ETH": 19 * 10**12,
    "LRC": 33 * 10**15,
    "USDT": 70_000,
    "DAI": 70 * 10**15,
    "USDC": 70_000,
}
"""About 7 US cents in the tokens that pay for a key update, in smallest units."""


@dataclass(frozen=True)
class Settings:
    """How an embedded relayer behaves where the contract is silent.

    Parameters
    ----------
    order : {"newest", "oldest", "shuffled"}
        Order of the rows of a history; ``shuffled`` is arbitrary but stable.
    row_length : int or None
        Members of a trade row, 7 to 15. None: 14 in the synthetic world, as recorded in a recording. 10 is
        the documented short layout (0-6, accountId, tokenId, storageId); 15 is 14 and an unknown member; the
        others are the first so many members. A recorded row is not filled up, except that a row of 13 gets
        its 14th member, the role (``maker`` where the fee is 0).
    numbers : {"string", "number"}
        Whether numeric members of a row are JSON strings, or JSON numbers in the same digits.
    prefix : bool
        Whether pool fills carry ``AMM-`` in their market.
    market_filter : {"exact", "inclusive"}
        Whether ``market=LRC-ETH`` leaves the pool's fills out (ask for ``AMM-LRC-ETH``) or has them too.
    error_shape : {"result_info", "flat", "ok"}
        ``{"resultInfo": {"code", "message"}}``, ``{"code", "msg"}``, or the first inside HTTP 200 for
        refusals.
    growth : int
        Rows that newly appear after each trades answer, of the account and fill type that was read.
    growth_reserve : int
        Newest rows of each account and fill type that are held back at the start where there is growth.
    rate_limit : int or None
        Requests an endpoint accepts in any second; beyond it HTTP 429. None: no limit.
    retry_after : bool
        Whether a 429 says ``Retry-After: 1``.
    latency : float
        Seconds before each answer; requests at the same time wait together.
    faults : mapping of str to float
        Kind of fault to its probability per request.
    fault_seed : int
        Which requests meet a fault.
    max_faults_in_a_row : int
        Most faults in a row for one address, so that whoever tries again gets through.
    slow_seconds : float
        How long a ``slow`` answer stalls in the middle of its body.
    exchange : str
        Address of the exchange that accounts belong to; the default is the mainnet's.
    chain_id : int
        Chain of the exchange; 1 is the mainnet.
    update_seconds : float or None
        Seconds from one step of a key update (received, processing, processed) to the next, at most. None:
        nothing moves but by `Relayer.step`.
    update_fees : mapping of str to int
        Symbols of the tokens that can pay for a key update, each with the fee in smallest units.
    fail_updates : mapping of int to str
        Number of an accepted key update, counted from 1 over all accounts, to the reason why it fails in its
        last step.
    bad_signature_code : int
        Code for an L1 signature that the owner did not make; no document tells it.
    bare_signatures : bool
        Whether 65 bytes without a type byte are read as signed directly, as a later official client sends.
    key_seed_required : bool
        Whether a key update needs a keySeed, as the contract says; an early official client sends none, and
        the usual one is then kept.
    fee_key : {"ignored", "required"}
        Whether asking for the fee of an update needs an API key. Public documents want one, and yet an
        official client sends one key for all accounts, built in: so by default any or none will do.
    wallet_factories : mapping of str to str
        More wallet factories than the protocol module knows: address to init code hash, ``0x`` hex.

    Raises
    ------
    LabError
        Where a value is not allowed.

    Examples
    --------
    >>> Settings(order="oldest", row_length=13).numbers
    'string'
    >>> Settings(row_length=16)
    Traceback (most recent call last):
    ...
    loopring_lab.errors.LabError: Setting row_length: expected None or 7 to 15, got 16. ...
    """

    order: Order = "newest"
    row_length: int | None = None
    numbers: Numbers = "string"
    prefix: bool = True
    market_filter: MarketFilter = "exact"
    error_shape: ErrorShape = "result_info"
    growth: int = 0
    growth_reserve: int = 100
    rate_limit: int | None = None
    retry_after: bool = False
    latency: float = 0.0
    faults: Mapping[str, float] = field(default_factory=dict)
    fault_seed: int = 1
    max_faults_in_a_row: int = 3
    slow_seconds: float = 1.0
    exchange: str = "0x0BABA1Ad5bE3a5C0a66E7ac838a129Bf948f1eA4"
    chain_id: int = 1
    update_seconds: float | None = 0.5
    update_fees: Mapping[str, int] = field(default_factory=lambda: UPDATE_FEES)
    fail_updates: Mapping[int, str] = field(default_factory=dict)
    bad_signature_code: int = 104005
    bare_signatures: bool = True
    key_seed_required: bool = True
    fee_key: FeeKey = "ignored"
    wallet_factories: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("faults", "update_fees", "fail_updates", "wallet_factories"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        self._check_serving()
        self._check_updates()

    def _check_serving(self) -> None:
        for name, allowed in _CHOICES.items():
            self._check(name, getattr(self, name) in allowed, "one of " + ", ".join(allowed))
        for name, least in _LEAST.items():
            self._check(name, getattr(self, name) >= least, f"at least {least}")
        length = self.row_length
        self._check("row_length", length is None or SHORTEST_ROW <= length <= LONGEST_ROW, "None or 7 to 15")
        self._check("rate_limit", self.rate_limit is None or self.rate_limit >= 1, "None or at least 1")
        self._check("faults", set(self.faults) <= set(FAULTS), "kinds among " + ", ".join(FAULTS))
        chances = self.faults.values()
        self._check(
            "faults",
            all(chance >= 0 for chance in chances) and sum(chances) <= 1,
            "probabilities from 0 whose sum is at most 1",
        )

    def _check_updates(self) -> None:
        self._check("exchange", bool(ADDRESS.fullmatch(self.exchange)), "0x and 40 hex digits")
        self._check("chain_id", 0 <= self.chain_id < 1 << 256, "a whole number from 0")
        seconds, fees, failures = self.update_seconds, self.update_fees, self.fail_updates
        self._check("update_seconds", seconds is None or seconds > 0, "None or more than 0")
        self._check("update_fees", all(0 <= fee < 1 << 96 for fee in fees.values()), "fees from 0")
        self._check("fail_updates", all(number >= 1 for number in failures), "numbers from 1")
        known = all(ADDRESS.fullmatch(a) and HASH.fullmatch(h) for a, h in self.wallet_factories.items())
        self._check("wallet_factories", known, "addresses and init code hashes, 0x and 40 or 64 hex digits")

    def _check(self, name: str, holds: bool, expected: str) -> None:
        if not holds:
            got = getattr(self, name)
            shown = dict(got) if isinstance(got, Mapping) else got
            raise LabError(f"Setting {name}: expected {expected}, got {shown!r}. Change it or leave it out.")

    @classmethod
    def from_text(cls, pairs: Iterable[str]) -> Settings:
        """Settings from ``name=value`` texts, as a command line has them.

        Parameters
        ----------
        pairs : iterable of str
            For example ``order=oldest``, ``prefix=no``, ``faults=429:0.02,reset:0.01``.

        Returns
        -------
        Settings
            The defaults, changed by the pairs.

        Raises
        ------
        LabError
            Where a name is unknown, given twice, or its value cannot be read.

        Examples
        --------
        >>> Settings.from_text(["row_length=10", "faults=429:0.02"]).faults["429"]
        0.02
        """
        values: dict[str, Any] = {}
        for pair in pairs:
            name, _, text = pair.partition("=")
            name = name.strip()
            if name not in _READERS:
                names = ", ".join(_READERS)
                raise LabError(f"Setting {name!r}: no such name. Write name=value with one of {names}.")
            if name in values:
                raise LabError(f"Setting {name}: given twice. Give it once.")
            try:
                values[name] = _READERS[name](text.strip())
            except ValueError:
                hint = f"Write for example {_example(name)}."
                raise LabError(f"Setting {name}: cannot read {text!r}. {hint}") from None
        return cls(**values)


def _optional_int(text: str) -> int | None:
    return None if text.lower() == "none" else int(text)


def _optional_float(text: str) -> float | None:
    return None if text.lower() == "none" else float(text)


def _bool(text: str) -> bool:
    if text.lower() not in ("yes", "no", "true", "false", "1", "0"):
        raise ValueError(text)
    return text.lower() in ("yes", "true", "1")


def _mapping(read_key: Callable[[str], Any], read_value: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> dict[Any, Any]:
        pairs = (part.split(":", 1) for part in text.split(",") if part)
        return {read_key(key.strip()): read_value(value.strip()) for key, value in pairs}

    return read


_BY_TYPE: dict[str, Callable[[str], Any]] = {
    "int": int,
    "int | None": _optional_int,
    "float": float,
    "float | None": _optional_float,
    "bool": _bool,
    "Mapping[str, float]": _mapping(str, float),
    "Mapping[str, int]": _mapping(str, int),
    "Mapping[int, str]": _mapping(int, str),
    "Mapping[str, str]": _mapping(str, str),
}
_READERS = {item.name: _BY_TYPE.get(str(item.type), str) for item in fields(Settings)}


def _example(name: str) -> str:
    examples = {
        int: "3",
        float: "0.05",
        _optional_int: "13",
        _optional_float: "0.05",
        _bool: "yes",
        _READERS["faults"]: "429:0.02,reset:0.01",
        _READERS["update_fees"]: "ETH:19000000000000,USDC:70000",
        _READERS["fail_updates"]: "2:balance too low",
        _READERS["wallet_factories"]: "0x<40 digits>:0x<64 digits>",
    }
    return f"{name}={examples[_READERS[name]]}"
