"""`inbox schema apply` and `inbox schema check` against real servers. Synchronous: the commands run their own loop."""

import json
from typing import Protocol

import pytest

from inbox.cli.options import OK, UNUSABLE
from inbox.cli.schema import DIFFERENT, app
from tests.pairs import Pair
from tests.services.probe import connect_database
from tests.unit.test_cli_schema import Ended


class Run(Protocol):
    def __call__(self, *arguments: str, url: str | None = None) -> Ended: ...


@pytest.fixture
def run(pair: Pair, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str, url: str | None = None) -> Ended:
        monkeypatch.setenv("INBOX_DATABASE_URL", url or pair.database_url)
        with pytest.raises(SystemExit) as stopped:
            app(list(arguments))
        captured = capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)

    return run


def execute(pair: Pair, statement: str) -> list[str]:
    with connect_database(pair.database.dsn) as connection, connection.cursor() as cursor:
        cursor.execute(f"USE `{pair.schema}`")
        cursor.execute(statement)
        return [str(row[0]) for row in cursor.fetchall()]


def test_apply_then_check(run: Run, pair: Pair) -> None:
    before = run("check")
    assert before.exit_code == DIFFERENT
    assert "Run `inbox schema apply`" in before.stdout

    applied = run("apply")
    assert (applied.exit_code, applied.stdout) == (OK, "Applied 0001_inbox.sql. The schema is up to date.\n")
    again = run("apply")
    assert (again.exit_code, again.stdout) == (OK, "Nothing to do: the schema is up to date.\n")

    after = run("check")
    assert (after.exit_code, after.stdout) == (OK, "The tables and the server are as they should be.\n")


def test_dry_run_prints_what_apply_would_execute_and_changes_nothing(run: Run, pair: Pair) -> None:
    result = run("apply", "--dry-run", "--table", "inbox=seen")
    assert result.exit_code == OK
    assert "7 statements would be executed" in result.stderr
    assert execute(pair, "SHOW TABLES") == []

    for statement in result.stdout.split(";"):
        if statement.strip():
            execute(pair, statement)
    assert run("check", "--table", "inbox=seen").exit_code == OK
    nothing = run("apply", "--dry-run", "--table", "inbox=seen")
    assert (nothing.exit_code, nothing.stdout) == (OK, "")


def test_check_tells_people_and_programs_the_same(run: Run, pair: Pair) -> None:
    run("apply")
    execute(pair, "ALTER TABLE inbox ENGINE=MyISAM")
    execute(pair, "DROP INDEX inbox_attempt_by_time ON inbox_attempt")

    people = run("check")
    assert people.exit_code == DIFFERENT
    assert "ERROR   inbox: Its engine is MyISAM" in people.stdout
    assert people.stdout.endswith("1 error, 1 warning.\n")

    programs = run("check", "--json")
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

    mended = run("check", "--json")
    assert (mended.exit_code, json.loads(mended.stdout)) == (OK, {"ok": True, "findings": []})


def test_what_is_beside_the_schema_counts_only_when_asked_to(run: Run, pair: Pair) -> None:
    run("apply")
    execute(pair, "CREATE TABLE log (id INT) ENGINE=MyISAM")
    assert run("check").exit_code == OK
    assert "log (MyISAM)" in run("check").stdout
    assert run("check", "--strict").exit_code == DIFFERENT


def test_apply_refuses_a_table_that_is_not_ours(run: Run, pair: Pair) -> None:
    execute(pair, "CREATE TABLE inbox (id INT PRIMARY KEY)")
    result = run("apply")
    assert result.exit_code == DIFFERENT
    assert "event_id is missing" in result.stderr
    assert execute(pair, "SHOW TABLES") == ["inbox"]


def test_tls_asked_for_and_not_had_is_one_message_that_names_the_fix(run: Run, pair: Pair) -> None:
    ended = run("check", "--tls")
    assert ended.exit_code == UNUSABLE, "the test's servers have no certificate that the system trusts"
    assert "TLS" in ended.stderr
    assert "Traceback" not in ended.output


@pytest.mark.parametrize(
    ("wrong", "piece"),
    [
        ({"inbox:inbox@": "inbox:wrong@"}, "user or password was refused"),
        ({"/t_": "/no_"}, "the database does not exist"),
    ],
)
@pytest.mark.parametrize("command", ["check", "apply"])
def test_no_connection_is_one_message_that_names_the_fix(
    run: Run, pair: Pair, command: str, wrong: dict[str, str], piece: str
) -> None:
    ((right, other),) = wrong.items()
    assert right in pair.database_url
    result = run(command, url=pair.database_url.replace(right, other))
    assert result.exit_code == UNUSABLE
    assert piece in result.stderr
    assert "Fix:" in result.stderr
    assert "wrong" not in result.output
    assert "Traceback" not in result.output


def test_a_user_that_may_not_create_is_told_which_rights_are_missing(run: Run, pair: Pair) -> None:
    user = f"u_{pair.schema[-8:]}"
    execute(pair, f"CREATE USER {user} IDENTIFIED BY 'secret'")
    try:
        execute(pair, f"GRANT SELECT ON `{pair.schema}`.* TO {user}")
        result = run("apply", url=pair.url_for(pair.driver, user=user, password="secret"))
    finally:
        execute(pair, f"DROP USER {user}")
    assert result.exit_code == UNUSABLE
    assert "GRANT CREATE, CREATE VIEW, SELECT, INSERT" in result.stderr
