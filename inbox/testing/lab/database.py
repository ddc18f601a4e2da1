"""What the laboratory asks of a database: to put it back as it was, and to read what is in it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from inbox.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "APPLIED",
    "OPEN_STARTS",
    "REFUSED",
    "Database",
    "Ended",
    "LabError",
    "Row",
    "Rows",
    "WorkerFailedError",
    "ended_of",
    "is_disposable",
    "refused_check",
    "require_disposable",
]

#: A word of its own in the name: `latest` and `collaboration` are no names of test databases.
_FOR_TESTS = re.compile(r"(?:^|[^a-z])(?:tests?|testing|lab)(?:$|[^a-z])", re.IGNORECASE)

#: What becomes of events, asked of three tables; each server has its own mark for a value.
APPLIED: Final = "SELECT event_id FROM {table} WHERE consumer_name = {mark}"
REFUSED: Final = "SELECT record_key, event_id, reason FROM {table} WHERE consumer_name = {mark}"
OPEN_STARTS: Final = "SELECT COUNT(*) FROM {table} WHERE consumer_name = {mark} AND open_since IS NOT NULL"

#: One row; what a driver gives for a value can be compared and hashed.
Row = tuple[Any, ...]


class LabError(AssertionError):
    """The scenario did not come to its end, or the database could not be put back; the message says what is left."""


class WorkerFailedError(LabError):
    """A worker did not start, which says nothing of its handlers."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a table holds, or a query answers: which rows, and how often each."""

    columns: tuple[str, ...]
    rows: Counter[Row]


@dataclass(frozen=True, slots=True)
class Ended:
    """What has become of the events of one consumer.

    Attributes:
        applied: keys that have an inbox row.
        quarantined: why, by the key; "" is for all that have no key.
        keyless: entries of the quarantine that have no key.
        open_starts: starts of handlers that nobody has ended.
        expired: keys of events that a queue brings to nobody any more, though nobody has settled them.
    """

    applied: frozenset[bytes] = frozenset()
    quarantined: dict[bytes, str] = field(default_factory=dict)
    keyless: int = 0
    open_starts: int = 0
    expired: frozenset[bytes] = frozenset()

    def __contains__(self, key: bytes) -> bool:
        return key in self.applied or key in self.quarantined or key in self.expired

    def word_for(self, key: bytes) -> str:
        """What has become of one event, in a few words."""
        words = ["applied"] if key in self.applied else []
        if key in self.quarantined:
            words.append(f"quarantined as {self.quarantined[key]}")
        words += ["expired"] if key in self.expired else []
        return " and ".join(words) or "neither applied nor in quarantine"


class Database(Protocol):
    """One database of the adopter's. Used by one thread."""

    @property
    def name(self) -> str:
        """Of the database, as people know it."""
        ...

    def keep(self) -> None:
        """Take the database for this laboratory alone, and keep a copy of all that is in it.

        What a laboratory that was killed has left in it is put back first.

        Raises:
            ConfigurationError: another one has it, or it holds what cannot be put back.
        """
        ...

    def put_back(self) -> None:
        """Let every table be as it was when it was kept.

        Raises:
            LabError: that cannot be done any more.
        """
        ...

    def close(self) -> None:
        """Delete the copies, and let go of the database. May be called twice, and after a `keep` that failed."""
        ...

    def query(self, sql: str, arguments: Sequence[object] = ()) -> tuple[tuple[str, ...], list[Row]]:
        """The columns and rows that `sql` answers; what it writes is committed."""
        ...

    def check(self, sql: str) -> tuple[tuple[str, ...], list[Row]]:
        """The columns and rows that a query answers which may not write.

        Raises:
            LabError: it writes, answers nothing, or the server does not understand it.
        """
        ...

    def rows(self) -> dict[str, Rows]:
        """What the adopter's own tables hold: all but the inbox's.

        Raises:
            LabError: that is more than can be compared.
        """
        ...

    def surrogates(self) -> set[tuple[str, str]]:
        """Columns, by table, whose numbers the database draws, and those that refer to them."""
        ...

    def ended(self, consumer: str) -> Ended:
        """What has become of the events of `consumer`."""
        ...


def is_disposable(name: str) -> bool:
    """Whether the name says that all of it may be deleted."""
    return _FOR_TESTS.search(name) is not None


def require_disposable(what: str, name: str, though: str = "") -> None:
    """Refuse to work in what may be somebody's.

    Args:
        what: such as `database`.
        name: its name.
        though: what speaks against it besides, such as `, which holds 3 events,`.

    Raises:
        ConfigurationError: nothing in the name says that it is for tests.
    """
    if not is_disposable(name):
        raise ConfigurationError(
            f"the {what} {name!r}{though} is not known to be for tests: the lab deletes what is in it, and puts "
            "back what it found. Let the target name one with `test` or `lab` as a word of its name (shop_test), or "
            "say that everything in it may go: --disposable, in pytest --inbox-disposable or inbox_disposable = true"
        )


def refused_check(sql: str, why: str) -> LabError:
    """What to raise for a query of the adopter's that cannot be compared.

    Args:
        sql: theirs.
        why: in the server's words: it is their own query that it speaks of, on their own screen.
    """
    return LabError(f"check {' '.join(sql.split())!r} cannot be compared: write one SELECT ({' '.join(why.split())})")


def ended_of(applied: list[Row], refused: list[Row], starts: list[Row]) -> Ended:
    """What three queries say.

    Args:
        applied: the keys of inbox rows.
        refused: of the quarantine, the key of the record, the id, and the reason.
        starts: how many are open.
    """
    reasons: dict[bytes, set[str]] = {}
    keyless = 0
    for record_key, event_id, reason in refused:
        key = record_key or event_id
        if key is None:
            keyless += 1
        else:
            reasons.setdefault(bytes(key), set()).add(str(reason))
    return Ended(
        frozenset(bytes(key) for (key,) in applied),
        {key: ", ".join(sorted(words)) for key, words in reasons.items()},
        keyless,
        int(starts[0][0]),
    )
