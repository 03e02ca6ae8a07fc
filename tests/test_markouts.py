"""Prices before and after fills: which one is taken, markouts, shortfall, and the world's truth."""

import random
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from support import oracle
from support.engines import from_arrow, on, result_rows
from support.trade_histories import assert_refused, frame_of, histories
from support.wire_rows import page, read, row
from support.worlds import minute_marks, trades_of, true_markouts, values_of

import loopring_lab as lab
from loopring_lab.amounts.scaling import to_integers
from loopring_lab.engines import asof, convert, limits, portable, windows
from loopring_lab.relayer import World

UNIT = 10**18
SECOND = 1000
MARKET = {"market": "ETH-USDT", "size": str(UNIT), "tokenId": "0", "feeAmount": "0", "side": "SELL"}


def trades(*rows: dict[str, Any], first: int = 0) -> pd.DataFrame:
    """Read fills of one ETH; each has its own id, from `first` on, and order unless it names others."""
    own = [{"id": str(n), "orderHash": f"0x{n}", "blockId": "0"} for n in range(first, first + len(rows))]
    return read([page([row(**MARKET | mine | given) for mine, given in zip(own, rows, strict=True)])])


def fill(moment: int, price: str, **members: Any) -> dict[str, Any]:
    return {"createdAt": str(moment), "price": price} | members


