"""The market explorer without a view, and amounts checked against limits in integers."""

import json
from html import unescape

import eth_account  # noqa: F401 - raises the recursion limit, of which hypothesis warns if a test does it
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cells import values
from widgets.conftest import OnPage, send

import loopring_lab as lab
from loopring_lab.errors import AmountError, LabError
from loopring_lab.relayer import Relayer
from loopring_lab.widgets import MarketExplorer, check_amount


def wire(client, path):
    """Return the relayer's raw response."""
    return json.loads(client._transport.get(path))


def units(number, decimals):
    """Write smallest units as units, with integers and text only."""
    text = str(number).zfill(decimals + 1)
    return (
        f"{text[: len(text) - decimals]}.{text[len(text) - decimals :]}"
        if decimals
        else text
    )


@pytest.fixture
def page(client):
    return OnPage(MarketExplorer(client)).wait()


@settings(max_examples=25)
@given(data=st.data())
def test_amounts_are_refused_as_integers_say(client, data):
    tokens = {token["symbol"]: token for token in wire(client, "/exchange/tokens")}
    open_ = [
        m
        for m in wire(client, "/mix/markets")["markets"]
        if m["enabled"] and m["status"]
    ]
    market = data.draw(st.sampled_from(open_))["market"]
    of = data.draw(st.sampled_from(["base", "quote"]))
    token = tokens[market.split("-")[of == "quote"]]
    least, most = (
        int(token["orderAmounts"][bound]) for bound in ("minimum", "maximum")
    )
    near = st.sampled_from([least - 1, least, least + 1, most - 1, most, most + 1])
    number = data.draw(near | st.integers(1, 2 * most))
    found = check_amount(client, market, units(number, token["decimals"]), of)
    refused = [finding.words for finding in found if finding.kind == "refused"]
    zero = number < 10 ** (token["decimals"] - token["precision"])
    assert bool(refused) == (number < least or number > most or zero)
    assert any("below the minimum" in words for words in refused) == (number < least)
    assert any("above the maximum" in words for words in refused) == (number > most)
    assert any("counts as zero" in words for words in refused) == zero
    assert [finding.kind for finding in found].count("fits") == (not refused)
    dust = number < int(token["orderAmounts"]["dust"])
    assert any("dust" in finding.words for finding in found) == dust


@pytest.mark.parametrize(
    ("market", "amount", "of", "kind", "words"),
    [
        ("LRC-ETH", "0", "base", "refused", "An order cannot be for 0. Give more."),
        (
            "LRC-USDC",
            "5.0000001",
            "quote",
            "refused",
            "digits below the token's smallest unit. Give at most 6",
        ),
        ("LRC-ETH", "2.0001", "base", "note", "Orders use 3 decimal places"),
        ("LRC-ETH", "2.000", "base", "fits", "2 LRC is within the relayer's limits."),
        (
            "UNI-ETH",
            "5",
            "base",
            "note",
            "The order book of UNI-ETH is closed; the other one is open.",
        ),
        (
            "CEL-ETH",
            "5",
            "quote",
            "refused",
            "Trading in CEL-ETH is disabled. Choose another market.",
        ),
    ],
)
def test_findings_are_full_sentences(client, market, amount, of, kind, words):
    found = check_amount(client, market, amount, of)
    assert [
        finding for finding in found if finding.kind == kind and words in finding.words
    ]


@pytest.mark.parametrize(
    "amount",
    ["", "abc", "-1", "-0", "1,5", "1_000", "nan", "inf", "1e999999", "١٢", "1e-400"],
)
def test_what_is_no_amount_is_refused_not_guessed(client, amount):
    with pytest.raises(
        AmountError, match="is not a valid amount. Give units of the token"
    ):
        check_amount(client, "LRC-ETH", amount)


def test_an_unknown_market_or_side_is_named(client):
    with pytest.raises(LabError, match="Did you mean 'LRC-ETH'?"):
        check_amount(client, "lrc-ehh", "5")
    with pytest.raises(LabError, match="of='sell' is not known"):
        check_amount(client, "LRC-ETH", "5", "sell")


