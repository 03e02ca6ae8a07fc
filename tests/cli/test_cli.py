"""The command line, called in this process and run as a program."""

import io
import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path

import click
import nbformat
import pytest
import requests
from nbformat.sign import NotebookNotary
from requests.adapters import HTTPAdapter
from support.child_output import PROGRAM
from support.optional import often, thorough
from support.wire_rows import page, row
from urllib3.util import Retry

import loopring_lab as lab
from loopring_lab import cli
from loopring_lab.cli import templates
from loopring_lab.sources.connect import BUNDLED

ROOT = Path(__file__).parents[2]
PATIENCE = 600  # seconds that a process may take to answer or to end


class Process:
    """A running command whose output can be waited for."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.seen = []
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def until(self, pattern: str) -> re.Match[str]:
        """Read on until a line matches."""
        deadline = time.monotonic() + PATIENCE
        while True:
            line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            self.seen.append(line)
            if found := re.search(pattern, line):
                return found
            assert line, f"ended without {pattern!r}: {''.join(self.seen)}"

    def end(self, how: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(how)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join()
        self.process.stdout.close()


@contextmanager
def running(*words: str, cwd: Path = ROOT) -> Iterator[Process]:
    process = Process(
        subprocess.Popen(
            [sys.executable, "-m", "loopring_lab", *words],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    )
    try:
        yield process
    finally:
        process.close()


# lab


class Launches(list):
    """Stands in for JupyterLab: keeps the words it was launched with."""

    def __call__(self, words: list[str]) -> None:
        self.append(words)


@pytest.fixture
def launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launches:
    launches = Launches()
    # Where Jupyter keeps which notebooks it trusts.
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setattr(cli, "_launcher", lambda: launches)
    return launches


def notebook_of(title: str) -> str:
    cell = nbformat.v4.new_code_cell("1", id="a", metadata={"title": title})
    return nbformat.writes(nbformat.v4.new_notebook(cells=[cell]))


ONE = notebook_of("one")
TWO = notebook_of("two")


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two notebooks as an installed package carries them."""
    folder = tmp_path / "site" / "notebooks"
    folder.mkdir(parents=True)
    (folder / "01.ipynb").write_text(ONE)
    (folder / "02.ipynb").write_text(TWO)
    monkeypatch.setattr(templates, "find_notebooks", lambda: (folder, False))
    return folder


def test_in_a_clone_copies_open_that_git_ignores(
    bundled, launches, tmp_path, monkeypatch
):
    monkeypatch.setattr(templates, "find_notebooks", lambda: (bundled, True))
    monkeypatch.chdir(tmp_path)
    assert cli.open_lab(None) == 0
    copies = bundled.parent / "my-notebooks"
    assert launches[0][0] == str(copies / "01.ipynb")
    (copies / "01.ipynb").write_text("my work")
    assert cli.open_lab(None) == 0
    assert [(copies / name).read_text() for name in ("01.ipynb", "02.ipynb")] == [
        "my work",
        TWO,
    ]
    assert [(bundled / name).read_text() for name in ("01.ipynb", "02.ipynb")] == [
        ONE,
        TWO,
    ]
    ignored = subprocess.run(
        ["git", "check-ignore", "my-notebooks/01_first_look.ipynb"], cwd=ROOT
    )
    assert ignored.returncode in (0, 128)  # 128: not a clone


@pytest.mark.parametrize(
    ("platform", "variables", "seen"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"BROWSER": "chromium"}, True),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "a b c d"}, False),
    ],
)
def test_without_a_display_no_browser_opens(
    launches, bundled, tmp_path, monkeypatch, platform, variables, seen
):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    cli.open_lab(tmp_path / "mine")
    assert ("--no-browser" in launches[0]) is not seen


def test_a_changed_notebook_is_kept_and_named(bundled, launches, tmp_path, capsys):
    mine = tmp_path / "mine" / "deep"
    mine.mkdir(parents=True)
    (mine / "01.ipynb").write_text("my work")
    cli.open_lab(mine)
    assert (mine / "01.ipynb").read_text() == "my work"
    assert (mine / "02.ipynb").read_text() == TWO
    said = capsys.readouterr().out
    assert "kept yours: 01.ipynb" in said
    assert "02.ipynb" not in said


