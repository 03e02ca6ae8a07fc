"""run.py: what it takes from the lock file, what it refuses, and when it installs."""

import ast
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PYTHONS = ["3.11.2", "3.11.9", "3.12.4", "3.13.0", "3.14.1"]
SYSTEMS = ["linux", "win32", "darwin"]
EVERY_EXTRA = ("bench", "browser", "docs", "lab", "spark", "test")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run", ROOT / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """run.py as if in an empty project folder, with installers that only record their calls."""
    module = load()
    project = tmp_path / "a project"
    (project / ".venv").mkdir(parents=True)
    (project / "pyproject.toml").write_text("[project]")
    (project / "uv.lock").write_text("version = 1")
    monkeypatch.setattr(module, "ROOT", project)
    monkeypatch.setattr(module, "VENV", project / ".venv")
    monkeypatch.setattr(module, "STAMP", project / ".venv" / ".ready")
    monkeypatch.setattr(module, "PYTHON", Path(sys.executable))
    module.installed = []

    def install(extras: list[str]) -> None:
        module.VENV.mkdir(exist_ok=True)
        module.installed.append(" ".join(extras))

    monkeypatch.setattr(module, "install_with_uv", lambda uv, extras: install(extras))
    monkeypatch.setattr(module, "install_with_pip", install)
    return module


def environment(python: str, system: str = "linux") -> dict[str, str]:
    here = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    here |= {"sys_platform": system, "os_name": "nt" if system == "win32" else "posix"}
    here |= {"platform_machine": "AMD64" if system == "win32" else "x86_64"}
    return dict(default_environment(), **here)


@cache
def applies(marker: str, python: str, system: str = "linux") -> bool:
    return Marker(marker).evaluate(environment(python, system))


def held(python: str, system: str = "linux", extras: tuple[str, ...] = EVERY_EXTRA) -> dict[str, str]:
    """Return the version that is installed of each package on a platform."""
    run = load()
    here = {text: applies(text, python, system) for text in run.markers(LOCK)}
    lines = run.requirements(LOCK, run.edges_of(LOCK, list(extras)), here)
    return dict(line.split(" ")[0].split("==") for line in lines)


def followed(python: str, system: str) -> dict[str, str]:
    """Follow the lock's dependencies in another way: until nothing is added."""
    mine = next(p for p in LOCK["package"] if p["name"] == "loopring-lab")
    edges = [*mine["dependencies"], *(e for group in mine["optional-dependencies"].values() for e in group)]
    found: dict[str, str] = {}
    reached: set[tuple[str, str]] = set()
    while True:
        wanted = {
            (p["name"], p["version"], extra)
            for e in edges
            if "marker" not in e or applies(e["marker"], python, system)
            for p in LOCK["package"]
            if p["name"] == e["name"] and e.get("version") in (None, p["version"])
            for extra in ("", *e.get("extra", []))
        }
        if {(name, extra) for name, _, extra in wanted} <= reached:
            return found
        for name, version, extra in wanted:
            package = next(p for p in LOCK["package"] if (p["name"], p["version"]) == (name, version))
            found[name] = version
            reached.add((name, extra))
            edges += package["optional-dependencies"][extra] if extra else package.get("dependencies", [])


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_what_is_installed_is_what_the_lock_lists_for_the_platform(python: str, system: str) -> None:
    here = held(python, system)
    assert here == followed(python, system)
    assert len(here) > 200
    variants = {(p["name"], p["version"]): p.get("resolution-markers", []) for p in LOCK["package"]}
    for name, version in here.items():
        fits = variants[name, version]
        assert not fits or any(applies(text, python, system) for text in fits), name


def test_every_locked_package_is_installed_somewhere_and_none_twice() -> None:
    platforms = [held(python, system) for python in PYTHONS for system in SYSTEMS]
    build = [e["name"] for e in load().project(LOCK)["dev-dependencies"]["build"]]
    somewhere = {pair for platform in platforms for pair in platform.items()}
    rest = {(p["name"], p["version"]) for p in LOCK["package"]} - somewhere
    assert {name for name, _ in rest} <= {"loopring-lab", "tomlkit", "trove-classifiers", *build}


def test_each_file_is_held_to_its_hash() -> None:
    run = load()
    for package in LOCK["package"]:
        if "registry" not in package["source"]:
            continue
        name, *hashes = run.requirement(package).split(" ")
        assert Requirement(name).name == package["name"]
        files = [*package.get("wheels", []), *filter(None, [package.get("sdist")])]
        assert hashes == [f"--hash={file['hash']}" for file in files]
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", text) for text in hashes)


