"""A platform that does what a test tells it: a WebSocket server that speaks frames, and keeps what it was told."""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from inbox.adapters.websocket.codec import (
    LONGEST_FRAME,
    SUBPROTOCOL,
    AckFrame,
    ClientFrame,
    ErrorCode,
    ErrorFrame,
    Frame,
    PingFrame,
    PongFrame,
    ReceiptFrame,
    RegisterFrame,
    WelcomeFrame,
    decode_client,
    encode,
)
from inbox.adapters.websocket.conversation import Limits
from inbox.adapters.websocket.settings import Credential, EventRegistration
from tests.unit.orbit_frames import DELIVERY, SUBSCRIPTION, frame_of

TOKEN = "bearer-token-that-nobody-may-see"
#: Heartbeats come fast, and everything else has the time that a busy machine needs.
QUICK = Limits(handshake=8.0, request=10.0, heartbeat=0.05)


class Session:
    """One connection, on the platform's side."""

    def __init__(self, platform: "Platform", socket: ServerConnection, number: int, registered: RegisterFrame) -> None:
        self.platform = platform
        self.socket = socket
        self.number = number
        self.registered = registered
        self.id = f"{number:032x}"
        self.received: list[ClientFrame] = []

    async def send(self, frame: Frame | str | bytes) -> None:
        await self.socket.send(frame if isinstance(frame, str | bytes) else encode(frame))

    async def welcome(self, *, enabled: bool = True, lease_seconds: int = 30) -> None:
        told = self.registered
        await self.send(
            WelcomeFrame(told.message_id, self.id, told.subscription_id, told.capacity, enabled, lease_seconds)
        )

    async def deliver(self, event: int = 1, generation: int = 1, **changes: object) -> None:
        """Hand out the event of that number; its delivery has an id by number and generation."""
        frame = frame_of(generation, event_id_of(event), **changes)
        grant = frame.delivery
        delivery_id = f"{event * 1000 + generation:032x}"
        self.platform.events[delivery_id] = event_id_of(event)
        await self.send(
            type(frame)(self.id, type(grant)(delivery_id, grant.event_id, generation, grant.secret), frame.event)
        )

    async def receipt(self, ack: AckFrame) -> None:
        event_id = self.platform.events[ack.delivery_id]
        await self.send(ReceiptFrame(self.id, ack.message_id, ack.delivery_id, event_id, ack.generation))

    async def pong(self, ping: PingFrame, *, enabled: bool = True) -> None:
        await self.send(PongFrame(self.id, ping.message_id, enabled))

    async def error(self, reply_to: str | None, code: ErrorCode) -> None:
        await self.send(ErrorFrame(self.id, reply_to, code, f"remote text {TOKEN}"))

    def cut(self) -> None:
        """Lose the connection without a good-bye."""
        self.socket.transport.abort()


def event_id_of(number: int) -> str:
    return f"{0xE0000 + number:032x}"


class Platform:
    """The server. Whatever a test does not replace is answered as the contract says.

    Attributes:
        statuses: HTTP statuses with which the next upgrades are refused.
        greet: called with each session instead of a welcome.
        begin: called with each session that was welcomed.
        on_ack, on_ping: called instead of the usual answer.
        sessions: all of them.
        acks: acknowledgements, in the order of their coming.
    """

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.headers: list[dict[str, str]] = []
        self.greet: Callable[[Session], Awaitable[object]] = Session.welcome
        self.begin: Callable[[Session], Awaitable[object]] = _nothing
        self.on_ack: Callable[[Session, AckFrame], Awaitable[object]] = Session.receipt
        self.on_ping: Callable[[Session, PingFrame], Awaitable[object]] = Session.pong
        self.sessions: list[Session] = []
        self.acks: list[AckFrame] = []
        self.pings: list[PingFrame] = []
        self.events: dict[str, str] = {DELIVERY: frame_of().event.id}
        self.changed = asyncio.Event()
        self.port = 0
        self.scheme = "ws"
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1/events"

    def registration(self, capacity: int = 4) -> EventRegistration:
        return EventRegistration(self.url, Credential(TOKEN), SUBSCRIPTION, capacity)

    @property
    def acked(self) -> list[tuple[str, int]]:
        """Events and generations that were acknowledged, in the order of their coming."""
        return [(self.events[ack.delivery_id], ack.generation) for ack in self.acks]

    async def wait(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Return when `condition` holds, asked whenever something was told to the platform."""
        async with asyncio.timeout(seconds):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def wait_for_acks(self, count: int) -> None:
        await self.wait(lambda: len(self.acks) >= count)

    async def wait_for_session(self, number: int = 1) -> Session:
        await self.wait(lambda: len(self.sessions) >= number)
        return self.sessions[number - 1]

    async def _serve(self, socket: ServerConnection) -> None:
        try:
            registered = decode_client(await socket.recv())
            assert isinstance(registered, RegisterFrame)
            session = Session(self, socket, next(self._numbers), registered)
            await self.greet(session)
            self.sessions.append(session)
            self.changed.set()
            await self.begin(session)
            async for text in socket:
                self._take(session, decode_client(text))
        except ConnectionClosed:
            pass

    def _take(self, session: Session, frame: ClientFrame) -> None:
        session.received.append(frame)
        if isinstance(frame, AckFrame):
            self.acks.append(frame)
            self._answer(self.on_ack(session, frame))
        if isinstance(frame, PingFrame):
            self.pings.append(frame)
            self._answer(self.on_ping(session, frame))
        self.changed.set()

    def _answer(self, answer: Awaitable[object]) -> None:
        """In a task of its own: a slow answer keeps nothing else waiting."""

        async def answered() -> None:
            with suppress(ConnectionClosed):
                await answer

        task: asyncio.Task[object] = asyncio.create_task(answered())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refuse(self, connection: ServerConnection, request: Request) -> Response | None:
        self.headers.append(dict(request.headers.raw_items()))
        if not self.statuses:
            return None
        status = self.statuses.pop(0)
        response = connection.respond(HTTPStatus(status), f"remote text {TOKEN}")
        if 300 <= status < 400:
            response.headers["Location"] = f"ws://127.0.0.1:{self.port}/elsewhere"
        return response

    @asynccontextmanager
    async def running(
        self, subprotocol: str | None = SUBPROTOCOL, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator["Platform"]:
        server: Server
        self.scheme = "ws" if tls is None else "wss"
        async with serve(
            self._serve,
            "127.0.0.1",
            self.port,
            process_request=self._refuse,
            subprotocols=None if subprotocol is None else [Subprotocol(subprotocol)],
            select_subprotocol=None if subprotocol == SUBPROTOCOL else lambda *_: None,
            ssl=tls,
            max_size=LONGEST_FRAME,
            compression=None,
            close_timeout=0.5,
            ping_interval=None,
        ) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            try:
                yield self
            finally:
                for task in self._tasks:
                    task.cancel()


async def _nothing(session: Session) -> None:
    """What a platform begins with that has nothing to hand out."""


async def never(session: Session, frame: object) -> None:
    """An answer that does not come."""


async def silent(session: Session) -> None:
    """A welcome that does not come."""
    await session.socket.wait_closed()


def delivers(*events: int, generation: int = 1) -> Callable[[Session], Awaitable[None]]:
    """Hand out these events at the beginning of each session."""

    async def begin(session: Session) -> None:
        for event in events:
            await session.deliver(event, generation)

    return begin
