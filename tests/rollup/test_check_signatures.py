"""Signatures of key updates, verified from blocks alone; what cannot be verified is not called wrong."""

from functools import cache
from typing import Any

import pytest
from eth_abi import encode
from eth_account import Account
from eth_account.messages import encode_defunct, encode_typed_data
from eth_utils.crypto import keccak
from support.encoding import encode_calldata
from support.rollup_blocks import EXCHANGE, TYPES, block_data, submit, text_of, word
from support.settlement import Settlement

import loopring_lab as lab
from loopring_lab import protocol
from loopring_lab.relayer import Settings, World
from loopring_lab.relayer.accounts import demo_owner
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
        fee_token_id=terms["fee_token"],
        max_fee=terms["max_fee"] or terms["fee"],
        valid_until=terms["valid_until"],
        nonce=terms["nonce"],
    )
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
    entries = [(SLOT + at, content) for at in range(times)]
    return submit([data], form=form, entries=[entries])


def found_in(call, chain_id=CHAIN_ID):
    """Return how many signatures were checked, wrong and not checkable, and the problems named."""
    return figures(check([lab.rollup.decode(call, first_block=5)], None, chain_id))


def figures(found):
    row = found.summary.loc["signatures"]
    return (
        int(row["checked"]),
        int(row["wrong"]),
        int(row["not_checkable"]),
        list(found.problems["problem"]),
    )


@pytest.mark.parametrize("form", ["8dadd3af", "66ac492e", "53228430"])
@pytest.mark.parametrize("kind", [protocol.KIND_EIP712, protocol.KIND_PERSONAL])
@pytest.mark.parametrize(
    "other",
    [
        {},
        {"fee": 2_000},
        {"max_fee": 0},
        {"max_fee": 2**96 - 1, "fee_token": 32_767},
        {"fee": 0, "nonce": 2**32 - 1},
    ],
)
def test_what_the_owner_signed_is_right(form, kind, other):
    """To the contract, no highest fee is consent to the fee charged; approvals do not hide a right signature."""
    terms = TERMS | other
    call = calldata(update_slot(terms), consent(terms, signed(terms, kind)), form)
    assert found_in(call) == (1, 0, 0, [])


RIGHT = consent(TERMS, signed(TERMS))


def test_a_changed_byte_of_slot_or_consent_is_found():
    slot = update_slot(TERMS)
    signature = signed(TERMS)
    fee = {28, 29}  # of a lower fee the signature stays right
    for at in {*range(1, 66, 5), 65} - fee:
        altered = slot[:at] + bytes([slot[at] ^ 1]) + slot[at + 1 :]
        found = check([lab.rollup.decode(calldata(altered, RIGHT))], None, CHAIN_ID)
        assert found.summary["checked"]["signatures"] == 0, at
        assert len(found.problems) == 1 or at == 1, (
            at
        )  # of kind 0 the header's count is wrong too
    for at in {*range(0, len(signature), 6), len(signature) - 1}:
        altered = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
        last = at == len(signature) - 1
        outcome = found_in(calldata(slot, consent(TERMS, altered)))
        assert outcome[:3] == (0, 0, 1), at
        assert len(outcome[3]) == 1 or last, at
    for name in ("max_fee", "valid_until"):
        outcome = found_in(
            calldata(slot, consent(TERMS | {name: TERMS[name] + 1}, signature))
        )
        assert outcome[:3] == (0, 0, 1)
        assert len(outcome[3]) == 1


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


@pytest.mark.parametrize(
    ("signature", "form", "reason"),
    [
        (b"", "8dadd3af", "approved on layer 1 by a transaction of the owner's"),
        (
            signed(TERMS)[:65],
            "8dadd3af",
            "signed in a form that only a contract accepts",
        ),
        (
            signed(TERMS)[:65] + b"\4",
            "8dadd3af",
            "signed in a form that only a contract accepts",
        ),
        (
            signed(TERMS) + b"\2",
            "8dadd3af",
            "signed in a form that only a contract accepts",
        ),
        (b"a" * 200, "8dadd3af", "signed in a form that only a contract accepts"),
        (b"", "66ac492e", "approved by another contract"),
        (b"a" * 66, "53228430", "approved by another contract"),
    ],
)
def test_what_is_not_signed_by_a_plain_account_is_not_checkable(
    signature, form, reason
):
    found = check(
        [
            lab.rollup.decode(
                calldata(update_slot(TERMS), consent(TERMS, signature), form)
            )
        ],
        None,
        CHAIN_ID,
    )
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
        bytes(32),
        bytes(200),
        word(32) + bytes(96),
        word(1 << 255) + bytes(200),
        word(32) + word(96) + word(2**96) + word(1) + text_of(bytes(66)),
        word(32) + word(96) + word(1) + word(2**32) + text_of(bytes(66)),
        RIGHT[:-32],
        word(32) + word(2**31) + word(1) + word(1),
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


@cache
def settlement():
    return Settlement(World(seed=3, size=0.02), Settings())


@cache
def updates():
    """Return block, index and account of key updates of the world that are signed on layer 1."""
    world = settlement()
    return [
        (block, index, one.account)
        for block in range(world.first, world.last + 1, 1)
        if any(
            type(one).__name__ == "AccountUpdate" for one in world._plan.get(block, ())
        )
        for index, one in enumerate(world.transactions(block))
        if type(one).__name__ == "AccountUpdate" and one.kind == 1
    ]


@pytest.mark.thorough
def test_the_world_s_owners_sign_their_updates():
    """Every signature of an owner is right, of the whole world; that of a smart wallet is by its owner."""
    world = settlement()
    settings = Settings()
    wallet = max(world._world.accounts)
    batches = [
        lab.rollup.decode(encode_calldata([world.submission(block)]), first_block=block)
        for block in sorted({block for block, _, _ in updates()})
    ]
    found = check(batches, None, settings.chain_id)
    of_wallets = sum(account == wallet for _, _, account in updates())
    on_layer_2 = sum(
        batch.table("account_update")["kind"].to_pylist().count(0) for batch in batches
    )
    assert figures(found)[:3] == (
        len(updates()) - of_wallets,
        0,
        of_wallets + on_layer_2,
    )
    listed = found.problems[found.problems["check"] == "signatures"]
    signer = demo_owner(
        world._world.label, wallet, settings.exchange, True
    ).signer.address
    assert [text.startswith(f"signed by {signer}") for text in listed["problem"]] == [
        True
    ] * of_wallets
