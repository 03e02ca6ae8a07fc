"""The command line: notebooks in JupyterLab, the embedded relayer, archives of trades, stores of blocks.

Each command checks its own arguments, calls one function of the library, and prints what that reports. Its exit
code is 0 for done, 1 where something is missing or wrong, 2 where it cannot be carried out, and 130 after Ctrl-C.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib import util
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO, cast

import click

from loopring_lab.bounded import given_path
from loopring_lab.cli import templates
from loopring_lab.errors import IncompleteHistory, LabError, visible
from loopring_lab.http.pace import DEFAULT_RATE
from loopring_lab.redaction import without_addresses

if TYPE_CHECKING:
    import pandas as pd
    from jupyter_server.serverapp import ServerApp

    from loopring_lab.redaction import SecretText
    from loopring_lab.relayer import Relayer
    from loopring_lab.sources.client import Client

DEFAULT_FOLDER = Path("my-notebooks")
API_KEY_VARIABLE = "LOOPRING_API_KEY"
RPC_VARIABLE = "LOOPRING_RPC_URL"
# Exit codes: scripts tell "run it again" from "this cannot work".
DONE = 0
INCOMPLETE = 1
FAILED = 2
# The code by which shells report that Ctrl-C ended a program: 128 and the number of SIGINT.
INTERRUPTED = 130


# Where a context keeps the output for JSON.
JSON_OUTPUT = "loopring_lab.json_output"


class Words(NamedTuple):
    """The words of a call: ours before the first ``--``, JupyterLab's after it."""

    own: list[str]
    jupyter: list[str]


class Screen:
    """Standard output that shows a question mark for each character that no screen shows, but for line ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write("\n".join(map(visible, text.split("\n"))))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code."""
    words = split_arguments(sys.argv[1:] if argv is None else argv)
    # Whoever starts a program may leave it without these; the next file that it opens would have their numbers.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            null = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - it stays open
            setattr(sys, name, null)
    # A path may have letters that the encoding of a pipe or a plain locale lacks.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        # Paths, names and answers may hold what a terminal takes for commands, and all that is printed passes here.
        with redirect_stdout(cast("TextIO", Screen(sys.stdout))):
            return run(words)
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            # The disk is full, or the reader is gone: let go of the rest, or Python fails on it once more at its exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(words: Words) -> int:
    """Run a command, and say what went wrong; return its exit code."""
    try:
        code: int | None = cli.main(
            words.own, "loopring-lab", standalone_mode=False, obj=words
        )
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return FAILED
    except click.ClickException as error:
        said = error.format_message().removesuffix(".")
        # A guess at what was meant is a question.
        end = "" if said.endswith(("?", "?)")) else "."
        complain(f"{said}{end} Add --help to see what a command takes.")
        return FAILED
    except LabError as error:
        complain(error)
        return FAILED
    except OSError as error:
        said = str(error)
        if error.filename is not None:
            said = f"{error.filename}: cannot be used ({error.strerror}). Give another path."
        complain(said)
        return FAILED
    except click.Abort:
        print_how_to_resume(words.own)
        return INTERRUPTED
    return code or DONE


def complain(problem: object) -> None:
    """Print an error; it repeats no more of an address than its server, as any argument may be one with a key."""
    said = visible(without_addresses(str(problem)))
    print(f"loopring-lab: {said}", file=sys.stderr)


def print_how_to_resume(words: list[str]) -> None:
    """Say how to go on with a command that was stopped, if it commits as it goes, so that nothing is lost."""
    match words:
        case ["sync" | "import", *_] | ["blocks", "sync" | "import", *_]:
            resume = visible(f"Resume with: loopring-lab {shlex.join(words)}")
            said = f"Stopped; what was read so far is safe. {resume}"
        case ["key", "update", *_]:
            said = "Stopped. If the update was sent, it may yet be processed: see loopring-lab key show."
        case _:
            return
    print(said, file=sys.stderr)


