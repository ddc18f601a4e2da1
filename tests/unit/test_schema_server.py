"""Server settings that weaken the promise: told from values, for a test must not change a server that others use."""

import re

import pytest
from sqlalchemy import MetaData

from inbox.adapters.mysql import schema_sql
from inbox.adapters.mysql.schema_compare import compare
from inbox.adapters.mysql.schema_facts import ServerFacts, _Reader
from inbox.adapters.mysql.schema_findings import Finding, Severity
from inbox.adapters.mysql.schema_server import neighbour_findings, server_findings
from inbox.tables import define_tables

MYSQL, MARIADB = "9.7.4-2", "10.11.19-MariaDB-0+deb12u1-log"
STRICT = frozenset({"STRICT_TRANS_TABLES"})
SOUND = {
    "innodb_flush_log_at_trx_commit": "1",
    "innodb_doublewrite": "ON",
    "sync_binlog": "1",
    "log_bin": "ON",
    "binlog_format": "ROW",
}


def found(version: str = MYSQL, sql_mode: frozenset[str] = STRICT, **variables: str) -> list[tuple[str, Severity]]:
    facts = ServerFacts(version, "shop", sql_mode, SOUND | variables)
    return [(finding.code, finding.severity) for finding in server_findings(facts)]


@pytest.mark.parametrize("version", [MYSQL, MARIADB])
def test_a_sound_server_has_no_findings(version: str) -> None:
    assert found(version) == []
    assert found(version, frozenset({"STRICT_ALL_TABLES", "ANSI"})) == []
    assert found(version, binlog_format="MIXED") == []


@pytest.mark.parametrize("version", [MYSQL, MARIADB])
@pytest.mark.parametrize("value", ["0", "2"])
def test_commits_that_are_acknowledged_before_they_are_durable_are_warned_about(version: str, value: str) -> None:
    assert found(version, innodb_flush_log_at_trx_commit=value) == [("flush-log", Severity.WARNING)]


def test_mariadbs_stricter_flushing_is_as_good() -> None:
    assert found(MARIADB, innodb_flush_log_at_trx_commit="3") == []
    assert found(MYSQL, innodb_flush_log_at_trx_commit="3") == [("flush-log", Severity.WARNING)]


@pytest.mark.parametrize("value", ["OFF", "0", "DETECT_ONLY"])
def test_pages_that_cannot_be_repaired_are_warned_about(value: str) -> None:
    assert found(innodb_doublewrite=value) == [("doublewrite", Severity.WARNING)]


def test_replicas_that_may_lack_commits_are_noted_where_there_is_a_log() -> None:
    assert found(sync_binlog="0") == [("sync-binlog", Severity.NOTE)]
    assert found(sync_binlog="0", log_bin="OFF") == []


def test_statement_format_stops_a_start_where_there_is_a_log() -> None:
    assert found(binlog_format="STATEMENT") == [("binlog-format", Severity.ERROR)]
    assert found(binlog_format="STATEMENT", log_bin="OFF") == []


def test_a_session_that_cuts_values_is_warned_about() -> None:
    assert found(sql_mode=frozenset({"ANSI_QUOTES"})) == [("not-strict", Severity.WARNING)]


def test_variables_that_a_server_does_not_have_are_no_findings() -> None:
    assert list(server_findings(ServerFacts(MYSQL, "shop", STRICT, {}))) == []


def test_tables_without_transactions_are_named_up_to_five() -> None:
    tables = define_tables(MetaData())
    six = [(f"t{number}", "MyISAM") for number in range(6)]
    (finding,) = neighbour_findings(tables, ServerFacts(MYSQL, "shop", non_transactional=six))
    assert "t4 (MyISAM), …" in finding.problem
    assert len(finding.sql) == 5
    ours = ServerFacts(MYSQL, "shop", non_transactional=[("inbox", "MyISAM")])
    assert list(neighbour_findings(tables, ours)) == [], "ours have a finding of their own, which is an error"


def test_an_empty_database_on_an_unsound_server_tells_both() -> None:
    facts = ServerFacts(MYSQL, "shop", STRICT, SOUND | {"innodb_flush_log_at_trx_commit": "2"})
    assert [finding.code for finding in compare(define_tables(MetaData()), facts)] == ["missing-table", "flush-log"]


def test_a_finding_says_where_what_and_how_to_mend_it() -> None:
    finding = Finding(Severity.ERROR, "code", "inbox", "It is wrong.", ("ALTER A", "ALTER B"), "Stop the workers:")
    assert str(finding) == "inbox: It is wrong. Fix: Stop the workers: ALTER A; ALTER B;"
    assert str(Finding(Severity.NOTE, "code", None, "So it is.", advice="Leave it.")) == "So it is. Fix: Leave it."


@pytest.mark.parametrize(
    ("severity", "table", "difference"),
    [
        (Severity.ERROR, "inbox", True),
        (Severity.WARNING, "inbox", True),
        (Severity.NOTE, "inbox", False),
        (Severity.WARNING, None, False),
    ],
)
def test_a_trait_of_the_server_is_no_difference_of_the_schema(
    severity: Severity, table: str | None, difference: bool
) -> None:
    assert Finding(severity, "code", table, "problem").is_difference is difference


@pytest.mark.parametrize(("setting", "folded"), [("0", "Inbox"), ("1", "inbox"), ("2", "inbox")])
def test_the_case_of_names_follows_the_servers_rule(setting: str, folded: str) -> None:
    reader = _Reader(None, "shop", [], {"lower_case_table_names": setting})  # type: ignore[arg-type]
    assert reader._folded("Inbox") == folded


def test_what_is_asked_only_reads_and_names_its_database() -> None:
    """The queries are text that people read; what they rest on must not slip away unnoticed."""
    queries = {name: value for name, value in vars(schema_sql).items() if name.isupper() and isinstance(value, str)}
    assert len(queries) == 14
    for name, sql in queries.items():
        assert re.match(r"\s*(SELECT|SHOW GLOBAL VARIABLES)\b", sql), name
        assert "SCHEMA = DATABASE()" not in sql, name
        if "information_schema." in sql:
            assert "_SCHEMA = :database" in sql, name
