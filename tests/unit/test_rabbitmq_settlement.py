"""Which acknowledgements may travel together: never one for a delivery that is not settled."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from inbox.adapters.rabbitmq.settlement import Settlement, Settler, Tags
from tests.facts import wait_until


class Broker:
    """What a broker makes of the frames of one channel; an unknown tag closes the channel, as in the specification."""

    def __init__(self) -> None:
        self.unacknowledged: set[int] = set()
        self.acknowledged: list[int] = []
        self.returned: list[int] = []
        self.frames = 0

    def take(self, frame: Settlement) -> None:
        self.frames += 1
        assert frame.tag in self.unacknowledged, "PRECONDITION_FAILED - unknown delivery tag"
        meant = {tag for tag in self.unacknowledged if tag <= frame.tag} if frame.multiple else {frame.tag}
        self.unacknowledged -= meant
        (self.acknowledged if frame.kind == "ack" else self.returned).extend(meant)


def delivered(count: int, *, coalesce: bool = True) -> tuple[Tags, Broker]:
    tags, broker = Tags(coalesce=coalesce), Broker()
    for tag in range(1, count + 1):
        tags.delivered(tag)
        broker.unacknowledged.add(tag)
    return tags, broker


def settle(tags: Tags, *numbers: int) -> list[Settlement]:
    for tag in numbers:
        assert tags.acknowledge(tag)
    return tags.take()


def test_a_run_from_the_first_tag_travels_in_one_frame() -> None:
    tags, _ = delivered(5)
    assert settle(tags, 2, 1, 3) == [Settlement("ack", 3, multiple=True)]
    assert settle(tags, 4, 5) == [Settlement("ack", 5, multiple=True)]


def test_one_alone_is_acknowledged_by_itself() -> None:
    tags, _ = delivered(2)
    assert settle(tags, 1) == [Settlement("ack", 1)]


def test_what_lies_beyond_an_open_delivery_is_acknowledged_singly() -> None:
    tags, _ = delivered(6)
    assert settle(tags, 1, 2, 4, 6) == [
        Settlement("ack", 2, multiple=True),
        Settlement("ack", 4),
        Settlement("ack", 6),
    ]
    assert settle(tags, 3, 5) == [Settlement("ack", 5, multiple=True)]


def test_a_released_tag_does_not_stop_a_run() -> None:
    tags, broker = delivered(3)
    assert tags.release(2)
    frames = settle(tags, 1, 3)
    assert frames == [Settlement("release", 2), Settlement("ack", 3, multiple=True)]
    for frame in frames:
        broker.take(frame)
    assert broker.returned == [2]


def test_the_last_tag_of_a_run_is_one_that_the_broker_still_knows() -> None:
    tags, _ = delivered(3)
    assert tags.release(3)
    tags.take()
    assert settle(tags, 1, 2) == [Settlement("ack", 2, multiple=True)]


def test_nothing_travels_together_when_that_is_off() -> None:
    tags, _ = delivered(3, coalesce=False)
    assert settle(tags, 1, 2, 3) == [Settlement("ack", 1), Settlement("ack", 2), Settlement("ack", 3)]


@pytest.mark.parametrize("tag", [0, -1, 4, 10**9])
def test_a_tag_that_was_never_delivered_is_refused(tag: int) -> None:
    tags, _ = delivered(3)
    assert not tags.acknowledge(tag)
    assert not tags.release(tag)


def test_settling_twice_is_refused_before_and_after_it_was_written() -> None:
    tags, _ = delivered(2)
    assert tags.acknowledge(2)
    assert not tags.acknowledge(2)
    assert not tags.release(2)
    tags.take()
    assert not tags.acknowledge(2)
    assert not tags.release(2)


def test_the_number_of_open_deliveries_is_known() -> None:
    tags, _ = delivered(4)
    tags.acknowledge(2)
    tags.release(3)
    assert (tags.open, tags.waiting) == (2, 2)
    tags.take()
    assert (tags.open, tags.waiting) == (2, 0)


@pytest.mark.parametrize("seed", range(300))
def test_in_any_order_each_is_settled_once_and_as_it_was_meant(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a test that can be repeated
    tags, broker = Tags(coalesce=True), Broker()
    in_hand: list[int] = []
    meant: dict[int, str] = {}
    newest = 0
    for _ in range(400):
        choice = chance.random()
        if choice < 0.4 and newest < 150:
            newest += 1
            tags.delivered(newest)
            broker.unacknowledged.add(newest)
            in_hand.append(newest)
        elif choice < 0.8 and in_hand:
            tag = in_hand.pop(chance.randrange(len(in_hand)))
            meant[tag] = chance.choice(["ack", "ack", "ack", "release"])
            assert (tags.acknowledge if meant[tag] == "ack" else tags.release)(tag)
        else:
            for frame in tags.take():
                broker.take(frame)
            assert broker.unacknowledged == set(in_hand)
    for frame in tags.take():
        broker.take(frame)
    assert broker.unacknowledged == set(in_hand)
    assert sorted(broker.acknowledged) == sorted(tag for tag, how in meant.items() if how == "ack")
    assert sorted(broker.returned) == sorted(tag for tag, how in meant.items() if how == "release")


class Channel:
    """The client library's channel, as far as a settler needs it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.is_gone = False

    async def basic_ack(self, tag: int, *, multiple: bool = False, wait: bool = True) -> None:
        await self._take(Settlement("ack", tag, multiple=multiple))

    async def basic_nack(self, tag: int, *, requeue: bool = True, wait: bool = True) -> None:
        assert requeue
        await self._take(Settlement("release", tag))

    async def _take(self, frame: Settlement) -> None:
        if self.is_gone:
            raise ConnectionError
        await asyncio.sleep(0)
        self.broker.take(frame)


