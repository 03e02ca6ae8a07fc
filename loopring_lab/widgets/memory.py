"""What the widgets of a cell were set to: running the cell again keeps it, until the kernel ends."""

from __future__ import annotations

from typing import Any

from loopring_lab.amounts.display import running_request

Place = tuple[str, str, int]

_choices: dict[Place, dict[str, Any]] = {}
_turns: dict[str, Any] = {}


def place_in_cell(widget: str) -> Place | None:
    """Return the cell being run, the widget's class, and how many of that class it made before; or None."""
    message = running_request() or {}
    cell = message.get("metadata", {}).get("cellId")
    if not cell:
        return None
    run = message["header"]["msg_id"]
    if _turns.get("run") != run:
        _turns.clear()
        _turns["run"] = run
    turn = _turns[widget] = _turns.get(widget, -1) + 1
    return cell, widget, turn


def recalled(place: Place | None) -> dict[str, Any]:
    """Return what a widget at this place was set to last."""
    return dict(_choices.get(place, {})) if place else {}


def remember(place: Place | None, choices: dict[str, Any]) -> None:
    """Keep what a widget is set to."""
    if place:
        _choices[place] = choices
