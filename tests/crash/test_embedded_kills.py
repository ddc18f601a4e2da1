"""SIGKILL before and after every command, over files: what the dead worker had in hand comes back with its lease."""

import asyncio
from pathlib import Path

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.testing.crash import CrashWorker
from tests.crash.embedded_world import Files
from tests.crash.reached import ONE, THREE, note

POINTS = [pytest.param(point, id=str(point)) for point in crash_points()]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.rotates_with(ONE)
@pytest.mark.parametrize("point", POINTS)
async def test_one_worker_is_killed(files: Files, point: CrashPoint) -> None:
    victim = files.worker(crash=point)
    await files.publish()
    await asyncio.to_thread(victim.wait_killed)
    note(ONE, [victim])
    assert victim.reached == [str(point)], "the point was really reached"
    await files.recover()


@pytest.mark.rotates_with(THREE)
@pytest.mark.parametrize("point", POINTS)
async def test_three_racing_workers_are_killed(files: Files, point: CrashPoint) -> None:
    victims = [files.worker(crash=point) for _ in range(3)]
    await asyncio.gather(*(asyncio.to_thread(victim.wait_ready) for victim in victims))
    await files.publish(copies=3)
    await asyncio.to_thread(CrashWorker.wait_any_killed, victims)
    for victim in victims:
        victim.kill()
    note(THREE, victims)
    assert [str(point)] in [victim.reached for victim in victims]
    await files.recover()


async def test_a_worker_is_killed_from_outside_again_and_again(files: Files) -> None:
    """Wherever that meets it, in the middle of a statement or of a commit as well."""
    await files.publish(copies=20)
    for effects in range(1, 7):
        victim = files.worker()
        async with asyncio.timeout(30):
            # Where it is by then is not ours to choose.
            while files.query("SELECT COUNT(*) FROM effect")[0][0] < effects:
                await asyncio.sleep(0.001)
        victim.kill()
    await files.recover()
