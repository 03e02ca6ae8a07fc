#!/usr/bin/env python3
"""Set up the project and run it. Needs only Python 3.11 to 3.14 (standard library).

    python3 run.py lab     set up .venv and open copies of the notebooks in JupyterLab
    python3 run.py test    set up .venv and run the tests and every notebook
    python3 run.py docs    set up .venv and build the documentation into docs/_build/html
    python3 run.py install spark browser    add these extras of pyproject.toml to .venv

Further arguments go to `loopring-lab lab`, pytest or sphinx:  python3 run.py test -k amounts
Over SSH, `python3 run.py lab --no-browser` only prints the address and how to reach it.
uv installs the packages; where it is missing, pip brings it into .venv first. Both take only files whose
versions and hashes are in uv.lock, also for what builds a package. With uv you can do without this file:
`uv run --extra lab loopring-lab lab`, `uv run --extra test pytest`
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = str(BIN / "python")
HOME_NOTE = VENV / "made-in.txt"
OLDEST = (3, 11)
TOO_NEW = (3, 15)
TASKS = {
    # -P: files in the current folder must not shadow modules.
    "lab": ["-P", "-m", "loopring_lab", "lab"],
    "test": ["-m", "pytest"],
    # -W: warnings are errors.
    "docs": ["-m", "sphinx", "-W", "--keep-going", "-q", "docs", "docs/_build/html"],
}
# On two cores; with arguments pytest runs as called.
WHOLE_SUITE = ["-n", "2", "--dist", "loadfile"]
REFUSED = (
    "If hashes do not match, the package index offers another file than the one that was locked: install "
    "nothing from it before you know why. Otherwise"
)
# Annotations are quoted: an old Python must get far enough to be told that it is too old.


def main(words: "list[str]") -> int:
    """Run the task named by the first argument; return its exit code."""
    task = words[0] if words else ""
    if task in ("-h", "--help"):
        print(__doc__, file=sys.stderr)
        return 0
    if task not in (*TASKS, "install"):
        print(__doc__, file=sys.stderr)
        say(f"unknown task {task!r}; expected one of {', '.join(TASKS)}, install")
        return 2
    if not OLDEST <= sys.version_info[:2] < TOO_NEW:
        stop(wrong_python(words))
    if task == "install":
        extras = known_extras()
        for word in words[1:]:
            if word not in extras:
                say(f"unknown extra {word!r}; expected some of {', '.join(extras)}")
                return 2
        install(words[1:])
        return 0
    install([task])
    arguments = words[1:]
    if task == "test" and not arguments:
        arguments = WHOLE_SUITE
    if task != "lab":
        os.chdir(str(ROOT))
    return become([PYTHON, *TASKS[task], *arguments])


def known_extras() -> "list[str]":
    """Return the names of the extras in pyproject.toml."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return list(project["project"]["optional-dependencies"])


def install(extras: "list[str]") -> None:
    """Install the locked packages of some extras into VENV, beside those that it has."""
    if HOME_NOTE.exists() and HOME_NOTE.read_text(encoding="utf-8") != str(ROOT):
        say(
            "removing .venv: the project was moved, and commands in .venv name the folder they were made in"
        )
        shutil.rmtree(str(VENV))
    is_first = not VENV.exists()
    if is_first:
        say("setting up .venv: usually a minute, three on a slow network")
    start = time.monotonic()
    chosen = [f"--extra={extra}" for extra in extras]
    # First what builds packages, so that nothing is built by what an index happens to offer.
    sync("--only-group", "build")
    sync("--group", "build", "--no-build-isolation", *chosen)
    HOME_NOTE.write_text(str(ROOT), encoding="utf-8")
    if is_first:
        say(f"ready after {time.monotonic() - start:.0f} s")


def sync(*which: str) -> None:
    """Have uv install a part of uv.lock; what is there already takes no time."""
    doing = "uv downloads and installs the packages of uv.lock; usually a minute"
    options = ["--quiet", "--frozen", "--inexact", "--python", base_python()]
    if not works([uv(), "sync", *options, *which], doing):
        stop(
            f"uv could not install the locked packages (see above). {REFUSED} update uv."
        )


