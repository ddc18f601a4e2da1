"""`inbox schema` where no server is needed."""

import re
from dataclasses import dataclass
from typing import Protocol

import pytest

from inbox.cli.options import OK, UNUSABLE, explained
from inbox.cli.schema import DIFFERENT, app
from inbox.schema_files import schema_files
from inbox.tables import TableNames

SECRET = "hunter2"


@dataclass(frozen=True)
class Ended:
    """How a command ended. typer's own runner has no separate stderr in every version that is supported."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


class Run(Protocol):
    def __call__(self, *arguments: str, url: str = "") -> Ended: ...


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(*arguments: str, url: str = "") -> Ended:
        monkeypatch.setenv("INBOX_DATABASE_URL", url)
        monkeypatch.setenv("COLUMNS", "200")
        with pytest.raises(SystemExit) as stopped:
            app(list(arguments))
        captured = capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)

    return run


@pytest.mark.parametrize("dialect", ["mysql", "mariadb"])
def test_print_gives_the_file_as_it_is(run: Run, dialect: str) -> None:
    result = run("print", "--dialect", dialect)
    assert result.exit_code == OK
    assert result.stdout == schema_files(dialect)[0].text  # type: ignore[arg-type]
    assert f"for {'MySQL' if dialect == 'mysql' else 'MariaDB'}" in result.stdout


def test_print_takes_other_names(run: Run) -> None:
    result = run("print", "--table", "inbox=seen", "--table", "quarantine=refused", "--no-view")
    assert result.stdout == schema_files("mysql", TableNames(inbox="seen", quarantine="refused", view=None))[0].text


@pytest.mark.parametrize(
    ("arguments", "piece"),
    [
        (["--table", "inbox"], "write KIND=NAME"),
        (["--table", "box=seen"], "one of inbox, attempt, quarantine, worker, schema, view"),
        (["--table", "inbox=1st"], "beginning with a letter"),
        (["--table", "inbox=inbox_view"], "the same"),
        (["--table", "view=v", "--no-view"], "contradict"),
    ],
)
def test_a_wrong_name_is_told_with_what_is_right(run: Run, arguments: list[str], piece: str) -> None:
    result = run("print", *arguments)
    assert result.exit_code == UNUSABLE
    assert piece in result.stderr
    assert result.stdout == ""


def test_a_dialect_that_there_is_no_file_for_is_refused(run: Run) -> None:
    assert run("print", "--dialect", "postgresql").exit_code == UNUSABLE


@pytest.mark.parametrize("command", ["check", "apply"])
@pytest.mark.parametrize(
    ("url", "piece"),
    [
        ("", "--database"),
        ("not a url", "cannot be read"),
        (f"mysql://u:{SECRET}@host:port/shop", "cannot be read"),
        (f"postgresql://u:{SECRET}@host/shop", "mysql://user:password@host:3306/database"),
        (f"mysql+pymysql://u:{SECRET}@host/shop", "use mysql+aiomysql://"),
        (f"mysql://u:{SECRET}@host:3306", "names no database"),
        (f"mysql://u:{SECRET}@127.0.0.1:1/shop", "127.0.0.1:1/shop: the server cannot be reached"),
    ],
)
def test_a_url_that_cannot_be_used_is_one_message_without_its_password(
    run: Run, command: str, url: str, piece: str
) -> None:
    result = run(command, url=url)
    assert result.exit_code == UNUSABLE
    assert piece in result.output
    assert SECRET not in result.output
    assert "Traceback" not in result.output


def test_a_certificate_authority_that_is_not_there_is_one_message(run: Run) -> None:
    ended = run("check", "--tls-ca", "/nowhere.pem", url="mysql://u@127.0.0.1:1/shop")
    assert ended.exit_code == UNUSABLE
    assert "/nowhere.pem" in ended.stderr


def test_what_the_server_says_is_left_out_of_the_message() -> None:
    from sqlalchemy import make_url  # noqa: PLC0415
    from sqlalchemy.exc import OperationalError  # noqa: PLC0415

    url = make_url(f"mysql+aiomysql://u:{SECRET}@db/shop?ssl_key={SECRET}")
    error = OperationalError("SELECT 1", {}, Exception(4242, f"remote {SECRET}"))
    assert explained(error, url) == (
        "db:3306/shop: the database refused. Look its error number up, and in its log. (error 4242)"
    )
    assert SECRET not in explained(OSError(SECRET), url)


@pytest.mark.parametrize("command", [[], ["print"], ["apply"], ["check"]])
def test_help_teaches(run: Run, command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == OK
    assert ("Example" in result.output) is bool(command)
    assert re.search(r"Exit codes: 0 .* 1 .* 2" if not command else "--table", result.output.replace("\n", " "))


def test_the_exit_codes_are_three_different_ones() -> None:
    assert (OK, DIFFERENT, UNUSABLE) == (0, 1, 2)
