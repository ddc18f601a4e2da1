"""The database of a run: made, filled, and asked afterwards whether every effect is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pymysql.connections import Connection
from pymysql.cursors import Cursor
from sqlalchemy import MetaData, create_engine

from benchmarks.consumers.contract import CONSUMER
from benchmarks.workload import ACCOUNTS, Batch
from inbox import define_tables
from tests.services.probe import connect_database

_ROWS: Final = 2000


@dataclass(frozen=True)
class Durability:
    """What the server promises about a COMMIT that it answered.

    Attributes:
        version: of the server.
        flush: `innodb_flush_log_at_trx_commit`; 1 writes the log to the disk before the answer.
        sync_binlog: 1 does the same for the binary log, 0 where there is none.
        folder: `datadir`.
    """

    version: str
    flush: int
    sync_binlog: int
    folder: str

    @property
    def is_full(self) -> bool:
        """Whether an answered COMMIT outlives the machine."""
        return self.flush == 1 and self.sync_binlog == 1


class Database:
    """One database of this run's. Made by `fresh_database`.

    Args:
        dsn: of the server.
        name: of the database.
        connection: in autocommit.
    """

    def __init__(self, dsn: str, name: str, connection: Connection[Cursor]) -> None:
        self.url = urlsplit(dsn)._replace(path=f"/{name}").geturl()
        self._connection = connection

    def durability(self) -> Durability:
        """As the server is set."""
        ((version, flush, binlog, sync, folder),) = self._rows(
            "SELECT VERSION(), @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog, @@datadir"
        )
        # Without a binary log there is nothing of it to lose.
        return Durability(str(version), int(flush), int(sync) if int(binlog) else 1, str(folder))

    def create(self) -> None:
        """The inbox's tables, and the accounts."""
        engine = create_engine(f"mysql+pymysql:{self.url.partition(':')[2]}")
        metadata = MetaData()
        define_tables(metadata)
        with engine.begin() as connection:
            metadata.create_all(connection)
        engine.dispose()
        self._run("CREATE TABLE bench_account (id INT PRIMARY KEY, balance BIGINT NOT NULL DEFAULT 0) ENGINE=InnoDB")
        for start in range(0, ACCOUNTS, _ROWS):
            rows = ", ".join(f"({number})" for number in range(start, start + _ROWS))
            self._run(f"INSERT INTO bench_account (id) VALUES {rows}")  # noqa: S608 - numbers of ours

    def reset(self, batch: Batch) -> None:
        """As before the first event, but for those that `batch` says are known."""
        for table in ("inbox", "inbox_attempt", "inbox_quarantine"):
            self._run(f"TRUNCATE TABLE {table}")
        self._run("UPDATE bench_account SET balance = 0 WHERE balance <> 0")
        records = [event.record for event in batch.known]
        rows = [(CONSUMER.encode(), record.key, record.fingerprint, record.scheme) for record in records]
        sql = "INSERT INTO inbox (consumer_name, event_id, fingerprint, fingerprint_scheme) VALUES (%s, %s, %s, %s)"
        with self._connection.cursor() as cursor:
            for start in range(0, len(rows), _ROWS):
                cursor.executemany(sql, rows[start : start + _ROWS])

    def wrongs(self, batch: Batch) -> list[str]:
        """What is not as it must be after `batch` was consumed: nothing, of a consumer that is right."""
        found = Counter({int(number): int(gained) for number, gained in self._rows(_GAINED)})
        kept = {key.decode() for (key,) in self._rows("SELECT event_id FROM inbox")}
        (quarantined,) = self._rows("SELECT COUNT(*) FROM inbox_quarantine")[0]
        wrongs = []
        if found != batch.effects:
            wrongs.append(f"{found.total()} effects instead of {batch.effects.total()}, or on other accounts")
        if kept != batch.ids:
            wrongs.append(f"{len(kept)} rows in the inbox instead of {len(batch.ids)}, or of other events")
        if quarantined:
            wrongs.append(f"{quarantined} events in quarantine")
        return wrongs

    def count(self) -> int:
        """Rows of the inbox."""
        return int(self._rows("SELECT COUNT(*) FROM inbox")[0][0])

    def questions(self) -> int:
        """Statements that the server has run for any client."""
        return int(self._rows("SHOW GLOBAL STATUS LIKE 'Questions'")[0][1])

    def _run(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def _rows(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return tuple(cursor.fetchall())


_GAINED: Final = "SELECT id, balance FROM bench_account WHERE balance <> 0"


@contextmanager
def fresh_database(dsn: str, name: str) -> Iterator[Database]:
    """A database of this name with every table in it, dropped afterwards."""
    with connect_database(dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
        try:
            cursor.execute(f"USE `{name}`")
            database = Database(dsn, name, connection)
            database.create()
            yield database
        finally:
            cursor.execute(f"DROP DATABASE `{name}`")
