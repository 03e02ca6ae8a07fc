"""A made-up source for archive tests: plain rows of which every integer is known."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from loopring_lab.http.transport import Transport
from loopring_lab.relayer import Relayer, World
from loopring_lab.relayer.history import History, RowKey
from loopring_lab.sources.client import Client

POOLS = ("LRC-ETH", "ETH-USDC")
TOKENS = {"LRC-ETH": (1, 0), "ETH-USDC": (0, 6)}
FILL_TYPES = ("amm", "dex")

Identity = tuple[int, str, str, str, str]


class Ledger:
    """A source of `accounts` accounts with `trades` trades each."""

    name = "ledger"
    planted: dict[int, str] = {}  # noqa: RUF012
    chain = None
    synthetic = True

    def __init__(self, accounts: int, trades: int, seed: int = 1):
        self.accounts = [20_000 + number for number in range(accounts)]
        self.rows = []
        self.keys = []
        dice = random.Random(seed)
        for number in range(accounts * trades):
            account = self.accounts[number % accounts]
            market = dice.choice(POOLS)
            kind = dice.choice(FILL_TYPES)
            side = dice.choice(["BUY", "SELL"])
            base, quote = TOKENS[market]
            order = f"0x{dice.getrandbits(256):064x}"
            self.keys.append(RowKey(account, market, kind, order))
            size = dice.randrange(1, 10**12) * 10**6
            fee = dice.randrange(10**9)
            at_price = (
                size * 35_669 // 10**8 // 10 ** (12 if market == "ETH-USDC" else 0)
            )
            self.rows.append(
                (
                    str(1_640_000_000_000 + 977 * number),
                    str(1_000 + 2 * number),
                    side,
                    str(size),
                    "3.5669E-4",
                    ("AMM-" if kind == "amm" else "") + market,
                    str(fee % (1 + (size if side == "BUY" else at_price))),
                    str(number // 300),
                    str(number % 300),
                    str(account),
                    str(base if side == "SELL" else quote),
                    str(dice.randrange(10**6)),
                    order,
                    "taker",
                )
            )

    @cached_property
    def history(self) -> History:
        return History(self.keys, self.rows.__getitem__)

    def tokens(self) -> list[dict[str, Any]]:
        return World().tokens()

    def markets(self) -> list[dict[str, Any]]:
        return World().markets()

    def pool_records(self) -> list[dict[str, Any]]:
        return []

    def pool_owners(self) -> dict[int, str]:
        return {}

    def truth(self) -> tuple[Counter[Identity], Counter[tuple[Any, ...]]]:
        """Every identity, and the sums of size and fee of each account, fill type, market and side."""
        return count_rows(
            (key.account, key.fill_type, row)
            for key, row in zip(self.keys, self.rows, strict=True)
        )


def count_rows(rows) -> tuple[Counter[Identity], Counter[tuple[Any, ...]]]:
    """Count identities, and add up the integers of wire rows, in plain Python."""
    identities: Counter[Identity] = Counter()
    sums: Counter[tuple[Any, ...]] = Counter()
    for account, kind, row in rows:
        identities[account, kind, row[1], row[2], row[12]] += 1
        for place in (3, 6):
            sums[account, kind, row[5], row[2], place] += int(row[place])
    return identities, sums


def served(relayer, accounts: Sequence[int]):
    """Give what a relayer shows now, as `count_rows` takes it."""
    return (
        (one, kind, row)
        for one in accounts
        for kind in FILL_TYPES
        for row in relayer.rows(one, kind)
    )


def client_of(relayer: Relayer, **how) -> Client:
    settings = {"api_key": relayer.api_key, "rate": None, "proxies": False} | how
    return Client(Transport(relayer.base_url, **settings), "ledger", synthetic=True)
