"""Every setting of the embedded relayer, observed over HTTP."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize("order", [None, "oldest", "shuffled"])
def test_rows_are_newest_first_unless_another_order_is_chosen(serve, world, order):
    relayer = serve(**({"order": order} if order else {}))
    rows = relayer.pages(accountId=ACCOUNT)
    assert rows == relayer.pages(accountId=ACCOUNT) == relayer.relayer.rows(ACCOUNT)
    truth = expected(world)
    assert sorted(rows) == sorted(truth)
    assert (rows == truth[::-1]) is (order is None)
    assert (rows == truth) is (order == "oldest")


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


@pytest.mark.parametrize("order", ["newest", "oldest", "shuffled"])
def test_growth_shows_the_oldest_hidden_rows_first_and_moves_no_other(serve, order):
    relayer = serve(growth=2, growth_reserve=5, order=order)
    truth = relayer.relayer.rows(ACCOUNT, everything=True)
    rows = relayer.relayer.rows(ACCOUNT)
    hidden = sorted(
        (row for row in truth if row not in rows), key=lambda row: int(row[1])
    )
    # Of each fill type five are held back.
    assert len(hidden) == 10
    for shown in (0, 2, 4, 6, 8, 10, 10):
        rows = relayer.relayer.rows(ACCOUNT)
        assert rows == [row for row in truth if row not in hidden[shown:]]
        relayer.trades(accountId=ACCOUNT, limit=1)


def test_growth_is_of_what_is_read(serve):
    relayer = serve(growth=1, growth_reserve=5)
    relayer.trades(accountId=ACCOUNT, fillTypes="dex", limit=1)
    for kind, hidden in (("dex", 4), ("amm", 5)):
        truth = relayer.relayer.rows(ACCOUNT, kind, everything=True)
        assert relayer.relayer.rows(ACCOUNT, kind) == truth[hidden:]


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
        ({"colour": "red"}, "'colour': there is no such setting.*one of order, "),
        ({"row_length": 16}, "row_length"),
        ({"rate_limit": 0}, "rate_limit"),
        ({"faults": {"429": 0.6, "500": 0.6}}, "faults"),
        ({"exchange": "0x12"}, "exchange"),
        ({"update_seconds": float("nan")}, "update_seconds"),
        ({"update_seconds": float("inf")}, "update_seconds"),
        ({"latency": float("inf")}, "latency"),
        ({"slow_seconds": float("inf")}, "slow_seconds"),
        ({"update_fees": {"ETH": 2**96}}, "update_fees"),
        ({"fail_updates": {0: "no"}}, "fail_updates"),
        ({"wallet_factories": {"0x" + 40 * "1": "0x12"}}, "wallet_factories"),
        ({"rpc_omitted_logs": 1.5}, "rpc_omitted_logs"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong, named):
    with pytest.raises(LabError, match=f"Setting {named}"):
        Settings(**wrong)


def test_settings_do_not_change():
    chances = {"429": 0.1}
    settings = Settings(faults=chances)
    chances["429"] = 0.9
    assert settings.faults["429"] == 0.1
    with pytest.raises(TypeError):
        settings.faults["429"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("order=oldest", "oldest"),
        ("row_length=13", 13),
        ("row_length=none", None),
        ("prefix=no", False),
        ("retry_after=yes", True),
        ("latency=0.05", 0.05),
        ("faults=429:0.02, reset:0.01", {"429": 0.02, "reset": 0.01}),
        ("faults=", {}),
        ("update_fees=ETH:1000,LRC:0", {"ETH": 1000, "LRC": 0}),
        ("fail_updates=2:balance: too low", {2: "balance: too low"}),
        (
            f"wallet_factories=0x{40 * 'a'}:0x{64 * 'b'}",
            {"0x" + 40 * "a": "0x" + 64 * "b"},
        ),
        ("hosts=Relayer.example, [::1]:9000", ("relayer.example", "[::1]:9000")),
    ],
)
def test_every_kind_of_setting_is_read_from_text(pair, value):
    name = pair.partition("=")[0]
    assert Settings.from_text([pair]) == Settings(**{name: value})


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("colour=red", "no such setting.*order"),
        ("order", "order: Input should be 'newest'"),
        ("row_length=ten", "valid integer.*got 'ten'.*row_length=13"),
        ("prefix=maybe", "valid boolean.*got 'maybe'.*prefix=no"),
        ("faults=429", "pairs.*got '429'.*faults=429:0.02"),
        ("latency=", "valid number.*got ''.*latency=0.05"),
        ("faults=429:nan", "faults: Input should be greater than or equal to 0"),
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
