"""The examples as their readers run them: from the folder that holds them, each program a process of its own."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aio_pika
import pymysql
from pymysql.constants import CLIENT

from tests.acceptance.command import ROOT, Command, Ended, clean_environment
from tests.pairs import Pair

EXAMPLES = ROOT / "examples"


@asynccontextmanager
async def program(*words: str, env: Mapping[str, str]) -> AsyncIterator[Command]:
    """`python -m <words>`; whatever is left of it at the end is killed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *words,
        cwd=EXAMPLES,
        # What other people's libraries warn of is not ours to mend.
        env=clean_environment() | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "default"} | dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=hear_ctrl_c,
    )
    command = Command(process)
    try:
        yield command
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        await command._reading


def hear_ctrl_c() -> None:
    """What a terminal starts hears SIGINT; what a script starts in the background inherits that it is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def ended(*words: str, env: Mapping[str, str]) -> Ended:
    """Run `python -m <words>` to its end."""
    async with program(*words, env=env) as command:
        return await command.wait_ended()


@dataclass
class Place:
    """A database and a queue of one example."""

    pair: Pair
    queue: str

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        """Statements, separated as in a file; the rows of the last one."""
        parts = urlsplit(self.pair.database_url)
        with (
            closing(
                pymysql.connect(
                    host=parts.hostname or "",
                    port=parts.port or 0,
                    user=parts.username,
                    password=parts.password or "",
                    database=self.pair.schema,
                    autocommit=True,
                    client_flag=CLIENT.MULTI_STATEMENTS,
                    ssl_disabled=True,  # as in `connect` of the kill tests
                )
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(sql)
            rows = cursor.fetchall()
            while cursor.nextset():
                rows = cursor.fetchall()
            return list(rows)

    def run_files(self, *files: Path) -> None:
        for file in files:
            self.execute(file.read_text())

    async def publish(self, identifier: str | None, kind: str, data: str, copies: int = 1) -> None:
        """`data` as an event, straight into the queue; without an id where none is given."""
        headers = {"ce-source": "/tests", "ce-type": kind, "ce-specversion": "1.0"}
        if identifier is not None:
            headers["ce-id"] = identifier
        async with await aio_pika.connect(self.pair.amqp_url) as connection:
            channel = await connection.channel()
            for _ in range(copies):
                message = aio_pika.Message(data.encode(), headers=dict(headers), content_type="application/json")
                await channel.default_exchange.publish(message, self.queue)

    async def ready(self, suffix: str = "") -> int:
        """Ready messages by the broker's count."""
        async with await aio_pika.connect(self.pair.amqp_url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(f"{self.queue}{suffix}", passive=True)
            return queue.declaration_result.message_count or 0
