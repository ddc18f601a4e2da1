"""Queues in which copies wait: one for each delay, which the broker empties into the consumed queue.

The time is the queue's and not the copy's: a broker takes expired messages from the head of a queue only, so a copy
that waits for a minute would keep those behind it that wait for a second (rabbitmq.com/docs/ttl, "Per-message TTL").
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inbox.adapters.rabbitmq.arguments import NO_DELIVERY_LIMIT
from inbox.core.policy import LONGEST_WAIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from inbox.adapters.rabbitmq.arguments import QueueFacts

#: Octets that the longest name of a retry queue has beyond that of its queue.
LONGEST_SUFFIX = len(f".retry.{int(LONGEST_WAIT * 1000)}ms")

#: Without these the copies do not come back, or not in time, or are lost on the way.
_NEEDED = (
    "x-queue-type",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-overflow",
)


@dataclass(frozen=True, slots=True)
class RetryQueue:
    """One delay of one queue. Another delay is another queue, and the one before runs empty by itself.

    Attributes:
        target: the consumed queue.
        ttl: milliseconds.
    """

    target: str
    ttl: int

    @property
    def name(self) -> str:
        """After its queue and its time."""
        time = f"{self.ttl}ms" if self.ttl % 1000 else f"{self.ttl // 1000}s"
        return f"{self.target}.retry.{time}"

    @property
    def arguments(self) -> dict[str, Any]:
        """A quorum queue that hands over at least once: by default an expired copy is lost where its target is missing.

        That needs `reject-publish` (rabbitmq.com/docs/quorum-queues, "Activating at-least-once dead-lettering").
        """
        return {
            "x-queue-type": "quorum",
            "x-delivery-limit": NO_DELIVERY_LIMIT,
            "x-message-ttl": self.ttl,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": self.target,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }

    def problems(self, facts: QueueFacts) -> list[str]:
        """What an existing queue of this name lacks, a few words each."""
        wanted = self.arguments
        found = facts.arguments
        lacking = [
            f"{key} is {'not set' if found.get(key) is None else repr(found[key])[:80]}, needed is {wanted[key]!r}"
            for key in _NEEDED
            if found.get(key) != wanted[key]
        ]
        if found.get("x-expires") is not None:
            lacking.append("x-expires is set, by which the broker deletes it with all that waits in it")
        return lacking


def milliseconds(seconds: float) -> int:
    """Whole milliseconds that are not less than `seconds`, between 0 and `LONGEST_WAIT`; for no number, the longest."""
    if seconds <= 0:
        return 0
    if not seconds <= LONGEST_WAIT:
        return int(LONGEST_WAIT * 1000)
    # Rounded first, or 0.07 seconds would be 71 milliseconds.
    return max(math.ceil(round(seconds * 1000, 3)), 1)


def retry_queues(target: str, delays: Iterable[float]) -> tuple[RetryQueue, ...]:
    """The queues for `delays`, in seconds, the shortest first; what is no wait needs none."""
    return tuple(RetryQueue(target, ttl) for ttl in sorted({milliseconds(delay) for delay in delays} - {0}))


def choose(queues: Sequence[RetryQueue], wait: int) -> tuple[RetryQueue, int]:
    """The queue for a wait of so many milliseconds, and how many are left after it.

    Args:
        queues: at least one, the shortest first.
        wait: rounded up to the next queue's time, or cut to the longest one.
    """
    queue = next((queue for queue in queues if queue.ttl >= wait), queues[-1])
    return queue, max(wait - queue.ttl, 0)
