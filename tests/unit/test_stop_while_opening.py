"""A worker that is stopped before it consumes."""

import asyncio
from contextlib import suppress

from tests.unit.engine import Engine, apply


async def test_an_opening_that_swallows_its_cancellation_is_cancelled_again() -> None:
    engine = Engine()
    engine.handle(apply)
    opening = asyncio.Event()
    cancellations = 0

    async def stubborn(*, prefetch: int, delays: object = ()) -> None:
        nonlocal cancellations
        opening.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        cancellations += 1
        await asyncio.Event().wait()

    engine.transport.open = stubborn  # type: ignore[method-assign] # a library's habit, not the transport's
    running = asyncio.create_task(engine.inbox.run())
    await opening.wait()
    engine.inbox.stop()
    async with asyncio.timeout(10):
        await running
    assert cancellations == 1
    assert not engine.store.is_open
