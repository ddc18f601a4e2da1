"""What the server can do wrong: every variant of a frame is wrong indeed, and every switch says what it cannot do."""

import json
from itertools import product

import pytest

from inbox.adapters.websocket.codec import (
    DeliveryFrame,
    ErrorCode,
    ErrorFrame,
    Grant,
    PongFrame,
    ReceiptFrame,
    ServerFrame,
    TaskEvent,
    WelcomeFrame,
    decode_server,
    encode,
)
from inbox.adapters.websocket.errors import OrbitProtocolError
from inbox.core.proof import Secret
from inbox.errors import ConfigurationError
from inbox.testing.orbit_server import Act, Cut, Moment, Switch
from inbox.testing.orbit_server.malformed import VARIANTS, malform, names_for, set_member
from inbox.testing.orbit_server.switches import ACTS, Switchboard
from inbox.testing.orbit_server.wire import Opcode, raw_frame

S, E, D, Z, M = ("1" * 32, "2" * 32, "3" * 32, "4" * 32, "5" * 32)
TASK = "7" * 32
SNAPSHOT = b'{"task_id":"' + TASK.encode() + b'","status":"succeeded","n":9007199254740993,"f":1.10}'
FRAMES: dict[str, ServerFrame] = {
    "welcome": WelcomeFrame(M, Z, S, 32, True, 30),
    "delivery": DeliveryFrame(
        Z,
        Grant(D, E, 3, Secret("A" * 43)),
        TaskEvent(E, "task.succeeded", S, 17, "2026-01-02T03:04:05.678Z", SNAPSHOT, TASK, "succeeded"),
    ),
    "ack_receipt": ReceiptFrame(Z, M, D, E, 3),
    "pong": PongFrame(Z, M, True),
    "error": ErrorFrame(Z, M, ErrorCode.BUSY, "later"),
}
#: These are right as frames: only who knows what was asked, and of which session, can tell that they are wrong.
RIGHT_ALONE = {
    *("session-other", "reply-to-other", "subscription-other", "capacity-other"),
    *("receipt-other-delivery", "receipt-other-event", "receipt-other-generation"),
    "event-of-other-subscription",
}
CASES = [(kind, name) for kind in FRAMES for name in names_for(kind)]


def unwrapped(octets: bytes) -> list[tuple[int, bytes]]:
    """Opcode and payload of each frame."""
    frames = []
    while octets:
        size, head = octets[1] & 0x7F, 2
        if size >= 126:
            head = 4 if size == 126 else 10
            size = int.from_bytes(octets[2:head], "big")
        head += 4 if octets[1] & 0x80 else 0
        frames.append((octets[0], octets[head : head + size]))
        octets = octets[head + size :]
    return frames


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_every_variant_is_wrong_in_itself_or_to_who_asked(kind: str, name: str) -> None:
    text = encode(FRAMES[kind])
    octets = malform(name, kind, text)
    assert octets != raw_frame(text.encode())
    (opcode, payload), *more = unwrapped(octets)
    if opcode != 0x81 or octets[1] & 0x80:
        return  # not a text frame of a server's at all
    if name in RIGHT_ALONE:
        assert decode_server(payload.decode()) != FRAMES[kind]
        return
    try:
        said = payload.decode()
    except UnicodeDecodeError:
        return
    with pytest.raises(OrbitProtocolError):
        decode_server(said)
    assert bool(more) == (name == "two-messages")


def test_there_is_a_variant_for_each_member_of_each_frame() -> None:
    assert {kind for variant in VARIANTS.values() for kind in variant.frames} == {*FRAMES}
    assert len(CASES) > 200
    with pytest.raises(KeyError):
        malform("no-secret", "pong", encode(FRAMES["pong"]))


def test_one_member_is_set_and_everything_else_stays() -> None:
    text = encode(FRAMES["delivery"])
    changed = set_member(text, "delivery.generation", '"+3"')
    assert changed == text.replace('"generation":"3"', '"generation":"+3"')
    assert '"n":9007199254740993,"f":1.10' in changed
    for path in ("colour", "delivery.colour", "session_id.colour"):
        with pytest.raises(KeyError):
            set_member(text, path, "1")


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_of_every_length_are_framed(size: int) -> None:
    assert unwrapped(raw_frame(b"x" * size, Opcode.BINARY)) == [(0x82, b"x" * size)]


