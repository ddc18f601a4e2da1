"""What the server reports about the tables and about itself, read into plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, text

from inbox.adapters.mysql import schema_sql
from inbox.tables import qualified

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy.engine import RowMapping
    from sqlalchemy.ext.asyncio import AsyncConnection

    from inbox.schema_files import Dialect
    from inbox.tables import InboxTables


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """One column as the server reports it; `default` is brought to one spelling for both servers."""

    name: str
    type: str
    nullable: bool
    default: str | None
    charset: str | None
    collation: str | None
    generated: bool
    fills_itself: bool
    on_update: bool


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """One index: its columns in order, whether only a part of one is indexed, whether the optimizer may use it."""

    name: str
    unique: bool
    columns: tuple[str, ...]
    cut: bool
    usable: bool


@dataclass(frozen=True, slots=True)
class TriggerFacts:
    """One trigger: its name, and INSERT, UPDATE or DELETE."""

    name: str
    event: str


@dataclass(frozen=True, slots=True)
class ViewFacts:
    """One view; the definition is empty for a user without the SHOW VIEW right."""

    security: str
    definition: str


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table or view as the server reports it."""

    name: str
    type: str
    engine: str | None = None
    row_format: str | None = None
    collation: str | None = None
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)
    indexes: Sequence[IndexFacts] = ()
    triggers: Sequence[TriggerFacts] = ()
    view: ViewFacts | None = None


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Everything `schema_compare` looks at.

    Attributes:
        version: the server's own words.
        database: the one that holds the tables; None where the connection has none selected.
        sql_mode: of this session.
        variables: global ones, by name; those the server does not have are absent.
        tables: those that exist, by the name asked for.
        non_transactional: (table, engine) of tables in the same database that cannot be rolled back; at most six.
        versions: schema versions recorded; None where the table is missing or may not be read.
    """

    version: str
    database: str | None
    sql_mode: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, TableFacts] = field(default_factory=dict)
    non_transactional: Sequence[tuple[str, str]] = ()
    versions: frozenset[int] | None = None

    @property
    def dialect(self) -> Dialect:
        """Which kind of server this is, whatever the URL says."""
        return "mariadb" if "mariadb" in self.version.lower() else "mysql"


async def read_facts(connection: AsyncConnection, tables: InboxTables) -> ServerFacts:
    """Ask the server. Only reads; ten small queries.

    Raises:
        sqlalchemy.exc.DBAPIError: the connection failed.
    """
    server = (await connection.execute(text(schema_sql.SERVER))).mappings().one()
    variables = {str(name): str(value) for name, value in await connection.execute(text(schema_sql.VARIABLES))}
    database = tables.database or _text(server["current_database"]) or None
    facts = ServerFacts(
        version=_text(server["version"]),
        database=database,
        sql_mode=frozenset(_text(server["sql_mode"]).split(",")),
        variables=variables,
    )
    if database is None:
        return facts
    found = await _read_tables(connection, database, tables, facts)
    return ServerFacts(
        version=facts.version,
        database=database,
        sql_mode=facts.sql_mode,
        variables=variables,
        tables=found,
        non_transactional=await _non_transactional(connection, database),
        versions=await _versions(connection, tables) if tables.names.schema in found else None,
    )


async def _read_tables(
    connection: AsyncConnection, database: str, tables: InboxTables, facts: ServerFacts
) -> dict[str, TableFacts]:
    """What exists under the names of `tables`, by name; of a view that has lost its table no more than that it is."""
    names, view = [table.name for table in tables.all], tables.names.view
    everything = _Reader(connection, database, names if view is None else [*names, view], facts.variables)
    found = await everything.kinds()
    detailed = [
        name for name, kind in found.items() if kind.type != "VIEW" or (name == view and tables.names.inbox in found)
    ]
    if not detailed:
        return found
    return found | await _Reader(connection, database, detailed, facts.variables).details(found, facts.dialect)


async def _non_transactional(connection: AsyncConnection, database: str) -> list[tuple[str, str]]:
    rows = await connection.execute(text(schema_sql.NON_TRANSACTIONAL), {"database": database})
    return [(_text(row.table_name), _text(row.engine)) for row in rows]


async def _versions(connection: AsyncConnection, tables: InboxTables) -> frozenset[int]:
    name = qualified(tables.names.schema, tables.database)
    rows = await connection.execute(text(schema_sql.VERSIONS.format(schema=name)))
    return frozenset(int(row.version) for row in rows)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads several views of `information_schema` for the same tables."""

    connection: AsyncConnection
    database: str
    names: Sequence[str]
    variables: Mapping[str, str]

    async def kinds(self) -> dict[str, TableFacts]:
        kinds = await self._rows(schema_sql.KINDS)
        return {name: TableFacts(name, _text(rows[0]["table_type"])) for name, rows in kinds.items()}

    async def details(self, kinds: Mapping[str, TableFacts], dialect: Dialect) -> dict[str, TableFacts]:
        indexes_sql = schema_sql.INDEXES_MYSQL if dialect == "mysql" else schema_sql.INDEXES_MARIADB
        columns = await self._rows(schema_sql.COLUMNS)
        indexes = await self._rows(indexes_sql)
        triggers = await self._rows(schema_sql.TRIGGERS)
        views = await self._rows(schema_sql.VIEWS)
        return {
            name: TableFacts(
                name=name,
                type=kinds[name].type,
                engine=_optional(rows[0]["engine"]),
                row_format=_optional(rows[0]["row_format"]),
                collation=_optional(rows[0]["collation"]),
                columns={column.name: column for column in map(_column, columns.get(name, ()))},
                indexes=_indexes(indexes.get(name, ())),
                triggers=[TriggerFacts(_text(row["name"]), _text(row["event"])) for row in triggers.get(name, ())],
                view=next((_view(row) for row in views.get(name, ())), None),
            )
            for name, rows in (await self._rows(schema_sql.TABLES)).items()
        }

    async def _rows(self, sql: str) -> dict[str, list[RowMapping]]:
        """Rows of `sql` by the name that was asked for."""
        statement = text(sql).bindparams(bindparam("names", expanding=True))
        result = await self.connection.execute(statement, {"database": self.database, "names": list(self.names)})
        # The comparison in the query may ignore case; the server's own rule is what decides which table is meant.
        asked = {self._folded(name): name for name in self.names}
        grouped: dict[str, list[RowMapping]] = {}
        for row in result.mappings():
            name = asked.get(self._folded(_text(row["table_name"])))
            if name is not None:
                grouped.setdefault(name, []).append(row)
        return grouped

    def _folded(self, name: str) -> str:
        return name if self.variables.get("lower_case_table_names", "0") == "0" else name.lower()


