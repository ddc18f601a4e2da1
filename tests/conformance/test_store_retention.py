"""Every store deletes what it is told to, and keeps what it must."""

from datetime import timedelta

import pytest

from inbox.core.quarantine import QuarantineState
from inbox.testing.conformance.store_retention import RetentionConformance
from inbox.testing.memory.figures import now
from tests.conformance.test_memory import MemoryStoreRig
from tests.integration.retention_rig import MySQLRetentionRig
from tests.pairs import Driver, Pair


class MemoryRetentionRig(MemoryStoreRig):
    async def age(self, seconds: float, consumer: str = "billing") -> None:
        tables, by = self.database.tables[consumer], timedelta(seconds=seconds)
        for row, time in tables.times.items():
            tables.times[row] = time - by
        for key, (report, started_at, seen_at) in tables.workers.items():
            tables.workers[key] = (report, started_at - by, seen_at - by)
        for entry in tables.quarantine.values():
            entry.state_at = None if entry.state_at is None else entry.state_at - by

    async def decide(self, state: QuarantineState, consumer: str = "billing") -> None:
        for entry in self.database.tables[consumer].quarantine.values():
            entry.state, entry.state_at = state, now()


class TestMemoryStore(RetentionConformance):
    @pytest.fixture
    def rig(self) -> MemoryRetentionRig:
        return MemoryRetentionRig()


class TestMySQLStore(RetentionConformance):
    @pytest.fixture
    async def rig(self, pair: Pair, driver: Driver) -> MySQLRetentionRig:
        rig = MySQLRetentionRig(pair, driver)
        await rig.create()
        return rig
