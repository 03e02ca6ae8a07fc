"""The explorers of trades: choices, what is on the page, and the code of it."""

import datetime as dt
import io
import subprocess
import sys
import threading
from html import unescape
from types import SimpleNamespace

import IPython
import ipywidgets
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from support.cells import values
from support.optional import thorough
from widgets.conftest import SECONDS, OnPage

import loopring_lab as lab
from loopring_lab.errors import LabError
from loopring_lab.widgets import FeeExplorer, FillExplorer
from loopring_lab.widgets.figure_view import FigureView
from loopring_lab.widgets.table_view import TableView

ACCOUNT = 10083
OTHER = 23100
ARBITRAGEUR = 12059
MARKET = "LRC-ETH"
WITHOUT_PRICES = [
    name
    for name in FillExplorer.FIGURES
    if name not in ("venue_differences", "markouts")
]
FILTERED = {"market": MARKET, "side": "BUY", "every": "1w", "by": ("fill_type", "side")}
FILTERED_FILLS = {"market": MARKET, "every": "1mo", "by": "side", "tolerance": "1d"}
# Each figure as it begins, and with filters. One of each explorer is fast, the others are thorough.
BEGUN = [
    *((FeeExplorer, figure, {}) for figure in FeeExplorer.FIGURES),
    *((FillExplorer, figure, {}) for figure in WITHOUT_PRICES),
]
NARROWED = [
    *((FeeExplorer, figure, FILTERED) for figure in FeeExplorer.FIGURES),
    *((FillExplorer, figure, FILTERED_FILLS) for figure in WITHOUT_PRICES),
]
FAST = [(FeeExplorer, "fee_tiers", {}), (FillExplorer, "price_gaps", FILTERED_FILLS)]
EVERYTHING = [one if one in FAST else thorough(*one) for one in BEGUN + NARROWED]


def shows(page, figure, table):
    """Compare what is on the page with a figure and a table of the library."""
    assert page.problem == ""
    assert page.figure.page["svg"] == FigureView(figure).page["svg"]
    assert page.table.page == TableView(table, precision=8).page


def shows_its_code(page, **names):
    """Compare what is on the page with what its code gives."""
    table, figure = values(page.widget.export(), **names)
    assert page.figure.page["svg"] == FigureView(figure).page["svg"]
    assert repr(lab.show(page.table.frame, precision=8, rows=24)) == repr(table)


# What is chosen


def test_trades_are_chosen_as_plain_python_would(trades):
    kept = {"market": MARKET, "side": "SELL", "fill_type": "dex"}
    span = {"since": "2022-03-01", "until": dt.date(2022, 6, 1)}
    explorer = FillExplorer(trades, **kept, **span)
    start = pd.Timestamp("2022-03-01", tz="UTC")
    end = pd.Timestamp("2022-06-01", tz="UTC")
    expected = [
        place
        for place, row in enumerate(trades.to_dict("records"))
        if kept.items() <= row.items() and start <= row["created_at"] < end
    ]
    assert len(expected) > 10
    assert explorer.chosen.index.tolist() == expected
    counts = f"Share over time, {len(expected):,} of {len(trades):,} trades: "
    filters = "market LRC-ETH, side SELL, type dex, from 2022-03-01, before 2022-06-01"
    assert counts + filters in OnPage(explorer).text


@pytest.mark.parametrize(("kind", "figure", "how"), EVERYTHING, ids=str)
def test_the_code_gives_what_is_on_the_page(kind, figure, how, trades):
    page = OnPage(kind(trades, since="2022-01-01", figure=figure, **how))
    shows_its_code(page, trades=trades)
    assert page.widget.export().count("\n") < 10


@pytest.mark.thorough
def test_the_code_has_the_names_of_the_notebook(trades, client, monkeypatch):
    prices = client.outside_prices(trades, every="1h")
    known = {"prices": None, "_2": trades, "trades": trades.head(3), "taken": trades}
    known |= {"reference": prices, "source": client}
    monkeypatch.setattr(
        IPython,
        "get_ipython",
        lambda: SimpleNamespace(user_ns=known, execution_count=1),
    )
    explorer = FillExplorer(
        trades, prices=prices, figure="venue_differences", market=MARKET
    )
    code = explorer.export()
    reading = FeeExplorer(client, account=ACCOUNT).export()
    monkeypatch.undo()
    table, _ = values(code, taken=trades, reference=prices)
    assert repr(table) == repr(lab.show(explorer.table, precision=8, rows=24))
    assert "trades = source.trades(account_id=10083)\nchosen = trades\n" in reading
    assert "chosen = trades\n" in FeeExplorer(trades.tail(3), role=None).export()


