"""How much waits in the queues of a transport: values, no questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["main", "dead", "retry"]


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """One queue, now.

    Attributes:
        name: its name.
        role: `main` is the consumed queue, `dead` that of dead letters, and copies wait in `retry`.
        ready: messages that nobody has in hand; of a retry queue all that wait. None where there is no such queue.
        consumers: how many consume it. That the broker itself empties a retry queue does not count.
    """

    name: str
    role: Role
    ready: int | None
    consumers: int
