"""Real processes, killed by real SIGKILL at named points of the lifecycle.

    worker = CrashWorker(make_inbox, (database_url, amqp_url), crash=CrashPoint.parse("after:commit"))
    worker.start()
    worker.wait_ready()
    ...                      # publish
    worker.wait_killed()     # it reached the point and is dead
    assert worker.reached == ["after:commit"]

Workers are forked from a server process that has imported everything once, so a kill test costs a
connection or two and not the start of an interpreter. What they log goes to standard error, from WARNING on, such as
why a handler was undone; the variable INBOX_TEST_LOG names another level.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
from typing import TYPE_CHECKING

from inbox.core.crashpoints import CrashPoint, When
from inbox.errors import StartupError
from inbox.runtime.loops import LOOP_VARIABLE, EventLoop, run_on

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from inbox.app import Inbox
    from inbox.core.lifecycle import Command, Outcome
    from inbox.ports import Passage

_READY = "ready"
#: Before the reason of a worker that cannot start.
_REFUSED = "refused: "


class WorkerStartError(AssertionError):
    """The worker process ended before it was ready."""


class PointNotReachedError(AssertionError):
    """The worker ended, or the patience with it, without reaching its crash point."""


class CrashProbe:
    """Kills its own process at one point.

    Args:
        point: where.
        hit: at which passage of the point, from 1.
        tell: called with the point's name just before; must hand it to another process at once.
        event_type: only passages of events of this type count; None is every type. Before an event is verified
            it has none.
        mark: a file that whoever dies makes first; where another one has made it, this one lives. None dies anyway.
    """

    def __init__(
        self,
        point: CrashPoint,
        hit: int,
        tell: Callable[[str], None],
        event_type: str | None = None,
        mark: str | None = None,
    ) -> None:
        self._point = point
        self._left = hit
        self._tell = tell
        self._type = event_type
        self._mark = mark

    def before(self, command: Command, passage: Passage) -> None:
        """Die here, where the point says so."""
        self._at(When.BEFORE, command, passage)

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """Die here, where the point says so."""
        self._at(When.AFTER, command, passage)

    def _at(self, when: When, command: Command, passage: Passage) -> None:
        if command is not self._point.command or when is not self._point.when:
            return
        if self._type is not None and (passage.event is None or passage.event.type != self._type):
            return
        self._left -= 1
        if self._left == 0 and self._is_first():
            self._tell(str(self._point))
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_first(self) -> bool:
        if self._mark is None:
            return True
        try:
            os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


class CrashWorker:
    """A worker in a process of its own, which may be told to die at a crash point.

    Args:
        factory: a module's function that makes the `Inbox`; called in the new process.
        arguments: what it is called with; must be picklable.
        crash: where the process kills itself; None lives.
        hit: at which passage of that point, from 1.
        event_type: only passages of events of this CloudEvents type count; None is every type.
        mark: a file, which must not be there yet, so that of several workers with the same one only the first dies.
        preload: modules that the server process imports besides, once for all workers; it heeds the first worker's.
    """

    def __init__(
        self,
        factory: Callable[..., Inbox],
        arguments: tuple[object, ...] = (),
        *,
        crash: CrashPoint | None = None,
        hit: int = 1,
        event_type: str | None = None,
        mark: str | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["inbox.testing.crash", factory.__module__, *preload])
        self._told, child_end = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run,
            args=(factory, arguments, (crash, hit, event_type, mark), child_end),
            daemon=True,
            name=f"worker {crash or ''}",
        )
        self._child_end = child_end
        self._crash = crash
        self.reached: list[str] = []

    @property
    def pid(self) -> int:
        """The process's id.

        Raises:
            ValueError: it was not started.
        """
        if self._process.pid is None:
            raise ValueError("the worker was not started")
        return self._process.pid

    @property
    def crash(self) -> CrashPoint | None:
        """Where it kills itself; None where it lives."""
        return self._crash

    @property
    def sentinel(self) -> int:
        """Becomes ready when the process ends, for `multiprocessing.connection.wait`."""
        return self._process.sentinel

    @property
    def exit_code(self) -> int | None:
        """As `multiprocessing.Process.exitcode`: negative is the signal it died of."""
        return self._process.exitcode

    def start(self) -> None:
        """Start the process."""
        self._process.start()
        self._child_end.close()

    def wait_ready(self, timeout: float = 30.0) -> None:
        """Return when the worker has checked both sides and consumes.

        Raises:
            WorkerStartError: it ended, where it says so with its reason, or `timeout` seconds passed.
        """
        if not self._told.poll(timeout):
            raise WorkerStartError(f"worker {self.pid} was not ready within {timeout} s")
        try:
            word = self._told.recv_bytes().decode()
        except EOFError:
            self._process.join(timeout)
            raise WorkerStartError(f"worker {self.pid} ended with exit code {self.exit_code}") from None
        if word.startswith(_REFUSED):
            self._process.join(timeout)
            raise WorkerStartError(f"the worker did not start: {word.removeprefix(_REFUSED)}")
        if word != _READY:  # it reached its point before it could say so
            self.reached.append(word)

    def wait_killed(self, timeout: float = 60.0) -> None:
        """Return when the worker has died of SIGKILL; `reached` then names the point.

        Raises:
            PointNotReachedError: it ended otherwise, or `timeout` seconds passed.
        """
        self._process.join(timeout)
        if self.exit_code != -signal.SIGKILL:
            raise PointNotReachedError(self._why_alive(timeout))
        self._collect()

    def _why_alive(self, waited: float) -> str:
        ended = f"ended with exit code {self.exit_code}"
        lives = f"was still alive after {waited:g} s: either no event came, or its handler failed"
        return (
            f"worker {self.pid} did not reach {self._crash or 'a point: it was given none'}, "
            f"{lives if self.exit_code is None else ended}; what it logs says why (INBOX_TEST_LOG=INFO says more)"
        )

    @staticmethod
    def wait_any_killed(workers: Sequence[CrashWorker], timeout: float = 60.0) -> None:
        """Return when at least one of `workers` has died of SIGKILL.

        Raises:
            PointNotReachedError: none had after `timeout` seconds, or one ended otherwise.
        """
        multiprocessing.connection.wait([worker.sentinel for worker in workers], timeout)
        dead = [worker for worker in workers if not worker.is_alive()]
        if not dead:
            raise PointNotReachedError(f"none of {len(workers)} workers reached its point within {timeout} s")
        for worker in dead:
            worker.wait_killed()

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.is_alive()

    def kill(self) -> None:
        """SIGKILL from outside, and wait for the end."""
        self._process.kill()
        self._process.join(10)
        self._collect()

    def stop(self, timeout: float = 60.0) -> int | None:
        """SIGTERM, then wait for the drain.

        Returns:
            The exit code; None where it was still running and had to be killed.
        """
        if self._process.pid is None:
            return None
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGTERM)
        self._process.join(timeout)
        code = self.exit_code
        if code is None:
            self.kill()
        self._collect()
        return code

    def _collect(self) -> list[str]:
        """Read what the worker told before it died: a pipe keeps what was written to it."""
        try:
            while self._told.poll(0):
                word = self._told.recv_bytes().decode()
                if word != _READY:
                    self.reached.append(word)
        except EOFError:
            pass
        return self.reached


def _run(
    factory: Callable[..., Inbox],
    arguments: tuple[object, ...],
    death: tuple[CrashPoint | None, int, str | None, str | None],
    told: Connection,
) -> None:
    crash, hit, event_type, mark = death
    logging.basicConfig(level=os.environ.get("INBOX_TEST_LOG", "WARNING"), format="%(process)d %(name)s %(message)s")

    def tell(word: str) -> None:
        told.send_bytes(word.encode())

    async def main() -> None:
        inbox = factory(*arguments)
        if crash is not None:
            inbox.add_probe(CrashProbe(crash, hit, tell, event_type, mark))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, inbox.stop)
        await inbox.run(started=lambda: tell(_READY))

    try:
        run_on(EventLoop(os.environ.get(LOOP_VARIABLE, EventLoop.AUTO)).found(), main())
    except StartupError as error:
        tell(f"{_REFUSED}{error}")
        sys.exit(2)  # as `inbox run` does
