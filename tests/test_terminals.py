"""Paths and addresses that somebody gives: nothing in them commands a terminal, and no key in them is shown."""

import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import click
import pytest
from support.traces import trace_of

import loopring_lab as lab
from loopring_lab import errors
from loopring_lab.cli import cli, main
from loopring_lab.http.transport import Transport
from loopring_lab.redaction import Redactor, SecretText

ESCAPE = "\x1b]0;owned\x07\x1b[2J"
KEY = "kQ7fXw2LpZ9vT4mB"
ADDRESS = f"https://user:{KEY}@rpc.example/v3/{KEY}?key={KEY}"


def store() -> lab.rollup.Store:
    return lab.connect(blocks="sample").store


# Each door for a path: the public function and its argument, and how it is called with one.
DOORS: dict[tuple[str, str], Callable[[Any], object]] = {
    ("connect", "recording"): lambda path: lab.connect(recording=path),
    ("connect", "blocks"): lambda path: lab.connect(blocks=path),
    ("Archive", "path"): lambda path: lab.Archive(path).report(),
    ("Archive.import_pages", "paths"): lambda path: lab.Archive(
        "a.duckdb"
    ).import_pages([path]),
    ("Archive.export", "folder"): lambda path: lab.Archive("a.duckdb").export(path),
    ("Archive.copy", "path"): lambda path: lab.Archive("a.duckdb").copy(path),
    ("Store.export", "path"): lambda path: store().export(path, 777_777),
    ("Store.copy", "path"): lambda path: lab.rollup.Store("b.duckdb").copy(path),
    ("Store", "path"): lambda path: lab.rollup.Store(path).blocks(),
    ("Store.import_files", "paths"): lambda path: lab.rollup.Store(
        "b.duckdb"
    ).import_files(path),
    ("Store.import_files", "tokens"): lambda path: store().import_files(
        [], tokens=path
    ),
    ("set_memory", "spill_folder"): lambda path: lab.engine.set_memory(
        spill_folder=path
    ),
    ("prices", "file"): lambda path: lab.tables.prices(path),
    ("read_csv", "file"): lambda path: lab.tables.read_csv(path),
}


def public_functions() -> dict[str, FunctionType]:
    """Return what users reach, by name: functions, and methods of classes."""
    found = {}
    for place in (lab, lab.tables, lab.rollup, lab.engine, lab.fees, lab.fills):
        for name in place.__all__:
            value = getattr(place, name)
            if inspect.isfunction(value):
                found[name] = value
            if inspect.isclass(value) and value.__module__.startswith("loopring_lab"):
                found[name] = value.__init__
                methods = inspect.getmembers(value, inspect.isfunction)
                found |= {
                    f"{name}.{one}": method
                    for one, method in methods
                    if not one.startswith("_")
                }
    return found


def test_every_argument_for_a_path_is_tried_here():
    found = {
        (name, argument)
        for name, function in public_functions().items()
        for argument, kind in getattr(function, "__annotations__", {}).items()
        if re.search(r"PathLike|Paths\b|FilePath", str(kind)) and argument != "return"
    }
    assert found == set(DOORS)


