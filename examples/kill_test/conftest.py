"""Tables and a queue for the test, on the servers that LEDGER_DATABASE_URL and LEDGER_AMQP_URL name."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import aio_pika
import pytest
from sqlalchemy import Connection, create_engine, make_url, text

from inbox import env


@pytest.fixture
def database() -> Iterator[Connection]:
    """The database, with the inbox's tables and the service's own in it."""
    url = env("LEDGER_DATABASE_URL")
    subprocess.run([sys.executable, "-m", "inbox", "schema", "apply", "--database", url], check=True)
    engine = create_engine(make_url(url).set(drivername="mysql+pymysql"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS entry (payment CHAR(36) NOT NULL) ENGINE=InnoDB"))
        yield connection
    engine.dispose()


@pytest.fixture
def queue() -> str:
    """A queue of the test's own, with nothing in it that an earlier run has left."""
    name = env("LEDGER_TEST_QUEUE", "ledger-test")
    asyncio.run(delete(name))
    return name


async def delete(queue: str) -> None:
    async with await aio_pika.connect(env("LEDGER_AMQP_URL")) as connection:
        channel = await connection.channel()
        await channel.queue_delete(queue)
