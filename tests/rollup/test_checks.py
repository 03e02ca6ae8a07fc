"""What `check` proves of blocks and names in them: numbers, roots, hashes, counts, auxiliary data."""

import random
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.optional import thorough
from support.rollup_blocks import (
    FORMS,
    TYPES,
    auxiliary,
    block_data,
    recorded_bytes,
    recorded_facts,
    slot,
    submit,
    varied_slot,
)
from support.settled_world import FIRST_L1_BLOCK, L1_BLOCKS

import loopring_lab as lab
from loopring_lab.rollup import Blocks, Store
from loopring_lab.rollup.calldata import RawBlock
from loopring_lab.rollup.checks import check

CHAIN_ID = 1  # of the recorded block
BLOCKS = 120
FIRST = 20_099  # the number of the embedded chain's first block
TRANSACTIONS = ("conditional", "auxiliary", "signatures", "balances")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The first blocks of the embedded chain, with their events."""
    store = Store(tmp_path_factory.mktemp("chain") / "blocks")
    last = FIRST_L1_BLOCK + L1_BLOCKS * (BLOCKS + 3)
    store.sync(to_block=last, progress=False)
    return store


@pytest.fixture(scope="module")
def history(store):
    return list(store.blocks().raw)[:BLOCKS]


@pytest.fixture(scope="module")
def submissions(store, history):
    events = store.file.index().events
    last = history[-1].block_id
    return events.filter(pc.field("block_id") <= last)


def checked(raw, submissions=None, *, batch=50):
    """Check everything but signatures, for which the chain's id is needed; the embedded chain begins late."""
    batches = (
        Blocks(raw[start : start + batch]) for start in range(0, len(raw), batch)
    )
    return check(batches, submissions, first_number=FIRST)


def counts(found):
    rows = found.summary[["checked", "wrong", "not_checkable"]].itertuples(name=None)
    return {name: tuple(numbers) for name, *numbers in rows}


def listed(found):
    """Return the check and the block of each problem."""
    return list(zip(found.problems["check"], found.problems["block_id"], strict=True))


def changed(raw, at, to):
    return raw._replace(data=raw.data[:at] + to + raw.data[at + len(to) :])


@pytest.mark.parametrize("batch", [7, thorough(1000)])
def test_a_whole_history_is_right_however_it_is_cut(history, submissions, batch):
    found = checked(history, submissions, batch=batch)
    whole = Blocks(history)
    updates = whole.table("amm_update")
    pools = len(
        set(
            zip(
                updates["account"].to_pylist(),
                updates["token"].to_pylist(),
                strict=True,
            )
        )
    )
    assert found.problems.empty
    assert counts(found) == {
        **dict.fromkeys(
            ("indices", "roots", "sha256", "conditional", "auxiliary"), (BLOCKS, 0, 0)
        ),
        "signatures": (0, 0, whole.table("account_update").num_rows),
        "balances": (updates.num_rows - pools, 0, pools),
    }
    assert updates.num_rows > pools


def test_gaps_are_named_and_nothing_is_concluded_across_them(history, submissions):
    held = [*history[2:50], *history[51:90], *history[99:110]]
    found = checked(held, submissions)
    before = history[0].block_id - 1
    assert list(found.problems["problem"]) == [
        f"blocks {before + 1} to {before + 2} not held (2)",
        f"block {before + 51} not held",
        f"blocks {before + 91} to {before + 99} not held (9)",
        f"blocks {before + 111} to {before + 120} not held (10)",
    ]
    assert list(found.problems["block_id"] - before) == [1, 51, 91, 111]
    assert counts(found)["balances"][1] == 0
    assert counts(checked(held))["roots"] == (len(held) - 3, 0, 3)


def test_blocks_twice_or_out_of_order_are_named(history):
    found = checked([*history[:3], history[2], history[1], history[3]])
    third = history[2].block_id
    assert list(found.problems["problem"]) == [f"comes after block {third}"] * 2
    assert list(found.problems["block_id"]) == [third, third - 1]


@pytest.mark.parametrize(("at", "place"), [(20, 4), (52, 5)])
def test_a_changed_root_breaks_the_chain(history, at, place):
    broken = [*history[:4], changed(history[4], at, b"\xff"), *history[5:10]]
    found = checked(broken)
    assert listed(found) == [("roots", history[place].block_id)]
    assert "but the block before ended with 0x" in found.problems["problem"][0]


def test_roots_and_hashes_are_those_of_the_events(history, submissions):
    broken = [*history[:4], changed(history[4], 52, b"\xff"), *history[5:]]
    fifth = history[4].block_id
    assert listed(checked(broken, submissions)) == [
        ("roots", fifth),
        ("sha256", fifth),
        ("roots", fifth + 1),
    ]
    damaged = [*history[:-1], changed(history[-1], len(history[-1].data) - 1, b"\xff")]
    found = listed(checked(damaged, submissions))
    assert found[0] == ("sha256", history[-1].block_id)


def test_events_that_contradict_each_other_are_named(history, submissions):
    again = submissions.slice(0, 1)
    other = again.set_column(1, "merkle_root", pa.array([bytes(32)], pa.binary()))
    assert checked(history, pa.concat_tables([submissions, again])).problems.empty
    found = checked(history, pa.concat_tables([submissions, other]))
    assert list(found.problems["problem"]) == ["events state different roots or hashes"]


