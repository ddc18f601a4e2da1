"""The store on SQLite keeps every sentence of its ports."""

from pathlib import Path

import pytest

from inbox.testing.conformance.store import StoreConformance
from inbox.testing.conformance.store_retention import RetentionConformance
from tests.conformance.embedded_rigs import SQLiteRig


class TestSQLiteStore(StoreConformance):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> SQLiteRig:
        rig = SQLiteRig(tmp_path)
        await rig.create()
        return rig


class TestSQLiteRetention(RetentionConformance):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> SQLiteRig:
        rig = SQLiteRig(tmp_path)
        await rig.create()
        return rig
