"""Mutations of the table of transitions and of rules beside it, found by the model in `tests/unit/test_model.py`."""

from dataclasses import dataclass

from inbox.core.lifecycle import Outcome, State

#: What the model asks of every world, by the names that mutations say they break.
INVARIANTS = {
    "I1": "nothing is acknowledged, and nothing gone, that is not committed, in quarantine or in a confirmed copy",
    "I2": "an effect is committed if and only if its row is, and once",
    "I3": "a handler runs only under its event's claim, and no row is committed without the whole effect",
    "I4": "a duplicate is what has a committed row; absent is only what can no more be committed",
    "I5": "two ids are never taken for one",
    "I6": "a forged event never uses up an id",
    "I7": "an attempt is charged only to an event whose handler was begun",
}


@dataclass(frozen=True)
class TableMutation:
    """A wrong target.

    Attributes:
        name: what it is called.
        state, outcome: the transition.
        target: where it leads instead of where it should.
        harm: what comes of it.
        breaks: the invariant of those in the architecture that it breaks.
    """

    name: str
    state: State
    outcome: Outcome
    target: State
    harm: str
    breaks: str = "I1"

    def __str__(self) -> str:
        return self.name


TABLE_MUTATIONS = (
    TableMutation(
        "unknown-commit-is-committed",
        State.APPLIED,
        Outcome.UNKNOWN,
        State.COMMITTED,
        "acknowledged without asking what became of the commit: the classic mistake",
    ),
    TableMutation(
        "unresolved-commit-is-committed",
        State.COMMIT_UNKNOWN,
        Outcome.UNRESOLVED,
        State.COMMITTED,
        "acknowledged, though nobody could say what became of it",
    ),
    TableMutation(
        "failed-claim-is-a-duplicate",
        State.BEGUN,
        Outcome.FAILED,
        State.DUPLICATE,
        "acknowledged for a lock wait (1205), a dead-lock or a lost connection",
        "I4",
    ),
    TableMutation(
        "refused-is-verified",
        State.DECODED,
        Outcome.REFUSED,
        State.VERIFIED,
        "a forged event has used up the id",
        "I6",
    ),
    TableMutation(
        "failed-copy-is-a-copy",
        State.DELAYING,
        Outcome.FAILED,
        State.DELAYED,
        "acknowledged for a copy that nobody has",
    ),
    TableMutation(
        "failed-quarantine-is-quarantined",
        State.REJECTED,
        Outcome.FAILED,
        State.QUARANTINED,
        "acknowledged, and stored nowhere",
    ),
    TableMutation(
        "rolled-back-is-committed",
        State.BROKEN,
        Outcome.DONE,
        State.COMMITTED,
        "acknowledged after the handler failed",
    ),
)


@dataclass(frozen=True)
class RuleMutation:
    """A wrong order, or a rule of the code that is not heeded.

    Attributes:
        name: what it is called.
        harm: what comes of it.
        breaks: the invariant that it breaks.
        swaps: two states whose commands change places.
        rule: of the model, switched off.
    """

    name: str
    harm: str
    breaks: str
    swaps: tuple[State, State] | None = None
    rule: str | None = None

    def __str__(self) -> str:
        return self.name


RULE_MUTATIONS = (
    RuleMutation("ack-before-commit", "lost with the worker", "I1", (State.APPLIED, State.COMMITTED)),
    RuleMutation("ack-before-quarantine", "dropped in silence", "I1", (State.REJECTED, State.QUARANTINED)),
    RuleMutation("handler-before-claim", "runs without the row", "I3", (State.BEGUN, State.STARTED)),
    RuleMutation(
        "no-guard", "a handler swallows 1205 or 1213: a row without its effect, or the reverse", "I2", rule="guard"
    ),
    RuleMutation(
        "probe-by-a-plain-read", "called absent while its session is still committing", "I4", rule="locking_probe"
    ),
    RuleMutation("keys-are-cut", "another event's row makes it a duplicate", "I5", rule="whole_keys"),
    RuleMutation("neighbours-are-charged", "put away for what a crasher did", "I7", rule="charges_the_begun_alone"),
)
