"""Every way to run and save a notebook without a browser: no secret typed into a field is kept.

A plain password field in the same notebook shows that the search would find it.
"""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from widgets.conftest import found

from loopring_lab.relayer import Relayer, World

API_KEY = "an-api-key-that-somebody-typed-0123456789"
SEED = "a sentence of my own that nobody shall read"
PLAIN = "this-one-was-typed-into-a-plain-field"
CELLS = [
    """import os
import ipywidgets
import loopring_lab as lab
from loopring_lab.relayer import Relayer, World
relayer = Relayer(World(size=0.001), api_key=os.environ["TYPED_API_KEY"]).start()
client = lab.connect(relayer.base_url, api_key="none", rate=None)
from widgets.conftest import OnPage""",
    """explorer = lab.widgets.FeeExplorer(client, account=10083)
page = OnPage(explorer).wait().type_secret("API key:", os.environ["TYPED_API_KEY"])
assert len(explorer.chosen)
explorer""",
    """wizard = lab.widgets.KeyUpdateWizard(client, account=10083, way="key")
page = OnPage(wizard).press("Continue")
page.type_secret("Own key seed (optional):", os.environ["TYPED_SEED"] + " with key nonce: 1")
page.type_secret("Private key:", os.environ["TYPED_PRIVATE_KEY"])
assert wizard.step == "preview", page.problem
wizard""",
    """plain = ipywidgets.Password(description="Plain:")
data = {"method": "update", "state": {"value": os.environ["TYPED_PLAIN"]}}
plain.comm.handle_msg({"content": {"data": data}, "buffers": []})
plain""",
    "relayer.stop()",
]
WAYS = {
    "nbconvert": [
        "jupyter",
        "nbconvert",
        "--execute",
        "--to",
        "notebook",
        "--output",
        "saved.ipynb",
    ],
    "nbclient": ["jupyter", "execute", "--output", "saved"],
    "papermill": ["papermill", "--no-progress-bar", "-k", "python3"],
}


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_what_is_handed_over_is_not_saved(way, tmp_path):
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    nbformat.write(
        nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "typed.ipynb"
    )
    ending = ["typed.ipynb", "saved.ipynb"] if way == "papermill" else ["typed.ipynb"]
    own = {
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    private_key = "0x" + bytes(Relayer(World(size=0.001)).signer(10083).key).hex()
    secrets = {
        "TYPED_API_KEY": API_KEY,
        "TYPED_PRIVATE_KEY": private_key,
        "TYPED_SEED": SEED,
    }
    plain = {"TYPED_PLAIN": PLAIN}
    own["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    )
    done = subprocess.run(
        [sys.executable, "-m", *WAYS[way], *ending],
        cwd=tmp_path, env=dict(os.environ) | own | secrets | plain, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = {
        path.name: path.read_text(errors="replace")
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    printed = done.stdout + done.stderr
    leaks = [
        name for name, text in files.items() if found(secrets.values(), text + printed)
    ]
    assert leaks == []
    assert [name for name, text in files.items() if found([PLAIN], text)] == [
        "saved.ipynb"
    ]
