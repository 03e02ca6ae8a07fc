"""Refusals, and the bodies in which they travel."""

from __future__ import annotations

from starlette.responses import JSONResponse

from loopring_lab.relayer.settings import ErrorShape

__all__ = [
    "EMPTY_KEY",
    "INVALID_ACCOUNT",
    "INVALID_ARGUMENT",
    "INVALID_KEY",
    "UNKNOWN",
    "Refusal",
    "error_answer",
]

UNKNOWN = 100000
INVALID_ARGUMENT = 100001
EMPTY_KEY = 104001
INVALID_KEY = 104002
INVALID_ACCOUNT = 104003

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
    wrapped = {"resultInfo": {"code": code, "message": message}}
    body = {"code": code, "msg": message} if shape == "flat" else wrapped
    return JSONResponse(body, OK if shape == "ok" and status == BAD_REQUEST else status, headers)
