"""The ledger of the kill tests, whose deliveries share transactions."""

from dataclasses import replace

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.core.batching import Batch
from tests.crash import app

#: One lane: what is published together is gathered while the first of it is at work, and shares one transaction.
SETTINGS = replace(app.SETTINGS, concurrency=2, prefetch=40, batch=Batch(max=8, wait_ms=50))


def make(database_url: str, amqp_url: str, queue: str, exchange: str) -> Inbox:
    inbox = Inbox(
        app.CONSUMER,
        store=MySQL(database_url),
        transport=RabbitMQ(amqp_url, queue, [Binding(exchange, "#", declare="topic")]),
        settings=SETTINGS,
    )
    ledger = app.Ledger(database_url)
    for kind in ("apply", "flaky", "reject", "lose_connection", "lose_often", "lose_commit"):
        inbox.handler(kind)(getattr(ledger, kind))
    return inbox
