"""What can happen to a leased subscription, split by whether trying again can help.

```
TransportError
├── OrbitError                nothing of it says anything about an event
│   ├── OrbitProtocolError      stop: the peer, or we, broke the protocol
│   │   └── FrameTooLong          more than 512 KiB in one text frame
│   ├── ConnectionBusy          32 requests are in flight; nothing was sent
│   ├── ConnectionLost          again: the network, or the peer, has ended the connection
│   │   ├── HandshakeTimeout      it was not there within 8 seconds
│   │   ├── RequestTimeout        a request was not answered within 10 seconds
│   │   └── UnreadOverflow        more deliveries than were asked for, and nobody read them
│   ├── ConnectionOver          it was closed here
│   ├── PeerNotTrusted          stop: its certificate is not to be trusted
│   ├── HandshakeRefused        the peer answered the upgrade with an HTTP status
│   ├── RequestRefused          the peer answered with an error frame
│   │   └── ProofLost             a later generation has replaced the proof
│   └── SubscriptionStopped     the consumer has ended for good; `kind` says why
│       └── SubscriptionRefused   it could not even begin (a StartupError, too)
└── StopTimeout
    └── ShutdownTimeout         the time for stopping was over; `unconfirmed` and `running` say what was left
```
"""

from __future__ import annotations

from enum import Enum

from inbox.errors import StartupError, StopTimeout, TransportError


class StopKind(Enum):
    """Why a subscription cannot go on."""

    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    NOT_FOUND = "not-found"
    HISTORY_GAP = "history-gap"
    PROTOCOL = "protocol"
    OTHER = "other"


class ErrorCode(Enum):
    """What an error frame says. `PROOF_LOST`: a later generation has replaced the proof."""

    PROOF_LOST = "PROOF_LOST"
    UNAVAILABLE = "UNAVAILABLE"
    BUSY = "BUSY"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    HISTORY_GAP = "HISTORY_GAP"
    PROTOCOL = "PROTOCOL"
    INTERNAL = "INTERNAL"


class OrbitError(TransportError):
    """Root of what this adapter raises. No message carries a text of the peer's, an id or a secret.

    Attributes:
        kind: why trying again cannot help; None where it may.
    """

    kind: StopKind | None = None


class OrbitProtocolError(OrbitError):
    """A frame that the protocol does not allow, here or now. The connection is closed, and nothing was confirmed.

    Args:
        reason: what is wrong, in words of ours.
    """

    kind = StopKind.PROTOCOL

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the subscription protocol was broken: {reason}")


class FrameTooLong(OrbitProtocolError):
    """A text frame of more than 512 KiB."""

    def __init__(self) -> None:
        super().__init__("a frame is longer than 512 KiB")


class ConnectionBusy(OrbitError):
    """As many requests as are allowed are in flight; this one was not sent."""

    def __init__(self) -> None:
        super().__init__("32 requests are in flight on this connection; this one was not sent")


class ConnectionLost(OrbitError):
    """The connection has ended, or could not be had. Connecting again is right.

    Args:
        why: in words of ours.
    """

    def __init__(self, why: str = "the connection to the subscription was lost") -> None:
        super().__init__(why)


class HandshakeTimeout(ConnectionLost):
    """TCP, TLS, the upgrade and the welcome together took too long."""

    def __init__(self) -> None:
        super().__init__("the handshake with the subscription took too long")


class RequestTimeout(ConnectionLost):
    """A request was not answered in time. A late answer could be taken for another's, so the connection is closed."""

    def __init__(self) -> None:
        super().__init__("a request on the subscription's connection was not answered in time")


class UnreadOverflow(ConnectionLost):
    """The peer has handed out more deliveries than were asked for while nobody read them."""

    def __init__(self) -> None:
        super().__init__("more deliveries came than were asked for, and nobody read them")


class ConnectionOver(OrbitError):
    """The connection was closed here."""

    def __init__(self) -> None:
        super().__init__("the connection to the subscription is closed")


class PeerNotTrusted(OrbitError):
    """The platform's certificate is not to be trusted. Nothing was sent to it."""

    kind = StopKind.OTHER

    def __init__(self) -> None:
        super().__init__("the platform's certificate is not trusted: set tls_ca where it has an authority of its own")


#: What an HTTP status before the upgrade means. What is not here, and no reason to try again, is OTHER.
_STATUSES = {401: StopKind.AUTHENTICATION, 403: StopKind.PERMISSION, 404: StopKind.NOT_FOUND}
_PASSING_STATUSES = frozenset({408, 429, *range(500, 600)})


class HandshakeRefused(OrbitError):
    """The peer answered the upgrade with an HTTP status.

    Args:
        status: three digits.
    """

    def __init__(self, status: int) -> None:
        self.status = status
        self.kind = None if status in _PASSING_STATUSES else _STATUSES.get(status, StopKind.OTHER)
        super().__init__(f"the platform answered the connection to the subscription with HTTP status {status}")


#: What an error frame means. What is not here is OTHER.
_CODES: dict[ErrorCode, StopKind | None] = {
    ErrorCode.PROOF_LOST: None,
    ErrorCode.UNAVAILABLE: None,
    ErrorCode.BUSY: None,
    ErrorCode.UNAUTHENTICATED: StopKind.AUTHENTICATION,
    ErrorCode.FORBIDDEN: StopKind.PERMISSION,
    ErrorCode.NOT_FOUND: StopKind.NOT_FOUND,
    ErrorCode.HISTORY_GAP: StopKind.HISTORY_GAP,
    ErrorCode.PROTOCOL: StopKind.PROTOCOL,
}


class RequestRefused(OrbitError):
    """The peer answered with an error frame, or ended the connection with one.

    Args:
        code: its code.
    """

    def __init__(self, code: ErrorCode) -> None:
        self.code = code
        self.kind = _CODES.get(code, StopKind.OTHER)
        super().__init__(f"the platform answered {code.value}")


class ProofLost(RequestRefused):
    """A later generation has replaced the proof that was shown."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.PROOF_LOST)


class SubscriptionStopped(OrbitError):
    """The subscription cannot go on; the cause is what happened. What was committed stays so, and comes again.

    Args:
        kind: why.
    """

    kind: StopKind

    def __init__(self, kind: StopKind) -> None:
        self.kind = kind
        super().__init__(f"the subscription cannot go on ({kind.value}): {_ADVICE[kind]}")


class SubscriptionRefused(SubscriptionStopped, StartupError):
    """The subscription could not begin. Nothing was consumed."""


_ADVICE = {
    StopKind.AUTHENTICATION: "the platform does not know the credential; give it one that is valid",
    StopKind.PERMISSION: "the credential may not use this subscription; it belongs to the one that made it",
    StopKind.NOT_FOUND: "there is no such subscription; make it with the management API",
    StopKind.HISTORY_GAP: "events are missing between what it has seen and what is there; the management API has to "
    "say where it goes on",
    StopKind.PROTOCOL: "the platform speaks another protocol than this one; the versions have to fit",
    StopKind.OTHER: "the platform will not serve it; its own log says why",
}


class ShutdownTimeout(StopTimeout):
    """The time for stopping was over. Nothing is claimed about what the handlers that still run have done.

    Attributes:
        unconfirmed: events known here whose acknowledgement is not confirmed. They come again.
        running: handlers that have not come back.
    """

    def __init__(self, unconfirmed: int, running: int, handlers: tuple[str, ...] = ()) -> None:
        self.unconfirmed = unconfirmed
        self.running = running
        super().__init__(
            handlers,
            f"the time for stopping is over: {unconfirmed} events are not confirmed, {running} handlers still run",
        )
