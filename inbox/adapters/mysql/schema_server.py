"""What about the server, and about the tables beside ours, breaks or weakens the promise. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inbox.adapters.mysql.schema_columns import quoted
from inbox.adapters.mysql.schema_findings import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from inbox.adapters.mysql.schema_facts import ServerFacts
    from inbox.tables import InboxTables


def server_findings(facts: ServerFacts) -> Iterator[Finding]:
    """Settings of the server or session under which the promise does not hold."""
    yield from _durability(facts)
    logs = facts.variables.get("log_bin", "OFF") in {"ON", "1"}
    if logs and facts.variables.get("binlog_format", "ROW") == "STATEMENT":
        yield Finding(
            Severity.ERROR,
            "binlog-format",
            None,
            "binlog_format is STATEMENT: InnoDB refuses every write under READ COMMITTED (error 1665).",
            ("SET GLOBAL binlog_format = 'ROW'",),
            advice="Set it in the server's configuration as well:",
        )
    if not facts.sql_mode & {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"}:
        yield Finding(
            Severity.WARNING,
            "not-strict",
            None,
            "The session is not strict: the server cuts values that are too long instead of refusing them. The inbox "
            "refuses long ids itself; your handlers' values are cut silently.",
            advice="Add STRICT_TRANS_TABLES to sql_mode in the server's configuration.",
        )


def _durability(facts: ServerFacts) -> Iterator[Finding]:
    """Settings under which a server that crashes forgets what it acknowledged."""
    flush = facts.variables.get("innodb_flush_log_at_trx_commit", "1")
    # MariaDB's 3 flushes twice, at prepare and at commit: no less durable than 1.
    if flush != "1" and not (flush == "3" and facts.dialect == "mariadb"):
        yield Finding(
            Severity.WARNING,
            "flush-log",
            None,
            f"innodb_flush_log_at_trx_commit is {flush} and not 1: a server that crashes loses commits it has "
            "acknowledged, and with them events that the broker will not deliver again.",
            ("SET GLOBAL innodb_flush_log_at_trx_commit = 1",),
            advice="Set it in the server's configuration as well:",
        )
    doublewrite = facts.variables.get("innodb_doublewrite", "ON").upper()
    if doublewrite in {"OFF", "0", "DETECT_ONLY"}:
        yield Finding(
            Severity.WARNING,
            "doublewrite",
            None,
            f"innodb_doublewrite is {doublewrite}: a page that is half written when the server crashes cannot be "
            "repaired, unless the file system writes pages whole.",
            advice="Set innodb_doublewrite = ON in the server's configuration.",
        )
    if facts.variables.get("log_bin", "OFF") in {"ON", "1"} and facts.variables.get("sync_binlog", "1") != "1":
        yield Finding(
            Severity.NOTE,
            "sync-binlog",
            None,
            f"sync_binlog is {facts.variables['sync_binlog']} and not 1: after a crash a replica may lack commits that "
            "were acknowledged, so do not fail over to it.",
            ("SET GLOBAL sync_binlog = 1",),
            advice="Set it in the server's configuration as well:",
        )


def neighbour_findings(tables: InboxTables, facts: ServerFacts) -> Iterator[Finding]:
    """Tables beside ours that cannot be rolled back."""
    ours = {table.name for table in tables.all}
    others = [(name, engine) for name, engine in facts.non_transactional if name not in ours]
    if others:
        names = ", ".join(f"{name} ({engine})" for name, engine in others[:5]) + (", …" if len(others) > 5 else "")  # noqa: PLR2004
        yield Finding(
            Severity.WARNING,
            "no-rollback",
            None,
            f"Tables in this database have no transactions: {names}. What a handler writes there stays when its unit "
            "is undone, and is written again when the event comes again.",
            _convert(name for name, _ in others[:5]),
            advice="Where handlers write to them:",
        )


def _convert(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"ALTER TABLE {quoted(name)} ENGINE=InnoDB" for name in names)
