"""Exact DataFrames from a layer-2 exchange relayer, for notebooks.

Examples in docstrings start from ``import loopring_lab as lab`` and ``client = lab.connect()``.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from loopring_lab import amounts, errors, tables
from loopring_lab.amounts import show, to_float
from loopring_lab.client import Client
from loopring_lab.connection import connect
from loopring_lab.errors import LabError
from loopring_lab.tables import anomalies

if TYPE_CHECKING:
    from loopring_lab import engines, fees, figures, fills, keys, protocol, rollup, widgets
    from loopring_lab.archive import Archive
    from loopring_lab.keys import KeyUpdate, Receipt

__version__ = version("loopring-lab")
_ELSEWHERE = {"Archive": "archive", "KeyUpdate": "keys", "Receipt": "keys"}

__all__ = [
    "Archive",
    "Client",
    "KeyUpdate",
    "LabError",
    "Receipt",
    "amounts",
    "anomalies",
    "connect",
    "engines",
    "errors",
    "fees",
    "figures",
    "fills",
    "keys",
    "protocol",
    "rollup",
    "show",
    "tables",
    "to_float",
    "widgets",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, where its module takes a while to load."""
    if name in ("engines", "fees", "figures", "fills", "keys", "protocol", "rollup", "widgets"):
        return import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        return getattr(import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
