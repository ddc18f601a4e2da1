"""The lab works in a database of the adopter's: whatever is in it is there again afterwards."""

import asyncio
import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from sqlalchemy import MetaData

from inbox import ConfigurationError, Inbox, MySQL, RabbitMQ, define_tables
from inbox.adapters.mysql.store import MySQLStore
from inbox.testing.lab.database import LabError
from inbox.testing.lab.mysql import MySQLDatabase
from inbox.testing.lab.queues import RabbitQueue
from tests.acceptance.tables import create_tables
from tests.crash.app import connect
from tests.pairs import Pair

#: What is hard to put back: keys that point at each other, numbers that are drawn, a zero, a column that is computed,
#: a trigger that writes what is put back too, octets, and names that need quotes.
SCHEMA = """\
CREATE TABLE parent (id BIGINT AUTO_INCREMENT PRIMARY KEY, child BIGINT NULL) ENGINE=InnoDB;
CREATE TABLE child (
  id BIGINT AUTO_INCREMENT PRIMARY KEY, parent BIGINT NOT NULL,
  FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE
) ENGINE=InnoDB;
ALTER TABLE parent ADD FOREIGN KEY (child) REFERENCES child (id);
CREATE TABLE `odd ``name` (
  `a b` INT PRIMARY KEY, twice INT AS (`a b` * 2) STORED, raw VARBINARY(20), doc JSON,
  at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)
) ENGINE=InnoDB;
CREATE TABLE audit (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20)) ENGINE=InnoDB;
CREATE TRIGGER audited AFTER INSERT ON child FOR EACH ROW INSERT INTO audit (what) VALUES (NEW.parent);
CREATE VIEW seen AS SELECT id FROM parent"""
ROWS = [
    "INSERT INTO parent (id) VALUES (1), (41)",
    "INSERT INTO child (parent) VALUES (1), (41)",
    "UPDATE parent SET child = 1 WHERE id = 1",
    "DELETE FROM parent WHERE id = 41",
    "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
    "INSERT INTO parent (id) VALUES (0)",
    "INSERT INTO `odd ``name` VALUES (1, DEFAULT, x'00ff00', '{\"k\": [1, null]}', '2020-01-02 03:04:05.678901')",
]
CHANGES = [
    "UPDATE parent SET child = NULL",
    "DELETE FROM child",
    "INSERT INTO parent (child) VALUES (NULL), (NULL)",
    "INSERT INTO child (parent) SELECT id FROM parent",
    "UPDATE `odd ``name` SET raw = 'x', doc = NULL",
    "CREATE TABLE new (a INT)",
    "INSERT INTO inbox (consumer_name, event_id) VALUES ('c', 'e')",
]


def run(pair: Pair, statements: list[str]) -> None:
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def everything(pair: Pair) -> dict[str, Any]:
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'"
        )
        found: dict[str, Any] = {}
        for (name,) in cursor.fetchall():
            quoted = f"`{name.replace('`', '``')}`"
            cursor.execute(f"SELECT * FROM {quoted}")  # noqa: S608 - a name of ours
            rows = sorted(map(repr, cursor.fetchall()))
            cursor.execute(f"SHOW CREATE TABLE {quoted}")
            row = cursor.fetchone()
            assert row is not None
            found[name] = (rows, row[1])
        return found


def database_of(pair: Pair) -> MySQLDatabase:
    store = MySQL(pair.database_url)
    made = store.for_consumer("c", concurrency=1, deadline=1)
    assert isinstance(made, MySQLStore)
    return MySQLDatabase(store, made.tables)


@pytest.fixture
def filled(pair: Pair) -> Pair:
    asyncio.run(create_tables(pair))
    run(pair, SCHEMA.split(";"))
    run(pair, ROWS)
    return pair


def test_every_table_is_put_back_as_it_was(filled: Pair) -> None:
    before = everything(filled)
    database = database_of(filled)
    database.keep()
    try:
        for _ in range(2):
            run(filled, CHANGES)
            assert set(database.rows()) == {"parent", "child", "odd `name", "audit", "new"}, (
                "views and ours are left out"
            )
            database.put_back()
            found = {name: seen for name, seen in everything(filled).items() if not name.startswith("inbox_lab")}
            assert found == before
        assert database.surrogates() == {
            ("parent", "id"), ("parent", "child"), ("child", "id"), ("child", "parent"), ("audit", "id"),
        }  # fmt: skip
    finally:
        database.close()
    assert everything(filled) == before


