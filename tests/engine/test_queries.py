"""Questions as queries: what users name is quoted, what is logged can be run, what does not fit raises."""

import functools
import io
import logging
import re
from collections.abc import Callable
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pytest
from support.engines import assert_same, assert_same_rows, collected, on, result_rows
from support.optional import often
from support.trade_histories import many
from tools import queries

import loopring_lab as lab
from loopring_lab.amounts import LIMIT, to_units
from loopring_lab.engine import portable
from loopring_lab.engine.groups import EVERYTHING
from loopring_lab.engine.notes import NOTES
from loopring_lab.errors import AmountError, LabError

ROGUE = '"; DROP TABLE trades; --'
BY: dict[str, Callable[..., Any]] = {
    "summary": lab.fees.summary,
    "tiers": lab.fees.tiers,
    "vwap": lab.fills.vwap,
    "breakdown": lab.fills.breakdown,
    "size_profile": lab.fills.size_profile,
    "price_gap": lab.fills.price_gap,
    "all_in_cost": lab.fills.all_in_cost,
    "in_token": lambda trades, by: lab.fees.in_token(trades, "USDT", by=by),
}
LOGGED: dict[str, Callable[[Any], Any]] = {
    "summary": lambda trades: lab.fees.summary(trades, by="market"),
    "over_time": lambda trades: lab.fees.over_time(trades, "1mo"),
    "tiers": lambda trades: lab.fees.tiers(trades, by="side"),
    "orders": lab.fills.orders,
    "with_roles": lab.fills.with_roles,
    "price_gap": lab.fills.price_gap,
    "all_in_cost by label": lambda trades: lab.fills.all_in_cost(trades, by="market"),
    "markouts": lambda trades: lab.fills.markouts(trades, horizons=["1min"]),
}


@functools.cache
def trades() -> pd.DataFrame:
    return many(60)


# Names that users give


@pytest.mark.parametrize("name", often(["summary", "size_profile", "in_token"], BY))
def test_a_column_of_any_name_is_a_column(name):
    found = collected(
        BY[name](on("duckdb", trades().rename(columns={"label": ROGUE})), by=[ROGUE])
    )
    expected = collected(BY[name](trades(), by=["label"]))
    assert found.column_names[0] == ROGUE
    assert_same_rows(
        result_rows(found.rename_columns(expected.column_names)),
        result_rows(expected),
    )


@pytest.mark.parametrize("name", ["row", "number of the row in the answer", "ms"])
def test_a_column_stays_beside_an_answer_under_any_name(name):
    labels = [f"own {number}" for number in range(len(trades()))]
    relation = on("duckdb", trades().assign(**{name: labels}))
    found = lab.fills.with_roles(relation)
    assert found.columns == [*relation.columns, "role_source"]
    assert collected(found)[name].to_pylist() == labels
    once = collected(lab.fills.one_side(relation))
    assert once.column_names == relation.columns
    assert set(once[name].to_pylist()) <= set(labels)


def test_values_that_look_like_sql_are_values():
    texts = pd.Series(["'; DROP TABLE trades; --", 'x" OR 1=1', "a'b"] * len(trades()))
    frame = trades().assign(label=texts[: len(trades())])
    ordered = frame.assign(label=frame["label"].astype("category").cat.as_ordered())
    found = [lab.fees.summary(one, by="label") for one in (frame, ordered)]
    assert found[0]["label"].tolist() == sorted(found[0]["label"])
    assert set(found[0]["label"]) == set(texts[:3])
    assert_same(found[1].astype({"label": str}), found[0])


# What is logged


BEGINNING = r"-- lab\.f\w+\.\w+: given_trades is lab\.engine\.portable\(trades\)\n"


