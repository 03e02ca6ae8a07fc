"""Packed public keys: unpacking inverts packing, and refuses what no point of the curve has."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.protocol_vectors import A, D, P, every_vector
from support.rollup_blocks import block_data, recorded_facts, slot

import loopring_lab as lab
from loopring_lab import protocol

pytestmark = pytest.mark.contract

few = settings(max_examples=60)


def is_on_curve(x, y):
    return (A * x * x + y * y - 1 - D * x * x * y * y) % P == 0


def test_every_recorded_key_unpacks_and_packs_back():
    packed = {
        fact["public_key"]
        for fact in recorded_facts()
        if fact["type"] == "account_update"
    }
    assert len(packed) == 11
    for key in packed:
        x, y = protocol.unpack_public_key(key)
        protocol.check_public_key(x, y)
        assert is_on_curve(x, y)
        assert protocol.pack_public_key(x, y) == int(key, 16)


@given(st.integers(1, 2**250))
@few
def test_unpacking_inverts_packing(secret):
    x, y = protocol.public_key(secret)
    assert protocol.unpack_public_key(protocol.pack_public_key(x, y)) == (x, y)
    assert protocol.unpack_public_key(protocol.pack_public_key(P - x, y)) == (P - x, y)


@given(st.integers(0, 2**256 - 1) | st.integers(0, 300))
@few
def test_any_number_is_a_point_or_refused(packed):
    try:
        x, y = protocol.unpack_public_key(packed)
    except lab.errors.ProtocolError:
        y = packed % 2**255
        square = (1 - y * y) * pow(A - D * y * y, -1, P) % P
        assert (
            y >= P
            or pow(square, (P - 1) // 2, P) == P - 1
            or (square == 0 and packed >> 255)
        )
    else:
        assert packed == 0 or (
            is_on_curve(x, y) and protocol.pack_public_key(x, y) == packed
        )


@pytest.mark.parametrize(
    "wrong", [None, -1, 2**256, "", "0x", "zz", 1.0, True, b"", bytes(31), P]
)
def test_what_is_no_packed_key(wrong):
    with pytest.raises(lab.errors.ProtocolError, match="publicKey"):
        protocol.unpack_public_key(wrong)


def test_account_updates_carry_the_unpacked_key():
    x, y = protocol.public_key(7)
    keys = [protocol.pack_public_key(x, y), 0, P, protocol.pack_public_key(P - x, y)]
    updates = [slot("account_update", public_key=key) for key in keys]
    frame = lab.rollup.decode_data(block_data(updates)).account_updates()
    assert frame["public_key"].map(lambda text: int(text, 16)).tolist() == keys
    assert frame["x"].dropna().map(lambda text: int(text, 16)).tolist() == [x, 0, P - x]
    assert frame["y"].isna().tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    "vector", every_vector()["account_update"], ids=lambda vector: vector["id"]
)
def test_the_vectors_packed_keys_unpack(vector):
    found = protocol.unpack_public_key(vector["packed_public_key"])
    assert found == tuple(int(vector["public_key"][name], 16) for name in "xy")
