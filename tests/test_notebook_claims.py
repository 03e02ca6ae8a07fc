"""Notebooks 02 and 03 on other worlds and on real fills: each printed sentence is true of what was read."""

import ast
import contextlib
import functools
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import nbformat
import pytest
from support.settled_block import settled_of
from support.worlds import size_classes, true_costs, true_difference

import loopring_lab as lab
from loopring_lab.relayer import Relayer
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.world import Fill, World

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
POOL, DAYS, DAY = 1, 30, 86_400_000
NUMBER = r"(-?[\d,]+(?:\.\d+)?)"


class Run(NamedTuple):
    """What a notebook printed, and the names it left behind."""

    text: str
    names: dict[str, Any]

    def numbers(self, sentence: str) -> list[float]:
        """Return the numbers where a sentence, printed exactly once, has a #."""
        (found,) = re.finditer(re.escape(sentence).replace(r"\#", NUMBER), self.text)
        return [float(number.replace(",", "")) for number in found.groups()]


def run(name: str, **parameters: Any) -> Run:
    """Run the code cells of a notebook with other parameters."""
    cells = [
        cell.source
        for cell in nbformat.read(NOTEBOOKS / name, as_version=4).cells
        if cell.cell_type == "code"
    ]
    names: dict[str, Any] = {}
    exec(cells[0], names)
    assert parameters.keys() <= names.keys()
    names |= parameters
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in cells[1:]:
            *statements, last = ast.parse(cell).body
            shown = isinstance(last, ast.Expr)
            exec(compile(ast.Module(statements if shown else [*statements, last], []), name, "exec"), names)
            if isinstance(last, ast.Expr):
                repr(eval(compile(ast.Expression(last.value), name, "eval"), names))
    return Run(printed.getvalue(), names)


# Worlds whose truth is known


WORLDS = {"seed 2": World(2, 0.3), "seed 3": World(3, 0.3), "cheaper book": World(4, 0.3, "book")}


@pytest.fixture(scope="module", params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param]


@contextlib.contextmanager
def served(world: World) -> Iterator[str]:
    """Serve a world, and let `lab.connect` read it with its key and at any rate."""
    with Relayer(world=world) as relayer, pytest.MonkeyPatch.context() as patch:
        options = {"api_key": relayer.api_key, "rate": 10_000.0}
        patch.setattr(lab, "connect", functools.partial(lab.connect, **options))
        yield relayer.base_url


@pytest.fixture(scope="module")
def venues(world: World) -> Run:
    with served(world) as address:
        accounts = sorted(accounts_of(world))
        return run("03_amm_versus_orderbook.ipynb", base_url=address, accounts=accounts, days=DAYS)


@pytest.fixture(scope="module")
def fees(world: World) -> Run:
    schedule = [{"fill_type": "amm", "bps": 9}, {"bps": 22}]
    with served(world) as address:
        return run("02_fee_analysis.ipynb", base_url=address, schedule=schedule)


def accounts_of(world: World) -> set[int]:
    accounts = {account for fill in world.fills for account in (fill.taker, fill.maker)}
    return accounts - set(world.pools.values())


def read(world: World) -> list[Fill]:
    """Return the fills of these accounts in the last days up to their newest."""
    accounts = accounts_of(world)
    fills = [fill for fill in world.fills if accounts & {fill.taker, fill.maker}]
    newest = max(fill.time_ms for fill in fills)
    return [fill for fill in fills if fill.time_ms > newest - DAYS * DAY]


def taken(world: World) -> list[Fill]:
    accounts = accounts_of(world)
    return [fill for fill in read(world) if fill.taker in accounts]


def compared(world: World) -> list[Fill]:
    """Return the fills of takers who used both venues in that time."""
    venues = {(fill.taker, fill.venue) for fill in taken(world)}
    return [fill for fill in taken(world) if {(fill.taker, "amm"), (fill.taker, "dex")} <= venues]


def test_fills_are_counted_once_and_by_their_takers(world: World, venues: Run) -> None:
    accounts, fills = accounts_of(world), read(world)
    rows = sum((fill.taker in accounts) + (fill.maker in accounts) for fill in fills)
    said = venues.numbers("# rows are # fills; the taker's side is known and read for #.")
    assert said == [rows, len(fills), len(taken(world))]


