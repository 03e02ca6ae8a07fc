"""JupyterLab and Voila in a real Chromium, on this machine alone; no browser is ever downloaded."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from support.optional import package_or_skip

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHOTS = Path(os.environ.get("LOOPRING_LAB_SHOTS", HERE / "shots"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SETTINGS: dict[
    str, dict[str, Any]
] = {  # quiet, every cell in the page, nothing saved by itself
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/notebook-extension:tracker": {
        "windowingMode": "none",
        "scrollPastEnd": False,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
}
# How long a page may take to show what is waited for, in milliseconds. A machine that runs
# other tests beside has been seen to need five seconds for what usually takes one.
PATIENCE = 90_000
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
FINISHED = r"""() => {
    const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].map(e => e.innerText.trim());
    const kernel = document.querySelector('.jp-Notebook-ExecutionIndicator');
    return prompts.length && prompts.every(t => /^\[\d+\]:$/.test(t)) && kernel?.dataset.status === 'idle'
}"""

HEIGHT = """() => Math.max(document.body.scrollHeight,
    ...[...document.querySelectorAll('.jp-Notebook, .jp-Notebook *')].map(e => e.scrollHeight))"""

TO_THE_TOP = """() => document.querySelectorAll('.jp-Notebook, .jp-Notebook *').forEach(e => e.scrollTop = 0)"""


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.browser)


def stripped(source, folder):
    """Copy a notebook without outputs, so that no old one is taken for a new one."""
    notebook = nbformat.read(source, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / source.name)
    return folder / source.name


def written(home, sources, name="a.ipynb"):
    """Write a notebook of some cells into the folder that a JupyterLab server shows; return its path."""
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in sources]
    path = home / "notebooks" / name
    path.parent.mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


@contextlib.contextmanager
def serving(words, home, probe, overrides=None):
    """Run a Jupyter server on a free port of this machine; give its address; end it and its kernels."""
    config = home / "config" / "labconfig"
    config.mkdir(parents=True)
    (config / "default_setting_overrides.json").write_text(
        json.dumps(SETTINGS | (overrides or {}))
    )
    names = {"CONFIG": "config", "DATA": "data", "RUNTIME": "runtime"}
    own = {f"JUPYTER_{name}_DIR": str(home / folder) for name, folder in names.items()}
    own["IPYTHONDIR"] = str(home / "ipython")
    own |= {
        f"JUPYTERLAB_{name}_DIR": str(home / name.lower())
        for name in ("SETTINGS", "WORKSPACES")
    }
    variables = {k: v for k, v in os.environ.items() if k != "JUPYTER_TOKEN"} | own
    port = free_port()
    base = f"http://127.0.0.1:{port}/"
    log = home / "server.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-m", *(word.replace("PORT", str(port)) for word in words)],
            env=variables, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            wait_for(base + probe, server, log)
            yield base
        finally:
            started = processes_of(server)
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
            _, left = psutil.wait_procs(started, timeout=10)
            for process in left:
                process.kill()
            assert left == [], "kernels outlived their server"


def processes_of(server):
    """Return what a server has started: its kernels."""
    try:
        return psutil.Process(server.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def free_port():
    """Find a port that the system gives to nobody by itself, as it does to kernels, before the server takes it."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def wait_for(address, server, log):
    end = time.monotonic() + 60
    while True:
        assert server.poll() is None, f"the server ended: {log.read_text()[-3000:]}"
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            assert time.monotonic() < end, (
                f"the server does not answer: {log.read_text()[-3000:]}"
            )
            time.sleep(0.1)
            continue
        return


@pytest.fixture(scope="module")
def chromium():
    """Open a browser for one file of tests: while it is there, this thread has a running event loop."""
    sync_api = package_or_skip("playwright.sync_api")
    found = next(
        filter(None, map(shutil.which, (os.environ.get("CHROME", ""), *BROWSERS))), None
    )
    if not found:
        pytest.skip("needs Chromium or Chrome: install one, or set CHROME to its path")
    words = ["--disable-dev-shm-usage", "--disable-background-networking"]
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    sync_api.expect.set_options(timeout=PATIENCE)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=words + ["--no-sandbox"] * root
        )
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(chromium, width=1280):
    """Open a page that reaches this machine only, and whose script errors fail the test."""
    context = chromium.new_context(
        viewport={"width": width, "height": 1600},
        locale="en-GB",
        timezone_id="UTC",
        device_scale_factor=2,
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))

    def loopback_only(route):
        here = re.match(
            r"(https?|wss?)://127\.0\.0\.1[:/]|data:|blob:", route.request.url
        )
        route.continue_() if here else route.abort()

    page.route("**/*", loopback_only)
    yield page
    context.close()
    assert problems == []


