"""The course of the demo: portions of events, a kill for each, and the count at the end."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from inbox.config import require
from inbox.demo.board import AFTER_COMMIT, OUTSIDE, Blow, Tally, plan_blows
from inbox.demo.crew import Crew, Death, prepare
from inbox.demo.judge import Found, Verdict, find, judge
from inbox.demo.script import Expected, Sending, make_script
from inbox.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbox.demo.show import Show
    from inbox.demo.stage import Stage

__all__ = ["DemoSettings", "Result", "Standing", "demonstrate"]

#: Seconds between two looks at the workers.
_TICK: Final = 0.02
#: Seconds without progress after which nothing more is thought to be under way, or on its way to a kill.
_QUIET: Final = 0.25
#: Seconds that a kill may wait for its point before it becomes one that comes by itself.
_UNREACHED: Final = 2.0
#: Seconds without progress after which the demo counts what there is.
_STALLED: Final = 30.0
#: Workers that may end by themselves before nobody is started any more.
_MOST_UNASKED: Final = 5
#: Times that workers are started again for what was left in the queue.
_MOST_ROUNDS: Final = 5
#: Deliveries that are worked off between two looks or three.
_SMALL: Final = 12
#: Deliveries that are published together.
_MOST_AT_ONCE: Final = 250
#: Events that a kill needs: it has to find one under way.
_EVENTS_FOR_A_KILL: Final = 3


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How much of everything.

    Attributes:
        events: different ones.
        duplicates: share of them that is published twice, from 0 to 1.
        seed: the same one gives the same events in the same order, and the same kills.
        workers: processes.
        kills: SIGKILLs.
        forged: some of the events are forgeries, which a consumer for Fetcher must find out.
    """

    events: int = 3000
    duplicates: float = 0.25
    seed: int = 1
    workers: int = 2
    kills: int = 20
    forged: bool = False

    def __post_init__(self) -> None:
        require(self.events >= 1 and self.workers >= 1 and self.kills >= 0, "events and workers from 1, kills from 0")
        require(0 <= self.duplicates <= 1, "duplicates is a share, from 0 to 1")
        least = self.kills * _EVENTS_FOR_A_KILL
        require(
            self.events >= least, f"{self.kills} kills need at least {least} events: each has to meet some under way"
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """How far it is, as the workers say.

    Attributes:
        deliveries: how many there are to be.
        settled: of them, so far.
        tallies: what else the workers counted.
        kills: how many took place.
        kills_wanted: how many there are to be.
    """

    deliveries: int
    settled: int
    tallies: Counter[Tally]
    kills: int
    kills_wanted: int


@dataclass(frozen=True, slots=True)
class Result:
    """How it went.

    Attributes:
        settings: what was asked for.
        expected: by what was published.
        found: in the database.
        verdict: the one against the other.
        kills: SIGKILLs that took place.
        unasked: workers that ended by themselves.
        tallies: what the workers counted, for people.
        seconds: from the start to the last look into the database.
    """

    settings: DemoSettings
    expected: Expected
    found: Found
    verdict: Verdict
    kills: tuple[Death, ...]
    unasked: tuple[Death, ...]
    tallies: Counter[Tally]
    seconds: float

    @property
    def complaints(self) -> list[str]:
        """A sentence for each thing that is not as it must be."""
        complaints = [*self.verdict.differences]
        if len(self.kills) < self.settings.kills:
            complaints.append(f"only {len(self.kills)} of {self.settings.kills} kills took place")
        if self.unasked:
            codes = ", ".join(str(death.exit_code) for death in self.unasked)
            complaints.append(f"{len(self.unasked)} workers ended by themselves (exit codes {codes})")
        return complaints

    def as_dict(self) -> dict[str, Any]:
        """As one JSON object; its keys are a promise, written down in the help of the command."""
        return {
            "events": self.expected.events,
            "deliveries": self.expected.deliveries,
            "duplicates": self.expected.duplicates,
            "kills": len(self.kills),
            "effects": self.found.effects,
            "lost": self.verdict.lost,
            "double": self.verdict.double,
            "quarantined": len(self.found.refusals),
            "sum_expected": self.expected.cents,
            "sum_found": self.found.cents,
            "seconds": round(self.seconds, 3),
        }


async def demonstrate(settings: DemoSettings, stage: Stage, show: Show) -> Result:
    """Publish, kill, let everything come to its end, and count.

    Args:
        settings: how much of everything.
        stage: where; it is opened and closed here, whatever happens.
        show: told of everything on the way.

    Raises:
        InboxError, sqlalchemy.exc.DBAPIError, OSError: it could not be run.
        asyncio.CancelledError: somebody ended it; nothing of it is left.
    """
    begun = time.monotonic()
    crew = None
    try:
        prepare(stage)
        script = make_script(
            settings.events, settings.duplicates, settings.seed, stage.exchange, forged=settings.forged
        )
        await stage.open()
        show.say(stage.describe())
        crew = Crew(stage, settings.workers)
        course = _Course(settings, script, stage, crew, show)
        await course.run()
        found = await find(stage)
        return Result(
            settings,
            course.expected,
            found,
            judge(course.expected, found),
            tuple(course.kills),
            tuple(course.unasked),
            course.standing.tallies,
            time.monotonic() - begun,
        )
    finally:
        if crew is not None:
            crew.kill()
        for problem in await stage.close():
            show.say(problem)


@dataclass(slots=True)
class _Order:
    """A kill that is to be, and since when it has been ordered; None before."""

    blow: Blow
    goal: int
    since: float | None = None


class _Course:
    """Everything between the first start of a worker and the stop of the last one."""

    def __init__(self, settings: DemoSettings, script: Sequence[Sending], stage: Stage, crew: Crew, show: Show) -> None:
        self._settings = settings
        self._stage = stage
        self._board = crew.board
        self._crew = crew
        self._show = show
        self._draw = random.Random(settings.seed)  # noqa: S311 - which kill comes when
        self._blows = plan_blows(settings.kills, self._draw)
        self._deliveries = len(script)
        self._portions = _cut(script, settings.kills + 1)
        self._handed_over = 0
        self._is_ending = False
        self._publishing: asyncio.Task[None] | None = None
        self._order: _Order | None = None
        self._progress = -1
        self._moved_at = 0.0
        self._quiet = 0.0  # seconds since something was done, as far as workers were there to do it
        self.expected = Expected()
        self.kills: list[Death] = []
        self.unasked: list[Death] = []
        self.standing = Standing(self._deliveries, 0, Counter(), 0, settings.kills)

    async def run(self) -> None:
        """Run to the end.

        Raises:
            InboxError: workers do not start, or nothing can be published.
        """
        await self._crew.start()
        self._show.say(f"{self._settings.workers} workers consume; publishing {self._deliveries:,} deliveries")
        self._moved_at = time.monotonic()
        try:
            await self._play()
        finally:
            self._is_ending = True
            if self._publishing is not None:
                await asyncio.gather(self._publishing, return_exceptions=True)
        for _ in range(_MOST_ROUNDS):
            self.unasked += await self._crew.stop()
            if not await self._stage.left():
                return
            await self._crew.start()  # what a worker had in hand at its stop comes again to another one
            await self._wait_empty()

    async def _play(self) -> None:
        """Publish and kill, until nothing is left of either."""
        while True:
            self._look()
            self._feed()
            self._give_order()
            if self._quiet >= _STALLED:
                return
            # What a broker says is empty may be in hand, and come to its kill yet.
            is_due = len(self.kills) >= self._settings.kills or self._quiet >= 2 * _UNREACHED
            if is_due and not self._portions and self._publishing is None and await self._is_empty():
                return
            await asyncio.sleep(_TICK)

    async def _wait_empty(self) -> None:
        self._moved_at = time.monotonic()
        self._look()
        while self._quiet < _STALLED and not await self._is_empty():
            await asyncio.sleep(_TICK)
            self._look()

    async def _is_empty(self) -> bool:
        return self._quiet >= _QUIET and not await self._stage.left()

    def _look(self) -> None:
        """See how far it is, and who has died."""
        self._bury()
        tallies = Counter({tally: self._crew.board.total(tally) for tally in Tally})
        settled = min(tallies[Tally.SETTLED], self._deliveries)
        self.standing = Standing(self._deliveries, settled, tallies, len(self.kills), self._settings.kills)
        progress = tallies.total() + self._handed_over
        if progress != self._progress or not self._crew.is_at_work:
            self._progress, self._moved_at = progress, time.monotonic()
        self._quiet = time.monotonic() - self._moved_at
        self._show.update(self.standing)

    def _bury(self) -> None:
        """Take note of who has died, and have them replaced."""
        for death in self._crew.replace_dead():
            if death.is_kill:
                self.kills.append(death)
                self._order = None
            else:
                self.unasked.append(death)
            self._show.death(death, len(self.kills), self.standing)
        if len(self.unasked) >= _MOST_UNASKED:
            raise StartupError(f"{len(self.unasked)} workers ended by themselves: INBOX_TEST_LOG=INFO shows why")

    def _feed(self) -> None:
        """Publish the next portion, when the kill over the one before has been, or cannot be for want of deliveries."""
        if self._publishing is not None:
            if not self._publishing.done():
                return
            self._publishing.result()
            self._publishing = None
        is_due = self._handed_over <= len(self.kills) or self._quiet >= _QUIET
        if self._portions and is_due:
            self._publishing = asyncio.create_task(self._publish(self._portions.pop(0)), name="publishing")

    async def _publish(self, portion: Sequence[Sending]) -> None:
        """Publish a portion, or as much of it as there is time for: what is under way is not given up halfway."""
        for begin in range(0, len(portion), _MOST_AT_ONCE):
            if self._is_ending:
                return
            part = portion[begin : begin + _MOST_AT_ONCE]
            await self._stage.publish(part)
            self.expected.add(part)
        self._handed_over += 1

    def _give_order(self) -> None:
        """Have one worker killed, when a part of the portion has been worked off that the seed decides."""
        if self._order is None:
            if not self._blows or not self._handed_over:
                return
            blow = self._blows.pop(0)
            size = self._deliveries / (self._settings.kills + 1)
            goal = int(size * (len(self.kills) + self._draw.uniform(0.1, 0.6)))
            # What comes again comes soon after a death, and a small portion is gone before anybody has looked.
            self._order = _Order(blow, 0 if blow.of_redelivered or size < _SMALL else goal)
        order = self._order
        if order.since is None:
            if self.standing.settled >= order.goal or self._quiet >= _QUIET:
                self._carry_out(order)
        elif time.monotonic() - order.since >= _UNREACHED and order.blow is not AFTER_COMMIT:
            order.blow, order.since = AFTER_COMMIT, time.monotonic()
            self._board.change(AFTER_COMMIT)

    def _carry_out(self, order: _Order) -> None:
        if order.blow is not OUTSIDE:
            self._board.order(order.blow)
        elif not self._crew.strike(self._draw):
            return
        order.since = time.monotonic()


def _cut(script: Sequence[Sending], parts: int) -> list[Sequence[Sending]]:
    """So many portions of nearly the same size."""
    edges = [len(script) * number // parts for number in range(parts + 1)]
    return [script[begin:end] for begin, end in pairwise(edges) if begin < end]