def test_the_verdict_is_the_true_one_and_rests_on_outside_prices(world: World, venues: Run) -> None:
    accounts, fills = {fill.taker for fill in taken(world)}, compared(world)
    said = venues.numbers("# of # accounts used both venues, with # fills.")
    assert said == [len({fill.taker for fill in fills}), len(accounts), len(fills)]
    numbers = {fill.id for fill in fills}
    costs = [cost for cost in true_costs(world) if cost.fill.id in numbers]
    truth = true_difference(costs, size_classes(costs))[None]
    assert (truth < 0) == (world.cheaper == "pool")
    (sentence,) = [line for line in venues.text.splitlines() if "pool minus book" in line]
    difference, low, high = venues.numbers("pool minus book is # bps (interval # to #)")
    assert low < difference < high
    assert difference == pytest.approx(truth, abs=(high - low))
    if low < 0 < high:
        assert sentence.startswith("Undecided: ")
        assert abs(truth) < 3, "a larger difference is found"
    else:
        assert sentence.startswith("The pool is cheaper: " if truth < 0 else "The order book is cheaper: ")
    assert "own trades" not in venues.text
    assert set(venues.names["moved"]["reference"]) == {"outside prices"}


def test_the_fills_and_orders_compared_are_those_with_a_counterpart(world: World, venues: Run) -> None:
    fills = compared(world)
    numbers = {fill.id for fill in fills}
    classes = size_classes([cost for cost in true_costs(world) if cost.fill.id in numbers])
    cells = {
        venue: {(f.market, f.side, classes[f.id]) for f in fills if f.venue == venue}
        for venue in ("amm", "dex")
    }
    both = [f for f in fills if (f.market, f.side, classes[f.id]) in cells["amm"] & cells["dex"]]
    said = venues.numbers("like with like over # fills of # orders, #% of the takers' fills.")
    assert said == [
        len(both), len({f.taker_hash for f in both}), float(f"{100 * len(both) / len(fills):.0f}")
    ]  # fmt: skip


def test_orders_in_parts_are_counted(world: World, venues: Run) -> None:
    parts = Counter(fill.taker_hash for fill in taken(world))
    said = venues.numbers("# of # orders were filled in several parts.")
    assert said == [sum(1 for count in parts.values() if count > 1), len(parts)]


def test_the_pools_fills_are_all_of_its_own_in_that_time(world: World, venues: Run) -> None:
    since = min(fill.time_ms for fill in read(world))
    own = [f for f in world.fills if f.maker == POOL and f.venue == "amm" and f.time_ms >= since]
    assert venues.numbers(f"# fills of account {POOL} as a pool.") == [len(own)]
    assert venues.names["earned"]["fills"].sum() == len(own)


def test_an_account_s_fills_are_counted(world: World, fees: Run) -> None:
    mine = [f for f in world.fills if 10083 in (f.taker, f.maker)]
    assert fees.text.startswith(f"account 10083: {len(mine):,} fills, fees valued in ")


def charged(fill: Fill) -> tuple[str, int, int]:
    """Return the fee token, the fee and the amount it was charged on of a fill of the account, as its taker."""
    market = MARKETS[fill.market]
    bought = fill.side == "BUY"
    return (market.base if bought else market.quote).symbol, fill.fee, fill.size if bought else fill.quote


def test_rates_by_amount_and_by_fill_are_those_of_the_most_frequent_fee_token(
    world: World, fees: Run
) -> None:
    (token,) = re.findall(r"Fees paid in (\w+):", fees.text)
    rows = [f for f in world.fills if f.taker == 10083 and charged(f)[0] == token]
    rows_made = [f for f in world.fills if f.maker == 10083]
    made = [
        f
        for f in rows_made
        if (MARKETS[f.market].quote if f.side == "BUY" else MARKETS[f.market].base).symbol == token
    ]
    received = sum(charged(f)[2] for f in rows) + sum(f.quote if f.side == "BUY" else f.size for f in made)
    rate = 10_000 * sum(f.fee for f in rows) / received
    middle = median([float(f.fee_bps) for f in rows] + [0.0] * len(made))
    said = fees.numbers(f"Fees paid in {token}: # bps by amount, # bps for the median fill.")
    assert said == [pytest.approx(rate, abs=0.01), pytest.approx(middle, abs=0.05)]


