"""The connection over real sockets, with a platform that does what each test tells it."""

import asyncio
import logging
import ssl
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.frames import CloseCode

from inbox.adapters.websocket.codec import LONGEST_FRAME, DeliveryFrame, ErrorCode, WelcomeFrame, encode
from inbox.adapters.websocket.connection import EventConnection, new_message_id
from inbox.adapters.websocket.conversation import Limits
from inbox.adapters.websocket.errors import (
    ConnectionBusy,
    ConnectionLost,
    ConnectionOver,
    FrameTooLong,
    HandshakeRefused,
    HandshakeTimeout,
    OrbitError,
    OrbitProtocolError,
    PeerNotTrusted,
    ProofLost,
    RequestRefused,
    RequestTimeout,
    StopKind,
    UnreadOverflow,
)
from inbox.adapters.websocket.settings import Credential, EventRegistration, tls_context
from tests.services.certificates import make_certificates
from tests.unit import orbit_frames as frames
from tests.unit.orbit_frames import SECRET, SNAPSHOT, SUBSCRIPTION, frame_of
from tests.unit.orbit_platform import QUICK, TOKEN, Platform, Session, delivers, never, silent

LOGGERS = ("inbox", "inbox.orbit", "websockets", "websockets.client", "websockets.server", "asyncio")


def shown(error: BaseException | None) -> str:
    """All of an error, with the variables of every function that it passed and of all that came before it."""
    assert error is not None
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def hides(error: BaseException) -> bool:
    """Whether nothing of it shows a credential, a proof or business."""
    return not any(word in shown(error) for word in (TOKEN, SECRET, "private"))


async def dial(platform: Platform, capacity: int = 4, limits: Limits = QUICK) -> EventConnection:
    return await EventConnection.dial(platform.registration(capacity), limits=limits)


# ---------------------------------------------------------------- the way it goes
async def test_a_delivery_is_read_and_acknowledged() -> None:
    platform = Platform()
    platform.begin = delivers(1)
    async with platform.running(), await dial(platform) as connection:
        assert platform.headers[0]["Authorization"] == f"Bearer {TOKEN}"
        assert platform.headers[0]["Sec-WebSocket-Protocol"] == "orbit.events.v1"
        assert isinstance(connection.welcome, WelcomeFrame)
        assert (connection.welcome.capacity, connection.welcome.enabled, connection.error) == (4, True, None)
        frame = await connection.next()
        assert frame.event.snapshot == SNAPSHOT
        receipt = await connection.ack(new_message_id(), frame.proof)
        assert receipt.event_id == frame.event.id
        assert await connection.ping(new_message_id())
    assert isinstance(connection.error, ConnectionOver)
    assert platform.acks[0].secret.reveal() == SECRET


async def test_a_wait_that_is_cancelled_closes_nothing_and_loses_nothing() -> None:
    platform = Platform()
    async with platform.running(), await dial(platform) as connection:
        session, taken = await platform.wait_for_session(), []
        for event in range(1, 50):
            waiting = asyncio.create_task(connection.next())
            await asyncio.sleep(0)
            sending = asyncio.create_task(session.deliver(event))
            for _ in range(event % 7):
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait({waiting, sending})
            taken.append(await connection.next() if waiting.cancelled() else waiting.result())
        assert [int(frame.event.id, 16) & 0xFF for frame in taken] == [*range(1, 50)]
        assert connection.error is None


async def test_an_acknowledgement_that_is_cancelled_is_still_answered_and_the_connection_stays() -> None:
    platform, told = Platform(), asyncio.Event()

    async def late(session: Session, ack: object) -> None:
        await told.wait()
        await session.receipt(ack)  # type: ignore[arg-type] # an acknowledgement

    platform.begin, platform.on_ack = delivers(1), late
    async with platform.running(), await dial(platform) as connection:
        frame = await connection.next()
        asking = asyncio.create_task(connection.ack(new_message_id(), frame.proof))
        await platform.wait_for_acks(1)
        asking.cancel()
        await asyncio.wait({asking})
        told.set()
        assert await connection.ping(new_message_id())
        assert (await connection.ack(new_message_id(), frame.proof)).generation == 1


async def test_the_same_proof_is_shown_on_a_new_connection() -> None:
    platform = Platform()
    platform.begin = delivers(1)
    async with platform.running():
        async with await dial(platform) as first:
            frame = await first.next()
        async with await dial(platform) as second:
            assert (await second.ack(new_message_id(), frame.proof)).event_id == frame.event.id


