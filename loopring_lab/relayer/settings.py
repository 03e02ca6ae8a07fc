"""Settings of the embedded relayer: how much it serves, how well, and whose exchange it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    NonNegativeFloat,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from loopring_lab.bounded import shown
from loopring_lab.errors import LabError

Fault = Literal["429", "500", "503"]

ADDRESS = r"^0x[0-9a-fA-F]{40}$"
Address = Annotated[str, StringConstraints(pattern=ADDRESS)]
CodeHash = Annotated[str, StringConstraints(pattern=r"^0x[0-9a-fA-F]{64}$")]
Host = Annotated[
    str,
    StringConstraints(
        pattern=r"^(\[[0-9a-fA-F:.]+\]|[\w.-]+)(:[0-9]{1,5})?$",
        to_lower=True,
    ),
]
Uint96 = Annotated[int, Field(ge=0, lt=2**96)]
UpdateNumber = Annotated[int, Field(ge=1)]

# The tokens are those that pay fees on the real exchange (its developers' documents, Resources, Fees). The amounts are
# a choice: 7 US cents at the first prices of the synthetic world (mainnet.json), in smallest units. The real ones
# followed the price of gas, every 15 minutes.
UPDATE_FEES = {
    "ETH": 19 * 10**12,
    "LRC": 33 * 10**15,
    "USDT": 70_000,
    "DAI": 70 * 10**15,
    "USDC": 70_000,
}


@dataclass(frozen=True, config=ConfigDict(extra="forbid", validate_default=True))
class Settings:
    """What an embedded relayer does differently on request.

    Parameters
    ----------
    row_length : int or None
        Members of a trade row, 7 to 14: the real exchange sent 7 until early 2022, then 13, then 14. None: 14.
    growth : int
        Rows that appear after each trades response, in the account that was read. With growth, the newest
        100 rows of each account are held back at first.
    rate_limit : int or None
        Requests an endpoint accepts in any second; beyond it HTTP 429. None: no limit.
    latency : float
        Seconds before each response; concurrent requests wait at the same time.
    faults : mapping of str to float
        HTTP status of a failure (``429``, ``500``, ``503``) to its probability per request. Each URL fails at
        most three times in a row, so that retries succeed in the end.
    update_seconds : float or None
        Seconds between two moments at which pending key updates are processed. None: only when `Relayer.step` is
        called.
    update_fees : mapping of str to int
        Symbols of the tokens that can pay for a key update, each with the fee in smallest units.
    fail_updates : mapping of int to str
        Number of an accepted key update, counted from 1 over all accounts, to the reason it fails in its
        last step.
    exchange : str
        Address of the exchange that accounts belong to; the default is nobody's, so that an update signed for
        the embedded relayer is valid on no other exchange.
    chain_id : int
        Chain of the exchange; the default is the usual id of a local chain.
    wallet_factories : mapping of str to str
        Additional wallet factories: address to init code hash, ``0x`` hex.
    hosts : tuple of str
        Further values of the header ``Host`` to answer to, such as ``relayer.example``, where something
        forwards requests to the relayer; ports are ignored. Other names than these, its own address and
        ``localhost`` get "invalid host header": a web page could otherwise read it under a name of its own.

    Raises
    ------
    LabError
        Where a name is unknown or a value is not allowed.

    Examples
    --------
    >>> lab.relayer.Settings(row_length=13, faults={"429": 0.02}).rate_limit
    >>> lab.relayer.Settings(row_length=16)
    Traceback (most recent call last):
    ...
    loopring_lab.errors.LabError: Setting row_length: Input should be less than or equal to 14, got 16. ...
    """

    row_length: int | None = Field(default=None, ge=7, le=14)
    growth: int = Field(default=0, ge=0)
    rate_limit: int | None = Field(default=None, ge=1)
    latency: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    faults: Mapping[Fault, NonNegativeFloat] = Field(default_factory=dict)
    # This is long enough to watch a step, and short enough not to keep a notebook waiting.
    update_seconds: float | None = Field(default=0.5, gt=0, allow_inf_nan=False)
    update_fees: Mapping[str, Uint96] = Field(default_factory=UPDATE_FEES.copy)
    fail_updates: Mapping[UpdateNumber, str] = Field(default_factory=dict)
    # Nobody has a contract at this address, and Hardhat and Anvil give local chains this id, so that nothing signed
    # here is valid elsewhere.
    exchange: str = Field(
        default="0x8ACBCa8D25527B479Fd4E5Ffd79732878417702c",
        pattern=ADDRESS,
    )
    chain_id: int = Field(default=31337, ge=0, lt=2**256)
    wallet_factories: Mapping[Address, CodeHash] = Field(default_factory=dict)
    hosts: tuple[Host, ...] = ()

    # A command line has text only; these two read it, and pass on anything else as it is.

    @field_validator(
        "faults",
        "update_fees",
        "fail_updates",
        "wallet_factories",
        mode="before",
    )
    @classmethod
    def _read_pairs(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        pairs = {}
        for part in filter(None, value.split(",")):
            key, colon, text = part.partition(":")
            if not colon:
                raise PydanticCustomError(
                    "pairs",
                    "Input should be pairs key:value, separated by commas",
                )
            pairs[key.strip()] = text.strip()
        return pairs

    @field_validator("hosts", mode="before")
    @classmethod
    def _read_list(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part)

    @field_validator("faults", "update_fees", "fail_updates", "wallet_factories")
    @classmethod
    def _freeze(cls, value: Mapping[Any, Any]) -> Mapping[Any, Any]:
        # This makes a copy that cannot be changed, because relayers share settings.
        return MappingProxyType(dict(value))

    @field_validator("faults")
    @classmethod
    def _check_sum(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        if sum(value.values()) > 1:
            raise PydanticCustomError(
                "sum", "The sum of the probabilities should be at most 1"
            )
        return value

    @model_validator(mode="wrap")
    @classmethod
    def _explain(
        cls, values: Any, handler: ModelWrapValidatorHandler[Settings]
    ) -> Settings:
        try:
            return handler(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0])
        _refuse_unknown(name)
        raise LabError(
            f"Setting {name}: {first['msg']}, got {shown(first['input'])}. "
            "See help(loopring_lab.relayer.Settings) for what it means."
        )

    @classmethod
    def from_text(cls, pairs: Iterable[str]) -> Settings:
        """Build settings from ``name=value`` texts, as a command line passes them.

        Parameters
        ----------
        pairs : iterable of str
            For example ``row_length=13``, ``faults=429:0.02,500:0.01``, ``hosts=relayer.example``.

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
        >>> lab.relayer.Settings.from_text(["row_length=13", "faults=429:0.02"]).faults["429"]
        0.02
        """
        values: dict[str, Any] = {}
        for pair in pairs:
            name, _, text = pair.partition("=")
            name = name.strip()
            _refuse_unknown(name)
            if name in values:
                raise LabError(f"Setting {name}: given more than once. Give it once.")
            values[name] = text.strip()
        return cls(**values)


def _refuse_unknown(name: str) -> None:
    names = [field.name for field in fields(Settings)]
    if name not in names:
        hint = f"Write name=value with one of {', '.join(names)}."
        raise LabError(f"Setting {name!r}: there is no such setting. {hint}")
