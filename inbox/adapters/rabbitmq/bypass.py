"""Deliveries on their way past the client library, which passes each through three objects, two queues and a task.

aiormq reads its connection frame by frame, through a `FrameReceiver`. The one here takes the frames of deliveries out
of the stream, of channels that ask for it, and gives every other frame to aiormq, byte for byte and in order: it opens
and closes, logs in, answers and settles as ever. Where a release of aiormq has no such class, or does not use it, every
delivery goes through aiormq as well.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, cast

import aiormq.connection

from inbox.adapters.rabbitmq.content import DELIVER, Content, Message, content_of, route_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Bypass"]

_FRAME: Final = struct.Struct(">BHI")  # type, channel, size: AMQP 0-9-1, 4.2.3
_METHOD, _HEADER, _BODY = 1, 2, 3
_FRAME_END: Final = 0xCE
#: A heartbeat (AMQP 0-9-1, 4.2.7): the library takes the time of its last frame for the peer's last sign of life.
_HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_READ_SIZE: Final = 64 << 10  # octets


class Bypass:
    """What one connection delivers on the channels that ask for it.

    ```python
    bypass = Bypass()
    with bypass.open():
        connection = await aio_pika.connect(url)
    bypass.take(channel.number, sink)
    ```
    """

    def __init__(self) -> None:
        self._channels: dict[int, _Channel] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Stand in the way of what is connected in this block, by this task or one that it starts."""
        _install()
        before = _BYPASS.set(self)
        try:
            yield
        finally:
            _BYPASS.reset(before)

    def take(self, channel: int, sink: Callable[[Message], None]) -> None:
        """Give the deliveries of a channel to `sink`, which must not raise; before anything is consumed on it.

        Args:
            channel: its number.
            sink: called on the event loop.
        """
        self._channels[channel] = _Channel(sink)

    def forget(self, channel: int) -> None:
        """Leave its deliveries to the client library. May be called twice."""
        self._channels.pop(channel, None)

    @property
    def is_used(self) -> bool:
        """Whether a channel asks for its deliveries."""
        return bool(self._channels)

    def takes(self, kind: int, channel: int, payload: bytes) -> bool:
        """Take one frame, if it is part of a delivery of such a channel."""
        taking = self._channels.get(channel)
        return taking is not None and taking.takes(kind, payload)


class _Channel:
    """The delivery that a channel is in the midst of.

    Args:
        sink: takes the whole ones.
    """

    __slots__ = ("_content", "_deliver", "_left", "_pieces", "_sink")

    def __init__(self, sink: Callable[[Message], None]) -> None:
        self._sink = sink
        self._deliver: bytes | None = None
        self._content: Content | None = None
        self._pieces: list[bytes] = []
        self._left = 0

    def takes(self, kind: int, payload: bytes) -> bool:
        """See `Bypass.takes`.

        Raises:
            ValueError: the frames are in another order than AMQP 0-9-1, 4.2.6, has them in. The connection ends with
                it: nobody could tell any more which body is whose.
        """
        if kind == _METHOD:
            if not payload.startswith(DELIVER):
                return False
            _require(self._deliver is None)
            self._deliver = payload
            return True
        if self._deliver is None:
            return False
        if kind == _HEADER:
            _require(self._content is None)
            content = self._content = content_of(payload)
            self._left = content.size
        else:
            _require(kind == _BODY and self._content is not None)
            content = cast("Content", self._content)
            self._pieces.append(payload)
            self._left -= len(payload)
        if self._left <= 0:
            self._hand_over(self._deliver, content)
        return True

    def _hand_over(self, deliver: bytes, content: Content) -> None:
        pieces = self._pieces
        self._deliver, self._content, self._pieces = None, None, []
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._sink(Message(route_of(deliver), content, body))


def _require(is_next: bool) -> None:
    if not is_next:
        raise ValueError("the frames of a delivery are out of order")


_BYPASS: ContextVar[Bypass | None] = ContextVar("inbox_bypass", default=None)


def _install() -> None:
    """Let aiormq ask here for the receiver of a new connection, once for the process.

    Whoever connects outside of a `Bypass.open` gets aiormq's own.
    """
    stock: Any = getattr(aiormq.connection, "FrameReceiver", None)
    if not isinstance(stock, type) or not hasattr(stock, "get_frame"):
        return

    class Receiver(_Receiver, stock):  # type: ignore[misc]  # whatever it is in the release at hand
        """See `_Receiver`."""

    def receiver(reader: asyncio.StreamReader) -> Any:
        bypass = _BYPASS.get()
        return stock(reader) if bypass is None else Receiver(reader, bypass)

    aiormq.connection.FrameReceiver = receiver  # type: ignore[misc, assignment]


class _Receiver:
    """aiormq's receiver, which reads what is left for it. Stands before aiormq's class in the bases.

    Until a channel asks for its deliveries it is aiormq's, frame by frame, so that it begins with a whole one.

    Args:
        reader: of the connection.
        bypass: takes what is not for aiormq.
    """

    reader: asyncio.StreamReader

    def __init__(self, reader: asyncio.StreamReader, bypass: Bypass) -> None:
        super().__init__(reader)  # type: ignore[call-arg]  # aiormq's
        self._bypass = bypass
        self._source: asyncio.StreamReader | None = None
        self._data = b""
        self._at = 0
        self._has_taken = False

    async def get_frame(self) -> Any:
        """The next frame for aiormq."""
        if self._source is None and self._bypass.is_used:
            self._source, self.reader = self.reader, asyncio.StreamReader()
        if self._source is not None:
            await self._pass_next(self._source)
        return await super().get_frame()  # type: ignore[misc]  # aiormq's

    async def _pass_next(self, source: asyncio.StreamReader) -> None:
        """Take deliveries until there is a frame for aiormq, or no more to come."""
        while True:
            if self._passes_one():
                return
            if self._has_taken:
                self._has_taken = False
                self.reader.feed_data(_HEARTBEAT)
                return
            try:
                chunk = await source.read(_READ_SIZE)
            except OSError as error:
                self.reader.set_exception(error)
                return
            if not chunk:
                self.reader.feed_data(self._data[self._at :])
                # Not at once: aiormq would take an end that it finds, and did not wait for, for a tidy one.
                asyncio.get_running_loop().call_soon(self.reader.feed_eof)
                return
            self._data, self._at = self._data[self._at :] + chunk, 0

    def _passes_one(self) -> bool:
        """Take whole frames up to the first that is for aiormq, and give it that; False where there is none."""
        data, at = self._data, self._at
        try:
            while len(data) - at >= _FRAME.size:
                kind, channel, size = _FRAME.unpack_from(data, at)
                payload_at = at + _FRAME.size
                end = payload_at + size + 1  # behind the octet that ends a frame
                if end > len(data):
                    return False
                begin, at = at, end
                is_whole = data[end - 1] == _FRAME_END
                if not (is_whole and self._bypass.takes(kind, channel, data[payload_at : end - 1])):
                    self.reader.feed_data(data[begin:end])
                    return True
                self._has_taken = True
            return False
        finally:
            self._at = at
