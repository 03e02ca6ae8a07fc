"""The documentation, built without a network: once, also where several processes run tests."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.optional import package_or_skip

ROOT = Path(__file__).parents[2]


def built(factory: pytest.TempPathFactory) -> Path:
    """Build the documentation as `python3 run.py docs` does, unless another process has; return its folder."""
    for name in ("sphinx", "myst_nb", "pydata_sphinx_theme"):
        package_or_skip(name)
    home = factory.getbasetemp()
    home = home.parent if "PYTEST_XDIST_WORKER" in os.environ else home
    with (home / "docs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "docs").exists():
            _build(home / "making")
            (home / "making").rename(home / "docs")
    return home / "docs" / "html"


def _build(folder):
    words = [
        "-W",
        "--keep-going",
        "-q",
        "-d",
        str(folder / "read"),
        "docs",
        str(folder / "html"),
    ]
    dead_end = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    variables = (
        os.environ | dead_end | {"no_proxy": "127.0.0.1", "PYTHONPATH": str(ROOT)}
    )
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].endswith(str(folder / "html" / "index.html"))