@pytest.mark.parametrize(
    "name", often(["summary", "orders", "price_gap", "markouts"], LOGGED)
)
def test_what_is_logged_gives_the_answer_and_holds_no_row(name, caplog):
    """On tables that anybody can make: those of `lab.engine.portable`."""
    with caplog.at_level(logging.DEBUG, "loopring_lab.sql"):
        expected = collected(LOGGED[name](trades()))
    logged = [
        record.getMessage()
        for record in caplog.records
        if record.name == "loopring_lab.sql"
    ]
    assert re.match(BEGINNING, logged[-1])
    assert str(trades()["order_hash"].dropna().iloc[0]) not in logged[-1]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Kolkata'")
    connection.register("given_trades", portable(trades()))
    found = in_units(connection.sql(logged[-1]).to_arrow_table())
    if "row" in found.column_names:
        found = found.sort_by("row").drop_columns("row")
        expected = expected.select(found.column_names)
    else:
        found = found.drop_columns(
            [name for name in found.column_names if name in (*NOTES, EVERYTHING)]
        )
        found = found.rename_columns(expected.column_names)
    assert_same(found, expected)


def in_units(table: pa.Table) -> pa.Table:
    """Return amounts, which are integers of 1e-18 in queries, in units."""
    for place, field in enumerate(table.schema):
        if field.type == pa.decimal128(38, 0):
            integers = table[field.name].combine_chunks()
            buffers = integers.buffers()
            amounts = pa.Array.from_buffers(
                pa.decimal128(38, 18), len(integers), buffers, offset=integers.offset
            )
            table = table.set_column(place, field.name, amounts)
    return table


# Frames as they come


def test_only_the_columns_that_a_question_needs_are_converted():
    unreadable = trades().assign(junk=[object()] * len(trades()))
    assert_same(lab.fees.summary(unreadable), lab.fees.summary(trades()))
    failing = on("duckdb", trades()).project(
        "*, error('nobody asked for this') AS junk"
    )
    assert_same(lab.fees.summary(failing), lab.fees.summary(trades()))
    with pytest.raises(LabError, match="junk|Arrow"):
        lab.fees.summary(unreadable, by="junk")


@pytest.mark.parametrize("kind", ["polars, lazy", "duckdb"])
def test_a_missing_column_is_named(kind):
    without_fee = trades().drop(columns="fee")
    with pytest.raises(LabError, match="summary: the frame has no column 'fee'"):
        lab.fees.summary(on(kind, without_fee))
    with pytest.raises(LabError, match="no column 'sides'.* Did you mean 'side'"):
        lab.fees.summary(on(kind, trades()), by="sides")


def test_a_frame_given_by_a_variable_s_name_is_never_taken_for_a_table():
    """DuckDB would find it: `worth` and `pools` are names of queries."""
    worth = pools = given_trades = pd.DataFrame({"token": ["ETH"], "worth": [0.0]})
    assert (
        len(lab.fills.all_in_cost(trades(), by="label")) == trades()["label"].nunique()
    )
    assert len(worth) == len(pools) == len(given_trades) == 1


def test_tables_of_a_user_s_own_database_are_never_taken_for_those_of_a_query():
    tokens = lab.connect().tokens()
    questions: list[Callable[[Any], Any]] = [
        lambda given: lab.fees.tiers(given, tokens=tokens),
        lambda given: lab.fills.all_in_cost(given, by="label"),
        lambda given: lab.fills.markouts(given, horizons=["1min"], by="label"),
    ]
    with duckdb.connect() as connection:
        connection.register("history", lab.engine.portable(trades()))
        connection.execute(
            "CREATE TABLE units AS SELECT 'ETH' AS token, 1000000::BIGINT AS unit"
        )
        connection.execute("CREATE TABLE worth AS SELECT 'ETH' AS token")
        connection.execute("CREATE TABLE pools AS SELECT 5 AS account_id")
        for question in questions:
            found = question(connection.table("history")).to_arrow_table().to_pandas()
            expected = collected(question(trades())).to_pandas()
            assert_same(found, expected)


def test_a_connection_with_tables_and_macros_of_its_own_is_asked():
    session = duckdb.connect()
    relation = session.from_arrow(portable(trades()))
    session.execute("CREATE MACRO my_own(a) AS a + 1; CREATE TABLE mine (a INTEGER)")
    assert lab.fills.breakdown(relation).sum("share").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE MACRO replace(a, b, c) AS '5'", "'replace'"),
        ('CREATE TEMP MACRO "+"(a, b) AS a', r"'\+'"),
        ("CREATE TABLE Given_Prices AS SELECT 1 AS a", "'Given_Prices'"),
        ("SET integer_division = true", "'integer_division'"),
        ("SET default_order = 'DESC'", "'default_order'"),
        ("SET default_null_order = 'nulls_first'", "'default_null_order'"),
        ("SET default_collation = 'NOCASE'", "'default_collation'"),
        ("SET ieee_floating_point_ops = false", "'ieee_floating_point_ops'"),
    ],
)
def test_a_connection_on_which_queries_mean_something_else_is_refused(statement, named):
    session = duckdb.connect()
    relation = session.from_arrow(portable(trades()))
    session.execute(statement)
    with pytest.raises(LabError, match=f"{named} of its own.*Drop or reset it"):
        lab.fills.breakdown(relation)


