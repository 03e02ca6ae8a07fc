"""Which relayer to talk to: a live one, saved responses, or the embedded one."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.hidden import hide
from loopring_lab.transport import Transport

if TYPE_CHECKING:
    from loopring_lab.relayer import Relayer

DEFAULT_RATE = 5.0


def connect(
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    recording: str | os.PathLike[str] | None = None,
    rate: float | None = DEFAULT_RATE,
    timeout: float = 15.0,
) -> Client:
    """Connect to a relayer: a live one, a folder of saved responses, or the embedded synthetic one.

    Without arguments the environment decides: LOOPRING_BASE_URL (with LOOPRING_API_KEY), then
    LOOPRING_RECORDING. With none of them the embedded relayer starts in this process, and says so.

    Parameters
    ----------
    base_url : str, optional
        Address of a live relayer, ``https://host``.
    api_key : str, optional
        Its API key; better kept in LOOPRING_API_KEY than in a notebook.
    recording : path, optional
        Folder with ``tokens.json``, ``markets.json`` and ``trades/<accountId>-<amm or dex>.json``.
    rate : float or None
        Requests per second and endpoint to a live relayer; None for no limit. The embedded relayer has none.
    timeout : float
        Seconds to wait for the next bytes of an answer.

    Returns
    -------
    Client
        Ready to use; nothing has been asked yet.

    Raises
    ------
    LabError
        Both `base_url` and `recording` are given, or one of them cannot be used.

    Examples
    --------
    >>> client = connect()
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> client.tokens().loc["USDC", "decimals"]
    6
    """
    key = hide(api_key)
    del api_key
    if base_url is None and recording is None:
        base_url = os.environ.get("LOOPRING_BASE_URL")
        recording = None if base_url else os.environ.get("LOOPRING_RECORDING")
    if base_url and recording:
        raise LabError("Both base_url and recording are given. Give one of them.")
    if base_url:
        key = key or hide(os.environ.get("LOOPRING_API_KEY"))
        return Client(Transport(base_url, api_key=key, rate=rate, timeout=timeout))
    relayer = _embedded(Path(recording).resolve() if recording else None)
    if not recording:
        print(f"Embedded relayer: {relayer.source}. Nothing here is real market data.")  # noqa: T201
    transport = Transport(
        relayer.base_url, api_key=relayer.api_key, rate=None, timeout=timeout, proxies=False
    )
    return Client(transport, relayer.source, synthetic=not recording, accounts=list(relayer.accounts))


@functools.cache
def _embedded(recording: Path | None) -> Relayer:
    from loopring_lab.relayer import Relayer

    relayer = Relayer(recording=recording) if recording else Relayer()
    relayer.start()
    return relayer
