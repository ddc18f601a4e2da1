"""Memory that a SIGKILL leaves as it is: what workers did, and where the next one is to die.

The parent makes it, and every worker has it. A worker counts in a place of its own, which its successor goes on with.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from inbox.core.crashpoints import CrashPoint, When
from inbox.core.disposition import FailureKind
from inbox.core.lifecycle import Command, Outcome

if TYPE_CHECKING:
    import random

    from inbox.ports import Passage

__all__ = ["AFTER_COMMIT", "BLOWS", "OUTSIDE", "Blow", "Board", "Scribe", "Tally", "plan_blows"]


class Tally(IntEnum):
    """What is counted of each worker: for people who watch, and to pace the kills. It decides nothing."""

    SETTLED = 0
    APPLIED = 1
    DUPLICATES = 2
    CAME_AGAIN = 3
    QUARANTINED = 4
    SUSPECTS = 5
    REPEATED = 6


@dataclass(frozen=True, slots=True)
class Blow:
    """A way to be killed.

    Attributes:
        where: in words.
        point: of the lifecycle; None for a SIGKILL from outside, at any instruction.
        of_committed: only just after the delivery's own COMMIT.
        of_redelivered: only for a delivery that came before, so that its start has been noted.
    """

    where: str
    point: CrashPoint | None = None
    of_committed: bool = False
    of_redelivered: bool = False


_WINDOW: Final = "between COMMIT and acknowledgement"

AFTER_COMMIT: Final = Blow(f"{_WINDOW}, after the one", CrashPoint.parse("after:commit"))
BEFORE_ACKNOWLEDGE: Final = Blow(
    f"{_WINDOW}, before the other", CrashPoint.parse("before:acknowledge"), of_committed=True
)
#: At any instruction.
OUTSIDE: Final = Blow("from outside, at a random moment")
#: Where there is no window, and nothing must be lost or doubled either.
_OTHERS: Final = (
    Blow("before COMMIT, with the effect written", CrashPoint.parse("before:commit")),
    Blow("after the claim, before the handler", CrashPoint.parse("after:claim")),
    Blow("in the handler of an event that came again", CrashPoint.parse("before:apply"), of_redelivered=True),
    Blow("just after the acknowledgement", CrashPoint.parse("after:acknowledge")),
    Blow("with a transaction begun", CrashPoint.parse("after:begin")),
)
#: Those of named points; a worker is told by its place here.
BLOWS: Final = (AFTER_COMMIT, BEFORE_ACKNOWLEDGE, *_OTHERS)

_COUNTED: Final = {
    (Command.COMMIT, Outcome.DONE): Tally.APPLIED,
    (Command.RESOLVE, Outcome.DONE): Tally.APPLIED,
    (Command.CLAIM, Outcome.DUPLICATE): Tally.DUPLICATES,
    (Command.QUARANTINE, Outcome.DONE): Tally.QUARANTINED,
}


def plan_blows(count: int, draw: random.Random) -> list[Blow]:
    """Which kills there are to be, in this order: most of them between COMMIT and acknowledgement.

    Args:
        count: how many.
        draw: decides the order.
    """
    outside = min(2, count // 5)
    others = [_OTHERS[number % len(_OTHERS)] for number in range(count // 4)]
    window = [(AFTER_COMMIT, BEFORE_ACKNOWLEDGE)[number % 2] for number in range(count - outside - len(others))]
    blows = [OUTSIDE] * outside + others + window
    draw.shuffle(blows)
    # Before the first death nothing comes again, and at the end little is left to die over.
    blows.sort(key=lambda blow: blow.of_redelivered)
    late = sum(blow.of_redelivered for blow in blows)
    for number in range(late):
        blows.insert(count // 2 + number, blows.pop())
    return blows


class Board:
    """The shared memory.

    Args:
        workers: how many have a place in it.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("forkserver")
        self._tallies = [context.RawArray("Q", len(Tally)) for _ in range(workers)]
        self._fallen = context.RawArray("i", workers)
        self._wanted = context.RawValue("i", 0)
        self._token = context.Semaphore(0)

    # ------------------------------------------------------------ the parent's side
    def order(self, blow: Blow) -> None:
        """Let the first worker that comes to the point of `blow` die there. One order at a time."""
        self._wanted.value = BLOWS.index(blow) + 1
        self._token.release()

    def change(self, blow: Blow) -> None:
        """Let the order that nobody has come to be another one."""
        self._wanted.value = BLOWS.index(blow) + 1

    def fallen(self, place: int) -> Blow | None:
        """Where the worker of `place` said that it dies, if it did; asked once."""
        number, self._fallen[place] = self._fallen[place], 0
        return BLOWS[number - 1] if number else None

    def total(self, tally: Tally) -> int:
        """Of all workers, the dead ones included."""
        return sum(tallies[tally] for tallies in self._tallies)

    # ------------------------------------------------------------ a worker's side
    def count(self, place: int, tally: Tally) -> None:
        """Count one more."""
        self._tallies[place][tally] += 1

    @property
    def wanted(self) -> Blow | None:
        """What is ordered."""
        return BLOWS[self._wanted.value - 1] if self._wanted.value else None

    def die(self, place: int, blow: Blow) -> None:
        """Say where, and end by SIGKILL, unless another worker was first or the order has been changed."""
        if self._token.acquire(block=False):
            self._fallen[place] = BLOWS.index(blow) + 1
            os.kill(os.getpid(), signal.SIGKILL)


class Scribe:
    """A probe that counts, and dies where that is ordered.

    Args:
        board: where it counts.
        place: of its worker.
    """

    def __init__(self, board: Board, place: int) -> None:
        self._board = board
        self._place = place
        self._has_just_committed = False

    def before(self, command: Command, passage: Passage) -> None:
        """Die here, where that is ordered."""
        if command is Command.DECODE and not passage.delivery.pristine:
            self._board.count(self._place, Tally.CAME_AGAIN)
        self._at(When.BEFORE, command, passage)
        self._has_just_committed = False

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """Count, and die here, where that is ordered."""
        # What the processor does next with this delivery, it does without letting another one between.
        self._has_just_committed = command is Command.COMMIT and outcome is Outcome.DONE
        tally = _tally(command, outcome, passage)
        if tally is not None:
            self._board.count(self._place, tally)
        if outcome is Outcome.DONE:
            self._at(When.AFTER, command, passage)

    def _at(self, when: When, command: Command, passage: Passage) -> None:
        blow = self._board.wanted
        if blow is None or blow.point is None or command is not blow.point.command or when is not blow.point.when:
            return
        if blow.of_committed and not self._has_just_committed:
            return
        if blow.of_redelivered and passage.delivery.pristine:
            return
        self._board.die(self._place, blow)


def _tally(command: Command, outcome: Outcome, passage: Passage) -> Tally | None:
    if command is Command.ACKNOWLEDGE:
        return None if passage.is_ack_lost else Tally.SETTLED
    if command is Command.RECORD and passage.failure is not None:
        return Tally.SUSPECTS if passage.failure.kind is FailureKind.SUSPECT else Tally.REPEATED
    return _COUNTED.get((command, outcome))
