"""Exact DataFrames from a layer-2 exchange relayer, for notebooks."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING

from loopring_lab import amounts, errors, tables
from loopring_lab.amounts import show, to_float
from loopring_lab.client import Client
from loopring_lab.connection import connect
from loopring_lab.errors import LabError
from loopring_lab.tables import anomalies

if TYPE_CHECKING:
    from loopring_lab import figures, protocol

__version__ = _version("loopring-lab")

__all__ = [
    "Client",
    "LabError",
    "amounts",
    "anomalies",
    "connect",
    "errors",
    "figures",
    "protocol",
    "show",
    "tables",
    "to_float",
]


def __getattr__(name: str) -> _ModuleType:
    """Load a module of the public names when it is first used."""
    if name in ("figures", "protocol"):
        return _import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
