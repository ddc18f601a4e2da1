"""Publishing into a queue that is a file."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any, Self

from inbox.adapters.embedded import messages, wakeups
from inbox.adapters.embedded.file import in_transaction
from inbox.adapters.embedded.messages import Message
from inbox.adapters.embedded.queue import SQLiteQueueSettings, opened
from inbox.adapters.embedded.store import file_of
from inbox.adapters.embedded.turns import patiently
from inbox.core.typed_json import dump_headers
from inbox.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from sqlalchemy.engine import URL

    from inbox.adapters.embedded.connection import FileConnection

__all__ = ["SQLitePublisher"]

_NO_PROPERTIES = dump_headers({})


class SQLitePublisher:
    """Publishes over a connection of its own, an asynchronous context manager, with the face of RabbitMQ's.

    Messages that are published at the same time share a transaction.

    Args:
        path: of the queue's file; made where it is not there.
        settings: times.

    Raises:
        ConfigurationError: the path names no file.
    """

    def __init__(self, path: str | Path | URL, settings: SQLiteQueueSettings | None = None) -> None:
        self._path = file_of(path, 'SQLitePublisher("events.db")')
        self._settings = settings or SQLiteQueueSettings()
        self._connection: FileConnection | None = None
        self._waiting: list[tuple[Sequence[Message], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<SQLitePublisher to {self._path.name}>"

    async def __aenter__(self) -> Self:
        """Open the file.

        Raises:
            TransportError: it cannot be used.
        """
        self._connection = await opened(self._path, self._settings.busy_wait)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writing is not None:
            await asyncio.wait({self._writing})
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.finish()

    async def publish(
        self,
        body: bytes,
        *,
        exchange: str = "",
        routing_key: str = "",
        headers: Mapping[str, Any] | None = None,
        content_type: str | None = None,
    ) -> None:
        """Publish one message; it is durable when this returns.

        Args:
            body: the payload.
            exchange: noted as its origin; every message comes to the consumers of the file.
            routing_key: noted likewise.
            headers: application headers, of any type that AMQP's tables have.
            content_type: media type of the body.

        Raises:
            TransportError: nobody knows whether it is there: publish it again, with the same id.
        """
        await self._write([_message(body, exchange, routing_key, headers, content_type)])

    async def publish_many(
        self, bodies: Sequence[tuple[bytes, Mapping[str, Any]]], *, content_type: str | None = None
    ) -> None:
        """Publish bodies with their headers in one transaction: all of them or none.

        Raises:
            TransportError: as `publish`.
        """
        await self._write([_message(body, "", "", headers, content_type) for body, headers in bodies])

    async def _write(self, given: Sequence[Message]) -> None:
        if self._connection is None:
            raise TransportError("the publisher is not open: use it in `async with`")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((given, future))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_all(self._connection), name="publisher")
        await future

    async def _write_all(self, connection: FileConnection) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            together = [message for given, _ in waiting for message in given]
            failure: TransportError | None = None
            try:
                await patiently(
                    lambda together=together: connection.own(  # type: ignore[misc]
                        lambda raw: in_transaction(raw, lambda raw: messages.insert(raw, together))
                    ),
                    self._settings.busy_wait,
                )
            except (sqlite3.Error, ValueError, OSError) as error:
                failure = TransportError("the message is not known to be in the queue's file")
                failure.__cause__ = error
            for _, future in waiting:
                if not future.done():
                    if failure is None:
                        future.set_result(None)
                    else:
                        future.set_exception(failure)
            wakeups.tell(self._path)


def _message(
    body: bytes, exchange: str, routing_key: str, headers: Mapping[str, Any] | None, content_type: str | None
) -> Message:
    return Message(body, dump_headers(headers or {}), content_type, _NO_PROPERTIES, exchange, routing_key)
