"""run.py: what it asks of uv, how uv comes, and what it refuses."""

import ast
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]

# A uv that only notes its arguments, and makes an environment whose Python says what it was asked to run.
FAKE_UV = """#!/bin/sh
mkdir -p "$UV_PROJECT_ENVIRONMENT/bin"
echo "$*" >> "$UV_PROJECT_ENVIRONMENT/../asked"
printf '#!/bin/sh\\necho "$PWD | $*"\\n' > "$UV_PROJECT_ENVIRONMENT/bin/python"
chmod +x "$UV_PROJECT_ENVIRONMENT/bin/python"
"""


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run", ROOT / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with run.py, and a uv on PATH that only notes what it is asked."""
    if os.name != "posix":
        pytest.skip("uv is a shell script here")
    project = tmp_path / "a project"
    tools = tmp_path / "tools"
    for folder in (project, tools):
        folder.mkdir()
    for name in ("run.py", "pyproject.toml"):
        shutil.copy(ROOT / name, project)
    fake = tools / "uv"
    fake.write_text(FAKE_UV)
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    return project


def said(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, project / "run.py", *words],
        capture_output=True,
        text=True,
        cwd=project.parent,
    )


def test_everything_comes_from_the_lock_and_what_builds_comes_first(project):
    done = said(project, "install", "spark", "browser")
    assert done.returncode == 0, done.stderr
    build, everything = (project / "asked").read_text().splitlines()
    for asked in (build, everything):
        assert asked.startswith("sync --quiet --frozen --inexact --python")
    assert build.endswith("--only-group build")
    assert everything.endswith(
        "--group build --no-build-isolation --extra=spark --extra=browser"
    )
    assert "setting up .venv" in done.stderr
    assert "setting up .venv" not in said(project, "install", "spark").stderr


@pytest.mark.parametrize(
    ("words", "asked", "is_in_project"),
    [
        (["test"], "-m pytest -n 2 --dist loadfile", True),
        (["test", "-k", "amounts"], "-m pytest -k amounts", True),
        (["docs"], "-m sphinx -W --keep-going -q docs docs/_build/html", True),
        (["lab", "--no-browser"], "-P -m loopring_lab lab --no-browser", False),
    ],
)
def test_a_task_runs_in_the_environment(project, words, asked, is_in_project):
    done = said(project, *words)
    folder = project if is_in_project else project.parent
    assert done.stdout == f"{folder} | {asked}\n"
    assert f"--extra={words[0]}" in (project / "asked").read_text()


def test_a_moved_project_gets_another_environment(project):
    said(project, "install", "test")
    (project / ".venv" / "left over").touch()
    said(project, "install", "test")
    assert (project / ".venv" / "left over").exists()
    moved = project.rename(project.with_name("elsewhere"))
    assert (
        "removing .venv: the project was moved" in said(moved, "install", "test").stderr
    )
    assert not (moved / ".venv" / "left over").exists()


@pytest.mark.parametrize("word", ["sparc", "--extra"])
def test_an_extra_that_there_is_not_is_refused_before_anything_is_installed(
    project, word
):
    done = said(project, "install", "spark", word)
    assert done.returncode == 2
    expected = f"run.py: unknown extra '{word}'; expected some of spark, lab"
    assert done.stderr.startswith(expected)
    assert not (project / ".venv").exists()


def test_where_uv_fails_the_message_says_what_hashes_are_for(project):
    (project.parent / "tools" / "uv").write_text("#!/bin/sh\nexit 3\n")
    done = said(project, "test")
    assert done.returncode == 1
    assert "uv could not install the locked packages" in done.stderr
    assert "install nothing from it before you know why" in done.stderr


SLOW_UV = FAKE_UV.replace("mkdir", "sleep 2.5\nmkdir", 1)


def test_a_log_says_once_what_takes_long(project):
    (project.parent / "tools" / "uv").write_text(SLOW_UV)
    lines = said(project, "install", "test").stderr.splitlines()
    assert len(lines) == 4
    assert "setting up .venv" in lines[0]
    # Both calls of uv take long here: the one for what builds, and the one for everything.
    assert lines[1] == lines[2]
    assert "uv downloads and installs" in lines[1]
    assert lines[3].startswith("run.py: ready after")


