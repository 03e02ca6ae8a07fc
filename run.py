#!/usr/bin/env python3
"""Set up the project and run it. Needs only Python 3.11 to 3.14 (standard library).

    python3 run.py lab     set up .venv and open copies of the notebooks in JupyterLab
    python3 run.py test    set up .venv and run the tests and every notebook
    python3 run.py docs    set up .venv and build the documentation into docs/_build/html
    python3 run.py install spark browser    add these extras of pyproject.toml to .venv

Further arguments go to `loopring-lab lab`, pytest or sphinx:  python3 run.py test -k amounts
Over SSH, `python3 run.py lab --no-browser` only prints the address and how to reach it.
uv installs the packages if it is available, otherwise pip; both take only files whose versions and
hashes are in uv.lock, also for what builds a package, and nothing is written outside this folder
except the installers' own caches. With uv you can do without this file:
`uv run --extra lab loopring-lab lab`, `uv run --extra test pytest`
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
STAMP = VENV / ".ready"
OLDEST, TOO_NEW = (3, 11), (3, 15)
TASKS = {
    "lab": ["-P", "-m", "loopring_lab", "lab"],  # -P: files in the current folder must not shadow modules
    "test": ["-m", "pytest"],
    "docs": [
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "docs",
        "docs/_build/html",
    ],  # -W: warnings are errors
}
REPLACED = (
    "If hashes do not match, the package index offers another file than the one that was locked: install "
    "nothing from it before you know why."
)
# pip contains the reader of markers that Python lacks.
EVALUATE = (
    "import json, sys; from pip._vendor.packaging.markers import Marker; "
    "print(json.dumps([Marker(text).evaluate() for text in json.load(sys.stdin)]))"
)
# On two cores; with arguments pytest runs as called.
WHOLE_SUITE = ["-n", "2", "--dist", "loadfile"]
# Annotations are quoted: an old Python must get far enough to be told that it is too old.


def main(words: "list[str]") -> int:
    """Run the task named by the first argument; return its exit code."""
    if not words or words[0] not in (*TASKS, "install"):
        print(__doc__, file=sys.stderr)
        if words and words[0] not in ("-h", "--help"):
            say(f"unknown task {words[0]!r}; expected one of {', '.join(TASKS)}, install")
        return 0 if words and words[0] in ("-h", "--help") else 2
    if not OLDEST <= sys.version_info < TOO_NEW:
        stop(wrong_python(words))
    task = words[0]
    if task == "install":
        set_up(check_extras(words[1:]))
        return 0
    set_up([task])
    if task != "lab":
        os.chdir(str(ROOT))
    extra = words[1:] or (WHOLE_SUITE if task == "test" else [])
    return become([str(PYTHON), *TASKS[task], *extra], environment())


def set_up(extras: "list[str]") -> None:
    """Install the locked packages of some extras into VENV, unless it already holds them."""
    ready = read_stamp()
    wanted = {*extras, *ready[1:]}
    if wanted & {"docs", "test"}:
        wanted.discard("lab")  # which is part of both
    if ready == [fingerprint(), *sorted(wanted)] and PYTHON.exists():
        return
    if STAMP.exists():
        STAMP.unlink()  # an interrupted install must not look finished
    if VENV.exists() and not same_python():
        say("removing .venv: it belongs to another Python, or its setup never finished")
        shutil.rmtree(str(VENV))
    uv = shutil.which("uv")
    say(f"setting up .venv with {'uv' if uv else 'pip'} (the first time takes about two minutes with pip) ...")
    start = time.monotonic()
    if uv:
        install_with_uv(uv, sorted(wanted))
    else:
        install_with_pip(sorted(wanted))
    STAMP.write_text(" ".join([fingerprint(), *sorted(wanted)]), encoding="utf-8")
    say(f"ready after {time.monotonic() - start:.0f} s")


def check_extras(extras: "list[str]") -> "list[str]":
    """Return the extras if the project has them."""
    known = sorted(project(read_lock())["optional-dependencies"])
    if not extras or not set(extras) <= set(known):
        stop(f"install: expected some of {', '.join(known)}, got {' '.join(extras) or 'nothing'}.")
    return extras


def fingerprint() -> str:
    """Return a digest of everything that determines the content of VENV."""
    parts = [sys.version.encode(), str(ROOT).encode()]
    parts += [(ROOT / name).read_bytes() for name in ("pyproject.toml", "uv.lock")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def read_stamp() -> "list[str]":
    """Return the fingerprint and the extras of the last finished install, or an empty list."""
    return STAMP.read_text(encoding="utf-8").split() if STAMP.exists() else []


def install_with_uv(uv: str, extras: "list[str]") -> None:
    """Create VENV with uv, from uv.lock: first what builds packages, then everything."""
    words = [uv, "sync", "--quiet", "--frozen", "--python", base_python()]
    chosen = [word for extra in extras for word in ("--extra", extra)]
    for part in (
        ["--inexact", "--only-group", "build"],
        ["--no-build-isolation", "--group", "build", *chosen],
    ):
        if not works(words + part, env=dict(os.environ, UV_PROJECT_ENVIRONMENT=str(VENV))):
            stop(f"uv could not install the locked packages (see above). {REPLACED} Otherwise update uv.")


def install_with_pip(extras: "list[str]") -> None:
    """Create VENV and install into it with pip: first what builds packages, then everything."""
    pip = venv_with_pip()
    lock = read_lock()
    applies = evaluate(pip[0], markers(lock))
    # --no-deps: the lock is complete; pip before 23.3 looks for the newest `name[extra]`, whatever is locked
    hashed = ["install", "--quiet", "--no-build-isolation", "--no-deps", "--require-hashes", "--requirement"]
    for name, edges in (
        ("build.txt", project(lock)["dev-dependencies"]["build"]),
        ("locked.txt", edges_of(lock, extras)),
    ):
        (VENV / name).write_text("\n".join(requirements(lock, edges, applies)) + "\n", encoding="utf-8")
        if not works([*pip, *hashed, str(VENV / name)]):
            stop(f"pip could not install the locked packages (see above). {REPLACED}")
    if not works([*pip, "install", "--quiet", "--no-build-isolation", "--no-index", "--no-deps", "--editable", "."]):
        stop("pip could not install the project itself (see above). Fix that and try again.")


def read_lock() -> "dict[str, Any]":
    """Read uv.lock."""
    import tomllib

    return tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))


def project(lock: "dict[str, Any]") -> "dict[str, Any]":
    """Return the project's own entry in the lock."""
    return next(package for package in lock["package"] if "editable" in package["source"])


