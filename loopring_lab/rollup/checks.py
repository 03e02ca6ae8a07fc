"""What blocks prove about themselves, and about what is missing, without asking anyone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.errors import BlockError
from loopring_lab.preview import Line, Sheet
from loopring_lab.progress import Watching, track
from loopring_lab.rollup.auxiliary import Auxiliary, NotCheckable, judge, read
from loopring_lab.rollup.balances import PoolBalances
from loopring_lab.rollup.blocks import Blocks

MOST_PROBLEMS = 10_000  # listed of each check; all are counted
SHOWN = 5
CHECKS = {
    "indices": "Block numbers are contiguous from the first held to the last, and every block whose event "
    "was seen is held.",
    "roots": "Each block starts from the Merkle root that the block before it ended with, and ends with the "
    "root of its event.",
    "sha256": "The SHA-256 of the block data is the public data hash of the block's event.",
    "conditional": "The header counts the conditional transactions that are in the block.",
    "auxiliary": "The auxiliary data lists the conditional transactions, each once and in order.",
    "signatures": "The owner of the account signed the key update, for at least the fee charged and until "
    "after the time of the block.",
    "balances": "The balance that an AMM update states is the one stated before plus all changes since.",
}
GAP = "does not start from the root that the one before it ended with: others are missing between them"
ALWAYS = ("deposit", "withdrawal", "amm_update")
IF_KIND = ("transfer", "account_update", "nft_mint")
"""The types of conditional transactions: always, and unless the kind is 0, which is signed on layer 2."""

_Block = dict[str, Any]


class Check(NamedTuple):
    """What a check of blocks proved, what it found wrong, and what blocks alone cannot prove.

    Parameters
    ----------
    summary : DataFrame
        One row per check: how many were `checked`, how many of these were `wrong`, how many were
        `not_checkable`, and `what` was checked, with the reasons why some could not be.
    problems : DataFrame
        One row per problem: the check, the block's number, the transaction's index in the block where one
        is at fault, and what is wrong. Key updates that were not signed by the owner of the account are
        listed too, although blocks do not tell a changed byte from an owner that is a contract, such as a
        smart wallet, unless the same owner has signed before. At most 10,000 problems of each check are
        listed.

    Examples
    --------
    >>> from loopring_lab.rollup.checks import check
    >>> blocks = lab.rollup.decode_data(bytes(98 + 16 * 68), first_block=7)
    >>> found = check([blocks])
    >>> found.summary.loc[["indices", "conditional"], ["checked", "wrong", "not_checkable"]]
                 checked  wrong  not_checkable
    check
    indices            1      0              0
    conditional        1      0              0
    >>> found.problems
    Empty DataFrame
    Columns: [check, block_id, index_in_block, problem]
    Index: []
    """

    summary: pd.DataFrame
    problems: pd.DataFrame

    def __repr__(self) -> str:
        return repr(self._sheet())

    def _repr_html_(self) -> str:
        return self._sheet()._repr_html_()

    def _sheet(self) -> Sheet:
        wrong = int(self.summary["wrong"].sum())
        lines = [
            Line(
                name,
                f"{row.checked:,} checked, {row.wrong:,} wrong, {row.not_checkable:,} not checkable",
                str(row.what),
            )
            for name, row in zip(self.summary.index, self.summary.itertuples(), strict=True)
        ]
        notes = [f"{row.check}{_place(row)}: {row.problem}" for row in self.problems.head(SHOWN).itertuples()]
        if len(self.problems) > SHOWN:
            notes.append(f"Showing the first {SHOWN} of {len(self.problems):,} problems; .problems has all.")
        return Sheet(f"{wrong:,} wrong" if wrong else "Nothing wrong found", lines, notes)


def check(
    batches: Iterable[Blocks],
    submissions: pa.Table | None = None,
    chain_id: int | None = None,
    progress: Watching = None,
) -> Check:
    """Check blocks in the order of the chain, a batch at a time."""
    work = _Work(submissions, chain_id)
    with track("blocks", progress) as report:
        for blocks in batches:
            if blocks.raw:
                work.add(blocks)
            report(work.done, max(work.done, len(work.events)))
    return work.result()


class _Tally:
    """Counts and problems of each check."""

    def __init__(self) -> None:
        self.checked, self.wrong, self._listed = Counter[str](), Counter[str](), Counter[str]()
        self.reasons = {name: Counter[str]() for name in CHECKS}
        self._problems: list[tuple[str, int | None, int | None, str]] = []

    def right(self, check: str, count: int = 1) -> None:
        self.checked[check] += count

    def judge(self, check: str, block: _Block, problem: str, index: int | None = None) -> None:
        """Count something as right, or as a fault if it has a problem."""
        if problem:
            self.fault(check, block, problem, index)
        else:
            self.right(check)

    def fault(self, check: str, block: _Block, problem: str, index: int | None = None) -> None:
        """Count a fault, and list it."""
        self.checked[check] += 1
        self.wrong[check] += 1
        self.note(check, block, problem, index)

    def note(self, check: str, block: _Block, problem: str, index: int | None = None) -> None:
        self._listed[check] += 1
        if self._listed[check] <= MOST_PROBLEMS:
            number = block["block_id"]
            where = f"{block['name']}: " if number is None else ""
            problem = problem.removeprefix(f"{block.get('name')}, ")
            self._problems.append((check, number, index, where + problem))

    def cannot(self, check: str, reason: str, count: int = 1) -> None:
        self.reasons[check][reason] += count

    def result(self) -> Check:
        rows = [
            (self.checked[name], self.wrong[name], reasons.total(), CHECKS[name] + _why(reasons))
            for name, reasons in self.reasons.items()
        ]
        names = ["checked", "wrong", "not_checkable", "what"]
        summary = pd.DataFrame(rows, pd.Index(CHECKS, name="check"), names)
        problems = pd.DataFrame(self._problems, columns=["check", "block_id", "index_in_block", "problem"])
        numbers = {"block_id": "Int64", "index_in_block": "Int64"}
        return Check(summary, problems.astype({"check": "str", "problem": "str"} | numbers))


class _Work:
    """The checks of a sequence of blocks, with what carries over from batch to batch."""

    def __init__(self, submissions: pa.Table | None, chain_id: int | None) -> None:
        self.tally, self.done, self.chain_id = _Tally(), 0, chain_id
        self._signers: set[bytes] = set()
        self.events = self._read_events(submissions)
        self._last: _Block | None = None
        self._held: list[tuple[int, int]] = []  # runs of numbers
        self._balances = PoolBalances()

    def add(self, blocks: Blocks) -> None:
        headers = blocks.headers_table.to_pylist()
        joined = []
        for header in headers:
            header["name"] = _name(header, self.done)
            joined.append(self._follows(header))
            self._check_number(header, joined[-1])
            self._check_header(header, joined[-1])
            self._last, self.done = header, self.done + 1
        conditional = _conditional(blocks)
        self._check_counts(headers, conditional)
        auxiliary = [
            self._auxiliary(blocks, place, header, slots)
            for place, (header, slots) in enumerate(zip(headers, conditional, strict=True))
        ]
        self._check_signatures(blocks, headers, auxiliary)
        self._check_balances(blocks, headers, np.array(joined))

    def result(self) -> Check:
        held = self._held
        beyond = sorted(n for n in self.events if not held or not held[0][0] <= n <= held[-1][1])
        for first, last in _runs(beyond):
            self._missing(first, last, "was submitted, as its event says, but is not held")
        return self.tally.result()

    def _read_events(self, submissions: pa.Table | None) -> dict[int, tuple[bytes, bytes]]:
        """Return root and hash of each block whose event was seen."""
        events: dict[int, tuple[bytes, bytes]] = {}
        if submissions is None:
            return events
        columns = (submissions[name].to_pylist() for name in ("block_id", "merkle_root", "public_data_hash"))
        for number, *stated in zip(*columns, strict=True):
            if events.setdefault(number, tuple(stated)) != tuple(stated):
                self.tally.fault("indices", {"block_id": number}, "events state different roots or hashes")
        return events

    def _follows(self, header: _Block) -> bool:
        """Return whether a block is the next one after the last."""
        last = self._last
        if last is None:
            return False
        if last["block_id"] is not None is not header["block_id"]:
            return bool(last["block_id"] + 1 == header["block_id"])
        if (last["transaction_hash"], last["place"] + 1) == (header["transaction_hash"], header["place"]):
            return True
        return bool(last["merkle_root_after"] == header["merkle_root_before"])

    def _check_number(self, header: _Block, follows: bool) -> None:
        number = header["block_id"]
        if number is None:
            self.tally.cannot("indices", "without a number")
            if not follows and self._last and self._last["block_id"] is None:
                self.tally.note("indices", header, GAP)
            return
        before = self._held[-1][1] if self._held else number - 1
        if number <= before:
            self.tally.fault("indices", header, f"comes after block {before}")
            return
        self.tally.right("indices")
        first = self._held.pop()[0] if self._held and number == before + 1 else number
        self._held.append((first, number))
        self._missing(before + 1, number - 1, "is missing")

    def _missing(self, first: int, last: int, what: str) -> None:
        """Name a range of numbers that are missing, if it has any."""
        if first <= last:
            several = f"blocks {first} to {last} ({last - first + 1:,}): each {what}"
            text = several if first < last else f"block {first} {what}"
            self.tally.fault("indices", {"block_id": first}, text)

    def _check_header(self, header: _Block, follows: bool) -> None:
        """Compare roots and hash with the block before and with the event."""
        event, last = self.events.get(header["block_id"]), self._last
        start, end, digest = (header[name] for name in ("merkle_root_before", "merkle_root_after", "data_sha256"))
        roots = []
        if follows and last:
            roots.append((start, last["merkle_root_after"], "starts from {}, but the block before ended with {}"))
        if event:
            roots.append((end, event[0], "ends with {}, but its event states {}"))
        hashes = [(digest, event[1], "hash {}, but its event states {}")] if event else []
        self._compare("roots", header, roots, "first, or after a gap, and without an event")
        self._compare("sha256", header, hashes, "without an event")

    def _compare(self, name: str, header: _Block, pairs: list[tuple[bytes, bytes, str]], reason: str) -> None:
        """Count one block, from any number of comparisons."""
        problems = [
            text.format(f"0x{found.hex()}", f"0x{expected.hex()}")
            for found, expected, text in pairs
            if found != expected
        ]
        if pairs:
            self.tally.judge(name, header, "; ".join(problems))
        else:
            self.tally.cannot(name, reason)

    def _check_counts(self, headers: list[_Block], conditional: list[np.ndarray]) -> None:
        for header, slots in zip(headers, conditional, strict=True):
            stated = header["conditional"]
            problem = f"the header counts {stated} conditional transactions, the block has {len(slots)}"
            self.tally.judge("conditional", header, "" if stated == len(slots) else problem)

    def _auxiliary(self, blocks: Blocks, place: int, header: _Block, slots: np.ndarray) -> Auxiliary | None:
        """Read and check the auxiliary data of a block."""
        raw = blocks.raw[place]
        if not raw.form:
            self.tally.cannot("auxiliary", "of which only the block data is held")
            return None
        if not len(slots) and not header["conditional"]:
            self.tally.right("auxiliary")
            return None
        try:
            found = read(raw, header["name"])
        except BlockError as error:
            self.tally.fault("auxiliary", header, str(error))
            return None
        same = np.array_equal(found.slot, slots)
        self.tally.judge("auxiliary", header, "" if same else _difference(found.slot, slots))
        return found if same else None

    def _check_signatures(self, blocks: Blocks, headers: list[_Block], auxiliary: list[Auxiliary | None]) -> None:
        for row in blocks.table("account_update").to_pylist():
            header, found = headers[row["block"]], auxiliary[row["block"]]
            try:
                problem = judge(row, header, found, self.chain_id, self._signers)
            except NotCheckable as error:
                self.tally.cannot("signatures", error.reason)
                if error.problem:
                    self.tally.note("signatures", header, error.problem, row["index_in_block"])
                continue
            self.tally.judge("signatures", header, problem, row["index_in_block"])
            if not problem:
                self._signers.add(row["owner"])

    def _check_balances(self, blocks: Blocks, headers: list[_Block], joined: np.ndarray) -> None:
        runs = np.cumsum(~joined) - (not joined[0])
        right, others = self._balances.add(blocks, runs, bool(joined[0]))
        self.tally.right("balances", right)
        for one in others:
            if one.expected is None:
                self.tally.cannot("balances", "the first of a pool and token, or after a gap")
                continue
            problem = (
                f"pool {one.account}, token {one.token}: expected a balance of {one.expected}, "
                f"found {one.found}, in smallest units"
            )
            self.tally.fault("balances", headers[one.block], problem, one.index_in_block)


def _conditional(blocks: Blocks) -> list[np.ndarray]:
    """Return the indices of each block's conditional transactions, in order."""
    tables = [blocks.table(kind) for kind in ALWAYS]
    for kind in IF_KIND:
        table = blocks.table(kind)
        tables.append(table.filter(pa.array(table["kind"].to_numpy() > 0)))
    block, index = (
        np.concatenate([table[name].to_numpy() for table in tables]) for name in ("block", "index_in_block")
    )
    order = np.lexsort((index, block))
    return np.split(index[order], np.searchsorted(block[order], np.arange(1, len(blocks.raw))))


