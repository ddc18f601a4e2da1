"""Draws traces: walks through the model that keep to what real servers do.

Beside the world of the model a walk keeps what the model leaves open and the real thing does not: which of two contents
a delivery has, which deliveries a worker is sure to get, how often each was tried, why it failed.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from inbox.core.lifecycle import Command, Outcome, State
from tests.crash.trace import IMMEDIATE, Means, Message, Step, Trace
from tests.unit.model import COMMITTING, DELIVERIES, GONE, IDLE, NUMBERS, Facts, Lane, Model, Move, World, start

#: Disturbances of one trace at most; of a hundred steps, where one could only die, and where more can be done.
TROUBLES, RARELY, OFTEN = 6, 2, 9
#: Of a hundred times that it could be done, what a walk is out for; and what leads to that.
MOSTLY = 75
LEADS = {
    Means.COPY_CUT: Means.RAISE_LATER,
    Means.COPY_UNCONFIRMED: Means.RAISE_LATER,
    Means.KILL_QUERY: Means.WAIT,
    Means.LATE_COMMIT: Means.COMMIT_HELD,
    Means.PROBE_WAIT: Means.COMMIT_HELD,
}
#: Steps after which a walk is given up.
LONGEST = 150

_PLAIN = {Means.GO, Means.TAKE, Means.WAIT, Means.SESSION_ENDS, Means.LATE_COMMIT}
_RAISES = {Means.RAISE_AGAIN: Outcome.AGAIN, Means.RAISE_LATER: Outcome.DELAY, Means.RAISE_REJECT: Outcome.QUARANTINE}
#: What can be done nearly anywhere.
_ANYWHERE = {each.name for each in (Means.DIES_AFTER, Means.DIES_BEFORE, Means.REFUSE, Means.CANNOT_TELL)}
_APPLIED = NUMBERS[State.APPLIED]
#: Commands that write attempts or read them.
_WITH_ATTEMPTS = {Command.PREPARE, Command.START, Command.RECORD, Command.QUARANTINE}


#: In hand where there is nothing.
NOTHING = Message(-1)


@dataclass
class Hand:
    """A worker, as far as the next step depends on it.

    Attributes:
        last: the command before; None where there was none.
        why: what RECORD will come to; None where nothing has failed.
        has_failed: an attempt was charged.
        is_noted: its start is.
    """

    name: str
    lane: Lane = IDLE
    message: Message = NOTHING
    last: Command | None = None
    why: Outcome | None = None
    is_pristine: bool = True
    tries: int = 1
    is_verified: bool = False
    is_prepared: bool = False
    has_failed: bool = False
    is_noted: bool = False
    waits: bool = False

    @property
    def is_busy(self) -> bool:
        return self.lane.event >= 0

    @property
    def is_in_trouble(self) -> bool:
        """Whether its starts are noted."""
        return self.has_failed or not self.is_pristine


class DeadEnd(Exception):
    """There is no step from here that could be brought about."""


@dataclass
class Walk:
    """One walk through the model.

    Args:
        model: whose steps it takes.
        chance: what draws.
        is_patient: whether claims outlast the trace, or give up.
    """

    model: Model
    chance: random.Random
    is_patient: bool
    steps: list[Step] = field(default_factory=list)
    does: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.world = start(2, DELIVERIES)
        self.hands = [Hand("A"), Hand("B")]
        #: Chance alone seldom comes by what needs both workers at one event.
        self.focus = self.chance.choice([means for means in Means if means not in _PLAIN or means is Means.WAIT])
        self.prepares = tuple(self.chance.random() < 0.4 for _ in DELIVERIES)
        #: Not published yet; and with the broker, or with a worker that has not begun.
        self.new: list[Message] = []
        self.loose: list[Message] = []
        self.rows: dict[int, bool] = {}
        #: Contents of the row that an orphaned session holds; and whether it has deleted the attempts.
        self.orphans: dict[int, tuple[bool, bool]] = {}
        self._troubles = 0
        for event, number in enumerate(DELIVERIES):
            drawn = [self.chance.random() for _ in range(number)]
            self.new += [
                Message(event, is_other=self.is_patient and each < 0.12, is_garbled=0.12 < each < 0.2) for each in drawn
            ]

    # ------------------------------------------------------------ the walk
    def to_the_end(self) -> None:
        """Walk until all is over.

        Raises:
            DeadEnd: it cannot be.
        """
        while not (self.world.lanes == (IDLE, IDLE) and not any(facts.ready for facts in self.world.events)):
            if len(self.steps) >= LONGEST:
                raise DeadEnd
            self._take(*self._choose())

    def _choose(self) -> tuple[Step, World]:
        options = [*self._options()]
        if any(hand.waits and not self.is_locked(hand) for hand in self.hands):
            options = [option for option in options if self._is_freed(option[0])]
        wanted = [option for option in options if option[0].means in (self.focus, LEADS.get(self.focus))]
        if wanted and self._troubles < TROUBLES and self.chance.randrange(100) < MOSTLY:
            return self.chance.choice(wanted)
        troubles = [option for option in options if option[0].means not in _PLAIN]
        kinds = sorted({(step.hand, step.means.name) for step, _ in troubles})
        rare = [kind for kind in kinds if kind[1] not in _ANYWHERE]
        if kinds and self._troubles < TROUBLES and self.chance.randrange(100) < (OFTEN if rare else RARELY):
            kind = self.chance.choice(rare * 3 + kinds)
            return self.chance.choice([each for each in troubles if (each[0].hand, each[0].means.name) == kind])
        plain = [option for option in options if option[0].means in _PLAIN]
        if not plain:
            raise DeadEnd
        actor = self.chance.choice(sorted({step.hand for step, _ in plain}))
        return self.chance.choice([each for each in plain if each[0].hand == actor])

    def _is_freed(self, step: Step) -> bool:
        return step.means is Means.GO and any(hand.waits and hand.name == step.hand for hand in self.hands)

    def is_locked(self, hand: Hand) -> bool:
        """Whether somebody else holds the row of its event."""
        event = hand.lane.event
        others = [other for other in self.hands if other is not hand and other.lane.event == event]
        return self.world.events[event].session != GONE or any(other.lane.has_lock for other in others)

    # ------------------------------------------------------------ what could be done
    def _options(self) -> Iterator[tuple[Step, World]]:
        for move, after, broken in self.model.moves(self.world):
            assert not broken
            here, there = self.world.events[move.event], after.events[move.event]
            facts = after.events
            if move.command is None and move.becomes is IDLE:
                means = Means.LATE_COMMIT if there.row != here.row else Means.SESSION_ENDS
                yield Step("", move, means, None, False, facts), after
            elif move.command is None:
                for message, is_new in self._messages(move.event):
                    name = next(hand.name for hand in self.hands if not hand.is_busy)
                    yield Step(name, move, Means.TAKE, message, is_new, facts), after
            else:
                for hand in self.hands:
                    if hand.lane == move.lane:
                        for means in self._means(hand, move, here, there):
                            yield Step(hand.name, move, means, hand.message, False, facts), after
        for hand in self.hands:
            if self._may_wait(hand):
                move = Move(hand.lane.event, hand.lane, hand.lane, self._command(hand))
                yield Step(hand.name, move, Means.WAIT, hand.message, False, self.world.events), self.world

    def _messages(self, event: int) -> set[tuple[Message, bool]]:
        """What a worker is sure to have, or to get."""
        idle = sum(not hand.is_busy for hand in self.hands)
        found = set()
        if len(self.loose) <= idle or len(set(self.loose)) == 1:
            found |= {(message, False) for message in self.loose}
        if len(self.loose) < idle:
            found |= {(message, True) for message in self.new}
        return {each for each in found if each[0].event == event}

    def _command(self, hand: Hand) -> Command | None:
        states = {NUMBERS[State.BEGUN]: Command.CLAIM, NUMBERS[State.COMMIT_UNKNOWN]: Command.RESOLVE}
        return states.get(hand.lane.state)

    def _may_wait(self, hand: Hand) -> bool:
        if not self.is_patient or not hand.is_busy or any(each.waits for each in self.hands):
            return False
        return self._command(hand) is not None and self.is_locked(hand)

    def _means(self, hand: Hand, move: Move, here: Facts, there: Facts) -> Iterator[Means]:
        if move.outcome is None:
            if not hand.waits:
                yield from _deaths(hand, move, here, there)
            return
        match move.command:
            case Command.CLAIM | Command.RESOLVE:
                yield from self._on_the_row(hand, move, here)
            case Command.COMMIT:
                yield from _commits(move.outcome, here, there)
            case Command.APPLY:
                yield from self._applies(move, here)
            case _ if move.command in _WITH_ATTEMPTS and self._attempts_are_held(hand):
                return
            case Command.DECODE | Command.VERIFY | Command.PREPARE | Command.BEGIN | Command.START:
                yield from self._before_the_unit(hand, move, here)
            case _:
                yield from _settles(hand, move, here, there)

    def _attempts_are_held(self, hand: Hand) -> bool:
        event = hand.lane.event
        beside = any(
            other.lane.event == event and other.lane.state == _APPLIED for other in self.hands if other is not hand
        )
        return beside or self.orphans.get(event, (False, False))[1]

    def _on_the_row(self, hand: Hand, move: Move, here: Facts) -> Iterator[Means]:
        is_same = self.rows.get(move.event) == hand.message.is_other
        if self.is_locked(hand):
            if move.outcome not in (Outcome.FAILED, Outcome.UNRESOLVED):
                return
            if not self.is_patient:
                yield Means.LOCK_WAIT if move.outcome is Outcome.FAILED else Means.PROBE_WAIT
            elif hand.waits and move.outcome is Outcome.FAILED:
                yield from (Means.KILL_QUERY, Means.KILL_SESSION)
            return
        match move.outcome:
            case Outcome.FAILED if not hand.waits:
                yield Means.KILL_SESSION
            case Outcome.DUPLICATE if is_same:
                yield Means.GO
            case Outcome.REFUSED if not is_same:
                yield Means.GO
            case Outcome.DONE if move.command is Command.CLAIM or is_same:
                yield Means.GO
            case Outcome.ABSENT if not here.row:
                yield Means.GO

    def _applies(self, move: Move, here: Facts) -> Iterator[Means]:
        if move.outcome is Outcome.DONE:
            yield Means.GO
        elif move.becomes.has_effect:
            yield from _raises(here)
        elif move.becomes.has_lock:
            yield Means.SWALLOW_KILL if self.is_patient else Means.SWALLOW_LOCK_WAIT
        else:
            yield from (Means.SWALLOW_DEADLOCK, Means.KILL_SESSION)

    def _before_the_unit(self, hand: Hand, move: Move, here: Facts) -> Iterator[Means]:
        match move.command, move.outcome:
            case Command.DECODE, outcome:
                if (outcome is Outcome.REFUSED) == hand.message.is_garbled:
                    yield Means.GO
            case _, Outcome.DONE:
                yield Means.GO
            case Command.VERIFY, outcome if not hand.is_verified:
                yield Means.REFUSE if outcome is Outcome.REFUSED else Means.CANNOT_TELL
            case Command.PREPARE, _ if self._prepares(hand, here):
                yield from _raises(here)
            case Command.START, _ if hand.is_in_trouble and not hand.is_noted:
                yield Means.WRITE_CUT

    def _prepares(self, hand: Hand, here: Facts) -> bool:
        """Whether there is something to prepare; not where the event is known."""
        is_known = hand.is_in_trouble and here.row
        return self.prepares[hand.lane.event] and not hand.is_prepared and not is_known

    # ------------------------------------------------------------ what is so afterwards
    def _take(self, step: Step, after: World) -> None:
        before = self.world
        self.does |= {*self._marks(step)}
        self.steps.append(step)
        self.world = after
        self._troubles += step.means not in _PLAIN
        here, there = before.events[step.move.event], after.events[step.move.event]
        hand = next((hand for hand in self.hands if hand.name == step.hand), None)
        self._note_sessions(hand, step, here, there)
        if hand is None:
            return
        if step.means is Means.TAKE:
            assert step.message is not None
            (self.new if step.is_new else self.loose).remove(step.message)
            hands = self.hands
            hands[hands.index(hand)] = Hand(hand.name, step.move.becomes, step.message, is_pristine=step.is_new)
        elif step.means is Means.WAIT:
            hand.waits = True
        else:
            self.loose += [step.message or hand.message] * (there.ready - here.ready)
            self._go_on(hand, step, here)

    def _note_sessions(self, hand: Hand | None, step: Step, here: Facts, there: Facts) -> None:
        event = step.move.event
        if there.row and not here.row:
            self.rows[event] = self.orphans[event][0] if hand is None else hand.message.is_other
        if there.session == GONE:
            self.orphans.pop(event, None)
        elif here.session == GONE and hand is not None:
            self.orphans[event] = (hand.message.is_other, hand.lane.state == _APPLIED)

    def _go_on(self, hand: Hand, step: Step, here: Facts) -> None:
        move = step.move
        if move.becomes is IDLE:
            hand.lane = IDLE
            return
        hand.lane, hand.waits, hand.last = move.becomes, False, move.command
        match move.command, move.outcome:
            case Command.VERIFY, Outcome.DONE:
                hand.is_verified = True
            case Command.PREPARE, _ if self._prepares(hand, here):
                hand.is_prepared = move.outcome is Outcome.DONE
                hand.is_noted = hand.is_in_trouble
            case Command.START, Outcome.DONE:
                hand.is_noted = hand.is_in_trouble
            case Command.RECORD, _:
                hand.is_noted = False
            case (Command.WAIT, _) | (Command.QUARANTINE, Outcome.AGAIN):
                hand.tries += 1
        _note_failure(hand, step)

    # ------------------------------------------------------------ what is worth doing
    def _marks(self, step: Step) -> Iterator[tuple[object, ...]]:
        move = step.move
        deed = (move.command, move.outcome, step.means)
        yield (step.means,)
        yield deed
        if step.means in _PLAIN and step.means is not Means.WAIT:
            return
        for other in self.hands:
            if other.name != step.hand and other.is_busy:
                yield (*deed, other.lane.state, other.lane.event == move.event, other.waits)


def _settles(hand: Hand, move: Move, here: Facts, there: Facts) -> Iterator[Means]:
    match move.command, move.outcome:
        case Command.RECORD, outcome:
            if outcome is hand.why:
                yield Means.GO
        case Command.WAIT, outcome:
            if outcome is Outcome.AGAIN:
                yield Means.GO
        case Command.QUARANTINE, Outcome.AGAIN if here.quarantined == there.quarantined:
            yield Means.WRITE_CUT
        case Command.DELAY, _ if here.copied:
            return
        case Command.DELAY, Outcome.FAILED:
            yield Means.COPY_CUT if here.copied == there.copied else Means.COPY_UNCONFIRMED
        case Command.ACKNOWLEDGE, _ if there.ready > here.ready:
            yield Means.ACK_CUT
        case _, Outcome.DONE:
            yield Means.GO


def _raises(here: Facts) -> Iterator[Means]:
    yield Means.RAISE_AGAIN
    yield Means.RAISE_REJECT
    if not here.copied:
        yield Means.RAISE_LATER


def _commits(outcome: Outcome, here: Facts, there: Facts) -> Iterator[Means]:
    if outcome is Outcome.DONE:
        yield Means.GO
    elif outcome is Outcome.UNKNOWN and there.row != here.row:
        yield Means.COMMIT_UNANSWERED
    elif outcome is Outcome.UNKNOWN and there.session == COMMITTING:
        yield Means.COMMIT_HELD
    elif outcome is Outcome.UNKNOWN:
        yield from (Means.COMMIT_CUT, Means.KILL_SESSION)


def _deaths(hand: Hand, move: Move, here: Facts, there: Facts) -> Iterator[Means]:
    is_durable = (there.row, there.quarantined, there.copied) != (here.row, here.quarantined, here.copied)
    if is_durable:
        yield Means.DIES_UNANSWERED
    elif there.session != here.session and there.session == COMMITTING:
        yield Means.DIES_UNDER_WAY
    elif there.session != here.session:
        yield Means.DIES_BEFORE_ORPHAN
        if hand.last is not None:
            yield Means.DIES_AFTER_ORPHAN
    elif there.ready == here.ready:
        yield Means.DIES_WITH_ACK_SENT
    else:
        yield Means.DIES_BEFORE
        if hand.last is not None:
            yield Means.DIES_AFTER
        if move.command is Command.APPLY:
            yield Means.DIES_INSIDE
        if move.command is Command.ACKNOWLEDGE:
            yield Means.DIES_WITH_ACK_HELD
        if move.command is Command.RELEASE:
            yield Means.DIES_WITH_RELEASE_HELD


def _note_failure(hand: Hand, step: Step) -> None:
    if step.move.outcome is Outcome.UNRESOLVED:
        hand.why = Outcome.RELEASE
    elif step.means in _RAISES:
        hand.why, hand.has_failed = _RAISES[step.means], hand.has_failed or step.means is not Means.RAISE_REJECT
    elif step.move.outcome in (Outcome.FAILED, Outcome.ABSENT):
        hand.why = Outcome.AGAIN if hand.tries <= IMMEDIATE else Outcome.RELEASE


# ------------------------------------------------------------------ drawing
def draw(model: Model, seed: int, number: int, *, is_patient: bool) -> Trace | None:
    """The trace that the seed draws under this number; None where that walk led nowhere."""
    walk = Walk(model, random.Random(f"{seed} {number} {is_patient}"), is_patient)  # noqa: S311 - to be repeated
    try:
        walk.to_the_end()
    except DeadEnd:
        return None
    return Trace(number, tuple(walk.steps), walk.prepares, frozenset(walk.does))


def chosen(model: Model, seed: int, *, seconds: float, drawn: int, is_patient: bool) -> list[Trace]:
    """Of so many drawn, those that together do the most in about so many seconds, in the order of their numbers."""
    found = (draw(model, seed, number, is_patient=is_patient) for number in range(drawn))
    left = [trace for trace in found if trace is not None]
    done: set[tuple[object, ...]] = set()
    taken: list[Trace] = []
    while left and sum(trace.costs for trace in taken) < seconds:
        among = _with_the_rarest(left, done)
        best = max(among, key=lambda trace: len(trace.does - done) / trace.costs)
        if best.does <= done:
            break
        left.remove(best)
        taken.append(best)
        done |= best.does
    return sorted(taken, key=lambda trace: trace.number)


def _with_the_rarest(traces: list[Trace], done: set[tuple[object, ...]]) -> list[Trace]:
    """Those that have the means that fewest of them have and none had so far; all, where every means was had."""
    with_each = {
        means: [trace for trace in traces if (means,) in trace.does] for means in Means if (means,) not in done
    }
    return min(filter(None, with_each.values()), key=len, default=traces)
