"""A power cut, simulated: a killed writer's folder is cut back to what was fsynced, or torn beyond it.

The writer's `os.fsync` notes what is durable: of a file its length, of a folder its names. Files of an archive
are written once or grow at their end, so a length says what a file held. deltalake itself syncs nothing.
"""

import itertools
import json
import os
import random
import shutil
import signal
import uuid
from pathlib import Path
from typing import Any


class Disk:
    """What of a folder would survive: notes in another folder on the same file system."""

    def __init__(self, root: Path, notes: Path) -> None:
        self.root, self.notes = root, notes

    def start(self) -> None:
        """Take everything that is there as durable."""
        shutil.rmtree(self.notes, ignore_errors=True)
        self.notes.mkdir(parents=True)
        for path in (self.root.parent, self.root, *self.root.rglob("*")):
            if path.exists():
                self.note(path)

    def watch(self, syncs: int) -> None:
        """Note what this process syncs from now on, and kill it before its sync of this number counts.

        The real sync is left out: a kill loses no memory.
        """
        left = itertools.count(syncs, -1)

        def fsync(descriptor: Any) -> None:
            if next(left) <= 1:
                os.kill(os.getpid(), signal.SIGKILL)
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            path = Path(f"/proc/self/fd/{number}").readlink()
            if path == self.root.parent or path.is_relative_to(self.root):
                self.note(path)

        os.fsync = fsync

    def note(self, path: Path) -> None:
        inode = path.stat().st_ino
        if path.is_dir():
            with os.scandir(path) as entries:
                durable: Any = {entry.name: entry.inode() for entry in entries}
        else:
            durable = path.stat().st_size
            if not (self.notes / f"{inode}.file").exists():
                os.link(path, self.notes / f"{inode}.file")  # also keeps the inode from being used again
        fresh = self.notes / uuid.uuid4().hex
        fresh.write_text(json.dumps(durable))
        fresh.replace(self.notes / f"{inode}.json")

    def cut_power(self, dice: random.Random) -> None:
        """Undo what was not synced: mostly all of it, at times a part."""
        self._cut_folder(self.root.parent, dice, only=self.root.name)

    def _durable(self, inode: int) -> Any:
        note = self.notes / f"{inode}.json"
        return json.loads(note.read_text()) if note.exists() else None

    def _cut_folder(self, folder: Path, dice: random.Random, only: str | None = None) -> None:
        names = self._durable(folder.stat().st_ino) or {}
        for path in list(folder.iterdir()):
            if only not in (None, path.name):
                continue
            inode = path.stat().st_ino
            if names.get(path.name) != inode and dice.random() < 0.6:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                continue
            if path.is_dir():
                self._cut_folder(path, dice)
            else:
                self._cut_file(path, self._durable(inode) or 0, dice)
        for name, inode in names.items():
            old, path = self.notes / f"{inode}.file", folder / name
            if old.exists() and not path.exists() and only is None:  # removed or replaced, but not durably
                shutil.copyfile(old, path)
                os.truncate(path, self._durable(inode))

    def _cut_file(self, path: Path, durable: int, dice: random.Random) -> None:
        size = path.stat().st_size
        if size > durable:
            kept = dice.choice([durable, durable, dice.randint(durable, size), size])
            os.truncate(path, kept)
            if dice.random() < 0.5:
                os.truncate(path, size)  # zeros where nothing was written
