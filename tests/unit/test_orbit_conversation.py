"""One connection's life under a clock that the test turns: what is allowed, what ends it, what is never confirmed."""

import itertools
import json
import random
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from inbox.adapters.websocket.backoff import Backoff
from inbox.adapters.websocket.codec import PongFrame, ReceiptFrame, decode_client, encode
from inbox.adapters.websocket.conversation import LIMITS, Answer, Conversation, Limits, Phase
from inbox.adapters.websocket.errors import (
    ConnectionBusy,
    ConnectionOver,
    ErrorCode,
    HandshakeRefused,
    HandshakeTimeout,
    OrbitError,
    OrbitProtocolError,
    ProofLost,
    RequestRefused,
    RequestTimeout,
    StopKind,
    UnreadOverflow,
)
from tests.unit import orbit_frames as frames
from tests.unit.orbit_frames import (
    MESSAGE,
    SECRET,
    SESSION,
    SUBSCRIPTION,
    delivery,
    error,
    pong,
    receipt,
    text,
    welcome,
)

OTHER = "0f" * 16
MALFORMED = frames.malformed()


def ids() -> Iterator[str]:
    for number in itertools.count(1):
        yield f"{number:032x}"


def opened(capacity: int = 4, limits: Limits = LIMITS) -> Conversation:
    conversation = Conversation(SUBSCRIPTION, capacity, 0.0, limits)
    conversation.register(MESSAGE)
    answer = conversation.receive(text(welcome(capacity=capacity)))
    assert answer is not None
    assert answer.content is conversation.welcome
    return conversation


def asked(conversation: Conversation, now: float = 0.0) -> Conversation:
    """With an acknowledgement of the standard delivery in flight."""
    conversation.ack(MESSAGE, frames.frame_of().proof, now)
    return conversation


# ---------------------------------------------------------------- the way it goes
def test_a_conversation_from_its_first_frame_to_a_receipt() -> None:
    conversation = Conversation(SUBSCRIPTION, 2, 100.0)
    assert (conversation.phase, conversation.deadline) == (Phase.DIALLING, 108.0)
    register = conversation.register(MESSAGE)
    assert decode_client(encode(register)) == register
    assert (conversation.phase, conversation.deadline) == (Phase.REGISTERING, 108.0)
    conversation.receive(text(welcome(capacity=2)))
    assert conversation.phase is Phase.OPEN
    assert conversation.receive(text(delivery())) is None
    (frame,) = conversation.unread
    ack = conversation.ack(OTHER, frame.proof, 200.0)
    assert decode_client(encode(ack)) == ack
    assert conversation.deadline == 210.0
    answer = conversation.receive(text(receipt(reply_to=OTHER)))
    assert answer is not None
    assert answer.message_id == OTHER
    assert isinstance(answer.content, ReceiptFrame)
    assert conversation.in_flight == 0
    assert conversation.deadline is None


def test_pings_and_acknowledgements_may_be_in_flight_together_and_answers_come_in_any_order() -> None:
    conversation = opened()
    conversation.ack(MESSAGE, frames.frame_of().proof, 0.0)
    conversation.ping(OTHER, 1.0)
    assert conversation.deadline == 10.0
    answer = conversation.receive(text(pong(reply_to=OTHER, enabled=False)))
    assert answer == Answer(OTHER, PongFrame(SESSION, OTHER, enabled=False))
    assert conversation.deadline == 10.0
    assert conversation.receive(text(receipt())) is not None


def test_a_proof_of_an_earlier_connection_is_shown_with_a_new_message_id() -> None:
    first, second = opened(), opened()
    proof = frames.frame_of().proof
    one, two = first.ack(MESSAGE, proof, 0.0), second.ack(OTHER, proof, 0.0)
    assert (one.delivery_id, one.generation, one.secret) == (two.delivery_id, two.generation, two.secret)
    assert one.message_id != two.message_id


# ---------------------------------------------------------------- what is refused here
def test_the_thirty_third_request_is_refused_and_harms_nothing() -> None:
    conversation, fresh = opened(), ids()
    for _ in range(32):
        conversation.ping(next(fresh), 0.0)
    with pytest.raises(ConnectionBusy):
        conversation.ping(next(fresh), 0.0)
    with pytest.raises(ConnectionBusy):
        conversation.ack(next(fresh), frames.frame_of().proof, 0.0)
    assert conversation.phase is Phase.OPEN
    assert conversation.receive(text(pong(reply_to=f"{1:032x}"))) is not None
    conversation.ping(next(fresh), 0.0)


def test_a_message_id_is_used_once_and_a_proof_for_its_own_subscription() -> None:
    conversation = asked(opened())
    with pytest.raises(ValueError, match="once"):
        conversation.ping(MESSAGE, 0.0)
    with pytest.raises(ValueError, match="another subscription"):
        conversation.ack(OTHER, frames.frame_of(subscription_id=OTHER).proof, 0.0)
    assert conversation.phase is Phase.OPEN


