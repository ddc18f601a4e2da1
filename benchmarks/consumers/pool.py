"""Connections that are there before the clock starts."""

from __future__ import annotations

from contextlib import AsyncExitStack

from sqlalchemy.ext.asyncio import AsyncEngine


async def fill(engine: AsyncEngine, connections: int) -> None:
    """Open so many connections of the engine's pool, which opens none before it is asked."""
    async with AsyncExitStack() as stack:
        for _ in range(connections):
            await stack.enter_async_context(engine.connect())
