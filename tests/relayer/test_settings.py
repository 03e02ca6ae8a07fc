"""Every setting of the embedded relayer, observed over HTTP."""

import itertools
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest

from loopring_lab.errors import LabError
from loopring_lab.relayer import Settings

ACCOUNT = 58344
NUMERIC = re.compile(r"-?[0-9]+(\.[0-9]+)?(E-?[0-9]+)?")


def expected(world):
    """The account's rows, oldest first, straight from the world's fills, without index, view or HTTP."""
    sides = (
        (2 * n + s, (f.taker, f.maker)[s])
        for n, f in enumerate(world.fills)
        for s in (0, 1)
    )
    return [
        list(world.history.row(number)) for number, whose in sides if whose == ACCOUNT
    ]


def test_newest_first_by_default(serve, world):
    relayer = serve()
    rows = relayer.pages(accountId=ACCOUNT)
    assert rows == expected(world)[::-1]
    assert [int(row[1]) for row in rows] == sorted(
        (int(row[1]) for row in rows), reverse=True
    )


def test_oldest_first(serve, world):
    relayer = serve(order="oldest")
    assert relayer.pages(accountId=ACCOUNT) == expected(world)


def test_shuffled_is_stable_complete_and_not_sorted(serve, world):
    relayer = serve(order="shuffled")
    rows = relayer.pages(accountId=ACCOUNT)
    assert rows == relayer.pages(accountId=ACCOUNT) == relayer.relayer.rows(ACCOUNT)
    truth = expected(world)
    assert sorted(rows) == sorted(truth)
    assert rows not in (truth, truth[::-1])


@pytest.mark.parametrize("length", range(7, 16))
def test_row_length(serve, world, length):
    relayer = serve(order="oldest", row_length=length)
    rows = relayer.trades(accountId=ACCOUNT)[1]
    full = expected(world)[: len(rows)]
    if length == 10:
        assert rows == [row[:7] + row[9:12] for row in full]
    else:
        assert [row[:14] for row in rows] == [row[:length] for row in full]
    assert {len(row) for row in rows} == {length}


def test_numbers_keep_every_digit(serve, world):
    relayer = serve(numbers="number", order="oldest")
    text = relayer.get("/user/trades", accountId=ACCOUNT).text
    rows = json.loads(text, parse_int=str, parse_float=str)["trades"]
    assert rows == expected(world)[: len(rows)]
    bare = json.loads(text)["trades"]
    for row, kept in zip(bare, rows, strict=True):
        assert [not isinstance(cell, str) for cell in row] == [
            bool(NUMERIC.fullmatch(cell)) for cell in kept
        ]


def test_exact_market_leaves_pool_fills_out(serve):
    relayer = serve()
    rows = relayer.pages(accountId=ACCOUNT)
    for market in ("LRC-ETH", "AMM-LRC-ETH"):
        assert (
            relayer.pages(accountId=ACCOUNT, market=market)
            == [row for row in rows if row[5] == market]
            != []
        )
    assert relayer.trades(accountId=ACCOUNT, market="AMM-LRC-ETH", fillTypes="dex") == (
        0,
        [],
    )


def test_inclusive_market_has_both(serve):
    relayer = serve(market_filter="inclusive")
    rows = relayer.pages(accountId=ACCOUNT)
    both = [row for row in rows if row[5] in ("LRC-ETH", "AMM-LRC-ETH")]
    assert relayer.pages(accountId=ACCOUNT, market="LRC-ETH") == both
    pool = [row for row in rows if row[5] == "AMM-LRC-ETH"]
    assert relayer.pages(accountId=ACCOUNT, market="AMM-LRC-ETH") == pool
    assert relayer.pages(accountId=ACCOUNT, market="LRC-ETH", fillTypes="amm") == pool


