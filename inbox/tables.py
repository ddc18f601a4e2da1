"""The framework's tables, in the adopter's own database: the one source of the schema.

The SQL files in `schema/` say the same for people and for migration tools; the tests create the tables
both ways on MySQL and MariaDB and compare what the servers report.

Rules that hold for every table:

- What came off the wire is `VARBINARY`/`BINARY`/`LONGBLOB`: exact octets. A text column would merge ids that
  differ in case, accents or trailing spaces, each collation in another way, and the collations that merge nothing
  (`utf8mb4_0900_bin`, `utf8mb4_nopad_bin`) do not exist on both servers. Always bind `bytes`.
- What the framework itself writes for people is `VARCHAR` in `utf8mb4` with `utf8mb4_bin`, which both servers have.
- Times are UTC by the database's clock, `DATETIME(6)`, and come back as naive `datetime` values. The clocks of the
  workers are never compared with each other.
- InnoDB, row format DYNAMIC and the character set are written out: the server's defaults may be others.
- No column is generated, no constraint checks text, no foreign key points anywhere: a claim is one insert into one
  primary key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlalchemy import Column, Index, MetaData, PrimaryKeyConstraint, Table, event, text
from sqlalchemy.dialects.mysql import BINARY, DATETIME, INTEGER, LONGBLOB, TINYINT, VARBINARY, VARCHAR

from inbox.core.quarantine import EVENT_TYPE_OCTETS, QuarantineState
from inbox.core.records import CONSUMER_NAME_OCTETS, EVENT_ID_OCTETS
from inbox.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection

__all__ = [
    "SCHEMA_VERSION",
    "InboxTables",
    "InboxTablesMixin",
    "QuarantineState",
    "TableNames",
    "define_tables",
    "qualified",
    "version_rows",
    "view_definition",
]

#: Number of the newest file in `schema/`; what `define_tables` describes.
SCHEMA_VERSION: Final = 1

#: Characters of a history of attempts.
HISTORY_LENGTH: Final = 8000
#: Octets of a SHA-256 digest.
_DIGEST_OCTETS: Final = 32
#: Octets of an AMQP short string, the type of exchange, queue and routing key (AMQP 0-9-1, 4.2.5.3).
_SHORTSTR_OCTETS: Final = 255

# In parentheses MySQL takes any expression as a default (8.0.13 and newer; manual, "Data Type Default Values"), and
# MariaDB takes the same text (10.2.1 and newer). UTC_TIMESTAMP and not CURRENT_TIMESTAMP, which follows the session's
# time zone: two workers with two zones would disagree by hours about the age of a row.
_NOW: Final = "(UTC_TIMESTAMP(6))"

_TABLE_NAME: Final = re.compile(r"[A-Za-z_][0-9A-Za-z_$]{0,63}")
_DATABASE_NAME: Final = re.compile(r"[^`%:;./\\\x00-\x1f]{1,64}(?<! )")

_DIALECTS: Final = ("mysql", "mariadb")

# Both spellings: SQLAlchemy takes the options that begin with the name of the dialect in the URL, `mysql://` or
# `mariadb://`, and ignores the others.
_OPTIONS: Final[dict[str, Any]] = {
    f"{dialect}_{option}": value
    for dialect in _DIALECTS
    for option, value in (
        ("engine", "InnoDB"),
        ("charset", "utf8mb4"),
        ("collate", "utf8mb4_bin"),
        ("row_format", "DYNAMIC"),
    )
}


@dataclass(frozen=True, slots=True)
class TableNames:
    """What the tables are called in the adopter's database.

    Args:
        inbox: one row for each event that was processed.
        attempt: counts of events in trouble.
        quarantine: refused events, whole.
        schema: versions of the schema that were applied.
        view: the view for people over `inbox`; None creates none.

    Raises:
        ConfigurationError: a name is empty, longer than 64 characters, holds anything but ASCII letters, digits, `_`
            and `$` (what MySQL and MariaDB permit unquoted), begins with a digit or `$`, or is given twice.
    """

    inbox: str = "inbox"
    attempt: str = "inbox_attempt"
    quarantine: str = "inbox_quarantine"
    worker: str = "inbox_worker"
    schema: str = "inbox_schema"
    view: str | None = "inbox_view"

    def __post_init__(self) -> None:
        given = [(field.name, getattr(self, field.name)) for field in fields(self)]
        names = [(kind, name) for kind, name in given if name is not None]
        for kind, name in names:
            if not _TABLE_NAME.fullmatch(name):
                raise ConfigurationError(
                    f"table name {name!r} for {kind!r}: use 1 to 64 ASCII letters, digits, '_' or '$', "
                    "beginning with a letter or '_'"
                )
        if len({name.lower() for _, name in names}) < len(names):
            raise ConfigurationError("two of the table names are the same: each table needs a name of its own")


@dataclass(frozen=True, slots=True)
class InboxTables:
    """The tables, as SQLAlchemy objects. Made by `define_tables`.

    Attributes:
        inbox: claims, one row for each processed event.
        attempt: counts of what is in trouble.
        quarantine: refused events.
        worker: what each worker process last said of itself.
        schema: versions applied.
        names: what they are called.
        database: the database ("schema" in SQLAlchemy's words) they are in; None is the connection's own.
    """

    inbox: Table
    attempt: Table
    quarantine: Table
    worker: Table
    schema: Table
    names: TableNames
    database: str | None = None

    @property
    def all(self) -> tuple[Table, ...]:
        """The tables, in the order in which they are created."""
        return (self.inbox, self.attempt, self.quarantine, self.worker, self.schema)


class InboxTablesMixin:
    """Puts the tables into the metadata of a declarative base, for applications that use the ORM.

    ```python
    class Base(InboxTablesMixin, DeclarativeBase): ...

    Inbox(..., store=MySQL(url, tables=Base.inbox_tables))
    ```

    `Base.metadata.create_all` and Alembic's autogenerate then see them as the application's own. The mixin stands
    before `DeclarativeBase`. To name them differently, set `inbox_table_names` in the class body.
    """

    inbox_table_names: ClassVar[TableNames] = TableNames()
    inbox_tables: ClassVar[InboxTables]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        metadata = getattr(cls, "metadata", None)
        # Models below the base inherit `inbox_tables`; a base of a base has no metadata yet.
        if isinstance(metadata, MetaData) and not hasattr(cls, "inbox_tables"):
            cls.inbox_tables = define_tables(metadata, cls.inbox_table_names)


def define_tables(metadata: MetaData, names: TableNames | None = None, schema: str | None = None) -> InboxTables:
    """Adds the framework's tables to `metadata`.

    `metadata.create_all` then creates them, the view, and the rows that record the schema's version. Alembic's
    autogenerate finds nothing to do once they exist, and writes a complete migration while they do not; a view is
    outside of what it sees, so that `inbox schema apply` adds it.

    Args:
        metadata: the adopter's, or one of its own.
        names: what the tables are called; None takes the defaults.
        schema: database that holds them; None takes the metadata's, and without one the connection's.

    Returns:
        The tables. The same names and database in the same metadata give the same tables again.

    Raises:
        ConfigurationError: `schema` is no database name.
        sqlalchemy.exc.InvalidRequestError: the metadata already has another table of one of these names.
    """
    names = names or TableNames()
    database = schema or metadata.schema
    if database is not None and not _DATABASE_NAME.fullmatch(database):
        raise ConfigurationError(f"database name {database!r}: 1 to 64 characters without ` % : ; . / \\")
    defined: dict[object, InboxTables] = metadata.info.setdefault("inbox.tables", {})
    if (names, database) not in defined:
        tables = InboxTables(
            inbox=_inbox(metadata, names.inbox, database),
            attempt=_attempt(metadata, names.attempt, database),
            quarantine=_quarantine(metadata, names.quarantine, database),
            worker=_worker(metadata, names.worker, database),
            schema=_schema(metadata, names.schema, database),
            names=names,
            database=database,
        )
        _listen(tables)
        defined[(names, database)] = tables
    return defined[(names, database)]


def _inbox(metadata: MetaData, name: str, database: str | None) -> Table:
    """One row for each event that a consumer has processed: the claim.

    The consumer comes first in the key: duplicates are known within a consumer, and one consumer's rows lie together
    for its retention. The row is kept narrow: it is what a hundred million events cost. The index for retention
    begins with the consumer because clean-up is scoped by consumer (each has its own window), and costs nothing
    more than one over the time alone: InnoDB appends the missing columns of the primary key to every index.
    """
    return Table(
        name,
        metadata,
        Column("consumer_name", VARBINARY(CONSUMER_NAME_OCTETS), nullable=False),
        Column("event_id", VARBINARY(EVENT_ID_OCTETS), nullable=False),
        Column("fingerprint", BINARY(_DIGEST_OCTETS), nullable=True),
        Column("fingerprint_scheme", TINYINT(unsigned=True), nullable=True),
        _time("processed_at"),
        PrimaryKeyConstraint("consumer_name", "event_id"),
        Index("inbox_by_time", "consumer_name", "processed_at"),
        schema=database,
        **_OPTIONS,
    )


def _attempt(metadata: MetaData, name: str, database: str | None) -> Table:
    """Counts for events in trouble only; an event that goes well the first time never has a row here.

    `failed` and `crashed` are charged to the event, `released` is counted so that contention ends. `open_since` and
    `open_token` stand while a start has not finished; found by another process, they say that a process died. Only one
    that ran alone (`open_alone`) was the death's cause for certain. `end_token` tells an end that was written twice,
    for its answer was lost, from two ends. `history` has a line for each charge: time, kind, and a sentence of ours or
    class and place of an exception, never its text; the oldest lines give way.
    """
    return Table(
        name,
        metadata,
        Column("consumer_name", VARBINARY(CONSUMER_NAME_OCTETS), nullable=False),
        Column("attempt_key", VARBINARY(EVENT_ID_OCTETS), nullable=False),
        _count("failed"),
        _count("crashed"),
        _count("released"),
        Column("open_since", DATETIME(fsp=6), nullable=True),
        Column("open_token", VARBINARY(32), nullable=True),
        Column("open_alone", TINYINT(unsigned=True), nullable=False, server_default=text("0")),
        Column("end_token", VARBINARY(16), nullable=True),
        Column("history", VARCHAR(HISTORY_LENGTH), nullable=True),
        _time("first_at"),
        _time("last_at"),
        PrimaryKeyConstraint("consumer_name", "attempt_key"),
        Index("inbox_attempt_by_time", "consumer_name", "last_at"),
        schema=database,
        **_OPTIONS,
    )


def _quarantine(metadata: MetaData, name: str, database: str | None) -> Table:
    """Refused events, whole, so that each can be looked at, replayed or discarded.

    The key is a digest of what arrived, without the broker's counters: a crash before the acknowledgement finds its
    own row and adds no second one. `event_id` is NULL where there is none or where it is too long to be stored, and
    `event_type` and `source` may be cut: they serve listing and search, `headers` holds the whole. `record_key` is the
    key of the event's inbox row, once it was verified: retention keeps that row while this one is open, or a replay
    would take the event for a new one. One index serves both the list of what is open and the sums that bound the
    quarantine, which never read a body.
    """
    return Table(
        name,
        metadata,
        Column("consumer_name", VARBINARY(CONSUMER_NAME_OCTETS), nullable=False),
        Column("digest", BINARY(_DIGEST_OCTETS), nullable=False),
        Column("event_id", VARBINARY(EVENT_ID_OCTETS), nullable=True),
        Column("event_type", VARBINARY(EVENT_TYPE_OCTETS), nullable=True),
        Column("source", VARBINARY(1024), nullable=True),
        Column("record_key", VARBINARY(EVENT_ID_OCTETS), nullable=True),
        Column("reason", VARCHAR(64), nullable=False),
        Column("detail", VARCHAR(1024), nullable=True),
        Column("origin_exchange", VARBINARY(_SHORTSTR_OCTETS), nullable=True),
        Column("origin_routing_key", VARBINARY(_SHORTSTR_OCTETS), nullable=True),
        Column("queue", VARBINARY(_SHORTSTR_OCTETS), nullable=True),
        Column("headers", LONGBLOB, nullable=False),
        Column("body", LONGBLOB, nullable=False),
        _count("body_bytes"),
        _count("total_bytes"),
        Column("encryption_key_id", VARCHAR(64), nullable=True),
        _count("attempts"),
        Column("history", VARCHAR(HISTORY_LENGTH), nullable=True),
        _count("times_seen", start=1),
        _time("first_at"),
        _time("last_at"),
        Column("state", VARCHAR(16), nullable=False, server_default=QuarantineState.OPEN.value),
        Column("state_at", DATETIME(fsp=6), nullable=True),
        Column("state_note", VARCHAR(512), nullable=True),
        PrimaryKeyConstraint("consumer_name", "digest"),
        Index("inbox_quarantine_by_state", "consumer_name", "state", "first_at", "total_bytes"),
        Index("inbox_quarantine_by_event", "consumer_name", "event_id"),
        Index("inbox_quarantine_by_record", "consumer_name", "record_key", "state"),
        schema=database,
        **_OPTIONS,
    )


def _worker(metadata: MetaData, name: str, database: str | None) -> Table:
    """What each worker process last said of itself: where it runs, what it does, and its counts as a JSON object."""
    return Table(
        name,
        metadata,
        Column("consumer_name", VARBINARY(CONSUMER_NAME_OCTETS), nullable=False),
        Column("worker_id", BINARY(16), nullable=False),
        Column("host", VARCHAR(255), nullable=False),
        Column("pid", INTEGER(unsigned=True), nullable=False),
        Column("state", VARCHAR(255), nullable=False),
        Column("counts", VARCHAR(4000), nullable=False),
        _time("started_at"),
        _time("seen_at"),
        PrimaryKeyConstraint("consumer_name", "worker_id"),
        Index("inbox_worker_by_time", "consumer_name", "seen_at"),
        schema=database,
        **_OPTIONS,
    )


def _schema(metadata: MetaData, name: str, database: str | None) -> Table:
    """Which numbered files were applied. The number is the key, so that none is recorded twice."""
    return Table(
        name,
        metadata,
        Column("version", INTEGER(unsigned=True), nullable=False, autoincrement=False),
        _time("applied_at"),
        PrimaryKeyConstraint("version"),
        schema=database,
        **_OPTIONS,
    )


def _time(name: str) -> Column[Any]:
    return Column(name, DATETIME(fsp=6), nullable=False, server_default=text(_NOW))


def _count(name: str, start: int = 0) -> Column[Any]:
    return Column(name, INTEGER(unsigned=True), nullable=False, server_default=text(str(start)))


def _listen(tables: InboxTables) -> None:
    """Lets `create_all` and `drop_all` carry the parts that are no tables: the view and the version rows."""
    if tables.names.view is not None:
        event.listen(tables.inbox, "after_create", _executes(view_definition(tables)))
        drop = f"DROP VIEW IF EXISTS {qualified(tables.names.view, tables.database)}"
        event.listen(tables.inbox, "before_drop", _executes(drop))
    event.listen(tables.schema, "after_create", _executes(version_rows(tables, range(1, SCHEMA_VERSION + 1))))


def _executes(sql: str) -> Callable[..., None]:
    def listener(_target: Table, connection: Connection, **_options: Any) -> None:
        if connection.dialect.name in _DIALECTS:
            connection.execute(text(sql))

    return listener


def version_rows(tables: InboxTables, versions: Iterable[int]) -> str:
    """SQL that records `versions` as applied; a version that is recorded already stays as it is.

    Args:
        tables: whose names to use.
        versions: numbers of files in `schema/`; at least one.
    """
    values = ", ".join(f"({version:d})" for version in versions)
    name = qualified(tables.names.schema, tables.database)
    # The last part changes nothing. INSERT IGNORE would do so too, and hide every other error as well.
    return f"INSERT INTO {name} (version) VALUES {values} ON DUPLICATE KEY UPDATE version = {name}.version"  # noqa: S608 - names checked when made


def qualified(name: str, database: str | None) -> str:
    """`name` quoted for MySQL and MariaDB, with its database where one is given. Both were checked when made."""
    return f"`{name}`" if database is None else f"`{database}`.`{name}`"


def view_definition(tables: InboxTables) -> str:
    """SQL that creates or replaces the view for people.

    It keeps the raw key columns beside their text: a condition on the raw columns uses the primary key, while one on
    converted text scans the table. A view and no generated column, for MariaDB refuses a row whose generated text is
    not valid UTF-8, and an id may be any octets; the view shows NULL or `?` there. It runs with the reader's rights.

    Args:
        tables: whose names to use.

    Raises:
        ValueError: the tables were defined without a view.
    """
    if tables.names.view is None:
        raise ValueError("these tables were defined without a view")
    return (
        "CREATE OR REPLACE ALGORITHM = MERGE SQL SECURITY INVOKER "
        f"VIEW {qualified(tables.names.view, tables.database)} AS\n"
        "SELECT consumer_name,\n"
        "       event_id,\n"
        "       CONVERT(consumer_name USING utf8mb4) AS consumer_text,\n"
        "       CONVERT(event_id USING utf8mb4) AS event_text,\n"
        "       HEX(fingerprint) AS fingerprint_hex,\n"
        "       fingerprint_scheme,\n"
        "       processed_at\n"
        f"  FROM {qualified(tables.names.inbox, tables.database)}"
    )
