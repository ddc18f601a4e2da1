"""The doorkeeper's own rules, without a server."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context

import pymysql
import pytest

from inbox.adapters.mysql.guard import COM_PING, COM_QUERY, UNIT, Door, Guard, UnitToken, outside_units
from inbox.errors import Contended, DeadlineExceeded, StoreUnavailable, UnitMisused

COM_INIT_DB = 2


@pytest.fixture
def guard() -> Guard:
    made = Guard()
    made.door = Door.KEPT
    return made


@contextmanager
def running(guard: Guard, handler: str = "credit") -> Iterator[UnitToken]:
    token = guard.start(handler)
    before = UNIT.set(token)
    try:
        yield token
    finally:
        UNIT.reset(before)
        guard.stop()


def send(guard: Guard, sql: str = "SELECT 1", command: int = COM_QUERY, *, busy: bool = False) -> None:
    guard.admit(command, sql, busy=busy)


def test_an_open_door_lets_everything_through() -> None:
    send(Guard(), "COMMIT")


def test_between_units_nothing_passes(guard: Guard) -> None:
    with pytest.raises(UnitMisused):
        send(guard)

    assert guard.doom is None


def test_a_running_unit_sends_and_pings(guard: Guard) -> None:
    with running(guard):
        send(guard)
        send(guard, "", COM_PING)

    assert guard.doom is None
    assert guard.leaves_nothing


def test_a_refused_statement_dooms_and_trips(guard: Guard) -> None:
    with running(guard):
        with pytest.raises(UnitMisused, match=r"handler credit: .*COMMIT"):
            send(guard, "COMMIT")
        assert guard.doom is not None
        with pytest.raises(UnitMisused, match="COMMIT"):
            send(guard, "SELECT 1")

    assert guard.tripped
    assert not guard.leaves_nothing


def test_another_command_is_refused(guard: Guard) -> None:
    with running(guard), pytest.raises(UnitMisused, match="number 2"):
        send(guard, "other_database", COM_INIT_DB)


def test_two_statements_at_once_are_refused(guard: Guard) -> None:
    with running(guard), pytest.raises(UnitMisused, match="same time"):
        send(guard, busy=True)


def test_a_new_unit_begins_with_a_clean_slate(guard: Guard) -> None:
    with running(guard), pytest.raises(UnitMisused):
        send(guard, "COMMIT")
    with running(guard):
        send(guard)

    assert guard.doom is None
    assert guard.leaves_nothing


def test_traces_are_remembered(guard: Guard) -> None:
    with running(guard):
        send(guard, "SELECT @a := 1")
        send(guard)

    assert guard.traces
    assert guard.doom is None


def test_a_late_task_is_refused_and_harms_nobody(guard: Guard) -> None:
    with running(guard, "early"):
        context = copy_context()
    with running(guard, "late"):
        with pytest.raises(UnitMisused, match=r"handler early: .*outlived"):
            context.run(send, guard)
        with pytest.raises(UnitMisused):
            context.run(guard.note_rollback)
        with pytest.raises(UnitMisused):
            context.run(lambda: guard.admit_close(by_driver=False))
        with pytest.raises(UnitMisused):
            context.run(guard.misuse, "closed its session")
        send(guard)

    assert guard.doom is None


def test_a_caller_without_a_unit_dooms_the_one_it_may_be_working_for(guard: Guard) -> None:
    with running(guard), outside_units(), pytest.raises(UnitMisused, match="outside"):
        send(guard)

    assert guard.doom is not None


def test_a_caller_from_another_unit_dooms_its_own(guard: Guard) -> None:
    other = Guard()
    other.door = Door.KEPT
    token = other.start("other")
    with running(guard), pytest.raises(UnitMisused, match="another unit"):
        send(other)

    assert guard.doom is not None
    assert other.doom is None
    assert token.is_live


@pytest.mark.parametrize(
    ("code", "error"), [(1205, Contended), (1040, StoreUnavailable), (3024, DeadlineExceeded), (2013, Contended)]
)
def test_an_error_of_the_server_dooms(guard: Guard, code: int, error: type[Exception]) -> None:
    cause = pymysql.err.OperationalError(code, "secret text")
    with running(guard):
        guard.observe(cause)
        with pytest.raises(error) as raised:
            send(guard)

    assert raised.value.__cause__ is cause
    assert "secret" not in str(raised.value)
    assert not guard.tripped, "the connection is sound"


def test_an_error_about_data_does_not(guard: Guard) -> None:
    with running(guard):
        guard.observe(pymysql.err.IntegrityError(1062, "Duplicate entry"))
        send(guard)

    assert guard.doom is None


def test_a_cancelled_statement_dooms_and_trips(guard: Guard) -> None:
    with running(guard):
        guard.observe(asyncio.CancelledError())

    assert guard.tripped
    assert guard.doom is not None


def test_errors_of_the_frameworks_own_statements_doom_nobody(guard: Guard) -> None:
    guard.observe(pymysql.err.OperationalError(1205, ""))

    assert guard.doom is None


def test_the_first_reason_stays_unless_it_was_mild(guard: Guard) -> None:
    with running(guard):
        guard.note_rollback()
        guard.undo("second")
        guard.undo("third")

    assert guard.doom is not None
    assert guard.doom.what == "second"


def test_a_rollback_between_units_is_ours(guard: Guard) -> None:
    guard.note_rollback()

    assert guard.doom is None


def test_a_shut_door_lets_nothing_through_but_its_own_closing(guard: Guard) -> None:
    with running(guard):
        guard.door = Door.SHUT
        guard.admit_close(by_driver=False)
        guard.note_rollback()

    guard.door = Door.SHUT
    with pytest.raises(UnitMisused):
        send(guard)
