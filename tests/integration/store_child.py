"""A process that applies one event, for tests that kill it: `python -m tests.integration.store_child URL`."""

import asyncio
import sys

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql import MySQL
from inbox.core.event import Event
from inbox.testing.conformance.store import event, handler, record


async def effect(_: Event, session: AsyncSession) -> None:
    await session.execute(text("INSERT INTO effects (label) VALUES ('child')"))


async def main(url: str) -> None:
    store = MySQL(url).for_consumer("billing", concurrency=1, deadline=30.0)
    await store.open()
    unit = await store.begin()
    await unit.claim(record())
    await unit.apply(handler(effect), event(), None)
    await unit.commit()


asyncio.run(main(sys.argv[1]))
