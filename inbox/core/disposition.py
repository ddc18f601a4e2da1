"""What is to become of a delivery that could not be applied: values, no actions."""

from __future__ import annotations

from dataclasses import dataclass
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
    UNAVAILABLE = "store-unavailable"
    UNRESOLVED = "commit-unresolved"
    TORN = "torn"


#: Kinds for which the event's handler was started and is to blame: they cost an attempt.
CHARGED = frozenset({FailureKind.RETRY, FailureKind.ERROR, FailureKind.MISUSED, FailureKind.DEADLINE})

#: Kinds that no repetition can change.
FINAL = frozenset({FailureKind.REFUSED, FailureKind.REJECTED, FailureKind.TORN, FailureKind.CRASHED})


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a delivery could not be applied this time.

    Attributes:
        kind: which row of the failure table it is.
        reason: stable word for the quarantine's `reason`.
        detail: one redacted sentence; of foreign exceptions the class and place, never the text.
        after: seconds a handler asked to wait (`Retry`); None otherwise.
    """

    kind: FailureKind
    reason: str
    detail: str = ""
    after: float | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Run it again in this process after `delay` seconds, without handing it back."""

    delay: float


@dataclass(frozen=True, slots=True)
class WaitForStore:
    """Run it again in this process, `delay` seconds after the database takes writes."""

    delay: float


@dataclass(frozen=True, slots=True)
class Release:
    """Hand it back to the transport after holding it for `delay` seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Quarantine:
    """Store it whole with its reason, then acknowledge it."""

    reason: str


Disposition = Again | WaitForStore | Release | Quarantine