def test_an_extra_brings_its_packages_and_no_others() -> None:
    plain = held("3.11.9", extras=())
    assert {"pyarrow", "pandas", "duckdb", "eth-account"} <= set(plain)
    assert not {"pytest", "pyspark", "ccxt"} & set(plain)


@pytest.mark.parametrize("python", PYTHONS)
def test_where_pythons_differ_each_gets_what_the_project_locks_for_it(python: str) -> None:
    """The project's own entry names numpy's version per Python."""
    numpys = [d for d in load().project(LOCK)["dependencies"] if d["name"] == "numpy"]
    assert len(numpys) > 1
    (wanted,) = (d["version"] for d in numpys if applies(d["marker"], python))
    assert held(python)["numpy"] == wanted


def test_conditions_are_evaluated_as_pip_does() -> None:
    run = load()
    texts = run.markers(LOCK)
    assert run.evaluate(sys.executable, texts) == {text: Marker(text).evaluate() for text in texts}


# A package index with another file than the locked one


BACKEND = """
import pathlib, zipfile

def build_editable(folder, config_settings=None, metadata_directory=None):
    info = "loopring_lab-1.dist-info"
    with zipfile.ZipFile(pathlib.Path(folder, "loopring_lab-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("loopring_lab.pth", str(pathlib.Path.cwd()))
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: loopring-lab\\nVersion: 1\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return "loopring_lab-1-py3-none-any.whl"
"""


def write_wheel(folder: Path, name: str, code: str, version: str = "1", metadata: str = "") -> str:
    """Write a wheel of one module, and return its hash."""
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {
            f"{name}.py": code,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }.items():
            wheel.writestr(zipfile.ZipInfo(file), text)  # the same bytes at any time
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


def locked(name: str, digest: str) -> dict[str, Any]:
    return {"name": name, "version": "1", "source": {"registry": "here"}, "wheels": [{"hash": digest}]}


CODES = {"backend": BACKEND, "dependency": "HONEST = True", "deeper": ""}
MORE = "Provides-Extra: more\n"


@pytest.fixture
def indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Path]:
    """run.py in a project with a lock of three packages, and the folder that is its package index.

    `deeper` needs `dependency[more]`, an extra without packages of its own, which a lock leaves out.
    """
    index, root = tmp_path / "index", tmp_path / "project"
    index.mkdir()
    root.mkdir()
    system = '[build-system]\nrequires = ["backend"]\nbuild-backend = "backend"\n'
    (root / "pyproject.toml").write_text(system + '[project]\nname = "loopring-lab"\nversion = "1"\n')
    metadata = {"dependency": MORE, "deeper": "Requires-Dist: dependency[more]>=1\n"}
    packages = [
        locked(name, write_wheel(index, name, code, metadata=metadata.get(name, ""))) for name, code in CODES.items()
    ]
    packages[2]["dependencies"] = [{"name": "dependency"}]
    own = {"name": "loopring-lab", "version": "1", "source": {"editable": "."}}
    own |= {"dependencies": [{"name": "deeper"}], "optional-dependencies": {}}
    own |= {"dev-dependencies": {"build": [{"name": "backend"}]}}
    run = load()
    monkeypatch.setattr(run, "read_lock", lambda: {"package": [*packages, own]})
    for name, path in {
        "ROOT": root,
        "VENV": root / ".venv",
        "PYTHON": root / ".venv" / run.BIN.name / run.PYTHON.name,
    }.items():
        monkeypatch.setattr(run, name, path)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    pip = run.venv_with_pip()
    monkeypatch.setattr(run, "venv_with_pip", lambda: pip)
    return run, index


def assert_locked_packages_work(run: ModuleType) -> None:
    code = (
        "import dependency, deeper, importlib.metadata as m; "
        "print(dependency.HONEST, *map(m.version, ['dependency', 'deeper', 'loopring-lab']))"
    )
    assert subprocess.check_output([run.PYTHON, "-c", code], text=True) == "True 1 1 1\n"


