"""The doorkeeper on MySQL and MariaDB: which commands may pass, and which errors have broken the unit.

MySQL does not end a transaction on an error, and it commits on a good many statements that do not say so; see
`inbox.units.guard`.
"""

from __future__ import annotations

from typing import Final

from inbox.adapters.mysql.classify import Trouble, classify, facts
from inbox.adapters.mysql.screen import Finding, screen
from inbox.errors import Contended, DeadlineExceeded, StoreUnavailable, UnitMisused
from inbox.units import guard
from inbox.units.guard import ROLLED_BACK, UNIT, Doom, Door, UnitToken, outside_units

__all__ = [
    "COM_PING",
    "COM_QUERY",
    "COM_SET_OPTION",
    "ROLLED_BACK",
    "UNIT",
    "Doom",
    "Door",
    "Guard",
    "UnitToken",
    "outside_units",
]

#: Numbers of commands (MySQL internals, "Command Phase").
COM_QUERY: Final = 3
COM_PING: Final = 14
COM_SET_OPTION: Final = 27

_BY_SERVER: Final[dict[Trouble, tuple[type[Contended | StoreUnavailable | DeadlineExceeded], str]]] = {
    Trouble.CONTENDED: (Contended, "the server ended the unit during a statement of the handler"),
    Trouble.UNAVAILABLE: (StoreUnavailable, "the server took no statement of the handler"),
    Trouble.TIMEOUT: (DeadlineExceeded, "a statement ran into a time limit of the server and did not take place"),
}


class Guard(guard.Guard):
    """State of one connection's guard. Told of every command and every error; sends nothing itself.

    Args:
        allow_call: let handlers call stored procedures.

    Attributes:
        savepoints: those that the running handler has set, in lower case; None where no other handler shares its
            transaction.
    """

    __slots__ = ("allow_call", "savepoints")

    def __init__(self, *, allow_call: bool = False) -> None:
        super().__init__()
        self.allow_call = allow_call
        self.savepoints: set[bytes] | None = None

    # -------------------------------------------------------------- asked before
    def admit(self, command: int, sql: bytes | str, *, busy: bool, plain_backslashes: bool = False) -> None:
        """Let a command through or refuse it, before anything is sent.

        Args:
            command: its number.
            sql: its text.
            busy: an earlier command's answer is still being read.
            plain_backslashes: the session has NO_BACKSLASH_ESCAPES.

        Raises:
            UnitMisused: refused; the unit is doomed, unless the command was a stranger's.
            Contended, StoreUnavailable, DeadlineExceeded: the unit was doomed before by the server.
        """
        if self.door is Door.OPEN:
            return
        token = self.known()
        if self.doom is not None:
            raise self.doom.error(token.handler)
        if busy:
            self.trip("two of its tasks used the connection at the same time: await one before the next")
        if command == COM_QUERY:
            text = sql.encode("utf-8", "surrogateescape") if isinstance(sql, str) else sql
            finding = screen(text, allow_call=self.allow_call, plain_backslashes=plain_backslashes)
            self.traces = self.traces or finding.traces
            if finding.refusal is not None:
                self.trip(f"refused before sending: {finding.refusal}")
            if self.savepoints is not None:
                self._admit_savepoint(self.savepoints, finding)
        elif command != COM_PING:
            self.trip(f"refused before sending: a command of the driver (number {command})")

    def _admit_savepoint(self, own: set[bytes], finding: Finding) -> None:
        """A neighbour's savepoint is not there for this handler: by itself, the server would say that it is not."""
        if finding.sets is not None:
            own.add(finding.sets)
        elif finding.names is not None and finding.names not in own:
            self.trip("refused before sending: a savepoint that the handler has not set")

    def admit_reconnect(self) -> None:
        """Somebody connects again. Never right on a connection that is kept: another session would answer.

        Raises:
            UnitMisused: always, unless no units run here.
        """
        if self.door is not Door.OPEN:
            self.known()
            self.trip("refused: a reconnect, for the unit ended with its connection")

    # -------------------------------------------------------------- told after
    def observe(self, error: BaseException) -> None:
        """An error met the running unit's connection: doom it, unless the error is about data.

        Args:
            error: the driver's error, or a cancellation, after which the drivers close the connection.
        """
        if self.token is None or self.doom is not None:
            return
        if not isinstance(error, Exception):
            self.tripped = True
            what = "a statement was cancelled under way, so that its connection had to be closed"
            self.doom = Doom(UnitMisused, what, cause=error)
            return
        code, text = facts(error)
        trouble = classify(code, text)
        if trouble is not None:
            kind, what = _BY_SERVER[trouble]
            self.doom = Doom(kind, what, code, error)
