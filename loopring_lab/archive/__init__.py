"""Trades stored locally: complete by the source's own count, and readable by every engine.

An archive is one DuckDB file, which `loopring_lab.engine.database` opens, shares and checks; start with the tables in
`schema`. `sync`, `from_files` and `from_blocks` fill them: `conversion` makes rows of pages, and `merge` adds these by
identity, so that none is lost or doubled and changes are kept as versions. `holdings` has the report, and what
was counted and listed; `scans` hands trades to engines, SQL and Parquet.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from loopring_lab.archive import holdings, scans
from loopring_lab.archive.conversion import to_frame
from loopring_lab.archive.from_files import import_pages
from loopring_lab.archive.schema import KIND
from loopring_lab.archive.sync import sync_histories, sync_recording
from loopring_lab.arguments import (
    Moment,
    parse_account_id,
    parse_span,
    parse_utc,
    to_milliseconds,
)
from loopring_lab.bounded import Paths, given_path
from loopring_lab.columns import TRADES
from loopring_lab.engine import session
from loopring_lab.engine.database import StoredFile, bound_source
from loopring_lab.errors import ArchiveError, LabError
from loopring_lab.origin import given_name
from loopring_lab.progress import Watching, track
from loopring_lab.redaction import hide_addresses
from loopring_lab.sources.client import Client
from loopring_lab.sources.recording import Recording
from loopring_lab.tables.rows import FILL_TYPES

if TYPE_CHECKING:
    import duckdb

    from loopring_lab.rollup import Store

__all__ = ["Archive"]


class Archive:
    """Trades of any number of accounts, stored in one DuckDB file.

    The file is open only while it is read or written, so processes take turns: a notebook reads while
    ``loopring-lab sync`` writes. Methods that read raise `NotAnArchive` while there are no trades, and
    `DamagedArchive` if a block of the file is not as it was written; methods that write raise `ArchiveError`
    if the file cannot be written to, and nothing committed before is lost, also by a kill or a power cut.
    There is no repair: restore a backup that `copy` made, or sync again into a new file. Examples of methods start
    from the ``archive`` made below.

    Other programs that read DuckDB files can open it as well: its view ``trades`` has the current trades.
    Of a file that somebody else made, only tables that are defined as ours are read, and no code in it runs. A file
    that holds anything else, such as a trigger or an index, is never written to; `copy` makes a clean one of it.

    Parameters
    ----------
    path : path
        The file; created when trades are first added.

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
    >>> archive = lab.Archive(Path(tempfile.mkdtemp(), "my-trades.duckdb"))
    >>> archive.sync(client, account_id=71468)[["fill_type", "rows", "missing", "complete"]]
      fill_type  rows  missing  complete
    0       amm   689        0      True
    1       dex    11        0      True
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        path = hide_addresses(path)
        self._file = StoredFile(path, KIND)

    def __repr__(self) -> str:
        return f"Archive({self._file.described()})"

    def _repr_html_(self) -> str:
        where = f"<b>Archive</b> in {escape(str(self._file.shown))}"
        if not self._file.exists():
            return f"<p>{where}: empty. <code>archive.sync(client, account_id=…)</code> fills it.</p>"
        try:
            report = self.report()
        except ArchiveError as error:
            return f"<p>{where}: {escape(str(error))}</p>"
        accounts = report["account_id"].nunique()
        known = holdings.completeness(report).removesuffix(".")
        return (
            f"<p>{where}: {report['rows'].sum():,} trades of {accounts} accounts, {known}.<br>"
            "<small><code>archive.report()</code> shows details.</small></p>"
        )

    @property
    def source(self) -> str | None:
        """Name of the source that the archive is bound to; None while it is empty."""
        bound = self._file.source()
        return bound.name if bound else None

    @property
    def synthetic(self) -> bool:
        """Whether the trades are synthetic, as their source stated; False while the archive is empty."""
        bound = self._file.source()
        return bound is not None and bound.synthetic

    def sync(
        self,
        client: Client | Recording,
        account_id: int | None = None,
        accounts: Iterable[int] | None = None,
        since: Moment = None,
        progress: Watching = None,
        *,
        full: bool = False,
    ) -> pd.DataFrame:
        """Download missing trades, and only those, at the newest and the oldest end.

        Rows are committed every few seconds. After an interruption the next sync resumes from there;
        concurrent syncs create no duplicates. Nothing is ever deleted: a row that changed at the relayer is
        kept as a further version beside the earlier ones, and the version that was committed last is the
        current one.

        The first sync, or import that adds something, binds the archive to its source: the name, exchange and
        chain that the relayer states, or else its address. Trades of any other source are refused.

        Parameters
        ----------
        client : Client or sources.Recording
            From `connect`.
        account_id : int, optional
            One account.
        accounts : iterable of int, optional
            Several accounts, read one after the other.
        since : str, datetime or Timestamp, optional
            Trades from then on; UTC where no zone is given. A relayer that does not send the newest rows
            first is read to the end.
        progress : bool or callable, optional
            As for `Client.trades`; a callable gets the trades held and expected.
        full : bool
            Read every page again, also those held. That finds rows that were changed, inserted or removed
            inside a history, which the relayer's count does not show, and gives amounts to trades whose market
            was not listed before. Rows that it no longer lists are kept.

        Returns
        -------
        pandas.DataFrame
            The `report` on these accounts.

        Raises
        ------
        IncompleteHistory, UnexpectedAnswer
            The relayer sends fewer or more rows than it counts, or an answer is not as documented; the other
            accounts were read.
        RelayerError, TransportError
            The relayer refuses or cannot be reached; what came before is committed.
        ArchiveError
            The archive holds trades of another source, or the relayer lists a token with other decimals.
        LabError
            An argument is not valid, `since` is given with `full`, or a recording does not have an account.

        Examples
        --------
        >>> archive.sync(client, accounts=[71468, 79927])["rows"].tolist()
        [689, 11, 37, 73]
        """
        if not isinstance(client, Client | Recording):
            raise LabError(
                "sync: expected a relayer or a recording. Blocks are imported: archive.import_blocks(store)."
            )
        ids = _account_ids(accounts) or []
        if account_id is not None:
            ids = _account_ids([account_id, *ids]) or []
        if not ids:
            raise LabError(
                "sync: no account to ask for. Give account_id=, or accounts=[...]."
            )
        begin = to_milliseconds(parse_utc("since", since))
        if full and begin is not None:
            raise LabError(
                "sync: full=True reads whole histories. Leave out since=, or full=True."
            )
        histories = list(itertools.product(ids, FILL_TYPES))
        if isinstance(client, Recording):
            sync_recording(self._file, client, histories, progress)
        else:
            sync_histories(self._file, client, histories, begin, progress, full=full)
        return self.report(ids)

    def import_pages(
        self,
        paths: Paths,
        account_id: int | None = None,
        fill_type: str | None = None,
        progress: Watching = None,
        *,
        source: str | None = None,
    ) -> pd.DataFrame:
        """Add saved responses of the trades endpoint, without a relayer.

        A file holds one page, or one per line, compressed with gzip or not, in any form that `tables.trades`
        reads, such as a HAR file or an answer that an SDK saved. The account and fill type come from the
        arguments, the request in a HAR file, the file's name ``<accountId>-<amm or dex>.json``, or the rows: in
        a page where some markets have the pools' prefix ``AMM-``, the others are the order book's. Tokens and
        markets come from a HAR file itself, from ``tokens.json`` and ``markets.json`` beside the file or in the
        folder above, from the archive, or else they are those of the real exchange that the package brings,
        which a note says; the first of these counts. The name of the source comes from the relayer's answers in
        a HAR file, from ``source.json`` in either folder, such as ``{"name": "my exchange"}``, from `source`, or
        else it is the relayer's address in a HAR file, or the path of the folder.

        What a sync has seen stays the current version of a trade, whatever is imported later. Of versions
        that were only imported, the one that was imported last is current. Trades whose market was not listed
        get their amounts when they are imported again with a listing that has it.

        Parameters
        ----------
        paths : path or iterable of paths
            Files, or folders with them.
        account_id : int, optional
            Whose trades.
        fill_type : {'amm', 'dex'}, optional
            What the pages were requested for; the names and requests in files must not say another one.
        progress : bool or callable, optional
            As for `sync`; the number expected is estimated from that of the files.
        source : str, optional
            Name of the source of these files; ``archive.source`` if they are from where the archive is from.

        Returns
        -------
        pandas.DataFrame
            The `report` on the whole archive.

        Raises
        ------
        UnexpectedAnswer, AmountError
            A file holds something else, an amount does not fit, or it is unknown whose trades these are;
            the other files are imported, and the pages before the one at fault. Or an account's fills are saved
            as both amm and dex; nothing that is added in one transaction with them is imported.
        ArchiveError
            The archive holds trades of another source, or a token's decimals are others there.
        LabError
            A path does not exist, or there are no tokens and markets, not even in the package.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp(), "10083-dex.json")
        >>> row = '["1672057857793", "1", "BUY", "41000000000000000000", "6.1E-4", "LRC-ETH", "0"]'
        >>> size = file.write_text(f'{{"totalNum": 2, "trades": [{row}]}}')
        >>> report = archive.import_pages(file, source=archive.source)
        >>> report.head(1)[["account_id", "fill_type", "rows", "missing"]]
           account_id fill_type  rows  missing
        0       10083       dex     1        1
        """
        paths = hide_addresses(paths)
        if fill_type is not None and fill_type not in FILL_TYPES:
            raise LabError(
                f"fill_type={fill_type!r}: give 'amm', 'dex', or nothing where the files say it."
            )
        account = None if account_id is None else parse_account_id(account_id)
        name = given_name(source)
        with track("trades", progress) as watch:
            import_pages(self._file, paths, (account, fill_type), name, watch)
        return self.report()

    def import_blocks(self, store: Store, progress: Watching = None) -> pd.DataFrame:
        """Add the fills of all accounts, both sides of each, from a store of rollup blocks.

        Only blocks that the archive does not hold are read. They are committed in batches, all blocks of a
        batch or none; rerun after an interruption to resume. Concurrent imports create no duplicates. The
        rows are those of `rollup.Blocks.trades` without a listing of markets, sorted by account. A block is
        converted once, with the tokens that the store lists then. An account that the store names as a pool
        only later is corrected by the next import.

        An archive of blocks holds nothing else: `sync` and `import_pages` refuse it.

        Parameters
        ----------
        store : rollup.Store
            All of its blocks need numbers.
        progress : bool or callable, optional
            A callable gets the blocks held and expected.

        Returns
        -------
        pandas.DataFrame
            The `report` on the whole archive.

        Raises
        ------
        ArchiveError
            The archive holds trades of another source, or as a relayer sent them, or with other decimals of a
            token, or the store is empty.
        LabError
            The store has no tokens, or blocks without a number.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> folder, roots = Path(tempfile.mkdtemp()), "aa" * 32 + "bb" * 32
        >>> header = "0baba1ad5be3a5c0a66e7ac838a129bf948f1ea4" + roots + "5f9bd5f000000000000000002711"
        >>> accounts, tokens, amounts = "0000271100002712", "00000001", "780001780001"
        >>> fill = "04" + 2 * "00000001" + accounts + tokens + amounts + "0000" + 39 * "00"
        >>> size = (folder / "block.hex").write_text(header + fill)
        >>> token = '{"symbol": "T%d", "tokenId": %d, "decimals": 18}'
        >>> listing = f"[{token % (0, 0)}, {token % (1, 1)}]"
        >>> size = (folder / "tokens.json").write_text(listing)
        >>> store = lab.rollup.Store(folder / "blocks.duckdb")
        >>> held = store.import_files(folder / "block.hex", tokens=folder / "tokens.json", first_block=20)
        >>> settled = lab.Archive(folder / "settled.duckdb")
        >>> settled.import_blocks(store)[["account_id", "fill_type", "rows", "complete"]]
           account_id fill_type  rows  complete
        0       10001       dex     1      True
        1       10002       dex     1      True
        """
        # These are imported only here, as most archives are of relayers, and reading blocks takes modules of its own.
        from loopring_lab.archive import from_blocks
        from loopring_lab.rollup import Store

        if not isinstance(store, Store):
            raise LabError(
                f"import_blocks: expected a lab.rollup.Store, got {type(store).__name__}."
            )
        with track("blocks", progress) as watch:
            from_blocks.import_blocks(self._file, store, watch)
        return self.report()

    def trades(
        self, account_id: int | None = None, since: Moment = None, until: Moment = None
    ) -> pd.DataFrame:
        """Read trades into pandas: the frame that `Client.trades` returns.

        Parameters
        ----------
        account_id : int, optional
            One account; all of them if left out.
        since, until : str, datetime or Timestamp, optional
            As for `Client.trades`.

        Returns
        -------
        pandas.DataFrame
            As `tables.trades` describes, oldest first, the current version of each trade.
            ``attrs["source"]`` and ``attrs["synthetic"]`` say where they come from.

        Raises
        ------
        LabError
            A time or the account is not valid, or the archive holds no such account.

        Examples
        --------
        >>> trades = archive.trades(since="2022-12-24")
        >>> trades[["created_at", "market", "side", "fill_type"]].head(2)
                             created_at    market side fill_type
        0 2022-12-26 07:19:15.141+00:00  GRID-ETH  BUY       amm
        1 2022-12-26 07:19:40.416+00:00   LRC-ETH  BUY       amm
        """
        wanted = _filter(since, until, None if account_id is None else [account_id])
        with self._file.reading() as connection:
            rows = connection.sql(wanted.query()).to_arrow_table()
            listing = holdings.last_listing(connection)
            source = bound_source(connection)
        if listing is None:
            raise self._file.nothing_yet()
        frame = to_frame(rows, listing)
        frame.attrs |= {
            "source": source.name,
            "synthetic": source.synthetic,
        }
        if frame.empty:
            holdings.refuse_unknown(self._file, wanted.accounts)
        return frame

    def scan(
        self,
        engine: str,
        *,
        since: Moment = None,
        until: Moment = None,
        accounts: Iterable[int] | None = None,
    ) -> Any:
        """Open trades on another engine.

        The functions of `fees` and `fills` take the archive itself, and read only the columns that they need.

        Parameters
        ----------
        engine : {'duckdb', 'polars', 'spark', 'pyarrow'}
            DuckDB reads the file each time that the relation is asked; it has a connection of its own that all
            scans share, within the limit of `lab.engine.set_memory`; ask it in SQL with
            ``relation.query("trades", "SELECT ...")``. The others read immediately, into memory; Spark's active
            session is used, and set to show times in UTC. For more than memory holds, see `export`.
        since, until : str, datetime or Timestamp, optional
            As for `trades`.
        accounts : iterable of int, optional
            Only these accounts.

        Returns
        -------
        duckdb.DuckDBPyRelation, polars.LazyFrame, Spark DataFrame, or pyarrow.Table
            The columns of `tables.trades`, the current version of each trade, in no order: amounts as
            ``decimal128(38, 18)``, times in UTC. A relation refuses to be read after the archive has changed.

        Raises
        ------
        LabError
            The engine is not known or not installed, a time or an account is not valid, or the archive does
            not hold one of the accounts.

        Examples
        --------
        >>> fills = archive.scan("duckdb").aggregate("fill_type, count(*)").order("fill_type")
        >>> fills.fetchall()
        [('amm', 689), ('dex', 11)]
        """
        wanted = _filter(since, until, accounts)
        found = scans.scan(self._file, engine, wanted)
        holdings.refuse_unknown(self._file, wanted.accounts)
        return found

    @contextmanager
    def opened(self, **tables: pa.Table) -> Iterator[duckdb.DuckDBPyRelation]:
        """Open the current trades as a relation for the time of a ``with`` block; nobody can write meanwhile.

        Parameters
        ----------
        **tables : pyarrow.Table
            Further tables, for queries by these names.

        Yields
        ------
        duckdb.DuckDBPyRelation
            The columns of `tables.trades`; amounts are whole numbers of 1e-18 (HUGEINT).

        Examples
        --------
        >>> with archive.opened() as trades:
        ...     trades.aggregate("count(DISTINCT market)").fetchall()
        [(4,)]
        """
        with (
            self._file.reading() as connection,
            session.interruptible(connection),
        ):
            for name, table in tables.items():
                connection.register(name, table)
            yield connection.sql(
                f"SELECT {', '.join(TRADES)} FROM held.main.rows WHERE current"
            )

    def query(self, sql: str) -> pd.DataFrame:
        """Run SQL over the archive; it can read nothing else, and change nothing.

        Parameters
        ----------
        sql : str
            A query in DuckDB's dialect. ``trades`` are the current versions, with the columns of
            `tables.trades`; ``rows`` are all versions, with what was received (``verbatim``), when
            (``retrieved_at``), and whether they are ``current`` and were ``imported``; ``syncs`` and
            ``listings`` are what the source counted and listed, ``blocks`` which ones were imported, and
            ``source`` where all of it is from.

        Returns
        -------
        pandas.DataFrame
            The result, with exact amounts.

        Raises
        ------
        ArchiveError
            The query cannot be run; the message says why.

        Examples
        --------
        >>> archive.query("SELECT fill_type, count(*) AS fills FROM trades GROUP BY ALL ORDER BY ALL")
          fill_type  fills
        0       amm    689
        1       dex     11
        """
        return scans.query(self._file, sql)

    def report(self, accounts: Iterable[int] | None = None) -> pd.DataFrame:
        """Report what the archive holds and whether anything is missing.

        Parameters
        ----------
        accounts : iterable of int, optional
            Only these accounts.

        Returns
        -------
        pandas.DataFrame
            One row per ``account_id`` and ``fill_type``: ``rows`` held (trades, each counted once), ``total``
            that the relayer counted last, ``missing`` of them, ``gone`` (held, though the relayer no longer
            lists them), ``complete``, ``first`` and ``last`` trade and ``synced_at`` (UTC), ``checked_at``
            (when every page was last read: by the first sync, or with ``full=True``), ``second_versions``
            (changed contents of known trades) and ``odd`` (rows irregular as sent, which `lab.anomalies`
            explains). ``total``, ``missing`` and ``gone`` are null until a sync has finished. Of an account that a
            relayer was asked about, both fill types have a row. Trades that are gone stay in ``rows`` and in all
            sums.

            Of blocks ``total``, ``missing``, ``gone`` and ``checked_at`` are null, as blocks do not count an
            account's trades, and ``synced_at`` is the last import. ``complete`` is one fact for all lines: from the
            first to the last block imported no number is missing, and no row was lost.

        Examples
        --------
        >>> archive.report()[["fill_type", "rows", "total", "complete"]]
          fill_type  rows  total  complete
        0       amm   689    689      True
        1       dex    11     11      True
        """
        return holdings.report(self._file, _account_ids(accounts))

    def verify(self) -> pd.DataFrame:
        """Read every block of the file, compare it with its checksum, and look for rows that are stored twice.

        Other methods check the blocks that they read.

        Returns
        -------
        pandas.DataFrame
            A line for each ``table`` with a ``problem``, and ``advice``. Empty if all is well.

        Raises
        ------
        NotAnArchive
            There are no trades yet.
        DamagedArchive
            The file is damaged where it says what it holds.

        Examples
        --------
        >>> archive.verify().empty
        True
        """
        return scans.verify(self._file)

    def copy(self, path: str | os.PathLike[str]) -> Archive:
        """Make a backup: a new file with all that the archive holds, and nothing else.

        It is of one moment, also while another process syncs, which waits meanwhile. Copying the file by other
        means can miss what is in DuckDB's log, or be of no moment at all.

        Parameters
        ----------
        path : path
            Does not exist yet.

        Returns
        -------
        Archive
            The copy.

        Raises
        ------
        LabError
            There is a file already.
        DiskRefused
            The copy cannot be written.
        DamagedArchive
            A block of the archive is not as it was written; no copy is made.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> backup = archive.copy(Path(tempfile.mkdtemp(), "backup.duckdb"))
        >>> backup.report()["rows"].tolist()
        [689, 11]
        """
        path = hide_addresses(path)
        self._file.copy(path)
        return Archive(path)

    def delete(self, account_id: int) -> pd.DataFrame:
        """Delete all that is held of an account: its trades, every version of them, and what was counted.

        The file is written anew without them, so that no byte of them stays in it, and takes the place of the old one
        when it is complete. There must be room for both. Copies and exports that were made before keep theirs.

        Parameters
        ----------
        account_id : int
            The account.

        Returns
        -------
        pandas.DataFrame
            The `report` on what is left.

        Raises
        ------
        LabError
            The archive does not hold the account, or its trades were read from blocks, which are public.
        DiskRefused
            There is no room; the archive is as it was.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> both = archive.copy(Path(tempfile.mkdtemp(), "both.duckdb"))
        >>> both.sync(client, account_id=79927)["rows"].tolist()
        [37, 73]
        >>> both.delete(71468)["account_id"].unique().tolist()
        [79927]
        """
        account = parse_account_id(account_id)
        holdings.refuse_unknown(self._file, [account])
        with self._file.reading() as connection:
            listing = holdings.last_listing(connection)
        if listing and listing.is_of_blocks:
            raise LabError(
                f"{self._file.shown}: both sides of each fill in a block are held, or none. Anybody can read these "
                "blocks: delete the file instead."
            )
        condition = f"account_id <> {account}"
        self._file.rewrite({"rows": condition, "syncs": condition})
        return self.report()

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        since: Moment = None,
        until: Moment = None,
        accounts: Iterable[int] | None = None,
        source_columns: bool = False,
    ) -> int:
        """Write trades as Parquet, for pandas, Spark, Dask, DuckDB, Polars, R and others.

        Each file says in its metadata where the trades are from (``source``, ``synthetic``), and which they are
        (``since``, ``until``). After ``import loopring_lab.amounts`` pandas reads amounts, and ``attrs`` with the
        source.

        Parameters
        ----------
        folder : path
            A new folder, or that of an earlier export of this archive with the same `since`, `until` and columns:
            files with trades that are new or changed are replaced, each at once, and the others stay. Files are
            in ``account_id=.../year=...``, with checksums of their pages; ``year=0`` has trades of unknown time. Both
            are columns to readers; DuckDB needs ``hive_partitioning=True`` for that.
        since, until : str, datetime or Timestamp, optional
            As for `trades`.
        accounts : iterable of int, optional
            Only these accounts.
        source_columns : bool
            Add the columns ``source`` and ``synthetic``.

        Returns
        -------
        int
            The number of trades written: all of them, or an error.

        Raises
        ------
        LabError
            The folder holds something else, or no trades are selected.
        DiskRefused
            It cannot be written to.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> import pandas as pd
        >>> folder = Path(tempfile.mkdtemp(), "exported")
        >>> archive.export(folder)
        700
        >>> found = pd.read_parquet(folder)
        >>> found["fee"].dtype, found.attrs["synthetic"]
        (amount, True)
        """
        folder = hide_addresses(folder)
        wanted = _filter(since, until, accounts)
        return scans.export(
            self._file, given_path(folder), wanted, source_columns=source_columns
        )


def _account_ids(accounts: Any) -> list[int] | None:
    """Check account ids, and give each once; None for all."""
    if accounts is None:
        return None
    if isinstance(accounts, str) or not isinstance(accounts, Iterable):
        raise LabError(
            f"accounts={accounts!r}: give a list of account ids, such as [{accounts}]."
        )
    return list(dict.fromkeys(map(parse_account_id, accounts)))


def _filter(
    since: Moment, until: Moment, accounts: Iterable[int] | None
) -> holdings.RowFilter:
    return holdings.RowFilter(*parse_span(since, until), _account_ids(accounts))
