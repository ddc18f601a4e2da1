"""Every error the framework raises, split by who must act.

```
InboxError
├── StartupError            the operator: configuration, schema or topology; nothing was consumed
│   ├── ConfigurationError    a setting is missing, malformed or contradicts another
│   ├── SchemaError           a table is missing or not what the guarantees need
│   ├── TopologyError         a queue or exchange is not what was asked for, or would drop events
│   ├── TlsError              TLS was asked for and the peer did not give it
│   └── GuardError            the driver does not let the guard see its commands
├── Refused                 the producer: this delivery can never be applied
│   ├── Undecodable           no readable CloudEvent
│   ├── Unauthentic           the verifier says no
│   ├── NoHandler             no handler for its type
│   └── IdentityConflict      a known id that arrives with other content
├── HandlerFault            the author of a handler: the unit was misused and undone
│   ├── UnitMisused           a refused command, a rollback, a late task, a swallowed error
│   └── DeadlineExceeded      the unit's deadline passed
├── StoreError              the database: nothing was decided about the event
│   ├── Contended             dead-lock, lock wait, lost connection: run again
│   ├── StoreUnavailable      down, starting, full or read-only: wait
│   ├── QuarantineFull        the quarantine's bound is reached: release, wait
│   ├── CommitUnknown         COMMIT was sent and not answered
│   └── Torn                  a stored procedure ended the transaction from inside
├── TransportError          the broker: connection, channel or acknowledgement lost
│   └── StopTimeout           handlers, or acknowledgements, were not done in the time for stopping
└── NotDone                 what `inbox.transaction` raises to whoever acknowledges
    ├── AlreadyProcessed      acknowledge: the effect exists
    ├── TryAgain              do not acknowledge: contention, nothing applied
    ├── NotApplied            do not acknowledge: the commit did not happen
    └── CommitUnresolved      do not acknowledge: nobody can say yet
```

`Reject` and `Retry` are decisions of a handler and not errors of the framework: they stand outside
the tree so that `except InboxError` does not catch them. No message carries a payload, a secret or
text that came from a peer; such facts are attributes or the `__cause__`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class InboxError(Exception):
    """Root of the tree."""


# ------------------------------------------------------------------ the operator
class StartupError(InboxError):
    """The worker cannot start; the message names the fix. Nothing was consumed."""


class ConfigurationError(StartupError):
    """A setting is missing, malformed or contradicts another one."""


class SchemaError(StartupError):
    """The inbox's tables are missing or would break a guarantee.

    Args:
        problems: one sentence each, with the fix.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class TopologyError(StartupError):
    """A queue or exchange differs from what was asked for, is missing, or would drop events."""


class TlsError(StartupError):
    """TLS was asked for and the connection is not encrypted, or the certificate is not trusted."""


class GuardError(StartupError):
    """The driver does not show its commands to the guard; handlers could commit half a unit."""


# ------------------------------------------------------------------ the producer
class Refused(InboxError):
    """This delivery can never be applied; it ends in quarantine.

    Args:
        code: stable word for counters and the quarantine's `reason` column.
        detail: one redacted sentence for people.
    """

    code = "refused"
    detail = ""

    def __init__(self, detail: str, *, code: str | None = None) -> None:
        self.detail = detail
        if code is not None:
            self.code = code
        super().__init__(f"{self.code}: {detail}")


class Undecodable(Refused):
    """The delivery holds no readable CloudEvent."""

    code = "undecodable"


class Unauthentic(Refused):
    """The verifier did not accept the delivery."""

    code = "unauthentic"


class NoHandler(Refused):
    """No handler is registered for the event's type."""

    code = "no-handler"


class IdentityConflict(Refused):
    """The event's id is known, with another fingerprint: neither skipped nor applied."""

    code = "identity-conflict"


# ------------------------------------------------------------------ the author of a handler
class HandlerFault(InboxError):
    """A handler broke the rules of its unit of work; everything it did was undone."""


class UnitMisused(HandlerFault):
    """The handler did something that would have split its unit of work.

    Args:
        what: what it did and what to do instead.
        handler: name of the handler, where known.
    """

    what = "the unit was misused"

    def __init__(self, what: str, *, handler: str | None = None) -> None:
        self.what = what
        self.handler = handler
        super().__init__(f"handler {handler}: {what}" if handler else what)


class DeadlineExceeded(HandlerFault):
    """The unit's deadline passed; its query was killed on the server."""


# ------------------------------------------------------------------ the database
class StoreError(InboxError):
    """The database did not let a unit of work end; nothing is decided about the event.

    Args:
        what: which step failed.
        code: the server's or driver's error number, where there was one.
    """

    def __init__(self, what: str, *, code: int | None = None) -> None:
        self.what = what
        self.code = code
        super().__init__(what if code is None else f"{what} (error {code})")


class Contended(StoreError):
    """Lost to a dead-lock, a lock wait or a lost connection. Running again is right."""


class StoreUnavailable(StoreError):
    """The database is down, starting, full or read-only. Waiting is right."""


class QuarantineFull(StoreError):
    """The quarantine's bound in rows or bytes is reached: it drops nothing, so intake must pause."""


class CommitUnknown(StoreError):
    """COMMIT was sent and no answer came: it may be durable."""


class Torn(StoreError):
    """A stored procedure ended the transaction from inside; its row may be committed in part."""


# ------------------------------------------------------------------ the broker
class TransportError(InboxError):
    """The connection, channel or acknowledgement to the broker was lost."""


class StopTimeout(TransportError):
    """The patience of the shutdown ended before everything that ran had.

    Args:
        handlers: names of those that had not come back. Nothing is claimed about what they did outside their units.
        message: in place of the one that names them.
    """

    def __init__(self, handlers: Sequence[str], message: str | None = None) -> None:
        self.handlers = tuple(handlers)
        super().__init__(message or f"stopped hard; still running: {', '.join(handlers) or 'nothing of ours'}")


# ------------------------------------------------------------------ whoever uses inbox.transaction
class NotDone(InboxError):
    """`inbox.transaction` did not apply its body."""


class AlreadyProcessed(NotDone):
    """The event was applied before: acknowledge it."""


class TryAgain(NotDone):
    """Contention or a lost connection; the body was undone. Do not acknowledge."""


class NotApplied(NotDone):
    """The connection was lost in COMMIT and the commit did not happen. Do not acknowledge."""


class CommitUnresolved(NotDone):
    """The connection was lost in COMMIT and its outcome cannot be told yet. Do not acknowledge."""


# ------------------------------------------------------------------ decisions of a handler
class Reject(Exception):
    """Raised by a handler: undo, put the event into quarantine, acknowledge it.

    Args:
        reason: why, for the person who looks at the quarantine. No payload, no secrets.
    """

    reason = ""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class Retry(Exception):
    """Raised by a handler: undo, and deliver the event again later. Counts as an attempt.

    Args:
        after: seconds to wait at least, up to 30 days; None takes the policy's delay. Held in hand, where the
            transport keeps no copies, at most the policy's `max_hold`.
    """

    after: float | None = None

    def __init__(self, after: float | None = None) -> None:
        self.after = after
        super().__init__("retry" if after is None else f"retry after {after} s")
