"""One delivery's transaction on a lane: what is the same over every SQL store."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from inbox.errors import Contended
from inbox.units.guard import UNIT
from inbox.units.lanes import Idle
from inbox.units.verdict import Stage, judge_exception, judge_return, to_its_end
from inbox.units.view import View, ViewedLane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextvars import Token

    from sqlalchemy.ext.asyncio import AsyncSession

    from inbox.core.event import Event
    from inbox.core.handler import Handler
    from inbox.units.guard import Guard, UnitToken
    from inbox.units.limits import TimeLimit

__all__ = ["LaneUnit"]

#: Who uses the unit where no handler does.
_BLOCK: Final = "inbox.transaction"


class GuardedDriver(Protocol):
    """What is needed of the guarded connection below a lane."""

    @property
    def guard(self) -> Guard:
        """Its doorkeeper."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer on it."""
        ...


class UnitLane(ViewedLane, Idle, Protocol):
    """What is needed of a unit's connection."""

    @property
    def driver(self) -> GuardedDriver:
        """The guarded connection below."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether SQLAlchemy's view is still of this connection, as it was at first."""
        ...


LaneT = TypeVar("LaneT", bound=UnitLane)


class _Watch(NamedTuple):
    """What was so when somebody began to use a unit."""

    name: str
    guard: Guard
    task: asyncio.Task[Any] | None
    cancelled_before: int
    carried: Token[UnitToken | None]

    @property
    def is_cancelled(self) -> bool:
        """Whether its task was cancelled since."""
        return self.task is not None and self.task.cancelling() > self.cancelled_before


class LaneUnit(ABC, Generic[LaneT]):
    """`inbox.ports.UnitOfWork` on one lane, but for what its database does in its own way: to claim, and to end.

    Args:
        lane: its connection, between two units.
        answer: makes the limit of time after which COMMIT, or ROLLBACK, counts as unanswered.
        done: called exactly once, with the lane and whether it may run another unit. Where not, it has been closed.
            Called on the event loop, must not block or raise.
    """

    def __init__(self, lane: LaneT, answer: Callable[[], TimeLimit], done: Callable[[LaneT, bool], None]) -> None:
        self.lane = lane
        self._answer = answer
        self._done = done
        self._stage = Stage.BEGUN
        self._is_batch = False
        self._view = View(lane, lane.driver.guard)
        self._is_clean: bool | None = None

    # -------------------------------------------------------------- the handler
    async def apply(self, handler: Handler, event: Event, prepared: object) -> None:
        """See `inbox.ports.UnitOfWork.apply`."""
        watch = self._watch(handler.name)
        try:
            await self._view.call(handler, event, prepared)
            await self._judge_return(watch)
        except BaseException as error:  # noqa: BLE001 - judged, and always raised
            self._judge_exception(watch, error)
        finally:
            self._unwatch(watch)
        self._note_applied()

    @asynccontextmanager
    async def session(self) -> AsyncIterator[AsyncSession]:
        """See `inbox.ports.UnitOfWork.session`."""
        watch = self._watch(_BLOCK)
        try:
            async with self._view.session() as session:
                yield session
            await self._judge_return(watch)
        except BaseException as error:  # noqa: BLE001 - judged, and always raised
            self._judge_exception(watch, error)
        finally:
            self._unwatch(watch)
        self._note_applied()

    def _note_applied(self) -> None:
        if self._stage is Stage.FAILED:  # else it was given up meanwhile, and is over
            self._stage = Stage.APPLIED

    # The same three steps around a handler and around a block. Not a context manager: as one it costs a handler more
    # than all that it does.
    def _watch(self, name: str) -> _Watch:
        """Let the caller's task use the unit. `name` stands in messages."""
        guard = self.lane.driver.guard
        if self._is_batch and self._stage is Stage.APPLIED:
            self._clear_for_next(guard)
        self._expect(Stage.CLAIMED)
        self._stage = Stage.FAILED
        task = asyncio.current_task()
        return _Watch(name, guard, task, task.cancelling() if task is not None else 0, UNIT.set(guard.start(name)))

    async def _judge_return(self, watch: _Watch) -> None:
        """See what the handler left on its connection, and doom the unit where it cannot go on from there."""
        guard = watch.guard
        if self.lane.driver.is_busy:
            guard.tripped = True
            guard.undo("returned while a task of its own was waiting for a statement: await its tasks first")
        elif guard.doom is None:
            await self._drain()
        if not self.lane.is_whole:
            guard.tripped = True
            guard.undo("closed the unit's connection")
        judge_return(watch.guard, watch.name, cancelled=watch.is_cancelled)

    @staticmethod
    def _judge_exception(watch: _Watch, error: BaseException) -> NoReturn:
        judge_exception(watch.guard, watch.name, error, cancelled=watch.is_cancelled)

    @staticmethod
    def _unwatch(watch: _Watch) -> None:
        UNIT.reset(watch.carried)
        watch.guard.stop()

    def _clear_for_next(self, guard: Guard) -> None:
        """Between two handlers of a batch everything is as between two units, but for the transaction.

        Raises:
            Contended: the first one left what the next would see, such as a session variable.
        """
        if not (self._view.end() and guard.leaves_nothing and self.lane.driver.is_open):
            guard.tripped = True
            self._stage = Stage.FAILED
            raise Contended("a handler before it left something on the session")
        self._stage = Stage.CLAIMED

    async def _drain(self) -> None:
        """Read what the handler asked for and did not read."""

    # -------------------------------------------------------------- the end
    async def commit(self) -> None:
        """See `inbox.ports.UnitOfWork.commit`."""
        self._expect(Stage.CLAIMED, Stage.APPLIED)
        self._stage = Stage.OVER
        await self._commit()

    @abstractmethod
    async def _commit(self) -> None: ...

    async def rollback(self) -> None:
        """See `inbox.ports.UnitOfWork.rollback`."""
        self._expect(Stage.BEGUN, Stage.CLAIMED, Stage.FAILED, Stage.APPLIED)
        self._stage = Stage.OVER
        guard = self.lane.driver.guard
        if guard.token is not None:
            # A handler that was given up still runs. It may send nothing more; and when it comes back, it ends whatever
            # unit runs on its connection then: there must be none.
            guard.stop()
            guard.tripped = True
        await to_its_end(self._rollback())

    @abstractmethod
    async def _rollback(self) -> None: ...

    async def _put_back(self) -> None:
        """Give the lane back after an answered COMMIT or ROLLBACK; close it where a next unit could see this one."""
        reusable = self._end_view() and self.lane.driver.guard.leaves_nothing and self.lane.driver.is_open
        if not reusable:
            await self.lane.close()
        self._give_back(reusable)

    def _throw_away(self) -> None:
        self.lane.discard()
        self._end_view()
        self._give_back(False)

    def _end_view(self) -> bool:
        """End what the handlers saw of the unit, once. Sends nothing.

        Returns:
            Whether the next unit finds the connection as this one did.
        """
        if self._is_clean is None:
            self._is_clean = self._view.end()
        return self._is_clean

    def _give_back(self, reusable: bool) -> None:
        self._stage = Stage.OVER
        self._done(self.lane, reusable)

    def _expect(self, *stages: Stage) -> None:
        if self._stage not in stages:
            raise RuntimeError(f"a unit that is {self._stage.value} cannot do this")
