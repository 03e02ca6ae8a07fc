"""Fills: the settled facts of a block, from its trades."""

from collections import Counter
from fractions import Fraction

from support.engines import result_rows
from support.settled_block import COUNTS

import loopring_lab as lab

# Against the facts of a settled block


def test_shares_per_fill_type_are_the_chain_s_counts(block, settled, block_folder):
    rows, _, amm, dex, _ = COUNTS[block_folder.name]
    counts = Counter(fact["fill_type"] for fact in settled.values())
    assert counts == {"amm": amm, "dex": dex}
    found = result_rows(lab.fills.breakdown(block))
    assert {line["fill_type"]: (line["fills"], line["share"]) for line in found} == {
        name: (count, count / rows) for name, count in counts.items()
    }
    by_market = Counter(
        (fact["market"], fact["fill_type"]) for fact in settled.values()
    )
    found = result_rows(lab.fills.breakdown(block, by="market"))
    assert {
        (line["market"], line["fill_type"]): line["fills"] for line in found
    } == by_market


def test_maker_and_taker_shares_are_the_chain_s(block, settled):
    known = block.assign(
        role=[
            settled[pair]["role"]
            for pair in zip(block["trade_id"], block["side"], strict=True)
        ]
    )
    sizes: Counter[tuple[str, str | None]] = Counter()
    for line in known.itertuples():
        size = int(settled[line.trade_id, line.side]["size"])
        sizes[line.order_hash, line.role] += size
        sizes[line.order_hash, None] += size
    found = result_rows(lab.fills.orders(known))
    assert {line["order_hash"] for line in found} == set(block["order_hash"])
    for line in found:
        whole = sizes[line["order_hash"], None]
        for role in ("maker", "taker"):
            assert line[f"{role}_share"] == float(
                Fraction(sizes[line["order_hash"], role], whole)
            )
