"""What is in the database, against what was published."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbox.demo.script import Expected
    from inbox.demo.stage import Stage

__all__ = ["Found", "Verdict", "find", "judge"]


@dataclass(slots=True)
class Found:
    """What the database holds at the end.

    Attributes:
        lines: of the ledger for each event id, each as account, kind and cents.
        balances: of the accounts that hold something.
        claimed: event ids that have an inbox row.
        refusals: event ids in quarantine, with their reasons.
        left: messages that are still in the queue.
    """

    lines: dict[str, list[tuple[str, str, int]]] = field(default_factory=dict)
    balances: Counter[str] = field(default_factory=Counter)
    claimed: set[str] = field(default_factory=set)
    refusals: dict[str, set[str]] = field(default_factory=dict)
    left: int = 0

    @property
    def effects(self) -> int:
        """Lines of the ledger."""
        return sum(len(lines) for lines in self.lines.values())

    @property
    def cents(self) -> int:
        """What all accounts together hold."""
        return self.balances.total()

    @property
    def reasons(self) -> Counter[str]:
        """Events in quarantine, by reason."""
        return Counter(reason for reasons in self.refusals.values() for reason in reasons)


async def find(stage: Stage) -> Found:
    """Read everything there is. No worker may live.

    Raises:
        InboxError, sqlalchemy.exc.DBAPIError, sqlite3.Error: it cannot be asked.
    """
    found = Found(left=await stage.left())
    entry, account = stage.ledger.entry.name, stage.ledger.account.name
    sql = f"SELECT event_id, account, kind, cents FROM {entry}"  # noqa: S608 - a name of ours
    for event_id, holder, kind, cents in await stage.rows(sql):
        found.lines.setdefault(event_id, []).append((holder, kind, int(cents)))
    for name, cents in await stage.rows(f"SELECT name, cents FROM {account} WHERE cents <> 0"):  # noqa: S608 - as above
        found.balances[name] = int(cents)
    for (event_id,) in await stage.rows(f"SELECT event_id FROM {stage.tables.inbox}"):  # noqa: S608 - as above
        found.claimed.add(_text(event_id))
    sql = f"SELECT event_id, reason FROM {stage.tables.quarantine}"  # noqa: S608 - as above
    for event_id, reason in await stage.rows(sql):
        found.refusals.setdefault(_text(event_id), set()).add(reason)
    return found


def _text(value: Any) -> str:
    """Keys are stored as octets; what has no id at all is told as that."""
    return value.decode() if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the comparison came to.

    Attributes:
        lost: events that were published and are neither applied nor, where they should be, in quarantine.
        double: effects beyond the first of their event.
        differences: a sentence for each thing that is not as it must be; none where all is well.
    """

    lost: int
    double: int
    differences: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether the promise was kept."""
        return not self.differences


def judge(expected: Expected, found: Found) -> Verdict:
    """Compare.

    Args:
        expected: by what was published.
        found: in the database.
    """
    due = {event: {refusal.reason} for event, refusal in expected.refusals.items()}
    # A forgery that is in quarantine under an event's id does not stand for that event.
    lost = sum(
        event not in found.lines and not found.refusals.get(event, set()) - due.get(event, set())
        for event in expected.effects
    )
    lost += sum(event not in found.refusals for event in expected.refusals)
    double = sum(len(lines) - 1 for lines in found.lines.values())
    strange = len(found.lines.keys() - expected.effects.keys())
    wrong = sum(
        (effect.account, effect.kind, effect.cents) not in found.lines[event]
        for event, effect in expected.effects.items()
        if event in found.lines
    )
    balances = expected.balances
    accounts = balances.keys() | found.balances.keys()
    unbalanced = sum(balances[name] != found.balances[name] for name in accounts)
    misplaced = sum(due.get(event) != found.refusals.get(event) for event in due.keys() | found.refusals.keys())
    counts = {
        f"of {expected.events:,} events lost": lost,
        "effects doubled": double,
        "events with an effect that must have none": strange,
        "effects that are other than their events say": wrong,
        "accounts with another sum than they were credited": unbalanced,
        "events wrongly in quarantine, or missing there, or there for another reason": misplaced,
        "events with an effect and no inbox row, or a row and no effect": len(found.claimed ^ found.lines.keys()),
        "deliveries left in the queue": found.left,
    }
    return Verdict(lost, double, tuple(f"{count:,} {words}" for words, count in counts.items() if count))


def rows_of(expected: Expected, found: Found, verdict: Verdict) -> Sequence[tuple[str, str, str]]:
    """The table for people: what, expected, found."""
    due = Counter(refusal.reason for refusal in expected.refusals.values())
    rows = [
        ("deliveries settled", f"{expected.deliveries:,}", f"{expected.deliveries - found.left:,}"),
        ("effects", f"{len(expected.effects):,}", f"{found.effects:,}"),
        ("inbox rows", f"{len(expected.effects):,}", f"{len(found.claimed):,}"),
        ("sum of all accounts", _money(expected.cents), _money(found.cents)),
        ("lost", "0", f"{verdict.lost:,}"),
        ("double", "0", f"{verdict.double:,}"),
        ("in quarantine", f"{len(expected.refusals):,}", f"{len(found.refusals):,}"),
    ]
    reasons = sorted(due.keys() | found.reasons.keys())
    return rows + [(f"  as {reason}", f"{due[reason]:,}", f"{found.reasons[reason]:,}") for reason in reasons]


def _money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02}"
