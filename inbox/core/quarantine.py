"""Refused events as a person sees them: what is known of each, which of them are meant, and what came of a replay."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from inbox.core.delivery import ATTEMPT_KEY, COPY_HEADERS, Origin, is_bookkeeping
from inbox.errors import ConfigurationError, Undecodable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from inbox.core.delivery import Delivery

#: Octets of a type that the column holds (`inbox.tables`); a longer one is found by what is stored of it.
EVENT_TYPE_OCTETS = 255
#: Hexadecimal digits of a whole digest.
DIGEST_DIGITS = 64


class QuarantineState(StrEnum):
    """What was decided about an entry."""

    OPEN = "open"
    REPLAYED = "replayed"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One line of the history of an event's attempts.

    Attributes:
        at: when, in UTC; None in a line whose beginning was cut off.
        kind: `failed`, `released` or `crashed`; empty in a line that was cut.
        words: a sentence of ours, or class and place of an exception.
    """

    at: datetime | None
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class QuarantineCursor:
    """A place in a list of entries: after this one it goes on.

    The three are the order of the index that lists are read from. Its text (`str`) is for people to hand back.
    """

    first_at: datetime
    total_bytes: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.first_at:%Y%m%dT%H%M%S.%fZ}-{self.total_bytes}-{self.digest.hex()}"

    @classmethod
    def parse(cls, text: str) -> QuarantineCursor:
        """The place that `text` names.

        Raises:
            ConfigurationError: it is no text of a cursor.
        """
        try:
            time, size, digest = text.split("-")
            first_at = datetime.strptime(time, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
            return cls(first_at, int(size), bytes.fromhex(digest))
        except ValueError:
            raise ConfigurationError("this is no cursor: hand back the one that the last page ended with") from None


@dataclass(frozen=True, slots=True, repr=False)
class QuarantineEntry:
    """What is known of a delivery in quarantine, without its headers and its body.

    Attributes:
        digest: its key: SHA-256 of consumer, body, origin, content type and headers.
        state: whether somebody has decided about it.
        reason: why it was refused the last time, a stable word.
        detail: the same as a sentence.
        event_id: octets of its id; None where there is none, or where it is too long to be stored.
        event_type, source: of CloudEvents, perhaps cut; None for what could not be decoded.
        record_key: the key of its inbox row; None for what was never verified.
        origin: where it was first published, perhaps cut.
        queue: where it came from.
        attempts: runs that were charged to it, as of its last refusal.
        history: how they ended, the oldest first.
        times_seen: how often it was refused.
        first_at, last_at: when, the first and the last time, in UTC by the database's clock.
        state_at: when it got its state; None for what was open from the first.
        state_note: why.
        body_bytes: octets of its body.
        total_bytes: octets of body and headers, which count against the bound.
    """

    digest: bytes
    state: QuarantineState
    reason: str
    detail: str
    event_id: bytes | None
    event_type: str | None
    source: str | None
    record_key: bytes | None
    origin: Origin
    queue: str
    attempts: int
    history: tuple[AttemptLine, ...]
    times_seen: int
    first_at: datetime
    last_at: datetime
    state_at: datetime | None
    state_note: str | None
    body_bytes: int
    total_bytes: int

    def __repr__(self) -> str:
        return f"<QuarantineEntry {self.label} {self.state}>"

    @property
    def label(self) -> str:
        """As many digits of its digest as a person needs to name it."""
        return self.digest.hex()[:12]

    @property
    def cursor(self) -> QuarantineCursor:
        """Its place in a list."""
        return QuarantineCursor(self.first_at, self.total_bytes, self.digest)


@dataclass(frozen=True, slots=True, repr=False)
class QuarantinedDelivery:
    """An entry with what arrived.

    Attributes:
        entry: what is known of it.
        delivery: as it arrived, marked as a replay and as not pristine. It is refused again where it was refused
            because it could not be parsed.
    """

    entry: QuarantineEntry
    delivery: Delivery

    def __repr__(self) -> str:
        return f"<QuarantinedDelivery {self.entry.label}>"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which entries are meant: those that meet every condition. Without one, all that are open.

    `Selection(reasons=("handler-error",), since=yesterday)`

    Attributes:
        states: `open`, `replayed`, `discarded`; any of these.
        reasons: any of these.
        types: CloudEvents types, any of these.
        ids: ids of events, any of these.
        digests: first hexadecimal digits of digests, any of these.
        since: refused for the first time then or later; aware.
        until: refused for the first time before then; aware.

    Raises:
        ConfigurationError: a text stands where a tuple belongs, a state or digest is none, or a time has no zone.
    """

    states: tuple[QuarantineState | str, ...] = (QuarantineState.OPEN,)
    reasons: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    ids: tuple[str, ...] = field(default=(), repr=False)
    digests: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("states", "reasons", "types", "ids", "digests"):
            if isinstance(getattr(self, name), str):
                raise ConfigurationError(f"Selection({name}=…) takes a tuple: ({getattr(self, name)!r},)")
        known = [state.value for state in QuarantineState]
        if not self.states or any(state not in known for state in self.states):
            raise ConfigurationError(f"Selection(states=…) takes {', '.join(known)}; at least one")
        if not all(re.fullmatch(f"[0-9a-fA-F]{{1,{DIGEST_DIGITS}}}", digits) for digits in self.digests):
            raise ConfigurationError("a digest is named by its first hexadecimal digits, at most 64")
        if any(time is not None and time.tzinfo is None for time in (self.since, self.until)):
            raise ConfigurationError("since and until need a time zone: datetime(…, tzinfo=UTC)")

    @property
    def type_octets(self) -> tuple[bytes, ...]:
        """The types as they are stored."""
        return tuple(cut_octets(text, EVENT_TYPE_OCTETS) for text in self.types)

    @property
    def id_octets(self) -> tuple[bytes, ...]:
        """The ids as they are stored."""
        return tuple(text.encode("utf-8", "surrogateescape") for text in self.ids)

    @property
    def digest_ranges(self) -> tuple[tuple[bytes, bytes], ...]:
        """The lowest and the highest digest that begins with each of the digits."""
        return tuple(
            (bytes.fromhex(digits.ljust(DIGEST_DIGITS, "0")), bytes.fromhex(digits.ljust(DIGEST_DIGITS, "f")))
            for digits in self.digests
        )

    def covers(self, entry: QuarantineEntry) -> bool:
        """Whether `entry` is meant."""
        kind = None if entry.event_type is None else cut_octets(entry.event_type, EVENT_TYPE_OCTETS)
        return (
            entry.state in self.states
            and (not self.reasons or entry.reason in self.reasons)
            and (not self.types or kind in self.type_octets)
            and (not self.ids or entry.event_id in self.id_octets)
            and (not self.digests or any(low <= entry.digest <= high for low, high in self.digest_ranges))
            and (self.since is None or entry.first_at >= self.since)
            and (self.until is None or entry.first_at < self.until)
        )


@dataclass(frozen=True, slots=True)
class QuarantineCount:
    """How many entries of one state have one reason.

    Attributes:
        state, reason: which.
        entries: how many.
        octets: of their bodies and headers.
        oldest: when the first of them was refused.
    """

    state: QuarantineState
    reason: str
    entries: int
    octets: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What came of a replay.

    Attributes:
        selected: entries that were to be replayed.
        applied: their effect exists now.
        duplicates: their effect existed already.
        ignored: recorded without a handler, by the policy for unknown types.
        quarantined_again: refused once more; they are open as before, with the new reason.
        kept: still open, and nothing was decided: handed back for contention, unreadable, or not reached.
    """

    selected: int = 0
    applied: int = 0
    duplicates: int = 0
    ignored: int = 0
    quarantined_again: int = 0
    kept: int = 0

    @property
    def settled(self) -> int:
        """Entries about which something was decided."""
        return self.applied + self.duplicates + self.ignored + self.quarantined_again

    @property
    def is_complete(self) -> bool:
        """Whether everything that was selected is out of the quarantine."""
        return not (self.quarantined_again or self.kept)


def kept_delivery(delivery: Delivery) -> Delivery:
    """What the quarantine keeps of `delivery`: as it is to be replayed.

    A copy of ours looks like what it was made of: what the copying added is left out, and so is what a broker counted
    on the way through a retry queue, which says nothing about the event. A refusal is kept where it cannot be found
    again in what is kept; that a broker gave the message up is no property of it.
    """
    is_copy = ATTEMPT_KEY in delivery.headers
    return replace(
        delivery,
        headers={
            name: value
            for name, value in delivery.headers.items()
            if name not in COPY_HEADERS and not (is_copy and is_bookkeeping(name))
        },
        pristine=False,
        is_replay=True,
        waited=0.0,
        wait_left=0.0,
        refusal=delivery.refusal if isinstance(delivery.refusal, Undecodable) else None,
        receipt=None,
    )


def portions(entries: Iterable[QuarantineEntry], most: int, octets: int) -> Iterator[list[QuarantineEntry]]:
    """`entries` in order, in parts small enough to be held in memory whole.

    Args:
        entries: what is to be read whole.
        most: entries of one part.
        octets: of one part, unless a single entry has more.
    """
    part: list[QuarantineEntry] = []
    size = 0
    for entry in entries:
        if part and (len(part) >= most or size + entry.total_bytes > octets):
            yield part
            part, size = [], 0
        part.append(entry)
        size += entry.total_bytes
    if part:
        yield part


# ------------------------------------------------------------------ the history as text
_TIME = "%Y-%m-%d %H:%M:%S.%f"
_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}) (\w+): ?(.*)")


