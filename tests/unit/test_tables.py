import re
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import CreateColumn

from inbox import schema_files as schema_files_module
from inbox.errors import ConfigurationError
from inbox.schema_files import Dialect, SchemaFile, schema_files
from inbox.tables import (
    SCHEMA_VERSION,
    InboxTables,
    InboxTablesMixin,
    QuarantineState,
    TableNames,
    define_tables,
    version_rows,
    view_definition,
)

DIALECTS: tuple[Dialect, ...] = ("mysql", "mariadb")


@pytest.fixture
def tables() -> InboxTables:
    return define_tables(MetaData())


# ------------------------------------------------------------------ the tables
@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("inbox", ["consumer_name", "event_id"]),
        ("attempt", ["consumer_name", "attempt_key"]),
        ("quarantine", ["consumer_name", "digest"]),
        ("worker", ["consumer_name", "worker_id"]),
        ("schema", ["version"]),
    ],
)
def test_a_key_begins_with_the_consumer_and_is_the_only_unique_one(
    tables: InboxTables, table: str, key: list[str]
) -> None:
    defined: Table = getattr(tables, table)
    assert [column.name for column in defined.primary_key.columns] == key
    assert not any(index.unique for index in defined.indexes)


def test_what_comes_off_the_wire_is_octets_and_fits_into_the_key(tables: InboxTables) -> None:
    wire = ["consumer_name", "event_id", "event_type", "source", "origin_exchange", "origin_routing_key", "queue"]
    for table in tables.all:
        for column in table.columns:
            if column.name in wire or (column.primary_key and column.name != "version"):
                assert isinstance(column.type, mysql.VARBINARY | mysql.BINARY), column
        lengths = [getattr(column.type, "length", 4) or 4 for column in table.primary_key.columns]
        assert sum(lengths) <= 3072, "InnoDB's limit for a key in a DYNAMIC row"


def test_every_table_names_its_engine_row_format_and_charset_for_both_kinds_of_url(tables: InboxTables) -> None:
    for table in tables.all:
        for dialect in DIALECTS:
            assert table.kwargs[f"{dialect}_engine"] == "InnoDB"
            assert table.kwargs[f"{dialect}_row_format"] == "DYNAMIC"
            assert table.kwargs[f"{dialect}_charset"] == "utf8mb4"
            assert table.kwargs[f"{dialect}_collate"] == "utf8mb4_bin"


def test_the_states_of_the_quarantine_fit_their_column(tables: InboxTables) -> None:
    length = tables.quarantine.c.state.type.length  # type: ignore[attr-defined]
    assert max(map(len, QuarantineState)) <= length


# ------------------------------------------------------------------ names
@pytest.mark.parametrize("name", ["", "1st", "$x", "a b", "a`b", "a.b", "é", "x" * 65, "a\n", "inbox-2"])
def test_a_name_that_would_need_quoting_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="table name"):
        TableNames(inbox=name)


@pytest.mark.parametrize("name", ["x" * 64, "_", "inbox$2", "Inbox"])
def test_a_plain_name_is_taken(name: str) -> None:
    assert define_tables(MetaData(), TableNames(inbox=name)).inbox.name == name


def test_two_tables_need_two_names_whatever_the_case() -> None:
    with pytest.raises(ConfigurationError, match="the same"):
        TableNames(inbox="events", attempt="EVENTS")


@pytest.mark.parametrize("database", ["a`b", "a.b", "a;b", "a:b", "a%b", "a/b", "x" * 65, "trailing "])
def test_a_database_name_that_would_end_a_statement_is_refused(database: str) -> None:
    with pytest.raises(ConfigurationError, match="database name"):
        define_tables(MetaData(), schema=database)


def test_the_database_of_the_metadata_is_taken_unless_another_is_given() -> None:
    assert define_tables(MetaData(schema="shop")).inbox.fullname == "shop.inbox"
    assert define_tables(MetaData(schema="shop"), schema="events").inbox.fullname == "events.inbox"