async def test_a_paused_subscription_says_so_and_takes_acknowledgements() -> None:
    platform = Platform()
    platform.begin = delivers(1)
    platform.greet = lambda session: session.welcome(enabled=False)
    platform.on_ping = lambda session, ping: session.pong(ping, enabled=False)
    async with platform.running(), await dial(platform) as connection:
        assert not connection.welcome.enabled
        assert not await connection.ping(new_message_id())
        assert (await connection.ack(new_message_id(), (await connection.next()).proof)).generation == 1


async def test_what_is_wanted_is_taken_first_and_what_is_not_stays() -> None:
    platform = Platform()
    platform.begin = delivers(1, 2, 3)
    async with platform.running(), await dial(platform) as connection:
        wanted: set[int] = {3}

        def is_wanted(frame: DeliveryFrame) -> bool:
            return int(frame.event.id, 16) & 0xF in wanted

        assert int((await connection.next(is_wanted)).event.id, 16) & 0xF == 3
        waiting = asyncio.create_task(connection.next(is_wanted))
        await connection.ping(new_message_id())
        assert not waiting.done()
        wanted.add(2)
        connection.look_again()
        assert int((await waiting).event.id, 16) & 0xF == 2


# ---------------------------------------------------------------- bounds
@pytest.mark.parametrize("octets", [LONGEST_FRAME, LONGEST_FRAME + 1])
async def test_a_frame_of_512_kib_is_read_and_one_octet_more_is_not(octets: int) -> None:
    platform = Platform()

    async def begin(session: Session) -> None:
        frame = frame_of(snapshot=SNAPSHOT[:-1] + b',"x":""}')
        text = encode(type(frame)(session.id, frame.delivery, frame.event))
        await session.send(text.replace('"x":""', f'"x":"{"x" * (octets - len(text.encode()))}"'))

    platform.begin = begin
    async with platform.running(), await dial(platform) as connection:
        if octets == LONGEST_FRAME:
            assert len((await connection.next()).event.snapshot) > LONGEST_FRAME - 1000
            return
        with pytest.raises(FrameTooLong):
            await connection.next()
        await connection.wait_closed()


async def test_fragments_count_together() -> None:
    platform = Platform()

    async def begin(session: Session) -> None:
        await session.socket.send(" " * 100_000 for _ in range(6))

    platform.begin = begin
    async with platform.running(), await dial(platform) as connection:
        with pytest.raises(FrameTooLong):
            await connection.next()


async def test_thirty_two_requests_are_in_flight_and_no_more() -> None:
    platform = Platform()
    platform.on_ping = never
    limits = Limits(handshake=2, request=30, heartbeat=15)
    async with platform.running(), await dial(platform, limits=limits) as connection:
        asking = [asyncio.create_task(connection.ping(new_message_id())) for _ in range(32)]
        await platform.wait(lambda: len(platform.pings) == 32)
        with pytest.raises(ConnectionBusy):
            await connection.ping(new_message_id())
        assert connection.error is None
        await platform.sessions[0].pong(platform.pings[7])
        await asking[7]
        asking[7] = asyncio.create_task(connection.ping(new_message_id()))
        await platform.wait(lambda: len(platform.pings) == 33)
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert {type(each) for each in done} == {ConnectionOver}


async def test_unread_deliveries_beyond_the_capacity_close_the_connection() -> None:
    platform = Platform()
    platform.begin = delivers(1, 2, 3)
    async with platform.running(), await dial(platform, capacity=2) as connection:
        await connection.wait_closed()
        assert isinstance(connection.error, UnreadOverflow)
        assert [(await connection.next()).delivery.generation for _ in range(2)] == [1, 1]
        with pytest.raises(UnreadOverflow):
            await connection.next()


async def test_a_slow_acknowledgement_slows_neither_reading_nor_heartbeats() -> None:
    """The answer takes nine tenths of the time that it may take; meanwhile deliveries and pongs go on."""
    platform, limits = Platform(), Limits(handshake=8, request=1.0, heartbeat=15)

    async def slow(session: Session, ack: object) -> None:
        await asyncio.sleep(0.9 * limits.request)
        await session.receipt(ack)  # type: ignore[arg-type] # an acknowledgement

    platform.begin, platform.on_ack = delivers(1), slow
    async with platform.running(), await dial(platform, limits=limits) as connection:
        asking = asyncio.create_task(connection.ack(new_message_id(), (await connection.next()).proof))
        await platform.wait_for_acks(1)
        for event in range(2, 12):
            await platform.sessions[0].deliver(event)
            await connection.next()
            assert await connection.ping(new_message_id())
        assert not asking.done()
        assert (await asking).generation == 1