def test_blocks_without_numbers_are_joined_by_their_roots(history):
    unnumbered = [raw._replace(block_id=None) for raw in history[:60]]
    found = counts(checked(unnumbered))
    assert (found["indices"], found["roots"]) == ((0, 0, 60), (59, 0, 1))
    updates = Blocks(history[:60]).table("amm_update")
    keys = zip(
        updates["account"].to_pylist(), updates["token"].to_pylist(), strict=True
    )
    assert found["balances"][2] == len(set(keys))
    broken = checked([*unnumbered[:20], *unnumbered[30:]])
    assert counts(broken)["roots"] == (48, 0, 2)
    # That others are missing between two blocks is known without their numbers.
    assert counts(broken)["indices"] == (1, 1, 50)
    assert (
        broken.problems["problem"]
        .str.startswith("block at position 20, without a number: does not start")
        .all()
    )


def test_of_two_blocks_that_start_from_one_root_one_is_wrong(history, submissions):
    """Calldata of a call that failed does not say so; what was submitted in its place starts where it did."""
    failed = changed(history[40], 84, bytes(4))._replace(block_id=None)
    found = checked([*history, failed], submissions)
    assert counts(found)["roots"] == (BLOCKS + 1, 1, 0)
    assert found.problems["problem"].tolist() == [
        f"block at position {BLOCKS}, without a number: starts from the root that another block starts from: one of "
        "them was not executed"
    ]


def is_conditional(content):
    kind = TYPES[content[0]]
    return kind in ("deposit", "withdrawal", "amm_update") or (
        kind in ("transfer", "account_update", "nft_mint") and content[1] > 0
    )


@pytest.mark.parametrize("seed", range(4))
def test_conditional_transactions_are_counted(seed):
    """As the circuits count them: deposits, withdrawals, AMM updates; others unless they are of kind 0."""
    dice = random.Random(seed)
    rows = [varied_slot(dice.choice(TYPES), dice) for _ in range(60)]
    right = sum(map(is_conditional, rows))
    block = block_data(rows, conditional=right)
    assert counts(checked_data(block))["conditional"] == (1, 0, 0)
    found = checked_data(block_data(rows, conditional=right + 1), first_block=4)
    problems = found.problems.query("check == 'conditional'")
    assert problems[["block_id", "problem"]].to_numpy().tolist() == [
        [
            4,
            f"the header counts {right + 1} conditional transactions, the block has {right}",
        ]
    ]


def checked_data(data, **how):
    return check([lab.rollup.decode_data(data, **how)], None, CHAIN_ID)


def test_the_recorded_block_is_right():
    found = checked_data(recorded_bytes("data.hex"), first_block=1)
    assert found.problems.empty
    stated = Counter(
        (fact["account"], fact["token"])
        for fact in recorded_facts()
        if fact["type"] == "amm_update"
    )
    again = stated.total() - len(stated)
    assert {name: counts(found)[name] for name in TRANSACTIONS} == {
        "conditional": (1, 0, 0),
        "auxiliary": (0, 0, 1),
        "signatures": (0, 0, 11),
        "balances": (again, 0, len(stated)),
    }
    assert again == 8


CONDITIONAL = [
    slot("deposit", amount=1),
    slot("noop"),
    slot("amm_update", account=3),
    slot("withdrawal"),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ([0, 2, 3], ""),
        ([0, 2], "not listed: 3; listed, but not conditional: none"),
        ([0, 1, 2, 3], "not listed: none; listed, but not conditional: 1"),
        ([0, 3, 2], "its entries are repeated, or not in the order of the block"),
        ([0, 2, 2, 3], "its entries are repeated, or not in the order of the block"),
        ([0, 2, 900], "not listed: 3; listed, but not conditional: 900"),
    ],
)
def test_auxiliary_data_lists_the_conditional_transactions(form, places, problem):
    data = block_data(CONDITIONAL, size=16, conditional=3)
    call = submit([data], form=form, entries=[[(at, True, b"abc") for at in places]])
    found = check([lab.rollup.decode(call, first_block=1)])
    assert list(found.problems["problem"]) == ([problem] if problem else [])
    assert counts(found)["auxiliary"] == (1, 1 if problem else 0, 0)


@settings(max_examples=20)
@given(st.sampled_from(FORMS), st.data())
def test_damaged_auxiliary_data_is_a_named_problem(form, data):
    content = bytearray(
        auxiliary([(0, True, b"a" * 33), (2, True, b""), (3, True, b"b")], form)
    )
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(
            st.integers(0, 255)
        )
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    block = block_data(CONDITIONAL, size=16, conditional=3)
    found = check([Blocks([RawBlock(block, auxiliary=cut, form=form, block_id=1)])])
    assert set(found.problems["check"]) <= {"auxiliary"}
    assert counts(found)["auxiliary"][0] == 1
    assert all(
        "at byte" in text or "listed" in text or "order" in text
        for text in found.problems["problem"]
    )


def test_a_check_says_first_whether_something_is_wrong(history):
    right = checked(history[:20])
    wrong = checked([*history[:20], *history[21:30]])
    lost = history[20].block_id
    right_lines = repr(right).split("\n")
    unchecked = right.summary["not_checkable"].sum()
    assert right_lines[0] == f"0 wrong, {unchecked} not checkable"
    assert right_lines[1].startswith("  indices      20 checked, 0 ")
    assert repr(wrong).startswith("1 wrong, ")
    assert repr(wrong).endswith(f"\nindices, block {lost}: block {lost} not held")
    assert "<b>1 wrong, " in wrong._repr_html_()
    nothing_open = right._replace(summary=right.summary.assign(not_checkable=0))
    assert repr(nothing_open).startswith("Nothing wrong found\n")


def test_numbers_prove_that_blocks_before_the_first_one_are_missing():
    found = checked_data(recorded_bytes("data.hex"), first_block=20)
    assert listed(found) == [("indices", 1)]
    assert found.problems["problem"][0] == "blocks 1 to 19 not held (19)"
    assert counts(found)["indices"] == (2, 1, 0)
    assert listed(checked_data(recorded_bytes("data.hex"), first_block=1)) == []