def split_arguments(argv: Sequence[str]) -> Words:
    """Split arguments at the first ``--``."""
    given = list(argv)
    if "--" not in given:
        return Words(given, [])
    position = given.index("--")
    return Words(given[:position], given[position + 1 :])


class Ordered(click.Group):
    """A group whose help lists the commands in the order in which they are written here."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def only_json(context: click.Context, option: click.Parameter, as_json: bool) -> bool:
    """Leave standard output to `print_json`: all else that a command prints, such as notes, goes to stderr."""
    if as_json:
        context.meta[JSON_OUTPUT] = sys.stdout
        context.with_resource(redirect_stdout(sys.stderr))
    return as_json


class GivenPath(click.Path):
    """A path of this machine; an address in its place is refused without being shown."""

    def convert(
        self,
        value: Any,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        del param, ctx
        return given_path(value)


PATH = GivenPath()
ACCOUNT = click.IntRange(min=0)
several_accounts = click.option(
    "--account", "accounts", type=ACCOUNT, multiple=True, help="Account id; repeatable."
)
since_time = click.option(
    "--since", metavar="TIME", help="Only trades since then, such as 2022-03-31 (UTC)."
)
base_url = click.option("--base-url", metavar="URL", help="Address of a live relayer.")
archive_file = click.argument("path", type=PATH, metavar="ARCHIVE")
block_store = click.argument("path", type=PATH, metavar="STORE")
new_file = click.argument("copy", type=PATH, metavar="COPY")
# This option is heeded before all others, as some of these ask questions.
json_instead = click.option(
    "--json",
    "as_json",
    is_flag=True,
    is_eager=True,
    callback=only_json,
    help="Print JSON instead of a table; notes go to stderr.",
)


@click.group(cls=Ordered, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="loopring-lab", message="loopring-lab %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Research toolkit for a layer-2 exchange."""
    if context.obj.jupyter and context.invoked_subcommand != "lab":
        raise click.UsageError(
            "Arguments after -- go to JupyterLab, so only the lab command takes them."
        )


# Notebooks


@cli.command()
@click.argument("folder", type=PATH, required=False)
@click.option(
    "--no-browser", is_flag=True, help="Only print the address, such as over SSH."
)
@click.option("--log", is_flag=True, help="Show JupyterLab's own log.")
@click.pass_obj
def lab(words: Words, folder: Path | None, no_browser: bool, log: bool) -> int:
    """Open the notebooks in JupyterLab.

    Notebooks are copied into FOLDER, and files that exist there are kept (default: my-notebooks, in the clone or
    else in the current folder). Arguments after -- are passed on to JupyterLab, such as -- --port=9000.
    """
    return open_lab(folder, words.jupyter, browser=not no_browser, log=log)


def open_lab(
    folder: Path | None,
    jupyter: Sequence[str] = (),
    *,
    browser: bool = True,
    log: bool = False,
) -> int:
    """Open copies of the notebooks in JupyterLab, and return when it exits."""
    launch = _launcher()
    bundled, in_source_tree = templates.find_notebooks()
    if folder is None:
        folder = bundled.parent / DEFAULT_FOLDER if in_source_tree else DEFAULT_FOLDER
    kept = templates.copy_notebooks(bundled, folder)
    templates.trust_copies(bundled, folder)
    print(f"Notebooks are copied to {folder}", flush=True)
    for name in kept:
        print(f"  kept yours: {name}", flush=True)
    first_notebook = min(folder.glob("*.ipynb"), default=folder)
    # Without a screen nobody would see the browser.
    options = []
    if not (browser and has_display()):
        options.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Containers run as root, where JupyterLab would refuse to start.
        options.append("--allow-root")
    if not log:
        options += ["--log-level=ERROR", "--LabApp.log_level=ERROR"]
    launch([str(first_notebook), *options, *jupyter])
    return DONE


def has_display() -> bool:
    """Tell whether a browser opened here would be seen."""
    if any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")):
        return True
    return sys.platform != "linux" and "SSH_CONNECTION" not in os.environ