def test_no_table_is_computed_twice_for_the_same_choices(trades, monkeypatch):
    explorer = FeeExplorer(trades, market=MARKET)
    computed = []
    summary = lab.fees.summary
    monkeypatch.setattr(
        lab.fees,
        "summary",
        lambda *given, **how: computed.append(1) or summary(*given, **how),
    )
    first = explorer.table
    explorer.side = "BUY"
    assert not explorer.table.equals(first)
    explorer.side = None
    assert explorer.table is first
    assert len(computed) == 2


def test_a_market_is_understood_in_any_case(trades, client):
    assert FeeExplorer(trades, market="lrc-eth").market == MARKET
    explorer = FeeExplorer(client, account=ACCOUNT, market="Lrc-Eth")
    explorer.read()
    explorer.wait(SECONDS)
    assert explorer.market == MARKET
    two = trades.assign(
        market=["LRC-ETH", "lrc-eth"] * (len(trades) // 2)
        + ["LRC-ETH"] * (len(trades) % 2)
    )
    with pytest.raises(LabError, match="market='Lrc-Eth' is not known"):
        FeeExplorer(two, market="Lrc-Eth")


def test_rates_are_of_takers_unless_another_role_is_chosen(trades):
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
    assert not any(fee for one, fee in rows if one == "maker")
    explorer.role = None
    assert len(explorer.chosen) == len(trades)


def test_unknown_roles_are_named_and_found_where_they_follow(trades):
    early = trades.assign(role=None)
    explorer = FeeExplorer(early)
    page = OnPage(explorer)
    found = lab.fills.with_roles(early)
    takers = found[found["role"] == "taker"]
    unknown = found[found["role"].isna()]
    assert 100 < len(takers) < len(trades)
    assert_frame_equal(explorer.table, lab.fees.summary(takers, by=["market"]))
    counts = f"{len(takers):,} of {len(trades):,} trades: role taker"
    assert f"{counts}; without {len(unknown):,} of unknown role" in page.text
    explorer.role = "unknown"
    assert explorer.chosen["trade_id"].tolist() == unknown["trade_id"].tolist()
    shows_its_code(page, trades=early)
    explorer.role = "maker"
    assert f"By role: taker {len(takers):,}, unknown {len(unknown):,}." in page.problem


def test_sizes_are_of_one_quote_token_in_figure_and_table(trades):
    explorer = FillExplorer(trades, figure="size_profile")
    page = OnPage(explorer)
    counts = trades["quote"].value_counts()
    sizes = lab.fills.size_profile(trades)
    for chosen, quote in ((None, counts.index[0]), (counts.index[1], counts.index[1])):
        explorer.quote = chosen
        assert (
            page.figure.page["svg"]
            == FigureView(lab.figures.size_profile(trades, quote=quote)).page["svg"]
        )
        assert len(page.table.frame) == (sizes["quote"] == quote).sum()
        assert f"largest ({quote})" in page.table.page["html"]


# What takes long


class Gate:
    """Stands before a function of the library: a call waits until it is let through."""

    def __init__(self, function):
        self.function = function
        self.asked = threading.Semaphore(0)
        self.let = threading.Event()
        self.done = threading.Semaphore(0)

    def __call__(self, *given, **how):
        self.asked.release()
        assert self.let.wait(SECONDS)
        try:
            return self.function(*given, **how)
        finally:
            self.done.release()

    def end(self, calls):
        """Let calls through, and wait for them: no thread may outlive the tests."""
        self.let.set()
        for _ in range(calls):
            assert self.done.acquire(timeout=SECONDS)


def is_old(page):
    """Tell whether what is shown looks old."""
    return any("ll-old" in part._dom_classes for part in page.parts(ipywidgets.Box))


def test_a_slow_figure_keeps_nothing_waiting_and_can_be_cancelled(trades, monkeypatch):
    gate = Gate(lambda trades, **how: lab.figures.fill_shares(trades))
    monkeypatch.setattr(lab.figures, "markouts", gate)
    prices = pd.DataFrame({"price": []})
    monkeypatch.setattr(lab.fills, "markouts", lambda trades, **how: trades[["size"]])
    page = OnPage(FillExplorer(trades, prices=prices))
    before = page.figure.page
    page.control("Figure").value = "markouts"
    # The thread that chose it is here already, while the figure is not.
    assert gate.asked.acquire(timeout=SECONDS)
    assert is_old(page)
    assert page.figure.page == before
    assert "Drawing Markouts" in page.text
    assert "lab.figures.markouts" in page.code
    assert page.widget._saved._html() == page.parts(ipywidgets.HTML)[1].value
    page.control("Cancel").click()
    assert "Drawing Markouts: cancelled" in page.problem
    assert page.figure is page.table is None
    assert not is_old(page)
    gate.end(1)


@pytest.mark.thorough
def test_the_newest_choice_wins_over_a_slow_figure(trades, monkeypatch):
    prices = lab.connect().outside_prices(trades, every="1h")
    compare = lab.figures.venue_differences
    gate = Gate(compare)
    monkeypatch.setattr(lab.figures, "venue_differences", gate)
    page = OnPage(FillExplorer(trades, prices=prices, market="ETH-USDC"))
    page.control("Figure").value = "venue_differences"
    assert gate.asked.acquire(timeout=SECONDS)
    page.control("Market").value = MARKET
    assert gate.asked.acquire(timeout=SECONDS)
    assert is_old(page)
    gate.let.set()
    page.wait()
    assert not is_old(page)
    chosen = trades[trades["market"] == MARKET]
    table = lab.fills.compare_venues(chosen, prices=prices, horizon="1h")
    shows(page, compare(chosen, prices=prices, by=["market"], horizon="1h"), table)
    # A quick figure is there at once, and ends the work for another.
    gate.let.clear()
    page.control("Side").value = "BUY"
    assert gate.asked.acquire(timeout=SECONDS)
    page.control("Figure").value = "fill_shares"
    assert page.widget.background.doing == ""
    assert (
        page.figure.page == FigureView(lab.figures.fill_shares(page.widget.chosen)).page
    )
    gate.end(3)


# What cannot be shown


def test_choices_that_fit_no_trade_are_named_and_fixed(trades):
    explorer = FeeExplorer(trades, market=MARKET)
    page = OnPage(explorer).enter("Before", dt.date(1999, 1, 1))
    said = r"None of [\d,]+ trades matches \(market LRC-ETH, role taker, before 1999-01-01\)\. Widen the filters\."
    with pytest.raises(LabError, match=said):
        _ = explorer.table
    assert (
        "trades matches (market LRC-ETH, role taker, before 1999-01-01)" in page.problem
    )
    assert page.figure is page.table is None
    page.enter("Before", None)
    assert page.problem == ""
    assert page.figure
    assert page.table


def test_a_figure_that_cannot_be_drawn_leaves_the_table(trades):
    page = OnPage(FillExplorer(trades, figure="price_gaps", tolerance="1d"))
    assert page.figure
    page.enter("Fills", "amm")
    assert page.problem.startswith("This figure cannot be drawn: no fill has an")
    assert page.figure is None
    assert page.table.frame.equals(page.widget.table)


def test_errors_name_the_controls(trades):
    page = OnPage(FeeExplorer(trades)).enter("From", dt.date(2022, 3, 2))
    page.enter("Before", dt.date(2022, 3, 1))
    said = "From 2022-03-02 is after Before 2022-03-01, so nothing is between them. Swap them."
    assert page.problem == said
    page.enter("Before", None).enter("From", None).enter("Figure", "fee_tiers")
    assert page.problem == ""
    said = "Per 1h would draw more than 1,000 periods. Give a longer one, such as a week in Per."
    assert page.enter("Per", "1h").problem == said
    page = OnPage(FillExplorer(trades, figure="size_profile", quote="XYZ"))
    assert page.problem.endswith("Pass other trades, or another token in Quoted in.")
    alone = FillExplorer(trades.head(1), figure="cost_curve")
    assert OnPage(alone).problem.endswith("or allow more with Prices within.")


@pytest.mark.parametrize("source", [None, 10083, "client"])
def test_what_is_no_source_is_refused(source):
    with pytest.raises(
        LabError, match="expected a client, or trades as a pandas DataFrame"
    ):
        FeeExplorer(source)


def test_a_frame_that_lacks_columns_of_trades_is_refused_by_their_names(trades):
    with pytest.raises(LabError, match="FeeExplorer: .* no column 'fill_type'. It has"):
        FeeExplorer(trades[["created_at", "trade_id", "fee"]])
    with pytest.raises(LabError, match=r"no column 'created_at'. .* \.reset_index\(\)"):
        FeeExplorer(trades.set_index("created_at"))
    for name in ("market", "quote", "side", "role"):
        with pytest.raises(LabError, match=f"FillExplorer: .* no column '{name}'"):
            FillExplorer(trades.drop(columns=name))


def test_times_that_are_texts_or_lack_a_zone_are_refused(trades):
    saved = io.StringIO(trades.to_csv())
    with pytest.raises(LabError, match="FeeExplorer: created_at is str, not a time"):
        FeeExplorer(pd.read_csv(saved))
    local = trades.assign(created_at=trades["created_at"].dt.tz_localize(None))
    with pytest.raises(LabError, match="FillExplorer: .* not a time with a time zone"):
        FillExplorer(local)


def test_times_with_a_zone_may_be_objects(trades):
    explorer = FillExplorer(trades.astype({"created_at": object}))
    assert_frame_equal(explorer.table, FillExplorer(trades).table)


@pytest.mark.parametrize("by", [5, 0, "sides", ["side", 5]])
def test_what_is_no_column_to_group_by_is_refused(by, trades):
    with pytest.raises(LabError, match=r"^by=.* is not known\. (Give|Did)"):
        FeeExplorer(trades, by=by)


def test_an_account_needs_a_client(trades):
    with pytest.raises(LabError, match="account= needs a client"):
        FeeExplorer(trades, account=ACCOUNT)
    with pytest.raises(LabError, match="Give a client"):
        FeeExplorer(trades).read()


# Controls


def test_each_control_changes_table_and_figure(trades):
    page = OnPage(FeeExplorer(trades))
    entered = {
        "Market": MARKET,
        "Side": "SELL",
        "Fills": "dex",
        "Role": "",
        "From": dt.date(2022, 2, 1),
        "Before": dt.date(2022, 9, 1),
        "Figure": "fee_tiers",
        "Per": "1mo",
        "Table by": ("fill_type",),
    }
    for label, value in entered.items():
        page.enter(label, value)
    mine = trades.query("market == @MARKET and side == 'SELL' and fill_type == 'dex'")
    mine = mine[mine["created_at"].between("2022-02-01", "2022-09-01", "left")]
    columns = (
        "fill_type fee_token fills fee bps median_bps zero_fee_share received unknown"
    )
    shows(
        page,
        lab.figures.fee_tiers(mine, every="1mo"),
        lab.fees.summary(mine, by=["fill_type"])[columns.split()],
    )
    for label, name in (("Market", "market"), ("Side", "side"), ("Fills", "fill_type")):
        page.enter(label, "")
        assert getattr(page.widget, name) is None


def test_a_period_sets_the_dates_and_follows_them(trades):
    explorer = FeeExplorer(trades)
    page = OnPage(explorer)
    period = page.control("Period")
    assert [label for label, _ in period.options] == [
        "all",
        "7 days to 31 Dec 2022",
        "30 days to 31 Dec 2022",
        "quarter to 31 Dec 2022",
        "year to 31 Dec 2022",
    ]
    explorer.until = dt.date(2022, 6, 1)
    assert period.value == "own dates"
    page.enter("Period", "30 days to 31 Dec 2022")
    assert (explorer.since, explorer.until) == (dt.date(2022, 12, 2), None)
    page.enter("Period", "all")
    assert (explorer.since, explorer.until) == (None, None)
    explorer.since = dt.date(2022, 12, 25)
    assert period.value == "7 days to 31 Dec 2022"
    old = OnPage(FeeExplorer(trades[trades["created_at"] < "2022-03-31"]))
    for span, first in {"30 days": "2022-03-01", "year": "2021-03-31"}.items():
        period = f"{span} to 30 Mar 2022"
        assert old.enter("Period", period).widget.since.isoformat() == first


# Reading


def test_a_client_is_read_when_shown_and_begins_with_a_known_account(client):
    explorer = FillExplorer(client)
    assert explorer.account == client.accounts[0]
    with pytest.raises(LabError, match="No trades are read yet"):
        _ = explorer.table
    explorer.account = ACCOUNT
    explorer.wait(SECONDS)
    assert_frame_equal(explorer.chosen, client.trades(ACCOUNT))
    assert explorer.chosen.attrs["synthetic"]
    shows_its_code(OnPage(explorer), client=client)


@pytest.mark.thorough
def test_several_accounts_are_read_into_one_frame(client):
    explorer = FeeExplorer(client, account="79927, 10083", role=None)
    page = OnPage(explorer).wait()
    assert_frame_equal(explorer.chosen, client.trades([79927, 10083]))
    assert page.control("Account").value == "79927, 10083"
    assert "trades = client.trades(account_id=[79927, 10083])" in page.code
    page.enter("Table by", ("account_id",))
    assert explorer.table["account_id"].drop_duplicates().tolist() == [10083, 79927]
    shows_its_code(page, client=client)
    assert FeeExplorer(client, account=[10083]).account == 10083


def test_an_account_that_is_taken_away_leaves_nothing(client):
    explorer = FeeExplorer(client, account=ACCOUNT)
    page = OnPage(explorer).wait()
    page.enter("Account", "")
    none = "No account is chosen. Enter an account id, such as 10083, or several."
    assert page.problem == none
    assert page.figure is page.table is None
    assert page.code == f"# {none}"
    for ask in (explorer.export, explorer.read):
        with pytest.raises(LabError, match=r"No account is chosen"):
            ask()


def test_a_wrong_account_is_said_in_place_and_stays_to_be_fixed(client):
    page = OnPage(FeeExplorer(client, account=ACCOUNT)).wait()
    page.enter("Account", "1oo83")
    assert "Account '1oo83' is not a valid account id" in page.problem
    assert page.control("Account").value == "1oo83"
    assert page.widget.account == ACCOUNT
    assert "there is no account 2." in page.enter("Account", "2").problem


def test_reading_shows_progress_and_is_cancelled_by_its_button(gated):
    client, transport = gated()
    page = OnPage(FeeExplorer(client, account=ACCOUNT))
    assert transport.asked.wait(SECONDS)
    assert f"Reading the trades of account {ACCOUNT}" in page.text
    cancel = page.control("Cancel")
    cancel.click()
    assert f"account {ACCOUNT}: cancelled" in page.problem
    # The second of two clicks, which comes when there is nothing left to cancel.
    cancel.click()
    assert f"account {ACCOUNT}: cancelled" in page.problem
    assert page.figure is None
    transport.let.set()
    page.press("Read again")
    assert page.figure
    assert page.problem == ""
    assert {value for _, value in page.control("Market").options} == {
        "",
        *client.trades(ACCOUNT)["market"],
    }


def test_what_was_cancelled_is_read_again_at_another_choice_as_the_page_says(gated):
    client, transport = gated()
    page = OnPage(FeeExplorer(client, account=ACCOUNT))
    assert transport.asked.wait(SECONDS)
    page.press("Cancel")
    assert "To start again, change a choice" in page.problem
    transport.let.set()
    page.enter("Per", "1w")
    assert page.figure
    assert page.problem == ""


def test_why_nothing_could_be_read_is_said_after_any_choice(client):
    page = OnPage(FeeExplorer(client.with_api_key("not-a-key"), account=ACCOUNT)).wait()
    refusal = page.problem
    assert "API key" in refusal
    assert page.enter("Per", "1w").problem == refusal
    # A saved notebook says it too, which would else have an empty place without a word.
    assert refusal in unescape(page.widget._saved._html())


@pytest.mark.thorough
def test_a_late_reading_never_overwrites_a_newer_one(gated):
    client, transport = gated()
    page = OnPage(FeeExplorer(client, account=ACCOUNT, market=MARKET))
    assert transport.asked.wait(SECONDS)
    page.control("Account").value = str(OTHER)
    transport.let.set()
    page.wait()
    assert page.widget.chosen["account_id"].unique().tolist() == [OTHER]
    assert page.widget.market == page.control("Market").value == MARKET
    shows_its_code(page, client=client)


def test_an_api_key_is_asked_for_where_one_is_missing(client, monkeypatch):
    locked = client.with_api_key("not-a-key")
    page = OnPage(FeeExplorer(locked, account=ACCOUNT)).wait()
    assert "API key" in page.problem
    assert "not-a-key" not in page.problem
    page.type_secret("API key:", client._transport._key[:])
    assert not page.offers("API key:")
    assert page.figure
    # The code names the client that was given also now, and not another one that has the usual name.
    shell = SimpleNamespace(user_ns={"client": client, "locked": locked})
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    trades = f"trades = locked.trades(account_id={ACCOUNT})"
    assert trades in page.widget.export()


# Prices from outside


@pytest.mark.parametrize(
    ("figure", "reference"),
    [
        thorough("cost_curve", "outside prices"),
        thorough("venue_differences", "outside prices"),
        thorough("markouts", "outside prices"),
        ("price_gaps", "the other venue's last fill"),
        thorough("fill_shares", ""),
    ],
)
def test_one_reference_serves_all_figures_and_is_named(client, figure, reference):
    page = OnPage(FillExplorer(client, account=ACCOUNT, market=MARKET)).wait()
    page.enter("Figure", figure)
    assert page.problem == ""
    named = f"; reference: {reference}"
    assert (named in page.text) is bool(reference)
    shows_its_code(page, client=client)
    outside = "prices = client.outside_prices(chosen, every='1h')"
    assert (outside in page.code) is (reference == "outside prices")


@pytest.mark.thorough
def test_prices_that_were_read_outlast_what_is_computed(client, monkeypatch):
    """Tables and figures are dropped when there are too many of them; prices take a request to the relayer."""
    page = OnPage(FillExplorer(client, account=ACCOUNT, market=MARKET)).wait()
    page.enter("Figure", "cost_curve")
    monkeypatch.setattr("loopring_lab.widgets.selection.CACHE_SIZE", 1)
    page.enter("Table by", ("side",))
    assert page.problem == ""
    assert page.figure


def test_without_prices_from_outside_the_choice_says_what_is_missing(trades):
    page = OnPage(FillExplorer(trades, market=MARKET)).enter(
        "Figure", "venue_differences"
    )
    assert "needs prices from outside the exchange. Give prices=" in page.problem
    assert page.figure is None


# Flow


@pytest.mark.thorough
def test_tables_by_flow_judge_takers_by_prices_from_outside(client):
    accounts = [ACCOUNT, ARBITRAGEUR]
    since = "2022-11-01"
    explorer = FillExplorer(client, account=accounts, market=MARKET, since=since)
    page = OnPage(explorer).wait().enter("Table by", ("flow",))
    assert page.problem == ""
    chosen = client.trades(accounts, market=MARKET, since=since, progress=False)
    prices = client.outside_prices(chosen, every="60s")
    judged = lab.research.with_flow(chosen, prices)
    assert_frame_equal(explorer.table, lab.fills.breakdown(judged, by=["flow"]))
    assert {"user", "arbitrage"} <= set(explorer.table["flow"])
    assert "chosen = lab.research.with_flow(chosen, prices)" in page.code


def test_without_prices_flow_is_not_known_and_the_choice_says_so(trades):
    page = OnPage(FillExplorer(trades, market=MARKET)).enter("Table by", ("flow",))
    assert (
        "Flow needs prices from outside the exchange. Give prices=, a frame"
        in page.problem
    )
    assert page.figure is page.table is None
    page.enter("Table by", ())
    assert page.figure
    judged = trades.assign(flow="user")
    known = OnPage(FillExplorer(judged, market=MARKET, by="flow"))
    assert known.widget.table["flow"].unique().tolist() == ["user"]
    shows_its_code(known, trades=judged)


def test_the_widgets_load_no_front_end_and_no_figures_before_they_are_shown():
    code = "import sys, loopring_lab.widgets; print(*sorted({'ipywidgets', 'anywidget', 'matplotlib'} & set(sys.modules)))"
    assert (
        subprocess.check_output([sys.executable, "-c", code], text=True).split() == []
    )
