"""Auxiliary data of conditional transactions, and the signatures of key updates in it.

A block's auxiliary data is an array in the ABI of `submitBlocks`: for each conditional transaction, in order,
its index in the block, whether another contract has approved it, and bytes. Those of a key update hold the
signature, the highest fee and the deadline that the owner agreed to.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from typing import Any, NamedTuple

import numpy as np

from loopring_lab.errors import BlockError, ProtocolError
from loopring_lab.protocol import KIND_EIP712, KIND_PERSONAL, account_update_typed_data, recover_signer
from loopring_lab.rollup.calldata import HEADER, SLOT, WORD, RawBlock, Words, refuse

SIGNATURE = 66  # bytes: r, s, v and the type
_FORMS = {"8dadd3af": (0, False), "66ac492e": (0, True), "53228430": (2 * WORD, True)}
"""Of each form where its array starts (in `bytes`, after a length and an offset), and if it has approvals."""
_SIGNED_BY = "signed by"


class Auxiliary(NamedTuple):
    """The auxiliary data of a block: of each conditional transaction the slot, approval and bytes."""

    slot: np.ndarray
    approved: np.ndarray
    start: np.ndarray
    length: np.ndarray
    content: memoryview
    where: str

    def of(self, slot: int) -> tuple[bool, memoryview]:
        """Return the approval and the bytes of a transaction that has an entry; they are in order."""
        place = np.searchsorted(self.slot, slot)
        start = int(self.start[place])
        return bool(self.approved[place]), self.content[start : start + int(self.length[place])]


class Consent(NamedTuple):
    """What the owner of an account signed beside the fields of the slot."""

    signature: bytes
    max_fee: int
    valid_until: int


class NotCheckable(Exception):
    """Why blocks do not tell whether a key update was authorised, and what is odd about it, if anything."""

    def __init__(self, reason: str, problem: str = "") -> None:
        self.reason, self.problem = reason, problem
        super().__init__(reason)


def read(raw: RawBlock, where: str) -> Auxiliary:
    """Read the auxiliary data of a block, or raise a `BlockError` that names the place."""
    where = f"{where}, auxiliary data"
    if raw.form not in _FORMS:
        refuse(where, f"unknown form {raw.form!r}")
    array, has_approvals = _FORMS[raw.form]
    content, size = memoryview(raw.auxiliary), (len(raw.data) - HEADER) // SLOT
    words, first = np.frombuffer(content, np.uint8), array + WORD
    count = Words(content, where).offset(array, "entries (their number)")
    if count > size:
        refuse(where, f"{count:,} entries at byte {array} for a block of {size:,} slots")
    heads = first + _numbers(words, first + WORD * np.arange(count), where)
    entries = _numbers(words, heads[:, None] + WORD * np.arange(2 + has_approvals), where)
    approved = entries[:, 1] != 0 if has_approvals else np.zeros(count, bool)
    lengths_at = heads + entries[:, -1]
    lengths = _numbers(words, lengths_at, where)
    beyond = np.flatnonzero(lengths_at + WORD + lengths > len(words))
    if len(beyond):
        at = int(lengths_at[beyond[0]])
        refuse(where, f"the length at byte {at} goes beyond the end, {len(words):,} bytes")
    return Auxiliary(entries[:, 0], approved, lengths_at + WORD, lengths, content, where)


def read_consent(content: memoryview, where: str) -> Consent:
    """Read the auxiliary bytes of a key update: (bytes signature, uint96 maxFee, uint32 validUntil)."""
    words = Words(content, where)
    if not len(content):
        refuse(where, "empty, and a key update needs the owner's consent")
    head = words.offset(0, "consent")
    max_fee = words.word(head + WORD, "highest fee", bits=96)
    valid_until = words.word(head + 2 * WORD, "deadline", bits=32)
    start, stop = words.extent(head + words.offset(head, "signature"), "signature")
    return Consent(bytes(content[start : min(stop, start + SIGNATURE + 1)]), max_fee, valid_until)


def judge(
    update: Mapping[str, Any],
    header: Mapping[str, Any],
    found: Auxiliary | None,
    chain_id: int | None,
    signers: Container[bytes],
) -> str:
    """Return what is wrong with a key update, a row of its table, or nothing; or raise `NotCheckable`.

    `signers` are owners whose signature was right before: they are no contracts.
    """
    if update["kind"] == 0:
        raise NotCheckable("signed with the key before, on layer 2, which is not published")
    if found is None:
        raise NotCheckable("without valid auxiliary data")
    approved, content = found.of(update["index_in_block"])
    try:
        consent = read_consent(content, f"{found.where}, transaction {update['index_in_block']}")
        problem = _fault(update, header, consent, chain_id)
    except (BlockError, NotCheckable) as error:
        if isinstance(error, NotCheckable) and not approved:
            raise
        problem = str(error)
    odd = problem if problem.startswith(_SIGNED_BY) else ""
    if problem and approved:
        raise NotCheckable("approved by another contract", odd)
    if odd and update["owner"] not in signers:
        raise NotCheckable("not signed by the owner, which is right if that is a contract", odd)
    return problem


def _fault(update: Mapping[str, Any], header: Mapping[str, Any], consent: Consent, chain_id: int | None) -> str:
    """Return what is wrong with the owner's consent to a key update, or nothing."""
    owner, fee, signature = "0x" + update["owner"].hex(), int(update["fee"]), consent.signature
    max_fee = consent.max_fee or fee  # to the contract, no highest fee is consent to the one charged
    if fee > max_fee:
        return f"the fee, {fee}, exceeds the highest fee agreed to, {max_fee}"
    if header["timestamp"] >= consent.valid_until:
        return f"the block's time, {header['timestamp']}, is not before validUntil, {consent.valid_until}"
    if not signature:
        raise NotCheckable("approved on layer 1 by a transaction of the owner's")
    if len(signature) != SIGNATURE or signature[-1] not in (KIND_EIP712, KIND_PERSONAL):
        raise NotCheckable("signed in a form that only a contract accepts")
    if chain_id is None:
        raise NotCheckable("without the chain's id")
    try:
        signer = recover_signer(_digest(update, header["exchange"], max_fee, consent, chain_id), signature)
    except ProtocolError:
        signer = "nobody, as no key makes this signature"
    return "" if signer.lower() == owner else f"{_SIGNED_BY} {signer}, not by the owner, {owner}"


