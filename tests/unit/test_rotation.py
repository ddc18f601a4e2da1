"""What runs under a seed: each test and each kill point once, and every combination under some seed."""

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.rotation import left_out

POINTS = [f"{when}:{command}" for when in ("before", "after") for command in ("claim", "apply", "commit")]


@dataclass(eq=False)
class Test:
    """As much of a collected test as the rotation looks at."""

    __test__ = False

    folder: str
    name: str
    parameters: dict[str, str]
    rotates_with: str = ""
    drawn: int | None = None
    callspec: Any = field(init=False)

    def __post_init__(self) -> None:
        self.callspec = SimpleNamespace(params=self.parameters)

    @property
    def nodeid(self) -> str:
        return f"tests/{self.folder}/test_x.py::{self.name}[{'-'.join(self.parameters.values())}]"

    def get_closest_marker(self, name: str) -> Any:
        if name == "rotates_with":
            return SimpleNamespace(args=(self.rotates_with,)) if self.rotates_with else None
        if name == "drawn":
            return None if self.drawn is None else SimpleNamespace(args=(self.drawn,))
        return name == self.folder or None


def suite() -> list[Test]:
    pairs = ("newest", "oldest")
    kills = [Test("crash", "test_killed", {"pair": pair, "point": point}) for pair in pairs for point in POINTS]
    return kills + [Test("acceptance", "test_run", {"pair": pair}) for pair in pairs]


def test_subjects_without_servers_take_their_turn_among_those_on_servers() -> None:
    tests = [
        Test("crash", name, {**pair, "point": "after:commit"}, "killed")
        for name, pair in (("test_broker", {"pair": "newest"}), ("test_broker", {"pair": "oldest"}), ("test_file", {}))
    ]
    turns = [chosen(tests, seed) for seed in range(40)]
    assert {len(turn) for turn in turns} == {1}
    assert {turn[0].name for turn in turns} == {"test_broker", "test_file"}


def chosen(tests: list[Test], seed: int, one_in: int = 1) -> list[Test]:
    out = left_out(cast("list[pytest.Item]", tests), seed, one_in)
    return [test for test in tests if cast("pytest.Item", test) not in out]


def test_every_test_and_point_runs_once_under_every_seed() -> None:
    for seed in range(20):
        ran = Counter((test.name, test.parameters.get("point")) for test in chosen(suite(), seed))
        assert set(ran.values()) == {1}
        assert len(ran) == len(POINTS) + 1


def test_every_combination_runs_under_some_seed_and_a_seed_repeats_a_run() -> None:
    drawn = {test.nodeid for seed in range(20) for test in chosen(suite(), seed)}
    assert drawn == {test.nodeid for test in suite()}
    first, second = ([test.nodeid for test in chosen(suite(), 7)] for _ in range(2))
    assert first == second


def test_the_drivers_take_turns_as_the_servers_do() -> None:
    tests = [
        Test("integration", "test_x", {"driver": driver, "pair": pair, "size": "2"})
        for pair in ("newest", "oldest")
        for driver in ("aiomysql", "asyncmy")
    ]
    assert {len(chosen(tests, seed)) for seed in range(20)} == {1}
    assert {test.nodeid for seed in range(50) for test in chosen(tests, seed)} == {test.nodeid for test in tests}


def test_of_a_third_of_the_tests_each_has_its_turn_and_a_pair_and_conformance_is_whole() -> None:
    tests = [
        Test(folder, f"test_{number}", {"pair": pair})
        for folder in ("integration", "conformance")
        for number in range(30)
        for pair in ("newest", "oldest")
    ] + [Test("unit", f"test_{number}", {}) for number in range(30)]
    ran = {seed: chosen(tests, seed, 3) for seed in range(60)}
    for turn in ran.values():
        of = Counter(test.folder for test in turn)
        assert of["conformance"] == 30
        assert 0 < of["integration"] < 30
        assert 0 < of["unit"] < 30
        assert len({(test.folder, test.name) for test in turn}) == len(turn), "one pair of each"
    assert {test.nodeid for turn in ran.values() for test in turn} == {test.nodeid for test in tests}


def test_what_has_no_servers_runs_always() -> None:
    alone = [Test("crash", "test_killed", {"point": point}) for point in POINTS]
    assert chosen(alone, 1) == alone, "there is nothing to choose from"


def test_several_subjects_take_turns_at_each_point() -> None:
    tests = [
        Test("crash", subject, {"pair": pair, "point": point}, rotates_with="killed")
        for subject in ("test_ledger", "test_fetcher")
        for pair in ("newest", "oldest")
        for point in POINTS
    ]
    for seed in range(20):
        assert Counter(test.parameters["point"] for test in chosen(tests, seed)) == Counter(POINTS)
    assert {test.nodeid for seed in range(50) for test in chosen(tests, seed)} == {test.nodeid for test in tests}


@pytest.mark.parametrize("number", [0, 2, 100])
def test_of_what_is_drawn_only_so_many_run_and_other_seeds_draw_others(number: int) -> None:
    points = [
        Test("crash", "test_cut", {"pair": pair, "point": point}, drawn=number)
        for pair in ("newest", "oldest")
        for point in POINTS
    ]
    once = [chosen(points, seed) for seed in range(100)]
    assert {len(run) for run in once} == {min(number, len(POINTS))}
    ever = {test.nodeid for run in once for test in run}
    assert len(ever) == (0 if number == 0 else 2 * len(POINTS)), "every combination has its turn"
