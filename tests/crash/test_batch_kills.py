"""SIGKILL with batches on: before and after every command, and between the commit and each acknowledgement."""

import asyncio

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from tests.crash import batch_app
from tests.crash.test_kill_points import recover
from tests.crash.world import World

POINTS = [pytest.param(point, id=str(point)) for point in crash_points()]
BEFORE_ACK = CrashPoint.parse("before:acknowledge")


@pytest.fixture
def batched(world: World) -> World:
    world.factory = batch_app.make
    return world


@pytest.mark.rotates_with("one worker with batches is killed")
@pytest.mark.parametrize("point", POINTS)
async def test_one_worker_with_batches_is_killed(batched: World, point: CrashPoint) -> None:
    victim = batched.worker(crash=point)
    await asyncio.to_thread(victim.wait_ready)
    await batched.publish("one")
    await asyncio.to_thread(victim.wait_killed)
    assert victim.reached == [str(point)], "the point was really reached"
    await recover(batched)


@pytest.mark.rotates_with("a worker is killed between the commit of a batch and an acknowledgement")
@pytest.mark.parametrize("number", range(1, 9))
async def test_a_worker_is_killed_between_commit_and_acknowledgement(batched: World, number: int) -> None:
    """Published before the worker begins, so that the first lanes find all of it waiting."""
    first = batched.worker()
    await asyncio.to_thread(first.wait_ready)
    assert await asyncio.to_thread(first.stop) == 0
    await batched.publish("waiting", ["apply"] * 8, copies=1)
    victim = batched.worker(crash=BEFORE_ACK, hit=number)
    await asyncio.to_thread(victim.wait_killed)
    assert victim.reached == [str(BEFORE_ACK)]
    assert batched.count("inbox") >= number, "it was committed before"
    await recover(batched)
