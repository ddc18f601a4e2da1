"""The queue in a file where it differs: leases, processes that die or halt, files that cannot be used."""

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from inbox.adapters.embedded import SQLitePublisher, SQLiteQueue, SQLiteQueueSettings
from inbox.core.delivery import Origin
from inbox.core.depths import QueueDepth
from inbox.errors import TransportError
from inbox.testing.conformance.transport import Hand, consuming

LEASE = 0.5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


def queue_at(path: Path, **settings: Any) -> SQLiteQueue:
    return SQLiteQueue(path, SQLiteQueueSettings(**{"lease": LEASE, **settings}))


async def publish(path: Path, *bodies: bytes) -> None:
    async with SQLitePublisher(path) as publisher:
        await publisher.publish_many([(body, {}) for body in bodies])


def sql(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=10)) as raw:
        return raw.execute(statement).fetchall()


@asynccontextmanager
async def halted(transport: SQLiteQueue) -> AsyncIterator[None]:
    """As a process that was stopped by a signal: nothing of it runs, and nothing of it ends."""
    link = transport._link
    assert link is not None
    assert transport._pump is not None
    transport._pump.cancel()
    await asyncio.wait({transport._pump})
    yield
    transport._pump = asyncio.create_task(transport._keep_pumping())


async def test_what_was_published_is_delivered_with_every_type_and_octet(path: Path) -> None:
    headers = {
        "ce-id": "é\u0301",
        "raw": b"\xff\0",
        "array": bytearray(b"x"),
        "n": 1,
        "big": 2**70,
        "rate": 1.5,
        "price": Decimal("1.10"),
        "on": True,
        "no": None,
        "at": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "deep": {"list": [1, None, {"x": b"y"}]},
    }
    hand = Hand()
    async with SQLitePublisher(path) as publisher:
        await publisher.publish(
            b"\0\xff" * 3_000_000, exchange="é", routing_key="k" * 300, headers=headers, content_type="text/plain"
        )
    transport = queue_at(path)
    async with consuming(transport, hand):
        (found,) = await hand.wait(1)
        assert await transport.acknowledge(found)
    assert found.body == b"\0\xff" * 3_000_000
    assert found.headers == headers
    assert [type(found.headers[name]) for name in headers] == [type(value) for value in headers.values()]
    assert (found.origin, found.content_type, found.queue) == (Origin("é", "k" * 300), "text/plain", "events")
    assert found.pristine
    assert (await transport.depth()).total == 0


async def test_what_is_in_hand_stays_in_hand_for_longer_than_a_lease(path: Path) -> None:
    lease = 3.0  # far longer than a busy machine keeps a process waiting
    hand, others = Hand(), Hand()
    await publish(path, b"one")
    async with consuming(queue_at(path, lease=lease), hand), consuming(queue_at(path, lease=lease), others):
        (first,) = await hand.wait(1) if hand.deliveries else (await _either(hand, others),)
        (until,) = sql(path, "SELECT due_at FROM inbox_message")[0]
        async with asyncio.timeout(20):
            while sql(path, "SELECT due_at FROM inbox_message")[0][0] < until + lease * 1e6:
                await asyncio.sleep(0.02)
        assert sql(path, "SELECT handed_out FROM inbox_message") == [(1,)]
        assert len(hand.deliveries) + len(others.deliveries) == 1
    assert first.body == b"one"


async def _either(one: Hand, other: Hand) -> Any:
    async with asyncio.timeout(20):
        while not (one.deliveries or other.deliveries):
            await asyncio.sleep(0.01)
    return (one.deliveries or other.deliveries)[0]


async def test_what_a_halted_consumer_had_goes_to_another_and_is_not_its_any_more(path: Path) -> None:
    hand, again = Hand(), Hand()
    await publish(path, b"one")
    slow, other = queue_at(path), queue_at(path)
    async with consuming(slow, hand):
        (first,) = await hand.wait(1)
        async with halted(slow), consuming(other, again):
            (second,) = await again.wait(1)
            assert (second.body, second.pristine) == (b"one", False)
            waiting = asyncio.ensure_future(slow.acknowledge(first))
            await asyncio.wait([waiting], timeout=0.05)
            assert await other.acknowledge(second)
        assert not await waiting, "it was somebody else's by then"
        assert not await slow.release(first)
    assert (await other.depth()).total == 0


