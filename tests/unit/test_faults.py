"""The fault proxy tells commands apart however the bytes are cut, and fails exactly as it is told."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from inbox.testing.faults import (
    AmqpFraming,
    ByteFraming,
    Catch,
    Cut,
    Direction,
    FaultProxy,
    Frame,
    Framing,
    MySqlFraming,
    begins_with,
    is_amqp_ack,
    is_commit,
)


def packet(sequence: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([sequence]) + payload


def amqp(kind: int, payload: bytes) -> bytes:
    return bytes([kind]) + b"\0\1" + len(payload).to_bytes(4, "big") + payload + b"\xce"


LOGIN = packet(1, b"x" * 60)
QUERY = packet(0, b"\x03SELECT 1")
COMMIT = packet(0, b"\x03COMMIT")
ACK = amqp(1, b"\x00\x3c\x00\x50" + b"\0" * 9)
OK = packet(1, b"ok")


def fed(framing: Framing, data: bytes, size: int) -> list[Frame]:
    return [frame for start in range(0, len(data), size) for frame in framing.feed(data[start : start + size])]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 1000])
@pytest.mark.parametrize(
    ("framing", "data", "commands"),
    [
        (MySqlFraming, LOGIN + QUERY + COMMIT, [b"", b"\x03SELECT 1", b"\x03COMMIT"]),
        (AmqpFraming, b"AMQP\0\0\x09\x01" + amqp(8, b"") + ACK, [b"", b"", ACK[7:-1]]),
    ],
)
def test_frames_are_found_however_the_bytes_are_cut(
    framing: Callable[[], Framing], data: bytes, commands: list[bytes], size: int
) -> None:
    frames = fed(framing(), data, size)
    assert b"".join(frame.raw for frame in frames) == data
    assert [frame.command for frame in frames] == commands


@pytest.mark.parametrize("size", [1, 9, 1000])
def test_inside_tls_bytes_pass_and_nothing_is_read_into_them(size: int) -> None:
    hello = packet(1, b"s" * 32) + COMMIT
    frames = fed(MySqlFraming(), hello, size)
    assert b"".join(frame.raw for frame in frames) == hello
    assert not any(frame.command for frame in frames)


@pytest.mark.parametrize("text", [b"COMMIT", b"commit", b" Commit ;", b"COMMIT\n"])
def test_a_commit_is_known_in_any_writing(text: bytes) -> None:
    assert is_commit(b"\x03" + text)


@pytest.mark.parametrize("command", [b"", b"\x03COMMITS", b"\x16COMMIT", b"\x03SELECT 'COMMIT'"])
def test_nothing_else_is_one(command: bytes) -> None:
    assert not is_commit(command)


def test_other_commands_are_known_by_their_beginning() -> None:
    assert begins_with("insert")(b"\x03 INSERT INTO t")
    assert is_amqp_ack(ACK[7:-1])
    assert not is_amqp_ack(b"\x00\x3c\x00\x28")


class Server:
    """Answers each MySQL packet with `OK`, and remembers what arrived and how its connections ended."""

    def __init__(self) -> None:
        self.port = 0
        self.received = b""
        self.octets = b""  # with those of a packet that has not come whole
        self.ended: asyncio.Queue[str] = asyncio.Queue()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing = MySqlFraming()
        try:
            while data := await reader.read(4096):
                self.octets += data
                for frame in framing.feed(data):
                    self.received += frame.raw
                    writer.write(OK)
            self.ended.put_nowait("fin")
        except ConnectionResetError:
            self.ended.put_nowait("reset")
        finally:
            writer.close()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    yield server
    listener.close()


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[FaultProxy]:
    async with FaultProxy("127.0.0.1", server.port, MySqlFraming) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: FaultProxy) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    yield reader, writer
    writer.close()


async def answer(client: Connection, seconds: float = 5.0) -> bytes:
    """The content of one packet, whole or as much of it as has come before the end."""
    return (await asyncio.wait_for(client[0].read(len(OK)), seconds))[4:]


async def silent(client: Connection) -> bool:
    try:
        await answer(client, 0.1)
    except TimeoutError:
        return True
    return False


async def test_it_passes_and_counts(proxy: FaultProxy, client: Connection) -> None:
    client[1].write(LOGIN)
    assert await answer(client) == b"ok"
    before = proxy.traffic.copy()
    client[1].write(QUERY + COMMIT)  # together: one round trip
    assert await answer(client) + await answer(client) == b"okok"
    client[1].write(QUERY)
    assert await answer(client) == b"ok"
    spent = proxy.traffic - before
    assert (spent.packets, spent.commands, spent.round_trips) == (3, 3, 2)


async def test_an_answer_is_held_after_the_server_has_given_it(
    proxy: FaultProxy, server: Server, client: Connection
) -> None:
    trap = proxy.trap(is_commit, Catch.HOLD_ANSWER)
    client[1].write(COMMIT)
    await trap.wait()
    assert server.received == COMMIT
    assert await silent(client)
    trap.release()
    assert await answer(client) == b"ok"
    client[1].write(COMMIT)  # a trap catches once
    assert await answer(client) == b"ok"


async def test_a_command_is_held_before_the_server_sees_it(
    proxy: FaultProxy, server: Server, client: Connection
) -> None:
    trap = proxy.trap(is_commit, Catch.HOLD_COMMAND)
    client[1].write(QUERY + COMMIT)
    await trap.wait()
    assert await answer(client) == b"ok"
    assert server.received == QUERY
    trap.release()
    assert await answer(client) == b"ok"
    assert server.received == QUERY + COMMIT


async def test_a_swallowed_command_leaves_the_server_waiting_even_when_the_client_goes(
    proxy: FaultProxy, server: Server, client: Connection
) -> None:
    trap = proxy.trap(is_commit, Catch.SWALLOW)
    client[1].write(COMMIT)
    link = await trap.wait()
    client[1].close()
    await client[1].wait_closed()
    await asyncio.sleep(0.05)
    assert server.received == b""
    assert server.ended.empty()
    link.cut(Cut.FIN)
    assert await asyncio.wait_for(server.ended.get(), 5) == "fin"


async def test_a_lost_answer_resets_the_client(proxy: FaultProxy, server: Server, client: Connection) -> None:
    proxy.trap(is_commit, Catch.LOSE_ANSWER)
    client[1].write(COMMIT)
    with pytest.raises(ConnectionResetError):
        await answer(client)
    assert server.received == COMMIT


async def test_a_cut_comes_instead_of_the_command(proxy: FaultProxy, server: Server, client: Connection) -> None:
    proxy.trap(is_commit, Catch.CUT)
    client[1].write(COMMIT)
    with pytest.raises(ConnectionResetError):
        await answer(client)
    assert await asyncio.wait_for(server.ended.get(), 5) == "reset"
    assert server.received == b""


async def test_an_end_can_be_orderly(proxy: FaultProxy, server: Server, client: Connection) -> None:
    client[1].write(QUERY)
    await answer(client)
    proxy.cut(Cut.FIN)
    assert await answer(client) == b""
    assert await asyncio.wait_for(server.ended.get(), 5) == "fin"


@pytest.mark.parametrize("direction", list(Direction))
async def test_half_open_either_way_and_back(
    proxy: FaultProxy, server: Server, client: Connection, direction: Direction
) -> None:
    client[1].write(QUERY)
    await answer(client)
    proxy.stall(direction)
    client[1].write(QUERY)
    assert await silent(client)
    assert server.received == (QUERY if direction is Direction.TO_SERVER else QUERY + QUERY)
    proxy.resume(direction)
    assert await answer(client) == b"ok"


async def test_a_half_open_link_does_not_tell_of_an_end(proxy: FaultProxy, server: Server, client: Connection) -> None:
    client[1].write(QUERY)
    await answer(client)
    proxy.stall()
    client[1].close()
    await asyncio.sleep(0.05)
    assert server.ended.empty()
    proxy.resume()
    assert await asyncio.wait_for(server.ended.get(), 5) == "fin"


async def test_new_connections_are_refused_until_they_are_not(proxy: FaultProxy) -> None:
    proxy.refuse()
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    with pytest.raises(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(1), 5)
    writer.close()
    proxy.refuse(False)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(QUERY)
    assert await answer((reader, writer)) == b"ok"
    writer.close()


async def test_a_delay_keeps_bytes(proxy: FaultProxy, client: Connection) -> None:
    proxy.delay(0.05)
    started = asyncio.get_running_loop().time()
    client[1].write(QUERY)
    assert await answer(client) == b"ok"
    assert asyncio.get_running_loop().time() - started >= 0.1


async def test_without_a_protocol_there_are_no_commands(server: Server) -> None:
    async with FaultProxy("127.0.0.1", server.port, ByteFraming) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(QUERY)
        assert await answer((reader, writer)) == b"ok"
        assert proxy.traffic.commands == 0
        writer.close()
