"""Comes last: the points at which processes have died in this run are the points that there are."""

import pytest

from inbox.core.crashpoints import crash_points
from tests.crash.reached import DIED, ONE, THREE

POINTS = {str(point) for point in crash_points()}


@pytest.mark.parametrize("round_", [ONE, THREE])
def test_processes_have_died_at_every_point_and_nowhere_else(request: pytest.FixtureRequest, round_: str) -> None:
    asked = {str(point_of(item)) for item in request.session.items if round_ in names_of(item)}
    config = request.config
    is_narrowed = bool(config.option.keyword or config.option.markexpr) or any("::" in word for word in config.args)
    assert is_narrowed or asked in (POINTS, set()), "some combination of every point has its turn"
    assert DIED[round_] == asked


def names_of(item: pytest.Item) -> tuple[object, ...]:
    marker = item.get_closest_marker("rotates_with")
    return () if marker is None else marker.args


def point_of(item: pytest.Item) -> object:
    callspec = getattr(item, "callspec", None)
    assert callspec is not None, "it is parametrized"
    return callspec.params["point"]
