"""A database with the inbox's tables and a table for effects, and stores over it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import MetaData, make_url, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from inbox.adapters.mysql import MySQL, MySQLStore
from inbox.config import DatabaseSettings
from inbox.core.typed_json import load_headers
from inbox.tables import define_tables
from inbox.testing.conformance.store import Quarantined
from tests.pairs import Driver, Pair
from tests.services.probe import connect_database
from tests.templates import make_once

_QUARANTINED = (
    "SELECT reason, detail, event_id, attempts, times_seen, headers, body "
    "FROM inbox_quarantine WHERE consumer_name = %(c)s ORDER BY first_at"
)


class MySQLRig:
    """See `inbox.testing.conformance.store.StoreRig`; the questions go past the code under test."""

    def __init__(self, pair: Pair, driver: Driver) -> None:
        self.pair = pair
        self.driver: Driver = driver
        self.url = pair.url_for(driver)

    async def create(self) -> None:
        await make_once(self.pair, "the rig's tables", self._create)

    async def _create(self) -> None:
        engine = create_async_engine(self.url, poolclass=NullPool)
        tables = define_tables(MetaData())
        async with engine.begin() as connection:
            await connection.run_sync(tables.inbox.metadata.create_all)
            await connection.execute(text("CREATE TABLE effects (n INT PRIMARY KEY AUTO_INCREMENT, label VARCHAR(64))"))
            await connection.execute(
                text("CREATE TABLE owners (name VARCHAR(64) PRIMARY KEY, n INT NOT NULL DEFAULT 0)")
            )
        await engine.dispose()

    def store(self, consumer: str = "billing", **settings: Any) -> MySQLStore:
        own = {name: settings.pop(name) for name in ("concurrency", "deadline", "url") if name in settings}
        database = DatabaseSettings(**{"lock_wait": 1, "connect_timeout": 5.0, **settings})
        made = MySQL(own.get("url", self.url), database)
        return made.for_consumer(consumer, concurrency=own.get("concurrency", 4), deadline=own.get("deadline", 10.0))

    def through(self, port: int) -> str:
        """The same database by way of a proxy on loopback."""
        return make_url(self.url).set(host="127.0.0.1", port=port).render_as_string(hide_password=False)

    async def effect(self, session: AsyncSession, label: str) -> None:
        await session.execute(text("INSERT INTO effects (label) VALUES (:label)"), {"label": label})

    async def effects(self) -> list[str]:
        return [row[0] for row in await self.sql("SELECT label FROM effects ORDER BY n")]

    async def keys(self, consumer: str = "billing") -> set[bytes]:
        rows = await self.sql("SELECT event_id FROM inbox WHERE consumer_name = %(c)s", c=consumer.encode())
        return {row[0] for row in rows}

    async def quarantined(self, consumer: str = "billing") -> list[Quarantined]:
        rows = await self.sql(_QUARANTINED, c=consumer.encode())
        return [Quarantined(r[0], r[1], r[2], r[3], r[4], _headers(r[5]), r[6]) for r in rows]

    async def drop_a_table(self) -> None:
        await self.sql("DROP TABLE inbox")

    async def sql(self, statement: str, **parameters: object) -> Sequence[Any]:
        """Run one statement on a connection of its own, committed, and return its rows.

        Over neither driver: they turn a note of the server's into a Python warning, and warnings are errors here.
        """
        return await asyncio.to_thread(self._sql, statement, parameters)

    def _sql(self, statement: str, parameters: Mapping[str, object]) -> Sequence[Any]:
        with (
            connect_database(self.pair.database.dsn, database=self.pair.schema) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement, parameters or None)
            return cursor.fetchall()


def _headers(stored: bytes) -> Mapping[str, object]:
    return cast("Mapping[str, object]", load_headers(stored)["headers"])