def test_a_second_lab_is_refused_and_a_dropped_table_is_told_of(filled: Pair) -> None:
    database = database_of(filled)
    database.keep()
    try:
        other = database_of(filled)
        with pytest.raises(ConfigurationError, match="another lab works in the database"):
            other.keep()
        other.close()
        database.put_back()  # its copies are still there
        run(filled, ["DROP TABLE audit"])
        with pytest.raises(LabError, match="could not be put back as it was"):
            database.put_back()
    finally:
        database.close()
    assert "inbox_lab" in everything(filled), "the copies are all that there is of it"
    run(filled, ["CREATE TABLE audit (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20)) ENGINE=InnoDB"])
    database = database_of(filled)
    database.keep()
    database.close()
    with closing(connect(filled.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT what FROM audit ORDER BY id")
        assert cursor.fetchall() == (("1",), ("41",)), "once it can be put back, it is"
    assert "inbox_lab" not in everything(filled)


KILLED = """
import os, signal, sys
from inbox import MySQL
from inbox.testing.lab.mysql import MySQLDatabase

store = MySQL(sys.argv[1])
database = MySQLDatabase(store, store.for_consumer("c", concurrency=1, deadline=1).tables)
database.keep()
database.query("DELETE FROM `odd ``name`")
database.query("INSERT INTO audit (what) VALUES ('left over')")
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_what_a_killed_lab_has_left_the_next_one_puts_back(filled: Pair) -> None:
    before = await asyncio.to_thread(everything, filled)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, filled.database_url, cwd=Path(__file__).parents[2], env=dict(os.environ)
    )
    assert await process.wait() == -signal.SIGKILL
    assert "inbox_lab" in await asyncio.to_thread(everything, filled)
    database = database_of(filled)
    await asyncio.to_thread(_keep, database)
    database.close()
    assert await asyncio.to_thread(everything, filled) == before


def _keep(database: MySQLDatabase) -> None:
    """The server lets go of a dead lab's lock when it sees the broken connection."""
    for _ in range(200):
        try:
            return database.keep()
        except ConfigurationError:  # another lab works in it
            database.close()
    return database.keep()


def test_the_inboxs_tables_in_another_database_are_refused(pair: Pair) -> None:
    tables = define_tables(MetaData(), schema="elsewhere")
    with pytest.raises(ConfigurationError, match="the lab puts back one database"):
        MySQLDatabase(MySQL(pair.database_url, tables=tables), tables)


async def nothing(message: object) -> None:
    """Be a consumer."""


async def test_a_queue_that_holds_events_is_refused_unless_its_name_says_that_it_is_for_tests(pair: Pair) -> None:
    name = pair.unique("orders")
    inbox = Inbox("c", store=MySQL(pair.database_url), transport=RabbitMQ(pair.amqp_url, name))
    assert isinstance(inbox.transport, RabbitMQ)
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_queue(name, durable=True)
        queue = RabbitQueue(inbox.transport, [(1.0,)])
        await queue.open(disposable=False)
        await queue.close()
        await channel.default_exchange.publish(aio_pika.Message(b"somebody's"), name)
        queue = RabbitQueue(inbox.transport, [(1.0,)])
        with pytest.raises(ConfigurationError, match=r"'.*', which holds 1 message, is not known to be for tests"):
            await queue.open(disposable=False)
        await queue.close()
        await (await channel.declare_queue(name, durable=True)).consume(nothing, no_ack=True)
        queue = RabbitQueue(inbox.transport, [(1.0,)])
        with pytest.raises(ConfigurationError, match=r"which (holds 1 message and )?somebody consumes from,"):
            await queue.open(disposable=False)
        await queue.close()
        await channel.close()
        await queue.open(disposable=True)
        await queue.purge()
        assert await queue.ready() == 0
        await queue.close()
