"""What follows a failure."""

from dataclasses import replace

import pytest

from inbox.core.disposition import (
    CHARGED,
    FINAL,
    Again,
    Alone,
    Delay,
    Disposition,
    Failure,
    FailureKind,
    Quarantine,
    Release,
    WaitForStore,
)
from inbox.core.event import CloudEvent
from inbox.core.policy import LONGEST_WAIT, RetryPolicy, RetryRule, decide
from inbox.core.records import Attempts

POLICY = RetryPolicy(
    max_attempts=3, delays=(2.0, 8.0), first_delay=1.0, max_delay=8.0, immediate=2, max_releases=4, jitter=0.5
)
EVENT = CloudEvent(id="1", source="/s", type="job.completed")


def decided(
    failure: Failure | FailureKind,
    attempts: Attempts = Attempts(failed=1),  # noqa: B008 - a frozen value
    tries: int = 1,
    policy: RetryPolicy = POLICY,
) -> Disposition:
    failure = failure if isinstance(failure, Failure) else Failure(failure, "why")
    return decide(EVENT, failure, attempts, tries=tries, policy=policy, jitter=0.0)


def raised(error: BaseException) -> Failure:
    return Failure(FailureKind.ERROR, "handler-error", error=error)


@pytest.mark.parametrize("kind", sorted(FINAL, key=str))
def test_what_no_repetition_changes_goes_to_quarantine(kind: FailureKind) -> None:
    assert decided(kind, Attempts()) == Quarantine("why")


@pytest.mark.parametrize("kind", sorted(CHARGED, key=str))
@pytest.mark.parametrize(
    ("attempts", "wanted"),
    [
        (Attempts(failed=1), Delay(2.0)),
        (Attempts(failed=2), Delay(8.0)),
        (Attempts(failed=3), Quarantine("why")),
        (Attempts(failed=1, crashed=2), Quarantine("why")),
        (Attempts(failed=1, released=99), Delay(2.0)),
    ],
)
def test_a_charged_failure_is_repeated_by_its_delays_until_its_attempts_are_used_up(
    kind: FailureKind, attempts: Attempts, wanted: Disposition
) -> None:
    if kind is FailureKind.RETRY and isinstance(wanted, Quarantine):
        wanted = Quarantine("retries-used-up")  # that it asked was no reason as long as there were some
    assert decided(kind, attempts) == wanted


def test_the_last_delay_holds_for_all_further_attempts() -> None:
    assert decided(FailureKind.ERROR, Attempts(failed=99), policy=replace(POLICY, max_attempts=100)) == Delay(8.0)


def test_a_delay_of_zero_repeats_at_once_in_this_process() -> None:
    policy = replace(POLICY, delays=(0.0, 5.0))
    assert decided(FailureKind.ERROR, Attempts(failed=1), policy=policy) == Again(0.0)
    assert decided(FailureKind.ERROR, Attempts(failed=2), policy=policy) == Delay(5.0)


def test_a_handler_chooses_its_own_delay() -> None:
    assert decided(Failure(FailureKind.RETRY, "why", after=7.5)) == Delay(7.5)
    assert decided(Failure(FailureKind.RETRY, "why", after=0)) == Delay(0)


def test_what_has_been_in_trouble_for_too_long_gets_no_further_attempt() -> None:
    policy = replace(POLICY, give_up_after=60.0)
    assert decided(FailureKind.ERROR, Attempts(failed=1, age=59.9), policy=policy) == Delay(2.0)
    assert decided(FailureKind.ERROR, Attempts(failed=1, age=60.0), policy=policy) == Quarantine("why")


# ---------------------------------------------------------------- rules
def test_the_first_rule_that_covers_an_error_holds() -> None:
    policy = replace(
        POLICY,
        rules=(
            RetryRule(KeyError, max_attempts=1),
            RetryRule((LookupError, OSError), delays=(60.0,), max_attempts=9),
            RetryRule(OSError, max_attempts=1),
        ),
    )
    assert decided(raised(KeyError()), policy=policy) == Quarantine("handler-error")
    assert decided(raised(IndexError()), policy=policy) == Delay(60.0)
    assert decided(raised(ConnectionError()), Attempts(failed=8), policy=policy) == Delay(60.0)
    assert decided(raised(ValueError()), policy=policy) == Delay(2.0)
    assert decided(FailureKind.ERROR, policy=policy) == Delay(2.0)


