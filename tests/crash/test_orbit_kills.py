"""SIGKILL before and after every command, over a leased subscription; and of the platform, under load."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.core.lifecycle import Command
from inbox.testing.crash import CrashWorker
from tests.crash.orbit_app import transport_to
from tests.crash.orbit_process import OrbitProcess
from tests.crash.orbit_world import OrbitWorld, make_orbit_world
from tests.crash.reached import ONE, THREE, note
from tests.pairs import Pair


def reachable() -> list[CrashPoint]:
    """The points that deliveries over this transport come to, by what it declares.

    One that keeps no copies is never asked to delay: what is not acknowledged comes again by itself.
    """
    transport = transport_to("ws://localhost/v1/events", "0" * 32, "nobody's")
    out = set() if transport.can_delay else {Command.DELAY}
    return [point for point in crash_points() if point.command not in out]


POINTS = [pytest.param(point, id=str(point)) for point in reachable()]
#: Between the commit and the acknowledgement.
COMMITTED = [pytest.param(CrashPoint.parse(name), id=name) for name in ("after:commit", "before:acknowledge")]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrbitProcess]:
    with OrbitProcess(tmp_path_factory.mktemp("orbit")) as process:
        yield process


@pytest.fixture
async def world(pair: Pair, platform: OrbitProcess) -> AsyncIterator[OrbitWorld]:
    with closing(await make_orbit_world(pair, platform)) as made:
        yield made


def test_every_command_but_one_is_reached() -> None:
    assert {point.command for point in crash_points()} - {point.command for point in reachable()} == {Command.DELAY}


@pytest.mark.rotates_with(ONE)
@pytest.mark.parametrize("point", POINTS)
async def test_one_worker_over_leases_is_killed(world: OrbitWorld, point: CrashPoint) -> None:
    victim = world.worker(crash=point)
    await asyncio.to_thread(victim.wait_ready)
    await world.publish()
    await asyncio.to_thread(victim.wait_killed)
    note(ONE, [victim])
    assert victim.reached == [str(point)], "the point was really reached"
    await recover(world)


@pytest.mark.parametrize("point", COMMITTED)
async def test_killed_between_commit_and_acknowledgement(world: OrbitWorld, point: CrashPoint) -> None:
    """The lease ends, generation + 1 comes, the row is hit, the effect is there once, the new proof is confirmed."""
    victim = world.worker(crash=point)
    await asyncio.to_thread(victim.wait_ready)
    (event_id,) = await world.publish(["apply"])
    await asyncio.to_thread(victim.wait_killed)
    rows = world.query("SELECT event_id, processed_at FROM inbox")
    assert [id_ for id_, _ in rows] == [event_id.encode()], "it was committed"
    before = world.platform.event(world.subscription, event_id)
    assert (before["state"], before["generation"], before["spent"]) == ("leased", "1", 1), "and not acknowledged"

    survivor = world.worker()
    await asyncio.to_thread(survivor.wait_ready)
    await world.wait_for(lambda: world.platform.connections(world.subscription) == 1)
    assert world.platform.event(world.subscription, event_id) == before, "the dead worker's lease goes on"
    await asyncio.to_thread(world.platform.end_leases)
    await world.wait_for(world.is_done)
    after = world.platform.event(world.subscription, event_id)
    # A proof is taken while its generation is the last one: it was that of the second.
    assert (after["state"], after["generation"], after["spent"]) == ("acknowledged", "2", 2)
    assert world.query("SELECT event_id, processed_at FROM inbox") == rows, "the row was hit, not written again"
    assert world.runs(event_id) == 1, "no handler began a second time"
    assert await asyncio.to_thread(survivor.stop) == 0
    world.judge()


@pytest.mark.rotates_with(THREE)
@pytest.mark.parametrize("point", POINTS)
async def test_three_workers_share_a_subscription_and_are_killed(world: OrbitWorld, point: CrashPoint) -> None:
    victims = [world.worker(crash=point) for _ in range(3)]
    await asyncio.gather(*(asyncio.to_thread(victim.wait_ready) for victim in victims))
    await world.publish()
    await world.publish()
    await asyncio.to_thread(CrashWorker.wait_any_killed, victims)
    for victim in victims:
        victim.kill()
    note(THREE, victims)
    assert [str(point)] in [victim.reached for victim in victims]
    await recover(world)


async def test_the_platform_is_killed_under_load_and_started_again(pair: Pair, tmp_path: Path) -> None:
    """Workers connect again and show what they had committed; nothing is lost, nothing is done twice."""
    with OrbitProcess(tmp_path) as platform, closing(await make_orbit_world(pair, platform)) as world:
        workers = [world.worker() for _ in range(2)]
        await asyncio.gather(*(asyncio.to_thread(worker.wait_ready) for worker in workers))
        for turn in range(1, 4):
            await world.publish(["apply"] * 20 + ["flaky", "lose_commit"])
            # Wherever that meets it: in the middle of a hand-out, or of an acknowledgement.
            await world.wait_for(partial(has_effects, world, 20 * turn - 12))
            platform.kill()
            platform.start()
        await world.wait_for(world.is_done, ends_leases=True)
        assert [await asyncio.to_thread(worker.stop) for worker in workers] == [0, 0]
        world.judge()


def has_effects(world: OrbitWorld, count: int) -> bool:
    return world.count("effect") >= count


async def recover(world: OrbitWorld) -> None:
    survivor = world.worker()
    await asyncio.to_thread(survivor.wait_ready)
    await world.wait_for(world.is_done, ends_leases=True)
    assert await asyncio.to_thread(survivor.stop) == 0
    world.judge()
