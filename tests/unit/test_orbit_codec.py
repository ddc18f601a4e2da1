"""The frames of the leased subscription: what is right is read exactly, and what is almost right is not read at all."""

import json
import os
import random
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from inbox.adapters.websocket.codec import (
    LONGEST_FRAME,
    AckFrame,
    DeliveryFrame,
    ErrorCode,
    ErrorFrame,
    Frame,
    PingFrame,
    PongFrame,
    ReceiptFrame,
    RegisterFrame,
    WelcomeFrame,
    decode_client,
    decode_server,
    encode,
)
from inbox.adapters.websocket.errors import FrameTooLong, OrbitProtocolError
from inbox.core.proof import Secret
from tests.unit import orbit_frames as frames
from tests.unit.orbit_frames import DELIVERY, EVENT, MESSAGE, SECRET, SESSION, SNAPSHOT, SUBSCRIPTION, TASK, text

MALFORMED = frames.malformed()
MUTATIONS = int(os.environ.get("ORBIT_MUTATIONS", "20000"))

CLIENT: list[Frame] = [
    RegisterFrame(MESSAGE, SUBSCRIPTION, 1),
    RegisterFrame(MESSAGE, SUBSCRIPTION, 32),
    AckFrame(SESSION, MESSAGE, DELIVERY, 2**64 - 1, Secret(SECRET)),
    PingFrame(SESSION, MESSAGE),
]
SERVER: list[Frame] = [
    WelcomeFrame(MESSAGE, SESSION, SUBSCRIPTION, 4, enabled=True, lease_seconds=30),
    ReceiptFrame(SESSION, MESSAGE, DELIVERY, EVENT, 1),
    PongFrame(SESSION, MESSAGE, enabled=False),
    *(ErrorFrame(SESSION, reply_to, code, "wörter\ud800") for code in ErrorCode for reply_to in (MESSAGE, None)),
    frames.frame_of(),
    frames.frame_of(2**64 - 1, sequence=0),
    *(
        frames.frame_of(type=f"task.{status}", status=status, snapshot=SNAPSHOT.replace(b"succeeded", status.encode()))
        for status in ("failed", "cancelled", "needs_review")
    ),
]


def shown(error: BaseException) -> str:
    """Everything of an error: its text, its causes, and the variables of each function on its way."""
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


def test_there_are_many_malformed_frames() -> None:
    assert len(MALFORMED) > 300


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_frame_is_refused_with_its_reason_and_shows_nothing(name: str) -> None:
    with pytest.raises(OrbitProtocolError) as caught:
        decode_server(MALFORMED[name])
    assert caught.value.reason
    assert len(str(caught.value)) < 200
    inside = caught.value.with_traceback(caught.tb.tb_next)
    assert SECRET not in shown(inside)
    assert "private" not in shown(inside)
    assert inside.__context__ is inside.__cause__ is None


@pytest.mark.parametrize("frame", SERVER, ids=lambda frame: type(frame).__name__)
def test_what_a_server_writes_a_client_reads(frame: Frame) -> None:
    written = encode(frame)
    assert decode_server(written) == frame
    with pytest.raises(OrbitProtocolError, match="other direction"):
        decode_client(written)


@pytest.mark.parametrize("frame", CLIENT, ids=lambda frame: type(frame).__name__)
def test_what_a_client_writes_a_server_reads(frame: Frame) -> None:
    written = encode(frame)
    assert decode_client(written) == frame
    with pytest.raises(OrbitProtocolError, match="other direction"):
        decode_server(written)


@pytest.mark.parametrize("frame", [*frames.SERVER_FRAMES.values(), *frames.CLIENT_FRAMES.values()])
def test_the_frames_of_the_contract_are_read(frame: Callable[[], dict[str, Any]]) -> None:
    decode = decode_server if frame in frames.SERVER_FRAMES.values() else decode_client
    for written in (json.dumps(frame()), json.dumps(frame(), indent=3), json.dumps(dict(reversed(frame().items())))):
        assert json.loads(encode(decode(written))) == frame()


def test_a_snapshot_stays_as_it_is_octet_for_octet() -> None:
    odd = b'{ "b":1e5,"task_id" :"%s","n":9007199254740993, "m":%s,\t"status":"succeeded","x":"\\u00e9\xc3\xa9\\ud800"}'
    odd = odd.replace(b"%s", TASK.encode(), 1).replace(b"%s", b"1" * 5000)
    read = decode_server(encode(frames.frame_of(snapshot=odd)))
    assert isinstance(read, DeliveryFrame)
    assert read.event.snapshot == odd
    assert read.proof.secret == Secret(SECRET)
    assert (read.proof.event_id, read.proof.generation) == (EVENT, 3)


def test_no_frame_shows_its_secret_or_its_business() -> None:
    for frame in (*SERVER, *CLIENT):
        assert SECRET not in f"{frame!r}{frame}"
        assert "private" not in f"{frame!r}{frame}"
        assert "wörter" not in f"{frame!r}{frame}"


