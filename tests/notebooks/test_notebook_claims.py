"""Notebooks on other worlds, on real fills and on a single one: each sentence is true of what was read."""

import ast
import contextlib
import functools
import inspect
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import nbformat
import pandas as pd
import pytest
from support.comparison import (
    VENUES,
    Comparison,
    closes_after,
    comparison_of,
    orders_of,
)
from support.settled_block import settled_of
from support.settled_world import SettledWorld
from support.worlds import true_costs, true_orders, true_overlap, values_of

import loopring_lab as lab
from loopring_lab.relayer import Relayer
from loopring_lab.relayer.mainnet import MARKETS
from loopring_lab.relayer.world import Fill, World

pytestmark = [pytest.mark.contract, pytest.mark.thorough]

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
EACH_NOTEBOOK = pytest.mark.parametrize(
    "path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name
)
DAYS = 30
DAY = 86_400_000
FEE = 6  # its place in a row as the relayer sends it
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
            exec(
                compile(
                    ast.Module(statements if shown else [*statements, last], []),
                    name,
                    "exec",
                ),
                names,
            )
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), name, "eval"), names)
                # A notebook shows text as it is, and looks at anything else.
                repr(value)
                if isinstance(value, str):
                    print(value)
    return Run(printed.getvalue(), names)


# Worlds whose truth is known


# Where arbitrageurs take the book as well, no account can be left out for having used one venue only.
WORLDS = {
    "seed 2": World(2, 0.3, book_arbitrage=True),
    "seed 3": World(3, 0.3),
    "neither": World(5, 0.3, "neither", book_arbitrage=True),
    "cheaper book": World(4, 0.3, "book", book_arbitrage=True),
}


@pytest.fixture(
    scope="module",
    params=WORLDS,
)
def world(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param]


@contextlib.contextmanager
def served(world: World) -> Iterator[str]:
    """Serve a world, and let `lab.connect` read it with its key and at any rate."""
    with Relayer(world=world) as relayer, pytest.MonkeyPatch.context() as patch:
        options = {"api_key": relayer.api_key, "rate": 10_000.0}
        patch.setattr(lab, "connect", functools.partial(lab.connect, **options))
        # Notebook 05 starts a process that reads as well.
        patch.setenv("LOOPRING_API_KEY", relayer.api_key[:])
        yield relayer.base_url


@pytest.fixture(scope="module")
def venues(world: World) -> Run:
    with served(world) as address:
        accounts = sorted(accounts_of(world))
        return run(
            "03_amm_versus_orderbook.ipynb",
            base_url=address,
            accounts=accounts,
            days=DAYS,
        )


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


def compared(world: World, venues: Run) -> list[Fill]:
    """Return the fills that the notebook takes for users'."""
    numbers = set(venues.names["users"]["trade_id"])
    return [fill for fill in taken(world) if fill.id in numbers]


def test_fills_are_counted_once_and_by_their_takers(world, venues):
    accounts = accounts_of(world)
    fills = read(world)
    rows = sum((fill.taker in accounts) + (fill.maker in accounts) for fill in fills)
    said = venues.numbers(
        "# rows are # fills; the taker's side is known and read for #."
    )
    assert said == [rows, len(fills), len(taken(world))]


def test_those_compared_are_users_and_nearly_all_of_them(world, venues):
    fills = compared(world, venues)
    said = venues.numbers("# fills of # accounts are compared, those of users.")
    assert said == [len(fills), len({fill.taker for fill in fills})]
    assert not {fill.taker for fill in fills} & set(world.arbitrageurs)
    users = [fill for fill in taken(world) if fill.taker not in world.arbitrageurs]
    assert len(fills) > 0.95 * len(users)


def true_orders_of(world: World, fills: list[Fill]) -> pd.DataFrame:
    numbers = {fill.id for fill in fills}
    return true_orders(cost for cost in true_costs(world) if cost.fill.id in numbers)


