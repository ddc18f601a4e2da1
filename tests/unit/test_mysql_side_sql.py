"""The statements beside the units, as they are sent. A change here is a change of the promise: look twice."""

from datetime import UTC, datetime, timedelta, timezone

from sqlalchemy import MetaData

from inbox.adapters.mysql.attempts import AttemptSql
from inbox.adapters.mysql.quarantine import QuarantineSql
from inbox.adapters.mysql.quarantine_desk import QuarantineDeskSql
from inbox.adapters.mysql.resolve import probe
from inbox.adapters.mysql.side import Statement
from inbox.core.quarantine import QuarantineCursor, Selection
from inbox.core.records import InboxRecord
from inbox.tables import TableNames, define_tables

TABLES = define_tables(MetaData(), TableNames(attempt="tries"), schema="app")

#: A delivery that is stored already: what the newest run has cost counts, and whatever was decided is open again.
SEEN = (
    "times_seen = times_seen + 1,\n"
    "  last_at = UTC_TIMESTAMP(6),\n"
    "  reason = %s,\n"
    "  detail = %s,\n"
    "  record_key = COALESCE(%s, record_key),\n"
    "  attempts = COALESCE("
    "(SELECT failed + crashed FROM `app`.`tries` WHERE consumer_name = %s AND attempt_key = %s), attempts),\n"
    "  history = COALESCE("
    "(SELECT history FROM `app`.`tries` WHERE consumer_name = %s AND attempt_key = %s), history),\n"
    "  state_at = IF(state = 'open', state_at, UTC_TIMESTAMP(6)),\n"
    "  state_note = IF(state = 'open', state_note, NULL),\n"
    "  state = 'open'"
)


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
        "    RIGHT(CONCAT(COALESCE(history, ''), CAST(UTC_TIMESTAMP(6) AS CHAR),\n"
        "      %s, LOWER(HEX(LEFT(open_token, 8))), %s), 8000), history),\n"
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
        "  crashed = crashed - LEAST(crashed, (CHAR_LENGTH(COALESCE(history, ''))"
        " - CHAR_LENGTH(REPLACE(COALESCE(history, ''), %s, ''))) DIV %s),\n"
        "  history = IF(end_token <=> %s, history, RIGHT(CONCAT(\n"
        "    REPLACE(COALESCE(history, ''), %s, %s), CAST(UTC_TIMESTAMP(6) AS CHAR), %s), 8000)),\n"
        "  open_since = IF(open_token = %s, NULL, open_since),\n"
        "  open_token = IF(open_token = %s, NULL, open_token),\n"
        "  end_token = %s,\n"
        "  last_at = UTC_TIMESTAMP(6)"
    )


def test_an_end_that_counts_nothing_makes_no_row() -> None:
    assert AttemptSql(TABLES).close.startswith("UPDATE `app`.`tries`\n")


def test_a_quarantined_delivery_and_one_that_is_there_already() -> None:
    insert, seen, after = QuarantineSql(TABLES).store.partition(SEEN)
    assert seen
    assert insert == (
        "INSERT INTO `app`.`inbox_quarantine`\n"
        "  (consumer_name, digest, event_id, event_type, source, record_key, reason, detail,\n"
        "   origin_exchange, origin_routing_key, queue, headers, body, body_bytes, total_bytes,\n"
        "   attempts,\n"
        "   history)\n"
        "VALUES\n"
        "  (%s, %s, %s, %s, %s, %s, %s, %s,\n"
        "   %s, %s, %s, %s, %s, %s, %s,\n"
        "   COALESCE((SELECT failed + crashed FROM `app`.`tries` WHERE consumer_name = %s AND attempt_key = %s), 0),\n"
        "   (SELECT history FROM `app`.`tries` WHERE consumer_name = %s AND attempt_key = %s))\n"
        "ON DUPLICATE KEY UPDATE\n"
        "  "
    )
    assert after == ""
    update, seen, key = QuarantineSql(TABLES).count.partition(SEEN)
    assert (update, key) == ("UPDATE `app`.`inbox_quarantine`\n   SET ", "\n WHERE consumer_name = %s AND digest = %s")


def test_the_bounds() -> None:
    assert QuarantineSql(TABLES).tally == (
        "SELECT COUNT(*), COALESCE(SUM(total_bytes), 0), @@max_allowed_packet\n"
        "  FROM `app`.`inbox_quarantine` FORCE INDEX (`inbox_quarantine_by_state`)\n"
        " WHERE consumer_name = %s"
    )


