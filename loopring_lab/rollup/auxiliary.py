"""Auxiliary data of conditional transactions, and the signatures of key updates in it.

A block's auxiliary data is an array in the ABI of `submitBlocks`: for each conditional transaction, in order,
its index in the block, whether another contract has approved it, and bytes. Those of a key update hold the
signature, the highest fee and the deadline that the owner agreed to.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from loopring_lab.errors import BlockError, ProtocolError
from loopring_lab.protocol import (
    KIND_EIP712,
    KIND_PERSONAL,
    account_update_typed_data,
    recover_signer,
    typed_data_digest,
)
from loopring_lab.rollup.calldata import (
    HEADER,
    SLOT,
    WORD,
    RawBlock,
    Words,
    refuse,
    to_hex,
)

# The bytes of the words r and s, of v, and of the type of the signature: SignatureUtil.sol.
SIGNATURE_BYTES = 66
# Each form of `calldata.SUBMIT_BLOCKS`, with the place where its array starts (inside of `bytes` it follows their
# length and an offset), and whether its entries say that a contract has approved the transaction.
FORMS = {
    "8dadd3af": (0, False),
    "66ac492e": (0, True),
    "53228430": (2 * WORD, True),
}


class Entry(NamedTuple):
    """What auxiliary data holds of one conditional transaction."""

    slot: int
    is_approved: bool
    content: memoryview
    where: str


class Consent(NamedTuple):
    """What the owner of an account signed beside the fields of the slot."""

    signature: bytes
    max_fee: int
    valid_until: int


class NotCheckable(Exception):
    """Why blocks do not tell whether a key update was authorised; and the problem if it is wrong, where known."""

    def __init__(self, reason: str, problem: str = "") -> None:
        self.reason = reason
        self.problem = problem
        super().__init__(reason)


def read(raw: RawBlock) -> list[Entry]:
    """Read the auxiliary data of a block, or raise a `BlockError` that names the place."""
    where = "auxiliary data"
    if raw.form not in FORMS:
        refuse(where, f"unknown form {raw.form!r}")
    array, has_approvals = FORMS[raw.form]
    words = Words(memoryview(raw.auxiliary), where)
    size = (len(raw.data) - HEADER) // SLOT
    count = words.offset(array, "entries (their number)")
    if count > size:
        refuse(
            where,
            f"{count:,} entries at byte {array} for a block of {size:,} slots",
        )
    first = array + WORD
    entries = []
    for place in range(count):
        start = first + words.offset(first + WORD * place, f"entry {place}")
        entries.append(_entry(words, start, has_approvals))
    return entries


def _entry(words: Words, start: int, has_approvals: bool) -> Entry:
    """Read (uint256 txIndex, bool approved, bytes data), of which the flag is not in all forms."""
    slot = words.word(start, "index in the block", bits=32)
    at = start + WORD
    is_approved = False
    if has_approvals:
        is_approved = bool(words.word(at, "approval", bits=32))
        at += WORD
    begin, end = words.extent(start + words.offset(at, "data"), "data")
    # The bytes are not copied, as several entries may name the same ones.
    content = memoryview(words.call)[begin:end]
    return Entry(slot, is_approved, content, f"{words.where}, transaction {slot}")


def read_consent(content: memoryview, where: str) -> Consent:
    """Read the auxiliary bytes of a key update: (bytes signature, uint96 maxFee, uint32 validUntil)."""
    words = Words(content, where)
    if not len(content):
        refuse(where, "empty, and a key update needs the owner's consent")
    head = words.offset(0, "consent")
    max_fee = words.word(head + WORD, "highest fee", bits=96)
    valid_until = words.word(head + 2 * WORD, "deadline", bits=32)
    start, stop = words.extent(head + words.offset(head, "signature"), "signature")
    # One byte more than a signature has tells that it is longer; the rest may be megabytes.
    signature = content[start : min(stop, start + SIGNATURE_BYTES + 1)]
    return Consent(bytes(signature), max_fee, valid_until)


def judge(
    update: Mapping[str, Any],
    header: Mapping[str, Any],
    entry: Entry | None,
    chain_id: int | None,
    signers: Container[bytes],
) -> str:
    """Return what is wrong with a key update, a row of its table, or nothing; or raise `NotCheckable`.

    `signers` are owners whose signature was right before: they are no contracts.
    """
    if update["kind"] == 0:
        raise NotCheckable(
            "signed with the key before, on layer 2, which is not published"
        )
    if entry is None:
        raise NotCheckable("without valid auxiliary data")
    try:
        consent = read_consent(entry.content, entry.where)
        problem = _fault(update, header, consent, chain_id)
    except BlockError as error:
        problem = str(error)
    except NotCheckable as error:
        if entry.is_approved:
            raise NotCheckable("approved by another contract", error.problem) from None
        if error.problem and update["owner"] in signers:
            return error.problem
        raise
    if problem and entry.is_approved:
        raise NotCheckable("approved by another contract")
    return problem


def _fault(
    update: Mapping[str, Any],
    header: Mapping[str, Any],
    consent: Consent,
    chain_id: int | None,
) -> str:
    """Return what is wrong with the owner's consent to a key update, or nothing."""
    owner = to_hex(update["owner"])
    fee = int(update["fee"])
    signature = consent.signature
    # To the contract, no highest fee is consent to the one charged: AccountUpdateTransaction.sol.
    max_fee = consent.max_fee or fee
    if fee > max_fee:
        return f"the fee, {fee}, exceeds the highest fee agreed to, {max_fee}"
    if header["timestamp"] >= consent.valid_until:
        return f"the block's time, {header['timestamp']}, is not before validUntil, {consent.valid_until}"
    if not signature:
        raise NotCheckable("approved on layer 1 by a transaction of the owner's")
    if len(signature) != SIGNATURE_BYTES or signature[-1] not in (
        KIND_EIP712,
        KIND_PERSONAL,
    ):
        raise NotCheckable("signed in a form that only a contract accepts")
    if chain_id is None:
        raise NotCheckable("without the chain's id")
    try:
        digest = _digest(update, header["exchange"], max_fee, consent, chain_id)
        signer = recover_signer(digest, signature)
    except ProtocolError:
        signer = "nobody, as no key makes this signature"
    if signer.lower() == owner:
        return ""
    # A contract signs in its own way, which looks like a signature of somebody else.
    raise NotCheckable(
        "not signed by the owner, which is right if that is a contract",
        f"signed by {signer}, not by the owner, {owner}",
    )


def _digest(
    update: Mapping[str, Any],
    exchange: bytes,
    max_fee: int,
    consent: Consent,
    chain_id: int,
) -> bytes:
    """Return what the owner signed: as `protocol.account_update_digest`, but from the packed key."""
    typed = account_update_typed_data(
        exchange=to_hex(exchange),
        chain_id=chain_id,
        owner=to_hex(update["owner"]),
        account_id=update["account"],
        # In place of these three, the message gets what the block has: no point need belong to the key, and a token
        # that pays no fees may stand there all the same.
        x=0,
        y=1,
        fee_token_id=0,
        max_fee=max_fee,
        valid_until=consent.valid_until,
        nonce=update["nonce"],
    )
    typed["message"]["publicKey"] = int.from_bytes(update["public_key"])
    typed["message"]["feeTokenID"] = update["fee_token"]
    return typed_data_digest(typed)