def test_copies_that_nobody_changed_are_trusted(bundled, launches, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    theirs = notebook_of("of somebody else")
    (mine / "01.ipynb").write_text(theirs)
    cli.open_lab(mine)
    notary = NotebookNotary()
    for text, is_trusted in ((ONE, False), (TWO, True), (theirs, False)):
        notebook = nbformat.reads(text, as_version=4)
        assert notary.check_signature(notebook) is is_trusted
    notary.store.close()


@pytest.mark.parametrize(("user", "allowed"), [(0, True), (1000, False)])
def test_only_root_is_allowed_as_root(launches, tmp_path, monkeypatch, user, allowed):
    monkeypatch.setattr(os, "geteuid", lambda: user, raising=False)
    cli.open_lab(tmp_path)
    assert ("--allow-root" in launches[0]) is allowed


def test_arguments_after_two_dashes_reach_jupyterlab(launches, tmp_path):
    assert (
        cli.main(["lab", str(tmp_path), "--no-browser", "--", "--port=9000", "--", "x"])
        == 0
    )
    assert launches[0][1] == "--no-browser"
    assert launches[0][-3:] == ["--port=9000", "--", "x"]


def test_without_jupyterlab_it_names_the_extra(monkeypatch, capsys):
    monkeypatch.setattr(cli.util, "find_spec", lambda name: None)
    assert cli.main(["lab"]) == 2
    assert capsys.readouterr().err == (
        "loopring-lab: JupyterLab is not installed. In a clone, install it with: pip install '.[lab]'\n"
    )


def test_a_file_in_the_folders_place_is_refused(bundled, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "_launcher", Launches)
    (tmp_path / "taken").touch()
    assert cli.main(["lab", str(tmp_path / "taken")]) == 2
    assert "is a file" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["lab"], ["new", "first-look"]])
