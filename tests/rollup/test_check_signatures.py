"""Signatures of key updates, verified from blocks alone; what cannot be verified is not called wrong."""

from typing import Any

import pytest
from eth_abi import encode
from eth_account import Account
from eth_account.messages import encode_defunct, encode_typed_data
from eth_utils.crypto import keccak
from support.optional import thorough
from support.rollup_blocks import EXCHANGE, TYPES, block_data, submit, text_of, word

import loopring_lab as lab
from loopring_lab import protocol
from loopring_lab.rollup import Blocks
from loopring_lab.rollup.calldata import RawBlock
from loopring_lab.rollup.checks import check

CHAIN_ID = 1
TIME = 1_648_179_367
SLOT = 3
OWNER = Account.from_key(32 * b"7")
X, Y = protocol.public_key(7)
TERMS: dict[str, Any] = {
    "account": 10_083,
    "fee_token": 0,
    "fee": 1_000,
    "max_fee": 2_000,
    "valid_until": TIME + 60,
    "nonce": 2,
}
NOT_BY_OWNER = "not signed by the owner, which is right if that is a contract"


def signed(terms, kind=protocol.KIND_EIP712, chain_id=CHAIN_ID):
    """Sign as a wallet does, with eth-account."""
    typed = protocol.account_update_typed_data(
        exchange="0x" + EXCHANGE.hex(),
        chain_id=chain_id,
        owner=OWNER.address,
        account_id=terms["account"],
        x=X,
        y=Y,
        fee_token_id=0,
        max_fee=terms["max_fee"] or terms["fee"],
        valid_until=terms["valid_until"],
        nonce=terms["nonce"],
    )
    # Our own function refuses tokens that pay no fees; the exchange's contract does not.
    typed["message"]["feeTokenID"] = terms["fee_token"]
    if kind == protocol.KIND_EIP712:
        return bytes(OWNER.sign_typed_data(full_message=typed).signature) + b"\2"
    message = encode_typed_data(full_message=typed)
    digest = keccak(b"\x19\x01" + message.header + message.body)
    return bytes(OWNER.sign_message(encode_defunct(digest)).signature) + b"\3"


def float16(value):
    exponent = 0
    while value >> 11:
        value = value // 10
        exponent = exponent + 1
    return exponent << 11 | value


def update_slot(terms, kind=1):
    key = protocol.pack_public_key(X, Y).to_bytes(32)
    start = bytes([TYPES.index("account_update"), kind]) + bytes.fromhex(
        OWNER.address[2:]
    )
    numbers = [
        (terms["account"], 4),
        (terms["fee_token"], 2),
        (float16(terms["fee"]), 2),
    ]
    middle = b"".join(number.to_bytes(width) for number, width in numbers)
    return (start + middle + key + terms["nonce"].to_bytes(4)).ljust(68, b"\0")


def consent(terms, signature):
    fields = (signature, terms["max_fee"], terms["valid_until"])
    return encode(["(bytes,uint96,uint32)"], [fields])


def calldata(slot, content, form="8dadd3af", times=1):
    data = block_data(
        [bytes(68)] * SLOT + [slot] * times, size=16, timestamp=TIME, conditional=times
    )
    entries = [(SLOT + at, True, content) for at in range(times)]
    return submit([data], form=form, entries=[entries])


def found_in(call, chain_id=CHAIN_ID):
    """Return how many signatures were checked, wrong and not checkable, and the problems named."""
    return figures(check([lab.rollup.decode(call, first_block=1)], None, chain_id))


def figures(found):
    row = found.summary.loc["signatures"]
    return (
        int(row["checked"]),
        int(row["wrong"]),
        int(row["not_checkable"]),
        list(found.problems["problem"]),
    )


@pytest.mark.parametrize(
    "form", ["53228430", thorough("66ac492e"), thorough("8dadd3af")]
)
@pytest.mark.parametrize("kind", [protocol.KIND_EIP712, protocol.KIND_PERSONAL])
@pytest.mark.parametrize(
    "other",
    [
        {},
        {"fee": 2_000},
        {"max_fee": 0},
        {"max_fee": 2**96 - 1, "fee_token": 32_767},
        {"fee_token": 32_768},
        {"fee": 0, "nonce": 2**32 - 1},
    ],
)
def test_what_the_owner_signed_is_right(form, kind, other):
    """To the contract, no highest fee is consent to the fee charged; approvals do not hide a right signature."""
    terms = TERMS | other
    call = calldata(update_slot(terms), consent(terms, signed(terms, kind)), form)
    assert found_in(call) == (1, 0, 0, [])


RIGHT = consent(TERMS, signed(TERMS))