def test_nothing_is_asked_before_the_welcome_or_registered_twice() -> None:
    conversation = Conversation(SUBSCRIPTION, 4, 0.0)
    with pytest.raises(ValueError, match="dialling"):
        conversation.ping(MESSAGE, 0.0)
    conversation.register(MESSAGE)
    with pytest.raises(ValueError, match="registering"):
        conversation.register(OTHER)


# ---------------------------------------------------------------- time
def test_a_handshake_has_eight_seconds() -> None:
    for is_registered in (False, True):
        conversation = Conversation(SUBSCRIPTION, 4, 50.0)
        if is_registered:
            conversation.register(MESSAGE)
        conversation.expire(57.999)
        with pytest.raises(HandshakeTimeout):
            conversation.expire(58.0)
        assert conversation.phase is Phase.OVER
        with pytest.raises(OrbitError):
            conversation.receive(text(welcome()))


def test_a_request_has_ten_seconds_and_its_time_out_ends_the_connection() -> None:
    conversation = asked(opened(), now=5.0)
    conversation.ping(OTHER, 9.0)
    conversation.expire(14.999)
    with pytest.raises(RequestTimeout):
        conversation.expire(15.0)
    assert isinstance(conversation.error, RequestTimeout)
    assert (conversation.phase, conversation.deadline, conversation.in_flight) == (Phase.OVER, None, 0)
    with pytest.raises(RequestTimeout):
        conversation.receive(text(receipt()))  # too late: it confirms nothing
    with pytest.raises(RequestTimeout):
        conversation.ping(OTHER, 15.0)
    conversation.expire(1000.0)


def test_what_was_answered_does_not_expire() -> None:
    conversation = asked(opened())
    conversation.receive(text(receipt()))
    conversation.expire(1e9)
    assert conversation.phase is Phase.OPEN


# ---------------------------------------------------------------- what ends it
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_frame_ends_it_and_confirms_nothing(name: str) -> None:
    conversation = asked(opened())
    with pytest.raises(OrbitProtocolError) as caught:
        conversation.receive(MALFORMED[name])
    assert conversation.phase is Phase.OVER
    assert conversation.error is caught.value
    assert not conversation.unread
    inside = caught.value.with_traceback(caught.tb.tb_next)
    shown = "".join(traceback.TracebackException.from_exception(inside, capture_locals=True).format())
    assert SECRET not in shown
    assert "private" not in shown
    with pytest.raises(OrbitProtocolError):
        conversation.receive(text(receipt()))


OUT_OF_PLACE: dict[str, dict[str, Any]] = {
    "a receipt of another session": receipt(session_id=OTHER),
    "a receipt for what was not asked": receipt(reply_to=OTHER),
    "a receipt for another delivery": receipt(delivery_id=OTHER),
    "a receipt for another event": receipt(event_id=OTHER),
    "a receipt for another generation": receipt(generation="4"),
    "a receipt for an earlier generation": receipt(generation="2"),
    "a pong for an acknowledgement": pong(),
    "a pong for what was not asked": pong(reply_to=OTHER),
    "a pong of another session": pong(session_id=OTHER),
    "a second welcome": welcome(),
    "a second welcome for what was not asked": welcome(reply_to=OTHER),
    "a delivery of another session": delivery(session_id=OTHER),
    "a delivery of another subscription": json.loads(frames.within(delivery(), "event.subscription_id", OTHER)),
    "an error of another session": error(session_id=OTHER),
    "an error for what was not asked": error(reply_to=OTHER),
    "a lost proof that is not said": error(reply_to=None, code="PROOF_LOST"),
}


@pytest.mark.parametrize("name", OUT_OF_PLACE)
def test_a_frame_that_is_out_of_place_ends_it_and_confirms_nothing(name: str) -> None:
    conversation = asked(opened())
    with pytest.raises(OrbitProtocolError):
        conversation.receive(text(OUT_OF_PLACE[name]))
    assert conversation.phase is Phase.OVER


def test_a_receipt_for_a_ping_and_a_second_receipt_end_it() -> None:
    conversation = opened()
    conversation.ping(MESSAGE, 0.0)
    with pytest.raises(OrbitProtocolError):
        conversation.receive(text(receipt()))
    conversation = asked(opened())
    assert conversation.receive(text(receipt())) is not None
    with pytest.raises(OrbitProtocolError):
        conversation.receive(text(receipt()))
    conversation = opened()
    conversation.ping(MESSAGE, 0.0)
    with pytest.raises(OrbitProtocolError):
        conversation.receive(text(error(code="PROOF_LOST")))


