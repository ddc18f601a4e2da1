"""What a clean-up sends. A change here is a change of the promise: look twice."""

# ruff: noqa: S608 - texts to compare with, and sent nowhere

from sqlalchemy import MetaData

from inbox.adapters.mysql.retention import MOST_IN_BATCH, RetentionSql
from inbox.tables import TableNames, define_tables

TABLES = define_tables(MetaData(), TableNames(inbox="seen"), schema="app")
SWEEPS = {sweep.counts: sweep for sweep in RetentionSql(TABLES).sweeps}
CUT_OFF = "2026-01-02 03:04:05.000006"
TIME = f"_utf8mb4 X'{CUT_OFF.encode().hex()}'"


def test_tables_are_cleaned_up_in_this_order() -> None:
    assert [sweep.counts for sweep in RetentionSql(TABLES).sweeps] == [
        "quarantine",
        "quarantine",
        "inbox",
        "attempts",
        "workers",
    ]


NEEDED = (
    "refused.consumer_name = old.consumer_name AND refused.record_key = old.event_id\n"
    f"   AND (refused.state = 'open' OR refused.state_at IS NULL OR refused.state_at >= {TIME})"
)


def test_the_first_page_of_processed_events() -> None:
    assert SWEEPS["inbox"].page(b"c", CUT_OFF, (), 500).text().decode() == (
        "SELECT processed_at, event_id, EXISTS (\n"
        "SELECT 1\n"
        "  FROM `app`.`inbox_quarantine` AS refused FORCE INDEX (`inbox_quarantine_by_record`)\n"
        f" WHERE {NEEDED})\n"
        "  FROM `app`.`seen` AS old FORCE INDEX (`inbox_by_time`)\n"
        f" WHERE old.consumer_name = X'63' AND old.processed_at < {TIME}\n"
        " ORDER BY processed_at, event_id\n"
        " LIMIT 500"
    )


def test_each_page_begins_where_the_last_one_ended() -> None:
    assert SWEEPS["workers"].page(b"c", CUT_OFF, (CUT_OFF, b"w"), 2).text().decode() == (
        "SELECT seen_at, worker_id, 0\n"
        "  FROM `app`.`inbox_worker` AS old FORCE INDEX (`inbox_worker_by_time`)\n"
        f" WHERE old.consumer_name = X'63' AND old.seen_at < {TIME}\n"
        f"   AND ((seen_at > {TIME}) OR (seen_at = {TIME} AND worker_id > X'77'))\n"
        " ORDER BY seen_at, worker_id\n"
        " LIMIT 2"
    )
    assert SWEEPS["quarantine"].page(b"c", CUT_OFF, (CUT_OFF, 7, b"d"), 2).text().decode() == (
        "SELECT first_at, total_bytes, digest, 0\n"
        "  FROM `app`.`inbox_quarantine` AS old FORCE INDEX (`inbox_quarantine_by_state`)\n"
        f" WHERE old.consumer_name = X'63' AND old.state = 'discarded' AND old.state_at < {TIME}\n"
        f"   AND ((first_at > {TIME}) OR (first_at = {TIME} AND total_bytes > 7)"
        f" OR (first_at = {TIME} AND total_bytes = 7 AND digest > X'64'))\n"
        " ORDER BY first_at, total_bytes, digest\n"
        " LIMIT 2"
    )


def test_processed_events_are_deleted_unless_a_replay_would_need_them() -> None:
    assert SWEEPS["inbox"].delete(b"c", CUT_OFF, [b"1", b"2"]).text().decode() == (
        "DELETE old\n"
        "  FROM `app`.`seen` AS old FORCE INDEX (PRIMARY)\n"
        "  LEFT JOIN `app`.`inbox_quarantine` AS refused FORCE INDEX (`inbox_quarantine_by_record`)\n"
        f"    ON {NEEDED}\n"
        f" WHERE old.consumer_name = X'63' AND old.event_id IN (X'31', X'32') AND old.processed_at < {TIME}\n"
        "   AND refused.consumer_name IS NULL"
    )


def test_the_others_are_deleted_if_they_are_still_old() -> None:
    assert SWEEPS["attempts"].delete(b"c", CUT_OFF, [b"1"]).text().decode() == (
        "DELETE old\n"
        "  FROM `app`.`inbox_attempt` AS old FORCE INDEX (PRIMARY)\n"
        f" WHERE old.consumer_name = X'63' AND old.attempt_key IN (X'31') AND old.last_at < {TIME}"
        f" AND (old.open_since IS NULL OR old.open_since < {TIME})"
    )
    assert SWEEPS["quarantine"].delete(b"c", CUT_OFF, [b"1"]).text().decode() == (
        "DELETE old\n"
        "  FROM `app`.`inbox_quarantine` AS old FORCE INDEX (PRIMARY)\n"
        f" WHERE old.consumer_name = X'63' AND old.digest IN (X'31')"
        f" AND old.state = 'discarded' AND old.state_at < {TIME}"
    )
    assert SWEEPS["workers"].delete(b"c", CUT_OFF, [b"1"]).text().decode() == (
        "DELETE old\n"
        "  FROM `app`.`inbox_worker` AS old FORCE INDEX (PRIMARY)\n"
        f" WHERE old.consumer_name = X'63' AND old.worker_id IN (X'31') AND old.seen_at < {TIME}"
    )


def test_a_batch_is_bounded_in_octets_where_rows_are_large_and_always_has_one() -> None:
    megabyte = 1 << 20
    rows = [(CUT_OFF, 3 * megabyte, b"d", 0)] * 5
    assert len(SWEEPS["quarantine"].fitting(rows)) == 2
    assert len(SWEEPS["quarantine"].fitting([(CUT_OFF, 100 * megabyte, b"d", 0)] * 2)) == 1
    assert len(SWEEPS["quarantine"].fitting([(CUT_OFF, 1, b"d", 0)] * 5)) == 5
    assert SWEEPS["quarantine"].fitting([]) == []
    assert SWEEPS["inbox"].fitting([(CUT_OFF, b"x", 0)] * 5) == [(CUT_OFF, b"x", 0)] * 5


def test_a_batch_stays_below_what_mariadb_makes_a_join_of() -> None:
    assert MOST_IN_BATCH < 1000