def test_fill_types_split_the_history(serve):
    relayer = serve()
    amm, dex = (
        relayer.trades(accountId=ACCOUNT, fillTypes=kind)[0] for kind in ("amm", "dex")
    )
    for both in ("amm,dex", "dex,amm"):
        assert relayer.trades(accountId=ACCOUNT, fillTypes=both) == relayer.trades(
            accountId=ACCOUNT
        )
    assert relayer.trades(accountId=ACCOUNT)[0] == amm + dex
    assert min(amm, dex) > 0


def test_growth_hits_what_is_read_and_ends_with_the_whole_history(serve):
    relayer = serve(growth=3, growth_reserve=10)
    truth = relayer.relayer.rows(ACCOUNT, "dex", everything=True)
    totals = [
        relayer.trades(accountId=ACCOUNT, fillTypes="dex", limit=1)[0] for _ in range(6)
    ]
    assert totals == [len(truth) - hidden for hidden in (10, 7, 4, 1, 0, 0)]
    assert (
        relayer.pages(accountId=ACCOUNT, fillTypes="dex")
        == truth
        == relayer.relayer.rows(ACCOUNT, "dex")
    )
    amm = relayer.relayer.rows(ACCOUNT, "amm", everything=True)
    assert relayer.relayer.rows(ACCOUNT, "amm") == amm[10:]


@pytest.mark.parametrize("order", ["newest", "oldest", "shuffled"])
def test_growth_shows_the_oldest_hidden_row_first_and_moves_no_other(serve, order):
    relayer = serve(growth=1, growth_reserve=5, order=order)
    seen = [relayer.relayer.rows(ACCOUNT)]
    for _ in range(10):
        relayer.trades(accountId=ACCOUNT, limit=1)
        seen.append(relayer.relayer.rows(ACCOUNT))
    for before, after in itertools.pairwise(seen):
        assert len(after) == len(before) + 1
        assert [row for row in after if row in before] == before
    assert seen[-1] == relayer.relayer.rows(ACCOUNT, everything=True)
    added = [
        int(row[1])
        for before, after in itertools.pairwise(seen)
        for row in after
        if row not in before
    ]
    assert added == sorted(added)


def test_growth_hides_rows_from_orders_too(serve):
    relayer = serve(growth=1, growth_reserve=1)
    hidden = next(iter(relayer.relayer.rows(ACCOUNT, "amm", everything=True)))
    assert relayer.trades(accountId=ACCOUNT, orderHash=hidden[12])[0] == 0
    relayer.trades(accountId=ACCOUNT, fillTypes="amm", limit=1)
    assert relayer.trades(accountId=ACCOUNT, orderHash=hidden[12]) == (1, [hidden])


def test_latency_lets_requests_wait_together(serve):
    relayer = serve(latency=0.5)
    clients = 40
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        list(
            pool.map(lambda _: relayer.get("/mix/markets").status_code, range(clients))
        )
    # One after the other they would take 20 s; a busy machine takes a second or two.
    assert 0.5 <= time.perf_counter() - began < clients * 0.5


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"order": "random"}, "order"),
        ({"row_length": 16}, "row_length"),
        ({"numbers": "int"}, "numbers"),
        ({"market_filter": "some"}, "market_filter"),
        ({"rate_limit": 0}, "rate_limit"),
        ({"faults": {"429": 0.6, "500": 0.6}}, "faults"),
        ({"max_faults_in_a_row": 0}, "max_faults_in_a_row"),
        ({"exchange": "0x12"}, "exchange"),
        ({"update_seconds": 0}, "update_seconds"),
        ({"update_seconds": float("nan")}, "update_seconds"),
        ({"update_fees": {"ETH": 2**96}}, "update_fees"),
        ({"fail_updates": {0: "no"}}, "fail_updates"),
        ({"wallet_factories": {"0x" + 40 * "1": "0x12"}}, "wallet_factories"),
        ({"rpc_log_blocks": 0}, "rpc_log_blocks"),
        ({"rpc_omitted_logs": 1.5}, "rpc_omitted_logs"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong, named):
    with pytest.raises(LabError, match=f"Setting {named}: .* should .*, got"):
        Settings(**wrong)