@pytest.mark.parametrize(
    "frame",
    [
        welcome(reply_to=OTHER),
        welcome(subscription_id=OTHER),
        welcome(capacity=5),
        delivery(),
        pong(),
        receipt(),
    ],
)
def test_a_welcome_has_to_fit_and_comes_first(frame: dict[str, Any]) -> None:
    conversation = Conversation(SUBSCRIPTION, 4, 0.0)
    conversation.register(MESSAGE)
    with pytest.raises(OrbitProtocolError):
        conversation.receive(text(frame))
    assert conversation.welcome is None


def test_a_welcome_before_it_was_asked_for_ends_it() -> None:
    with pytest.raises(OrbitProtocolError):
        Conversation(SUBSCRIPTION, 4, 0.0).receive(text(welcome()))


def test_unread_deliveries_have_room_for_the_capacity_and_one_more_ends_it() -> None:
    conversation = opened(capacity=2)
    for generation in (1, 2):
        conversation.receive(text(delivery(generation)))
    with pytest.raises(UnreadOverflow) as caught:
        conversation.receive(text(delivery(3)))
    assert caught.value.kind is None
    assert [frame.delivery.generation for frame in conversation.unread] == [1, 2]
    conversation = opened(capacity=1)
    for generation in range(1, 10):
        conversation.receive(text(delivery(generation)))
        conversation.unread.popleft()


# ---------------------------------------------------------------- errors of the peer
def test_a_refused_request_is_an_answer_and_leaves_the_connection() -> None:
    for code in ErrorCode:
        conversation = asked(opened())
        answer = conversation.receive(text(error(code=code.value)))
        assert answer is not None
        assert isinstance(answer.content, ProofLost if code is ErrorCode.PROOF_LOST else RequestRefused)
        assert "remote" not in f"{answer!r}{answer.content}"
        assert conversation.phase is Phase.OPEN
        assert conversation.in_flight == 0


def test_an_error_for_nobody_ends_the_connection_with_its_code() -> None:
    conversation = asked(opened())
    with pytest.raises(RequestRefused) as caught:
        conversation.receive(text(error(reply_to=None, code="UNAUTHENTICATED")))
    assert (caught.value.kind, conversation.phase) == (StopKind.AUTHENTICATION, Phase.OVER)
    assert SECRET not in str(caught.value)


def test_a_registration_may_be_refused() -> None:
    for reply_to in (MESSAGE, None):
        conversation = Conversation(SUBSCRIPTION, 4, 0.0)
        conversation.register(MESSAGE)
        refused: object
        try:
            answer = conversation.receive(text(error(reply_to=reply_to, code="NOT_FOUND")))
        except RequestRefused as raised:
            refused = raised
        else:
            refused = None if answer is None else answer.content
        assert isinstance(refused, RequestRefused)
        assert refused.kind is StopKind.NOT_FOUND


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.UNAVAILABLE, None),
        (ErrorCode.BUSY, None),
        (ErrorCode.UNAUTHENTICATED, StopKind.AUTHENTICATION),
        (ErrorCode.FORBIDDEN, StopKind.PERMISSION),
        (ErrorCode.NOT_FOUND, StopKind.NOT_FOUND),
        (ErrorCode.HISTORY_GAP, StopKind.HISTORY_GAP),
        (ErrorCode.PROTOCOL, StopKind.PROTOCOL),
        (ErrorCode.INTERNAL, StopKind.OTHER),
    ],
)
def test_what_a_code_means(code: ErrorCode, kind: StopKind | None) -> None:
    assert RequestRefused(code).kind is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (408, None),
        (429, None),
        (500, None),
        (503, None),
        (599, None),
        (401, StopKind.AUTHENTICATION),
        (403, StopKind.PERMISSION),
        (404, StopKind.NOT_FOUND),
        (302, StopKind.OTHER),
        (400, StopKind.OTHER),
        (426, StopKind.OTHER),
        (200, StopKind.OTHER),
    ],
)
def test_what_a_status_means(status: int, kind: StopKind | None) -> None:
    assert HandshakeRefused(status).kind is kind


def test_closing_here_is_a_reason_too_and_the_first_one_stays() -> None:
    conversation = opened()
    assert isinstance(conversation.fail(), ConnectionOver)
    assert isinstance(conversation.fail(RequestTimeout()), ConnectionOver)
    with pytest.raises(ConnectionOver):
        conversation.ping(MESSAGE, 0.0)


# ---------------------------------------------------------------- waiting to connect again
def test_delays_double_and_are_drawn_from_their_upper_half() -> None:
    drawn = random.Random(7)  # noqa: S311 - the same ones each time
    backoff = Backoff(0.2, 5.0)
    for whole in (0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0):
        delay = backoff.next(drawn.random())
        assert whole / 2 <= delay <= whole
    backoff.reset()
    assert (backoff.next(0.0), backoff.next(1.0)) == (0.1, 0.4)


def test_a_long_outage_overflows_nothing() -> None:
    backoff = Backoff(0.01, 30.0)
    assert [backoff.next(1.0) for _ in range(5000)][-1] == 30.0
