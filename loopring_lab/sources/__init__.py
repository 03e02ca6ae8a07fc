"""Sources of trades: a relayer, a recording of its answers, or blocks of the exchange on Ethereum."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from loopring_lab.sources.blocks import BlocksClient
    from loopring_lab.sources.client import Client
    from loopring_lab.sources.recording import Recording

__all__ = ["BlocksClient", "Client", "Recording"]

_HOMES = {"BlocksClient": "blocks", "Client": "client", "Recording": "recording"}


def __getattr__(name: str) -> Any:
    """Load a source when it is first used: blocks bring all of `rollup`."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