def test_the_list_is_filtered_by_text_and_by_open_venues(page, client):
    markets = wire(client, "/mix/markets")["markets"]
    tokens = wire(client, "/exchange/tokens")
    expected = {
        "usdc": [one["market"] for one in markets if "USDC" in one["market"]],
        # The second bit of a status says that the order book is open.
        "orderbook_open = yes": [one["market"] for one in markets if one["status"] & 2],
        "amm_open = no": [one["market"] for one in markets if not one["status"] & 1],
    }
    for typed, names in expected.items():
        send(page.table, filter=typed)
        assert shown_names(page) == names != []
    send(page.table, filter="ethereum")
    page.enter("List", "tokens")
    names = [one["symbol"] for one in tokens if one["name"] == "Ethereum"]
    assert shown_names(page) == names


def shown_names(page):
    """Return the names of the markets or tokens in the list, as it is filtered."""
    return [page.table.frame.index[row] for row in page.table.page["rows"]]


def test_the_limits_are_those_of_both_tokens(page):
    page.enter("Market", "LRC-USDC")
    rows = [row.split("</tr>")[0] for row in page.text.split("<tr>")]
    limits = {row.partition(">")[2].partition("<")[0]: row for row in rows}
    assert "2,000,000" in limits["order_amounts_maximum"]
    assert "5,000,000" in limits["order_amounts_maximum"]
    assert ">18<" in limits["decimals"]
    assert ">6<" in limits["decimals"]


@pytest.mark.parametrize("listing", ["markets", "tokens"])
def test_the_code_gives_what_is_on_the_page(page, client, listing):
    page.enter("List", listing)
    page.enter("Market", "LRC-ETH").enter("Amount", "0.0001").enter("of the", "quote")
    listed, limits, findings = values(page.widget.export(), client=client)
    assert repr(listed) == repr(lab.show(page.table.frame, rows=12))
    assert (
        limits._repr_html_() in unescape(page.text)
        or unescape(limits._repr_html_()) in page.text
    )
    assert findings == check_amount(client, "LRC-ETH", "0.0001", "quote")
    assert "<b>Refused.</b>" in page.text


def test_a_row_chooses_the_market_and_follows_it(page):
    markets = page.table.frame.index.tolist()
    page.table.chosen = markets.index("LRC-USDC")
    assert page.widget.market == page.control("Market").value == "LRC-USDC"
    page.enter("Market", "ETH-USDC")
    assert page.table.chosen == markets.index("ETH-USDC")
    page.enter("Amount", "1,5")
    assert "is not a valid amount" in page.text
    # As the limits beside it are written.
    page.enter("Amount", "2,000,000")
    assert (
        "Amount '2,000,000' is not a valid amount. Give units of the token without commas"
        in page.text
    )
    assert page.problem == ""


def test_a_client_is_needed():
    with pytest.raises(LabError, match="expected a client"):
        MarketExplorer("https://relayer.example")  # type: ignore[arg-type]


def test_a_relayer_that_is_gone_is_reported():
    relayer = Relayer().start()
    client = lab.connect(relayer.base_url, api_key=relayer.api_key, rate=None)
    client._transport._attempts = 1
    relayer.stop()
    page = OnPage(MarketExplorer(client)).wait()
    assert page.problem
    assert "Traceback" not in page.problem
    assert page.table is None
    # Any choice asks again, rather than leave a page without a table and without a word.
    reason = page.problem
    assert page.enter("List", "tokens").problem == reason


def test_a_market_is_understood_in_any_case(client, page):
    assert check_amount(client, "lrc-eth", "0.5") == check_amount(
        client, "LRC-ETH", "0.5"
    )
    page.widget.market = "eth-usdc"
    assert page.widget.market == "ETH-USDC"
    early = OnPage(MarketExplorer(client, market="lrc-eth")).wait()
    assert early.widget.market == "LRC-ETH"