def lab_address(server: ServerApp, opened: bool) -> str:
    """Say where JupyterLab is, how to reach it from elsewhere, and how to stop it."""
    from jupyter_server.utils import url_path_join

    page = Path(server.file_to_run or "").name
    address = url_path_join(server.connection_url, "lab/tree", page)
    if server.identity_provider.token:
        address += f"?token={server.identity_provider.token}"
    lines = [f"JupyterLab: {address}"]
    if not opened:
        tunnel = (
            f"ssh -N -L {server.port}:localhost:{server.port} {socket.gethostname()}"
        )
        lines.append(
            f"From another machine, run `{tunnel}` there, then open the address."
        )
    lines.append("Press Ctrl-C twice to stop. --log shows JupyterLab's own log.")
    return "\n".join(lines)


def _launcher() -> Callable[[list[str]], object]:
    if util.find_spec("jupyterlab") is None:
        raise LabError(
            "JupyterLab is not installed. In a clone, install it with: pip install '.[lab]'"
        )
    from jupyterlab.labapp import LabApp

    class Lab(LabApp):  # type: ignore[misc]
        @classmethod
        def initialize_server(cls, argv: Any = None, **options: Any) -> ServerApp:
            # Voila shows a warning of its own about deprecated settings.
            logging.captureWarnings(True)
            server: ServerApp = super().initialize_server(argv, **options)
            # Otherwise it prints an address of its own, without a notebook.
            server.identity_provider.token_generated = False
            print(lab_address(server, server.open_browser), flush=True)
            return server

    return Lab.launch_instance  # type: ignore[no-any-return]


@cli.command()
@click.argument("name", metavar="[TEMPLATE]", required=False)
@click.argument("target", type=PATH, required=False)
@several_accounts
@click.option(
    "--recording",
    metavar="PATH",
    help="Folder of saved responses, or one file of trades.",
)
@click.option(
    "--blocks",
    metavar="PATH",
    help="File of blocks, from loopring-lab blocks, or a folder of exported ones.",
)
@base_url
@click.option(
    "--set",
    "settings",
    metavar="NAME=VALUE",
    multiple=True,
    help="Any other parameter; repeatable.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def new(
    name: str | None,
    target: Path | None,
    accounts: tuple[int, ...],
    recording: str | None,
    blocks: str | None,
    base_url: str | None,
    settings: tuple[str, ...],
    force: bool,
) -> None:
    """Copy a notebook as a template, or list the templates.

    Copy the notebook TEMPLATE without outputs to TARGET (default: TEMPLATE.ipynb), and fill in its parameters.
    Without arguments, list the templates.
    """
    if name is None:
        for known in templates.templates():
            print(
                f"{known.name:22} {known.title}\n{'':22} {', '.join(known.parameters)}"
            )
        return
    template = templates.find(name)
    # A value that is given by name overrides one that suits the source, and a parameter's own option overrides --set.
    sources = {"recording": recording, "blocks": blocks, "base_url": base_url}
    values = dict(map(_parse_setting, settings))
    values |= templates.account_parameters(template, accounts)
    values |= {key: value for key, value in sources.items() if value is not None}
    templates.refuse_addresses(values)
    chosen = templates.suited_to_source(template, values)
    source = values.get("blocks") or values.get("recording")
    for parameter, value in chosen.items():
        print(f"{parameter} = {value!r}, chosen for {source}")
    target = target or Path(f"{name}.ipynb")
    templates.new(template, target, chosen | values, force=force)
    jupyter = "jupyter"
    # Where this environment is not activated, its own one has to be named in full.
    if shutil.which(jupyter) is None:
        jupyter = str(Path(sys.executable).with_name(jupyter))
    command = shlex.join([jupyter, "lab", str(target)])
    print(f"Wrote {target}. Open it with: {command}")


def _parse_setting(argument: str) -> tuple[str, Any]:
    name, sign, text = argument.partition("=")
    if not sign:
        raise LabError(
            f"--set {argument}: give a name and a value, such as --set every=1w."
        )
    return name, templates.parse_value(text)


