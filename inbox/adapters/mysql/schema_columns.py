"""Compares the columns of one table, and writes the statements that mend them. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Table, TextClause, types
from sqlalchemy.dialects import mysql

from inbox.adapters.mysql.schema_findings import Finding, Severity
from inbox.tables import qualified

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Column

    from inbox.adapters.mysql.schema_facts import ColumnFacts

CHARSET: Final = "utf8mb4"
COLLATION: Final = "utf8mb4_bin"

_DIALECT: Final = mysql.dialect()
# The display width says nothing about what can be stored; MariaDB shows it and MySQL 8.0.19 and newer do not.
_WIDTH: Final = re.compile(r"\b(tinyint|smallint|mediumint|int|bigint)\(\d+\)")
_VARIABLE_LENGTH: Final = re.compile(r"(varbinary|varchar)\((\d+)\)")
# MySQL 8 calls it utf8mb3, MariaDB by either name. Their octets are those of UTF-8.
_UTF8_SUBSETS: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """The columns of one table as defined, beside those that the server reports."""

    table: Table
    found: Mapping[str, ColumnFacts]

    def findings(self) -> Iterator[Finding]:
        found = {name.lower(): column for name, column in self.found.items()}
        for column in self.table.columns:
            if column.name not in found:
                yield self._finding(
                    Severity.ERROR,
                    "missing-column",
                    f"The column {column.name} is missing.",
                    self._alter(f"ADD COLUMN {_specification(column)}"),
                )
            else:
                yield from self._column(column, found.pop(column.name))
        for extra in found.values():
            yield from self._extra_column(extra)

    def _column(self, column: Column[Any], found: ColumnFacts) -> Iterator[Finding]:
        wanted, is_type = _type(column), _WIDTH.sub(r"\1", found.type.lower())
        modify = self._alter(f"MODIFY {_specification(column)}")
        if is_type != wanted:
            yield self._wrong_type(column, found, wanted, is_type)
        elif found.charset is not None and found.charset != CHARSET:
            problem = f"The column {column.name} is in {found.charset}: text outside of it cannot be stored."
            yield self._finding(Severity.ERROR, "charset", problem, modify)
        elif found.collation is not None and found.collation != COLLATION:
            problem = (
                f"The collation of {column.name} is {found.collation} and not {COLLATION}: words are compared loosely."
            )
            yield self._finding(Severity.WARNING, "collation", problem, modify)
        if found.generated:
            problem = f"The column {column.name} is generated: what the framework writes into it is refused."
            yield self._finding(
                Severity.ERROR, "generated", problem, advice="Drop it and run `inbox schema check` again."
            )
            return
        if found.nullable and not column.nullable:
            yield self._finding(Severity.WARNING, "nullable", f"The column {column.name} may be NULL.", modify)
        if column.nullable and not found.nullable:
            problem = f"The column {column.name} is NOT NULL: rows that have no value for it are refused."
            yield self._finding(Severity.ERROR, "not-null", problem, modify)
        if found.default != _default(column) or found.on_update:
            yield self._wrong_default(column, found, modify)

    def _wrong_type(self, column: Column[Any], found: ColumnFacts, wanted: str, is_type: str) -> Finding:
        shown = found.type + (f" with collation {found.collation}" if found.collation else "")
        problem = f"The column {column.name} is {shown} and not {wanted}"
        modify = self._alter(f"MODIFY {_specification(column)}")
        if found.collation is not None and isinstance(column.type, types.LargeBinary | mysql.VARBINARY | mysql.BINARY):
            problem += (
                ": text merges values that differ in case, accents or trailing spaces, and an event is skipped as "
            )
            problem += "another's duplicate."
            # Text in another character set must become UTF-8 first, for the change to binary keeps the octets.
            to_utf8 = self._alter(f"MODIFY {quoted(column.name)} {found.type.upper()} CHARACTER SET {CHARSET}")
            sql = (modify,) if found.charset in _UTF8_SUBSETS else (to_utf8, modify)
            return self._finding(Severity.ERROR, "text-key" if column.primary_key else "type", problem, *sql)
        if _is_longer(is_type, wanted):
            return self._finding(Severity.WARNING, "length", f"{problem}: longer than the framework uses.", modify)
        if _is_longer(wanted, is_type):
            problem += ": values up to the greater length are refused, or cut where the server is not strict."
            return self._finding(Severity.ERROR, "length", problem, modify)
        return self._finding(Severity.ERROR, "type", f"{problem}.", modify)

    def _wrong_default(self, column: Column[Any], found: ColumnFacts, modify: str) -> Finding:
        wanted = _default(column)
        shown = "none" if found.default is None else found.default
        problem = f"The default of {column.name} is {shown} and not {'none' if wanted is None else wanted}"
        if found.on_update:
            problem += ", and each change of the row renews it"
        if "timestamp" in (found.default or "") or "now" in (found.default or ""):
            problem += ": it follows the session's time zone, so that ages are wrong by hours"
        # A default too many is used by nobody: the framework writes every column that has none here.
        severity = Severity.WARNING if wanted is None and not found.on_update else Severity.ERROR
        return self._finding(severity, "default", f"{problem}.", modify)

    def _extra_column(self, found: ColumnFacts) -> Iterator[Finding]:
        drop = self._alter(f"DROP COLUMN {quoted(found.name)}")
        if found.generated:
            problem = (
                f"The column {found.name} is not ours and is generated: a value that does not convert refuses the row."
            )
            yield self._finding(Severity.WARNING, "extra-column", problem, drop)
        elif not found.fills_itself:
            problem = f"The column {found.name} is not ours and has no default: every insert is refused."
            advice = "Give it a default, or drop it:"
            yield self._finding(Severity.ERROR, "extra-column", problem, drop, advice=advice)

    def _finding(self, severity: Severity, code: str, problem: str, *sql: str, advice: str = "") -> Finding:
        return Finding(severity, code, self.table.name, problem, sql, advice)

    def _alter(self, change: str) -> str:
        return f"ALTER TABLE {qualified(self.table.name, self.table.schema)} {change}"


def quoted(name: str) -> str:
    """`name`, which may be anybody's, as an identifier."""
    return "`" + name.replace("`", "``") + "`"