class Late:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, settlements: int) -> None:
        self.count += settlements


class Desk:
    """A settler with 40 deliveries in hand."""

    def __init__(self, *, linger: float) -> None:
        self.broker, self.late = Broker(), Late()
        self.channel = Channel(self.broker)
        self.settler = Settler(cast("Any", self.channel), prefetch=40, coalesce=True, linger=linger, late=self.late)
        for tag in range(1, 41):
            self.settler.delivered(tag)
            self.broker.unacknowledged.add(tag)


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk(linger=60)
    yield made
    made.settler.close()


async def test_a_quarter_of_the_prefetch_does_not_wait_for_more(desk: Desk) -> None:
    for tag in range(1, 11):
        assert await desk.settler.acknowledge(tag)
    await desk.settler.wait_flushed()
    assert desk.broker.acknowledged == list(range(1, 11))
    assert desk.broker.frames == 1


async def test_fewer_wait_for_company(desk: Desk) -> None:
    assert await desk.settler.acknowledge(1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert desk.broker.frames == 0


async def test_no_acknowledgement_waits_longer_than_the_linger() -> None:
    desk = Desk(linger=0.001)
    assert await desk.settler.acknowledge(7)
    async with asyncio.timeout(5):
        while desk.broker.acknowledged != [7]:
            await asyncio.sleep(0.001)
    desk.settler.close()


async def test_a_release_does_not_wait(desk: Desk) -> None:
    assert desk.settler.release(9)
    async with asyncio.timeout(5):
        while desk.broker.returned != [9]:
            await asyncio.sleep(0)


async def test_the_last_one_in_hand_does_not_wait(desk: Desk) -> None:
    for tag in range(1, 41):
        if tag == 40:
            await desk.settler.wait_flushed()
        assert await desk.settler.acknowledge(tag)
    assert not desk.broker.unacknowledged


async def test_two_writers_never_pass_each_other(desk: Desk) -> None:
    for tag in range(1, 30):
        assert await desk.settler.acknowledge(tag)
    writing = asyncio.create_task(desk.settler.wait_flushed())  # a quarter of the prefetch and more: its task writes
    await asyncio.gather(*(desk.settler.acknowledge(tag) for tag in range(30, 41)))
    await writing
    await wait_until(lambda: not desk.broker.unacknowledged)
    assert desk.late.count == 0


async def test_a_lane_that_is_cancelled_while_it_writes_lets_the_channel_close(desk: Desk) -> None:
    for tag in range(1, 40):
        assert await desk.settler.acknowledge(tag)
    await desk.settler.wait_flushed()
    last = asyncio.create_task(desk.settler.acknowledge(40))
    await asyncio.sleep(0)  # it has begun: the channel takes a turn of the loop for each frame
    last.cancel()
    with pytest.raises(asyncio.CancelledError):
        await last
    async with asyncio.timeout(5):
        await desk.settler.wait_flushed()


async def test_after_the_end_settling_is_false_and_counted(desk: Desk) -> None:
    desk.settler.close()
    assert not await desk.settler.acknowledge(1)
    assert not desk.settler.release(2)
    assert desk.late.count == 2


async def test_what_waited_when_the_channel_ended_is_counted(desk: Desk) -> None:
    await desk.settler.acknowledge(1)
    await desk.settler.acknowledge(2)
    desk.settler.close()
    desk.settler.close()
    assert desk.late.count == 2
    async with asyncio.timeout(5):
        await desk.settler.wait_flushed()


async def test_a_channel_that_fails_counts_and_never_hangs(desk: Desk) -> None:
    desk.channel.is_gone = True
    for tag in range(1, 13):
        await desk.settler.acknowledge(tag)
    async with asyncio.timeout(5):
        await desk.settler.wait_flushed()
    assert desk.late.count > 0