def test_the_verdict_is_the_true_one_and_rests_on_outside_prices(world, venues):
    truth = true_overlap(true_orders_of(world, compared(world, venues)))
    sentence = next(
        line for line in venues.text.splitlines() if "pool minus book" in line
    )
    row = venues.names["compared"].iloc[0]
    low = row["low_bps"]
    high = row["high_bps"]
    assert low < truth < high
    if sentence.startswith("Undecided: "):
        weighted = (row["pool_weighted_bps"], row["book_weighted_bps"])
        assert low < 0 < high or min(weighted) < 0 < max(weighted)
    else:
        assert world.cheaper != "neither"
        assert sentence.startswith(
            "The pool is cheaper: " if truth < 0 else "The order book is cheaper: "
        )
    said = f"pool minus book is {row['difference_bps']:.1f} bps (interval {low:.1f} to {high:.1f})"
    assert said in sentence
    assert "own trades" not in venues.text
    assert set(venues.names["moved"]["reference"]) == {"outside prices"}


def test_classes_of_takers_are_shown_beside_each_other(world, venues):
    rows = venues.names["together"].set_index("flow")
    known = venues.names["taken"].set_index("trade_id")["flow"].to_dict()
    fills = [fill for fill in taken(world) if fill.id in known]
    assert len(fills) == len(known)
    assert set(rows.index) == {"all takers", "user", "arbitrage"}
    for name, row in rows.iterrows():
        if row["fills"] and pd.notna(row["low_bps"]):
            own = [fill for fill in fills if name in ("all takers", known[fill.id])]
            assert (
                row["low_bps"]
                < true_overlap(true_orders_of(world, own))
                < row["high_bps"]
            )
    # The line of users is the headline.
    headline = venues.names["compared"].iloc[0]
    for name in ("difference_bps", "low_bps", "high_bps", "verdict"):
        assert rows.loc["user", name] == headline[name]


# Sentences of `describe`, with the names of their numbers. Below each verdict, every line must be one of these.
VERDICTS = {
    "The pool is cheaper": "pool",
    "The order book is cheaper": "book",
    "Undecided": "undecided",
}
HEADLINE = re.compile(
    rf"^({'|'.join(VERDICTS)}): pool minus book is {NUMBER} bps \(interval {NUMBER} to {NUMBER}\), fee and price "
    rf"together, over {NUMBER} orders of {NUMBER} accounts\.$"
)
DETAILS = {
    "shares": rf"Compared are orders that share (.+): {NUMBER}% of the value that takers traded at the pool, and "
    rf"{NUMBER}% of that on the book\.( Match more coarsely, such as by month\.)?",
    "times": r"Within a (\w+), orders at both venues are assumed to come at equally costly times(; match by \w+ to drop "
    r"that)?\.",
    "weighted": rf"Weighted as those who used the pool traded, the difference is {NUMBER} bps; as those who used the "
    rf"book, {NUMBER} bps\.( The signs differ, so which venue is cheaper depends on who asks, and the verdict is "
    r"undecided\.)?",
    "level": rf"The interval is as wide as (\w+)s vary \({NUMBER} \w+s at the venue that has fewer\)\.",
    "enough": rf"Were the true difference {NUMBER} bps, about {NUMBER} orders of {NUMBER} (\w+)s like these would have "
    r"an even chance of a verdict\.",
    "hopeless": r"The difference is so near to 0 that (100) times as many orders would hardly decide it\.",
    "arbitrage": rf"Arbitrage, of all trades: {NUMBER} accounts? with {NUMBER}% of the value at the pool and {NUMBER} "
    rf"accounts? with {NUMBER}% of the value at the book\.",
}


def said_by(text: str) -> list[dict[str, tuple[str, ...]]]:
    """Return the sentences of each comparison with what they have in their places."""
    found: list[dict[str, tuple[str, ...]]] = []
    for line in text.splitlines():
        if headline := HEADLINE.match(line):
            found.append({"headline": headline.groups(default="")})
        elif line.startswith("- ") and found:
            matches = {
                name: re.fullmatch(pattern, line.removeprefix("- "))
                for name, pattern in DETAILS.items()
            }
            ((name, match),) = [(k, one) for k, one in matches.items() if one]
            assert name not in found[-1]
            found[-1][name] = match.groups(default="")
    return found


def number(text: str) -> float:
    return float(text.replace(",", ""))