# ---------------------------------------------------------------- how it ends
async def test_a_request_without_an_answer_closes_the_connection_and_a_late_one_confirms_nothing() -> None:
    platform = Platform()
    platform.begin, platform.on_ack = delivers(1), never
    limits = Limits(handshake=2, request=0.1, heartbeat=15)
    async with platform.running(), await dial(platform, limits=limits) as connection:
        frame = await connection.next()
        with pytest.raises(RequestTimeout):
            await connection.ack(new_message_id(), frame.proof)
        await connection.wait_closed()
        with pytest.raises(RequestTimeout):
            await connection.ping(new_message_id())
        with pytest.raises(RequestTimeout):
            await connection.next()


async def test_a_connection_that_is_cut_fails_what_waits_and_says_so() -> None:
    platform = Platform()
    platform.begin, platform.on_ack = delivers(1), never
    async with platform.running(), await dial(platform) as connection:
        frame = await connection.next()
        asking = asyncio.create_task(connection.ack(new_message_id(), frame.proof))
        waiting = asyncio.create_task(connection.next())
        await platform.wait_for_acks(1)
        platform.sessions[0].cut()
        for task in (asking, waiting):
            with pytest.raises(ConnectionLost) as caught:
                await task
            assert caught.value.kind is None
            assert hides(caught.value)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (CloseCode.NORMAL_CLOSURE, ConnectionLost),
        (CloseCode.GOING_AWAY, ConnectionLost),
        (CloseCode.INTERNAL_ERROR, ConnectionLost),
        (CloseCode.TRY_AGAIN_LATER, ConnectionLost),
        (CloseCode.PROTOCOL_ERROR, OrbitProtocolError),
        (CloseCode.INVALID_DATA, OrbitProtocolError),
    ],
)
async def test_a_good_bye_of_the_platform(code: CloseCode, error: type[OrbitError]) -> None:
    platform = Platform()
    platform.begin = lambda session: session.socket.close(code, f"remote text {TOKEN}")
    async with platform.running(), await dial(platform) as connection:
        with pytest.raises(error) as caught:
            await connection.next()
        assert hides(caught.value)


SENT: dict[str, Callable[[Session], Awaitable[object]]] = {
    "a binary frame": lambda session: session.send(frames.text(frames.receipt()).encode()),
    "a frame of another session": lambda session: session.send(frames.text(frames.delivery())),
    "no JSON": lambda session: session.send(f"remote {SECRET} private"),
    "a frame of the other direction": lambda session: session.send(frames.text(frames.ack())),
    "octets that are no text": lambda session: session.socket.send(b"\xff\xfe{", text=True),
}


@pytest.mark.parametrize("name", SENT)
async def test_a_broken_protocol_closes_the_connection_with_its_code(name: str) -> None:
    platform = Platform()
    platform.begin = SENT[name]
    async with platform.running(), await dial(platform) as connection:
        with pytest.raises(OrbitProtocolError) as caught:
            await connection.next()
        await connection.wait_closed()
        await platform.sessions[0].socket.wait_closed()
        assert platform.sessions[0].socket.close_code in (CloseCode.PROTOCOL_ERROR, CloseCode.INVALID_DATA)
        assert hides(caught.value)


async def test_a_lost_proof_and_a_refusal_leave_the_connection() -> None:
    platform = Platform()
    codes = [ErrorCode.PROOF_LOST, ErrorCode.INTERNAL]
    platform.begin = delivers(1)
    platform.on_ack = lambda session, ack: session.error(ack.message_id, codes.pop(0))
    async with platform.running(), await dial(platform) as connection:
        frame = await connection.next()
        with pytest.raises(ProofLost):
            await connection.ack(new_message_id(), frame.proof)
        with pytest.raises(RequestRefused) as caught:
            await connection.ack(new_message_id(), frame.proof)
        assert caught.value.kind is StopKind.OTHER
        assert hides(caught.value)
        assert await connection.ping(new_message_id())


async def test_closing_twice_and_after_the_end_is_allowed() -> None:
    platform = Platform()
    async with platform.running():
        connection = await dial(platform)
        platform.sessions[0].cut()
        await connection.wait_closed()
        await connection.close()
        await connection.close()
        assert isinstance(connection.error, ConnectionLost)


# ---------------------------------------------------------------- the handshake
@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 403, 404, 408, 429, 500, 503])
async def test_a_status_instead_of_an_upgrade(status: int) -> None:
    platform = Platform()
    platform.statuses = [status]
    async with platform.running():
        with pytest.raises(HandshakeRefused) as caught:
            await dial(platform)
    assert caught.value.status == status
    assert len(platform.headers) == 1, "a redirect is not followed: it would take the credential elsewhere"
    assert hides(caught.value)
    assert caught.value.__context__ is caught.value.__cause__ is None


