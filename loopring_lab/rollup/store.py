"""Blocks of the exchange stored locally in one file: each once, in order, and provably complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html import escape

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab import tables
from loopring_lab.arguments import parse_account_id
from loopring_lab.bounded import Paths, given_path
from loopring_lab.engine import session
from loopring_lab.engine.database import naming_refusals
from loopring_lab.engine.notes import with_note
from loopring_lab.errors import ArchiveError, LabError
from loopring_lab.http.pace import DEFAULT_RATE
from loopring_lab.progress import Watching, track
from loopring_lab.redaction import hide, hide_addresses
from loopring_lab.rollup import checks, ledger
from loopring_lab.rollup.block_file import BlockFile
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.calldata import check_number
from loopring_lab.rollup.checks import Check

LAST_SECOND = (1 << 32) - 1
NO_BLOCK = (
    "No block is held, which proves nothing: an endpoint that no longer keeps its logs answers as if there had been "
    "none. Sync with another endpoint, or import files."
)
# Columns of the report, made of those of the index.
_REPORT = {
    "first": ("block_id", "min"),
    "last": ("block_id", "max"),
    "blocks": ("timestamp", "size"),
    "first_time": ("timestamp", "min"),
    "last_time": ("timestamp", "max"),
    "first_l1_block": ("l1_block", "min"),
    "last_l1_block": ("l1_block", "max"),
}


class Store:
    """Blocks of one exchange, stored in one DuckDB file.

    Blocks are committed all or none, compressed, and never changed; a block that is held is not added again,
    whatever file or endpoint it comes from. Its transaction is that of the event with the hash of its data, or as
    first read. Its number is that of the event, or as given, or else it follows from its neighbours: blocks are
    neighbours if a state root ends one and begins the other, and no third block. Numbers are never guessed
    otherwise.

    The file is open only while it is read or written, as that of an `Archive`. Methods that read raise
    `NotAnArchive` while there are no blocks, and `DamagedArchive` if a part of the file is not as it was
    written; methods that write raise `ArchiveError` if the file cannot be written to, and nothing committed
    before is lost. Examples of methods start from the ``store`` made below.

    Parameters
    ----------
    path : path
        The file; created when blocks are first added.

    Raises
    ------
    NotAnArchive
        The path is a folder, a pipe or a device.
    LabError
        No file can have this path.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> exchange, roots = "0baba1ad5be3a5c0a66e7ac838a129bf948f1ea4", "aa" * 32 + "bb" * 32
    >>> size = (folder / "block.hex").write_text(exchange + roots + "5f9bd5f000000000000000002711")
    >>> store = lab.rollup.Store(folder / "my-blocks.duckdb")
    >>> store.import_files(folder / "block.hex", first_block=20)[["first", "last", "blocks"]]
       first  last  blocks
    0      1    19       0
    1     20    20       1
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        path = hide_addresses(path)
        self.file = BlockFile(path)  # the tables of the file

    def __repr__(self) -> str:
        return f"Store({self.file.database.described()})"

    def _repr_html_(self) -> str:
        where = f"<b>Block store</b> in {escape(str(self.file.database.shown))}"
        if not self.file.database.exists():
            return f"<p>{where}: empty. <code>store.sync(rpc=…)</code> fills it.</p>"
        try:
            report = self.report()
        except ArchiveError as error:
            return f"<p>{where}: {escape(str(error))}</p>"
        known = held(report).removesuffix(".")
        return (
            f"<p>{where}: {known}.<br>"
            "<small><code>store.report()</code> shows details, <code>store.check()</code> what the blocks "
            "prove.</small></p>"
        )

    @property
    def source(self) -> str | None:
        """Name of the source that the store is bound to; None while it is empty."""
        bound = self.file.database.source()
        return bound.name if bound else None

    def sync(
        self,
        rpc: str | None = None,
        *,
        exchange: str | None = None,
        from_block: int | None = None,
        to_block: int | None = None,
        confirmations: int | None = None,
        rate: float | None = DEFAULT_RATE,
        timeout: float = 15.0,
        allow_http: bool = False,
        progress: Watching = None,
    ) -> pd.DataFrame:
        """Download missing blocks from an Ethereum endpoint.

        The exchange's events tell which blocks there are; each block is in the calldata of a transaction, and
        is stored only if its SHA-256 is the one of the event. Ranges of Ethereum blocks are halved where the
        endpoint refuses them, and calls are sent in batches where it takes them. After an interruption of any
        kind, rerun to resume. Events are asked for again where numbers are missing before or between blocks, after
        the last one, and everywhere while a token has no event: endpoints leave some out, and answer for logs that
        they no longer keep as if there were none. Symbols and decimals of tokens are asked of their contracts; one
        without decimals is not listed, and one without a readable symbol is called ``token#`` and its id; both are
        asked for again by the next sync.

        Parameters
        ----------
        rpc : str, optional
            Address of a JSON-RPC endpoint, ``https://host/key``; such addresses hold keys, so keep it in
            LOOPRING_RPC_URL rather than in a notebook. If neither is given, the embedded chain starts in this
            process, and prints a note.
        exchange : str, optional
            Address of the exchange's contract; by default the one on Ethereum (chain 1), or the embedded one.
        from_block, to_block : int, optional
            Ethereum blocks to begin and to end with; by default the exchange's first one, or that of the chain where
            `exchange` is another one, and the newest.
        confirmations : int, optional
            Number of the newest Ethereum blocks that are left for later, as they may still be reorganised; by
            default 64, and none of a synthetic chain.
        rate : float or None
            HTTP requests per second, a batch being one; None for no limit. The embedded chain has none.
        timeout : float
            Seconds that one complete answer may take.
        allow_http : bool
            Whether the address may be one of plain http on another machine, where anyone on the way can read
            its key and change answers.
        progress : bool or callable, optional
            A callable gets the blocks held and known.

        Returns
        -------
        pandas.DataFrame
            The `report`.

        Raises
        ------
        RpcError
            The endpoint refuses a request, answers other than documented, lacks transactions, or gives one
            without the block that its event announces. All other blocks are stored.
        UnexpectedAnswer
            A value in an answer is not as documented.
        TransportError
            No usable answer arrived; what was read before is stored.
        ArchiveError
            The store holds blocks of another exchange.

        Examples
        --------
        >>> chain = lab.rollup.Store(folder / "embedded.duckdb")
        >>> chain.sync(to_block=11_151_000)[["blocks", "missing"]]
        Embedded chain: synthetic world, seed 1. Nothing here is real market data.
           blocks  missing
        0       7        0
        """
        # No frame of a traceback holds the address, which has a key in it.
        address = hide(rpc)
        del rpc
        from loopring_lab.rollup import fetching

        wanted = fetching.Wanted(exchange, from_block, to_block, confirmations)
        limits = {"allow_http": allow_http, "rate": rate, "timeout": timeout}
        fetching.sync(self.file, address, wanted, limits, progress)
        return self.report()

    def import_files(
        self,
        paths: Paths,
        *,
        tokens: str | os.PathLike[str] | None = None,
        first_block: int | None = None,
        progress: Watching = None,
    ) -> pd.DataFrame:
        """Add blocks from files, without an Ethereum endpoint.

        A file's ending says what it is; .gz after it is a compressed one. In .hex, each line is the calldata of a
        transaction that submits blocks, or the data of one block (98 + 68 bytes per transaction); .bin is the
        same as bytes, one to a file. In .json and .jsonl are answers to ``eth_getTransactionByHash`` and
        ``eth_getLogs``, as objects, lists or JSON-RPC answers, also one to a line. In .csv and .parquet are
        tables of transactions with the columns ``hash``, ``block_number`` and ``input``, as public datasets
        have them. Columns that say whether a transaction succeeded are heeded: those with status, success, error,
        fail or revert in their names, with 1 and 0 or true and false; anything else in them is refused, and so is a
        whole ``receipt``, whose status belongs in a column of its own. Transactions that failed are skipped, and
        other calls and events.

        Files are read in order, those of a folder by name. Blocks are committed in batches, all of a batch
        or none; those before an error stay.

        Parameters
        ----------
        paths : path or iterable of paths
            Files, or folders of files with these endings. A ``source.json`` beside a file names its source;
            without one it is the exchange, and so it is of blocks that come from several.
        tokens : path, optional
            A listing of tokens: JSON as ``GET /exchange/tokens`` answers it. Tokens without decimals in it
            are left out.
        first_block : int, optional
            Number of the first block in these files; the others follow in order, and one that does not begin with
            the root of the one before it is refused. Leave it out where events or blocks held tell the numbers.
        progress : bool or callable, optional
            A callable gets the blocks read, as both numbers: files do not say how many they hold.

        Returns
        -------
        pandas.DataFrame
            The `report`. ``attrs["added"]`` is the number of blocks that were not held, ``attrs["skipped"]``
            that of calls and events that submit no block, also because they failed.

        Raises
        ------
        BlockError
            A call or a block cannot be read, or its number is another block's.
        UnexpectedAnswer
            A file holds something else.
        ArchiveError
            The store holds blocks of another exchange.
        LabError
            A path does not exist, or no file of a new store has a block or an event of an exchange.

        Examples
        --------
        >>> again = store.import_files(folder / "block.hex")
        >>> again.attrs["added"], again.attrs["skipped"]
        (0, 0)
        """
        from loopring_lab.rollup import importing

        paths = hide_addresses(paths)
        tokens = hide_addresses(tokens)
        with track("blocks", progress) as watch:
            new = importing.Import(self.file, first_block, watch)
            counts = new.run(paths, tokens)
        report = self.report()
        report.attrs |= counts
        return report

    def check(self, progress: Watching = None) -> Check:
        """Check what the blocks prove: that none is missing, and that all are as they were submitted.

        Parameters
        ----------
        progress : bool or callable, optional
            A callable gets the blocks checked and held.

        Returns
        -------
        Check
            A ``summary`` of the checks, and the ``problems`` found.

        Examples
        --------
        >>> store.check().problems["problem"].tolist()
        ['blocks 1 to 19 not held (19)']
        """
        index = self.file.index()
        return checks.check(
            self.batches(),
            index.events,
            index.source.chain_id,
            progress,
            index.first_number,
        )

    def report(self) -> pd.DataFrame:
        """Report which blocks are held.

        Returns
        -------
        pandas.DataFrame
            One row per range of consecutive numbers: ``first`` and ``last`` number, ``blocks`` held,
            ``missing`` before the next range (after the last one: up to the last that an event names), time of
            the first and the last block (UTC), and their Ethereum blocks where known. Exchanges number their
            blocks from 1: where the first ones are not held, a row without blocks says so. Blocks without a
            number are in the last row; what is missing around them is not known. Without any block, and without an
            event that names one, there is no row, and ``attrs["notes"]`` says that this proves nothing. Source: the
            headers of the blocks.

        Examples
        --------
        >>> store.report()[["first", "last", "blocks", "missing"]]
           first  last  blocks  missing
        0      1    19       0       19
        1     20    20       1        0
        """
        index = self.file.index()
        rows = index.blocks.select(["block_id", "timestamp", "l1_block"])
        held = rows.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
        number = held["block_id"]
        # Where a number is not one more than that before it, a range begins; blocks without numbers are the last one.
        begins = (number.diff() != 1).fillna(True)
        ranges = begins.cumsum().where(number.notna(), len(held) + 1)
        frame: pd.DataFrame = held.groupby(ranges).agg(**_REPORT).reset_index(drop=True)
        frame["blocks"] = frame["blocks"].astype("int64")
        # Blocks are missing between ranges, and after the last one, as far as events tell.
        missing = frame["first"].shift(-1) - frame["last"] - 1
        known = len(frame["last"].dropna())
        submitted = pc.max(index.events["block_id"]).as_py() or 0
        if known:
            missing[known - 1] = max(0, submitted - int(frame["last"].iloc[known - 1]))
        frame.insert(3, "missing", missing)
        first_held = int(frame["first"].iloc[0]) if known else submitted + 1
        if first_held > index.first_number:
            frame = _after_gap(frame, index.first_number, first_held)
        for name in ("first_time", "last_time"):
            # Headers have 32 bits for a time; a larger number in somebody else's file is no time.
            seconds = frame[name].where(frame[name].between(0, LAST_SECOND))
            times = pd.to_datetime(seconds, unit="s", utc=True)
            frame[name] = times.astype("datetime64[ms, UTC]")
        frame.attrs |= index.attrs
        return with_note(frame, NO_BLOCK if frame.empty else "")

    def tokens(self) -> pd.DataFrame:
        """Return the exchange's tokens, as they were stored last.

        Returns
        -------
        pandas.DataFrame
            As `Client.tokens`.

        Raises
        ------
        LabError
            No listing was stored yet.

        Examples
        --------
        >>> listing = '[{"symbol": "ETH", "tokenId": 0, "decimals": 18}]'
        >>> size = (folder / "tokens.json").write_text(listing)
        >>> report = store.import_files([], tokens=folder / "tokens.json")
        >>> store.tokens()["decimals"].to_dict()
        {'ETH': 18}
        """
        listing = self.file.last_listing()
        if listing is None:
            raise LabError(
                f"{self.file.database.shown}: no tokens here yet. Give a listing, "
                "store.import_files([], tokens=...), or ask an endpoint: store.sync(rpc=...)."
            )
        frame = tables.tokens(listing)
        frame.attrs |= self.file.index().attrs
        return frame

    def blocks(self, first: int | None = None, last: int | None = None) -> Blocks:
        """Read blocks by number, or all of them.

        Parameters
        ----------
        first, last : int, optional
            The first and the last number, both included; the blocks without a number are read only if both
            are left out. A whole store may not fit into memory: see `batches`.

        Returns
        -------
        Blocks
            By number, then those without one by time and along their roots. Pools are those that any block of the
            store names.

        Raises
        ------
        LabError
            No such block is held.

        Examples
        --------
        >>> store.blocks(20, 29).headers()["block_id"].tolist()
        [20]
        """
        index = self.file.index()
        rows = index.blocks
        check_number("first", first)
        check_number("last", last)
        if first is not None:
            rows = rows.filter(pc.field("block_id") >= first)
        if last is not None:
            rows = rows.filter(pc.field("block_id") <= last)
        if not len(rows):
            raise LabError(
                f"{self.file.database.shown}: holds no block from {first} to {last}. "
                "store.report() shows what it holds."
            )
        raw = tuple(self.file.raw(rows))
        return Blocks(raw, index.pools, index.attrs, index.next_number)

    def batches(self, size: int = 100) -> Iterator[Blocks]:
        """Read the whole store in order, in bounded memory.

        Parameters
        ----------
        size : int
            Blocks in a batch; the last one may have fewer.

        Yields
        ------
        Blocks
            As `blocks`. What others add meanwhile is not read.

        Examples
        --------
        >>> sum(len(batch.raw) for batch in store.batches())
        1
        """
        if type(size) is not int or size < 1:
            raise LabError(
                f"size={size!r}: give the number of blocks in a batch, 1 or more."
            )
        index = self.file.index()
        yield from self.file.batches(index, index.blocks, size)

    def export(
        self,
        path: str | os.PathLike[str],
        account_id: int,
    ) -> int:
        """Write all that the blocks say of an account's money as CSV, for programs that compute taxes.

        This package computes none. The file has the columns of Koinly's universal template: deposits, withdrawals,
        transfers, both legs of each trade, and each fee as a row of its own, labelled ``cost``. No other amount
        includes a fee, and the columns of fees are empty, as programs disagree about them: what was received minus
        what was sent is what the balance changed by, to the last unit. ``TxHash`` is the number of the transaction as
        in ``trade_id``, and an NFT is called ``NFT`` and its token id. A symbol that a spreadsheet might run has a
        quote before it. All transactions of a block have its time. Where blocks are missing, so are their rows: see
        `report`. What operators of blocks receive as fees and pay as protocol fees is in no row.

        Parameters
        ----------
        path : path
            Does not exist yet.
        account_id : int
            The account.

        Returns
        -------
        int
            The number of rows.

        Raises
        ------
        LabError
            The blocks say nothing of the account, or a token is not listed.
        DiskRefused
            There is a file already, or it cannot be written.

        Examples
        --------
        >>> sample = lab.connect(blocks="sample").store
        Sample blocks: ...
        >>> sample.export(folder / "ledger.csv", account_id=99583)
        2
        >>> import pandas as pd
        >>> found = pd.read_csv(folder / "ledger.csv")
        >>> found[["Sent Amount", "Received Amount", "Label", "Description"]]
           Sent Amount  Received Amount Label            Description
        0          NaN             0.05   NaN                deposit
        1     0.000633              NaN  cost  fee of account update
        """
        path = hide_addresses(path)
        file = given_path(path)
        account = parse_account_id(account_id)
        tokens = self.tokens()
        parts = [ledger.entries(one, account, tokens) for one in self.batches()]
        if not any(map(len, parts)):
            raise LabError(
                f"{self.file.database.shown}: says nothing of the money of account {account}. Give another account, or "
                "sync more blocks."
            )
        rows = pd.concat(parts)
        with naming_refusals(file), session.unfinished(file.parent) as folder:
            whole = folder / "ledger.csv"
            rows.to_csv(whole, index=False)
            # A part of a ledger would pass for one, and nothing that is there is replaced.
            file.touch(exist_ok=False)
            whole.replace(file)
        return len(rows)

    def copy(self, path: str | os.PathLike[str]) -> Store:
        """Make a backup: a new file with all that the store holds, and nothing else; see `Archive.copy`.

        Parameters
        ----------
        path : path
            Does not exist yet.

        Returns
        -------
        Store
            The copy.

        Raises
        ------
        LabError
            There is a file already.
        DiskRefused
            The copy cannot be written.
        DamagedArchive
            A part of the store is not as it was written; no copy is made.

        Examples
        --------
        >>> len(store.copy(folder / "backup.duckdb").blocks().raw)
        1
        """
        path = hide_addresses(path)
        self.file.database.copy(path)
        return Store(path)


def held(report: pd.DataFrame) -> str:
    """Say in words how many blocks a report counts, and how many are missing, as far as is known."""
    if report.empty:
        return NO_BLOCK
    count = int(report["blocks"].sum())
    missing = int(report["missing"].sum())
    known = f"{missing:,} missing" if missing else "none known to be missing"
    said = f"{count:,} block{'' if count == 1 else 's'}, {known}"
    unnumbered = int(report["blocks"][report["first"].isna()].sum())
    if unnumbered:
        said += f"; {unnumbered:,} without a number, around which others may be missing"
    return said


def _after_gap(report: pd.DataFrame, first: int, first_held: int) -> pd.DataFrame:
    """Put a row without blocks before the others: the first blocks of the exchange are not held."""
    frame = report.set_axis(report.index + 1).reindex(range(len(report) + 1))
    count = first_held - first
    gap = {"first": first, "last": first_held - 1, "blocks": 0, "missing": count}
    for name, value in gap.items():
        frame.loc[0, name] = value
    return frame.astype({"blocks": "int64"})