def assert_said(said: dict[str, tuple[str, ...]], true: Comparison, cell: str) -> None:
    """Compare sentences with what was computed beside: as many digits as are written."""
    verdict, *numbers = said["headline"]
    bps = [true.difference, true.low, true.high]
    assert [number(text) for text in numbers] == [
        *(pytest.approx(one, abs=0.051) for one in bps),
        true.orders,
        true.accounts,
    ]
    signs = {one > 0 for one in (true.difference, *true.weighted.values())}
    is_sure = not true.low < 0 < true.high
    cheaper = "pool" if true.difference < 0 else "book"
    expected = cheaper if is_sure and len(signs) == 1 else "undecided"
    assert VERDICTS[verdict] == expected
    shared, pool, book, coarser = said["shares"]
    assert shared == cell
    shares = [100 * true.shares["amm"], 100 * true.shares["dex"]]
    assert [number(pool), number(book)] == pytest.approx(shares, abs=0.51)
    if min(shares) < 50:
        # A month is the coarsest.
        assert bool(coarser) == ("week" in cell)
    assert said["times"][0] in cell
    assert bool(said["times"][1]) == (min(shares) >= 50)
    pool, book, differ = said["weighted"]
    weighted = [true.weighted["amm"], true.weighted["dex"]]
    assert [number(pool), number(book)] == pytest.approx(weighted, abs=0.051)
    assert bool(differ) == (len(signs) > 1)
    level, clusters = said["level"]
    assert (level, number(clusters)) == (true.cluster, true.clusters)
    times = ((true.high - true.difference) / true.difference) ** 2
    assert ("enough" in said) == (1 < times <= 100 and len(signs) == 1)
    assert ("hopeless" in said) == (times > 100 and len(signs) == 1)
    if "enough" in said:
        _, orders, clusters, level = said["enough"]
        assert level == true.cluster
        assert number(orders) == pytest.approx(times * true.orders, rel=0.051)
        assert number(clusters) == pytest.approx(times * true.clusters, rel=0.051)


def orders_beside(venues: Run, name: str, part: str = "all_in") -> pd.DataFrame:
    """Return the orders of a frame of the notebook's, with costs computed from its closes."""
    takers = venues.names[name].reset_index(drop=True)
    closes = closes_after(takers, venues.names["reference"])
    values = values_of(takers).reindex(takers["trade_id"])
    return orders_of(takers, closes, values, part)


USUAL = ["market", "side", "size_class", "week"]


def test_every_sentence_about_users_is_what_their_orders_say(world, venues):
    orders = orders_beside(venues, "users")
    headline, own = said_by(venues.text)
    assert_said(headline, comparison_of(orders, USUAL), "market, side, size and week")
    same_people = comparison_of(orders, ["market", "side", "account", "month"])
    assert_said(own, same_people, "market, side, account and month")


def test_the_share_of_arbitrage_is_that_of_the_world_s_arbitrageurs(world, venues):
    taken = venues.names["taken"]
    values = values_of(taken).reindex(taken["trade_id"]).to_numpy()
    is_arbitrage = taken["account_id"].isin(world.arbitrageurs).to_numpy()
    expected = []
    for venue in VENUES:
        is_venue = (taken["fill_type"] == venue).to_numpy()
        both = is_venue & is_arbitrage
        expected.append(taken.loc[both, "account_id"].nunique())
        expected.append(100 * values[both].sum() / values[is_venue].sum())
    for said in said_by(venues.text):
        numbers = [number(text) for text in said["arbitrage"]]
        assert numbers == pytest.approx(expected, abs=0.51)


def test_lines_of_all_takers_and_of_users_are_what_their_orders_say(venues):
    rows = venues.names["together"].set_index("flow")
    for line, name in (("all takers", "taken"), ("user", "users")):
        true = comparison_of(orders_beside(venues, name), USUAL)
        row = rows.loc[line]
        assert row["difference_bps"] == pytest.approx(true.difference, rel=1e-9)
        assert row["low_bps"] == pytest.approx(true.low, rel=1e-4)
        assert row["high_bps"] == pytest.approx(true.high, rel=1e-4)
        assert row["accounts"] == true.accounts


