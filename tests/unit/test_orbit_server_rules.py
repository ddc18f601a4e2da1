"""What may happen to a delivery: the table, step by step, and what holds on every way through it."""

import random
from itertools import product

import pytest

from inbox.adapters.websocket.codec import ErrorCode
from inbox.testing.orbit_server import rules
from inbox.testing.orbit_server.rules import (
    LAST_GENERATION,
    TRANSITIONS,
    NotAllowed,
    Standing,
    State,
    Step,
    Terms,
    Verdict,
)

TERMS = Terms(lease=30.0, first_delay=1.0, longest_delay=60.0)
NOW = 1_000_000.0

#: The table once more, as the description says it: what is not here must be refused.
SAID = {
    ("due", "hand-out"): "leased",
    ("due", "acknowledge"): "acknowledged",
    ("due", "add-budget"): "due",
    ("due", "replace"): "due",
    ("leased", "recover"): "due",
    ("leased", "exhaust"): "expired",
    ("leased", "acknowledge"): "acknowledged",
    ("leased", "add-budget"): "leased",
    ("leased", "replace"): "due",
    ("expired", "acknowledge"): "acknowledged",
    ("expired", "add-budget"): "due",
    ("acknowledged", "acknowledge"): "acknowledged",
    ("acknowledged", "reopen"): "due",
}


def leased(spent: int = 1, budget: int = 3, ends: float = NOW + 30) -> Standing:
    return Standing(budget, State.LEASED, generation=spent, spent=spent, lease_ends=ends)


@pytest.mark.parametrize(("state", "step"), [*product(State, Step)])
def test_the_table_knows_what_is_said_and_nothing_else(state: State, step: Step) -> None:
    standing = Standing(3, state, generation=1, spent=1)
    said = SAID.get((state.value, step.value))
    if said is None:
        with pytest.raises(NotAllowed) as refused:
            standing.after(step)
        assert (refused.value.state, refused.value.step) == (state, step)
    else:
        assert standing.after(step).state.value == said
    assert len(TRANSITIONS) == len(SAID)


def test_a_hand_out_costs_one_and_is_a_new_generation() -> None:
    done = rules.claim([Standing(3)], 1, NOW, TERMS, is_enabled=True)
    assert done.handed_out == (0,)
    assert done.standings == (Standing(3, State.LEASED, generation=1, spent=1, lease_ends=NOW + 30),)
    assert done.look_again_at == NOW + 30


@pytest.mark.parametrize(("room", "is_enabled"), [(0, True), (-1, True), (4, False)])
def test_without_claim_activity_nothing_is_recovered(room: int, is_enabled: bool) -> None:
    lapsed = [leased(ends=NOW - 1), Standing(3)]
    done = rules.claim(lapsed, room, NOW, TERMS, is_enabled=is_enabled)
    assert done == rules.Claim(tuple(lapsed))


def test_a_lease_that_ran_out_is_due_after_the_back_off() -> None:
    done = rules.claim([leased(ends=NOW)], 1, NOW, TERMS, is_enabled=True)
    assert (done.recovered, done.handed_out) == ((0,), ())
    assert done.standings[0].state is State.DUE
    assert done.look_again_at == done.standings[0].due_at == NOW + 1


def test_a_lease_runs_to_its_very_end() -> None:
    done = rules.claim([leased(ends=NOW + 0.001)], 1, NOW, TERMS, is_enabled=True)
    assert (done.recovered, done.look_again_at) == ((), NOW + 0.001)


def test_one_that_is_found_late_is_handed_out_by_the_same_claim() -> None:
    done = rules.claim([leased(ends=NOW - 1)], 1, NOW, TERMS, is_enabled=True)
    assert (done.recovered, done.handed_out) == ((0,), (0,))
    assert done.standings[0].generation == 2


def test_a_budget_that_is_used_up_ends_in_expired() -> None:
    done = rules.claim([leased(spent=3, ends=NOW - 1)], 1, NOW, TERMS, is_enabled=True)
    assert (done.recovered, done.handed_out) == ((0,), ())
    assert done.standings[0].state is State.EXPIRED
    assert done.look_again_at is None


def test_the_last_generation_of_64_bits_ends_in_expired_too() -> None:
    last = Standing(100, State.LEASED, generation=LAST_GENERATION, spent=1, lease_ends=NOW - 1)
    assert rules.claim([last], 1, NOW, TERMS, is_enabled=True).standings[0].state is State.EXPIRED
    with pytest.raises(NotAllowed):
        rules.replace_proof(last, NOW)


def test_room_is_given_to_the_oldest() -> None:
    done = rules.claim([Standing(3, due_at=NOW + 5), *[Standing(3)] * 3], 2, NOW, TERMS, is_enabled=True)
    assert done.handed_out == (1, 2)
    assert done.look_again_at == NOW + 5


