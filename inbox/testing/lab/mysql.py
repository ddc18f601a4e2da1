"""A MySQL or MariaDB database that is used in place, and put back as it was.

Copies lie beside the tables, made by the server: no value goes through a driver. They are written down in a table
first (`inbox_lab`), so that a lab that is killed leaves what the next one needs to put everything back.
"""

from __future__ import annotations

import re
import ssl
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pymysql
from sqlalchemy.engine import make_url

from inbox.adapters.mysql.url import checked_url
from inbox.errors import ConfigurationError
from inbox.tables import qualified
from inbox.testing.lab.database import (
    APPLIED,
    OPEN_STARTS,
    REFUSED,
    Ended,
    LabError,
    Row,
    Rows,
    ended_of,
    refused_check,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from inbox.adapters.mysql.store import MySQL
    from inbox.tables import InboxTables

__all__ = ["MySQLDatabase"]

_LIST: Final = "inbox_lab"
_COPY: Final = "inbox_lab_copy_"
#: Octets of tables that are copied; what is larger is no database for tests.
_MOST_OCTETS: Final = 256 * 1024 * 1024
#: Rows of one table that are compared.
_MOST_ROWS: Final = 100_000
#: Triggers write while others are put back; so often everything is looked at again.
_MOST_PASSES: Final = 4
_PATIENCE: Final = 30
_NO_SUCH_TABLE: Final = 1146
_LACKS_A_RIGHT: Final = "let its user SELECT, INSERT, UPDATE, DELETE, CREATE, DROP and ALTER there"
#: What whoever runs the lab can do about an error.
_ADVICE: Final = {
    1044: _LACKS_A_RIGHT,
    1045: "correct user and password in the target's URL",
    1049: "make it with CREATE DATABASE, or correct the name in the target's URL",
    1142: _LACKS_A_RIGHT,
    1205: "somebody's open transaction holds its tables, maybe a fixture's; end it first",
    2003: "correct host and port in the target's URL, or start the server",
}
#: Looks for sessions of dead workers; the server sees a broken connection in a moment.
_FAREWELL: Final = 100
_NUMBER: Final = re.compile(r"\bAUTO_INCREMENT=(\d+)")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A table: where its copy is, and the number that it would draw next. Without a copy it was empty."""

    copy: str | None
    number: int | None


class MySQLDatabase:
    """See `inbox.testing.lab.database.Database`.

    Args:
        database: what the target was given.
        tables: the inbox's.

    Raises:
        ConfigurationError: the inbox's tables are in another database.
    """

    def __init__(self, database: MySQL, tables: InboxTables) -> None:
        self._url = checked_url(database.url) if isinstance(database.url, str) else checked_url(make_url(database.url))
        self._settings = database.settings
        self._tables = tables
        if tables.database not in (None, self._url.database):
            raise ConfigurationError(
                f"the inbox's tables are in the database {tables.database!r} and yours in {self._url.database!r}: the "
                "lab puts back one database, so give it a target that has both in one"
            )
        self._asking: pymysql.Connection[Any] | None = None
        self._keeping: pymysql.Connection[Any] | None = None
        self._kept: dict[str, _Kept] = {}
        self._known: set[int] = set()
        self._is_held = False
        self._needs_copies = False

    @property
    def name(self) -> str:
        """See `Database.name`."""
        return self._url.database or ""

    # ------------------------------------------------------------ keeping
    def keep(self) -> None:
        """See `Database.keep`."""
        with self._refusing("cannot be used"):
            self._asking = self._connect()
            self._keeping = self._connect_to_keep()
            self._take()
            self._recover()
            self._known = self._sessions()
            self._copy()

    def _connect_to_keep(self) -> pymysql.Connection[Any]:
        # Zero is a number like any other, and what the tables hold already is not to be judged.
        return self._connect("sql_mode = 'NO_AUTO_VALUE_ON_ZERO'", "foreign_key_checks = 0")

    def _take(self) -> None:
        (held,) = self._ask("SELECT GET_LOCK(%s, 0)", (f"{_LIST}:{self.name}"[:64],))[0]
        if held != 1:
            raise ConfigurationError(
                f"another lab works in the database {self.name!r}: wait for its end, or give each its own database "
                "(with pytest-xdist: one for each worker)"
            )
        self._is_held = True

    def _recover(self) -> None:
        """Put back what a lab that was killed has left, and delete its copies."""
        names = self._names()
        if _LIST in names:
            found = self._ask(f"SELECT name, copy, number FROM {_LIST}")  # noqa: S608 - names that the database gave
            kept = {str(name): _Kept(copy, number) for name, copy, number in found}
            if kept.pop("", None) is not None:  # the last row: all copies were whole
                self._kept = kept
                self.put_back()
        self._drop_copies()

    def _copy(self) -> None:
        names = [name for name in self._names() if not name.startswith(_LIST)]
        self._require_room()
        self._ask(
            f"CREATE TABLE {_LIST} (name VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, "
            "copy VARCHAR(64), number BIGINT UNSIGNED) ENGINE=InnoDB"
        )
        self._kept = {}
        for turn, name in enumerate(names):
            is_used = self._ask(f"SELECT 1 FROM {_quoted(name)} LIMIT 1")  # noqa: S608 - names that the database gave
            copy = f"{_COPY}{turn}" if is_used else None
            if copy is not None:
                columns = self._columns(name)
                self._ask(f"CREATE TABLE {copy} LIKE {_quoted(name)}")
                self._ask(f"INSERT INTO {copy} ({columns}) SELECT {columns} FROM {_quoted(name)}")  # noqa: S608 - names that the database gave
            self._kept[name] = _Kept(copy, self._next_number(name))
            self._ask(f"INSERT INTO {_LIST} VALUES (%s, %s, %s)", (name, copy, self._kept[name].number))  # noqa: S608 - names that the database gave
        self._ask(f"INSERT INTO {_LIST} VALUES ('', NULL, NULL)")  # noqa: S608 - names that the database gave

    def _require_room(self) -> None:
        kinds = self._ask(
            "SELECT table_name, table_type, COALESCE(data_length, 0) FROM information_schema.tables "
            "WHERE table_schema = DATABASE()"
        )
        for name, kind, _ in kinds:
            if kind not in ("BASE TABLE", "VIEW"):
                raise ConfigurationError(f"{name!r} is a {str(kind).lower()}, which the lab cannot put back")
        if sum(int(size) for _, _, size in kinds) > _MOST_OCTETS:
            raise ConfigurationError(
                f"the database {self.name!r} holds more than {_MOST_OCTETS >> 20} MiB, of which the lab would make "
                "copies: give it one with what your events need"
            )

    def _next_number(self, name: str) -> int | None:
        """What AUTO_INCREMENT would draw next; None where the table has no such column."""
        if not self._ask(
            "SELECT 1 FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s "
            "AND extra LIKE '%%auto_increment%%'",
            (name,),
        ):
            return None
        # Not from the information schema, whose figures are a day old by default on MySQL.
        found = _NUMBER.search(str(self._ask(f"SHOW CREATE TABLE {_quoted(name)}")[0][1]))
        return int(found.group(1)) if found else 1

    # ------------------------------------------------------------ putting back
    def put_back(self) -> None:
        """See `Database.put_back`."""
        self._needs_copies = True
        with self._failing(
            f"could not be put back as it was; what was in it is in {_COPY}…, and the next lab tries again"
        ):
            if self._keeping is None or not self._keeping.open:  # Ctrl-C in the middle of an answer closes it
                self._keeping = self._connect_to_keep()
            self._wait_for_the_dead()
            for name in self._names():
                if name not in self._kept and not name.startswith(_LIST):
                    self._ask(f"DROP TABLE {_quoted(name)}")
            left = [*self._kept]
            for _ in range(_MOST_PASSES):
                self._fill(left)
                left = [name for name in self._kept if not self._is_back(name)] if self._has_triggers() else []
                if not left:
                    break
            for name, kept in self._kept.items():
                if kept.number is not None:
                    self._ask(f"ALTER TABLE {_quoted(name)} AUTO_INCREMENT = {kept.number:d}")
        if left:
            raise LabError(f"tables {', '.join(left)} of {self.name!r} could not be put back: triggers write to them")
        self._needs_copies = False

    def _fill(self, names: Iterable[str]) -> None:
        assert self._keeping is not None  # noqa: S101 - `keep` comes first
        self._keeping.begin()
        try:
            for name in names:
                self._ask(f"DELETE FROM {_quoted(name)}")  # noqa: S608 - names that the database gave
            for name in names:
                if (copy := self._kept[name].copy) is not None:
                    columns = self._columns(copy)
                    self._ask(f"INSERT INTO {_quoted(name)} ({columns}) SELECT {columns} FROM {copy}")  # noqa: S608 - names that the database gave
            self._keeping.commit()
        except BaseException:
            with suppress(pymysql.Error):
                self._keeping.rollback()
            raise

    def _has_triggers(self) -> bool:
        return bool(self._ask("SELECT 1 FROM information_schema.triggers WHERE trigger_schema = DATABASE() LIMIT 1"))

    def _is_back(self, name: str) -> bool:
        copy = self._kept[name].copy
        if copy is None:
            return not self._ask(f"SELECT 1 FROM {_quoted(name)} LIMIT 1")  # noqa: S608 - names that the database gave
        (_, one), (_, other) = self._ask(f"CHECKSUM TABLE {_quoted(name)}, {copy}")
        return bool(one == other)

    def _wait_for_the_dead(self) -> None:
        """Wait for the sessions of workers that were killed: what they had sent is still carried out.

        Those that stay are no workers': somebody looks at the tables, and may.
        """
        own = {self._ask("SELECT CONNECTION_ID()")[0][0]}
        for _ in range(_FAREWELL):
            if not self._sessions() - self._known - own:
                return
            self._ask("DO SLEEP(0.02)")
        self._known = self._sessions()

    def _sessions(self) -> set[int]:
        rows = self._ask("SELECT id FROM information_schema.processlist WHERE db = DATABASE()")
        return {int(number) for (number,) in rows}

    def close(self) -> None:
        """See `Database.close`."""
        try:
            if self._is_held and not self._needs_copies and self._keeping is not None and self._keeping.open:
                with self._failing("keeps copies of the lab's"):
                    self._drop_copies()
        finally:
            self._is_held = False  # what lies there otherwise is another lab's
            for connection in (self._asking, self._keeping):
                if connection is not None and connection.open:
                    connection.close()

    def _drop_copies(self) -> None:
        names = self._names()
        # The list goes first: without it the copies are nothing that somebody would put back.
        for name in sorted((name for name in names if name.startswith(_COPY) or name == _LIST), key=len):
            self._ask(f"DROP TABLE IF EXISTS {name}")

    # ------------------------------------------------------------ reading
    def query(self, sql: str, arguments: Sequence[object] = ()) -> tuple[tuple[str, ...], list[Row]]:
        """See `Database.query`; placeholders are `%s`."""
        assert self._asking is not None  # noqa: S101 - `keep` comes first
        with self._asking.cursor() as cursor:
            cursor.execute(sql, tuple(arguments) or None)
            columns = tuple(str(column[0]) for column in cursor.description or ())
            return columns, list(cursor.fetchall())

    def check(self, sql: str) -> tuple[tuple[str, ...], list[Row]]:
        """See `Database.check`."""
        try:
            # The session and not one transaction: a DROP would end that, and be carried out.
            self.query("SET SESSION TRANSACTION READ ONLY")
            try:
                columns, rows = self.query(sql)
            finally:
                self.query("SET SESSION TRANSACTION READ WRITE")
        except pymysql.Error as error:
            raise refused_check(sql, str(error.args[-1]) if error.args else "") from error
        if not columns:
            raise refused_check(sql, "it answers nothing")
        return columns, rows

    def rows(self) -> dict[str, Rows]:
        """See `Database.rows`."""
        ours = {*self._ours(), self._tables.names.view}
        found: dict[str, Rows] = {}
        for name in self._names():
            if name in ours or name.startswith(_LIST):
                continue
            columns, rows = self.query(f"SELECT * FROM {_quoted(name)} LIMIT {_MOST_ROWS + 1}")  # noqa: S608 - names that the database gave
            if len(rows) > _MOST_ROWS:
                raise LabError(f"table {name} has more than {_MOST_ROWS:,} rows: compare with checks of your own")
            found[name] = Rows(columns, Counter(rows))
        return found

    def surrogates(self) -> set[tuple[str, str]]:
        """See `Database.surrogates`."""
        drawn = {
            (str(table), str(column))
            for table, column in self.query(
                "SELECT table_name, column_name FROM information_schema.columns "
                "WHERE table_schema = DATABASE() AND extra LIKE '%auto_increment%'"
            )[1]
            if not str(table).startswith(_LIST)
        }
        references = self.query(
            "SELECT table_name, column_name, referenced_table_name, referenced_column_name "
            "FROM information_schema.key_column_usage "
            "WHERE table_schema = DATABASE() AND referenced_table_schema = DATABASE()"
        )[1]
        while more := {(t, c) for t, c, to, column in references if (to, column) in drawn} - drawn:
            drawn |= more
        return drawn

    def ended(self, consumer: str) -> Ended:
        """See `Database.ended`."""
        names = self._tables.names

        def asked(question: str, table: str) -> list[Row]:
            place = qualified(table, self._tables.database)
            return self.query(question.format(table=place, mark="%s"), (consumer.encode(),))[1]

        try:
            return ended_of(
                asked(APPLIED, names.inbox), asked(REFUSED, names.quarantine), asked(OPEN_STARTS, names.attempt)
            )
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != _NO_SUCH_TABLE:
                raise
            return Ended()  # whoever starts a worker is told how to make them

    # ------------------------------------------------------------ the server
    def _ours(self) -> set[str]:
        return {table.name for table in self._tables.all}

    def _names(self) -> list[str]:
        rows = self._ask(
            "SELECT table_name FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' ORDER BY table_name"
        )
        return [str(name) for (name,) in rows]

    def _columns(self, table: str) -> str:
        """Its columns but those that the server computes, ready for a statement."""
        rows = self._ask(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = %s "
            "AND COALESCE(generation_expression, '') = '' ORDER BY ordinal_position",
            (table,),
        )
        return ", ".join(_quoted(str(name)) for (name,) in rows)

    def _ask(self, sql: str, arguments: Sequence[object] = ()) -> list[Row]:
        assert self._keeping is not None  # noqa: S101 - `keep` comes first
        with self._keeping.cursor() as cursor:
            cursor.execute(sql, tuple(arguments) or None)
            return list(cursor.fetchall())

    def _connect(self, *variables: str) -> pymysql.Connection[Any]:
        url, settings = self._url, self._settings
        context = ssl.create_default_context(cafile=settings.tls_ca) if settings.tls else None
        session = (f"lock_wait_timeout = {_PATIENCE}", f"innodb_lock_wait_timeout = {_PATIENCE}", *variables)
        socket = url.query.get("unix_socket")
        return pymysql.connect(
            host=url.host or "localhost",
            port=url.port or 3306,
            user=url.username,
            password=url.password or "",
            database=url.database,
            unix_socket=str(socket) if socket else None,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(int(settings.connect_timeout), 1),
            ssl=context,
            ssl_disabled=not settings.tls,  # else PyMySQL takes TLS where it is offered, unasked
            init_command=f"SET SESSION {', '.join(session)}, wait_timeout = 28800",
        )

    @contextmanager
    def _refusing(self, what: str) -> Iterator[None]:
        try:
            yield
        except pymysql.Error as error:
            raise ConfigurationError(f"the database {self.name!r} {what} ({_words(error)})") from error

    @contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except pymysql.Error as error:
            raise LabError(f"the database {self.name!r} {what} ({_words(error)})") from error


def _words(error: pymysql.Error) -> str:
    """What it is and what to do, without the server's own text, which may quote what is secret."""
    code = error.args[0] if error.args else 0
    advice = _ADVICE.get(code)
    return f"{type(error).__name__} {code}" + (f": {advice}" if advice else "")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
