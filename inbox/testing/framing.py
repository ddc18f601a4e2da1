"""Where one packet ends and the next begins, on the links that a fault proxy stands in.

Just enough of the wire: MySQL's packets (MySQL manual, "MySQL Packets": three octets of length, one of sequence, zero
for a new command) and AMQP 0-9-1's frames (specification, 2.3.5). Inside TLS nothing is told apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AmqpFraming",
    "ByteFraming",
    "Frame",
    "Framing",
    "MySqlFraming",
    "begins_with",
    "is_amqp_ack",
    "is_commit",
]


@dataclass(frozen=True, slots=True, repr=False)
class Frame:
    """One piece that a client or a server sent.

    Attributes:
        raw: its bytes, as they are passed on.
        command: what a client asks; empty where it is no command. MySQL: the command's octet and its
            argument. AMQP: the payload of a method frame, class and method first.
    """

    raw: bytes
    command: bytes = b""


class Framing(Protocol):
    """Splits one client's bytes into frames."""

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes. What is incomplete is kept for the next call."""
        ...

    def answers(self) -> Framing:
        """How to split what the server sends on the same connection."""
        ...


class ByteFraming:
    """No protocol: each chunk as it came."""

    def feed(self, data: bytes) -> list[Frame]:
        """One frame, which is no command."""
        return [Frame(data)]

    def answers(self) -> ByteFraming:
        """The same."""
        return ByteFraming()


class MySqlFraming:
    """MySQL's client packets, until the client turns to TLS."""

    _HEADER = 4
    #: An SSLRequest is the only first packet of 32 octets (MySQL manual, "Protocol::SSLRequest").
    _SSL_REQUEST = 32

    def __init__(self) -> None:
        self._rest = b""
        self._opaque = False

    def feed(self, data: bytes) -> list[Frame]:
        """Whole packets. Only one with sequence 0 begins a command."""
        self._rest += data
        frames: list[Frame] = []
        while not self._opaque and len(self._rest) >= self._HEADER:
            size = self._HEADER + int.from_bytes(self._rest[:3], "little")
            if len(self._rest) < size:
                return frames
            raw, self._rest = self._rest[:size], self._rest[size:]
            sequence, payload = raw[3], raw[self._HEADER :]
            self._opaque = sequence == 1 and len(payload) == self._SSL_REQUEST
            frames.append(Frame(raw, payload if sequence == 0 else b""))
        if self._opaque and self._rest:
            frames.append(Frame(self._rest))
            self._rest = b""
        return frames

    def answers(self) -> Framing:
        """Whole packets too, until the client turns to TLS."""
        return _MySqlAnswers(self)

    @property
    def is_opaque(self) -> bool:
        """Whether the client has turned to TLS."""
        return self._opaque


class _MySqlAnswers:
    """A server's packets. It answers an SSLRequest with the first octets of TLS, and with no packet."""

    _HEADER = 4

    def __init__(self, client: MySqlFraming) -> None:
        self._client = client
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        self._rest += data
        frames: list[Frame] = []
        while not self._client.is_opaque and len(self._rest) >= self._HEADER:
            size = self._HEADER + int.from_bytes(self._rest[:3], "little")
            if len(self._rest) < size:
                return frames
            frames.append(Frame(self._rest[:size]))
            self._rest = self._rest[size:]
        if self._client.is_opaque and self._rest:
            frames.append(Frame(self._rest))
            self._rest = b""
        return frames

    def answers(self) -> Framing:
        return self._client


class AmqpFraming:
    """AMQP 0-9-1: the protocol header of eight octets, then frames."""

    _METHOD = 1
    _GREETING = 8
    _HEADER = 7

    def __init__(self, *, greeted: bool = False) -> None:
        self._rest = b""
        self._greeted = greeted

    def feed(self, data: bytes) -> list[Frame]:
        """Whole frames; those that carry a method are commands."""
        self._rest += data
        frames = []
        if not self._greeted and len(self._rest) >= self._GREETING:
            self._greeted = True
            frames.append(self._take(self._GREETING))
        while self._greeted and len(self._rest) >= self._HEADER:
            size = self._HEADER + int.from_bytes(self._rest[3:7], "big") + 1
            if len(self._rest) < size:
                break
            frames.append(self._take(size))
        return frames

    def answers(self) -> AmqpFraming:
        """Frames from the first octet on: a broker sends the header only to refuse a protocol (2.2.4)."""
        return AmqpFraming(greeted=True)

    def _take(self, size: int) -> Frame:
        raw, self._rest = self._rest[:size], self._rest[size:]
        return Frame(raw, raw[self._HEADER : -1] if raw[0] == self._METHOD else b"")


def is_commit(command: bytes) -> bool:
    """Whether a MySQL command is the text COMMIT, in any case, alone in its packet."""
    return command[:1] == b"\x03" and command[1:].strip(b" \t\r\n;").upper() == b"COMMIT"


def begins_with(keyword: str) -> Callable[[bytes], bool]:
    """A test for MySQL queries whose text begins with `keyword`, in any case."""
    wanted = keyword.upper().encode()
    return lambda command: command[:1] == b"\x03" and command[1:].lstrip().upper().startswith(wanted)


def is_amqp_ack(command: bytes) -> bool:
    """Whether an AMQP command is basic.ack (class 60, method 80)."""
    return command[:4] == b"\x00\x3c\x00\x50"