def _column(row: Mapping[Any, Any]) -> ColumnFacts:
    extra = _text(row["extra"]).lower()
    nullable = row["nullable"] == "YES"
    return ColumnFacts(
        name=_text(row["name"]),
        type=_text(row["type"]),
        nullable=nullable,
        default=_default(_optional(row["default_value"]), expression="default_generated" in extra),
        charset=_optional(row["charset"]),
        collation=_optional(row["collation"]),
        generated=bool(_optional(row["expression"])),
        fills_itself=nullable or row["default_value"] is not None or "auto_increment" in extra,
        on_update="on update" in extra,
    )


def _default(reported: str | None, *, expression: bool) -> str | None:
    """One spelling for both servers.

    MySQL reports the literal `open`, and the word `DEFAULT_GENERATED` beside an expression; MariaDB reports what one
    would write: `'open'`, `NULL`, `utc_timestamp(6)`.
    """
    if reported is None or (reported == "NULL" and not expression):
        return None
    literal = reported.startswith("'") and reported.endswith("'")
    return reported.strip("'") if literal else reported.lower() if "(" in reported else reported


def _indexes(rows: Iterable[Mapping[Any, Any]]) -> list[IndexFacts]:
    parts: dict[str, list[Mapping[Any, Any]]] = {}
    for row in rows:
        parts.setdefault(_text(row["name"]), []).append(row)
    return [
        IndexFacts(
            name=name,
            unique=not int(of[0]["non_unique"]),
            # A part that is an expression has no column name.
            columns=tuple(_optional(part["column_name"]) or "(expression)" for part in of),
            cut=any(part["prefix_octets"] is not None for part in of),
            usable=bool(of[0]["usable"]),
        )
        for name, of in parts.items()
    ]


def _view(row: Mapping[Any, Any]) -> ViewFacts:
    return ViewFacts(security=_text(row["security"]), definition=_optional(row["definition"]) or "")


def _text(value: object) -> str:
    """Some columns of `information_schema` come as octets, depending on server and driver."""
    return value.decode() if isinstance(value, bytes | bytearray) else str("" if value is None else value)


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)
