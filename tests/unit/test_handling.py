"""The tasks in which handlers run, and how one is waited for."""

from __future__ import annotations

import asyncio

import pytest

from inbox.errors import DeadlineExceeded
from inbox.runtime.handling import HandlerTasks
from inbox.units.limits import TimeLimits


async def test_a_handler_that_ends_together_with_its_time_has_ended_well() -> None:
    ran: list[str] = []

    async def handler() -> None:
        ran.append("handler")

    tasks = HandlerTasks(TimeLimits())
    await tasks.run(handler(), name="handler", seconds=0, patience=30)
    assert ran == ["handler"]
    assert tasks.names == []


async def test_a_handler_is_cancelled_when_its_time_is_over_and_nothing_of_it_is_left() -> None:
    cancelled = asyncio.Event()

    async def handler() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    tasks = HandlerTasks(TimeLimits())
    with pytest.raises(DeadlineExceeded, match="passed the unit's deadline"):
        await tasks.run(handler(), name="handler", seconds=0.01, patience=30)
    assert cancelled.is_set()
    assert tasks.names == []


async def test_whoever_waits_for_a_handler_and_is_cancelled_takes_it_along() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handler() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.create_task(HandlerTasks(TimeLimits()).run(handler(), name="handler", seconds=30, patience=30))
    await started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cancelled.is_set()
