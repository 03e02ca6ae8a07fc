"""The documentation, where a build with warnings as errors cannot see it: links in HTML, names, pictures."""

import ast
import inspect
import logging
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pandas as pd
import pytest

import loopring_lab as lab

ROOT = Path(__file__).parents[2]
NAMES = (ROOT / "tests" / "public_api.txt").read_text(encoding="utf-8").splitlines()
pytestmark = pytest.mark.thorough
MODULES = [name for name in lab.__all__ if inspect.ismodule(getattr(lab, name))]
FIGURES = [*lab.figures.__all__, *lab.research.figures.__all__]
FIGURES.remove("Figure")


class Page(HTMLParser):
    """What a page holds: anchors, links, pictures."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str | None] = set()
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.descriptions: list[str] = []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        values = dict(attributes)
        self.anchors |= {values.get("id"), values.get("name")}
        if tag == "img":
            self.pictures.append(values.get("src") or "")
            self.descriptions.append(values.get("alt") or "")
        found = values.get("href" if tag in ("a", "link") else "src")
        if found:
            self.links.append(found)


@pytest.fixture(scope="module")
def pages(docs_html: Path) -> dict[Path, Page]:
    return {
        path: Page(path)
        for path in docs_html.rglob("*.html")
        if "_static" not in path.parts
    }


def test_links_inside_the_site_lead_somewhere(pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link == "#":
                continue
            target = path
            if parts.path:
                target = (path.parent / unquote(parts.path)).resolve()
            missing = not target.exists()
            if target in pages and parts.fragment:
                missing = unquote(parts.fragment) not in pages[target].anchors
            if missing:
                broken.append(f"{path.name}: {link}")
    assert len(pages) > 40
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(pages):
    loaded = re.compile(
        r"""<(?:script|img|iframe)[^>]*\ssrc="https?://|<link[^>]*rel="stylesheet"[^>]*https?://"""
    )
    found = [path.name for path, page in pages.items() if loaded.search(page.source)]
    assert found == []


def test_every_public_name_is_in_the_reference(docs_html, pages):
    described = [
        page for path, page in pages.items() if path.parent == docs_html / "reference"
    ]
    described.append(pages[docs_html / "lab.html"])
    anchors = set().union(*(page.anchors for page in described))
    # What a module holds, too, is described on its page.
    same = {
        name: f"loopring_lab.{module}.{name}"
        for module in MODULES
        for name in lab.__all__
        if name in dir(getattr(lab, module))
        and getattr(getattr(lab, module), name) is getattr(lab, name)
    }
    assert {"show", "KeyUpdate"} <= same.keys()
    missing = []
    for line in NAMES:
        name = re.split(r"[(:]", line)[0].removeprefix("loopring_lab.")
        parts = name.removeprefix("lab.").split(".")
        full = ".".join([same.get(parts[0], f"loopring_lab.{parts[0]}"), *parts[1:]])
        if full not in anchors:
            missing.append(full)
    assert len(NAMES) > 250
    assert missing == []


def test_every_figure_is_in_the_gallery_with_its_code(docs_html, pages):
    gallery = pages[docs_html / "gallery.html"]
    text = re.sub("<[^>]*>", "", gallery.source)
    drawn = re.findall(r"lab\.(?:research\.)?figures\.(\w+)\(", text)
    assert Counter(drawn) == Counter(FIGURES)
    # Each stands once on its card, and once large.
    pictures = Counter(gallery.pictures)
    assert list(pictures.values()) == [2] * len(FIGURES)
    assert all((docs_html / picture).stat().st_size > 10_000 for picture in pictures)


def test_each_picture_of_the_gallery_has_code_that_runs_alone():
    """A reader copies one block, of whatever place in the page, into a new notebook."""
    gallery = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```{code-cell}\n(?::[^\n]*\n)*(.*?)```", gallery, re.DOTALL)
    assert len(blocks) == len(FIGURES)
    for block in blocks:
        figure = last_value(block)
        assert isinstance(figure, lab.figures.Figure), block
        assert figure.marks, block
        if "figures.fee_rates(" in block:
            assert_steps_are_tiers(figure.table)


def assert_steps_are_tiers(rates: pd.DataFrame):
    """Check what the gallery says of this figure: each rate is the month's tier, or between its lowest and highest."""
    trades = lab.connect().trades(account_id=10083)
    tiers = lab.fees.tiers(trades[trades["role"] == "taker"], "1mo", by="fill_type")
    months = tiers.groupby(["period", "fill_type"], observed=True)["tier_bps"]
    for rate in rates.itertuples():
        found = months.get_group((rate.period, rate.fill_type))
        # Pairs of stablecoins have a tier of their own, which fees in ETH do not.
        found = found[found != 4]
        assert found.min() - 0.01 <= float(rate.bps) <= found.max() + 0.01


def last_value(block: str) -> Any:
    """Run a block in names of its own, as a cell; return what it would display."""
    *statements, last = ast.parse(block).body
    assert isinstance(last, ast.Expr)
    names: dict[str, Any] = {}
    exec(compile(ast.Module(statements, []), "block", "exec"), names)
    return eval(compile(ast.Expression(last.value), "block", "eval"), names)


PAGES = [
    path
    for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    if re.search(r"^```py", path.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_code_of_each_page_runs_as_printed(path, tmp_path, monkeypatch):
    """From the top of the page, in a folder of its own, with nothing from another page."""
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    blocks = re.findall(r"^```py(?:thon)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    sql = logging.getLogger("loopring_lab.sql")
    names: dict[str, Any] = {}
    try:
        for block in blocks:
            exec(compile(block, path.name, "exec"), names)
    finally:
        lab.engine.set_memory()
        sql.setLevel(logging.NOTSET)
    assert names["lab"] is lab
    if path.stem == "engines":
        assert names["archive"].report()["complete"].all()
    if path.stem == "real-data":
        assert names["store"].check().problems.empty
        assert len(names["client"].trades()) == len(names["settled"]) > 1_000


def test_every_picture_is_described(pages):
    poor = [
        (path.name, alt)
        for path, page in pages.items()
        for alt in page.descriptions
        if len(alt) < 10 or alt.endswith(".png")
    ]
    assert poor == []
