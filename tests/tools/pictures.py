"""Draw the figures of the README: python tests/tools/pictures.py

Its pictures of widgets are those that tests/browser takes in JupyterLab.
"""

import tempfile
from pathlib import Path

import pandas as pd

import loopring_lab as lab

PICTURES = Path(__file__).parents[2] / "notebooks" / "pictures"


def drawn() -> dict[str, bytes]:
    """Return each picture's name and bytes."""
    client = lab.connect()
    trades = pd.concat([client.trades(account) for account in (10083, 11519, 58344)])
    with tempfile.TemporaryDirectory() as folder:
        store = lab.rollup.Store(folder)
        store.sync(to_block=11_221_814, progress=False)
        balances = store.blocks().balances(1, store.tokens())
    figures = {
        "pool_balance.png": lab.figures.pool_balance(balances),
        "volume.png": lab.figures.volume(client.trades(10083)),
        "venue_differences.png": lab.figures.venue_differences(trades, prices=client.outside_prices(trades)),
    }
    return {name: figure._repr_png_() for name, figure in figures.items()}  # type: ignore[attr-defined]


if __name__ == "__main__":
    for name, picture in drawn().items():
        (PICTURES / name).write_bytes(picture)
