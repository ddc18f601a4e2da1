"""One connection of a leased subscription over a real WebSocket: a thin shell around `Conversation`.

It neither pings by itself nor reconnects nor runs handlers; whoever has it pings every 15 seconds and closes it.

The library below logs and raises with headers and frames in its hands. Its logger is switched off, its errors are
translated where they arrive and never chained, and what is written is written by a task of its own: so no traceback
that leaves this module has a credential or a proof among its variables.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from inbox.adapters.websocket.codec import (
    LONGEST_FRAME,
    SUBPROTOCOL,
    ClientFrame,
    DeliveryFrame,
    PongFrame,
    ReceiptFrame,
    WelcomeFrame,
    encode,
)
from inbox.adapters.websocket.conversation import LIMITS, Answer, Conversation, Limits
from inbox.adapters.websocket.errors import (
    ConnectionLost,
    FrameTooLong,
    HandshakeRefused,
    HandshakeTimeout,
    OrbitError,
    OrbitProtocolError,
    PeerNotTrusted,
)
from inbox.adapters.websocket.settings import EventRegistration
from inbox.core.proof import Proof

T = TypeVar("T")

#: Seconds for an orderly good-bye; then the socket is simply closed, which loses nothing.
_CLOSE_TIMEOUT: Final = 2.0

#: Frames that are read ahead. There is a task that does nothing but read, so that few are enough.
_READ_AHEAD: Final = 4

#: What a peer says with its good-bye when it holds us for the one that broke the protocol (RFC 6455, 7.4.1).
_BLAMING: Final = frozenset(
    {CloseCode.PROTOCOL_ERROR, CloseCode.UNSUPPORTED_DATA, CloseCode.INVALID_DATA, CloseCode.MESSAGE_TOO_BIG}
)
#: What the library says to the peer when a frame cannot be taken.
_BLAMED: Final[dict[int, str]] = {
    CloseCode.PROTOCOL_ERROR: "the peer does not speak WebSocket",
    CloseCode.INVALID_DATA: "a text frame that is not UTF-8",
}


def new_message_id() -> str:
    """An id for one request; each try needs another one."""
    return secrets.token_hex(16)


class EventConnection:
    """One connection; made by `dial`.

    Attributes:
        welcome: how things stood when it was opened; not how they stand now.
    """

    def __init__(self, socket: ClientConnection, conversation: Conversation) -> None:
        self._socket = socket
        self._conversation = conversation
        self._waiting: dict[str, asyncio.Future[object]] = {}
        self._outgoing: asyncio.Queue[ClientFrame] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._writer = asyncio.create_task(self._write(), name="orbit writer")
        self._reader = asyncio.create_task(self._read(), name="orbit reader")

    def __repr__(self) -> str:
        return f"<EventConnection, {self._conversation.phase.value}>"

    @classmethod
    async def dial(cls, registration: EventRegistration, *, limits: Limits = LIMITS) -> Self:
        """Connect and register. Cancelling this gives the handshake up, and nothing else.

        Args:
            registration: what the connection is for.
            limits: the protocol's own times; shorter ones are for tests.

        Raises:
            HandshakeTimeout: it took more than 8 seconds in all.
            HandshakeRefused, RequestRefused: the platform says no; `kind` tells whether for good.
            PeerNotTrusted: its certificate is not trusted.
            OrbitProtocolError: it speaks another protocol.
            ConnectionLost: the network, or the platform, is not there.
        """
        started = asyncio.get_running_loop().time()
        socket = await _given_up_when_cancelled(_opened(registration, started + limits.handshake))
        if isinstance(socket, OrbitError):
            raise socket
        conversation = Conversation(registration.subscription_id, registration.capacity, started, limits)
        connection = cls(socket, conversation)
        try:
            await connection._register()
        except BaseException:
            await asyncio.shield(connection.close())
            raise
        return connection

    @property
    def welcome(self) -> WelcomeFrame:
        """How things stood when it was opened; not how they stand now."""
        assert self._conversation.welcome is not None  # noqa: S101 - `dial` returns after it
        return self._conversation.welcome

    @property
    def error(self) -> OrbitError | None:
        """Why it is over; None while it is open."""
        return self._conversation.error

    async def next(self, wanted: Callable[[DeliveryFrame], bool] | None = None) -> DeliveryFrame:
        """Wait for a delivery and take it. Cancelling this closes nothing and loses nothing.

        Args:
            wanted: takes the first that this is true of, and leaves the others unread; see `look_again`.

        Raises:
            OrbitError: the connection is over, and what was unread is read.
        """
        unread = self._conversation.unread
        while True:
            for index, frame in enumerate(unread):
                if wanted is None or wanted(frame):
                    del unread[index]
                    return frame
            self._require_open()
            self._changed.clear()
            await self._changed.wait()

    def look_again(self) -> None:
        """What `next` is waiting for may be here: what is wanted has changed."""
        self._changed.set()

    async def ack(self, message_id: str, proof: Proof) -> ReceiptFrame:
        """Acknowledge the hand-out of `proof`, whichever connection of the subscription brought it.

        It may be repeated, with another message id. Cancelling this recalls nothing.

        Raises:
            ProofLost: a later generation has replaced it; the connection stays.
            RequestRefused: the platform says no; the connection stays.
            ConnectionBusy: 32 requests are in flight; nothing was sent.
            RequestTimeout: no answer within 10 seconds; the connection is closed, and nobody knows what became of it.
            OrbitError: the connection is over, and the same.
            ValueError: the proof is of another subscription, or the message id is in use.
        """
        frame = self._conversation.ack(message_id, proof, _now())
        content = await self._ask(message_id, frame)
        assert isinstance(content, ReceiptFrame)  # noqa: S101 - the conversation lets nothing else answer it
        return content

    async def ping(self, message_id: str) -> bool:
        """Ask whether all is well; extends no lease.

        Returns:
            Whether the subscription is enabled; a paused one can still be acknowledged to.

        Raises:
            RequestRefused, ConnectionBusy, RequestTimeout, OrbitError, ValueError: as `ack`.
        """
        content = await self._ask(message_id, self._conversation.ping(message_id, _now()))
        assert isinstance(content, PongFrame)  # noqa: S101 - as above
        return content.enabled

    async def wait_closed(self) -> None:
        """Return when the connection is over and nothing more is read; `error` says why."""
        await asyncio.wait({self._reader})

    async def close(self) -> None:
        """Close it, and return when nothing more is read. Cancels nothing at the platform. May be called twice."""
        self._end(None)
        try:
            await self._socket.close()
            await asyncio.wait({self._reader, self._writer})
        except asyncio.CancelledError:
            self._socket.transport.abort()  # or it would stay for as long as the peer likes
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------ requests
    async def _register(self) -> None:
        message_id = new_message_id()
        await self._ask(message_id, self._conversation.register(message_id))

    async def _ask(self, message_id: str, frame: ClientFrame) -> object:
        """Have `frame` written and wait for its answer.

        Raises:
            OrbitError: that is the answer, or the connection is over.
        """
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._waiting[message_id] = answered
        self._outgoing.put_nowait(frame)
        self._arm()
        content = await answered
        if isinstance(content, OrbitError):
            raise content.with_traceback(None)
        return content

    def _require_open(self) -> None:
        if self._conversation.error is not None:
            raise self._conversation.error.with_traceback(None)

    # ------------------------------------------------------------------ the two directions
    async def _read(self) -> None:
        try:
            while True:
                if not self._hand_on(self._conversation.receive(await self._socket.recv())):
                    # Several may lie in one packet: who waits for the first takes it before the next counts as unread.
                    await asyncio.sleep(0)
        except ConnectionClosed as closed:
            self._end(_why_closed(closed))
            return
        except OrbitError as error:
            self._end(error)
        finally:
            self._end(ConnectionLost())  # unless there is a better reason
            self._writer.cancel()
        await self._say_good_bye()

    async def _say_good_bye(self) -> None:
        """Close, and read what is still on its way: the peer's own good-bye comes behind it."""
        code = CloseCode.PROTOCOL_ERROR if isinstance(self.error, OrbitProtocolError) else CloseCode.NORMAL_CLOSURE
        closing = asyncio.create_task(self._socket.close(code), name="orbit good-bye")
        with suppress(ConnectionClosed):
            while True:
                await self._socket.recv()
                await asyncio.sleep(0)
        await closing

    def _hand_on(self, answer: Answer | None) -> bool:
        """Tell who waits; False where it was a delivery."""
        if answer is None:
            self._changed.set()
            return False
        answered = self._waiting.pop(answer.message_id)
        if not answered.done():
            answered.set_result(answer.content)
        self._arm()
        return True

    async def _write(self) -> None:
        """The only place where a frame is text on its way out."""
        try:
            while True:
                await self._socket.send(encode(await self._outgoing.get()))
        except ConnectionClosed:
            return  # whoever reads finds it too, and says why
        except OrbitProtocolError as error:
            self._end(error)
            self._socket.transport.abort()

    # ------------------------------------------------------------------ the end
    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._conversation.deadline
        if deadline is not None:
            self._timer = asyncio.get_running_loop().call_at(deadline, self._expire)

    def _expire(self) -> None:
        try:
            self._conversation.expire(_now())
        except OrbitError as error:
            # Who does not answer this does not answer a good-bye either.
            self._end(error)
            self._socket.transport.abort()
        else:
            self._arm()

    def _end(self, error: OrbitError | None) -> None:
        """It is over; tell everybody who waits."""
        reason = self._conversation.fail(error)
        self._arm()
        waiting, self._waiting = self._waiting, {}
        for answered in waiting.values():
            if not answered.done():
                answered.set_result(reason)
        self._changed.set()


