"""What follows a failure."""

import pytest

from inbox.core.disposition import CHARGED, FINAL, Again, Failure, FailureKind, Quarantine, Release, WaitForStore
from inbox.core.policy import RetryPolicy, decide
from inbox.core.records import Attempts

POLICY = RetryPolicy(max_attempts=3, first_delay=1.0, max_delay=8.0, immediate=2, max_releases=4)


@pytest.mark.parametrize("kind", sorted(FINAL, key=str))
def test_what_no_repetition_changes_goes_to_quarantine(kind: FailureKind) -> None:
    assert decide(Failure(kind, "why"), Attempts(), 1, POLICY, 0.0) == Quarantine("why")


@pytest.mark.parametrize("kind", sorted(CHARGED, key=str))
@pytest.mark.parametrize(
    ("attempts", "wanted"),
    [
        (Attempts(failed=1), Release(0.5)),
        (Attempts(failed=2), Release(1.0)),
        (Attempts(failed=3), Quarantine("why")),
        (Attempts(failed=1, crashed=2), Quarantine("why")),
        (Attempts(failed=1, released=99), Release(0.5)),
    ],
)
def test_a_charged_failure_is_repeated_until_its_attempts_are_used_up(
    kind: FailureKind, attempts: Attempts, wanted: Release | Quarantine
) -> None:
    assert decide(Failure(kind, "why"), attempts, 1, POLICY, 0.0) == wanted


def test_a_handler_chooses_its_own_delay() -> None:
    assert decide(Failure(FailureKind.RETRY, "why", after=7.5), Attempts(failed=1), 1, POLICY, 0.9) == Release(7.5)


def test_a_database_that_is_away_is_waited_for_however_long() -> None:
    failure = Failure(FailureKind.UNAVAILABLE, "why")
    assert decide(failure, Attempts(failed=99, released=99), 99, POLICY, 0.0) == WaitForStore(4.0)


def test_contention_is_run_again_at_once_then_released_then_quarantined() -> None:
    failure = Failure(FailureKind.CONTENDED, "contended")
    assert decide(failure, Attempts(), 1, POLICY, 0.0) == Again(0.05)
    assert decide(failure, Attempts(), 2, POLICY, 0.0) == Again(0.1)
    assert decide(failure, Attempts(released=1), 3, POLICY, 0.0) == Release(0.5)
    assert decide(failure, Attempts(released=4), 3, POLICY, 0.0) == Release(4.0)
    assert decide(failure, Attempts(released=5), 3, POLICY, 0.0) == Quarantine("contended")


def test_an_unresolved_commit_is_never_run_again_in_place() -> None:
    failure = Failure(FailureKind.UNRESOLVED, "why")
    assert decide(failure, Attempts(), 1, POLICY, 0.0) == Release(0.5)


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 1.0), (2, 2.0), (4, 8.0), (5, 8.0), (10_000, 8.0)])
def test_the_delay_doubles_up_to_its_bound_and_is_drawn_from_the_upper_half(attempt: int, ceiling: float) -> None:
    assert POLICY.delay(attempt, 0.0) == ceiling / 2
    assert ceiling * 0.99 < POLICY.delay(attempt, 0.99) < ceiling
