"""The command line: the notebooks in JupyterLab, the embedded relayer, and archives of trades."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopring_lab import templates
from loopring_lab.archive import commands as archive
from loopring_lab.errors import LabError

if TYPE_CHECKING:
    from loopring_lab.relayer import Relayer

DEFAULT_FOLDER = Path("loopring-lab-notebooks")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    words : sequence of str, optional
        The words after the program's name; those of this process by default.

    Returns
    -------
    int
        Exit code: 0 done, 1 done but an archive lacks trades, 2 refused with one line on stderr that says
        why, 130 ended by Ctrl-C.

    Examples
    --------
    >>> main(["lab", "--recording", "folder"])
    Traceback (most recent call last):
    ...
    SystemExit: 2
    """
    ours, extra = split_words(sys.argv[1:] if words is None else words)
    parser = build_parser()
    arguments = parser.parse_args(ours)
    if extra and arguments.command != "lab":
        parser.error("words after -- go to JupyterLab, so only lab takes them")
    try:
        if arguments.command == "lab":
            return open_lab(arguments.folder, extra, browser=arguments.browser)
        if arguments.command == "new":
            return new(arguments)
        if arguments.command in archive.NAMES:
            return archive.run(arguments)
        return serve(build_relayer(arguments), show_key=arguments.show_key)
    except (LabError, OSError) as error:
        print(f"loopring-lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words at the first ``--``: ours before it, JupyterLab's after it.

    Parameters
    ----------
    words : sequence of str
        Words of a command line.

    Returns
    -------
    tuple of two lists of str
        Ours, and what is passed on.

    Examples
    --------
    >>> split_words(["lab", "here", "--", "--port=9000"])
    (['lab', 'here'], ['--port=9000'])
    """
    place = list(words).index("--") if "--" in words else len(words)
    return list(words[:place]), list(words[place + 1 :])


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line.

    Returns
    -------
    argparse.ArgumentParser
        Parser for the words before a ``--``.
    """
    parser = argparse.ArgumentParser("loopring-lab", description="Research toolkit for a layer-2 exchange.")
    parser.add_argument(
        "--version", action="version", version=f"loopring-lab {metadata.version('loopring-lab')}"
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    lab = commands.add_parser(
        "lab",
        help="open the notebooks in JupyterLab",
        description="Open the notebooks in JupyterLab. Words after -- are passed on to JupyterLab.",
    )
    lab.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="working folder; notebooks are copied into it, files there are kept (default: the source tree's "
        f"own notebooks, or {DEFAULT_FOLDER} where the package is installed)",
    )
    lab.add_argument("--no-browser", dest="browser", action="store_false", help="only print the address")
    _add_new(commands.add_parser("new", help="copy a notebook as a template, or list the templates"))
    _add_serve(commands.add_parser("serve", help="run the embedded relayer until Ctrl-C"))
    archive.add_commands(commands)
    return parser


def _add_new(new: argparse.ArgumentParser) -> None:
    new.description = (
        "Copy a notebook without outputs, its parameters filled in. Without words: list the templates."
    )
    new.add_argument("template", nargs="?", help="such as fee-analysis")
    new.add_argument("target", nargs="?", type=Path, help="notebook to write (default: TEMPLATE.ipynb)")
    new.add_argument(
        "--account", type=archive.account_id, action="append", default=[], help="account id (may be repeated)"
    )
    new.add_argument("--recording", metavar="FOLDER", help="saved responses")
    new.add_argument("--base-url", metavar="URL", help="a live relayer")
    new.add_argument(
        "--set",
        dest="parameters",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other parameter of the template, such as every=1w (may be repeated)",
    )
    new.add_argument("--force", action="store_true", help="write over a file that is there")


def _add_serve(serve: argparse.ArgumentParser) -> None:
    serve.description = "Run the embedded relayer until Ctrl-C. It listens on this machine only."
    serve.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    world = serve.add_mutually_exclusive_group()
    world.add_argument("--seed", type=int, help="seed of the synthetic world (default: 1)")
    world.add_argument("--recording", type=Path, metavar="FOLDER", help="serve saved answers instead")
    serve.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the relayer, such as order=oldest (may be repeated)",
    )
    serve.add_argument(
        "--store",
        type=Path,
        metavar="FILE",
        help="keep accounts and key updates in this file (default: memory)",
    )
    serve.add_argument("--show-key", action="store_true", help="print the relayer's API key")


