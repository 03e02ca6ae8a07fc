"""Generated histories for fees and fills: regular fills, irregular rows, ties, and the edges of periods."""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.wire_rows import DECIMALS, NAMES, page, read, row, smallest, wire_rows

from loopring_lab.errors import LabError

Drawn = tuple[str | None, list[Any]]  # a fill type as asked for, and the wire's row

ROWS = 1000  # ids of a history start at its number times this
VALUED_BY_DIVISION = (
    "3",
    "30",
)  # USDT and TWELVE: their value in ETH is an amount divided by a price
# In smallest units; divided by the lowest price, 1e-8, it still fits.
LARGEST_DIVIDED = 10**15
TURNS = [
    "2021-12-31T23:59:59.999",
    "2022-01-01",
    "2022-02-28T23:59:59.999",
    "2022-03-06T23:59:59.999",
    "2022-03-07",
    "2022-03-07T00:00:00.001",
    "2022-03-31T18:30",
    "2022-04-01",
    "2024-02-29T12:00",
    "1969-12-31T23:59:59.999",
]
MOMENTS = [int(pd.Timestamp(turn, tz="UTC").timestamp() * 1000) for turn in TURNS]
ODD: list[dict[str, Any]] = [
    {"market": "NOT-LISTED"},
    {"price": None},
    {"createdAt": "0"},
    {"createdAt": None},
    {"side": "HOLD"},
    {"type": "nobody"},
    {"feeAmount": None},
    {"size": None},
    {"size": "0"},
    {"orderHash": None},
    {"accountId": None},
    {"price": "0"},
    {"size": None, "feeAmount": None},
]


def assert_refused(
    call: Callable[[pd.DataFrame], Any], message: str, frame: pd.DataFrame
):
    """Check that a call raises an error that matches, shows no cause and ends with a next step."""
    with pytest.raises(LabError, match=message) as refused:
        call(frame)
    assert refused.value.__cause__ is None
    assert str(refused.value)[-1] in ".?"


@st.composite
def fill(draw: st.DrawFn) -> Drawn:
    """Draw a fill type as asked for, and the wire's row of 14 members."""
    name = draw(st.sampled_from(["ETH-USDT", "LRC-ETH", "WBTC-ETH"]))
    base, quote = NAMES[name]
    side = draw(st.sampled_from(["BUY", "SELL"]))
    whole = st.integers(1, 9).map(lambda n: n * 10 ** DECIMALS[base])
    size = draw(st.one_of(whole, smallest(DECIMALS[base])))
    if name == "ETH-USDT":
        size %= 10**10 * 10 ** DECIMALS[base]  # so that the fee, valued in ETH, fits
    mantissa = draw(st.integers(1, 999))
    exponent = draw(st.integers(-6, -2))
    received = (
        size
        if side == "BUY"
        else size
        * mantissa
        * 10 ** (DECIMALS[quote] - DECIMALS[base] + 30 + exponent)
        // 10**30
    )
    tier = draw(st.sampled_from([0, 0, 10, 20, 25]))
    members = {
        "createdAt": str(
            draw(
                st.one_of(
                    st.sampled_from(MOMENTS),
                    st.integers(1_640_000_000_000, 1_650_000_000_000),
                )
            )
        ),
        "side": side,
        "size": str(size),
        "price": f"{mantissa}E{exponent}",
        "market": name,
        "feeAmount": str(received * tier // 10_000),
        "tokenId": str(quote if side == "BUY" else base),
        "accountId": str(draw(st.integers(1, 3))),
        "orderHash": f"0x{draw(st.integers(0, 3)):064x}",
        "type": draw(st.sampled_from(["maker", "taker"])),
    }
    if draw(st.integers(0, 4)) == 0:
        members |= draw(st.sampled_from(ODD))
    return draw(st.sampled_from(["amm", "dex", "dex", None])), row(**members)


@st.composite
def any_row(draw: st.DrawFn) -> Drawn:
    """Draw a row of any layout, its price low enough for sums to fit, its fee for values."""
    members = draw(wire_rows())
    members[4] = f"{draw(st.integers(1, 99_999))}E-8"
    if len(members) < 13 or members[10] in VALUED_BY_DIVISION:
        members[6] = str(int(members[6]) % LARGEST_DIVIDED)
    return None, members


def histories(most: int = 12) -> st.SearchStrategy[list[Drawn]]:
    return st.lists(st.one_of(fill(), fill(), fill(), any_row()), max_size=most)


def frame_of(*histories: list[Drawn]) -> pd.DataFrame:
    """Read histories into one frame; ``label`` is the number of each."""
    rows = [
        (fill_type, [members[0], str(ROWS * label + number), *members[2:]])
        for label, history in enumerate(histories)
        for number, (fill_type, members) in enumerate(history)
    ]
    asked = groupby(
        sorted(rows, key=lambda pair: str(pair[0])), key=lambda pair: pair[0]
    )
    parts = [
        (fill_type, page([members for _, members in some])) for fill_type, some in asked
    ]
    frame = read(
        [text for _, text in parts], fill_type=[fill_type for fill_type, _ in parts]
    )
    return frame.assign(label=frame["trade_id"] // ROWS)


def many(number: int, most: int = 12) -> pd.DataFrame:
    """Put many drawn histories and every oddity into one frame, so that one call on a slow engine checks all."""
    found: list[list[Drawn]] = []

    @settings(max_examples=number, phases=[Phase.generate], database=None)
    @given(histories(most))
    def draw(history):
        found.append(history)

    draw()
    odd = [
        row(**{"side": side, "type": "maker", "price": "0.5"} | oddity)
        for oddity in ODD
        for side in ("BUY", "SELL")
    ]
    return frame_of(
        *found,
        *([(fill_type, members)] for members in odd for fill_type in ("amm", None)),
        [("dex", one) for one in odd],
    )
