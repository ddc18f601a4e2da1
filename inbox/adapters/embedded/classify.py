"""What an error of SQLite means. The transient ones are also what dooms a unit.

Numbers are those of "Result and Extended Result Codes" (sqlite.org/rescode.html). The lowest eight bits are the primary
code, the whole number says more. Python's module gives the extended one (`sqlite_errorcode`, since 3.11).
"""

from __future__ import annotations

import sqlite3
from enum import Enum
from typing import Final

from inbox.errors import Contended, StoreUnavailable

#: Another row has this primary key. Of our own insert it says that the event is known.
DUPLICATE_KEY: Final = sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY


class Trouble(Enum):
    """A kind of error that undoes the whole unit, whatever the handler makes of it."""

    #: Lost to somebody else: run again.
    CONTENDED = "contended"
    #: The file cannot be read or written now: wait.
    UNAVAILABLE = "unavailable"


_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})

_UNAVAILABLE: Final = frozenset(
    {
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,  # WAL could not be locked for a long time
        sqlite3.SQLITE_NOTADB,
    }
)


def code_of(error: BaseException) -> int:
    """The extended code of an error, also of one inside SQLAlchemy's; 0 where SQLite had no part in it."""
    code = getattr(getattr(error, "orig", None) or error, "sqlite_errorcode", 0)
    return code if isinstance(code, int) else 0


def is_busy(error: BaseException) -> bool:
    """Whether somebody else writes now."""
    return code_of(error) & 0xFF in _BUSY


def classify(code: int) -> Trouble | None:
    """What an error means for the unit it happened in.

    Args:
        code: primary or extended.

    Returns:
        The kind of trouble, or None for an error about data or the statement, which is the handler's business.
    """
    primary = code & 0xFF
    if primary in _UNAVAILABLE:
        return Trouble.UNAVAILABLE
    if primary in _BUSY or primary == sqlite3.SQLITE_INTERRUPT:
        return Trouble.CONTENDED
    return None


def translated(error: BaseException, what: str) -> Contended | StoreUnavailable:
    """The framework's error for one that met a statement of the framework's own; raise it `from error`.

    Nothing that goes wrong outside of the handler's statements is the event's fault: all of it is transient.

    Args:
        error: the driver's.
        what: which step failed. No text of SQLite's is added to it.
    """
    code = code_of(error)
    if classify(code) is Trouble.UNAVAILABLE:
        return StoreUnavailable(what, code=code)
    return Contended(what, code=code or None)
