"""What nbval cannot check: each committed notebook was run in order, and holds nothing private."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(
    p
    for p in (ROOT / "notebooks").rglob("*.ipynb")
    if ".ipynb_checkpoints" not in p.parts
)
MACHINE_PATH = re.compile(
    r"(?<![\w.:/])/(?:home|Users|root|tmp|work|private|var|mnt|opt)/\w|\b[A-Z]:\\\\?Users"
)
LONG_WORD = re.compile(r"(?<![0-9A-Za-z+/=_-])(?!0x)[0-9A-Za-z]{64,}")
LINK = re.compile(r"\]\(([0-9a-z_]+\.ipynb)\)")
BYTES = 400_000
LINES = 6
# Numbers in prose that hold for any source: of the exchange, of a format, of a method, or a sign.
TIMELESS = {
    "01_first_look.ipynb": {"70002"},
    "02_fee_analysis.ipynb": {"19", "20", "70001"},
    "03_amm_versus_orderbook.ipynb": {"0", "0.0001", "605"},
    "05_archive_and_scale.ipynb": set(),
    "06_real_trades.ipynb": [
        "0",
        "1",
        "18",
        "19",
        "32",
        "2020",
        "2022",
        "10,000",
        "67,896",
    ],
    "07_liquidity.ipynb": {"0", "2022"},
}


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def faults(notebook: nbformat.NotebookNode) -> list[str]:
    """Return a notebook's faults."""
    code = code_cells(notebook)
    checks = {
        "kernel is not python3": notebook.metadata.get("kernelspec", {}).get("name")
        != "python3",
        "widget state saved: it can hold what a user typed": "widgets"
        in notebook.metadata,
        "papermill's marks saved": "papermill" in notebook.metadata,
        "not run from top to bottom": [c.execution_count for c in code]
        != list(range(1, len(code) + 1)),
        "an error is saved": any(
            o.output_type == "error" for c in code for o in c.outputs
        ),
    }
    return (
        [fault for fault, found in checks.items() if found]
        + parameter_faults(code)
        + cell_faults(notebook)
    )


def parameter_faults(code: list[nbformat.NotebookNode]) -> list[str]:
    """The first code cell, and only it, is tagged `parameters` and assigns plain literals."""
    tagged = [
        place
        for place, cell in enumerate(code)
        if "parameters" in cell.metadata.get("tags", [])
    ]
    if tagged != [0]:
        return [f"code cells tagged parameters: {tagged}, expected the first alone"]
    return [
        f"parameters: {ast.unparse(statement)} is not a literal assignment"
        for statement in ast.parse(code[0].source).body
        if not is_literal_assignment(statement)
    ]


def is_literal_assignment(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return False
    try:
        ast.literal_eval(statement.value)
    except ValueError:
        return False
    return True


def cell_faults(notebook: nbformat.NotebookNode) -> list[str]:
    found = []
    for place, cell in enumerate(notebook.cells):
        lines = [line for line in cell.source.splitlines() if line.strip()]
        if (
            cell.cell_type == "code"
            and "parameters" not in cell.metadata.get("tags", [])
            and len(lines) > LINES
        ):
            found.append(
                f"cell {place} has {len(lines)} lines, at most {LINES} are allowed"
            )
        texts = [cell.source, *readable_outputs(cell)]
        found += [
            f"cell {place} shows a path of this machine"
            for t in texts
            if MACHINE_PATH.search(t)
        ]
        found += [
            f"cell {place} shows what looks like a secret"
            for t in texts
            if LONG_WORD.search(t)
        ]
    return found


def readable_outputs(cell: nbformat.NotebookNode) -> list[str]:
    """Return a cell's outputs as text; pictures are long words by nature and are left out."""
    picture = re.compile("data:image/png;base64,[A-Za-z0-9+/=]+")
    outputs = cell.get("outputs", [])
    texts = [output.get("text", "") for output in outputs]
    data = [
        (mime, value)
        for output in outputs
        for mime, value in output.get("data", {}).items()
    ]
    texts += [str(value) for mime, value in data if not mime.startswith("image/")]
    return [picture.sub("", text) for text in texts]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_clean(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert faults(notebook) == []
    assert path.stat().st_size < BYTES


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_first_screen_says_how_long_it_takes(path):
    first = nbformat.read(path, as_version=4).cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    assert re.search(r"about (five|ten|fifteen) minutes", first.source)


@pytest.mark.parametrize("name", TIMELESS)
def test_what_prose_says_in_numbers_does_not_depend_on_the_data(name):
    """A number of the data is printed by a cell, so that it is true of every source."""
    cells = nbformat.read(ROOT / "notebooks" / name, as_version=4).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    said = re.sub(r"\]\([^)]*\)|`[^`]*`|layer-2", "", prose)
    assert set(re.findall(r"\d+(?:[.,]\d+)*", said)) == set(TIMELESS[name])


def test_every_notebook_leads_to_every_other():
    links = {path.name: set(LINK.findall(path.read_text())) for path in NOTEBOOKS}
    reached = {path.name: {path.name} for path in NOTEBOOKS}
    for _ in NOTEBOOKS:
        reached = {
            name: {*found, *(one for n in found for one in links[n])}
            for name, found in reached.items()
        }
    assert [name for name, found in reached.items() if found != set(links)] == []