def test_a_page_of_what_is_open() -> None:
    sql, parameters = QuarantineDeskSql(TABLES).page(Selection(), None, newest_first=False)
    assert sql == (
        "SELECT digest, state, reason, detail, event_id, event_type, source, record_key,\n"
        "       origin_exchange, origin_routing_key, queue, attempts, history, times_seen,\n"
        "       first_at, last_at, state_at, state_note, body_bytes, total_bytes\n"
        "  FROM `app`.`inbox_quarantine` FORCE INDEX (`inbox_quarantine_by_state`)\n"
        " WHERE consumer_name = %s AND state = %s\n"
        " ORDER BY first_at, total_bytes, digest\n"
        " LIMIT %s"
    )
    assert parameters == ()


def test_the_next_page_of_a_selection() -> None:
    selection = Selection(
        reasons=("a", "b"),
        types=("t",),
        since=datetime(2026, 1, 1, tzinfo=UTC),
        until=datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1))),
    )
    after = QuarantineCursor(datetime(2026, 1, 1, 2, 3, 4, 5, tzinfo=UTC), 7, b"d" * 32)
    sql, parameters = QuarantineDeskSql(TABLES).page(selection, after, newest_first=True)
    assert sql.partition("WHERE ")[2] == (
        "consumer_name = %s AND state = %s\n"
        "   AND reason IN (%s, %s)\n"
        "   AND event_type IN (%s)\n"
        "   AND first_at >= CAST(%s AS DATETIME(6))\n"
        "   AND first_at < CAST(%s AS DATETIME(6))\n"
        "   AND first_at <= CAST(%s AS DATETIME(6))"
        " AND (first_at < CAST(%s AS DATETIME(6)) OR total_bytes < %s OR (total_bytes = %s AND digest < %s))\n"
        " ORDER BY first_at DESC, total_bytes DESC, digest DESC\n"
        " LIMIT %s"
    )
    times = ("2026-01-01 00:00:00.000000", "2026-01-01 23:00:00.000000", *["2026-01-01 02:03:04.000005"] * 2)
    assert parameters == ("a", "b", b"t", *times, 7, 7, b"d" * 32)


def test_what_is_named_is_found_by_its_own_index() -> None:
    named = Selection(ids=("e-1",), digests=("ab", "c"))
    sql, parameters = QuarantineDeskSql(TABLES).page(named, None, newest_first=False)
    assert "FORCE INDEX" not in sql
    assert "\n   AND event_id IN (%s)\n   AND (digest BETWEEN %s AND %s OR digest BETWEEN %s AND %s)\n" in sql
    lows, highs = [b"\xab" + b"\0" * 31, b"\xc0" + b"\0" * 31], [b"\xab" + b"\xff" * 31, b"\xcf" + b"\xff" * 31]
    assert parameters == (b"e-1", lows[0], highs[0], lows[1], highs[1])


def test_the_sums_of_a_quarantine() -> None:
    sql, parameters = QuarantineDeskSql(TABLES).count(Selection(("open", "discarded"), reasons=("r",)))
    assert sql == (
        "SELECT state, reason, COUNT(*), SUM(total_bytes), MIN(first_at)\n"
        "  FROM `app`.`inbox_quarantine`\n"
        " WHERE consumer_name = %s AND state IN (%s, %s)\n"
        "   AND reason IN (%s)\n"
        " GROUP BY state, reason\n"
        " ORDER BY state, reason"
    )
    assert parameters == ("open", "discarded", "r")


def test_entries_read_whole() -> None:
    assert (
        QuarantineDeskSql(TABLES)
        .read(2)
        .endswith(
            "body_bytes, total_bytes, headers, body\n"
            "  FROM `app`.`inbox_quarantine`\n"
            " WHERE consumer_name = %s AND digest IN (%s, %s)"
        )
    )


def test_a_decision_holds_for_what_was_read_and_for_nothing_that_came_since() -> None:
    assert QuarantineDeskSql(TABLES).decide(2) == (
        "UPDATE `app`.`inbox_quarantine` FORCE INDEX (PRIMARY)\n"
        "   SET state = %s,\n"
        "       state_at = UTC_TIMESTAMP(6),\n"
        "       state_note = %s\n"
        " WHERE consumer_name = %s AND digest IN (%s, %s)\n"
        "   AND state = 'open' AND (digest, times_seen) IN ((%s, %s), (%s, %s))"
    )


def test_an_entry_put_back_changes_nothing_that_is_there() -> None:
    assert QuarantineDeskSql(TABLES).restore.endswith(
        "ON DUPLICATE KEY UPDATE\n  times_seen = times_seen + (LAST_INSERT_ID(1) = 0)"
    )
