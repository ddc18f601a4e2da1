"""One delivery on its way through the steps, and what a step may rely on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from inbox.core.delivery import digest
from inbox.core.records import Attempts
from inbox.errors import Contended

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from inbox.core.delivery import Delivery
    from inbox.core.disposition import Disposition, Failure
    from inbox.core.event import CloudEvent, Event
    from inbox.core.handler import Handler
    from inbox.ports import UnitOfWork
    from inbox.units.limits import TimeLimits

T = TypeVar("T")


@dataclass(slots=True)
class Passage:
    """One delivery on its way: what the steps know so far.

    Attributes:
        noted_alone: the start that was noted is one that runs alone.
        has_failed: an attempt was charged on this way, so that the next one is noted before it begins.
        is_inside: it has been let through the gate, where handlers run.
        is_alone: no other handler runs in this process.
    """

    delivery: Delivery
    cloudevent: CloudEvent | None = None
    event: Event | None = None
    handler: Handler | None = None
    prepared: object = None
    is_prepared: bool = False
    unit: UnitOfWork | None = None
    committing: UnitOfWork | None = None
    unit_ends_at: float = 0.0
    start_noted: bool = False
    noted_alone: bool = False
    has_failed: bool = False
    is_inside: bool = False
    is_alone: bool = False
    tries: int = 1
    failure: Failure | None = None
    attempts: Attempts = field(default_factory=Attempts)
    disposition: Disposition | None = None
    is_ack_lost: bool = False
    stuck: asyncio.Task[None] | None = None

    @property
    def attempt_key(self) -> bytes:
        """What trouble is counted under: the event's key, or something of the delivery's that is no event's."""
        if self.event is not None:
            return self.event.record.key
        route = self.delivery.origin
        parts = {"body": self.delivery.body, "exchange": route.exchange.encode(), "key": route.routing_key.encode()}
        return b"\0delivery-" + digest(parts)

    @property
    def is_noted(self) -> bool:
        """Whether the start of its handler is noted before it runs: it may be in trouble."""
        return self.has_failed or not self.delivery.pristine


async def in_time(limits: TimeLimits, passage: Passage, step: Awaitable[T], what: str) -> T:
    """Await a step of the unit, not longer than to the unit's end.

    Raises:
        Contended: with `what`: it took longer.
    """
    try:
        with limits.until(passage.unit_ends_at):
            return await step
    except TimeoutError as error:
        raise Contended(what) from error


def known(passage: Passage) -> tuple[Event, Handler]:
    """The event and its handler, for steps after verification."""
    assert passage.event is not None  # noqa: S101 - the table: verified comes before
    assert passage.handler is not None  # noqa: S101 - set with the event
    return passage.event, passage.handler


def open_unit(passage: Passage) -> UnitOfWork:
    """The unit of work, for steps inside it."""
    assert passage.unit is not None  # noqa: S101 - the table: begun comes before
    return passage.unit


def failure_in(passage: Passage) -> Failure:
    """Why it was not applied, for steps after a failure."""
    assert passage.failure is not None  # noqa: S101 - every way to here sets it
    return passage.failure
