"""The doorkeeper on SQLite: what a handler's statements may do, asked by SQLite itself before anything happens.

SQLite compiles every statement, also those of raw cursors and triggers, before it runs it, and asks an authorizer about
each thing that the statement would do (sqlite.org/c3ref/set_authorizer.html). So nothing here reads SQL: a COMMIT is
what SQLite takes for one.

A statement that failed leaves the transaction standing, as a rule. Not so `ON CONFLICT ROLLBACK`, `RAISE(ROLLBACK)`, a
full disk, an I/O error, an interrupted write (sqlite.org/lang_transaction.html, "Response To Errors Within A
Transaction"): they end it, and what came next would commit by itself. So after each call it is looked at whether the
transaction is still open.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Final

from inbox.adapters.embedded.classify import Trouble, classify, code_of
from inbox.errors import Contended, StoreUnavailable, UnitMisused
from inbox.units import guard
from inbox.units.guard import ROLLED_BACK, UNIT, Doom, Door, UnitToken, outside_units

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ROLLED_BACK", "UNIT", "Doom", "Door", "Guard", "UnitToken", "outside_units"]

_ALLOWED: Final = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_SAVEPOINT,
    }
)
_WRITES: Final = {
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
}
#: Pragmas that only read, with or without an argument (sqlite.org/pragma.html).
_READING_PRAGMAS: Final = frozenset(
    {
        *("collation_list", "compile_options", "database_list", "foreign_key_check", "foreign_key_list"),
        *("function_list", "index_info", "index_list", "index_xinfo", "module_list", "pragma_list"),
        *("table_info", "table_list", "table_xinfo"),
    }
)
#: Pragmas that only read where they have no argument.
_READING_IF_BARE: Final = frozenset(
    {
        *("application_id", "busy_timeout", "cache_size", "data_version", "encoding", "foreign_keys"),
        *("freelist_count", "journal_mode", "page_count", "page_size", "schema_version", "synchronous"),
        *("user_version", "read_uncommitted"),
    }
)
#: What the other codes stand for, for the message (sqlite.org/c3ref/c_alter_table.html).
_WORDS: Final = {
    getattr(sqlite3, f"SQLITE_{word.replace(' ', '_')}"): word
    for word in (
        *("CREATE INDEX", "CREATE TABLE", "CREATE TEMP INDEX", "CREATE TEMP TABLE", "CREATE TEMP TRIGGER"),
        *("CREATE TEMP VIEW", "CREATE TRIGGER", "CREATE VIEW", "CREATE VTABLE", "DROP INDEX", "DROP TABLE"),
        *("DROP TEMP INDEX", "DROP TEMP TABLE", "DROP TEMP TRIGGER", "DROP TEMP VIEW", "DROP TRIGGER", "DROP VIEW"),
        *("DROP VTABLE", "ALTER TABLE", "REINDEX", "ANALYZE", "ATTACH", "DETACH"),
    )
}
#: What a handler's calls may come to in the driver, by class and name; everything else is refused.
_CALLS: Final = {
    sqlite3.Connection: frozenset({"cursor", "execute", "executemany"}),
    sqlite3.Cursor: frozenset({"execute", "executemany", "fetchone", "fetchmany", "fetchall"}),
}
#: The same of the asynchronous cursors' own, each of which runs one statement and reads it.
_HELPERS: Final = frozenset({"_execute_insert", "_execute_fetchall", "_ask"})

_BY_SQLITE: Final[dict[Trouble, tuple[type[Contended | StoreUnavailable], str]]] = {
    Trouble.CONTENDED: (Contended, "SQLite ended a statement of the handler: somebody else was in its way"),
    Trouble.UNAVAILABLE: (StoreUnavailable, "SQLite took no statement of the handler"),
}


class Guard(guard.Guard):
    """State of one connection's guard. Told of every call and every error; sends nothing itself.

    Args:
        inbox: name of the inbox table, which a handler may read and not write.

    Attributes:
        own_thread: the thread that runs a statement of the framework's own; None while none does.
    """

    __slots__ = ("_inbox", "_refusal", "own_thread")

    def __init__(self, inbox: str) -> None:
        super().__init__()
        self.own_thread: int | None = None
        self._inbox = inbox.lower()
        self._refusal: str | None = None

    # -------------------------------------------------------------- asked before
    def admit(self, call: Callable[..., object]) -> None:
        """Let a call into the driver or refuse it. Two at once do no harm: the thread takes one after the other.

        Args:
            call: what its thread is to call.

        Raises:
            UnitMisused: refused; the unit is doomed, unless the call was a stranger's.
            Contended, StoreUnavailable: the unit was doomed before by SQLite.
        """
        name = getattr(call, "__name__", type(call).__name__)
        if name == "close" and isinstance(getattr(call, "__self__", None), sqlite3.Cursor):
            return  # whoever lets go of rows, and whenever, harms nobody
        token = self.known()
        if self.doom is not None:
            raise self.doom.error(token.handler)
        allowed = _CALLS.get(type(getattr(call, "__self__", None)), _HELPERS)
        if name not in allowed:
            self.trip(f"refused before anything happened: a command of the driver ({name})")

    def authorize(
        self, action: int, one: str | None, two: str | None, _database: str | None, _cause: str | None
    ) -> int:
        """SQLite asks, while it compiles a statement, about each thing that it would do.

        Returns:
            `SQLITE_OK` or `SQLITE_DENY`, with which the statement fails before anything has happened.
        """
        if self.door is Door.OPEN or self.own_thread == threading.get_ident():
            return sqlite3.SQLITE_OK
        refusal = self._why_not(action, one or "", two)
        if refusal is None:
            return sqlite3.SQLITE_OK
        self._refusal = f"refused before anything happened: {refusal}"
        self.tripped = True
        self.undo(self._refusal)
        return sqlite3.SQLITE_DENY

    def _why_not(self, action: int, one: str, two: str | None) -> str | None:
        refusal: str | None = None
        if action in _WRITES:
            if one.lower() == self._inbox:
                refusal = f"{_WRITES[action]} of the inbox's own table, which is what makes the event known"
        elif action == sqlite3.SQLITE_TRANSACTION:
            refusal = f"{one}; the unit is committed when the handler returns, and undone when it raises"
        elif action == sqlite3.SQLITE_FUNCTION:
            refusal = "load_extension()" if (two or "").lower() == "load_extension" else None
        elif action == sqlite3.SQLITE_PRAGMA:
            name = one.lower()
            is_read = name in _READING_PRAGMAS or (two is None and name in _READING_IF_BARE)
            refusal = None if is_read else f"PRAGMA {name}"
        elif action not in _ALLOWED:
            # Transactional here, but on the other databases it commits: what is tried here must hold there.
            refusal = f"{_WORDS.get(action, 'an unknown action')}; change the schema outside of handlers"
        return refusal

    # -------------------------------------------------------------- told after
    def observe(self, error: BaseException) -> None:
        """An error met the running unit's connection: doom it, unless the error is about data.

        Args:
            error: the driver's error, or a cancellation.
        """
        if self.token is None or self.doom is not None:
            return
        if not isinstance(error, Exception):
            self.tripped = True
            self.doom = Doom(UnitMisused, "a statement was cancelled under way", cause=error)
            return
        code = code_of(error)
        trouble = classify(code)
        if trouble is not None:
            kind, what = _BY_SQLITE[trouble]
            self.doom = Doom(kind, what, code, error)

    def observe_transaction(self, *, is_open: bool, error: BaseException | None) -> None:
        """A call of the running unit came back: its transaction is still open, or SQLite has rolled it back.

        Args:
            is_open: whether it is.
            error: what the call raised.
        """
        if self.token is None or is_open or self.door is not Door.KEPT:
            return
        if self.doom is None or self.doom.mild:
            what = "a statement rolled the whole unit back (ON CONFLICT ROLLBACK, RAISE(ROLLBACK)): use ABORT"
            self.doom = Doom(UnitMisused, what, cause=error)

    def take_refusal(self) -> UnitMisused | None:
        """What the authorizer has refused since it was last asked, as an error; None where it was nothing."""
        refusal, self._refusal = self._refusal, None
        if refusal is None:
            return None
        return UnitMisused(refusal, handler=self.token.handler if self.token else None)
