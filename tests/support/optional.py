"""What is not always tested: what needs a package that is missing, and variants that are tested after the others."""

import os
import shutil

import pytest

EXTRAS = {"pyspark": "spark", "voila": "lab"}
EXTRAS |= dict.fromkeys(("grpc", "grpc_status", "zstandard"), "spark")
EXTRAS |= {"playwright": "browser", "polars": "test"}
EXTRAS |= dict.fromkeys(("sphinx", "myst_nb", "pydata_sphinx_theme"), "docs") | {
    "axe_playwright_python": "browser"
}


def package_or_skip(module: str):
    """Import a module; skip the test where it is not installed."""
    extra = EXTRAS.get(module.partition(".")[0], "test")
    return pytest.importorskip(
        module, reason=f"needs {module}: pip install -e '.[{extra}]'"
    )


def skip_without_java():
    if not (shutil.which("java") or "JAVA_HOME" in os.environ):
        pytest.skip(
            "needs Java 17 for Spark: install it (Debian: apt-get install default-jre-headless)"
        )


def thorough(*values, **named):
    """Return the values of a variant that is tested after the others: with -m thorough, as .ci/run does."""
    return pytest.param(*values, marks=pytest.mark.thorough, **named)


def often(chosen, cases):
    """Return the names of cases: those chosen, and the others as variants tested after the others."""
    assert {*chosen} <= {*cases}
    return [name if name in chosen else thorough(name) for name in cases]


def first_often(count, cases):
    """Return cases of one road through the code: the first few, and the others as variants tested after the others."""
    cases = list(cases)
    rest = [one if isinstance(one, tuple) else (one,) for one in cases[count:]]
    return [*cases[:count], *(thorough(*values) for values in rest)]
