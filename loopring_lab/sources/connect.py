"""Connecting to a source: a live relayer, saved responses, blocks, or the embedded relayer."""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from loopring_lab.bounded import given_path
from loopring_lab.errors import LabError, visible
from loopring_lab.http.addresses import check_rate
from loopring_lab.http.pace import DEFAULT_RATE
from loopring_lab.http.transport import Transport
from loopring_lab.origin import given_name
from loopring_lab.redaction import hide, hide_addresses
from loopring_lab.sources.client import Client

if TYPE_CHECKING:
    from loopring_lab.rollup.store import Store
    from loopring_lab.sources.blocks import BlocksClient
    from loopring_lab.sources.recording import Recording


FilePath = str | os.PathLike[str]
Fingerprint = tuple[tuple[str, int, int], ...]
"""Name, size and time of files: what changes when a file does, so that a folder is then read again."""
# Blocks that come with the package: the first month of the synthetic world, and one block as it is on Ethereum.
BUNDLED = {
    "demo": Path(__file__).parents[1] / "relayer" / "demo",
    "sample": Path(__file__).parents[1] / "rollup" / "sample",
}


@overload
def connect(
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    recording: None = None,
    blocks: None = None,
    source: str | None = None,
    rate: float | None = DEFAULT_RATE,
    timeout: float = 15.0,
    allow_http: bool = False,
) -> Client: ...


@overload
def connect(*, recording: FilePath, source: str | None = None) -> Recording: ...


@overload
def connect(*, blocks: FilePath | Store) -> BlocksClient: ...


@overload
def connect(
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    recording: FilePath | None = None,
    blocks: FilePath | Store | None = None,
    source: str | None = None,
    rate: float | None = DEFAULT_RATE,
    timeout: float = 15.0,
    allow_http: bool = False,
) -> Client | Recording | BlocksClient: ...


def connect(
    base_url: str | None = None,
    *,
    api_key: str | None = None,
    recording: FilePath | None = None,
    blocks: FilePath | Store | None = None,
    source: str | None = None,
    rate: float | None = DEFAULT_RATE,
    timeout: float = 15.0,
    allow_http: bool = False,
) -> Client | Recording | BlocksClient:
    """Connect to a source of trades: a relayer, saved responses, blocks, or the embedded synthetic relayer.

    Without arguments the environment decides: LOOPRING_BASE_URL (with LOOPRING_API_KEY), then
    LOOPRING_RECORDING. If neither is set, the embedded relayer starts in this process, and prints a note.

    Parameters
    ----------
    base_url : str, optional
        Address of a live relayer, ``https://host``.
    api_key : str, optional
        Its API key; keep it in LOOPRING_API_KEY rather than in a notebook.
    recording : path, optional
        Folder with ``tokens.json``, ``markets.json`` and ``trades/<accountId>-<amm or dex>.json``, or one file
        of trades in any form that `tables.trades` reads, such as a HAR file of a browser or an answer that an
        SDK saved. Of a file, tokens and markets are those in it, else those beside it or in the folder above, or
        else those of the real exchange that the package brings; a note says which. Whose trades it has, and of
        which fill type, it says itself, or its name does: ``<accountId>-<amm or dex>.json``.
    blocks : path or rollup.Store, optional
        Blocks of the exchange as settled on Ethereum: trades of all accounts, exact on both legs. A file as
        `rollup.Store` writes it, or a folder of exported files as `rollup.Store.import_files` reads them,
        with a ``tokens.json`` among them. Two come with the package: ``"sample"`` is one real block, of which
        anyone can check each byte in the Ethereum transaction that the source names; ``"demo"`` is a month of
        the synthetic world. Files of these names are ``"./sample"`` and ``"./demo"``. A client of
        blocks or of a recording has no methods that only a relayer can answer.
    source : str, optional
        Name of the source, which an `Archive` of its trades keeps to. By default a relayer is known by the
        name that it states, or else by its address; a recording by the name in its ``source.json``, such as
        ``{"name": "my exchange"}``, a HAR file by its relayer's address, and any other by its path.
    rate : float or None
        Requests per second and endpoint to a live relayer; None for no limit. The embedded relayer has none.
    timeout : float
        Seconds that one answer may take. A request that fails is sent again a few times.
    allow_http : bool
        Whether the API key and signatures may be sent over plain http to another machine, where anyone on
        the way can read them.

    Returns
    -------
    Client, sources.Recording or sources.BlocksClient
        Ready to use; no request has been sent yet.

    Raises
    ------
    LabError
        Several of `base_url`, `recording` and `blocks` are given, or an argument cannot be used.
    NotAnArchive
        `blocks` holds none.

    Examples
    --------
    >>> client = lab.connect()
    Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
    >>> client.tokens().loc["USDC", "decimals"]
    6
    >>> len(lab.connect(blocks="demo").trades())
    Demo blocks: synthetic world, seed 1. Nothing here is real market data.
    9386
    >>> len(lab.connect(blocks="sample").trades())
    Sample blocks: one real block of Loopring Exchange v3.6, Ethereum transaction 0x71cf46...
    366
    """
    key = hide(api_key)
    del api_key
    # Addresses are wrapped before anything can fail: tracebacks may show variables, and an address may hold a key.
    base_url = None if base_url is None else hide(str(base_url))
    recording = hide_addresses(recording)
    blocks = hide_addresses(blocks)
    source = given_name(source)
    check_rate(rate)
    only_source({"base_url": base_url, "recording": recording, "blocks": blocks})
    if blocks is not None:
        return _read_blocks(blocks, source)
    if base_url is None and recording is None:
        base_url = hide(os.environ.get("LOOPRING_BASE_URL") or None)
        if base_url is None:
            recording = hide_addresses(os.environ.get("LOOPRING_RECORDING") or None)
    if base_url is not None:
        key = key or hide(os.environ.get("LOOPRING_API_KEY"))
        transport = Transport(
            base_url, api_key=key, rate=rate, timeout=timeout, allow_http=allow_http
        )
        return Client(transport, source)
    if recording is not None:
        from loopring_lab.sources.recording import Recording

        saved = Recording(given_path(recording).resolve(), source)
        if saved.contents.note:
            print(visible(saved.contents.note))  # noqa: T201
        return saved
    if source is not None:
        raise LabError(
            "connect: source= names a relayer or a recording, and neither is given. Leave it out."
        )
    from loopring_lab.relayer.server import embedded

    relayer = embedded()
    print(f"Embedded relayer: {relayer.source}. Nothing here is real market data.")  # noqa: T201
    # A relayer in this process needs neither a rate nor a proxy.
    transport = Transport(
        relayer.base_url,
        api_key=relayer.api_key,
        rate=None,
        timeout=timeout,
        proxies=False,
    )
    accounts = list(relayer.accounts)
    return Client(transport, relayer.source, synthetic=True, accounts=accounts)


