"""Pages that are made from the code: copies of the notebooks, the columns, the queries, the cards of the gallery."""

import inspect
import re
import shutil
from base64 import b64decode
from pathlib import Path

import nbformat
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature
from tools import public_api, queries
from traitlets import HasTraits, TraitType

from loopring_lab.columns import reference

HERE = Path(__file__).parent
CHANGELOG = HERE.parent / "CHANGELOG.md"
# What most readers look for; the other frames follow by name.
FIRST_FRAME = "Client.trades"
# `sphinx.ext.autosummary` writes its pages into the same folder, at 500, and `ImageCollector` looks for files then.
BEFORE = 100
AFTER = 900


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages, priority=BEFORE)
    app.connect("source-read", relink)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", describe)
    app.connect("autodoc-process-signature", sign)
    app.connect("doctree-read", add_cards, priority=AFTER)
    app.connect("build-finished", say_where)
    return {"parallel_read_safe": True}


def write_pages(app: Sphinx) -> None:
    for folder in ("notebooks", "reference"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
        (HERE / folder).mkdir()
    for path in (HERE.parent / "notebooks").glob("*.ipynb"):
        copy_notebook(path)
    (HERE / "reference" / "columns.md").write_text(columns_page(), encoding="utf-8")
    (HERE / "reference" / "queries.md").write_text(queries_page(), encoding="utf-8")


def copy_notebook(path: Path) -> None:
    """Copy a notebook, with a text for each of its pictures, and its last picture for its card."""
    notebook = nbformat.read(path, as_version=4)
    heading = ""
    for cell in notebook.cells:
        headings = re.findall(r"^#+ (.+)$", cell.source, re.MULTILINE)
        if cell.cell_type == "markdown" and headings:
            heading = headings[-1]
        for output in cell.get("outputs", []):
            picture = output.get("data", {}).get("image/png")
            if picture:
                # Figures say what they show; what pandas draws does not.
                text = output.metadata.get("image/png", {}).get("alt")
                alt = text or f"Figure: {heading}"
                cell.metadata.setdefault("mystnb", {})["image"] = {"alt": alt}
                card = HERE / "notebooks" / f"{path.stem}.png"
                card.write_bytes(b64decode(picture))
    nbformat.write(notebook, HERE / "notebooks" / path.name)


def add_cards(app: Sphinx, page: nodes.document) -> None:
    """Begin the gallery with a card for each figure, and describe each picture by the sentence above it."""
    if app.env.docname != "gallery":
        return
    gallery, *sections = page.findall(nodes.section)
    cards = nodes.container(classes=["cards"])
    for section in sections:
        title = section.next_node(nodes.title).astext()
        sentence = section.next_node(nodes.paragraph).astext()
        picture = section.next_node(nodes.image)
        picture["alt"] = sentence
        small = nodes.image(**picture.attributes)
        del small["width"]
        link = nodes.reference(refid=section["ids"][0])
        link += [small, nodes.strong(text=title)]
        cards += nodes.paragraph("", "", link)
    # After the title and what the page is about.
    gallery.insert(2, cards)


def skip_member(
    app: Sphinx, kind: str, name: str, member: object, skip: bool, options: object
) -> bool | None:
    """Leave out what classes inherit from other packages."""
    is_foreign = kind == "class" and not public_api.is_ours(member)
    return True if is_foreign else None


def describe(
    app: Sphinx,
    kind: str,
    name: str,
    member: object,
    options: object,
    lines: list[str],
) -> None:
    """Leave out of a choice of a widget what its class says; the docstring of the widget describes it."""
    if isinstance(member, TraitType):
        lines.clear()


def sign(
    app: Sphinx,
    kind: str,
    name: str,
    member: object,
    options: object,
    signature: str | None,
    returned: str | None,
) -> tuple[str, None] | None:
    """Give a widget the arguments of its own constructor; Sphinx finds those of traitlets'."""
    if isinstance(member, type) and issubclass(member, HasTraits):
        found = inspect.signature(member)
        text = stringify_signature(
            found, show_annotation=False, show_return_annotation=False
        )
        return text, None
    return None


def say_where(app: Sphinx, error: Exception | None) -> None:
    """Say where the site is, which Sphinx keeps to itself where it is to be quiet."""
    if error is None:
        print(f"The documentation is in {app.outdir / 'index.html'}")


def relink(app: Sphinx, name: str, source: list[str]) -> None:
    """Point links that hold in the repository to pages of the site; what is no page loses its link."""
    text = source[0]
    if name == "changelog":
        app.env.note_dependency(str(CHANGELOG))
        text = re.sub(r"\]\(docs/", "](", CHANGELOG.read_text(encoding="utf-8"))
        text = re.sub(r"\[([^]]+)\]\((?:tests|benchmarks)/[^)]*\)", r"\1", text)
    # Notebooks link to pages by way of the folder that the site is made of.
    text = re.sub(r"\]\(\.\./docs/", "](/", text)
    source[0] = re.sub(r"\]\((?:\.\./)+(notebooks/\w+\.ipynb)", r"](/\1", text)


def columns_page() -> str:
    """Return a table for each frame."""
    found = dict(list(reference().groupby("frame", sort=True)))
    names = sorted(found, key=lambda name: (not name.startswith(FIRST_FRAME), name))
    lines = [
        "# Columns",
        "Every column of every frame. Pointing at a heading in a table shows the same text.\n",
    ]
    for frame in names:
        rows = found[frame]
        lines += [
            f"## {frame}\n",
            "| Column | Meaning | Type | Unit | Source | Exact |",
            "|---|---|---|---|---|---|",
        ]
        for row in rows.itertuples():
            cells = (
                f"`{row.column}`",
                row.meaning,
                row.type,
                row.unit,
                row.source,
                row.exact,
            )
            lines.append(
                f"| {' | '.join(str(cell).replace('|', '&#124;') for cell in cells)} |"
            )
        lines.append("")
    return "\n".join(lines)


def queries_page() -> str:
    """Return the queries that each function of trades asks, as the log has them."""
    lines = [
        "# Queries",
        "What each function of `lab.fees`, `lab.fills` and `lab.research` asks DuckDB, with its defaults, of the newest"
        " trades of account 10083. The log has the same, complete and ready to run: "
        '`logging.getLogger("loopring_lab.sql").setLevel(logging.DEBUG)`. Amounts are integers of 1e-18.\n',
    ]
    for call, texts in queries.queries():
        lines.append(f"## `{call}`\n")
        lines += [f"```sql\n{text}\n```\n" for text in texts]
    return "\n".join(lines)
