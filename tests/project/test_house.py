"""The rules of the code base: import directions, docstrings, import time, documentation pages."""

import ast
import builtins
import doctest
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numpydoc.validate import validate

import loopring_lab as lab
from loopring_lab import relayer

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "loopring_lab"

SLOW = {
    *(
        "numpy",
        "pandas",
        "pyarrow",
        "requests",
        "matplotlib",
        "ipywidgets",
        "eth_account",
        "fastapi",
        "uvicorn",
        "tqdm.notebook",
        "IPython",
    ),
    *("polars", "duckdb", "pyspark"),
}
DOCSTRING_FAULTS = {  # numpydoc's codes: sections, summary, parameters, returns and yields
    *("GL06", "GL07", "GL08", "GL10", "SS01", "SS03"),
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR07", "PR10", "RT01", "RT03", "YD01"),
}


def test_imports_keep_to_the_contracts_of_pyproject():
    """import-linter reads them: the floors, the relayer's independence, no cycles."""
    found = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout


def in_reach() -> Iterator[tuple[str, object]]:
    """Return what `lab.` completes to and can be called: what people look up with Shift+Tab."""
    # The embedded relayer's classes are documented, but not each of their methods has an example.
    for name in set(lab.__all__) - {"relayer"}:
        member = getattr(lab, name)
        names = {n: getattr(member, n) for n in getattr(member, "__all__", [])} or {
            "": member
        }
        for inner, one in names.items():
            named = ".".join(filter(None, (name, inner)))
            if not callable(one) or (
                inspect.isclass(one) and issubclass(one, Exception)
            ):
                continue
            yield named, one
            if (
                inspect.isclass(one)
                and not getattr(one, "_is_protocol", False)
                and name != "widgets"
            ):
                own = [
                    m
                    for m in inspect.getmembers(one, callable)
                    if not m[0].startswith("_")
                ]
                yield from (
                    (f"{named}.{n}", m)
                    for n, m in own
                    if "loopring_lab" in str(getattr(m, "__module__", ""))
                )


def docstring_faults(name: str, member: object) -> list[str]:
    """Return the faults that numpydoc finds in the docstring of a public name."""
    own_init = "__init__" in getattr(member, "__dict__", {}) and not getattr(
        member, "_is_protocol", False
    )
    without = {"PR01"} if inspect.isclass(member) and not own_init else set()
    wanted = DOCSTRING_FAULTS - without  # a parent's parameters are documented there
    return [text for code, text in validate(name)["errors"] if code in wanted]


def reached() -> dict[str, object]:
    """Return what is in reach, and the embedded relayer's own classes, by the path numpydoc imports."""
    members = [(f"loopring_lab.{name}", one) for name, one in in_reach()]
    for one in (relayer.Relayer, relayer.World, relayer.Settings):
        own = [
            m for m in vars(one) if not m.startswith("_") and callable(getattr(one, m))
        ]
        members += [(f"loopring_lab.relayer.{one.__name__}", one)]
        members += [
            (f"loopring_lab.relayer.{one.__name__}.{m}", getattr(one, m)) for m in own
        ]
    return dict(members)


# numpydoc touches every attribute, deprecated ones of widgets too.
@pytest.mark.filterwarnings("ignore:Widget.* is deprecated:DeprecationWarning")
def test_whatever_is_in_reach_is_documented_and_shows_an_example():
    """The doctests run the examples."""
    faults = {
        name: docstring_faults(name, member) for name, member in reached().items()
    }
    assert len(faults) > 100
    assert {name: found for name, found in faults.items() if found} == {}
    names = dict(in_reach())
    assert {"connect", "Client.trades", "keys.KeyUpdate.attach"} <= set(names)
    docstrings = {name: inspect.getdoc(one) or "" for name, one in names.items()}
    assert [name for name, text in docstrings.items() if ">>> " not in text] == []


# What docs/reference.md says that examples start from.
GIVEN = {"lab", "client", "archive", "store", "folder"}


def test_an_example_can_be_pasted_where_lab_was_imported():
    """As Shift+Tab shows it, without the names of the module that it stands in."""
    for name, one in reached().items():
        examples = doctest.DocTestParser().get_examples(inspect.getdoc(one) or "")
        tree = ast.parse("".join(example.source for example in examples))
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        loaded = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                made |= {imported.asname or imported.name for imported in node.names}
            if isinstance(node, ast.ExceptHandler | ast.FunctionDef):
                made.add(str(node.name))
            if isinstance(node, ast.arg):
                made.add(node.arg)
        assert loaded - made - GIVEN - set(dir(builtins)) == set(), name


def test_importing_the_package_loads_nothing_slow_and_touches_no_logger_of_others():
    code = """
import json, logging, sys, loopring_lab
print(json.dumps([list(sys.modules), logging.getLogger("urllib3.connectionpool").filters]))
"""
    loaded, filters = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    assert "loopring_lab" in loaded
    assert SLOW & set(loaded) == set()
    assert filters == []


PUBLIC_MODULES = [name for name in lab.__all__ if inspect.ismodule(getattr(lab, name))]


def test_tab_completes_public_names_only():
    """Kernels complete with jedi where it is installed, and without it elsewhere."""
    code = f"""
import json
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import loopring_lab as lab")
lines = ["lab.", *(f"lab.{{name}}." for name in {PUBLIC_MODULES})]
found = {{}}
for shell.Completer.use_jedi in (True, False):
    with provisionalcompleter():
        for line in lines:
            names = [c.text.lstrip(".") for c in shell.Completer.completions(line, len(line))]
            found.setdefault(line, []).append(sorted(names))
print(json.dumps(found))
"""
    completed = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    members = {
        "lab.": lab,
        **{f"lab.{name}.": getattr(lab, name) for name in PUBLIC_MODULES},
    }
    assert completed == {
        line: [sorted(member.__all__)] * 2 for line, member in members.items()
    }


def test_the_architecture_page_names_every_room():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", page)} == set()


def test_the_files_that_pages_name_exist():
    missing = []
    folders = (ROOT, ROOT / "tests", PACKAGE)
    for page in (ROOT / "docs").glob("*.md"):
        names = re.findall(
            r"`((?:tests/|docs/|loopring_lab/)?[\w/]+\.(?:py|md|txt|toml))`",
            page.read_text(encoding="utf-8"),
        )
        missing += [
            f"{page.name}: {name}"
            for name in names
            if not any((folder / name).is_file() for folder in folders)
        ]
    assert missing == []
