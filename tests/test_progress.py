"""Bars of long reads: in a page while somebody watches, and never in what is saved or logged."""

import os
import pty
import subprocess
import sys
import termios
from typing import Any

import nbformat
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

SOURCE = """
import os
for name in ("CI", "TQDM_DISABLE"):
    os.environ.pop(name, None)
import time
from loopring_lab.progress import track
with track("Reading trades", True) as report:
    report(1, 3)
    time.sleep(0.3)
    report(3, 3)
print("read")
"""


def test_an_executed_notebook_does_not_tell_how_fast_it_was():
    """Programs that run notebooks keep every output, and the state of every widget."""
    cell = nbformat.v4.new_code_cell(SOURCE)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    assert [output.get("text") for output in cell.outputs] == ["read\n"]
    assert "widgets" not in notebook.metadata


def messages_of(source: str) -> list[dict[str, Any]]:
    """Run a cell as JupyterLab does, which answers questions; return what its page was told."""
    manager, client = start_new_kernel()
    found: list[dict[str, Any]] = []
    try:
        client.execute_interactive(
            source, allow_stdin=True, timeout=600, output_hook=found.append
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    return found


def test_a_page_has_a_line_meanwhile_that_is_no_output_of_the_cell():
    messages = messages_of(SOURCE)
    outputs = [
        one["content"]
        for one in messages
        if one["msg_type"] in ("stream", "display_data", "execute_result")
    ]
    assert [one.get("text") for one in outputs] == ["read\n"]
    comms = [one for one in messages if one["msg_type"].startswith("comm_")]
    texts = [
        one["content"]["data"].get("state", {}).get("text")
        for one in comms
        if one["msg_type"] == "comm_msg"
    ]
    assert any("Reading trades" in (text or "") for text in texts)
    opened = {
        one["content"]["comm_id"] for one in comms if one["msg_type"] == "comm_open"
    }
    closed = {
        one["content"]["comm_id"] for one in comms if one["msg_type"] == "comm_close"
    }
    assert opened
    assert opened == closed


SCRIPT = f"""{SOURCE.replace("True", "None").replace("0.3", "1.2")}
import sys
print(sys.stderr.isatty())
"""


def environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "TQDM_DISABLE")
    }


def test_a_log_has_no_bar_unless_it_was_asked_for():
    for script, is_shown in ((SCRIPT, False), (SOURCE, True)):
        ended = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env=environment(),
        )
        assert ("Reading trades" in ended.stderr) == is_shown
        assert bool(ended.stderr) == is_shown


def test_a_terminal_has_one_after_a_second():
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=True,
        env=environment(),
    )
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    os.close(theirs)
    assert ended.stdout == "read\nTrue\n"
    assert "Reading trades" in shown
