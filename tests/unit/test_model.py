"""The table of transitions against a model of the world, every interleaving of it.

Two workers, two deliveries of one event, crashes between any two steps. The world is smaller than the
real one only where that makes more things possible, never fewer: every outcome that the database or
a handler could give is tried, whenever it could be given.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from inbox.core.lifecycle import COMMANDS, ENDS, TRANSITIONS, Command, Outcome, State
from tests.mutations.tables import TABLE_MUTATIONS, TableMutation

WORKERS = 2
DELIVERIES = 2
CRASHES = 2
#: The copy of delivery n is delivery n + COPY. A copy is not copied again: that would be more of the same.
COPY = 10


@dataclass(frozen=True)
class Lane:
    """A worker: which delivery it has in hand, and where that stands."""

    delivery: int | None = None
    state: State = State.RECEIVED
    has_lock: bool = False
    has_effect: bool = False  # written in the open transaction


_NUMBERS = {state: number for number, state in enumerate(State)}


def _order(lane: Lane) -> tuple[int, int, bool, bool]:
    return (-1 if lane.delivery is None else lane.delivery, _NUMBERS[lane.state], lane.has_lock, lane.has_effect)


@dataclass(frozen=True)
class World:
    lanes: tuple[Lane, ...] = (Lane(),) * WORKERS
    ready: frozenset[int] = frozenset(range(DELIVERIES))
    acknowledged: frozenset[int] = frozenset()
    has_row: bool = False
    effects: int = 0
    quarantined: bool = False
    copies: frozenset[int] = frozenset()
    crashes: int = 0

    def with_lane(self, number: int, lane: Lane) -> "World":
        """Of two worlds in which the workers have only changed places, one is enough."""
        others = (*self.lanes[:number], *self.lanes[number + 1 :])
        return replace(self, lanes=tuple(sorted((*others, lane), key=_order)))

    @property
    def deliveries(self) -> frozenset[int]:
        return frozenset(range(DELIVERIES)) | self.copies

    @property
    def is_locked(self) -> bool:
        return any(lane.has_lock for lane in self.lanes)


def successors(world: World) -> Iterator[World]:
    for number, lane in enumerate(world.lanes):
        if lane.delivery is None:
            for delivery in world.ready:
                yield replace(world.with_lane(number, Lane(delivery)), ready=world.ready - {delivery})
            continue
        if world.crashes < CRASHES:
            yield from crash(world, number, lane)
        yield from step(world, number, lane)


def crash(world: World, number: int, lane: Lane) -> Iterator[World]:
    """The process dies: the server undoes what is open, the broker gives the delivery to anyone."""
    assert lane.delivery is not None
    after = replace(world.with_lane(number, Lane()), ready=world.ready | {lane.delivery}, crashes=world.crashes + 1)
    yield after
    if COMMANDS[lane.state] is Command.COMMIT:  # sent and never answered
        yield commit(after)


def step(world: World, number: int, lane: Lane) -> Iterator[World]:
    for outcome, after, changed in perform(world, lane):
        target = TRANSITIONS[lane.state, outcome]
        if target in ENDS:
            yield settle(after, lane, target).with_lane(number, Lane())
        else:
            yield after.with_lane(number, replace(changed, state=target))


def settle(world: World, lane: Lane, end: State) -> World:
    assert lane.delivery is not None
    if end is State.ACKNOWLEDGED:
        return replace(world, acknowledged=world.acknowledged | {lane.delivery})
    return replace(world, ready=world.ready | {lane.delivery})


def perform(world: World, lane: Lane) -> Iterator[tuple[Outcome, World, Lane]]:  # noqa: C901, PLR0912, PLR0915 - the world's rules in one place
    """What a command can come to in this world, and what it leaves behind."""
    closed = replace(lane, has_lock=False, has_effect=False)
    match COMMANDS[lane.state]:
        case Command.DECODE | Command.VERIFY:
            yield Outcome.DONE, world, lane
            yield Outcome.REFUSED, world, lane
            if lane.state is State.DECODED:
                yield Outcome.FAILED, world, lane
        case Command.PREPARE | Command.BEGIN | Command.START:
            yield Outcome.DONE, world, lane
            yield Outcome.FAILED, world, lane
        case Command.CLAIM:
            if not world.is_locked:  # otherwise it waits for the holder, or gives up:
                if world.has_row:
                    yield Outcome.DUPLICATE, world, closed
                    yield Outcome.REFUSED, world, closed
                else:
                    yield Outcome.DONE, world, replace(lane, has_lock=True)
            yield Outcome.FAILED, world, lane
        case Command.APPLY:
            yield Outcome.DONE, world, replace(lane, has_effect=True)
            yield Outcome.FAILED, world, replace(lane, has_effect=True)
        case Command.COMMIT:
            yield Outcome.DONE, commit(world), closed
            yield Outcome.UNKNOWN, commit(world), closed
            yield Outcome.UNKNOWN, world, lane  # still open on the server
            yield Outcome.FAILED, world, closed
        case Command.RESOLVE:
            # A locking read waits for the old session; killing it undoes it.
            found = world.has_row
            yield (Outcome.DONE if found else Outcome.ABSENT), world, closed
            yield Outcome.UNRESOLVED, world, closed
        case Command.ROLLBACK:
            yield Outcome.DONE, world, closed
        case Command.RECORD:
            yield Outcome.AGAIN, world, lane
            yield Outcome.RELEASE, world, lane
            yield Outcome.QUARANTINE, world, lane
            if lane.delivery is not None and lane.delivery < COPY:
                yield Outcome.DELAY, world, lane
        case Command.DELAY:
            copied = with_copy(world, lane)
            yield Outcome.DONE, copied, lane
            yield Outcome.FAILED, copied, lane  # the broker has it, and its confirmation was lost
            yield Outcome.FAILED, world, lane
        case Command.WAIT:
            yield Outcome.AGAIN, world, lane
            yield Outcome.RELEASE, world, lane
        case Command.QUARANTINE:
            yield Outcome.DONE, replace(world, quarantined=True), lane
            yield Outcome.AGAIN, world, lane
            yield Outcome.FAILED, world, lane
        case Command.RELEASE | Command.ACKNOWLEDGE:
            yield Outcome.DONE, world, lane


def with_copy(world: World, lane: Lane) -> World:
    """The copy is there, once: one that was made before may be anywhere by now."""
    copy = frozenset({(lane.delivery or 0) + COPY}) - world.copies
    return replace(world, copies=world.copies | copy, ready=world.ready | copy)


def commit(world: World) -> World:
    return replace(world, has_row=True, effects=world.effects + 1)


def explore() -> Iterator[tuple[World, list[World]]]:
    """Every world that can come about, each once, and what can follow it."""
    seen = {World()}
    todo = [World()]
    while todo:
        world = todo.pop()
        following = list(successors(world))
        yield world, following
        new = set(following) - seen
        seen |= new
        todo += new


@pytest.fixture(scope="module")
def worlds() -> dict[World, list[World]]:
    return dict(explore())


def test_the_model_takes_every_way_of_the_table(worlds: dict[World, list[World]]) -> None:
    taken = {
        (lane.state, outcome)
        for world in worlds
        for lane in world.lanes
        if lane.delivery is not None
        for outcome, _, _ in perform(world, lane)
    }
    assert taken == set(TRANSITIONS)


def test_the_effect_exists_at_most_once_and_with_its_row(worlds: dict[World, list[World]]) -> None:
    assert {world.effects for world in worlds} == {0, 1}
    assert all(world.has_row == (world.effects == 1) for world in worlds)


def test_whatever_is_acknowledged_is_stored(worlds: dict[World, list[World]]) -> None:
    """Or is there once more: a copy of it is with the broker, or in hand."""
    assert not any(map(is_lost, worlds))


def test_nothing_is_ever_lost(worlds: dict[World, list[World]]) -> None:
    for world in worlds:
        in_hand = {lane.delivery for lane in world.lanes if lane.delivery is not None}
        assert world.ready | in_hand | world.acknowledged == world.deliveries


def test_from_everywhere_everything_can_still_end(worlds: dict[World, list[World]]) -> None:
    """No state from which the deliveries cannot all be acknowledged any more."""
    before: dict[World, set[World]] = {world: set() for world in worlds}
    for world, following in worlds.items():
        for after in following:
            before[after].add(world)
    good = {world for world in worlds if world.acknowledged == world.deliveries}
    todo = list(good)
    while todo:
        for world in before[todo.pop()]:
            if world not in good:
                good.add(world)
                todo.append(world)
    assert good == set(worlds)


@pytest.mark.parametrize("mutation", TABLE_MUTATIONS, ids=str)
def test_the_model_sees_a_broken_table(monkeypatch: pytest.MonkeyPatch, mutation: TableMutation) -> None:
    monkeypatch.setitem(TRANSITIONS, (mutation.state, mutation.outcome), mutation.target)
    assert any(map(is_lost, (world for world, _ in explore()))), mutation.harm


def is_lost(world: World) -> bool:
    """Whether something was acknowledged that is stored nowhere, and is not with the broker either."""
    copies_left = world.copies - world.acknowledged
    is_stored = world.has_row or world.quarantined
    return not is_stored and any(delivery + COPY not in copies_left for delivery in world.acknowledged)
