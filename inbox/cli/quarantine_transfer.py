"""Carrying entries of the quarantine to a file and back."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from inbox.cli.quarantine_file import LineRefused, read_line, write_line
from inbox.core.quarantine import Selection, portions
from inbox.errors import QuarantineFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from inbox.core.quarantine import QuarantineCursor
    from inbox.ports import QuarantineDesk

#: Entries of one page, and octets of bodies that are held in memory.
_PAGE: Final = 200
_OCTETS: Final = 8 << 20
#: Wrong lines that are told; more say nothing new.
_MOST_PROBLEMS: Final = 20


# ------------------------------------------------------------------ to a file
async def export_to(
    path: Path | None, consumer: str, desk: QuarantineDesk, selection: Selection, advance: Callable[[int], None]
) -> tuple[int, int]:
    """Write what is selected, the oldest first.

    Args:
        path: where to; None is standard output.
        consumer: whose entries they are.
        desk: where they are.
        selection: which.
        advance: told how many more are done.

    Returns:
        How many were written, and how many could not be read.

    Raises:
        OSError: the file cannot be written.
        Contended, StoreUnavailable: the database did not answer; a file that was named is not there then.
    """
    written = missed = 0
    after: QuarantineCursor | None = None
    with _written(path) as file:
        while page := await desk.list(selection, after=after, limit=_PAGE):
            for part in portions(page, _PAGE, _OCTETS):
                found = await desk.get([entry.digest for entry in part])
                for whole in found:
                    file.write(write_line(consumer, whole))
                written += len(found)
                missed += len(part) - len(found)
                advance(len(part))
            after = page[-1].cursor
    return written, missed


@contextmanager
def _written(path: Path | None) -> Iterator[IO[str]]:
    """A file that is there when it is complete, and that only its owner may read: it holds payloads."""
    if path is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            yield file
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


# ------------------------------------------------------------------ from a file
@dataclass(frozen=True, slots=True)
class Source:
    """A file whose lines were all read once.

    Attributes:
        lines: how many entries it has.
        problems: what is wrong with it, a sentence a line; empty where it can be imported.
    """

    _file: IO[bytes]
    lines: int
    problems: Sequence[str]

    async def put_back(
        self, desk: QuarantineDesk, advance: Callable[[int], None], *, dry_run: bool
    ) -> tuple[int, str | None]:
        """Put back what is not there.

        Args:
            desk: where to.
            advance: told how many more lines are done.
            dry_run: only count.

        Returns:
            How many were put back, or would be, and why not all were.

        Raises:
            Contended, StoreUnavailable: the database did not answer; what was put back before is there.
        """
        restored = 0
        self._file.seek(0)
        try:
            for line in self._file:
                if line.strip():
                    # One by one: where there is no room for the next, it is known how many there are.
                    restored += await desk.restore([read_line(line).whole], dry_run=dry_run)
                    advance(1)
        except QuarantineFull as error:
            return restored, str(error)
        except LineRefused:
            return restored, "the file was changed while it was read"
        return restored, None


@contextmanager
def import_from(name: str) -> Iterator[Source]:
    """The file of this name, checked line by line; standard input for `-`, of which a copy is kept meanwhile.

    Raises:
        OSError: it cannot be read.
    """
    with _rereadable(name) as file:
        lines = 0
        problems: list[str] = []
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                read_line(line)
                lines += 1
            except LineRefused as refused:
                problems.append(f"line {number}: {refused.why}")
        more = len(problems) - _MOST_PROBLEMS
        told = [*islice(problems, _MOST_PROBLEMS), *([f"and {more:,} more lines"] if more > 0 else [])]
        yield Source(file, lines, told)


@contextmanager
def _rereadable(name: str) -> Iterator[IO[bytes]]:
    if name != "-":
        with Path(name).open("rb") as file:
            yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.seek(0)
        yield copy