# ------------------------------------------------------------------ metadata
def test_defining_twice_gives_the_same_tables() -> None:
    metadata = MetaData()
    assert define_tables(metadata) is define_tables(metadata, TableNames())


def test_two_inboxes_with_two_names_fit_into_one_metadata() -> None:
    metadata = MetaData()
    names = TableNames("a", "a_attempt", "a_quarantine", "a_worker", "a_schema", "a_view")
    assert define_tables(metadata).inbox is not define_tables(metadata, names).inbox
    assert len(metadata.tables) == 10


def test_a_table_of_the_application_with_the_same_name_is_an_error() -> None:
    metadata = MetaData()
    Table("inbox", metadata, Column("id", Integer, primary_key=True))
    with pytest.raises(InvalidRequestError, match="inbox"):
        define_tables(metadata)


def test_the_mixin_defines_the_tables_once_for_a_declarative_base() -> None:
    class Base(InboxTablesMixin, DeclarativeBase):
        inbox_table_names = TableNames(inbox="seen")

    class Order(Base):
        __tablename__ = "orders"
        id: Mapped[int] = mapped_column(primary_key=True)

    assert set(Base.metadata.tables) == {
        "seen",
        "inbox_attempt",
        "inbox_quarantine",
        "inbox_worker",
        "inbox_schema",
        "orders",
    }
    assert Base.inbox_tables is Order.inbox_tables
    assert Base.inbox_tables.inbox is Base.metadata.tables["seen"]


def test_two_bases_have_tables_of_their_own() -> None:
    class One(InboxTablesMixin, DeclarativeBase): ...

    class Two(InboxTablesMixin, DeclarativeBase): ...

    assert One.inbox_tables.inbox.metadata is One.metadata
    assert Two.inbox_tables.inbox.metadata is Two.metadata


# ------------------------------------------------------------------ the SQL files
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_newest_file_is_the_version_that_the_tables_describe(dialect: Dialect) -> None:
    assert [file.version for file in schema_files(dialect)] == list(range(1, SCHEMA_VERSION + 1))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_file_spells_every_column_as_the_tables_do(dialect: Dialect, tables: InboxTables) -> None:
    written = _columns_of(schema_files(dialect)[0])
    defined = {table.name: {column.name: _spelled(column) for column in table.columns} for table in tables.all}
    assert written == defined


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_file_has_the_keys_of_the_tables(dialect: Dialect, tables: InboxTables) -> None:
    statements = schema_files(dialect)[0].statements
    for table, statement in zip(tables.all, statements, strict=False):
        keys = set(re.findall(r"^  KEY (\w+) \((.+?)\)", statement, re.MULTILINE))
        assert keys == {(index.name, ", ".join(index.columns.keys())) for index in table.indexes}
        assert f"PRIMARY KEY ({', '.join(table.primary_key.columns.keys())})" in statement


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_file_makes_the_same_view(dialect: Dialect, tables: InboxTables) -> None:
    assert schema_files(dialect)[0].statements[-1] == view_definition(tables)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_may_be_run_again_and_taken_literally(dialect: Dialect) -> None:
    for statement in schema_files(dialect)[0].statements:
        assert re.match(r"CREATE TABLE IF NOT EXISTS|CREATE OR REPLACE|INSERT INTO .* ON DUPLICATE KEY", statement)
        assert ":" not in statement, "a colon would be a parameter to SQLAlchemy"
        assert "%" not in statement, "a percent sign would be a parameter to the driver"


def test_other_names_replace_the_defaults_and_nothing_else() -> None:
    names = TableNames("seen", "tried", "refused", "working", "applied", "seen_for_people")
    (file,) = schema_files("mysql", names)
    assert set(re.findall(r"`(\w+)`", "\n".join(file.statements))) == {
        "seen",
        "tried",
        "refused",
        "working",
        "applied",
        "seen_for_people",
    }
    assert "KEY inbox_by_time (consumer_name, processed_at)" in file.text


