"""Refusals, and the bodies in which they travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopring_lab.relayer.settings import ErrorShape

if TYPE_CHECKING:
    from starlette.responses import JSONResponse

__all__ = ["Refusal", "error_answer", "invalid", "printable"]

UNKNOWN = 100000
INVALID_ARGUMENT = 100001
DUPLICATE = 100204
ADDRESS_NOT_FOUND = 101001
USER_NOT_FOUND = 101002
WRONG_EXCHANGE = 102001
WRONG_NONCE = 102021
EMPTY_KEY = 104001
INVALID_KEY = 104002
INVALID_ACCOUNT = 104003
NO_SIGNATURE = 104004
WRONG_SIGNATURE = 104005
FEE_TOKEN = 114001
FEE_TOO_LOW = 114002

BAD_REQUEST, OK = 400, 200


class Refusal(Exception):
    """A request that the contract does not allow.

    Parameters
    ----------
    code : int
        The relayer's own code.
    message : str
        What is wrong with it.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


def invalid(name: str, text: str, expected: str) -> Refusal:
    """A refusal of an argument that is not what it should be.

    Parameters
    ----------
    name : str
        The argument.
    text : str
        What it is; never a secret.
    expected : str
        What it should be.

    Returns
    -------
    Refusal
        100001.
    """
    return Refusal(INVALID_ARGUMENT, f"{name}: expected {expected}, got {printable(text)}")


def printable(text: str) -> str:
    """A text of a client's, short and in plain characters.

    Parameters
    ----------
    text : str
        Whatever was sent.

    Returns
    -------
    str
        In quotes.
    """
    return ascii(text if len(text) <= 40 else text[:40] + "...")


def error_answer(
    shape: ErrorShape,
    code: int,
    message: str,
    status: int = BAD_REQUEST,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """An error as the settings shape it.

    Parameters
    ----------
    shape : {"result_info", "flat", "ok"}
        As `Settings.error_shape` says; ``ok`` turns a refusal's HTTP 400 into 200.
    code : int
        The relayer's own code.
    message : str
        What is wrong.
    status : int
        HTTP status.
    headers : dict of str to str or None
        More headers.

    Returns
    -------
    JSONResponse
        Ready to be sent.

    Examples
    --------
    >>> error_answer("flat", 104001, "empty api key").body
    b'{"code":104001,"msg":"empty api key"}'
    """
    from starlette.responses import JSONResponse

    wrapped = {"resultInfo": {"code": code, "message": message}}
    body = {"code": code, "msg": message} if shape == "flat" else wrapped
    return JSONResponse(body, OK if shape == "ok" and status == BAD_REQUEST else status, headers)
