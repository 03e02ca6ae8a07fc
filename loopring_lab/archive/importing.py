"""Saved responses into an archive, a bounded batch at a time, without any relayer."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from loopring_lab.archive import pages
from loopring_lab.archive.disk import Disk
from loopring_lab.archive.merge import merge
from loopring_lab.archive.records import Count, History, held, keep_counts, keep_listing, listings
from loopring_lab.archive.stored import Listed, Page, stored
from loopring_lab.errors import AmountError, LabError, UnexpectedAnswer
from loopring_lab.progress import Progress

__all__ = ["Import"]

BATCH_BYTES = 24 << 20

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Import:
    """Adds saved responses to an archive.

    Parameters
    ----------
    disk : Disk
        Of the archive, begun.
    account_id, fill_type : int, str, optional
        Whose and what the trades are, where file names and rows do not say.
    progress : callable
        Told the number of trades read and expected, going by the size of the files.
    """

    def __init__(self, disk: Disk, account_id: int | None, fill_type: str | None, progress: Progress) -> None:
        self._disk, self._account, self._kind, self._progress = disk, account_id, fill_type, progress
        self._counted: dict[History, tuple[int, int]] = {}
        self._homes: dict[Path, Listed] = {}
        self._batch: list[Page] = []
        self._scale: Listed | None = None
        self._size = self._read = 0

    def run(self, paths: Paths) -> None:
        """Import every file; what was imported before is not doubled.

        Parameters
        ----------
        paths : path or iterable of paths
            As `pages.find` takes them.

        Raises
        ------
        LabError
            A file cannot be used; those before it are imported.
        """
        found = pages.find(paths)
        sizes = [file.stat().st_size for file in found.files]
        try:
            for number, file in enumerate(found.files, 1):
                self._add(file, self._listed(found.listings.get(file.parent), file))
                self._progress(self._read, self._read * sum(sizes) // max(1, sum(sizes[:number])))
        finally:
            try:
                self._commit()
            finally:
                self._count()

    def _add(self, file: Path, listed: Listed) -> None:
        """Gather the pages of a file; commit what is enough, and what other tokens and markets scale."""
        if self._scale is not None and listed.name != self._scale.name:
            self._commit()
        self._scale = listed
        for page, rows, counted in pages.read(file, self._account, self._kind):
            self._note(page, rows, counted)
            self._batch.append(page)
            self._size += len(page.body)
            if self._size >= BATCH_BYTES:
                self._commit()

    def _listed(self, home: Path | None, file: Path) -> Listed:
        if home is None:
            known = list(listings(self._disk).values())
            if not known:
                raise LabError(
                    f"{file}: no {pages.TOKENS} and {pages.MARKETS} beside it or in the folder above. They "
                    "scale amounts: save the answers of GET /exchange/tokens and GET /mix/markets there."
                )
            return known[-1]
        if home not in self._homes:
            self._homes[home] = pages.listed(home)
            keep_listing(self._disk, self._homes[home])
        return self._homes[home]

    def _commit(self) -> None:
        batch, self._batch, self._size = self._batch, [], 0
        by_history: dict[History, list[Page]] = defaultdict(list)
        for page in batch:
            by_history[page.account_id, page.fill_type].append(page)
        parts, errors = [], []
        for some in by_history.values():
            try:
                parts += [stored(some, self._scale)] if self._scale else []
            except (UnexpectedAnswer, AmountError) as error:
                errors.append(error)
        if parts:
            merge(self._disk, pa.concat_tables(parts))
        if errors:
            raise errors[0]

    def _note(self, page: Page, rows: int, counted: int | None) -> None:
        """Remember what the relayer counted in its latest answer."""
        self._read += rows
        history = page.account_id, page.fill_type
        if counted is not None:
            self._counted[history] = max((page.moment, counted), self._counted.get(history, (0, 0)))

    def _count(self) -> None:
        """Note what the relayer counted when it gave these pages."""
        fresh = []
        for history, (moment, total) in self._counted.items():
            complete = len(held(self._disk, history)) == total
            fresh.append(Count(*history, moment, total, 0 if complete else None))
        keep_counts(self._disk, fresh)