def test_uv_itself_is_locked_with_its_hashes():
    name, *hashes = load().locked_uv().split(" ")
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    (package,) = (entry for entry in lock["package"] if entry["name"] == "uv")
    assert Requirement(name).name == "uv"
    assert hashes == [f"--hash={wheel['hash']}" for wheel in package["wheels"]]
    assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", text) for text in hashes)


def write_wheel(path: Path, version: str) -> str:
    """Write a wheel of uv with one file, and return its hash."""
    info = f"uv-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
        f"uv-{version}.data/scripts/uv": FAKE_UV,
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o100755 << 16
            wheel.writestr(entry, text)
    return "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.thorough
def test_without_uv_pip_brings_the_locked_one_and_no_other(project, monkeypatch):
    index = project.parent / "index"
    index.mkdir()
    digest = write_wheel(index / "uv-1.0-py3-none-any.whl", "1.0")
    lock = f'[[package]]\nname = "uv"\nversion = "1.0"\nwheels = [{{ hash = "{digest}" }}]\n'
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setenv("PATH", os.pathsep.join(["/usr/bin", "/bin"]))

    wrong = "sha256:" + "0" * 64
    (project / "uv.lock").write_text(lock.replace(digest, wrong))
    refused = said(project, "install", "test")
    assert refused.returncode == 1
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert "pip could not install uv" in refused.stderr
    assert not (project / ".venv" / "bin" / "uv").exists()

    (project / "uv.lock").write_text(lock)
    brought = said(project, "install", "test")
    assert brought.returncode == 0, brought.stderr
    assert "--extra=test" in (project / "asked").read_text()


def test_a_python_that_does_not_fit_is_told_which_one_here_does(monkeypatch):
    run = load()
    monkeypatch.setattr(run, "OLDEST", (3, 99))
    monkeypatch.setattr(run, "TOO_NEW", (3, 101))
    monkeypatch.setattr(
        run.shutil, "which", lambda name: name if name == "python3.99" else None
    )
    with pytest.raises(SystemExit, match=re.escape("run `python3.99 run.py test -x`")):
        run.main(["test", "-x"])


def test_the_file_parses_on_an_old_python():
    ast.parse((ROOT / "run.py").read_text(), feature_version=(3, 6))


@pytest.mark.parametrize(("words", "code"), [([], 2), (["build"], 2), (["--help"], 0)])
def test_without_a_task_it_says_what_it_can_do(words, code):
    done = subprocess.run(
        [sys.executable, ROOT / "run.py", *words], capture_output=True, text=True
    )
    assert done.returncode == code
    assert "python3 run.py lab" in done.stderr


def test_the_users_python_settings_stay_outside(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    variables = load().environment()
    assert "PYTHONPATH" not in variables
    assert variables["PATH"].split(os.pathsep)[0] == str(load().BIN)


def test_the_hosted_workflow_runs_known_commits_of_actions_also_on_a_schedule():
    text = (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert len(used) == 6
    assert all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", one) for one in used)
    assert re.search(r"^  schedule:\n    - cron: ", text, re.MULTILINE)


def test_the_hosted_workflow_installs_nothing_without_its_hash():
    folder = ROOT / ".github"
    text = (folder / "workflows" / "tests.yml").read_text(encoding="utf-8")
    runs = re.findall(r"run: (.+)", text)
    installing = [run for run in runs if re.search(r"\b(pip install|pipx|uvx) ?", run)]
    assert installing == [
        "audit/bin/pip install --require-hashes --requirement .github/audit.txt"
    ]
    lines = (folder / "audit.txt").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", lines, flags=re.MULTILINE).replace("\\\n", "")
    for line in lines.splitlines():
        requirement, *hashes = re.split(r" +--hash=sha256:", line)
        assert re.match(r"[a-z0-9-]+==[\w.]+", requirement)
        assert hashes
