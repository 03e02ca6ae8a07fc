"""Recordings: answers of a relayer saved as files."""

import json
from pathlib import Path
from typing import Any


def save(folder: Path, answers: dict[str, Any]) -> Path:
    """Save answers, or bytes in their place, by the names of their files without `.json`."""
    for name, answer in answers.items():
        file = folder / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        is_written = isinstance(answer, bytes)
        file.write_bytes(answer if is_written else json.dumps(answer).encode())
    return folder
