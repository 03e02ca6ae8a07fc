"""The command line: notebooks in JupyterLab, the embedded relayer, and archives of trades."""

from __future__ import annotations

import argparse
import getpass
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from loopring_lab import templates
from loopring_lab.archive import Archive
from loopring_lab.client import Client
from loopring_lab.connection import connect
from loopring_lab.errors import IncompleteHistory, LabError

if TYPE_CHECKING:
    from loopring_lab.relayer import Relayer


DEFAULT_FOLDER = Path("loopring-lab-notebooks")


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line."""
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
        if arguments.command in ARCHIVE_COMMANDS:
            return run_archive_command(arguments)
        return serve(build_relayer(arguments), show_key=arguments.show_key)
    except (LabError, OSError) as error:
        print(f"loopring-lab: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split words at the first ``--``: ours before it, JupyterLab's after it."""
    place = list(words).index("--") if "--" in words else len(words)
    return list(words[:place]), list(words[place + 1 :])


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
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
    add_archive_commands(commands)
    return parser


def _add_new(new: argparse.ArgumentParser) -> None:
    new.description = (
        "Copy a notebook without outputs, its parameters filled in. Without words: list the templates."
    )
    new.add_argument("template", nargs="?", help="such as fee-analysis")
    new.add_argument("target", nargs="?", type=Path, help="notebook to write (default: TEMPLATE.ipynb)")
    new.add_argument(
        "--account", type=account_id, action="append", default=[], help="account id (may be repeated)"
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
    """Open the notebooks in JupyterLab, and return when it ends."""
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
    """Copy a template, or list them all."""
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
    """Make the relayer that the words of ``serve`` describe; it is not started."""
    from loopring_lab.relayer import Relayer, Settings, World

    settings, folder = Settings.from_text(arguments.settings), arguments.recording
    if folder is not None and not folder.is_dir():
        raise LabError(f"{folder} is not a folder. Name the folder that holds the recording's tokens.json.")
    world = None if folder else World(seed=1 if arguments.seed is None else arguments.seed)
    return Relayer(world, settings, recording=folder, port=arguments.port, store=arguments.store)


def serve(relayer: Relayer, *, show_key: bool = False) -> int:
    """Run a relayer until Ctrl-C, telling on stdout how to reach it."""
    with relayer:
        print(greeting(relayer, show_key=show_key), flush=True)
        relayer.run_forever()
    return 0


def greeting(relayer: Relayer, *, show_key: bool = False) -> str:
    """Say where a running relayer is and how to ask it."""
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


ARCHIVE_COMMANDS = ("sync", "report", "import")
KEY = "LOOPRING_API_KEY"
COMPLETE, INCOMPLETE, INTERRUPTED = 0, 1, 130


def add_archive_commands(commands: Any) -> None:
    """Describe the commands for archives."""
    sync = commands.add_parser("sync", help="download missing trades into an archive")
    sync.description = (
        "Download missing trades into an archive. Rerun the same command to resume. The API key is read from "
        f"{KEY}, or asked for on a terminal."
    )
    sync.add_argument("path", type=Path, help="folder of the archive; created if missing")
    sync.add_argument(
        "--account", type=account_id, action="append", default=[], help="account id (may be repeated)"
    )
    sync.add_argument(
        "--accounts-file", type=Path, metavar="FILE", help="account ids, one per line; # starts a comment"
    )
    sync.add_argument("--since", metavar="TIME", help="only trades from then on, such as 2022-03-31 (UTC)")
    source = sync.add_mutually_exclusive_group()
    source.add_argument("--base-url", metavar="URL", help="address of a relayer (default: the embedded one)")
    source.add_argument("--recording", type=Path, metavar="FOLDER", help="folder of saved responses")
    report = commands.add_parser("report", help="show what an archive holds and what is missing")
    report.add_argument("path", type=Path, help="folder of the archive")
    imports = commands.add_parser("import", help="add saved responses to an archive, without a relayer")
    imports.add_argument("path", type=Path, help="folder of the archive; created if missing")
    imports.add_argument("files", type=Path, nargs="+", help="files or folders of saved responses")
    imports.add_argument("--account", type=account_id, help="account id, if neither files nor rows name it")
    imports.add_argument(
        "--fill-type", choices=("amm", "dex"), help="fill type, if the file names do not show it"
    )


def account_id(text: str) -> int:
    """Read an account id of the command line."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid account id; repeat --account for several")
    return int(text)


def run_archive_command(arguments: argparse.Namespace) -> int:
    """Run a parsed command."""
    archive = Archive(arguments.path)
    try:
        if arguments.command == "sync":
            return _sync(archive, arguments)
        if arguments.command == "import":
            archive.import_pages(arguments.files, arguments.account, arguments.fill_type)
    except KeyboardInterrupt:
        command = " ".join(map(shlex.quote, _command_to_resume(arguments)))
        print(
            f"\nInterrupted; all trades read are safe. Resume with: loopring-lab {command}", file=sys.stderr
        )
        return INTERRUPTED
    return _print_report(archive.report())


def format_report(report: pd.DataFrame) -> str:
    """Format a report for a terminal."""
    frame = report.assign(**{name: report[name].dt.strftime("%Y-%m-%d %H:%M") for name in _TIMES})
    table = frame.astype(object).fillna("?").to_string(index=False) if len(frame) else "no trades yet"
    held, incomplete = f"{report['rows'].sum():,} trades", report.loc[~report["complete"], "missing"]
    if incomplete.empty:
        return f"{table}\n{held}, complete per the source's count"
    unknown = incomplete.isna().sum()
    unfinished = f"; {unknown} histories have not been read to the end" if unknown else ""
    return f"{table}\n{held}, {incomplete.sum():,} missing{unfinished}. Run sync to download them."


_TIMES = ("first", "last", "synced_at")


def _sync(archive: Archive, arguments: argparse.Namespace) -> int:
    accounts = arguments.account + _read_account_ids(arguments.accounts_file)
    if not accounts:
        raise LabError("No account given. Use --account ID, once for each account, or --accounts-file FILE.")
    client = _client(arguments)
    try:
        return _print_report(archive.sync(client, accounts=accounts, since=arguments.since))
    except IncompleteHistory as error:
        print(f"loopring-lab: {error}", file=sys.stderr)
        return max(INCOMPLETE, _print_report(archive.report()))
    finally:
        client.close()


def _client(arguments: argparse.Namespace) -> Client:
    if not arguments.base_url:
        return connect(recording=arguments.recording)
    if os.environ.get(KEY) or not sys.stdin.isatty():
        return connect(arguments.base_url)
    return connect(arguments.base_url, api_key=getpass.getpass("API key (not shown): "))


def _read_account_ids(file: Path | None) -> list[int]:
    if file is None:
        return []
    lines = [line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines, 1):
        if line and not (line.isascii() and line.isdigit()):
            raise LabError(
                f"{file}, line {number}: {line!r} is not a valid account id. Write one id per line."
            )
    return [int(line) for line in lines if line]


def _print_report(report: pd.DataFrame) -> int:
    print(format_report(report))
    return COMPLETE if report["complete"].all() else INCOMPLETE


def _command_to_resume(arguments: argparse.Namespace) -> list[str]:
    if arguments.command == "import":
        return ["import", str(arguments.path), *map(str, arguments.files)]
    options = {
        "--accounts-file": arguments.accounts_file,
        "--since": arguments.since,
        "--base-url": arguments.base_url,
        "--recording": arguments.recording,
    }
    words = [word for account in arguments.account for word in ("--account", str(account))]
    words += [word for name, value in options.items() if value for word in (name, str(value))]
    return ["sync", str(arguments.path), *words]
