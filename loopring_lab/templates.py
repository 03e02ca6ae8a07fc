"""The bundled notebooks as templates: copied without outputs, with parameters filled in."""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loopring_lab.errors import LabError

__all__ = ["Template", "copy_notebooks", "find_notebooks", "new", "templates"]

LINK = re.compile(r"\[([^\]]*)\]\(\d+_(\w+)\.ipynb\)")


class Template(NamedTuple):
    """A bundled notebook."""

    name: str
    title: str
    path: Path
    parameters: dict[str, Any]


def find_notebooks() -> tuple[Path, bool]:
    """Find the notebooks that come with this package."""
    package = Path(__file__).resolve().parent
    for folder, in_source_tree in ((package / "notebooks", False), (package.parent / "notebooks", True)):
        if folder.is_dir():
            return folder, in_source_tree
    raise LabError(
        f"no notebooks beside {package}: the installation is incomplete. Install loopring-lab again."
    )


def copy_notebooks(bundled: Path, folder: Path) -> list[str]:
    """Copy notebooks into a working folder; what is there already stays as it is."""
    if folder.exists() and not folder.is_dir():
        raise LabError(f"{folder} is a file, not a folder to put notebooks in. Name another folder.")
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
    """List the templates."""
    folder, _ = find_notebooks()
    return [_read(path) for path in sorted(folder.glob("[0-9]*.ipynb"))]


def new(
    name: str, target: Path, parameters: Mapping[str, Any] | None = None, *, force: bool = False
) -> Template:
    """Copy a template, without outputs, and fill in its parameters."""
    template = _find(name)
    if target.suffix != ".ipynb":
        raise LabError(f"{target} does not end in .ipynb. Name a notebook to write, such as {name}.ipynb.")
    if target.exists() and not force:
        raise LabError(f"{target} is there already. Choose another name, or say --force to write over it.")
    values = _checked(template, dict(parameters or {}), target)
    notebook = _load(template.path)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
        else:
            cell["source"] = LINK.sub(_named, "".join(cell["source"]))
    first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    first["source"] = _filled("".join(first["source"]), values)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return template


def value_of(text: str) -> Any:
    """Read a parameter's value: a Python literal, or else the text itself."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def accounts_for(template: str, accounts: Sequence[int]) -> dict[str, Any]:
    """Give accounts under the name the template has for them, or raise a `LabError`."""
    if not accounts:
        return {}
    if "accounts" in _find(template).parameters:
        return {"accounts": list(accounts)}
    if len(accounts) > 1:
        raise LabError(f"{template} looks at one account, {len(accounts)} are given. Name one --account.")
    return {"account_id": accounts[0]}


def accounts_in(template: str, recording: str | None) -> dict[str, Any]:
    """Choose accounts of a recording: those with both fill types first, then those with most trades."""
    files = (Path(recording) / "trades").glob("*-*.json") if recording else ()
    sizes: dict[int, list[int]] = {}
    for path in files:
        account = path.stem.partition("-")[0]
        if account.isdigit():
            sizes.setdefault(int(account), []).append(path.stat().st_size)
    most = sorted(sizes, key=lambda one: (-len(sizes[one]), -sum(sizes[one]), one))
    known = _find(template).parameters
    if "recording" not in known:
        return {}
    return accounts_for(template, most[: 3 if "accounts" in known else 1])


def _read(path: Path) -> Template:
    cells = _load(path)["cells"]
    title = "".join(cells[0]["source"]).splitlines()[0].lstrip("# ")
    source = "".join(next(cell for cell in cells if cell["cell_type"] == "code")["source"])
    name = path.stem.split("_", 1)[1].replace("_", "-")
    return Template(name, title, path, {key: ast.literal_eval(node.value) for key, node in _assigned(source)})


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def _assigned(source: str) -> list[tuple[str, ast.Assign]]:
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    return [(ast.unparse(node.targets[0]), node) for node in nodes]


def _find(name: str) -> Template:
    known = {template.name: template for template in templates()}
    if name not in known:
        raise LabError(f"there is no template {name!r}. {_near(name, list(known))}")
    return known[name]


def _checked(template: Template, values: dict[str, Any], target: Path) -> dict[str, Any]:
    for name in values:
        if name not in template.parameters:
            raise LabError(
                f"{template.name} has no parameter {name!r}. {_near(name, list(template.parameters))}"
            )
    folder = values.get("recording")
    if folder is not None:
        if not Path(folder).is_dir():
            raise LabError(f"there is no folder {folder}. Name the folder of saved responses.")
        if not (Path(folder) / "tokens.json").is_file():
            raise LabError(f"{folder} holds no tokens.json. Name the folder of saved responses.")
        if not Path(folder).is_absolute():
            values["recording"] = Path(os.path.relpath(folder, target.parent)).as_posix()
    return values


def _near(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."


def _filled(source: str, values: Mapping[str, Any]) -> str:
    """Write values into assignments of a cell; comments stay."""
    lines = source.splitlines()
    for name, node in reversed(_assigned(source)):
        if name in values:
            last = node.end_lineno or node.lineno
            rest = lines[last - 1].encode()[node.end_col_offset :].decode()
            lines[node.lineno - 1 : last] = [f"{name} = {values[name]!r}{rest}"]
    return "\n".join(lines)


def _named(link: re.Match[str]) -> str:
    return f"{link[1]} (`loopring-lab new {link[2].replace('_', '-')}`)"
