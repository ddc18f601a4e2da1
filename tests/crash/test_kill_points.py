"""SIGKILL before and after every command: one worker, and three racing ones."""

import asyncio

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.testing.crash import CrashWorker
from tests.crash.reached import ONE, THREE, note
from tests.crash.world import World

POINTS = [pytest.param(point, id=str(point)) for point in crash_points()]


@pytest.mark.rotates_with(ONE)
@pytest.mark.parametrize("point", POINTS)
async def test_one_worker_is_killed(world: World, point: CrashPoint) -> None:
    victim = world.worker(crash=point)
    await asyncio.to_thread(victim.wait_ready)
    await world.publish("one")
    await asyncio.to_thread(victim.wait_killed)
    note(ONE, [victim])
    assert victim.reached == [str(point)], "the point was really reached"
    await recover(world)


@pytest.mark.rotates_with(THREE)
@pytest.mark.parametrize("point", POINTS)
async def test_three_racing_workers_are_killed(world: World, point: CrashPoint) -> None:
    """Each dies where it first reaches the point, and what one had in hand goes to another that may die of it too."""
    victims = [world.worker(crash=point) for _ in range(3)]
    await asyncio.gather(*(asyncio.to_thread(victim.wait_ready) for victim in victims))
    await world.publish("race", copies=3)
    await asyncio.to_thread(CrashWorker.wait_any_killed, victims)
    for victim in victims:
        victim.kill()
    note(THREE, victims)
    assert [str(point)] in [victim.reached for victim in victims]
    await recover(world)


async def recover(world: World) -> None:
    survivor = world.worker()
    await asyncio.to_thread(survivor.wait_ready)
    await world.wait_copies_back()
    assert await asyncio.to_thread(survivor.stop) == 0
    await world.judge()
