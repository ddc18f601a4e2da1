"""For development: one worker, started anew whenever a Python file changes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inbox.core.facts import fact
from inbox.errors import ConfigurationError
from inbox.runtime.supervisor import describe_end, stop_with_parent
from inbox.runtime.worker import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from types import FrameType

log = logging.getLogger("inbox")

#: Milliseconds after which the worker is looked after, though no file changes.
_LOOK_EVERY: Final = 200
#: Seconds that a worker gets to stop which has not said how many it needs.
_PATIENCE: Final = 10.0
#: What a worker ends with; whatever else is the end of one that had not come so far, by the signal that asked it.
_CODES: Final = frozenset(map(int, Exit))
#: Names of changed files that a line gives; of more it gives the number.
_MOST_NAMED: Final = 3


def require_watchfiles() -> None:
    """Refuse to go on without the library that watches files.

    Raises:
        ConfigurationError: it is not installed; names the extra that brings it.
    """
    if find_spec("watchfiles") is None:
        raise ConfigurationError("--reload needs watchfiles: pip install 'idempotent-inbox[cli,reload]'")


class Reloader:
    """Keeps one process of `target` running, and starts a new one when a file has changed: a module that is imported
    cannot be taken back.

    The old process is asked to stop as any worker is, and has ended before the new one starts: what it had begun is
    finished by the code that began it. One that ends by itself, as a broken edit makes it, is not started again before
    the next change.

    Args:
        target: a module's function; called in the process with a function that takes the seconds which a stop may
            need, and `arguments`; returns an `Exit`, and has logged why it ended.
        arguments: must be picklable.
        folders: where files are watched, those in folders below included. Not what is in virtual environments,
            caches and the like (`watchfiles.PythonFilter`).
    """

    def __init__(self, target: Callable[..., int], arguments: tuple[object, ...], *, folders: Sequence[Path]) -> None:
        self._target = target
        self._arguments = arguments
        self._folders = _outermost(folders)
        self._process: SpawnProcess | None = None
        self._told: Connection | None = None
        self._has_ended = False
        self._patience = _PATIENCE
        self._stopping = False

    def run(self) -> Exit:
        """Run until SIGTERM or SIGINT.

        Returns:
            How the last process ended; `STOPPED` where none was running.
        """
        from watchfiles import PythonFilter, watch  # noqa: PLC0415 - an extra, looked for by `require_watchfiles`

        is_python = PythonFilter()
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        names = [str(folder) for folder in self._folders]
        log.info("watching %s", ", ".join(names), extra=fact("watching", folders=names))
        result = Exit.STOPPED
        is_first = True
        try:
            # It yields for the first time when it watches: no change is missed that comes after the first start.
            for changes in watch(
                *self._folders,
                watch_filter=None,  # or what it leaves out would not end its wait, and nobody looked after the worker
                rust_timeout=_LOOK_EVERY,
                yield_on_timeout=True,
                stop_event=self,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                self._collect()
                changed = sorted({path for change, path in changes if is_python(change, path)})
                if changed:
                    _tell(changed)
                    self._stop()
                if (changed or is_first) and not self._stopping:
                    self._start()
                is_first = False
        finally:
            result = self._stop()
            for number, handler in before.items():
                signal.signal(number, handler)
        return result

    def is_set(self) -> bool:
        """Whether it is to stop; what `watchfiles.watch` asks. Not an `Event`, which a signal handler may not set."""
        return self._stopping

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._told, telling = context.Pipe(duplex=False)
        self._has_ended = False
        self._patience = _PATIENCE
        self._process = context.Process(
            target=_run, args=(self._target, telling, self._arguments), name="inbox worker 1"
        )
        # Inherited: Ctrl-C reaches the whole group, and must not interrupt a worker that is still importing.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        telling.close()

    def _collect(self) -> None:
        """Take note of a process that has ended by itself."""
        process = self._process
        if process is None or process.exitcode is None:
            return
        self._hear()
        self._process = None
        if not self._has_ended:
            how = describe_end(process.exitcode)
            told = fact("worker-died", worker=1, how=how, delay=None)
            log.error("worker 1 died (%s); starting it again after the next change", how, extra=told)

    def _stop(self) -> Exit:
        """Stop the process, if there is one; how it ended."""
        process, self._process = self._process, None
        if process is None:
            return Exit.STOPPED
        process.terminate()
        self._hear()
        process.join(self._patience)
        if process.exitcode is None:
            log.error("%s did not stop in time and is killed", process.name, extra=fact("worker-killed", worker=1))
            process.kill()
            process.join()
            return Exit.STOPPED_HARD
        return Exit(process.exitcode) if process.exitcode in _CODES else Exit.STOPPED

    def _hear(self) -> None:
        """Take what the process has told so far."""
        with suppress(EOFError):
            while self._told is not None and self._told.poll():
                word = self._told.recv()
                self._has_ended = self._has_ended or word is None
                self._patience = self._patience if word is None else float(word)


def _run(target: Callable[..., int], telling: Connection, arguments: tuple[object, ...]) -> None:
    """Body of a process."""
    # A file of byte code is told from its source by size and whole seconds (PEP 552): after two quick edits it may be
    # that of the first.
    sys.dont_write_bytecode = True
    threading.Thread(target=stop_with_parent, name="reloader", daemon=True).start()

    def tell(word: float | None) -> None:
        with suppress(OSError):  # nobody listens any more: then the thread above ends us
            telling.send(word)

    code = target(tell, *arguments)
    tell(None)
    sys.exit(code)


def _tell(changed: list[str]) -> None:
    names = [_short(path) for path in changed]
    more = len(names) - _MOST_NAMED
    line = ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    log.info("changed: %s; starting again", line, extra=fact("reloading", files=names[:_MOST_NAMED], more=max(more, 0)))


def _short(path: str) -> str:
    short = os.path.relpath(path)
    return path if short.startswith("..") else short


def _outermost(folders: Sequence[Path]) -> list[Path]:
    """`folders` without those that lie in another of them: each change is to be seen once."""
    found = sorted({folder.resolve() for folder in folders})
    return [folder for folder in found if not any(other in folder.parents for other in found)]