@pytest.mark.parametrize("file", ["", "prices.duckdb"])
def test_trades_and_prices_of_two_databases_are_told_apart_in_words(file, tmp_path):
    here = duckdb.connect().from_arrow(portable(trades()))
    there = duckdb.connect(str(tmp_path / file) if file else ":memory:")
    there.register("history", portable(trades()))
    there.execute("CREATE TABLE kept AS FROM history")
    with pytest.raises(
        LabError, match=r"relations of two DuckDB databases, .*\.to_arrow_table\(\)"
    ):
        lab.fills.all_in_cost(here, prices=there.table("kept"))
    # Closes may be in another database, also where the market of none of them is one of the trades.
    closes = there.table("kept").project("created_at, 'A-B' AS market, price")
    with pytest.raises(LabError, match="has no price of a market in trades"):
        lab.fills.compare_venues(here, closes)


@pytest.mark.parametrize(
    "setting", ["enable_external_access = false", "lock_configuration = true"]
)
def test_what_a_connection_does_not_allow_is_an_error_in_words(setting):
    session = duckdb.connect()
    relation = session.from_arrow(portable(trades()))
    session.execute(f"SET {setting}")
    with pytest.raises(
        LabError, match=r"breakdown: DuckDB fails .*\.to_arrow_table\(\)"
    ):
        lab.fills.breakdown(relation)


def test_collations_of_columns_make_no_two_markets_one():
    trades = lab.connect().trades(10083, limit=200)
    markets = trades["market"].astype(str)
    # Names of tokens and markets that differ in nothing but their case are different ones.
    spelled = markets.where(trades.index % 2 == 0, markets.str.lower())
    table = portable(trades.assign(market=spelled))
    session = duckdb.connect()
    kinds = dict(
        zip(table.column_names, session.from_arrow(table).types, strict=True)
    ) | {"market": "VARCHAR COLLATE NOCASE"}
    columns = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    session.execute(f"CREATE TABLE theirs ({columns})")
    session.from_arrow(table).insert_into("theirs")
    found = lab.fees.summary(session.table("theirs"), by="market").fetchall()
    assert {row[0] for row in found} == set(spelled)


def test_columns_that_differ_in_capitals_only_are_refused():
    with pytest.raises(LabError, match="'side' and 'Side' differ in capitals only"):
        lab.fees.summary(trades().assign(Side="x"), by="Side")


# Amounts that do not fit


def test_an_amount_that_does_not_fit_is_named_with_its_row():
    wide = to_units(
        [*["1"] * 4, "9" * 45, *["1"] * (len(trades()) - 5)], 18, dtype=LIMIT
    )
    for kind in ("pandas", "pyarrow"):
        with pytest.raises(
            AmountError,
            match=r"lab.fees.summary: fee of row 4 is 9{27}\.9{18}, which does not",
        ):
            lab.fees.summary(on(kind, trades().assign(fee=wide)))
    relation = on("duckdb", trades()).project(
        "* REPLACE (CAST(1e30 AS DECIMAL(38, 2)) AS fee)"
    )
    with pytest.raises(
        AmountError, match="lab.fees.summary: an amount or a sum does not fit 38 digits"
    ):
        collected(lab.fees.summary(relation))


@pytest.mark.parametrize("kind", ["pandas", "pyarrow", "polars", "duckdb"])
def test_a_sum_of_39_digits_is_refused_though_it_fits_128_bits(kind):
    large = trades().head(2).assign(fee_token="ETH")
    fee = to_units(["60000000000000000000"] * 2, 0)
    with pytest.raises(
        AmountError, match="lab.fees.summary: an amount or a sum does not fit 38 digits"
    ):
        collected(lab.fees.summary(on(kind, large.assign(fee=fee))))


