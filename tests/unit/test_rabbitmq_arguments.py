"""What a broker says about a queue, and what of it would lose events."""

import pytest

from inbox.adapters.rabbitmq.arguments import (
    NO_DELIVERY_LIMIT,
    Argument,
    Mismatch,
    QueueFacts,
    closes_cycle,
    parse_mismatch,
    problems_of,
)

QUORUM = {"x-queue-type": "quorum"}


@pytest.mark.parametrize(
    ("reply", "mismatch"),
    [
        (
            "'x-dead-letter-exchange' for queue 'q'|none but current is the value '' of type 'longstr'",
            Mismatch("x-dead-letter-exchange", None, ""),
        ),
        (
            "'x-overflow' for queue 'q'|'drop-head' but current is 'reject-publish'",
            Mismatch("x-overflow", "drop-head", "reject-publish"),
        ),
        (
            "'x-delivery-limit' for queue 'q'|the value '5' of type 'byte' but current is none",
            Mismatch("x-delivery-limit", 5, None),
        ),
        (
            "'x-dead-letter-routing-key' for queue 'it's'|none but current is the value 'a'b' of type 'longstr'",
            Mismatch("x-dead-letter-routing-key", None, "a'b"),
        ),
        (
            "'x-delivery-limit' for queue 'q'|none but current is the value '-1' of type 'byte'",
            Mismatch("x-delivery-limit", None, -1),
        ),
        (
            "'type' for exchange 'e'|'direct' but current is 'topic'",
            Mismatch("type", "direct", "topic"),
        ),
        ("nothing that is known", None),
        ("", None),
    ],
)
def test_a_refusal_names_both_values(reply: str, mismatch: Mismatch | None) -> None:
    what, _, values = reply.partition("|")
    text = f"PRECONDITION_FAILED - inequivalent arg {what} in vhost '/': received {values}" if values else what
    assert parse_mismatch(text) == mismatch


@pytest.mark.parametrize(
    ("arguments", "version", "limit"),
    [
        (QUORUM, (3, 13), None),
        (QUORUM, (4, 0), 20),
        (QUORUM | {"x-delivery-limit": 7}, (3, 10), 7),
        (QUORUM | {"x-delivery-limit": -1}, (4, 3), None),
        # 3.x takes -1, and gives a message up at its first return.
        (QUORUM | {"x-delivery-limit": -1}, (3, 10), 0),
        (QUORUM | {"x-delivery-limit": NO_DELIVERY_LIMIT}, (3, 10), None),
        (QUORUM | {"x-delivery-limit": NO_DELIVERY_LIMIT}, (4, 3), None),
        ({}, (4, 3), None),
    ],
)
def test_the_delivery_limit_is_what_the_broker_makes_of_it(
    arguments: dict[str, Argument], version: tuple[int, int], limit: int | None
) -> None:
    assert QueueFacts("q", arguments, version).delivery_limit == limit


@pytest.mark.parametrize(
    ("arguments", "version", "words"),
    [
        (QUORUM, (4, 0), "x-delivery-limit"),
        (QUORUM | {"x-delivery-limit": 5}, (3, 10), "after 5 returns"),
        ({"x-message-ttl": 1000}, (3, 10), "x-message-ttl"),
        ({"x-max-length": 10}, (3, 10), "x-max-length"),
        ({"x-expires": 1000}, (3, 10), "x-expires"),
        ({"x-queue-type": "stream"}, (3, 10), "neither a quorum nor a classic"),
        ({"x-message-ttl": 1, "x-dead-letter-exchange": ""}, (3, 10), "x-dead-letter-routing-key"),
    ],
)
def test_what_would_lose_events_is_a_problem(
    arguments: dict[str, Argument], version: tuple[int, int], words: str
) -> None:
    problems = problems_of(QueueFacts("q", arguments, version), dead_letters_by_policy=False)
    assert len(problems) == 1
    assert words in problems[0]


@pytest.mark.parametrize(
    ("arguments", "version"),
    [
        (QUORUM, (3, 13)),
        (QUORUM | {"x-delivery-limit": -1}, (4, 0)),
        (QUORUM | {"x-dead-letter-exchange": "dlx"}, (4, 3)),
        ({}, (4, 3)),
        ({"x-max-length": 10, "x-overflow": "reject-publish"}, (4, 3)),
    ],
)
def test_what_loses_nothing_is_none(arguments: dict[str, Argument], version: tuple[int, int]) -> None:
    assert problems_of(QueueFacts("q", arguments, version), dead_letters_by_policy=False) == []


def test_someone_may_vouch_for_a_policy() -> None:
    assert problems_of(QueueFacts("q", QUORUM, (4, 0)), dead_letters_by_policy=True) == []


def test_a_cycle_without_a_rejection_is_found() -> None:
    limited = QueueFacts("q", QUORUM, (4, 0))
    waiting = QueueFacts("wait", {"x-message-ttl": 1}, (4, 0))
    patient = QueueFacts("parked", {}, (4, 0))
    assert closes_cycle([limited, waiting], "q")
    assert closes_cycle([limited], "q")
    assert not closes_cycle([limited, waiting], "elsewhere")
    assert not closes_cycle([limited, patient], "q")
    # A queue before the cycle does not matter.
    assert closes_cycle([patient, limited, waiting], "q")