@pytest.mark.thorough
def test_a_replaced_wheel_is_neither_installed_nor_run(
    indexed: tuple[ModuleType, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    run, index = indexed
    trap = index.parent / "it ran"
    for name in ("backend", "deeper"):
        honest = next(index.glob(f"{name}-1-*.whl")).read_bytes()
        write_wheel(index, name, f"open({str(trap)!r}, 'w')")
        with pytest.raises(SystemExit, match="offers another file than the one that was locked"):
            run.install_with_pip([])
        assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
        assert not [*run.VENV.rglob(f"{name}.py"), *run.VENV.rglob("loopring_lab.pth")]
        next(index.glob(f"{name}-1-*.whl")).write_bytes(honest)
    assert not trap.exists()
    run.install_with_pip([])
    assert_locked_packages_work(run)


@pytest.mark.thorough
def test_a_newer_release_changes_nothing_about_what_is_installed(indexed: tuple[ModuleType, Path]) -> None:
    run, index = indexed
    for name in CODES:
        write_wheel(index, name, "HONEST = False", version="2", metadata=MORE)
    run.install_with_pip([])
    assert_locked_packages_work(run)


def test_the_second_call_installs_nothing(run: ModuleType) -> None:
    run.set_up(["test"])
    run.set_up(["test"])
    assert run.installed == ["test"]


def test_lab_is_content_with_what_test_installed(run: ModuleType) -> None:
    run.set_up(["test"])
    run.set_up(["lab"])
    assert run.installed == ["test"]


def test_the_docs_are_built_in_the_project_with_warnings_as_errors(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(run, "become", lambda words, variables: called.append(words) or 0)
    monkeypatch.chdir(tmp_path)
    assert run.main(["docs"]) == 0
    assert run.installed == ["docs"]
    assert Path.cwd() == run.ROOT
    assert {"-W", "docs/_build/html"} <= set(called[0])


def test_test_adds_to_what_lab_installed(run: ModuleType) -> None:
    run.set_up(["lab"])
    run.set_up(["test"])
    run.set_up(["lab"])
    assert run.installed == ["lab", "test"]


def test_further_extras_are_added_and_kept(run: ModuleType) -> None:
    run.set_up(["test"])
    run.set_up(["spark", "browser"])
    run.set_up(["test"])
    assert run.installed == ["test", "browser spark test"]
    (run.ROOT / "uv.lock").write_text("changed = true")
    run.set_up(["lab"])
    assert run.installed[-1] == "browser spark test"


@pytest.mark.parametrize("words", [[], ["no-such-extra"], ["spark", "-x"]])
def test_only_extras_of_the_project_are_installed(words: list[str]) -> None:
    with pytest.raises(SystemExit, match="install: expected some of bench, browser, docs"):
        load().main(["install", *words])


@pytest.mark.parametrize("name", ["pyproject.toml", "uv.lock"])
def test_a_change_of_the_project_installs_again(run: ModuleType, name: str) -> None:
    run.set_up(["test"])
    (run.ROOT / name).write_text("changed = true")
    run.set_up(["lab"])
    assert run.installed == ["test", "test"]


def test_a_moved_project_installs_again(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run.set_up(["lab"])
    moved = run.ROOT.rename(run.ROOT.with_name("elsewhere"))
    monkeypatch.setattr(run, "ROOT", moved)
    monkeypatch.setattr(run, "VENV", moved / ".venv")
    monkeypatch.setattr(run, "STAMP", moved / ".venv" / ".ready")
    assert run.STAMP.exists()
    run.set_up(["lab"])
    assert run.installed == ["lab", "lab"]


def test_an_interrupted_install_is_not_taken_for_done(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run.set_up(["lab"])

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "install_with_uv", interrupted)
        patch.setattr(run, "install_with_pip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.set_up(["test"])
    assert not run.STAMP.exists()
    run.set_up(["lab"])
    assert run.installed == ["lab", "lab"]


def test_an_environment_of_another_python_is_made_anew(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    left = run.VENV / "left over"
    left.touch()
    monkeypatch.setattr(run, "PYTHON", run.VENV / "bin" / "gone")
    run.set_up(["lab"])
    assert not left.exists()


def test_an_environment_of_this_python_is_kept(run: ModuleType) -> None:
    left = run.VENV / "left over"
    left.touch()
    run.set_up(["lab"])
    assert left.exists()


def test_a_python_that_does_not_fit_is_told_which_one_here_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load()
    monkeypatch.setattr(run, "OLDEST", (3, 99))
    monkeypatch.setattr(run, "TOO_NEW", (3, 101))
    monkeypatch.setattr(run.shutil, "which", lambda name: name if name == "python3.99" else None)
    with pytest.raises(SystemExit, match=re.escape("run `python3.99 run.py test -x`")):
        run.main(["test", "-x"])


def test_the_file_parses_on_an_old_python() -> None:
    ast.parse((ROOT / "run.py").read_text(), feature_version=(3, 6))


@pytest.mark.parametrize(("words", "code"), [([], 2), (["build"], 2), (["--help"], 0)])
def test_without_a_task_it_says_what_it_can_do(words: list[str], code: int) -> None:
    done = subprocess.run([sys.executable, ROOT / "run.py", *words], capture_output=True, text=True)
    assert done.returncode == code
    assert "python3 run.py lab" in done.stderr


def test_the_users_python_settings_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    variables = load().environment()
    assert "PYTHONPATH" not in variables
    assert variables["PATH"].split(os.pathsep)[0] == str(load().BIN)
