"""A TCP proxy that fails on purpose, at chosen bytes, between a program and its server.

It stands on loopback in front of a MySQL, MariaDB or RabbitMQ server and passes every byte on until told
otherwise. It understands just enough of the wire to know one packet from the next (`inbox.testing.framing`). Inside
TLS it sees nothing and passes bytes only.

```python
async with FaultProxy("127.0.0.1", 3306, framing=MySqlFraming) as proxy:
    trap = proxy.trap(is_commit, Catch.HOLD_ANSWER)
    worker = await start_worker(proxy.port)      # a child process is as good as a task
    await trap.wait(timeout=10)                  # COMMIT was sent and is durable; its answer was not read
    worker.kill()
```

Where no command is meant but a position, count the packets of an undisturbed run (`traffic`), and then break each in
turn: `proxy.break_at(Direction.TO_CLIENT, 3, Fault.CUT_INSIDE)`.

Everything runs on the event loop that entered the proxy; nothing here is safe to call from another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Self

from inbox.testing.framing import (
    AmqpFraming,
    ByteFraming,
    Frame,
    Framing,
    MySqlFraming,
    begins_with,
    is_amqp_ack,
    is_commit,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = [
    "AmqpFraming",
    "Break",
    "ByteFraming",
    "Catch",
    "Cut",
    "Direction",
    "Fault",
    "FaultProxy",
    "Frame",
    "Framing",
    "Link",
    "MySqlFraming",
    "Traffic",
    "Trap",
    "begins_with",
    "is_amqp_ack",
    "is_commit",
]

_CHUNK = 1 << 16
#: Pieces a second that a slow link passes on.
_PIECES = 50


class Direction(Enum):
    """Which way bytes go."""

    TO_SERVER = "to-server"
    TO_CLIENT = "to-client"


class Cut(Enum):
    """How a connection ends: in order (FIN), or thrown away with what was under way (RST)."""

    FIN = "fin"
    RESET = "reset"


class Catch(Enum):
    """What a trap does to the command it catches.

    Attributes:
        HOLD_COMMAND: keep it back; `Trap.release` passes it on.
        HOLD_ANSWER: pass it on and keep the answer back; reached when the server *has* answered, so
            that a COMMIT is durable and not read. `Trap.release` passes the answer on.
        LOSE_ANSWER: pass it on, wait for the answer, and reset the client's connection instead.
        SWALLOW: drop it. The server's session stays alive, its transaction open, whatever the
            client does, until the link is cut.
        CUT: reset both connections instead of passing it on.
        CUT_AFTER: pass it on whole, end the server's connection in order behind it, and reset the client's: whether
            the server has done what it asks, nobody can say.
    """

    HOLD_COMMAND = "hold-command"
    HOLD_ANSWER = "hold-answer"
    LOSE_ANSWER = "lose-answer"
    SWALLOW = "swallow"
    CUT = "cut"
    CUT_AFTER = "cut-after"


class Fault(Enum):
    """What happens to one packet, known by its position alone.

    Attributes:
        CUT_BEFORE: reset both connections instead of passing it on.
        CUT_INSIDE: pass half of its octets on, then end whoever got them and reset who sent it.
        CUT_AFTER: the same with the whole of it.
        SILENCE: pass neither it nor anything behind it on, either way, until `Link.resume` or `Link.cut`: a black hole.
    """

    CUT_BEFORE = "cut-before"
    CUT_INSIDE = "cut-inside"
    CUT_AFTER = "cut-after"
    SILENCE = "silence"


# ------------------------------------------------------------------ counting
@dataclass(slots=True)
class Traffic:
    """What went through, for tests that hold a promise about it. Two can be subtracted.

    Attributes:
        connections: accepted from clients.
        packets: frames from clients, log-in included.
        answers: frames from servers, likewise.
        commands: those of `packets` that are commands.
        round_trips: commands sent when the server had answered since the last one; two commands
            written together are one round trip.
    """

    connections: int = 0
    packets: int = 0
    answers: int = 0
    commands: int = 0
    round_trips: int = 0

    def __sub__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.connections - other.connections,
            self.packets - other.packets,
            self.answers - other.answers,
            self.commands - other.commands,
            self.round_trips - other.round_trips,
        )

    def copy(self) -> Traffic:
        """These counts, to subtract later."""
        return self - Traffic()

    def sent(self, direction: Direction) -> int:
        """Frames that went this way."""
        return self.packets if direction is Direction.TO_SERVER else self.answers


# ------------------------------------------------------------------ traps
class Trap:
    """Waits for one command, on whichever connection it comes, and deals with it once.

    Made by `FaultProxy.trap`.
    """

    def __init__(self, matches: Callable[[bytes], bool], catch: Catch, number: int = 1) -> None:
        self.matches = matches
        self.catch = catch
        self._left = number
        #: The connection it was caught on; None until then.
        self.link: Link | None = None
        self.reached = asyncio.Event()
        self.released = asyncio.Event()

    async def wait(self, timeout: float = 10.0) -> Link:  # noqa: ASYNC109 - a test's patience, not a cancel scope
        """Wait until it has caught its command.

        Args:
            timeout: seconds.

        Returns:
            The connection.

        Raises:
            TimeoutError: the command did not come.
        """
        async with asyncio.timeout(timeout):
            await self.reached.wait()
        assert self.link is not None  # noqa: S101 - set before `reached`
        return self.link

    def springs(self, command: bytes) -> bool:
        """Whether it is this command that it waits for. Called by the proxy, once for each."""
        self._left -= self.matches(command)
        return self._left == 0

    def release(self) -> None:
        """Let pass what is held. Does nothing to what was swallowed or cut."""
        self.released.set()


class Break:
    """Waits for one packet by its position, on whichever connection it comes, and fails there once.

    Made by `FaultProxy.break_at`.
    """

    def __init__(self, direction: Direction, number: int, fault: Fault) -> None:
        self.direction = direction
        self.fault = fault
        self._left = number
        #: The connection that it broke; None until then.
        self.link: Link | None = None
        self.reached = asyncio.Event()

    def passes(self, direction: Direction) -> bool:
        """Count one packet; whether it is the one. Called by the proxy."""
        if direction is self.direction:
            self._left -= 1
        return direction is self.direction and self._left == 0


# ------------------------------------------------------------------ one connection
@dataclass(slots=True)
class _Side:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def end(self, how: Cut) -> None:
        if how is Cut.RESET:
            # Lingering for zero seconds makes close() send RST and drop what is unsent (socket(7), SO_LINGER).
            sock = self.writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        else:
            self.writer.close()


class Link:
    """One client's connection and its own connection to the server."""

    def __init__(self, proxy: FaultProxy, client: _Side, server: _Side) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._framing = proxy.framing()
        self._answers = self._framing.answers()
        self._gates = {direction: asyncio.Event() for direction in Direction}
        self._answering: Trap | None = None
        self._answered = True
        self._orphaned = False
        self._cut = asyncio.Event()
        #: Set when both sides are closed.
        self.ended = asyncio.Event()
        for direction in Direction:
            if direction not in proxy.stalled:
                self._gates[direction].set()

    @property
    def server_port(self) -> int:
        """The local port from which the proxy reaches the server: what its process list shows."""
        return int(self._server.writer.get_extra_info("sockname")[1])

    def stall(self, *directions: Direction) -> None:
        """Pass nothing on in these directions (both, where none is named), not even an end.

        The connection is then half-open: each side believes that the other is silent.
        """
        for direction in directions or Direction:
            self._gates[direction].clear()

    def resume(self, *directions: Direction) -> None:
        """Pass on again, first what was kept."""
        for direction in directions or Direction:
            self._gates[direction].set()

    def cut(self, how: Cut = Cut.RESET) -> None:
        """End both connections now."""
        self._client.end(how)
        self._server.end(how)
        self._cut.set()

    def cut_client(self, how: Cut = Cut.RESET) -> None:
        """End the client's connection only; the server's session stays, its transaction open."""
        self._orphaned = True
        self._client.end(how)

    async def run(self) -> None:
        """Pass bytes both ways until an end. Called by the proxy."""
        pumps = [asyncio.ensure_future(pump) for pump in (self._to_server(), self._to_client())]
        cut = asyncio.ensure_future(self._cut.wait())
        try:
            await asyncio.wait([*pumps, cut], return_when=asyncio.FIRST_COMPLETED)
            if self._orphaned:
                self._client.end(Cut.FIN)
                await cut
        finally:
            for task in (*pumps, cut):
                task.cancel()
            # Before anything is waited for: this may be cancelled too.
            self.cut(Cut.FIN)
            self.ended.set()
            await asyncio.gather(*pumps, cut, return_exceptions=True)

    async def _to_server(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._client.reader.read(_CHUNK):
                await self._proxy.pause()
                for frame in self._framing.feed(data):
                    self._count(frame)
                    if await self._breaks(Direction.TO_SERVER, frame.raw):
                        return
                    await self._pass(frame)
        # An end is passed on like a byte: a half-open link does not tell of it.
        await self._gates[Direction.TO_SERVER].wait()

    async def _pass(self, frame: Frame) -> None:
        trap = self._proxy.spring(frame.command) if frame.command else None
        if trap is not None:
            trap.link = self
            if trap.catch in (Catch.HOLD_ANSWER, Catch.LOSE_ANSWER):
                self._answering = trap
            elif trap.catch is not Catch.CUT_AFTER and await self._keep(trap):
                return
        await self._gates[Direction.TO_SERVER].wait()
        await self._proxy.write(self._server.writer, frame.raw)
        if trap is not None and trap.catch is Catch.CUT_AFTER:
            self._end(reset=self._client, finish=self._server)
            trap.reached.set()

    async def _keep(self, trap: Trap) -> bool:
        """Deal with a command that is not passed on, or not yet; whether it is done with."""
        self._orphaned = self._orphaned or trap.catch is Catch.SWALLOW
        if trap.catch is Catch.CUT:
            self.cut(Cut.RESET)
        trap.reached.set()
        if trap.catch is Catch.HOLD_COMMAND:
            await trap.released.wait()
            return False
        return True

    async def _to_client(self) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await self._server.reader.read(_CHUNK):
                await self._proxy.pause()
                self._answered = True
                await self._hold()
                for frame in self._answers.feed(data):
                    self._proxy.traffic.answers += 1
                    if await self._breaks(Direction.TO_CLIENT, frame.raw):
                        return
                    await self._gates[Direction.TO_CLIENT].wait()
                    await self._proxy.write(self._client.writer, frame.raw)
        await self._gates[Direction.TO_CLIENT].wait()

    async def _hold(self) -> None:
        trap, self._answering = self._answering, None
        if trap is None:
            return
        if trap.catch is Catch.LOSE_ANSWER:
            self.cut(Cut.RESET)
        trap.reached.set()
        if trap.catch is Catch.HOLD_ANSWER:
            await trap.released.wait()

    async def _breaks(self, direction: Direction, raw: bytes) -> bool:
        """Deal with a packet at whose position something is to fail; whether the connection is done with."""
        due = self._proxy.due(direction)
        if due is None:
            return False
        due.link = self
        sender, receiver = self._client, self._server
        if direction is Direction.TO_CLIENT:
            sender, receiver = receiver, sender
        match due.fault:
            case Fault.SILENCE:
                self.stall()
            case Fault.CUT_BEFORE:
                self.cut(Cut.RESET)
            case Fault.CUT_INSIDE | Fault.CUT_AFTER:
                receiver.writer.write(raw if due.fault is Fault.CUT_AFTER else raw[: len(raw) // 2])
                self._end(reset=sender, finish=receiver)
        due.reached.set()
        return due.fault is not Fault.SILENCE

    def _end(self, *, reset: _Side, finish: _Side) -> None:
        """End both; who got something last is let read it."""
        finish.end(Cut.FIN)
        reset.end(Cut.RESET)
        self._cut.set()

    def _count(self, frame: Frame) -> None:
        traffic = self._proxy.traffic
        traffic.packets += 1
        if frame.command:
            traffic.commands += 1
            traffic.round_trips += self._answered
            self._answered = False
            if self._proxy.record:
                self._proxy.commands.append(frame.command)


# ------------------------------------------------------------------ the proxy
@dataclass(eq=False)
class FaultProxy:
    """Listens on a free loopback port and connects each client to the server.

    Args:
        host: the server's host.
        port: the server's port.
        framing: how to tell commands apart: `MySqlFraming`, `AmqpFraming`, or `ByteFraming`.
        record: keep each command's bytes in `commands`. They hold payloads: for tests only.

    Attributes:
        port: after entering, where clients connect; `server_port` is the server's.
        traffic: the counts so far.
        links: the connections that are open, oldest first.
    """

    host: str
    server_port: int
    framing: Callable[[], Framing] = ByteFraming
    record: bool = False
    traffic: Traffic = field(default_factory=Traffic, init=False)
    commands: list[bytes] = field(default_factory=list, init=False, repr=False)
    links: list[Link] = field(default_factory=list, init=False, repr=False)
    stalled: set[Direction] = field(default_factory=set, init=False, repr=False)
    port: int = field(default=0, init=False)
    _traps: list[Trap] = field(default_factory=list, init=False, repr=False)
    _breaks: list[Break] = field(default_factory=list, init=False, repr=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False, repr=False)
    _listener: asyncio.Server | None = field(default=None, init=False, repr=False)
    _refusing: bool = field(default=False, init=False, repr=False)
    _delay: float = field(default=0.0, init=False, repr=False)
    _rate: float | None = field(default=None, init=False, repr=False)

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._listener is not None  # noqa: S101 - entered before it is left
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def trap(self, matches: Callable[[bytes], bool], catch: Catch, number: int = 1) -> Trap:
        """Arm a trap for the next command that `matches`; traps are tried in the order they were armed.

        Args:
            matches: called with `Frame.command`.
            catch: what to do to it.
            number: which of those that match and that no earlier trap takes, from 1.

        Returns:
            The trap, to wait on and to release.
        """
        trap = Trap(matches, catch, number)
        self._traps.append(trap)
        return trap

    def spring(self, command: bytes) -> Trap | None:
        """The trap that `command` falls into; it is not armed any more. Called by links."""
        for trap in self._traps:
            if trap.springs(command):
                self._traps.remove(trap)
                return trap
        return None

    def disarm(self) -> None:
        """Forget the traps that have caught nothing, and the breaks that were not reached."""
        for trap in self._traps:
            trap.release()
        self._traps.clear()
        self._breaks.clear()

    def break_at(self, direction: Direction, number: int, fault: Fault) -> Break:
        """Let one packet fail, by its position: the packets of all connections are counted together, from now on.

        Args:
            direction: which way it goes.
            number: which one, from 1.
            fault: what happens to it.

        Returns:
            The break, to wait on.
        """
        made = Break(direction, number, fault)
        self._breaks.append(made)
        return made

    def due(self, direction: Direction) -> Break | None:
        """What the packet that passes now breaks at; it is not armed any more. Called by links, once a packet."""
        found = [each for each in self._breaks if each.passes(direction)]
        self._breaks = [each for each in self._breaks if each not in found]
        return found[0] if found else None

    def cut(self, how: Cut = Cut.RESET) -> None:
        """End every open connection now; new ones are accepted."""
        for link in list(self.links):
            link.cut(how)

    def stall(self, *directions: Direction) -> None:
        """Make every connection half-open, those to come included (both directions, where none is named)."""
        self.stalled.update(directions or Direction)
        for link in self.links:
            link.stall(*directions)

    def resume(self, *directions: Direction) -> None:
        """Undo `stall`."""
        self.stalled.difference_update(directions or Direction)
        for link in self.links:
            link.resume(*directions)

    def refuse(self, refusing: bool = True) -> None:
        """Reset new connections at once, or accept them again: the server seems down, or back."""
        self._refusing = refusing

    def delay(self, seconds: float) -> None:
        """Keep each chunk for so long, either way, before it is passed on."""
        self._delay = seconds

    def throttle(self, octets: float | None) -> None:
        """Pass so many octets a second on, each way of each connection, in small pieces; None ends that."""
        self._rate = octets

    async def write(self, writer: asyncio.StreamWriter, raw: bytes) -> None:
        """Pass octets on, at the proxy's rate. Called by links."""
        sent = 0
        while self._rate is not None and sent < len(raw):
            piece = raw[sent : sent + max(1, int(self._rate / _PIECES))]
            writer.write(piece)
            sent += len(piece)
            await asyncio.sleep(len(piece) / self._rate)
        writer.write(raw[sent:])
        await writer.drain()

    async def pause(self) -> None:
        """Wait for as long as the proxy's delay. Called by links."""
        if self._delay:
            await asyncio.sleep(self._delay)

    async def _connect(self) -> _Side | None:
        connecting = asyncio.ensure_future(asyncio.open_connection(self.host, self.server_port))
        try:
            return _Side(*await asyncio.shield(connecting))
        except OSError:
            return None
        except asyncio.CancelledError:
            # Cancelled at the moment it is made, a connection would belong to nobody.
            with contextlib.suppress(OSError):
                _Side(*await connecting).end(Cut.FIN)
            raise

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # No coroutine: Python 3.11's streams report one that is cancelled as an unhandled error.
        client = _Side(reader, writer)
        task = asyncio.ensure_future(self._serve(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        # Also where it was cancelled before it began.
        task.add_done_callback(lambda _: client.end(Cut.FIN))

    async def _serve(self, client: _Side) -> None:
        self.traffic.connections += 1
        server = None if self._refusing else await self._connect()
        if server is None:
            client.end(Cut.RESET)
            return
        link = Link(self, client, server)
        self.links.append(link)
        try:
            await link.run()
        finally:
            self.links.remove(link)