def test_amounts_that_are_floats_are_refused():
    for kind in ("pandas", "pyarrow"):
        with pytest.raises(AmountError, match="size is double, not an exact amount"):
            lab.fees.summary(on(kind, lab.to_float(trades())))
    saved = io.StringIO(trades().to_csv())
    with pytest.raises(AmountError, match=r"Use decimals, as .*lab\.tables\.read_csv"):
        lab.fees.summary(pd.read_csv(saved))
    relation = on("duckdb", trades()).project("* REPLACE (CAST(fee AS DOUBLE) AS fee)")
    with pytest.raises(AmountError, match="fee is DOUBLE, not an exact amount"):
        lab.fees.summary(relation)


SUMS = {
    "by group": "SELECT key, sum(amount) FROM amounts GROUP BY key",
    "of sums": "SELECT sum(part) FROM (SELECT sum(amount) AS part FROM amounts GROUP BY number % 1000)",
}
LARGEST = {"HUGEINT": 2**127 - 1, "DECIMAL(38, 18)": 10**20 - 1}


@pytest.mark.parametrize("form", SUMS)
@pytest.mark.parametrize("kind", LARGEST)
def test_duckdb_raises_where_sums_overflow_also_when_partial_sums_are_put_together(
    kind, form
):
    """DuckDB 1.x could wrap where it put the sums of threads together, each of which fits: so 2.0 is needed."""
    rows = 4 * 122_880  # of row groups, which threads share
    connection = duckdb.connect(config={"threads": 4})
    connection.execute(
        "CREATE TABLE amounts AS SELECT number, 1 AS key, "
        f"CAST('{LARGEST[kind] * 2 // rows}' AS {kind}) AS amount FROM range({rows}) AS t(number)"
    )
    with pytest.raises(duckdb.Error, match="(?i)overflow|out of range|could not cast"):
        connection.sql(SUMS[form]).fetchall()
    half = connection.sql(
        f"SELECT sum(amount) FROM amounts WHERE number < {rows // 2 - 1}"
    ).fetchall()
    assert half[0][0] == LARGEST[kind] * 2 // rows * (rows // 2 - 1)


# What the documentation shows


def test_the_page_of_one_question_shows_the_query_as_it_is_asked():
    """After a change `python tests/tools/queries.py` writes it."""
    assert queries.one_question() in queries.PAGE.read_text(encoding="utf-8")


@pytest.mark.thorough
def test_the_queries_of_every_function_are_shown():
    shown = {call.partition("(")[0] for call, texts in queries.queries() if texts}
    public = {
        f"lab.{room}.{name}"
        for room in ("fees", "fills", "research")
        for name in getattr(lab, room).__all__
        if name != "figures"
    }
    # These only put an answer into words or test it.
    of_answers = {name for name in public if name.split(".")[-1] in queries.OF_ANSWERS}
    assert shown == public - of_answers


# The beginning of a step, and the rest of its line with the next one.
STEP = re.compile(
    r"^(?:WITH |\), )?(\w+) AS (?:NOT )?(?:MATERIALIZED )?\((.*\n.*)", re.MULTILINE
)


@pytest.mark.thorough
def test_every_step_says_what_its_rows_are():
    texts = [text for _, several in queries.queries() for text in several]
    steps = [step for text in texts for step in STEP.findall(text)]
    assert len(steps) > 100
    assert not {name for name, begins in steps if "--" not in begins}


@pytest.mark.parametrize("year", [1600, 2300])
def test_a_time_beyond_all_moments_is_the_trouble_of_its_row(year):
    trades = lab.connect().trades(10083, limit=50)
    time = pd.Timestamp(f"{year}-01-01", tz="UTC").as_unit("ms")
    odd = trades[trades["market"] != trades["market"].iloc[-1]][:1]
    odd = odd.assign(created_at=time, trade_id=1)
    with_odd = pd.concat([trades, odd], ignore_index=True)
    assert len(lab.fees.in_token(with_odd, "USDC")) == len(with_odd)
    found = lab.fills.all_in_cost(with_odd, "next", by=[])
    expected = lab.fills.all_in_cost(trades, "next", by=[])
    assert found["weighted_price_bps"].equals(expected["weighted_price_bps"])
