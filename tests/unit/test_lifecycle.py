"""The table of transitions, walked whole."""

import pytest

from inbox.core.crashpoints import CrashPoint, When, crash_points
from inbox.core.lifecycle import COMMANDS, ENDS, TRANSITIONS, Command, ImpossibleOutcome, Lifecycle, Outcome, State

HAPPY = [
    (Command.DECODE, Outcome.DONE),
    (Command.VERIFY, Outcome.DONE),
    (Command.PREPARE, Outcome.DONE),
    (Command.BEGIN, Outcome.DONE),
    (Command.CLAIM, Outcome.DONE),
    (Command.START, Outcome.DONE),
    (Command.APPLY, Outcome.DONE),
    (Command.COMMIT, Outcome.DONE),
    (Command.ACKNOWLEDGE, Outcome.DONE),
]


def test_a_first_delivery_goes_straight_through() -> None:
    life = Lifecycle()
    for command, outcome in HAPPY:
        assert life.command is command
        life.advance(outcome)
    assert life.state is State.ACKNOWLEDGED
    assert life.command is None


def test_an_impossible_outcome_changes_nothing() -> None:
    life = Lifecycle()
    with pytest.raises(ImpossibleOutcome):
        life.advance(Outcome.DUPLICATE)
    assert life.state is State.RECEIVED


def test_every_state_has_a_command_or_is_an_end() -> None:
    assert set(State) == set(COMMANDS) | ENDS
    assert not set(COMMANDS) & ENDS


def test_every_command_has_a_way_on_and_every_transition_a_command() -> None:
    assert {state for state, _ in TRANSITIONS} == set(COMMANDS)
    assert set(COMMANDS.values()) == set(Command)


def test_every_state_is_reached_and_leads_to_an_end() -> None:
    reached = _closure(State.RECEIVED)
    assert reached == set(State)
    for state in State:
        assert _closure(state) & ENDS


def test_nothing_is_acknowledged_but_what_is_stored() -> None:
    """An acknowledgement needs a committed row, a duplicate's row, a quarantine row, or a copy that is kept."""
    before_ack = {state for state, command in COMMANDS.items() if command is Command.ACKNOWLEDGE}
    assert before_ack == {State.COMMITTED, State.DUPLICATE, State.QUARANTINED, State.DELAYED}
    ways = {(state, outcome) for (state, outcome), to in TRANSITIONS.items() if to in before_ack}
    assert ways == {
        (State.APPLIED, Outcome.DONE),
        (State.COMMIT_UNKNOWN, Outcome.DONE),
        (State.BEGUN, Outcome.DUPLICATE),
        (State.REJECTED, Outcome.DONE),
        (State.DELAYING, Outcome.DONE),
    }


def test_no_handler_runs_without_a_claim_and_no_claim_without_verification() -> None:
    assert _before(State.STARTED) == {State.CLAIMED}
    assert _before(State.CLAIMED) == {State.BEGUN}
    assert _before(State.VERIFIED) == {State.DECODED}


def test_an_unknown_commit_is_resolved_before_anything_else() -> None:
    assert COMMANDS[State.COMMIT_UNKNOWN] is Command.RESOLVE


def test_crash_points_stand_on_both_sides_of_every_command() -> None:
    points = list(crash_points())
    assert len(points) == 2 * len(Command)
    assert len(set(points)) == len(points)
    assert [CrashPoint.parse(str(point)) for point in points] == points
    assert str(CrashPoint(When.AFTER, Command.COMMIT)) == "after:commit"


def test_an_unknown_crash_point_is_refused() -> None:
    with pytest.raises(ValueError, match="lunch"):
        CrashPoint.parse("before:lunch")


def _closure(start: State) -> set[State]:
    seen = {start}
    todo = [start]
    while todo:
        state = todo.pop()
        for (source, _), target in TRANSITIONS.items():
            if source is state and target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def _before(state: State) -> set[State]:
    return {source for (source, _), target in TRANSITIONS.items() if target is state}
