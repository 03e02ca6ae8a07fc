"""The synthetic world on its chain: one rollup block each half hour, with its fills at their own positions.

Around the fills stand what a chain also has: deposits before an account's first fill, keys and their changes,
transfers, withdrawals, and the balances that pools publish. Everything derives from the world and its seed;
key updates sent to the relayer are not settled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from support.encoding import (
    AccountUpdate,
    AmmUpdate,
    Deposit,
    Header,
    Noop,
    SignatureVerification,
    SpotTrade,
    Submission,
    Transaction,
    Transfer,
    Withdrawal,
    encode_auxiliary,
    encode_block,
    is_conditional,
)

from loopring_lab import protocol
from loopring_lab.errors import LabError
from loopring_lab.relayer.accounts import demo_owner
from loopring_lab.relayer.mainnet import MARKETS, POOL_FEE_BPS, TOKENS, Market
from loopring_lab.relayer.settings import UPDATE_FEES, Settings
from loopring_lab.relayer.simulation import BLOCK_MS, FIRST_BLOCK, START, Fill
from loopring_lab.relayer.venues import Pool, truncate_float24
from loopring_lab.relayer.world import World

OPENING = FIRST_BLOCK - 1
"""The block before the year, in which pools are opened."""

OPERATOR = 10_001
SAVERS = tuple(range(120_001, 120_007))
"""Accounts that do not trade: a transfer opens each, and each changes its key twice."""

BLOCKS_A_DAY = 48
POOL_WEIGHT = 10**6
MONTH_SECONDS = 30 * 86_400
MOVED = tuple(TOKENS[symbol] for symbol in ("ETH", "LRC", "USDC"))
UPDATE_TYPES = "(bytes,uint96,uint32)"
AMM_TYPES = "(bytes,uint32)"
WITHDRAWAL_TYPES = "(bool,uint256,bytes,uint256,address,bytes,uint96,uint32)"


class _PoolState(NamedTuple):
    """A pool's market, its balances of base and quote after each fill, and where these fills stand."""

    market: Market
    positions: list[tuple[int, int]]
    balances: list[tuple[int, int]]

    def before(self, block: int, index: int) -> tuple[int, int]:
        return self.balances[bisect_left(self.positions, (block, index))]


