"""Mutations of the table of transitions, found by the model in `tests/unit/test_model.py`."""

from dataclasses import dataclass

from inbox.core.lifecycle import Outcome, State


@dataclass(frozen=True)
class TableMutation:
    """A wrong target.

    Attributes:
        name: what it is called.
        state, outcome: the transition.
        target: where it leads instead of where it should.
        harm: what comes of it.
    """

    name: str
    state: State
    outcome: Outcome
    target: State
    harm: str

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
        "acknowledged for a lock wait or a lost connection",
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
