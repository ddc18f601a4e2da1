"""The life of one delivery as a table: the only place that knows what comes after what.

`Lifecycle` is told the outcome of a command and names the next one. It performs nothing and asks
nothing, so it can be walked exhaustively, and a processor that follows it cannot reorder steps.
"""

from __future__ import annotations

from enum import Enum


class _Word(Enum):
    """A member equals nothing but itself, so that identity is hash enough.

    Enum's own hash is a function in Python, called at each look-up: some seventy times in the life of one delivery.
    """

    __hash__ = object.__hash__


class State(_Word):
    """Where a delivery stands."""

    RECEIVED = "received"
    DECODED = "decoded"
    VERIFIED = "verified"
    PREPARED = "prepared"
    BEGUN = "begun"
    CLAIMED = "claimed"
    STARTED = "started"
    APPLIED = "applied"
    COMMIT_UNKNOWN = "commit-unknown"
    COMMITTED = "committed"
    DUPLICATE = "duplicate"
    BROKEN = "broken"
    UNDONE = "undone"
    WAITING = "waiting"
    REJECTED = "rejected"
    QUARANTINED = "quarantined"
    DELAYING = "delaying"
    DELAYED = "delayed"
    RELEASING = "releasing"
    ACKNOWLEDGED = "acknowledged"
    RELEASED = "released"


class Command(_Word):
    """What the processor does next."""

    DECODE = "decode"
    VERIFY = "verify"
    PREPARE = "prepare"
    BEGIN = "begin"
    CLAIM = "claim"
    START = "start"
    APPLY = "apply"
    COMMIT = "commit"
    RESOLVE = "resolve"
    ROLLBACK = "rollback"
    RECORD = "record"
    WAIT = "wait"
    QUARANTINE = "quarantine"
    DELAY = "delay"
    RELEASE = "release"
    ACKNOWLEDGE = "acknowledge"


class Outcome(_Word):
    """What carrying out a command came to."""

    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    ABSENT = "absent"
    UNRESOLVED = "unresolved"
    AGAIN = "again"
    DELAY = "delay"
    RELEASE = "release"
    QUARANTINE = "quarantine"


#: What is done in each state. States without a command are the ends.
COMMANDS: dict[State, Command] = {
    State.RECEIVED: Command.DECODE,
    State.DECODED: Command.VERIFY,
    State.VERIFIED: Command.PREPARE,
    State.PREPARED: Command.BEGIN,
    State.BEGUN: Command.CLAIM,
    State.CLAIMED: Command.START,
    State.STARTED: Command.APPLY,
    State.APPLIED: Command.COMMIT,
    State.COMMIT_UNKNOWN: Command.RESOLVE,
    State.COMMITTED: Command.ACKNOWLEDGE,
    State.DUPLICATE: Command.ACKNOWLEDGE,
    State.BROKEN: Command.ROLLBACK,
    State.UNDONE: Command.RECORD,
    State.WAITING: Command.WAIT,
    State.REJECTED: Command.QUARANTINE,
    State.QUARANTINED: Command.ACKNOWLEDGE,
    State.DELAYING: Command.DELAY,
    State.DELAYED: Command.ACKNOWLEDGE,
    State.RELEASING: Command.RELEASE,
}

