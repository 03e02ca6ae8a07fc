"""The curve, the hash and signatures as numbers: group laws, published values, rejected points."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.protocol_vectors import Affine
from support.protocol_vectors import add as add_affine

from loopring_lab.protocol import curve
from loopring_lab.protocol.curve import BASE, NEUTRAL, SUBGROUP_ORDER, A, D, P, Point
from loopring_lab.redaction import Secret

few = settings(max_examples=40, deadline=None, derandomize=True, database=None)

# Of order 8: the subgroup's order times the point with y = 9.
TORSION = (
    17545522957889784193459637215142187266023652151580582754000402781682644312291,
    4826523245007015323400664741523384119579596407052839571721035538011798951543,
)


def torsion(count: int) -> Affine:
    point = (0, 1)
    for _ in range(count):
        point = add_affine(point, TORSION)
    return point


@st.composite
def points(draw: st.DrawFn) -> Point:
    """Draw any kind of point, in or out of the prime subgroup, with a Z that is not 1."""
    scalar = draw(st.one_of(st.integers(0, 3), st.integers(0, SUBGROUP_ORDER - 1)))
    low = curve.to_extended(*torsion(draw(st.integers(0, 7))))
    z = draw(st.integers(1, P - 1))
    x, y = curve.to_affine(curve.add(curve.multiply_base(scalar), low))
    return x * z % P, y * z % P, z, x * y * z % P


@pytest.mark.parametrize(
    "scalar", [*range(40), 255, 256, SUBGROUP_ORDER - 1, SUBGROUP_ORDER, 2**256 - 1]
)
def test_edges_of_multiplication(scalar):
    expected = (0, 1)
    addend = BASE
    for bit in f"{scalar:b}"[::-1]:
        expected = add_affine(expected, addend) if bit == "1" else expected
        addend = add_affine(addend, addend)
    assert curve.to_affine(curve.multiply_base(scalar)) == expected
    assert curve.to_affine(curve.multiply(scalar, curve.to_extended(*BASE))) == expected


def test_the_generator_has_the_subgroups_order():
    assert curve.is_equal(
        curve.multiply(SUBGROUP_ORDER, curve.to_extended(*BASE)), NEUTRAL
    )
    assert curve.is_valid_point(*BASE)
    assert pow(A, (P - 1) // 2, P) == 1, "a is a square"
    assert pow(D, (P - 1) // 2, P) == P - 1, "d is none, so the law is complete"


def test_the_eight_points_of_low_order_are_refused():
    low = {torsion(count) for count in range(8)}
    assert len(low) == 8
    assert torsion(8) == (0, 1)
    assert not any(curve.is_valid_point(x, y) for x, y in low)
    assert not any(curve.verify(*point, 5, (*BASE, 1)) for point in low)
    # Such a point as R or as key would let signatures be made without the secret.
    assert not any(curve.verify(*BASE, 5, (*point, 1)) for point in low)


def test_a_point_with_a_part_of_low_order_is_sound():
    """As for the reference programs: only points of nothing but low order are refused."""
    assert curve.is_valid_point(*add_affine(BASE, TORSION))


@given(st.integers(0, P - 1), st.integers(0, P - 1))
@few
def test_points_off_the_curve_are_refused(x, y):
    for point in (
        (x, y),
        (BASE[0], y),
    ):  # hypothesis also draws the numbers of this very source
        off = (
            A * point[0] ** 2 + point[1] ** 2 - 1 - D * (point[0] * point[1]) ** 2
        ) % P
        assert not (off and curve.is_valid_point(*point))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (BASE[0] + P, BASE[1]),
        (BASE[0], BASE[1] + P),
        (BASE[0] - P, BASE[1]),
        (BASE[0], BASE[1] - P),
    ],
)
def test_coordinates_outside_the_field_are_refused(x, y):
    assert not curve.is_valid_point(x, y)


@pytest.mark.parametrize(
    ("inputs", "width", "partial_rounds", "expected"),
    [
        (
            (1,),
            2,
            53,
            11316722965829087614032985243432266723826890185209218714357779037968059437034,
        ),
    ],
)
def test_published_hashes(inputs, width, partial_rounds, expected):
    assert (
        curve.poseidon(inputs, width=width, partial_rounds=partial_rounds) == expected
    )


# Printed by the tests of two public clients.
SECRET = 1965533437444427599736796973543479035828634172708055838572430750620147597402
MESSAGE = 20823375595941673465102915960468301465677704522962441935281926279865178787657
SIGNATURE = (
    2114973053955517366033592592501464590076342821657201629830614924692550700766,
    6713953096854639492359183468711112854151280690992619923536842965423886430417,
    21100876117443371431735908718802018647851328087147897184613053393129281831653,
)


def test_a_published_signature():
    assert curve.sign(Secret(SECRET), MESSAGE) == SIGNATURE
    assert curve.verify(
        *curve.to_affine(curve.multiply_base(SECRET)), MESSAGE, SIGNATURE
    )


def test_s_has_a_range():
    """Adding the group's order to s changes nothing in the equation, so the range is what refuses it."""
    rx, ry, s = SIGNATURE
    key = curve.to_affine(curve.multiply_base(SECRET))
    assert curve.is_equal(curve.multiply_base(s + curve.ORDER), curve.multiply_base(s))
    for wrong in (s + curve.ORDER, s - curve.ORDER, -s, s + 1):
        assert not curve.verify(*key, MESSAGE, (rx, ry, wrong))
