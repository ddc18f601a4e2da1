"""The reference server over real sockets: every frame, several clients, TLS. A client made of a socket asks."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from inbox.errors import StartupError
from inbox.testing.orbit_server import OrbitServer, OrbitServerSettings, Terms
from inbox.testing.orbit_server.rules import State
from tests.integration.orbit_rig import World, snapshot
from tests.orbit_client import BINARY, CONTINUATION, PING, PONG, SUBPROTOCOL, Gone, RawClient, Refused, new_id
from tests.services.certificates import make_certificates


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with OrbitServer(OrbitServerSettings(terms=Terms(first_delay=1.0))) as server:
        yield World(server)


# ---------------------------------------------------------------- the upgrade
@pytest.mark.parametrize(
    ("credential", "protocol", "status"),
    [(None, SUBPROTOCOL, 401), ("orbit_wrong", SUBPROTOCOL, 401), ("right", None, 400), ("right", "other.v1", 400)],
)
async def test_before_the_upgrade_it_answers_by_http(
    world: World, credential: str | None, protocol: str | None, status: int
) -> None:
    given = world.server.credential if credential == "right" else credential
    with pytest.raises(Refused) as refused:
        await RawClient.connect(world.server.url, given, protocol=protocol)
    assert refused.value.status == status
    assert ("www-authenticate" in refused.value.headers) is (status == 401)
    assert world.server.connections == 0


async def test_a_place_that_is_none_is_not_found(world: World) -> None:
    with pytest.raises(Refused) as refused:
        await RawClient.connect(world.server.url + "/more", world.server.credential)
    assert refused.value.status == 404


# ---------------------------------------------------------------- registration
async def test_the_welcome_tells_how_things_stand(world: World) -> None:
    async with await world.unregistered() as client:
        welcome = await client.register(world.subscription, 32)
        assert set(welcome) == {
            *("type", "reply_to", "session_id", "subscription_id", "capacity", "enabled", "lease_seconds"),
        }
        assert (welcome["enabled"], welcome["lease_seconds"]) == (True, 30)
    world.provider.enable(world.subscription, is_enabled=False)
    async with await world.unregistered() as client:
        assert (await client.register(world.subscription))["enabled"] is False


@pytest.mark.parametrize("how", ["nobodys", "anothers", "revoked", "gap", "crowded"])
async def test_a_registration_that_is_refused_ends_the_connection(how: str) -> None:
    async with OrbitServer(OrbitServerSettings(most_connections=1)) as server, AsyncExitStack() as stack:
        world = World(server, window=1)
        bearer = world.provider.add_credential("mail", ("reports",))
        mail = world.provider.subscribe(world.provider.authenticate(bearer), "reports", window=1).id
        client = await world.unregistered(bearer)
        asked, code = mail, {"revoked": "UNAUTHENTICATED", "gap": "HISTORY_GAP", "crowded": "BUSY"}.get(how)
        match how:
            case "nobodys":
                asked, code = new_id(), "NOT_FOUND"
            case "anothers":
                asked, code = world.subscription, "FORBIDDEN"
            case "revoked":
                world.provider.revoke("mail")
            case "gap":
                world.publish(2)
                world.provider.trim_history(mail)
            case "crowded":
                other = await stack.enter_async_context(await world.unregistered(bearer))
                await other.register(mail)
        client.send(type="register", message_id=(message := new_id()), subscription_id=asked, capacity=4)
        assert await client.refusal(message) == code
        assert await client.end() == (1013 if how == "crowded" else 1008)


async def test_who_does_not_register_in_time_is_sent_away() -> None:
    async with OrbitServer(OrbitServerSettings(handshake=0.05)) as server:
        client = await RawClient.connect(server.url, server.credential)
        assert await client.end() == 1008


async def test_who_says_nothing_for_long_is_sent_away_and_a_heartbeat_is_something() -> None:
    async with OrbitServer(OrbitServerSettings(idle=1.0)) as server:
        world = World(server)
        async with world.client() as client:
            for _ in range(4):
                assert await client.is_silent(0.3)
                assert await client.ping()
            assert await client.end() == 1008


# ---------------------------------------------------------------- what the server does not take
RIGHT = {"type": "register", "message_id": "1" * 32, "subscription_id": "2" * 32, "capacity": 4}


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        "[]",
        json.dumps(RIGHT)[:-1],
        json.dumps(RIGHT) + "x",
        json.dumps(RIGHT | {"capacity": 0}),
        json.dumps(RIGHT | {"capacity": 33}),
        json.dumps(RIGHT | {"capacity": "4"}),
        json.dumps(RIGHT | {"capacity": True}),
        json.dumps(RIGHT | {"colour": "blue"}),
        json.dumps(RIGHT | {"subscription_id": "A" * 32}),
        json.dumps({name: value for name, value in RIGHT.items() if name != "message_id"}),
        json.dumps(RIGHT)[:-1] + ', "capacity": 4}',
        json.dumps({"type": "ping", "session_id": "3" * 32, "message_id": "1" * 32}),
        json.dumps({"type": "pong", "session_id": "3" * 32, "reply_to": "1" * 32, "enabled": True}),
    ],
)
async def test_a_first_frame_that_is_no_registration_is_a_protocol_error(world: World, text: str) -> None:
    async with await world.unregistered() as client:
        client.write(text.encode())
        assert await client.refusal(None) == "PROTOCOL"
        assert await client.end() == 1002


@pytest.mark.parametrize("how", ["again", "other-session", "binary", "zero", "exponent", "short-secret", "no-secret"])
async def test_a_frame_that_is_almost_right_ends_the_connection_and_confirms_nothing(world: World, how: str) -> None:
    world.publish()
    async with world.client() as client:
        delivery = await client.receive("delivery")
        match how:
            case "again":
                client.send(**RIGHT)
            case "other-session":
                client.send_ack(delivery, session_id=new_id())
            case "binary":
                client.write(json.dumps(RIGHT).encode(), BINARY)
            case "zero":
                client.send_ack(delivery, generation="01")
            case "exponent":
                client.send_ack(delivery, generation="1e0")
            case "short-secret":
                client.send_ack(delivery, secret=delivery["delivery"]["secret"][:-1])
            case "no-secret":
                client.send(type="ack", session_id=client.session, message_id=new_id(), generation="1")
        assert await client.refusal(None) == "PROTOCOL"
        assert await client.end() == 1002
    assert world.states() == {"leased": 1}


@pytest.mark.parametrize(("octets", "code"), [(512 * 1024, 1002), (512 * 1024 + 1, 1009)])
async def test_the_longest_text_frame_has_512_kib(world: World, octets: int, code: int) -> None:
    async with world.client() as client:
        client.write(b" " * octets)
        assert await client.end() == code


@pytest.mark.parametrize("how", ["not-utf-8", "continuation"])
async def test_what_breaks_the_websocket_protocol_ends_the_connection(world: World, how: str) -> None:
    async with world.client() as client:
        if how == "not-utf-8":
            client.write(b"\xff\xfe")
        else:
            client.write(b"{}", CONTINUATION)
        assert await client.end() in {1002, 1007}


# ---------------------------------------------------------------- deliveries
async def test_a_delivery_belongs_together_and_keeps_big_integers(world: World) -> None:
    task = new_id()
    given = b'{"task_id":"' + task.encode() + b'", "status": "needs_review", "n": 9007199254740993,\t"f": 1.10}'
    world.provider.publish("reports", given, event_type="task.needs_review", occurred_at="2026-01-02T03:04:05.678Z")
    async with world.client() as client:
        text = await client.text()
    assert given.decode() in text
    delivery = json.loads(text)
    assert set(delivery) == {"type", "session_id", "delivery", "event"}
    assert set(delivery["delivery"]) == {"id", "event_id", "generation", "secret"}
    assert delivery["delivery"]["event_id"] == delivery["event"]["id"]
    assert len(delivery["delivery"]["secret"]) == 43
    event = delivery["event"]
    assert {name: event[name] for name in ("type", "subscription_id", "sequence", "occurred_at")} == {
        "type": "task.needs_review",
        "subscription_id": world.subscription,
        "sequence": "1",
        "occurred_at": "2026-01-02T03:04:05.678Z",
    }
    assert event["snapshot"]["n"] == 9007199254740993


async def test_numbers_of_64_bits_arrive_whole(world: World) -> None:
    last = 2**64 - 1
    made = world.provider.subscribe(world.operator, "large", first_sequence=last, first_generation=last)
    world.provider.publish("large", snapshot())
    async with await world.unregistered() as client:
        await client.register(made.id)
        delivery = await client.receive("delivery")
        assert delivery["delivery"]["generation"] == delivery["event"]["sequence"] == "18446744073709551615"
        await client.ack(delivery)


async def test_no_more_is_in_hand_than_was_asked_for(world: World) -> None:
    world.publish(5)
    async with world.client(capacity=2) as client:
        held = [await client.receive("delivery") for _ in range(2)]
        assert await client.is_silent()
        for _ in range(3):
            client.send_ack(held.pop(0))
            kinds = {}
            for _ in range(2):
                frame = await client.receive()
                kinds[frame["type"]] = frame
            assert {*kinds} == {"ack_receipt", "delivery"}
            held.append(kinds["delivery"])
    assert world.states() == {"acknowledged": 3, "leased": 2}


async def test_what_is_published_reaches_who_waits(world: World) -> None:
    async with world.client() as client:
        assert await client.is_silent()
        (event_id,) = world.publish()
        assert (await client.receive("delivery"))["event"]["id"] == event_id


async def test_a_lease_that_ran_out_comes_again_to_who_waits(world: World) -> None:
    world.publish()
    async with world.client() as first, world.client() as second:
        one = await first.receive("delivery")
        assert await second.is_silent()
        world.provider.turn_clock(31)
        reading = {asyncio.create_task(client.receive("delivery")): client for client in (first, second)}
        done, waiting = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        (task,) = done
        two, holder = task.result(), reading[task]
        assert (two["event"], two["delivery"]["id"]) == (one["event"], one["delivery"]["id"])
        assert two["delivery"]["generation"] == "2"
        assert two["delivery"]["secret"] != one["delivery"]["secret"]
        for client in (first, second):
            assert await client.refusal(client.send_ack(one)) == "PROOF_LOST"
        await holder.ack(two)


async def test_a_lease_ends_by_itself_where_nobody_turns_the_clock() -> None:
    terms = Terms(lease=0.2, first_delay=0.1)
    async with OrbitServer(OrbitServerSettings(terms=terms)) as server:
        world = World(server, budget=2)
        world.publish()
        async with world.client(capacity=1) as client:
            generations = [(await client.receive("delivery"))["delivery"]["generation"] for _ in range(2)]
            assert generations == ["1", "2"]
            while not world.provider.events(world.subscription, State.EXPIRED):
                assert await client.is_silent(0.02)


# ---------------------------------------------------------------- acknowledgements
async def test_the_same_proof_is_taken_again_over_another_connection(world: World) -> None:
    world.publish()
    async with world.client() as client:
        delivery = await client.receive("delivery")
        first = await client.ack(delivery)
    async with world.client() as client:
        again = await client.ack(delivery)
    assert first["reply_to"] != again["reply_to"]
    assert world.states() == {"acknowledged": 1}


async def test_a_proof_of_a_dead_connection_is_as_good(world: World) -> None:
    world.publish()
    async with world.client() as client:
        delivery = await client.receive("delivery")
    async with world.client() as client:
        assert await client.is_silent(), "the lease goes on"
        await client.ack(delivery)


@pytest.mark.parametrize(
    ("forged", "code"),
    [
        ({"secret": "A" * 43}, "FORBIDDEN"),
        ({"generation": "2"}, "FORBIDDEN"),
        ({"delivery_id": "0" * 32}, "NOT_FOUND"),
    ],
)
async def test_a_forged_proof_is_refused_and_the_connection_stays(
    world: World, forged: dict[str, str], code: str
) -> None:
    world.publish()
    async with world.client() as client:
        delivery = await client.receive("delivery")
        assert await client.refusal(client.send_ack(delivery, **forged)) == code
        await client.ack(delivery)


async def test_another_subscription_cannot_acknowledge(world: World) -> None:
    world.publish()
    other = world.provider.subscribe(world.operator, "reports").id
    async with world.client() as client, await world.unregistered() as stranger:
        delivery = await client.receive("delivery")
        await stranger.register(other)
        assert await stranger.refusal(stranger.send_ack(delivery)) == "NOT_FOUND"


async def test_many_requests_are_answered_each_by_its_own_reply(world: World) -> None:
    world.publish(32)
    async with world.client(capacity=32) as client:
        deliveries = [await client.receive("delivery") for _ in range(32)]
        asked = {client.send_ack(delivery): delivery for delivery in deliveries}
        asked |= {client.send_ping(): {} for _ in range(32)}
        while asked:
            reply = await client.receive()
            delivery = asked.pop(reply["reply_to"])
            assert reply["type"] == ("ack_receipt" if delivery else "pong")
            assert not delivery or reply["event_id"] == delivery["event"]["id"]


# ---------------------------------------------------------------- heartbeats and pauses
async def test_a_paused_subscription_beats_and_acknowledges_and_delivers_nothing(world: World) -> None:
    world.publish()
    async with world.client(capacity=1) as client:
        delivery = await client.receive("delivery")
        world.provider.enable(world.subscription, is_enabled=False)
        assert await client.ping() is False
        world.publish()
        await client.ack(delivery)
        assert await client.is_silent()
        world.provider.enable(world.subscription, is_enabled=True)
        await client.ack(await client.receive("delivery"))
        assert await client.ping() is True


async def test_a_heartbeat_extends_no_lease(world: World) -> None:
    world.publish()
    async with world.client() as client:
        await client.receive("delivery")
        world.provider.turn_clock(29)
        assert await client.ping()
        world.provider.turn_clock(2)
        assert (await client.receive("delivery"))["delivery"]["generation"] == "2"


@pytest.mark.parametrize(("how", "code"), [("revoke", "UNAUTHENTICATED"), ("rescope", "FORBIDDEN")])
async def test_a_heartbeat_looks_at_the_credential_again(world: World, how: str, code: str) -> None:
    bearer = world.provider.add_credential("mail", ("reports",))
    mine = world.provider.subscribe(world.provider.authenticate(bearer), "reports").id
    async with await world.unregistered(bearer) as client:
        await client.register(mine)
        assert await client.ping()
        if how == "revoke":
            world.provider.revoke("mail")
        else:
            world.provider.rescope("mail", ("invoices",))
        assert await client.refusal(client.send_ping()) == code
        assert await client.end() == 1008


async def test_websocket_pings_are_answered(world: World) -> None:
    async with world.client() as client:
        client.write(b"hello", PING)
        frame = await client.wire()
        assert (frame.opcode, frame.payload) == (PONG, b"hello")


# ---------------------------------------------------------------- several clients
async def test_three_clients_share_a_subscription(world: World) -> None:
    events = set[str]()
    seen: list[tuple[str, str]] = []
    registered = asyncio.Barrier(3)

    async def consume(name: str) -> None:
        async with world.client(capacity=3) as client:
            if await registered.wait() == 0:
                events.update(world.publish(30))
            await registered.wait()
            while len(seen) < len(events):
                try:
                    async with asyncio.timeout(0.2):
                        frame = await client.receive()
                except TimeoutError:
                    continue
                if frame["type"] == "delivery":
                    seen.append((name, frame["event"]["id"]))
                    client.send_ack(frame)
            while world.states() != {"acknowledged": 30}:
                assert not await client.is_silent() or world.states() == {"acknowledged": 30}

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(consume(name))
    assert {event for _, event in seen} == events
    assert len(seen) == 30, "while leases run, nobody else gets the same event"
    assert {name for name, _ in seen} == {"a", "b", "c"}


# ---------------------------------------------------------------- the end
async def test_the_server_says_good_bye_and_leases_stay(tmp_path: Path) -> None:
    settings = OrbitServerSettings(file=tmp_path / "orbit.db")
    async with OrbitServer(settings) as server:
        world, bearer = World(server), server.credential
        world.publish()
        async with world.client() as client:
            delivery = await client.receive("delivery")
            closing = asyncio.create_task(server.close())
            assert await client.end() == 1001
            await closing
    async with OrbitServer(settings) as server:
        assert server.credential == ""
        client = await RawClient.connect(server.url, bearer)
        await client.register(world.subscription)
        assert await client.is_silent()
        await client.ack(delivery)
        client.cut()


async def test_a_port_that_is_taken_is_said(world: World) -> None:
    port = int(world.server.management_url.rpartition(":")[2])
    with pytest.raises(StartupError, match="another program uses it"):
        async with OrbitServer(OrbitServerSettings(port=port)):
            pass


# ---------------------------------------------------------------- TLS
async def test_everything_travels_over_tls(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(made.server, made.server_key)
    trusting = ssl.create_default_context(cafile=made.authority)
    async with OrbitServer(OrbitServerSettings(tls=served)) as server:
        world = World(server)
        world.publish()
        assert server.url.startswith("wss://")
        async with await RawClient.connect(server.url, server.credential, tls=trusting) as client:
            await client.register(world.subscription)
            await client.ack(await client.receive("delivery"))
            assert await client.ping()
        with pytest.raises(ssl.SSLCertVerificationError):
            await RawClient.connect(server.url, server.credential, tls=ssl.create_default_context())
        async with aiohttp.ClientSession() as session:
            health: Any = await (await session.get(f"{server.management_url}/v1/health", ssl=trusting)).json()
            assert health == {"status": "ok"}
        with pytest.raises((Gone, OSError)):
            await RawClient.connect(server.url.replace("wss", "ws"), server.credential)
