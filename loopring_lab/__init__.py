"""Exact DataFrames from a layer-2 exchange relayer, for notebooks.

Examples in docstrings start from ``import loopring_lab as lab`` and ``client = lab.connect()``.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopring_lab import (
        amounts,
        engine,
        errors,
        fees,
        figures,
        fills,
        keys,
        protocol,
        relayer,
        research,
        rollup,
        sources,
        tables,
        widgets,
    )
    from loopring_lab.amounts import show, to_float
    from loopring_lab.archive import Archive
    from loopring_lab.errors import LabError
    from loopring_lab.keys import KeyUpdate, Receipt
    from loopring_lab.sources.client import Client
    from loopring_lab.sources.connect import connect
    from loopring_lab.tables import anomalies

    __version__: str

_HOMES = {
    "Archive": "archive",
    "Client": "sources.client",
    "KeyUpdate": "keys",
    "LabError": "errors",
    "Receipt": "keys",
    "anomalies": "tables",
    "connect": "sources.connect",
    "show": "amounts",
    "to_float": "amounts",
}
"""The modules of the public names that are no modules themselves."""

__all__ = [
    "Archive",
    "Client",
    "KeyUpdate",
    "LabError",
    "Receipt",
    "amounts",
    "anomalies",
    "connect",
    "engine",
    "errors",
    "fees",
    "figures",
    "fills",
    "keys",
    "protocol",
    "relayer",
    "research",
    "rollup",
    "show",
    "sources",
    "tables",
    "to_float",
    "widgets",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used; to load them all takes a second."""
    if name == "__version__":
        return import_module("importlib.metadata").version("loopring-lab")
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if "IPython" in sys.modules:
    import_module(f"{__name__}.interactive.completion").hook()
