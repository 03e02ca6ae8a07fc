"""The explorers of trades without a view: choices, results, figures and generated code."""

import datetime as dt
import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from PIL import Image

import loopring_lab as lab
from loopring_lab.client import Client
from loopring_lab.errors import LabError
from loopring_lab.widgets import FeeExplorer, FillExplorer, explorers

SECONDS, MARKET = 30, "LRC-ETH"
EVERYTHING: list[tuple[type, dict[str, Any]]] = [
    (FeeExplorer, {"figure": figure} | how)
    for figure in FeeExplorer.FIGURES
    for how in ({}, {"market": MARKET, "side": "BUY", "every": "1w", "by": ("fill_type", "side")})
] + [
    (FillExplorer, {"figure": figure} | how)
    for figure in FillExplorer.FIGURES
    for how in ({}, {"market": MARKET, "every": "1mo", "by": "side", "tolerance": "1d"})
]


def ran(code: str, **names: Any) -> tuple[list[Any], Any]:
    """Run a cell as a notebook does: give what it displays, and the value of its last line."""
    *lines, last = code.splitlines()
    shown: list[Any] = []
    space = {"lab": lab, "display": shown.append, **names}
    exec("\n".join(lines), space)
    return shown, eval(last, space)


def test_trades_are_chosen_as_plain_python_would(trades: pd.DataFrame) -> None:
    explorer = FeeExplorer(
        trades, market=MARKET, side="SELL", fill_type="dex", since="2022-03-01", until=dt.date(2022, 6, 1)
    )
    start, end = pd.Timestamp("2022-03-01", tz="UTC"), pd.Timestamp("2022-06-01", tz="UTC")
    expected = [
        place
        for place, row in enumerate(trades.itertuples())
        if row.market == MARKET
        and row.side == "SELL"
        and row.fill_type == "dex"
        and start <= row.created_at < end
    ]
    assert len(expected) > 10
    assert explorer.chosen.index.tolist() == expected
    words = "market LRC-ETH, side SELL, type dex, from 2022-03-01, before 2022-06-01"
    assert explorer.summary == f"{len(expected):,} of {len(trades):,} trades: {words}"


def test_the_table_is_the_librarys(trades: pd.DataFrame) -> None:
    mine = trades[trades["market"] == MARKET]
    fees = FeeExplorer(trades, market=MARKET, by="side")
    assert_frame_equal(fees.table, lab.fees.summary(mine, by=["side"]))
    fills = FillExplorer(trades, market=MARKET, figure="price_gaps", tolerance="1d")
    assert_frame_equal(fills.table, lab.fills.price_gap(mine, tolerance="1d", by=[]))


@pytest.mark.parametrize(("kind", "how"), EVERYTHING, ids=str)
def test_the_code_gives_what_is_on_screen(kind: type, how: dict[str, Any], trades: pd.DataFrame) -> None:
    explorer = kind(trades, since="2022-01-01", **how)
    (table,), figure = ran(explorer.export(), trades=trades)
    assert table._repr_html_() == explorer.shown._repr_html_()
    assert figure._repr_png_() == explorer.draw()._repr_png_()
    assert explorer.export().count("\n") < 8


def test_the_code_reads_the_trades_again(client: Client) -> None:
    explorer = FeeExplorer(client, account=10083, market=MARKET)
    explorer.read()
    explorer.wait(SECONDS)
    (table,), _ = ran(explorer.export(), client=client)
    assert repr(table) == repr(explorer.shown)


def test_nothing_is_computed_twice_for_the_same_choices(
    trades: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    explorer, drawn = FeeExplorer(trades, market=MARKET), []
    monkeypatch.setattr(
        type(explorer), "draw", lambda self: drawn.append(1) or lab.figures.fee_rates(self.chosen)
    )
    first = explorer.png()
    explorer.side = "BUY"
    assert explorer.png() != first
    explorer.side = None
    assert explorer.png() == first
    assert len(drawn) == 2


def test_the_picture_is_sharp(trades: pd.DataFrame) -> None:
    explorer, saved = FeeExplorer(trades), io.BytesIO()
    explorer.draw().savefig(saved, format="png", dpi=150)
    with Image.open(saved) as theirs, Image.open(io.BytesIO(explorer.png())) as mine:
        assert mine.size == (1350, 630)
        assert np.array_equal(np.asarray(theirs.convert("RGB")), np.asarray(mine))


def test_choices_that_fit_no_trade_are_named(trades: pd.DataFrame) -> None:
    explorer = FeeExplorer(trades, market=MARKET, until="2000-01-01")
    with pytest.raises(
        LabError, match=r"None of [\d,]+ trades matches \(market LRC-ETH, before 2000-01-01\)"
    ):
        _ = explorer.table
    assert not explorer.is_chosen


def test_a_market_without_trades_is_refused_with_the_nearest(trades: pd.DataFrame) -> None:
    explorer = FeeExplorer(trades)
    assert MARKET in explorer.markets
    assert trades["market"].value_counts().loc[explorer.markets].is_monotonic_decreasing
    with pytest.raises(LabError, match="Did you mean 'LRC-ETH'?"):
        explorer.market = "lrc-eth"
    assert explorer.market is None


@pytest.mark.parametrize("source", [None, 10083, pd.DataFrame({"fee": [1]}), "client"])
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(LabError, match="expected a client, or trades as a pandas DataFrame"):
        FeeExplorer(source)


def test_an_account_needs_a_client(trades: pd.DataFrame) -> None:
    with pytest.raises(LabError, match="account= needs a client"):
        FeeExplorer(trades, account=10083)
    with pytest.raises(LabError, match="no account to read"):
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
    assert explorer.problem.endswith("No such account; check account_id.")
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
        assert f"largest ({quote})" in explorer.shown.frame.columns
        assert explorer.draw().axes[0].get_xlabel() == f"size of the fill ({quote})"
        mine = lab.fills.size_profile(trades)
        assert len(explorer.shown.frame) == (mine["quote"] == quote).sum()


def test_the_states_load_no_widgets_and_no_figures() -> None:
    code = "import sys, loopring_lab.widgets; print(*sorted({'ipywidgets', 'anywidget', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []


def test_code_leaves_out_arguments_that_are_none() -> None:
    call = explorers.LibraryCall("fees.summary", {"by": ["market"], "every": None})
    assert call.code("trades") == "lab.fees.summary(trades, by=['market'])"
