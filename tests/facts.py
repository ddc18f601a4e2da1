"""Waiting for a fact: asked again and again until it holds, and given up loudly where it never does."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable


async def wait_until(fact: Callable[[], bool | Awaitable[bool]], patience: float = 90) -> None:
    """Return as soon as `fact` holds.

    Nothing is shown by the pause between two looks: it only leaves the processor to who brings the fact about.

    Raises:
        TimeoutError: it did not hold within `patience` seconds, which fails the test.
    """
    async with asyncio.timeout(patience):
        while True:
            held = fact()
            if await held if inspect.isawaitable(held) else held:
                return
            await asyncio.sleep(0.02)
