"""What the inbox wants to reach beside consumers by hand, and whether a run shows it. Pure.

A goal is a ratio of two consumers under one load, taken as all ratios are: round by round, and of those the median.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.catalog import CONSUMERS, Cell, Load
from benchmarks.results import Ratio, Runs, ratio_of


@dataclass(frozen=True)
class Goal:
    """One of them.

    Attributes:
        who, of: names of the two consumers.
        least: what the ratio of their rates has to be; where one event is alone, of the times that it takes, that of
            `of` by that of `who`.
        load: under which.
    """

    who: str
    of: str
    least: float
    load: Load

    def __str__(self) -> str:
        return f"{self.who} of {self.of}, {self.load}"


_AT_8: Final = Load(in_flight=8)
_AT_32: Final = Load(in_flight=32)
_KNOWN: Final = Load("all-duplicates", 32)
_ALONE: Final = Load("one alone", 1)
#: One event alone may take a tenth longer.
_A_TENTH_LONGER: Final = round(1 / 1.1, 3)

GOALS: Final = (
    Goal("inbox-connection", "raw", 1.2, _AT_8),
    Goal("inbox-session", "raw", 1.0, _AT_8),
    Goal("inbox-session", "core", 1.25, _AT_8),
    Goal("inbox-session", "faststream", 1.5, _AT_8),
    Goal("inbox-session-orm", "orm", 1.3, _AT_8),
    Goal("inbox-connection-asyncmy-uvloop", "raw", 1.3, _AT_8),
    Goal("inbox-connection-asyncmy-uvloop", "node", 1.0, _AT_8),
    Goal("inbox-connection", "raw", 1.05, _AT_32),
    Goal("inbox-session", "raw", 0.8, _AT_32),
    Goal("inbox-session", "core", 1.0, _AT_32),
    Goal("inbox-batch-connection", "raw", 1.5, _AT_32),
    Goal("inbox-batch-connection-asyncmy-uvloop", "raw", 2.0, _AT_32),
    Goal("inbox-batch-handler", "raw", 5.0, _AT_32),
    Goal("inbox-connection", "raw", 1.2, _KNOWN),
    Goal("inbox-batch-connection", "raw", 3.0, _KNOWN),
    Goal("inbox-connection", "raw", _A_TENTH_LONGER, _ALONE),
    Goal("inbox-session", "raw", _A_TENTH_LONGER, _ALONE),
    Goal("inbox-batch-connection", "raw", _A_TENTH_LONGER, _ALONE),
    Goal("inbox-connection-asyncmy-uvloop", "raw", _A_TENTH_LONGER, _ALONE),
)

#: By hand, with the inbox's own means: what it could be at best.
_BESIDE: Final = ((_AT_8, "raw-coalesced"), (_AT_32, "raw-batch"), (_AT_32, "raw-batch-at-once"))


def goals_grid() -> list[Cell]:
    """The cells that the goals speak of, with raw under each of their loads, and the strongest by hand."""
    loads = dict.fromkeys(goal.load for goal in GOALS)
    named = {*_BESIDE, *((goal.load, name) for goal in GOALS for name in (goal.who, goal.of, "raw"))}
    return [Cell(consumer, load) for load in loads for consumer in CONSUMERS if (load, consumer.id) in named]


@dataclass(frozen=True)
class Judged:
    """A goal, and the ratio that was measured."""

    goal: Goal
    ratio: Ratio

    @property
    def is_reached(self) -> bool:
        """Whether the median is at least what was wanted."""
        return self.ratio.median >= self.goal.least

    def row(self) -> dict[str, Any]:
        """As `header.json` has it."""
        return {
            "consumer": self.goal.who,
            "of": self.goal.of,
            "workload": self.goal.load.workload,
            "in_flight": self.goal.load.in_flight,
            "wanted": self.goal.least,
            "ratio": round(self.ratio.median, 3),
            "low": round(self.ratio.low, 3),
            "high": round(self.ratio.high, 3),
            "is_reached": self.is_reached,
        }


def judged(measured: Sequence[Runs]) -> list[Judged]:
    """Those goals of which both consumers have figures."""
    return list(_judged({(runs.cell.consumer.id, runs.cell.load): runs for runs in measured}))


def _judged(measured: dict[tuple[str, Load], Runs]) -> Iterator[Judged]:
    for goal in GOALS:
        who, of = measured.get((goal.who, goal.load)), measured.get((goal.of, goal.load))
        ratio = ratio_of(who, of) if who is not None and of is not None else None
        if ratio is not None:
            yield Judged(goal, ratio)


def goals_table(found: Sequence[Judged]) -> str:
    """In Markdown; nothing where no goal could be judged."""
    if not found:
        return ""
    lines = ["### goals", "", "| | of | wanted | measured | from … to | |", "|---|---|--:|--:|--:|---|"]
    lines += [
        f"| {each.goal.who}, {each.goal.load} | {each.goal.of} | {each.goal.least:g} | {each.ratio.median:.2f} "
        f"| {each.ratio.low:.2f} … {each.ratio.high:.2f} | {'reached' if each.is_reached else 'missed'} |"
        for each in found
    ]
    return "\n".join([*lines, ""])