# ---------------------------------------------------------------------- the handshake
class _Connect(websocket_connect):
    """The library's client, but it stays where it was sent: a redirect would take the credential elsewhere."""

    def process_redirect(self, exc: Exception) -> Exception:
        """What went wrong, a redirect too."""
        return exc


#: Takes what the library logs, which are headers and frames, and lets nothing out. Not one of `logging.getLogger`:
#: `logging.config` enables those again.
_SILENT: Final = logging.Logger("inbox.orbit.wire", logging.CRITICAL)  # noqa: LOG001 - see above
_SILENT.disabled = True


async def _opened(registration: EventRegistration, ends_at: float) -> ClientConnection | OrbitError:
    """An open WebSocket, or why there is none. Raised elsewhere, for here the credential is among the variables."""
    try:
        async with asyncio.timeout_at(ends_at):
            socket = await _Connect(
                registration.url,
                subprotocols=[Subprotocol(SUBPROTOCOL)],
                additional_headers={"Authorization": f"Bearer {registration.credential.reveal()}"},
                compression=None,  # what is compressed has no honest length
                open_timeout=None,  # ours covers the welcome as well
                close_timeout=_CLOSE_TIMEOUT,
                ping_interval=None,  # the protocol has pings of its own
                max_size=LONGEST_FRAME,
                max_queue=_READ_AHEAD,
                user_agent_header=None,
                proxy=None,
                logger=_SILENT,
                ssl=(registration.tls or True) if registration.is_tls else None,
            )
    except Exception as error:  # noqa: BLE001 - whatever it is, it may hold the credential
        return _why_refused(error)
    if socket.subprotocol != SUBPROTOCOL:
        await socket.close()
        return OrbitProtocolError("the platform did not choose the protocol that was offered")
    return socket


