"""A handler that outlives its unit: what it does later touches neither the lane nor the unit that runs there next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

from inbox.core.handler import Face, Handler
from inbox.core.records import Claim
from tests.integration.bench import NO_EVENT, Bench, add, made_tables, opened
from tests.pairs import Driver, Pair


@pytest.fixture
async def bench(pair: Pair, driver: Driver) -> AsyncIterator[Bench]:
    made_tables(pair.database_url)
    async with opened(pair.database_url, driver) as made:
        yield made


class Stuck:
    """Does not heed its cancellation; uses its connection once more when it is let."""

    def __init__(self, bench: Bench, account: str) -> None:
        self._account = account
        self._bench = bench
        self.is_waiting = asyncio.Event()
        self.let = asyncio.Event()
        self.late: BaseException | None = None

    async def __call__(self, _: object, connection: AsyncConnection) -> None:
        self.is_waiting.set()
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            await self.let.wait()
        try:
            await connection.execute(text("UPDATE account SET n = n + 1 WHERE name = :name"), {"name": self._account})
        except Exception as error:  # noqa: BLE001 - whatever it was is looked at
            self.late = error

    async def given_up(self) -> asyncio.Task[None]:
        """Start it, cancel it in vain, and roll its unit back, as the processor does."""
        unit = await self._bench.unit()
        assert await unit.claim(self._bench.record()) is Claim.NEW
        running = asyncio.create_task(unit.apply(Handler("bench.stuck", "t", Face.CONNECTION, self), NO_EVENT, None))
        await self.is_waiting.wait()
        running.cancel()
        await asyncio.wait({running}, timeout=0.05)
        assert not running.done()
        await unit.rollback()
        return running


async def test_a_handler_that_was_given_up_cannot_write_into_the_next_unit(bench: Bench) -> None:
    a, b = bench.open_accounts()
    stuck = Stuck(bench, a)
    running = await stuck.given_up()
    stuck.let.set()
    await asyncio.gather(running, return_exceptions=True)

    async def credit(_: object, session: AsyncSession) -> None:
        await add(session, b)

    ending = await bench.run(credit, accounts=(a, b))

    assert stuck.late is not None
    assert ending.error is None
    assert ending.there == (True, False, True)


async def test_a_handler_that_was_given_up_cannot_end_the_next_unit_by_coming_back(bench: Bench) -> None:
    a, b = bench.open_accounts()
    stuck = Stuck(bench, a)
    running = await stuck.given_up()

    async def credit(_: object, session: AsyncSession) -> None:
        waiting = asyncio.create_task(_sleep(session))
        await asyncio.sleep(0.1)  # until the server is at it
        stuck.let.set()
        await asyncio.gather(running, return_exceptions=True)
        await waiting
        await add(session, b)

    ending = await bench.run(credit, accounts=(a, b))

    assert stuck.late is not None
    assert ending.error is None
    assert ending.there == (True, False, True)


async def _sleep(session: AsyncSession) -> None:
    await session.execute(text("SELECT SLEEP(0.3)"))
