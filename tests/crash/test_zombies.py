"""A worker is stopped (SIGSTOP) so long that its events are given to another, and then goes on as if nothing had been.

So does a machine that was suspended, or a container that was frozen. At some points it still holds the claim: until the
server ends its session, nobody may apply the event beside it, and when it wakes up, its commit finds no session.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.testing.crash import CrashWorker
from tests.crash import zombie_app
from tests.crash.world import World

POINTS = [pytest.param(point, id=str(point)) for point in crash_points()]
pytestmark = pytest.mark.timeout(180)


def is_stopped(worker: CrashWorker) -> bool:
    """By the kernel's word (proc(5), "state")."""
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def put_to_sleep(world: World, point: CrashPoint) -> CrashWorker:
    """A worker that has stopped itself, with events in hand."""
    world.factory, world.extra = zombie_app.make, (str(point),)
    zombie = world.worker()
    await asyncio.to_thread(zombie.wait_ready)
    await world.publish("zombie")
    async with asyncio.timeout(60):
        while not is_stopped(zombie):
            await asyncio.sleep(0.02)
    world.extra = ()
    return zombie


async def finish(world: World, zombie: CrashWorker, survivor: CrashWorker) -> None:
    """Both go on together for a while, and end in an orderly way."""
    await world.publish("later")
    await world.wait_copies_back()
    assert await asyncio.gather(*(asyncio.to_thread(worker.stop) for worker in (zombie, survivor))) == [0, 0]
    await world.judge()


@pytest.mark.drawn(1)
@pytest.mark.parametrize("point", POINTS)
async def test_it_wakes_when_all_is_done(world: World, point: CrashPoint) -> None:
    zombie = await put_to_sleep(world, point)
    survivor = world.worker()
    await asyncio.to_thread(survivor.wait_ready)
    await world.wait_drained()
    assert is_stopped(zombie)
    os.kill(zombie.pid, signal.SIGCONT)
    await finish(world, zombie, survivor)


@pytest.mark.drawn(0)
@pytest.mark.parametrize("point", POINTS)
async def test_it_wakes_when_the_first_of_its_events_has_come_to_another(world: World, point: CrashPoint) -> None:
    """So that both are at the same events at once."""
    zombie = await put_to_sleep(world, point)
    recorded = world.count("inbox") + world.count("inbox_quarantine") + world.count("run")
    survivor = world.worker()
    await asyncio.to_thread(survivor.wait_ready)
    async with asyncio.timeout(60):
        while not has_begun(world, recorded):
            await asyncio.sleep(0.005)
    os.kill(zombie.pid, signal.SIGCONT)
    await finish(world, zombie, survivor)


def has_begun(world: World, recorded: int) -> bool:
    """Whether the survivor has ended an event, or waits for one that the zombie holds."""
    waits = (
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT INTO %inbox%'"
    )
    done = world.count("inbox") + world.count("inbox_quarantine") + world.count("run")
    return done > recorded or int(world.query(waits)[0][0]) > 0
