"""The soak's own faults are no faults of the workers'."""

import asyncio
import threading
from types import SimpleNamespace
from typing import cast

import pytest

from inbox.testing.crash import CrashWorker
from tests.crash.world import World
from tests.soak import run
from tests.soak.run import Plan, Soak


class Slow:
    """A worker whose death takes until somebody has looked at it."""

    exit_code = -9

    def __init__(self) -> None:
        self.is_dead = threading.Event()
        self.may_return = threading.Event()

    def is_alive(self) -> bool:
        return not self.is_dead.is_set()

    def kill(self) -> None:
        self.is_dead.set()
        assert self.may_return.wait(30)


async def test_a_worker_that_is_being_killed_is_not_taken_for_one_that_ended_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = cast("World", SimpleNamespace(pair=SimpleNamespace(id="none")))
    soak = Soak(world, Plan(60, 1, kills=(0.0, 0.0)), lambda _: None)
    victim = Slow()
    soak._workers = [cast("CrashWorker", victim)]
    soak._worker = lambda: cast("CrashWorker", Slow())  # type: ignore[method-assign] # starts no process
    monkeypatch.setattr(run, "QUIET", 0.0)
    killing = asyncio.ensure_future(soak._kill())
    assert await asyncio.to_thread(victim.is_dead.wait, 30)
    soak._replace_the_dead()
    soak.enough.set()
    victim.may_return.set()
    await asyncio.wait_for(killing, 30)
    assert soak.report.differences == []
    assert soak.report.done["kills"] == 1