@pytest.mark.parametrize("door", DOORS.values(), ids=map(".".join, DOORS))
@pytest.mark.parametrize("given", [ADDRESS, Path(ADDRESS)], ids=["text", "path"])
def test_no_address_in_place_of_a_path_is_shown(door, given, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = given

    def call() -> object:
        return door(path)

    text = trace_of(call, errors.LabError)
    package = text.split("loopring_lab/", 1)[1]
    assert "is no path" in package
    assert KEY not in package
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("door", DOORS.values(), ids=map(".".join, DOORS))
def test_no_path_commands_a_terminal(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (ESCAPE, f"{ESCAPE}/in a folder", f"{ESCAPE}\udcff"):
        with pytest.raises(errors.LabError) as raised:
            door(os.fsdecode(name))
        assert str(raised.value).isprintable()


@pytest.mark.parametrize("door", DOORS.values(), ids=map(".".join, DOORS))
def test_a_path_that_no_file_can_have_is_refused(door, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("file").touch()
    for path in ("a\0b", "x" * 300, "loop", "file/inside"):
        with pytest.raises(errors.LabError):
            door(path)


def test_no_name_in_a_note_or_on_the_command_line_commands_a_terminal(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    folder = Path(f"{ESCAPE} folder")
    folder.mkdir()
    row = '["1672057857793", "1", "BUY", "41000000000000000000", "6.1E-4", "LRC-ETH", "0"]'
    file = folder / "10083-dex.json"
    file.write_text(f'{{"totalNum": 1, "trades": [{row}]}}')
    lab.connect(recording=file)
    archive = str(folder / "a.duckdb")
    blocks = str(folder / "b.duckdb")
    store().copy(blocks)
    for words in (
        ["import", archive, str(file)],
        ["export", archive, str(folder / "exported")],
        ["export", archive, str(folder / "exported")],
        ["copy", archive, str(folder / "copy.duckdb")],
        ["blocks", "copy", blocks, str(folder / "copied.duckdb")],
        ["report", str(folder / "none")],
        ["new", "fee-analysis", str(folder / "new.ipynb")],
        ["report", f"--{ESCAPE}"],
    ):
        main(words)
    said = capsys.readouterr()
    assert said.out.count("Copied ") == 2
    for line in (said.out + said.err).splitlines():
        assert line.isprintable(), line


def paths_of_commands() -> Iterator[tuple[click.Command, list[str], click.Parameter]]:
    """Yield each argument and option of the command line that is a path, with its command and the command's words."""
    rest: list[tuple[click.Command, list[str]]] = [(cli, [])]
    while rest:
        command, words = rest.pop()
        if isinstance(command, click.Group):
            rest += [(one, [*words, name]) for name, one in command.commands.items()]
        for one in command.params:
            if isinstance(one.type, click.Path):
                yield command, words, one


@pytest.mark.parametrize(
    ("command", "words", "path"), list(paths_of_commands()), ids=str
)
def test_no_address_in_place_of_a_path_of_a_command_is_shown(
    command, words, path, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    line = [*words]
    for one in command.params:
        given = ADDRESS if one is path else "x"
        if isinstance(one, click.Argument):
            line.append("fee-analysis" if one.name == "name" else given)
        elif one is path:
            line += [one.opts[0], given]
        elif one.required:
            line += [one.opts[0], "7"]
    assert main(line) == 2
    said = capsys.readouterr()
    assert "An address, which may hold a key, is no path." in said.err
    assert KEY not in said.out + said.err
    assert not any(tmp_path.iterdir())


# Commands with an argument that is no address, and an address in its place.
WORDS = [
    "blocks sync b.duckdb --exchange {address}",
    "blocks sync b.duckdb --rpc {address}",
    "blocks sync b.duckdb --rate {address}",
    "sync a.duckdb --account 7 --since {address}",
    "new {address}",
    "new fee-analysis --set {address}",
    "new fee-analysis --set every={address}",
    "new real-trades --set files={address}",
    "new fee-analysis {address}",
    "lab {address}",
    "new real-trades --set numbers=['{address}']",
    "new archive-and-scale --set file={address}",
    "new amm-versus-orderbook --account 1 --blocks {address}",
    "new fee-analysis --recording {address}",
    "new fee-analysis --base-url {address}",
    "serve --set exchange={address}",
    "serve --set {address}=1",
    "key update 7 --max-fee {address}",
    "{address}",
]


@pytest.mark.parametrize("line", WORDS)
@pytest.mark.parametrize(
    "address", [f"https://rpc.example/v3/{KEY}", f"https://user:{KEY}@rpc.example"]
)
def test_no_address_in_place_of_an_argument_is_shown_or_written(
    line, address, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    if "--base-url" in line and "@" not in address:
        address = f"https://rpc.example?api_key={KEY}"
    assert main(line.format(address=address).split()) == 2
    said = capsys.readouterr()
    assert KEY not in said.out + said.err
    assert said.err.count("\n") == 1
    assert not list(tmp_path.glob("*.ipynb"))


@pytest.mark.parametrize(
    "how",
    [{"exchange": ADDRESS}, {"from_block": ADDRESS}, {"exchange": [ADDRESS]}],
    ids=str,
)
def test_no_address_in_place_of_an_argument_is_in_an_error(how, tmp_path):
    with pytest.raises(errors.LabError) as raised:
        lab.rollup.Store(tmp_path / "b.duckdb").sync(**how)
    assert KEY not in str(raised.value)


@pytest.mark.parametrize("name", errors.__all__)
def test_no_error_commands_a_terminal(name):
    kind = getattr(errors, name)
    given = {
        "RelayerError": lambda: kind(ESCAPE, status=400, hint=ESCAPE, endpoint=ESCAPE),
        "UnexpectedAnswer": lambda: kind(ESCAPE, expected=1, got=ESCAPE, hint=ESCAPE),
        "ProtocolError": lambda: kind(ESCAPE, ESCAPE, hint=ESCAPE),
    }
    for base in kind.__mro__:
        make = given.get(base.__name__)
        if make:
            break
    else:
        make = lambda: kind(ESCAPE)  # noqa: E731
    assert str(make()).isprintable()


@pytest.mark.parametrize(
    "call",
    [
        lambda: lab.connect(ADDRESS),
        lambda: lab.connect(f"user:{KEY}@host"),
        lambda: lab.connect(f"https://host/{KEY}", rate=-1),
        lambda: lab.connect(f"https://host/{KEY}", blocks="demo"),
        lambda: Transport(ADDRESS),
    ],
)
def test_no_address_of_a_relayer_is_in_the_variables_of_an_error(call):
    text = trace_of(call, errors.LabError)
    assert KEY not in text.split("loopring_lab/", 1)[1]


def test_a_key_spelled_with_escapes_of_json_or_of_addresses_is_taken_out():
    key = 'a/b"c\\d-0123456789'
    redact = Redactor(SecretText(key))
    for spelled in (
        "a%2fb%22c%5cd-0123456789",
        "a/b%22c%5Cd%2D0123456789",
        "".join(f"%{ord(one):02x}" for one in key),
        "".join(f"\\u{ord(one):04x}" for one in key),
        "".join(f"\\u{ord(one):04X}" for one in key),
        r"a\/b\"c\\d-012345678" + r"\u0039",
    ):
        assert redact(f'{{"message": "you sent {spelled}"}}'.encode()) == (
            b'{"message": "you sent <hidden>"}'
        )
    # Of an answer that holds no secret every byte stays, and two backslashes are no escape.
    other = (
        rb'{"url": "https:\/\/host\u002fpath%2fs", "text": "\\u0061\u00e9\ud83d\ude00"}'
    )
    assert redact(other) == other


def test_a_source_file_that_is_a_link_shows_nothing_of_what_it_points_at(tmp_path):
    for secret in (f"{KEY} is no JSON", f'["{KEY}"]', f'{{"token": "{KEY}"}}'):
        mine = tmp_path / "mine"
        mine.write_text(secret)
        folder = tmp_path / "recording"
        folder.mkdir(exist_ok=True)
        (folder / "source.json").unlink(missing_ok=True)
        (folder / "source.json").symlink_to(mine)
        row = '["1672057857793", "1", "BUY", "41000000000000000000", "6.1E-4", "LRC-ETH", "0"]'
        file = folder / "10083-dex.json"
        file.write_text(f'{{"totalNum": 1, "trades": [{row}]}}')

        def read(file: Path = file) -> object:
            return lab.connect(recording=file)

        with pytest.raises(errors.UnexpectedAnswer, match=r"source\.json") as raised:
            read()
        assert KEY not in str(raised.value)
