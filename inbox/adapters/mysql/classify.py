"""What an error of the server or the driver means. The transient ones are also what dooms a unit.

Numbers are those of MySQL's "Server Error Message Reference" and "Client Error Message Reference", and
MariaDB's "Error Codes"; the drivers pass them on as the first argument of their exceptions.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from inbox.errors import Contended, StoreUnavailable


class Trouble(Enum):
    """A kind of error that undoes the whole unit, whatever the handler makes of it."""

    #: Lost to somebody else, or the connection is gone: run again.
    CONTENDED = "contended"
    #: The server is busy, going, full, read-only or down: wait.
    UNAVAILABLE = "unavailable"
    #: A statement ran into a time limit and did not take place: the handler's own slowness.
    TIMEOUT = "timeout"


_CONTENDED: Final = frozenset(
    {
        1205,  # lock wait timeout: only the statement was undone (InnoDB manual, innodb_rollback_on_timeout)
        1206,  # lock table full: the whole transaction was undone, as after a dead-lock (`row_mysql_handle_errors`)
        1213,  # dead-lock: the whole transaction was undone, the claim with it
        1317,  # query killed
        1614,  # XA: dead-lock
        1927,  # MariaDB: connection killed
        4031,  # MySQL: the server closed an idle connection
    }
)

_UNAVAILABLE: Final = frozenset(
    {
        1040,  # too many connections
        1047,  # unknown command: a Galera node that is not part of its cluster answers so
        1053,  # shutdown in progress
        1180,  # error during commit
        1203,  # too many connections of this user
        1226,  # a resource limit of this user
        1792,  # read-only transaction
        1836,  # read-only mode
        1874,  # InnoDB is in read-only mode
        3101,  # Group Replication rolled the transaction back
        1021,  # disk full
        1026,  # error writing a file
        1030,  # error from the storage engine
        1114,  # table is full
        2002,  # cannot connect: socket
        2003,  # cannot connect: host
        2005,  # unknown host
    }
)

#: max_execution_time of MySQL, max_statement_time of MariaDB.
_TIMEOUT: Final = frozenset({3024, 1969})

_NO_SUCH_SAVEPOINT: Final = 1305
_OPTION_PREVENTS: Final = 1290
#: Errors that the client makes up: the connection is gone or out of step.
_CLIENT_ERRORS: Final = range(2000, 2100)


def classify(code: int, text: str) -> Trouble | None:
    """What an error means for the unit it happened in.

    Args:
        code: the server's or client's number; 0 for a driver's complaint about its connection.
        text: the message, for the two numbers that mean several things.

    Returns:
        The kind of trouble, or None for an error about data or the statement, which is the handler's business.
    """
    if code in _UNAVAILABLE:
        return Trouble.UNAVAILABLE
    if code in _TIMEOUT:
        return Trouble.TIMEOUT
    if code in _CONTENDED or code in _CLIENT_ERRORS or code == 0:
        return Trouble.CONTENDED
    if code == _NO_SUCH_SAVEPOINT and text.upper().startswith("SAVEPOINT"):
        # A dead-lock took the savepoint away. "PROCEDURE x does not exist" has the same number.
        return Trouble.CONTENDED
    if code == _OPTION_PREVENTS and ("read-only" in text.lower() or "read_only" in text.lower()):
        return Trouble.UNAVAILABLE
    return None


def facts(error: BaseException) -> tuple[int, str]:
    """Number and text of a driver's error, also inside SQLAlchemy's; (0, "") where it has none.

    PyMySQL and asyncmy give `(number, text)`; aiomysql's "Not connected" and the packet sequence error are a text
    only, and a torn link can also show as `OSError`, `RuntimeError` or `AttributeError`.
    """
    args = getattr(getattr(error, "orig", None), "args", error.args)
    if args and isinstance(args[0], int) and not isinstance(error, OSError):
        return args[0], str(args[1]) if len(args) > 1 else ""
    return 0, ""


def is_answer(error: BaseException) -> bool:
    """Whether the server itself said so, in a packet that was read to its end: the connection is in step."""
    code, _ = facts(error)
    return code != 0 and code not in _CLIENT_ERRORS


def translated(error: BaseException, what: str) -> Contended | StoreUnavailable:
    """The framework's error for one that met a statement of the framework's own; raise it `from error`.

    Nothing that goes wrong outside of the handler's statements is the event's fault: all of it is transient.

    Args:
        error: the driver's.
        what: which step failed. No text of the server's is added to it.
    """
    code, text = facts(error)
    known = code or None
    if classify(code, text) is Trouble.UNAVAILABLE:
        return StoreUnavailable(what, code=known)
    return Contended(what, code=known)
