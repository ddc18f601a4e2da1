"""Every frame that a platform may get wrong, over real sockets: none is taken for good, and none shows a secret."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator

import pytest

from inbox.adapters.websocket import (
    Credential,
    EventConnection,
    EventConsumer,
    EventRegistration,
    OrbitProtocolError,
    OrbitSettings,
    StopKind,
    SubscriptionStopped,
    TaskEvent,
    new_message_id,
)
from inbox.adapters.websocket.codec import ErrorCode
from inbox.adapters.websocket.conversation import Limits
from inbox.testing.orbit_server import Act, OrbitServer, OrbitServerSettings, Switch
from inbox.testing.orbit_server.malformed import names_for
from inbox.testing.orbit_server.provider import Granted
from tests.integration.orbit_rig import World, snapshot

KINDS = ("welcome", "delivery", "ack_receipt", "pong", "error")
PRIVATE = "nobody's business"
QUICK = Limits(handshake=8.0, request=8.0, heartbeat=0.001)


class Overheard:
    """What must not be told: the credential, and each secret that was handed out."""

    def __init__(self, credential: str) -> None:
        self.words = {credential, PRIVATE}

    def note(self, granted: Granted) -> None:
        self.words.add(granted.secret.reveal())

    def check(self, *texts: str) -> None:
        for text in texts:
            # By their number: an assertion that fails tells too.
            assert sum(word in text for word in self.words) == 0, "a secret was told"


class Place(World):
    """A server that gets every frame of one kind wrong, and what is told of it."""

    def __init__(self, server: OrbitServer, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(server, window=10_000, budget=1000)
        self.number = 0
        self.connections: list[EventConnection] = []
        self.overheard = Overheard(server.credential)
        whole = Granted.frame

        def frame(granted: Granted, session_id: str) -> object:
            self.overheard.note(granted)
            return whole(granted, session_id)

        monkeypatch.setattr(Granted, "frame", frame)

    def get_wrong(self, kind: str, name: str, request: str = "ping") -> None:
        self.server.switches.clear()
        self.number = self.server.switches.set(Switch(Act.MALFORM, kind, variant=name, times=0))
        if kind == "error":
            self.server.switches.set(Switch(Act.REFUSE, request, code=ErrorCode.BUSY, times=0))
        self.provider.publish("reports", snapshot(private=PRIVATE))

    async def converse(self, kind: str) -> EventConnection:
        """A connection that has come to where a frame of that kind is answered."""
        credential = Credential(self.server.credential)
        connection = await EventConnection.dial(EventRegistration(self.server.url, credential, self.subscription, 32))
        self.connections.append(connection)
        if kind in ("pong", "error"):
            await connection.ping(new_message_id())
        frame = await connection.next()
        await connection.ack(new_message_id(), frame.proof)
        return connection

    @property
    def hits(self) -> int:
        """How many frames were wrong."""
        return self.server.switches.hits(self.number)


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    async with OrbitServer(OrbitServerSettings()) as server:
        yield Place(server, monkeypatch)


def shown(error: BaseException) -> str:
    """The error, its causes and every variable on its way, but those of the test itself."""
    trace = error.__traceback__
    inner = None if trace is None else trace.tb_next
    told = traceback.TracebackException(type(error), error, inner, capture_locals=True)
    return f"{error} {error!r} {error.__dict__} {''.join(told.format())}"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_connection_takes_none_of_them_and_closes(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in names_for(kind):
        place.get_wrong(kind, name)
        place.connections.clear()
        with pytest.raises(OrbitProtocolError) as caught:
            await place.converse(kind)
        assert place.hits > 0, name
        place.overheard.check(shown(caught.value))
        for connection in place.connections:
            async with asyncio.timeout(10):
                await connection.wait_closed()
            assert isinstance(connection.error, OrbitProtocolError), name
            with pytest.raises(OrbitProtocolError):
                await connection.ping(new_message_id())
            place.overheard.check(repr(connection))
            await connection.close()
    assert len(place.overheard.words) > 2 or kind == "welcome"
    place.overheard.check(*(record.getMessage() for record in caplog.records), caplog.text)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_consumer_stops_for_good_at_each_of_them(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def handle(event: TaskEvent) -> None:
        assert PRIVATE.encode() in event.snapshot

    settings = OrbitSettings(capacity=32, shutdown_timeout=10, reconnect_min_delay=0.01)
    for name in names_for(kind):
        place.get_wrong(kind, name, request="ack")
        consumer = EventConsumer(
            place.server.url, place.subscription, Credential(place.server.credential), handle, settings, limits=QUICK
        )
        with pytest.raises(SubscriptionStopped) as caught:
            async with asyncio.timeout(10):
                await consumer.run()
        assert caught.value.kind is StopKind.PROTOCOL, name
        assert place.hits > 0, name
        assert kind != "ack_receipt" or consumer.stats.acknowledged == 0, name
        place.overheard.check(shown(caught.value), repr(consumer), repr(consumer.stats))
    place.overheard.check(*(record.getMessage() for record in caplog.records), caplog.text)


async def test_a_loop_in_debug_mode_tells_no_secret_of_any_callback(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Every callback counts as slow there, and is logged with what it is called with."""
    caplog.set_level(logging.DEBUG)
    loop, handled = asyncio.get_running_loop(), asyncio.Event()
    for act, frame in ((Act.LOSE_REPLY, "ack"), (Act.CUT, "delivery"), (Act.REPLACE, "ack")):
        place.server.switches.set(Switch(act, frame, nth=2))

    async def handle(event: TaskEvent) -> None:
        if event.sequence > 1:
            await asyncio.sleep(0)
            return
        handled.set()
        raise LookupError(event.snapshot.decode())

    settings = OrbitSettings(capacity=2, shutdown_timeout=10, reconnect_min_delay=0.01)
    limits = Limits(handshake=8.0, request=0.5, heartbeat=0.01)
    consumer = EventConsumer(
        place.server.url, place.subscription, Credential(place.server.credential), handle, settings, limits=limits
    )
    loop.slow_callback_duration = 0
    loop.set_debug(True)
    try:
        running = asyncio.create_task(consumer.run())
        for _ in range(8):
            place.provider.publish("reports", snapshot(private=PRIVATE))
        async with asyncio.timeout(20):
            await handled.wait()
            while place.states().get("acknowledged", 0) < 7:
                place.provider.turn_clock(31)
                await asyncio.sleep(0.1)
        consumer.stop()
        await running
    finally:
        loop.set_debug(False)
    told = [record.getMessage() for record in caplog.records if record.name == "asyncio"]
    assert len(told) > 50
    assert len(place.overheard.words) > 8
    place.overheard.check(*told, caplog.text)