class Settlement:
    """The blocks of a world, each made when it is asked for; the world's last fills are in none."""

    def __init__(self, world: World, settings: Settings):
        self._world = world
        self._settings = settings
        self._storage: Counter[tuple[int, int]] = Counter()

    @property
    def first(self) -> int:
        """The number of the first block."""
        return OPENING

    @cached_property
    def last(self) -> int:
        """The number of the last block, that of the newest fill which is settled."""
        return max(self._fills)

    def timestamp(self, block: int) -> int:
        """Return the end of a block's half hour, in seconds."""
        return (START + (block - OPENING) * BLOCK_MS) // 1000

    def root(self, block: int) -> int:
        """Return the Merkle root after a block: made up, but below the field's order."""
        return int.from_bytes(self._digest("root", block)) >> 3

    def data(self, block: int) -> bytes:
        """Return the data of a block."""
        if not self.first <= block <= self.last:
            raise LabError(
                f"Block {block}: the chain has blocks {self.first} to {self.last}. Give one of them."
            )
        return self._encode(block, self.transactions(block))

    def _encode(self, block, transactions):
        exchange = int(self._settings.exchange, 16)
        roots = (self.root(block - 1), self.root(block))
        header = Header(exchange, *roots, self.timestamp(block), 0, 0, OPERATOR)
        return encode_block(header, transactions)

    def submission(self, block: int) -> Submission:
        """Return a block as it is submitted, with the signatures that its data does not hold."""
        transactions = self.transactions(block)
        auxiliary = [
            (
                index,
                isinstance(each, Transfer | Withdrawal | AmmUpdate),
                self._auxiliary(block, each),
            )
            for index, each in enumerate(transactions)
            if is_conditional(each)
        ]
        return Submission(self._encode(block, transactions), auxiliary)

    def transactions(self, block: int) -> list[Transaction]:
        """Return the transactions of a block: fills where they are, everything else in the gaps."""
        placed: dict[int, Transaction] = {
            fill.index_in_block: _spot_trade(fill)
            for fill in self._fills.get(block, ())
        }
        gaps = (index for index in range(1 << 16) if index not in placed)
        others = [*self._plan.get(block, ()), *self._pool_updates(block)]
        for index, other in zip(gaps, others, strict=False):
            is_update = isinstance(other, AmmUpdate)
            placed[index] = self._published(other, block, index) if is_update else other
        return [
            placed.get(index, Noop()) for index in range(max(placed, default=-1) + 1)
        ]

    def _digest(self, what, number):
        return sha256(
            f"{self._world.name} {self._settings.exchange} {what} {number}".encode()
        ).digest()

    @cached_property
    def _fills(self):
        found: defaultdict[int, list[Fill]] = defaultdict(list)
        for fill in self._world.fills:
            if fill.block_id:
                found[fill.block_id].append(fill)
        return dict(found)

    @cached_property
    def _pools(self):
        pools = {}
        for market in MARKETS.values():
            if market.has_pool and market.pool:
                start = Pool(market)
                pools[market.pool] = _PoolState(market, [], [(start.base, start.quote)])
        for fills in self._fills.values():
            for fill in fills:
                if fill.venue == "amm":
                    pool = pools[fill.maker]
                    sign = 1 if fill.side == "SELL" else -1
                    base, quote = pool.balances[-1]
                    pool.positions.append((fill.block_id, fill.index_in_block))
                    pool.balances.append(
                        (base + sign * fill.size, quote - sign * fill.quote)
                    )
        return pools

    def _pool_updates(self, block):
        """Yield the updates that publish a pool's balances: at the opening, then once a day."""
        for phase, (account, pool) in enumerate(self._pools.items(), 1):
            days, rest = divmod(block - OPENING - phase, BLOCKS_A_DAY)
            if block == OPENING or not rest:
                number = 0 if block == OPENING else 1 + days
                owner = int(pool.market.pool_address, 16)
                for leg, token in enumerate((pool.market.base, pool.market.quote)):
                    nonce = 2 * number + leg
                    yield AmmUpdate(
                        owner, account, token.id, POOL_FEE_BPS, POOL_WEIGHT, nonce, 0
                    )

    def _published(self, update, block, index):
        pool = self._pools[update.account]
        base, quote = pool.before(block, index)
        return update._replace(
            balance=base if update.token == pool.market.base.id else quote
        )

    @cached_property
    def _plan(self):
        """What happens besides fills and updates of pools, by block."""
        opened = self._openings()
        plan: defaultdict[int, list[Transaction]] = defaultdict(list)
        for account, block in opened.items():
            plan[block].append(self._key_update(account, 0))
        for block in range(FIRST_BLOCK, self.last + 1):
            users = [account for account, opening in opened.items() if opening < block]
            if len(users) > 1:
                plan[block] += self._chores(users, self._digest("chores", block))
        self._add_savers(
            plan, min(opened, key=opened.__getitem__), min(opened.values())
        )
        needs = self._needs(
            each for transactions in plan.values() for each in transactions
        )
        for account, block in opened.items():
            plan[block][:0] = [
                Deposit(self._address(account), account, token, _rounded_up(2 * amount))
                for (owner, token), amount in needs.items()
                if owner == account
            ]
        for account, pool in self._pools.items():
            legs = zip(
                (pool.market.base, pool.market.quote), pool.balances[0], strict=True
            )
            owner = int(pool.market.pool_address, 16)
            plan[OPENING] += [
                Deposit(owner, account, token.id, amount) for token, amount in legs
            ]
        return dict(plan)

    def _openings(self):
        """Return the block of each user's first deposits and key, within a day before the first fill."""
        first: dict[int, int] = {}
        for block, fills in self._fills.items():
            for fill in fills:
                for account in (fill.taker, fill.maker):
                    first.setdefault(account, block)
        return {
            account: max(
                OPENING, block - 1 - self._digest("opening", account)[0] % BLOCKS_A_DAY
            )
            for account, block in first.items()
            if account not in self._pools
        }

    def _chores(self, users, dice):
        """Yield the few transfers, withdrawals and further deposits of a block."""
        sender = users[dice[0] % len(users)]
        receiver = users[(dice[0] + 1 + dice[1] % (len(users) - 1)) % len(users)]
        token = MOVED[dice[2] % len(MOVED)]
        amount = truncate_float24(
            token.worth(100) * (1000 + int.from_bytes(dice[3:5])) // 997
        )
        fee = token.worth(1, 10)
        if dice[5] < 32:
            storage = self._next_storage(sender, token.id)
            yield Transfer(
                0,
                sender,
                receiver,
                token.id,
                amount,
                token.id,
                fee,
                storage,
                0,
                0,
                token.id,
            )
        if dice[6] < 4:
            owner = self._address(sender)
            storage = self._next_storage(sender, token.id)
            yield SignatureVerification(owner, sender, int.from_bytes(dice) >> 3)
            to = self._address(receiver)
            yield Transfer(
                1,
                sender,
                receiver,
                token.id,
                amount,
                token.id,
                0,
                storage,
                to,
                owner,
                token.id,
            )
        if dice[7] < 10:
            yield self._withdrawal(sender, token.id, amount + dice[8], fee)
        if dice[9] < 3:
            yield Deposit(self._address(receiver), receiver, token.id, amount + dice[8])

    def _add_savers(self, plan, sender, after):
        """Add accounts opened by a transfer, whose keys change twice: first as signed on L1, then on L2."""
        ether = TOKENS["ETH"]
        fee = TOKENS["ETH"].worth(1, 10)
        for number, saver in enumerate(SAVERS):
            begin = after + 1 + 250 * (1 + 9 * number)
            if begin + 5 * BLOCKS_A_DAY > self.last:
                return
            storage = self._next_storage(sender, ether.id)
            address = self._address(saver)
            amount = ether.worth(1000 + 500 * number)
            plan[begin].append(
                Transfer(
                    0,
                    sender,
                    saver,
                    ether.id,
                    amount,
                    ether.id,
                    fee,
                    storage,
                    address,
                    0,
                    ether.id,
                )
            )
            plan[begin + 1].append(self._key_update(saver, 0))
            plan[begin + 2 * BLOCKS_A_DAY].append(self._key_update(saver, 1))
            plan[begin + 3 * BLOCKS_A_DAY].append(
                self._key_update(saver, 2)._replace(kind=0)
            )
            plan[begin + 5 * BLOCKS_A_DAY].append(
                self._withdrawal(saver, ether.id, amount // 2, fee)
            )

    def _withdrawal(self, account, token, amount, fee):
        owner = self._address(account)
        storage = self._next_storage(account, token)
        details = int.from_bytes(sha256(owner.to_bytes(20)).digest()[:20])
        return Withdrawal(
            0, owner, account, token, amount, token, fee, storage, details
        )

    def _next_storage(self, account, token):
        """Return the next odd storage id: the even ones are those of orders."""
        self._storage[account, token] += 2
        return self._storage[account, token] - 1

    def _owner(self, account):
        has_wallet = account == max(self._world.accounts)
        return demo_owner(
            self._world.name, account, self._settings.exchange, has_wallet
        )

    def _address(self, account):
        return int(self._owner(account).address, 16)

    def _key(self, account, nonce):
        """Return the key that an account's owner derives at a nonce."""
        from eth_account import messages

        text = protocol.key_seed(self._settings.exchange, nonce)
        signed = self._owner(account).signer.sign_message(
            messages.encode_defunct(text=text)
        )
        return protocol.l2_key(bytes(signed.signature))

    def _key_update(self, account, nonce):
        key = self._key(account, nonce)
        packed = protocol.pack_public_key(key.x, key.y)
        return AccountUpdate(
            1, self._address(account), account, 0, UPDATE_FEES["ETH"], packed, nonce
        )

    def _needs(self, others):
        """Return what each user must have of each token so that no fill and no fee overdraws it."""
        balances: Counter[tuple[int, int]] = Counter()
        needs: Counter[tuple[int, int]] = Counter()
        for fill in (each for fills in self._fills.values() for each in fills):
            trade = _spot_trade(fill)
            for account, token, change in (
                (trade.account_a, trade.sell_a, -trade.fill_a),
                (trade.account_a, trade.buy_a, trade.fill_b - fill.fee),
                (trade.account_b, trade.sell_b, -trade.fill_b),
                (trade.account_b, trade.buy_b, trade.fill_a),
            ):
                balances[account, token] += change
                needs[account, token] = max(
                    needs[account, token], -balances[account, token]
                )
        for each in others:
            if isinstance(each, Transfer):
                needs[each.sender, each.token] += each.amount + each.fee
            elif isinstance(each, Withdrawal):
                needs[each.account, each.token] += each.amount + each.fee
            elif isinstance(each, AccountUpdate):
                needs[each.account, each.fee_token] += each.fee
        return {key: amount for key, amount in needs.items() if amount}

    def _auxiliary(self, block, transaction):
        """Return what the contract needs to know of a transaction beyond its slot; a deposit's is empty."""
        valid_until = self.timestamp(block) + MONTH_SECONDS
        if isinstance(transaction, AccountUpdate):
            max_fee = 2 * transaction.fee
            signature = self._sign(transaction, max_fee, valid_until)
            return encode_auxiliary(UPDATE_TYPES, (signature, max_fee, valid_until))
        if isinstance(transaction, AmmUpdate):
            return encode_auxiliary(AMM_TYPES, (b"", valid_until))
        if isinstance(transaction, Transfer):
            return encode_auxiliary(UPDATE_TYPES, (b"", 0, valid_until))
        if isinstance(transaction, Withdrawal):
            to = f"{transaction.owner:#042x}"
            values = (False, 100_000, b"", 0, to, b"", 2 * transaction.fee, valid_until)
            return encode_auxiliary(WITHDRAWAL_TYPES, values)
        return b""

    def _sign(self, update, max_fee, valid_until):
        """Sign a key update as the account's owner; every third account's wallet knows personal_sign only."""
        from eth_account import messages
        from eth_typing import Hash32

        owner = self._owner(update.account)
        key = self._key(update.account, update.nonce)
        digest = protocol.account_update_digest(
            exchange=self._settings.exchange,
            chain_id=self._settings.chain_id,
            owner=owner.address,
            account_id=update.account,
            x=key.x,
            y=key.y,
            fee_token_id=update.fee_token,
            max_fee=max_fee,
            valid_until=valid_until,
            nonce=update.nonce,
        )
        kind = protocol.KIND_EIP712 if update.account % 3 else protocol.KIND_PERSONAL
        if kind == protocol.KIND_PERSONAL:
            signed = owner.signer.sign_message(messages.encode_defunct(digest))
        else:
            signed = owner.signer.unsafe_sign_hash(Hash32(digest))
        return bytes.fromhex(protocol.x_api_sig(bytes(signed.signature), kind)[2:])


def _spot_trade(fill):
    """Return a fill as it is settled: the taker, who pays the fee, is A."""
    market = MARKETS[fill.market]
    buys = fill.side == "BUY"
    base = (market.base.id, fill.size)
    quote = (market.quote.id, fill.quote)
    (sold, paid), (bought, received) = (quote, base) if buys else (base, quote)
    return SpotTrade(
        fill.taker,
        fill.maker,
        fill.taker_storage,
        fill.maker_storage,
        sold,
        bought,
        bought,
        sold,
        paid,
        received,
        int(buys),
        int(not buys),
        fill.fee_bps,
        0,
    )


def _rounded_up(amount):
    """Round an amount up to two significant digits, as people deposit."""
    unit: int = 10 ** max(0, len(str(amount)) - 2)
    return -(-amount // unit) * unit
