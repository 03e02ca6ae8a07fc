"""Hidden values never show their secret: in no repr, format, error or verbose IPython traceback."""

import functools
from collections.abc import Callable
from hashlib import sha256, sha512
from typing import Any

import pytest
from support import traces
from support.traces import forms, trace_of

from loopring_lab import protocol
from loopring_lab.errors import ProtocolError
from loopring_lab.keys.signers import sign_text, sign_typed_data
from loopring_lab.protocol import curve
from loopring_lab.redaction import hide, without_addresses

SIGNATURE = "0x" + bytes(range(7, 71)).hex() + "1b"
KEY = protocol.l2_key(SIGNATURE)
NUMBER = int(KEY.secret)
MESSAGE = "GET&a&b"


def nonce_of(secret: int, message: str) -> int:
    # PROTOCOL.md, request signatures: the nonce is SHA-512 of secret and digest.
    digest = int(sha256(message.encode()).hexdigest(), 16) % curve.P
    seed = secret.to_bytes(32, "little") + digest.to_bytes(32, "little")
    return int.from_bytes(sha512(seed).digest(), "little") % curve.SUBGROUP_ORDER


SECRETS = {
    "key": forms(NUMBER),
    "nonce": forms(nonce_of(NUMBER, MESSAGE)),
    "signature": forms(SIGNATURE),
    "its first half": forms(bytes.fromhex(SIGNATURE[2:66])),
}
leaks = functools.partial(traces.leaks, secrets=SECRETS)


def test_a_key_shows_its_public_half():
    assert repr(KEY) == f"L2Key(secret=<hidden>, x={KEY.x:#066x}, y={KEY.y:#066x})"
    assert repr(protocol.L2Key(NUMBER, KEY.x, KEY.y)) == repr(KEY)
    assert protocol.L2Key(NUMBER, KEY.x, KEY.y) == KEY


REFUSED: dict[str, Callable[[], object]] = {
    "key of a signature with a letter too much": lambda: protocol.l2_key(
        SIGNATURE + "x"
    ),
    "header of a key seed's signature": lambda: protocol.x_api_sig(
        SIGNATURE[:-2] + "01"
    ),
    "signer of a key seed's signature": lambda: protocol.recover_signer(
        bytes(32), SIGNATURE
    ),
    "signer of a signature with a letter too much": lambda: protocol.recover_signer(
        bytes(32), SIGNATURE + "x"
    ),
    "public key of a secret out of range": lambda: protocol.public_key(
        NUMBER + (1 << 256)
    ),
    "request signed by a secret that is no hex": lambda: protocol.sign_request(
        f"{NUMBER:x} ", MESSAGE
    ),
    "key of another secret in hex": lambda: protocol.L2Key(
        f"{NUMBER:#066x}", *protocol.public_key(7)
    ),
    "key of a secret in bytes": lambda: protocol.L2Key(
        NUMBER.to_bytes(32, "little"),  # type: ignore[arg-type]
        KEY.x,
        KEY.y,
    ),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_no_refusal_shows_what_was_refused(call):
    text = trace_of(call, ProtocolError)
    assert "<hidden>" in text
    assert leaks(text) == []


CALCULATIONS: dict[str, Callable[[], object]] = {
    "l2_key": lambda: protocol.l2_key(SIGNATURE),
    "public_key": lambda: protocol.public_key(NUMBER),
    "L2Key": lambda: protocol.L2Key(f"{NUMBER:x}", KEY.x, KEY.y),
    "sign_request": lambda: protocol.sign_request(f"{NUMBER:x}", MESSAGE),
}
STEPS = [("add", 0), ("to_affine", 0), ("multiply_base", 0)]
SIGNING_STEPS = [*STEPS, ("add", 127), ("poseidon", 0), ("sha512", 0)]


@pytest.mark.parametrize(
    ("calculation", "name", "before"),
    [
        (c, *step)
        for c in CALCULATIONS
        for step in (SIGNING_STEPS if c == "sign_request" else STEPS)
    ],
)
def test_no_interrupted_calculation_shows_its_secret(
    calculation, name, before, monkeypatch
):
    """Stop inside the calculation, as Ctrl-C does, after some calls of a function it uses."""
    # The table of multiples is made once, so that later calls have steps at the same numbers.
    curve.multiply_base(1)
    original = getattr(curve, name)
    calls = iter(range(before))

    def interrupt(*args: Any, **kwargs: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(curve, name, interrupt)
    assert leaks(trace_of(CALCULATIONS[calculation], KeyboardInterrupt)) == []


@pytest.mark.parametrize("secret", [SIGNATURE, bytes.fromhex(SIGNATURE[2:])])
def test_a_part_of_a_secret_is_as_hidden_as_the_whole(secret):
    # rich shows the first 80 characters of a long text in its tracebacks.
    hidden = hide(secret)
    for part in (hidden[:60], hidden[2:], hidden[::2]):
        assert f"{part} {part!r}" == "<hidden> <hidden>"
    assert hidden[2:] == secret[2:]
    assert repr(hidden[:]) == repr(secret)
    assert (hidden[0], hidden[-1]) == (secret[0], secret[-1])


def test_a_display_of_rich_that_cuts_long_texts_shows_nothing_of_a_secret():
    pretty = pytest.importorskip("rich.pretty")
    shown = pretty.pretty_repr({"signature": hide(SIGNATURE)}, max_string=80)
    assert "<hidden>" in shown
    assert leaks(shown) == []


def test_a_leak_would_be_found():
    """Proves that the tests above can fail: unwrapped values do appear in these tracebacks."""
    assert repr(SIGNATURE) in trace_of(
        lambda: protocol.key_seed(SIGNATURE, 0), ProtocolError
    )
    assert leaks(f"{NUMBER:#066x}") != []
    assert leaks(f"{nonce_of(NUMBER, MESSAGE)}") != []


def test_ctrl_c_while_a_wallet_signs_shows_no_signature():
    class Interrupted:
        def sign_message(self, message: object) -> None:
            signature = SIGNATURE
            raise KeyboardInterrupt(len(signature))

        def sign_typed_data(self, full_message: object) -> None:
            self.sign_message(full_message)

    for sign, what in ((sign_text, "text"), (sign_typed_data, {})):
        assert (
            leaks(
                trace_of(
                    lambda sign=sign, what=what: sign(Interrupted(), what),
                    KeyboardInterrupt,
                )
            )
            == []
        )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a='https://host/v3/S3CRET': no, b", "a='https://host/…': no, b"),
        ("https://host?key=S3CRET.", "https://host/…."),
        ("wss://[::1]:80#S3CRET)", "wss://[::1]:80/…)"),
        ("https://host/a'S3CRET and", "https://host/… and"),
        ("https://user:S3CRET@host", "<address>"),
        ("https://user:S3/CRET@host/x, y", "<address>, y"),
        ("https://host:S3CRET/x", "<address>"),
        (
            "https://host, http://127.0.0.1:8000/.",
            "https://host, http://127.0.0.1:8000/.",
        ),
        ("https://host/…: C:/a, b:/c/d, 10:30", "https://host/…: C:/a, b:/c/d, 10:30"),
    ],
)
def test_of_an_address_in_a_text_only_the_server_is_shown(text, shown):
    assert without_addresses(text) == shown
