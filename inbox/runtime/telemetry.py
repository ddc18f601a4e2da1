"""What became of every delivery, counted and, where a person should know, said in one line.

No line holds an id, a type, a payload or a text of a peer: an event is named by the first digits
of its key's SHA-256.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from typing import TYPE_CHECKING

from inbox.core.disposition import FailureKind
from inbox.core.facts import fact
from inbox.core.lifecycle import Command, Outcome

if TYPE_CHECKING:
    from inbox.core.facts import Value
    from inbox.ports import Passage

log = logging.getLogger("inbox")


def event_label(passage: Passage) -> str:
    """A name for the event of `passage` that gives nothing away and finds it again.

    `SELECT … WHERE SHA2(event_id, 256) LIKE '<label>%'` finds the row.
    """
    return "-" if passage.event is None else hashlib.sha256(passage.event.record.key).hexdigest()[:12]


#: What each step adds to the counts.
_COUNTED: dict[tuple[Command, Outcome], tuple[str, ...]] = {
    (Command.COMMIT, Outcome.DONE): ("applied",),
    (Command.RESOLVE, Outcome.DONE): ("applied", "resolved"),
    (Command.CLAIM, Outcome.DUPLICATE): ("duplicate",),
    (Command.QUARANTINE, Outcome.DONE): ("quarantined",),
    (Command.DELAY, Outcome.DONE): ("delayed",),
    (Command.RELEASE, Outcome.DONE): ("released",),
    (Command.WAIT, Outcome.AGAIN): ("repeated",),
}

#: What a person should know: the fact's word, and how a line says it.
_TOLD: dict[tuple[Command, Outcome], tuple[str, str]] = {
    (Command.QUARANTINE, Outcome.DONE): ("quarantined", "quarantined"),
    (Command.QUARANTINE, Outcome.FAILED): ("not-quarantined", "could not be quarantined yet"),
    (Command.RESOLVE, Outcome.UNRESOLVED): ("commit-unresolved", "commit unresolved"),
    (Command.DELAY, Outcome.FAILED): ("not-delayed", "could not be delayed by a copy, is held in hand instead"),
}

#: Of these steps there is nothing to count and nothing to tell where they are done, as they are for almost every event.
_QUIET = frozenset(Command) - {command for command, _ in (*_COUNTED, *_TOLD)} - {Command.ACKNOWLEDGE, Command.RECORD}

#: Reasons to undo that are no failures.
_NO_FAILURES = frozenset({FailureKind.SUSPECT, FailureKind.EARLY})


class Telemetry:
    """A probe that counts ends and tells of trouble.

    Attributes:
        counts: by outcome: `applied`, `ignored`, `duplicate`, `quarantined`, `delayed`, `released`, `repeated`,
            `resolved`, `ack_lost`; what was undone, by kind, as `failed:<kind>`; and what had to run alone, as
            `suspect`, or came too early, as `early`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before(self, command: Command, passage: Passage) -> None:
        """Nothing to see yet."""

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """Count what happened, and tell of trouble."""
        if outcome is Outcome.DONE and command in _QUIET:
            return
        for count in _COUNTED.get((command, outcome), ()):
            is_ignored = count == "applied" and passage.handler is not None and passage.handler.ignores
            self.counts["ignored" if is_ignored else count] += 1
        if told := _TOLD.get((command, outcome)):
            what, words = told
            fields = _fields(passage)
            log.warning("%s: %s", words, _line(fields), extra=fact(what, **fields))
        if command is Command.ACKNOWLEDGE and passage.is_ack_lost:
            self.counts["ack_lost"] += 1
        if command is Command.RECORD and passage.failure is not None:
            kind = passage.failure.kind
            self.counts[kind.value if kind in _NO_FAILURES else f"failed:{kind.value}"] += 1
            fields = _fields(passage)
            log.info("undone: %s", _line(fields), extra=fact("undone", **fields))


def _fields(passage: Passage) -> dict[str, Value]:
    failure = passage.failure
    # What a handler or a verifier gives as its reason may quote the event: it stays in the quarantine.
    is_ours = failure is not None and failure.kind not in (FailureKind.REJECTED, FailureKind.REFUSED)
    return {
        "event": None if passage.event is None else event_label(passage),
        "handler": None if passage.handler is None else passage.handler.name,
        "reason": None if failure is None else failure.reason,
        "attempts": passage.attempts.charged,
        "detail": failure.detail if failure is not None and is_ours else None,
    }


def _line(fields: dict[str, Value]) -> str:
    why = "" if fields["reason"] is None else f" reason={fields['reason']}"
    line = f"event={fields['event'] or '-'} handler={fields['handler'] or '-'}{why} attempts={fields['attempts']}"
    return line if fields["detail"] is None else f"{line}: {fields['detail']}"