def edges_of(lock: "dict[str, Any]", extras: "list[str]") -> "list[dict[str, Any]]":
    """Return the dependencies of the project with some extras."""
    own = project(lock)
    return [*own["dependencies"], *(edge for extra in extras for edge in own["optional-dependencies"][extra])]


def markers(lock: "dict[str, Any]") -> "list[str]":
    """Return every condition on which a locked package depends on another."""
    groups = [
        group
        for package in lock["package"]
        for kind in ("optional-dependencies", "dev-dependencies")
        for group in [package.get("dependencies", []), *package.get(kind, {}).values()]
    ]
    return sorted({edge["marker"] for group in groups for edge in group if "marker" in edge})


def evaluate(python: str, texts: "list[str]") -> "dict[str, bool]":
    """Return which conditions hold here, asked of a Python that has pip."""
    output = subprocess.check_output([python, "-c", EVALUATE], input=json.dumps(texts), universal_newlines=True)
    return dict(zip(texts, json.loads(output)))


def requirements(lock: "dict[str, Any]", edges: "list[dict[str, Any]]", applies: "dict[str, bool]") -> "list[str]":
    """Return a requirement with version and hashes for each package that these dependencies need here."""
    found: dict[str, str] = {}
    seen, waiting = set(), list(edges)
    while waiting:
        edge = waiting.pop()
        if "marker" in edge and not applies[edge["marker"]]:
            continue
        named = [package for package in lock["package"] if package["name"] == edge["name"]]
        (package,) = (p for p in named if p["version"] == edge.get("version", p["version"]))
        found[package["name"]] = requirement(package)
        for extra in ["", *edge.get("extra", [])]:
            if (package["name"], extra) not in seen:
                seen.add((package["name"], extra))
                waiting += package["optional-dependencies"][extra] if extra else package.get("dependencies", [])
    return [found[name] for name in sorted(found)]


def requirement(package: "dict[str, Any]") -> str:
    """Return a locked package as a line of a requirements file."""
    files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
    return " ".join([f"{package['name']}=={package['version']}", *(f"--hash={file['hash']}" for file in files)])


def venv_with_pip() -> "list[str]":
    """Create VENV if missing; return the command line of a pip that installs into it."""
    python = base_python()
    if not PYTHON.exists():
        # Debian and Ubuntu ship venv without ensurepip; another pip then installs into it
        bare = [] if works([python, "-m", "ensurepip", "--version"], quiet=True) else ["--without-pip"]
        if not works([python, "-m", "venv", *bare, str(VENV)]):
            stop(f"Python could not create {VENV} (see above). Fix that and try again.")
    pips = [[str(PYTHON), "-m", "pip"], [sys.executable, "-m", "pip", "--python", str(PYTHON)]]
    usable = [pip for pip in pips if works([*pip, "--version"], quiet=True)]
    if not usable:
        stop("pip is missing. Install python3-venv or python3-pip (or uv) and try again.")
    return usable[0]


def same_python() -> bool:
    """Return whether VENV holds a working Python of the running version."""
    words = [str(PYTHON), "-c", "import sys; print(sys.version)"]
    try:
        return subprocess.check_output(words, universal_newlines=True).strip() == sys.version
    except (OSError, subprocess.CalledProcessError):
        return False


def base_python() -> str:
    """Return the Python outside any environment, which creates environments."""
    return getattr(sys, "_base_executable", None) or sys.executable


def environment() -> "dict[str, str]":
    """Return the environment variables of an activated VENV."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH")}
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    return dict(variables, PATH=path, VIRTUAL_ENV=str(VENV))


def become(words: "list[str]", variables: "dict[str, str]") -> int:
    """Replace this process by a command; run it as a child where the system cannot do that."""
    if os.name == "posix":
        os.execve(words[0], words, variables)
    child = subprocess.Popen(words, env=variables)
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # the child received the same Ctrl-C and handles it
            continue


def works(words: "list[str]", quiet: bool = False, env: "dict[str, str] | None" = None) -> bool:
    """Run a command in ROOT; return whether it succeeded."""
    output = subprocess.DEVNULL if quiet else None
    return subprocess.call(words, cwd=str(ROOT), stdout=output, stderr=output, env=env) == 0


def wrong_python(words: "list[str]") -> str:
    """Return a message for an unsupported Python that names a supported one on this machine."""
    names = [f"python3.{minor}" for minor in range(TOO_NEW[1] - 1, OLDEST[1] - 1, -1)]
    found = [name for name in names if shutil.which(name)]
    advice = f"run `{found[0]} run.py {' '.join(words)}`" if found else "install one of those and try again"
    return f"needs Python 3.11 to 3.14, this is {sys.version.split()[0]}; {advice}."


def say(text: str) -> None:
    """Print a progress message."""
    print(f"run.py: {text}", file=sys.stderr, flush=True)


def stop(text: str) -> NoReturn:
    """Exit with a message and code 1."""
    sys.exit(f"run.py: {text}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
