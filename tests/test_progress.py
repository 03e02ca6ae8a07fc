"""Bars of long reads in a notebook."""

from typing import Any

import nbformat
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

EMPTY = {"text/html": ""}


def test_a_finished_bar_is_not_saved():
    cell = nbformat.v4.new_code_cell(SOURCE)
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=[cell]),
        timeout=600,
        kernel_name="python3",
    )
    messages: list[str] = []
    process = client.process_message

    def watch(message: Any, *others: Any) -> Any:
        messages.append(message["msg_type"])
        return process(message, *others)

    client.process_message = watch  # type: ignore[method-assign]
    client.execute()
    # It was there while trades were read.
    assert "display_data" in messages
    shown = [output for output in cell.outputs if output.get("data") != EMPTY]
    assert [output.text for output in shown] == ["read\n"]
