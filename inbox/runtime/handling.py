"""Running handlers in tasks of ours, bounded in time.

Client libraries cancel their own callbacks when a connection goes; a unit of work must not die with
them half way, so no handler ever runs in one.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import copy_context
from types import coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from inbox.core.facts import fact
from inbox.errors import Contended, DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from inbox.units.limits import TimeLimits

T = TypeVar("T")

log = logging.getLogger("inbox")

_STOPPING = "the worker is stopping"


class HandlerStuck(DeadlineExceeded):
    """The handler did not come back after it was cancelled.

    Attributes:
        task: the task that still runs it.
    """

    def __init__(self, what: str, task: asyncio.Task[None]) -> None:
        super().__init__(what)
        self.task = task


class HandlerQuit(Exception):
    """The handler left by what ends tasks or processes, such as `CancelledError` or `SystemExit`, unasked."""


class HandlerTasks:
    """The tasks in which the handlers of one consumer run. They are known here until they have ended.

    Args:
        limits: who keeps the time.
    """

    def __init__(self, limits: TimeLimits) -> None:
        self._limits = limits
        self._running: dict[asyncio.Task[None], _Call] = {}
        self._is_stopped = False

    @property
    def names(self) -> list[str]:
        """Names of the handlers that run, also of those that were given up."""
        return sorted(task.get_name() for task in tuple(self._running) if not task.done())

    async def run(self, call: Coroutine[object, object, None], *, name: str, seconds: float, patience: float) -> None:
        """Await `call` in a task of its own.

        Args:
            call: the unit's `apply`, one after the other of a batch, or a handler's `prepare`.
            name: the handler's name, for messages. Where `call` runs several, it renames its task.
            seconds: until it is cancelled.
            patience: seconds it then gets to come back.

        Raises:
            Contended: the handlers were stopped; it did not begin, or did not end.
            DeadlineExceeded: its time passed; what the handler did after that does not matter.
            HandlerStuck: it passed, and `patience` too.
            HandlerQuit: it was cancelled, and nobody here had asked for it, or it wanted to end the process.
            Exception: whatever else `call` raised.
        """
        if self._is_stopped:
            call.close()
            raise Contended(_STOPPING)
        running = self._start(call, name)
        task = running.task
        try:
            is_done = await running.ends(max(seconds, 0))
        except asyncio.CancelledError:
            await running.cancel(patience)
            raise
        name = task.get_name()
        if not is_done:
            if not await running.cancel(patience):
                told = fact("handler-stuck", handler=name)
                log.error(
                    "handler %s did not come back after its deadline; its slot is taken until it does", name, extra=told
                )
                raise HandlerStuck(f"handler {name} did not come back after its deadline", task)
            raise DeadlineExceeded(f"handler {name} passed the unit's deadline")
        if self._is_stopped and (task.cancelled() or task.exception() is not None):
            raise Contended(_STOPPING)  # whatever it made of the cancellation, that was not the event's fault
        if task.cancelled():
            raise HandlerQuit("the handler's task was cancelled from inside")
        task.result()

    def stop(self) -> None:
        """Cancel the handlers that run, and start none any more. What ends by itself all the same has ended well."""
        self._is_stopped = True
        for task in self._running:
            task.cancel()

    def _start(self, call: Coroutine[object, object, None], name: str) -> _Call:
        running = _Call(call, name, self._limits)
        self._running[running.task] = running
        running.task.add_done_callback(self._ended)
        return running

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task).wake()
        if not task.cancelled():
            # Retrieved here, or the event loop would print what a handler that was given up raises in the end.
            task.exception()


@coroutine
def in_own_context(call: Coroutine[object, Any, T]) -> Generator[object, Any, T]:
    """Await `call` with context variables of its own, as a task has them, at a tenth of the price of a task.

    Raises:
        Exception: whatever `call` raised.
    """
    context = copy_context()
    resume: Callable[[Any], object] = call.send
    given: Any = None
    while True:
        try:
            waited = context.run(resume, given)
        except StopIteration as end:
            result: T = end.value
            return result
        try:
            resume, given = call.send, (yield waited)
        except BaseException as error:  # noqa: BLE001 - a cancellation as well, which is for `call`
            resume, given = call.throw, error


class _Call:
    """One call in a task of its own, and who waits for its end.

    Args:
        call: what is awaited there.
        name: of the task.
        limits: who keeps the time.
    """

    __slots__ = ("_limits", "_waiter", "task")

    def __init__(self, call: Coroutine[object, object, None], name: str, limits: TimeLimits) -> None:
        self._limits = limits
        self._waiter: asyncio.Future[None] | None = None
        self.task = asyncio.create_task(self._kept_inside(call), name=name)

    async def ends(self, seconds: float) -> bool:
        """Whether it ends within so many seconds."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._limits.watch(self, loop.time() + seconds, self.wake)
        try:
            await self._waiter
        finally:
            self._limits.forget(self)
        return self.task.done()

    async def cancel(self, patience: float) -> bool:
        """Cancel it and tell whether it came back."""
        self.task.cancel()
        return self.task.done() or await self.ends(patience)

    def wake(self) -> None:
        """Let who waits look."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _kept_inside(self, call: Coroutine[object, object, None]) -> None:
        """Await `call`, and let nothing out that would tear the event loop down with every other unit in it."""
        try:
            await call
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise HandlerQuit(f"the handler raised {type(error).__name__}") from error
        finally:
            # The task ends with this very step. Its callbacks would tell so two rounds of the event loop later, and an
            # event alone would wait for both.
            self.wake()
