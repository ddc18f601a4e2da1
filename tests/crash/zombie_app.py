"""The ledger in a process that stops itself at one point: it lives on, and knows nothing of the time in between."""

import os
import signal
from dataclasses import replace

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding, RabbitMQSettings
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import DatabaseSettings
from inbox.core.crashpoints import CrashPoint, When
from inbox.core.lifecycle import Command, Outcome
from inbox.ports import Passage
from tests.crash.app import CONSUMER, SETTINGS, Ledger

#: The server keeps what a stopped process holds for the deadline and five seconds; the broker for two heartbeats.
DEADLINE = 2
#: More attempts than the time that a stopped process has lost, or a handler that blocks beside others, can charge.
QUICK = replace(SETTINGS, deadline=DEADLINE, cancel_patience=5, retry=replace(SETTINGS.retry, max_attempts=100))


class Stop:
    """A probe that stops its own process once, at the first passage of one point."""

    def __init__(self, point: CrashPoint) -> None:
        self._point: CrashPoint | None = point

    def before(self, command: Command, passage: Passage) -> None:
        self._at(CrashPoint(When.BEFORE, command))

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        self._at(CrashPoint(When.AFTER, command))

    def _at(self, point: CrashPoint) -> None:
        if point == self._point:
            self._point = None
            os.kill(os.getpid(), signal.SIGSTOP)


def make(database_url: str, amqp_url: str, queue: str, exchange: str, point: str = "") -> Inbox:
    """A worker; one that stops itself where `point` names a moment."""
    inbox = Inbox(
        CONSUMER,
        store=MySQL(database_url, DatabaseSettings(lock_wait=1)),
        transport=RabbitMQ(
            amqp_url,
            queue,
            [Binding(exchange, "#", declare="topic")],
            RabbitMQSettings(heartbeat=1, reconnect_max_delay=0.5),
        ),
        settings=QUICK,
    )
    ledger = Ledger(database_url)
    for kind in ("apply", "flaky", "reject", "lose_connection", "lose_often", "lose_commit"):
        inbox.handler(kind)(getattr(ledger, kind))
    if point:
        inbox.add_probe(Stop(CrashPoint.parse(point)))
    return inbox
