"""Run notebooks and write their outputs back, byte for byte the same whenever nothing changed.

    python tests/tools/refresh.py notebooks/*.ipynb

A notebook whose cell raises is left as it was. Cell tags and metadata stay.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh(path: Path):
    """Run one notebook in its own folder and rewrite it."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # how a stream is cut into messages is a matter of timing
        resources={"metadata": {"path": str(path.parent)}},
    )
    client.execute()
    steady(notebook)
    nbformat.validate(notebook)
    nbformat.write(notebook, path)


def steady(notebook: nbformat.NotebookNode):
    """Take out what differs from run to run: random ids, times, the machine's Python."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for place, cell in enumerate(notebook.cells):
        cell.id = f"c{place:02d}"
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if WIDGET in output.get(
                "data", {}
            ):  # a model's id is random; the text beside it stays
                output.data[WIDGET]["model_id"] = f"{place:032x}"


def quiet_environment(home: Path):
    """Pass kernels the environment variables that tests pass them (see the root conftest.py)."""
    for name in [n for n in os.environ if n.startswith("LOOPRING_")]:
        del os.environ[name]
    (home / "matplotlibrc").touch()
    os.environ.update(
        IPYTHONDIR=str(home / "ipython"),
        MATPLOTLIBRC=str(home / "matplotlibrc"),
        TQDM_DISABLE="1",
    )


def main(words: list[str]):
    """Refresh every notebook named."""
    if not words:
        sys.exit(__doc__)
    import matplotlib.font_manager  # noqa: F401  (builds its cache before a notebook does: it warns)

    with tempfile.TemporaryDirectory() as home:
        quiet_environment(Path(home))
        for word in words:
            print("running", word, flush=True)
            refresh(Path(word))


if __name__ == "__main__":
    main(sys.argv[1:])