# The embedded relayer


@cli.command()
@click.option(
    "--port", type=int, default=0, help="Port to listen on (default: any free one)."
)
@click.option(
    "--seed", type=int, default=1, help="Seed of the synthetic world (default: 1)."
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="A setting of the relayer, such as latency=0.2; repeatable.",
)
@click.option("--show-key", is_flag=True, help="Print the relayer's API key.")
def serve(port: int, seed: int, settings: tuple[str, ...], show_key: bool) -> None:
    """Run the embedded relayer until Ctrl-C.

    It listens on this machine only.
    """
    from loopring_lab.relayer import Relayer, Settings, World

    parsed = Settings.from_text(settings)
    with Relayer(World(seed=seed), parsed, port=port) as relayer:
        print(greeting(relayer, show_key=show_key), flush=True)
        relayer.run_forever()


def greeting(relayer: Relayer, *, show_key: bool = False) -> str:
    """Describe where a running relayer is and how to query it."""
    api = f"{relayer.base_url}/api/v3"
    key = "not shown; trades need it: start with --show-key to see it"
    if show_key:
        key = relayer.api_key
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


# The key of an account


@cli.group(cls=Ordered)
def key() -> None:
    """Show or update the L2 key of an account.

    The wallet stays where it is. Its signatures are pasted, and not shown, or come from --signer-command: a program
    that reads {"method": ..., "params": [...]} as Ethereum's JSON-RPC has them (personal_sign, eth_signTypedData_v4)
    and prints the signature. No secret is ever an argument.
    """


account_argument = click.argument("account", type=ACCOUNT, metavar="ACCOUNT")
signer_command = click.option(
    "--signer-command", metavar="COMMAND", help="Program that signs."
)


@key.command()
@account_argument
@base_url
@signer_command
@click.option("--recover", is_flag=True, help="Derive the key from a pasted signature.")
def show(
    account: int, base_url: str | None, signer_command: str | None, recover: bool
) -> None:
    """Show an account and the text that was signed for its key.

    With a signature of that text, derive the key again and compare it with the account's.
    """
    from loopring_lab.cli import keys
    from loopring_lab.sources.connect import connect

    ask = None
    if recover or signer_command is not None:
        ask = keys.wallet(signer_command)
    with keys.in_words_of_a_terminal():
        keys.show_key(connect(base_url), account, ask)


@key.command()
@account_argument
@base_url
@signer_command
@click.option(
    "--fee-token", default="ETH", help="Token that pays the fee (default: ETH)."
)
@click.option(
    "--max-fee",
    metavar="AMOUNT",
    help="Most to pay, in units of the token (default: what the relayer asks for, up to a ceiling).",
)
@click.option(
    "--valid-for", default="30d", help="How long the relayer may take (default: 30d)."
)
@click.option("--yes", is_flag=True, help="Send without asking.")
def update(
    account: int,
    base_url: str | None,
    signer_command: str | None,
    fee_token: str,
    max_fee: str | None,
    valid_for: str,
    yes: bool,
) -> int:
    """Give an account a new L2 key.

    Preview the update, have the wallet sign the key seed and the typed data, send it, and wait until the account has
    the new key. The exit code is 1 if it was not sent.
    """
    from loopring_lab.cli import keys
    from loopring_lab.keys import KeyUpdate
    from loopring_lab.sources.connect import connect

    ask = keys.wallet(signer_command)
    with keys.in_words_of_a_terminal():
        prepared = KeyUpdate.prepare(
            connect(base_url),
            account_id=account,
            max_fee=max_fee,
            fee_token=fee_token,
            valid_for=valid_for,
        )
        is_sent = keys.update_key(prepared, ask, sure=yes)
    return DONE if is_sent else INCOMPLETE


# Archives of trades


