"""What follows a failure: a pure function of the event, the failure, the counts and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inbox.core.event import CloudEvent, Event
    from inbox.core.records import Attempts

#: Seconds that no event is asked to wait for, whatever its handler or a header says: 30 days.
LONGEST_WAIT = 30 * 86_400.0
#: Seconds by which repetitions are spread at most.
_WIDEST_SPREAD = 10.0


@dataclass(frozen=True, slots=True)
class RetryRule:
    """Another number of attempts, and other delays, for some errors or some types of event.

    `RetryRule(ValueError, max_attempts=1)` quarantines at the first failure what no repetition can mend.

    Attributes:
        errors: exception classes that a handler raised, subclasses included; Exception is every failure that is
            charged, also a missed deadline or a misused unit.
        event_types: CloudEvents types that it holds for; empty is every type.
        max_attempts: in place of the policy's; None keeps it.
        delays: in place of the policy's; None keeps them.
    """

    errors: type[BaseException] | tuple[type[BaseException], ...] = Exception
    event_types: tuple[str, ...] = ()
    max_attempts: int | None = None
    delays: tuple[float, ...] | None = None

    def covers(self, event: Event | CloudEvent | None, error: BaseException | None) -> bool:
        """Whether it is for `error` of a handler for `event`."""
        if self.event_types and (event is None or event.type not in self.event_types):
            return False
        return isinstance(error, self.errors)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long.

    Attributes:
        max_attempts: charged runs of a handler, the first included, before quarantine. With the delays it is six
            minutes until a person is asked: what a repetition can mend has mostly passed by then.
        delays: seconds before the second, third, … run; the last one holds for all further runs, and 0 repeats at once
            in this process. Over RabbitMQ each is a queue that keeps copies for so long. Growing, for a slip passes
            within a second, and a service that a handler calls is restarted within minutes.
        jitter: share of a delay, and at most 10 seconds, over which what failed together is spread when it comes again:
            a fifth, so that it does not all fail together once more.
        give_up_after: seconds since an event's first trouble after which its next failure quarantines it, however few
            attempts it has had; None leaves that to `max_attempts`.
        rules: exceptions to `max_attempts` and `delays`; the first that covers a failure holds.
        immediate: repetitions in this process after contention, before the delivery is released: a dead-lock is
            mostly gone the next time.
        max_releases: releases for contention before the event is quarantined as `contended`. With the delays they
            last some six minutes, far longer than a healthy database is contended.
        first_delay: seconds that the first release after contention is held; a repetition in place waits a tenth of it.
        max_delay: seconds; that delay doubles each time up to here. As often a database that was away, or a
            quarantine that was full, is asked again.
        max_hold: seconds; what waits in hand, for its transport keeps no copies, waits no longer. It keeps its
            place in the prefetch, and a broker takes back what is held for too long (RabbitMQ: `consumer_timeout`, 30
            minutes, of which this is half).
    """

    max_attempts: int = 5
    delays: tuple[float, ...] = (1.0, 10.0, 60.0, 300.0)
    jitter: float = 0.2
    give_up_after: float | None = None
    rules: tuple[RetryRule, ...] = ()
    immediate: int = 4
    max_releases: int = 20
    first_delay: float = 1.0
    max_delay: float = 30.0
    max_hold: float = 900.0

    @property
    def steps(self) -> tuple[float, ...]:
        """Every delay that a copy may be asked to wait for, the shortest first."""
        given = {*self.delays, *(delay for rule in self.rules for delay in rule.delays or ())}
        return tuple(sorted(delay for delay in given if delay > 0))

    def horizon(self, deadline: float) -> float:
        """Seconds after which an event that was handed over once can no longer be under way here.

        What is forgotten sooner could be applied twice: an inbox row has to outlive every copy and every repetition.

        Args:
            deadline: seconds that one unit may take.
        """
        return sum(deadline + longest for longest in self._longest_waits()) + self.max_releases * self.max_delay

    def _longest_waits(self) -> Iterator[float]:
        plans = [(self.max_attempts, self.delays)] + [
            (rule.max_attempts or self.max_attempts, self.delays if rule.delays is None else rule.delays)
            for rule in self.rules
        ]
        for attempt in range(max(attempts for attempts, _ in plans)):
            waits = [_nth(delays, attempt + 1) for attempts, delays in plans if attempt < attempts]
            yield max(waits) * (1 + self.jitter)

    def backoff(self, turn: int, jitter: float) -> float:
        """Seconds before the repetition after `turn` (from 1), drawn from the upper half.

        Args:
            turn: how often it was contended, or the database away.
            jitter: a number in [0, 1) drawn by the caller.
        """
        ceiling = min(self.max_delay, self.first_delay * 2.0 ** min(turn - 1, 30))
        return ceiling * (0.5 + jitter / 2)

    def spread(self, waited: float, jitter: float) -> float:
        """Seconds to hold what has come again after `waited` seconds: a short while, and for each another one.

        Args:
            waited: the delay.
            jitter: a number in [0, 1) drawn by the caller.
        """
        return min(waited * self.jitter, _WIDEST_SPREAD) * jitter

    def hold(self, wanted: float) -> float:
        """Seconds to hold in hand what is to wait for `wanted` seconds."""
        return min(wanted, self.max_hold)

    def wait_of(self, event: Event | CloudEvent | None, failure: Failure, attempts: Attempts) -> float | None:
        """Seconds to wait after a charged failure; None where there is to be no further attempt."""
        rule = next((rule for rule in self.rules if rule.covers(event, failure.error)), RetryRule())
        if attempts.charged >= (rule.max_attempts or self.max_attempts):
            return None
        if self.give_up_after is not None and attempts.age >= self.give_up_after:
            return None
        if failure.after is not None:
            return _seconds(failure.after)
        return _nth(self.delays if rule.delays is None else rule.delays, max(attempts.charged, 1))


