"""Balances of pools recomputed by `check`, against Python's own integers, and on the recorded block."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rollup_blocks import block_data, recorded_bytes, recorded_facts, slot

import loopring_lab as lab
from loopring_lab.rollup import Blocks
from loopring_lab.rollup.calldata import RawBlock
from loopring_lab.rollup.checks import check

ACCOUNT = st.sampled_from([3, 4, 2**32 - 1])
TOKEN = st.sampled_from([0, 1, 2**16 - 1])
# Below 2^96, as all amounts that the exchange settles; sums of them have less than 38 digits.
FLOAT24 = st.integers(0, 22).flatmap(
    lambda exponent: st.integers(exponent << 19, (exponent + 1 << 19) - 1)
)
FLOAT16 = st.integers(0, 2**16 - 1)
UINT96 = st.one_of(st.integers(0, 2**96 - 1), st.just(2**96 - 1), st.integers(0, 9))
EVENTS = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.just("spot_trade"),
            "account_a": ACCOUNT,
            "account_b": ACCOUNT,
            "sell_a": TOKEN,
            "sell_b": TOKEN,
            "fill_a": FLOAT24,
            "fill_b": FLOAT24,
            "data_a": st.integers(0, 63),
            "data_b": st.integers(0, 63),
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("transfer"),
            "sender": ACCOUNT,
            "receiver": ACCOUNT,
            "token": TOKEN,
            "amount": FLOAT24,
            "fee_token": TOKEN,
            "fee": FLOAT16,
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("deposit"),
            "account": ACCOUNT,
            "token": TOKEN,
            "amount": UINT96,
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("withdrawal"),
            "account": ACCOUNT,
            "token": TOKEN,
            "amount": UINT96,
            "fee_token": TOKEN,
            "fee": FLOAT16,
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("account_update"),
            "account": ACCOUNT,
            "fee_token": TOKEN,
            "fee": FLOAT16,
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("nft_mint"),
            "minter": ACCOUNT,
            "to_token": TOKEN,
            "amount": UINT96,
            "fee_token": TOKEN,
            "fee": FLOAT16,
        }
    ),
    st.fixed_dictionaries(
        {
            "kind": st.just("amm_update"),
            "account": ACCOUNT,
            "token": TOKEN,
            "is_wrong": st.booleans(),
        }
    ),
    st.just({"kind": "noop"}),
)


def value(bits, mantissa):
    return (bits & (1 << mantissa) - 1) * 10 ** (bits >> mantissa)


def apply(event, balances):
    """Change balances as the exchange does."""
    match event["kind"]:
        case "spot_trade":
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
        case "transfer":
            amount = value(event["amount"], 19)
            balances[event["sender"], event["token"]] -= amount
            balances[event["receiver"], event["token"]] += amount
            balances[event["sender"], event["fee_token"]] -= value(event["fee"], 11)
        case "deposit":
            balances[event["account"], event["token"]] += event["amount"]
        case "withdrawal":
            balances[event["account"], event["token"]] -= event["amount"]
            balances[event["account"], event["fee_token"]] -= value(event["fee"], 11)
        case "account_update":
            balances[event["account"], event["fee_token"]] -= value(event["fee"], 11)
        case "nft_mint":
            balances[event["minter"], event["to_token"]] += event["amount"]
            balances[event["minter"], event["fee_token"]] -= value(event["fee"], 11)


def written(event):
    fields = {
        name: each for name, each in event.items() if name not in ("kind", "is_wrong")
    }
    return slot(event["kind"], **fields)


@settings(max_examples=12)
@given(st.lists(st.lists(EVENTS, max_size=14), min_size=1, max_size=6), st.data())
def test_every_statement_is_compared_with_the_one_before_it(events, data):
    """Any amounts, any order, cut into any batches; a wrong statement is where the next one starts from."""
    raw = []
    problems = []
    right = 0
    balances: dict[tuple[int, int], int] = defaultdict(int)
    stated: set[tuple[int, int]] = set()
    for number, block in enumerate(events, 1):
        slots = []
        for index, drawn in enumerate(block):
            apply(drawn, balances)
            event = dict(drawn)
            if event["kind"] == "amm_update":
                key = event["account"], event["token"]
                expected = balances[key]
                event["balance"] = expected % 2**96 ^ event["is_wrong"]
                if key in stated and event["balance"] != expected:
                    text = (
                        f"pool {key[0]}, token {key[1]}: expected a balance of {expected}, "
                        f"found {event['balance']}, in smallest units"
                    )
                    problems.append((number, index, text))
                right += key in stated and event["balance"] == expected
                stated.add(key)
                balances[key] = event["balance"]
            slots.append(written(event))
        raw.append(RawBlock(block_data(slots, size=16), block_id=number))
    cuts = (
        sorted(data.draw(st.sets(st.integers(1, max(1, len(raw) - 1)))))
        if len(raw) > 1
        else []
    )
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    found = check(Blocks(part) for part in parts)
    named = found.problems[found.problems["check"] == "balances"]
    rows = zip(
        named["block_id"], named["index_in_block"], named["problem"], strict=True
    )
    assert sorted(rows) == sorted(problems)
    row = found.summary.loc["balances"]
    assert (row["checked"], row["wrong"], row["not_checkable"]) == (
        right + len(problems),
        len(problems),
        len(stated),
    )


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
    row = check(Blocks([one]) for one in raw).summary.loc["balances"]
    assert (row["checked"], row["wrong"], row["not_checkable"]) == (1, 0, 3)
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
        row = found.summary.loc["balances"]
        assert (row["checked"], row["wrong"], row["not_checkable"]) == (2, 1, 2)
        named = found.problems[found.problems["check"] == "balances"]
        assert list(named["block_id"]) == [5]


def test_changes_after_the_last_statement_of_a_batch_are_carried_over():
    slots = [[statement(5), deposit(2)], [deposit(3)], [], [deposit(4), statement(14)]]
    raw = [
        RawBlock(block_data(one, size=16), block_id=number)
        for number, one in enumerate(slots)
    ]
    row = check(Blocks([one]) for one in raw).summary.loc["balances"]
    assert (row["checked"], row["wrong"], row["not_checkable"]) == (1, 0, 1)


def named_changes():
    """Return the fields of fills in block A that change a balance which is stated before and after."""
    seen: dict[tuple[int, int], list[int]] = defaultdict(list)
    facts = recorded_facts()
    for fact in facts:
        if fact["type"] == "amm_update":
            seen[fact["account"], fact["token"]].append(fact["index"])
    found = []
    for fact in facts:
        if fact["type"] == "spot_trade":
            for key, at in (
                ((fact["account_b"], fact["sell_b"]), 24),
                ((fact["account_b"], fact["buy_b"]), 21),
            ):
                if any(
                    first < fact["index"] < last
                    for first, last in zip(seen[key], seen[key][1:], strict=False)
                ):
                    found.append((fact["index"], at, key[0]))
    return found


def test_a_changed_fill_of_the_recorded_block_is_found():
    data = recorded_bytes("data.hex")
    changes = named_changes()
    assert changes
    for index, field, pool in changes[::4]:
        at = 98 + 29 * index + field + 2
        altered = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        found = check([lab.rollup.decode_data(altered)])
        named = found.problems[found.problems["check"] == "balances"]["problem"]
        assert len(named), (index, field)
        assert f"pool {pool}, token" in named.iloc[0]
