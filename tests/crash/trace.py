"""Traces of the model of `tests/unit/model.py`, of steps that can be brought about on real servers.

A trace is a walk from idle workers and three deliveries to a world in which everything has ended. Each step has its
means: by these it is brought about, and not waited for. What has none is left to the model, and told below.
"""

from dataclasses import dataclass
from enum import Enum

from inbox.core.lifecycle import Command, Outcome
from tests.unit.model import COMMITTING, GONE, OPEN, Facts, Move

#: Repetitions in place after contention.
IMMEDIATE = 1
#: Seconds that a claim waits: of workers that give up, and of those that outlast every trace. Those that give up
#: compare no content, which would show them that what they waited for is not there.
GIVES_UP, WAITS = 1, 30


class Means(Enum):
    """How a step is brought about."""

    GO = ""
    TAKE = "takes it"
    WAIT = "waits for the row, which another holds"
    SESSION_ENDS = "an orphaned session ends, undone"
    LATE_COMMIT = "a COMMIT that was under way arrives late"

    REFUSE = "the verifier refuses it"
    CANNOT_TELL = "the verifier has trouble of its own"
    RAISE_AGAIN = "`prepare` or the handler raises: to be repeated at once"
    RAISE_LATER = "the same: to be repeated later"
    RAISE_REJECT = "the same: `Reject`"
    SWALLOW_LOCK_WAIT = "the handler swallows a lock wait that was in vain (1205)"
    SWALLOW_KILL = "the handler swallows that its statement was killed (1317)"
    SWALLOW_DEADLOCK = "the handler swallows a dead-lock (1213)"
    LOCK_WAIT = "a claim waits in vain (1205)"
    PROBE_WAIT = "a probe for an unknown commit waits in vain, and nobody can say"
    KILL_QUERY = "a claim that waits is killed"
    KILL_SESSION = "the session is killed, before a claim, in one that waits, in the handler, before COMMIT"
    COMMIT_UNANSWERED = "COMMIT is durable, and its answer lost"
    COMMIT_CUT = "COMMIT never arrives"
    COMMIT_HELD = "COMMIT is under way, and its link lost"
    WRITE_CUT = "a note or an entry never arrives, as often as it is repeated"
    COPY_UNCONFIRMED = "a copy is with the broker, and its confirmation lost"
    COPY_CUT = "a copy never arrives"
    ACK_CUT = "an acknowledgement is lost with its channel"

    DIES_AFTER = "SIGKILL just after the command before"
    DIES_BEFORE = "SIGKILL just before the command"
    DIES_AFTER_ORPHAN = "SIGKILL just after the command before, and the session lives on with its locks"
    DIES_BEFORE_ORPHAN = "SIGKILL just before the command, and the session lives on with its locks"
    DIES_INSIDE = "SIGKILL inside of the handler's statement"
    DIES_UNANSWERED = "SIGKILL when a COMMIT, an entry or a copy is durable and unanswered"
    DIES_UNDER_WAY = "SIGKILL while COMMIT is under way"
    DIES_WITH_ACK_SENT = "SIGKILL when the acknowledgement is with the broker"
    DIES_WITH_ACK_HELD = "SIGKILL while the acknowledgement is under way, and lost"
    DIES_WITH_RELEASE_HELD = "SIGKILL just after a release, before the broker is told"


#: Outcomes that are never replayed.
LEFT = {
    (Command.COMMIT, Outcome.FAILED): "only a stored procedure can bring it about, where CALL is enabled",
    (Command.BEGIN, Outcome.FAILED): "no connection may be had then, by either worker",
    (Command.WAIT, Outcome.RELEASE): "a stop ends it, and the worker",
    (Command.QUARANTINE, Outcome.FAILED): "a quarantine that is full pauses the worker",
}
#: Ways of the model that are not replayed, though their outcomes are.
LEFT_TOO = (
    "resolve, unresolved, although nobody holds the row: the database would have to be away",
    "resolve, of one content where another one was committed meanwhile: the model does not tell them apart",
    "an entry in quarantine whose answer is lost, by a worker that lives to repeat it",
    "a second copy of one event: the model leaves it out",
    "the note of a start that fails, of an event that is in no trouble: none is written",
    "a second one that waits for a row whose holder rolls back: which of both gets it is the server's choice",
    "a note of attempts, or an entry with them, beside a unit that has deleted them and not ended: there it waits",
    "the death of a worker whose claim waits: the server waits on for it",
)


@dataclass(frozen=True, order=True)
class Message:
    """What is published.

    Attributes:
        event: which one.
        is_other: under the same id, with another content.
        is_garbled: nothing can be read of it but its body.
    """

    event: int
    is_other: bool = False
    is_garbled: bool = False


@dataclass(frozen=True)
class Step:
    """One step of a trace.

    Attributes:
        hand: whose, `A` or `B`; empty where it is the servers' alone.
        move: what the model says that it is.
        means: how it comes about.
        message: what is taken, or in hand.
        is_new: it is published for this.
        facts: of all events, afterwards.
    """

    hand: str
    move: Move
    means: Means
    message: Message | None
    is_new: bool
    facts: tuple[Facts, ...]

    def __str__(self) -> str:
        move, words = self.move, []
        if move.command is not None:
            words.append(move.command.value)
        if move.outcome is not None:
            words.append(move.outcome.value)
        if self.means.value:
            words.append(self.means.value)
        who = f"{self.hand}, event {move.event}" if self.hand else f"event {move.event}"
        there = "; ".join(f"event {number}: {_told(facts)}" for number, facts in enumerate(self.facts))
        return f"{who}: {', '.join(words)} -> {there}"


def _told(facts: Facts) -> str:
    session = {GONE: "", OPEN: "an open session", COMMITTING: "a session that commits"}[facts.session]
    words = ["row" * facts.row, "quarantined" * facts.quarantined, session, f"{facts.ready} ready"]
    return " + ".join(filter(None, words))


@dataclass(frozen=True)
class Trace:
    """A walk, and the number under which its seed draws it again.

    Attributes:
        prepares: of each event, whether its handler has something to prepare.
        does: what is worth doing once in a run: means, deeds, and deeds beside something that the other worker is at.
    """

    number: int
    steps: tuple[Step, ...]
    prepares: tuple[bool, ...]
    does: frozenset[tuple[object, ...]]

    @property
    def costs(self) -> float:
        """About how many seconds, where waiting counts half."""
        slow = (Means.LOCK_WAIT, Means.PROBE_WAIT, Means.SWALLOW_LOCK_WAIT)
        means = [step.means for step in self.steps]
        deaths = sum(each.name.startswith("DIES") for each in means)
        return 0.013 * len(means) + 0.4 * deaths + GIVES_UP / 2 * sum(each in slow for each in means)
