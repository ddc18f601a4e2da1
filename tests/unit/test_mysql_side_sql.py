"""The statements beside the units, as they are sent. A change here is a change of the promise: look twice."""

from sqlalchemy import MetaData

from inbox.adapters.mysql.attempts import AttemptSql
from inbox.adapters.mysql.quarantine import QuarantineSql
from inbox.adapters.mysql.resolve import probe
from inbox.adapters.mysql.side import Statement
from inbox.core.records import InboxRecord
from inbox.tables import TableNames, define_tables

TABLES = define_tables(MetaData(), TableNames(attempt="tries"), schema="app")


def test_parameters_travel_as_literals_that_nothing_can_end() -> None:
    statement = Statement("VALUES (%s, %s, %s, %s, %s)", (b"\0'\xff", "é'\ud800", 7, None, b""))
    assert statement.text() == b"VALUES (X'0027ff', _utf8mb4 X'c3a9273f', 7, NULL, X'')"


def test_the_question_after_a_commit() -> None:
    assert probe(TABLES, InboxRecord("c", b"k")).text().decode() == (
        "SELECT fingerprint, fingerprint_scheme\n"
        "  FROM `app`.`inbox`\n"
        " WHERE consumer_name = X'63' AND event_id = X'6b'\n"
        "  LOCK IN SHARE MODE"
    )


def test_a_start() -> None:
    assert AttemptSql(TABLES).start == (
        "INSERT INTO `app`.`tries` (consumer_name, attempt_key, open_since, open_token, open_alone)\n"
        "VALUES (%s, %s, UTC_TIMESTAMP(6), %s, %s)\n"
        "ON DUPLICATE KEY UPDATE\n"
        "  crashed = crashed"
        " + (LAST_INSERT_ID((open_token IS NOT NULL AND open_token <> %s) * (1 + open_alone)) = 2),\n"
        "  history = IF(open_token <> %s AND open_alone = 1,\n"
        "    RIGHT(CONCAT(COALESCE(history, ''), CAST(UTC_TIMESTAMP(6) AS CHAR), %s), 8000), history),\n"
        "  open_since = UTC_TIMESTAMP(6),\n"
        "  open_token = %s,\n"
        "  open_alone = %s,\n"
        "  last_at = UTC_TIMESTAMP(6)"
    )


def test_an_end() -> None:
    assert AttemptSql(TABLES).end == (
        "INSERT INTO `app`.`tries` (consumer_name, attempt_key, failed, released, history, end_token)\n"
        "VALUES (%s, %s, %s, %s, CONCAT(CAST(UTC_TIMESTAMP(6) AS CHAR), %s), %s)\n"
        "ON DUPLICATE KEY UPDATE\n"
        "  failed = failed + (NOT end_token <=> %s) * %s,\n"
        "  released = released + (NOT end_token <=> %s) * %s,\n"
        "  history = IF(end_token <=> %s, history,\n"
        "    RIGHT(CONCAT(COALESCE(history, ''), CAST(UTC_TIMESTAMP(6) AS CHAR), %s), 8000)),\n"
        "  crashed = crashed"
        " - (%s AND NOT end_token <=> %s AND crashed > 0 AND open_token IS NOT NULL AND open_token <> %s),\n"
        "  open_since = IF(open_token = %s, NULL, open_since),\n"
        "  open_token = IF(open_token = %s, NULL, open_token),\n"
        "  end_token = %s,\n"
        "  last_at = UTC_TIMESTAMP(6)"
    )


def test_an_end_that_counts_nothing_makes_no_row() -> None:
    assert AttemptSql(TABLES).close.startswith("UPDATE `app`.`tries`\n")


def test_a_quarantined_delivery_and_one_that_is_there_already() -> None:
    assert QuarantineSql(TABLES).store == (
        "INSERT INTO `app`.`inbox_quarantine`\n"
        "  (consumer_name, digest, event_id, event_type, source, reason, detail,\n"
        "   origin_exchange, origin_routing_key, queue, headers, body, body_bytes, total_bytes, attempts)\n"
        "VALUES\n"
        "  (%s, %s, %s, %s, %s, %s, %s,\n"
        "   %s, %s, %s, %s, %s, %s, %s,\n"
        "   COALESCE((SELECT failed + crashed FROM `app`.`tries` WHERE consumer_name = %s AND attempt_key = %s), 0))\n"
        "ON DUPLICATE KEY UPDATE\n"
        "  times_seen = times_seen + 1,\n"
        "  last_at = UTC_TIMESTAMP(6),\n"
        "  reason = %s,\n"
        "  detail = %s,\n"
        "  state_at = IF(state = 'open', state_at, UTC_TIMESTAMP(6)),\n"
        "  state = 'open'"
    )


def test_the_bounds() -> None:
    assert QuarantineSql(TABLES).tally == (
        "SELECT COUNT(*), COALESCE(SUM(total_bytes), 0), @@max_allowed_packet\n"
        "  FROM `app`.`inbox_quarantine` FORCE INDEX (`inbox_quarantine_by_state`)\n"
        " WHERE consumer_name = %s"
    )
