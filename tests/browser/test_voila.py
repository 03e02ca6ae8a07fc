"""An analysis notebook as a Voila page, for people who do not code."""

from __future__ import annotations

import re
from pathlib import Path

from support.driven_widget import DrivenWidget

import loopring_lab as lab

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "02_fee_analysis.ipynb"


def test_a_page_is_rendered_and_its_explorer_follows(page, voila, shot):
    voila(NOTEBOOK)
    trades = lab.fills.with_roles(lab.connect().trades(10083, progress=False))
    taken = trades[trades["role"] == "taker"]
    explorer = DrivenWidget(page, page.locator(".loopring-lab"), [])
    explorer.shows_picture(lab.figures.fee_rates(taken))
    explorer.choose("Figure", "Fees by token")
    explorer.shows_picture(lab.figures.fees_by_token(taken))
    explorer.shows_no_problem()
    said = page.locator("#rendered_cells").inner_text()
    assert re.findall(r"Traceback|\w*Error\b.*|There was an error.*", said) == []
    pictures = page.locator(".jp-OutputArea-output img, .jp-OutputArea-output svg")
    assert pictures.count() > 3
    assert page.locator(".jp-InputArea-editor:visible").count() == 0
    assert shot(f"{NOTEBOOK.stem}-voila").stat().st_size > 50_000
