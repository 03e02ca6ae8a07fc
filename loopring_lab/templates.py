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

from loopring_lab.errors import LabError, did_you_mean

FOLDERS = {"recording": "saved responses", "blocks": "blocks"}
HORIZON_ON_BLOCKS = "1h"
LINK_TO_NOTEBOOK = re.compile(r"\[([^\]]*)\]\(\d+_(\w+)\.ipynb\)")


class Template(NamedTuple):
    """A bundled notebook."""

    name: str
    title: str
    path: Path
    parameters: dict[str, Any]


def find_notebooks() -> tuple[Path, bool]:
    """Return the folder of the bundled notebooks, and whether it is that of the source tree."""
    package = Path(__file__).resolve().parent
    for folder, in_source_tree in ((package / "notebooks", False), (package.parent / "notebooks", True)):
        if folder.is_dir():
            return folder, in_source_tree
    raise LabError(f"no notebooks found in {package}: an incomplete installation. Reinstall loopring-lab.")


def copy_notebooks(bundled: Path, folder: Path) -> list[str]:
    """Copy notebooks into a working folder; return the names of changed files, which are kept."""
    if folder.exists() and not folder.is_dir():
        raise LabError(f"{folder} is a file, so notebooks cannot be copied into it. Name a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for source in sorted(bundled.glob("*.ipynb")):
        target = folder / source.name
        if not target.exists():
            shutil.copyfile(source, target)
        elif target.read_bytes() != source.read_bytes():
            kept.append(target.name)
    return kept


def templates() -> list[Template]:
    folder, _ = find_notebooks()
    return [_read(path) for path in sorted(folder.glob("[0-9]*.ipynb"))]


def new(name: str, target: Path, values: Mapping[str, Any] | None = None, *, force: bool = False) -> Template:
    """Copy a template, without outputs, and fill in its parameters."""
    template = _find(name)
    if target.suffix != ".ipynb":
        raise LabError(f"{target} does not end in .ipynb. Name a notebook, such as {name}.ipynb.")
    if target.exists() and not force:
        raise LabError(f"{target} already exists. Choose another name, or use --force to overwrite it.")
    values = _checked_values(template, dict(values or {}), target)
    notebook = _load(template.path)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        else:
            cell["source"] = LINK_TO_NOTEBOOK.sub(_as_command, "".join(cell["source"]))
    first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    first["source"] = _with_values("".join(first["source"]), values)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return template


def parse_value(text: str) -> Any:
    """Parse a parameter's value: a Python literal, or else the text itself."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def account_parameters(template: str, accounts: Sequence[int]) -> dict[str, Any]:
    """Return accounts as the template's parameter: one account or several, as it takes them."""
    if not accounts:
        return {}
    if "accounts" in _find(template).parameters:
        return {"accounts": list(accounts)}
    if len(accounts) > 1:
        raise LabError(f"{template} takes one account, but {len(accounts)} are given. Use --account once.")
    return {"account_id": accounts[0]}


def accounts_of_recording(template: str, recording: str | None) -> dict[str, Any]:
    """Choose accounts of a recording: those with both fill types first, then those with most trades."""
    files = (Path(recording) / "trades").glob("*-*.json") if recording else ()
    sizes: dict[int, list[int]] = {}
    for path in files:
        account = path.stem.partition("-")[0]
        if account.isdigit():
            sizes.setdefault(int(account), []).append(path.stat().st_size)
    ranked = sorted(sizes, key=lambda account: (-len(sizes[account]), -sum(sizes[account]), account))
    parameters = _find(template).parameters
    if "recording" not in parameters or parameters.get("accounts", 0) is None:  # None takes all
        return {}
    return account_parameters(template, ranked[: 3 if "accounts" in parameters else 1])


def account_of_blocks(template: str, blocks: str | None) -> dict[str, Any]:
    """Choose the account with most fills in a store of blocks, if the template needs one."""
    parameters = _find(template).parameters
    needs = parameters.get("accounts", parameters.get("account_id")) is not None
    if not blocks or "blocks" not in parameters or not needs:
        return {}
    from loopring_lab.connection import connect

    accounts = connect(blocks=blocks).accounts or []
    return account_parameters(template, accounts[:1])


def horizon_on_blocks(template: str, blocks: str | None) -> dict[str, Any]:
    """Choose a horizon at which later blocks have prices."""
    return {"horizon": HORIZON_ON_BLOCKS} if blocks and "horizon" in _find(template).parameters else {}


def _read(path: Path) -> Template:
    cells = _load(path)["cells"]
    title = "".join(cells[0]["source"]).splitlines()[0].lstrip("# ")
    source = "".join(next(cell for cell in cells if cell["cell_type"] == "code")["source"])
    name = path.stem.split("_", 1)[1].replace("_", "-")
    parameters = {key: ast.literal_eval(node.value) for key, node in _assignments(source)}
    return Template(name, title, path, parameters)


def _load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _assignments(source: str) -> list[tuple[str, ast.Assign]]:
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return [(ast.unparse(node.targets[0]), node) for node in nodes]


def _find(name: str) -> Template:
    known = {template.name: template for template in templates()}
    if name not in known:
        raise LabError(f"there is no template {name!r}. {_suggestion(name, list(known))}")
    return known[name]


def _checked_values(template: Template, values: dict[str, Any], target: Path) -> dict[str, Any]:
    for name in values:
        if name not in template.parameters:
            raise LabError(f"{template.name} has no parameter {name!r}. {_suggestion(name, list(template.parameters))}")
    for name, meaning in FOLDERS.items():
        folder = values.get(name)
        if folder is None:
            continue
        is_made = "files" in template.parameters  # the notebook makes its folder
        # Blocks are in one file, or exported to a folder.
        is_there = Path(folder).is_dir() or (name == "blocks" and Path(folder).is_file())
        if not is_made and not is_there:
            raise LabError(f"{folder} does not exist. Name the place of {meaning}.")
        if name == "recording" and not (Path(folder) / "tokens.json").is_file():
            raise LabError(f"{folder} has no tokens.json. Name the folder of {meaning}.")
        if not Path(folder).is_absolute():
            values[name] = Path(os.path.relpath(folder, target.parent)).as_posix()
    return values


def _suggestion(name: str, known: list[str]) -> str:
    return did_you_mean(name, known, f"Choose from {', '.join(known)}.")


def _with_values(source: str, values: Mapping[str, Any]) -> str:
    """Replace the values assigned in a cell; comments stay."""
    lines = source.splitlines()
    for name, node in reversed(_assignments(source)):
        if name in values:
            last = node.end_lineno or node.lineno
            rest = lines[last - 1].encode()[node.end_col_offset :].decode()
            lines[node.lineno - 1 : last] = [f"{name} = {values[name]!r}{rest}"]
    return "\n".join(lines)


def _as_command(link: re.Match[str]) -> str:
    return f"{link[1]} (`loopring-lab new {link[2].replace('_', '-')}`)"