#: The rules about order. What is not here cannot happen.
TRANSITIONS: dict[tuple[State, Outcome], State] = {
    (State.RECEIVED, Outcome.DONE): State.DECODED,
    (State.RECEIVED, Outcome.REFUSED): State.REJECTED,
    # Authenticity is decided before the row is inserted: a forged delivery can use up no id.
    (State.DECODED, Outcome.DONE): State.VERIFIED,
    (State.DECODED, Outcome.REFUSED): State.REJECTED,
    (State.DECODED, Outcome.FAILED): State.UNDONE,
    (State.VERIFIED, Outcome.DONE): State.PREPARED,
    (State.VERIFIED, Outcome.FAILED): State.UNDONE,
    (State.PREPARED, Outcome.DONE): State.BEGUN,
    (State.PREPARED, Outcome.FAILED): State.UNDONE,
    (State.BEGUN, Outcome.DONE): State.CLAIMED,
    (State.BEGUN, Outcome.DUPLICATE): State.DUPLICATE,
    (State.BEGUN, Outcome.REFUSED): State.REJECTED,
    (State.BEGUN, Outcome.FAILED): State.BROKEN,
    (State.CLAIMED, Outcome.DONE): State.STARTED,
    (State.CLAIMED, Outcome.FAILED): State.BROKEN,
    (State.STARTED, Outcome.DONE): State.APPLIED,
    (State.STARTED, Outcome.FAILED): State.BROKEN,
    (State.APPLIED, Outcome.DONE): State.COMMITTED,
    # After COMMIT a unit is over, however it ended: there is nothing left to roll back.
    (State.APPLIED, Outcome.FAILED): State.UNDONE,
    (State.APPLIED, Outcome.UNKNOWN): State.COMMIT_UNKNOWN,
    # Never acknowledge on an unknown commit: only a row that was found is one that exists.
    (State.COMMIT_UNKNOWN, Outcome.DONE): State.COMMITTED,
    (State.COMMIT_UNKNOWN, Outcome.ABSENT): State.UNDONE,
    (State.COMMIT_UNKNOWN, Outcome.UNRESOLVED): State.UNDONE,
    (State.BROKEN, Outcome.DONE): State.UNDONE,
    # RECORD charges what is to be charged and decides.
    (State.UNDONE, Outcome.AGAIN): State.WAITING,
    (State.UNDONE, Outcome.DELAY): State.DELAYING,
    (State.UNDONE, Outcome.RELEASE): State.RELEASING,
    (State.UNDONE, Outcome.QUARANTINE): State.REJECTED,
    (State.WAITING, Outcome.AGAIN): State.DECODED,
    (State.WAITING, Outcome.RELEASE): State.RELEASING,
    (State.REJECTED, Outcome.DONE): State.QUARANTINED,
    # In place: what is torn would come back as a duplicate.
    (State.REJECTED, Outcome.AGAIN): State.REJECTED,
    (State.REJECTED, Outcome.FAILED): State.RELEASING,
    # Acknowledged only once a copy of it is known to be kept.
    (State.DELAYING, Outcome.DONE): State.DELAYED,
    (State.DELAYING, Outcome.FAILED): State.RELEASING,
    (State.DELAYED, Outcome.DONE): State.ACKNOWLEDGED,
    (State.COMMITTED, Outcome.DONE): State.ACKNOWLEDGED,
    (State.DUPLICATE, Outcome.DONE): State.ACKNOWLEDGED,
    (State.QUARANTINED, Outcome.DONE): State.ACKNOWLEDGED,
    (State.RELEASING, Outcome.DONE): State.RELEASED,
}

#: Ends. Everything that reached one has been settled with the transport, or left to redelivery.
ENDS = frozenset({State.ACKNOWLEDGED, State.RELEASED})


class ImpossibleOutcome(Exception):
    """An outcome that the table does not know. It changes nothing."""


class Lifecycle:
    """Where one delivery stands, and what comes next."""

    __slots__ = ("state",)

    def __init__(self) -> None:
        self.state = State.RECEIVED

    @property
    def command(self) -> Command | None:
        """What to do now; None at an end."""
        return COMMANDS.get(self.state)

    def advance(self, outcome: Outcome) -> State:
        """Take the outcome of the current command.

        Raises:
            ImpossibleOutcome: the table has no such transition. The state stays as it was.
        """
        try:
            self.state = TRANSITIONS[self.state, outcome]
        except KeyError:
            raise ImpossibleOutcome(f"{outcome} in {self.state}") from None
        return self.state