async def test_several_consumers_share_the_work_and_none_gets_what_another_has(path: Path) -> None:
    hands = [Hand() for _ in range(3)]
    transports = [queue_at(path, lease=10.0) for _ in hands]
    bodies = [b"%d" % number for number in range(60)]
    async with (
        consuming(transports[0], hands[0], prefetch=5),
        consuming(transports[1], hands[1], prefetch=5),
        consuming(transports[2], hands[2], prefetch=5),
    ):
        await publish(path, *bodies)
        taken = 0
        async with asyncio.timeout(20):
            while taken < len(bodies):
                for transport, hand in zip(transports, hands, strict=True):
                    for delivery in hand.deliveries[:]:
                        hand.deliveries.remove(delivery)
                        bodies.remove(delivery.body)
                        assert await transport.acknowledge(delivery)
                if not bodies:
                    break
                await asyncio.sleep(0.005)
    assert bodies == []
    assert (await transports[0].depth()).total == 0


async def test_what_another_process_publishes_is_found(path: Path) -> None:
    hand = Hand()
    transport = queue_at(path)
    script = (
        "import asyncio, sys\n"
        "from inbox.adapters.embedded import SQLitePublisher\n"
        "async def main():\n"
        "    async with SQLitePublisher(sys.argv[1]) as publisher:\n"
        "        await publisher.publish(b'from afar', routing_key='t')\n"
        "asyncio.run(main())\n"
    )
    async with consuming(transport, hand):
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, str(path))
        assert await child.wait() == 0
        (found,) = await hand.wait(1)
        assert found.body == b"from afar"


async def test_many_may_publish_at_once(path: Path) -> None:
    async with SQLitePublisher(path) as one, SQLitePublisher(path) as other:
        await asyncio.gather(*(each.publish(b"%d" % n) for n in range(100) for each in (one, other)))
    assert (await queue_at(path).depth()).ready == 200


async def test_what_is_published_in_one_go_is_there_as_a_whole(path: Path) -> None:
    async with SQLitePublisher(path) as publisher:
        sql(
            path,
            "CREATE TRIGGER no BEFORE INSERT ON inbox_message WHEN NEW.body = x'02' BEGIN SELECT RAISE(ABORT, ''); END",
        )
        with pytest.raises(TransportError):
            await publisher.publish_many([(b"\x01", {}), (b"\x02", {})])
    assert (await queue_at(path).depth()).total == 0


async def test_a_publisher_that_is_not_open_says_so(path: Path) -> None:
    publisher = SQLitePublisher(path)
    with pytest.raises(TransportError, match="not open"):
        await publisher.publish(b"x")
    async with publisher:
        await publisher.publish(b"x")
    with pytest.raises(TransportError, match="not open"):
        await publisher.publish(b"x")


async def test_a_file_that_somebody_locks_is_waited_for_and_nothing_is_lost(path: Path) -> None:
    hand = Hand()
    await publish(path, b"one", b"two")
    transport = queue_at(path, busy_wait=0.3, lease=5.0)
    async with consuming(transport, hand):
        first, second = await hand.wait(2)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await transport.acknowledge(first), "it is to be written"
            with pytest.raises(TransportError):
                await transport.delay(second, 1.0, b"key")
            assert not await transport.release(second), "the link was given up"
            other.execute("ROLLBACK")
        sql(path, "UPDATE inbox_message SET due_at = 0")  # the leases of the link that was given up end
        again = (await hand.wait(4))[2:]
        assert sorted(each.body for each in again) == [b"one", b"two"]
        for each in again:
            assert await transport.acknowledge(each)
    assert (await transport.depth()).total == 0


async def test_the_patience_with_a_file_ends_the_run(path: Path) -> None:
    hand = Hand()
    await publish(path, b"one")
    transport = queue_at(path, busy_wait=0.1, patience=0.3)
    await transport.open(prefetch=1)
    running = asyncio.create_task(transport.run(hand))
    try:
        (first,) = await hand.wait(1)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert not await transport.release(first)
            with pytest.raises(TransportError, match="too long"):
                async with asyncio.timeout(20):
                    await running
    finally:
        await transport.close()


async def test_depths_tell_ready_from_in_hand_and_waiting(path: Path) -> None:
    hand = Hand()
    await publish(path, b"one", b"two", b"three")
    transport = queue_at(path, lease=10.0)
    async with consuming(transport, hand, prefetch=2, delays=(60.0,)):
        first, _ = await hand.wait(2)
        await transport.delay(first, 60.0, b"key")
        counts = await transport.depth()
        assert (counts.ready, counts.in_hand, counts.waiting, counts.consumers) == (1, 2, 1, 1)
        assert await transport.depths() == [
            QueueDepth("events", "main", 1, 1),
            QueueDepth("events (waiting)", "retry", 1, 0),
        ]
    counts = await transport.depth()
    assert (counts.ready, counts.in_hand, counts.waiting) == (3, 0, 1)
    with pytest.raises(TransportError):
        await queue_at(path.with_name("nothing.db")).depth()
    assert not path.with_name("nothing.db").exists()
