"""A leased subscription under the engine: the same handlers and tables as over a broker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.websocket.codec import AckFrame, ErrorCode
from inbox.adapters.websocket.delivery import delivery_from
from inbox.adapters.websocket.errors import (
    ConnectionLost,
    ShutdownTimeout,
    StopKind,
    SubscriptionRefused,
    SubscriptionStopped,
)
from inbox.adapters.websocket.settings import Credential, OrbitSettings
from inbox.adapters.websocket.transport import OrbitTransport
from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core import cloudevents
from inbox.core.delivery import Delivery
from inbox.core.event import Event
from inbox.errors import ConfigurationError, Reject, StopTimeout, TransportError
from inbox.testing.memory import MemoryStore
from tests.unit.engine import FAST as ENGINE
from tests.unit.engine import apply
from tests.unit.orbit_frames import SNAPSHOT, SUBSCRIPTION, TASK, frame_of
from tests.unit.orbit_platform import QUICK, TOKEN, Platform, Session, delivers, event_id_of, never
from tests.unit.test_orbit_consumer import FAST, until


class Rig:
    """An `Inbox` over a platform."""

    def __init__(self, settings: OrbitSettings = FAST, engine: ConsumerSettings = ENGINE) -> None:
        self.platform = Platform()
        self.store = MemoryStore()
        self.settings = settings
        self.engine = engine
        self.runs: list[str] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Rig"]:
        async with self.platform.running():
            self.transport = OrbitTransport(
                self.platform.url, SUBSCRIPTION, Credential(TOKEN), self.settings, limits=QUICK
            )
            self.inbox = Inbox("c", store=self.store, transport=self.transport, settings=self.engine)
            yield self

    @asynccontextmanager
    async def running(self, function: Callable[..., Any], *kinds: str) -> AsyncIterator["Rig"]:
        async with self.serving():
            self.handle(function, *(kinds or ("task.succeeded",)))
            task = asyncio.create_task(self.inbox.run())
            await self.platform.wait_for_session()
            try:
                yield self
            finally:
                self.inbox.stop()
                async with asyncio.timeout(10):
                    await task

    def handle(self, function: Callable[..., Any], *kinds: str) -> None:
        function.__annotations__["session"] = AsyncSession
        register: Callable[[Callable[..., Any]], object] = self.inbox.handler(*kinds)
        register(function)

    async def acknowledged(self, count: int) -> None:
        await until(lambda: self.transport.stats.acknowledged >= count)

    @property
    def counts(self) -> dict[str, int]:
        return dict(self.inbox.telemetry.counts)


async def test_events_go_through_the_engine_and_are_acknowledged_after_the_commit() -> None:
    rig = Rig()
    rig.platform.begin = delivers(1, 2, 3)
    events: list[Event] = []

    async def handle(event: Event, session: Any) -> None:
        events.append(event)
        await apply(event, session)

    async with rig.running(handle):
        await rig.acknowledged(3)
    assert sorted(rig.platform.acked) == [(event_id_of(number), 1) for number in (1, 2, 3)]
    assert rig.counts["applied"] == 3
    event = events[0]
    assert (event.source, event.type, event.subject) == (f"orbit:subscription/{SUBSCRIPTION}", "task.succeeded", TASK)
    assert (event.data, event.extensions["sequence"]) == (SNAPSHOT, "17")
    assert event.json()["amount"] == 9007199254740993
    assert event.time is not None
    assert event.time.isoformat() == "2026-01-02T03:04:05.678000+00:00"


async def test_a_known_event_is_a_duplicate_also_when_its_snapshot_is_written_in_another_way() -> None:
    rig = Rig()
    rig.platform.begin = delivers(1)

    async with rig.running(apply):
        await rig.acknowledged(1)
        await rig.platform.sessions[0].deliver(1, 2, snapshot=SNAPSHOT.replace(b" : ", b":"))
        await rig.acknowledged(2)
    assert rig.platform.acked == [(event_id_of(1), 1), (event_id_of(1), 2)]
    assert (rig.counts["applied"], rig.counts["duplicate"]) == (1, 1)


async def test_a_known_id_with_another_number_is_quarantined_and_never_skipped() -> None:
    rig = Rig()
    rig.platform.begin = delivers(1)

    async with rig.running(apply):
        await rig.acknowledged(1)
        await rig.platform.sessions[0].deliver(1, 2, sequence=18)
        await rig.acknowledged(2)
    assert [row.reason for row in rig.store.quarantined] == ["identity-conflict"]


async def test_a_handler_that_fails_sends_nothing_and_the_next_generation_runs_it_again() -> None:
    rig = Rig()
    rig.platform.begin = delivers(1)
    errors = [ValueError("no"), Reject("no")]

    async def fail(event: Event, session: Any) -> None:
        rig.runs.append(event.id)
        if errors:
            raise errors.pop()
        await apply(event, session)

    async with rig.running(fail):
        for generation in (2, 3):
            await until(lambda: rig.transport.stats.handler_failures == generation - 1)  # noqa: B023 - asked at once
            pings = len(rig.platform.pings)
            await rig.platform.wait(lambda: len(rig.platform.pings) > pings + 1)  # noqa: B023 - as above
            assert (len(rig.runs), rig.platform.acks) == (generation - 1, [])
            await rig.platform.sessions[0].deliver(1, generation)
        await rig.acknowledged(1)
    assert rig.platform.acked == [(event_id_of(1), 3)]
    assert rig.store.quarantined == []


async def test_what_is_rejected_is_quarantined_and_acknowledged_where_that_is_asked_for() -> None:
    rig = Rig(replace(FAST, quarantine="rejected"))
    rig.platform.begin = delivers(1)

    async def reject(event: Event, session: Any) -> None:
        raise Reject("no")

    async with rig.running(reject):
        await rig.acknowledged(1)
    assert [row.reason for row in rig.store.quarantined] == ["rejected"]


async def test_a_review_reaches_its_own_handler_and_without_one_the_quarantine() -> None:
    snapshot = SNAPSHOT.replace(b"succeeded", b"needs_review")

    async def begin(session: Session) -> None:
        await session.deliver(1, type="task.needs_review", status="needs_review", snapshot=snapshot)

    for kinds, reasons in ((("task.succeeded", "task.failed"), ["no-handler"]), (("task.needs_review",), [])):
        rig = Rig()
        rig.platform.begin = begin

        async with rig.running(_noting(rig), *kinds):
            await rig.acknowledged(1)
        assert [row.reason for row in rig.store.quarantined] == reasons
        assert rig.runs == (["task.needs_review"] if not reasons else [])


def _noting(rig: Rig) -> Callable[..., Any]:
    async def note(event: Event, session: Any) -> None:
        rig.runs.append(event.type)

    return note


async def test_a_later_generation_starts_no_second_handler_and_its_proof_is_shown() -> None:
    rig, gate = Rig(), asyncio.Event()
    rig.platform.begin = delivers(1)

    async def slow(event: Event, session: Any) -> None:
        rig.runs.append(event.id)
        await gate.wait()
        await apply(event, session)

    async with rig.running(slow):
        await until(lambda: bool(rig.runs))
        for generation in (2, 3):
            await rig.platform.sessions[0].deliver(1, generation)
        pings = len(rig.platform.pings)
        await rig.platform.wait(lambda: len(rig.platform.pings) > pings + 1)
        gate.set()
        await rig.acknowledged(1)
    assert rig.platform.acked == [(event_id_of(1), 3)]
    assert (len(rig.runs), rig.counts["applied"]) == (1, 1)


async def test_after_a_lost_reply_the_same_proof_and_after_a_lost_proof_the_inbox_row() -> None:
    rig = Rig()

    async def begin(session: Session) -> None:
        if session.number == 1:
            await session.deliver(1)

    async def trouble(session: Session, ack: AckFrame) -> None:
        if session.number == 1:
            session.cut()
        elif ack.generation == 1:
            await session.error(ack.message_id, ErrorCode.PROOF_LOST)
            await session.deliver(1, 2)
        else:
            await session.receipt(ack)

    rig.platform.begin, rig.platform.on_ack = begin, trouble

    async def handle(event: Event, session: Any) -> None:
        rig.runs.append(event.id)
        await apply(event, session)

    async with rig.running(handle):
        await rig.acknowledged(1)
    assert rig.platform.acked == [(event_id_of(1), 1), (event_id_of(1), 1), (event_id_of(1), 2)]
    assert (len(rig.runs), rig.counts["applied"], rig.counts["duplicate"]) == (1, 1, 1)
    assert rig.transport.stats.proofs_lost == 1


async def test_what_cannot_pass_ends_the_run_and_cancels_the_handlers() -> None:
    rig, started = Rig(), asyncio.Event()
    rig.platform.begin = delivers(1)

    async def wait(event: Event, session: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            rig.runs.append("cancelled")

    async with rig.serving():
        rig.handle(wait, "task.succeeded")
        running = asyncio.create_task(rig.inbox.run())
        await started.wait()
        rig.platform.on_ping = lambda session, ping: session.error(ping.message_id, ErrorCode.FORBIDDEN)
        with pytest.raises(SubscriptionStopped) as caught:
            await running
    assert caught.value.kind is StopKind.PERMISSION
    assert (rig.runs, rig.platform.acks) == (["cancelled"], [])


async def test_a_stop_cancels_what_runs_and_confirms_what_was_committed_on_a_new_connection() -> None:
    rig = Rig()

    async def begin(session: Session) -> None:
        if session.number == 1:
            for event in (1, 2):
                await session.deliver(event)

    async def cut(session: Session, ack: AckFrame) -> None:
        if session.number == 1:
            rig.inbox.stop()
            session.cut()
        else:
            await session.receipt(ack)

    async def handle(event: Event, session: Any) -> None:
        if event.id == event_id_of(2):
            await asyncio.Event().wait()
        await apply(event, session)

    rig.platform.begin, rig.platform.on_ack = begin, cut
    async with rig.serving():
        rig.handle(handle, "task.succeeded")
        async with asyncio.timeout(5):
            await rig.inbox.run()
    assert rig.platform.acked == [(event_id_of(1), 1)] * 2
    assert (rig.transport.stats.acknowledged, rig.counts["applied"]) == (1, 1)


async def test_past_the_time_for_stopping_it_says_what_was_left() -> None:
    rig, let_go = Rig(replace(FAST, shutdown_timeout=0.2)), asyncio.Event()
    rig.platform.begin, rig.platform.on_ack = delivers(1, 2), never

    async def stubborn(event: Event, session: Any) -> None:
        await apply(event, session)
        while event.id == event_id_of(2) and not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async with rig.serving():
        rig.handle(stubborn, "task.succeeded")
        running = asyncio.create_task(rig.inbox.run())
        await rig.platform.wait_for_acks(1)
        rig.inbox.stop()
        with pytest.raises(ShutdownTimeout) as caught:
            await running
        let_go.set()
        await until(lambda: not rig.inbox.running_handlers)
    assert (caught.value.unconfirmed, caught.value.running) == (2, 1)
    assert isinstance(caught.value, StopTimeout)
    assert isinstance(caught.value.__context__, StopTimeout)


# ---------------------------------------------------------------- the port
class Hand:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    async def wait(self, count: int) -> list[Delivery]:
        await until(lambda: len(self.deliveries) >= count)
        return self.deliveries


async def test_deliveries_are_settled_once_and_by_the_transport_that_brought_them() -> None:
    platform, hand = Platform(), Hand()
    platform.begin = delivers(1, 2)
    async with platform.running():
        transport = OrbitTransport(platform.url, SUBSCRIPTION, Credential(TOKEN), FAST, limits=QUICK)
        await transport.open(prefetch=4)
        running = asyncio.create_task(transport.run(hand))
        first, second = await hand.wait(2)
        assert (first.pristine, first.refusal) == (True, None)
        assert TOKEN not in repr(first.receipt)
        assert await transport.acknowledge(first)
        assert not await transport.acknowledge(first)
        assert not await transport.release(first)
        assert await transport.release(second)
        assert not await transport.acknowledge(second)
        await platform.sessions[0].deliver(2, 2)
        again = (await hand.wait(3))[2]
        assert not again.pristine
        assert not await transport.acknowledge(second), "the earlier hand-over settles nothing"
        await transport.stop()
        await running
        assert await transport.acknowledge(again)
        with pytest.raises(TransportError):
            await transport.delay(again, 1.0, b"key")
        with pytest.raises(TypeError):
            await transport.acknowledge(Delivery(b"", {}))
        await transport.close()
        await transport.close()
        assert not await transport.acknowledge(again)
    assert sorted(platform.acked) == [(event_id_of(1), 1), (event_id_of(2), 2)]


async def test_what_is_left_in_hand_at_the_close_stays_with_the_platform() -> None:
    platform, hand = Platform(), Hand()
    platform.begin = delivers(1)
    async with platform.running():
        transport = OrbitTransport(platform.url, SUBSCRIPTION, Credential(TOKEN), FAST, limits=QUICK)
        await transport.open(prefetch=4)
        running = asyncio.create_task(transport.run(hand))
        (first,) = await hand.wait(1)
        await transport.stop()
        await transport.close()
        await running
        assert not await transport.acknowledge(first)
        assert platform.acks == []


async def test_a_lease_that_is_shorter_than_a_unit_is_told(caplog: pytest.LogCaptureFixture) -> None:
    for lease in (5, 30):
        platform = Platform()
        platform.greet = lambda session, lease=lease: session.welcome(lease_seconds=lease)  # type: ignore[misc]
        caplog.clear()
        async with platform.running():
            transport = OrbitTransport(platform.url, SUBSCRIPTION, Credential(TOKEN), FAST, limits=QUICK)
            await transport.open(prefetch=1)
            await transport.close()
        assert ("a lease lasts 5 s" in caplog.text) is (lease == 5)


async def test_what_cannot_be_confirmed_any_more_while_it_stops_is_an_error() -> None:
    rig = Rig()
    rig.platform.begin = delivers(1)

    async def refuse(session: Session, ack: AckFrame) -> None:
        rig.inbox.stop()
        await session.error(ack.message_id, ErrorCode.UNAUTHENTICATED)

    rig.platform.on_ack = refuse
    async with rig.serving():
        rig.handle(apply, "task.succeeded")
        with pytest.raises(SubscriptionStopped) as caught:
            await rig.inbox.run()
    assert caught.value.kind is StopKind.AUTHENTICATION


async def test_a_close_that_is_cancelled_leaves_no_connection() -> None:
    platform, hand = Platform(), Hand()
    platform.begin, platform.on_ack = delivers(1), never
    async with platform.running():
        transport = OrbitTransport(platform.url, SUBSCRIPTION, Credential(TOKEN), FAST, limits=QUICK)
        await transport.open(prefetch=4)
        running = asyncio.create_task(transport.run(hand))
        (first,) = await hand.wait(1)
        await transport.acknowledge(first)
        closing = asyncio.create_task(transport.close())
        await platform.wait_for_acks(1)
        closing.cancel()
        await asyncio.wait({closing, running})
        assert closing.cancelled()
        await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name().startswith("orbit")])


async def test_no_more_is_in_hand_than_the_prefetch_and_the_capacity() -> None:
    for prefetch, capacity in ((2, 4), (40, 4)):
        platform = Platform()
        async with platform.running():
            transport = OrbitTransport(platform.url, SUBSCRIPTION, Credential(TOKEN), FAST, limits=QUICK)
            await transport.open(prefetch=prefetch)
            session = await platform.wait_for_session()
            assert session.registered.capacity == min(prefetch, capacity)
            await transport.close()


async def test_it_is_opened_once_and_not_without_a_platform() -> None:
    platform = Platform()
    async with platform.running():
        transport = OrbitTransport(platform.url, SUBSCRIPTION, Credential(TOKEN), FAST, limits=QUICK)
        with pytest.raises(TransportError):
            await transport.run(Hand())
        with pytest.raises(TransportError):
            transport.notifications()
        assert (transport.stats.started, transport.is_connected) == (0, False)
        await transport.open(prefetch=1)
        assert transport.is_connected
        assert transport.notifications() is transport.notifications()
        with pytest.raises(ConfigurationError, match="once"):
            await transport.open(prefetch=1)
        await transport.close()
        platform.statuses = [401]
        refused = OrbitTransport(platform.url, SUBSCRIPTION, Credential(TOKEN), FAST, limits=QUICK)
        with pytest.raises(SubscriptionRefused):
            await refused.open(prefetch=1)
        await refused.close()
    absent = OrbitTransport(platform.url, SUBSCRIPTION, Credential(TOKEN), FAST, limits=QUICK)
    with pytest.raises(ConnectionLost):
        await absent.open(prefetch=1)
    await absent.close()
    assert "4 at once" in absent.describe()["subscription"]


def test_a_delivery_is_a_cloudevent_and_the_same_for_each_generation() -> None:
    event = frame_of().event
    first, later = delivery_from(event), delivery_from(event, generation=7)
    assert cloudevents.decode(first) == cloudevents.decode(later)
    assert (first.body, dict(first.headers), first.origin) == (later.body, dict(later.headers), later.origin)
    assert (first.pristine, later.pristine) == (True, False)
