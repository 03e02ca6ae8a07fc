"""The bundled notebooks as templates: copied without outputs, with their parameters filled in."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loopring_lab.bounded import given_path
from loopring_lab.errors import LabError, did_you_mean
from loopring_lab.redaction import hide

PLACES = ("recording", "blocks")  # parameters that are paths
# `connect` takes one of these parameters.
SOURCES = ("base_url", "recording", "blocks")
# The prices after a fill are those of later blocks, which shorter horizons often do not reach.
HORIZON_ON_BLOCKS = "1h"
LINK_TO_NOTEBOOK = re.compile(r"\[([^\]]*)\]\(\d+_(\w+)\.ipynb\)")
LINK_TO_PAGE = re.compile(r"\[([^\]]*)\]\(\.\./(docs/[^)]*)\)")


class Template(NamedTuple):
    """A bundled notebook."""

    name: str
    title: str
    path: Path
    parameters: dict[str, Any]


def find_notebooks() -> tuple[Path, bool]:
    """Return the folder of the bundled notebooks, and whether it is that of the source tree."""
    package = Path(__file__).resolve().parents[1]
    # A wheel has them inside the package; the source tree beside it.
    installed = package / "notebooks"
    if installed.is_dir():
        return installed, False
    beside = package.parent / "notebooks"
    if beside.is_dir():
        return beside, True
    raise LabError(
        f"no notebooks found in {package}: an incomplete installation. Reinstall loopring-lab."
    )


def copy_notebooks(bundled: Path, folder: Path) -> list[str]:
    """Copy notebooks into a working folder; return the names of changed files, which are kept."""
    if folder.exists() and not folder.is_dir():
        raise LabError(
            f"{folder} is a file, so notebooks cannot be copied into it. Name a folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for source in sorted(bundled.glob("*.ipynb")):
        target = folder / source.name
        if not target.exists():
            shutil.copyfile(source, target)
        elif target.read_bytes() != source.read_bytes():
            kept.append(target.name)
    return kept


def trust_copies(bundled: Path, folder: Path) -> None:
    """Sign the copies that nobody has changed, as ``jupyter trust`` does, so that JupyterLab shows all outputs."""
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()  # type: ignore[no-untyped-call]
    for source in bundled.glob("*.ipynb"):
        copied = folder / source.name
        if copied.read_bytes() == source.read_bytes():
            notebook = nbformat.read(copied, as_version=4)  # type: ignore[no-untyped-call]
            notary.sign(notebook)  # type: ignore[no-untyped-call]
    notary.store.close()


def templates() -> list[Template]:
    folder, _ = find_notebooks()
    return [_read(path) for path in sorted(folder.glob("[0-9]*.ipynb"))]


def find(name: str) -> Template:
    """Return the template of a name."""
    known = {template.name: template for template in templates()}
    if name not in known:
        raise LabError(
            f"there is no template {name!r}. {_suggestion(name, list(known))}"
        )
    return known[name]


def new(
    template: Template,
    target: Path,
    values: Mapping[str, Any] | None = None,
    *,
    force: bool = False,
) -> None:
    """Copy a template, without outputs, and fill in its parameters."""
    if target.suffix != ".ipynb":
        raise LabError(
            f"{target} does not end in .ipynb. Name a notebook, such as {template.name}.ipynb."
        )
    if target.exists() and not force:
        raise LabError(
            f"{target} already exists. Choose another name, or use --force to overwrite it."
        )
    values = _checked_values(template, dict(values or {}), target)
    values = _without_other_sources(template, values)
    notebook = _load(template.path)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        else:
            # Neither the other notebooks nor the documentation are where the copy is.
            text = "".join(cell["source"])
            text = LINK_TO_NOTEBOOK.sub(_as_command, text)
            cell["source"] = LINK_TO_PAGE.sub(r"\1 (`\2` in a clone)", text)
    # The first cell of code has the parameters and nothing else.
    first = _first_code(notebook["cells"])
    first["source"] = _with_values("".join(first["source"]), values)
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(notebook, indent=1, ensure_ascii=False)
    target.write_text(f"{text}\n", encoding="utf-8")


def parse_value(text: str) -> Any:
    """Parse a parameter's value: a Python literal, or else the text itself."""
    try:
        return ast.literal_eval(text)
    # These are all that it raises, by its documentation.
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def refuse_addresses(values: Mapping[str, Any]) -> None:
    """Refuse values with an address that may hold a key, which whoever gets the notebook would see."""
    from loopring_lab.http.addresses import check_base_url

    for name, value in values.items():
        if name == "base_url" and value is not None:
            check_base_url(hide(value))
        elif name != "base_url" and "://" in repr(value):
            raise LabError(
                f"{name}: an address, which may hold a key, is no value here. Give a file or a folder of this machine."
            )


