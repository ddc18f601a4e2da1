"""The engine over the real database: whatever happens, every lane comes back and no effect is half."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql import MySQL, MySQLStore
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.errors import Reject, TryAgain
from inbox.testing.faults import FaultProxy
from inbox.testing.memory import MemoryTransport
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair
from tests.unit.engine import delivery

SETTINGS = ConsumerSettings(
    concurrency=3,
    deadline=2,
    cancel_patience=2,
    shutdown_patience=5,
    retry=RetryPolicy(max_attempts=2, first_delay=0.01, max_delay=0.02, immediate=3),
)


class Fatal(BaseException): ...


class World:
    def __init__(self, rig: MySQLRig, url: str | None = None) -> None:
        self.rig = rig
        self.transport = MemoryTransport()
        self.inbox = Inbox(
            "billing",
            store=MySQL(url or rig.url, DatabaseSettings(lock_wait=1, connect_timeout=2)),
            transport=self.transport,
            settings=SETTINGS,
        )
        for kind, handler in {
            "apply": self.apply,
            "exit": self.exit,
            "fatal": self.fatal,
            "forget": self.forget_to_await,
            "reject": self.reject,
        }.items():
            self.inbox.handler(kind)(handler)

    @property
    def store(self) -> MySQLStore:
        return cast("MySQLStore", self.inbox._store)

    async def apply(self, event: Event, session: AsyncSession) -> None:
        await self.rig.effect(session, event.id)
        await self.rig.effect(session, event.id)

    async def exit(self, event: Event, session: AsyncSession) -> None:
        await self.rig.effect(session, event.id)
        raise SystemExit(3)

    async def fatal(self, event: Event, session: AsyncSession) -> None:
        await self.rig.effect(session, event.id)
        raise Fatal

    async def forget_to_await(self, event: Event, session: AsyncSession) -> Coroutine[Any, Any, None]:
        await self.rig.effect(session, event.id)
        return self.rig.effect(session, event.id)

    async def reject(self, event: Event, session: AsyncSession) -> None:
        await self.rig.effect(session, event.id)
        raise Reject(42)  # type: ignore[arg-type]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        started = asyncio.Event()
        run = asyncio.create_task(self.inbox.run(started=started.set))
        starting = asyncio.create_task(started.wait())
        await asyncio.wait({run, starting}, return_when=asyncio.FIRST_COMPLETED)
        try:
            yield
        finally:
            starting.cancel()
            self.inbox.stop()
            async with asyncio.timeout(20):
                await run

    async def wait_acknowledged(self, number: int) -> None:
        async with asyncio.timeout(30):
            await self.transport.wait_settled(lambda: len(self.transport.acknowledged) >= number)

    def all_lanes_are_free(self) -> bool:
        return self.store.lanes.free == self.store.lanes.size


@pytest.fixture
async def rig(pair: Pair, driver: Driver) -> MySQLRig:
    made = MySQLRig(pair, driver)
    await made.create()
    return made


async def test_odd_handlers_undo_their_units_and_give_their_lanes_back(rig: MySQLRig) -> None:
    world = World(rig)
    odd = ["exit", "fatal", "forget", "reject"]
    async with world.running():
        world.transport.publish(*(delivery(f"{kind}-{n}", kind=kind) for kind in odd for n in range(3)))
        world.transport.publish(*(delivery(f"apply-{n}", kind="apply") for n in range(9)))
        await world.wait_acknowledged(21)
        assert world.all_lanes_are_free()
    assert sorted(await rig.effects()) == sorted([f"apply-{n}" for n in range(9)] * 2)
    reasons = sorted(row.reason for row in await rig.quarantined())
    assert reasons == sorted(["handler-error"] * 6 + ["unit-misused"] * 3 + ["rejected"] * 3)


async def test_lanes_cancelled_anywhere_leave_no_unit_open_and_no_effect_half(rig: MySQLRig) -> None:
    world = World(rig)
    cancels = 0
    async with world.running():
        consumer = world.inbox._consumer
        assert consumer is not None
        for number in range(60):
            arrival = delivery(f"event-{number}", kind="apply", pristine=bool(number % 2))
            task = asyncio.create_task(consumer._processor.process(arrival))
            for _ in range(random.Random(number).randrange(40)):  # noqa: S311 - as many turns as it takes
                await asyncio.sleep(0)
            task.cancel()
            cancels += (await asyncio.gather(task, return_exceptions=True))[0].__class__ is asyncio.CancelledError
            assert world.all_lanes_are_free()
        world.transport.acknowledged.clear()
        world.transport.publish(*(delivery(f"event-{n}", kind="apply", pristine=False) for n in range(60)))
        await world.wait_acknowledged(60)
    assert cancels > 10, "some were cut"
    assert sorted(await rig.effects()) == sorted([f"event-{n}" for n in range(60)] * 2)
    assert not await rig.quarantined()
    assert not await rig.sql("SELECT attempt_key FROM inbox_attempt WHERE open_since IS NOT NULL OR crashed > 0")


async def test_a_database_that_falls_silent_is_outlived_at_every_step(rig: MySQLRig) -> None:
    async with FaultProxy(rig.pair.database.host, rig.pair.database.port) as proxy:
        world = World(rig, rig.through(proxy.port))
        async with world.running():
            for number in range(6):
                world.transport.publish(delivery(f"event-{number}", kind="apply", pristine=bool(number % 2)))
                await asyncio.sleep(0.002 * number)  # no fact to wait for: another moment each time
                proxy.stall()
                await asyncio.sleep(0.1)
                proxy.cut()
                proxy.resume()
                await world.wait_acknowledged(number + 1)
            assert world.all_lanes_are_free()
    assert sorted(await rig.effects()) == sorted([f"event-{n}" for n in range(6)] * 2)


async def test_a_worker_whose_database_is_away_stops_in_time_and_hands_everything_back(rig: MySQLRig) -> None:
    async with FaultProxy(rig.pair.database.host, rig.pair.database.port) as proxy:
        world = World(rig, rig.through(proxy.port))
        async with world.running():
            proxy.refuse()
            proxy.cut()
            world.transport.publish(*(delivery(f"event-{n}", kind="apply", pristine=False) for n in range(6)))
            consumer = world.inbox._consumer
            while consumer is None or not consumer._intake.is_paused:
                await asyncio.sleep(0.01)
        assert len(world.transport.released) == 6
        assert not world.transport.acknowledged
    assert not await rig.effects()


# ---------------------------------------------------------------- inbox.transaction
async def in_block(world: World, event: Event, do: Callable[[AsyncSession], Awaitable[None]]) -> None:
    async with world.inbox.transaction(event) as session:
        await do(session)


async def test_blocks_that_end_in_odd_ways_are_undone_and_leave_their_lanes(rig: MySQLRig) -> None:
    world = World(rig)
    async with world.inbox:
        event = await world.inbox.verify(delivery("event", kind="apply"))

        async def write(session: AsyncSession) -> None:
            await rig.effect(session, "half")

        async def write_and_hang(session: AsyncSession) -> None:
            await write(session)
            reached.set()
            await asyncio.Event().wait()

        async def write_and_die(session: AsyncSession) -> None:
            await write(session)
            raise Fatal

        async def nest(session: AsyncSession) -> None:
            with pytest.raises(TryAgain):
                await in_block(world, event, write)
            await rig.effect(session, "whole")

        reached = asyncio.Event()
        hanging = asyncio.create_task(in_block(world, event, write_and_hang))
        await reached.wait()
        hanging.cancel()
        await asyncio.wait({hanging})
        assert hanging.cancelled()
        assert world.all_lanes_are_free()
        with pytest.raises(Fatal):
            await in_block(world, event, write_and_die)
        assert world.all_lanes_are_free()
        await in_block(world, event, nest)
        assert world.all_lanes_are_free()
    assert await rig.effects() == ["whole"]


async def test_a_block_that_is_abandoned_is_undone_and_leaves_its_lane(rig: MySQLRig) -> None:
    world = World(rig)
    async with world.inbox:
        event = await world.inbox.verify(delivery("event", kind="apply"))

        async def abandon() -> None:
            manager = world.inbox.transaction(event)
            session = await manager.__aenter__()
            await rig.effect(session, "half")

        await asyncio.create_task(abandon())
        gc.collect()
        async with asyncio.timeout(10):
            while not world.all_lanes_are_free():
                await asyncio.sleep(0.01)
        await in_block(world, event, lambda session: rig.effect(session, "whole"))
    assert await rig.effects() == ["whole"]