def test_the_value_of_all_fees_is_as_near_to_the_truth_as_is_said(world: World, fees: Run) -> None:
    token = fees.names["token"]
    truth = Fraction(0)
    for fill in world.fills:
        if fill.taker == 10083:
            market = MARKETS[fill.market]
            paid = market.base if fill.side == "BUY" else market.quote
            price = Fraction(
                world.latent_dollars(paid.symbol, fill.time_ms), world.latent_dollars(token, fill.time_ms)
            )
            truth += Fraction(fill.fee, 10**paid.decimals) * price
    priced, count, worth, within = fees.numbers(f"Fees of # of # fills: # {token}, within # bps.")
    assert priced == count
    assert abs(worth / float(truth) - 1) * 10_000 < max(within, 1) < 20


def test_fills_above_the_schedule_are_the_true_ones(world: World, fees: Run) -> None:
    mine = [f for f in world.fills if 10083 in (f.taker, f.maker)]
    above = [f for f in mine if f.taker == 10083 and f.fee_bps > (9 if f.venue == "amm" else 22)]
    (found, count) = fees.numbers("# of # fills were charged above the schedule.")
    assert count == len(mine)
    assert 0.98 * len(above) <= found <= len(above)  # truncated prices hide a few small ones
    assert {f.id for f in above} >= set(fees.names["found"].query("verdict == 'above'")["trade_id"])
    assert fees.numbers("# cannot be judged.") == [0]


# Saved responses of real fills, and of made ones in their place


@pytest.fixture(scope="module")
def block(any_block_folder: Path) -> Path:
    return any_block_folder


@pytest.fixture(scope="module")
def saved(block: Path) -> Run:
    return run("03_amm_versus_orderbook.ipynb", recording=str(block))


def test_saved_fills_are_counted_once_and_no_taker_is_wrong(block: Path, saved: Run) -> None:
    facts = settled_of(block)
    numbers = {number for number, _ in facts}
    rows, fills, taken = saved.numbers("# rows are # fills; the taker's side is known and read for #.")
    assert (rows, fills) == (len(facts), len(numbers))
    found = saved.names["taken"]
    assert len(found) == taken
    makers = [facts[row.trade_id, row.side]["fee_bips"] == 0 for row in found.itertuples()]
    assert not any(makers)


def test_saved_fills_that_cannot_tell_are_undecided_and_own_trades_are_named(saved: Run) -> None:
    (sentence,) = [line for line in saved.text.splitlines() if "Undecided" in line or "cheaper" in line]
    assert sentence.startswith("Undecided: ")
    compared = saved.names["compared"].iloc[0]
    if compared["fills"]:
        assert (
            "own trades: an interval covers sampling only, and the difference is pulled towards 0" in sentence
        )
        assert saved.numbers("over # fills of # orders, ") == [compared["fills"], compared["orders"]]


def test_saved_fees_are_described_as_they_were_charged(block: Path) -> None:
    facts = settled_of(block)
    counts = Counter(fact["account_id"] for fact in facts.values())
    (account, count), *_ = [(a, n) for a, n in counts.most_common() if a > 1000]
    found = run("02_fee_analysis.ipynb", recording=str(block), account_id=account, schedule=[{"bps": 9}])
    assert f"account {account}: {count} fills" in found.text
    true = [fact for fact in facts.values() if fact["account_id"] == account and fact["fee_bips"] > 9]
    above, of = found.numbers("# of # fills were charged above the schedule.")
    assert of == count
    assert above <= len(true)
    keys = {(row.trade_id, row.side) for row in found.names["found"].itertuples() if row.verdict == "above"}
    assert keys <= {(int(fact["id"]), fact["side"]) for fact in true}
    priced, count = found.numbers("Fees of # of # fills: ")
    assert count - priced == found.names["valued"]["unpriced"].sum()


def test_sentences_with_results_are_in_code_and_not_in_prose() -> None:
    for path in sorted(NOTEBOOKS.glob("0[1235]*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "markdown":
                assert "in the demo data" not in "".join(cell["source"]).lower(), path.name