def references(frame: Any) -> list[int | None]:
    return [line["reference_price"] and line["reference_price"] // UNIT for line in result_rows(frame)]


# Which price is taken


def test_no_fill_is_priced_by_itself_its_other_side_or_its_order() -> None:
    both = trades(
        fill(1000, "90"),
        fill(2000, "100", id="7", orderHash="0xa"),
        fill(2000, "100", id="7", orderHash="0xb", side="BUY"),
        fill(3000, "101", id="8", orderHash="0xa"),
        fill(3000, "101", id="8", orderHash="0xc", side="BUY"),
        fill(4000, "95"),
    )
    found = lab.fills.all_in_cost(both, both)
    expected = {
        (7, "SELL"): 90,
        (7, "BUY"): 90,
        (8, "SELL"): 90,
        (8, "BUY"): 100,
        (0, "SELL"): None,
        (5, "SELL"): 101,
    }
    assert (
        dict(zip(zip(found["trade_id"], found["side"], strict=True), references(found), strict=True))
        == expected
    )
    of_order = both["order_hash"] == "0xa"
    mine, others = both[of_order], both[~of_order]
    assert references(lab.fills.all_in_cost(mine, both)) == [90, 90]
    assert references(lab.fills.all_in_cost(mine, others)) == [90, 90]  # the other sides are all there is
    thin = both[["created_at", "market", "price"]]  # moment and price say whose they are
    assert references(lab.fills.all_in_cost(mine, thin)) == [90, 90]
    marks = thin.assign(created_at=thin["created_at"] - pd.Timedelta(1, "ms"))
    assert references(lab.fills.all_in_cost(mine, marks)) == [100, 101]


def test_of_several_trades_in_a_millisecond_the_first_comes_next_whatever_the_order_of_rows() -> None:
    at_once = [
        fill(2000, "103", id="40", blockId="9", indexInBlock="3"),
        fill(2000, "104", id="41"),  # of an unknown block: after the known ones
        fill(2000, "101", id="42", blockId="8", indexInBlock="7"),
        fill(2000, "102", id="43", blockId="9", indexInBlock="2"),
    ]
    for mixed in (at_once, at_once[::-1], at_once[2:] + at_once[:2]):
        frame = trades(fill(1000, "90"), *mixed, fill(3000, "99", id="50"))
        assert references(lab.fills.all_in_cost(frame))[0] == 101
        assert references(lab.fills.all_in_cost(frame, "last"))[-1] == 104


def test_a_wider_frame_shows_the_market_s_next_trade() -> None:
    mine = trades(fill(1000, "90"), fill(9000, "95"))
    market = pd.concat([mine, trades(fill(500, "80"), fill(2000, "91"), fill(8000, "94"), first=10)])
    assert references(lab.fills.all_in_cost(mine)) == [95, None]
    assert references(lab.fills.all_in_cost(mine, prices=market)) == [91, None]
    assert references(lab.fills.all_in_cost(mine, "last", prices=market)) == [80, 94]
    book = trades(fill(8500, "93", id="77")).assign(fill_type="dex")
    found = lab.fills.price_gap(mine.assign(fill_type="amm"), prices=book)
    assert [value // UNIT if value else None for value in result_rows_of(found, "other_price")] == [None, 93]


def result_rows_of(frame: Any, name: str) -> list[Any]:
    return [line[name] for line in result_rows(frame)]


def test_a_price_of_zero_is_unknown() -> None:
    frame = trades(fill(1000, "90"), fill(2000, "0"), fill(3000, "91"))
    found = lab.fills.all_in_cost(frame)
    assert references(found) == [91, 91, None]
    assert found["price_bps"].isna().tolist() == [False, True, True]


KEYS = st.sampled_from(["A", "B", None])
KNOWN = st.fixed_dictionaries(
    {
        "moment": st.one_of(st.none(), st.integers(0, 6)), "market": KEYS,
        "trade_id": st.one_of(st.none(), st.integers(0, 4)),
        "order_hash": st.sampled_from(["0xa", "0xb", "0xc", None]),
        "block_id": st.sampled_from([None, 0, 1, 2]), "index_in_block": st.sampled_from([None, 0, 1, 2]),
        "side": st.sampled_from(["BUY", "SELL"]), "price": st.sampled_from([None, 0, 1, 2, 3]),
        **dict.fromkeys(asof.ORDER[1:], st.sampled_from([0, 0, 1, None])),
    }
)  # fmt: skip
KNOWN_NAMES = [*dict.fromkeys(["moment", "market", *asof.TIE_BREAKERS, *asof.ORDER])]


def test_a_price_of_unknown_place_that_is_own_leads_to_none_of_a_later_place() -> None:
    row = {"moment": 5, "market": "A", "order_hash": None, "account_id": 1, "token_id": 0, "side": "BUY"}
    asked = row | {"block_id": 7, "index_in_block": 3, "trade_id": 1, "storage_id": 1, "price": 20}
    others = [
        {"index_in_block": 1, "trade_id": 2, "storage_id": 2, "price": 10},
        {"index_in_block": 9, "trade_id": 3, "storage_id": 3, "price": 90},  # later in the block
        {"index_in_block": 3, "trade_id": 1, "storage_id": 4, "price": 20, "block_id": 0},  # its other side
    ]
    rows = arrow_of([asked, *(asked | other for other in others)], KNOWN_NAMES)
    history = asof.PriceHistory(rows, "test")
    lookup = history.lookup(convert.to_table(rows, "test", rows.column_names))
    found = to_integers(history.take(lookup.before(np.full(4, 5)))).tolist()
    assert found[0] == 10 * UNIT
    unplaced = arrow_of([asked, asked | others[0], asked | others[1] | {"block_id": 0}], KNOWN_NAMES)
    history = asof.PriceHistory(unplaced, "test")
    lookup = history.lookup(convert.to_table(unplaced, "test", unplaced.column_names))
    assert to_integers(history.take(lookup.before(np.full(3, 5))))[0] == 90 * UNIT  # not known to be later


@settings(max_examples=200)
@given(st.lists(KNOWN, max_size=14), st.lists(KNOWN, max_size=6), st.booleans(), st.data())
def test_looking_up_prices_is_what_a_loop_over_all_of_them_finds(
    known: list[dict[str, Any]], asked: list[dict[str, Any]], strictly: bool, data: st.DataObject
) -> None:
    some = [[], ["trade_id"], ["trade_id", "order_hash"], asof.TIE_BREAKERS, asof.TIE_BREAKERS + asof.ORDER]
    names = data.draw(st.sampled_from(some))
    columns = list(dict.fromkeys(["moment", "market", "price", *names]))
    known = [{name: one[name] for name in columns} for one in known]
    if data.draw(st.booleans()):  # as by default
        asked = known
    elif data.draw(st.booleans()):
        asked = [{name: one[name] for name in one if name != "trade_id"} for one in asked]
    history = asof.PriceHistory(arrow_of(known, columns), "test")
    rows = arrow_of(asked, list(asked[0]) if asked else ["moment", "market"])
    lookup = history.lookup(convert.to_table(rows, "test", rows.column_names))
    own = [st.integers(-1, 7) | st.just(one["moment"] or 0) for one in asked]
    moments = np.array([data.draw(moment) for moment in own], np.int64)
    before = to_integers(history.take(lookup.before(moments, strictly=strictly, within=3))).tolist()
    after = to_integers(history.take(lookup.after(moments, within=3))).tolist()
    fills, prices = (
        [oracle.Fill(created_at=one["moment"], **one) for one in some] for some in (asked, known)
    )
    for one, moment, last, first in zip(fills, moments.tolist(), before, after, strict=True):
        others = [other for other in oracle.not_its_own(one, fills, prices) if other.market == one.market]
        earlier = [other for other in others if not strictly or other.created_at != moment]
        if one.created_at == moment:
            earlier = oracle.not_later(earlier, one)
        assert price_of(oracle.last_known(earlier, moment, 3)) == last
        assert price_of(oracle.first_known(others, moment, 3)) == first


@pytest.mark.thorough
@settings(max_examples=80)
@given(
    st.lists(KNOWN, min_size=8, max_size=30),
    st.none() | st.lists(KNOWN, max_size=20),
    st.integers(1, 6),
    st.sampled_from([KNOWN_NAMES, ["moment", "market", "price", "block_id", *asof.ORDER]]),
)
def test_small_windows_find_the_prices_that_one_window_finds(
    asked: list[dict[str, Any]], known: list[dict[str, Any]] | None, most: int, names: list[str]
) -> None:
    numbered = [one | {"number": number} for number, one in enumerate(asked)]
    trades = arrow_of(numbered, [*KNOWN_NAMES, "number"])
    prices = None if known is None else arrow_of(known, names)

    def look_up(window: windows.Window) -> pa.Table:
        history, moments = asof.PriceHistory(window.prices, "test"), asof.moments_of(window.rows)
        lookup = history.lookup(window.rows)
        last, first = lookup.before(moments), lookup.after(moments)
        found = [function(one) for one in (last, first) for function in (history.take, history.take_times)]
        return window.own(pa.table([window.rows["number"], *found], [*"abcde"]))

    def all_found(trades: Any) -> list[dict[str, Any]]:
        around = partial(
            windows.over, prices=prices, price_columns=["created_at"], keys=["market"], ahead=True
        )
        parts = around(trades, "test", ["created_at", "number"], KNOWN_NAMES[1:], work=look_up)
        return sorted(pa.concat_tables(parts).to_pylist(), key=itemgetter("a"))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "rows_at_once", lambda bytes_per_row: most)
        assert all_found(from_arrow("polars, lazy", portable(trades))) == all_found(trades)


def price_of(found: oracle.Fill | None) -> int | None:
    return found and found.price * UNIT


def arrow_of(rows: list[dict[str, Any]], names: list[str]) -> pa.Table:
    types = {"moment": pa.timestamp("ms", "UTC"), "price": pa.decimal256(37, 18)}
    types |= dict.fromkeys(["number", "trade_id", "block_id", "index_in_block", *asof.ORDER[1:]], pa.int64())
    columns = {name: pa.array([one[name] for one in rows], types.get(name, pa.string())) for name in names}
    return pa.table({"created_at" if name == "moment" else name: column for name, column in columns.items()})


ASKED: dict[str, Callable[[Any], Any]] = {
    "price_gap": lambda f: lab.fills.price_gap(f, None),
    "next": lab.fills.all_in_cost,
    "last": lambda f: lab.fills.all_in_cost(f, "last", None),
    "prices": lambda f: lab.fills.all_in_cost(f, f, None),
    "markouts": lambda f: lab.fills.markouts(f, horizons=["1d", "365d"], tolerance=None),
    "shortfall": lambda f: lab.fills.shortfall(f, tolerance=None),
    "price_gap by": lambda f: lab.fills.price_gap(f, None, by="side"),
    "next by": lambda f: lab.fills.all_in_cost(f, by=["market", "side"]),
    "markouts by": lambda f: lab.fills.markouts(f, horizons=["1d", "365d"], by="side", tolerance=None),
    "shortfall by": lambda f: lab.fills.shortfall(f, by="fill_type", tolerance=None),
}


@pytest.mark.thorough
@settings(max_examples=6)
@given(histories(16), st.randoms(use_true_random=False), st.integers(0, 16))
def test_order_and_splitting_of_rows_change_nothing(history: list[Any], chance: Any, cut: int) -> None:
    frame = frame_of(history).assign(created_at=lambda f: f["created_at"].dt.floor("400D"))  # many ties
    order = list(range(len(frame)))
    chance.shuffle(order)
    mixed = frame.iloc[order]
    mixed = pd.concat([mixed.iloc[:cut], mixed.iloc[cut:]], ignore_index=True)
    for name, ask in ASKED.items():
        found, again = ask(frame), ask(mixed)
        if not name.endswith("by"):
            found, again = (
                answer.sort_values(
                    [
                        n
                        for n in ("trade_id", "order_hash", "market", "side", "first", "horizon")
                        if n in answer
                    ],
                    ignore_index=True,
                )
                for answer in (found, again)
            )
        assert_frame_equal(found, again, check_dtype=False)


# Markouts


def test_a_cost_is_what_was_realized_and_the_impact() -> None:
    frame = trades(
        fill(1000, "100", id="1"),
        fill(2000, "98", id="2", orderHash="0xa"),
        fill(5000, "97", id="3", orderHash="0xa"),  # of the same order
        fill(9000, "95", id="4"),
        fill(40_000, "99", id="5"),
    )
    found = lab.fills.markouts(frame, horizons=["10s", "1min"])
    second = result_rows(found[found["trade_id"] == 2])
    assert [line["horizon"] for line in second] == ["10s", "1min"]
    assert [line["price_before"] // UNIT for line in second] == [100, 100]
    assert [line["price_after"] // UNIT for line in second] == [95, 99]
    assert [line["effective_bps"] for line in second] == [200.0, 200.0]
    assert [line["realized_bps"] for line in second] == [-300.0, 100.0]
    assert [line["impact_bps"] for line in second] == [500.0, 100.0]
    assert found.loc[found["trade_id"] == 5, "price_after"].isna().all()
    known = found.dropna(subset=["realized_bps", "effective_bps"])
    assert known["effective_bps"].to_numpy() == pytest.approx(known["realized_bps"] + known["impact_bps"])


def test_a_price_as_old_as_the_fill_is_no_markout_and_makers_have_none() -> None:
    frame = trades(fill(60_000, "100"), fill(61_000, "100", type="maker"))
    marks = pd.DataFrame(
        {"created_at": pd.to_datetime([0, 60_000, 120_000], unit="ms", utc=True), "market": "ETH-USDT"}
    )
    marks = marks.assign(price=lab.amounts.to_units([100, 101, 102], 0))
    found = result_rows(lab.fills.markouts(frame, marks, ["10s", "60s"]))
    assert [line["trade_id"] for line in found] == [0, 0]
    assert [line["price_before"] // UNIT for line in found] == [101, 101]
    assert [line["price_after"] and line["price_after"] // UNIT for line in found] == [None, 102]
    assert {line["reference"] for line in found} == {"outside prices"}


def test_groups_of_markouts_rest_on_the_fills_that_have_all_prices() -> None:
    frame = trades_of(World(seed=31, size=0.02))
    rows = lab.fills.markouts(frame, horizons=["5min", "1h"])
    found = lab.fills.markouts(frame, horizons=["5min", "1h"], by="fill_type")
    assert found["horizon"].tolist() == ["5min", "1h"] * 2
    assert "reference pull the difference towards 0" in found.attrs["notes"][0]
    for line in found.itertuples():
        mine = rows[(rows["fill_type"] == line.fill_type) & (rows["horizon"] == line.horizon)]
        priced = mine.dropna(subset=["effective_bps", "realized_bps"])
        assert (line.fills, line.unpriced) == (len(mine), len(mine) - len(priced))
        for rate in ("effective_bps", "realized_bps", "impact_bps"):
            assert getattr(line, f"mean_{rate}") == pytest.approx(priced[rate].mean())
            assert getattr(line, f"median_{rate}") == pytest.approx(priced[rate].median())
        assert line.weighted_effective_bps == pytest.approx(
            line.weighted_realized_bps + line.weighted_impact_bps
        )
        assert np.isnan(line.low_realized_bps) == (len(priced) < 20)


def test_values_in_several_tokens_are_weighed_in_one() -> None:
    frame = trades(
        fill(1000, "2000"), fill(2000, "2002"),
        fill(3000, "10", market="LRC-ETH", tokenId="1"), fill(4000, "12", market="LRC-ETH", tokenId="1"),
        fill(5000, "2004"),
    )  # fmt: skip
    whole = lab.fills.all_in_cost(frame, by=[])
    rates = lab.fills.all_in_cost(frame)["price_bps"].to_numpy()
    assert whole.loc[0, "weighted_price_bps"] == pytest.approx(
        np.average(rates[[0, 1, 2]], weights=[2000, 2002, 10 * 2002])
    )
    alone = lab.fills.all_in_cost(frame[frame["market"] == "LRC-ETH"], by=[])
    assert alone.loc[0, "weighted_price_bps"] == rates[2]


# Shortfall


def test_fills_are_put_together_into_orders_before_they_are_compared() -> None:
    frame = trades(
        fill(1000, "100"),
        fill(2000, "99", orderHash="0xa", feeAmount="99000"),
        fill(2500, "500"),
        fill(4500, "96", orderHash="0xa", size=str(2 * UNIT)),
        fill(5000, "10", orderHash=None, storageId="1"),
        fill(6000, "12", orderHash=None, storageId="2"),
    )
    found = {line["order_hash"]: line for line in result_rows(lab.fills.shortfall(frame.iloc[::-1]))}
    order = found["0xa"]
    assert (order["fills"], order["seconds_to_fill"]) == (2, 2.5)
    assert order["average_price"] == 97 * UNIT
    assert order["arrival_price"] == 100 * UNIT
    assert order["shortfall_bps"] == 300.0
    assert order["fee_bps"] == float(Fraction(99_000 * 10_000, 291 * 10**6))
    assert order["all_in_bps"] == order["shortfall_bps"] + order["fee_bps"]
    alone = lab.fills.shortfall(frame)
    assert alone["order_hash"].isna().sum() == 2
    grouped = lab.fills.shortfall(frame, by="market")
    assert grouped[["fills", "orders", "unpriced"]].to_numpy().tolist() == [[6, 5, 1]]
    assert grouped.loc[0, "median_seconds_to_fill"] == 0


# The world's truth


def test_markouts_against_minute_prices_are_the_true_ones() -> None:
    world = World(seed=31, size=0.05)
    horizons = {"1min": 60 * SECOND, "1h": 3600 * SECOND}
    frame, fills = trades_of(world), {fill.id: fill for fill in world.fills}
    marks = minute_marks(world, world.fills, horizons.values())
    rows = lab.fills.markouts(frame, marks, list(horizons))
    found = lab.fills.markouts(frame, marks, list(horizons), by="fill_type")
    values = values_of(frame)
    for line in found.itertuples():
        some = rows[(rows["fill_type"] == line.fill_type) & (rows["horizon"] == line.horizon)]
        true = true_markouts(world, [fills[number] for number in some["trade_id"]], horizons[line.horizon])
        assert line.unpriced == 0
        for rate in ("effective", "realized"):
            expected = np.average(true[rate], weights=values.loc[some["trade_id"]])
            low, high = (getattr(line, f"{edge}_{rate}_bps") for edge in ("low", "high"))
            assert low < expected < high
            assert getattr(line, f"weighted_{rate}_bps") == pytest.approx(expected, abs=0.5)


# Refusals

REFUSED: dict[str, tuple[Callable[[pd.DataFrame], Any], str]] = {
    "a number without unit": (lambda f: lab.fills.all_in_cost(f, tolerance="60"), r"tolerance='60' is not a length of time. Give a number with a unit"),
    "a number in price_gap": (lambda f: lab.fills.price_gap(f, " 60 "), r"tolerance=' 60 ' is not a length of time"),
    "no horizon": (lambda f: lab.fills.markouts(f, horizons=[]), r"horizons=\[\] is empty"),
    "a horizon of nothing": (lambda f: lab.fills.markouts(f, horizons=["0s"]), r"has a length of 0"),
    "a horizon twice": (lambda f: lab.fills.markouts(f, horizons=["60s", "1min"]), r"or one twice"),
    "a bare horizon": (lambda f: lab.fills.markouts(f, horizons=["10"]), r"horizons='10' is not a length of time"),
    "a horizon as a number": (lambda f: lab.fills.markouts(f, horizons=[60]), r"horizons=60 is not a length of time"),
    "horizons no list": (lambda f: lab.fills.markouts(f, horizons=60), r"horizons=60 "),
    "two frames": (lambda f: lab.fills.all_in_cost(f, f, prices=f), r"reference= and prices= are both frames"),
    "a level of 95": (lambda f: lab.fills.all_in_cost(f, by=[], intervals=95), r"intervals=95 is not a level"),
    "a seed below 0": (lambda f: lab.fills.shortfall(f, seed=-1), r"seed=-1 is not a whole number"),
    "by the horizon": (lambda f: lab.fills.markouts(f.assign(horizon=1), by="horizon"), r"'horizon'. The result has its own"),
    "prices without a market": (lambda f: lab.fills.shortfall(f, f[["created_at", "price"]]), r"no column 'market'"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused_in_words(case: str) -> None:
    assert_refused(*REFUSED[case], trades(fill(1000, "90"), fill(2000, "91")))


@pytest.mark.parametrize("engine", ["pyarrow", "polars", "polars, lazy"])
def test_prices_may_be_of_another_engine_than_trades(engine: str) -> None:
    frame = trades(*[fill(random.Random(n).randrange(10**6), str(100 + n)) for n in range(30)])
    marks = frame[["created_at", "market", "price"]]
    expected = lab.fills.markouts(frame, marks, by=["side"])
    assert result_rows(lab.fills.markouts(frame, on(engine, marks), by=["side"])) == result_rows(expected)
