"""The rules of the house: which way imports go, how long things are, what is documented and what loads."""

import ast
import importlib
import inspect
import json
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from numpydoc.validate import validate

import loopring_lab as lab

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "loopring_lab"
MODULES = sorted(PACKAGE.rglob("*.py"))

# A module imports only from its left.
STREET = [
    *("errors", "hidden", "protocol.curve", "protocol.fields"),  # ground floor
    *("protocol.eddsa", "protocol.wallets", "protocol"),
    *("completion", "templates"),
    *("sheet", "amounts.scaling", "amounts.readable", "amounts"),
    *("tables.wire", "tables.listings", "tables.lookup", "tables.rows", "tables"),
    *("engines.periods", "engines.kinds", "engines.frames", "engines.cube", "engines.groups"),
    *("engines.answers", "engines.asof", "engines"),
    *("refusals", "transport", "replies", "accounts", "asked", "progress", "paging", "client", "connection"),
    *("archive.shape", "archive.trouble", "archive.mark", "archive.disk", "archive.stored", "archive.merge"),
    *("archive.records", "archive.reading", "archive.syncing", "archive.pages", "archive.importing"),
    *("archive.reporting", "archive.scanning", "archive.holdings", "archive.upkeep"),
    *("archive", "archive.commands"),
    *("keys.terms", "keys.updates", "keys.signers", "keys.receipts", "keys.sending", "keys"),
    *("fees.tiers", "fees.schedule", "fees.valuation", "fees", "fills.gaps", "fills.sizes", "fills"),
    *("figures.words", "figures.canvas", "figures.spans", "figures.activity", "figures.rates"),
    *("figures.tokens", "figures.prices", "figures.sizes", "figures"),
    *("widgets.choices", "widgets.calls", "widgets.work", "widgets.reading", "widgets.exploring"),
    *("widgets.explorers", "widgets.limits", "widgets.markets", "widgets.wallets", "widgets.updating"),
    *("widgets.parts", "widgets.secret", "widgets.trades_view", "widgets.market_view", "widgets.wizard_view"),
    *("widgets.displayed", "widgets"),
]
ANYWHERE = {"__init__", "__main__", "cli"}  # the front doors
RELAYER_MAY_IMPORT = {*STREET[: STREET.index("protocol") + 1], "relayer"}  # an independent check of the rest
LAZY = {("connection", "relayer")}  # only when called for: connect() starts it

MODULE_LINES, FUNCTION_LINES, MEDIAN_LINES = 350, 50, 8
SLOW = {
    *("matplotlib", "ipywidgets", "eth_account", "fastapi", "uvicorn", "tqdm.notebook", "IPython"),
    *("narwhals", "polars", "duckdb", "dask", "distributed", "pyspark", "deltalake"),
}
DOCSTRING_FAULTS = {  # numpydoc's codes: sections, summary, parameters, returns and yields
    *("GL06", "GL07", "GL08", "GL10", "SS01", "SS03"),
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR07", "PR10", "RT01", "RT03", "YD01"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    """Name a module as the street does; a package has the name of its folder."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def house_name(name: str) -> str:
    """Name the module of the street that an imported name belongs to."""
    parts = name.split(".")[1:]
    return ".".join(parts[:2]) if ".".join(parts[:2]) in STREET else parts[0]


def imported(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Give each import of the package: the statement, and the module it takes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node, house_name(name)) for name in names if name.startswith("loopring_lab."))


def wrong_imports(module: str, tree: ast.Module) -> list[str]:
    """Return the names that a module must not import, of those it does."""
    if module in ANYWHERE:
        return []
    if module.startswith("relayer"):
        return [name for _, name in imported(tree) if name not in RELAYER_MAY_IMPORT]
    left = set(STREET[: STREET.index(module)])
    lazy = deferred(tree)
    return [
        name
        for node, name in imported(tree)
        if name not in left and not ((module, name) in LAZY and node in lazy)
    ]


def deferred(tree: ast.Module) -> set[ast.AST]:
    """Return what does not run when the module is imported: functions, and what only type checkers see."""
    for_types = [
        n for n in ast.walk(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    ]
    inside = [*functions(tree), *(statement for node in for_types for statement in node.body)]
    return {node for outer in inside for node in ast.walk(outer)}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    assert wrong_imports(name_of(path), ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("tables", "from loopring_lab import amounts, client", ["client"]),
        ("tables", "import loopring_lab.tables", ["tables"]),
        ("tables.wire", "from loopring_lab.tables import rows", ["tables.rows"]),
        ("tables.rows", "from loopring_lab.tables.wire import read", []),
        ("connection", "from loopring_lab.relayer import Relayer", ["relayer"]),
        ("connection", "if True:\n    from loopring_lab.relayer import Relayer", ["relayer"]),
        ("connection", "if TYPE_CHECKING:\n    from loopring_lab.relayer import Relayer", []),
        ("connection", "def connect():\n    from loopring_lab.relayer import Relayer", []),
        ("tables", "def f():\n    from loopring_lab.relayer import Relayer", ["relayer"]),
        ("relayer.app", "from loopring_lab.tables import trades", ["tables"]),
        (
            "relayer.app",
            "from loopring_lab.relayer.world import World\nfrom loopring_lab.errors import LabError",
            [],
        ),
    ],
)
def test_a_wrong_import_is_found(module: str, source: str, wrong: list[str]) -> None:
    assert wrong_imports(module, ast.parse(source)) == wrong