def history_lines(text: str | None) -> tuple[AttemptLine, ...]:
    """The lines of a history as it is stored; the first may be the rest of one that gave way."""
    return tuple(_line(line) for line in (text or "").split("\n") if line)


def history_text(lines: Iterable[AttemptLine]) -> str | None:
    """The lines as they are stored; None where there are none."""
    return "".join(f"{_beginning(line)}{line.words}\n" for line in lines) or None


def _line(text: str) -> AttemptLine:
    found = _LINE.fullmatch(text)
    if found is None:
        return AttemptLine(None, "", text)
    try:
        at = datetime.strptime(found[1], _TIME).replace(tzinfo=UTC)
    except ValueError:
        return AttemptLine(None, "", text)
    return AttemptLine(at, found[2], found[3])


def _beginning(line: AttemptLine) -> str:
    return "" if line.at is None else f"{line.at.astimezone(UTC):{_TIME}} {line.kind}: "


def cut_octets(text: str, octets: int) -> bytes:
    """The beginning of `text` in UTF-8 that fits into so many octets, cut between characters."""
    whole = text.encode("utf-8", "surrogatepass")
    if len(whole) <= octets:
        return whole
    end = octets
    while whole[end] & 0xC0 == 0x80:  # noqa: PLR2004 - an octet inside a character (RFC 3629, 3)
        end -= 1
    return whole[:end]