def uv() -> str:
    """Return uv's path: the one of this machine, or else the locked one, which pip installs into VENV."""
    path = environment()["PATH"]
    found = shutil.which("uv", path=path)
    if not found:
        pip = venv_with_pip()
        # pip takes hashes from a file only.
        locked = VENV / "uv.txt"
        locked.write_text(locked_uv(), encoding="utf-8")
        options = ["--quiet", "--no-deps", "--require-hashes", "--requirement"]
        doing = "pip downloads uv, which installs the rest; usually 10 s"
        if not works([*pip, "install", *options, str(locked)], doing):
            stop(
                f"pip could not install uv (see above). {REFUSED} install uv yourself and try again."
            )
        found = shutil.which("uv", path=path)
    return found or "uv"


def locked_uv() -> str:
    """Return uv.lock's version of uv with its hashes, as a line for pip."""
    import tomllib

    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    (package,) = (entry for entry in lock["package"] if entry["name"] == "uv")
    hashes = [f"--hash={wheel['hash']}" for wheel in package["wheels"]]
    return " ".join([f"uv=={package['version']}", *hashes])


def venv_with_pip() -> "list[str]":
    """Create VENV if missing; return the command line of a pip that installs into it."""
    if not VENV.exists():
        create = [base_python(), "-m", "venv", str(VENV)]
        # Debian and Ubuntu ship venv without ensurepip; another pip then installs into it.
        if not works([base_python(), "-m", "ensurepip", "--version"]):
            create.append("--without-pip")
        if not works(create, "Python creates .venv; usually 10 s"):
            stop(f"Python could not create {VENV} (see above). Fix that and try again.")
    own = [PYTHON, "-m", "pip"]
    other = [sys.executable, "-m", "pip", "--python", PYTHON]
    usable = [pip for pip in (own, other) if works([*pip, "--version"])]
    if not usable:
        stop(
            "pip is missing. Install uv, or python3-venv or python3-pip, and try again."
        )
    return usable[0]


def base_python() -> str:
    """Return the Python outside any environment, which creates environments."""
    return getattr(sys, "_base_executable", None) or sys.executable


def environment() -> "dict[str, str]":
    """Return the environment variables of an activated VENV."""
    variables = dict(os.environ)
    # They would bring modules from elsewhere.
    variables.pop("PYTHONHOME", None)
    variables.pop("PYTHONPATH", None)
    path = os.environ.get("PATH", os.defpath)
    variables["PATH"] = os.pathsep.join([str(BIN), path])
    variables["VIRTUAL_ENV"] = str(VENV)
    variables["UV_PROJECT_ENVIRONMENT"] = str(VENV)
    return variables


def become(words: "list[str]") -> int:
    """Replace this process by a command; run it as a child where the system cannot do that."""
    if os.name == "posix":
        os.execve(words[0], words, environment())
    child = subprocess.Popen(words, env=environment())
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # the child received the same Ctrl-C and handles it
            continue


def works(words: "list[str]", doing: str = "") -> bool:
    """Run a command in ROOT, say what it is doing if that takes a while, and return whether it succeeded.

    A command without such words asks for something only, and prints nothing.
    """
    output = None if doing else subprocess.DEVNULL
    is_terminal = sys.stderr.isatty()
    seconds = 0
    with subprocess.Popen(
        words, cwd=str(ROOT), stdout=output, stderr=output, env=environment()
    ) as child:
        while child.poll() is None:
            try:
                child.wait(timeout=1)
            except subprocess.TimeoutExpired:
                seconds += 1
                if doing and is_terminal:
                    # One line, which the next one is written over.
                    say(f"{doing} ... {seconds} s", end="\r")
                elif doing and seconds == 1:
                    # A log keeps every line, so there it is said once.
                    say(f"{doing} ...")
    if doing and is_terminal and seconds:
        print(file=sys.stderr)
    return child.returncode == 0


def wrong_python(words: "list[str]") -> str:
    """Return a message for an unsupported Python that names a supported one on this machine."""
    advice = "install one of those and try again"
    for minor in range(OLDEST[1], TOO_NEW[1]):
        if shutil.which(f"python3.{minor}"):
            advice = f"run `python3.{minor} run.py {' '.join(words)}`"
    return f"needs Python 3.11 to 3.14, this is {sys.version.split()[0]}; {advice}."


def say(text: str, end: str = "\n") -> None:
    """Print a progress message."""
    print(f"run.py: {text}", end=end, file=sys.stderr, flush=True)


def stop(text: str) -> NoReturn:
    """Exit with a message and code 1."""
    sys.exit(f"run.py: {text}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
