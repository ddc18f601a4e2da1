"""A world for the table of transitions: workers, a broker, and as much of InnoDB as decides who has an effect.

It is smaller than the real one only where that makes more things possible, never fewer: every outcome that the
database, the broker or a handler could give is tried whenever it could be given, and a process may die at any step.
A row's lock is held by one session; others wait for it, and give up (1205) or are chosen as a victim (1213). The
session of a worker that is gone lives on for a while, and may commit late.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from inbox.core.lifecycle import COMMANDS, ENDS, TRANSITIONS, Command, Outcome, State

#: Two deliveries of one event, and one of another.
DELIVERIES = (2, 1)
WORKERS = 2
#: The worlds that these can come to, crashes at every step: a test counts them.
WORLDS = 454_150

#: What a session of nobody's holds: no row; a row that will be rolled back; one whose COMMIT is under way.
GONE, OPEN, COMMITTING = 0, 1, 2

NUMBERS = {state: number for number, state in enumerate(State)}
STATES = list(State)
OK: frozenset[str] = frozenset()


class Lane(NamedTuple):
    """A worker with a delivery in hand.

    Attributes:
        event: which one; -1 where the worker has nothing in hand.
        state: number of the state.
        has_lock: its open transaction has inserted the event's row.
        has_effect: and holds the handler's effect, all of it.
        has_begun: the handler was begun.
        is_forged: the verifier has refused it.
        has_copy: a copy of it is confirmed.
    """

    event: int = -1
    state: int = 0
    has_lock: bool = False
    has_effect: bool = False
    has_begun: bool = False
    is_forged: bool = False
    has_copy: bool = False


class Facts(NamedTuple):
    """What there is of one event, outside of every worker.

    Attributes:
        ready: deliveries that the broker has for anyone.
        row: its row and effect are committed.
        quarantined: it has its entry.
        copied: a delayed copy was made; one is enough.
        session: of a worker that is gone, as above.
    """

    ready: int
    row: bool = False
    quarantined: bool = False
    copied: bool = False
    session: int = GONE


class World(NamedTuple):
    """All workers, in an order that does not matter, and all events."""

    lanes: tuple[Lane, ...]
    events: tuple[Facts, ...]


IDLE = Lane()


class Move(NamedTuple):
    """What a step was. Of the servers alone there is no lane in it; with a delivery that is taken there is no command.

    Attributes:
        event: which one.
        lane: as it was before.
        becomes: as it is afterwards.
        command: which one was carried out, or was about to be.
        outcome: what that came to; None where the process died.
    """

    event: int
    lane: Lane = IDLE
    becomes: Lane = IDLE
    command: Command | None = None
    outcome: Outcome | None = None


#: A lane and what there is of its event afterwards, how it came to that, and the invariants that were broken.
Step = tuple[Outcome, Lane, Facts, frozenset[str]]


@dataclass(frozen=True)
class Rules:
    """What the code does that does not stand in the table; each can be broken.

    Attributes:
        guard: a unit whose statement failed with a lock error is doomed, though its handler swallows that.
        locking_probe: an unknown commit is looked for by a locking read.
        charges_the_begun_alone: an attempt is charged only to an event whose handler was begun.
        whole_keys: two ids are never taken for one.
    """

    guard: bool = True
    locking_probe: bool = True
    charges_the_begun_alone: bool = True
    whole_keys: bool = True


def start(workers: int, deliveries: tuple[int, ...]) -> World:
    """Idle workers, and so many deliveries of each event."""
    return World((IDLE,) * workers, tuple(Facts(number) for number in deliveries))


class Model:
    """The table as it is now, in a world with these rules.

    Args:
        rules: of the code.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules or Rules()
        self._commands = {NUMBERS[state]: command for state, command in COMMANDS.items()}
        self._targets = {(NUMBERS[state], outcome): target for (state, outcome), target in TRANSITIONS.items()}
        self._ends = {NUMBERS[state] for state in ENDS}
        #: The ways of the table that were taken.
        self.taken: set[tuple[State, Outcome]] = set()
        self._steps = cache(self._all_steps)
        self._deaths = cache(self._all_deaths)

    def successors(self, world: World) -> Iterator[tuple[World, frozenset[str]]]:
        """Every world that one step leads to, and what the step has broken."""
        for _, after, broken in self.moves(world):
            yield after, broken

    def moves(self, world: World) -> Iterator[tuple[Move, World, frozenset[str]]]:
        """The same, and what each step was."""
        for event, facts in enumerate(world.events):
            for after, broken in _server_steps(facts):
                yield Move(event), _with(world, event, after), broken
            if facts.ready and IDLE in world.lanes:
                number, taken = world.lanes.index(IDLE), facts._replace(ready=facts.ready - 1)
                lane = Lane(event)
                yield Move(event, becomes=lane), _with(world, event, taken, number, lane), OK
        for number, lane in enumerate(world.lanes):
            if lane is IDLE or lane.event < 0 or lane in world.lanes[:number]:
                continue
            facts = world.events[lane.event]
            others = (*world.lanes[:number], *world.lanes[number + 1 :])
            is_held = any(other.has_lock and other.event == lane.event for other in others)
            foreign = any(facts.row for event, facts in enumerate(world.events) if event != lane.event)
            for move, after, broken in self._steps(lane, facts, is_held, foreign):
                yield move, _with(world, lane.event, after, number, move.becomes), broken
            neighbours = any(facts.ready for event, facts in enumerate(world.events) if event != lane.event)
            death = Move(lane.event, lane, IDLE, self._commands[lane.state])
            for after, broken in self._deaths(lane, facts, neighbours):
                yield death, _with(world, lane.event, after, number, IDLE), broken

    def _all_steps(
        self, lane: Lane, facts: Facts, is_held: bool, foreign: bool
    ) -> list[tuple[Move, Facts, frozenset[str]]]:
        found = []
        command = self._commands[lane.state]
        for outcome, after, there, harm in self._perform(command, lane, facts, is_held, foreign):
            target = self._targets.get((lane.state, outcome))
            if target is None:
                continue  # of a table in which commands have changed places
            self.taken.add((STATES[lane.state], outcome))
            broken = harm | _entered(target, after, there, foreign)
            number = NUMBERS[target]
            if number not in self._ends:
                move = Move(lane.event, lane, _remembered(after, target, number), command, outcome)
                found.append((move, there, broken))
                continue
            move = Move(lane.event, lane, IDLE, command, outcome)
            if target is State.ACKNOWLEDGED:
                found.append((move, there, broken))
            # Released; or the acknowledgement is lost with its channel, and the broker gives the delivery to anyone.
            found.append((move, there._replace(ready=there.ready + 1), broken))
        return found

    def _all_deaths(self, lane: Lane, facts: Facts, neighbours: bool) -> list[tuple[Facts, frozenset[str]]]:
        """The process dies: the server undoes what is open, now or later, and the broker gives the delivery on."""
        broken = OK if self._rules.charges_the_begun_alone or not neighbours else frozenset({"I7"})
        back = facts._replace(ready=facts.ready + 1)
        found = [(back, broken)]
        if lane.has_lock:
            found.append((back._replace(session=OPEN), broken))
        match self._commands[lane.state]:
            case Command.COMMIT:  # sent, and never answered
                committed, harm = _commit(lane, back)
                found.append((committed, broken | harm))
                if lane.has_lock and lane.has_effect:
                    found.append((back._replace(session=COMMITTING), broken))
            case Command.ACKNOWLEDGE:
                found.append((facts, broken | _settled(lane, facts)))
            case Command.QUARANTINE:
                found.append((back._replace(quarantined=True), broken))
            case Command.DELAY if not facts.copied:
                found.append((back._replace(ready=back.ready + 1, copied=True), broken))
        return found

    def _perform(self, command: Command, lane: Lane, facts: Facts, is_held: bool, foreign: bool) -> Iterator[Step]:
        """What a command can come to in this world, and what it leaves behind."""
        match command:
            case Command.CLAIM:
                yield from self._claim(lane, facts, is_held or facts.session != GONE, foreign)
            case Command.APPLY:
                yield from self._apply(lane, facts)
            case Command.COMMIT:
                yield from _commits(lane, facts)
            case Command.RESOLVE:
                yield from self._resolve(lane, facts, is_held)
            case Command.RECORD:
                charge_all = not self._rules.charges_the_begun_alone
                broken = frozenset({"I7"}) if charge_all and not lane.has_begun else OK
                for outcome in (Outcome.AGAIN, Outcome.RELEASE, Outcome.QUARANTINE):
                    yield outcome, lane, facts, broken
                if not facts.copied:
                    yield Outcome.DELAY, lane, facts, broken
            case _:
                yield from _others(command, lane, facts)

    def _claim(self, lane: Lane, facts: Facts, is_locked: bool, foreign: bool) -> Iterator[Step]:
        # 1205, 1213, or the connection is lost: nothing of it is there.
        yield Outcome.FAILED, lane, facts, OK
        if is_locked:
            return  # it waits
        if facts.row or (foreign and not self._rules.whole_keys):  # 1062
            yield Outcome.DUPLICATE, lane, facts, OK
            yield Outcome.REFUSED, lane, facts, OK  # another fingerprint
        else:
            broken = frozenset({"I6"}) if lane.is_forged else OK
            yield Outcome.DONE, lane._replace(has_lock=True), facts, broken

    def _apply(self, lane: Lane, facts: Facts) -> Iterator[Step]:
        broken = OK if lane.has_lock else frozenset({"I3"})
        begun = lane._replace(has_begun=True)
        yield Outcome.DONE, begun._replace(has_effect=True), facts, broken
        yield Outcome.FAILED, begun._replace(has_effect=True), facts, broken
        # 1205 undoes the statement, 1213 the whole transaction; a handler may swallow either and go on.
        swallowed = Outcome.FAILED if self._rules.guard else Outcome.DONE
        yield swallowed, begun, facts, broken
        yield swallowed, begun._replace(has_lock=False, has_effect=not self._rules.guard), facts, broken

    def _resolve(self, lane: Lane, facts: Facts, is_held: bool) -> Iterator[Step]:
        yield Outcome.UNRESOLVED, lane, facts, OK
        if facts.row:
            yield Outcome.DONE, lane, facts, OK
        elif not self._rules.locking_probe:
            broken = frozenset({"I4"}) if facts.session == COMMITTING else OK
            yield Outcome.ABSENT, lane, facts, broken
        elif not is_held:  # the old session is waited for, or killed
            yield Outcome.ABSENT, lane, facts._replace(session=GONE), OK


