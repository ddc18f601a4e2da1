"""Reports and figures, as they are asked. A change here is a change of what a hundred million rows cost: look twice."""

from sqlalchemy import MetaData

from inbox.adapters.mysql.figures import FiguresSql
from inbox.adapters.mysql.workers import WorkerSql
from inbox.tables import TableNames, define_tables

TABLES = define_tables(MetaData(), TableNames(inbox="seen", worker="crew"), schema="app")


def test_a_report() -> None:
    assert WorkerSql(TABLES).report == (
        "INSERT INTO `app`.`crew` (consumer_name, worker_id, host, pid, state, counts)\n"
        "VALUES (%s, %s, %s, %s, %s, %s)\n"
        "ON DUPLICATE KEY UPDATE\n"
        "  state = %s,\n"
        "  counts = %s,\n"
        "  seen_at = UTC_TIMESTAMP(6)"
    )


def test_reports_of_long_ago_give_way() -> None:
    assert WorkerSql(TABLES).forget == (
        "DELETE FROM `app`.`crew`\n"
        " WHERE consumer_name = %s AND seen_at < UTC_TIMESTAMP(6) - INTERVAL 7 DAY\n"
        " ORDER BY seen_at\n"
        " LIMIT 1000"
    )


def test_the_events_of_a_time_span_are_counted_up_to_a_bound() -> None:
    assert FiguresSql(TABLES).since == (
        "SELECT COUNT(*)\n"
        "  FROM (SELECT 1\n"
        "          FROM `app`.`seen`\n"
        "         WHERE consumer_name = %s AND processed_at >= UTC_TIMESTAMP(6) - INTERVAL %s HOUR\n"
        "         LIMIT 1000000) AS newest"
    )


def test_every_question_names_the_tables_as_they_are_called() -> None:
    sql = FiguresSql(TABLES)
    asked = [sql.now, sql.since_exactly, sql.span, sql.rows, sql.attempts, sql.states, sql.states_unhinted, sql.reasons]
    assert all("`app`.`" in each for each in [*asked, sql.workers, *sql.next_consumers])
    assert not any("{" in each for each in [*asked, sql.workers, *sql.next_consumers])
    assert "FORCE INDEX (`inbox_quarantine_by_state`)" in sql.states
    assert "FORCE INDEX" not in sql.states_unhinted
