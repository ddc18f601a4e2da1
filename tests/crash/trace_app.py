"""A worker that does nothing unless it is told to: it stops before and after every command and asks.

It says in one line where it is and what came of it, and blocks, event loop and all, until it gets a line back: that may
hold an order to verifier, `prepare` or handler. Who asks ends the process by SIGKILL where it should die.
"""

import contextlib
import json
import os
import socket
from dataclasses import replace
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding, RabbitMQSettings
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings
from inbox.core.delivery import Delivery
from inbox.core.event import CloudEvent, Event
from inbox.core.lifecycle import Command, Outcome
from inbox.core.policy import RetryPolicy, RetryRule
from inbox.errors import Reject, Unauthentic
from inbox.ports import Passage
from tests.crash.app import CONSUMER
from tests.crash.trace import GIVES_UP, IMMEDIATE, Means

#: Rows of the table `account`: one that is locked from outside, and one that a handler locks itself.
LOCKED, OWN = 0, 1


class Repeat(Exception):
    """What is to be repeated at once."""


#: A unit waits for as long as a trace lasts; nobody is put away for what others did to it.
SETTINGS = ConsumerSettings(
    concurrency=1,
    prefetch=1,
    deadline=240,
    cancel_patience=5,
    shutdown_patience=20,
    report_interval=None,
    retry=RetryPolicy(
        max_attempts=1000,
        max_releases=1000,
        delays=(0.05,),
        rules=(RetryRule(Repeat, delays=(0.0,)),),
        jitter=0,
        immediate=IMMEDIATE,
        first_delay=0.02,
        max_delay=0.05,
    ),
)
BROKER = RabbitMQSettings(
    heartbeat=120,
    start_patience=30,
    connect_timeout=30,
    reconnect_min_delay=0.01,
    reconnect_max_delay=0.1,
    confirm_timeout=30,
    ack_linger=0,
)


class Prompter:
    """A probe that asks before it goes on, and verifier, `prepare` and handler, which do as they are told.

    Args:
        port: where it asks, on loopback.
        name: who it is.
    """

    def __init__(self, port: int, name: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._lines = self._socket.makefile("r", encoding="utf-8")
        self._say({"name": name})
        self._order = ""

    def before(self, command: Command, passage: Passage) -> None:
        self._ask(f"before:{command.value}", passage)

    def after(self, command: Command, outcome: Outcome, passage: Passage) -> None:
        self._ask(f"after:{command.value}", passage, outcome.value)

    def _ask(self, point: str, passage: Passage, outcome: str = "") -> None:
        unit: Any = getattr(passage, "unit", None)
        session = None if unit is None else unit.lane.session.thread_id
        self._say({"point": point, "outcome": outcome, "body": passage.delivery.body.decode(), "session": session})
        line = self._lines.readline()
        if not line:
            os._exit(3)  # whoever told us what to do has gone
        self._order = json.loads(line)

    def _say(self, words: dict[str, object]) -> None:
        self._socket.sendall(json.dumps(words).encode() + b"\n")

    # ------------------------------------------------------------ what is done by order
    async def verify(self, delivery: Delivery, event: CloudEvent) -> None:
        if self._order == Means.REFUSE.name:
            raise Unauthentic("by order")
        if self._order == Means.CANNOT_TELL.name:
            raise OSError("by order")

    async def prepare(self, event: Event) -> None:
        self._raise()

    async def prepared(self, event: Event, session: AsyncSession, prepared: None) -> None:
        await self.plain(event, session)

    async def plain(self, event: Event, session: AsyncSession) -> None:
        match Means.__members__.get(self._order):
            case Means.SWALLOW_LOCK_WAIT | Means.SWALLOW_KILL:
                with contextlib.suppress(DBAPIError):
                    await _change(session, LOCKED)
                return
            case Means.SWALLOW_DEADLOCK:
                await _change(session, OWN)
                with contextlib.suppress(DBAPIError):
                    await _change(session, LOCKED)
                return
            case Means.KILL_SESSION:
                with contextlib.suppress(DBAPIError):
                    await _insert(event, session)
                return
            case Means.DIES_INSIDE:
                await _insert(event, session)
                await _change(session, LOCKED)
        await _insert(event, session)
        self._raise()

    def _raise(self) -> None:
        match Means.__members__.get(self._order):
            case Means.RAISE_AGAIN:
                raise Repeat
            case Means.RAISE_LATER:
                raise LookupError("by order")
            case Means.RAISE_REJECT:
                raise Reject("by order")


async def _insert(event: Event, session: AsyncSession) -> None:
    await session.execute(text("INSERT INTO effect VALUES (:id)"), {"id": event.id.encode()})


async def _change(session: AsyncSession, account: int) -> None:
    await session.execute(text("UPDATE account SET balance = balance + 1 WHERE id = :id"), {"id": account})


def make(  # noqa: PLR0917 - what a world gives first, then what a trace needs
    database_url: str, amqp_url: str, queue: str, exchange: str, port: str, name: str, lock_wait: str
) -> Inbox:
    prompter = Prompter(int(port), name)
    inbox = Inbox(
        CONSUMER,
        store=MySQL(database_url, DatabaseSettings(lock_wait=int(lock_wait), connect_timeout=30, start_patience=30)),
        transport=RabbitMQ(amqp_url, queue, [Binding(exchange, "#", declare="topic")], BROKER),
        settings=replace(SETTINGS, fingerprint=None) if int(lock_wait) == GIVES_UP else SETTINGS,
        verifier=prompter,
    )
    inbox.add_probe(prompter)
    inbox.handler("plain")(prompter.plain)
    inbox.handler("prepared", prepare=prompter.prepare)(prompter.prepared)
    return inbox
