"""What the servers' errors mean for a unit, number by number."""

import pymysql
import pytest
from asyncmy import errors as asyncmy_errors
from sqlalchemy.exc import OperationalError

from inbox.adapters.mysql.classify import Trouble, classify, facts, is_answer, translated
from inbox.errors import Contended, StoreUnavailable

READ_ONLY = "The MySQL server is running with the --super-read-only option so it cannot execute this statement"


@pytest.mark.parametrize("code", [1205, 1206, 1213, 1317, 1614, 1927, 2006, 2013, 2014, 4031, 0])
def test_what_is_lost_to_others_is_contended(code: int) -> None:
    assert classify(code, "") is Trouble.CONTENDED


@pytest.mark.parametrize(
    "code", [1040, 1047, 1053, 1180, 1203, 1226, 1792, 1836, 1874, 3101, 1021, 1026, 1030, 1114, 2002, 2003, 2005]
)
def test_a_busy_full_or_read_only_server_is_unavailable(code: int) -> None:
    assert classify(code, "") is Trouble.UNAVAILABLE


@pytest.mark.parametrize("code", [3024, 1969])
def test_time_limits_of_statements_are_the_handlers_own(code: int) -> None:
    assert classify(code, "") is Trouble.TIMEOUT


@pytest.mark.parametrize("code", [1062, 1048, 1064, 1146, 1406, 1422, 1451, 1452, 1644, 3819])
def test_errors_about_data_are_none_of_our_business(code: int) -> None:
    assert classify(code, "") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SAVEPOINT sa_savepoint_1 does not exist", Trouble.CONTENDED),
        ("savepoint x does not exist", Trouble.CONTENDED),
        ("PROCEDURE app.credit does not exist", None),
        ("FUNCTION app.SAVEPOINT does not exist", None),
    ],
)
def test_1305_is_a_lost_savepoint_only_where_it_says_so(text: str, expected: Trouble | None) -> None:
    assert classify(1305, text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (READ_ONLY, Trouble.UNAVAILABLE),
        (READ_ONLY.replace("--super-read-only", "--read-only"), Trouble.UNAVAILABLE),
        ("The MariaDB server is running with the READ_ONLY option", Trouble.UNAVAILABLE),
        ("The MySQL server is running with the --secure-file-priv option", None),
    ],
)
def test_1290_is_read_only_where_it_says_so(text: str, expected: Trouble | None) -> None:
    assert classify(1290, text) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (pymysql.err.OperationalError(1213, "Deadlock"), (1213, "Deadlock")),
        (asyncmy_errors.OperationalError(1205, "Lock wait"), (1205, "Lock wait")),
        (asyncmy_errors.InterfaceError(0, "Not connected"), (0, "Not connected")),
        (pymysql.err.InterfaceError("(0, 'Not connected')"), (0, "")),
        (pymysql.err.InternalError("Packet sequence number wrong - got 45 expected 1"), (0, "")),
        (OperationalError("SELECT", {}, pymysql.err.OperationalError(1040, "Too many")), (1040, "Too many")),
        (ConnectionResetError(104, "reset"), (0, "")),
        (RuntimeError(), (0, "")),
    ],
)
def test_facts_of_an_error(error: Exception, expected: tuple[int, str]) -> None:
    assert facts(error) == expected


def test_only_the_servers_own_word_is_an_answer() -> None:
    assert is_answer(pymysql.err.IntegrityError(1062, "Duplicate entry"))
    assert not is_answer(pymysql.err.OperationalError(2013, "Lost connection"))
    assert not is_answer(OSError(104, "reset"))


@pytest.mark.parametrize("error", [pymysql.err.ProgrammingError(1146, "no table 'secret'"), RuntimeError("secret")])
def test_whatever_meets_our_own_statements_is_transient(error: Exception) -> None:
    assert type(translated(error, "claiming")) is Contended


def test_a_translated_error_has_the_number_and_no_remote_text() -> None:
    made = translated(pymysql.err.OperationalError(1040, "Too many connections from secret"), "claiming")

    assert isinstance(made, StoreUnavailable)
    assert made.code == 1040
    assert str(made) == "claiming (error 1040)"