def _others(command: Command, lane: Lane, facts: Facts) -> Iterator[Step]:  # noqa: C901 - a case for each command
    closed = lane._replace(has_lock=False, has_effect=False)
    match command:
        case Command.DECODE:
            yield Outcome.DONE, lane, facts, OK
            yield Outcome.REFUSED, lane, facts, OK
        case Command.VERIFY:
            yield Outcome.DONE, lane, facts, OK
            yield Outcome.REFUSED, lane._replace(is_forged=True), facts, OK
            yield Outcome.FAILED, lane, facts, OK
        case Command.PREPARE:  # counts as the handler's start
            yield Outcome.DONE, lane, facts, OK
            yield Outcome.FAILED, lane._replace(has_begun=True), facts, OK
        case Command.BEGIN | Command.START:
            yield Outcome.DONE, lane, facts, OK
            yield Outcome.FAILED, lane, facts, OK
        case Command.ROLLBACK:
            yield Outcome.DONE, closed, facts, OK
        case Command.WAIT:
            yield Outcome.AGAIN, lane, facts, OK
            yield Outcome.RELEASE, lane, facts, OK
        case Command.QUARANTINE:
            entered = facts._replace(quarantined=True)
            yield Outcome.DONE, lane, entered, OK
            yield Outcome.FAILED, lane, entered, OK  # it is there, and the answer was lost
            yield Outcome.FAILED, lane, facts, OK
            yield Outcome.AGAIN, lane, entered, OK  # the same, and the worker does not know
            yield Outcome.AGAIN, lane, facts, OK
        case Command.DELAY:
            copied = facts._replace(ready=facts.ready + (not facts.copied), copied=True)
            yield Outcome.DONE, lane._replace(has_copy=True), copied, OK
            yield Outcome.FAILED, lane, copied, OK  # the broker has it, and its confirmation was lost
            yield Outcome.FAILED, lane, facts, OK
        case Command.ACKNOWLEDGE:
            yield Outcome.DONE, lane, facts, _settled(lane, facts)
        case Command.RELEASE:
            yield Outcome.DONE, lane, facts, OK


