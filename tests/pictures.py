"""Draw the pictures of the README: python tests/pictures.py"""

from pathlib import Path

import loopring_lab as lab

PICTURES = Path(__file__).parents[1] / "notebooks" / "pictures"


def drawn() -> dict[str, bytes]:
    """Give each picture's name and bytes."""
    figure = lab.figures.volume(lab.connect().trades(10083))
    return {"volume.png": figure._repr_png_()}  # type: ignore[attr-defined]


if __name__ == "__main__":
    for name, picture in drawn().items():
        (PICTURES / name).write_bytes(picture)
