"""Bars of long reads in a notebook."""

from typing import Any

import nbformat
from nbclient import NotebookClient

SOURCE = """
import os
for name in ("CI", "TQDM_DISABLE"):
    os.environ.pop(name, None)
import loopring_lab as lab
from loopring_lab.relayer import Relayer, Settings, World
# A bar shows only what takes a while.
relayer = Relayer(World(size=0.05), Settings(latency=0.3)).start()
client = lab.connect(relayer.base_url, api_key=relayer.api_key)
trades = client.trades(10083, progress=True)
print(len(trades))
relayer.stop()
"""

EMPTY = {"text/html": ""}


def test_a_finished_bar_is_not_saved():
    cell = nbformat.v4.new_code_cell(SOURCE)
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=[cell]),
        timeout=120,
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
    # What `connect` and `print` say.
    assert {output.output_type for output in shown} == {"stream"}
    assert shown[-1].text.strip().isdigit()
