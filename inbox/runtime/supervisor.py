"""Several worker processes under one: started by spawn, restarted when they die, stopped together."""

from __future__ import annotations

import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inbox.core.facts import fact
from inbox.runtime.worker import Exit

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from types import FrameType

log = logging.getLogger("inbox")

#: Ends that a restart would only repeat.
_FINAL = frozenset({Exit.STOPPED, Exit.NOT_STARTED, Exit.FAILED})

#: What a process tells the supervisor.
_CONSUMING = b"consuming"
_ENDED = b"ended"


@dataclass(slots=True)
class _Slot:
    number: int
    process: SpawnProcess | None = None
    told: Connection | None = None
    has_ended: bool = False
    started_at: float = 0.0
    restart_at: float = 0.0
    deaths: int = field(default=0)


class Supervisor:
    """Keeps `count` processes of `target` running.

    Spawned, never forked: a fork would share the parent's sockets and threads. The first one has to
    consume before the others are started, so that what is wrong with the configuration is said once.

    Args:
        target: a module's function; called in each process with a function that says that it
            consumes, and `arguments`; returns an `Exit`.
        arguments: must be picklable.
        count: how many.
        patience: seconds the processes get to stop before they are killed.
        max_delay: seconds; the pause before a restart doubles from 0.5 up to here.
    """

    def __init__(
        self,
        target: Callable[..., int],
        arguments: tuple[object, ...],
        *,
        count: int,
        patience: float,
        max_delay: float = 30.0,
    ) -> None:
        self._target = target
        self._arguments = arguments
        self._slots = [_Slot(number) for number in range(1, count + 1)]
        self._patience = patience
        self._max_delay = max_delay
        self._stopping = False
        self._is_proven = False
        self._result = Exit.STOPPED

    def run(self) -> Exit:
        """Run until SIGTERM or SIGINT, or until a worker ends in a way a restart would repeat.

        Returns:
            The worst end of any worker.
        """
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            while not self._stopping:
                self._start_due()
                self._wait()
                self._collect()
        finally:
            self._stop_all()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._result

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _start_due(self) -> None:
        now = time.monotonic()
        for slot in self._slots if self._is_proven else self._slots[:1]:
            if slot.process is None and slot.restart_at <= now:
                self._start(slot)
                slot.started_at = now

    def _start(self, slot: _Slot) -> None:
        context = multiprocessing.get_context("spawn")
        slot.told, telling = context.Pipe(duplex=False)
        slot.has_ended = False
        slot.process = context.Process(
            target=_run, args=(self._target, telling, self._arguments), name=f"inbox worker {slot.number}"
        )
        # Inherited: Ctrl-C reaches the whole group, and must not interrupt a worker that is still importing.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            slot.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        telling.close()

    def _wait(self) -> None:
        """Sleep until a process ends or consumes, a restart is due, or a signal comes (seen within half a second)."""
        sentinels = [slot.process.sentinel for slot in self._slots if slot.process is not None]
        telling = [slot.told for slot in self._slots if slot.told is not None]
        multiprocessing.connection.wait([*sentinels, *telling], timeout=0.5)
        for slot in self._slots:
            self._hear(slot)

    def _hear(self, slot: _Slot) -> None:
        """Take what a process has told so far: a pipe keeps it beyond the end of the process."""
        while slot.told is not None and slot.told.poll():
            word = _word(slot.told)
            self._is_proven = self._is_proven or word == _CONSUMING
            slot.has_ended = slot.has_ended or word == _ENDED
            if not word:
                slot.told.close()
                slot.told = None

    def _collect(self) -> None:
        for slot in self._slots:
            if slot.process is not None and slot.process.exitcode is not None:
                self._hear(slot)
                code, slot.process = slot.process.exitcode, None
                self._ended(slot, code)

    def _ended(self, slot: _Slot, code: int) -> None:
        # A handler that calls `os._exit` gives the process any code it likes; it is a death all the same.
        if slot.has_ended and code in _FINAL:
            self._result = max(self._result, Exit(code))
            self._stopping = True
            return
        lived = time.monotonic() - slot.started_at
        slot.deaths = 1 if lived > self._max_delay else slot.deaths + 1
        delay = min(self._max_delay, 0.5 * 2.0 ** min(slot.deaths - 1, 16))
        slot.restart_at = time.monotonic() + delay
        how = describe_end(code)
        told = fact("worker-died", worker=slot.number, how=how, delay=delay)
        log.error("worker %d died (%s); starting it again in %.1f s", slot.number, how, delay, extra=told)

    def _stop_all(self) -> None:
        running = [(slot.number, slot.process) for slot in self._slots if slot.process is not None]
        for _, process in running:
            process.terminate()
        deadline = time.monotonic() + self._patience
        for number, process in running:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.exitcode is None:
                told = fact("worker-killed", worker=number)
                log.error("%s did not stop in time and is killed", process.name, extra=told)
                process.kill()
                process.join()
                self._result = Exit.STOPPED_HARD
            elif process.exitcode in (Exit.STOPPED_HARD, Exit.FAILED, Exit.NOT_STARTED):
                self._result = max(self._result, Exit(process.exitcode))


def _run(target: Callable[..., int], telling: Connection, arguments: tuple[object, ...]) -> None:
    """Body of a process."""
    threading.Thread(target=stop_with_parent, name="supervisor", daemon=True).start()

    def tell(word: bytes) -> None:
        with suppress(OSError):  # nobody listens any more: then the thread above ends us
            telling.send_bytes(word)

    code = target(lambda: tell(_CONSUMING), *arguments)
    tell(_ENDED)
    sys.exit(code)


def stop_with_parent() -> None:
    """Stop in an orderly way when the process that started this one has died: nobody else would ever stop it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _word(told: Connection) -> bytes:
    """What was told next; empty at the end of the process."""
    try:
        return told.recv_bytes()
    except EOFError:
        return b""


def describe_end(code: int) -> str:
    """How a process ended, for people; `code` is what multiprocessing has as its exit code."""
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
