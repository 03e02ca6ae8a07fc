"""Exact DataFrames from a layer-2 exchange relayer, for notebooks."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING
from typing import Any as _Any

from loopring_lab import amounts, errors, tables
from loopring_lab.amounts import show, to_float
from loopring_lab.client import Client
from loopring_lab.connection import connect
from loopring_lab.errors import LabError
from loopring_lab.tables import anomalies

if TYPE_CHECKING:
    from loopring_lab import engines, fees, figures, fills, keys, protocol, widgets
    from loopring_lab.archive import Archive
    from loopring_lab.keys import KeyUpdate, Receipt

__version__ = _version("loopring-lab")
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
    "show",
    "tables",
    "to_float",
    "widgets",
]


def __getattr__(name: str) -> _Any:
    """Load a public name when it is first used, where its module takes a while to load."""
    if name in ("engines", "fees", "figures", "fills", "keys", "protocol", "widgets"):
        return _import_module(f"{__name__}.{name}")
    if name in _ELSEWHERE:
        return getattr(_import_module(f"{__name__}.{_ELSEWHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