def _commits(lane: Lane, facts: Facts) -> Iterator[Step]:
    closed = lane._replace(has_lock=False, has_effect=False)
    committed, broken = _commit(lane, facts)
    yield Outcome.DONE, closed, committed, broken
    yield Outcome.UNKNOWN, closed, committed, broken  # its answer was lost
    yield Outcome.UNKNOWN, closed, facts, OK  # it never arrived
    if lane.has_lock and lane.has_effect:
        yield Outcome.UNKNOWN, closed, facts._replace(session=COMMITTING), OK
    yield Outcome.FAILED, closed, facts, OK


def _commit(lane: Lane, facts: Facts) -> tuple[Facts, frozenset[str]]:
    """What a COMMIT makes durable: row and effect, or one of them without the other."""
    broken = OK
    if lane.has_effect != lane.has_lock or (lane.has_effect and facts.row):
        broken |= {"I2"}
    if lane.has_lock and not lane.has_effect:
        broken |= {"I3"}
    return facts._replace(row=facts.row or lane.has_lock), broken


def _settled(lane: Lane, facts: Facts) -> frozenset[str]:
    return OK if facts.row or facts.quarantined or lane.has_copy else frozenset({"I1"})


def _entered(target: State, lane: Lane, facts: Facts, foreign: bool) -> frozenset[str]:
    """A duplicate is what has a row of its own."""
    if target is not State.DUPLICATE or facts.row:
        return OK
    return frozenset({"I4", "I5"}) if foreign else frozenset({"I4"})


