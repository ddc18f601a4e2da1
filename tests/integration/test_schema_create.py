# ruff: noqa: S608 - the names in the SQL are this file's own
"""However the tables are made, the server reports the same; and Alembic then finds nothing to do."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Connection, MetaData, text
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from inbox.adapters.mysql import schema
from inbox.adapters.mysql.schema_findings import Finding
from inbox.errors import SchemaError
from inbox.tables import SCHEMA_VERSION, InboxTables, TableNames, define_tables, view_definition
from tests.pairs import Driver, Pair

Make = Callable[[AsyncEngine, MetaData, InboxTables], Awaitable[None]]
OTHER_NAMES = TableNames("seen", "seen_attempt", "seen_quarantine", "seen_schema", "seen_view")


@pytest_asyncio.fixture
async def engine(pair: Pair) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(pair.database_url, poolclass=NullPool)
    yield made
    await made.dispose()


async def by_file(engine: AsyncEngine, _metadata: MetaData, tables: InboxTables) -> None:
    """As a person does: the printed text, given to a client that splits it at its semicolons."""
    async with engine.connect() as connection:
        version = (await connection.execute(text("SELECT VERSION()"))).scalar_one()
        printed = schema.render("mariadb" if "MariaDB" in version else "mysql", tables)
        for statement in re.sub(r"^--.*$", "", printed, flags=re.MULTILINE).split(";"):
            if statement.strip():
                await connection.exec_driver_sql(statement)
        await connection.commit()


async def by_metadata(engine: AsyncEngine, metadata: MetaData, _tables: InboxTables) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)


async def by_command(engine: AsyncEngine, _metadata: MetaData, tables: InboxTables) -> None:
    await schema.apply(engine, tables)


async def by_alembic(engine: AsyncEngine, metadata: MetaData, tables: InboxTables) -> None:
    """Autogenerate a migration, run the code that it writes, and let `apply` add what Alembic does not see."""

    def migrate(connection: Connection) -> None:
        context = migration_context(connection, metadata)
        code = render_python_code(produce_migrations(context, metadata).upgrade_ops_list[0])
        import sqlalchemy as sa  # noqa: PLC0415 - under the names that Alembic's templates use
        from sqlalchemy.dialects import mysql  # noqa: PLC0415

        lines = "\n".join(line.strip() for line in code.splitlines())
        exec(lines, {"op": Operations(context), "sa": sa, "mysql": mysql})  # noqa: S102 - the code is Alembic's

    async with engine.begin() as connection:
        await connection.run_sync(migrate)
    await schema.apply(engine, tables)


WAYS: list[Make] = [by_file, by_metadata, by_command, by_alembic]


def migration_context(connection: Connection, metadata: MetaData) -> MigrationContext:
    options = {"compare_type": True, "compare_server_default": True, "target_metadata": metadata}
    return MigrationContext.configure(connection, opts=options)


async def report(engine: AsyncEngine, tables: InboxTables) -> dict[str, Any]:
    """What the server says: the lines of SHOW CREATE TABLE (indexes come in the order in which they were made), the
    view without its author, and the recorded versions."""
    async with engine.connect() as connection:
        found: dict[str, Any] = {}
        for table in tables.all:
            shown = (await connection.execute(text(f"SHOW CREATE TABLE {table.name}"))).one()[1]
            found[table.name] = sorted(line.rstrip(",") for line in shown.splitlines())
        shown = (await connection.execute(text(f"SHOW CREATE VIEW {tables.names.view}"))).one()[1]
        found["view"] = re.sub(r" DEFINER=\S+", "", shown)
        versions = await connection.execute(text(f"SELECT version FROM {tables.names.schema}"))
        found["versions"] = versions.scalars().all()
        return found


async def drop_everything(engine: AsyncEngine, metadata: MetaData) -> None:
    async with engine.begin() as connection:
        await connection.run_sync(metadata.drop_all)
        assert (await connection.execute(text("SHOW TABLES"))).all() == []


@pytest.mark.parametrize("names", [TableNames(), OTHER_NAMES], ids=["default-names", "other-names"])
async def test_each_way_of_making_the_tables_gives_the_same(engine: AsyncEngine, names: TableNames) -> None:
    metadata = MetaData()
    tables = define_tables(metadata, names)
    reports = {}
    for make in WAYS:
        await make(engine, metadata, tables)
        reports[make.__name__] = await report(engine, tables)
        assert await schema.check(engine, tables) == [], make.__name__
        await drop_everything(engine, metadata)

    expected = reports["by_file"]
    assert expected["versions"] == list(range(1, SCHEMA_VERSION + 1))
    assert "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin ROW_FORMAT=DYNAMIC" in str(expected)
    for way, reported in reports.items():
        assert reported == expected, way


@pytest.mark.parametrize("make", WAYS)
async def test_autogenerate_is_quiet_afterwards(engine: AsyncEngine, make: Make) -> None:
    metadata = MetaData()
    tables = define_tables(metadata)
    await make(engine, metadata, tables)
    async with engine.connect() as connection:
        changes = await connection.run_sync(lambda sync: compare_metadata(migration_context(sync, metadata), metadata))
    assert changes == []


async def test_autogenerate_is_not_quiet_about_a_change(engine: AsyncEngine) -> None:
    """The test above could pass because nothing is compared."""
    metadata = MetaData()
    await by_command(engine, metadata, define_tables(metadata))
    async with engine.connect() as connection:
        await connection.execute(
            text("ALTER TABLE inbox MODIFY event_id VARBINARY(255) NOT NULL, DROP KEY inbox_by_time")
        )
        await connection.execute(text("ALTER TABLE inbox_attempt ALTER failed SET DEFAULT 7"))
        changes = await connection.run_sync(lambda sync: compare_metadata(migration_context(sync, metadata), metadata))
    assert len(changes) == 3


async def test_a_url_that_says_mariadb_makes_the_same(pair: Pair, engine: AsyncEngine) -> None:
    other = create_async_engine(pair.database_url.replace("mysql+", "mariadb+"), poolclass=NullPool)
    if pair.is_mysql:  # SQLAlchemy takes such a URL for MariaDB only, and says so
        with pytest.raises(InvalidRequestError, match="MariaDB"):
            await other.connect()
        return
    metadata = MetaData()
    tables = define_tables(metadata)
    await by_file(engine, metadata, tables)
    expected = await report(engine, tables)
    await drop_everything(engine, metadata)

    await by_metadata(other, metadata, tables)
    assert await report(engine, tables) == expected
    async with other.connect() as connection:
        changes = await connection.run_sync(lambda sync: compare_metadata(migration_context(sync, metadata), metadata))
    assert changes == []
    assert await schema.check(other, tables) == []
    await other.dispose()


async def test_both_drivers_apply_and_check(pair: Pair, driver: Driver) -> None:
    engine = create_async_engine(pair.url_for(driver), poolclass=NullPool)
    tables = define_tables(MetaData())
    assert [file.version for file in (await schema.apply(engine, tables)).files] == [1]
    assert await schema.check(engine, tables) == []
    await engine.dispose()


async def test_the_tables_may_be_in_another_database_than_the_connection(pair: Pair, engine: AsyncEngine) -> None:
    metadata = MetaData()
    tables = define_tables(metadata, schema=pair.schema)
    elsewhere = create_async_engine(
        pair.database_url.replace(f"/{pair.schema}", "/information_schema"), poolclass=NullPool
    )
    await schema.apply(elsewhere, tables)
    assert await schema.check(elsewhere, tables) == []
    assert await schema.check(engine, define_tables(MetaData())) == []
    await elsewhere.dispose()


async def test_a_server_with_other_defaults_makes_the_same_tables(pair: Pair, engine: AsyncEngine) -> None:
    """A database in latin1 and a session whose engine is MyISAM: nothing is left to defaults."""
    metadata = MetaData()
    tables = define_tables(metadata)
    async with engine.begin() as connection:
        await connection.execute(text(f"ALTER DATABASE `{pair.schema}` CHARACTER SET latin1"))
        await connection.execute(text("SET SESSION default_storage_engine = MyISAM"))
        await connection.run_sync(metadata.create_all)
    assert await schema.check(engine, tables) == []


# ------------------------------------------------------------------ what the tables are for
SAME_TO_A_COLLATION = [
    b"evt-a",
    b"evt-A",
    b"evt-a ",
    b"evt-a\x00",
    "é".encode(),
    "e\N{COMBINING ACUTE ACCENT}".encode(),
    b"e",
    "ß".encode(),
    b"ss",
    "evt\N{ZERO WIDTH SPACE}-a".encode(),
    "\N{FULLWIDTH LATIN SMALL LETTER E}vt-a".encode(),
    b"\xff\xfe",
    b"",
    b"x" * 512,
    b"x" * 511 + b"y",
]


async def test_ids_are_told_apart_by_their_octets(engine: AsyncEngine) -> None:
    tables = define_tables(MetaData())
    await schema.apply(engine, tables)
    rows = [{"consumer_name": b"orders", "event_id": key} for key in SAME_TO_A_COLLATION]
    async with engine.begin() as connection:
        await connection.execute(tables.inbox.insert(), rows)
        found = (await connection.execute(tables.inbox.select())).mappings().all()
        people = (await connection.execute(text("SELECT event_id FROM inbox_view"))).scalars().all()
    assert sorted(row["event_id"] for row in found) == sorted(SAME_TO_A_COLLATION)
    assert sorted(people) == sorted(SAME_TO_A_COLLATION)


async def test_the_clock_is_the_databases_and_in_utc_whatever_the_sessions_zone(engine: AsyncEngine) -> None:
    tables = define_tables(MetaData())
    await schema.apply(engine, tables)
    async with engine.begin() as connection:
        await connection.execute(text("SET SESSION time_zone = '+11:00'"))
        await connection.execute(tables.inbox.insert(), {"consumer_name": b"orders", "event_id": b"1"})
        age = "SELECT TIMESTAMPDIFF(MICROSECOND, processed_at, UTC_TIMESTAMP(6)) FROM inbox"
        assert 0 <= (await connection.execute(text(age))).scalar_one() < 3_600_000_000


@pytest.mark.filterwarnings("ignore::pymysql.err.Warning")  # EXPLAIN answers with the query as it was rewritten
@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("SELECT event_text FROM inbox_view WHERE consumer_name = 'c7' AND event_id = 'e7'", "PRIMARY"),
        ("SELECT event_id FROM inbox WHERE consumer_name = 'c7' AND processed_at < '2000-01-01'", "inbox_by_time"),
        (
            "SELECT COUNT(*), SUM(total_bytes) FROM inbox_quarantine WHERE consumer_name = 'c7' AND state = 'open'",
            "inbox_quarantine_by_state",
        ),
        (
            "SELECT reason FROM inbox_quarantine WHERE consumer_name = 'c7' AND event_id = 'e7'",
            "inbox_quarantine_by_event",
        ),
        (
            "SELECT failed FROM inbox_attempt WHERE consumer_name = 'c7' AND last_at < '2000-01-01'",
            "inbox_attempt_by_time",
        ),
    ],
)
async def test_each_index_serves_the_query_it_is_there_for(engine: AsyncEngine, query: str, index: str) -> None:
    await schema.apply(engine, define_tables(MetaData()))
    async with engine.begin() as connection:
        numbers = "(SELECT a.n * 100 + b.n * 10 + c.n AS n FROM {0} a JOIN {0} b JOIN {0} c) AS numbers".format(
            "(SELECT 0 AS n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
        )
        keys = "CONCAT('c', n MOD 10) AS c, CONCAT('e', n) AS e"
        await connection.execute(text(f"INSERT INTO inbox (consumer_name, event_id) SELECT {keys} FROM {numbers}"))
        await connection.execute(
            text(f"INSERT INTO inbox_attempt (consumer_name, attempt_key) SELECT {keys} FROM {numbers}")
        )
        await connection.execute(
            text(
                "INSERT INTO inbox_quarantine (consumer_name, event_id, digest, reason, headers, body, total_bytes) "
                "SELECT CONCAT('c', n MOD 10), CONCAT('e', n), UNHEX(SHA2(n, 256)), 'x', '', REPEAT('x', 2000), n "
                f"FROM {numbers}"
            )
        )
        for table in ("inbox", "inbox_attempt", "inbox_quarantine"):
            await connection.execute(text(f"ANALYZE TABLE {table}"))
        plan = (await connection.execute(text(f"EXPLAIN FORMAT=TRADITIONAL {query}"))).mappings().one()
    assert plan["key"] == index
    if "SUM(" in query:
        assert "Using index" in plan["Extra"], "the sums must not read a body"


# ------------------------------------------------------------------ applying
async def test_applying_again_does_nothing(engine: AsyncEngine) -> None:
    tables = define_tables(MetaData())
    planned = await schema.plan(engine, tables)
    assert await schema.apply(engine, tables) == planned
    before = await report(engine, tables)
    assert (await schema.apply(engine, tables)).statements == ()
    assert (await schema.plan(engine, tables)).statements == ()
    assert await report(engine, tables) == before


async def test_planning_changes_nothing(engine: AsyncEngine) -> None:
    assert (await schema.plan(engine, define_tables(MetaData()))).statements != ()
    async with engine.connect() as connection:
        assert (await connection.execute(text("SHOW TABLES"))).all() == []


@pytest.mark.parametrize("executed", range(7))
async def test_an_applier_that_died_is_continued(engine: AsyncEngine, executed: int) -> None:
    tables = define_tables(MetaData())
    statements = (await schema.plan(engine, tables)).statements
    assert len(statements) == 7, "every place to die at is tried"
    async with engine.begin() as connection:
        for statement in statements[:executed]:
            await connection.execute(text(statement))
    await schema.apply(engine, tables)
    assert await schema.check(engine, tables) == []


@pytest.mark.parametrize("kind", ["inbox", "attempt", "quarantine", "schema"])
async def test_a_table_that_was_dropped_is_made_anew(engine: AsyncEngine, kind: str) -> None:
    tables = define_tables(MetaData())
    await schema.apply(engine, tables)
    async with engine.begin() as connection:
        await connection.execute(text(f"DROP TABLE {getattr(tables, kind).name}"))
    await schema.apply(engine, tables)
    assert await schema.check(engine, tables) == []


async def test_two_appliers_at_once_are_kept_apart(engine: AsyncEngine) -> None:
    tables = define_tables(MetaData())
    async with engine.connect() as first, engine.connect() as second:
        async with schema._alone(first, tables, 0):
            with pytest.raises(SchemaError, match="Another process"):
                await schema.apply(second, tables, lock_wait=0)
            await second.rollback()
        assert (await schema.apply(second, tables, lock_wait=0)).statements != ()


async def test_appliers_of_two_databases_do_not_wait_for_each_other(engine: AsyncEngine) -> None:
    tables, others = define_tables(MetaData()), define_tables(MetaData(), OTHER_NAMES)
    async with engine.connect() as connection, schema._alone(connection, others, 0):
        await schema.apply(engine, tables, lock_wait=0)


async def test_the_lock_is_given_back_whatever_happened(engine: AsyncEngine) -> None:
    tables = define_tables(MetaData())
    async with engine.connect() as first, engine.connect() as second:
        with pytest.raises(RuntimeError, match="on purpose"):
            async with schema._alone(first, tables, 0):
                raise RuntimeError("on purpose")
        async with schema._alone(second, tables, 0):
            pass


async def test_a_table_of_the_application_is_never_touched(engine: AsyncEngine) -> None:
    tables = define_tables(MetaData())
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE inbox (id INT PRIMARY KEY, subject VARCHAR(100) NOT NULL)"))
    with pytest.raises(SchemaError, match="consumer_name is missing"):
        await schema.apply(engine, tables)
    with pytest.raises(SchemaError, match="consumer_name is missing"):
        await schema.plan(engine, tables)
    async with engine.connect() as connection:
        assert (await connection.execute(text("SHOW TABLES"))).scalars().all() == ["inbox"]


async def test_a_table_with_the_name_of_the_view_is_never_touched(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE inbox_view (id INT PRIMARY KEY)"))
    with pytest.raises(SchemaError, match="Give the view another name"):
        await schema.apply(engine, define_tables(MetaData()))
    async with engine.connect() as connection:
        assert (await connection.execute(text("SHOW TABLES"))).scalars().all() == ["inbox_view"]


async def test_an_open_transaction_is_not_committed_by_the_way(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
        with pytest.raises(ValueError, match="in a transaction"):
            await schema.apply(connection, define_tables(MetaData()))
        assert (await connection.execute(text("SHOW TABLES"))).all() == []


async def test_checking_leaves_a_transaction_as_it_was(engine: AsyncEngine) -> None:
    tables = define_tables(MetaData())
    await schema.apply(engine, tables)
    async with engine.connect() as connection:
        assert await schema.check(connection, tables) == []
        assert not connection.in_transaction()
        await connection.execute(tables.inbox.insert(), {"consumer_name": b"orders", "event_id": b"1"})
        assert await schema.check(connection, tables) == []
        assert connection.in_transaction()
        await connection.rollback()
        assert (await connection.execute(tables.inbox.select())).all() == []


async def test_tables_that_alembic_made_are_taken_over_as_they_are(engine: AsyncEngine) -> None:
    metadata = MetaData()
    tables = define_tables(metadata)
    await by_metadata(engine, metadata, tables)
    async with engine.begin() as connection:
        await connection.execute(text("DELETE FROM inbox_schema"))
        await connection.execute(text("DROP VIEW inbox_view"))
    found: list[Finding] = await schema.require(engine, tables)
    assert {finding.code for finding in found} == {"unrecorded-version", "missing-view"}
    done = await schema.apply(engine, tables)
    assert done.files == ()
    assert done.statements[-1] == view_definition(tables)
    assert await schema.check(engine, tables) == []


async def test_without_a_view_none_is_made(engine: AsyncEngine) -> None:
    tables = define_tables(MetaData(), TableNames(view=None))
    await schema.apply(engine, tables)
    assert await schema.check(engine, tables) == []
    async with engine.connect() as connection:
        assert "inbox_view" not in (await connection.execute(text("SHOW TABLES"))).scalars().all()
