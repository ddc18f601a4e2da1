"""The store on MySQL and MariaDB, over both drivers, keeps every sentence of its ports."""

import pytest

from inbox.testing.conformance.store import StoreConformance
from tests.integration.store_rig import MySQLRig
from tests.pairs import Driver, Pair


class TestMySQLStore(StoreConformance):
    @pytest.fixture
    async def rig(self, pair: Pair, driver: Driver) -> MySQLRig:
        rig = MySQLRig(pair, driver)
        await rig.create()
        return rig
