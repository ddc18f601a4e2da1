"""What is to become of a delivery that could not be applied: values, no actions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class FailureKind(Enum):
    """Why a unit was undone, or never begun."""

    REFUSED = "refused"
    REJECTED = "rejected-by-handler"
    RETRY = "retry-asked-for"
    ERROR = "handler-error"
    MISUSED = "unit-misused"
    DEADLINE = "deadline"
    CRASHED = "crashed"
    CONTENDED = "contended"
    SUSPECT = "suspect"
    EARLY = "early"
    UNAVAILABLE = "store-unavailable"
    UNRESOLVED = "commit-unresolved"
    TORN = "torn"


#: Kinds for which the event's handler was started and is to blame: they cost an attempt.
CHARGED = frozenset({FailureKind.RETRY, FailureKind.ERROR, FailureKind.MISUSED, FailureKind.DEADLINE})

#: Kinds that are no fault of the event's and say nothing about it: nothing is written.
UNCOUNTED = frozenset({FailureKind.UNAVAILABLE, FailureKind.SUSPECT, FailureKind.EARLY})

#: Kinds that no repetition can change.
FINAL = frozenset({FailureKind.REFUSED, FailureKind.REJECTED, FailureKind.TORN, FailureKind.CRASHED})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a delivery could not be applied this time.

    Attributes:
        kind: which row of the failure table it is.
        reason: stable word for the quarantine's `reason`.
        detail: one redacted sentence; of foreign exceptions the class and place, never the text.
        after: seconds a handler asked to wait (`Retry`), or that a copy has left to wait; None otherwise.
        error: what a handler raised, for the rules of the policy; its text goes nowhere.
    """

    kind: FailureKind
    reason: str
    detail: str = ""
    after: float | None = None
    error: BaseException | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Again:
    """Run it again in this process after `delay` seconds, without handing it back."""

    delay: float


@dataclass(frozen=True, slots=True)
class WaitForStore:
    """Run it again in this process, `delay` seconds after the database takes writes."""

    delay: float


@dataclass(frozen=True, slots=True)
class Alone:
    """Run it again in this process while no other handler runs."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Hand a durable copy over that comes again after `delay` seconds, then acknowledge this one."""

    delay: float


@dataclass(frozen=True, slots=True)
class Release:
    """Hand it back to the transport after holding it for `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Store it whole with its reason, then acknowledge it."""

    reason: str


Disposition = Again | WaitForStore | Alone | Delay | Release | Quarantine
