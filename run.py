#!/usr/bin/env python3
"""Set up and go, with nothing but Python 3.11 to 3.14 (standard library only).

    python3 run.py lab     set up .venv, open JupyterLab on the notebooks
    python3 run.py test    set up .venv, run the tests and every notebook

More words are passed on, to `loopring-lab lab` or to pytest:  python3 run.py test -k amounts
With uv on the machine uv installs, else pip; both install the versions of uv.lock, and nothing
is written outside this folder but the installers' own caches. uv users can do without this file:
`uv run --extra lab loopring-lab lab`, `uv run --extra test pytest`
"""

import hashlib
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
    "lab": ["-P", "-m", "loopring_lab", "lab"],  # -P: a file where the user stands is not a module
    "test": ["-m", "pytest"],
}
WHOLE_SUITE = ["-n", "2", "--dist", "loadfile"]  # on two cores; a part of it runs as pytest is called
# Annotations are quoted: an old Python must get as far as being told that it is too old.


def main(words: "list[str]") -> int:
    """Do the task that the first word names; return its exit code."""
    if not words or words[0] not in TASKS:
        print(__doc__, file=sys.stderr)
        if words and words[0] not in ("-h", "--help"):
            say(f"{words[0]!r} is none of {', '.join(TASKS)}")
        return 0 if words and words[0] in ("-h", "--help") else 2
    if not OLDEST <= sys.version_info < TOO_NEW:
        stop(wrong_python(words))
    task = words[0]
    set_up(task)
    if task == "test":
        os.chdir(str(ROOT))
    extra = words[1:] or (WHOLE_SUITE if task == "test" else [])
    return become([str(PYTHON), *TASKS[task], *extra], environment())


def set_up(extra: str) -> None:
    """Make VENV hold the locked packages of an extra; return at once where it does already."""
    ready = read_stamp()
    if "test" in ready:
        extra = "test"  # it holds all of lab, and switching back and forth would install each time
    if ready == [fingerprint(), extra] and PYTHON.exists():
        return
    if STAMP.exists():
        STAMP.unlink()  # an interrupted install must not look finished
    if VENV.exists() and not same_python():
        say("removing .venv: it was made by another Python, or never finished")
        shutil.rmtree(str(VENV))
    uv = shutil.which("uv")
    say(f"setting up .venv with {'uv' if uv else 'pip'} (the first time takes a minute or so) ...")
    start = time.monotonic()
    if uv:
        install_with_uv(uv, extra)
    else:
        install_with_pip(extra)
    STAMP.write_text(f"{fingerprint()} {extra}", encoding="utf-8")
    say(f"ready after {time.monotonic() - start:.0f} s")


def fingerprint() -> str:
    """Return a digest of all that decides what VENV must hold."""
    parts = [sys.version.encode(), str(ROOT).encode()]
    parts += [(ROOT / name).read_bytes() for name in ("pyproject.toml", "uv.lock")]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def read_stamp() -> "list[str]":
    """Return the fingerprint and the extra of the last finished install, or nothing."""
    return STAMP.read_text(encoding="utf-8").split() if STAMP.exists() else []


def install_with_uv(uv: str, extra: str) -> None:
    """Let uv make VENV as uv.lock says."""
    words = [uv, "sync", "--quiet", "--frozen", "--extra", extra, "--python", base_python()]
    if not works(words, env=dict(os.environ, UV_PROJECT_ENVIRONMENT=str(VENV))):
        stop("uv could not install the locked packages (see above). Mend that, or update uv, and try again.")


def install_with_pip(extra: str) -> None:
    """Make VENV and let pip install into it, held to the versions of uv.lock."""
    pip = venv_with_pip()
    held = VENV / "locked.txt"
    held.write_text("\n".join(constraints(read_lock())) + "\n", encoding="utf-8")
    words = ["install", "--quiet", "--constraint", str(held), "--editable", f".[{extra}]"]
    if not works(pip + words):
        stop("pip could not install the locked packages (see above). Mend that and try again.")


def read_lock() -> "dict[str, Any]":
    """Read uv.lock."""
    import tomllib

    return tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))


def constraints(lock: "dict[str, Any]") -> "list[str]":
    """Return a pip constraint for each locked package, with a marker where platforms differ."""
    return [constraint(package) for package in lock["package"] if "registry" in package["source"]]


def constraint(package: "dict[str, Any]") -> str:
    """Return the pip constraint of one locked package."""
    markers = " or ".join(f"({marker})" for marker in package.get("resolution-markers", []))
    return f"{package['name']}=={package['version']}" + (f" ; {markers}" if markers else "")


def venv_with_pip() -> "list[str]":
    """Make VENV unless it is there; return the command line of a pip that installs into it."""
    python = base_python()
    if not PYTHON.exists():
        # Debian and Ubuntu ship venv without ensurepip; then another pip must reach in
        bare = [] if works([python, "-m", "ensurepip", "--version"], quiet=True) else ["--without-pip"]
        if not works([python, "-m", "venv", *bare, str(VENV)]):
            stop(f"Python could not make {VENV} (see above). Mend that and try again.")
    pips = [[str(PYTHON), "-m", "pip"], [sys.executable, "-m", "pip", "--python", str(PYTHON)]]
    usable = [pip for pip in pips if works([*pip, "--version"], quiet=True)]
    if not usable:
        stop("no pip on this machine. Install python3-venv or python3-pip (or uv) and try again.")
    return usable[0]


def same_python() -> bool:
    """Tell whether VENV holds a working Python of the version that runs this."""
    words = [str(PYTHON), "-c", "import sys; print(sys.version)"]
    try:
        return subprocess.check_output(words, universal_newlines=True).strip() == sys.version
    except (OSError, subprocess.CalledProcessError):
        return False


def base_python() -> str:
    """Return the Python outside of any environment, to make environments with."""
    return getattr(sys, "_base_executable", None) or sys.executable


def environment() -> "dict[str, str]":
    """Return the variables of an activated VENV."""
    variables = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH")}
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    return dict(variables, PATH=path, VIRTUAL_ENV=str(VENV))


def become(words: "list[str]", variables: "dict[str, str]") -> int:
    """Run a command in place of this process, or as its child where the system cannot replace one."""
    if os.name == "posix":
        os.execve(words[0], words, variables)
    child = subprocess.Popen(words, env=variables)
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # the child got the same Ctrl-C and decides what it means
            continue


def works(words: "list[str]", quiet: bool = False, env: "dict[str, str] | None" = None) -> bool:
    """Run a command in ROOT; tell whether it succeeded."""
    nowhere = subprocess.DEVNULL if quiet else None
    return subprocess.call(words, cwd=str(ROOT), stdout=nowhere, stderr=nowhere, env=env) == 0


def wrong_python(words: "list[str]") -> str:
    """Say that this Python does not fit, and which one on this machine does."""
    names = [f"python3.{minor}" for minor in range(TOO_NEW[1] - 1, OLDEST[1] - 1, -1)]
    found = [name for name in names if shutil.which(name)]
    advice = f"run `{found[0]} run.py {' '.join(words)}`" if found else "install one of those and try again"
    return f"needs Python 3.11 to 3.14, this is {sys.version.split()[0]}; {advice}."


def say(text: str) -> None:
    """Tell the person at the terminal what goes on."""
    print(f"run.py: {text}", file=sys.stderr, flush=True)


def stop(text: str) -> NoReturn:
    """End with a message and exit code 1."""
    sys.exit(f"run.py: {text}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