def open_lab(
    folder: Path | None,
    extra: Sequence[str] = (),
    *,
    browser: bool = True,
    launch: Callable[[list[str]], object] | None = None,
) -> int:
    """Open the notebooks in JupyterLab, and return when it ends.

    Parameters
    ----------
    folder : Path or None
        Working folder. The notebooks are copied into it; files already there are kept. None is the
        source tree's own notebooks, or `DEFAULT_FOLDER` where the package is installed.
    extra : sequence of str
        Words for JupyterLab.
    browser : bool
        Whether to open a browser.
    launch : callable, optional
        Takes JupyterLab's words and runs it until it ends.

    Returns
    -------
    int
        Exit code, 0.

    Raises
    ------
    LabError
        JupyterLab is not installed, or `folder` is a file.
    """
    launch = _launcher() if launch is None else launch
    bundled, in_source_tree = templates.find_notebooks()
    if folder is None and in_source_tree:
        folder = bundled
    else:
        folder = folder or DEFAULT_FOLDER
        kept = templates.copy_notebooks(bundled, folder)
        print(f"notebooks are in {folder}", *(f"  kept yours: {name}" for name in kept), sep="\n", flush=True)
    root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    first = min(folder.glob("*.ipynb"), default=folder)
    launch([str(first), *([] if browser else ["--no-browser"]), *root, *extra])
    return 0


def new(arguments: argparse.Namespace) -> int:
    """Copy a template, or list them all.

    Parameters
    ----------
    arguments : argparse.Namespace
        With `template`, `target`, `account`, `recording`, `base_url`, `parameters` and `force`.

    Returns
    -------
    int
        Exit code, 0.

    Raises
    ------
    LabError
        There is no such template or parameter, or a file is in the way.
    """
    if arguments.template is None:
        for template in templates.templates():
            print(f"{template.name:22} {template.title}\n{'':22} {', '.join(template.parameters)}")
        return 0
    values = dict(map(_named_value, arguments.parameters))
    values |= templates.accounts_for(arguments.template, arguments.account)
    given = {"recording": arguments.recording, "base_url": arguments.base_url}
    values |= {name: value for name, value in given.items() if value is not None}
    if not {"account_id", "accounts"} & set(values):
        found = templates.accounts_in(arguments.template, values.get("recording"))
        for name, value in found.items():
            print(f"{name} = {value}, chosen from {values['recording']}")
        values |= found
    target = arguments.target or Path(f"{arguments.template}.ipynb")
    templates.new(arguments.template, target, values, force=arguments.force)
    jupyter = "jupyter" if shutil.which("jupyter") else Path(sys.executable).with_name("jupyter")
    print(f"{target} is written. Open it with: {jupyter} lab {target}")
    return 0


def _named_value(word: str) -> tuple[str, Any]:
    name, sign, text = word.partition("=")
    if not sign:
        raise LabError(f"--set {word}: give a name and a value, such as --set every=1w.")
    return name, templates.value_of(text)


def _launcher() -> Callable[[list[str]], object]:
    if util.find_spec("jupyterlab") is None:
        raise LabError("JupyterLab is not installed. Install it with: pip install 'loopring-lab[lab]'")
    from jupyterlab.labapp import LabApp

    return LabApp.launch_instance  # type: ignore[no-any-return]


def build_relayer(arguments: argparse.Namespace) -> Relayer:
    """Make the relayer that the words of ``serve`` describe; it is not started.

    Parameters
    ----------
    arguments : argparse.Namespace
        With `seed`, `recording`, `settings`, `port` and `store`.

    Returns
    -------
    Relayer
        The embedded relayer.

    Raises
    ------
    LabError
        A setting or the recording is not usable.
    """
    from loopring_lab.relayer import Relayer, Settings, World

    settings, folder = Settings.from_text(arguments.settings), arguments.recording
    if folder is not None and not folder.is_dir():
        raise LabError(f"{folder} is not a folder. Name the folder that holds the recording's tokens.json.")
    world = None if folder else World(seed=1 if arguments.seed is None else arguments.seed)
    return Relayer(world, settings, recording=folder, port=arguments.port, store=arguments.store)


def serve(relayer: Relayer, *, show_key: bool = False) -> int:
    """Run a relayer until Ctrl-C, telling on stdout how to reach it.

    Parameters
    ----------
    relayer : Relayer
        Not started yet.
    show_key : bool
        Whether to print its API key.

    Returns
    -------
    int
        Exit code, 0.
    """
    with relayer:
        print(greeting(relayer, show_key=show_key), flush=True)
        relayer.run_forever()
    return 0


def greeting(relayer: Relayer, *, show_key: bool = False) -> str:
    """Say where a running relayer is and how to ask it.

    Parameters
    ----------
    relayer : Relayer
        A started relayer.
    show_key : bool
        Whether to tell its API key.

    Returns
    -------
    str
        A few lines for a terminal.
    """
    api = f"{relayer.base_url}/api/v3"
    key = relayer.api_key if show_key else "not shown; trades need it: start with --show-key to see it"
    return "\n".join(
        [
            f"address   {relayer.base_url}  (its API described: {relayer.base_url}/docs)",
            f"source    {relayer.source}",
            f"API key   {key}",
            f"try       curl '{api}/exchange/tokens'",
            f"          curl -H 'X-API-KEY: ...' '{api}/user/trades?accountId={relayer.accounts[0]}&limit=2'",
            f"notebooks lab.connect('{relayer.base_url}', api_key=...)",
            "Ctrl-C ends it.",
        ]
    )