def decide(  # noqa: PLR0911 - one row of the table a return
    event: Event | CloudEvent | None,
    failure: Failure,
    attempts: Attempts,
    *,
    tries: int,
    policy: RetryPolicy,
    jitter: float,
) -> Disposition:
    """What is to become of a delivery that was not applied.

    Args:
        event: what it holds, as far as that is known.
        failure: why, this time.
        attempts: the event's counts, this failure included.
        tries: how often this delivery was run in this process, this one included.
        policy: the settings.
        jitter: a number in [0, 1).

    Returns:
        `Quarantine` for what is final or has used up its attempts or releases; `WaitForStore`
        while the database is away; `Alone` for what may have killed a process; `Again` for contention while tries last,
        and for what is to be repeated at once; `Delay` for what is to be repeated later; otherwise `Release`.
    """
    if failure.kind in FINAL:
        return Quarantine(failure.reason)
    if failure.kind is FailureKind.UNAVAILABLE:
        return WaitForStore(policy.backoff(tries, jitter))
    if failure.kind is FailureKind.SUSPECT:
        return Alone()
    if failure.kind is FailureKind.EARLY:
        return Delay(_seconds(failure.after))
    if failure.kind in CHARGED:
        wait = policy.wait_of(event, failure, attempts)
        if wait is None:
            return Quarantine("retries-used-up" if failure.kind is FailureKind.RETRY else failure.reason)
        return Again(0.0) if wait == 0 and failure.after is None else Delay(wait)
    if failure.kind is FailureKind.CONTENDED and tries <= policy.immediate:
        return Again(policy.backoff(tries, jitter) / 10)
    if attempts.released > policy.max_releases:
        return Quarantine(failure.reason if failure.kind is FailureKind.CONTENDED else "contended")
    return Release(policy.backoff(max(attempts.released, 1), jitter))


def _nth(delays: tuple[float, ...], turn: int) -> float:
    """The delay after the run number `turn`; the last one holds for all that follow."""
    return delays[min(turn, len(delays)) - 1] if delays else 0.0


def _seconds(wanted: object) -> float:
    """What a handler or a header asked for as a number of seconds that can be waited.

    Whatever is no number counts as the longest: sooner would be the one thing that was not wanted.
    """
    if isinstance(wanted, int | float) and wanted <= LONGEST_WAIT:
        return max(wanted, 0.0)
    return LONGEST_WAIT
