"""What `connect` returns is known to a type checker by the arguments that are given."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import loopring_lab as lab
from loopring_lab.sources import BlocksClient, Client, Recording

client: Client = lab.connect()
relayer: Client = lab.connect("https://relayer.example", api_key="key", rate=None)
recording: Recording = lab.connect(recording="folder", source="mine")
blocks: BlocksClient = lab.connect(blocks="demo")
"""


def check(folder: Path, script: str) -> str:
    file = folder / "script.py"
    file.write_text(script)
    words = [sys.executable, "-m", "mypy", "--strict", str(file)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300).stdout


@pytest.mark.thorough
def test_each_source_has_a_type_of_its_own(tmp_path):
    assert "Success" in check(tmp_path, SCRIPT)
    wrong = SCRIPT.replace("client: Client", "client: Recording")
    assert 'expression has type "Client"' in check(tmp_path, wrong)
