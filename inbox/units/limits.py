"""Time limits for what is done several times for each event: one timer keeps them all."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType

__all__ = ["TimeLimit", "TimeLimits"]


class TimeLimits:
    """Ends what takes too long.

    `asyncio.timeout` makes a timer for each use and cancels it, which costs as much as a good part of a step. The timer
    here stays where it is when what it was set for ends in time, and looks, when it fires, at what is under way then.
    May be used on one event loop after the other.
    """

    def __init__(self) -> None:
        self._watched: dict[Hashable, tuple[float, Callable[[], object]]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = math.inf

    def until(self, ends_at: float) -> TimeLimit:
        """A limit for a block of the calling task, as `asyncio.timeout_at` is.

        Args:
            ends_at: when it is over, in seconds of the event loop's clock.
        """
        return TimeLimit(self, ends_at)

    def within(self, seconds: float) -> TimeLimit:
        """A limit for a block of the calling task, as `asyncio.timeout` is."""
        return TimeLimit(self, asyncio.get_running_loop().time() + seconds)

    def watch(self, what: Hashable, ends_at: float, end: Callable[[], object]) -> None:
        """Call `end` once, at `ends_at` of the event loop's clock, unless `forget` comes first.

        Args:
            what: under which it is known here, once at a time.
            ends_at: in seconds.
            end: must not raise.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # what the one before was to look at has ended with it
            self._loop, self._timer, self._fires_at = loop, None, math.inf
        self._watched[what] = (ends_at, end)
        if ends_at < self._fires_at:
            self._set(loop, ends_at)

    def forget(self, what: Hashable) -> None:
        """It has ended. May be called twice."""
        self._watched.pop(what, None)

    def _set(self, loop: asyncio.AbstractEventLoop, fires_at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._fires_at = loop.call_at(fires_at, self._look, loop), fires_at

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        # A loop fires early by as much as its clock is coarse: what is due at the timer's own time is due now.
        now = max(loop.time(), self._fires_at)
        self._timer, self._fires_at = None, math.inf
        over = [(what, end) for what, (ends_at, end) in self._watched.items() if ends_at <= now]
        for what, end in over:
            del self._watched[what]
            end()
        if self._watched:
            self._set(loop, min(ends_at for ends_at, _ in self._watched.values()))


class TimeLimit:
    """Cancels the task that is in its block when the time is over, and makes a `TimeoutError` of that cancellation.

    Made by `TimeLimits`. A cancellation that came from elsewhere stays one (as in `asyncio.timeout`, by the counts of
    `asyncio.Task.uncancel`).

    Args:
        limits: who keeps the time.
        ends_at: when it is over, in seconds of the event loop's clock.
    """

    __slots__ = ("_cancelled_before", "_ends_at", "_is_over", "_limits", "_task")

    def __init__(self, limits: TimeLimits, ends_at: float) -> None:
        self._limits = limits
        self._ends_at = ends_at
        self._is_over = False
        self._task: asyncio.Task[object] | None = None
        self._cancelled_before = 0

    def __enter__(self) -> Self:
        """Begin.

        Raises:
            RuntimeError: outside of a task there is nothing to cancel.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a time limit needs a task")
        self._task, self._cancelled_before = task, task.cancelling()
        self._limits.watch(self, self._ends_at, self._end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._is_over:
            self._limits.forget(self)
            return
        assert self._task is not None  # noqa: S101 - it was entered
        if self._task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _end(self) -> None:
        assert self._task is not None  # noqa: S101 - it was entered
        self._is_over = True
        self._task.cancel()
