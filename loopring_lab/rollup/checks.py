"""What blocks prove about themselves, and about what is missing, without asking anyone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from loopring_lab.errors import AmountError, BlockError
from loopring_lab.interactive.preview import Line, Sheet
from loopring_lab.progress import Watching, track
from loopring_lab.rollup import auxiliary
from loopring_lab.rollup.auxiliary import Entry, NotCheckable
from loopring_lab.rollup.balances import NOTHING, statements
from loopring_lab.rollup.blocks import Blocks
from loopring_lab.rollup.calldata import to_hex

MOST_PROBLEMS = 10_000  # listed of each check, some 1 MB; all are counted
SHOWN = 5  # problems that a preview shows
CHECKS = {
    "indices": "Every block is held, from the first of the exchange to the last one held or named by an event.",
    "roots": "Each block starts from the Merkle root that the block before it ended with, and no other block does, and "
    "it ends with the root of its event.",
    "sha256": "The SHA-256 of the block data is the public data hash of the block's event.",
    "conditional": "The header counts the conditional transactions that are in the block.",
    "auxiliary": "The auxiliary data lists the conditional transactions, each once and in order.",
    "signatures": "The owner of the account signed the key update, for at least the fee charged and until "
    "after the time of the block.",
    "balances": "The balance that an AMM update states is the one stated before plus all changes since.",
}
GAP = "does not start from the root that the one before it ended with: others are missing between them"
# The types of conditional transactions, which need a signature or an approval on layer 1: always, and unless their
# kind is 0, which is signed on layer 2. The circuits count them (numConditionalTransactions).
ALWAYS = ("deposit", "withdrawal", "amm_update")
IF_KIND = ("transfer", "account_update", "nft_mint")

Header = dict[str, Any]  # a row of `Blocks.headers_table`, with a name for messages


class Event(NamedTuple):
    """What the event of a block's submission states of it."""

    root_after: bytes
    data_hash: bytes


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
    >>> blocks = lab.rollup.decode_data(bytes(98 + 16 * 68), first_block=1)
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
        open_questions = int(self.summary["not_checkable"].sum())
        title = "Nothing wrong found"
        if wrong or open_questions:
            title = f"{wrong:,} wrong, {open_questions:,} not checkable"
        lines = []
        for name, row in self.summary.iterrows():
            counts = f"{row['checked']:,} checked, {row['wrong']:,} wrong, {row['not_checkable']:,} not checkable"
            lines.append(Line(str(name), counts, str(row["what"])))
        notes = [
            f"{row.check}{_place(row)}: {row.problem}"
            for row in self.problems.head(SHOWN).itertuples()
        ]
        if len(self.problems) > SHOWN:
            notes.append(
                f"Showing the first {SHOWN} of {len(self.problems):,} problems; .problems has all."
            )
        return Sheet(title, lines, notes)


def check(
    batches: Iterable[Blocks],
    submissions: pa.Table | None = None,
    chain_id: int | None = None,
    progress: Watching = None,
    first_number: int = 1,
) -> Check:
    """Check blocks in the order of the chain, a batch at a time; exchanges number theirs from 1."""
    work = _Work(submissions, chain_id, first_number)
    with track("blocks", progress) as report:
        for blocks in batches:
            # Stores yield no empty batch, but callers may.
            if blocks.raw:
                work.add(blocks)
            report(work.done, max(work.done, len(work.events)))
    return work.result()


