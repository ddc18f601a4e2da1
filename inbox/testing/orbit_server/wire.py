"""Octets of the WebSocket protocol (RFC 6455) that no library writes, for it would be wrong to."""

from __future__ import annotations

import socket
import struct
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

__all__ = ["Cut", "Opcode", "cut", "raw_frame"]

_FINAL: Final = 0x80
_SHORT: Final = 125
_MEDIUM: Final = 65_535


class Opcode(IntEnum):
    """RFC 6455, 5.2."""

    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8


class Cut(StrEnum):
    """How a connection ends.

    Attributes:
        RESET: thrown away with what was under way (RST).
        FIN: the transport ends in order, without a word of the WebSocket protocol.
        CLOSE: a close frame with code 1012, "service restart", and the transport's end.
    """

    RESET = "reset"
    FIN = "fin"
    CLOSE = "close"


def raw_frame(payload: bytes, opcode: Opcode = Opcode.TEXT, *, is_final: bool = True) -> bytes:
    """One frame as a server writes it: "A server MUST NOT mask any frames that it sends to the client" (5.1)."""
    head = bytes([(_FINAL if is_final else 0) | opcode])
    size = len(payload)
    if size <= _SHORT:
        return head + bytes([size]) + payload
    if size <= _MEDIUM:
        return head + struct.pack("!BH", 126, size) + payload
    return head + struct.pack("!BQ", 127, size) + payload


def cut(transport: asyncio.Transport, how: Cut) -> None:
    """End a connection at once. What was written before still goes out, but for RESET."""
    if how is Cut.RESET:
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None:
            # "l_onoff non-zero, l_linger zero": close() sends RST (socket(7)).
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
        return
    if how is Cut.CLOSE:
        transport.write(raw_frame(struct.pack("!H", 1012), Opcode.CLOSE))
    transport.close()