async def test_a_handshake_that_does_not_end_is_given_up() -> None:
    for is_answered in (False, True):
        platform = Platform()
        platform.greet = silent
        limits = Limits(handshake=0.2, request=10, heartbeat=15)

        async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with platform.running():
            server = await asyncio.start_server(deaf, "127.0.0.1", 0)
            port = platform.port if is_answered else server.sockets[0].getsockname()[1]
            registration = EventRegistration(f"ws://127.0.0.1:{port}/", Credential(TOKEN), SUBSCRIPTION, 4)
            with pytest.raises(HandshakeTimeout) as caught:
                await EventConnection.dial(registration, limits=limits)
            assert hides(caught.value)
            server.close()


async def test_a_peer_that_is_not_there_and_one_that_hangs_up() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    registration = EventRegistration(f"ws://127.0.0.1:{port}/", Credential(TOKEN), SUBSCRIPTION, 4)
    for _ in range(2):
        with pytest.raises(ConnectionLost) as caught:
            await EventConnection.dial(registration)
        assert caught.value.kind is None
        assert hides(caught.value)
        server.close()
        await server.wait_closed()


async def test_tls_is_spoken_to_whom_it_trusts_and_to_nobody_else(tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)
    platform = Platform()
    async with platform.running(tls=context):
        registration = platform.registration()
        assert registration.is_tls
        for tls in (None, tls_context(None)):
            with pytest.raises(PeerNotTrusted) as caught:
                await EventConnection.dial(replace(registration, tls=tls))
            assert caught.value.kind is StopKind.OTHER
            assert hides(caught.value)
        assert platform.headers == [], "the credential was not sent"
        trusting = replace(registration, tls=tls_context(str(certificates.authority)))
        async with await EventConnection.dial(trusting) as connection:
            assert await connection.ping(new_message_id())
        elsewhere = replace(trusting, url=trusting.url.replace("wss://", "ws://"))
        with pytest.raises(OrbitError) as plain:
            await EventConnection.dial(elsewhere, limits=QUICK)
        assert hides(plain.value)


async def test_a_peer_that_does_not_choose_the_protocol_is_refused() -> None:
    platform = Platform()
    async with platform.running(subprotocol=None):
        with pytest.raises(OrbitProtocolError, match="did not choose"):
            await dial(platform)


async def test_a_peer_that_speaks_something_else_is_refused() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: other\r\nConnection: Upgrade\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        registration = EventRegistration(f"ws://127.0.0.1:{port}/", Credential(TOKEN), SUBSCRIPTION, 4)
        with pytest.raises(OrbitProtocolError) as caught:
            await EventConnection.dial(registration)
        assert hides(caught.value)


async def test_a_registration_that_is_refused_is_said_with_its_kind() -> None:
    platform = Platform()
    platform.greet = lambda session: session.error(session.registered.message_id, ErrorCode.NOT_FOUND)
    async with platform.running():
        with pytest.raises(RequestRefused) as caught:
            await dial(platform)
    assert caught.value.kind is StopKind.NOT_FOUND


async def test_a_cancelled_handshake_leaves_nothing() -> None:
    for greet in (Session.welcome, silent):
        for turns in range(0, 40, 3):
            platform = Platform()
            platform.greet = greet
            async with platform.running():
                dialling = asyncio.create_task(dial(platform))
                for _ in range(turns):
                    await asyncio.sleep(0)
                dialling.cancel()
                await asyncio.wait({dialling})
                if not dialling.cancelled():  # it was done before
                    await dialling.result().close()
                left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("orbit")]
                assert left == []


# ---------------------------------------------------------------- what is not shown
async def test_no_logger_is_told_a_credential_a_secret_or_business(caplog: pytest.LogCaptureFixture) -> None:
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False  # as logging.config does
    caplog.set_level(logging.DEBUG)
    for name in LOGGERS:
        caplog.set_level(logging.DEBUG, name)
    platform = Platform()
    platform.begin = delivers(1)
    async with platform.running(), await dial(platform) as connection:
        frame = await connection.next()
        await connection.ack(new_message_id(), frame.proof)
        told = f"{connection!r}{platform.registration()!r}{frame!r}{frame.proof!r}"
    client = [record.getMessage() for record in caplog.records if not record.name.startswith("websockets.server")]
    assert len(client) < len(caplog.records), "the server of this test has told of its own"
    for text in (*client, told):
        assert TOKEN not in text
        assert SECRET not in text
        assert "private" not in text
