"""The SQL of transactions and units, as nobody else can spell it.

Python's module keeps compiled statements by their text, and SQLite asks the authorizer only when it compiles: a
handler's COMMIT would pass if it found ours. So each process marks its own with a word drawn at random.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from inbox.core.records import InboxRecord
    from inbox.tables import TableNames

_MARK: Final = f"-- {secrets.token_hex(8)}"

#: Takes the right to write at once, or fails: a transaction that began as a reader can lose it to another writer later,
#: and then for good (sqlite.org/isolation.html).
BEGIN: Final = f"BEGIN IMMEDIATE {_MARK}"
COMMIT: Final = f"COMMIT {_MARK}"
ROLLBACK: Final = f"ROLLBACK {_MARK}"


@dataclass(frozen=True, slots=True)
class UnitStatements:
    """Texts for one table.

    Attributes:
        insert: the claim. Plain: INSERT OR IGNORE passes over every constraint, not only over the key.
        fingerprint: what the stored row says about the content of the event.
        is_there: whether the row is there.
    """

    insert: str
    fingerprint: str
    is_there: str

    @classmethod
    def of(cls, names: TableNames) -> UnitStatements:
        """For the table as it is called."""
        table = f"main.`{names.inbox}`"
        where = "WHERE consumer_name = ? AND event_id = ?"
        return cls(
            insert=(
                f"INSERT INTO {table} (consumer_name, event_id, fingerprint, fingerprint_scheme, processed_at) "  # noqa: S608 - names checked when made
                f"VALUES (?, ?, ?, ?, ?) {_MARK}"
            ),
            fingerprint=f"SELECT fingerprint, fingerprint_scheme FROM {table} {where} {_MARK}",  # noqa: S608 - as above
            is_there=f"SELECT 1 FROM {table} {where} {_MARK}",  # noqa: S608 - as above
        )


def key_of(record: InboxRecord) -> tuple[bytes, bytes]:
    """The record's key, as octets: to SQLite a text never equals a blob."""
    return record.consumer.encode(), record.key
