"""Balances of pools recomputed by `check`, against Python's own integers."""

from collections import Counter, defaultdict
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rollup_blocks import block_data, slot

import loopring_lab as lab
from loopring_lab.rollup import Blocks
from loopring_lab.rollup.calldata import RawBlock
from loopring_lab.rollup.checks import check

ACCOUNTS = (3, 4, 2**32 - 1)
TOKENS = (0, 1, 2**16 - 1)
ACCOUNT = st.sampled_from(ACCOUNTS)
TOKEN = st.sampled_from(TOKENS)
# Below 2^96, as all amounts that the exchange settles; sums of them have less than 38 digits.
FLOAT24 = st.integers(0, 22).flatmap(
    lambda exponent: st.integers(exponent << 19, (exponent + 1 << 19) - 1)
)
FLOAT16 = st.integers(0, 2**16 - 1)
UINT96 = st.one_of(st.integers(0, 2**96 - 1), st.just(2**96 - 1), st.integers(0, 9))
DRAWN = {
    "account": ACCOUNT,
    "token": TOKEN,
    "fill": FLOAT24,
    "data": st.integers(0, 63),
    "fee": FLOAT16,
    "uint96": UINT96,
}
# The fields of each kind of transaction that changes or states balances, and what they are.
KINDS = {
    "spot_trade": "account_a:account account_b:account sell_a:token sell_b:token fill_a:fill fill_b:fill data_a:data data_b:data",
    "transfer": "sender:account receiver:account token:token amount:fill fee_token:token fee:fee",
    "deposit": "account:account token:token amount:uint96",
    "withdrawal": "account:account token:token amount:uint96 fee_token:token fee:fee",
    "account_update": "account:account fee_token:token fee:fee",
    "nft_mint": "minter:account to_token:token amount:uint96 fee_token:token fee:fee",
    "amm_update": "account:account token:token",
    "noop": "",
}


def drawn(kind):
    named = [field.split(":") for field in KINDS[kind].split()]
    fields = st.fixed_dictionaries({name: DRAWN[what] for name, what in named})
    return st.tuples(st.just(kind), fields)


EVENTS = st.one_of(drawn(kind) for kind in KINDS)
STATED = [
    ("amm_update", {"account": account, "token": token})
    for account, token in product(ACCOUNTS, TOKENS)
]


def value(bits, mantissa):
    return (bits & (1 << mantissa) - 1) * 10 ** (bits >> mantissa)


def apply(kind, event, balances):
    """Change balances as the exchange does."""
    if kind == "spot_trade":
        sold = {"a": value(event["fill_a"], 19), "b": value(event["fill_b"], 19)}
        for side, other in ("ab", "ba"):
            account = event[f"account_{side}"]
            sells = event[f"sell_{side}"]
            buys = event[f"sell_{other}"]
            balances[account, sells] -= sold[side]
            balances[account, buys] += sold[other]
            bips = event[f"data_{side}"]
            if buys < 2**15:
                balances[account, buys] -= sold[other] * bips // 10_000
            elif sells < 2**15:
                balances[account, sells] -= sold[side] * bips // 10_000
        return
    payer = event.get("sender", event.get("minter", event.get("account")))
    if "fee" in event:
        balances[payer, event["fee_token"]] -= value(event["fee"], 11)
    if kind == "transfer":
        amount = value(event["amount"], 19)
        balances[payer, event["token"]] -= amount
        balances[event["receiver"], event["token"]] += amount
    if kind == "deposit":
        balances[payer, event["token"]] += event["amount"]
    if kind == "withdrawal":
        balances[payer, event["token"]] -= event["amount"]
    if kind == "nft_mint":
        balances[payer, event["to_token"]] += event["amount"]


@settings(max_examples=5)
@given(
    st.lists(st.lists(EVENTS, max_size=14), min_size=1, max_size=6),
    st.integers(1, 6),
    st.sets(st.integers(0, 13)),
)
def test_every_statement_is_compared_with_the_one_before_it(events, batch, wrong):
    """Any amounts, any order, cut into any batches; a wrong statement is where the next one starts from."""
    raw = []
    problems = []
    balances: dict[tuple[int, int], int] = defaultdict(int)
    stated = Counter[tuple[int, int]]()
    # Every balance is stated before and after all changes.
    for number, block in enumerate([STATED, *events, STATED], 1):
        slots = []
        for index, (kind, fields) in enumerate(block):
            apply(kind, fields, balances)
            if kind != "amm_update":
                slots.append(slot(kind, **fields))
                continue
            key = fields["account"], fields["token"]
            expected = balances[key]
            balances[key] = expected % 2**96
            if index in wrong:
                balances[key] ^= 1
            if stated[key] and balances[key] != expected:
                text = (
                    f"pool {key[0]}, token {key[1]}: expected a balance of {expected}, "
                    f"found {balances[key]}, in smallest units"
                )
                problems.append((number, index, text))
            stated[key] += 1
            slots.append(slot(kind, **fields, balance=balances[key]))
        raw.append(RawBlock(block_data(slots, size=16), block_id=number))
    found = check(Blocks(raw[at : at + batch]) for at in range(0, len(raw), batch))
    named = found.problems[found.problems["check"] == "balances"]
    rows = zip(
        named["block_id"], named["index_in_block"], named["problem"], strict=True
    )
    assert sorted(rows) == problems
    again = stated.total() - len(stated)
    assert counted(found) == (again, len(problems), len(stated))


def counted(found):
    row = found.summary.loc["balances"]
    return row["checked"], row["wrong"], row["not_checkable"]


def statement(balance):
    return slot("amm_update", account=7, token=1, balance=balance)


def deposit(amount):
    return slot("deposit", account=7, token=1, amount=amount)


def test_amounts_that_no_exchange_settles_end_no_check():
    """Balances have 96 bits; a block may still claim transfers that add up to more than 38 digits."""
    much = [slot("transfer", sender=8, receiver=7, token=1, amount=2**24 - 1)] * 40
    raw = [
        RawBlock(block_data([statement(5), *much, statement(6)], size=64), block_id=1)
    ]
    raw += [
        RawBlock(block_data([statement(7)], size=16), block_id=2),
        RawBlock(block_data([statement(7)]), block_id=3),
    ]
    assert counted(check(Blocks([one]) for one in raw)) == (1, 0, 3)
    with pytest.raises(lab.errors.AmountError):
        Blocks(raw).balances(7)


def test_a_gap_in_the_numbers_starts_anew():
    numbered = [
        (1, [statement(5)]),
        (2, [deposit(1), statement(6)]),
        (4, [statement(9)]),
        (5, [statement(10)]),
    ]
    raw = [
        RawBlock(block_data(slots, size=16), block_id=number)
        for number, slots in numbered
    ]
    for batches in ([raw], [[one] for one in raw]):
        found = check(Blocks(batch) for batch in batches)
        assert counted(found) == (2, 1, 2)
        named = found.problems[found.problems["check"] == "balances"]
        assert list(named["block_id"]) == [5]
