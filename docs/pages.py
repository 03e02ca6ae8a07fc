"""Pages that are made from the code: copies of the notebooks, the reference of columns, names and queries."""

import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx
from tools import public_api, queries

import loopring_lab as lab
from loopring_lab.columns import reference

HERE = Path(__file__).parent
CHANGELOG = HERE.parent / "CHANGELOG.md"
KINDS = {"class": "autoclass", "property": "autoproperty"}


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    app.connect("source-read", relink)
    return {"parallel_read_safe": True}


def write_pages(app: Sphinx) -> None:
    for folder in ("notebooks", "reference"):
        shutil.rmtree(HERE / folder, ignore_errors=True)
        (HERE / folder).mkdir()
    for path in (HERE.parent / "notebooks").glob("*.ipynb"):
        shutil.copy(path, HERE / "notebooks")
    (HERE / "reference" / "columns.md").write_text(columns_page(), encoding="utf-8")
    (HERE / "reference" / "queries.md").write_text(queries_page(), encoding="utf-8")
    for name, page in api_pages():
        (HERE / "reference" / f"{name}.rst").write_text(page, encoding="utf-8")


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
    found = reference()
    lines = [
        "# Columns",
        "Every column of every frame. Pointing at a heading in a table shows the same text.\n",
    ]
    for frame, rows in found.groupby("frame", sort=True):
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
        "What each function of `lab.fees` and `lab.fills` asks DuckDB, with its defaults, of the newest trades of "
        "account 10083. The log has the same, complete and ready to run: "
        '`logging.getLogger("loopring_lab.sql").setLevel(logging.DEBUG)`. Amounts are integers of 1e-18.\n',
    ]
    for call, texts in queries.queries():
        lines.append(f"## `{call}`\n")
        lines += [f"```sql\n{text}\n```\n" for text in texts]
    return "\n".join(lines)


def api_pages() -> Iterator[tuple[str, str]]:
    """Return a page for each module, and one for what `lab.` holds itself."""
    pages: dict[str, list[tuple[str, str]]] = {}
    for line in sorted(
        set(public_api.public_names()), key=lambda line: re.split("[(:]", line)[0]
    ):
        name, kind = re.match(r"([\w.]+)(?:: (\w+))?", line).groups("")
        pages.setdefault(module_of(name), []).append((name, kind))
    for module, members in pages.items():
        title = module.replace("loopring_lab", "lab", 1)
        entries = (directive(module, name, kind) for name, kind in members)
        top = f"{title}\n{'=' * len(title)}\n\n.. automodule:: {module}\n\n.. currentmodule:: None\n\n"
        yield module, top + listing(module, members) + "\n".join(entries)


def module_of(name: str) -> str:
    """Return the module on whose page a public name stands."""
    first, second = name.split(".")[:2]
    is_module = first != "lab" or inspect.ismodule(getattr(lab, second))
    return f"loopring_lab.{second}" if is_module else "loopring_lab"


def home_of(name: str) -> str:
    """Return where what `lab.` holds is described: in one of its modules, if that lists it too."""
    member = getattr(lab, name)
    homes = [one for one in map(lab.__dict__.get, lab.__all__) if inspect.ismodule(one)]
    return next(
        (
            f"{home.__name__}.{name}"
            for home in homes
            if name in dir(home) and getattr(home, name) is member
        ),
        "",
    )


def listing(module: str, members: list[tuple[str, str]]) -> str:
    """Return a table of a module's names with their first lines."""
    inside = [
        name.removeprefix("lab.").removeprefix(
            module.removeprefix("loopring_lab.") + "."
        )
        for name, _ in members
    ]
    names = [
        home_of(name) or f"loopring_lab.{name}"
        if module == "loopring_lab"
        else f"{module}.{name}"
        for name in inside
        if "." not in name
    ]
    return (
        ".. autosummary::\n   :nosignatures:\n\n"
        + "".join(f"   ~{name}\n" for name in names)
        + "\n"
    )


def directive(module: str, name: str, kind: str) -> str:
    """Return what describes a public name, under the name of the module that lists it."""
    full = re.sub("^lab", "loopring_lab", name)
    parts = full.removeprefix(f"{module}.").split(".")
    if module == "loopring_lab" and (home := home_of(parts[0])):
        return "" if parts[1:] else f"``{name}`` is :py:obj:`{home}`.\n"
    within = "   " * (len(parts) - 1)
    if kind == "trait":
        return (
            f"{within}.. py:attribute:: {full.rpartition('.')[2] if within else full}\n"
        )
    chosen = KINDS.get(kind) or (
        "autodata" if kind else "automethod" if within else "autofunction"
    )
    return f"{within}.. {chosen}:: {full}\n"