def test_the_price_s_part_of_the_cost_is_what_orders_say(venues):
    parts = venues.names["parts"].set_index("part")["difference_bps"]
    price = comparison_of(orders_beside(venues, "users", "price"), USUAL)
    assert parts["price"] == pytest.approx(price.difference, rel=1e-9)
    assert parts["realized"] == pytest.approx(price.difference, rel=1e-9)
    whole = comparison_of(orders_beside(venues, "users"), USUAL).difference
    assert parts["fee"] == pytest.approx(whole - price.difference, rel=1e-6)
    assert parts["effective"] == pytest.approx(parts["realized"] + parts["impact"])


def test_costs_of_orders_are_shown_for_each_venue(venues):
    users = venues.names["users"]
    counts = users.groupby("fill_type", observed=True)["order_hash"].nunique()
    shown = venues.names["short"].set_index("fill_type")["orders"]
    assert shown.to_dict() == counts.to_dict()


def test_without_balances_no_quote_is_made_up(venues):
    assert (
        "What pools held is not known here, so orders on the book have no quotes"
        in venues.text
    )
    assert "opportunity cost" not in venues.text


def test_the_orders_compared_are_those_with_a_counterpart(world, venues):
    orders = true_orders_of(world, compared(world, venues))
    both = orders[orders["is_matched"]]
    said = f"over {len(both):,} orders of {both['account'].nunique():,} accounts."
    assert said in venues.text
    # Values are dollars here, and what a quote token is worth on its day there.
    row = venues.names["compared"].iloc[0]
    values = both.groupby("venue")["dollars"].sum()
    shares = values / orders.groupby("venue")["dollars"].sum()
    assert row["pool_matched_share"] == pytest.approx(shares["amm"], abs=0.03)
    assert row["book_matched_share"] == pytest.approx(shares["dex"], abs=0.03)


def test_orders_in_parts_are_counted(world, venues):
    parts = Counter(fill.taker_hash for fill in compared(world, venues))
    said = venues.numbers("# of # orders were filled in several parts.")
    assert said == [sum(1 for count in parts.values() if count > 1), len(parts)]


def test_an_account_s_fills_are_counted(world, fees):
    mine = [f for f in world.fills if 10083 in (f.taker, f.maker)]
    assert fees.text.startswith(f"account 10083: {len(mine):,} fills, fees valued in ")


def charged(fill: Fill) -> tuple[str, int, int]:
    """Return the fee token, the fee and the amount it was charged on of a fill of the account, as its taker."""
    market = MARKETS[fill.market]
    bought = fill.side == "BUY"
    return (
        (market.base if bought else market.quote).symbol,
        fill.fee,
        fill.size if bought else fill.quote,
    )


def test_rates_by_amount_and_by_fill_are_those_of_the_most_frequent_fee_token(
    world, fees
):
    (token,) = re.findall(r"Fees paid in (\w+) \(", fees.text)
    rows = [f for f in world.fills if f.taker == 10083 and charged(f)[0] == token]
    rows_made = [f for f in world.fills if f.maker == 10083]
    made = [
        f
        for f in rows_made
        if (
            MARKETS[f.market].quote if f.side == "BUY" else MARKETS[f.market].base
        ).symbol
        == token
    ]
    received = sum(charged(f)[2] for f in rows) + sum(
        f.quote if f.side == "BUY" else f.size for f in made
    )
    rate = 10_000 * sum(f.fee for f in rows) / received
    middle = median([float(f.fee_bps) for f in rows] + [0.0] * len(made))
    said = fees.numbers(
        f"Fees paid in {token} (# of # fills): # bps by amount, # bps for the median fill."
    )
    counts = [len(rows) + len(made), len(fees.names["trades"])]
    rates = [pytest.approx(rate, abs=0.01), pytest.approx(middle, abs=0.05)]
    assert said == counts + rates


def test_the_value_of_all_fees_is_as_near_to_the_truth_as_is_said(world, fees):
    token = fees.names["token"]
    truth = Fraction(0)
    for fill in world.fills:
        if fill.taker == 10083:
            market = MARKETS[fill.market]
            paid = market.base if fill.side == "BUY" else market.quote
            price = Fraction(
                world.latent_dollars(paid.symbol, fill.time_ms),
                world.latent_dollars(token, fill.time_ms),
            )
            truth += Fraction(fill.fee, 10**paid.decimals) * price
    priced, count, worth, within = fees.numbers(
        f"Fees of # of # fills: # {token}, within # bps."
    )
    assert priced == count
    assert abs(worth / float(truth) - 1) * 10_000 < max(within, 1) < 20


