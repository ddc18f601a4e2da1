"""Three workers share a subscription, and one is stopped (SIGSTOP) past its lease and goes on afterwards (SIGCONT)."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from inbox.testing.crash import CrashWorker
from tests.crash.orbit_process import OrbitProcess
from tests.crash.orbit_world import OrbitWorld, make_orbit_world
from tests.pairs import Pair

#: Where it holds nothing that others wait for: they finish its events while it sleeps.
FREE = ("before:decode", "after:prepare", "before:acknowledge", "after:acknowledge")
#: Where its unit holds the row: others wait for it, in vain, until it goes on.
HOLDING = ("after:claim", "before:apply", "before:commit")
#: Seconds of a unit, so that the database ends the session of who is silent for a little longer.
SHORT_UNIT = 1.0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrbitProcess]:
    with OrbitProcess(tmp_path_factory.mktemp("orbit")) as process:
        yield process


@pytest.fixture
async def world(pair: Pair, platform: OrbitProcess) -> AsyncIterator[OrbitWorld]:
    with closing(await make_orbit_world(pair, platform)) as made:
        yield made


def is_stopped(worker: CrashWorker) -> bool:
    """Whether the kernel has stopped it (proc(5): T)."""
    return Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def begin(world: OrbitWorld, point: str, unit_deadline: float = 20.0) -> tuple[CrashWorker, list[CrashWorker]]:
    """A worker that has stopped itself with an event in hand, and two others."""
    zombie = world.worker(point, unit_deadline)
    await asyncio.to_thread(zombie.wait_ready)
    await world.publish(["apply"])
    await world.wait_for(lambda: is_stopped(zombie))
    others = [world.worker() for _ in range(2)]
    await asyncio.gather(*(asyncio.to_thread(other.wait_ready) for other in others))
    await world.publish(["apply"] * 5)
    return zombie, others


async def end(world: OrbitWorld, zombie: CrashWorker, others: list[CrashWorker]) -> None:
    """The zombie goes on, does no harm, and works as well as the others from then on."""
    os.kill(zombie.pid, signal.SIGCONT)
    await world.wait_for(world.is_done, ends_leases=True)
    await world.publish(["apply"] * 3)
    await world.wait_for(world.is_done, ends_leases=True)
    assert await asyncio.to_thread(zombie.stop) == 0
    assert [await asyncio.to_thread(other.stop) for other in others] == [0, 0]
    world.judge()


@pytest.mark.parametrize("point", FREE)
async def test_others_finish_what_it_held_and_it_doubles_nothing(world: OrbitWorld, point: str) -> None:
    zombie, others = await begin(world, point)
    await world.wait_for(world.is_done, ends_leases=True)
    assert is_stopped(zombie)
    world.judge()
    await end(world, zombie, others)


@pytest.mark.parametrize("point", HOLDING)
async def test_others_wait_for_its_unit_and_find_what_it_commits(world: OrbitWorld, point: str) -> None:
    zombie, others = await begin(world, point)

    def have_others_tried() -> bool:
        left = [event for event in world.platform.events(world.subscription) if event["state"] != "acknowledged"]
        return bool(left) and all(int(event["generation"]) > 2 for event in left)

    await world.wait_for(have_others_tried, ends_leases=True)
    assert is_stopped(zombie)
    await end(world, zombie, others)


async def test_what_a_dead_session_of_it_held_is_done_by_others_and_its_commit_is_found_lost(world: OrbitWorld) -> None:
    """The database ends the session, and with it the unit; who goes on afterwards commits nothing."""
    zombie, others = await begin(world, "before:commit", SHORT_UNIT)
    await world.wait_for(world.is_done, ends_leases=True)
    assert is_stopped(zombie)
    world.judge()
    await end(world, zombie, others)