@cli.command()
@archive_file
@several_accounts
@since_time
@click.option(
    "--full",
    is_flag=True,
    help="Read every page again, to find what changed inside histories.",
)
@base_url
@click.option(
    "--recording", type=PATH, metavar="FOLDER", help="Folder of saved responses."
)
@json_instead
def sync(
    path: Path,
    accounts: tuple[int, ...],
    since: str | None,
    full: bool,
    base_url: str | None,
    recording: Path | None,
    as_json: bool,
) -> int:
    """Download missing trades into an archive.

    ARCHIVE is a file such as my-trades.duckdb, created if it is missing. Rerun to resume after an interruption.
    Without an address or a recording, trades come from where LOOPRING_BASE_URL or LOOPRING_RECORDING says; if
    neither is set, from the embedded relayer. The API key is read from LOOPRING_API_KEY, or asked for on a terminal.
    """
    from loopring_lab.archive import Archive
    from loopring_lab.sources.connect import connect

    if not accounts:
        raise LabError("no accounts given. Use --account ID, once per account.")
    archive = Archive(path)
    api_key = None
    if base_url and not os.environ.get(API_KEY_VARIABLE) and sys.stdin.isatty():
        api_key = click.prompt("API key (not shown)", hide_input=True)
    # Only `connect(blocks=...)` returns another kind of client.
    client = cast("Client", connect(base_url, api_key=api_key, recording=recording))
    try:
        archive.sync(client, accounts=accounts, since=since, full=full)
    except IncompleteHistory as error:
        complain(error)
        print_report(archive.report(), as_json)
        return INCOMPLETE
    finally:
        client.close()
    return print_report(archive.report(), as_json)


@cli.command()
@archive_file
@json_instead
def report(path: Path, as_json: bool) -> int:
    """Show what an archive holds, and what is missing."""
    from loopring_lab.archive import Archive

    return print_report(Archive(path).report(), as_json)


@cli.command("import")
@archive_file
@click.argument("files", type=PATH, nargs=-1, required=True)
@click.option(
    "--account",
    type=ACCOUNT,
    help="Account of the trades, if neither file names nor rows say it.",
)
@click.option(
    "--fill-type",
    type=click.Choice(["amm", "dex"]),
    help="Fill type, if file names do not say it.",
)
@click.option(
    "--source",
    metavar="NAME",
    help="Name of the files' source (default: as their source.json says, or else their folder).",
)
@json_instead
def import_files(
    path: Path,
    files: tuple[Path, ...],
    account: int | None,
    fill_type: str | None,
    source: str | None,
    as_json: bool,
) -> int:
    """Add saved responses to an archive, without a relayer.

    ARCHIVE is created if it is missing; FILES are files or folders of saved responses.
    """
    from loopring_lab.archive import Archive

    report = Archive(path).import_pages(files, account, fill_type, source=source)
    return print_report(report, as_json)


@cli.command()
@archive_file
@json_instead
def verify(path: Path, as_json: bool) -> int:
    """Check every block of an archive for damage.

    Read every block of the file, compare it with the checksum that it was written with, and look for rows that are
    stored twice. The exit code is 0 if all is well, 1 if not. There is no repair: restore a backup, which copy makes,
    or sync into a new file.
    """
    from loopring_lab.archive import Archive

    found = Archive(path).verify()
    said = "every block of the file is as it was written"
    if len(found):
        said = f"{len(found):,} problems"
    print_table(found, said, as_json)
    return INCOMPLETE if len(found) else DONE


@cli.command()
@archive_file
@new_file
def copy(path: Path, copy: Path) -> None:
    """Make a backup of an archive.

    COPY must not exist yet. It holds what the archive holds at one moment, also while another process syncs, and
    nothing else that somebody may have put into the file.
    """
    from loopring_lab.archive import Archive

    Archive(path).copy(copy)
    print(f"Copied {path} to {copy}")


