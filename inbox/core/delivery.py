"""One arrival of an event over a transport. Untrusted."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inbox.errors import Refused


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a delivery was first published: signatures cover it, and copies must not lose it."""

    exchange: str
    routing_key: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Delivery:
    """One arrival of one event. Nothing that applies effects accepts it.

    Attributes:
        body: the payload's bytes.
        headers: application headers as the transport's client library typed them.
        content_type: media type of the body.
        properties: the transport's other message properties, for the quarantine.
        origin: exchange and routing key of the first publish.
        queue: the queue or subscription it came from.
        pristine: nothing hints at an earlier hand-out of this event (no redelivery flag, no
            death, no delivery counter, no copy of ours). Only then is no attempt written.
        waited: seconds that a copy of ours has just waited for its next attempt; 0 for everything else.
        wait_left: seconds that it still has to wait: no queue holds a copy for so long at once.
        is_replay: taken out of quarantine by a person, so that it may be older than a verifier's limit.
        refusal: set where the transport itself already knows that the delivery cannot be
            decoded, or that the broker dead-lettered it.
        receipt: the transport's own handle for settling it; opaque to everything else.
    """

    body: bytes
    headers: Mapping[str, object]
    content_type: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict)
    origin: Origin = Origin("", "")
    queue: str = ""
    pristine: bool = True
    waited: float = 0.0
    wait_left: float = 0.0
    is_replay: bool = False
    refusal: Refused | None = None
    receipt: object = None

    def __repr__(self) -> str:
        return f"<Delivery from {self.queue!r}>"


#: Headers that brokers add or change between hand-outs of one and the same message.
BROKER_COUNTERS = frozenset({"x-death", "x-delivery-count", "x-acquired-count"})
BROKER_COUNTER_PREFIXES = ("x-first-death-", "x-last-death-")

#: Headers of copies that we publish: where the event came from, under which key its attempts are counted, how many
#: milliseconds the copy waits in its queue, and how many are left after that.
ORIGIN_EXCHANGE = "x-inbox-origin-exchange"
ORIGIN_ROUTING_KEY = "x-inbox-origin-routing-key"
ATTEMPT_KEY = "x-inbox-attempt-key"
WAITED = "x-inbox-waited"
WAIT_LEFT = "x-inbox-wait-left"
COPY_HEADERS = frozenset({ORIGIN_EXCHANGE, ORIGIN_ROUTING_KEY, ATTEMPT_KEY, WAITED, WAIT_LEFT})


def is_broker_counter(name: str) -> bool:
    """Whether the header `name` is the broker's own book-keeping and no part of the message."""
    return name in BROKER_COUNTERS or name.startswith(BROKER_COUNTER_PREFIXES)


def is_bookkeeping(name: str) -> bool:
    """Whether the header `name` was added on the way, by the broker or to a copy, and is no part of the event."""
    return name in COPY_HEADERS or is_broker_counter(name)


def digest(parts: Mapping[str, bytes]) -> bytes:
    """SHA-256 over length-prefixed names and values, in the order of the names.

    The length prefixes keep two different sets of parts from ever giving the same input.
    """
    state = hashlib.sha256()
    for name in sorted(parts):
        for part in (name.encode(), parts[name]):
            state.update(len(part).to_bytes(8, "big"))
            state.update(part)
    return state.digest()
