"""The store and the transport in memory keep every sentence of their ports: tests of the engine stand on that."""

from typing import Any

import pytest

from inbox.config import DatabaseSettings
from inbox.core.delivery import Delivery
from inbox.testing.conformance.store import Quarantined, StoreConformance
from inbox.testing.conformance.transport import TransportConformance
from inbox.testing.memory import MemoryBroker, MemoryDatabase, MemorySession, MemoryStore, MemoryTransport


class MemoryStoreRig:
    def __init__(self) -> None:
        self.database = MemoryDatabase()

    def store(self, consumer: str = "billing", **settings: Any) -> MemoryStore:
        own = {"concurrency": 4, "deadline": 10.0}
        own |= {name: settings.pop(name) for name in own if name in settings}
        made = MemoryStore(self.database, DatabaseSettings(**{"lock_wait": 1, **settings}))
        return made.for_consumer(consumer, concurrency=int(own["concurrency"]), deadline=own["deadline"])

    async def effect(self, session: MemorySession, label: str) -> None:
        session.write(label)

    async def effects(self) -> list[str]:
        return [str(effect) for effect in self.database.effects]

    async def keys(self, consumer: str = "billing") -> set[bytes]:
        return {*self.database.tables[consumer].rows}

    async def quarantined(self, consumer: str = "billing") -> list[Quarantined]:
        rows = self.database.tables[consumer].quarantine.values()
        return [
            Quarantined(
                row.reason,
                row.detail,
                row.event_id,
                row.attempts,
                row.times_seen,
                row.delivery.headers,
                row.delivery.body,
            )
            for row in rows
        ]

    async def drop_a_table(self) -> None:
        self.database.has_tables = False


class MemoryTransportRig:
    def __init__(self) -> None:
        self.broker = MemoryBroker(keeps_copies=True)

    def make(self) -> MemoryTransport:
        return MemoryTransport(self.broker)

    def make_unreachable(self) -> MemoryTransport:
        return MemoryTransport(MemoryBroker(is_there=False))

    async def publish(self, *bodies: bytes) -> None:
        self.broker.publish(*(Delivery(body, {}) for body in bodies))

    async def count_left(self) -> int:
        return len(self.broker.ready)

    async def cut(self) -> None:
        self.broker.cut()


class TestMemoryStore(StoreConformance):
    @pytest.fixture
    def rig(self) -> MemoryStoreRig:
        return MemoryStoreRig()


class TestMemoryTransport(TransportConformance):
    @pytest.fixture
    def rig(self) -> MemoryTransportRig:
        return MemoryTransportRig()
