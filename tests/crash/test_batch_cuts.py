"""Both links are cut at every packet of a batch in turn, as in `test_packet_cuts`.

The intake is closed until all of the batch is in hand, so that it is one, of the same packets each time.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import pytest

from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.app import Inbox
from inbox.core.batching import Batch
from inbox.runtime.batches import BatchIntake
from inbox.testing.faults import Direction, FaultProxy
from tests.crash.consumer import SETTINGS, Links, at_work, linked
from tests.crash.cuts import Repeated
from tests.crash.world import World

pytestmark = pytest.mark.timeout(900)

SIZE = 3
WHY = "the test waits for the whole batch"
#: What a batch can be; each takes other packets. What fails is undone with all, and each goes on by itself.
FLOWS: dict[str, tuple[str, ...]] = {
    "new": ("apply", "apply", "apply"),
    "some-known": ("known", "apply", "apply"),
    "known": ("known", "known", "known"),
    "one-fails": ("apply", "flaky", "apply"),
}


@pytest.fixture
async def links(world: World) -> AsyncIterator[Links]:
    async with linked(world) as made:
        made.settings = replace(SETTINGS, prefetch=20, batch=Batch(max=SIZE, wait_ms=0))
        yield made


@dataclass
class Batches(Repeated[list[str | None]]):
    """One batch after the other, through one consumer."""

    links: Links
    publisher: Publisher
    intake: BatchIntake
    kinds: tuple[str, ...]

    async def warm(self) -> list[str | None]:
        """Whatever was lost before is made again and has ended; the ids of events that are known, for the next one."""
        if "flaky" in self.kinds:
            await self.links.wait_ended(await self.links.publish_behind_copies(self.publisher))
        found = [await self._known() if kind == "known" else None for kind in ("known", *self.kinds)]
        await self.links.wait_quiet()
        return found[1:]

    async def _known(self) -> str:
        identifier = await self.links.publish(self.publisher, "apply")
        await self.links.wait_ended(identifier)
        return identifier

    async def run(self, known: list[str | None]) -> None:
        """One batch, to its end."""
        begun = self.links.hands.begun
        self.intake._close(WHY)
        kinds = ["apply" if kind == "known" else kind for kind in self.kinds]
        given = [
            await self.links.publish(self.publisher, kind, identifier)
            for kind, identifier in zip(kinds, known, strict=True)
        ]
        async with asyncio.timeout(30):
            while self.intake._queue.qsize() < SIZE:
                await asyncio.sleep(0.003)
        self.intake._reopen(WHY)
        async with asyncio.timeout(30):
            while self.links.hands.begun < begun + SIZE:
                await asyncio.sleep(0.003)
        for identifier in given:
            await self.links.wait_ended(identifier)
        await self.links.wait_quiet()


@pytest.mark.drawn(2)
@pytest.mark.parametrize("link", ["database", "broker"])
@pytest.mark.parametrize("flow", FLOWS)
async def test_every_packet_of_a_batch_is_cut(
    links: Links, flow: str, link: str, request: pytest.FixtureRequest
) -> None:
    proxy: FaultProxy = getattr(links, link)
    async with Publisher(links.world.pair.amqp_url) as publisher, at_work(links) as inbox:
        batches = Batches(links, publisher, intake_of(inbox), FLOWS[flow])
        counts = await batches.count(proxy)
        if (flow, link) == ("new", "database"):
            assert counts[Direction.TO_SERVER] == 1 + 2 * SIZE + 1, (
                "a claim, two statements of each, a COMMIT: one batch"
            )
        done = await batches.cut_everywhere(proxy, counts, request)
    print(f"{flow} over the {link}: {done}")
    await links.judge()


def intake_of(inbox: Inbox) -> BatchIntake:
    assert inbox._consumer is not None
    found = inbox._consumer._intake
    assert isinstance(found, BatchIntake)
    return found
