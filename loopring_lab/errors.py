"""Everything loopring_lab raises on purpose.

LabError
├── TransportError         the exchange of bytes failed
│   ├── RelayerUnreachable
│   └── RelayerTimeout
├── RelayerError           the relayer answered, and refused      .status .code .message
│   ├── RateLimited
│   └── NotAuthorized
├── UnexpectedAnswer       the answer is not what the contract says .field .expected .got
│   └── IncompleteHistory  rows are missing
├── ArchiveError           an archive on disk cannot be used as it is
│   ├── NotAnArchive       the folder holds something else, or nothing
│   ├── DamagedArchive     a log or a file is missing or unreadable
│   ├── NewerArchive       a later loopring_lab wrote it
│   └── DiskRefused        the disk is full, or must not be written to
├── AmountError            an amount cannot be held exactly (also a ValueError)
├── ProtocolError          a key, signature or field breaks the protocol (also a ValueError) .field
└── KeyUpdateError         a key update did not reach its end

Every message ends with what to do next.
"""

from __future__ import annotations

__all__ = [
    "AmountError", "ArchiveError", "DamagedArchive", "DiskRefused", "IncompleteHistory", "KeyUpdateError",
    "LabError", "NewerArchive", "NotAnArchive", "NotAuthorized", "ProtocolError", "RateLimited",
    "RelayerError", "RelayerTimeout", "RelayerUnreachable", "TransportError", "UnexpectedAnswer",
]  # fmt: skip


def __dir__() -> list[str]:
    return sorted(__all__)


class LabError(Exception):
    """Root of the tree: catch it to catch everything the toolkit raises on purpose.

    Examples
    --------
    >>> import loopring_lab as lab
    >>> try:
    ...     lab.connect(recording="no-such-folder")
    ... except lab.LabError as error:
    ...     print(error)
    recording ...no-such-folder: expected a folder of saved responses, got no such folder. Name the folder...
    """


class TransportError(LabError):
    """No usable answer arrived, whatever was asked."""


class RelayerUnreachable(TransportError):
    """Nothing answers at the address, or the connection broke, also after retries."""


class RelayerTimeout(TransportError):
    """The relayer took longer than the timeout, also after retries."""


class RelayerError(LabError):
    """The relayer answered with an error.

    Parameters
    ----------
    message : str
        What the relayer said, secrets removed.
    status : int
        HTTP status.
    code : int or None
        The relayer's own code (``resultInfo.code``), where it gave one.
    hint : str
        What to do next.
    """

    def __init__(self, message: str, *, status: int, code: int | None = None, hint: str) -> None:
        self.status, self.code, self.message = status, code, message
        shown = f"code {code}, " if code is not None else ""
        super().__init__(f"{message} ({shown}HTTP {status}). {hint}")


class RateLimited(RelayerError):
    """HTTP 429: more requests than the relayer allows, also after waiting."""


class NotAuthorized(RelayerError):
    """The API key is missing or is not accepted."""


class UnexpectedAnswer(LabError):
    """An answer that does not have the documented shape.

    Parameters
    ----------
    field : str
        Where: the name and position of the member at fault.
    expected, got : object
        What the contract promises there, and what stood there.
    hint : str
        What to do next.
    """

    def __init__(self, field: str, *, expected: object, got: object, hint: str) -> None:
        self.field, self.expected, self.got = field, expected, got
        super().__init__(f"{field}: expected {expected}, got {got}. {hint}")


class IncompleteHistory(UnexpectedAnswer):
    """The relayer counts other rows than it hands out, however often it is asked."""


class ArchiveError(LabError):
    """An archive on disk cannot be used as it is; says what is safe."""


class NotAnArchive(ArchiveError):
    """The folder holds something else than an archive, or nothing."""


class DamagedArchive(ArchiveError):
    """A log or a file of the archive is missing or cannot be read."""


class NewerArchive(ArchiveError):
    """A later version of the toolkit wrote the archive."""


class DiskRefused(ArchiveError):
    """The disk is full, or the folder must not be written to."""


class AmountError(LabError, ValueError):
    """An amount that cannot be held exactly; never rounded instead."""


class ProtocolError(LabError, ValueError):
    """A key, a signature or a field that the protocol does not allow.

    Parameters
    ----------
    field : str
        Which one, by its name in the contract, such as ``maxFee``.
    problem : str
        What is wrong with it; never a secret.
    hint : str
        What to do next.
    """

    def __init__(self, field: str, problem: str, *, hint: str) -> None:
        self.field = field
        super().__init__(f"{field}: {problem}. {hint}")


class KeyUpdateError(LabError):
    """A key update was refused or did not reach its end."""