def _why_refused(error: Exception) -> OrbitError:
    match error:
        case InvalidStatus():
            return HandshakeRefused(error.response.status_code)
        case TimeoutError():
            return HandshakeTimeout()
        case ssl.SSLCertVerificationError():
            return PeerNotTrusted()
        case InvalidMessage() | OSError() | EOFError():
            return ConnectionLost("the platform cannot be reached, or hung up in the handshake")
        case InvalidHandshake():
            return OrbitProtocolError("the platform does not answer the upgrade as WebSocket says")
        case _:
            return ConnectionLost(f"the handshake with the platform failed ({type(error).__name__})")


def _why_closed(closed: ConnectionClosed) -> OrbitError:
    """In words of ours: the peer's own stay where they are."""
    ours_first = closed.sent is not None and not closed.rcvd_then_sent
    if ours_first and closed.sent is not None:
        if closed.sent.code == CloseCode.MESSAGE_TOO_BIG:
            return FrameTooLong()
        if closed.sent.code in _BLAMED:
            return OrbitProtocolError(_BLAMED[closed.sent.code])
    if closed.rcvd is not None and not ours_first and closed.rcvd.code in _BLAMING:
        return OrbitProtocolError("the platform holds a frame of ours for wrong")
    return ConnectionLost()


async def _given_up_when_cancelled(
    work: Coroutine[Any, Any, ClientConnection | OrbitError],
) -> ClientConnection | OrbitError:
    """Await `work` in a task, whose traceback stays in it; cancelled, nothing of it is left."""
    task = asyncio.create_task(work, name="orbit handshake")
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and isinstance(socket := task.result(), ClientConnection):
            socket.transport.abort()
        raise
    return task.result()


def _now() -> float:
    return asyncio.get_running_loop().time()
