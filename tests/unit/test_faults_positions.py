"""The fault proxy fails at a packet by its position, either way, and is as slow as it is told."""

import asyncio

import pytest

from inbox.testing.faults import (
    AmqpFraming,
    ByteFraming,
    Catch,
    Cut,
    Direction,
    Fault,
    FaultProxy,
    MySqlFraming,
    is_commit,
)
from tests.unit.test_faults import (
    ACK,
    COMMIT,
    LOGIN,
    OK,
    QUERY,
    Connection,
    Server,
    amqp,
    answer,
    client,
    fed,
    packet,
    proxy,
    server,
    silent,
)

__all__ = ["client", "proxy", "server"]  # fixtures


async def rest(client: Connection) -> bytes:
    """What comes before the end, and how that comes: nothing is added to it for an orderly one."""
    received = b""
    try:
        while data := await asyncio.wait_for(client[0].read(100), 5):
            received += data
    except ConnectionResetError:
        return received + b"RESET"
    return received


@pytest.mark.parametrize(
    ("fault", "arrives", "ends"),
    [
        (Fault.CUT_BEFORE, b"", "reset"),
        (Fault.CUT_INSIDE, QUERY[: len(QUERY) // 2], "fin"),
        (Fault.CUT_AFTER, QUERY, "fin"),
    ],
)
async def test_a_packet_to_the_server_is_cut(  # noqa: PLR0917 - fixtures
    proxy: FaultProxy, server: Server, client: Connection, fault: Fault, arrives: bytes, ends: str
) -> None:
    client[1].write(LOGIN)
    await answer(client)
    broken = proxy.break_at(Direction.TO_SERVER, 2, fault)
    client[1].write(COMMIT)
    assert await answer(client) == b"ok"
    client[1].write(QUERY)
    assert await rest(client) == b"RESET"
    assert broken.reached.is_set()
    assert await asyncio.wait_for(server.ended.get(), 5) == ends
    assert server.octets == LOGIN + COMMIT + arrives


@pytest.mark.parametrize(
    ("fault", "arrives"),
    [(Fault.CUT_BEFORE, b"RESET"), (Fault.CUT_INSIDE, OK[:3]), (Fault.CUT_AFTER, OK)],
)
async def test_a_packet_to_the_client_is_cut(
    proxy: FaultProxy, server: Server, client: Connection, fault: Fault, arrives: bytes
) -> None:
    broken = proxy.break_at(Direction.TO_CLIENT, 2, fault)
    client[1].write(LOGIN)
    assert await answer(client) == b"ok"
    client[1].write(QUERY)
    assert await rest(client) == arrives
    assert broken.reached.is_set()
    assert await asyncio.wait_for(server.ended.get(), 5) == "reset"


@pytest.mark.parametrize("direction", list(Direction))
async def test_silence_begins_at_a_packet_and_ends_when_it_is_told(
    proxy: FaultProxy, server: Server, client: Connection, direction: Direction
) -> None:
    broken = proxy.break_at(direction, 2, Fault.SILENCE)
    client[1].write(LOGIN)
    assert await answer(client) == b"ok"
    client[1].write(QUERY)
    await asyncio.wait_for(broken.reached.wait(), 5)
    assert await silent(client)
    assert server.received == LOGIN + (QUERY if direction is Direction.TO_CLIENT else b"")
    assert broken.link is not None
    broken.link.resume()
    assert await answer(client) == b"ok"


async def test_positions_are_counted_over_all_connections_and_each_breaks_once(proxy: FaultProxy) -> None:
    before = proxy.traffic.copy()
    broken = proxy.break_at(Direction.TO_SERVER, 2, Fault.CUT_BEFORE)
    first, second, third = [await asyncio.open_connection("127.0.0.1", proxy.port) for _ in range(3)]
    for whole in (first, third):
        whole[1].write(LOGIN)
        assert await answer(whole) == b"ok"
        if whole is first:
            second[1].write(LOGIN)
            assert await rest(second) == b"RESET"
    assert broken.link not in proxy.links
    spent = proxy.traffic - before
    assert (spent.sent(Direction.TO_SERVER), spent.sent(Direction.TO_CLIENT)) == (3, 2)
    for _, writer in (first, second, third):
        writer.close()


async def test_what_was_not_reached_is_forgotten(proxy: FaultProxy, client: Connection) -> None:
    broken = proxy.break_at(Direction.TO_SERVER, 1, Fault.CUT_BEFORE)
    proxy.disarm()
    client[1].write(QUERY)
    assert await answer(client) == b"ok"
    assert not broken.reached.is_set()


async def test_the_second_command_of_a_kind_is_cut_behind_it(
    proxy: FaultProxy, server: Server, client: Connection
) -> None:
    trap = proxy.trap(is_commit, Catch.CUT_AFTER, number=2)
    for command in (COMMIT, QUERY):
        client[1].write(command)
        assert await answer(client) == b"ok"
    client[1].write(COMMIT)
    assert (await rest(client)).endswith(b"RESET")
    await trap.wait()
    assert await asyncio.wait_for(server.ended.get(), 5) == "fin"
    assert server.received == COMMIT + QUERY + COMMIT


async def test_a_slow_link_passes_everything_in_small_pieces(
    proxy: FaultProxy, server: Server, client: Connection
) -> None:
    proxy.throttle(len(QUERY) * 5)  # 0.2 s; a timer may come a little early
    started = asyncio.get_running_loop().time()
    client[1].write(QUERY)
    assert await answer(client) != b"ok", "in pieces"
    assert asyncio.get_running_loop().time() - started >= 0.1
    assert server.received == QUERY
    proxy.throttle(None)
    client[1].write(COMMIT)
    proxy.cut(Cut.FIN)
    assert server.received.startswith(QUERY)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_answers_are_told_apart_however_they_are_cut(size: int) -> None:
    row = packet(1, b"r" * 32)  # as long as an SSLRequest, which only a client sends
    for framing, answers in ((MySqlFraming(), [row, packet(2, b"")]), (AmqpFraming(), [amqp(1, b"start"), ACK])):
        assert [frame.raw for frame in fed(framing.answers(), b"".join(answers), size)] == answers
    assert b"".join(frame.raw for frame in fed(ByteFraming().answers(), row, size)) == row


def test_what_a_server_says_inside_tls_is_not_looked_at() -> None:
    client_side = MySqlFraming()
    answers = client_side.answers()
    assert [frame.raw for frame in answers.feed(packet(0, b"hello"))] == [packet(0, b"hello")]
    client_side.feed(packet(1, b"s" * 32))
    assert [frame.raw for frame in answers.feed(b"\x16\x03\x03")] == [b"\x16\x03\x03"]
    assert answers.answers() is client_side
