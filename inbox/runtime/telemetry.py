"""What became of every delivery, counted and, where a person should know, said in one line.

No line holds an id, a type, a payload or a text of a peer: an event is named by the first digits
of its key's SHA-256.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from typing import TYPE_CHECKING

from inbox.core.lifecycle import Command, Outcome

if TYPE_CHECKING:
    from inbox.ports import Passage

log = logging.getLogger("inbox")


def event_label(passage: Passage) -> str:
    """A name for the event of `passage` that gives nothing away and finds it again.

    `SELECT … WHERE SHA2(event_id, 256) LIKE '<label>%'` finds the row.
    """
    return "-" if passage.event is None else hashlib.sha256(passage.event.record.key).hexdigest()[:12]


class Telemetry:
    """A probe that counts ends and tells of trouble.

    Attributes:
        counts: by outcome: `applied`, `duplicate`, `quarantined`, `released`, `repeated`,
            `resolved`, `ack_lost`; and `failed` by kind as `failed:<kind>`.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def before(self, command: Command, passage: Passage) -> None:
        """Nothing to see yet."""

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        """Count what happened."""
        match command, outcome:
            case Command.COMMIT, Outcome.DONE:
                self.counts["applied"] += 1
            case Command.RESOLVE, Outcome.DONE:
                self.counts["applied"] += 1
                self.counts["resolved"] += 1
            case Command.CLAIM, Outcome.DUPLICATE:
                self.counts["duplicate"] += 1
            case Command.QUARANTINE, Outcome.DONE:
                self.counts["quarantined"] += 1
                self._tell(passage, "quarantined")
            case Command.QUARANTINE, Outcome.FAILED:
                self._tell(passage, "could not be quarantined yet")
            case Command.RELEASE, Outcome.DONE:
                self.counts["released"] += 1
            case Command.WAIT, Outcome.AGAIN:
                self.counts["repeated"] += 1
            case Command.RECORD, _:
                self._failed(passage)
            case Command.RESOLVE, Outcome.UNRESOLVED:
                self._tell(passage, "commit unresolved")
            case _:
                pass

    def _failed(self, passage: Passage) -> None:
        if passage.failure is not None:
            self.counts[f"failed:{passage.failure.kind.value}"] += 1
            log.info("undone: %s", _facts(passage))

    def _tell(self, passage: Passage, what: str) -> None:
        log.warning("%s: %s", what, _facts(passage))


def _facts(passage: Passage) -> str:
    handler = "-" if passage.handler is None else passage.handler.name
    failure = passage.failure
    why = "" if failure is None else f" reason={failure.reason}"
    return f"event={event_label(passage)} handler={handler}{why} attempts={passage.attempts.charged}"
