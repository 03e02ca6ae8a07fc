"""A block of settled fills as saved responses, with independent facts beside it (``settled.jsonl``).

One block was recorded from mainnet and its facts come from the chain; it lies outside the repository. The
other is written here from the fills of the synthetic world, so that the same tests run for everybody.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd

import loopring_lab as lab
from loopring_lab.relayer import World
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.world import Fill

RECORDED = "mainnet_block_a"
MADE = "made_block"
COUNTS = {  # rows, accounts, AMM rows, order-book rows, rows whose fee says the basis points charged
    RECORDED: (364, 51, 312, 52, 359),
    MADE: (800, 71, 700, 100, 791),
}
MADE_FILLS = 400
ROW_MEMBERS = (
    13  # as mainnet sent them when the other block was recorded: without a role
)

Settled = dict[tuple[int, str], dict[str, Any]]


def client_of(block: Path) -> lab.Client:
    return lab.connect(recording=block)


def trades_of(client: lab.Client) -> pd.DataFrame:
    """Read every account of the recording, which takes seconds; once for all tests of a process."""
    if client.source not in _trades:
        assert client.accounts is not None
        frames = [client.trades(account) for account in client.accounts]
        _trades[client.source] = pd.concat(frames, ignore_index=True)
    return _trades[client.source].copy()


_trades: dict[str, pd.DataFrame] = {}


def settled_of(block: Path) -> Settled:
    """Read the settled fills, by trade id and side."""
    lines = (block / "settled.jsonl").read_text().splitlines()
    return {(int(fact["id"]), fact["side"]): fact for fact in map(json.loads, lines)}


def write_block(folder: Path) -> Path:
    """Save a few hundred fills of the synthetic world as a recording, with the world's facts beside them."""
    world = World(seed=1)
    # A relayer that sends no role has it derived from the fee: takers who pay nothing cannot be told apart.
    numbers = [number for number, fill in enumerate(world.fills) if fill.fee][
        :MADE_FILLS
    ]
    rows: dict[str, list[Any]] = defaultdict(list)
    facts = []
    for number in numbers:
        fill = world.fills[number]
        for is_maker in (False, True):
            fact = fact_of(fill, is_maker)
            row = world.history.row(2 * number + is_maker)[:ROW_MEMBERS]
            rows[f"{fact['account_id']}-{fact['fill_type']}"].insert(0, row)
            facts.append(fact)
    (folder / "trades").mkdir(parents=True)
    for name, listed in rows.items():
        page = {"totalNum": len(listed), "trades": listed}
        (folder / "trades" / f"{name}.json").write_text(json.dumps(page))
    (folder / "tokens.json").write_text(json.dumps(world.tokens()))
    (folder / "markets.json").write_text(json.dumps({"markets": world.markets()}))
    (folder / "settled.jsonl").write_text(
        "".join(json.dumps(fact) + "\n" for fact in facts)
    )
    return folder


def fact_of(fill: Fill, is_maker: bool) -> dict[str, Any]:
    """Return what the world knows of one side of a fill, in the form of the recorded block's facts."""
    buys = (fill.side == "BUY") is not is_maker
    base = MARKETS[fill.market].base.symbol
    quote = MARKETS[fill.market].quote.symbol
    return {
        "id": str(fill.id),
        "account_id": fill.maker if is_maker else fill.taker,
        "side": "BUY" if buys else "SELL",
        "fill_type": fill.venue,
        "market": fill.market,
        "base": base,
        "quote": quote,
        "size": str(fill.size),
        "quote_amount": str(fill.quote),
        "fee": "0" if is_maker else str(fill.fee),
        "fee_token": base if buys else quote,
        "fee_bips": 0 if is_maker else fill.fee_bps,
        "role": "maker" if is_maker else "taker",
    }