def functions(tree: ast.AST) -> list[Function]:
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def docstring_lines(node: Function) -> int:
    return 0 if ast.get_docstring(node) is None else node.body[0].end_lineno - node.body[0].lineno + 1


def lines(node: Function) -> int:
    """Return a function's length without its docstring."""
    return node.end_lineno - node.lineno + 1 - docstring_lines(node)


def body_lines(node: Function) -> int:
    """Return the length of a function's body without its docstring."""
    return node.end_lineno - node.body[0].lineno + 1 - docstring_lines(node)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_and_functions_stay_short(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= MODULE_LINES
    long = {node.name: lines(node) for node in functions(ast.parse(source)) if lines(node) > FUNCTION_LINES}
    assert long == {}


def test_most_functions_are_very_short() -> None:
    bodies = [body_lines(node) for path in MODULES for node in functions(ast.parse(path.read_text()))]
    assert statistics.median(bodies) < MEDIAN_LINES


def test_lengths_leave_the_docstring_out() -> None:
    node = functions(
        ast.parse('def f(\n    a,\n):\n    """One.\n\n    Two.\n    """\n    b = a\n    return b\n')
    )[0]
    assert (lines(node), body_lines(node)) == (5, 2)


def public_names() -> Iterator[tuple[str, object]]:
    """Give every public function, class and method of the package, by its dotted name."""
    for name in (name_of(path) for path in MODULES):
        if name.startswith("_"):
            continue
        module = importlib.import_module(f"{PACKAGE.name}.{name}")
        listed = getattr(module, "__all__", vars(module))
        own = {n: vars(module)[n] for n in listed if defined_in(module, vars(module)[n])}
        for name, member in public_members(own):
            yield f"{module.__name__}.{name}", member
            if inspect.isclass(member):
                written = {n: m for n, m in vars(member).items() if written_in(module, m)}
                yield from ((f"{module.__name__}.{name}.{n}", m) for n, m in public_members(written))


def defined_in(module: ModuleType, member: object) -> bool:
    return getattr(member, "__module__", None) == module.__name__


def written_in(module: ModuleType, member: object) -> bool:
    """Tell whether a class's member stands in the module's source; matplotlib and others make some."""
    return not inspect.isfunction(member) or member.__code__.co_filename == module.__file__


def public_members(members: Mapping[str, object]) -> list[tuple[str, object]]:
    kinds = type | FunctionType | property | classmethod | staticmethod
    return [
        (n, member) for n, member in members.items() if not n.startswith("_") and isinstance(member, kinds)
    ]


def docstring_faults(name: str, member: object) -> list[str]:
    """Return what numpydoc finds wrong with the docstring of a public name, in words."""
    own_init = "__init__" in getattr(member, "__dict__", {}) and not getattr(member, "_is_protocol", False)
    without = {"PR01"} if inspect.isclass(member) and not own_init else set()
    wanted = DOCSTRING_FAULTS - without  # a parent's parameters are documented there
    return [text for code, text in validate(name)["errors"] if code in wanted]


@pytest.mark.filterwarnings("ignore:Widget.* is deprecated:DeprecationWarning")  # numpydoc touches everything
def test_every_public_name_is_documented() -> None:
    faults = {name: docstring_faults(name, member) for name, member in public_names()}
    assert len(faults) > 20
    assert {name: found for name, found in faults.items() if found} == {}


def in_reach() -> Iterator[tuple[str, object]]:
    """Give what `lab.` completes to and can be called: what people look up with Shift+Tab."""
    for name in lab.__all__:
        member = getattr(lab, name)
        names = {n: getattr(member, n) for n in getattr(member, "__all__", [])} or {"": member}
        for inner, one in names.items():
            named = ".".join(filter(None, (name, inner)))
            if not callable(one) or (inspect.isclass(one) and issubclass(one, Exception)):
                continue
            yield named, one
            if inspect.isclass(one) and not getattr(one, "_is_protocol", False) and name != "widgets":
                own = [m for m in inspect.getmembers(one, inspect.isroutine) if not m[0].startswith("_")]
                yield from (
                    (f"{named}.{n}", m) for n, m in own if "loopring_lab" in str(getattr(m, "__module__", ""))
                )


@pytest.mark.filterwarnings("ignore:Widget.* is deprecated:DeprecationWarning")
def test_whatever_is_in_reach_shows_an_example() -> None:
    """The doctests run them."""
    names = dict(in_reach())
    assert {"connect", "Client.trades", "fees.summary", "Archive.sync", "keys.KeyUpdate.attach"} <= set(names)
    assert [n for n, one in names.items() if ">>> " not in (inspect.getdoc(one) or "")] == []


def test_importing_the_package_loads_nothing_slow() -> None:
    code = "import json, sys, loopring_lab; print(json.dumps(list(sys.modules)))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    assert "loopring_lab" in loaded
    assert SLOW & set(loaded) == set()


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_installed_version_is_the_projects() -> None:
    assert metadata.version("loopring-lab") == project()["version"]


def test_type_checkers_are_told_that_the_package_is_typed() -> None:
    assert (PACKAGE / "py.typed").is_file()


def test_the_test_extra_holds_all_of_lab() -> None:
    extras = project()["optional-dependencies"]
    assert "loopring-lab[lab]" in extras["test"]
