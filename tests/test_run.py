"""run.py: the constraints it derives from the lock file, and when it installs."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PYTHONS = ["3.11.2", "3.11.9", "3.12.4", "3.13.0", "3.14.1"]
SYSTEMS = ["linux", "win32", "darwin"]


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

    def install(extra: str) -> None:
        module.VENV.mkdir(exist_ok=True)
        module.installed.append(extra)

    monkeypatch.setattr(module, "install_with_uv", lambda uv, extra: install(extra))
    monkeypatch.setattr(module, "install_with_pip", install)
    return module


def held(python: str, system: str) -> dict[str, set[str]]:
    """Return the versions that the constraints allow each package on a platform, as pip reads them."""
    here = dict(default_environment(), python_full_version=python, sys_platform=system)
    here["python_version"] = ".".join(python.split(".")[:2])
    found: dict[str, set[str]] = {}
    for line in load().constraints(LOCK):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(here):
            found.setdefault(requirement.name, set()).add(str(requirement.specifier).removeprefix("=="))
    return found


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("python", PYTHONS)
def test_each_package_is_held_to_at_most_one_version_everywhere(python: str, system: str) -> None:
    assert {name: versions for name, versions in held(python, system).items() if len(versions) != 1} == {}


def test_every_locked_package_but_the_project_is_held() -> None:
    lines = [Requirement(line) for line in load().constraints(LOCK)]
    assert {(r.name, str(r.specifier)) for r in lines} == {
        (p["name"], f"=={p['version']}") for p in LOCK["package"] if p["name"] != "loopring-lab"
    }


@pytest.mark.parametrize("python", PYTHONS)
def test_where_pythons_differ_each_gets_what_the_project_locks_for_it(python: str) -> None:
    """The project's own entry names numpy's version per Python: a second source for the markers."""
    here = dict(default_environment(), python_full_version=python)
    project = next(p for p in LOCK["package"] if p["name"] == "loopring-lab")
    numpys = [d for d in project["dependencies"] if d["name"] == "numpy"]
    assert len(numpys) > 1
    wanted = {d["version"] for d in numpys if Marker(d["marker"]).evaluate(here)}
    assert held(python, "linux")["numpy"] == wanted


def test_the_second_call_installs_nothing(run: ModuleType) -> None:
    run.set_up("test")
    run.set_up("test")
    assert run.installed == ["test"]


def test_lab_is_content_with_what_test_installed(run: ModuleType) -> None:
    run.set_up("test")
    run.set_up("lab")
    assert run.installed == ["test"]


def test_test_adds_to_what_lab_installed(run: ModuleType) -> None:
    run.set_up("lab")
    run.set_up("test")
    run.set_up("lab")
    assert run.installed == ["lab", "test"]


@pytest.mark.parametrize("name", ["pyproject.toml", "uv.lock"])
def test_a_change_of_the_project_installs_again(run: ModuleType, name: str) -> None:
    run.set_up("test")
    (run.ROOT / name).write_text("changed = true")
    run.set_up("lab")
    assert run.installed == ["test", "test"]


def test_a_moved_project_installs_again(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run.set_up("lab")
    moved = run.ROOT.rename(run.ROOT.with_name("elsewhere"))
    monkeypatch.setattr(run, "ROOT", moved)
    monkeypatch.setattr(run, "VENV", moved / ".venv")
    monkeypatch.setattr(run, "STAMP", moved / ".venv" / ".ready")
    assert run.STAMP.exists()
    run.set_up("lab")
    assert run.installed == ["lab", "lab"]


def test_an_interrupted_install_is_not_taken_for_done(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.set_up("lab")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "install_with_uv", interrupted)
        patch.setattr(run, "install_with_pip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.set_up("test")
    assert not run.STAMP.exists()
    run.set_up("lab")
    assert run.installed == ["lab", "lab"]


def test_an_environment_of_another_python_is_made_anew(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = run.VENV / "left over"
    left.touch()
    monkeypatch.setattr(run, "PYTHON", run.VENV / "bin" / "gone")
    run.set_up("lab")
    assert not left.exists()


def test_an_environment_of_this_python_is_kept(run: ModuleType) -> None:
    left = run.VENV / "left over"
    left.touch()
    run.set_up("lab")
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
