"""One connection's life as the protocol sees it: told what arrives and what time it is, it answers what follows.

Nothing here waits, sends or looks at a clock. Whatever is not allowed ends the conversation, once and for all; a
receipt that fits no acknowledgement in flight confirms nothing.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final

from inbox.adapters.websocket.codec import (
    AckFrame,
    DeliveryFrame,
    ErrorCode,
    ErrorFrame,
    PingFrame,
    PongFrame,
    ReceiptFrame,
    RegisterFrame,
    ServerFrame,
    WelcomeFrame,
    decode_server,
)
from inbox.adapters.websocket.errors import (
    ConnectionBusy,
    ConnectionOver,
    HandshakeTimeout,
    OrbitError,
    OrbitProtocolError,
    ProofLost,
    RequestRefused,
    RequestTimeout,
    UnreadOverflow,
)
from inbox.core.proof import Proof


@dataclass(frozen=True, slots=True)
class Limits:
    """The protocol's own times and bounds. Only tests have reason to make others.

    Attributes:
        handshake: seconds for TCP, TLS, the upgrade and the welcome together.
        request: seconds for one request, its waiting to be written included.
        heartbeat: seconds between two pings.
        in_flight: requests that may wait for their answers at once.
    """

    handshake: float = 8.0
    request: float = 10.0
    heartbeat: float = 15.0
    in_flight: int = 32


LIMITS: Final = Limits()


class Phase(Enum):
    """Where a conversation stands."""

    DIALLING = "dialling"
    REGISTERING = "registering"
    OPEN = "open"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the peer answered to one request; a refusal that leaves the connection as it is is an answer, too."""

    message_id: str
    content: WelcomeFrame | ReceiptFrame | PongFrame | RequestRefused


@dataclass(frozen=True, slots=True)
class _Request:
    answered_by: type[WelcomeFrame | ReceiptFrame | PongFrame]
    deadline: float
    proof: Proof | None = None


