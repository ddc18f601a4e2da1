"""Every point at which a worker may die, one after the other, each compared with a quiet run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from inbox.core.crashpoints import CrashPoint, When, crash_points
from inbox.core.lifecycle import Command
from inbox.testing.crash import PointNotReachedError
from inbox.testing.lab.comparison import Baseline, Difference, Observation, differences
from inbox.testing.lab.database import LabError, WorkerFailedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from inbox.testing.lab.events import Message
    from inbox.testing.lab.lab import Lab
    from inbox.testing.lab.workers import Seen

__all__ = ["Matrix", "Result", "Scenario", "plan", "unreached"]

#: Up to here nothing of the adopter's has run for the event, but the verifier: it does not matter whose it is.
_BEFORE_HANDLERS: Final = frozenset({Command.DECODE, Command.VERIFY, Command.BEGIN, Command.CLAIM, Command.START})
_FIRST: Final = frozenset({CrashPoint(When.BEFORE, Command.PREPARE), CrashPoint(When.BEFORE, Command.APPLY)})
_NOTHING: Final = Observation()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kill.

    Attributes:
        point: where.
        event_type: only an event of this type kills; None is the first one that comes there.
        workers: how many race; each event then comes three times, and twice where one works alone.
    """

    point: CrashPoint
    event_type: str | None = None
    workers: int = 1

    @property
    def copies(self) -> int:
        """How often each event is published."""
        return 2 if self.workers == 1 else 3

    def __str__(self) -> str:
        who = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.point}, {who}" + ("" if self.event_type is None else f", {self.event_type}")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a scenario.

    Attributes:
        scenario: which.
        outcome: `same`, `different`, `unsettled` (something did not end in time) or `not reached`.
        seconds: how long it took.
        differences: from the quiet run.
        detail: why it was not settled.
    """

    scenario: Scenario
    outcome: str
    seconds: float
    differences: tuple[Difference, ...] = ()
    detail: str = ""

    @property
    def is_safe(self) -> bool:
        """Whether it says nothing against the handler."""
        return self.outcome in ("same", "not reached")

    def as_dict(self) -> dict[str, object]:
        """As one JSON object."""
        return {
            "point": str(self.scenario.point),
            "event_type": self.scenario.event_type,
            "workers": self.scenario.workers,
            "outcome": self.outcome,
            "seconds": round(self.seconds, 3),
            "differences": [difference.as_dict() for difference in self.differences],
            "detail": self.detail,
        }


def plan(
    seen: Collection[Seen], workers: Sequence[int] = (1, 3), points: Collection[CrashPoint] | None = None
) -> list[Scenario]:
    """The kills that events can lead to which pass these points when nobody is killed.

    Where a handler has run, each type of event gets a kill of its own: it has another handler.

    Args:
        seen: the points of a quiet run, with the types.
        workers: how many race, for each a scenario.
        points: the only ones to take; None takes all.
    """
    scenarios: list[Scenario] = []
    for point in crash_points():
        types = sorted({event_type for name, event_type in seen if name == str(point)})
        if not types or (points is not None and point not in points):
            continue
        is_any = point.command in _BEFORE_HANDLERS or point in _FIRST
        wanted: list[str | None] = [None] if is_any or types == [""] else [name for name in types if name]
        scenarios += [Scenario(point, event_type, count) for event_type in wanted for count in workers]
    return scenarios


def unreached(seen: Collection[Seen], never: Collection[Command] = ()) -> list[CrashPoint]:
    """The points that a run did not pass.

    Args:
        seen: those that it passed.
        never: commands that no worker over its queue is given: their points are none of it.
    """
    names = {name for name, _ in seen}
    return [point for point in crash_points() if str(point) not in names and point.command not in never]


@dataclass(slots=True)
class Matrix:
    """Runs the same events quietly, then under each kill.

    Args:
        lab: open.
        messages: what is published each time.
        checks: queries to compare; without any the adopter's own tables are compared.
        ignore: columns that are not compared, as `table.column`.

    Attributes:
        known: what the quiet run left.
        seen: the points that it passed.
        results: of each scenario, in order.
        quiet_seconds: how long the two quiet runs took.
    """

    lab: Lab
    messages: Sequence[Message]
    checks: Sequence[str] = ()
    ignore: Iterable[str] = ()
    known: Baseline = field(default_factory=lambda: Baseline(_NOTHING))
    seen: set[Seen] = field(default_factory=set)
    results: list[Result] = field(default_factory=list)
    quiet_seconds: float = 0.0

    def run_quietly(self) -> Baseline:
        """See what is to be compared with.

        Raises:
            LabError: the quiet runs do not end, or differ from each other.
        """
        begun = time.monotonic()
        self.lab.begin()
        self.known = self.lab.quiet_run(self.messages, ignore=self.ignore, checks=self.checks)
        self.seen = self.lab.seen()
        self.quiet_seconds = time.monotonic() - begun
        return self.known

    def run_one(self, scenario: Scenario) -> Result:
        """Kill, let another worker do the rest, and compare.

        Raises:
            LabError: a worker does not start, or the database cannot be put back.
        """
        begun = time.monotonic()
        lab = self.lab
        lab.begin()
        lab.kill_at(scenario.point, event_type=scenario.event_type, workers=scenario.workers)
        outcome, detail = "same", ""
        found: tuple[Difference, ...] = ()
        try:
            lab.publish(*self.messages, copies=scenario.copies)
            lab.settled()
        except PointNotReachedError:
            outcome = "not reached"
        except WorkerFailedError:
            raise
        except LabError as error:
            outcome, detail = "unsettled", str(error)
        if outcome != "unsettled":
            found = tuple(self._compared())
            outcome = "different" if found else outcome
        result = Result(scenario, outcome, time.monotonic() - begun, found, detail)
        self.results.append(result)
        return result

    def _compared(self) -> list[Difference]:
        here = self.lab.observe(self.checks)
        return [
            difference
            for difference in differences(self.known, here)
            if not (self.checks and difference.where.startswith("table "))
        ]

    @property
    def unsafe(self) -> list[Result]:
        """The results that say something against the handler."""
        return [result for result in self.results if not result.is_safe]