def test_fills_above_the_schedule_are_the_true_ones(world, fees):
    mine = [f for f in world.fills if 10083 in (f.taker, f.maker)]
    above = [
        f
        for f in mine
        if f.taker == 10083 and f.fee_bps > (9 if f.venue == "amm" else 22)
    ]
    (found, count) = fees.numbers("# of # fills were charged above the schedule.")
    assert count == len(mine)
    assert (
        0.98 * len(above) <= found <= len(above)
    )  # truncated prices hide a few small ones
    assert {f.id for f in above} >= set(
        fees.names["found"].query("verdict == 'above'")["trade_id"]
    )
    assert fees.numbers("# cannot be judged.") == [0]


# Saved responses of real fills, and of made ones in their place


@pytest.fixture(scope="module")
def block(any_block_folder: Path) -> Path:
    return any_block_folder


@pytest.fixture(scope="module")
def saved(block: Path) -> Run:
    return run("03_amm_versus_orderbook.ipynb", recording=str(block))


def test_saved_fills_are_counted_once_and_no_taker_is_wrong(block, saved):
    facts = settled_of(block)
    numbers = {number for number, _ in facts}
    rows, fills, taken = saved.numbers(
        "# rows are # fills; the taker's side is known and read for #."
    )
    assert (rows, fills) == (len(facts), len(numbers))
    found = saved.names["taken"]
    assert len(found) == taken
    makers = [
        facts[row.trade_id, row.side]["fee_bips"] == 0 for row in found.itertuples()
    ]
    assert not any(makers)


def test_saved_fills_that_cannot_tell_are_undecided_and_own_trades_are_named(
    block, saved
):
    sentence, *_ = [
        line
        for line in saved.text.splitlines()
        if line.startswith("Undecided") or "is cheaper: " in line
        if "opportunity cost" not in line
    ]
    assert sentence.startswith("Undecided: ")
    compared = saved.names["compared"].iloc[0]
    if compared["fills"]:
        assert (
            "own trades: an interval covers sampling only, and the difference is pulled towards 0"
            in saved.text
        )
        # The accounts that used both venues are compared below in the same words.
        headline = Run(sentence, {})
        assert headline.numbers("price together, over # orders of # ")[:2] == [
            compared["orders"],
            compared["accounts"],
        ]
    # Without prices from outside, arbitrage is not told apart, and nothing is said of users.
    takers = {
        number: fact["account_id"]
        for (number, _), fact in settled_of(block).items()
        if fact["fee_bips"]
    }
    said = (
        "# fills of # accounts are compared, those of all takers, arbitrage included."
    )
    assert saved.numbers(said) == [len(takers), len(set(takers.values()))]
    assert "those of users" not in saved.text
    assert "Arbitrage, of all trades" not in saved.text
    assert set(saved.names["together"]["flow"]) == {"all takers"}
    assert "What pools held is not known here" in saved.text


def test_saved_fees_are_described_as_they_were_charged(block):
    facts = settled_of(block)
    counts = Counter(fact["account_id"] for fact in facts.values())
    (account, count), *_ = [(a, n) for a, n in counts.most_common() if a > 1000]
    found = run(
        "02_fee_analysis.ipynb",
        recording=str(block),
        account_id=account,
        schedule=[{"bps": 9}],
    )
    assert f"account {account}: {count} fills" in found.text
    true = [
        fact
        for fact in facts.values()
        if fact["account_id"] == account and fact["fee_bips"] > 9
    ]
    above, of = found.numbers("# of # fills were charged above the schedule.")
    assert of == count
    assert above <= len(true)
    keys = {
        (row.trade_id, row.side)
        for row in found.names["found"].itertuples()
        if row.verdict == "above"
    }
    assert keys <= {(int(fact["id"]), fact["side"]) for fact in true}
    priced, count = found.numbers("Fees of # of # fills: ")
    assert count - priced == found.names["valued"]["unpriced"].sum()