def test_a_path_that_the_system_refuses_is_named_with_what_to_do(
    words, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(cli, "_launcher", Launches)
    monkeypatch.chdir(tmp_path)
    Path("nowhere").symlink_to("no such folder")
    target = {"lab": "nowhere", "new": "nowhere/my.ipynb"}[words[0]]
    assert cli.main([*words, target]) == 2
    assert capsys.readouterr().err == (
        "loopring-lab: nowhere: cannot be used (File exists). Give another path.\n"
    )


@pytest.mark.thorough
@pytest.mark.skipif(
    util.find_spec("jupyterlab") is None,
    reason="needs JupyterLab: pip install -e '.[lab]'",
)
def test_jupyterlab_really_opens_on_the_folder_and_names_the_notebook(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    jupyter = [
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=0",
        "--ServerApp.ip=127.0.0.1",
    ]
    with running("lab", str(tmp_path / "work"), "--no-browser", "--", *jupyter) as lab:
        opened = (
            r"JupyterLab: http://\S+:\d+/lab/tree/01_first_look\.ipynb\?token=(\w+)"
        )
        token = lab.until(opened)[1]
        lab.until(rf"ssh -N -L {port}:localhost:{port} ")
        base = f"http://127.0.0.1:{port}/api"
        headers = {"Authorization": f"token {token}"}
        with (
            requests.Session() as session
        ):  # JupyterLab prints its address just before it listens there
            session.mount(
                "http://",
                HTTPAdapter(
                    max_retries=Retry(connect=60, backoff_factor=0.1, backoff_max=1)
                ),
            )
            assert (
                session.get(f"{base}/status", headers=headers, timeout=PATIENCE).json()[
                    "kernels"
                ]
                == 0
            )
            listed = session.get(
                f"{base}/contents", headers=headers, timeout=PATIENCE
            ).json()["content"]
        assert {entry["name"] for entry in listed} == {
            p.name for p in (ROOT / "notebooks").glob("*.ipynb")
        }
        assert lab.end(signal.SIGTERM) == 0
        lab.close()
        assert len(lab.seen) <= 5, lab.seen


# serve


def address(server: Process) -> str:
    return server.until(r"address +(http://127\.0\.0\.1:\d+)")[1]


def test_serve_shows_its_key_on_request_and_ends_at_ctrl_c():
    options = ["--seed", "3", "--set", "latency=0.01", "--show-key"]
    with running("serve", *options) as server:
        base = address(server)
        server.until("source +synthetic world, seed 3")
        key = server.until(r"API key +(\S+)\n")[1]
        account = server.until(r"accountId=(\d+)")[1]
        answer = requests.get(
            f"{base}/api/v3/user/trades",
            params={"accountId": account, "limit": 2},
            headers={"X-API-KEY": key},
            timeout=PATIENCE,
        ).json()
        assert len(answer["trades"]) == 2
        tokens = requests.get(f"{base}/api/v3/exchange/tokens", timeout=PATIENCE).json()
        assert "ETH" in {token["symbol"] for token in tokens}
        server.until("Ctrl-C")
        assert server.end(signal.SIGINT) in (0, 130)
        with pytest.raises(requests.ConnectionError):
            requests.get(base, timeout=PATIENCE)
    assert not [line for line in server.seen if "Traceback" in line]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["serve", "--set", "no_such_setting=1"], "no_such_setting"),
        (["serve", "--set", "latency=soon"], "soon"),
        (["serve", "--seed", "first"], "first"),
    ],
)
def test_what_serve_cannot_use_is_refused_in_one_line(
    words, named, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("loopring-lab: ")
    assert said.err.count("\n") == 1
    assert named in said.err


# all

# How each command that prints JSON is called, where a file of trades, an archive and a store of blocks are.
AS_JSON = {
    "sync": "a.duckdb --account {account}",
    "report": "a.duckdb",
    "import": "new.duckdb {account}-dex.json",
    "verify": "a.duckdb",
    "delete": "a.duckdb --account {account} --yes",
    "blocks sync": "new.duckdb --to-block 11151000",
    "blocks import": "new.duckdb {sample} --tokens {sample}/tokens.json",
    "blocks check": "b.duckdb",
    "blocks report": "b.duckdb",
}


def commands(
    group: click.Group, before: str = ""
) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its name, those of groups too."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def test_every_command_with_json_is_tried_here():
    found = {
        name
        for name, command in commands(cli.cli)
        if any(option.name == "as_json" for option in command.params)
    }
    assert found == set(AS_JSON)


@pytest.mark.parametrize(
    "name", often(("sync", "import", "blocks sync", "blocks check"), AS_JSON)
)
def test_json_is_all_that_is_in_the_output(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    account = lab.connect().accounts[0]
    sample = BUNDLED["sample"]
    Path(f"{account}-dex.json").write_bytes(page([row()[:7]]))
    lab.Archive("a.duckdb").import_pages(f"{account}-dex.json")
    lab.rollup.Store("b.duckdb").import_files(sample, tokens=sample / "tokens.json")
    if name == "sync":
        Path("a.duckdb").unlink()
    capsys.readouterr()
    line = AS_JSON[name].format(account=account, sample=sample)
    assert cli.main([*name.split(), *line.split(), "--json"]) in (0, 1)
    said = capsys.readouterr()
    assert json.loads(said.out) is not None
    has_note = name in ("sync", "import", "blocks sync")
    assert bool(said.err) is has_note


def test_a_question_is_no_part_of_json(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert cli.main(["delete", "a.duckdb", "--account", "7", "--json"]) == 130
    said = capsys.readouterr()
    assert said.out == ""
    assert "Delete all trades of the account?" in said.err


@pytest.mark.parametrize("stream", [0, thorough(1), thorough(2)])
def test_a_program_without_a_standard_stream_does_what_it_is_asked(stream, tmp_path):
    path = str(tmp_path / "none.duckdb")
    without = ["sh", "-c", f'exec "$@" {stream}<&-', "sh", *PROGRAM]
    asked = [*without, "delete", path, "--account", "7"]
    ended = subprocess.run(asked, stdin=subprocess.DEVNULL, capture_output=True)
    assert ended.returncode == 130
    assert b"Traceback" not in ended.stderr
    shown = subprocess.run([*without, "report", path], capture_output=True)
    assert shown.returncode == 2
    assert (b"no trades here yet" in shown.stderr) is (stream != 2)


FULL = Path("/dev/full")


@pytest.mark.parametrize("is_buffered", [True, thorough(False)])
@pytest.mark.parametrize("output", ["full", "closed"])
def test_an_output_that_cannot_be_written_is_an_exit_code_of_ours(output, is_buffered):
    """Python keeps what it could not write, and ended with code 120 and an 'Exception ignored' of its own."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if is_buffered else "1"}
    if output == "closed":
        reader, writer = os.pipe()
        os.close(reader)
    elif FULL.exists():
        writer = os.open(FULL, os.O_WRONLY)
    else:
        pytest.skip("needs /dev/full: run on Linux")
    try:
        ended = subprocess.run(
            [*PROGRAM, "new"], stdout=writer, stderr=subprocess.PIPE, env=environment
        )
    finally:
        os.close(writer)
    assert ended.returncode in (1, 2)
    assert b"Exception ignored" not in ended.stderr
    assert b"Traceback" not in ended.stderr
    if output == "full":
        assert b"loopring-lab: [Errno 28] No space left on device" in ended.stderr


def test_a_path_that_the_output_cannot_write_is_escaped(monkeypatch, tmp_path):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["new", "first-look", "für mich.ipynb"]) == 0
    sys.stdout.flush()
    assert b"Wrote f\\xfcr mich.ipynb." in written.getvalue()
    assert Path("für mich.ipynb").exists()


def test_the_version_is_the_installed_one(capsys):
    assert cli.main(["--version"]) == 0
    assert (
        capsys.readouterr().out == f"loopring-lab {metadata.version('loopring-lab')}\n"
    )


@pytest.mark.parametrize(
    "command",
    [["loopring-lab"], [sys.executable, "-m", "loopring_lab"]],
    ids=["script", "-m"],
)
def test_both_ways_to_start_it_are_one_program(command):
    scripts = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [*command, "--help"],
        capture_output=True,
        text=True,
        env=dict(os.environ, PATH=scripts),
        check=True,
    )
    assert done.stdout.startswith("Usage: loopring-lab ")
    assert "serve" in done.stdout


def test_help_loads_neither_frames_nor_servers():
    code = "import sys\nfrom loopring_lab.cli import main\nmain(['--help'])\nprint(*sys.modules)"
    loaded = set(
        subprocess.check_output([sys.executable, "-c", code], text=True).split()
    )
    slow = {
        "jupyterlab",
        "fastapi",
        "uvicorn",
        "matplotlib",
        "numpy",
        "pandas",
        "requests",
    }
    assert loaded & (slow | {"loopring_lab.relayer"}) == set()
