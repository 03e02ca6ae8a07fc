"""Who trades in the synthetic world: takers with exact quotas, makers, and what each pays.

Account ids and sizes are ours, the shape is the real one: few accounts trade most, makers pay nothing,
and the fee depends on the account's tier, which moves with time.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

from loopring_lab.relayer.facts import Market
from loopring_lab.relayer.market import HOUR, Bits

__all__ = ["ARBITRAGEUR", "DAY", "MAKERS", "TAKERS", "Taker", "dice_below", "fee_bps", "slots"]

DAY = 24 * HOUR
BURST_PAUSE_MS = 150_000

FEES_BPS = ((30, 10), (25, 10), (20, 8), (10, 8), (8, 4), (4, 0))
"""Per tier: what a taker pays on the order book and at a pool."""

STABLE_FEES_BPS = (4, 4, 4, 0, 0, 0)
"""Per tier: what a taker pays where both tokens are stable coins."""

HOURS = tuple(accumulate((3, 2, 2, 2, 2, 3, 4, 5, 6, 7, 8, 8, 9, 11, 13, 14, 14, 12, 11, 9, 8, 7, 5, 4)))


class Taker(NamedTuple):
    """An account that takes liquidity.

    Parameters
    ----------
    id : int
        Account id.
    quota : int
        Fills it takes in a world of size 1.
    dollars : int
        Its ordinary order.
    tiers : tuple of (int, int)
        Day from which a fee tier holds, and the tier.
    markets : tuple of str
        What it trades; empty for everything.
    """

    id: int
    quota: int
    dollars: int
    tiers: tuple[tuple[int, int], ...] = ((0, 0),)
    markets: tuple[str, ...] = ()

    def tier(self, day: int) -> int:
        """The fee tier that holds on a day.

        Parameters
        ----------
        day : int
            Days since the world's start.

        Returns
        -------
        int
            Index into the fee table; 0 is the dearest.
        """
        found = 0
        for since, tier in self.tiers:
            if day >= since:
                found = tier
        return found


ARBITRAGEUR = Taker(11375, 20_000, 900, ((0, 4), (45, 5)))

TAKERS = (
    Taker(11519, 8_000, 700, ((0, 3), (150, 4))),
    Taker(58344, 4_500, 450, ((0, 1), (90, 2), (240, 3)), ("LRC-ETH", "LRC-USDC", "LRC-USDT", "ETH-USDC")),
    Taker(10083, 1_950, 380, ((0, 0), (70, 1), (200, 2))),
    Taker(23100, 1_700, 1_500, ((0, 2),), ("LRC-ETH", "ETH-USDC", "UNI-ETH", "LINK-ETH", "USDT-USDC")),
    Taker(33537, 1_250, 900, ((0, 0), (120, 1), (160, 0))),
    Taker(82751, 900, 2_500, ((0, 1), (30, 3)), ("WBTC-ETH", "WBTC-USDT", "WBTC-USDC", "ETH-USDC")),
    Taker(21779, 650, 600, ((0, 0),)),
    Taker(40659, 480, 250, ((0, 0), (220, 1)), ("LRC-ETH", "LRC-USDC")),
    Taker(
        37042, 350, 4_000, ((0, 2), (100, 4)), ("USDT-USDC", "DAI-USDT", "ETH-USDC", "ETH-DAI", "ETH-USDT")
    ),
    Taker(25429, 260, 200),
    Taker(60301, 190, 1_100, ((0, 1),)),
    Taker(71468, 150, 300, ((0, 0),), ("LRC-ETH", "ENJ-ETH", "IMX-USDC", "GRID-ETH")),
    Taker(87095, 120, 8_000, ((0, 3),), ("ETH-USDC", "WBTC-ETH", "WBTC-USDC")),
    Taker(94669, 95, 150),
    Taker(12059, 80, 500),
    Taker(35703, 68, 350, ((0, 0),), ("ETH-USDT", "LRC-USDT", "DAI-USDT")),
    Taker(56734, 58, 90),
    Taker(79927, 48, 700, ((0, 1),), ("LRC-USDC",)),
    Taker(94680, 40, 120, ((0, 0),), ("LRC-ETH", "ETH-USDC")),
)

MAKERS = {
    41742: (5, ("LRC-USDC", "LRC-ETH", "ETH-USDC")),
    32670: (4, ("ETH-USDC", "WBTC-ETH", "LRC-ETH")),
    42019: (3, ("WBTC-USDC", "WBTC-USDT", "ETH-USDC", "LRC-USDC")),
    34349: (4, ("USDT-USDC", "DAI-USDT")),
    35644: (2, ("WBTC-ETH", "WBTC-USDT", "USDT-USDC", "DAI-USDT", "LRC-ETH")),
    10083: (1, ("LRC-ETH", "WBTC-ETH")),
}
"""Account: (weight, markets in which its orders rest). One of them is otherwise a taker."""


def fee_bps(market: Market, venue: str, tier: int) -> int:
    """What a taker pays, of what it receives.

    Parameters
    ----------
    market : Market
        Where.
    venue : str
        ``dex`` or ``amm``.
    tier : int
        The account's tier.

    Returns
    -------
    int
        Basis points.

    Examples
    --------
    >>> from loopring_lab.relayer.facts import MARKETS
    >>> fee_bps(MARKETS["LRC-ETH"], "dex", 1), fee_bps(MARKETS["USDT-USDC"], "dex", 1)
    (25, 4)
    """
    return STABLE_FEES_BPS[tier] if market.is_stable else FEES_BPS[tier][venue == "amm"]


def dice_below(bits: Bits, end: int) -> int:
    """An integer from 0 to `end` - 1, the same on every Python version.

    Parameters
    ----------
    bits : callable
        ``random.Random.getrandbits``.
    end : int
        Exclusive upper bound, far below 2**48.

    Returns
    -------
    int
        Every value is equally likely to within 2**-16.
    """
    return bits(48) * end >> 48


def slots(bits: Bits, count: int, days: int) -> list[int]:
    """When an account trades: bursts of a few minutes, more of them in the busy hours of the day.

    Parameters
    ----------
    bits : callable
        ``random.Random.getrandbits``.
    count : int
        How many times.
    days : int
        The span.

    Returns
    -------
    list of int
        Milliseconds since the world's start, in order of time.
    """
    times: list[int] = []
    while len(times) < count:
        hour = bisect_right(HOURS, dice_below(bits, HOURS[-1]))
        at = dice_below(bits, days) * DAY + hour * HOUR + dice_below(bits, HOUR)
        for _ in range(1 + (bits(8) & bits(8) & 7)):
            times.append(min(at, days * DAY - 1))
            at += dice_below(bits, BURST_PAUSE_MS) + 1
    return sorted(times[:count])
