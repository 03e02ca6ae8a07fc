"""Key and signature vectors: those published for the protocol, and some made by a second implementation.

The published ones lie outside the repository. `benchmarks/second_implementation.py` made the others, from throwaway
keys, without any code of the package.
"""

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

Vector = dict[str, Any]
Affine = tuple[int, int]

VARIABLE = "LOOPRING_LAB_VECTORS"
MADE = Path(__file__).with_suffix(".json")
SECTIONS = (
    "account_update",
    "request_signature",
    "counterfactual",
    "seed_signature_variants",
    "negative_signatures",
    "field_ranges",
)

# The curve as EIP-2494 states it, a twisted Edwards curve over BN254's field.
P = 21888242871839275222246405745257275088548364400416034343698204186575808495617
A = 168700
D = 168696
SUBGROUP_ORDER = (
    2736030358979909402780800718157159386076813972158567259200215660948447373041
)
ORDER = 8 * SUBGROUP_ORDER
BASE = (
    16540640123574156134436876038791482806971768689494387082833631921987005038935,
    20819045374670962167435360035096875258406992893633759881276124905556507972311,
)


def published() -> dict[str, Any]:
    """Read the published vectors, or nothing where their folder is not given."""
    folder = os.environ.get(VARIABLE)
    return json.loads((Path(folder) / "protocol.json").read_text()) if folder else {}


def made_vectors() -> dict[str, list[Vector]]:
    found: dict[str, list[Vector]] = json.loads(MADE.read_text())
    return found


@cache
def every_vector() -> dict[str, list[Vector]]:
    """Return the published vectors and those made here, by section."""
    known = published()
    made = made_vectors()
    return {section: [*known.get(section, []), *made[section]] for section in SECTIONS}


def add(left: Affine, right: Affine) -> Affine:
    """Add two points by the curve's own equation."""
    (x1, y1), (x2, y2) = left, right
    product = D * x1 * x2 * y1 * y2
    x = (x1 * y2 + y1 * x2) * pow(1 + product, -1, P)
    y = (y1 * y2 - A * x1 * x2) * pow(1 - product, -1, P)
    return x % P, y % P
