"""When deliveries share a transaction, and which of them may. Pure: the runtime asks, this answers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

#: Most deliveries of one batch: its insert stays far below any server's `max_allowed_packet`.
MOST_IN_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Batch:
    """Group commit: several deliveries are claimed by one insert, handled in turn, and committed once.

    Attributes:
        max: most deliveries of one transaction. Past a hundred the commit's share of the time is small, and the locks
            of all of them are held until the last one is through.
        wait_ms: milliseconds that a batch may wait for company, and only while other deliveries are being handled: an
            event alone never waits.
    """

    max: int = 100
    wait_ms: float = 5.0


def firsts_of(members: Iterable[T], key: Callable[[T], K]) -> tuple[list[T], list[tuple[T, T]]]:
    """The first of each key, in their order, and behind it each further one beside its first."""
    firsts: dict[K, T] = {}
    further: list[tuple[T, T]] = []
    for member in members:
        first = firsts.setdefault(key(member), member)
        if first is not member:
            further.append((member, first))
    return list(firsts.values()), further


def grouped(members: Iterable[T], key: Callable[[T], K | None]) -> list[list[T]]:
    """What is handled by one call each: members of one key together, those of None by themselves, in order."""
    groups: list[list[T]] = []
    open_groups: dict[K, list[T]] = {}
    for member in members:
        name = key(member)
        if name is None:
            groups.append([member])
        elif name in open_groups:
            open_groups[name].append(member)
        else:
            open_groups[name] = [member]
            groups.append(open_groups[name])
    return groups