@pytest.mark.parametrize("octets", [LONGEST_FRAME, LONGEST_FRAME + 1])
@pytest.mark.parametrize("filling", ["x", "é"])
def test_a_frame_has_512_kib_at_most_in_both_directions(octets: int, filling: str) -> None:
    def delivery(count: int) -> DeliveryFrame:
        note = (filling * count).encode()[:count]
        note = note if len(note.decode("utf-8", "ignore").encode()) == count else note[:-1] + b"x"
        return frames.frame_of(snapshot=SNAPSHOT[:-1] + b',"filling":"' + note + b'"}')

    frame = delivery(octets - len(encode(delivery(0)).encode()))
    written = _unbounded(frame)
    assert len(written.encode()) == octets
    if octets == LONGEST_FRAME:
        assert decode_server(encode(frame)) == decode_server(written) == frame
        return
    with pytest.raises(FrameTooLong):
        decode_server(written)
    with pytest.raises(FrameTooLong):
        encode(frame)
    ping = text(frames.ping())
    assert decode_client(ping + " " * (LONGEST_FRAME - len(ping))) == PingFrame(SESSION, MESSAGE)
    with pytest.raises(FrameTooLong):
        decode_client(ping + " " * (octets - len(ping)))


def _unbounded(frame: DeliveryFrame) -> str:
    """What `encode` would write if there were no bound."""
    short = encode(frames.frame_of(snapshot=SNAPSHOT))
    return short.replace(SNAPSHOT.decode(), frame.event.snapshot.decode())


@pytest.mark.parametrize(
    "frame",
    [
        RegisterFrame(MESSAGE, SUBSCRIPTION, 33),
        RegisterFrame("short", SUBSCRIPTION, 4),
        AckFrame(SESSION, MESSAGE, DELIVERY, 0, Secret(SECRET)),
        AckFrame(SESSION, MESSAGE, DELIVERY, 2**64, Secret(SECRET)),
        AckFrame(SESSION, MESSAGE, DELIVERY, 1, Secret("short")),
        frames.frame_of(snapshot=SNAPSHOT + b" "),
        frames.frame_of(snapshot=b" " + SNAPSHOT),
        frames.frame_of(snapshot=SNAPSHOT + b',"more":1'),
        frames.frame_of(snapshot=b"\xff"),
        frames.frame_of(snapshot=b"[]"),
        frames.frame_of(status="failed"),
        frames.frame_of(task_id="00" * 16),
        frames.frame_of(type="task.lost"),
    ],
)
def test_what_could_not_be_read_is_not_written(frame: Frame) -> None:
    with pytest.raises(OrbitProtocolError) as caught:
        encode(frame)
    assert SECRET not in shown(caught.value.with_traceback(caught.tb.tb_next))


def test_mutated_frames_are_refused_or_read_as_what_they_say() -> None:
    """Seeded. What is read can be written, and is read as the same again: nothing is read by guessing."""
    drawn = random.Random(20260102)  # noqa: S311 - the same frames each time
    whole = [text(frame()).encode() for frame in frames.SERVER_FRAMES.values()]
    refused = 0
    for _ in range(MUTATIONS):
        mutated = _mutated(drawn, whole)
        try:
            given = mutated.decode()
        except UnicodeDecodeError:
            refused += 1
            continue  # a WebSocket refuses it
        frame = _read(given)
        if isinstance(frame, OrbitProtocolError):
            refused += 1
            assert SECRET[:10] not in str(frame)
            continue
        if isinstance(frame, ReceiptFrame):
            assert json.loads(encode(frame)) == json.loads(given)
        assert decode_server(encode(frame)) == frame
    assert refused > MUTATIONS // 2


def _read(given: str) -> Frame | OrbitProtocolError:
    try:
        return decode_server(given)
    except OrbitProtocolError as error:
        return error


_PIECES = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"0",
    b"1",
    b"e",
    b"-",
    b"null",
    b"true",
    b" ",
    b"\xff",
    b"\0",
    b"\xc3\xa9",
)


def _mutated(drawn: random.Random, whole: list[bytes]) -> bytes:
    frame = drawn.choice(whole)
    for _ in range(drawn.choice((1, 1, 1, 2, 5))):
        at, end = sorted((drawn.randrange(len(frame) + 1), drawn.randrange(len(frame) + 1)))
        end = min(end, at + drawn.choice((1, 1, 2, 8, 64)))
        match drawn.randrange(6):
            case 0:
                frame = frame[:at] + frame[end:]
            case 1:
                frame = frame[:at] + drawn.choice(_PIECES) + frame[at:]
            case 2:
                frame = frame[:at] + drawn.choice(_PIECES) + frame[end:]
            case 3:
                frame = frame[:at] + frame[at:end] * 2 + frame[end:]
            case 4:
                other = drawn.choice(whole)
                frame = frame[:at] + other[at:]
            case _:
                changed = bytearray(frame)
                if changed:
                    changed[at % len(changed)] ^= 1 << drawn.randrange(8)
                frame = bytes(changed)
    return frame
