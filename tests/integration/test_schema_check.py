"""Each way in which tables can be wrong is found, named, and mended by the SQL that the finding gives."""

from collections.abc import AsyncIterator

import pymysql
import pytest
import pytest_asyncio
from sqlalchemy import MetaData, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from inbox.adapters.mysql import schema
from inbox.adapters.mysql.schema_findings import Severity
from inbox.errors import SchemaError
from inbox.tables import InboxTables, TableNames, define_tables
from tests.pairs import Pair
from tests.services.probe import connect_database

ERROR, WARNING, NOTE = Severity


@pytest_asyncio.fixture
async def engine(pair: Pair) -> AsyncIterator[AsyncEngine]:
    made = create_async_engine(pair.database_url, poolclass=NullPool)
    yield made
    await made.dispose()


@pytest.fixture
def tables() -> InboxTables:
    return define_tables(MetaData())


async def execute(engine: AsyncEngine, *statements: str) -> None:
    async with engine.begin() as connection:
        for statement in statements:
            await connection.exec_driver_sql(statement)


VIEW = (
    "SELECT consumer_name, event_id, '' AS consumer_text, '' AS event_text, '' AS fingerprint_hex, fingerprint_scheme, "
    "processed_at FROM inbox"
)

# Damage → the finding's code, severity, and a piece of its text. After its SQL nothing must be left to find.
DAMAGES: dict[str, tuple[list[str], str, Severity, str]] = {
    "myisam": (["ALTER TABLE inbox ENGINE=MyISAM"], "engine", ERROR, "MyISAM, which has no transactions"),
    "myisam-quarantine": (["ALTER TABLE inbox_quarantine ENGINE=MyISAM"], "engine", ERROR, "inbox_quarantine"),
    "compact": (["ALTER TABLE inbox ROW_FORMAT=COMPACT"], "row-format", WARNING, "Compact and not DYNAMIC"),
    "redundant": (["ALTER TABLE inbox_attempt ROW_FORMAT=REDUNDANT"], "row-format", WARNING, "Redundant"),
    "compressed": (["ALTER TABLE inbox_quarantine ROW_FORMAT=COMPRESSED"], "row-format", NOTE, "Compressed"),
    "latin1-table": (["ALTER TABLE inbox DEFAULT CHARACTER SET latin1"], "table-charset", NOTE, "latin1_swedish_ci"),
    "text-id": (
        ["ALTER TABLE inbox MODIFY event_id VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"],
        "text-key",
        ERROR,
        "varchar(512) with collation utf8mb4_general_ci and not varbinary(512): text merges",
    ),
    "text-id-bin": (
        ["ALTER TABLE inbox MODIFY event_id VARCHAR(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"],
        "text-key",
        ERROR,
        "trailing spaces",
    ),
    "text-consumer": (
        ["ALTER TABLE inbox_quarantine MODIFY consumer_name VARCHAR(128) CHARACTER SET latin1 NOT NULL"],
        "text-key",
        ERROR,
        "latin1_swedish_ci",
    ),
    "text-source": (
        ["ALTER TABLE inbox_quarantine MODIFY source VARCHAR(700) CHARACTER SET utf8mb4"],
        "type",
        ERROR,
        "source is varchar(700)",
    ),
    "short-id": (
        ["ALTER TABLE inbox MODIFY event_id VARBINARY(255) NOT NULL"],
        "length",
        ERROR,
        "varbinary(255) and not varbinary(512)",
    ),
    "long-id": (["ALTER TABLE inbox MODIFY event_id VARBINARY(1024) NOT NULL"], "length", WARNING, "longer than"),
    "short-body": (["ALTER TABLE inbox_quarantine MODIFY body BLOB NOT NULL"], "type", ERROR, "blob and not longblob"),
    "padded-id": (["ALTER TABLE inbox MODIFY event_id BINARY(255) NOT NULL"], "type", ERROR, "binary(255)"),
    "signed": (["ALTER TABLE inbox_attempt MODIFY failed INT NOT NULL DEFAULT 0"], "type", ERROR, "not int unsigned"),
    "seconds-only": (
        ["ALTER TABLE inbox MODIFY processed_at DATETIME NOT NULL DEFAULT (UTC_TIMESTAMP(6))"],
        "type",
        ERROR,
        "datetime and not datetime(6)",
    ),
    "local-time": (
        ["ALTER TABLE inbox MODIFY processed_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"],
        "default",
        ERROR,
        "follows the session's time zone",
    ),
    "no-default": (
        ["ALTER TABLE inbox MODIFY processed_at DATETIME(6) NOT NULL"],
        "default",
        ERROR,
        "default of processed_at is none",
    ),
    "on-update": (
        ["ALTER TABLE inbox_attempt MODIFY open_since DATETIME(6) NULL ON UPDATE CURRENT_TIMESTAMP(6)"],
        "default",
        ERROR,
        "each change of the row renews it",
    ),
    "other-default": (
        ["ALTER TABLE inbox_quarantine ALTER state SET DEFAULT 'new'"],
        "default",
        ERROR,
        "is new and not",
    ),
    "other-number": (
        ["ALTER TABLE inbox_quarantine ALTER times_seen SET DEFAULT 0"],
        "default",
        ERROR,
        "is 0 and not 1",
    ),
    "needless-default": (
        ["ALTER TABLE inbox_quarantine ALTER reason SET DEFAULT 'x'"],
        "default",
        WARNING,
        "is x and not none",
    ),
    "nullable": (
        ["ALTER TABLE inbox MODIFY processed_at DATETIME(6) NULL DEFAULT (UTC_TIMESTAMP(6))"],
        "nullable",
        WARNING,
        "processed_at may be NULL",
    ),
    "not-null": (
        ["ALTER TABLE inbox MODIFY fingerprint BINARY(32) NOT NULL"],
        "not-null",
        ERROR,
        "fingerprint is NOT NULL",
    ),
    "latin1-text": (
        ["ALTER TABLE inbox_quarantine MODIFY detail VARCHAR(1024) CHARACTER SET latin1"],
        "charset",
        ERROR,
        "detail is in latin1",
    ),
    "loose-text": (
        ["ALTER TABLE inbox_quarantine MODIFY reason VARCHAR(64) COLLATE utf8mb4_general_ci NOT NULL"],
        "collation",
        WARNING,
        "utf8mb4_general_ci and not utf8mb4_bin",
    ),
    "missing-column": (
        ["ALTER TABLE inbox_quarantine DROP COLUMN encryption_key_id"],
        "missing-column",
        ERROR,
        "encryption_key_id is missing",
    ),
    "missing-default-column": (
        ["ALTER TABLE inbox_quarantine DROP COLUMN times_seen"],
        "missing-column",
        ERROR,
        "times_seen is missing",
    ),
    "extra-required-column": (
        ["ALTER TABLE inbox ADD COLUMN `ten``ant` INT NOT NULL"],
        "extra-column",
        ERROR,
        "every insert is refused",
    ),
    "generated-column": (
        ["ALTER TABLE inbox ADD COLUMN readable VARCHAR(512) AS (CONVERT(event_id USING utf8mb4)) VIRTUAL"],
        "extra-column",
        WARNING,
        "generated",
    ),
    "key-order": (
        ["ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (event_id, consumer_name)"],
        "key-order",
        WARNING,
        "(event_id, consumer_name), in this order",
    ),
    "key-without-consumer": (
        ["ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (event_id)"],
        "primary-key",
        ERROR,
        "takes different events for one",
    ),
    "cut-key": (
        ["ALTER TABLE inbox DROP PRIMARY KEY, ADD PRIMARY KEY (consumer_name, event_id(64))"],
        "primary-key",
        ERROR,
        "only a part",
    ),
    "no-key": (["ALTER TABLE inbox_attempt DROP PRIMARY KEY"], "primary-key", ERROR, "no primary key"),
    "unique": (
        ["CREATE UNIQUE INDEX `sur``prise` ON inbox (fingerprint)"],
        "unique-index",
        ERROR,
        "its error 1062 would be taken for a duplicate",
    ),
    "no-index": (["DROP INDEX inbox_by_time ON inbox"], "index", WARNING, "(consumer_name, processed_at)"),
    "other-index": (
        [
            "DROP INDEX inbox_quarantine_by_state ON inbox_quarantine",
            "CREATE INDEX inbox_quarantine_by_state ON inbox_quarantine (consumer_name, state)",
        ],
        "index",
        WARNING,
        "(consumer_name, state, first_at, total_bytes)",
    ),
    "cut-index": (
        [
            "DROP INDEX inbox_quarantine_by_event ON inbox_quarantine",
            "CREATE INDEX inbox_quarantine_by_event ON inbox_quarantine (consumer_name, event_id(8))",
        ],
        "index",
        WARNING,
        "(consumer_name, event_id)",
    ),
    "trigger-on-claim": (
        ["CREATE TRIGGER audit BEFORE INSERT ON inbox FOR EACH ROW SET NEW.fingerprint = NULL"],
        "trigger",
        ERROR,
        "an error 1062 of its own statements would be taken for a duplicate",
    ),
    "trigger-on-start": (
        ["CREATE TRIGGER audit BEFORE UPDATE ON inbox_attempt FOR EACH ROW SET NEW.history = ''"],
        "trigger",
        ERROR,
        "an event that kills its process would do so for ever",
    ),
    "trigger-elsewhere": (
        ["CREATE TRIGGER audit BEFORE UPDATE ON inbox_quarantine FOR EACH ROW SET NEW.detail = ''"],
        "trigger",
        WARNING,
        "audit runs on UPDATE",
    ),
    "no-view": (["DROP VIEW inbox_view"], "missing-view", NOTE, "view for people"),
    "other-view": (
        ["CREATE OR REPLACE VIEW inbox_view AS SELECT event_id FROM inbox"],
        "other-view",
        WARNING,
        "not the one of this version",
    ),
    "view-of-another": (
        [
            "CREATE TABLE elsewhere LIKE inbox",
            "DROP VIEW inbox_view",
            "CREATE SQL SECURITY INVOKER VIEW inbox_view AS " + VIEW.replace("FROM inbox", "FROM elsewhere"),
        ],
        "other-view",
        WARNING,
        "not the one of this version",
    ),
    "powerful-view": (
        [f"ALTER SQL SECURITY DEFINER VIEW inbox_view AS {VIEW}"],
        "other-view",
        WARNING,
        "view for people",
    ),
    "unrecorded": (["DELETE FROM inbox_schema"], "unrecorded-version", NOTE, "Version 1"),
    "no-rollback": (
        ["CREATE TABLE `lo``g` (id INT) ENGINE=MyISAM"],
        "no-rollback",
        WARNING,
        "lo`g (MyISAM)",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damage_is_found_and_its_fix_mends_it(engine: AsyncEngine, tables: InboxTables, damage: str) -> None:
    statements, code, severity, piece = DAMAGES[damage]
    await schema.apply(engine, tables)
    await execute(engine, *statements)

    (finding,) = await schema.check(engine, tables)
    assert (finding.code, finding.severity) == (code, severity)
    assert piece in str(finding)
    assert finding.fix in str(finding)

    if severity is ERROR:
        with pytest.raises(SchemaError) as refused:
            await schema.require(engine, tables)
        assert refused.value.problems == (str(finding),)
    else:
        assert await schema.require(engine, tables) == [finding]

    await execute(engine, *finding.sql)
    assert await schema.check(engine, tables) == []


async def test_ids_in_another_character_set_keep_their_text(engine: AsyncEngine, tables: InboxTables) -> None:
    """MODIFY to VARBINARY keeps octets: latin1 text must become UTF-8 first, or known events would look new."""
    await schema.apply(engine, tables)
    await execute(
        engine,
        "ALTER TABLE inbox MODIFY event_id VARCHAR(512) CHARACTER SET latin1 NOT NULL",
        "INSERT INTO inbox (consumer_name, event_id) VALUES ('orders', 'é')",
    )
    (finding,) = await schema.check(engine, tables)
    await execute(engine, *finding.sql)
    async with engine.connect() as connection:
        assert (await connection.execute(tables.inbox.select())).one().event_id == "é".encode()


async def test_harmless_additions_are_left_alone(engine: AsyncEngine, tables: InboxTables) -> None:
    await schema.apply(engine, tables)
    await execute(
        engine,
        "ALTER TABLE inbox ADD COLUMN tenant INT NULL, ADD COLUMN shard INT NOT NULL DEFAULT 3",
        "CREATE INDEX of_mine ON inbox (processed_at)",
        "ALTER TABLE inbox_quarantine RENAME INDEX inbox_quarantine_by_event TO by_event",
        "CREATE TABLE orders (id INT PRIMARY KEY)",
    )
    assert await schema.check(engine, tables) == []


async def test_an_index_that_the_optimizer_may_not_use_is_none(
    pair: Pair, engine: AsyncEngine, tables: InboxTables
) -> None:
    await schema.apply(engine, tables)
    unusable = "INVISIBLE" if pair.is_mysql else "IGNORED"
    await execute(engine, f"ALTER TABLE inbox ALTER INDEX inbox_by_time {unusable}")
    (finding,) = await schema.check(engine, tables)
    assert finding.code == "index"
    await execute(engine, *finding.sql)
    assert await schema.check(engine, tables) == []


async def test_a_generated_column_in_place_of_ours_is_an_error(engine: AsyncEngine, tables: InboxTables) -> None:
    await schema.apply(engine, tables)
    await execute(
        engine,
        "ALTER TABLE inbox DROP COLUMN fingerprint_scheme",
        "ALTER TABLE inbox ADD COLUMN fingerprint_scheme TINYINT UNSIGNED AS (LENGTH(event_id)) VIRTUAL",
    )
    (finding,) = await schema.check(engine, tables)
    assert (finding.code, finding.severity, finding.sql) == ("generated", ERROR, ())


@pytest.mark.parametrize("names", [TableNames(), TableNames(inbox="seen", view=None)])
async def test_an_empty_database_is_one_finding_that_says_what_to_run(
    pair: Pair, engine: AsyncEngine, names: TableNames
) -> None:
    (finding,) = await schema.check(engine, define_tables(MetaData(), names))
    options = "" if names.view else " --table inbox=seen --no-view"
    assert f"Run `inbox schema apply{options}`" in finding.fix
    assert f"--dialect {'mysql' if pair.is_mysql else 'mariadb'}{options}`" in finding.fix
    with pytest.raises(SchemaError, match=pair.schema):
        await schema.require(engine, define_tables(MetaData(), names))


@pytest.mark.parametrize("kind", ["inbox", "attempt", "quarantine", "schema"])
async def test_a_missing_table_is_named(engine: AsyncEngine, tables: InboxTables, kind: str) -> None:
    await schema.apply(engine, tables)
    missing = getattr(tables, kind).name
    await execute(engine, f"DROP TABLE {missing}")
    errors = [finding for finding in await schema.check(engine, tables) if finding.severity is ERROR]
    assert [(finding.code, finding.table) for finding in errors] == [("missing-table", missing)]


async def test_a_view_in_place_of_a_table_is_an_error(engine: AsyncEngine, tables: InboxTables) -> None:
    await schema.apply(engine, tables)
    await execute(
        engine, "RENAME TABLE inbox_attempt TO real_one", "CREATE VIEW inbox_attempt AS SELECT * FROM real_one"
    )
    (finding,) = await schema.check(engine, tables)
    assert (finding.code, finding.severity) == ("not-a-table", ERROR)


async def test_a_newer_schema_is_noted_and_used(engine: AsyncEngine, tables: InboxTables) -> None:
    await schema.apply(engine, tables)
    await execute(engine, "INSERT INTO inbox_schema (version) VALUES (99)")
    (finding,) = await schema.require(engine, tables)
    assert (finding.code, finding.severity) == ("newer-schema", NOTE)
    assert (await schema.apply(engine, tables)).statements == ()


async def test_several_damages_are_told_in_one_message(engine: AsyncEngine, tables: InboxTables) -> None:
    await schema.apply(engine, tables)
    await execute(
        engine,
        "ALTER TABLE inbox ROW_FORMAT=COMPACT",
        "ALTER TABLE inbox_attempt DROP COLUMN released",
        "ALTER TABLE inbox_quarantine ENGINE=MyISAM",
    )
    findings = await schema.check(engine, tables)
    assert [finding.severity for finding in findings] == [ERROR, ERROR, WARNING], "errors come first"
    with pytest.raises(SchemaError) as refused:
        await schema.require(engine, tables)
    assert len(refused.value.problems) == 2
    await execute(engine, *(statement for finding in findings for statement in finding.sql))
    assert await schema.check(engine, tables) == []


async def test_a_session_that_is_not_strict_is_warned_about(engine: AsyncEngine, tables: InboxTables) -> None:
    await schema.apply(engine, tables)
    async with engine.connect() as connection:
        await connection.execute(text("SET SESSION sql_mode = ''"))
        findings = await schema.check(connection, tables)
    assert [(finding.code, finding.severity) for finding in findings] == [("not-strict", WARNING)]


async def test_no_database_is_an_error_of_its_own(pair: Pair, tables: InboxTables) -> None:
    nowhere = create_async_engine(pair.database_url.replace(f"/{pair.schema}", "/"), poolclass=NullPool)
    (finding,) = await schema.check(nowhere, tables)
    assert (finding.code, finding.severity) == ("no-database", ERROR)
    with pytest.raises(SchemaError, match="no database selected"):
        await schema.apply(nowhere, tables)
    await nowhere.dispose()


async def test_select_on_the_tables_is_all_that_checking_needs(
    pair: Pair, engine: AsyncEngine, tables: InboxTables
) -> None:
    await schema.apply(engine, tables)
    user = f"u_{pair.schema[-8:]}"
    with connect_database(pair.database.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE USER {user} IDENTIFIED BY 'secret'")
        try:
            for table in tables.all:
                cursor.execute(f"GRANT SELECT ON `{pair.schema}`.{table.name} TO {user}")
            weak = create_async_engine(pair.url_for(pair.driver, user=user, password="secret"), poolclass=NullPool)
            without_view = await schema.check(weak, tables)
            cursor.execute(f"GRANT SELECT ON `{pair.schema}`.inbox_view TO {user}")
            with_view = await schema.check(weak, tables)
            await execute(engine, "ALTER TABLE inbox MODIFY event_id VARCHAR(512) NOT NULL, DROP INDEX inbox_by_time")
            damaged = await schema.check(weak, tables)
            with pytest.raises(pymysql.Error, match="denied"):  # the rights are really no more than that
                _insert_as(pair, user)
            await weak.dispose()
        finally:
            cursor.execute(f"DROP USER {user}")
    assert [finding.code for finding in without_view] == ["missing-view"]
    assert with_view == []
    assert [finding.code for finding in damaged] == ["text-key", "index"]


def _insert_as(pair: Pair, user: str) -> None:
    where = pair.database
    with (
        pymysql.connect(host=where.host, port=where.port, user=user, password="secret", database=pair.schema) as weak,
        weak.cursor() as cursor,
    ):
        cursor.execute("INSERT INTO inbox (consumer_name, event_id) VALUES ('a', 'b')")
