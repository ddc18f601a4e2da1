"""Which queue a wait is for, what it is called, and what an existing one of that name must be."""

import math
from typing import Any

import pytest

from inbox.adapters.rabbitmq import RabbitMQ, RabbitMQSettings
from inbox.adapters.rabbitmq.arguments import NO_DELIVERY_LIMIT, QueueFacts
from inbox.adapters.rabbitmq.retry_queues import LONGEST_SUFFIX, RetryQueue, choose, milliseconds, retry_queues
from inbox.core.delivery import Delivery
from inbox.core.policy import LONGEST_WAIT
from inbox.errors import ConfigurationError, TransportError

URL = "amqp://someone:hunter2@127.0.0.1:1/"
LONGEST = int(LONGEST_WAIT * 1000)


@pytest.mark.parametrize(
    ("delay", "name"),
    [
        (1, "orders.retry.1s"),
        (300.0, "orders.retry.300s"),
        (0.25, "orders.retry.250ms"),
        (1.5, "orders.retry.1500ms"),
        (0.07, "orders.retry.70ms"),
        (0.0001, "orders.retry.1ms"),
        (LONGEST_WAIT, "orders.retry.2592000s"),
    ],
)
def test_a_queue_is_called_after_its_time(delay: float, name: str) -> None:
    (queue,) = retry_queues("orders", [delay])
    assert queue.name == name
    assert queue.ttl / 1000 >= delay
    assert len(name) - len("orders") <= LONGEST_SUFFIX


def test_each_time_has_one_queue_the_shortest_first() -> None:
    assert [queue.ttl for queue in retry_queues("q", (10, 1.0, 0, 1, 10.0))] == [1000, 10_000]
    assert retry_queues("q", ()) == ()


@pytest.mark.parametrize(
    ("seconds", "whole"),
    [(0, 0), (-5, 0), (0.0011, 2), (1e-9, 1), (1e9, LONGEST), (math.inf, LONGEST), (math.nan, LONGEST), (-math.inf, 0)],
)
def test_a_wait_is_whole_milliseconds_and_never_less_or_without_end(seconds: float, whole: int) -> None:
    assert milliseconds(seconds) == whole


@pytest.mark.parametrize(
    ("wait", "ttl", "left"), [(0, 1000, 0), (1, 1000, 0), (1000, 1000, 0), (1001, 5000, 0), (5001, 5000, 1)]
)
def test_a_wait_is_rounded_up_to_a_queue_or_cut_to_the_longest(wait: int, ttl: int, left: int) -> None:
    queue, rest = choose(retry_queues("q", (1, 5)), wait)
    assert (queue.ttl, rest) == (ttl, left)


def test_a_queue_keeps_what_its_target_cannot_take() -> None:
    assert RetryQueue("orders", 1000).arguments == {
        "x-queue-type": "quorum",
        "x-delivery-limit": NO_DELIVERY_LIMIT,
        "x-message-ttl": 1000,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "orders",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, []),
        ({"x-delivery-limit": 5, "x-max-length": 5}, []),
        ({"x-message-ttl": 5000}, ["x-message-ttl is 5000, needed is 1000"]),
        ({"x-dead-letter-routing-key": "other"}, ["x-dead-letter-routing-key is 'other', needed is 'orders'"]),
        ({"x-dead-letter-exchange": None}, ["x-dead-letter-exchange is not set, needed is ''"]),
        ({"x-dead-letter-strategy": None}, ["x-dead-letter-strategy is not set, needed is 'at-least-once'"]),
        ({"x-queue-type": None, "x-overflow": "drop-head"}, ["x-queue-type", "x-overflow is 'drop-head'"]),
        ({"x-expires": 1000}, ["x-expires"]),
    ],
)
def test_what_an_existing_queue_lacks_is_named(changed: dict[str, Any], words: list[str]) -> None:
    queue = RetryQueue("orders", 1000)
    lacking = queue.problems(QueueFacts(queue.name, queue.arguments | changed))
    assert len(lacking) == len(words)
    assert all(word in told for word, told in zip(words, lacking, strict=True))


@pytest.mark.parametrize(
    ("settings", "can_delay"),
    [
        (RabbitMQSettings(), True),
        (RabbitMQSettings(retry_queues=False), False),
        (RabbitMQSettings(declare=False), False),
        (RabbitMQSettings(declare=False, retry_queues=True), True),
    ],
)
def test_retry_queues_are_as_declared_unless_it_is_said_otherwise(settings: RabbitMQSettings, can_delay: bool) -> None:
    transport = RabbitMQ(URL, "orders", settings=settings)
    assert transport.can_delay is can_delay
    assert ("held in hand" in transport.describe()["retries"]) is not can_delay


async def test_once_it_is_open_it_can_delay_what_it_was_told_of() -> None:
    transport = RabbitMQ(URL, "orders")
    assert "orders.retry.<time>" in transport.describe()["retries"]
    for delays, can_delay in (((), False), ((0.0,), False), ((1.0, 0.5), True)):
        with pytest.raises(TransportError):  # nothing listens there
            await transport.open(prefetch=1, delays=delays)
        assert transport.can_delay is can_delay
    assert transport.describe()["retries"] == "orders.retry.500ms, orders.retry.1s (declared here)"
    await transport.close()


async def test_a_transport_that_is_not_open_keeps_no_copy() -> None:
    transport = RabbitMQ(URL, "orders")
    with pytest.raises(TransportError):
        await transport.delay(Delivery(b"", {}), 1, b"k")


async def test_dead_letters_must_not_go_where_copies_wait() -> None:
    transport = RabbitMQ(URL, "orders", settings=RabbitMQSettings(dead_letter_queue="orders.retry.1s"))
    with pytest.raises(ConfigurationError, match="retry queue"):
        await transport.open(prefetch=1, delays=(1.0,))


def test_the_names_of_all_queues_must_fit() -> None:
    longest = 255 - LONGEST_SUFFIX
    RabbitMQ(URL, "q" * longest)
    with pytest.raises(ConfigurationError, match=str(longest)):
        RabbitMQ(URL, "q" * (longest + 1))
    RabbitMQ(URL, "q" * 250, settings=RabbitMQSettings(retry_queues=False))
