"""What follows a failure: a pure function of the failure, the counts and the settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inbox.core.disposition import (
    CHARGED,
    FINAL,
    Again,
    Disposition,
    Failure,
    FailureKind,
    Quarantine,
    Release,
    WaitForStore,
)

if TYPE_CHECKING:
    from inbox.core.records import Attempts


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long.

    Attributes:
        max_attempts: charged runs of a handler, the first included, before quarantine.
        first_delay: seconds held before the first repetition of a failed event.
        max_delay: seconds; the delay doubles with each attempt up to here.
        immediate: repetitions in this process after contention, before the delivery is released.
        max_releases: releases for contention before the event is quarantined as `contended`.
        max_hold: seconds; a handler that asks for a longer wait gets this one. What is held keeps its place in the
            prefetch, and a broker takes back what is held for too long (RabbitMQ: `consumer_timeout`, 30 minutes).
    """

    max_attempts: int = 5
    first_delay: float = 1.0
    max_delay: float = 30.0
    immediate: int = 4
    max_releases: int = 20
    max_hold: float = 900.0

    def delay(self, attempt: int, jitter: float) -> float:
        """Seconds before the repetition after `attempt` (from 1), drawn from the upper half.

        Args:
            attempt: which attempt has just failed.
            jitter: a number in [0, 1) drawn by the caller.
        """
        ceiling = min(self.max_delay, self.first_delay * 2.0 ** min(attempt - 1, 30))
        return ceiling * (0.5 + jitter / 2)

    def hold(self, wanted: object) -> float:
        """Seconds to hold what a handler asked to hold for `wanted` seconds: a number from 0 to `max_hold`.

        Whatever is no number counts as the longest: sooner would be the one thing that the handler did not want.
        """
        if isinstance(wanted, int | float) and wanted <= self.max_hold:
            return max(wanted, 0.0)
        return self.max_hold


def decide(failure: Failure, attempts: Attempts, tries: int, policy: RetryPolicy, jitter: float) -> Disposition:  # noqa: PLR0911 - one row of the table a return
    """What is to become of a delivery that was not applied.

    Args:
        failure: why, this time.
        attempts: the event's counts, this failure included.
        tries: how often this delivery was run in this process, this one included.
        policy: the settings.
        jitter: a number in [0, 1).

    Returns:
        `Quarantine` for what is final or has used up its attempts or releases; `WaitForStore`
        while the database is away; `Again` for contention while tries last; otherwise `Release`.
    """
    if failure.kind in FINAL:
        return Quarantine(failure.reason)
    if failure.kind is FailureKind.UNAVAILABLE:
        return WaitForStore(policy.delay(tries, jitter))
    if failure.kind in CHARGED:
        if attempts.charged >= policy.max_attempts:
            return Quarantine(failure.reason)
        return Release(policy.delay(attempts.charged, jitter) if failure.after is None else policy.hold(failure.after))
    if failure.kind is FailureKind.CONTENDED and tries <= policy.immediate:
        return Again(policy.delay(tries, jitter) / 10)
    if attempts.released > policy.max_releases:
        return Quarantine("contended")
    return Release(policy.delay(max(attempts.released, 1), jitter))
