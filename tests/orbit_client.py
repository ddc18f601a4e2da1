"""A client of the subscription protocol made of a socket and nothing else: it does what a script tells it.

It shares no code with the adapter and no library with the server, so that neither can hide a mistake of the other.
"""

import asyncio
import base64
import json
import os
import ssl
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

SUBPROTOCOL = "orbit.events.v1"
PATIENCE = 10.0
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA


def new_id() -> str:
    return os.urandom(16).hex()


class Refused(Exception):
    """The upgrade was answered with something else than 101."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        super().__init__(str(status))


class Gone(Exception):
    """The connection is at its end; `code` is that of the close frame, None where there was none."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code
        super().__init__(f"close code {code}")


@dataclass(frozen=True)
class Wire:
    """One frame as it came."""

    opcode: int
    payload: bytes
    is_final: bool
    is_masked: bool


class RawClient:
    """One connection, not yet registered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.session = ""

    @classmethod
    async def connect(
        cls,
        url: str,
        credential: str | None,
        *,
        protocol: str | None = SUBPROTOCOL,
        tls: ssl.SSLContext | None = None,
    ) -> Self:
        """Raises Refused."""
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=tls)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {place.path} HTTP/1.1",
            f"Host: {place.netloc}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        if protocol is not None:
            lines.append(f"Sec-WebSocket-Protocol: {protocol}")
        if credential is not None:
            lines.append(f"Authorization: Bearer {credential}")
        writer.write("\r\n".join([*lines, "", ""]).encode())
        try:
            async with asyncio.timeout(PATIENCE):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except asyncio.IncompleteReadError:
            writer.close()
            raise Gone from None
        except ConnectionError:
            writer.close()
            raise Gone from None
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:-2])}
        status = int(head[0].split()[1])
        if status != 101:
            writer.close()
            raise Refused(status, headers)
        assert headers["sec-websocket-protocol"] == SUBPROTOCOL
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()

    def cut(self) -> None:
        """Leave without a word."""
        self._writer.transport.abort()

    # ---------------------------------------------------------------- frames
    async def wire(self) -> Wire:
        """The next frame; raises Gone, and TimeoutError where nothing comes."""
        try:
            async with asyncio.timeout(PATIENCE):
                first, second = await self._reader.readexactly(2)
                size = second & 0x7F
                if size >= 126:
                    kind = "!H" if size == 126 else "!Q"
                    (size,) = struct.unpack(kind, await self._reader.readexactly(struct.calcsize(kind)))
                if second & 0x80:
                    await self._reader.readexactly(4)
                payload = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.cut()
            raise Gone from None
        frame = Wire(first & 0x0F, payload, bool(first & 0x80), bool(second & 0x80))
        if frame.opcode == CLOSE:
            self.write(payload[:2], CLOSE)
            self._writer.close()
            raise Gone(struct.unpack("!H", payload[:2])[0] if payload else None)
        return frame

    def write(self, payload: bytes, opcode: int = TEXT) -> None:
        """One frame, masked with zeros."""
        size = len(payload)
        if size < 126:
            head = bytes([0x80 | opcode, 0x80 | size])
        elif size < 1 << 16:
            head = bytes([0x80 | opcode, 0x80 | 126]) + struct.pack("!H", size)
        else:
            head = bytes([0x80 | opcode, 0x80 | 127]) + struct.pack("!Q", size)
        self._writer.write(head + bytes(4) + payload)

    def send(self, **members: object) -> None:
        self.write(json.dumps(members).encode())

    async def text(self) -> str:
        frame = await self.wire()
        assert (frame.opcode, frame.is_final, frame.is_masked) == (TEXT, True, False)
        return frame.payload.decode()

    async def receive(self, kind: str | None = None) -> dict[str, Any]:
        """The next frame's members; it must be of that type."""
        members: dict[str, Any] = json.loads(await self.text())
        assert kind is None or members["type"] == kind, members
        if "session_id" in members and self.session:
            assert members["session_id"] == self.session
        return members

    async def is_silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for so long: the absence of a fact cannot be waited for."""
        try:
            async with asyncio.timeout(seconds):
                await self._reader.readexactly(1)
        except TimeoutError:
            return True
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        return False

    # ---------------------------------------------------------------- what a client says
    async def register(self, subscription: str, capacity: int = 4) -> dict[str, Any]:
        message = new_id()
        self.send(type="register", message_id=message, subscription_id=subscription, capacity=capacity)
        welcome = await self.receive("welcome")
        assert (welcome["reply_to"], welcome["subscription_id"]) == (message, subscription)
        assert welcome["capacity"] == capacity
        self.session = welcome["session_id"]
        return welcome

    def send_ack(self, delivery: dict[str, Any], **other: object) -> str:
        """Acknowledge the `delivery` of a delivery's frame; `other` members replace those that are right."""
        message, proof = new_id(), delivery["delivery"]
        members = {
            "type": "ack",
            "session_id": self.session,
            "message_id": message,
            "delivery_id": proof["id"],
            "generation": proof["generation"],
            "secret": proof["secret"],
        }
        self.send(**{**members, **other})
        return message

    async def ack(self, delivery: dict[str, Any], **other: object) -> dict[str, Any]:
        message = self.send_ack(delivery, **other)
        receipt = await self.receive("ack_receipt")
        proof = delivery["delivery"]
        assert (receipt["reply_to"], receipt["delivery_id"], receipt["event_id"], receipt["generation"]) == (
            *(message, proof["id"], delivery["event"]["id"], proof["generation"]),
        )
        return receipt

    def send_ping(self) -> str:
        message = new_id()
        self.send(type="ping", session_id=self.session, message_id=message)
        return message

    async def ping(self) -> bool:
        message = self.send_ping()
        pong = await self.receive("pong")
        assert pong["reply_to"] == message
        return bool(pong["enabled"])

    async def refusal(self, message: str | None) -> str:
        """The code of the error that answers `message`."""
        error = await self.receive("error")
        assert error["reply_to"] == message
        return str(error["code"])

    async def end(self) -> int | None:
        """The close code, once the connection is at its end; None where it was cut."""
        while True:
            try:
                await self.wire()
            except Gone as gone:
                return gone.code
