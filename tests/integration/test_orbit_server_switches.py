"""Everything that the reference server can do wrong, over real sockets: each switch, each error code, each variant."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from inbox.adapters.websocket.codec import ErrorCode
from inbox.testing.orbit_server import Act, Cut, Moment, OrbitServer, Switch
from inbox.testing.orbit_server.malformed import names_for
from inbox.testing.orbit_server.rules import ends_connection
from tests.integration.orbit_rig import World
from tests.orbit_client import CONTINUATION, TEXT, Gone, RawClient, Refused, new_id

SENT = ["welcome", "delivery", "ack_receipt", "pong"]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with OrbitServer() as server:
        yield World(server)


def set_(world: World, act: Act, frame: str, **more: object) -> int:
    return world.server.switches.set(Switch(act, frame, **more))  # type: ignore[arg-type] # as the test says


def ask(client: RawClient, world: World, kind: str, delivery: object = None) -> str:
    """Send a request of that kind; its message id."""
    match kind:
        case "register":
            message = new_id()
            client.send(type="register", message_id=message, subscription_id=world.subscription, capacity=4)
            return message
        case "ping":
            return client.send_ping()
        case _:
            assert isinstance(delivery, dict)
            return client.send_ack(delivery)


async def until(client: RawClient, world: World, kind: str) -> None:
    """Do what is needed until the server has sent, or was to send, a frame of that kind."""
    if kind in {"ack_receipt", "pong"}:
        world.publish()
    ask(client, world, "register")
    if kind == "welcome":
        return
    client.session = (await client.receive("welcome"))["session_id"]
    if kind == "delivery":
        world.publish()
        return
    delivery = await client.receive("delivery")
    ask(client, world, {"ack_receipt": "ack", "pong": "ping"}[kind], delivery)


# ---------------------------------------------------------------- the upgrade
@pytest.mark.parametrize("status", [401, 403, 404, 408, 429, 500, 502, 503])
async def test_the_upgrade_is_answered_by_a_status(world: World, status: int) -> None:
    set_(world, Act.ANSWER_HTTP, "upgrade", status=status, times=2)
    for _ in range(2):
        with pytest.raises(Refused) as refused:
            await world.unregistered()
        assert refused.value.status == status
    async with world.client() as client:
        assert await client.ping()


@pytest.mark.parametrize("how", [Cut.RESET, Cut.FIN])
async def test_the_upgrade_is_cut(world: World, how: Cut) -> None:
    set_(world, Act.CUT, "upgrade", how=how)
    with pytest.raises(Gone):
        await world.unregistered()


async def test_the_upgrade_waits_until_it_is_released(world: World) -> None:
    number = set_(world, Act.HOLD, "upgrade")
    connecting = asyncio.create_task(world.unregistered())
    await world.server.switches.wait_hit(number)
    assert not connecting.done()
    world.server.switches.release(number)
    async with await connecting as client:
        await client.register(world.subscription)


# ---------------------------------------------------------------- requests
@pytest.mark.parametrize("code", ErrorCode)
@pytest.mark.parametrize("kind", ["register", "ack", "ping"])
async def test_each_request_is_refused_with_each_code(world: World, kind: str, code: ErrorCode) -> None:
    set_(world, Act.REFUSE, kind, code=code)
    world.publish()
    async with await world.unregistered() as client:
        delivery = None
        if kind != "register":
            await client.register(world.subscription)
            delivery = await client.receive("delivery")
        message = ask(client, world, kind, delivery)
        assert await client.refusal(message) == code.value
        assert "acknowledged" not in world.states()
        if ends_connection(kind, code):
            await client.end()
        else:
            client.send_ping()
            assert (await client.receive())["type"] == "pong"


async def test_a_request_is_refused_after_it_was_carried_out(world: World) -> None:
    set_(world, Act.REFUSE, "ack", when=Moment.AFTER)
    world.publish()
    async with world.client() as client:
        delivery = await client.receive("delivery")
        assert await client.refusal(client.send_ack(delivery)) == "UNAVAILABLE"
        assert world.states() == {"acknowledged": 1}
        await client.ack(delivery)


async def test_the_reply_to_an_acknowledgement_is_lost(world: World) -> None:
    set_(world, Act.LOSE_REPLY, "ack")
    world.publish()
    async with world.client() as client:
        delivery = await client.receive("delivery")
        client.send_ack(delivery)
        assert await client.ping(), "it answers what comes after"
        assert world.states() == {"acknowledged": 1}
    async with world.client() as client:
        await client.ack(delivery)


async def test_a_request_is_ignored(world: World) -> None:
    set_(world, Act.IGNORE, "ack")
    set_(world, Act.IGNORE, "register")
    world.publish()
    async with await world.unregistered() as client:
        ask(client, world, "register")
        assert await client.is_silent()
        await client.register(world.subscription)
        delivery = await client.receive("delivery")
        client.send_ack(delivery)
        assert await client.ping()
        assert world.states() == {"leased": 1}


async def test_a_proof_is_replaced_and_the_event_comes_again(world: World) -> None:
    set_(world, Act.REPLACE, "ack")
    world.publish()
    async with world.client() as client:
        delivery = await client.receive("delivery")
        message = client.send_ack(delivery)
        frames = {}
        for _ in range(2):
            frame = await client.receive()
            frames[frame["type"]] = frame
        assert (frames["error"]["code"], frames["error"]["reply_to"]) == ("PROOF_LOST", message)
        again = frames["delivery"]
        assert again["event"] == delivery["event"]
        assert (delivery["delivery"]["generation"], again["delivery"]["generation"]) == ("1", "3")
        await client.ack(again)


async def test_a_proof_of_what_is_done_is_not_replaced(world: World) -> None:
    world.publish()
    async with world.client() as client:
        delivery = await client.receive("delivery")
        await client.ack(delivery)
        set_(world, Act.REPLACE, "ack")
        await client.ack(delivery)


async def test_deliveries_go_past_the_capacity(world: World) -> None:
    set_(world, Act.OVERRUN, "register")
    world.publish(9)
    async with world.client(capacity=2) as client:
        events = {(await client.receive("delivery"))["event"]["id"] for _ in range(9)}
    assert len(events) == 9


# ---------------------------------------------------------------- cuts
@pytest.mark.parametrize("how", Cut)
@pytest.mark.parametrize("when", [Moment.BEFORE, Moment.AFTER])
@pytest.mark.parametrize("kind", ["register", "ack", "ping"])
async def test_the_socket_is_cut_at_a_request(world: World, kind: str, when: Moment, how: Cut) -> None:
    set_(world, Act.CUT, kind, when=when, how=how)
    world.publish()
    async with await world.unregistered() as client:
        delivery = None
        if kind != "register":
            await client.register(world.subscription)
            delivery = await client.receive("delivery")
        ask(client, world, kind, delivery)
        assert await client.end() == (1012 if how is Cut.CLOSE else None)
    done = {"acknowledged": 1} if (kind, when) == ("ack", Moment.AFTER) else {"leased": 1}
    assert world.states() == ({"due": 1} if kind == "register" else done)


@pytest.mark.parametrize("how", Cut)
@pytest.mark.parametrize("when", Moment)
@pytest.mark.parametrize("kind", SENT)
async def test_the_socket_is_cut_at_a_frame_that_is_sent(world: World, kind: str, when: Moment, how: Cut) -> None:
    set_(world, Act.CUT, kind, when=when, how=how)
    async with await world.unregistered() as client:
        await until(client, world, kind)
        if when is Moment.AFTER:
            assert (await client.receive())["type"] == kind
        if when is Moment.MIDDLE:
            # A close frame in the middle of a frame is part of its payload.
            with pytest.raises(Gone) as gone:
                await client.wire()
            assert gone.value.code is None
        else:
            assert await client.end() == (1012 if how is Cut.CLOSE else None)
    async with world.client() as client:
        assert await client.ping()


async def test_the_third_delivery_is_cut_and_the_leases_of_all_go_on(world: World) -> None:
    set_(world, Act.CUT, "delivery", nth=3, when=Moment.MIDDLE)
    world.publish(4)
    async with world.client() as client:
        for _ in range(2):
            await client.receive("delivery")
        assert await client.end() is None
    assert world.states() == {"leased": 4}
    async with world.client() as client:
        assert await client.is_silent()
        world.provider.turn_clock(31)
        generations = [(await client.receive("delivery"))["delivery"]["generation"] for _ in range(4)]
    assert generations == ["2"] * 4


# ---------------------------------------------------------------- what is held or repeated
@pytest.mark.parametrize("kind", SENT)
async def test_a_frame_is_held_until_it_is_released(world: World, kind: str) -> None:
    number = set_(world, Act.HOLD, kind)
    async with await world.unregistered() as client:
        await until(client, world, kind)
        await world.server.switches.wait_hit(number)
        if kind != "welcome":
            assert await client.ping(), "what comes later overtakes it"
        world.server.switches.release(number)
        assert (await client.receive())["type"] == kind


async def test_a_frame_is_held_for_a_time(world: World) -> None:
    set_(world, Act.HOLD, "ack_receipt", seconds=0.05)
    world.publish()
    async with world.client() as client:
        await client.ack(await client.receive("delivery"))


async def test_what_is_held_goes_nowhere_when_the_connection_has_ended(world: World) -> None:
    number = set_(world, Act.HOLD, "ack_receipt")
    world.publish()
    async with world.client() as client:
        client.send_ack(await client.receive("delivery"))
        await world.server.switches.wait_hit(number)
    while world.server.connections:
        await asyncio.sleep(0.01)
    world.server.switches.release(number)
    assert world.states() == {"acknowledged": 1}


@pytest.mark.parametrize("kind", SENT)
async def test_a_frame_is_sent_twice(world: World, kind: str) -> None:
    set_(world, Act.REPEAT, kind)
    async with await world.unregistered() as client:
        await until(client, world, kind)
        first = await client.receive(kind)
        assert await client.receive(kind) == first


# ---------------------------------------------------------------- malformed frames
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in [*SENT, "error"] for name in names_for(kind)])
async def test_each_malformed_frame_is_sent(world: World, kind: str, name: str) -> None:
    number = set_(world, Act.MALFORM, kind, variant=name)
    async with await world.unregistered() as client:
        if kind == "error":
            set_(world, Act.REFUSE, "ping", code=ErrorCode.BUSY)
            await client.register(world.subscription)
            client.send_ping()
        else:
            await until(client, world, kind)
        frame = await client.wire()
        assert frame.opcode != CONTINUATION or name == "stray-continuation"
        assert frame.is_masked is (name == "masked")
        assert len(frame.payload) > 512 * 1024 or name != "too-long"
    assert world.server.switches.hits(number) == 1


async def test_one_member_is_replaced_by_what_a_test_says(world: World) -> None:
    set_(world, Act.MALFORM, "delivery", member="event.snapshot", value='{"n": 1e999}')
    world.publish(2)
    async with world.client() as client:
        frame = await client.wire()
        assert frame.opcode == TEXT
        assert b'"snapshot":{"n": 1e999}' in frame.payload
        assert json.loads((await client.wire()).payload)["event"]["snapshot"]["n"] == 1


async def test_a_member_that_the_frame_has_not_ends_the_connection_and_is_no_silence(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    set_(world, Act.MALFORM, "pong", member="colour", value="1")
    async with world.client() as client:
        client.send_ping()
        assert await client.end() is None
    assert "KeyError" in caplog.text


async def test_a_cut_of_all_leaves_the_server_serving(world: World) -> None:
    async with world.client() as client:
        world.server.cut_connections()
        assert await client.end() is None
    async with world.client() as client:
        assert await client.ping()


async def test_a_switch_for_one_subscription_spares_the_others(world: World) -> None:
    other = world.provider.subscribe(world.operator, "other").id
    set_(world, Act.CUT, "ping", subscription_id=other)
    async with world.client() as client, await world.unregistered() as victim:
        await victim.register(other)
        assert await client.ping()
        victim.send_ping()
        assert await victim.end() is None
