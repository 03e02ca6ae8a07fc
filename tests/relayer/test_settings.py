"""Every setting of the embedded relayer, observed over HTTP."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from loopring_lab.errors import LabError
from loopring_lab.relayer import Settings

ACCOUNT = 58344
OTHER = 11519


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


def test_rows_are_newest_first(serve, world):
    relayer = serve()
    rows = relayer.pages(accountId=ACCOUNT)
    assert rows == relayer.pages(accountId=ACCOUNT) == relayer.relayer.rows(ACCOUNT)
    assert rows == expected(world)[::-1]


@pytest.mark.parametrize("length", [7, 13, 14])
def test_row_length(serve, world, length):
    relayer = serve(row_length=length)
    rows = relayer.pages(accountId=ACCOUNT)
    assert rows == [row[:length] for row in expected(world)[::-1]]
    assert {len(row) for row in rows} == {length}


def test_a_market_includes_the_pools_fills_and_fill_types_select_among_them(serve):
    relayer = serve()
    rows = relayer.pages(accountId=ACCOUNT)
    book = [row for row in rows if row[5] == "LRC-ETH"]
    pool = [row for row in rows if row[5] == "AMM-LRC-ETH"]
    both = [row for row in rows if row in [*book, *pool]]
    assert book
    assert pool
    for market, fill_types, expected in (
        ("LRC-ETH", "", both),
        ("LRC-ETH", "dex,amm", both),
        ("LRC-ETH", "amm", pool),
        ("LRC-ETH", "dex", book),
        ("AMM-LRC-ETH", "", pool),
        ("AMM-LRC-ETH", "amm", pool),
        ("AMM-LRC-ETH", "dex", []),
    ):
        query = {"market": market, "fillTypes": fill_types}
        assert relayer.pages(accountId=ACCOUNT, **query) == expected


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


def test_growth_shows_the_oldest_hidden_rows_first_and_moves_no_other(serve, world):
    relayer = serve(growth=40)
    truth = expected(world)[::-1]
    for hidden in (100, 60, 20, 0, 0):
        assert relayer.relayer.rows(ACCOUNT) == truth[hidden:]
        relayer.trades(accountId=ACCOUNT, limit=1)


def test_growth_is_of_the_account_that_is_read(serve):
    relayer = serve(growth=1)
    other = relayer.relayer.rows(OTHER)
    relayer.trades(accountId=ACCOUNT, limit=1)
    assert relayer.relayer.rows(OTHER) == other


def test_growth_hides_rows_from_orders_too(serve, world):
    relayer = serve(growth=100)
    hidden = expected(world)[-1]
    assert relayer.trades(orderHash=hidden[12])[0] == 0
    relayer.trades(accountId=ACCOUNT, limit=1)
    assert hidden in relayer.trades(orderHash=hidden[12])[1]


def test_latency_lets_requests_wait_together(serve):
    """All of them are there before one is answered, which would take an hour."""
    relayer = serve(latency=3600.0).relayer
    clients = 40

    def ask(address: str) -> None:
        with pytest.raises(requests.ConnectionError):
            requests.get(address, timeout=3600)

    with ThreadPoolExecutor(clients) as pool:
        address = relayer.base_url + "/api/v3/mix/markets"
        asked = [pool.submit(ask, address) for _ in range(clients)]
        while relayer.counts.requests["/mix/markets"] < clients:
            assert not any(one.done() for one in asked)
            time.sleep(0.001)
        relayer.stop()
        for one in asked:
            one.result()


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"colour": "red"}, "'colour': there is no such setting.*one of row_length, "),
        ({"row_length": 16}, "row_length"),
        ({"rate_limit": 0}, "rate_limit"),
        ({"faults": {"429": 0.6, "500": 0.6}}, "faults"),
        ({"faults": {"404": 0.1}}, "faults"),
        ({"exchange": "0x12"}, "exchange"),
        ({"update_seconds": float("nan")}, "update_seconds"),
        ({"update_seconds": float("inf")}, "update_seconds"),
        ({"latency": float("inf")}, "latency"),
        ({"update_fees": {"ETH": 2**96}}, "update_fees"),
        ({"fail_updates": {0: "no"}}, "fail_updates"),
        ({"wallet_factories": {"0x" + 40 * "1": "0x12"}}, "wallet_factories"),
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
        ("row_length=13", 13),
        ("latency=0.05", 0.05),
        ("faults=429:0.02, 503:0.01", {"429": 0.02, "503": 0.01}),
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
        ("colour=red", "no such setting.*row_length"),
        ("row_length", "row_length: Input should be a valid integer"),
        ("row_length=ten", "valid integer.*got 'ten'.*See help"),
        ("faults=429", "pairs.*got '429'"),
        ("latency=", "valid number.*got ''"),
        ("faults=429:nan", "faults: Input should be greater than or equal to 0"),
        ("update_fees=ETH:0.1", "valid integer.*got '0.1'"),
        ("fail_updates=balance", "pairs.*got 'balance'"),
        ("wallet_factories=0x12:0x12", "wallet_factories: String should match pattern"),
        ("hosts=http://a.example", "hosts: String should match pattern"),
    ],
)
def test_from_text_says_what_is_wrong(pair, message):
    with pytest.raises(LabError, match=message):
        Settings.from_text([pair])
