"""The queue in a file keeps every sentence of the port of transports."""

from pathlib import Path

import pytest

from inbox.testing.conformance.transport import TransportConformance
from tests.conformance.embedded_rigs import SQLiteQueueRig


class TestSQLiteQueue(TransportConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> SQLiteQueueRig:
        return SQLiteQueueRig(tmp_path)
