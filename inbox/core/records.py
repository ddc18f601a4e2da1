"""What is stored about an event: its identity and its fingerprint."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Literal

from inbox.errors import Refused

if TYPE_CHECKING:
    from inbox.core.event import CloudEvent

#: Octets that the key columns hold (`inbox.tables`). Longer is refused, never cut.
CONSUMER_NAME_OCTETS = 128
EVENT_ID_OCTETS = 512

Identity = Literal["id", "source+id"]
FingerprintPart = Literal["source", "type", "subject", "data", "sequence"]

#: What a fingerprint covers unless a consumer says otherwise.
DEFAULT_FINGERPRINT: tuple[FingerprintPart, ...] = ("source", "type", "data")


@dataclass(frozen=True, slots=True, repr=False)
class InboxRecord:
    """The row that makes an event known to a consumer.

    Attributes:
        consumer: the name duplicates are known under.
        key: exact octets of the event's identity.
        fingerprint: SHA-256 of what must not change under one identity; None compares nothing.
        scheme: which parts the fingerprint covers, one bit each; another scheme is not compared.
    """

    consumer: str
    key: bytes
    fingerprint: bytes | None = None
    scheme: int | None = None

    def __repr__(self) -> str:
        return f"<InboxRecord of consumer {self.consumer}>"

    def contradicts(self, stored: bytes | None, stored_scheme: int | None) -> bool:
        """Whether the stored fingerprint says that another event has this identity.

        Args:
            stored: the fingerprint found in the row; None where none was taken.
            stored_scheme: its scheme.
        """
        comparable = self.fingerprint is not None and stored is not None and self.scheme == stored_scheme
        return comparable and self.fingerprint != stored


class Claim(Enum):
    """What inserting the record said."""

    NEW = "new"
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"


class Resolution(Enum):
    """What the probe after an unknown commit said."""

    COMMITTED = "committed"
    ABSENT = "absent"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often an event was tried and did not end well. All zero for what is in no trouble.

    Attributes:
        failed: handler runs that ended in an error charged to the event.
        crashed: handler runs that were started and never finished: the process died in them.
        released: hand-backs for contention; no attempts, but counted so that they end.
        suspect: the start that answered with these counts found one open that another process had left: the process
            died in this event's handler, or beside it. Run alone, it clears itself, or shows that it was the cause.
        reopened: that start had run alone, and was charged as crashed.
        age: seconds since the first trouble, by the database's clock.
    """

    failed: int = 0
    crashed: int = 0
    released: int = 0
    suspect: bool = False
    reopened: bool = False
    age: float = field(default=0.0, compare=False)

    @property
    def charged(self) -> int:
        """Attempts that count against the limit."""
        return self.failed + self.crashed


def record_of(
    consumer: str, event: CloudEvent, identity: Identity, parts: tuple[FingerprintPart, ...] | None
) -> InboxRecord:
    """Identity and fingerprint of `event` for `consumer`.

    Args:
        consumer: the consumer's name.
        event: the decoded event.
        identity: `id`, or `source+id`, the pair that CloudEvents 1.0 makes unique.
        parts: what the fingerprint covers; None takes none.

    Raises:
        Refused: the id is longer than the key column. Cutting it would merge two events.
    """
    key = event.id.encode()
    if identity == "source+id":
        key = _hash([event.source.encode(), key])
    elif len(key) > EVENT_ID_OCTETS:
        raise Refused(f"the id has {len(key)} octets, at most {EVENT_ID_OCTETS} are stored", code="id-too-long")
    if not parts:
        return InboxRecord(consumer, key)
    return InboxRecord(consumer, key, _hash([_part(event, part) for part in _BITS if part in parts]), _scheme(parts))


#: One bit for each part; their order is the order in which parts are hashed.
_BITS: dict[FingerprintPart, int] = {"source": 1, "type": 2, "subject": 4, "data": 8, "sequence": 16}


@cache  # a setting of the consumer's
def _scheme(parts: tuple[FingerprintPart, ...]) -> int:
    return sum(_BITS[part] for part in set(parts))


def _part(event: CloudEvent, part: FingerprintPart) -> bytes:
    if part == "data":
        return event.data or b""
    if part == "sequence":  # the extension of that name
        return str(event.extensions.get("sequence", "")).encode()
    return (getattr(event, part) or "").encode()


def _hash(parts: list[bytes]) -> bytes:
    """SHA-256 over length-prefixed parts: ("ab", "c") and ("a", "bc") differ."""
    return hashlib.sha256(
        b"".join([piece for part in parts for piece in (len(part).to_bytes(8, "big"), part)])
    ).digest()
