"""The command line: notebooks in JupyterLab, the embedded relayer, archives of trades, stores of blocks."""

from __future__ import annotations

import argparse
import getpass
import logging
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from loopring_lab import templates
from loopring_lab.errors import IncompleteHistory, LabError

if TYPE_CHECKING:
    import pandas as pd
    from jupyter_server.serverapp import ServerApp

    from loopring_lab.archive import Archive
    from loopring_lab.client import Client
    from loopring_lab.redaction import SecretText
    from loopring_lab.relayer import Relayer
    from loopring_lab.rollup import Store

DEFAULT_FOLDER = Path("my-notebooks")
API_KEY_VARIABLE, RPC_VARIABLE = "LOOPRING_API_KEY", "LOOPRING_RPC_URL"
DONE, INCOMPLETE, FAILED, INTERRUPTED = 0, 1, 2, 130
_ACCOUNT_ID = re.compile("[0-9]{1,18}")
_TIME_COLUMNS = ("first", "last", "synced_at", "checked_at")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    own, jupyter = split_arguments(sys.argv[1:] if argv is None else argv)
    parser = build_parser()
    arguments = parser.parse_args(own)
    if jupyter and arguments.command != "lab":
        parser.error("arguments after -- go to JupyterLab, so only the lab command takes them")
    try:
        if arguments.command == "lab":
            return open_lab(arguments.folder, jupyter, browser=arguments.browser, log=arguments.log)
        if arguments.command == "new":
            return new_notebook(arguments)
        if arguments.command == "serve":
            return serve(arguments)
        if arguments.command == "blocks":
            return run_blocks_command(arguments, own)
        return run_archive_command(arguments, own)
    except (LabError, OSError) as error:
        print(f"loopring-lab: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def split_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split arguments at the first ``--``: ours before it, JupyterLab's after it."""
    position = list(argv).index("--") if "--" in argv else len(argv)
    return list(argv[:position]), list(argv[position + 1 :])


class _Parser(argparse.ArgumentParser):
    """A parser whose errors repeat no address, which may hold a key."""

    def error(self, message: str) -> NoReturn:
        super().error(re.sub(r"[^\s'\"=]*://[^\s'\"]*", "<address>", message))


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser("loopring-lab", description="Research toolkit for a layer-2 exchange.")
    version = f"loopring-lab {metadata.version('loopring-lab')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_lab(commands)
    _add_new(commands)
    _add_serve(commands)
    _add_sync(commands)
    _add_report_and_import(commands)
    _add_verify(commands)
    _add_blocks(commands)
    return parser


def open_lab(folder: Path | None, jupyter: Sequence[str] = (), *, browser: bool = True, log: bool = False) -> int:
    """Open copies of the notebooks in JupyterLab, and return when it exits."""
    launch = _launcher()
    bundled, in_source_tree = templates.find_notebooks()
    folder = folder or (bundled.parent / DEFAULT_FOLDER if in_source_tree else DEFAULT_FOLDER)
    kept = templates.copy_notebooks(bundled, folder)
    print(f"Notebooks are copied to {folder}", *(f"  kept yours: {name}" for name in kept), sep="\n", flush=True)
    options = [] if browser and has_display() else ["--no-browser"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--allow-root")
    if not log:
        options += ["--log-level=ERROR", "--LabApp.log_level=ERROR"]
    launch([str(min(folder.glob("*.ipynb"), default=folder)), *options, *jupyter])
    return DONE


def has_display() -> bool:
    """Tell whether a browser opened here would be seen."""
    named = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return named or (sys.platform != "linux" and "SSH_CONNECTION" not in os.environ)


def lab_address(server: ServerApp, opened: bool) -> str:
    """Say where JupyterLab is, how to reach it from elsewhere, and how to stop it."""
    from jupyter_server.utils import url_path_join

    page = Path(server.file_to_run or "").name
    address = url_path_join(server.connection_url, "lab/tree", page)
    if server.identity_provider.token:
        address += f"?token={server.identity_provider.token}"
    tunnel = f"ssh -N -L {server.port}:localhost:{server.port} {socket.gethostname()}"
    lines = [f"JupyterLab: {address}"]
    if not opened:
        lines.append(f"From another machine, run `{tunnel}` there, then open the address.")
    return "\n".join([*lines, "Press Ctrl-C twice to stop. --log shows JupyterLab's own log."])


def new_notebook(arguments: argparse.Namespace) -> int:
    """Copy a template, or list the templates."""
    if arguments.template is None:
        for template in templates.templates():
            print(f"{template.name:22} {template.title}\n{'':22} {', '.join(template.parameters)}")
        return DONE
    values = dict(map(_parse_setting, arguments.parameters))
    values |= templates.account_parameters(arguments.template, arguments.account)
    sources = _chosen(arguments, "recording", "blocks", "base_url")
    values |= {name: value for name, value in sources.items() if value is not None}
    chosen = templates.horizon_on_blocks(arguments.template, values.get("blocks"))
    if not {"account_id", "accounts"} & set(values):
        chosen |= templates.accounts_of_recording(arguments.template, values.get("recording"))
        chosen |= templates.account_of_blocks(arguments.template, values.get("blocks"))
    for name, value in chosen.items():
        if name not in values:
            print(f"{name} = {value!r}, chosen for {values.get('blocks') or values['recording']}")
    values = chosen | values
    target = arguments.target or Path(f"{arguments.template}.ipynb")
    templates.new(arguments.template, target, values, force=arguments.force)
    jupyter = "jupyter" if shutil.which("jupyter") else Path(sys.executable).with_name("jupyter")
    print(f"Wrote {target}. Open it with: {jupyter} lab {target}")
    return DONE


def serve(arguments: argparse.Namespace) -> int:
    """Run the embedded relayer until Ctrl-C, after printing how to reach it."""
    from loopring_lab.relayer import Relayer, Settings, World

    settings, folder = Settings.from_text(arguments.settings), arguments.recording
    if folder is not None and not folder.is_dir():
        raise LabError(f"{folder} is not a folder. Give the folder that holds the recording's tokens.json.")
    if folder and arguments.cheaper:
        raise LabError("--cheaper is a setting of the synthetic world, not of a recording. Leave it out.")
    seed = 1 if arguments.seed is None else arguments.seed
    world = None if folder else World(seed=seed, cheaper=arguments.cheaper or "pool")
    relayer = Relayer(world, settings, recording=folder, port=arguments.port, store=arguments.store)
    with relayer:
        print(greeting(relayer, show_key=arguments.show_key), flush=True)
        relayer.run_forever()
    return DONE


def greeting(relayer: Relayer, *, show_key: bool = False) -> str:
    """Describe where a running relayer is and how to query it."""
    api = f"{relayer.base_url}/api/v3"
    key = relayer.api_key if show_key else "not shown; trades need it: start with --show-key to see it"
    return "\n".join(
        [
            f"address   {relayer.base_url}  (API reference: {relayer.base_url}/docs)",
            f"source    {relayer.source}",
            f"chain     {relayer.rpc_url}  (JSON-RPC)",
            f"API key   {key}",
            f"try       curl '{api}/exchange/tokens'",
            f"          curl -H 'X-API-KEY: ...' '{api}/user/trades?accountId={relayer.accounts[0]}&limit=2'",
            f"notebooks lab.connect('{relayer.base_url}', api_key=...)",
            "Press Ctrl-C to stop.",
        ]
    )


def run_archive_command(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run a command on an archive, and print what it reports."""
    from loopring_lab.archive import Archive

    archive = Archive(arguments.path)
    try:
        if arguments.command == "sync":
            return _sync(archive, arguments)
        if arguments.command == "verify":
            return _verify(archive)
        if arguments.command == "export":
            print(f"{archive.export(arguments.folder):,} trades written to {arguments.folder}")
            return DONE
        if arguments.command == "import":
            files, account = arguments.files, arguments.account
            archive.import_pages(files, account, arguments.fill_type, source=arguments.source)
    except KeyboardInterrupt:
        resume = f"Resume with: loopring-lab {shlex.join(argv)}"
        print(f"\nStopped; trades read so far are safe. {resume}", file=sys.stderr)
        return INTERRUPTED
    return _print_report(archive.report())


def run_blocks_command(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run a command on a store of blocks, and print what it reports."""
    from loopring_lab.rollup import Store
    from loopring_lab.rollup.fetching import MissingBlocks

    store, action = Store(arguments.path), arguments.action
    try:
        if action == "check":
            return _check_blocks(store)
        if action == "sync":
            rate = {} if arguments.rate is None else _chosen(arguments, "rate")
            store.sync(_rpc_address(), **_chosen(arguments, "exchange", "from_block", "to_block"), **rate)
        elif action == "import":
            store.import_files(arguments.files, **_chosen(arguments, "tokens", "first_block", "source"))
    except MissingBlocks as error:
        print(f"loopring-lab: {error}", file=sys.stderr)
        return max(INCOMPLETE, _print_blocks(store.report()))
    except KeyboardInterrupt:
        resume = f"Resume with: loopring-lab {shlex.join(argv)}"
        print(f"\nStopped; blocks read so far are safe. {resume}", file=sys.stderr)
        return INTERRUPTED
    return _print_blocks(store.report())


def format_report(report: pd.DataFrame) -> str:
    times = {name: report[name].dt.strftime("%Y-%m-%d %H:%M") for name in _TIME_COLUMNS}
    frame = report.assign(**times).astype(object).fillna("?")
    table = frame.to_string(index=False) if len(frame) else "nothing yet"
    total = f"{report['rows'].sum():,} trades"
    lacking = report.loc[~report["complete"]]
    if lacking.empty:
        return f"{table}\n{total}, complete per the source's count"
    missing, unfinished = int(lacking["missing"].fillna(0).sum()), int(lacking["missing"].isna().sum())
    note = f"; {unfinished} histories have not been read completely yet" if unfinished else ""
    return f"{table}\n{total}, {missing:,} missing{note}. Run sync to download them."


def account_id(text: str) -> int:
    if not _ACCOUNT_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not an account id; repeat --account for several")
    return int(text)


def _add_lab(commands: Any) -> None:
    lab = commands.add_parser("lab", help="open the notebooks in JupyterLab")
    lab.description = (
        "Open copies of the notebooks in JupyterLab. Arguments after -- are passed on to JupyterLab, such as "
        "-- --port=9000."
    )
    lab.add_argument(
        "folder",
        nargs="?",
        type=Path,
        help="working folder; notebooks are copied into it, existing files are kept (default: "
        f"{DEFAULT_FOLDER}, in the clone or else in the current folder)",
    )
    lab.add_argument(
        "--no-browser", dest="browser", action="store_false", help="only print the address, such as over SSH"
    )
    lab.add_argument("--log", action="store_true", help="show JupyterLab's own log")


def _add_new(commands: Any) -> None:
    new = commands.add_parser("new", help="copy a notebook as a template, or list the templates")
    new.description = (
        "Copy a notebook without outputs and fill in its parameters. Without arguments, list the templates."
    )
    new.add_argument("template", nargs="?", help="such as fee-analysis")
    new.add_argument("target", nargs="?", type=Path, help="notebook to write (default: TEMPLATE.ipynb)")
    _add_repeatable(new, "--account", "account id", type=account_id)
    new.add_argument("--recording", metavar="FOLDER", help="folder of saved responses")
    kinds = "file of blocks, from loopring-lab blocks, or a folder of exported ones"
    new.add_argument("--blocks", metavar="PATH", help=kinds)
    new.add_argument("--base-url", metavar="URL", help="address of a live relayer")
    meaning = "any other parameter of the template, such as every=1w"
    _add_repeatable(new, "--set", meaning, dest="parameters", metavar="NAME=VALUE")
    new.add_argument("--force", action="store_true", help="overwrite an existing file")


def _add_serve(commands: Any) -> None:
    serve = commands.add_parser("serve", help="run the embedded relayer until Ctrl-C")
    serve.description = "Run the embedded relayer until Ctrl-C. It listens on this machine only."
    serve.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    world = serve.add_mutually_exclusive_group()
    world.add_argument("--seed", type=int, help="seed of the synthetic world (default: 1)")
    world.add_argument("--recording", type=Path, metavar="FOLDER", help="serve saved responses instead")
    cheaper = "the cheaper venue for users of the synthetic world: pool (the default), book or neither"
    serve.add_argument("--cheaper", choices=["pool", "book", "neither"], help=cheaper)
    meaning = "a setting of the relayer, such as order=oldest"
    _add_repeatable(serve, "--set", meaning, dest="settings", metavar="KEY=VALUE")
    store_help = "keep accounts and key updates in this file (default: in memory)"
    serve.add_argument("--store", type=Path, metavar="FILE", help=store_help)
    serve.add_argument("--show-key", action="store_true", help="print the relayer's API key")


def _add_sync(commands: Any) -> None:
    sync = commands.add_parser("sync", help="download missing trades into an archive")
    sync.description = (
        "Download missing trades into an archive. Rerun to resume after an interruption. The API key is read "
        f"from {API_KEY_VARIABLE}, or asked for on a terminal."
    )
    sync.add_argument("path", type=Path, help="file of the archive, such as my-trades.duckdb; created if missing")
    _add_repeatable(sync, "--account", "account id", type=account_id)
    sync.add_argument(
        "--accounts-file", type=Path, metavar="FILE", help="account ids, one per line; # starts a comment"
    )
    sync.add_argument("--since", metavar="TIME", help="only trades since then, such as 2022-03-31 (UTC)")
    full_help = "read every page again, to find what changed inside histories"
    sync.add_argument("--full", action="store_true", help=full_help)
    _add_source(sync, "address of a relayer (default: the embedded one)")


def _add_source(command: argparse.ArgumentParser, address_help: str) -> None:
    source = command.add_mutually_exclusive_group()
    source.add_argument("--base-url", metavar="URL", help=address_help)
    source.add_argument("--recording", type=Path, metavar="FOLDER", help="folder of saved responses")


def _add_verify(commands: Any) -> None:
    verify = commands.add_parser("verify", help="check every block of an archive for damage")
    verify.description = (
        "Read every block of the file and compare it with the checksum that it was written with. The exit code "
        "is 0 if all is well, 1 if not. There is no repair: restore a backup, or sync into a new file."
    )
    verify.add_argument("path", type=Path, help="file of the archive")
    export = commands.add_parser("export", help="write the trades of an archive as Parquet")
    export.description = "Write the current trades as Parquet, for Spark, Dask and others."
    export.add_argument("path", type=Path, help="file of the archive")
    export.add_argument("folder", type=Path, help="folder to write; must not exist yet, or be empty")


def _add_report_and_import(commands: Any) -> None:
    report = commands.add_parser("report", help="show what an archive holds, and what is missing")
    report.add_argument("path", type=Path, help="file of the archive")
    imports = commands.add_parser("import", help="add saved responses to an archive, without a relayer")
    imports.add_argument("path", type=Path, help="file of the archive, such as my-trades.duckdb; created if missing")
    imports.add_argument("files", type=Path, nargs="+", help="files or folders of saved responses")
    account_help = "account of the trades, if neither file names nor rows say it"
    imports.add_argument("--account", type=account_id, help=account_help)
    fill_type_help = "fill type of the trades, if file names do not say it"
    imports.add_argument("--fill-type", choices=("amm", "dex"), help=fill_type_help)
    source_help = "name of the files' source (default: as their source.json says, or else their folder)"
    imports.add_argument("--source", metavar="NAME", help=source_help)


def _add_blocks(commands: Any) -> None:
    blocks = commands.add_parser("blocks", help="store the exchange's blocks, as settled on Ethereum")
    actions = blocks.add_subparsers(dest="action", required=True, metavar="ACTION")
    sync = actions.add_parser("sync", help="download missing blocks from an Ethereum endpoint")
    sync.description = (
        "Download missing blocks from an Ethereum endpoint. Rerun to resume after an interruption. The "
        f"endpoint's address is read from {RPC_VARIABLE}, or asked for on a terminal; without one, blocks "
        "come from the embedded chain."
    )
    imports = actions.add_parser("import", help="add blocks from files, without an endpoint")
    check = actions.add_parser("check", help="check what the blocks prove")
    check.description = (
        "Check that no block is missing and that all are as they were submitted. The exit code is 0 if all "
        "is well, 1 if not."
    )
    report = actions.add_parser("report", help="show which blocks are held, and how many are missing")
    for action in (sync, imports):
        action.add_argument("path", type=Path, help="file of the store, such as my-blocks.duckdb; created if missing")
    for action in (check, report):
        action.add_argument("path", type=Path, help="file of the store")
    sync.add_argument("--exchange", metavar="ADDRESS", help="the exchange's contract (default: Ethereum's)")
    sync.add_argument("--from-block", type=int, metavar="N", help="Ethereum block to begin with")
    sync.add_argument("--to-block", type=int, metavar="N", help="Ethereum block to end with")
    rate_help = "HTTP requests per second (default: as lab.connect)"
    sync.add_argument("--rate", type=float, metavar="N", help=rate_help)
    imports.add_argument("files", type=Path, nargs="+", help="files or folders with blocks")
    imports.add_argument("--tokens", type=Path, metavar="FILE", help="listing of tokens, as JSON")
    first_help = "number of the first block, where nothing else tells it"
    imports.add_argument("--first-block", type=int, metavar="N", help=first_help)
    imports.add_argument("--source", metavar="NAME", help="name of the files' source (default: the exchange)")


def _add_repeatable(parser: argparse.ArgumentParser, option: str, meaning: str, **options: Any) -> None:
    parser.add_argument(option, action="append", default=[], help=f"{meaning} (may be repeated)", **options)


def _parse_setting(argument: str) -> tuple[str, Any]:
    name, sign, text = argument.partition("=")
    if not sign:
        raise LabError(f"--set {argument}: give a name and a value, such as --set every=1w.")
    return name, templates.parse_value(text)


def _launcher() -> Callable[[list[str]], object]:
    if util.find_spec("jupyterlab") is None:
        raise LabError("JupyterLab is not installed. Install it with: pip install 'loopring-lab[lab]'")
    from jupyterlab.labapp import LabApp

    class Lab(LabApp):  # type: ignore[misc]
        @classmethod
        def initialize_server(cls, argv: Any = None, **options: Any) -> ServerApp:
            logging.captureWarnings(True)  # Voila shows a warning of its own about deprecated settings
            server: ServerApp = super().initialize_server(argv, **options)
            server.identity_provider.token_generated = False  # else it prints an address without a notebook
            print(lab_address(server, server.open_browser), flush=True)
            return server

    return Lab.launch_instance  # type: ignore[no-any-return]


def _sync(archive: Archive, arguments: argparse.Namespace) -> int:
    accounts = arguments.account + _read_accounts(arguments.accounts_file)
    if not accounts:
        raise LabError("no accounts given. Use --account ID, once per account, or --accounts-file.")
    client = _connect(arguments)
    try:
        report = archive.sync(client, accounts=accounts, since=arguments.since, full=arguments.full)
        return _print_report(report)
    except IncompleteHistory as error:
        print(f"loopring-lab: {error}", file=sys.stderr)
        return max(INCOMPLETE, _print_report(archive.report()))
    finally:
        client.close()


def _verify(archive: Archive) -> int:
    found = archive.verify()
    if found.empty:
        print("every block of the file is as it was written")
        return DONE
    print("\n".join(found["problem"]))
    return INCOMPLETE


def _chosen(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names}


def _check_blocks(store: Store) -> int:
    from loopring_lab.rollup.checks import SHOWN

    found = store.check()
    print(found)
    if len(found.problems) > SHOWN:
        print(found.problems.astype(object).fillna("?").to_string(index=False))
    return INCOMPLETE if found.summary["wrong"].any() else DONE


def _rpc_address() -> SecretText | None:
    from loopring_lab.redaction import hide

    if os.environ.get(RPC_VARIABLE) or not sys.stdin.isatty():
        return None
    prompt = "Address of an Ethereum endpoint (not shown; empty for the embedded chain): "
    return hide(getpass.getpass(prompt) or None)  # type: ignore[no-any-return]


def _print_blocks(report: pd.DataFrame) -> int:
    times = {name: report[name].dt.strftime("%Y-%m-%d %H:%M") for name in ("first_time", "last_time")}
    missing = int(report["missing"].fillna(0).sum())
    frame = report.assign(**times).astype(object).fillna("?")
    print(frame.to_string(index=False) if len(frame) else "nothing yet")
    rest = f", {missing:,} missing. Run blocks sync to download them." if missing else ", none missing between"
    print(f"{report['blocks'].sum():,} blocks{rest}")
    return INCOMPLETE if missing else DONE


def _connect(arguments: argparse.Namespace) -> Client:
    from loopring_lab.connection import connect

    if not arguments.base_url:
        return cast("Client", connect(recording=arguments.recording))
    if os.environ.get(API_KEY_VARIABLE) or not sys.stdin.isatty():
        return cast("Client", connect(arguments.base_url))
    return cast("Client", connect(arguments.base_url, api_key=getpass.getpass("API key (not shown): ")))


def _read_accounts(file: Path | None) -> list[int]:
    """Read account ids from a file, one per line."""
    from loopring_lab.bounded import read_text

    if file is None:
        return []
    lines = [line.partition("#")[0].strip() for line in read_text(file).splitlines()]
    for number, line in enumerate(lines, 1):
        if line and not _ACCOUNT_ID.fullmatch(line):
            raise LabError(f"{file}, line {number}: {line[:40]!r} is not an account id. Write one per line.")
    return [int(line) for line in lines if line]


def _print_report(report: pd.DataFrame) -> int:
    print(format_report(report))
    return DONE if report["complete"].all() else INCOMPLETE
