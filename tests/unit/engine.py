"""The engine over a store and a transport in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.delivery import Delivery, Origin
from inbox.core.event import Event
from inbox.core.lifecycle import Command, Outcome
from inbox.core.policy import RetryPolicy
from inbox.ports import Passage, Verifier
from inbox.testing.memory import MemoryStart, MemoryStore, MemoryTransport

FAST = ConsumerSettings(
    concurrency=2,
    deadline=5,
    cancel_patience=0.2,
    shutdown_patience=5,
    retry=RetryPolicy(max_attempts=3, delays=(0.001,), first_delay=0.001, max_delay=0.002, immediate=2, max_releases=3),
)

#: Starts that processes left open when they died: one that ran alone, and one that ran beside others.
DIED_ALONE = MemoryStart(MemoryStore(), alone=True)
DIED_BESIDE_OTHERS = MemoryStart(MemoryStore())


def delivery(identifier: str = "1", body: bytes = b"{}", *, kind: str = "t", pristine: bool = True) -> Delivery:
    return Delivery(
        body=body,
        headers={"ce-id": identifier, "ce-source": "/s", "ce-type": kind, "ce-specversion": "1.0"},
        content_type="application/json",
        origin=Origin("events", kind),
        queue="q",
        pristine=pristine,
    )


@dataclass
class Recorder:
    """A probe that keeps what it saw."""

    seen: list[tuple[Command, Outcome]] = field(default_factory=list)
    before_seen: list[str] = field(default_factory=list)

    def before(self, command: Command, passage: Passage) -> None:
        self.before_seen.append(command.value)

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        self.seen.append((command, outcome))

    @property
    def commands(self) -> list[str]:
        return [command.value for command, _ in self.seen]


class Engine:
    def __init__(self, settings: ConsumerSettings = FAST, verifier: Verifier | None = None) -> None:
        self.store = MemoryStore()
        self.transport = MemoryTransport()
        self.probe = Recorder()
        self.inbox = Inbox(
            "c", store=self.store, transport=self.transport, settings=settings, verifier=verifier, probes=[self.probe]
        )

    def handle(self, function: Callable[..., Any], kind: str = "t", **options: Any) -> None:
        function.__annotations__["session"] = AsyncSession
        register: Callable[[Callable[..., Any]], object] = self.inbox.handler(kind, **options)
        register(function)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Engine"]:
        task = asyncio.create_task(self.inbox.run())
        try:
            yield self
        finally:
            self.inbox.stop()
            await task

    async def settle(self, *deliveries: Delivery, acknowledged: int | None = None) -> None:
        """Run until so many are acknowledged: all of them, unless told otherwise."""
        wanted = len(deliveries) if acknowledged is None else acknowledged
        async with self.running():
            self.transport.publish(*deliveries)
            await self.transport.wait_settled(lambda: len(self.transport.acknowledged) >= wanted)

    @property
    def reasons(self) -> list[str]:
        return [row.reason for row in self.store.quarantined]


async def apply(event: Event, session: Any) -> None:
    """The plainest handler: one effect."""
    session.write(event.id)
