"""The archive on the command line: ``sync``, ``report`` and ``import``."""

from __future__ import annotations

import argparse
import getpass
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from loopring_lab.archive import Archive
from loopring_lab.client import Client
from loopring_lab.connection import connect
from loopring_lab.errors import IncompleteHistory, LabError

__all__ = ["NAMES", "account_id", "add_commands", "run", "shown"]

NAMES = ("sync", "report", "import")
KEY = "LOOPRING_API_KEY"
DONE, INCOMPLETE, STOPPED = 0, 1, 130


def add_commands(commands: Any) -> None:
    """Describe the commands.

    Parameters
    ----------
    commands : argparse sub-parsers
        Those of the program.
    """
    sync = commands.add_parser("sync", help="fetch into an archive what it lacks")
    sync.description = (
        "Fetch into an archive what it lacks. After any stop, the same words go on from there. The API key "
        f"is read from {KEY}, or asked for on a terminal."
    )
    sync.add_argument("path", type=Path, help="folder of the archive; made if need be")
    sync.add_argument(
        "--account", type=account_id, action="append", default=[], help="account id (may be repeated)"
    )
    sync.add_argument(
        "--accounts-file", type=Path, metavar="FILE", help="account ids, one a line; # begins a note"
    )
    sync.add_argument("--since", metavar="TIME", help="trades from then on, such as 2022-03-31 (UTC)")
    source = sync.add_mutually_exclusive_group()
    source.add_argument("--base-url", metavar="URL", help="address of a relayer (default: the embedded one)")
    source.add_argument("--recording", type=Path, metavar="FOLDER", help="folder of saved answers")
    report = commands.add_parser("report", help="say what an archive holds, and what is missing")
    report.add_argument("path", type=Path, help="folder of the archive")
    imports = commands.add_parser("import", help="add saved answers to an archive, without a relayer")
    imports.add_argument("path", type=Path, help="folder of the archive; made if need be")
    imports.add_argument("files", type=Path, nargs="+", help="files or folders of saved answers")
    imports.add_argument("--account", type=account_id, help="whose trades, where files and rows do not say")
    imports.add_argument(
        "--fill-type", choices=("amm", "dex"), help="what was asked for, where names do not say"
    )


def account_id(text: str) -> int:
    """Read an account id of the command line.

    Parameters
    ----------
    text : str
        A word.

    Returns
    -------
    int
        The number.

    Raises
    ------
    argparse.ArgumentTypeError
        It is none.

    Examples
    --------
    >>> account_id("10083")
    10083
    """
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not an account's number; repeat --account for several")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Do what the words of a command say.

    Parameters
    ----------
    arguments : argparse.Namespace
        From a parser that `add_commands` extended.

    Returns
    -------
    int
        Exit code: 0 where nothing is missing, 1 where something is, 130 after Ctrl-C.

    Raises
    ------
    LabError
        What is asked for is refused.
    """
    archive = Archive(arguments.path)
    try:
        if arguments.command == "sync":
            return _sync(archive, arguments)
        if arguments.command == "import":
            archive.import_pages(arguments.files, arguments.account, arguments.fill_type)
    except KeyboardInterrupt:
        words = " ".join(map(shlex.quote, _again(arguments)))
        print(f"\nStopped; what was read is safe. Go on with: loopring-lab {words}", file=sys.stderr)  # noqa: T201
        return STOPPED
    return _report(archive.report())


def shown(report: pd.DataFrame) -> str:
    """Write a report for a terminal.

    Parameters
    ----------
    report : pandas.DataFrame
        From `Archive.report`.

    Returns
    -------
    str
        A line for each account and fill type, and one that sums up.
    """
    frame = report.assign(**{name: report[name].dt.strftime("%Y-%m-%d %H:%M") for name in _TIMES})
    table = frame.astype(object).fillna("?").to_string(index=False) if len(frame) else "nothing yet"
    lacking = report.loc[~report["complete"]]
    if lacking.empty:
        return f"{table}\n{report['rows'].sum():,} trades, nothing is missing of what their source counts"
    missing, uncounted = int(lacking["missing"].fillna(0).sum()), int(lacking["missing"].isna().sum())
    unknown = f"; {uncounted} histories were not read to their end yet" if uncounted else ""
    return (
        f"{table}\n{report['rows'].sum():,} trades, {missing:,} are missing{unknown}. Run sync to fetch them."
    )


_TIMES = ("first", "last", "synced_at")


def _sync(archive: Archive, arguments: argparse.Namespace) -> int:
    accounts = arguments.account + _listed(arguments.accounts_file)
    if not accounts:
        raise LabError("no account to ask for. Give --account NUMBER, again for each, or --accounts-file.")
    client = _client(arguments)
    try:
        return _report(archive.sync(client, accounts=accounts, since=arguments.since))
    except IncompleteHistory as error:
        print(f"loopring-lab: {error}", file=sys.stderr)  # noqa: T201
        return max(INCOMPLETE, _report(archive.report()))
    finally:
        client.close()


def _client(arguments: argparse.Namespace) -> Client:
    if not arguments.base_url:
        return connect(recording=arguments.recording)
    if os.environ.get(KEY) or not sys.stdin.isatty():
        return connect(arguments.base_url)
    return connect(arguments.base_url, api_key=getpass.getpass("API key (not shown): "))


def _listed(file: Path | None) -> list[int]:
    """Read account ids, one a line."""
    if file is None:
        return []
    lines = [line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines()]
    for number, line in enumerate(lines, 1):
        if line and not (line.isascii() and line.isdigit()):
            raise LabError(f"{file}, line {number}: {line!r} is not an account id. Write one number a line.")
    return [int(line) for line in lines if line]


def _report(report: pd.DataFrame) -> int:
    print(shown(report))  # noqa: T201
    return DONE if report["complete"].all() else INCOMPLETE


def _again(arguments: argparse.Namespace) -> list[str]:
    """Give the words that do the same again."""
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