def test_an_unknown_setting_is_refused_by_name():
    with pytest.raises(LabError, match="Setting colour: "):
        Settings(colour="red")  # type: ignore[call-arg]


def test_settings_do_not_change():
    chances = {"429": 0.1}
    settings = Settings(faults=chances)
    chances["429"] = 0.9
    assert settings.faults["429"] == 0.1
    with pytest.raises(TypeError):
        settings.faults["429"] = 1  # type: ignore[index]


def test_from_text_reads_every_setting():
    text = [
        "order=oldest",
        "row_length=13",
        "numbers=number",
        "prefix=no",
        "market_filter=inclusive",
        "error_shape=flat",
        "growth=2",
        "growth_reserve=9",
        "rate_limit=5",
        "retry_after=yes",
        "latency=0.05",
        "faults=429:0.02, reset:0.01",
        "fault_seed=7",
        "max_faults_in_a_row=2",
        "slow_seconds=0.5",
        f"exchange=0x{40 * 'e'}",
        "chain_id=5",
        "update_seconds=0.1",
        "update_fees=ETH:1000,LRC:0",
        "fail_updates=2:balance: too low",
        "bad_signature_code=102010",
        "bare_signatures=no",
        "key_seed_required=no",
        "fee_key=required",
        f"wallet_factories=0x{40 * 'a'}:0x{64 * 'b'}",
        "hosts=Relayer.example, [::1]:9000",
        "rpc_log_blocks=10000",
        "rpc_log_results=1000",
        "rpc_batch=0",
        "rpc_omitted_logs=0.05",
        "rpc_missing_bodies=0.01",
        "page_rows=20",
        "counted_rows=100",
    ]
    assert Settings.from_text(text) == Settings(
        "oldest",
        13,
        "number",
        False,
        "inclusive",
        "flat",
        2,
        9,
        5,
        True,
        0.05,
        {"429": 0.02, "reset": 0.01},
        7,
        2,
        0.5,
        "0x" + 40 * "e",
        5,
        0.1,
        {"ETH": 1000, "LRC": 0},
        {2: "balance: too low"},
        102010,
        False,
        False,
        "required",
        {"0x" + 40 * "a": "0x" + 64 * "b"},
        ("relayer.example", "[::1]:9000"),
        10_000,
        1_000,
        0,
        0.05,
        0.01,
        20,
        100,
    )
    assert Settings.from_text(["row_length=none", "faults="]) == Settings()
    assert len(fields(Settings)) == len(text)
    assert Settings.from_text(["update_seconds=none"]).update_seconds is None


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("colour=red", "no such setting.*order"),
        ("order", "order: Input should be 'newest'"),
        ("row_length=ten", "valid integer.*got 'ten'.*row_length=13"),
        ("prefix=maybe", "valid boolean.*got 'maybe'.*prefix=no"),
        ("faults=429", "pairs.*got '429'.*faults=429:0.02"),
        ("latency=", "valid number.*got ''.*latency=0.05"),
        ("latency=nan", "latency: Input should be greater than or equal to 0"),
        ("faults=429:nan", "faults: Input should be greater than or equal to 0"),
        ("update_seconds=soon", "valid number.*got 'soon'.*update_seconds=0.05"),
        ("update_fees=ETH:0.1", "valid integer.*got '0.1'.*update_fees=ETH:19"),
        (
            "fail_updates=balance",
            "pairs.*got 'balance'.*fail_updates=2:balance too low",
        ),
        ("wallet_factories=0x12", "pairs.*got '0x12'.*wallet_factories=0x<40"),
        ("wallet_factories=0x12:0x12", "wallet_factories: String should match pattern"),
        (
            "hosts=http://a.example",
            "hosts: String should match pattern.*hosts=relayer.example",
        ),
    ],
)
def test_from_text_says_what_is_wrong(pair, message):
    with pytest.raises(LabError, match=message):
        Settings.from_text([pair])
