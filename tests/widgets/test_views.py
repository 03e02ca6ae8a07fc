"""Views: every control leads its choice and follows it, results follow, and problems are said in place."""

import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Iterator
from html import unescape
from typing import Any

import ipywidgets
import pandas as pd
import pytest
from support.key_update_setup import ACCOUNT, KeyUpdateSetup, key_update_setup, personal_sign, sign_typed_data

import loopring_lab as lab
from loopring_lab.client import Client
from loopring_lab.widgets import FeeExplorer, FillExplorer, KeyUpdateWizard, MarketExplorer, key_update
from loopring_lab.widgets.figure_view import FigureView
from loopring_lab.widgets.layout import CodePanel, SecretField
from loopring_lab.widgets.table_view import TableView

SECONDS = 30
WIDGETS = {
    "MarketExplorer": lambda client, trades: MarketExplorer(client),
    "FeeExplorer": lambda client, trades: FeeExplorer(client, account=ACCOUNT),
    "FillExplorer": lambda client, trades: FillExplorer(trades),
    "KeyUpdateWizard": lambda client, trades: KeyUpdateWizard(client, account=ACCOUNT),
}
CHANGES: list[tuple[str, Any, Any]] = [
    ("market", "LRC-ETH", "LRC-ETH"),
    ("side", "SELL", "SELL"),
    ("fill_type", "dex", "dex"),
    ("since", dt.date(2022, 2, 1), dt.date(2022, 2, 1)),
    ("until", dt.date(2022, 9, 1), dt.date(2022, 9, 1)),
    ("figure", "fee_tiers", "fee_tiers"),
    ("every", "1mo", "1mo"),
    ("by", ("fill_type",), ("fill_type",)),
    ("role", "maker", "maker"),
    ("role", "", None),
    ("side", "", None),
    ("every", "", None),
    ("market", "", None),
]


