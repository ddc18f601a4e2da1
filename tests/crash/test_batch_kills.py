"""SIGKILL with batches on: before and after every command, and between the commit and each acknowledgement.

And the KILL of their sessions, which undoes all of a batch while its process goes on.
"""

import asyncio
import random

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.testing.crash import CrashWorker
from tests.crash import batch_app
from tests.crash.test_kill_points import recover
from tests.crash.test_session_kills import DRAWN, kill_sessions_at
from tests.crash.test_session_kills import POINTS as STEPS
from tests.crash.world import World

POINTS = [pytest.param(point, id=str(point)) for point in crash_points()]
BEFORE_ACK = CrashPoint.parse("before:acknowledge")
#: Events of one full batch.
ALL = 8
#: Rows that one insert has made have one time: it is the statement's (MySQL manual, "Date and Time Functions").
STAMPS = "SELECT COUNT(*), COUNT(DISTINCT processed_at) FROM inbox"


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


@pytest.mark.drawn(3)
@pytest.mark.parametrize("point", POINTS)
async def test_three_racing_workers_with_batches_are_killed(batched: World, point: CrashPoint) -> None:
    """The broker deals three of every event out to them in turn, so that their batches overlap."""
    batched.extra = ("3",)
    victims = [batched.worker(crash=point) for _ in range(3)]
    await asyncio.gather(*(asyncio.to_thread(victim.wait_ready) for victim in victims))
    await batched.publish("race", copies=3)
    await asyncio.to_thread(CrashWorker.wait_any_killed, victims)
    for victim in victims:
        victim.kill()
    assert [str(point)] in [victim.reached for victim in victims], "the point was really reached"
    await recover(batched)


@pytest.mark.rotates_with("a worker is killed between the commit of a batch and an acknowledgement")
@pytest.mark.parametrize("number", range(1, ALL + 1))
async def test_a_worker_is_killed_between_commit_and_acknowledgement(batched: World, number: int) -> None:
    """While one event is held, nothing but a full batch goes: one insert has claimed all that was committed."""
    batched.factory = batch_app.make_full
    victim = batched.worker(crash=BEFORE_ACK, hit=number)
    await asyncio.to_thread(victim.wait_ready)
    await batched.publish("held", ["hold"], copies=1)
    async with asyncio.timeout(60):
        while not batched.count("run"):
            await asyncio.sleep(0.01)
    await batched.publish("waiting", ["apply"] * ALL, copies=1)
    await asyncio.to_thread(victim.wait_killed)
    assert victim.reached == [str(BEFORE_ACK)]
    assert batched.query(STAMPS) == ((ALL, 1),), "all of them were committed together, and nothing else"
    assert batched.count("effect") == ALL
    await recover(batched)


@pytest.mark.timeout(600)
@pytest.mark.drawn(1)
@pytest.mark.parametrize("how", ["KILL CONNECTION", "KILL QUERY"])
async def test_sessions_of_batches_are_killed_at_every_step(
    batched: World, how: str, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("--rotate")
    points = STEPS if seed is None else random.Random(f"{seed} batch {how}").sample(STEPS, DRAWN)  # noqa: S311
    await kill_sessions_at(batched, how, points)
