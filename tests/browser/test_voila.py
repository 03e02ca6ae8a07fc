"""The analysis notebooks as Voila pages, for people who do not code."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from support.driven_widget import DrivenWidget

import loopring_lab as lab

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def of_fees(client):
    trades = lab.fills.with_roles(client.trades(10083, progress=False))
    trades = trades[trades["role"] == "taker"]
    return (
        "Fees by token",
        lab.figures.fee_rates(trades),
        lab.figures.fees_by_token(trades),
    )


def of_fills(client):
    trades = pd.concat(
        [client.trades(one, progress=False) for one in client.accounts],
        ignore_index=True,
    )
    trades = trades[
        trades["created_at"] > trades["created_at"].max() - pd.Timedelta(days=60)
    ]
    once = lab.fills.one_side(lab.fills.with_roles(trades))
    taken = once[once["role"] == "taker"]
    return (
        "Price gap",
        lab.figures.fill_shares(taken),
        lab.figures.price_gaps(taken, tolerance="1h"),
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [("02_fee_analysis", of_fees), ("03_amm_versus_orderbook", of_fills)],
)
def test_a_page_is_rendered_and_its_explorer_follows(name, expected, page, voila, shot):
    voila(NOTEBOOKS / f"{name}.ipynb")
    figure, before, after = expected(lab.connect())
    explorer = DrivenWidget(page, page.locator(".loopring-lab"), [])
    explorer.shows_picture(before)
    explorer.choose("Figure", figure)
    explorer.shows_picture(after)
    explorer.shows_no_problem()
    said = page.locator("#rendered_cells").inner_text()
    assert re.findall(r"Traceback|\w*Error\b.*|There was an error.*", said) == []
    assert (
        page.locator(".jp-OutputArea-output img, .jp-OutputArea-output svg").count() > 3
    )
    assert page.locator(".jp-InputArea-editor:visible").count() == 0
    assert shot(f"{name}-voila").stat().st_size > 50_000