@cli.command()
@archive_file
@click.argument("folder", type=PATH)
@several_accounts
@since_time
@click.option("--until", metavar="TIME", help="Only trades before then.")
@click.option(
    "--source-columns", is_flag=True, help="Add columns that name the source."
)
def export(
    path: Path,
    folder: Path,
    accounts: tuple[int, ...],
    since: str | None,
    until: str | None,
    source_columns: bool,
) -> None:
    """Write the trades of an archive as Parquet.

    pandas, Spark, Dask and others read it. FOLDER is created, or has an earlier export with the same options, to
    which new trades are added.
    """
    from loopring_lab.archive import Archive

    count = Archive(path).export(
        folder,
        since=since,
        until=until,
        accounts=accounts or None,
        source_columns=source_columns,
    )
    print(f"{count:,} trades written to {folder}")


@cli.command()
@archive_file
@click.option("--account", type=ACCOUNT, required=True, help="Account id.")
@click.confirmation_option(prompt="Delete all trades of the account?")
@json_instead
def delete(path: Path, account: int, as_json: bool) -> None:
    """Delete an account from an archive.

    The file is written anew without it. Copies and exports that were made before keep theirs.
    """
    from loopring_lab.archive import Archive

    print_report(Archive(path).delete(account), as_json)


def print_report(report: pd.DataFrame, as_json: bool) -> int:
    """Print an archive's report, and below it whether anything is missing; return the exit code."""
    from loopring_lab.archive.holdings import completeness

    said = f"{report['rows'].sum():,} trades, "
    gone = int(report["gone"].fillna(0).sum())
    if gone:
        said += f"{gone:,} of them no longer listed by the source, "
    print_table(report, said + completeness(report), as_json)
    is_whole = len(report) > 0 and report["complete"].all()
    return DONE if is_whole else INCOMPLETE


def print_table(frame: pd.DataFrame, said: str, as_json: bool) -> None:
    """Print a table, and a sentence below it; or its rows as JSON alone."""
    if as_json:
        print_json(_records(frame))
        return
    if len(frame):
        print(_as_text(frame))
    print(said)


def print_json(value: Any) -> None:
    output = click.get_current_context().meta[JSON_OUTPUT]
    print(json.dumps(value, indent=1), file=output)


def _as_text(frame: pd.DataFrame) -> str:
    """Write a table as text: times to the minute, and what is unknown as a question mark."""
    shown = frame.astype(object).fillna("?")
    for name, times in frame.select_dtypes("datetimetz").items():
        shown[name] = times.dt.strftime("%Y-%m-%d %H:%M").fillna("?")
    return shown.to_string(index=False)


def _records(frame: pd.DataFrame) -> Any:
    return json.loads(frame.to_json(orient="records", date_format="iso"))


# Stores of blocks


@cli.group(cls=Ordered)
def blocks() -> None:
    """Store the exchange's blocks, as settled on Ethereum."""


@blocks.command("sync")
@block_store
@click.option(
    "--exchange",
    metavar="ADDRESS",
    help="The exchange's contract (default: Ethereum's).",
)
@click.option(
    "--from-block", type=int, metavar="N", help="Ethereum block to begin with."
)
@click.option("--to-block", type=int, metavar="N", help="Ethereum block to end with.")
@click.option(
    "--rate",
    type=float,
    default=DEFAULT_RATE,
    metavar="N",
    help=f"HTTP requests per second (default: {DEFAULT_RATE:g}).",
)
@json_instead
def sync_blocks(
    path: Path,
    exchange: str | None,
    from_block: int | None,
    to_block: int | None,
    rate: float,
    as_json: bool,
) -> int:
    """Download missing blocks from an Ethereum endpoint.

    STORE is a file such as my-blocks.duckdb, created if it is missing. Rerun to resume after an interruption. The
    endpoint's address is read from LOOPRING_RPC_URL, or asked for on a terminal; without one, blocks come from the
    embedded chain.
    """
    from loopring_lab.rollup import Store
    from loopring_lab.rollup.fetching import MissingBlocks

    store = Store(path)
    try:
        store.sync(
            _rpc_address(),
            exchange=exchange,
            from_block=from_block,
            to_block=to_block,
            rate=rate,
        )
    except MissingBlocks as error:
        complain(error)
        print_blocks(store.report(), as_json)
        return INCOMPLETE
    report = store.report()
    code = print_blocks(report, as_json)
    is_part = from_block is not None or to_block is not None
    # A part of the chain may have no block; the whole of it has some.
    return DONE if is_part and report.empty else code


