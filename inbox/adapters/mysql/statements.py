"""The SQL that a unit sends on its own behalf."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from inbox.core.records import InboxRecord


def literal(value: bytes) -> str:
    """`value` as a hexadecimal literal: exact octets whatever the session's character set and SQL mode."""
    return f"X'{value.hex()}'"


@dataclass(frozen=True, slots=True)
class UnitStatements:
    """Texts for one pair of tables.

    Args:
        inbox: quoted name of the inbox table, with its database where needed.
        attempt: quoted name of the attempt table, likewise.
    """

    inbox: str
    attempt: str

    def insert(self, *records: InboxRecord) -> bytes:
        """The claim. Plain: INSERT IGNORE would cut long ids, and the row counts of ON DUPLICATE KEY lie."""
        return (
            f"INSERT INTO {self.inbox} (consumer_name, event_id, fingerprint, fingerprint_scheme) "  # noqa: S608 - names checked when made, and literals
            f"VALUES {', '.join(map(_row, records))}"
        ).encode()

    def fingerprint(self, record: InboxRecord) -> bytes:
        """What the stored row says about the content of the event."""
        return (
            f"SELECT fingerprint, fingerprint_scheme FROM {self.inbox} "  # noqa: S608 - names checked when made, and literals
            f"WHERE (consumer_name, event_id) = ({_key(record)})"
        ).encode()

    def forget(self, consumer: str, key: bytes) -> bytes:
        """Deletes the attempt counts of one event."""
        return (
            f"DELETE FROM {self.attempt} "  # noqa: S608 - names checked when made, and literals
            f"WHERE consumer_name = {literal(consumer.encode())} AND attempt_key = {literal(key)}"
        ).encode()


def _row(record: InboxRecord) -> str:
    fingerprint = "NULL" if record.fingerprint is None else literal(record.fingerprint)
    scheme = "NULL" if record.scheme is None else f"{record.scheme:d}"
    return f"({_key(record)}, {fingerprint}, {scheme})"


def _key(record: InboxRecord) -> str:
    return f"{literal(record.consumer.encode())}, {literal(record.key)}"