#: What is decided in these states, by what the lane knows of itself, is decided; the rest is the same for all.
_DECIDED = frozenset(
    {
        *(State.REJECTED, State.RELEASING, State.DELAYING, State.WAITING),
        *(State.COMMITTED, State.DUPLICATE, State.QUARANTINED, State.DELAYED),
    }
)


def _remembered(lane: Lane, state: State, number: int) -> Lane:
    if state in _DECIDED:
        return Lane(lane.event, number, lane.has_lock, lane.has_effect, has_copy=lane.has_copy)
    return lane._replace(state=number)


def _server_steps(facts: Facts) -> Iterator[tuple[Facts, frozenset[str]]]:
    """The session of a worker that is gone ends."""
    if facts.session != GONE:
        yield facts._replace(session=GONE), OK
    if facts.session == COMMITTING:
        broken = frozenset({"I2"}) if facts.row else OK
        yield facts._replace(session=GONE, row=True), broken


def _with(world: World, event: int, facts: Facts, number: int | None = None, lane: Lane = IDLE) -> World:
    """Of two worlds in which the workers have only changed places, one is enough."""
    events = (*world.events[:event], facts, *world.events[event + 1 :])
    if number is None:
        return World(world.lanes, events)
    lanes = (*world.lanes[:number], lane, *world.lanes[number + 1 :])
    return World(tuple(sorted(lanes)), events)


def wrong(world: World) -> frozenset[str]:
    """What no world may show, whatever led to it."""
    broken = OK
    for event, facts in enumerate(world.events):
        lanes = [lane for lane in world.lanes if lane.event == event]
        if sum(lane.has_lock for lane in lanes) + (facts.session != GONE) > 1:
            broken |= {"I2"}
        if not facts.ready and not lanes and not (facts.row or facts.quarantined or facts.session):
            broken |= {"I1"}  # nobody has it any more, and it is stored nowhere
    return broken
