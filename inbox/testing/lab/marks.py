"""What the mark `crash_matrix` does: one test for each point, and a line about those that were reached."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.errors import ConfigurationError
from inbox.testing.lab.comparison import fates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inbox.testing.lab.lab import Lab

__all__ = ["Reached", "scenario", "spread"]

_FIXTURE = "inbox_point"


@dataclass(slots=True)
class Reached:
    """What is known of the points that the events of one test lead to.

    Attributes:
        test: its name, without the point.
        passed: points that a run of it has passed; empty before the first.
        killed: points at which a worker has died in it.
        unreached: points at which none has.
    """

    test: str
    passed: set[str] = field(default_factory=set)
    killed: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        killed = f"killed at {len(self.killed)} points: {', '.join(self.killed) or 'none'}"
        missing = f"; not reached by these events: {', '.join(self.unreached)}" if self.unreached else ""
        return f"inbox: {self.test}: {killed}{missing}"


def spread(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test that is marked.

    Raises:
        pytest.UsageError: it uses none of the lab's fixtures, or a point is none.
    """
    marker = next(metafunc.definition.iter_markers("crash_matrix"))
    if _FIXTURE not in metafunc.fixturenames:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: crash_matrix kills the lab's workers; let the test use inbox_lab or publish"
        )
    wanted = marker.kwargs.get("points")
    try:
        points = [*crash_points()] if wanted is None else [CrashPoint.parse(str(point)) for point in wanted]
    except ValueError:
        raise pytest.UsageError(
            f"{metafunc.definition.nodeid}: crash_matrix: {wanted!r} names no crash point"
        ) from None
    metafunc.parametrize(_FIXTURE, points, ids=[str(point) for point in points], indirect=True)


@contextmanager
def scenario(
    request: pytest.FixtureRequest, lab: Lab, point: CrashPoint | None, reached: dict[str, Reached]
) -> Iterator[None]:
    """One test: everything as it was, the kill prepared, and at the end whether it came about.

    Args:
        request: the test's.
        lab: open.
        point: of the matrix; None where the test says itself what happens.
        reached: what is known of the tests of this run.
    """
    known = Reached(request.node.nodeid.partition("[")[0])
    tell = None
    if point is not None:
        if point.command in lab.queue.never:
            said = f"{point} is no point over {lab.queue.name}"
            pytest.skip(said)  # no worker can come to it there, so nothing is left untried, also under `strict`
        known = reached.setdefault(known.test, known)
        tell = _teller(request, lab, known)
        if known.passed and str(point) not in known.passed:
            tell(point)
    lab.when_unreached = tell
    lab.begin()
    if point is not None:
        lab.kill_at(point, **_options(request))
    failed_before, kills_before = request.session.testsfailed, len(lab.kills)
    yield
    known.passed |= {passed for passed, _ in lab.seen()}
    known.killed += [str(killed) for killed in lab.kills[kills_before:] if killed == point]
    if lab.is_armed and request.session.testsfailed == failed_before and str(point) not in known.unreached:
        pytest.fail(
            "the kill did not come about: the test has to publish an event and to call settled()", pytrace=False
        )


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    marker: Any = request.node.get_closest_marker("crash_matrix")
    options = {name: value for name, value in marker.kwargs.items() if name != "points"}
    if unknown := {*options} - {"workers", "event_type"}:
        raise ConfigurationError(f"crash_matrix takes points, workers and event_type, not {', '.join(unknown)}")
    return options


def _teller(request: pytest.FixtureRequest, lab: Lab, known: Reached) -> Any:
    is_strict = request.config.getoption("--inbox-strict") or request.config.getini("inbox_strict")

    def tell(point: CrashPoint) -> None:
        known.unreached.append(str(point))
        said = f"{point} is not reached by these events{fates(lab.observe().events)}"
        if is_strict:
            pytest.fail(said, pytrace=False)
        pytest.skip(said)  # an adopter's test: their events lead elsewhere, which is no fault of theirs

    return tell
