"""What a check of the schema finds, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is: ERROR stops a start, WARNING and NOTE do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference between what is and what should be.

    Attributes:
        severity: ERROR where a guarantee breaks.
        code: stable word for programs, such as `missing-table`.
        table: the table or view it is about; None where it is about the server or the database.
        problem: one sentence, with what was found and what it leads to.
        sql: statements that mend it, in order; empty where none can.
        advice: what to do where SQL does not say it all.
    """

    severity: Severity
    code: str
    table: str | None
    problem: str
    sql: tuple[str, ...] = ()
    advice: str = ""

    @property
    def fix(self) -> str:
        """The statements that mend it, or else what to do."""
        statements = "; ".join(self.sql) + ";" if self.sql else ""
        return " ".join(part for part in (self.advice, statements) if part)

    @property
    def is_difference(self) -> bool:
        """Whether it is a difference of the schema that should be mended, and not a trait of the server."""
        return self.table is not None and self.severity is not Severity.NOTE

    def __str__(self) -> str:
        subject = f"{self.table}: " if self.table else ""
        return f"{subject}{self.problem} Fix: {self.fix}"
