"""A view of a figure without a browser: what it holds, and what a zoom and another figure change."""

import re
from xml.etree import ElementTree

import pytest
from support.figures import contrast
from widgets.conftest import send

import loopring_lab as lab
from loopring_lab import figures
from loopring_lab.errors import LabError
from loopring_lab.figures import Figure
from loopring_lab.figures.style import COLOURS, INKS
from loopring_lab.widgets.figure_view import FigureView
from loopring_lab.widgets.table_view import TableView

DARK = "#111111"
PAPER = "#ffffff"


@pytest.fixture
def view(trades):
    return FigureView(figures.volume(trades))


def zoom(view, *part):
    """Send the message that the page sends."""
    send(view, zoom=list(part) or None)


def test_a_view_says_what_its_figure_says(view, trades):
    figure = figures.volume(trades)
    assert [mark[-1] for mark in view.page["marks"]] == [
        mark.text for mark in figure.marks
    ]
    left, top, right, bottom = view.page["panel"]
    assert (view.page["axis"], view.page["zoomed"]) == (0, False)
    for *edges, _ in view.page["marks"]:
        assert left <= edges[0] <= edges[2] <= right
        assert top <= edges[1] <= edges[3] <= bottom
    bars = [mark for mark in figure.marks if mark.text.startswith("AMM pool")]
    low, high = figure.axes[0].get_xlim()
    wanted = left + (bars[7].x[0] - low) / (high - low) * (right - left)
    assert view.page["marks"][7][0] == pytest.approx(wanted, abs=1e-4)


def test_the_saved_copy_is_a_picture_beside_a_text_that_does_not_change(view):
    data, _ = view._repr_mimebundle_()
    assert data["text/plain"] == repr(view)
    assert repr(view).startswith(
        "FigureView: Traded volume per week, ETH-quoted markets, "
    )
    copy = view.static_html()
    assert copy.startswith('<img alt="Traded volume per week, ETH-quoted markets, ')
    assert 'width="900" src="data:image/png;base64,' in copy
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id


def test_a_zoom_shows_a_part_with_its_own_ticks_and_showing_all_restores_it(view):
    whole = view.page["svg"]
    marks = view.page["marks"]
    panel = view.page["panel"]
    view.static_html()  # its picture is laid out as the view is
    zoom(view, 0.25, 0.5)
    assert view.page["svg"] != whole
    assert (view.page["panel"], view.page["zoomed"]) == (panel, True)  # nothing moved
    inside = [mark for mark in marks if panel[0] + 0.25 * (panel[2] - panel[0]) < (mark[0] + mark[2]) / 2
              < panel[0] + 0.5 * (panel[2] - panel[0])]  # fmt: skip
    assert {mark[-1] for mark in inside} <= {mark[-1] for mark in view.page["marks"]}
    assert len(view.page["marks"]) <= len(inside) + 4
    zoom(view, -5, 9)
    assert [mark[-1] for mark in view.page["marks"]] == [mark[-1] for mark in marks]
    zoom(view)
    assert (view.page["svg"], view.page["marks"], view.page["panel"]) == (
        whole,
        marks,
        panel,
    )


@pytest.mark.thorough
def test_a_zoom_stays_inside_the_whole_and_moves_on(view):
    """Beyond either end, the zoom shows the quarter next to it."""
    for far, near in (((2, 3), (0.75, 1)), ((-9, -8), (0, 0.25))):
        zoom(view)
        zoom(view, *near)
        nearest = view.page["svg"]
        zoom(view)
        zoom(view, 0.5, 0.75)
        zoom(view, *far)
        assert view.page["svg"] == nearest


def test_another_figure_is_shown_whole(view, trades):
    zoom(view, 0.25, 0.5)
    view.show(figures.fee_tiers(trades))
    assert repr(view) == "FigureView: Fills by fee tier, per week"
    assert not view.page["zoomed"]
    assert view.page["svg"] == FigureView(figures.fee_tiers(trades)).page["svg"]


@pytest.mark.thorough
def test_colours_follow_the_theme_and_read_on_light_and_dark(trades):
    svgs = [
        FigureView(draw(trades)).page["svg"]
        for draw in (
            figures.volume,
            figures.fee_rates,
            figures.fee_tiers,
            figures.fees_by_token,
        )
    ]
    svgs.append(FigureView(figures.price_gaps(trades, tolerance=None)).page["svg"])
    for svg in svgs:
        fixed = set(re.findall(r"#[0-9a-f]{6}", svg.lower()))
        assert not fixed & {"#000000", "#ffffff", "#555555", "#dddddd"}
        assert "var(--ll-grid)" in svg
    for colour in (*COLOURS[:4], "#8a8a8a"):
        assert contrast(colour, PAPER) >= 2.9
        assert contrast(colour, DARK) >= 3
    assert min(contrast(ink, COLOURS[0]) for ink in INKS) > 3


def test_the_svg_is_one_element_without_script_style_or_comment(trades):
    name = '--><img src=x onerror="alert(1)"><script>$x$'
    hostile = trades.assign(
        fee_token=trades["fee_token"].astype(object).replace({"LRC": name})
    )
    view = FigureView(figures.fees_by_token(hostile))
    root = ElementTree.fromstring(view.page["svg"])
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        *("svg", "defs", "g", "path", "use", "clipPath", "rect", "pattern"),
    }
    assert any(mark[-1].startswith(name[:8]) for mark in view.page["marks"])


@pytest.mark.thorough
def test_a_figure_drawn_again_in_a_notebook_is_not_changed_by_its_view(trades):
    figure = figures.volume(trades)
    before = figure._repr_png_()
    view = FigureView(figure)
    zoom(view, 0.25, 0.5)
    assert figure._repr_png_() == before


def test_any_frame_and_figure_is_shown_to_look_into(trades):
    table = lab.show(trades, precision=8, interactive=True)
    assert table.page == TableView(trades, precision=8).page
    drawn = lab.show(lab.figures.volume(trades), interactive=True)
    assert drawn.page == FigureView(lab.figures.volume(trades)).page


@pytest.mark.parametrize("thing", [None, [1], "volume"])
def test_what_is_not_to_be_looked_into_is_refused(thing):
    with pytest.raises(
        LabError,
        match=r"^show: expected a figure of lab\.figures or a pandas frame, got ",
    ):
        lab.show(thing, interactive=True)


def test_an_empty_figure_and_one_of_several_panels_are_refused(trades):
    several = Figure(figsize=(9, 8), layout="constrained")
    first, second = several.subplots(2)
    figures.volume(trades, ax=first)
    figures.fees_by_token(trades, ax=second)
    for figure in (Figure(), several):
        with pytest.raises(
            LabError,
            match=r"^FigureView: expected a figure of lab\.figures, got Figure\. Draw it ",
        ):
            lab.show(figure, interactive=True)
