"""The explorers of trades without a view: choices, results, figures and generated code."""

import datetime as dt
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import IPython
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.cells import values

import loopring_lab as lab
from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.widgets import FeeExplorer, FillExplorer
from loopring_lab.widgets import explorer as explorer_module
from loopring_lab.widgets.explorer import Explorer
from loopring_lab.widgets.figure_view import FigureView

SECONDS, MARKET = 30, "LRC-ETH"
EVERYTHING: list[tuple[type, dict[str, Any]]] = [
    (FeeExplorer, {"figure": figure} | how)
    for figure in FeeExplorer.FIGURES
    for how in ({}, {"market": MARKET, "side": "BUY", "every": "1w", "by": ("fill_type", "side")})
] + [
    (FillExplorer, {"figure": figure} | how)
    for figure in FillExplorer.FIGURES
    if figure not in ("venue_differences", "markouts")
    for how in ({}, {"market": MARKET, "every": "1mo", "by": "side", "tolerance": "1d"})
]


def on_screen(explorer: Explorer) -> str:
    return repr(lab.show(explorer.shown, precision=8, rows=24))


def test_trades_are_chosen_as_plain_python_would(trades: pd.DataFrame) -> None:
    explorer = FillExplorer(
        trades, market=MARKET, side="SELL", fill_type="dex", since="2022-03-01", until=dt.date(2022, 6, 1)
    )
    start, end = pd.Timestamp("2022-03-01", tz="UTC"), pd.Timestamp("2022-06-01", tz="UTC")
    expected = [
        place
        for place, row in enumerate(trades.itertuples())
        if row.market == MARKET and row.side == "SELL" and row.fill_type == "dex" and start <= row.created_at < end
    ]
    assert len(expected) > 10
    assert explorer.chosen.index.tolist() == expected
    words = "market LRC-ETH, side SELL, type dex, from 2022-03-01, before 2022-06-01"
    assert explorer.summary == f"{len(expected):,} of {len(trades):,} trades: {words}"


def test_the_table_is_the_librarys(trades: pd.DataFrame) -> None:
    mine = trades[trades["market"] == MARKET]
    fees = FeeExplorer(trades, market=MARKET, by="side", role=None)
    assert_frame_equal(fees.table, lab.fees.summary(mine, by=["side"]))
    fills = FillExplorer(trades, market=MARKET, figure="price_gaps", tolerance="1d")
    assert_frame_equal(fills.table, lab.fills.price_gap(mine, tolerance="1d", by=[]))


@pytest.mark.parametrize(("kind", "how"), EVERYTHING, ids=str)
def test_the_code_gives_what_is_on_screen(kind: type, how: dict[str, Any], trades: pd.DataFrame) -> None:
    explorer = kind(trades, since="2022-01-01", **how)
    table, figure = values(explorer.export(), trades=trades)
    assert repr(table) == on_screen(explorer)
    assert FigureView(figure).svg == FigureView(explorer.draw()).svg
    assert explorer.export().count("\n") < 10


