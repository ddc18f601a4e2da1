"""The worker processes: started, watched, killed, and started again."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from typing import TYPE_CHECKING, Final

from inbox.demo.board import OUTSIDE, Blow, Board
from inbox.errors import StartupError
from inbox.testing.crash import CrashWorker, WorkerStartError

if TYPE_CHECKING:
    import random

    from inbox.demo.stage import Stage

__all__ = ["Crew", "Death", "prepare"]

#: Seconds that a worker has to start, and to stop.
_START: Final = 60.0
_STOP: Final = 30.0

_OF_TERMINALS: Final = (signal.SIGINT, signal.SIGHUP)


def prepare(stage: Stage) -> None:
    """Start the process that workers are forked from, so that it imports everything while the rest is made ready.

    It and all that come from it have SIGINT and SIGHUP blocked: those reach every process of a terminal, and how the
    workers end is for the demo to say.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(["inbox.testing.crash", stage.factory.__module__])
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
    try:
        resource_tracker.ensure_running()
        # Which unblocks SIGINT in this process, whether it was blocked before or not.
        signal.pthread_sigmask(signal.SIG_BLOCK, _OF_TERMINALS)
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True, slots=True)
class Death:
    """A worker that ended though nobody had asked it to stop.

    Attributes:
        place: of the worker, from 0.
        pid: its process's id.
        blow: how it was killed; None where that was not the demo's doing.
        exit_code: negative is the signal it died of.
    """

    place: int
    pid: int
    blow: Blow | None
    exit_code: int | None

    @property
    def is_kill(self) -> bool:
        """Whether it is a SIGKILL of the demo's."""
        return self.blow is not None and self.exit_code == -signal.SIGKILL


@dataclass(slots=True)
class _Life:
    """One process of a place."""

    worker: CrashWorker
    ready: asyncio.Task[None]
    is_struck: bool = False

    @property
    def is_ready(self) -> bool:
        return self.ready.done() and not self.ready.cancelled() and self.ready.exception() is None


class Crew:
    """So many workers, each in a place; who dies has a successor there.

    Args:
        stage: where they work.
        count: how many.

    Attributes:
        board: what they have in common.
    """

    def __init__(self, stage: Stage, count: int) -> None:
        self.board = Board(count)
        self._stage = stage
        self._lives: dict[int, _Life] = {}
        self._places = range(count)

    async def start(self) -> None:
        """Start all that do not run, and return when they consume.

        Raises:
            StartupError: one of them does not; the others go on starting.
        """
        for place in self._places:
            if place not in self._lives:
                self._begin(place)
        try:
            await asyncio.gather(*(life.ready for life in self._lives.values()))
        except WorkerStartError as error:
            raise StartupError(f"a worker process did not start: {error}") from error

    def _begin(self, place: int) -> None:
        worker = CrashWorker(self._stage.factory, (*self._stage.arguments, self.board, place))
        worker.start()
        ready = asyncio.create_task(asyncio.to_thread(worker.wait_ready, _START), name=f"start of worker {place}")
        ready.add_done_callback(_see)
        self._lives[place] = _Life(worker, ready)

    def replace_dead(self) -> list[Death]:
        """Start a successor for each worker that has died; who they were."""
        deaths = []
        for place, life in [*self._lives.items()]:
            if not life.ready.done() or life.worker.is_alive():
                continue  # while it starts, another thread waits for its end
            blow = OUTSIDE if life.is_struck else self.board.fallen(place)
            deaths.append(Death(place, life.worker.pid, blow, life.worker.exit_code))
            self._begin(place)
        return deaths

    def strike(self, draw: random.Random) -> bool:
        """SIGKILL one of those that consume, from outside; False where none does at present."""
        ready = [life for life in self._lives.values() if life.is_ready and life.worker.is_alive()]
        if not ready:
            return False
        life = draw.choice(ready)
        life.is_struck = True
        life.worker.kill()
        return True

    @property
    def is_at_work(self) -> bool:
        """Whether one of them consumes."""
        return any(life.is_ready for life in self._lives.values())

    async def stop(self) -> list[Death]:
        """SIGTERM to all, and wait until they have finished what they had in hand.

        Returns:
            Those that ended otherwise.
        """
        lives, self._lives = self._lives, {}
        codes = await asyncio.gather(*(asyncio.to_thread(life.worker.stop, _STOP) for life in lives.values()))
        return [
            Death(place, life.worker.pid, None, code)
            for (place, life), code in zip(lives.items(), codes, strict=True)
            if code != 0
        ]

    def kill(self) -> None:
        """End all of them at once. May be called twice."""
        lives, self._lives = self._lives, {}
        for life in lives.values():
            life.worker.kill()


def _see(task: asyncio.Task[None]) -> None:
    """Look at how a start ended, for one that was killed meanwhile is no news, and Python would complain."""
    if not task.cancelled():
        task.exception()
