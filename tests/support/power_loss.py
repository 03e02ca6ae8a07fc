"""Power cuts: whatever was not synced to disk may be lost, block by block.

A library that is loaded before all others keeps a copy of each file as it was when it was last synced. A cut
mixes blocks of that copy with blocks of the file as it is, and shortens logs. Needs Linux and a C compiler.
"""

import os
import random
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

# DuckDB's blocks, after three headers. It rewrites a block of metadata in place, and a cut within such a write
# does damage that `verify` names: blocks are lost or kept as wholes here.
HEADERS = 3
HEADER = 4096
BLOCK = 262_144
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long calls = 0;

static void keep(int fd) {
    char link[64], path[4096], copy[8192], fresh[8200], buffer[65536];
    const char *root = getenv("POWER_ROOT"), *notes = getenv("POWER_NOTES");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (!root || !notes || length < 0) return;
    path[length] = 0;
    if (strncmp(path, root, strlen(root))) return;
    snprintf(copy, sizeof copy, "%s/%s", notes, strrchr(path, '/') + 1);
    snprintf(fresh, sizeof fresh, "%s.fresh", copy);
    FILE *from = fopen(link, "rb"), *to = fopen(fresh, "wb");
    size_t count;
    while ((count = fread(buffer, 1, sizeof buffer, from)) > 0) fwrite(buffer, 1, count, to);
    fclose(to);
    rename(fresh, copy);
    // Closing `from` would drop the locks that the process has on the file: it stays open.
}

static int synced(int fd, const char *name) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *last = getenv("POWER_SYNCS");
    if (last && ++calls >= atol(last)) kill(getpid(), SIGKILL);
    int found = real(fd);
    if (!found) keep(fd);
    return found;
}

int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }
"""


def compiled(folder: Path) -> Path | None:
    """Compile the library; None where there is no compiler."""
    if not shutil.which("cc"):
        return None
    (folder / "power.c").write_text(SOURCE)
    library = folder / "power.so"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", library, folder / "power.c", "-ldl"],
        check=True,
    )
    return library


def watched(library: Path, root: Path, notes: Path) -> dict[str, str]:
    """Return the environment of a process whose files in `root` are watched."""
    names = {
        "LD_PRELOAD": str(library),
        "POWER_ROOT": str(root.resolve()),
        "POWER_NOTES": str(notes),
    }
    return os.environ | names


def cut_power(root: Path, notes: Path, dice: random.Random):
    """Turn files into what a power cut may have left of them; what is left is durable from then on."""
    for file in root.iterdir():
        durable = notes / file.name
        _cut(file, durable.read_bytes() if durable.exists() else b"", dice)
    for durable in notes.iterdir():
        if not (root / durable.name).exists() and dice.random() < 0.5:
            shutil.copyfile(
                durable, root / durable.name
            )  # it was removed, and that was not durable
    shutil.rmtree(notes)
    shutil.copytree(root, notes)


def _cut(file, durable, dice):
    now = file.read_bytes()
    if file.name.endswith(".wal"):
        # A log only grows: more or less of its end is lost. It may also be the log before it was begun anew.
        if not now.startswith(durable):
            durable = dice.choice([b"", durable])
            now = durable or now
        file.write_bytes(
            now[
                : dice.choice(
                    [len(durable), dice.randint(len(durable), len(now)), len(now)]
                )
            ]
        )
        return
    length = dice.choice([len(durable), len(now)])
    # None, some, or all of what was written since has reached the disk.
    share = dice.choice([0.0, 0.5, 1.0])
    parts = []
    for start, stop in pairwise(_borders(length)):
        chosen = now if dice.random() < share else durable
        parts.append(chosen[start:stop].ljust(stop - start, b"\0"))
    file.write_bytes(b"".join(parts))


def _borders(length):
    """Return where the headers and blocks of a file begin, and where it ends."""
    starts = [
        *range(0, HEADERS * HEADER, HEADER),
        *range(HEADERS * HEADER, length, BLOCK),
    ]
    return [*(start for start in starts if start < length), length]
