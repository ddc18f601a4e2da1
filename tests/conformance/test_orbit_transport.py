"""The transport conformance suite over leases, against the reference server."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from inbox.adapters.websocket import Credential, OrbitSettings, OrbitTransport
from inbox.testing.conformance.transport import LeasedRig, TransportConformance
from inbox.testing.orbit_server import OrbitServer, OrbitServerSettings, Terms
from inbox.testing.orbit_server.rules import State

LEASE = 30.0
SETTINGS = OrbitServerSettings(terms=Terms(LEASE, 0.001, 0.001), budget=1000)


class OrbitRig:
    def __init__(self, server: OrbitServer) -> None:
        self._server = server
        operator = server.provider.authenticate(server.credential)
        self._subscription = server.provider.subscribe(operator, "reports").id

    def make(self) -> OrbitTransport:
        return self._transport(self._server.url)

    def make_unreachable(self) -> OrbitTransport:
        return self._transport("ws://127.0.0.1:1/v1/events")

    def _transport(self, url: str) -> OrbitTransport:
        settings = OrbitSettings(capacity=32, reconnect_min_delay=0.01, reconnect_max_delay=0.05)
        return OrbitTransport(url, self._subscription, Credential(self._server.credential), settings)

    def body(self, label: bytes) -> bytes:
        return json.dumps({"task_id": "7" * 32, "status": "succeeded", "label": label.hex()}, indent=1).encode()

    async def publish(self, *bodies: bytes) -> None:
        for label in bodies:
            self._server.provider.publish("reports", self.body(label))

    async def count_left(self) -> int:
        counts = self._server.provider.counts(self._subscription)
        return sum(count for state, count in counts.items() if state is not State.ACKNOWLEDGED)

    async def end_leases(self, held: int) -> None:
        while await self.count_left() != held:
            await asyncio.sleep(0.005)
        self._server.provider.turn_clock(LEASE + 1)

    async def cut(self) -> None:
        self._server.cut_connections()


class TestOrbitTransport(TransportConformance):
    @pytest.fixture
    async def rig(self) -> AsyncIterator[OrbitRig]:
        async with OrbitServer(SETTINGS) as server:
            yield OrbitRig(server)


def test_its_rig_can_end_leases() -> None:
    """Or the suite would wait for what comes by itself over other transports."""
    assert issubclass(OrbitRig, LeasedRig)