class _Tally:
    """Counts and problems of each check."""

    def __init__(self) -> None:
        # These count, for each check, all that could be compared, and how much of that is wrong.
        self.checked = Counter[str]()
        self.wrong = Counter[str]()
        self.reasons = {name: Counter[str]() for name in CHECKS}
        self._listed = Counter[str]()  # problems, also those beyond `MOST_PROBLEMS`
        self._problems: list[tuple[str, int | None, int | None, str]] = []

    def judge(
        self,
        check: str,
        header: Header,
        problem: str,
        index: int | None = None,
    ) -> None:
        """Count something as right, or as a fault if it has a problem."""
        self.checked[check] += 1
        if problem:
            self.wrong[check] += 1
            self.note(check, header, problem, index)

    def note(
        self,
        check: str,
        header: Header,
        problem: str,
        index: int | None = None,
    ) -> None:
        """List a problem, whether or not it counts as a fault."""
        self._listed[check] += 1
        if self._listed[check] > MOST_PROBLEMS:
            return
        number = header["block_id"]
        # The block of a problem is in a column of its own, unless it has no number.
        if number is None:
            problem = f"{header['name']}: {problem}"
        self._problems.append((check, number, index, problem))

    def cannot(self, check: str, reason: str) -> None:
        """Count something that blocks alone cannot prove."""
        self.reasons[check][reason] += 1

    def result(self) -> Check:
        rows = []
        for name, reasons in self.reasons.items():
            what = CHECKS[name]
            if reasons:
                listed = "; ".join(
                    f"{count:,} {reason}" for reason, count in reasons.most_common()
                )
                what += f" Not checkable: {listed}."
            rows.append((self.checked[name], self.wrong[name], reasons.total(), what))
        columns = ["checked", "wrong", "not_checkable", "what"]
        summary = pd.DataFrame(rows, pd.Index(CHECKS, name="check"), columns)
        problems = pd.DataFrame(
            self._problems,
            columns=["check", "block_id", "index_in_block", "problem"],
        )
        types = {
            "check": "str",
            "block_id": "Int64",
            "index_in_block": "Int64",
            "problem": "str",
        }
        return Check(summary, problems.astype(types))


