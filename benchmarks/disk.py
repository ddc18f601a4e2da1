"""Where data lies, and what it costs to have it there for good."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: File systems that lose everything with the power.
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_WRITES: Final = 50


@dataclass(frozen=True)
class Place:
    """A folder on this machine.

    Attributes:
        folder: its path; None where it is not on this machine, or may not be looked at.
        filesystem: `ext4`, `tmpfs` and so on.
        sync_us: microseconds of a small write that is there for good (median of fifty).
    """

    folder: str | None
    filesystem: str = "unknown"
    sync_us: float | None = None

    @property
    def is_in_memory(self) -> bool:
        """Whether what is committed there is gone with the power."""
        return self.filesystem in IN_MEMORY


def place_of(folder: Path) -> Place:
    """The file system under `folder`, and how long it takes to sync."""
    if not folder.is_dir():
        return Place(None)
    return Place(str(folder), _filesystem_of(folder), _sync_us(folder))


def _filesystem_of(folder: Path) -> str:
    resolved = folder.resolve()
    best, kind = -1, "unknown"
    try:
        mounts = Path("/proc/self/mounts").read_text()
    except OSError:
        return kind
    for line in mounts.splitlines():
        _, point, found, *_ = line.split()
        where = Path(point.encode().decode("unicode_escape"))  # a space is written \040 (proc(5), fstab(5))
        if resolved.is_relative_to(where) and len(where.parts) >= best:
            best, kind = len(where.parts), found
    return kind


def _sync_us(folder: Path) -> float | None:
    seconds = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(_WRITES):
                begin = time.perf_counter()
                file.write(b"x" * 512)
                file.flush()
                os.fdatasync(file.fileno())
                seconds.append(time.perf_counter() - begin)
    except OSError:
        return None
    return round(1e6 * statistics.median(seconds))
