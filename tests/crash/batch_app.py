"""The ledger of the kill tests, whose deliveries share transactions."""

from dataclasses import replace

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.core.batching import Batch
from inbox.core.event import Event
from tests.crash import app

#: What is published together is gathered while the first of it is at work, and shares one transaction.
SETTINGS = replace(app.SETTINGS, concurrency=2, prefetch=40, batch=Batch(max=8, wait_ms=50))


class Ledger(app.Ledger):
    """A first run of each of the two copies may be in a batch, which is undone at nobody's cost: two more runs fail."""

    def count_run(self, event: Event) -> int:
        return max(1, super().count_run(event) - 2)


def make(database_url: str, amqp_url: str, queue: str, exchange: str) -> Inbox:
    inbox = Inbox(
        app.CONSUMER,
        store=MySQL(database_url),
        transport=RabbitMQ(amqp_url, queue, [Binding(exchange, "#", declare="topic")]),
        settings=SETTINGS,
    )
    ledger = Ledger(database_url)
    for kind in ("apply", "flaky", "reject", "lose_connection", "lose_often", "lose_commit"):
        inbox.handler(kind)(getattr(ledger, kind))
    return inbox