def flipped(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def test_a_changed_byte_of_slot_or_consent_is_found():
    """Bytes 28 and 29 are the fee: of a lower one the signature stays right. Of kind 0 the header's count is wrong too."""
    slot = update_slot(TERMS)
    signature = signed(TERMS)
    for at in (1, 6, 21, 25, 26, 31, 61, 65):
        checked, _, _, problems = found_in(calldata(flipped(slot, at), RIGHT))
        assert checked == 0
        assert len(problems) == 1 or at == 1
    for at in (0, 30, 64):
        altered = consent(TERMS, flipped(signature, at))
        *counts, problems = found_in(calldata(slot, altered))
        assert (counts, len(problems)) == ([0, 0, 1], 1)
    for name in ("max_fee", "valid_until"):
        altered = consent(TERMS | {name: TERMS[name] + 1}, signature)
        *counts, problems = found_in(calldata(slot, altered))
        assert (counts, len(problems)) == ([0, 0, 1], 1)


def test_a_changed_byte_is_wrong_where_the_owner_has_signed_before():
    call = calldata(update_slot(TERMS), RIGHT)
    damaged = calldata(update_slot(TERMS | {"nonce": 9}), RIGHT)
    batches = [
        lab.rollup.decode(one, first_block=number)
        for number, one in enumerate((call, damaged))
    ]
    found = check(batches, None, CHAIN_ID)
    assert figures(found)[:3] == (2, 1, 0)
    wrong = found.problems[found.problems["check"] == "signatures"].iloc[0]
    assert (wrong["block_id"], wrong["index_in_block"]) == (1, SLOT)


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"fee": 2_010}, "the fee, 2010, exceeds the highest fee agreed to, 2000"),
        (
            {"valid_until": TIME},
            f"the block's time, {TIME}, is not before validUntil, {TIME}",
        ),
    ],
)
def test_terms_that_are_not_kept_are_wrong(other, problem):
    terms = TERMS | other
    assert found_in(calldata(update_slot(terms), consent(terms, signed(terms)))) == (
        1,
        1,
        0,
        [problem],
    )


ONLY_A_CONTRACT = "signed in a form that only a contract accepts"


@pytest.mark.parametrize(
    ("signature", "form", "reason"),
    [
        (b"", "8dadd3af", "approved on layer 1 by a transaction of the owner's"),
        (signed(TERMS)[:65], "8dadd3af", ONLY_A_CONTRACT),
        (signed(TERMS)[:65] + b"\4", "8dadd3af", ONLY_A_CONTRACT),
        (signed(TERMS) + b"\2", "8dadd3af", ONLY_A_CONTRACT),
        (b"", "66ac492e", "approved by another contract"),
        (b"a" * 66, "53228430", "approved by another contract"),
    ],
)
def test_what_is_not_signed_by_a_plain_account_is_not_checkable(
    signature, form, reason
):
    call = calldata(update_slot(TERMS), consent(TERMS, signature), form)
    found = check([lab.rollup.decode(call)], None, CHAIN_ID)
    assert figures(found) == (0, 0, 1, [])
    assert found.summary["what"]["signatures"].endswith(f"Not checkable: 1 {reason}.")


@pytest.mark.parametrize(
    ("form", "reason"),
    [("8dadd3af", NOT_BY_OWNER), ("53228430", "approved by another contract")],
)
def test_a_signature_by_a_wallet_s_owner_is_listed_but_not_wrong(form, reason):
    """A smart wallet accepts its owner's signature; the account's owner is the wallet."""
    slot = update_slot(TERMS)
    wallet = slot[:2] + b"\xab" * 20 + slot[22:]
    found = check([lab.rollup.decode(calldata(wallet, RIGHT, form))], None, CHAIN_ID)
    assert figures(found)[:3] == (0, 0, 1)
    assert f"1 {reason}" in found.summary["what"]["signatures"]
    assert "signed by 0x" in found.problems["problem"][0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        word(32) + bytes(96),
        word(1 << 255) + bytes(200),
        word(32) + word(96) + word(2**96) + word(1) + text_of(bytes(66)),
        word(32) + word(96) + word(1) + word(2**32) + text_of(bytes(66)),
        RIGHT[:-32],
    ],
)
def test_consent_that_cannot_be_read_is_a_problem_that_names_the_place(content):
    checked, wrong, not_checkable, problems = found_in(
        calldata(update_slot(TERMS), content)
    )
    expired = problems == [f"the block's time, {TIME}, is not before validUntil, 0"]
    over = problems == ["the fee, 1000, exceeds the highest fee agreed to, 1"]
    assert (checked, wrong, not_checkable) == (1, 1, 0)
    assert expired or over or f"auxiliary data, transaction {SLOT}" in problems[0]
    assert found_in(calldata(update_slot(TERMS), content, "66ac492e")) == (0, 0, 1, [])


def test_many_updates_over_one_large_text_stay_cheap():
    """The bytes of entries may overlap: 250 times 4 MiB would be 1 GiB, if they were copied."""
    count = 250
    size = 256
    padding = 4 << 20
    heads = b"".join(word(32 * count + 96 * at) for at in range(count))
    to_content = [96 * (count - at) for at in range(count)]
    elements = b"".join(
        word(at) + word(to_content[at]) + word(0) for at in range(count)
    )
    content = word(len(RIGHT) + padding) + RIGHT + bytes(padding)
    slots = block_data(
        [update_slot(TERMS)] * count, size=size, timestamp=TIME, conditional=count
    )
    raw = RawBlock(
        slots, auxiliary=word(count) + heads + elements + content, form="8dadd3af"
    )
    assert figures(check([Blocks([raw])], None, CHAIN_ID)) == (count, 0, 0, [])