class Conversation:
    """One connection, from dialling to its end.

    Args:
        subscription_id: whose events are wanted.
        capacity: deliveries at once.
        now: seconds, by any clock that does not go back; the handshake's time begins here.
        limits: times and bounds.

    Attributes:
        phase: where it stands.
        welcome: the handshake's snapshot, once it is open.
        error: why it is over.
        unread: deliveries that nobody has taken yet, the oldest first.
    """

    def __init__(self, subscription_id: str, capacity: int, now: float, limits: Limits = LIMITS) -> None:
        self._subscription_id = subscription_id
        self._capacity = capacity
        self._limits = limits
        self._ends_at = now + limits.handshake
        self._requests: dict[str, _Request] = {}
        self.phase = Phase.DIALLING
        self.welcome: WelcomeFrame | None = None
        self.error: OrbitError | None = None
        self.unread: deque[DeliveryFrame] = deque()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._requests)

    @property
    def deadline(self) -> float | None:
        """When `expire` is to be called next; None where nothing is waited for."""
        if self.phase is Phase.OVER:
            return None
        if self.phase is not Phase.OPEN:
            return self._ends_at
        # All last equally long, so the first in the order of their asking is the first to end.
        return next((request.deadline for request in self._requests.values()), None)

    # ------------------------------------------------------------------ asking
    def register(self, message_id: str) -> RegisterFrame:
        """The first frame.

        Raises:
            OrbitError: the conversation is over.
        """
        self._require(Phase.DIALLING)
        self.phase = Phase.REGISTERING
        self._requests[message_id] = _Request(WelcomeFrame, self._ends_at)
        return RegisterFrame(message_id, self._subscription_id, self._capacity)

    def ack(self, message_id: str, proof: Proof, now: float) -> AckFrame:
        """The frame that acknowledges the hand-out of `proof`, on whatever connection that came.

        Raises:
            ConnectionBusy: too many requests are in flight.
            OrbitError: the conversation is over.
            ValueError: the proof is another subscription's, or the message id is not new.
        """
        if proof.subscription_id != self._subscription_id:
            raise ValueError("the proof is of another subscription")
        session_id = self._ask(message_id, _Request(ReceiptFrame, now + self._limits.request, proof))
        return AckFrame(session_id, message_id, proof.delivery_id, proof.generation, proof.secret)

    def ping(self, message_id: str, now: float) -> PingFrame:
        """The frame that asks whether all is well.

        Raises:
            ConnectionBusy: too many requests are in flight.
            OrbitError: the conversation is over.
            ValueError: the message id is not new.
        """
        return PingFrame(self._ask(message_id, _Request(PongFrame, now + self._limits.request)), message_id)

    def _ask(self, message_id: str, request: _Request) -> str:
        self._require(Phase.OPEN)
        assert self.welcome is not None  # noqa: S101 - open since then
        if message_id in self._requests:
            raise ValueError("a message id is used once")
        if len(self._requests) >= self._limits.in_flight:
            raise ConnectionBusy
        self._requests[message_id] = request
        return self.welcome.session_id

    def _require(self, phase: Phase) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)
        if self.phase is not phase:
            raise ValueError(f"this is not done while {self.phase.value}")

    # ------------------------------------------------------------------ being told
    def receive(self, text: str | bytes) -> Answer | None:
        """Take what arrived in one frame; None where it answers no request.

        Raises:
            OrbitProtocolError: it is not allowed, here or now; the conversation is over.
            UnreadOverflow: it is one delivery too many; the conversation is over.
            RequestRefused: the peer has ended the conversation.
            OrbitError: the conversation was over before.
        """
        frame: ServerFrame | OrbitProtocolError
        try:
            frame = decode_server(text)
        except OrbitProtocolError as error:
            frame = error
        del text  # or a traceback with variables would show it
        if self.error is not None:
            raise self.error.with_traceback(None)
        if isinstance(frame, OrbitProtocolError):
            raise self.fail(frame)
        return self._take(frame)

    def expire(self, now: float) -> None:
        """Take the time.

        Raises:
            HandshakeTimeout, RequestTimeout: something has waited too long; the conversation is over.
        """
        if self.deadline is not None and self.deadline <= now:
            raise self.fail(RequestTimeout() if self.phase is Phase.OPEN else HandshakeTimeout())

    def fail(self, error: OrbitError | None = None) -> OrbitError:
        """It is over, because of `error`, or because somebody here closes it; the first reason stays.

        Returns:
            The reason.
        """
        if self.error is None:
            self.error = error or ConnectionOver()
            self.phase = Phase.OVER
            self._requests.clear()
        return self.error.with_traceback(None)

    # ------------------------------------------------------------------ frames
    def _take(self, frame: ServerFrame) -> Answer | None:
        if isinstance(frame, WelcomeFrame):
            return self._take_welcome(frame)
        if self.welcome is not None and frame.session_id != self.welcome.session_id:
            raise self._broken("a frame of another session")
        if isinstance(frame, ErrorFrame):
            return self._take_error(frame)
        if self.welcome is None:
            raise self._broken("a frame before the welcome")
        if isinstance(frame, DeliveryFrame):
            self._take_delivery(frame)
            return None
        request = self._answered(frame.reply_to, type(frame))
        if isinstance(frame, ReceiptFrame):
            self._check_receipt(frame, request)
        return Answer(frame.reply_to, frame)

    def _take_welcome(self, frame: WelcomeFrame) -> Answer:
        if self.phase is not Phase.REGISTERING:
            raise self._broken("a welcome that nobody waits for")
        self._answered(frame.reply_to, WelcomeFrame)
        if (frame.subscription_id, frame.capacity) != (self._subscription_id, self._capacity):
            raise self._broken("a welcome to another subscription, or with another capacity")
        self.welcome, self.phase = frame, Phase.OPEN
        return Answer(frame.reply_to, frame)

    def _take_delivery(self, frame: DeliveryFrame) -> None:
        if frame.event.subscription_id != self._subscription_id:
            raise self._broken("a delivery of another subscription")
        if len(self.unread) >= self._capacity:
            raise self.fail(UnreadOverflow())
        self.unread.append(frame)

    def _take_error(self, frame: ErrorFrame) -> Answer:
        if frame.code is not ErrorCode.PROOF_LOST:
            refused = RequestRefused(frame.code)
            if frame.reply_to is None:
                raise self.fail(refused)
            self._answered(frame.reply_to)
            return Answer(frame.reply_to, refused)
        if frame.reply_to is None:
            raise self._broken("a proof is lost, and it is not said which")
        self._answered(frame.reply_to, ReceiptFrame)
        return Answer(frame.reply_to, ProofLost())

    def _answered(self, message_id: str, kind: type | None = None) -> _Request:
        """The request that is answered; it waits no longer."""
        request = self._requests.pop(message_id, None)
        if request is None:
            raise self._broken("an answer to what was not asked, or was answered before")
        if kind is not None and request.answered_by is not kind:
            raise self._broken("an answer of another kind than the question")
        return request

    def _check_receipt(self, frame: ReceiptFrame, request: _Request) -> None:
        proof = request.proof
        assert proof is not None  # noqa: S101 - an acknowledgement has one
        if (frame.delivery_id, frame.event_id, frame.generation) != (
            proof.delivery_id,
            proof.event_id,
            proof.generation,
        ):
            raise self._broken("a receipt for another delivery than was acknowledged")

    def _broken(self, reason: str) -> OrbitError:
        return self.fail(OrbitProtocolError(reason))
