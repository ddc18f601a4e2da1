"""One worker process: signals, the run, and an exit code that says how it ended."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import select
import signal
import threading
import time
import traceback
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING

from inbox.core.facts import fact
from inbox.errors import InboxError, StopTimeout
from inbox.runtime.loops import EventLoop, run_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from inbox.app import Inbox

log = logging.getLogger("inbox")

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
#: Seconds to close connections, and to leave an event loop on which no unit runs any more.
_LEAVING = 5.0


class Exit(IntEnum):
    """How a worker ended."""

    STOPPED = 0
    FAILED = 1
    NOT_STARTED = 2
    STOPPED_HARD = 3


def run_worker(inbox: Inbox, *, started: Callable[[], None] | None = None, loop: EventLoop = EventLoop.AUTO) -> Exit:
    """Run `inbox` until SIGTERM or SIGINT, in this process and on an event loop of its own.

    A handler that blocks the event loop cannot be cancelled, nor can a thread that one has left behind:
    past the patience the process ends hard, with the handlers named that still run. What they did in
    their units is undone by the server. When consuming begins, what is loaded is set aside (`set_loaded_aside`).

    Args:
        inbox: what to run; it runs once.
        started: called when consuming begins.
        loop: on which kind of event loop.

    Returns:
        How it ended; whatever was wrong has been logged in one line.
    """
    has_started = threading.Event()

    def on_start() -> None:
        set_loaded_aside()
        has_started.set()
        if started is not None:
            started()

    try:
        _run(inbox, on_start, loop.found())
    except InboxError as error:
        if not has_started.is_set():
            told = fact("not-started", error=type(error).__name__)
            log.error("not started: %s", error, extra=told)  # noqa: TRY400 - one line, no traceback; it names the fix
            return Exit.NOT_STARTED
        log.error("%s", error, extra=fact("failed", error=type(error).__name__))  # noqa: TRY400 - as above
        return Exit.FAILED
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it has ended the run
        name, place = type(error).__name__, place_of(error)
        told = fact("defect", error=name, place=place)
        log.error("stopped by a defect: %s at %s", name, place, extra=told)  # noqa: TRY400 - its text could be a payload's
        return Exit.FAILED
    finally:
        gc.unfreeze()
    return Exit.STOPPED


def set_loaded_aside() -> None:
    """Have what is there by now, modules above all, left out of every later garbage collection.

    Python walks all of it again and again while many events are in hand, which costs an event of a batch a tenth of its
    time or more. What nobody refers to any more is freed as ever; only its cycles stay (Python manual, `gc.freeze`).
    """
    gc.collect()
    gc.freeze()


def _run(inbox: Inbox, started: Callable[[], None], kind: EventLoop) -> None:
    watchdog = Watchdog(lambda: _end_hard(StopTimeout(inbox.running_handlers)))
    loop: asyncio.AbstractEventLoop | None = None

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what `signal` calls it with
        watchdog.arm(inbox.stop_patience + _LEAVING)
        if loop is None:
            inbox.stop()
        else:
            loop.call_soon_threadsafe(inbox.stop)

    async def run() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        try:
            await inbox.run(started=started)
        except StopTimeout as error:
            _end_hard(error)  # leaving the loop would wait for the handlers that do not come back
        finally:
            loop = None
            # Also unasked: leaving the loop waits for the tasks and threads that handlers have left behind.
            watchdog.arm(_LEAVING)

    try:
        with _calling(stop):
            run_on(kind, run())
    finally:
        watchdog.close()


@contextmanager
def _calling(stop: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let the signals that stop a worker call `stop`.

    Not by `loop.add_signal_handler`, which would wait for a handler that blocks the loop.
    """
    before = {number: signal.signal(number, stop) for number in _STOP_SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)  # a supervisor blocks what would come too early
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Watchdog:
    """Calls `expired`, from a thread of its own, unless it is closed in time once it was armed.

    It is told over a pipe: a signal handler may write to one wherever it interrupts, even itself. A lock
    or a new thread could be what it has interrupted, and then neither would go on.

    Args:
        expired: ends the process.
    """

    def __init__(self, expired: Callable[[], None]) -> None:
        self._expired = expired
        self._ends_at = math.inf
        self._told, self._tell = os.pipe()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    def arm(self, seconds: float) -> None:
        """Allow so many seconds until `close`; a second call can only shorten them."""
        ends_at = time.monotonic() + seconds
        if ends_at < self._ends_at:
            self._ends_at = ends_at
            os.write(self._tell, b"!")

    def close(self) -> None:
        """The process ends by itself."""
        os.close(self._tell)
        self._thread.join()
        os.close(self._told)

    def _watch(self) -> None:
        while True:
            left = None if self._ends_at == math.inf else max(self._ends_at - time.monotonic(), 0)
            if not select.select([self._told], [], [], left)[0]:
                self._expired()
                return
            if not os.read(self._told, 1):
                return


def _end_hard(reason: StopTimeout) -> None:
    log.error("%s", reason, extra=fact("stopped-hard", handlers=reason.handlers))
    _exit_now(Exit.STOPPED_HARD)


def _exit_now(code: Exit) -> None:
    logging.shutdown()
    os._exit(code)


def place_of(error: BaseException) -> str:
    """File and line at which an error that nobody expected was raised, caught with its traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}"
