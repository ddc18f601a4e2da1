"""The lab's platform: what a lease does in time it does at once, and an event comes as often as it was published."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from inbox import ConfigurationError, TransportError
from inbox.adapters.websocket import Credential, OrbitTransport
from inbox.testing.lab.events import Message, message_of
from inbox.testing.lab.leases import OrbitQueue
from inbox.testing.lab.stand_in import StandIn
from tests.facts import wait_until
from tests.orbit_client import RawClient

SUBSCRIPTION = "5" * 32
IDS = ["1" * 32, "2" * 32]


def message(queue: OrbitQueue, id_: str = IDS[0], **data: object) -> Message:
    members = {"task_id": "7" * 32, "status": "succeeded", **data}
    return queue.fit(message_of({"id": id_, "type": "task.succeeded", "data": members}))


@pytest.fixture
async def queue() -> AsyncIterator[OrbitQueue]:
    made = OrbitQueue(OrbitTransport("wss://real.example/v1/events", SUBSCRIPTION, Credential("real")))
    await made.open(disposable=False)
    yield made
    await made.close()
    await made.close()


def where(queue: OrbitQueue) -> StandIn:
    assert queue.stand_in is not None
    return queue.stand_in


async def connect(queue: OrbitQueue, capacity: int = 4) -> RawClient:
    client = await RawClient.connect(where(queue).url, where(queue).credential)
    await client.register(SUBSCRIPTION, capacity)
    return client


def told(delivery: dict[str, Any]) -> tuple[str, str]:
    return delivery["event"]["id"], delivery["delivery"]["generation"]


async def test_an_event_comes_as_often_as_it_was_published_and_then_nothing_is_left(queue: OrbitQueue) -> None:
    one, other = message(queue), message(queue, IDS[1])
    assert await queue.ready() == 0
    await queue.publish([one, other] * 2)
    assert await queue.ready() == 4
    async with await connect(queue, capacity=1) as client:
        came = []
        for _ in range(4):
            delivery = await client.receive("delivery")
            came.append(told(delivery))
            await client.ack(delivery)  # the receipt comes before the next hand-out
        assert sorted(came) == [(id_, generation) for id_ in IDS for generation in ("1", "2")]
        await wait_until(lambda: is_empty(queue))
        assert await client.is_silent()
        await queue.publish([one])
        again = await client.receive("delivery")
        assert told(again) == (IDS[0], "3")
        assert again["event"]["subscription_id"] == SUBSCRIPTION
        assert await queue.ready() == 1


async def is_empty(queue: OrbitQueue) -> bool:
    return await queue.ready() == 0


async def test_what_a_connection_had_that_is_gone_comes_again_without_end(queue: OrbitQueue) -> None:
    await queue.publish([message(queue)])
    for turn in range(1, 9):
        async with await connect(queue) as client:
            assert told(await client.receive("delivery")) == (IDS[0], str(turn))
    assert await queue.ready() == 1
    assert await queue.given_up() == frozenset()


async def test_what_comes_to_nothing_comes_again_until_its_budget_is_used_up(queue: OrbitQueue) -> None:
    await queue.publish([message(queue)])
    async with await connect(queue) as client:
        for turn in range(1, 6):
            assert told(await client.receive("delivery")) == (IDS[0], str(turn))
            assert await queue.given_up() == frozenset()
            note(queue, IDS[0])
        await wait_until(lambda: is_empty(queue))
        assert await queue.given_up() == {IDS[0]}
        await queue.publish([message(queue)])
        assert told(await client.receive("delivery")) == (IDS[0], "6")
        note(queue, IDS[0])
        await wait_until(lambda: is_empty(queue))
        assert await queue.given_up() == {IDS[0]}


def note(queue: OrbitQueue, event_id: str) -> None:
    """As a worker does that has let go of it."""
    with open(where(queue).released, "a") as file:  # noqa: PTH123 - as the worker does
        file.write(f"{event_id}\n")


async def test_another_platform_begins_anew(queue: OrbitQueue) -> None:
    await queue.publish([message(queue)] * 2)
    first = where(queue)
    async with await connect(queue) as client:
        await client.receive("delivery")
        note(queue, IDS[0])
        await queue.purge()
        assert await queue.ready() == 0
        assert await client.end() is not None
    assert where(queue).credential != first.credential
    await queue.publish([message(queue)])
    async with await connect(queue) as client:
        delivery = await client.receive("delivery")
        assert (told(delivery), delivery["event"]["sequence"]) == ((IDS[0], "1"), "1")


async def test_one_id_is_one_event(queue: OrbitQueue) -> None:
    with pytest.raises(ConfigurationError, match=f"event {IDS[0]}: the platform draws an id once"):
        await queue.publish([message(queue), message(queue, pages=4)])


async def test_it_has_to_be_open() -> None:
    queue = OrbitQueue(OrbitTransport("wss://real.example/v1/events", SUBSCRIPTION, Credential("real")))
    assert await queue.given_up() == frozenset()
    for use in (lambda: where(queue), lambda: queue._provider):
        with pytest.raises(TransportError, match="the lab is not open"):
            use()
    await queue.close()
