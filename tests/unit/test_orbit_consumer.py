"""The consumer of a leased subscription, over real sockets: every rule of its contract."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from inbox.adapters.websocket.codec import AckFrame, ErrorCode, TaskEvent
from inbox.adapters.websocket.consumer import EventConsumer
from inbox.adapters.websocket.conversation import Limits
from inbox.adapters.websocket.errors import (
    ConnectionLost,
    OrbitProtocolError,
    ShutdownTimeout,
    StopKind,
    SubscriptionRefused,
    SubscriptionStopped,
)
from inbox.adapters.websocket.observer import MOST_NOTIFICATIONS, Happening, Notification, Notifications
from inbox.adapters.websocket.settings import Credential, OrbitSettings
from inbox.errors import ConfigurationError, StartupError
from tests.unit import orbit_frames as frames
from tests.unit.orbit_frames import SECRET, SUBSCRIPTION
from tests.unit.orbit_platform import QUICK, TOKEN, Platform, Session, delivers, event_id_of, never

FAST = OrbitSettings(capacity=4, shutdown_timeout=5, reconnect_min_delay=0.01, reconnect_max_delay=0.02)


class Work:
    """A handler that keeps what it was given, and may be held up or made to fail."""

    def __init__(self) -> None:
        self.started: list[TaskEvent] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.errors: list[BaseException] = []

    async def __call__(self, event: TaskEvent) -> None:
        self.started.append(event)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(event.id)
            raise
        if self.errors:
            raise self.errors.pop(0)
        self.ended.append(event.id)


def consumer_of(
    platform: Platform, work: Callable[[TaskEvent], Any], settings: OrbitSettings = FAST, limits: Limits = QUICK
) -> EventConsumer:
    return EventConsumer(platform.url, SUBSCRIPTION, Credential(TOKEN), work, settings, limits=limits)


@asynccontextmanager
async def consuming(
    platform: Platform, work: Callable[[TaskEvent], Any], settings: OrbitSettings = FAST, limits: Limits = QUICK
) -> AsyncIterator[EventConsumer]:
    async with platform.running():
        consumer = consumer_of(platform, work, settings, limits)
        running = asyncio.create_task(consumer.run())
        try:
            await platform.wait_for_session()
            yield consumer
        finally:
            consumer.stop()
            async with asyncio.timeout(10):
                await running


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


# ---------------------------------------------------------------- the way it goes
async def test_each_event_is_handled_and_then_acknowledged() -> None:
    platform, work = Platform(), Work()
    platform.begin = delivers(1, 2, 3)
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.acknowledged == 3)
        assert sorted(platform.acked) == [(event_id_of(number), 1) for number in (1, 2, 3)]
        assert work.started[0].snapshot == frames.SNAPSHOT
        assert not hasattr(work.started[0], "secret")
        stats = consumer.stats
        assert (stats.started, stats.running, stats.handler_failures, stats.reconnects) == (3, 0, 0, 0)


async def test_a_platform_hands_out_more_as_there_is_room_and_no_more_run_than_the_capacity() -> None:
    platform, work = Platform(), Work()
    platform.begin = delivers(1, 2)
    work.gate.clear()
    async with consuming(platform, work, replace(FAST, capacity=2)) as consumer:
        await until(lambda: len(work.started) == 2)
        for event in (3, 4):
            await platform.sessions[0].deliver(event)
        await platform.wait(lambda: len(platform.pings) >= 2)
        assert (len(work.started), consumer.stats.running) == (2, 2)
        work.gate.set()
        await until(lambda: consumer.stats.acknowledged == 4)


async def test_one_acknowledgement_is_in_flight_and_a_slow_one_slows_neither_handlers_nor_heartbeats() -> None:
    platform, work, let_go = Platform(), Work(), asyncio.Event()
    in_flight: list[int] = []
    most: list[int] = []

    async def slow(session: Session, ack: AckFrame) -> None:
        in_flight.append(1)
        most.append(len(in_flight))
        await let_go.wait()
        in_flight.pop()
        await session.receipt(ack)

    platform.begin, platform.on_ack = delivers(1, 2, 3), slow
    async with consuming(platform, work, limits=replace(QUICK, heartbeat=0.02)) as consumer:
        await until(lambda: len(work.ended) == 3)
        await platform.wait(lambda: len(platform.pings) > 5)
        assert len(platform.acks) == 1
        let_go.set()
        await until(lambda: consumer.stats.acknowledged == 3)
    assert set(most) == {1}


async def test_a_review_is_neither_success_nor_failure() -> None:
    platform, work = Platform(), Work()
    snapshot = frames.SNAPSHOT.replace(b"succeeded", b"needs_review")

    async def begin(session: Session) -> None:
        await session.deliver(1, type="task.needs_review", status="needs_review", snapshot=snapshot)

    platform.begin = begin
    async with consuming(platform, work):
        await platform.wait_for_acks(1)
    assert [(event.type, event.status) for event in work.started] == [("task.needs_review", "needs_review")]


# ---------------------------------------------------------------- generations and proofs
async def test_a_later_generation_starts_no_second_handler_and_its_proof_is_shown() -> None:
    platform, work = Platform(), Work()
    platform.begin = delivers(1)
    work.gate.clear()
    async with consuming(platform, work, replace(FAST, capacity=1)) as consumer:
        await until(lambda: len(work.started) == 1)
        for generation in (2, 4, 3):
            await platform.sessions[0].deliver(1, generation)
        seen = consumer.notifications
        async with asyncio.timeout(5):
            while (await anext(seen)).happening is not Happening.RENEWED:
                pass
            await anext(seen)
        work.gate.set()
        await platform.wait_for_acks(1)
        await until(lambda: consumer.stats.acknowledged == 1)
        assert platform.acked == [(event_id_of(1), 4)]
        assert len(work.started) == 1


async def test_after_a_lost_reply_the_same_proof_is_shown_again_and_no_handler_runs() -> None:
    platform, work = Platform(), Work()

    async def begin(session: Session) -> None:
        if session.number == 1:
            await session.deliver(1)

    async def cut_twice(session: Session, ack: AckFrame) -> None:
        if session.number < 3:
            session.cut()
        else:
            await session.receipt(ack)

    platform.begin, platform.on_ack = begin, cut_twice
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.acknowledged == 1)
        assert platform.acked == [(event_id_of(1), 1)] * 3
        assert len({ack.message_id for ack in platform.acks}) == 3
        assert len({ack.secret for ack in platform.acks}) == 1
        assert (len(work.started), consumer.stats.reconnects) == (1, 2)


async def test_an_acknowledgement_without_an_answer_is_repeated_on_a_new_connection() -> None:
    platform, work = Platform(), Work()

    async def begin(session: Session) -> None:
        if session.number == 1:
            await session.deliver(1)

    async def forget(session: Session, ack: AckFrame) -> None:
        if session.number > 1:
            await session.receipt(ack)

    platform.begin, platform.on_ack = begin, forget
    async with consuming(platform, work, limits=replace(QUICK, request=0.3)) as consumer:
        await until(lambda: consumer.stats.acknowledged == 1)
        assert set(platform.acked) == {(event_id_of(1), 1)}
        assert len(platform.acks) >= 2
        assert len(work.started) == 1


async def test_a_lost_proof_waits_for_the_new_delivery_which_enters_the_handler() -> None:
    platform, work = Platform(), Work()

    async def lose(session: Session, ack: AckFrame) -> None:
        if ack.generation == 1:
            await session.error(ack.message_id, ErrorCode.PROOF_LOST)
            await session.deliver(1, 2)
        else:
            await session.receipt(ack)

    platform.begin, platform.on_ack = delivers(1), lose
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.acknowledged == 1)
        assert platform.acked == [(event_id_of(1), 1), (event_id_of(1), 2)]
        assert len(work.started) == 2
        assert (consumer.stats.proofs_lost, consumer.stats.reconnects) == (1, 0)


async def test_a_lost_proof_whose_successor_is_here_is_followed_by_it_without_a_handler() -> None:
    platform, work = Platform(), Work()

    async def lose(session: Session, ack: AckFrame) -> None:
        if ack.generation == 1:
            await session.deliver(1, 2)
            await session.error(ack.message_id, ErrorCode.PROOF_LOST)
        else:
            await session.receipt(ack)

    platform.begin, platform.on_ack = delivers(1), lose
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.acknowledged == 1)
        assert platform.acked == [(event_id_of(1), 1), (event_id_of(1), 2)]
        assert len(work.started) == 1


@pytest.mark.parametrize("changes", [{"sequence": 18}, {"type": "task.failed", "status": "failed"}])
async def test_hand_outs_that_contradict_each_other_end_it(changes: dict[str, Any]) -> None:
    platform, work = Platform(), Work()
    work.gate.clear()
    if "type" in changes:
        changes["snapshot"] = frames.SNAPSHOT.replace(b"succeeded", b"failed")
    async with platform.running():
        running = asyncio.create_task(consumer_of(platform, work).run())
        session = await platform.wait_for_session()
        await session.deliver(1, 1)
        await session.deliver(1, 2, **changes)
        with pytest.raises(SubscriptionStopped) as caught:
            await running
    assert caught.value.kind is StopKind.PROTOCOL
    assert platform.acks == []


# ---------------------------------------------------------------- handlers that fail
@pytest.mark.parametrize("error", [ValueError(f"card {SECRET}"), asyncio.CancelledError(), TimeoutError()])
async def test_a_handler_that_fails_is_not_acknowledged_nor_run_again_here(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    platform, work = Platform(), Work()
    platform.begin = delivers(1)
    work.errors = [error]
    caplog.set_level(logging.DEBUG)
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.handler_failures == 1)
        pings = len(platform.pings)
        await platform.wait(lambda: len(platform.pings) > pings + 2)
        assert (len(work.started), platform.acks) == (1, [])
        await platform.sessions[0].deliver(1, 2)
        await until(lambda: consumer.stats.acknowledged == 1)
        assert platform.acked == [(event_id_of(1), 2)]
    assert SECRET not in caplog.text


# ---------------------------------------------------------------- connections
@pytest.mark.parametrize("code", [ErrorCode.UNAVAILABLE, ErrorCode.BUSY])
async def test_a_platform_that_is_away_or_busy_is_asked_again(code: ErrorCode) -> None:
    platform, work = Platform(), Work()

    async def begin(session: Session) -> None:
        if session.number == 1:
            await session.deliver(1)

    async def busy(session: Session, ack: AckFrame) -> None:
        if session.number < 3:
            await session.error(ack.message_id, code)
        else:
            await session.receipt(ack)

    platform.begin, platform.on_ack = begin, busy
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.acknowledged == 1)
        assert (consumer.stats.reconnects, len(work.started)) == (2, 1)


async def test_refused_upgrades_that_pass_are_waited_out() -> None:
    platform, work = Platform(), Work()

    async def begin(session: Session) -> None:
        if session.number == 1:
            platform.statuses = [503, 429, 408, 500]
            session.cut()
        else:
            await session.deliver(1)

    platform.begin = begin
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.acknowledged == 1)
        assert consumer.stats.reconnects == 5


async def test_an_exhausted_buffer_connects_again() -> None:
    platform, work = Platform(), Work()

    async def begin(session: Session) -> None:
        if session.number == 1:
            for event in range(1, 6):
                await session.deliver(event)

    platform.begin = begin
    work.gate.clear()
    async with consuming(platform, work, replace(FAST, capacity=2)) as consumer:
        await platform.wait_for_session(2)
        assert consumer.stats.reconnects == 1
        work.gate.set()
        await until(lambda: consumer.stats.acknowledged == 2)


STOPS: list[tuple[ErrorCode, StopKind]] = [
    (ErrorCode.UNAUTHENTICATED, StopKind.AUTHENTICATION),
    (ErrorCode.FORBIDDEN, StopKind.PERMISSION),
    (ErrorCode.NOT_FOUND, StopKind.NOT_FOUND),
    (ErrorCode.HISTORY_GAP, StopKind.HISTORY_GAP),
    (ErrorCode.PROTOCOL, StopKind.PROTOCOL),
    (ErrorCode.INTERNAL, StopKind.OTHER),
]


@pytest.mark.parametrize(("code", "kind"), STOPS)
@pytest.mark.parametrize("where", ["heartbeat", "acknowledgement", "connection"])
async def test_what_cannot_pass_stops_it_with_its_kind_and_cancels_what_runs(
    code: ErrorCode, kind: StopKind, where: str
) -> None:
    platform, work, waiting = Platform(), Work(), Work()
    waiting.gate.clear()

    async def handle(event: TaskEvent) -> None:
        await (work if event.id == event_id_of(1) else waiting)(event)

    platform.begin = delivers(1, 2)
    platform.on_ack = never
    if where == "acknowledgement":
        platform.on_ack = lambda session, ack: session.error(ack.message_id, code)
    elif where == "heartbeat":
        platform.on_ping = lambda session, ping: session.error(ping.message_id, code)
    else:
        platform.on_ping = lambda session, _: session.error(None, code)
    async with platform.running():
        running = asyncio.create_task(consumer_of(platform, handle).run())
        with pytest.raises(SubscriptionStopped) as caught:
            async with asyncio.timeout(10):
                await running
    assert caught.value.kind is kind
    assert caught.value.__cause__ is not None
    assert TOKEN not in f"{caught.value}{caught.value.__cause__}"
    assert waiting.cancelled == [event_id_of(2)]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, StopKind.AUTHENTICATION), (403, StopKind.PERMISSION), (404, StopKind.NOT_FOUND), (400, StopKind.OTHER)],
)
async def test_a_start_that_is_refused_is_an_error_of_the_start(status: int, kind: StopKind) -> None:
    platform, work = Platform(), Work()
    platform.statuses = [status]
    async with platform.running():
        with pytest.raises(SubscriptionRefused) as caught:
            await consumer_of(platform, work).run()
    assert caught.value.kind is kind
    assert isinstance(caught.value, StartupError)


async def test_a_start_without_a_platform_says_so() -> None:
    platform = Platform()
    async with platform.running():
        pass
    with pytest.raises(ConnectionLost):
        await consumer_of(platform, Work()).run()


async def test_a_broken_protocol_stops_it() -> None:
    platform, work = Platform(), Work()
    platform.begin = lambda session: session.send("{}")
    async with platform.running():
        with pytest.raises(SubscriptionStopped) as caught:
            await consumer_of(platform, work).run()
    assert isinstance(caught.value.__cause__, OrbitProtocolError)


# ---------------------------------------------------------------- stopping
async def test_it_runs_once() -> None:
    platform, work = Platform(), Work()
    async with consuming(platform, work) as consumer:
        pass
    with pytest.raises(ConfigurationError, match="once"):
        await consumer.run()


async def test_a_stop_starts_nothing_cancels_what_runs_and_confirms_what_was_committed() -> None:
    platform, work, slow = Platform(), Work(), Work()
    told = asyncio.Event()

    async def finish(event: TaskEvent) -> None:
        if event.id != event_id_of(1):
            return await work(event)
        slow.started.append(event)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            slow.ended.append(event.id)  # it had committed, and comes back
        return None

    async def late(session: Session, ack: AckFrame) -> None:
        await told.wait()
        await session.receipt(ack)

    platform.begin, platform.on_ack = delivers(1, 2), late
    work.gate.clear()
    async with platform.running():
        consumer = consumer_of(platform, finish, replace(FAST, capacity=2))
        running = asyncio.create_task(consumer.run())
        await until(lambda: len(work.started) == 1 and len(slow.started) == 1)
        consumer.stop()
        await platform.wait_for_acks(1)
        await platform.sessions[0].deliver(3)
        assert not running.done()
        told.set()
        await running
    assert platform.acked == [(event_id_of(1), 1)]
    assert work.cancelled == [event_id_of(2)]
    assert (len(work.started), consumer.stats.acknowledged) == (1, 1)


async def test_a_stop_connects_again_to_confirm_what_was_committed() -> None:
    platform, work = Platform(), Work()

    async def cut(session: Session, ack: AckFrame) -> None:
        if session.number == 1:
            consumer.stop()
            session.cut()
        else:
            await session.receipt(ack)

    async def begin(session: Session) -> None:
        if session.number == 1:
            await session.deliver(1)
        else:
            await session.deliver(2)  # after the stop: it stays with the platform

    platform.begin, platform.on_ack = begin, cut
    async with platform.running():
        consumer = consumer_of(platform, work)
        await consumer.run()
    assert platform.acked == [(event_id_of(1), 1)] * 2
    assert (len(work.started), consumer.stats.acknowledged) == (1, 1)


async def test_past_the_time_for_stopping_it_says_what_was_left() -> None:
    platform, let_go = Platform(), asyncio.Event()
    started: list[str] = []

    async def stubborn(event: TaskEvent) -> None:
        started.append(event.id)
        while event.id == event_id_of(2) and not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    platform.begin, platform.on_ack = delivers(1, 2), never
    async with platform.running():
        consumer = consumer_of(platform, stubborn, replace(FAST, shutdown_timeout=0.2))
        running = asyncio.create_task(consumer.run())
        await platform.wait_for_acks(1)
        consumer.stop()
        with pytest.raises(ShutdownTimeout) as caught:
            await running
        let_go.set()
        await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name() == "orbit handler"])
    assert (caught.value.unconfirmed, caught.value.running, len(started)) == (2, 1, 2)
    assert "2 events" in str(caught.value)


async def test_cancelling_the_run_stops_it_in_order() -> None:
    platform, work = Platform(), Work()
    platform.begin = delivers(1)
    work.gate.clear()
    async with platform.running():
        consumer = consumer_of(platform, work)
        running = asyncio.create_task(consumer.run())
        await until(lambda: len(work.started) == 1)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()
    assert (work.cancelled, platform.acks) == ([event_id_of(1)], [])
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("orbit")]


async def test_a_stop_while_the_platform_is_away_ends_at_once_if_nothing_is_to_be_confirmed() -> None:
    platform, work = Platform(), Work()
    settings = replace(FAST, reconnect_min_delay=20, reconnect_max_delay=20, shutdown_timeout=30)
    async with platform.running():
        consumer = consumer_of(platform, work, settings)
        running = asyncio.create_task(consumer.run())
        await platform.wait_for_session()
        platform.sessions[0].cut()
        await until(lambda: consumer.stats.reconnects == 1)
        consumer.stop()
        async with asyncio.timeout(3):
            await running


# ---------------------------------------------------------------- watching
async def test_what_happens_is_told_in_order_and_the_stream_ends_with_the_run() -> None:
    platform, work = Platform(), Work()
    platform.begin = delivers(1)
    work.errors = [ValueError(SECRET)]
    switched: list[bool] = [True, False, True]
    platform.on_ping = lambda session, ping: session.pong(ping, enabled=switched.pop(0) if switched else True)
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.handler_failures == 1)
        await platform.sessions[0].deliver(1, 2)
        await until(lambda: consumer.stats.acknowledged == 1)
        await until(lambda: not switched)
        await platform.wait(lambda: len(platform.pings) > 4)
    seen = [notification async for notification in consumer.notifications]
    found = [each.happening for each in seen]
    assert found[:3] == [Happening.CONNECTED, Happening.STARTED, Happening.HANDLER_FAILED]
    assert {Happening.PAUSED, Happening.RESUMED, Happening.ACKNOWLEDGED} <= set(found)
    assert found[-1] is Happening.DISCONNECTED
    assert SECRET not in repr(seen)
    assert found[2].value == "HANDLER_FAILED"


async def test_a_stream_that_nobody_reads_is_bounded_and_counts_what_it_drops() -> None:
    stream = Notifications()
    for _ in range(MOST_NOTIFICATIONS + 5):
        stream.tell(Notification(Happening.STARTED))
    assert stream.dropped == 5
    stream.close()
    stream.tell(Notification(Happening.STARTED))
    assert len([each async for each in stream]) == MOST_NOTIFICATIONS == 128
    assert stream.dropped == 5


async def test_a_reader_that_waits_is_told_of_the_next_and_of_the_end() -> None:
    stream = Notifications()
    reading = asyncio.create_task(anext(stream))
    await asyncio.sleep(0)
    stream.tell(Notification(Happening.STARTED))
    assert (await reading).happening is Happening.STARTED
    ending = asyncio.create_task(_rest(stream))
    await asyncio.sleep(0)
    stream.close()
    assert await ending == []


async def _rest(stream: Notifications) -> list[Notification]:
    return [each async for each in stream]


async def test_dropped_notifications_are_in_the_numbers() -> None:
    platform, work = Platform(), Work()

    async def begin(session: Session) -> None:
        for event in range(1, 80):
            await session.deliver(event)
            await platform.wait_for_acks(event)

    platform.begin = begin
    task: asyncio.Task[Any] | None = None

    async def aside(session: Session) -> None:
        nonlocal task
        task = asyncio.create_task(begin(session))

    platform.begin = aside
    async with consuming(platform, work) as consumer:
        await until(lambda: consumer.stats.acknowledged == 79)
        assert consumer.stats.dropped_events == 1 + 2 * 79 - 128
    assert task is not None
    await task
