"""Settings of the embedded relayer: what the contract leaves open, and what can go wrong."""

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

Order = Literal["newest", "oldest", "shuffled"]
Numbers = Literal["string", "number"]
MarketFilter = Literal["exact", "inclusive"]
ErrorShape = Literal["result_info", "flat", "ok"]
FeeKey = Literal["ignored", "required"]
# A choice: what clients have to survive. Three statuses, a TCP reset, a body shorter than announced, and one that
# stalls.
Fault = Literal["429", "500", "503", "reset", "truncated", "slow"]

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

# Values for the hint of an error, where the default would not show the form.
EXAMPLES = {
    "row_length": "13",
    "page_rows": "20",
    "counted_rows": "100",
    "rate_limit": "5",
    "prefix": "no",
    "latency": "0.05",
    "update_seconds": "0.05",
    "faults": "429:0.02,reset:0.01",
    "update_fees": "ETH:19000000000000,USDC:70000",
    "fail_updates": "2:balance too low",
    "wallet_factories": "0x<40 hex digits>:0x<64 hex digits>",
    "hosts": "relayer.example,localhost:9000",
    "rpc_log_blocks": "10000",
    "rpc_log_results": "1000",
    "rpc_omitted_logs": "0.05",
    "rpc_missing_bodies": "0.01",
}