# Copies on a recording, on another seed, and on an account with one fill


@pytest.fixture(scope="module")
def one_fill(block: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved responses of one account with one fill, which paid a fee, as takers do."""
    folder = tmp_path_factory.mktemp("one")
    (folder / "trades").mkdir()
    for name in ("tokens.json", "markets.json"):
        shutil.copy(block / name, folder)
    sources = sorted((block / "trades").glob("[0-9]*-dex.json"))
    rows = (
        (source.name, row)
        for source in sources
        for row in json.loads(source.read_text())["trades"]
    )
    name, paid = next((name, row) for name, row in rows if row[FEE] != "0")
    (folder / "trades" / name).write_text(json.dumps({"totalNum": 1, "trades": [paid]}))
    return folder


@pytest.mark.parametrize(
    "source",
    ["recording", "seed 7", "one fill"],
)
def test_copies_say_what_the_library_computes(source, block, one_fill):
    with contextlib.ExitStack() as stack:
        folder = {"recording": block, "one fill": one_fill}.get(source)
        if folder is None:
            place = {"base_url": stack.enter_context(served(World(7, 0.1)))}
            account = 10083
        else:
            place = {"recording": str(folder)}
            account = min(
                int(path.name.partition("-")[0])
                for path in (folder / "trades").glob("*-dex.json")
            )
        client = lab.connect(**place)
        trades = client.trades(account)
        outside = client.outside_prices(trades)
        first = run("01_first_look.ipynb", **place, account_id=account).text
        fees = run("02_fee_analysis.ipynb", **place, account_id=account).text
        venues = run("03_amm_versus_orderbook.ipynb", **place, accounts=[account]).text
    token = trades["fee_token"].mode()[0]
    exact = lab.amounts.total(trades, "fee", token=token)
    assert f"exact: {exact} {token}\n" in first
    assert f"{len(lab.anomalies(trades))} odd rows of {len(trades):,}\n" in first
    assert (
        f"account {account}: {len(trades):,} fills, fees valued in {trades['quote'].mode()[0]}\n"
        in fees
    )
    schedule = [{"fill_type": "amm", "bps": 10}, {"bps": 30}]
    verdicts = lab.fees.schedule_check(lab.fills.with_roles(trades), schedule)[
        "verdict"
    ].tolist()
    assert (
        f"{verdicts.count('above'):,} of {len(trades):,} fills were charged above the schedule."
        in fees
    )
    assert f"{verdicts.count('unknown'):,} cannot be judged." in fees
    newest = trades[
        trades["created_at"] > trades["created_at"].max() - pd.Timedelta(days=60)
    ]
    once = lab.fills.one_side(lab.fills.with_roles(newest))
    taken = once[once["role"] == "taker"]
    side = f"the taker's side is known and read for {len(taken):,}."
    assert f"{len(newest):,} rows are {len(once):,} fills; {side}" in venues
    users = taken
    # Recorded responses come without prices from outside, so that all takers are compared.
    if folder is None:
        judged = lab.research.with_flow(taken, outside)
        users = judged[judged["flow"] == "user"]
    accounts = users["account_id"].nunique()
    whose = "users" if folder is None else "all takers, arbitrage included"
    said = (
        f"{len(users):,} fills of {accounts:,} accounts are compared, those of {whose}."
    )
    assert said in venues
    assert "What pools held is not known here" in venues
    if source == "one fill":
        assert len(trades) == 1
        assert (
            "Undecided: no orders of both venues with a known cost share market, side, size and week."
            in venues
        )


@pytest.mark.parametrize("name", ["01_first_look", "02_fee_analysis"])
def test_an_account_without_trades_is_said(name):
    with pytest.raises(
        AssertionError, match="no trades of account 70003: take another"
    ):
        run(f"{name}.ipynb", account_id=70003)


def test_accounts_without_trades_are_said():
    with pytest.raises(
        AssertionError, match="no trades of these accounts: take others"
    ):
        run("03_amm_versus_orderbook.ipynb", accounts=[70003, 70004])


def test_a_row_without_a_time_does_not_hide_the_newest_trade():
    """Of account 70002 the row that is listed last has no time."""
    trades = lab.connect().trades(70002)
    ages = trades["created_at"].max() - trades["created_at"]
    rows = (ages <= pd.Timedelta(days=60)).sum() + ages.isna().sum()
    assert ages.isna().sum() == 1
    found = run("03_amm_versus_orderbook.ipynb", accounts=[70002])
    assert f"{rows} rows are {rows} fills;" in found.text


RESULT = re.compile(
    r"\d[\d,.]* ?(?:%|bps\b|basis points|fills\b|trades\b|rows\b)"
    r"|\b(?:most|few|all|none) (?:of the )?(?:fills|trades) (?:are|were|went|go|paid|pay)\b"
    r"|\b(?:pool|AMM|book)s? (?:is|was|are|were|costs?) (?:the )?(?:cheap|better|worse|more|less|large|small)\w*",
    re.IGNORECASE,
)


@EACH_NOTEBOOK
def test_prose_explains_methods_and_states_no_result(path):
    """Text that is the same over any data holds no number of fills and no verdict on a venue."""
    cells = nbformat.read(path, as_version=4).cells
    assert (
        RESULT.findall(
            "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        )
        == []
    )


def parameters_and_code(path: Path) -> tuple[set[str], str]:
    first, *rest = (
        cell.source
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "code"
    )
    return {
        target.id for node in ast.parse(first).body for target in node.targets
    }, "\n".join(rest)


@EACH_NOTEBOOK
def test_every_parameter_is_used(path):
    names, code = parameters_and_code(path)
    used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
    in_queries = set(re.findall(r"@(\w+)", code))
    assert names - used - in_queries == set()


LEFT_OUT = {  # on purpose: fees in their own tokens, tiers of the whole time, a choice, the demo's world, a stranger
    ("lab.figures.fees_by_token(trades)", "prices"),
    ("lab.fees.tiers(trades, by=['fill_type', 'role'], tokens=tokens)", "every"),
    ("lab.widgets.FillExplorer(taken)", "prices"),
    ("lab.connect(blocks='demo')", "base_url"),
    ("lab.connect(blocks='demo')", "recording"),
    ("lab.connect()", "base_url"),
    ("lab.connect()", "recording"),
    ("lab.connect()", "blocks"),
    (
        "lab.KeyUpdate.prepare(client, account_id=stranger_id, signer=stranger, valid_for=until)",
        "fee_token",
    ),
}


@EACH_NOTEBOOK
def test_a_parameter_reaches_every_call_that_takes_one_of_its_name(path):
    """A figure with another tolerance than the table above it would show other fills."""
    names, code = parameters_and_code(path)
    nodes = list(ast.walk(ast.parse(code)))
    aliases = {
        ast.unparse(node.targets[0]): node.value
        for node in nodes
        if isinstance(node, ast.Assign)
    }
    missing = set()
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        function = ast.unparse(aliases.get(ast.unparse(call.func), call.func))
        if re.fullmatch(r"lab(\.\w+)+", function) and not any(
            "*" in ast.unparse(a) for a in call.args
        ):
            signature = inspect.signature(eval(function, {"lab": lab}))
            given = {keyword.arg: keyword for keyword in call.keywords if keyword.arg}
            bound = signature.bind_partial(*call.args, **given).arguments
            if len(given) == len(call.keywords):
                left_out = (names & signature.parameters.keys()) - bound.keys()
                missing |= {(ast.unparse(call), name) for name in left_out}
    assert missing - LEFT_OUT == set()


# Notebooks on key updates, archives and blocks, with other data


@pytest.mark.parametrize(
    ("account", "token", "until"),
    [
        (10083, "LRC", "2031-06-01T00:00:00+00:00"),
        (11375, "USDC", "2040-02-29T12:00:00+00:00"),
    ],
)
def test_another_account_is_taken_through_an_update(account, token, until):
    found = run(
        "04_key_update.ipynb", account_id=account, fee_token=token, valid_until=until
    )
    names = found.names
    lines = found.text.splitlines()
    world = World(size=0.01)
    count = sum(account in (fill.taker, fill.maker) for fill in world.fills)
    assert found.text.count(f"<hidden> reads {count} trades\n") == 2
    states = re.findall(r"^(\w+) +frozen: (\w+)$", found.text, re.MULTILINE)
    assert states == [
        ("processing", "True"),
        ("processed", "False"),
    ]
    said = " ".join(lines)
    a_day_later = datetime.fromisoformat(until) + timedelta(days=1)
    for refusal in (
        "invalid api key",
        "the account's L2 key did not sign",
        "nonce: expected the account's, 2, got 1",
        f"validUntil: must be later than now, {a_day_later:%Y-%m-%d %H:%M:%S} UTC",
        "does not sign for this account",
        "invalid ECDSA signature",
        "asks for 5,000 ETH for a key update",
        "The new key is not known before the key seed is signed",
        "Account 70005 is owned by a contract",
        "The account cannot pay this fee",
    ):
        assert said.count(refusal) == 1, refusal
    assert "nonce 3\n" in found.text
    assert (
        len(set(re.findall(r"^(?:computed|owner): +(\w+)$", found.text, re.MULTILINE)))
        == 1
    )
    assert "has the new key: True\n" in found.text
    assert "'' -> with key nonce: 0 -> True\n" in found.text
    assert names["data"]["message"]["feeTokenID"] == {"LRC": 1, "USDC": 6}[token]


@pytest.mark.parametrize("source", ["recording", "seed 7", "one fill"])
def test_an_archive_says_what_it_holds(source, block, one_fill):
    with contextlib.ExitStack() as stack:
        folder = {"recording": block, "one fill": one_fill}.get(source)
        if folder is None:
            place = {"base_url": stack.enter_context(served(World(7, 0.3)))}
            accounts = [11519, 10083]
        else:
            place = {"recording": str(folder)}
            names = (
                path.name.partition("-")[0]
                for path in (folder / "trades").glob("*-dex.json")
            )
            accounts = sorted({int(name) for name in names})[:2]
        found = run("05_archive_and_scale.ipynb", **place, accounts=accounts)
        counts = [lab.connect(**place).count(account) for account in accounts]
    lines = found.text.splitlines()
    stopped = {"recording": False, "seed 7": True, "one fill": False}[source]
    assert ("interrupted" in lines) is stopped
    assert ("complete before it could be interrupted" in lines) is not stopped
    for said in (
        "rows added: 0",
        "changed trades: 0",
        "damaged tables: 0",
        "rows lost: 0",
        f"rows added meanwhile: {stopped}",
        f"True {counts[0]:,} trades",
    ):
        assert lines.count(said) == 1, said
    assert [line for line in lines if "the same digits" in line] == [
        "The archive gives the same digits: True",
        "The files give the same digits: True",
    ]
    assert found.names["report"]["rows"].sum() == sum(counts)
    assert found.names["with_pandas"]["fills"].sum() == sum(counts)


def test_a_block_of_one_fill_is_described_as_it_is(tmp_path, monkeypatch):
    with Relayer(world=SettledWorld(7, 0.1)) as relayer:
        monkeypatch.setenv("LOOPRING_RPC_URL", relayer.rpc_url)
        store = lab.rollup.Store(tmp_path / "blocks")
        store.sync(to_block=11_365_814, progress=False)
        ids = Counter(store.blocks().fills()["block_id"])
        alone = min(number for number, count in ids.items() if count == 1)
        found = run(
            "06_real_trades.ipynb",
            blocks=str(tmp_path / "blocks"),
            numbers=[alone, alone],
            fewest=1,
        )
    (fill,) = store.blocks(alone, alone).table("spot_trade").to_pylist()
    at_pool = fill["account_b"] in World(7, 0.1).pools.values()
    assert found.numbers(
        "# fills, # of them at a pool; the maker paid no fee in #."
    ) == [1, at_pool, fill["fee_b"] == 0]
    assert found.numbers(
        "market, side, size: # fills fit one taker only, of # takers."
    ) == [1, 1]
    assert found.numbers(
        "# of # markets are left out: they have fewer than # takers."
    ) == [0, 1, 1]
    assert (
        "Undecided: no orders of both venues with a known cost share market, side, size and week."
        in found.text
    )
    assert found.numbers("# comparisons, # of them wrong; # not possible.")[1] == 0
