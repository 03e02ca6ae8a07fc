"""Key derivation and request signature against plain affine coordinates.

Run as ``python benchmarks/bench_protocol.py``; it exits with 1 if a target is missed.

The baseline is double-and-add with two modular inversions per addition; hashes are the same code in both.
Every round times all four in turn, so that a busy machine slows all of them, and medians are compared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from hashlib import sha256, sha512
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from second_implementation import multiply
from timing import seconds

from loopring_lab import protocol
from loopring_lab.protocol import curve
from loopring_lab.protocol.curve import BASE, ORDER, SUBGROUP_ORDER, P

ROUNDS = 31
FASTER = 8
MILLISECONDS = 2.0
SIGNATURE = bytes(range(64)) + b"\x1b"
MESSAGE = protocol.request_message(
    "GET", "https://relayer.example/api/v3/apiKey", {"accountId": 10001}
)


def affine_key() -> tuple[int, int, int]:
    secret = int.from_bytes(sha256(SIGNATURE).digest(), "little") % SUBGROUP_ORDER
    return secret, *multiply(secret, BASE)


def affine_signature(secret: int) -> str:
    message = int.from_bytes(sha256(MESSAGE.encode()).digest(), "big") % P
    seed = secret.to_bytes(32, "little") + message.to_bytes(32, "little")
    nonce = int.from_bytes(sha512(seed).digest(), "little") % SUBGROUP_ORDER
    rx, ry = multiply(nonce, BASE)
    challenge = curve.poseidon((rx, ry, *multiply(secret, BASE), message))
    return f"0x{rx:064x}{ry:064x}{(nonce + secret * challenge) % ORDER:064x}"


def main() -> int:
    """Time, print, and return 1 if a target is missed."""
    key = protocol.l2_key(SIGNATURE)
    secret = int(key.secret)
    assert affine_key() == (secret, key.x, key.y)
    assert affine_signature(secret) == protocol.sign_request(secret, MESSAGE)
    calls: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "key derivation": (lambda: protocol.l2_key(SIGNATURE), affine_key),
        "request signature": (
            lambda: protocol.sign_request(secret, MESSAGE),
            lambda: affine_signature(secret),
        ),
    }
    times = {(name, i): [0.0] * ROUNDS for name in calls for i in (0, 1)}
    for turn in range(ROUNDS):
        for (name, i), taken in times.items():
            taken[turn] = 1000 * seconds(calls[name][i])
    kept = True
    for name in calls:
        ours = median(times[name, 0])
        plain = median(times[name, 1])
        kept &= ours < MILLISECONDS and plain / ours >= FASTER
        print(
            f"{name}: {ours:.2f} ms, affine {plain:.2f} ms, {plain / ours:.1f} times faster"
        )
    signature = protocol.sign_request(secret, MESSAGE)
    check = median(
        1000
        * seconds(lambda: protocol.verify_request(key.x, key.y, MESSAGE, signature))
        for _ in range(9)
    )
    print(f"verification: {check:.2f} ms (no target)")
    print(
        f"target for the two above: under {MILLISECONDS} ms, at least {FASTER} times faster"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
