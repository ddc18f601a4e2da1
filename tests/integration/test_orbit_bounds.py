"""Client and reference server at their bounds: the longest frame, a restart in between, a stop nobody waits for."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from inbox.adapters.websocket import Credential, EventConnection, EventConsumer, EventRegistration, OrbitSettings
from inbox.adapters.websocket.codec import LONGEST_FRAME, TaskEvent
from inbox.adapters.websocket.conversation import Limits
from inbox.core.proof import LARGEST_UINT64
from inbox.testing.orbit_server import Act, OrbitServer, OrbitServerSettings, Switch
from inbox.testing.orbit_server.refusal import Refusal
from tests.integration.orbit_rig import World
from tests.orbit_client import new_id

FAST = OrbitSettings(capacity=4, shutdown_timeout=10, reconnect_min_delay=0.01, reconnect_max_delay=0.05)
QUICK = Limits(handshake=8.0, request=8.0, heartbeat=0.05)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[OrbitServer]:
    async with OrbitServer(OrbitServerSettings(file=tmp_path / "orbit.db")) as server:
        yield server


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def orbit_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("orbit ")]


async def test_the_longest_snapshot_that_is_taken_arrives_whole_and_a_longer_one_is_refused(
    server: OrbitServer,
) -> None:
    """With the longest numbers there are, so that the frame has 512 KiB to the octet."""
    world = World(server, first_sequence=LARGEST_UINT64, first_generation=LARGEST_UINT64)

    def snapshot(filling: int) -> bytes:
        return json.dumps({"task_id": new_id(), "status": "succeeded", "x": "x" * filling}).encode()

    too_long, taken = LONGEST_FRAME, 0
    for filling in range(LONGEST_FRAME - 1000, LONGEST_FRAME):
        with suppress(Refusal):
            world.provider.publish("nobodys-queue", snapshot(filling))
            taken = filling
            continue
        too_long = filling
        break
    assert too_long == taken + 1
    with pytest.raises(Refusal, match="512 KiB"):
        world.provider.publish("reports", snapshot(too_long))
    sent = snapshot(taken)
    world.provider.publish("reports", sent)
    registration = EventRegistration(server.url, Credential(server.credential), world.subscription, 1)
    async with await EventConnection.dial(registration) as connection:
        frame = await connection.next()
        assert frame.event.snapshot == sent
        assert (frame.event.sequence, frame.delivery.generation) == (LARGEST_UINT64, LARGEST_UINT64)
        await connection.ack("0" * 32, frame.proof)
    assert world.states() == {"acknowledged": 1}


async def test_a_server_that_restarts_with_an_acknowledgement_under_way_is_shown_the_same_proof(
    tmp_path: Path,
) -> None:
    """It had carried it out and said nothing; and then has forgotten nothing."""
    handled: list[str] = []

    async def handle(event: TaskEvent) -> None:
        handled.append(event.id)

    file = tmp_path / "orbit.db"
    async with OrbitServer(OrbitServerSettings(file=file)) as first:
        world, credential = World(first), first.credential
        port = int(first.url.split(":")[2].partition("/")[0])
        number = first.switches.set(Switch(Act.HOLD, "ack_receipt", times=0))
        consumer = EventConsumer(first.url, world.subscription, Credential(credential), handle, FAST, limits=QUICK)
        running = asyncio.create_task(consumer.run())
        published = world.publish(3)
        await first.switches.wait_hit(number)
        assert world.states()["acknowledged"] == 1
        first.cut_connections()
    assert consumer.stats.acknowledged == 0
    async with OrbitServer(OrbitServerSettings(file=file, port=port)) as second:
        await until(lambda: second.provider.counts(world.subscription)["acknowledged"] == 3)  # type: ignore[index] # a StrEnum's text
        consumer.stop()
        await running
        rows = second.provider.events(world.subscription)
    assert sorted(handled) == sorted(published), "each once"
    assert {row.standing.generation for row in rows} == {1}
    assert consumer.stats.acknowledged == 3


async def test_a_run_that_is_cancelled_twice_leaves_no_connection_and_no_task(server: OrbitServer) -> None:
    """The second time while it waits for a handler that does not heed the first."""
    world, let_go, begun = World(server), asyncio.Event(), asyncio.Event()

    async def stubborn(event: TaskEvent) -> None:
        begun.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    consumer = EventConsumer(server.url, world.subscription, Credential(server.credential), stubborn, FAST)
    running = asyncio.create_task(consumer.run())
    world.publish()
    await begun.wait()
    running.cancel()
    await until(consumer._subscriber._stopping.is_set)
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait({running}, timeout=5)
    assert running.done()
    assert running.cancelled()
    await until(lambda: server.connections == 0)
    assert orbit_tasks() == ["orbit handler"]
    let_go.set()
    await until(lambda: orbit_tasks() == [])
    assert world.states() == {"leased": 1}, "it comes again"
