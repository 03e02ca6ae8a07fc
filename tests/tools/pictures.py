"""Draw the figures of the README: python tests/tools/pictures.py

Its pictures of widgets are those that tests/browser takes in JupyterLab.
"""

from pathlib import Path

import loopring_lab as lab

PICTURES = Path(__file__).parents[2] / "notebooks" / "pictures"


def drawn() -> dict[str, bytes]:
    """Return each picture's name and bytes."""
    client = lab.connect()
    figures = {
        "volume.png": lab.figures.volume(client.trades(10083)),
        "size_profile.png": lab.figures.size_profile(client.trades(11519)),
    }
    return {name: figure._repr_png_() for name, figure in figures.items()}  # type: ignore[attr-defined]


if __name__ == "__main__":
    for name, picture in drawn().items():
        (PICTURES / name).write_bytes(picture)