def parts(widget: Any) -> Iterator[Any]:
    """Return a widget and everything in it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def displayed(widget: Any) -> bool:
    return widget.layout.display != "none"


def text(widget: Any) -> str:
    return unescape(widget.value)


def type_into(field: SecretField, secret: str) -> None:
    """Send the message that the page sends when a secret is submitted."""
    field._handle_custom_msg({"typed": secret}, [])


@pytest.fixture(params=WIDGETS)
def any_widget(request: pytest.FixtureRequest, client: Client, trades: pd.DataFrame) -> Any:
    made = WIDGETS[request.param](client, trades)
    _ = made.view
    made.wait(SECONDS)
    return made


def test_every_control_is_labelled_and_reachable(any_widget: Any) -> None:
    inputs = ipywidgets.DOMWidget
    found = [part for part in parts(any_widget.view.box) if isinstance(part, inputs) and hasattr(part, "value")]
    controls = [
        part
        for part in found
        if not isinstance(part, (ipywidgets.HTML, ipywidgets.Image, ipywidgets.IntProgress, CodePanel))
    ]
    buttons = [part for part in parts(any_widget.view.box) if isinstance(part, ipywidgets.Button)]
    assert controls
    assert [one for one in controls if not one.description] == []
    assert [one for one in buttons if displayed(one) and not one.description] == []
    assert [one for one in [*controls, *buttons] if one.tabbable is False] == []


def test_nothing_draws_into_an_output(any_widget: Any) -> None:
    """Entered while a cell runs it loses what it shows in some front ends."""
    assert [part for part in parts(any_widget.view.box) if isinstance(part, ipywidgets.Output)] == []


def test_without_a_front_end_a_line_says_what_to_do(any_widget: Any) -> None:
    bundle = any_widget._repr_mimebundle_()
    name = type(any_widget).__name__
    assert bundle["text/plain"] == repr(any_widget)
    assert repr(any_widget).startswith(f"{name}: ")
    assert repr(any_widget).endswith("Run this cell in JupyterLab, or open the notebook with Voila, to use it.")
    assert "\n" not in repr(any_widget)
    model = bundle["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert model == any_widget.view.box.model_id
    assert model not in repr(any_widget)


def test_the_code_is_shown_on_demand_and_follows(any_widget: Any) -> None:
    view = any_widget.view
    assert not displayed(view.code)
    view.show_code.value = True
    assert displayed(view.code)
    assert any_widget.export() in text(view.code)


def test_each_filter_changes_table_and_figure_to_what_the_library_gives(trades: pd.DataFrame) -> None:
    explorer = FeeExplorer(trades)
    view = explorer.view
    for name, shown, kept in CHANGES:
        before = (view.table.view.data, view.figure.view.svg)
        view.controls[name].value = shown
        assert getattr(explorer, name) == kept
        assert view.problem.value == ""
        assert view.table.view.data == TableView(explorer.shown, precision=8).data
        assert view.figure.view.svg == FigureView(explorer.draw()).svg
        assert explorer.summary in text(view.summary)
        assert (view.table.view.data, view.figure.view.svg) != before
    mine = trades[trades["fill_type"] == "dex"]
    mine = mine[(mine["created_at"] >= "2022-02-01") & (mine["created_at"] < "2022-09-01")]
    assert explorer.table.equals(lab.fees.summary(mine, by=["fill_type"]))


def test_controls_follow_the_state(trades: pd.DataFrame) -> None:
    explorer = FillExplorer(trades)
    view = explorer.view
    explorer.market, explorer.by, explorer.every = "LRC-ETH", ("quote", "side"), "3d"
    explorer.figure, explorer.tolerance = "price_gaps", "1d"
    values = {name: control.value for name, control in view.controls.items()}
    assert values["market"] == "LRC-ETH"
    assert (values["by"], values["every"], values["tolerance"]) == (("quote", "side"), "3d", "1d")
    assert view.figure.view.svg == FigureView(explorer.draw()).svg
    explorer.market = None
    assert view.controls["market"].value == ""


@pytest.mark.thorough
def test_two_controls_changed_at_once_end_in_what_both_say(trades: pd.DataFrame) -> None:
    """JupyterLab delivers widget messages on more than one thread."""
    begun, overtaken = threading.Event(), threading.Event()

    class Slow(FeeExplorer):
        @property
        def shown(self) -> Any:
            found = super().shown
            if threading.current_thread().name == "first":
                begun.set()
                overtaken.wait(0.5)  # longer than the second takes, where nothing holds that back
            return found

    explorer = Slow(trades, role=None)
    view = explorer.view

    def change(choice: str, value: str) -> None:
        view.controls[choice].value = value

    def overtake() -> None:
        change("side", "SELL")
        overtaken.set()

    first = threading.Thread(target=change, args=("market", "LRC-ETH"), name="first")
    second = threading.Thread(target=overtake)
    first.start()
    assert begun.wait(SECONDS)
    second.start()
    for thread in (first, second):
        thread.join(SECONDS)
    chosen = trades[(trades["market"] == "LRC-ETH") & (trades["side"] == "SELL")]
    assert explorer.table.equals(lab.fees.summary(chosen, by=["market"]))
    assert view.table.view.data == TableView(explorer.shown, precision=8).data
    assert view.figure.view.svg == FigureView(explorer.draw()).svg
    assert explorer.summary in text(view.summary)


def test_only_what_the_figure_takes_is_offered(trades: pd.DataFrame) -> None:
    explorer = FillExplorer(trades)
    controls = explorer.view.controls
    assert (displayed(controls["every"]), displayed(controls["tolerance"])) == (True, False)
    controls["figure"].value = "price_gaps"
    assert (displayed(controls["every"]), displayed(controls["tolerance"])) == (False, True)


def test_a_period_sets_the_dates_and_follows_them(trades: pd.DataFrame) -> None:
    explorer = FeeExplorer(trades)
    period = explorer.view.period
    assert [label for label, _ in period.options] == [
        "all", "7 days to 31 Dec 2022", "30 days to 31 Dec 2022", "quarter to 31 Dec 2022",
        "year to 31 Dec 2022",
    ]  # fmt: skip
    explorer.until = dt.date(2022, 6, 1)
    assert period.value == "own dates"
    period.value = "30 days"
    assert (explorer.since, explorer.until) == (dt.date(2022, 12, 2), None)
    mine = trades[(trades["created_at"] >= "2022-12-02") & (trades["role"] == "taker")]
    assert explorer.table.equals(lab.fees.summary(mine, by=["market"]))
    period.value = ""
    assert (explorer.since, explorer.until) == (None, None)
    explorer.since = dt.date(2022, 12, 25)
    assert period.value == "7 days"


def test_prices_from_outside_are_read_when_a_figure_needs_them(client: Client) -> None:
    explorer = FillExplorer(client, account=ACCOUNT, market="LRC-ETH")
    view = explorer.view
    explorer.wait(SECONDS)
    for figure in ("venue_differences", "markouts"):
        view.controls["figure"].value = figure
        assert displayed(view.controls["tolerance"])
        explorer.wait(SECONDS)
        assert view.problem.value == ""
        assert displayed(view.figure)
        assert displayed(view.table)
    mine = client.trades(ACCOUNT, market="LRC-ETH", progress=False)
    prices = client.outside_prices(mine, every="1h")
    horizons = ["1h", "6h", "1d"]
    expected = lab.fills.markouts(mine, prices, horizons, by=["fill_type"])
    pd.testing.assert_frame_equal(explorer.table, expected, rtol=1e-12)


def test_reading_prices_stops_where_it_is_cancelled(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, let = threading.Event(), threading.Event()
    read = Client.outside_prices

    def slow(self: Client, *given: Any, **how: Any) -> Any:
        asked.set()
        assert let.wait(SECONDS)
        return read(self, *given, **how)

    monkeypatch.setattr(Client, "outside_prices", slow)
    explorer = FillExplorer(client, account=ACCOUNT, market="LRC-ETH")
    view = explorer.view
    explorer.wait(SECONDS)
    view.controls["figure"].value = "markouts"
    assert asked.wait(SECONDS)
    thread = explorer._job.thread
    assert displayed(view.progress)
    assert not displayed(view.figure)
    view.stop.click()
    assert "cancelled" in text(view.problem)
    let.set()
    thread.join(SECONDS)
    assert explorer._job is None
    view.controls["side"].value = "BUY"
    explorer.wait(SECONDS)
    assert view.problem.value == ""
    assert displayed(view.figure)


def test_without_prices_the_choice_says_what_is_missing(trades: pd.DataFrame) -> None:
    view = FillExplorer(trades).view
    view.controls["figure"].value = "venue_differences"
    assert "needs prices from outside the exchange. Give prices=" in text(view.problem)
    assert not displayed(view.figure)


def test_no_account_is_said_and_several_are_shown_as_typed(client: Client) -> None:
    explorer = FeeExplorer(client, account=ACCOUNT)
    view = explorer.view
    explorer.wait(SECONDS)
    view.show_code.value = True
    view.controls["account"].value = ""
    assert "No account is chosen" in text(view.problem)
    assert "None" not in view.code.value
    assert not displayed(view.figure)
    view.controls["account"].value = f"{ACCOUNT},23100"
    explorer.wait(SECONDS)
    assert view.controls["account"].value == f"{ACCOUNT}, 23100"
    assert sorted(explorer.trades["account_id"].unique()) == [ACCOUNT, 23100]
    assert view.problem.value == ""


def test_reversed_dates_are_refused_in_place(trades: pd.DataFrame) -> None:
    view = FeeExplorer(trades).view
    view.controls["since"].value = dt.date(2022, 6, 1)
    view.controls["until"].value = dt.date(2022, 3, 1)
    assert "since='2022-06-01' is after until='2022-03-01'" in text(view.problem)
    assert not displayed(view.figure)
    view.controls["until"].value = dt.date(2022, 9, 1)
    assert view.problem.value == ""


def test_a_choice_without_trades_is_said_in_place_and_fixed(trades: pd.DataFrame) -> None:
    explorer = FeeExplorer(trades)
    view = explorer.view
    view.controls["until"].value = dt.date(1999, 1, 1)
    assert "trades matches" in text(view.problem)
    assert displayed(view.problem)
    assert not displayed(view.figure)
    assert not displayed(view.table)
    view.controls["until"].value = None
    assert not displayed(view.problem)
    assert displayed(view.figure)
    assert displayed(view.table)


def test_a_figure_that_cannot_be_drawn_leaves_the_table(trades: pd.DataFrame) -> None:
    explorer = FillExplorer(trades, figure="price_gaps", tolerance="1d")
    view = explorer.view
    assert displayed(view.figure)
    view.controls["fill_type"].value = "amm"
    assert "price_gaps" in text(view.problem)
    assert not displayed(view.figure)
    assert displayed(view.table)
    assert view.table.view.data == TableView(explorer.shown, precision=8).data


def test_a_wrong_account_is_said_in_place_and_stays_to_be_fixed(client: Client) -> None:
    explorer = FeeExplorer(client, account=ACCOUNT)
    view = explorer.view
    explorer.wait(SECONDS)
    view.controls["account"].value = "1oo83"
    assert "account='1oo83' is not a valid account id" in text(view.problem)
    assert view.controls["account"].value == "1oo83"
    assert explorer.account == ACCOUNT


def test_reading_shows_progress_and_is_cancelled_by_its_button(gated: Callable[[], Any]) -> None:
    client, transport = gated()
    explorer = FeeExplorer(client, account=ACCOUNT)
    view = explorer.view
    assert transport.asked.wait(SECONDS)
    assert displayed(view.progress)
    assert f"Reading the trades of account {ACCOUNT}" in text(view.doing)
    assert not displayed(view.figure)
    view.stop.click()
    assert not displayed(view.progress)
    assert "cancelled" in text(view.problem)
    transport.let.set()
    view.read.click()
    explorer.wait(SECONDS)
    assert displayed(view.figure)
    assert view.bar.value == view.bar.max == len(explorer.trades)
    assert {value for _, value in view.controls["market"].options} == {"", *explorer.markets}


def test_a_late_reading_never_overwrites_a_newer_one(gated: Callable[[], Any]) -> None:
    client, transport = gated()
    explorer = FeeExplorer(client, account=ACCOUNT)
    view = explorer.view
    assert transport.asked.wait(SECONDS)
    view.controls["account"].value = "23100"
    transport.let.set()
    explorer.wait(SECONDS)
    assert explorer.trades["account_id"].unique().tolist() == [23100]
    assert explorer.summary in text(view.summary)
    assert view.figure.view.svg == FigureView(explorer.draw()).svg


def test_another_account_keeps_the_filters(client: Client) -> None:
    explorer = FeeExplorer(client, account=ACCOUNT, market="LRC-ETH")
    view = explorer.view
    explorer.wait(SECONDS)
    view.controls["account"].value = "23100"
    explorer.wait(SECONDS)
    assert explorer.market == view.controls["market"].value == "LRC-ETH"


def test_an_api_key_is_asked_for_where_one_is_missing(client: Client) -> None:
    explorer = FeeExplorer(client.with_api_key("nothing"), account=ACCOUNT)
    view = explorer.view
    explorer.wait(SECONDS)
    assert displayed(view.key)
    type_into(view.key, client._transport._key[:])
    explorer.wait(SECONDS)
    assert not displayed(view.key)
    assert displayed(view.figure)


def test_markets_are_listed_searched_and_looked_at(client: Client) -> None:
    explorer = MarketExplorer(client)
    view = explorer.view
    explorer.wait(SECONDS)
    view.controls["search"].value = "usdc"
    view.controls["status"].value = "orderbook"
    assert explorer.markets.index.tolist() == ["ETH-USDC", "WBTC-USDC", "LRC-USDC", "USDT-USDC"]
    assert view.list.view.data == TableView(explorer.shown).data
    view.list.view.chosen = 2
    assert (explorer.market, view.controls["market"].value) == ("LRC-USDC", "LRC-USDC")
    view.controls["market"].value = "ETH-USDC"
    assert view.list.view.chosen == 0
    view.controls["market"].value = "LRC-USDC"
    view.controls["of"].value = "quote"
    view.controls["amount"].value = "4.99"
    assert "<b>Refused.</b> 4.99 USDC is below the minimum" in text(view.findings)
    view.controls["amount"].value = "1,5"
    assert "is not a valid amount" in text(view.findings)
    view.controls["search"].value = "nothing like this"
    assert "No matching markets" in text(view.heading)
    assert not displayed(view.list)
    view.controls["listing"].value = "tokens"
    view.controls["search"].value = "lrc"
    assert view.list.view.data == TableView(explorer.shown).data
    assert not displayed(view.controls["status"])


@pytest.fixture
def setup() -> Iterator[KeyUpdateSetup]:
    with key_update_setup() as made:
        yield made


def test_the_wizard_walks_by_its_buttons(setup: KeyUpdateSetup) -> None:
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    view, signer = wizard.view, setup.relayer.signer(ACCOUNT)
    view.controls["valid_for"].value = "12h"
    view.next.click()
    wizard.wait(SECONDS)
    assert "aria-current=step>key" in view.steps.value
    assert wizard.to_sign in text(view.body.children[2])
    type_into(view.signature, "0x1234")
    wizard.wait(SECONDS)
    assert "65 bytes" in text(view.problem)
    type_into(view.signature, "0x" + personal_sign(signer, wizard.to_sign).hex())
    wizard.wait(SECONDS)
    assert not displayed(view.problem)
    assert wizard.preview._repr_html_() in view.body.children[0].value
    view.next.click()
    assert view.signature in view.body.children
    type_into(view.signature, "0x" + sign_typed_data(signer, json.loads(wizard.to_sign)).hex())
    wizard.wait(SECONDS)
    assert (wizard.step, view.next.description) == ("submit", "Submit the update")
    view.next.click()
    while wizard.receipt is None:
        time.sleep(0.01)
    assert displayed(view.progress)
    assert not displayed(view.back)
    view.stop.click()
    assert "cancelled" in text(view.problem)
    assert (displayed(view.next), view.next.description) == (True, "Keep waiting")
    setup.finish()
    view.next.click()
    wizard.wait(SECONDS)
    assert "The account has the new key" in text(view.body.children[0])
    assert "aria-current=step>processed" in view.body.children[0].value
    assert not displayed(view.next)


def test_the_wizard_signs_with_a_typed_key_and_goes_back(setup: KeyUpdateSetup) -> None:
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    view = wizard.view
    view.next.click()
    wizard.wait(SECONDS)
    view.controls["way"].value = "key"
    assert view.private_key in view.body.children
    type_into(view.private_key, setup.relayer.signer(ACCOUNT).key.hex())
    wizard.wait(SECONDS)
    view.next.click()
    assert (wizard.step, view.next.description) == ("sign", "Sign")
    view.next.click()
    wizard.wait(SECONDS)
    assert wizard.step == "submit"
    view.back.click()
    assert view.private_key in view.body.children
    assert not displayed(view.next)
    view.again.click()
    assert wizard.step == "account"
    assert view.controls["account"].value == str(ACCOUNT)


def test_a_refused_entry_returns_to_the_value_in_force(setup: KeyUpdateSetup) -> None:
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    controls = wizard.view.controls
    controls["valid_for"].value = "12h"
    controls["valid_for"].value = "soon"
    assert "expected a duration above zero" in text(wizard.view.problem)
    assert (controls["valid_for"].value, wizard.valid_for) == ("12h", "12h")
    controls["account"].value = "nobody"
    assert "is not a valid account id" in text(wizard.view.problem)
    assert controls["account"].value == str(ACCOUNT)


def test_an_empty_use_says_what_is_missing(setup: KeyUpdateSetup) -> None:
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    wizard.next()
    wizard.wait(SECONDS)
    for name, missing in {"signature": "signature", "private_key": "private key", "seed": "own text"}.items():
        field = getattr(wizard.view, name)
        type_into(field, "")
        assert field.note.startswith("Nothing is entered.")
        assert missing in field.note
    type_into(wizard.view.signature, "0x12")
    wizard.wait(SECONDS)
    assert wizard.view.signature.note == ""


def test_the_demo_wallet_is_one_marked_click(setup: KeyUpdateSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_update, "PREVIEW_PAUSE", 0)
    wizard = KeyUpdateWizard(setup.client, account=ACCOUNT)
    view = wizard.view
    assert displayed(view.demo_row)
    assert "Demo: this session simulates the relayer" in text(view.demo_row.children[1])
    view.demo.click()
    while wizard.receipt is None:
        time.sleep(0.01)
    assert not displayed(view.demo_row)
    setup.finish()
    wizard.wait(SECONDS)
    page = text(view.body.children[0])
    assert "A demo wallet signed this update of a simulated account" in page
    assert "The account has the new key" in page
    assert wizard.preview._repr_html_() in view.body.children[0].value
    live = KeyUpdateWizard(lab.connect("https://relayer.example"), account=ACCOUNT)
    assert not displayed(live.view.demo_row)
