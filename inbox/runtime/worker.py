"""One worker process: signals, the run, and an exit code that says how it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from enum import IntEnum
from typing import TYPE_CHECKING

from inbox.errors import InboxError
from inbox.runtime.consumer import StopTimeout

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from inbox.app import Inbox

log = logging.getLogger("inbox")

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Exit(IntEnum):
    """How a worker ended."""

    STOPPED = 0
    FAILED = 1
    NOT_STARTED = 2
    STOPPED_HARD = 3


def run_worker(inbox: Inbox, *, started: Callable[[], None] | None = None) -> Exit:
    """Run `inbox` until SIGTERM or SIGINT, in this process and on an event loop of its own.

    A handler that blocks the event loop cannot be cancelled: past the shutdown's patience the
    process ends hard, with its name logged. What it did in its unit is undone by the server.

    Args:
        inbox: what to run; it runs once.
        started: called when consuming begins.

    Returns:
        How it ended; whatever was wrong has been logged in one line.
    """
    has_started = threading.Event()

    def on_start() -> None:
        has_started.set()
        if started is not None:
            started()

    try:
        asyncio.run(_run(inbox, on_start))
    except StopTimeout as error:
        log.error("%s", error)  # noqa: TRY400 - one line, no traceback
        _exit_now(Exit.STOPPED_HARD)
    except InboxError as error:
        if not has_started.is_set():
            log.error("not started: %s", error)  # noqa: TRY400 - as above, and it names the fix
            return Exit.NOT_STARTED
        log.error("%s", error)  # noqa: TRY400 - as above
        return Exit.FAILED
    return Exit.STOPPED


async def _run(inbox: Inbox, started: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    patience = inbox.settings.shutdown_patience + inbox.settings.cancel_patience + 5
    timers: list[threading.Timer] = []

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what `signal` calls it with
        # Not `loop.add_signal_handler`: it would wait for a handler that blocks the loop.
        timers.append(_exit_after(patience))
        loop.call_soon_threadsafe(inbox.stop)

    before = {number: signal.signal(number, on_signal) for number in _STOP_SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)  # a supervisor blocks what would come too early
    try:
        await inbox.run(started=started)
    except StopTimeout as error:
        # Leaving the loop would wait for the handlers that do not come back.
        log.error("%s", error)  # noqa: TRY400 - one line, no traceback
        _exit_now(Exit.STOPPED_HARD)
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_after(seconds: float) -> threading.Timer:
    """End the process hard unless it has ended by then, whatever its event loop does."""
    timer = threading.Timer(seconds, _exit_blocked)
    timer.daemon = True
    timer.start()
    return timer


def _exit_blocked() -> None:
    log.error("stopped hard: a handler blocks the event loop")
    _exit_now(Exit.STOPPED_HARD)


def _exit_now(code: Exit) -> None:
    logging.shutdown()
    os._exit(code)
