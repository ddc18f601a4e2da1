"""One connection: registration, deliveries, and answers to control requests. A shell around the provider."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from typing import TYPE_CHECKING, Final, NoReturn

from aiohttp import WSMsgType

from inbox.adapters.websocket.codec import (
    AckFrame,
    DeliveryFrame,
    ErrorCode,
    ErrorFrame,
    PingFrame,
    PongFrame,
    ReceiptFrame,
    RegisterFrame,
    WelcomeFrame,
    decode_client,
    encode,
)
from inbox.adapters.websocket.errors import OrbitProtocolError
from inbox.core.facts import fact
from inbox.testing.orbit_server.malformed import malform, set_member
from inbox.testing.orbit_server.refusal import Conflict, Refusal
from inbox.testing.orbit_server.rules import ends_connection
from inbox.testing.orbit_server.switches import Act, Moment
from inbox.testing.orbit_server.wire import Cut, cut, raw_frame

if TYPE_CHECKING:
    from aiohttp import web

    from inbox.adapters.websocket.codec import ClientFrame, ServerFrame
    from inbox.testing.orbit_server.provider import Provider
    from inbox.testing.orbit_server.settings import OrbitServerSettings
    from inbox.testing.orbit_server.store import CredentialRow
    from inbox.testing.orbit_server.switches import Switch, Switchboard

__all__ = ["Room", "Session"]

_log = logging.getLogger(__name__)

#: What switches and the log call the frames.
_NAMES: Final[dict[type, str]] = {
    RegisterFrame: "register",
    AckFrame: "ack",
    PingFrame: "ping",
    WelcomeFrame: "welcome",
    DeliveryFrame: "delivery",
    ReceiptFrame: "ack_receipt",
    PongFrame: "pong",
    ErrorFrame: "error",
}
#: RFC 6455, 7.4.1: policy violation, protocol error, internal error; 1013 is "try again later" of its registry.
_CLOSE_CODES: Final = {
    ErrorCode.PROTOCOL: 1002,
    ErrorCode.INTERNAL: 1011,
    ErrorCode.BUSY: 1013,
    ErrorCode.UNAVAILABLE: 1013,
}
_POLICY: Final = 1008
_GOING_AWAY: Final = 1001
#: Leases that a connection may have whose registration was told to overrun.
_OVERRUN: Final = 1000


class _Ended(Exception):
    """The connection is at its end, and everything that was to be said has been."""


class Room:
    """The connections of one server, and what they share.

    Args:
        provider: behind them.
        switches: what to do wrong.
        settings: of the server.
    """

    def __init__(self, provider: Provider, switches: Switchboard, settings: OrbitServerSettings) -> None:
        self.provider = provider
        self.switches = switches
        self.settings = settings
        self.sessions: list[Session] = []
        self.count = 0

    def of(self, subscription_id: str) -> int:
        """How many connections a subscription has."""
        return sum(session.subscription_id == subscription_id for session in self.sessions)


class Session:
    """One connection.

    Args:
        room: that it is in.
        credential: whose bearer it was opened with.
        socket: prepared.
        transport: below the socket, for what no library writes.
    """

    def __init__(
        self, room: Room, credential: CredentialRow, socket: web.WebSocketResponse, transport: asyncio.Transport
    ) -> None:
        self._room = room
        self._provider = room.provider
        self._credential = credential
        self._socket = socket
        self._transport = transport
        self._news = asyncio.Event()
        self._held: set[asyncio.Task[None]] = set()
        self._capacity = 0
        room.count += 1
        self.number = room.count
        self.id = secrets.token_hex(16)
        self.subscription_id: str | None = None

    async def run(self) -> None:
        """Serve the connection to its end."""
        self._room.sessions.append(self)
        unwatch = self._provider.watch(self._heed)
        delivering: asyncio.Task[None] | None = None
        try:
            await self._register()
            delivering = asyncio.create_task(self._keep_delivering(), name=f"orbit-{self.number}")
            while True:
                await self._answer(await self._receive())
        except _Ended:
            pass
        except ConnectionError:
            pass  # who was written to has gone
        except Exception as error:  # noqa: BLE001 - a defect of ours must not look like silence
            told = fact("orbit-defect", connection=self.number, error=type(error).__name__)
            _log.error("connection %d failed: %s", self.number, type(error).__name__, extra=told, exc_info=error)
            cut(self._transport, Cut.RESET)
        finally:
            self._room.sessions.remove(self)
            unwatch()
            for task in (delivering, *self._held):
                if task is not None:
                    task.cancel()
            told = fact("orbit-left", connection=self.number)
            _log.info("connection %d has ended", self.number, extra=told)

    async def close(self) -> None:
        """Say good-bye: the server stops. Leases stay as they are."""
        await self._socket.close(code=_GOING_AWAY)

    def cut(self, how: Cut) -> None:
        """End the connection at once."""
        cut(self._transport, how)

    def _heed(self, subscription_id: str | None) -> None:
        if subscription_id in (None, self.subscription_id):
            self._news.set()

    # ------------------------------------------------------------ what comes in
    async def _receive(self) -> ClientFrame:
        settings = self._room.settings
        patience = settings.handshake if self.subscription_id is None else settings.idle
        try:
            message = await self._socket.receive(timeout=patience)
        except TimeoutError:
            await self._socket.close(code=_POLICY)
            raise _Ended from None
        if message.type is WSMsgType.BINARY:
            raise await self._ended("a binary frame")
        if message.type is not WSMsgType.TEXT:
            raise _Ended
        try:
            return decode_client(message.data)
        except OrbitProtocolError as error:
            reason = error.reason
        raise await self._ended(reason)

    async def _register(self) -> None:
        """Return when the connection is registered."""
        while self.subscription_id is None:
            frame = await self._receive()
            if not isinstance(frame, RegisterFrame):
                raise await self._ended("the first frame is a registration")
            switch = self._switch_at(frame, frame.subscription_id)
            await self._handle(frame, switch)
            if switch is not None and switch.act is Act.OVERRUN:
                self._capacity = _OVERRUN
        told = fact("orbit-registered", connection=self.number, capacity=self._capacity)
        _log.info("connection %d is registered", self.number, extra=told)

    def _enter(self, frame: RegisterFrame) -> WelcomeFrame:
        subscription = self._provider.consumable(self._credential, frame.subscription_id)
        if self._room.of(subscription.id) >= self._room.settings.most_connections:
            raise Refusal(ErrorCode.BUSY, "the subscription has too many connections")
        self.subscription_id, self._capacity = subscription.id, frame.capacity
        lease = max(1, math.ceil(self._room.settings.terms.lease))
        return WelcomeFrame(
            *(frame.message_id, self.id, subscription.id, frame.capacity, subscription.is_enabled, lease)
        )

    async def _answer(self, frame: ClientFrame) -> None:
        if isinstance(frame, RegisterFrame):
            raise await self._ended("registered already")
        if frame.session_id != self.id:
            raise await self._ended("of another session")
        await self._handle(frame, self._switch_at(frame, self.subscription_id))

    async def _handle(self, frame: ClientFrame, switch: Switch | None) -> None:
        """Carry a request out and answer it, or do of that what a switch leaves."""
        act = None if switch is None else switch.act
        is_before = switch is not None and switch.when is Moment.BEFORE
        if act is Act.IGNORE:
            return
        if act is Act.REPLACE and isinstance(frame, AckFrame):
            self._replace(frame)
        answer = None if act in (Act.CUT, Act.REFUSE) and is_before else self._carry_out(frame)
        if switch is not None and act is Act.CUT:
            self._cut(switch)
        if switch is not None and act is Act.REFUSE:
            answer = self._error(frame.message_id, switch.code, "a switch says so")
        if answer is None or act is Act.LOSE_REPLY:
            return
        await self._send(answer)
        if isinstance(answer, ErrorFrame):
            await self._close_after(_NAMES[type(frame)], answer.code)

    def _carry_out(self, frame: ClientFrame) -> ServerFrame:
        try:
            if isinstance(frame, RegisterFrame):
                return self._enter(frame)
            assert self.subscription_id is not None  # noqa: S101 - registered
            if isinstance(frame, PingFrame):
                found = self._provider.consumable(self._credential, self.subscription_id)
                return PongFrame(self.id, frame.message_id, found.is_enabled)
            proof = (frame.delivery_id, frame.generation, frame.secret.reveal())
            row = self._provider.acknowledge(self.subscription_id, *proof)
        except Refusal as refusal:
            return self._error(frame.message_id, refusal.code, refusal.message)
        return ReceiptFrame(self.id, frame.message_id, frame.delivery_id, row.event_id, frame.generation)

    # ------------------------------------------------------------ what switches do
    def _switch_at(self, frame: ClientFrame, subscription_id: str | None) -> Switch | None:
        switch = self._room.switches.at(_NAMES[type(frame)], subscription_id)
        if switch is not None:
            self._tell(switch)
        return switch

    def _replace(self, frame: AckFrame) -> None:
        assert self.subscription_id is not None  # noqa: S101 - registered
        event_id = self._provider.event_of(self.subscription_id, frame.delivery_id)
        if event_id is not None:
            try:
                self._provider.replace_proof(self.subscription_id, event_id)
            except Conflict:
                return  # acknowledged already: nothing can replace it

    def _tell(self, switch: Switch) -> None:
        told = fact("orbit-switch", connection=self.number, act=switch.act.value, frame=switch.frame)
        _log.info("connection %d: %s at %s", self.number, switch.act.value, switch.frame, extra=told)

    def _cut(self, switch: Switch) -> NoReturn:
        cut(self._transport, switch.how)
        raise _Ended

    # ------------------------------------------------------------ what goes out
    async def _keep_delivering(self) -> None:
        """Claim whenever there may be something, and send it. Connected and with room is what "claim activity" is."""
        assert self.subscription_id is not None  # noqa: S101 - registered
        try:
            while True:
                self._news.clear()
                grants = self._provider.claim(self.subscription_id, self.id, self._capacity)
                if grants.recovered:
                    told = fact("orbit-recovered", leases=grants.recovered)
                    _log.info("%d leases had run out", grants.recovered, extra=told)
                for granted in grants.granted:
                    await self._send(granted.frame(self.id))
                await self._wait_news(grants.look_again_in)
        except (_Ended, ConnectionError):
            return  # the reading side finds the same, and ends

    async def _wait_news(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    async def _send(self, frame: ServerFrame) -> None:
        name, text = _NAMES[type(frame)], encode(frame)
        switch = self._room.switches.at(name, self.subscription_id)
        if switch is None:
            await self._socket.send_str(text)
            return
        self._tell(switch)
        if switch.act is Act.HOLD:
            await self._hold(name, text, switch)
        elif switch.act is Act.REPEAT:
            await self._socket.send_str(text)
            await self._socket.send_str(text)
        elif switch.act is Act.MALFORM:
            self._transport.write(_malformed(name, text, switch))
        else:
            octets = raw_frame(text.encode())
            sent = {Moment.BEFORE: 0, Moment.MIDDLE: len(octets) // 2, Moment.AFTER: len(octets)}[switch.when]
            self._transport.write(octets[:sent])
            self._cut(switch)

    async def _hold(self, name: str, text: str, switch: Switch) -> None:
        if name == "welcome":  # nothing may overtake it
            await self._room.switches.wait_released(switch)
            await self._socket.send_str(text)
            return

        async def send_later() -> None:
            await self._room.switches.wait_released(switch)
            if not self._socket.closed:
                await self._socket.send_str(text)

        task = asyncio.create_task(send_later(), name=f"orbit-{self.number}-held")
        self._held.add(task)
        task.add_done_callback(self._held.discard)

    def _error(self, reply_to: str | None, code: ErrorCode, message: str) -> ErrorFrame:
        told = fact("orbit-refused", connection=self.number, code=code.value)
        _log.info("connection %d is refused something: %s", self.number, code.value, extra=told)
        return ErrorFrame(self.id, reply_to, code, message)

    async def _ended(self, reason: str) -> _Ended:
        """Say what of the protocol was broken, and close.

        Returns:
            What to raise.
        """
        await self._send(self._error(None, ErrorCode.PROTOCOL, reason))
        await self._socket.close(code=_CLOSE_CODES[ErrorCode.PROTOCOL])
        return _Ended()

    async def _close_after(self, request: str, code: ErrorCode) -> None:
        """Close where nothing follows an error.

        Raises:
            _Ended: it is closed.
        """
        if ends_connection(request, code):
            await self._socket.close(code=_CLOSE_CODES.get(code, _POLICY))
            raise _Ended


def _malformed(name: str, text: str, switch: Switch) -> bytes:
    if switch.member:
        return raw_frame(set_member(text, switch.member, switch.value).encode("utf-8", "surrogatepass"))
    return malform(switch.variant, name, text)