class _Work:
    """The checks of a sequence of blocks, with what carries over from batch to batch."""

    def __init__(
        self,
        submissions: pa.Table | None,
        chain_id: int | None,
        first_number: int,
    ) -> None:
        self.tally = _Tally()
        self._last_number = first_number - 1  # that of the block before
        self.done = 0  # blocks
        self.chain_id = chain_id
        self.events = self._read_events(submissions)
        # Owners whose signature was right: no contracts.
        self._signers: set[bytes] = set()
        self._last: Header | None = None  # the block before, also of the batch before
        self._starts: dict[bytes, bytes] = {}  # the block that starts from each root
        self._balances = NOTHING  # those known at the end of the batch before

    def add(self, blocks: Blocks) -> None:
        headers = blocks.headers_table.to_pylist()
        follow_flags = []
        for header in headers:
            header["name"] = _name(header, self.done)
            follows = self._follows(header)
            follow_flags.append(follows)
            self._check_number(header, follows)
            self._check_roots(header, follows)
            self._check_hash(header)
            self._last = header
            self.done += 1
        # Problems of one block are listed check by check, so the cheap checks of all blocks come first.
        entries = []
        for raw, header, slots in zip(
            blocks.raw, headers, _conditional(blocks), strict=True
        ):
            self._check_count(header, slots)
            entries.append(self._auxiliary(raw, header, slots))
        self._check_signatures(blocks, headers, entries)
        self._check_balances(blocks, headers, np.array(follow_flags))

    def result(self) -> Check:
        """Name the blocks after the last one held of which events were seen, and sum up."""
        if not self.done and not self.events:
            self.tally.cannot("indices", "exchange of which no block is held")
        submitted = max(self.events, default=0)
        if submitted > self._last_number:
            self._missing(self._last_number + 1, submitted)
        return self.tally.result()

    def _read_events(self, submissions: pa.Table | None) -> dict[int, Event]:
        """Return the events that were seen, by the number of the block."""
        events: dict[int, Event] = {}
        rows = [] if submissions is None else submissions.to_pylist()
        for row in rows:
            number = row["block_id"]
            stated = Event(row["merkle_root"], row["public_data_hash"])
            # An endpoint may repeat an event; two different ones mean another chain, or a reorganisation.
            if events.setdefault(number, stated) != stated:
                self.tally.judge(
                    "indices",
                    {"block_id": number},
                    "events state different roots or hashes",
                )
        return events

    def _follows(self, header: Header) -> bool:
        """Return whether a block is the next one after the last: by number, by its transaction, or by its root."""
        last = self._last
        if last is None:
            return False
        if last["block_id"] is not None and header["block_id"] is not None:
            return bool(header["block_id"] == last["block_id"] + 1)
        is_same_call = header["transaction_hash"] == last["transaction_hash"]
        # A block that is known by its data alone has no place in a call.
        if is_same_call and header["place"] and last["place"] == header["place"] - 1:
            return True
        return bool(last["merkle_root_after"] == header["merkle_root_before"])

    def _check_number(self, header: Header, follows: bool) -> None:
        number = header["block_id"]
        if number is None:
            self.tally.cannot("indices", "without a number")
            if not follows and self._last and self._last["block_id"] is None:
                self.tally.judge("indices", header, GAP)
            return
        before = self._last_number
        # Batches come in order, so a number that is not higher is held twice, or is wrong.
        if number <= before:
            self.tally.judge("indices", header, f"comes after block {before}")
            return
        self.tally.judge("indices", header, "")
        self._last_number = number
        if number > before + 1:
            self._missing(before + 1, number - 1)

    def _missing(self, first: int, last: int) -> None:
        """Name a range of numbers that are missing."""
        text = f"block {first} not held"
        if first < last:
            text = f"blocks {first} to {last} not held ({last - first + 1:,})"
        self.tally.judge("indices", {"block_id": first}, text)

    def _check_roots(self, header: Header, follows: bool) -> None:
        event = self.events.get(header["block_id"])
        last = self._last
        start = header["merkle_root_before"]
        problems = []
        if follows and last and start != last["merkle_root_after"]:
            problems.append(
                f"starts from {to_hex(start)}, but the block before ended with {to_hex(last['merkle_root_after'])}"
            )
        # Every block changes the state: the circuits count its operator's nonce up.
        digest = header["data_sha256"]
        if self._starts.setdefault(start, digest) != digest:
            problems.append(
                "starts from the root that another block starts from: one of them was not executed"
            )
        if event and header["merkle_root_after"] != event.root_after:
            end = to_hex(header["merkle_root_after"])
            problems.append(
                f"ends with {end}, but its event states {to_hex(event.root_after)}"
            )
        if follows or event or problems:
            self.tally.judge("roots", header, "; ".join(problems))
        else:
            self.tally.cannot("roots", "first, or after a gap, and without an event")

    def _check_hash(self, header: Header) -> None:
        event = self.events.get(header["block_id"])
        if event is None:
            self.tally.cannot("sha256", "without an event")
            return
        digest = header["data_sha256"]
        problem = ""
        if digest != event.data_hash:
            problem = (
                f"hash {to_hex(digest)}, but its event states {to_hex(event.data_hash)}"
            )
        self.tally.judge("sha256", header, problem)

    def _check_count(self, header: Header, slots: np.ndarray) -> None:
        stated = header["conditional"]
        problem = ""
        if stated != len(slots):
            problem = f"the header counts {stated} conditional transactions, the block has {len(slots)}"
        self.tally.judge("conditional", header, problem)

    def _auxiliary(
        self, raw: Any, header: Header, slots: np.ndarray
    ) -> dict[int, Entry] | None:
        """Read and check the auxiliary data of a block; return its entries by slot."""
        # A block that is held without its call does not tell what was beside it.
        if not raw.form:
            self.tally.cannot("auxiliary", "of which only the block data is held")
            return None
        if not len(slots) and not header["conditional"]:
            self.tally.judge("auxiliary", header, "")
            return None
        try:
            entries = auxiliary.read(raw)
        except BlockError as error:
            self.tally.judge("auxiliary", header, str(error))
            return None
        problem = _difference([entry.slot for entry in entries], slots.tolist())
        self.tally.judge("auxiliary", header, problem)
        # Entries of the wrong transactions would be taken for signatures of others.
        return None if problem else {entry.slot: entry for entry in entries}

    def _check_signatures(
        self,
        blocks: Blocks,
        headers: list[Header],
        entries: list[dict[int, Entry] | None],
    ) -> None:
        for update in blocks.table("account_update").to_pylist():
            header = headers[update["block"]]
            index = update["index_in_block"]
            # None where the auxiliary data is missing or wrong, so that no signature can be checked.
            of_block = entries[update["block"]] or {}
            try:
                problem = auxiliary.judge(
                    update,
                    header,
                    of_block.get(index),
                    self.chain_id,
                    self._signers,
                )
            except NotCheckable as error:
                self.tally.cannot("signatures", error.reason)
                if error.problem:
                    self.tally.note("signatures", header, error.problem, index)
                continue
            self.tally.judge("signatures", header, problem, index)
            if not problem:
                self._signers.add(update["owner"])

    def _check_balances(
        self, blocks: Blocks, headers: list[Header], follows: np.ndarray
    ) -> None:
        # A block that does not follow the one before begins another run.
        runs = np.cumsum(~follows)
        carried = self._balances if follows[0] else NOTHING
        try:
            stated, self._balances = statements(blocks, runs, carried)
        except AmountError:
            # DuckDB ends with the first sum that is too large; the next statements begin anew.
            self._balances = NOTHING
            for _ in range(blocks.table("amm_update").num_rows):
                self.tally.cannot(
                    "balances",
                    "among amounts of more than 38 digits, which no exchange settles",
                )
            return
        for one in stated.to_pylist():
            expected = one["recomputed"]
            found = one["published"]
            if expected is None:
                self.tally.cannot(
                    "balances",
                    "the first of a pool and token, or after a gap",
                )
                continue
            problem = ""
            if found != expected:
                problem = (
                    f"pool {one['account']}, token {one['token']}: expected a balance of {expected}, "
                    f"found {found}, in smallest units"
                )
            header = headers[one["block"]]
            self.tally.judge("balances", header, problem, one["index_in_block"])


