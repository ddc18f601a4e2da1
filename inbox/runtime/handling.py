"""Running a handler in a task of ours, bounded in time.

Client libraries cancel their own callbacks when a connection goes; a unit of work must not die with
them half way, so no handler ever runs in one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from inbox.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Coroutine


class HandlerStuck(DeadlineExceeded):
    """The handler did not come back after it was cancelled.

    Attributes:
        task: the task that still runs it.
    """

    def __init__(self, what: str, task: asyncio.Task[None]) -> None:
        super().__init__(what)
        self.task = task


class HandlerCancelled(Exception):
    """The handler's own task was cancelled from inside, not by us."""


async def run_bounded(call: Coroutine[object, object, None], *, name: str, seconds: float, patience: float) -> None:
    """Await `call` in a task of its own.

    Args:
        call: the unit's `apply`.
        name: the handler's name, for messages.
        seconds: until it is cancelled.
        patience: seconds it then gets to come back.

    Raises:
        DeadlineExceeded: its time passed; what the handler did after that does not matter.
        HandlerStuck: it passed, and `patience` too.
        HandlerCancelled: the call ended as cancelled and nobody here had asked for it.
        Exception: whatever `call` raised.
    """
    task = asyncio.create_task(call, name=f"handler {name}")
    try:
        done, _ = await asyncio.wait({task}, timeout=max(seconds, 0))
    except asyncio.CancelledError:
        await _cancel(task, patience)
        raise
    if not done:
        if not await _cancel(task, patience):
            raise HandlerStuck(f"handler {name} did not come back after its deadline", task)
        raise DeadlineExceeded(f"handler {name} passed the unit's deadline")
    if task.cancelled():
        raise HandlerCancelled(name)
    task.result()


async def _cancel(task: asyncio.Task[None], patience: float) -> bool:
    """Cancel `task` and tell whether it came back; its outcome is retrieved and dropped."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=patience)
    if done and not task.cancelled():
        task.exception()
    return bool(done)
