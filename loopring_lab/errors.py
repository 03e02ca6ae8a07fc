"""The errors that loopring_lab raises on purpose.

LabError
├── TransportError         no usable answer arrived            .maybe_received
│   ├── RelayerUnreachable
│   └── RelayerTimeout
├── RelayerError           the relayer answered with an error  .status .code .message .endpoint ...
│   ├── RateLimited
│   └── NotAuthorized
├── UnexpectedAnswer       the answer breaks the contract      .field .expected .got
│   └── IncompleteHistory  rows are missing
├── ArchiveError           a file of trades or of blocks is not usable as it is
│   ├── NotAnArchive       there is no such file, or it is another one
│   ├── DamagedArchive     a part of it is not as it was written
│   ├── NewerArchive       a later version of loopring_lab wrote it
│   └── DiskRefused        the disk is full or read-only, or another process has the file
├── BlockError             calldata or block data that cannot be read
├── RpcError               an Ethereum endpoint refuses a request, or answers other than documented
├── AmountError            an amount cannot be held exactly (also a ValueError)
├── ProtocolError          an invalid key, signature or field (also a ValueError) .field
└── KeyUpdateError         a key update cannot be made, or failed

Every message ends with what to do next.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "AmountError", "ArchiveError", "BlockError", "DamagedArchive", "DiskRefused", "IncompleteHistory",
    "KeyUpdateError", "LabError", "NewerArchive", "NotAnArchive", "NotAuthorized", "ProtocolError",
    "RateLimited", "RelayerError", "RelayerTimeout", "RelayerUnreachable", "RpcError", "TransportError",
    "UnexpectedAnswer",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


class LabError(Exception):
    """Base class of all errors of the toolkit: catch it to catch every one of them.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> try:
    ...     lab.connect(recording="no-such-folder")
    ... except lab.LabError as error:
    ...     print(error)
    recording ...no-such-folder: expected a folder of saved responses, got no such folder. Give the folder...
    """

    def __str__(self) -> str:
        # Paths and answers may hold what a terminal takes for commands.
        return visible(super().__str__())

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are copied to other processes by calling their class with `args`, which here are one message,
        # while several classes take more. So the parts are put together again as they are.
        return _restored, (type(self), self.args, self.__dict__)


class TransportError(LabError):
    """No usable answer arrived.

    Parameters
    ----------
    message : str
        What happened, and what to do next.
    maybe_received : bool
        Whether the relayer may have received the request and acted on it.
    """

    def __init__(self, message: str, *, maybe_received: bool = False) -> None:
        self.maybe_received = maybe_received
        super().__init__(message)


class RelayerUnreachable(TransportError):
    """Nothing answers at the address, or the connection broke; retrying did not help."""


class RelayerTimeout(TransportError):
    """The relayer took longer than the timeout; retrying did not help."""


class RelayerError(LabError):
    """The relayer answered with an error.

    Parameters
    ----------
    message : str
        The relayer's message, without secrets; empty if it gave none.
    status : int
        HTTP status.
    code : int or None
        The relayer's own error code (``resultInfo.code``), if it gave one.
    hint : str
        What to do next.
    endpoint : str
        What was asked for, such as ``GET /api/v3/account``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: int | None = None,
        hint: str,
        endpoint: str = "",
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.endpoint = endpoint
        verb = "failed" if status >= 500 else "refused"
        reason = f": {message.rstrip('.')}." if message else " without a reason."
        details = [f"HTTP {status}"]
        if code is not None:
            details.insert(0, f"code {code}")
        if endpoint:
            details.insert(0, endpoint)
        super().__init__(with_details(f"The relayer {verb}{reason} {hint}", *details))

    @property
    def maybe_received(self) -> bool:
        """Whether the relayer may have acted on the request: true of server errors (5xx)."""
        return self.status >= 500


class RateLimited(RelayerError):
    """HTTP 429: too many requests, even after waiting."""


class NotAuthorized(RelayerError):
    """The API key is missing or not accepted."""


class UnexpectedAnswer(LabError):
    """An answer that does not have the documented shape.

    Parameters
    ----------
    field : str
        Name and position of the field at fault.
    expected, got : object
        What the contract promises there, and what was received.
    hint : str
        What to do next.
    """

    def __init__(self, field: str, *, expected: object, got: object, hint: str) -> None:
        self.field = field
        self.expected = expected
        self.got = got
        super().__init__(f"{field}: expected {expected}, got {got}. {hint}")


class IncompleteHistory(UnexpectedAnswer):
    """The relayer reports a different number of rows than it returns, however often it is asked."""


class ArchiveError(LabError):
    """A file of trades or of blocks cannot be used as it is; the message says which data is safe."""


class NotAnArchive(ArchiveError):
    """There is no such file, nothing is stored in it, or it is something else."""


class DamagedArchive(ArchiveError):
    """A part of the file is not as it was written."""


class NewerArchive(ArchiveError):
    """A later version of the toolkit, or of DuckDB, wrote the file."""


class DiskRefused(ArchiveError):
    """The disk is full or read-only, or another process has the file."""


class BlockError(LabError):
    """Calldata or block data that cannot be read; the message names the place."""


class RpcError(LabError):
    """An Ethereum endpoint refuses a request, or answers other than documented."""


class AmountError(LabError, ValueError):
    """An amount that cannot be represented exactly; it is never rounded instead."""


class ProtocolError(LabError, ValueError):
    """A key, a signature or a field that is not valid in the protocol.

    Parameters
    ----------
    field : str
        Its name in the contract, such as ``maxFee``.
    problem : str
        What is wrong with it; never a secret.
    hint : str
        What to do next.
    """

    def __init__(self, field: str, problem: str, *, hint: str) -> None:
        self.field = field
        super().__init__(f"{field}: {problem}. {hint}")


class KeyUpdateError(LabError):
    """A key update cannot be made, was refused, or failed."""


def visible(text: str) -> str:
    """Write a question mark for each character that no screen shows."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _restored(
    kind: type[LabError], args: tuple[Any, ...], state: dict[str, Any]
) -> LabError:
    """Make an error again of what another process sent."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def with_details(message: str, *details: str) -> str:
    """Add what only helps an engineer, in parentheses, before the last full stop."""
    text = message.removesuffix(".")
    stop = message[len(text) :]
    return f"{text} ({', '.join(details)}){stop}"


def in_any_case(name: Any, known: Iterable[str]) -> str | None:
    """Return the known name that equals a name, or the only one that does in another case; else None."""
    listed = list(known)
    if name in listed:
        return str(name)
    alike = [one for one in listed if one.casefold() == str(name).casefold()]
    return alike[0] if len(alike) == 1 else None


def did_you_mean(name: Any, known: Iterable[Any], otherwise: str) -> str:
    """Suggest the known name closest to a wrong one in any case; say `otherwise` where none is close."""
    in_lower_case = {str(one).casefold(): one for one in known}
    nearest = difflib.get_close_matches(str(name).casefold(), in_lower_case, n=1)
    if not nearest:
        return otherwise
    return f"Did you mean {in_lower_case[nearest[0]]!r}?"