@pytest.mark.parametrize(
    ("spent", "seconds"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (8, 60.0), (10**6, 60.0)]
)
def test_the_back_off_doubles_up_to_its_bound(spent: int, seconds: float) -> None:
    assert rules.back_off(spent, TERMS) == seconds


def test_budget_brings_an_expired_one_back_at_once() -> None:
    expired = Standing(3, State.EXPIRED, generation=3, spent=3)
    again = rules.add_budget(expired, 2, NOW)
    assert again == Standing(5, State.DUE, generation=3, spent=3, due_at=NOW)
    assert rules.claim([again], 1, NOW, TERMS, is_enabled=True).standings[0].generation == 4


def test_budget_shortens_no_back_off() -> None:
    waiting = Standing(3, State.DUE, generation=1, spent=1, due_at=NOW + 9)
    assert rules.add_budget(waiting, 1, NOW).due_at == NOW + 9


@pytest.mark.parametrize(
    ("generation", "is_genuine", "verdict"),
    [(2, True, Verdict.GOOD), (1, True, Verdict.LOST), (2, False, Verdict.FORGED), (3, False, Verdict.FORGED)],
)
def test_a_proof_is_good_until_a_newer_generation_replaces_it(
    generation: int, is_genuine: bool, verdict: Verdict
) -> None:
    for state in State:
        standing = Standing(3, state, generation=2, spent=2)
        assert rules.judge(standing, generation, is_genuine=is_genuine) is verdict


def test_a_replaced_proof_leaves_a_generation_out_and_is_due_at_once() -> None:
    replaced = rules.replace_proof(leased(), NOW)
    assert replaced == Standing(3, State.DUE, generation=2, spent=1, due_at=NOW, lease_ends=NOW + 30)
    assert rules.judge(replaced, 1, is_genuine=True) is Verdict.LOST


def test_a_lease_that_is_ended_is_due_without_a_back_off_or_expired() -> None:
    assert rules.end_lease(leased(), 0, NOW) == Standing(3, State.DUE, 1, 1, due_at=NOW, lease_ends=NOW + 30)
    assert rules.end_lease(leased(spent=3), 0, NOW).state is State.EXPIRED
    assert rules.end_lease(leased(spent=3), 1, NOW) == Standing(4, State.DUE, 3, 3, due_at=NOW, lease_ends=NOW + 30)


def test_what_is_reopened_is_handed_out_once_more_and_its_old_proof_is_lost_then() -> None:
    reopened = rules.reopen(rules.acknowledge(leased(spent=3)), NOW)
    assert (reopened.state, reopened.due_at, reopened.is_used_up) == (State.DUE, NOW, False)
    again = rules.hand_out(reopened, NOW, TERMS)
    assert (again.generation, again.is_used_up) == (4, True)
    assert rules.judge(again, 3, is_genuine=True) is Verdict.LOST


@pytest.mark.parametrize(
    ("request_", "code", "ends"),
    [
        ("register", ErrorCode.BUSY, True),
        ("register", ErrorCode.NOT_FOUND, True),
        ("ack", ErrorCode.PROOF_LOST, False),
        ("ack", ErrorCode.FORBIDDEN, False),
        ("ack", ErrorCode.UNAVAILABLE, False),
        ("ack", ErrorCode.UNAUTHENTICATED, True),
        ("ack", ErrorCode.PROTOCOL, True),
        ("ping", ErrorCode.FORBIDDEN, True),
        ("ping", ErrorCode.HISTORY_GAP, True),
        ("ping", ErrorCode.BUSY, False),
    ],
)
def test_after_some_errors_nothing_follows(request_: str, code: ErrorCode, ends: bool) -> None:
    assert rules.ends_connection(request_, code) is ends


@pytest.mark.parametrize("seed", range(20))
def test_on_every_way_generations_grow_budgets_hold_and_an_end_is_an_end(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    standings, now = [Standing(chance.randint(1, 4)) for _ in range(6)], 0.0
    for _ in range(400):
        before = standings[:]
        now += chance.choice([0.0, 0.5, 10.0, 31.0])
        place = chance.randrange(len(standings))
        match chance.randrange(5):
            case 0 | 1:
                done = rules.claim(standings, chance.randint(0, 3), now, TERMS, is_enabled=chance.random() < 0.8)
                standings = [*done.standings]
                assert done.look_again_at is None or done.look_again_at > now
            case 2 if standings[place].spent and chance.random() < 0.3:
                standings[place] = rules.acknowledge(standings[place])
            case 3 if standings[place].state is State.EXPIRED:
                standings[place] = rules.add_budget(standings[place], 1, now)
            case 4 if standings[place].state in (State.DUE, State.LEASED) and chance.random() < 0.2:
                standings[place] = rules.replace_proof(standings[place], now)
        for was, standing in zip(before, standings, strict=True):
            assert was.generation <= standing.generation <= was.generation + 1
            assert was.spent <= standing.spent <= standing.budget
            assert was.state is not State.ACKNOWLEDGED or standing == was
            assert standing.state is not State.EXPIRED or standing.spent == standing.budget
