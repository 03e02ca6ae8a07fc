"""The arithmetic of L2 keys: Baby Jubjub points, the 2019 Poseidon hash, EdDSA.

Integers in, integers out; :mod:`loopring_lab.protocol` handles text, fields and wire formats. The curve is
a x^2 + y^2 = 1 + d x^2 y^2 over the scalar field of BN254, in extended twisted Edwards coordinates
(X, Y, Z, T) with x = X/Z, y = Y/Z, T = XY/Z. As a is a square and d is not, one addition law is complete:
it holds for every pair of points, including equal, opposite and neutral ones.

Python's integer arithmetic is not constant-time. Whoever can measure how long a signature takes learns about
the secret, so sign on a machine of your own, not as a service.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b, sha512
from operator import mul

from loopring_lab.redaction import Secret, SecretBytes

P = 21888242871839275222246405745257275088548364400416034343698204186575808495617
"""Prime of the field of coordinates (the scalar field of BN254)."""

# Coefficients of the curve, as in EIP-2494 (Baby Jubjub).
A = 168700
D = 168696

SUBGROUP_ORDER = (
    2736030358979909402780800718157159386076813972158567259200215660948447373041
)
"""Prime order of the subgroup that :data:`BASE` generates."""

ORDER = 8 * SUBGROUP_ORDER
"""Number of points of the curve; the cofactor is 8."""

BASE = (
    16540640123574156134436876038791482806971768689494387082833631921987005038935,
    20819045374670962167435360035096875258406992893633759881276124905556507972311,
)
"""Affine coordinates of the generator."""

Point = tuple[int, int, int, int]
"""A point in extended coordinates (X, Y, Z, T), each in 0..P-1."""

NEUTRAL: Point = (0, 1, 1, 0)
"""The neutral element."""

# Bits of a scalar that are handled at once, with a table of 16 multiples.
_WINDOW = 4
_WINDOW_MASK = (1 << _WINDOW) - 1
# P - 1 is an odd number times 2**28, and 5 is the smallest number that is not a square in the field.
_TWOS = 28
_NON_SQUARE = 5
# Rounds of Poseidon 2019 in which all elements pass the S-box: half of them before the partial rounds, half after.
_FULL_ROUNDS = 6
# The S-box is x^5, as 5 is the smallest power that permutes the field.
_SBOX_POWER = 5


def to_extended(x: int, y: int) -> Point:
    return x, y, 1, x * y % P


def to_affine(point: Point) -> tuple[int, int]:
    inverse = pow(point[2], -1, P)
    return point[0] * inverse % P, point[1] * inverse % P


def is_equal(left: Point, right: Point) -> bool:
    """Return whether two points are equal, whatever their Z."""
    left_x, left_y, left_z, _ = left
    right_x, right_y, right_z, _ = right
    # This compares x1/z1 with x2/z2 without a division, and does the same for y.
    same_x = (left_x * right_z - right_x * left_z) % P == 0
    same_y = (left_y * right_z - right_y * left_z) % P == 0
    return same_x and same_y


def add(left: Point, right: Point) -> Point:
    """Add two points; the law is complete, so there are no special cases.

    Names and order are those of ``add-2008-hwcd`` of the Explicit-Formulas Database (H. Hisil and others, 2008).
    """
    x1, y1, z1, t1 = left
    x2, y2, z2, t2 = right
    a = x1 * x2 % P
    b = y1 * y2 % P
    c = D * t1 * t2
    d = z1 * z2
    e = ((x1 + y1) * (x2 + y2) - a - b) % P
    f = (d - c) % P
    g = (d + c) % P
    h = (b - A * a) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def double(point: Point) -> Point:
    """Add a point to itself, with fewer multiplications than :func:`add` (``dbl-2008-hwcd``)."""
    x, y, z, _ = point
    a = x * x % P
    b = y * y % P
    c = 2 * z * z
    d = A * a
    e = ((x + y) * (x + y) - a - b) % P
    g = (d + b) % P
    f = (g - c) % P
    h = (d - b) % P
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(scalar: int, point: Point) -> Point:
    """Multiply any point by a scalar, four bits at a time."""
    table = _multiples(point)
    total = NEUTRAL
    highest = (scalar.bit_length() - 1) // _WINDOW * _WINDOW
    for shift in range(highest, -1, -_WINDOW):
        for _ in range(_WINDOW):
            total = double(total)
        total = add(total, table[(scalar >> shift) & _WINDOW_MASK])
    return total


def multiply_base(scalar: int) -> Point:
    """Multiply the generator by a scalar, with a table that the first call builds."""
    total = NEUTRAL
    for index, row in enumerate(_base_table()):
        total = add(total, row[(scalar >> (_WINDOW * index)) & _WINDOW_MASK])
    return total


def is_valid_point(x: int, y: int) -> bool:
    """Return whether coordinates are those of a point on the curve that is not of low order."""
    if not (0 <= x < P and 0 <= y < P):
        return False
    if (A * x * x + y * y - 1 - D * x * x * y * y) % P != 0:
        return False
    # Points of low order vanish when they are multiplied by the cofactor, 8.
    eightfold = double(double(double(to_extended(x, y))))
    return not is_equal(eightfold, NEUTRAL)


def x_of(y: int) -> int | None:
    """Return the smaller x of the points that have this y, or None if there is none."""
    # The curve, a x^2 + y^2 = 1 + d x^2 y^2, gives x^2 = (1 - y^2) / (a - d y^2), whose denominator is never 0.
    numerator = (1 - y * y) % P
    denominator = (A - D * y * y) % P
    root = _square_root(numerator * pow(denominator, -1, P) % P)
    if root is None:
        return None
    return min(root, -root % P)


def _square_root(square: int) -> int | None:
    """Return a square root in the field (Tonelli and Shanks), or None if there is none."""
    if square == 0:
        return 0
    odd = (P - 1) >> _TWOS
    power = pow(square, (odd - 1) >> 1, P)
    root = square * power % P
    # Invariant: root^2 = square * rest, and rest has an order of 2^k with k < order.
    rest = root * power % P
    generator = pow(_NON_SQUARE, odd, P)
    order = _TWOS
    while rest != 1:
        steps = 0
        repeated = rest
        while repeated != 1 and steps < order:
            repeated = repeated * repeated % P
            steps += 1
        if steps == order:
            return None
        factor = pow(generator, 1 << (order - steps - 1), P)
        generator = factor * factor % P
        order = steps
        root = root * factor % P
        rest = rest * generator % P
    return root


def poseidon(inputs: Sequence[int], *, width: int = 6, partial_rounds: int = 52) -> int:
    """Hash field elements with Poseidon as published in 2019; later packages give other results."""
    constants, matrix = _poseidon_parameters(width, partial_rounds)
    state = [*inputs, *[0] * (width - len(inputs))]
    first_partial = _FULL_ROUNDS // 2
    for index, constant in enumerate(constants):
        is_partial = first_partial <= index < first_partial + partial_rounds
        boxes = 1 if is_partial else width
        state = [element + constant for element in state]
        state[:boxes] = [pow(element, _SBOX_POWER, P) for element in state[:boxes]]
        state = [sum(map(mul, row, state)) % P for row in matrix]
    return state[0]


def sign(secret: Secret, message: int) -> tuple[int, int, int]:
    """Sign a field element with EdDSA over Poseidon; deterministic, but not in constant time."""
    # The nonce depends on secret and message only, so no random number can repeat and give the secret away.
    seed = SecretBytes(secret.to_bytes(32, "little") + message.to_bytes(32, "little"))
    nonce = Secret(int.from_bytes(sha512(seed).digest(), "little") % SUBGROUP_ORDER)
    rx, ry = to_affine(multiply_base(nonce))
    x, y = to_affine(multiply_base(secret))
    challenge = poseidon((rx, ry, x, y, message))
    s = (nonce + secret * challenge) % ORDER
    return rx, ry, s


def verify(x: int, y: int, message: int, signature: tuple[int, int, int]) -> bool:
    """Check an EdDSA signature over Poseidon, and the points that it consists of."""
    rx, ry, s = signature
    if not (is_valid_point(x, y) and is_valid_point(rx, ry) and 0 <= s < ORDER):
        return False
    challenge = poseidon((rx, ry, x, y, message))
    # The signer made s so that s B = R + challenge K.
    key = to_extended(x, y)
    point = to_extended(rx, ry)
    right = add(point, multiply(challenge, key))
    return is_equal(multiply_base(s), right)


def _multiples(point: Point) -> list[Point]:
    """Return the multiples of a point from 0 to 15."""
    multiples = [NEUTRAL]
    while len(multiples) < 1 << _WINDOW:
        multiples.append(add(multiples[-1], point))
    return multiples


@cache
def _base_table() -> list[list[Point]]:
    """Return rows of multiples of the generator: row i holds 0..15 times 16^i x BASE, up to 256 bits."""
    rows = [_multiples(to_extended(*BASE))]
    while len(rows) < 256 // _WINDOW:
        last = rows[-1]
        sixteenfold = add(last[-1], last[1])
        rows.append(_multiples(sixteenfold))
    return rows


def _field_elements(seed: bytes, count: int) -> list[int]:
    """Derive field elements by hashing a seed repeatedly."""
    elements: list[int] = []
    for _ in range(count):
        seed = blake2b(seed, digest_size=32).digest()
        elements.append(int.from_bytes(seed, "little") % P)
    return elements


@cache
def _poseidon_parameters(
    width: int, partial_rounds: int
) -> tuple[list[int], list[list[int]]]:
    """Return one constant per round, and the Cauchy matrix 1 / (x_i - y_j)."""
    points = _field_elements(b"poseidon_matrix_0000", 2 * width)
    matrix = [[pow(x - y, -1, P) for y in points[width:]] for x in points[:width]]
    return _field_elements(b"poseidon_constants", _FULL_ROUNDS + partial_rounds), matrix