# ---------------------------------------------------------------- switches
def test_a_switch_counts_only_what_it_is_for() -> None:
    board = Switchboard()
    number = board.set(Switch(Act.LOSE_REPLY, "ack", nth=2, times=2, subscription_id=S))
    asked = [("ping", S), ("ack", E), ("ack", S), ("ack", S), ("ack", S), ("ack", S)]
    acted = [board.at(*each) is not None for each in asked]
    assert acted == [False, False, False, True, True, False]
    assert board.hits(number) == 2
    (told,) = board.describe()
    assert (told["number"], told["seen"], told["hits"], told["act"]) == (number, 4, 2, "lose-reply")
    json.dumps(told)


def test_a_switch_can_act_for_ever_and_be_taken_back() -> None:
    board = Switchboard()
    number = board.set(Switch(Act.IGNORE, "ping", times=0))
    assert all(board.at("ping", S) for _ in range(5))
    assert board.clear(number)
    assert not board.clear(number)
    assert board.at("ping", S) is None
    board.set(Switch(Act.IGNORE, "ping"))
    assert board.clear()
    assert board.describe() == []
    assert not board.release(number)


async def test_what_is_held_goes_when_it_is_released_or_its_time_is_over() -> None:
    board = Switchboard()
    for let_go in (board.release, board.clear):
        number = board.set(Switch(Act.HOLD, "pong"))
        switch = board.at("pong")
        assert switch is not None
        assert let_go(number)
        await board.wait_released(switch)
    number = board.set(Switch(Act.HOLD, "welcome", seconds=0.001))
    switch = board.at("welcome")
    assert switch is not None
    await board.wait_released(switch)
    await board.wait_hit(number)
    with pytest.raises(TimeoutError):
        await board.wait_hit(board.set(Switch(Act.HOLD, "welcome")), 0.01)


@pytest.mark.parametrize(("act", "frame"), [*product(Act, ["upgrade", "register", "ack", "ping", *FRAMES])])
def test_each_act_has_its_frames(act: Act, frame: str) -> None:
    variant = "not-json" if act is Act.MALFORM else ""
    if frame in ACTS[act]:
        Switch(act, frame, variant=variant)
    else:
        with pytest.raises(ConfigurationError):
            Switch(act, frame, variant=variant)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({}, "missing: act, frame"),
        ({"act": "dance", "frame": "ack"}, "act: one of"),
        ({"act": "cut", "frame": "hello"}, "frame is one of"),
        ({"act": "cut", "frame": "ack", "colour": "blue"}, "unknown member"),
        ({"act": "cut", "frame": "ack", "nth": 0}, "nth"),
        ({"act": "cut", "frame": "ack", "nth": True}, "nth: of another type"),
        ({"act": "cut", "frame": "ack", "times": -1}, "times"),
        ({"act": "cut", "frame": "ack", "when": "middle"}, "when"),
        ({"act": "cut", "frame": "ack", "how": "gently"}, "how: one of"),
        ({"act": "cut", "frame": "ack", "subscription_id": "x"}, "subscription_id"),
        ({"act": "cut", "frame": "upgrade", "subscription_id": S}, "an upgrade has none"),
        ({"act": "refuse", "frame": "ack", "code": "TEAPOT"}, "code: one of"),
        ({"act": "answer-http", "frame": "upgrade", "status": 200}, "status"),
        ({"act": "malform", "frame": "pong"}, "say a variant"),
        ({"act": "malform", "frame": "pong", "variant": "no-secret"}, "variant"),
        ({"act": "malform", "frame": "pong", "variant": "empty", "member": "x"}, "say a variant"),
        ({"act": "hold", "frame": "pong", "seconds": -1}, "seconds"),
        ({"act": "hold", "frame": "pong", "seconds": "1"}, "seconds: of another type"),
        ({"act": ["cut"], "frame": "ack"}, "act: one of"),
    ],
)
def test_a_switch_that_contradicts_itself_is_refused(members: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Switch.from_members(members)


def test_a_switch_is_told_as_it_was_given() -> None:
    given = {"act": "cut", "frame": "delivery", "nth": 2, "when": "middle", "how": "fin", "seconds": 0}
    switch = Switch.from_members(given)
    assert switch == Switch(Act.CUT, "delivery", nth=2, when=Moment.MIDDLE, how=Cut.FIN)
    assert Switch.from_members(switch.to_members() | {"subscription_id": S}).subscription_id == S