def test_names_that_exchange_two_defaults_are_replaced_in_one_pass() -> None:
    (file,) = schema_files("mysql", TableNames(inbox="inbox_attempt", attempt="inbox"))
    assert (
        "CREATE TABLE IF NOT EXISTS `inbox_attempt` (\n  consumer_name      VARBINARY(128)   NOT NULL,\n  event_id"
        in (file.text)
    )


def test_a_database_qualifies_every_name() -> None:
    (file,) = schema_files("mariadb", database="my-shop")
    unqualified = re.findall(r"(?<!`\.)`(?!my-shop`)\w+`", "\n".join(file.statements))
    assert unqualified == []


def test_without_a_view_its_statement_and_its_comment_are_left_out() -> None:
    (with_view,) = schema_files("mysql")
    (without,) = schema_files("mysql", TableNames(view=None))
    assert without.statements == with_view.statements[:-1]
    assert "For people" not in without.text
    assert without.text.endswith(";\n")
    with pytest.raises(ValueError, match="without a view"):
        view_definition(define_tables(MetaData(), TableNames(view=None)))


def test_an_installation_without_the_files_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(schema_files_module, "_PLACES", (tmp_path / "_schema", tmp_path / "schema"))
    with pytest.raises(FileNotFoundError, match="install the package again"):
        schema_files("mysql")


def test_the_files_in_the_package_come_before_those_beside_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for place, sql in (("_schema", "SELECT 1;"), ("schema", "SELECT 2;")):
        (tmp_path / place / "mysql").mkdir(parents=True)
        (tmp_path / place / "mysql" / "0001_x.sql").write_text(sql)
    monkeypatch.setattr(schema_files_module, "_PLACES", (tmp_path / "_schema", tmp_path / "schema"))
    assert schema_files("mysql")[0].statements == ("SELECT 1",)


def test_a_gap_in_the_numbers_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "mysql").mkdir()
    for name in ("0001_a.sql", "0003_b.sql", "README.md"):
        (tmp_path / "mysql" / name).write_text("SELECT 1;")
    monkeypatch.setattr(schema_files_module, "_PLACES", (tmp_path,))
    with pytest.raises(ValueError, match=r"\[1, 3\]"):
        schema_files("mysql")


def test_versions_are_recorded_once(tables: InboxTables) -> None:
    assert version_rows(tables, [1, 2]).startswith("INSERT INTO `inbox_schema` (version) VALUES (1), (2) ON DUPLICATE")
    elsewhere = define_tables(MetaData(), schema="shop")
    assert version_rows(elsewhere, [1]).startswith("INSERT INTO `shop`.`inbox_schema` (version) VALUES (1) ON")


def _columns_of(file: SchemaFile) -> dict[str, dict[str, str]]:
    """Name → specification of each column in the `CREATE TABLE` statements of a file."""
    tables: dict[str, dict[str, str]] = {}
    for statement in file.statements:
        if created := re.match(r"CREATE TABLE IF NOT EXISTS `(\w+)`", statement):
            lines = re.findall(r"^  (\w+) +(.+?),?$", statement, re.MULTILINE)
            columns = {name: rest for name, rest in lines if name not in {"PRIMARY", "KEY"}}
            tables[created[1]] = {name: _normal(rest) for name, rest in columns.items()}
    return tables


def _spelled(column: Column[Any]) -> str:
    compiled = str(CreateColumn(column).compile(dialect=mysql.dialect()))
    return _normal(compiled.removeprefix(f"{column.name} "))


def _normal(specification: str) -> str:
    """Without what means nothing: runs of spaces, the word NULL of a column that may be it, the two names of INT."""
    without_null = re.sub(r"(?<!NOT) NULL\b", "", " ".join(specification.split()))
    return without_null.replace("INTEGER", "INT").strip()