def test_the_code_has_the_names_of_the_notebook(
    trades: pd.DataFrame, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = client.outside_prices(trades, every="1h")
    known = {
        "prices": None,
        "_2": trades,
        "trades": trades.head(3),
        "taken": trades,
        "reference": prices,
        "source": client,
    }
    monkeypatch.setattr(IPython, "get_ipython", lambda: SimpleNamespace(user_ns=known, execution_count=1))
    explorer = FillExplorer(trades, prices=prices, figure="venue_differences", market=MARKET)
    table, _ = values(explorer.export(), taken=trades, reference=prices)
    assert repr(table) == on_screen(explorer)
    reader = FeeExplorer(client, account=10083)
    assert "trades = source.trades(account_id=10083)\nchosen = trades\n" in reader.export()
    assert "chosen = trades\n" in FeeExplorer(trades.tail(3), role=None).export()


def test_the_code_reads_the_trades_again(client: Client) -> None:
    explorer = FeeExplorer(client, account=10083, market=MARKET)
    explorer.read()
    explorer.wait(SECONDS)
    table, _ = values(explorer.export(), client=client)
    assert repr(table) == on_screen(explorer)


def test_no_table_is_computed_twice_for_the_same_choices(trades: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    explorer, computed = FeeExplorer(trades, market=MARKET), []
    summary = lab.fees.summary
    monkeypatch.setattr(lab.fees, "summary", lambda *given, **how: computed.append(1) or summary(*given, **how))
    first = explorer.table
    explorer.side = "BUY"
    assert not explorer.table.equals(first)
    explorer.side = None
    assert explorer.table is first
    assert len(computed) == 2


def test_choices_that_fit_no_trade_are_named(trades: pd.DataFrame) -> None:
    explorer = FeeExplorer(trades, market=MARKET, until="2000-01-01")
    with pytest.raises(
        LabError, match=r"None of [\d,]+ trades matches \(market LRC-ETH, role taker, before 2000-01-01\)"
    ):
        _ = explorer.table
    assert not explorer.is_chosen


def test_a_market_without_trades_is_refused_with_the_nearest(trades: pd.DataFrame) -> None:
    explorer = FeeExplorer(trades)
    assert MARKET in explorer.markets
    assert trades["market"].value_counts().loc[explorer.markets].is_monotonic_decreasing
    with pytest.raises(LabError, match="Did you mean 'LRC-ETH'?"):
        explorer.market = "lrc-ehh"
    assert explorer.market is None


def test_a_market_is_understood_in_any_case(trades: pd.DataFrame, client: Client) -> None:
    assert FeeExplorer(trades, market="lrc-eth").market == MARKET
    explorer = FeeExplorer(client, account=10083, market="Lrc-Eth")
    explorer.read()
    explorer.wait(SECONDS)
    assert explorer.market == MARKET
    two = trades.assign(market=["LRC-ETH", "lrc-eth"] * (len(trades) // 2) + ["LRC-ETH"] * (len(trades) % 2))
    with pytest.raises(LabError, match="market='Lrc-Eth' is not known"):
        FeeExplorer(two, market="Lrc-Eth")


def test_rates_are_of_takers_unless_another_role_is_chosen(trades: pd.DataFrame) -> None:
    """Makers pay nothing here: drawn together with takers, the rate falls to 0 where makers trade."""
    explorer = FeeExplorer(trades)
    assert (explorer.role, FillExplorer(trades).role) == ("taker", None)
    rows = list(zip(trades["role"], trades["fee"], strict=True))
    for role in ("taker", "maker"):
        explorer.role = role
        mine = [fee for one, fee in rows if one == role]
        assert len(explorer.chosen) == len(mine) > 100
        assert explorer.table["fills"].sum() == len(mine)
        assert f"chosen = chosen[chosen['role'] == '{role}']" in explorer.export()
        assert f"role {role}" in explorer.summary
    assert not any(fee for one, fee in rows if one == "maker")
    explorer.role = None
    assert len(explorer.chosen) == len(trades)


def test_unknown_roles_are_named_and_found_where_they_follow(trades: pd.DataFrame) -> None:
    early = trades.assign(role=None)
    explorer = FeeExplorer(early)
    found = lab.fills.with_roles(early)
    takers, unknown = found[found["role"] == "taker"], found[found["role"].isna()]
    assert 100 < len(takers) < len(trades)
    assert_frame_equal(explorer.table, lab.fees.summary(takers, by=["market"]))
    counts = f"{len(takers):,} of {len(trades):,} trades: role taker"
    assert explorer.summary == f"{counts}; {len(unknown):,} of unknown role are left out"
    table, _ = values(explorer.export(), trades=early)
    assert repr(table) == on_screen(explorer)
    explorer.role = "unknown"
    assert explorer.chosen["trade_id"].tolist() == unknown["trade_id"].tolist()
    table, _ = values(explorer.export(), trades=early)
    assert repr(table) == on_screen(explorer)
    explorer.role = "maker"
    with pytest.raises(LabError, match=rf"By role: taker {len(takers):,}, unknown {len(unknown):,}\."):
        _ = explorer.table


def test_several_accounts_are_read_into_one_frame(client: Client) -> None:
    explorer = FeeExplorer(client, account="11519, 10083", role=None)
    explorer.read()
    assert explorer.doing == "Reading the trades of accounts 11519, 10083"
    explorer.wait(SECONDS)
    counted = [client.count(account) for account in (11519, 10083)]
    assert explorer.trades["account_id"].tolist() == [11519] * counted[0] + [10083] * counted[1]
    assert (explorer.done, explorer.whole) == (sum(counted), sum(counted))
    table, _ = values(explorer.export(), client=client)
    assert repr(table) == on_screen(explorer)
    assert FeeExplorer(client, account=[10083]).account == 10083


def test_an_account_that_is_taken_away_leaves_nothing_to_export(client: Client) -> None:
    explorer = FeeExplorer(client, account=10083)
    explorer.read()
    explorer.wait(SECONDS)
    explorer.account = ""
    assert not explorer.is_read
    for ask in (explorer.export, explorer.read):
        with pytest.raises(LabError, match=r"No account is chosen\. Enter an account id, such as 10083"):
            ask()


def test_reversed_dates_are_refused_in_words(trades: pd.DataFrame) -> None:
    words = "since='2022-06-01' is after until='2022-03-01', so nothing is between them"
    with pytest.raises(LabError, match=words):
        FillExplorer(trades, since="2022-06-01", until="2022-03-01")
    explorer = FillExplorer(trades, since="2022-06-01")
    explorer.until = "2022-03-01"
    with pytest.raises(LabError, match=words):
        _ = explorer.table
    explorer.until = "2022-06-01"
    with pytest.raises(LabError, match=r"None of .* \(from 2022-06-01, before 2022-06-01\)\. Widen"):
        _ = explorer.table


def test_periods_end_with_the_newest_trade(trades: pd.DataFrame) -> None:
    old = trades[trades["created_at"] < "2022-03-31"]
    explorer = FeeExplorer(old)
    assert old["created_at"].max().date() == dt.date(2022, 3, 30)
    firsts = {span: explorer.first_day(span).isoformat() for span in explorer_module.SPANS}
    assert firsts == {
        "7 days": "2022-03-24", "30 days": "2022-03-01", "quarter": "2021-12-31", "year": "2021-03-31"
    }  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(("figure", "horizons"), [("venue_differences", {"horizon": "1h"}), ("markouts", {})], ids=str)
def test_venues_and_markouts_are_compared_with_prices_from_outside(
    client: Client, figure: str, horizons: dict[str, str]
) -> None:
    explorer = FillExplorer(client, account=10083, market=MARKET, figure=figure)
    explorer.read()
    explorer.wait(SECONDS)
    with pytest.raises(LabError, match=r"needs prices from outside the exchange\. Call read_prices\(\)"):
        explorer.draw()
    explorer.read_prices()
    explorer.wait(SECONDS)
    mine = client.trades(10083, market=MARKET, progress=False)
    prices = client.outside_prices(mine, every="1h")
    if figure == "markouts":
        expected = lab.fills.markouts(mine, prices, ["1h", "6h", "1d"], by=["fill_type"])
    else:
        expected = lab.fills.compare_venues(mine, prices, by=[], horizon="1h")
    assert_frame_equal(explorer.table, expected)
    assert expected["reference"].unique().tolist() == ["outside prices"]
    table, drawn = values(explorer.export(), client=client)
    assert repr(table) == on_screen(explorer)
    assert FigureView(drawn).svg == FigureView(explorer.draw()).svg


def test_without_prices_from_outside_the_choice_says_what_is_missing(trades: pd.DataFrame, client: Client) -> None:
    explorer = FillExplorer(trades, figure="venue_differences", market=MARKET)
    with pytest.raises(LabError, match=r"needs prices from outside the exchange\. Give prices="):
        explorer.draw()
    prices = client.outside_prices(explorer.chosen, every="1h")
    given = FillExplorer(trades, prices=prices, figure="venue_differences", market=MARKET)
    table, _ = values(given.export(), trades=trades, prices=prices)
    assert repr(table) == on_screen(given)


class Shell:
    """Stands for IPython's shell in a notebook's cell."""

    def __init__(self, cell: str, run: str) -> None:
        self.parent_header = {"header": {"msg_id": run}, "metadata": {"cellId": cell}}


def test_a_cell_that_is_run_again_keeps_the_choices_made_in_it(
    trades: pd.DataFrame, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(cell: str, message: str) -> None:
        monkeypatch.setattr(IPython, "get_ipython", lambda: Shell(cell, message))

    run("one", "first")
    first, second = FeeExplorer(trades), FeeExplorer(trades)
    first.market, first.by, first.since = MARKET, "side", "2022-05-01"
    second.side = "SELL"
    run("one", "again")
    again = [FeeExplorer(trades), FeeExplorer(trades)]
    assert [(one.market, one.by, one.side) for one in again] == [
        (MARKET, ("side",), None), (None, ("market",), "SELL")
    ]  # fmt: skip
    run("one", "with other arguments")
    given = FeeExplorer(trades, market="ETH-USDC", until="2022-04-01")
    assert (given.market, given.by, given.since) == ("ETH-USDC", ("side",), None)
    run("one", "with trades that lack the market")
    assert FeeExplorer(trades[trades["market"] == MARKET].head(50)).market is None
    run("another", "first")
    assert FeeExplorer(trades).by == ("market",)
    run("one", "of another class")
    assert FillExplorer(trades).by == ()
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    assert FeeExplorer(trades).by == ("market",)


@pytest.mark.parametrize("source", [None, 10083, pd.DataFrame({"fee": [1]}), "client"])
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(LabError, match="expected a client, or trades as a pandas DataFrame"):
        FeeExplorer(source)


def test_an_account_needs_a_client(trades: pd.DataFrame) -> None:
    with pytest.raises(LabError, match="account= needs a client"):
        FeeExplorer(trades, account=10083)
    with pytest.raises(LabError, match="Give a client"):
        FeeExplorer(trades).read()


def test_a_client_is_read_when_asked_and_begins_with_a_known_account(client: Client) -> None:
    explorer = FillExplorer(client)
    assert explorer.account == client.accounts[0]
    assert not explorer.is_read
    with pytest.raises(LabError, match="No trades are read yet"):
        _ = explorer.table
    explorer.account = 10083
    explorer.wait(SECONDS)
    assert_frame_equal(explorer.trades, client.trades(10083))
    assert explorer.trades.attrs["synthetic"]
    assert (explorer.done, explorer.whole) == (len(explorer.trades), len(explorer.trades))


def test_a_newer_account_wins(client: Client, gated: Callable[[], Any]) -> None:
    slow, transport = gated()
    explorer = FeeExplorer(slow, account=10083)
    explorer.read()
    assert transport.asked.wait(SECONDS)
    old = explorer._job.thread
    explorer.account = 23100
    transport.let.set()
    explorer.wait(SECONDS)
    old.join(SECONDS)
    assert explorer.trades["account_id"].unique().tolist() == [23100]
    assert explorer.account == 23100


def test_a_reading_that_is_cancelled_reads_no_further(gated: Callable[[], Any]) -> None:
    slow, transport = gated()
    explorer = FeeExplorer(slow, account=10083)
    explorer.read()
    assert transport.asked.wait(SECONDS)
    thread = explorer._job.thread
    explorer.cancel()
    transport.let.set()
    thread.join(SECONDS)
    assert not explorer.is_read
    assert explorer.problem.startswith("Reading the trades of account 10083: cancelled")


def test_an_unknown_account_is_reported(client: Client) -> None:
    explorer = FeeExplorer(client, account=2)
    explorer.read()
    explorer.wait(SECONDS)
    assert "there is no account 2. No such account; check account_id (" in explorer.problem
    assert not explorer.is_read


def test_no_trades_at_all_are_reported(trades: pd.DataFrame) -> None:
    with pytest.raises(LabError, match="There are no trades. Choose another account"):
        _ = FeeExplorer(trades.head(0)).table


def test_a_key_that_is_not_accepted_is_asked_for(client: Client) -> None:
    explorer = FeeExplorer(client.with_api_key("not-a-key"), account=10083)
    explorer.read()
    explorer.wait(SECONDS)
    assert explorer.needs_key
    assert "API key" in explorer.problem
    assert "not-a-key" not in explorer.problem
    explorer.unlock(client._transport._key)
    explorer.wait(SECONDS)
    assert (explorer.needs_key, explorer.problem, explorer.is_read) == (False, "", True)


def test_sizes_are_of_one_quote_token_in_figure_and_table(trades: pd.DataFrame) -> None:
    explorer = FillExplorer(trades, figure="size_profile")
    most = trades["quote"].value_counts().idxmax()
    other = next(one for one in explorer.names("quote") if one != most)
    for chosen, quote in ((None, most), (other, other)):
        explorer.quote = chosen
        assert f"largest ({quote})" in on_screen(explorer)
        assert explorer.draw().axes[0].get_xlabel() == f"size of the fill ({quote})"
        mine = lab.fills.size_profile(trades)
        assert len(explorer.shown) == (mine["quote"] == quote).sum()


def test_the_states_load_no_widgets_and_no_figures() -> None:
    code = (
        "import sys, loopring_lab.widgets; print(*sorted({'ipywidgets', 'anywidget', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


def test_code_leaves_out_arguments_that_are_none() -> None:
    call = explorer_module.LibraryCall("fees.summary", {"by": ["market"], "every": None})
    assert call.code("trades") == "lab.fees.summary(trades, by=['market'])"