def _conditional(blocks: Blocks) -> list[np.ndarray]:
    """Return the indices of each block's conditional transactions, in order."""
    tables = [blocks.table(kind) for kind in ALWAYS]
    for kind in IF_KIND:
        table = blocks.table(kind)
        is_conditional = table["kind"].to_numpy() > 0
        tables.append(table.filter(pa.array(is_conditional)))
    places = [table.select(["block", "index_in_block"]) for table in tables]
    joined = pa.concat_tables(places)
    block = joined["block"].to_numpy()
    index = joined["index_in_block"].to_numpy()
    order = np.lexsort((index, block))
    later_blocks = np.arange(1, len(blocks.raw))
    starts = np.searchsorted(block[order], later_blocks)
    return np.split(index[order], starts)


def _difference(listed: list[int], slots: list[int]) -> str:
    """Say how the indices of auxiliary data differ from those of conditional transactions, if they do."""
    if listed == slots:
        return ""
    missing = sorted(set(slots) - set(listed))
    others = sorted(set(listed) - set(slots))
    if not missing and not others:
        return "its entries are repeated, or not in the order of the block"
    return f"not listed: {_few(missing)}; listed, but not conditional: {_few(others)}"


def _few(numbers: list[int]) -> str:
    """Name a few indices of transactions."""
    listed = ", ".join(map(str, numbers[:SHOWN])) or "none"
    return f"{listed}, …" if len(numbers) > SHOWN else listed


def _name(header: Header, place: int) -> str:
    number = header["block_id"]
    return (
        f"block at position {place}, without a number"
        if number is None
        else f"block {number}"
    )


def _place(problem: Any) -> str:
    place = ""
    if not pd.isna(problem.block_id):
        place += f", block {problem.block_id}"
    if not pd.isna(problem.index_in_block):
        place += f", transaction {problem.index_in_block}"
    return place