def _digest(update: Mapping[str, Any], exchange: bytes, max_fee: int, consent: Consent, chain_id: int) -> bytes:
    """Return what the owner signed: as `protocol.account_update_digest`, but from the packed key."""
    from eth_utils.crypto import keccak

    domain, type_hash = _constants(exchange, chain_id)
    terms = (update["account"], update["fee_token"], max_fee)
    words = [bytes(12) + update["owner"], *(number.to_bytes(WORD) for number in terms)]
    words += [update["public_key"], consent.valid_until.to_bytes(WORD), update["nonce"].to_bytes(WORD)]
    return keccak(b"\x19\x01" + domain + keccak(type_hash + b"".join(words)))


@functools.lru_cache
def _constants(exchange: bytes, chain_id: int) -> tuple[bytes, bytes]:
    """Return the hashes of the exchange's EIP-712 domain and of the type of key updates."""
    from eth_account import messages
    from eth_utils.crypto import keccak

    address = "0x" + exchange.hex()
    typed = account_update_typed_data(
        exchange=address, chain_id=chain_id, owner=address, account_id=0, x=0, y=1, fee_token_id=0,
        max_fee=0, valid_until=0, nonce=0,
    )  # fmt: skip
    members = ",".join(f"{member['type']} {member['name']}" for member in typed["types"]["AccountUpdate"])
    return messages.encode_typed_data(full_message=typed).header, keccak(f"AccountUpdate({members})".encode())


def _numbers(words: np.ndarray, at: np.ndarray, where: str) -> np.ndarray:
    """Read the words at some bytes: indices, flags, offsets and lengths, of up to 32 bits."""
    if at.max(initial=0) > len(words) - WORD:
        refuse(where, f"no word at byte {at.max()} of {len(words):,}")
    read = words[at[..., None] + np.arange(WORD)]
    if read[..., : WORD - 4].any():
        wide = read[..., : WORD - 4].any(axis=-1)
        refuse(where, f"no number of up to 32 bits at byte {at[wide].min()} of {len(words):,}")
    numbers: np.ndarray = np.ascontiguousarray(read[..., WORD - 4 :]).view(">u4")[..., 0].astype(np.int64)
    return numbers
