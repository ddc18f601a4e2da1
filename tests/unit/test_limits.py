"""Time limits that one timer keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from inbox.units.limits import TimeLimits


async def forever() -> None:
    await asyncio.Event().wait()


async def cancelled_inside(limited: Coroutine[Any, Any, None], inside: asyncio.Event) -> None:
    """Cancel it once it is inside; it must end by that."""
    task = asyncio.create_task(limited)
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_takes_too_long_is_cancelled_and_said_to_have() -> None:
    limits = TimeLimits()
    with pytest.raises(TimeoutError) as told, limits.within(0.01):
        await forever()
    assert isinstance(told.value.__cause__, asyncio.CancelledError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # and no cancellation is left over for what comes next


async def test_a_time_that_is_over_already_ends_what_waits_and_nothing_else() -> None:
    limits = TimeLimits()
    loop = asyncio.get_running_loop()
    with limits.until(loop.time() - 1):
        pass
    with pytest.raises(TimeoutError), limits.until(loop.time() - 1):
        await forever()


async def test_what_ends_in_time_is_left_alone_and_costs_no_further_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, limits, timers = asyncio.get_running_loop(), TimeLimits(), list[float]()
    call_at = loop.call_at

    def counted(when: float, *args: Any, **more: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *args, **more)

    with limits.within(30):
        await asyncio.sleep(0)
    monkeypatch.setattr(loop, "call_at", counted)
    for _ in range(100):
        with limits.within(30):
            await asyncio.sleep(0)
    assert timers == []


async def test_of_two_limits_each_ends_its_own_task_at_its_own_time() -> None:
    limits, ended = TimeLimits(), list[str]()

    async def one(name: str, seconds: float) -> None:
        try:
            with limits.within(seconds):
                await forever()
        except TimeoutError:
            ended.append(name)

    await asyncio.gather(one("late", 0.03), one("soon", 0.01), one("between", 0.02))
    assert ended == ["soon", "between", "late"]


async def test_the_timer_of_one_that_ended_is_used_for_the_next() -> None:
    limits = TimeLimits()
    with limits.within(0.01):
        pass
    began = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError), limits.within(0.03):
        await forever()
    assert asyncio.get_running_loop().time() - began >= 0.03


async def test_a_cancellation_from_elsewhere_stays_one() -> None:
    limits, inside = TimeLimits(), asyncio.Event()

    async def limited() -> None:
        with limits.within(30):
            inside.set()
            await forever()

    await cancelled_inside(limited(), inside)


async def test_a_cancellation_that_came_before_the_time_was_over_goes_on() -> None:
    limits, inside = TimeLimits(), asyncio.Event()

    async def limited() -> None:
        with limits.within(0.01):
            inside.set()
            try:
                await forever()
            except asyncio.CancelledError:
                await forever()  # slow to leave, so that the time ends too

    await cancelled_inside(limited(), inside)


async def test_an_error_after_the_time_is_that_error() -> None:
    async def limited() -> None:
        with TimeLimits().within(0.01):
            try:
                await forever()
            except asyncio.CancelledError:
                raise ValueError("mine") from None

    with pytest.raises(ValueError, match="mine"):
        await limited()


async def test_a_limit_around_another_one_tells_which_was_over() -> None:
    limits, over = TimeLimits(), list[str]()

    async def limited(outer: float, inner: float) -> None:
        try:
            with limits.within(outer):
                try:
                    with limits.within(inner):
                        await forever()
                except TimeoutError:
                    over.append("inner")
        except TimeoutError:
            over.append("outer")

    await limited(0.01, 30)
    await limited(30, 0.01)
    assert over == ["outer", "inner"]


def test_limits_outlive_their_event_loop() -> None:
    limits = TimeLimits()

    async def short() -> None:
        with limits.within(30):
            pass

    async def long() -> None:
        with pytest.raises(TimeoutError), limits.within(0.01):
            await forever()

    asyncio.run(short())
    asyncio.run(long())


async def test_a_limit_needs_a_task() -> None:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def outside() -> None:
        try:
            TimeLimits().until(0).__enter__()
        except RuntimeError as error:
            told.set_result(str(error))

    asyncio.get_running_loop().call_soon(outside)
    assert await told == "a time limit needs a task"
