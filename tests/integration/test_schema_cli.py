"""`inbox schema apply` and `inbox schema check` against real servers. Synchronous: the commands run their own loop."""

import json

import pytest
from typer.testing import CliRunner, Result

from inbox.cli.schema import DIFFERENT, OK, UNUSABLE, app
from tests.pairs import Pair
from tests.services.probe import connect_database


def run(pair: Pair, *arguments: str, url: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"INBOX_DATABASE_URL": url or pair.database_url})


def execute(pair: Pair, statement: str) -> list[str]:
    with connect_database(pair.database.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"USE `{pair.schema}`")
        cursor.execute(statement)
        return [str(row[0]) for row in cursor.fetchall()]


def test_apply_then_check(pair: Pair) -> None:
    before = run(pair, "check")
    assert before.exit_code == DIFFERENT
    assert "Run `inbox schema apply`" in before.stdout

    applied = run(pair, "apply")
    assert (applied.exit_code, applied.stdout) == (OK, "Applied 0001_inbox.sql. The schema is up to date.\n")
    again = run(pair, "apply")
    assert (again.exit_code, again.stdout) == (OK, "Nothing to do: the schema is up to date.\n")

    after = run(pair, "check")
    assert (after.exit_code, after.stdout) == (OK, "The tables and the server are as they should be.\n")


def test_dry_run_prints_what_apply_would_execute_and_changes_nothing(pair: Pair) -> None:
    result = run(pair, "apply", "--dry-run", "--table", "inbox=seen")
    assert result.exit_code == OK
    assert "6 statements would be executed" in result.stderr
    assert execute(pair, "SHOW TABLES") == []

    for statement in result.stdout.split(";"):
        if statement.strip():
            execute(pair, statement)
    assert run(pair, "check", "--table", "inbox=seen").exit_code == OK
    nothing = run(pair, "apply", "--dry-run", "--table", "inbox=seen")
    assert (nothing.exit_code, nothing.stdout) == (OK, "")


def test_check_tells_people_and_programs_the_same(pair: Pair) -> None:
    run(pair, "apply")
    execute(pair, "ALTER TABLE inbox ENGINE=MyISAM")
    execute(pair, "DROP INDEX inbox_attempt_by_time ON inbox_attempt")

    people = run(pair, "check")
    assert people.exit_code == DIFFERENT
    assert "ERROR   inbox: Its engine is MyISAM" in people.stdout
    assert people.stdout.endswith("1 error, 1 warning.\n")

    programs = run(pair, "check", "--json")
    assert programs.exit_code == DIFFERENT
    report = json.loads(programs.stdout)
    assert report["ok"] is False
    assert [(finding["severity"], finding["code"]) for finding in report["findings"]] == [
        ("error", "engine"),
        ("warning", "index"),
    ]
    for finding in report["findings"]:
        assert finding["problem"] in people.stdout
        assert finding["fix"] in people.stdout
        for statement in finding["sql"]:
            execute(pair, statement)

    mended = run(pair, "check", "--json")
    assert (mended.exit_code, json.loads(mended.stdout)) == (OK, {"ok": True, "findings": []})


def test_what_is_beside_the_schema_counts_only_when_asked_to(pair: Pair) -> None:
    run(pair, "apply")
    execute(pair, "CREATE TABLE log (id INT) ENGINE=MyISAM")
    assert run(pair, "check").exit_code == OK
    assert "log (MyISAM)" in run(pair, "check").stdout
    assert run(pair, "check", "--strict").exit_code == DIFFERENT


def test_apply_refuses_a_table_that_is_not_ours(pair: Pair) -> None:
    execute(pair, "CREATE TABLE inbox (id INT PRIMARY KEY)")
    result = run(pair, "apply")
    assert result.exit_code == DIFFERENT
    assert "event_id is missing" in result.stderr
    assert execute(pair, "SHOW TABLES") == ["inbox"]


@pytest.mark.parametrize(
    ("old", "new", "piece"),
    [("inbox:inbox@", "inbox:wrong@", "user or password was refused"), ("/t_", "/no_", "the database does not exist")],
)
@pytest.mark.parametrize("command", ["check", "apply"])
def test_no_connection_is_one_message_that_names_the_fix(
    pair: Pair, command: str, old: str, new: str, piece: str
) -> None:
    assert old in pair.database_url
    result = run(pair, command, url=pair.database_url.replace(old, new))
    assert result.exit_code == UNUSABLE
    assert piece in result.stderr
    assert "Fix:" in result.stderr
    assert "wrong" not in result.output
    assert "Traceback" not in result.output


def test_a_user_that_may_not_create_is_told_which_rights_are_missing(pair: Pair) -> None:
    user = f"u_{pair.schema[-8:]}"
    execute(pair, f"CREATE USER {user} IDENTIFIED BY 'secret'")
    try:
        execute(pair, f"GRANT SELECT ON `{pair.schema}`.* TO {user}")
        result = run(pair, "apply", url=pair.url_for("aiomysql", user=user, password="secret"))
    finally:
        execute(pair, f"DROP USER {user}")
    assert result.exit_code == UNUSABLE
    assert "GRANT CREATE, CREATE VIEW, SELECT, INSERT" in result.stderr
