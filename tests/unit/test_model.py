"""The table of transitions against a model of the world, every interleaving of it.

Two workers, two deliveries of one event and one of another, and a crash allowed at every step, as often as one likes.
"""

import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from inbox.core.lifecycle import COMMANDS, TRANSITIONS
from tests.mutations.tables import RULE_MUTATIONS, TABLE_MUTATIONS, RuleMutation, TableMutation
from tests.unit.model import DELIVERIES, IDLE, WORKERS, WORLDS, Model, Rules, World, start, wrong

ONE_EACH = (1, 1)
#: Of the random walk, which is longer than any shortest way, over more of everything.
MANY_WORKERS = 4
MANY_DELIVERIES = (3, 2, 2)
STEPS = 5_000

pytestmark = pytest.mark.timeout(300)


@dataclass
class Explored:
    """Every world that can come about.

    Attributes:
        worlds: each once, in the order of their numbers.
        follows: numbers of those that can follow each, all in a row; `ends` says where those of one end.
        broken: the invariants that were broken.
    """

    worlds: list[World] = field(default_factory=list)
    follows: "array[int]" = field(default_factory=lambda: array("L"))
    ends: "array[int]" = field(default_factory=lambda: array("L"))
    broken: set[str] = field(default_factory=set)


def explore(model: Model) -> Explored:
    first = start(WORKERS, DELIVERIES)
    found, numbers = Explored([first]), {first: 0}
    for world in found.worlds:  # it grows meanwhile
        found.broken |= wrong(world)
        for after, broken in model.successors(world):
            number = numbers.setdefault(after, len(numbers))
            if number == len(found.worlds):
                found.worlds.append(after)
            found.follows.append(number)
            found.broken |= broken
        found.ends.append(len(found.follows))
    return found


def breaks(model: Model) -> Iterator[str]:
    """Invariants as they are found broken; most mistakes show in a smaller world already."""
    for deliveries in (ONE_EACH, DELIVERIES):
        first = start(WORKERS, deliveries)
        seen, todo = {first}, [first]
        while todo:
            world = todo.pop()
            yield from wrong(world)
            for after, broken in model.successors(world):
                yield from broken
                if after not in seen:
                    seen.add(after)
                    todo.append(after)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def explored(model: Model) -> Explored:
    return explore(model)


def test_every_world_keeps_the_invariants(explored: Explored) -> None:
    print(f"{len(explored.worlds):,} worlds, {len(explored.follows):,} steps between them")
    assert explored.broken == set(), "I1 to I7"
    assert len(explored.worlds) == WORLDS, "say so in tests/unit/model.py, and write docs/crash-matrix.md anew"


def test_the_model_takes_every_way_of_the_table(explored: Explored, model: Model) -> None:
    assert explored.worlds
    assert model.taken == set(TRANSITIONS)


def test_from_everywhere_everything_can_still_end(explored: Explored) -> None:
    """No world from which the deliveries cannot all be settled any more."""
    before: list[list[int]] = [[] for _ in explored.worlds]
    begin = 0
    for number, end in enumerate(explored.ends):
        for after in explored.follows[begin:end]:
            before[after].append(number)
        begin = end
    good = bytearray(map(is_over, explored.worlds))
    todo = [number for number, is_good in enumerate(good) if is_good]
    while todo:
        for number in before[todo.pop()]:
            if not good[number]:
                good[number] = 1
                todo.append(number)
    assert all(good)


def is_over(world: World) -> bool:
    return all(lane == IDLE for lane in world.lanes) and not any(facts.ready for facts in world.events)


@pytest.mark.parametrize("mutation", TABLE_MUTATIONS, ids=str)
def test_the_model_sees_a_broken_table(monkeypatch: pytest.MonkeyPatch, mutation: TableMutation) -> None:
    monkeypatch.setitem(TRANSITIONS, (mutation.state, mutation.outcome), mutation.target)
    assert mutation.breaks in breaks(Model()), mutation.harm


@pytest.mark.parametrize("mutation", RULE_MUTATIONS, ids=str)
def test_the_model_sees_a_broken_rule(monkeypatch: pytest.MonkeyPatch, mutation: RuleMutation) -> None:
    rules = Rules() if mutation.rule is None else replace(Rules(), **{mutation.rule: False})
    if mutation.swaps is not None:
        one, other = mutation.swaps
        here, there = COMMANDS[one], COMMANDS[other]
        monkeypatch.setitem(COMMANDS, one, there)
        monkeypatch.setitem(COMMANDS, other, here)
    assert mutation.breaks in breaks(Model(rules)), mutation.harm


@pytest.mark.parametrize("seed", range(8))
def test_a_long_walk_over_a_larger_world_breaks_nothing(seed: int) -> None:
    chance, model = random.Random(seed), Model()  # noqa: S311 - to be repeated
    world = start(MANY_WORKERS, MANY_DELIVERIES)
    for _ in range(STEPS):
        following = list(model.successors(world))
        if not following:
            world = start(MANY_WORKERS, MANY_DELIVERIES)
            continue
        world, broken = chance.choice(following)
        assert not broken | wrong(world)
