"""For all tests: keep the user's settings out, and run notebooks as JupyterLab runs them."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    import pandas as pd
    import pyarrow as pa

    import loopring_lab as lab
    from loopring_lab.relayer import World

pytest.register_assert_rewrite("support")

LONG = ("tests/browser/", "tests/widgets/", "notebooks/")
"""Files that take longest begin, so that no process is left with one of them at the end."""
SHORT = "loopring_lab/"
"""Examples take a second or two a file, so they come last: no process waits long for another one's last file."""
ROOT = Path(__file__).parent
NBVAL_DEFAULT_TIMEOUT = 2000  # seconds; half an hour for one cell would hide a hang


def pytest_configure(config: pytest.Config) -> None:
    """Keep the user's settings out; make nbval run cells as JupyterLab does."""
    _private_environment(config)
    # py_ecc, which eth-account brings, sets this when it is loaded; hypothesis warns where that is during a test.
    sys.setrecursionlimit(100_000)
    hypothesis.settings.register_profile(
        "the same every time",
        deadline=None,
        derandomize=True,
        # It looks at a clock: where much else runs, drawing takes long.
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("the same every time")
    config.option.loadscopereorder = (
        False  # files with many short tests are not to come first
    )
    if config.getoption("nbval", default=False) or config.getoption(
        "nbval_lax", default=False
    ):
        _notebooks_as_in_jupyterlab(config)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path,
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for examples in the package only: tests have none, and each of their files would be searched twice."""
    found = yield
    if ROOT / "tests" not in file_path.parents:
        return found
    return [one for one in found if type(one).__name__ != "DoctestModule"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark or a browser; put long files first, short ones last; build the font cache now: it warns."""
    items.sort(
        key=lambda item: (
            not item.nodeid.startswith(LONG),
            item.nodeid.startswith(SHORT),
        )
    )
    for item in items:
        if "spark" in item.nodeid or item.nodeid.startswith("tests/browser/"):
            item.add_marker(pytest.mark.thorough)
    if any(type(item).__name__ == "IPyNbCell" for item in items):
        import matplotlib.font_manager  # noqa: F401


def pytest_collection() -> None:
    """Search for no garbage while tests are loaded: nothing of that goes."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what is loaded out of every search for garbage, and search rarely: each took a twentieth of the time."""
    gc.enable()
    gc.freeze()
    gc.set_threshold(5_000, 20, 100)
    _keep_worlds()


def pytest_unconfigure() -> None:
    """Let what is loaded go at the end: the binding of DuckDB takes objects that stay for leaks, and says so."""
    gc.unfreeze()


def _keep_worlds() -> None:
    """Keep more worlds than the package does: the usual one takes three seconds, and others came between its tests."""
    from loopring_lab.relayer import world

    simulate = world._simulate.__wrapped__
    world._simulate = functools.lru_cache(maxsize=16)(simulate)


def _private_environment(config: pytest.Config) -> None:
    for name in [
        n
        for n in os.environ
        if n.startswith("LOOPRING_") and not n.startswith("LOOPRING_LAB_")
    ]:
        del os.environ[
            name
        ]  # the user's own address and key: tests use the embedded relayer only
    folder = tempfile.TemporaryDirectory(prefix="loopring-lab-tests-")
    config.add_cleanup(folder.cleanup)
    home = Path(folder.name)
    (home / "matplotlibrc").touch()
    names = [
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
    ]
    os.environ.update(
        {
            name: str(home / name.lower())
            for name in [*names, "JUPYTERLAB_WORKSPACES_DIR"]
        }
    )
    os.environ.update(
        IPYTHONDIR=str(home / "ipython"),
        JUPYTER_PLATFORM_DIRS="1",
        MATPLOTLIBRC=str(home / "matplotlibrc"),
        # Each process would have a thread for each core, which wait for one another by using the processor:
        # a cost curve then takes six times as long where other tests run beside it.
        OPENBLAS_NUM_THREADS="1",
        PYDEVD_DISABLE_FILE_VALIDATION="1",
        TQDM_DISABLE="1",
    )
    # Otherwise this process, its workers and every kernel would rewrite and compile all tests and packages again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _notebooks_as_in_jupyterlab(config: pytest.Config) -> None:
    from nbval.kernel import RunningKernel

    option = config.option
    option.nbval_sanitize_with = option.nbval_sanitize_with or str(
        ROOT / "tests" / "nbval.cfg"
    )
    if option.nbval_cell_timeout == NBVAL_DEFAULT_TIMEOUT:
        option.nbval_cell_timeout = 120

    def execute(
        self: RunningKernel, cell_input: str, allow_stdin: bool | None = None
    ) -> str:
        return self.kc.execute(
            cell_input, store_history=True, allow_stdin=allow_stdin, stop_on_error=False
        )

    RunningKernel.execute_cell_input = (
        execute  # nbval#194: a trailing ';', In and Out need the history
    )


RECORDINGS = "LOOPRING_LAB_RECORDINGS"


@pytest.fixture(scope="session")
def recordings() -> Path:
    """Folder of responses recorded from real relayers, which are not part of this repository."""
    if RECORDINGS not in os.environ:
        pytest.skip(
            f"needs recorded responses: set {RECORDINGS} to the folder that holds them"
        )
    folder = Path(os.environ[RECORDINGS]).resolve()
    assert folder.is_dir(), f"{RECORDINGS} is set to {folder}, which is not a folder"
    return folder


@pytest.fixture(scope="session")
def made_block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved responses written from the synthetic world, with its own facts beside them."""
    from support.settled_block import MADE, write_block

    return write_block(tmp_path_factory.mktemp("saved") / MADE)


@pytest.fixture(
    scope="session",
    params=[pytest.param("recorded", marks=pytest.mark.thorough), "made"],
)
def block_folder(request: pytest.FixtureRequest) -> Path:
    """Saved responses of a block whose settled facts are known: a recorded one, and one made here."""
    if request.param == "made":
        made: Path = request.getfixturevalue("made_block")
        return made
    recorded: Path = request.getfixturevalue("recordings") / "mainnet_block_a"
    return recorded


@pytest.fixture(scope="session")
def block(block_folder: Path) -> pd.DataFrame:
    """The trades of all accounts of that block, as the client reads them."""
    from support.settled_block import client_of, trades_of

    return trades_of(client_of(block_folder))


@pytest.fixture(scope="session")
def settled(block_folder: Path) -> dict[tuple[int, str], dict[str, Any]]:
    """The settled facts of its fills, by trade id and side."""
    from support.settled_block import settled_of

    return settled_of(block_folder)


@pytest.fixture(scope="session")
def any_block_folder(request: pytest.FixtureRequest) -> Path:
    """Saved responses for tests that need any recording: the recorded block where there is one."""
    found: Path = request.getfixturevalue(
        "recordings" if RECORDINGS in os.environ else "made_block"
    )
    return found / "mainnet_block_a" if RECORDINGS in os.environ else found


@pytest.fixture(scope="session")
def world() -> World:
    """A small synthetic world: some 4,000 fills."""
    from loopring_lab.relayer import World

    return World(seed=23, size=0.05)


@pytest.fixture(scope="session")
def trades(world: World) -> pd.DataFrame:
    """Both sides of every fill of that world."""
    from support.worlds import trades_of

    return trades_of(world)


@pytest.fixture(scope="session")
def marks(world: World) -> pa.Table:
    """Minute closes of an outside market around its fills, and a minute after them."""
    from support.worlds import MINUTE, minute_marks

    return minute_marks(world, world.fills, [MINUTE])


@pytest.fixture(scope="session")
def docs_html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the documentation as HTML."""
    from support.docs_site import built

    return built(tmp_path_factory)


@pytest.fixture(autouse=True)
def _names_of_examples(request: pytest.FixtureRequest) -> None:
    """Let the examples of docstrings start from ``lab`` and ``client``, ``archive`` or ``store``."""
    if isinstance(request.node, pytest.DoctestItem):
        import loopring_lab as lab

        with contextlib.redirect_stdout(io.StringIO()):
            names = {"lab": lab, "client": lab.connect()}
        if request.node.name.startswith("loopring_lab.archive."):
            synced = request.getfixturevalue("archive_of_examples")
            names["archive"] = lab.Archive(
                shutil.copy(synced, request.getfixturevalue("tmp_path"))
            )
        if request.node.name.startswith(
            ("loopring_lab.rollup.store.", "loopring_lab.sources.blocks.")
        ):
            folder = request.getfixturevalue("tmp_path")
            filled = request.getfixturevalue("store_of_examples")
            shutil.copytree(filled, folder, dirs_exist_ok=True)
            names |= {"folder": folder, "store": lab.rollup.Store(folder / "my-blocks")}
        if request.node.name.startswith("loopring_lab.sources.recording."):
            folder = request.getfixturevalue("tmp_path")
            names["folder"] = _recording_of_one_account(folder, names["client"])
        request.getfixturevalue("doctest_namespace").update(names)


@pytest.fixture(scope="session")
def archive_of_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of one account that examples begin with, each with a copy of its own."""
    import loopring_lab as lab

    path = tmp_path_factory.mktemp("examples") / "my-trades.duckdb"
    lab.Archive(path).sync(lab.connect(), account_id=71468)
    return path


@pytest.fixture(scope="session")
def store_of_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a block and of a store that holds it, which examples begin with, each with a copy of its own."""
    import loopring_lab as lab

    folder = tmp_path_factory.mktemp("examples")
    roots = "aa" * 32 + "bb" * 32
    (folder / "block.hex").write_text(
        f"0baba1ad5be3a5c0a66e7ac838a129bf948f1ea4{roots}5f9bd5f0{0:012}00002711"
    )
    store = lab.rollup.Store(folder / "my-blocks")
    store.import_files(folder / "block.hex", first_block=20)
    return folder


def _recording_of_one_account(folder: Path, client: lab.Client) -> Path:
    from support.recorded import save

    tokens, markets = client.listings()
    page, *_ = client.pages([(71468, "dex")])
    trades = {"dex": page.body, "amm": {"totalNum": 0, "trades": []}}
    answers = {f"trades/71468-{kind}": answer for kind, answer in trades.items()}
    return save(folder, answers | {"tokens": tokens, "markets": markets})
