"""A synthetic world with a chain: its settlement as events and transactions, each made when it is asked for.

The package ships the blocks of one world; tests need those of small ones, of other seeds, and of a whole year.
"""

from bisect import bisect_left, bisect_right
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

from support.encoding import encode_calldata
from support.rollup_blocks import FORMS, WRAPPERS
from support.settlement import Settlement

from loopring_lab.relayer import Settings, World
from loopring_lab.relayer.chain import Chain

# Hashes of the exchange's events BlockSubmitted and TokenRegistered.
SUBMISSION = "0xcc86d9ed29ebae540f9d25a4976d4da36ea4161b854b8ecf18f491cf6b0feb5c"
REGISTRATION = "0x678eb1f52e3e76c52c1143d5699af1d8a5e03743e8840223ccb27aabf3c44c0a"

FIRST_L1_BLOCK = 11_149_814
"""The first L1 block with an event, where tokens are registered, as on Ethereum."""
L1_BLOCKS = 150
"""L1 blocks in a half hour, about 12 seconds each."""

OLDER_WRAPPERS = (*WRAPPERS[1:], None)
"""What submitted blocks before the newest wrapper; None is the exchange called directly."""
GROUPS = ((4,), (2, 2), (1, 2, 1), (3, 1), *4 * ((1, 1, 1, 1),))
"""How many of four blocks in a row are submitted together."""


class Call(NamedTuple):
    """A transaction that submits a block or a few in a row."""

    hash: str
    l1_block: int
    blocks: range


class SettledWorld(World):
    """A world whose relayer serves a chain."""

    @cached_property
    def chain(self) -> Chain:  # type: ignore[override]
        return SettledChain(self)


class SettledChain(Chain):
    """The chain of a world, in the exchange and the chain of the default settings."""

    def __init__(self, world: World):
        self.settings = Settings()
        self.settlement = Settlement(world, self.settings)
        self.exchange = self.settings.exchange.lower()
        self._name = f"{world.name} {self.exchange}"
        self._tokens = world.tokens()
        self._calls = self._all_calls()
        self._calls_by_hash = {call.hash: call for call in self._calls}

    @property
    def newest(self) -> int:
        return self._calls[-1].l1_block

    def logs(self, first: int, last: int) -> list[dict[str, Any]]:
        found = []
        for place, token in enumerate(self._tokens):
            l1_block = FIRST_L1_BLOCK + place
            if first <= l1_block <= last:
                data = f"0x{int(token['address'], 16):064x}{token['tokenId']:064x}"
                found.append(
                    self._log(
                        [REGISTRATION],
                        data,
                        l1_block,
                        self._hash(f"registration {place}"),
                        0,
                    )
                )
        begin = bisect_left(self._calls, first, key=lambda call: call.l1_block)
        end = bisect_right(self._calls, last, key=lambda call: call.l1_block)
        for call in self._calls[begin:end]:
            for place, block in enumerate(call.blocks):
                data_hash = sha256(self.settlement.data(block)).hexdigest()
                data = f"0x{self.settlement.root(block):064x}{data_hash}"
                found.append(
                    self._log(
                        [SUBMISSION, f"0x{block:064x}"],
                        data,
                        call.l1_block,
                        call.hash,
                        place,
                    )
                )
        return found

    def _log(self, topics, data, l1_block, transaction, place):
        return {
            "address": self.exchange,
            "topics": topics,
            "data": data,
            "blockNumber": hex(l1_block),
            "blockHash": self._hash(f"L1 block {l1_block}"),
            "transactionHash": transaction,
            "transactionIndex": "0x0",
            "logIndex": hex(place),
            "removed": False,
        }

    def transaction(self, transaction_hash: str) -> dict[str, Any] | None:
        call = self._calls_by_hash.get(transaction_hash)
        if call is None:
            return None
        form, wrapper, compressed = self._form(call)
        blocks = [self.settlement.submission(block) for block in call.blocks]
        return {
            "hash": call.hash,
            "type": "0x0",
            "chainId": hex(self.settings.chain_id),
            "blockHash": self._hash(f"L1 block {call.l1_block}"),
            "blockNumber": hex(call.l1_block),
            "transactionIndex": "0x0",
            "from": self._hash("operator")[:42],
            "to": self._hash(f"wrapper {wrapper}")[:42] if wrapper else self.exchange,
            "nonce": hex(call.blocks[0]),
            "value": "0x0",
            "gas": hex(8_000_000),
            "gasPrice": hex(20 * 10**9),
            "input": "0x" + encode_calldata(blocks, form, wrapper, compressed).hex(),
        }

    def _all_calls(self):
        """Return every transaction that submits blocks, in order."""
        calls = []
        block = self.settlement.first
        last = self.settlement.last
        while block <= last:
            for count in GROUPS[self._digest(f"group {block}")[0] % len(GROUPS)]:
                blocks = range(block, min(block + count, last + 1))
                if blocks:
                    at = FIRST_L1_BLOCK + L1_BLOCKS * (
                        blocks[-1] - self.settlement.first + 1
                    )
                    calls.append(Call(self._hash(f"transaction {block}"), at, blocks))
                block += count
        return calls

    def _form(self, call):
        """Return how a transaction is encoded: one in four in a way of the exchange's first years."""
        old, form, wrapper, compressed = self._digest(f"form {call.hash}")[:4]
        if old >= 64:
            return FORMS[-1], WRAPPERS[0], True
        return (
            FORMS[form % len(FORMS)],
            OLDER_WRAPPERS[wrapper % len(OLDER_WRAPPERS)],
            compressed < 128,
        )

    def _digest(self, what):
        return sha256(f"{self._name} {what}".encode()).digest()

    def _hash(self, what):
        return "0x" + self._digest(what).hex()