def _difference(listed: np.ndarray, slots: np.ndarray) -> str:
    """Say how the indices of auxiliary data differ from those of conditional transactions."""
    missing, others = np.setdiff1d(slots, listed), np.setdiff1d(listed, slots)
    if not len(missing) and not len(others):
        return "its entries are repeated, or not in the order of the block"
    return f"not listed: {_few(missing)}; listed, but not conditional: {_few(others)}"


def _runs(numbers: list[int]) -> Iterable[tuple[int, int]]:
    """Yield the first and last of each run of consecutive numbers."""
    if numbers:
        ends = np.flatnonzero(np.diff(numbers) != 1)
        firsts, lasts = [0, *(ends + 1)], [*ends, len(numbers) - 1]
        yield from ((numbers[first], numbers[last]) for first, last in zip(firsts, lasts, strict=True))


def _why(reasons: Counter[str]) -> str:
    listed = "; ".join(f"{count:,} {reason}" for reason, count in reasons.most_common())
    return f" Not checkable: {listed}." if listed else ""


def _few(numbers: np.ndarray) -> str:
    """Name a few indices of transactions."""
    listed = ", ".join(map(str, numbers[:SHOWN].tolist())) or "none"
    return f"{listed}, …" if len(numbers) > SHOWN else listed


def _name(header: _Block, place: int) -> str:
    number = header["block_id"]
    return f"block {number}" if number is not None else f"block at position {place}, without a number"


def _place(row: Any) -> str:
    block = "" if pd.isna(row.block_id) else f", block {row.block_id}"
    return block + ("" if pd.isna(row.index_in_block) else f", transaction {row.index_in_block}")
