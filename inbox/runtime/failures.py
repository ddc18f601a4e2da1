"""Which row of the failure table an error stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbox.core.disposition import Failure, FailureKind
from inbox.errors import (
    Contended,
    DeadlineExceeded,
    Refused,
    Reject,
    Retry,
    StoreError,
    StoreUnavailable,
    Torn,
    UnitMisused,
)
from inbox.runtime.handling import HandlerQuit
from inbox.runtime.places import failure_at

if TYPE_CHECKING:
    from inbox.core.handler import Handler


def failure_of(error: Exception, handler: Handler | None = None) -> Failure:  # noqa: PLR0911 - a row a line
    """The row of the failure table ("What fails, and what happens" in docs/failures.md) that `error` stands for.

    Texts of foreign exceptions may hold payloads and secrets: only their class and place go on.
    """
    match error:
        case Reject():
            return Failure(FailureKind.REJECTED, "rejected", _sentence(error.reason))
        case Retry():
            return Failure(FailureKind.RETRY, "retry-asked-for", _asked(error), after=error.after, error=error)
        case Refused():
            return Failure(FailureKind.REFUSED, _sentence(error.code), _sentence(error.detail))
        case Torn():
            return Failure(FailureKind.TORN, "torn", "a stored procedure ended the transaction from inside")
        case UnitMisused():
            return Failure(FailureKind.MISUSED, "unit-misused", error.what, error=error)
        case DeadlineExceeded():
            return Failure(FailureKind.DEADLINE, "deadline", str(error), error=error)
        case HandlerQuit():
            return Failure(FailureKind.ERROR, "handler-error", str(error), error=error)
        case StoreUnavailable():
            return Failure(FailureKind.UNAVAILABLE, "store-unavailable", str(error))
        case Contended() | StoreError():
            return Failure(FailureKind.CONTENDED, "contended", str(error))
        case _:
            name = type(error).__name__ if handler is None else failure_at(error, handler.function)
            return Failure(FailureKind.ERROR, "handler-error", name, error=error)


def _asked(retry: Retry) -> str:
    """A class of its own says why; its text may quote a payload."""
    said = "the handler asked for another try"
    return said if type(retry) is Retry else f"{said}: {type(retry).__name__}"


def _sentence(said: object) -> str:
    """What a handler said, as text: whatever else it gave is told by its class alone."""
    return said if isinstance(said, str) else type(said).__name__
