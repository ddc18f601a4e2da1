"""The consumer as a user runs it: a target for `inbox run`, with its addresses and settings from the environment."""

from __future__ import annotations

from benchmarks.consumers.contract import CONSUMER
from benchmarks.consumers.inbox_worker import TRANSPORT, with_session
from inbox import ConsumerSettings, Inbox, MySQL, RabbitMQ, env


def make() -> Inbox:
    """Its settings are those of `INBOX_CONCURRENCY` and the other variables."""
    inbox = Inbox(
        CONSUMER,
        store=MySQL(env("BENCH_DATABASE_URL")),
        transport=RabbitMQ(env("BENCH_AMQP_URL"), env("BENCH_QUEUE"), settings=TRANSPORT),
        settings=ConsumerSettings.from_env(),
    )
    inbox.handler("bench.order")(with_session)
    return inbox