def account_parameters(template: Template, accounts: Sequence[int]) -> dict[str, Any]:
    """Return accounts as the template's parameter: one account or several, as it takes them."""
    if not accounts:
        return {}
    if "accounts" in template.parameters:
        return {"accounts": list(accounts)}
    if len(accounts) > 1:
        raise LabError(
            f"{template.name} takes one account, but {len(accounts)} are given. Use --account once."
        )
    return {"account_id": accounts[0]}


def suited_to_source(template: Template, values: Mapping[str, Any]) -> dict[str, Any]:
    """Choose parameters that suit a recording or a store of blocks, of those that are not given."""
    parameters = template.parameters
    recording = values.get("recording")
    blocks = values.get("blocks")
    chosen: dict[str, Any] = {}
    if blocks and "horizon" in parameters and "horizon" not in values:
        chosen["horizon"] = HORIZON_ON_BLOCKS
    # None stands for all accounts.
    names_accounts = (
        parameters.get("accounts", parameters.get("account_id")) is not None
    )
    if not names_accounts or "accounts" in values or "account_id" in values:
        return chosen
    if recording and "recording" in parameters:
        # Three show how accounts differ, and each takes a while to read.
        count = 3 if "accounts" in parameters else 1
        accounts = _busiest("recording", recording)[:count]
        chosen |= account_parameters(template, accounts)
    if blocks and "blocks" in parameters:
        chosen |= account_parameters(template, _busiest("blocks", blocks)[:1])
    return chosen


def _busiest(source: str, place: str) -> list[int]:
    """List the accounts of a recording, or those of blocks, by their trades: the most first."""
    from loopring_lab.sources.connect import connect

    given: dict[str, Any] = {source: place}
    client: Any = connect(**given)
    # In blocks pools have the most, and come last.
    if source == "blocks":
        return list(client.accounts)
    return sorted(client.accounts, key=client.count, reverse=True)


def _read(path: Path) -> Template:
    cells = _load(path)["cells"]
    heading, *_ = "".join(cells[0]["source"]).splitlines()
    title = heading.lstrip("# ")
    # Files are numbered in the order of reading: 03_fee_tiers.ipynb.
    _, _, name = path.stem.partition("_")
    source = "".join(_first_code(cells)["source"])
    assigned = _assignments(source)
    parameters = {key: ast.literal_eval(node.value) for key, node in assigned}
    return Template(
        name.replace("_", "-"),
        title,
        path,
        parameters,
    )


def _first_code(cells: list[dict[str, Any]]) -> dict[str, Any]:
    return next(cell for cell in cells if cell["cell_type"] == "code")


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _assignments(source: str) -> list[tuple[str, ast.Assign]]:
    statements = ast.parse(source).body
    nodes = [node for node in statements if isinstance(node, ast.Assign)]
    return [(ast.unparse(node.targets[0]), node) for node in nodes]


def _checked_values(
    template: Template,
    values: dict[str, Any],
    target: Path,
) -> dict[str, Any]:
    from loopring_lab.sources.connect import BUNDLED

    for name in values:
        if name not in template.parameters:
            raise LabError(
                f"{template.name} has no parameter {name!r}. {_suggestion(name, list(template.parameters))}"
            )
    for name in PLACES:
        given = values.get(name)
        if given is None or given in list(BUNDLED):
            continue
        place = given_path(given)
        # A notebook runs in its own folder, which need not be that of the command.
        if not place.is_absolute():
            relative = os.path.relpath(place, target.parent)
            values[name] = Path(relative).as_posix()
    return values


def _without_other_sources(
    template: Template, values: dict[str, Any]
) -> dict[str, Any]:
    """Leave one source: where one is given, those that the template names itself are None."""
    from loopring_lab.sources.connect import only_source

    if only_source({name: values.get(name) for name in SOURCES}) is None:
        return values
    none = {name: None for name in SOURCES if name in template.parameters}
    return none | values


def _suggestion(name: str, known: list[str]) -> str:
    return did_you_mean(name, known, f"Choose from {', '.join(known)}.")


def _with_values(source: str, values: Mapping[str, Any]) -> str:
    """Replace the values assigned in a cell; comments stay."""
    lines = source.splitlines()
    # Values are replaced from the last to the first, so that the lines of those before stay where they are.
    for name, node in reversed(_assignments(source)):
        if name in values:
            last = node.end_lineno or node.lineno
            # Python counts columns in bytes of UTF-8.
            line = lines[last - 1].encode()
            rest = line[node.end_col_offset :].decode()
            lines[node.lineno - 1 : last] = [f"{name} = {values[name]!r}{rest}"]
    return "\n".join(lines)


def _as_command(link: re.Match[str]) -> str:
    return f"{link[1]} (`loopring-lab new {link[2].replace('_', '-')}`)"