def only_source(given: Mapping[str, Any]) -> str | None:
    """Return the name of the source that is given, if any; several are an error."""
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise LabError(
            f"{' and '.join(named)} are given, and each is a source of its own. Give one of them."
        )
    return named[0] if named else None


def _read_blocks(
    blocks: str | os.PathLike[str] | Store, source: str | None
) -> BlocksClient:
    from loopring_lab.rollup.store import Store
    from loopring_lab.sources.blocks import BlocksClient

    if source is not None:
        raise LabError("connect: blocks name their own source. Leave source= out.")
    if isinstance(blocks, Store):
        return BlocksClient(blocks)
    if isinstance(blocks, str) and blocks in BUNDLED:
        client = BlocksClient(_imported(BUNDLED[blocks]))
        note = " Nothing here is real market data." if client.synthetic else ""
        print(f"{blocks.capitalize()} blocks: {client.source}.{note}")  # noqa: T201
        return client
    path = given_path(blocks)
    if path.is_dir():
        return BlocksClient(_imported(path))
    return BlocksClient(Store(blocks))


def _imported(folder: Path) -> Store:
    """Return the store of a folder of exported files, which are imported once."""
    try:
        files = [
            (file.name, file.stat()) for file in folder.iterdir() if file.is_file()
        ]
    except OSError as error:
        raise LabError(
            f"{folder}: cannot be read ({error.strerror}). Give another folder."
        ) from None
    facts = sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in files)
    return _store_of_exported(folder, tuple(facts))


@functools.cache
def _store_of_exported(folder: Path, facts: Fingerprint) -> Store:
    """Import exported files into a store for this process; again if a file has changed."""
    from loopring_lab.rollup.store import Store

    del facts
    private = tempfile.TemporaryDirectory(prefix="loopring-lab-blocks-")
    atexit.register(private.cleanup)
    store = Store(Path(private.name) / "blocks.duckdb")
    tokens = folder / "tokens.json"
    store.import_files(
        folder, tokens=tokens if tokens.is_file() else None, progress=False
    )
    return store
