"""The documentation: it builds without a warning, its links lead somewhere, and nothing public is missing."""

import html
import inspect
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import loopring_lab as lab
from loopring_lab.columns import reference

ROOT = Path(__file__).parents[2]
NAMES = (ROOT / "tests" / "public_api.txt").read_text(encoding="utf-8").splitlines()
pytestmark = pytest.mark.thorough
MODULES = [name for name in lab.__all__ if inspect.ismodule(getattr(lab, name))]
FIGURES = [name for name in lab.figures.__all__ if name != "Figure"]


class Page(HTMLParser):
    """What a page holds: anchors, links, pictures, text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.pictures: list[str] = []
        self.descriptions: list[str] = []
        self.words: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join("".join(self.words).split())

    def handle_starttag(
        self, tag: str, attributes: list[tuple[str, str | None]]
    ) -> None:
        values = dict(attributes)
        self.anchors |= {
            values[name] or "" for name in ("id", "name") if name in values
        }
        if tag == "img":
            self.pictures.append(values.get("src") or "")
            self.descriptions.append(values.get("alt") or "")
        found = values.get("href" if tag in ("a", "link") else "src")
        if found:
            self.links.append(found)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


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
            if parts.scheme or parts.netloc or link in ("#", ""):
                continue
            target = (
                (path.parent / unquote(parts.path)).resolve() if parts.path else path
            )
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
    texts = {path.name: path.read_text(encoding="utf-8") for path in pages}
    assert [name for name, text in texts.items() if loaded.search(text)] == []


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
        parts = (
            re.split(r"[(:]", line)[0]
            .removeprefix("loopring_lab.")
            .removeprefix("lab.")
            .split(".")
        )
        full = ".".join([same.get(parts[0], f"loopring_lab.{parts[0]}"), *parts[1:]])
        if full not in anchors:
            missing.append(full)
    assert len(NAMES) > 300
    assert missing == []


def test_widgets_are_described_as_they_are_called(docs_html, pages):
    text = pages[docs_html / "reference" / "loopring_lab.widgets.html"].text
    assert "class FeeExplorer(source, **choices)" in text.replace("( ", "(")
    # What a class of traits says of itself is nothing about a choice.
    assert "A trait whose values" not in text


def test_every_column_is_in_the_reference(docs_html, pages):
    _, *sections = (
        (docs_html / "reference" / "columns.html")
        .read_text(encoding="utf-8")
        .split("<h2>")
    )
    shown = {
        html.unescape(part.partition("<a")[0]): html.unescape(part) for part in sections
    }
    for frame, rows in reference().groupby("frame"):
        named = [
            f'<span class="pre">{column}</span></code></p></td>\n<td><p>{meaning}'
            for column, meaning in zip(rows["column"], rows["meaning"], strict=True)
        ]
        assert [words for words in named if words not in shown[frame]] == [], frame


def test_every_figure_is_in_the_gallery_with_its_code(docs_html, pages):
    gallery = pages[docs_html / "gallery.html"]
    drawn = Counter(re.findall(r"lab\.figures\.(\w+)\(", gallery.text))
    assert drawn == Counter(FIGURES)
    # Each once on its card, and once large.
    pictures = Counter(gallery.pictures)
    assert list(pictures.values()) == [2] * len(FIGURES)
    assert all((docs_html / picture).stat().st_size > 10_000 for picture in pictures)


def test_figures_and_notebooks_have_cards(docs_html):
    cards = {}
    for name in ("gallery", "notebooks"):
        text = (docs_html / f"{name}.html").read_text(encoding="utf-8")
        _, _, inside = text.partition('<div class="cards')
        inside, _, _ = inside.partition("</div>")
        cards[name] = re.findall(r'<a[^>]* href="([^"]+)">(?:<span[^>]*>)?<img', inside)
    assert len(cards["gallery"]) == len(set(cards["gallery"])) == len(FIGURES)
    notebooks = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert cards["notebooks"] == [f"notebooks/{name}.html" for name in notebooks]


def test_every_picture_is_described(pages):
    poor = [
        (path.name, alt)
        for path, page in pages.items()
        for alt in page.descriptions
        if len(alt) < 10 or alt.endswith(".png")
    ]
    assert poor == []


def test_the_columns_begin_with_those_of_trades(docs_html):
    text = (docs_html / "reference" / "columns.html").read_text(encoding="utf-8")
    first, *_ = re.findall(r"<h2>([^<,]+)", text)
    assert first == "Client.trades"


def test_every_module_has_a_line_of_the_reference(docs_html, pages):
    text = pages[docs_html / "reference.html"].text
    for module in MODULES:
        about, *_ = re.split(r"(?<=\.)\s", getattr(lab, module).__doc__)
        words = " ".join(about.replace("`", "").split())
        assert f"loopring_lab.{module} {words}" in text


def test_every_notebook_and_page_is_reached_from_the_start(docs_html, pages):
    reached = set()
    waiting = [(docs_html / "index.html").resolve()]
    while waiting:
        path = waiting.pop()
        if path in pages and path not in reached:
            reached.add(path)
            links = [
                urlsplit(link).path
                for link in pages[path].links
                if not urlsplit(link).scheme
            ]
            waiting += [
                (path.parent / unquote(link)).resolve() for link in links if link
            ]
    assert {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")} <= {
        path.stem for path in reached
    }
    written = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert written <= {path.stem for path in reached}