def test_a_rule_may_be_for_some_types_of_event() -> None:
    other, mine = RetryRule(event_types=("job.failed",), max_attempts=1), RetryRule(event_types=(EVENT.type,))
    assert decided(raised(ValueError()), policy=replace(POLICY, rules=(other,))) == Delay(2.0)
    rule = replace(mine, max_attempts=1)
    assert decided(raised(ValueError()), policy=replace(POLICY, rules=(rule,))) == Quarantine("handler-error")
    assert not mine.covers(None, ValueError())
    assert RetryRule().covers(None, ValueError())


def test_a_rule_that_says_nothing_of_a_setting_keeps_it() -> None:
    policy = replace(POLICY, rules=(RetryRule(delays=(60.0,)),))
    assert decided(raised(ValueError()), Attempts(failed=3), policy=policy) == Quarantine("handler-error")


def test_copies_wait_for_the_delays_of_the_policy_and_of_its_rules() -> None:
    policy = RetryPolicy(delays=(0.0, 9.0, 1.0), rules=(RetryRule(delays=(4.0, 1.0)), RetryRule()))
    assert policy.steps == (1.0, 4.0, 9.0)


# ---------------------------------------------------------------- what is no fault of the event's
def test_a_database_that_is_away_is_waited_for_however_long() -> None:
    assert decided(FailureKind.UNAVAILABLE, Attempts(failed=99, released=99), tries=99) == WaitForStore(4.0)


def test_what_may_have_killed_a_process_is_run_alone() -> None:
    assert decided(FailureKind.SUSPECT, Attempts(failed=99, released=99)) == Alone()


def test_a_copy_that_comes_too_early_waits_for_the_rest() -> None:
    early = Failure(FailureKind.EARLY, "early", after=30.0)
    assert decided(early, Attempts(failed=99)) == Delay(30.0)


def test_contention_is_run_again_at_once_then_released_then_quarantined() -> None:
    contended = Failure(FailureKind.CONTENDED, "contended")
    assert decided(contended, Attempts(), 1) == Again(0.05)
    assert decided(contended, Attempts(), 2) == Again(0.1)
    assert decided(contended, Attempts(released=1), 3) == Release(0.5)
    assert decided(contended, Attempts(released=4), 3) == Release(4.0)
    assert decided(contended, Attempts(released=5), 3) == Quarantine("contended")


def test_an_unresolved_commit_is_never_run_again_in_place() -> None:
    assert decided(FailureKind.UNRESOLVED, Attempts()) == Release(0.5)
    assert decided(FailureKind.UNRESOLVED, Attempts(released=5)) == Quarantine("contended")


# ---------------------------------------------------------------- times
@pytest.mark.parametrize(("turn", "ceiling"), [(1, 1.0), (2, 2.0), (4, 8.0), (5, 8.0), (10_000, 8.0)])
def test_the_backoff_doubles_up_to_its_bound_and_is_drawn_from_the_upper_half(turn: int, ceiling: float) -> None:
    assert POLICY.backoff(turn, 0.0) == ceiling / 2
    assert ceiling * 0.99 < POLICY.backoff(turn, 0.99) < ceiling


def test_what_failed_together_is_spread_by_a_share_of_the_delay_and_never_long() -> None:
    assert POLICY.spread(4.0, 0.0) == 0.0
    assert POLICY.spread(4.0, 0.5) == 1.0
    assert POLICY.spread(3600.0, 0.5) == 5.0


def test_what_is_held_in_hand_is_not_held_for_long() -> None:
    assert POLICY.hold(3.0) == 3.0
    assert POLICY.hold(LONGEST_WAIT) == POLICY.max_hold


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (RetryPolicy(max_attempts=1, delays=(10.0,), jitter=0, max_releases=0), 5 + 10),
        (RetryPolicy(max_attempts=3, delays=(10.0, 20.0), jitter=0, max_releases=0), 3 * 5 + 10 + 20 + 20),
        (RetryPolicy(max_attempts=1, delays=(10.0,), jitter=0.5, max_releases=2, max_delay=7), 5 + 15 + 14),
        (
            RetryPolicy(
                max_attempts=2,
                delays=(1.0,),
                jitter=0,
                max_releases=0,
                rules=(RetryRule(max_attempts=3, delays=(9.0,)),),
            ),
            3 * 5 + 3 * 9,
        ),
        (RetryPolicy(max_attempts=1, delays=(1.0,), jitter=0, max_releases=0, rules=(RetryRule(),)), 5 + 1),
    ],
)
def test_the_horizon_covers_every_wait_and_every_run(policy: RetryPolicy, wanted: float) -> None:
    assert policy.horizon(5.0) == pytest.approx(wanted)


def test_by_default_an_event_has_ended_within_a_day() -> None:
    assert RetryPolicy().horizon(30.0) < 86_400
