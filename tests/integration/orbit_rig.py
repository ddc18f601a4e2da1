"""A reference server with one subscription, and the raw client that speaks to it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from inbox.testing.orbit_server import OrbitServer
from inbox.testing.orbit_server.rules import State
from inbox.testing.orbit_server.store import CredentialRow, DeliveryRow
from tests.orbit_client import RawClient, new_id


def snapshot(**more: object) -> bytes:
    return json.dumps({"task_id": new_id(), "status": "succeeded", **more}).encode()


class World:
    """A server, the credential `operator`, and its subscription of the queue `reports`."""

    def __init__(self, server: OrbitServer, **more: Any) -> None:
        self.server = server
        self.provider = server.provider
        self.operator: CredentialRow = self.provider.authenticate(server.credential)
        self.subscription = self.provider.subscribe(self.operator, "reports", **more).id

    def publish(self, count: int = 1) -> list[str]:
        return [self.provider.publish("reports", snapshot(n=n))[0].event_id for n in range(count)]

    def rows(self) -> list[DeliveryRow]:
        return self.provider.events(self.subscription)

    def states(self) -> dict[str, int]:
        found = [row.standing.state for row in self.rows()]
        return {state.value: found.count(state) for state in State if state in found}

    @asynccontextmanager
    async def client(self, capacity: int = 4) -> AsyncIterator[RawClient]:
        async with await self.unregistered() as client:
            await client.register(self.subscription, capacity)
            yield client

    async def unregistered(self, credential: str | None = None) -> RawClient:
        return await RawClient.connect(self.server.url, credential or self.server.credential)
