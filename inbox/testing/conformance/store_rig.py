"""What the suite of the stores needs: the rig that an adapter's test gives it, and the values it works with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.handler import Face, Handler
from inbox.core.records import Claim, InboxRecord
from inbox.ports import Store

#: Seconds that anything here may take; nothing is slept for.
PATIENCE = 20.0


@dataclass(frozen=True, slots=True, repr=False)
class Quarantined:
    """A row of the quarantine, as a rig reads it."""

    reason: str
    detail: str
    event_id: bytes | None
    attempts: int
    times_seen: int
    headers: Mapping[str, object]
    body: bytes


class StoreRig(Protocol):
    """A database of the test's own, with the tables in it and a table for effects."""

    def store(self, consumer: str = "billing", **settings: Any) -> Store:
        """A store that is not open yet.

        Args:
            consumer: its name.
            settings: `concurrency`, `deadline`, `lock_wait` (1 where not given), `quarantine_rows`,
                `quarantine_bytes`.
        """
        ...

    async def effect(self, session: Any, label: str) -> None:
        """Write one effect through a handler's session."""
        ...

    async def effects(self) -> list[str]:
        """Labels of the effects that are committed, in order."""
        ...

    async def keys(self, consumer: str = "billing") -> set[bytes]:
        """Keys of the inbox rows that are committed."""
        ...

    async def quarantined(self, consumer: str = "billing") -> list[Quarantined]:
        """The rows of the quarantine."""
        ...

    async def drop_a_table(self) -> None:
        """Take away the inbox table."""
        ...


def record(key: bytes = b"e-1", fingerprint: bytes | None = b"f" * 32, consumer: str = "billing") -> InboxRecord:
    """What the events of this suite are stored as."""
    return InboxRecord(consumer, key, fingerprint, None if fingerprint is None else 11)


def event(key: bytes = b"e-1") -> Event:
    """A verified event under that key."""
    return Event(CloudEvent(id=key.decode("latin-1"), source="/s", type="t"), record(key), Origin("", "q"))


def delivery(body: bytes = b"{}", /, **headers: object) -> Delivery:
    """One arrival."""
    return Delivery(body, headers, "application/json", origin=Origin("events", "billing.t"), queue="billing")


def handler(function: Callable[[Event, Any], Awaitable[None]]) -> Handler:
    """A handler that gets a session."""
    return Handler("conformance", "t", Face.SESSION, function)


@contextlib.asynccontextmanager
async def opened(*stores: Store) -> AsyncIterator[None]:
    """The stores, open for the block, all within the suite's patience."""
    async with asyncio.timeout(PATIENCE):
        try:
            for store in stores:
                await store.open()
            yield
        finally:
            for store in stores:
                await store.close()


class Suite:
    """What every part of the suite does."""

    async def apply(self, rig: StoreRig, store: Store, key: bytes = b"e-1", label: str = "one") -> Claim:
        """One whole unit of work with one effect; ended whatever the claim says."""

        async def effect(_: Event, session: Any) -> None:
            await rig.effect(session, label)

        unit = await store.begin()
        claim = await unit.claim(record(key))
        if claim is Claim.NEW:
            await unit.apply(handler(effect), event(key), None)
            await unit.commit()
        return claim