@pytest.fixture
def page(chromium):
    with opened(chromium) as page:
        yield page


def taken(page, name):
    """Take a picture of a page, as tall as its notebook, into the folder of this run's pictures."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    width = page.viewport_size["width"]
    page.set_viewport_size({"width": width, "height": 1600})
    page.set_viewport_size(
        {"width": width, "height": min(int(page.evaluate(HEIGHT)) + 200, 12_000)}
    )
    page.evaluate(TO_THE_TOP)
    page.screenshot(path=SHOTS / f"{name}.png")
    return SHOTS / f"{name}.png"


@pytest.fixture
def shot(page, request):
    return lambda name: taken(page, name)


@pytest.fixture(scope="module", params=list(THEMES))
def theme(request):
    return str(request.param)


@pytest.fixture(scope="module")
def jupyterlab(theme, chromium, tmp_path_factory):
    """A JupyterLab server in a theme, and the folder it shows, with every notebook in it."""
    home = tmp_path_factory.mktemp(f"lab-{theme}")
    for source in sorted((ROOT / "notebooks").glob("*.ipynb")):
        stripped(source, home / "notebooks")
    with in_lab(home, theme) as base:
        yield base, home / "notebooks"


@contextlib.contextmanager
def in_lab(home, theme, **more):
    """Run a JupyterLab server in a theme over the folder notebooks of a home; give its address."""
    words = ["jupyterlab", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=PORT",
             "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.allow_root=True",
             # Without it the server answers 403 to whoever ends a kernel, but to its own pages.
             "--ServerApp.disable_check_xsrf=True", f"--ServerApp.root_dir={home / 'notebooks'}"]  # fmt: skip
    colours = {"@jupyterlab/apputils-extension:themes": {"theme": THEMES[theme]}}
    with serving(words, home, "api/status", colours | more) as base:
        yield base


@pytest.fixture
def run_all(page, jupyterlab):
    """Open a notebook in JupyterLab, run all its cells, and wait until they are done."""
    yield lambda name: run_cells(page, f"{jupyterlab[0]}lab/tree/{name}")
    end_kernels(jupyterlab[0])


def open_notebook(page, address):
    """Open a notebook at its address, and wait until its kernel is there: before, a cell that is run asks for one."""
    from playwright.sync_api import expect

    page.goto(f"{address}?reset", wait_until="domcontentloaded")
    # The toolbar says idle before there is a kernel; the status bar does not.
    expect(page.locator("#jp-main-statusbar")).to_contain_text(re.compile(r"\| Idle"))


def run_cells(page, address):
    """Open a notebook at its address, run all its cells, and wait until they are done."""
    from playwright.sync_api import expect

    open_notebook(page, address)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.wait_for_function(FINISHED, timeout=2 * PATIENCE)
    expect(page.get_by_text("Loading widget...")).to_have_count(0)
    expect(
        page.get_by_text(re.compile("Error (displaying|creating) widget"))
    ).to_have_count(0)


def save(page, name):
    """Save the notebook of a page, and wait until the server has written it."""

    def is_checkpoint_made(answer):  # listing the checkpoints has the same address
        return (
            f"{name}/checkpoints" in answer.url
            and answer.request.method == "POST"
            and answer.ok
        )

    with page.expect_response(is_checkpoint_made):
        page.keyboard.press("Control+s")


def end_kernels(base):
    """End the kernels of a server, so that one test's do not slow down the next."""
    for session in json.load(urllib.request.urlopen(f"{base}api/sessions")):
        urllib.request.urlopen(
            urllib.request.Request(
                f"{base}api/sessions/{session['id']}", method="DELETE"
            )
        ).close()


@pytest.fixture
def voila(page, tmp_path):
    """Serve a notebook as a page with Voila, open it, and wait until it is there."""
    package_or_skip("voila")
    with contextlib.ExitStack() as stack:

        def open_page(source):
            copy = stripped(source, tmp_path / "notebooks")
            words = [
                "voila",
                str(copy),
                "--no-browser",
                "--port=PORT",
                "--Voila.ip=127.0.0.1",
            ]
            base = stack.enter_context(
                serving(words, tmp_path / "voila", "voila/static/voila.js")
            )
            page.goto(
                base, wait_until="domcontentloaded"
            )  # the reply streams while cells run
            page.locator("#rendered_cells").wait_for(state="visible")
            return base

        yield open_page