def _type(column: Column[Any]) -> str:
    """As both servers report it, display width aside."""
    compiled = column.type.compile(dialect=_DIALECT).lower()
    return re.sub(r"^integer\b", "int", compiled)


def _default(column: Column[Any]) -> str | None:
    """As `schema_facts` brings what both servers report to one spelling."""
    if column.server_default is None:
        return None
    value = column.server_default.arg  # type: ignore[attr-defined]
    if isinstance(value, TextClause):
        return value.text.removeprefix("(").removesuffix(")").lower()
    return str(value)


def _specification(column: Column[Any]) -> str:
    """The column as `CREATE TABLE` and `MODIFY` write it; text with its character set, for the table's may be other."""
    parts = [quoted(column.name), column.type.compile(dialect=_DIALECT)]
    if isinstance(column.type, types.String):
        parts.append(f"CHARACTER SET {CHARSET} COLLATE {COLLATION}")
    parts.append("NULL" if column.nullable else "NOT NULL")
    if column.server_default is not None:
        value = column.server_default.arg  # type: ignore[attr-defined]
        parts.append("DEFAULT " + (value.text if isinstance(value, TextClause) else f"'{value}'"))
    return " ".join(parts)


def _is_longer(one: str, other: str) -> bool:
    """Whether both are of one variable-length type and `one` is the longer."""
    a, b = _VARIABLE_LENGTH.fullmatch(one), _VARIABLE_LENGTH.fullmatch(other)
    return a is not None and b is not None and a[1] == b[1] and int(a[2]) > int(b[2])