@dataclass(frozen=True, config=ConfigDict(extra="forbid", validate_default=True))
class Settings:
    """Behaviour of an embedded relayer where the contract is silent.

    Parameters
    ----------
    order : {"newest", "oldest", "shuffled"}
        Order of the rows of a history; ``shuffled`` is arbitrary but stable.
    row_length : int or None
        Members of a trade row, 7 to 15. None: 14 in the synthetic world, as recorded in a recording. 10 is
        the documented short layout (0-6, accountId, tokenId, storageId); 15 is 14 and an unknown member; any
        other number keeps that many members from the start. Recorded rows are not padded, except that a row
        of 13 gets its 14th member, the role (``maker`` where the fee is 0).
    numbers : {"string", "number"}
        Whether numeric members of a row are JSON strings, or JSON numbers with the same digits.
    prefix : bool
        Whether the market of a pool fill is prefixed with ``AMM-``.
    market_filter : {"exact", "inclusive"}
        Whether ``market=LRC-ETH`` excludes the pool's fills (``AMM-LRC-ETH`` selects them) or includes them.
    error_shape : {"result_info", "flat", "ok"}
        ``{"resultInfo": {"code", "message"}}``, ``{"code", "msg"}``, or the first with HTTP 200 instead of
        400.
    growth : int
        Rows that appear after each trades response, in the account and fill type that was read.
    growth_reserve : int
        Newest rows of each account and fill type that are held back at the start if there is growth.
    rate_limit : int or None
        Requests an endpoint accepts in any second; beyond it HTTP 429. None: no limit.
    retry_after : bool
        Whether a 429 carries ``Retry-After: 1``.
    latency : float
        Seconds before each response; concurrent requests wait at the same time.
    faults : mapping of str to float
        Kind of fault (``429``, ``500``, ``503``, ``reset``, ``truncated``, ``slow``) to its probability per
        request.
    fault_seed : int
        Seed that decides which requests meet a fault.
    max_faults_in_a_row : int
        Most consecutive faults for one URL, so that retries succeed in the end.
    slow_seconds : float
        How long a ``slow`` response stalls in the middle of its body, in seconds.
    exchange : str
        Address of the exchange that accounts belong to; the default is nobody's, so that an update signed for
        the embedded relayer is valid on no other exchange.
    chain_id : int
        Chain of the exchange; the default is the usual id of a local chain.
    update_seconds : float or None
        Seconds from one step of a key update (received, processing, processed) to the next, at most. None:
        updates advance only when `Relayer.step` is called.
    update_fees : mapping of str to int
        Symbols of the tokens that can pay for a key update, each with the fee in smallest units.
    fail_updates : mapping of int to str
        Number of an accepted key update, counted from 1 over all accounts, to the reason it fails in its
        last step.
    bad_signature_code : int
        Error code for an L1 signature that the owner did not make; no public document states it.
    bare_signatures : bool
        Whether 65 bytes without a type byte are read as signed directly, as a later official client sends.
    key_seed_required : bool
        Whether a key update needs a keySeed, as the contract says; an early official client sends none, and
        the default text is stored instead.
    fee_key : {"ignored", "required"}
        Whether the fee of an update can be read only with an API key. Public documents require one, but an
        official client sends the same built-in key for all accounts; so by default it is not checked.
    wallet_factories : mapping of str to str
        Additional wallet factories: address to init code hash, ``0x`` hex.
    hosts : tuple of str
        Further values of the header ``Host`` to answer to, such as ``relayer.example``, where something
        forwards requests to the relayer; ports are ignored. Other names than these, its own address and
        ``localhost`` get "Invalid host header": a web page could otherwise read it under a name of its own.

    rpc_log_blocks, rpc_log_results : int or None
        Most L1 blocks that one ``eth_getLogs`` of the embedded chain may ask for, and most logs that it may
        find; beyond them an error -32005. None: no limit.
    rpc_batch : int
        Most JSON-RPC requests in a batch; beyond it an error -32600. 0: no batches.
    rpc_omitted_logs : float
        Share of logs, from 0 to 1, that ``eth_getLogs`` leaves out without saying so where it is asked for
        more than 1,000 L1 blocks at once; smaller ranges are complete.
    rpc_missing_bodies : float
        Share of transactions, from 0 to 1, that ``eth_getTransactionByHash`` does not have: it answers null.

    page_rows : int or None
        Most rows of a trades response, whatever ``limit`` asks for. None: as many as asked for, up to 50.
    counted_rows : int or None
        Where ``totalNum`` stops counting, such as at 100 of 137 rows. None: it counts all rows.

    Raises
    ------
    LabError
        Where a name is unknown or a value is not allowed.

    Examples
    --------
    >>> Settings(order="oldest", row_length=13).numbers
    'string'
    >>> Settings(row_length=16)
    Traceback (most recent call last):
    ...
    loopring_lab.errors.LabError: Setting row_length: Input should be less than or equal to 15, got 16. ...
    """

    # Where each default comes from. "Contract" is the documented API; "recorded" are answers and rows of the real
    # exchange; "clients" is what its public clients rely on; all else is a choice, as nothing public tells.

    # Rows. Clients: newest first. Choice: None serves the newest recorded layout, of 14, in the synthetic world.
    # Recorded: all members are strings, and the market of a pool's fill begins with AMM-.
    order: Order = "newest"
    row_length: int | None = Field(default=None, ge=7, le=15)
    numbers: Numbers = "string"
    prefix: bool = True
    # Choice: nothing shows whether market=LRC-ETH includes the pool's rows.
    market_filter: MarketFilter = "exact"
    # Contract: HTTP 400 with resultInfo. The other two shapes were seen, too.
    error_shape: ErrorShape = "result_info"
    # Choice: a history that rests; if it grows, two pages of it are still to come.
    growth: int = Field(default=0, ge=0)
    growth_reserve: int = Field(default=100, ge=0)
    # The real exchange: 5 requests per second and endpoint, and no Retry-After. Choice: no limit, as there is nobody
    # to protect.
    rate_limit: int | None = Field(default=None, ge=1)
    retry_after: bool = False
    # Choice: nothing goes wrong unless it is asked for; then 3 faults in a row leave clients that try 4 times a way
    # through, and a stall of a second is shorter than any usual timeout.
    latency: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    faults: Mapping[Fault, NonNegativeFloat] = Field(default_factory=dict)
    fault_seed: int = 1
    max_faults_in_a_row: int = Field(default=3, ge=1)
    slow_seconds: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    # Choice: an address that nobody has a contract at, and the id that Hardhat and Anvil give local chains, so that
    # nothing signed here is valid elsewhere.
    exchange: str = Field(
        default="0x8ACBCa8D25527B479Fd4E5Ffd79732878417702c",
        pattern=ADDRESS,
    )
    chain_id: int = Field(default=31337, ge=0, lt=2**256)
    # Choice: steps that can be watched, and do not keep a notebook waiting.
    update_seconds: float | None = Field(default=0.5, gt=0, allow_inf_nan=False)
    update_fees: Mapping[str, Uint96] = Field(default_factory=UPDATE_FEES.copy)
    fail_updates: Mapping[UpdateNumber, str] = Field(default_factory=dict)
    # Choice: that of a wrong signature for an API key (contract); the code for a key update is not documented.
    bad_signature_code: int = 104005
    # Clients: a later official one sends 65 bytes without a type.
    bare_signatures: bool = True
    # Contract: keySeed is required.
    key_seed_required: bool = True
    # Clients: an official one sends the same built-in key for all accounts.
    fee_key: FeeKey = "ignored"
    wallet_factories: Mapping[Address, CodeHash] = Field(default_factory=dict)
    hosts: tuple[Host, ...] = ()
    # Choice: no limits, and batches as long as those that public Ethereum endpoints answer.
    rpc_log_blocks: int | None = Field(default=None, ge=1)
    rpc_log_results: int | None = Field(default=None, ge=1)
    rpc_batch: int = Field(default=100, ge=0)
    rpc_omitted_logs: float = Field(default=0.0, ge=0, le=1)
    rpc_missing_bodies: float = Field(default=0.0, ge=0, le=1)
    # Contract: at most 50 rows a page, and totalNum counts all rows, whatever the limit (recorded).
    page_rows: int | None = Field(default=None, ge=1, le=50)
    counted_rows: int | None = Field(default=None, ge=1)

    # A command line has text only; these read it, and pass on anything else as it is.

    @field_validator(
        "row_length",
        "page_rows",
        "counted_rows",
        "rate_limit",
        "update_seconds",
        "rpc_log_blocks",
        "rpc_log_results",
        mode="before",
    )
    @classmethod
    def _read_none(cls, value: Any) -> Any:
        if isinstance(value, str) and value.lower() == "none":
            return None
        return value

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
        # A copy that cannot be changed: relayers share settings.
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
        # Defaults that a function makes are no attributes, and have examples.
        example = EXAMPLES.get(name, getattr(cls, name, ""))
        raise LabError(
            f"Setting {name}: {first['msg']}, got {shown(first['input'])}. Write, for example, {name}={example}."
        )

    @classmethod
    def from_text(cls, pairs: Iterable[str]) -> Settings:
        """Build settings from ``name=value`` texts, as a command line passes them.

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
