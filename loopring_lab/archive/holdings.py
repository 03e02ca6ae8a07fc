"""What an archive holds: its trades, in pandas and on other engines, and its report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from loopring_lab.accounts import number
from loopring_lab.archive import reporting, scanning
from loopring_lab.archive.disk import TRADES, Disk
from loopring_lab.archive.records import listings
from loopring_lab.archive.stored import TYPED, framed
from loopring_lab.asked import Moment, utc

__all__ = ["Holdings"]


class Holdings:
    """The part of an archive that reads what it holds."""

    _disk: Disk

    def trades(
        self, account_id: int | None = None, since: Moment = None, until: Moment = None
    ) -> pd.DataFrame:
        """Read trades into pandas: the frame that `Client.trades` gives.

        Parameters
        ----------
        account_id : int, optional
            One account; all of them where it is left out.
        since, until : str, datetime or Timestamp, optional
            From `since` on, and before `until`; UTC where no zone is given. A row of unknown time is kept.

        Returns
        -------
        pandas.DataFrame
            As `tables.trades` describes, oldest first, the current version of each trade.
            ``attrs["source"]`` and ``attrs["synthetic"]`` say where they come from.

        Raises
        ------
        NotAnArchive
            There is nothing yet.
        DamagedArchive
            A file is missing or cannot be read.

        Examples
        --------
        >>> import tempfile
        >>> import loopring_lab as lab
        >>> archive = lab.Archive(tempfile.mkdtemp())
        >>> report = archive.sync(lab.connect(), account_id=71468)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> trades = archive.trades(since="2022-12-24")
        >>> trades[["created_at", "market", "side", "fill_type"]].head(2)
                             created_at   market  side fill_type
        0 2022-12-26 12:29:33.311+00:00  LRC-ETH  SELL       dex
        1 2022-12-26 12:30:57.793+00:00  LRC-ETH   BUY       dex
        """
        where = pc.field("current")
        moment, unknown = pc.field("created_at"), pc.field("created_at").is_null()
        start, end = utc("since", since), utc("until", until)
        where = where if start is None else where & (unknown | (moment >= _scalar(start)))
        where = where if end is None else where & (unknown | (moment < _scalar(end)))
        accounts = None if account_id is None else [number("account_id", account_id)]
        rows = self._disk.read(TRADES, [*TYPED, "listing"], where, accounts)
        known = listings(self._disk)
        used = set(pc.unique(rows["listing"]).to_pylist())
        listed = [one for name, one in known.items() if name in used] or list(known.values())
        if not listed:
            raise self._disk.nothing_yet()
        frame = framed(rows, listed[-1])
        sources = dict.fromkeys(one.source for one in listed)
        frame.attrs |= {
            "fee_token": "received",
            "source": "; ".join(sources),
            "synthetic": any(one.synthetic for one in listed),
        }
        return frame

    def scan(self, engine: str) -> Any:
        """Open all trades on another engine, without reading them yet.

        Parameters
        ----------
        engine : {'duckdb', 'polars', 'dask', 'spark', 'pyarrow'}
            DuckDB's and Spark's sessions are set to show times in UTC. pyarrow reads at once.

        Returns
        -------
        duckdb.DuckDBPyRelation, polars.LazyFrame, dask or Spark DataFrame, or pyarrow.Table
            The columns of `tables.trades`, the current version of each trade, in no order: amounts as
            ``decimal128(38, 18)``, times in UTC. It stays as it is while others write to the archive.

        Raises
        ------
        LabError
            The engine is not known or not installed.
        DamagedArchive
            A file is missing.

        Examples
        --------
        >>> import tempfile
        >>> import loopring_lab as lab
        >>> archive = lab.Archive(tempfile.mkdtemp())
        >>> report = archive.sync(lab.connect(), account_id=71468)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> fills = archive.scan("duckdb").aggregate("fill_type, count(*)").order("fill_type")
        >>> fills.fetchall()
        [('amm', 63), ('dex', 87)]
        """
        return scanning.scan(self._disk, engine)

    def report(self, accounts: Iterable[int] | None = None) -> pd.DataFrame:
        """Say what is held and whether anything is missing.

        Parameters
        ----------
        accounts : iterable of int, optional
            Only these.

        Returns
        -------
        pandas.DataFrame
            A line for each ``account_id`` and ``fill_type``: ``rows`` held (trades, whatever their versions),
            ``total`` that the relayer counted last, ``missing`` of them, ``complete``, ``first`` and ``last``
            trade and ``synced_at`` (UTC), ``second_versions`` (further contents under a known identity) and
            ``odd`` rows, which `lab.anomalies` explains. ``total`` and ``missing`` are null where no reading
            came to an end yet. Trades that the relayer no longer lists stay and count as held.

        Raises
        ------
        NotAnArchive
            There is nothing yet.
        DamagedArchive
            A file is missing or cannot be read.

        Examples
        --------
        >>> import tempfile
        >>> import loopring_lab as lab
        >>> archive = lab.Archive(tempfile.mkdtemp())
        >>> report = archive.sync(lab.connect(), account_id=71468)
        Embedded relayer: synthetic world, seed 1. Nothing here is real market data.
        >>> archive.report()[["fill_type", "rows", "total", "complete"]]
          fill_type  rows  total  complete
        0       amm    63     63      True
        1       dex    87     87      True
        """
        return reporting.report(self._disk, None if accounts is None else list(accounts))


def _scalar(moment: pd.Timestamp) -> pa.Scalar:
    return pa.scalar(moment.as_unit("us").to_pydatetime(), pa.timestamp("us", "UTC"))