@blocks.command("import")
@block_store
@click.argument("files", type=PATH, nargs=-1, required=True)
@click.option("--tokens", type=PATH, metavar="FILE", help="Listing of tokens, as JSON.")
@click.option(
    "--first-block",
    type=int,
    metavar="N",
    help="Number of the first block, where nothing else tells it.",
)
@json_instead
def import_blocks(
    path: Path,
    files: tuple[Path, ...],
    tokens: Path | None,
    first_block: int | None,
    as_json: bool,
) -> int:
    """Add blocks from files, without an endpoint.

    STORE is created if it is missing; FILES are files or folders with blocks.
    """
    from loopring_lab.rollup import Store

    store = Store(path)
    report = store.import_files(files, tokens=tokens, first_block=first_block)
    skipped = report.attrs["skipped"]
    if skipped:
        print(
            f"{skipped:,} calls and events that submit no block were skipped.",
            file=sys.stderr,
        )
    return print_blocks(report, as_json)


@blocks.command("check")
@block_store
@json_instead
def check_blocks(path: Path, as_json: bool) -> int:
    """Check what the blocks prove.

    Check that no block is missing and that all are as they were submitted. The exit code is 0 if all is well, 1 if
    not, also where nothing is held that could be checked.
    """
    from loopring_lab.rollup import Store
    from loopring_lab.rollup.checks import SHOWN

    found = Store(path).check()
    if as_json:
        summary = _records(found.summary.reset_index())
        both = {"summary": summary, "problems": _records(found.problems)}
        print_json(both)
    else:
        print(found)
        if len(found.problems) > SHOWN:
            print(_as_text(found.problems))
    is_checked = found.summary["checked"].any()
    return INCOMPLETE if found.summary["wrong"].any() or not is_checked else DONE


@blocks.command("report")
@block_store
@json_instead
def report_blocks(path: Path, as_json: bool) -> int:
    """Show which blocks are held, and how many are missing."""
    from loopring_lab.rollup import Store

    return print_blocks(Store(path).report(), as_json)


@blocks.command("copy")
@block_store
@new_file
def copy_blocks(path: Path, copy: Path) -> None:
    """Make a backup of a store of blocks.

    COPY must not exist yet. It holds what the store holds at one moment, also while another process syncs.
    """
    from loopring_lab.rollup import Store

    Store(path).copy(copy)
    print(f"Copied {path} to {copy}")


@blocks.command("export")
@block_store
@click.argument("file", type=PATH)
@click.option("--account", type=ACCOUNT, required=True, help="Account id.")
def export_blocks(path: Path, file: Path, account: int) -> int:
    """Write an account's ledger as CSV.

    Programs for accounting and taxes import FILE: deposits, withdrawals, transfers, trades, and fees as rows of their
    own. The exit code is 1 where blocks are missing, and their rows with them.
    """
    from loopring_lab.rollup import Store

    count = Store(path).export(file, account)
    print(f"{count:,} rows written to {file}")
    return print_blocks(Store(path).report(), as_json=False)


def _rpc_address() -> SecretText | None:
    from loopring_lab.redaction import hide

    if os.environ.get(RPC_VARIABLE) or not sys.stdin.isatty():
        return None
    question = (
        "Address of an Ethereum endpoint (not shown; empty for the embedded chain)"
    )
    answer = click.prompt(question, default="", hide_input=True, show_default=False)
    return hide(answer or None)  # type: ignore[no-any-return]


def print_blocks(report: pd.DataFrame, as_json: bool) -> int:
    """Print a store's report, and below it whether anything is missing; return the exit code."""
    from loopring_lab.rollup.store import held

    said = held(report)
    missing = report["missing"].any()
    if missing:
        said += ". Run blocks sync to download them."
    print_table(report, said, as_json)
    return INCOMPLETE if missing or report.empty else DONE
