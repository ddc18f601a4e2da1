"""Compares the tables as defined with the tables as reported, and says how to mend each difference. No I/O.

What stops a start (ERROR) is what would break the promise: merged or cut ids, effects that cannot be undone, a 1062
that is not ours, rows that cannot be written. What only costs time or durability elsewhere is a WARNING, the rest a
NOTE. `docs/architecture.md` has the reasons behind the tables themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from inbox.adapters.mysql.schema_columns import CHARSET, COLLATION, ColumnComparison, quoted
from inbox.adapters.mysql.schema_findings import Finding, Severity
from inbox.adapters.mysql.schema_server import neighbour_findings, server_findings
from inbox.tables import SCHEMA_VERSION, TableNames, qualified, version_rows, view_definition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Table

    from inbox.adapters.mysql.schema_facts import IndexFacts, ServerFacts, TableFacts, TriggerFacts
    from inbox.tables import InboxTables


def compare(tables: InboxTables, facts: ServerFacts) -> list[Finding]:
    """Every finding, errors first.

    Args:
        tables: as defined.
        facts: as reported.
    """
    if facts.database is None:
        return [_no_database()]
    missing = [table for table in tables.all if table.name not in facts.tables]
    if len(missing) == len(tables.all):
        return [_nothing_there(tables, facts), *_view(tables, facts), *server_findings(facts)]
    findings = [_missing_table(tables, table, facts) for table in missing]
    for table in tables.all:
        if table.name in facts.tables:
            findings += _Comparison(tables, table, facts.tables[table.name]).findings()
    findings += [
        *_view(tables, facts),
        *_versions(tables, facts),
        *server_findings(facts),
        *neighbour_findings(tables, facts),
    ]
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


# ------------------------------------------------------------------ what is missing
def _apply(tables: InboxTables, facts: ServerFacts) -> str:
    """How to make what is missing, with the options that name the tables."""
    defaults = TableNames()
    options = "".join(
        f" --table {field.name}={getattr(tables.names, field.name)}"
        for field in fields(TableNames)
        if getattr(tables.names, field.name) not in {None, getattr(defaults, field.name)}
    )
    options += " --no-view" if tables.names.view is None else ""
    return (
        f"Run `inbox schema apply{options}`, or apply the files that "
        f"`inbox schema print --dialect {facts.dialect}{options}` prints."
    )


def _no_database() -> Finding:
    return Finding(
        Severity.ERROR,
        "no-database",
        None,
        "The connection has no database selected, so there is nowhere to look for the tables.",
        advice="Name the database at the end of the URL: mysql+aiomysql://user:password@host/DATABASE.",
    )


def _nothing_there(tables: InboxTables, facts: ServerFacts) -> Finding:
    names = ", ".join(table.name for table in tables.all)
    return Finding(
        Severity.ERROR,
        "missing-table",
        tables.inbox.name,
        f"None of the tables {names} exists in the database {facts.database}, or this user has no right on any.",
        advice=_apply(tables, facts),
    )


def _missing_table(tables: InboxTables, table: Table, facts: ServerFacts) -> Finding:
    return Finding(
        Severity.ERROR,
        "missing-table",
        table.name,
        f"The table does not exist in the database {facts.database}, or this user has no right on it.",
        advice=_apply(tables, facts),
    )


def _view(tables: InboxTables, facts: ServerFacts) -> Iterator[Finding]:
    name = tables.names.view
    if name is None:
        return
    create = (view_definition(tables),)
    found = facts.tables.get(name)
    if found is None:
        if tables.inbox.name in facts.tables:
            problem = "The view for people does not exist, or this user has no right on it; workers do not need it."
            yield Finding(Severity.NOTE, "missing-view", name, problem, create)
    elif found.type != "VIEW":
        problem = f"A {found.type.lower()} has the name of the view for people."
        advice = "Give the view another name, or none."
        yield Finding(Severity.WARNING, "not-a-view", name, problem, advice=advice)
    elif tables.inbox.name in facts.tables and not _shows(found, tables.inbox):
        problem = "The view for people is not the one of this version; workers do not use it."
        yield Finding(Severity.WARNING, "other-view", name, problem, create)


def _shows(found: TableFacts, inbox: Table) -> bool:
    """Whether it is the view over `inbox`, as far as this user may see that."""
    view = found.view
    if tuple(found.columns) != _VIEW_COLUMNS or view is None or view.security != "INVOKER":
        return False
    return not view.definition or f"`{inbox.name.lower()}`" in view.definition.lower()


_VIEW_COLUMNS: Final = (
    "consumer_name",
    "event_id",
    "consumer_text",
    "event_text",
    "fingerprint_hex",
    "fingerprint_scheme",
    "processed_at",
)


def _versions(tables: InboxTables, facts: ServerFacts) -> Iterator[Finding]:
    if facts.versions is None:
        return
    name = tables.names.schema
    unrecorded = sorted(set(range(1, SCHEMA_VERSION + 1)) - facts.versions)
    if unrecorded:
        numbers = ", ".join(map(str, unrecorded))
        problem = f"Version {numbers} of the schema is not recorded as applied; `inbox schema apply` would apply it."
        yield Finding(Severity.NOTE, "unrecorded-version", name, problem, (version_rows(tables, unrecorded),))
    newer = max(facts.versions, default=0)
    if newer > SCHEMA_VERSION:
        problem = f"The database is at version {newer} of the schema, this package knows {SCHEMA_VERSION}."
        advice = "Update the package; while a deployment rolls on, nothing is to be done."
        yield Finding(Severity.NOTE, "newer-schema", name, problem, advice=advice)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One table as defined beside the same table as reported."""

    tables: InboxTables
    table: Table
    found: TableFacts

    def findings(self) -> list[Finding]:
        if self.found.type not in {"BASE TABLE", "SYSTEM VERSIONED"}:
            problem = f"It is a {self.found.type.lower()} and no table; a claim needs the key of a real one."
            advice = "Rename it, or give the table another name, and run `inbox schema apply`."
            return [self._finding(Severity.ERROR, "not-a-table", problem, advice=advice)]
        return [
            *self._storage(),
            *ColumnComparison(self.table, self.found.columns).findings(),
            *self._primary_key(),
            *self._unique_indexes(),
            *self._indexes(),
            *self._triggers(),
        ]

    def _finding(self, severity: Severity, code: str, problem: str, *sql: str, advice: str = "") -> Finding:
        return Finding(severity, code, self.table.name, problem, sql, advice)

    def _alter(self, change: str) -> str:
        return f"ALTER TABLE {qualified(self.table.name, self.table.schema)} {change}"

    def _storage(self) -> Iterator[Finding]:
        if (self.found.engine or "").lower() != "innodb":
            yield self._finding(
                Severity.ERROR,
                "engine",
                f"Its engine is {self.found.engine}, which has no transactions: a failed handler would leave its event "
                "marked as processed.",
                self._alter("ENGINE=InnoDB, ROW_FORMAT=DYNAMIC"),
            )
        elif (self.found.row_format or "").lower() != "dynamic":
            compressed = (self.found.row_format or "").lower() == "compressed"
            cost = "each page is packed and unpacked" if compressed else "768 octets of each long body stay in its page"
            yield self._finding(
                Severity.NOTE if compressed else Severity.WARNING,
                "row-format",
                f"Its row format is {self.found.row_format} and not DYNAMIC: {cost}.",
                self._alter("ROW_FORMAT=DYNAMIC"),
            )
        if self.found.collation is not None and not self.found.collation.startswith(f"{CHARSET}_"):
            yield self._finding(
                Severity.NOTE,
                "table-charset",
                f"The collation of the table is {self.found.collation}; a text column added later would follow it.",
                self._alter(f"DEFAULT CHARACTER SET {CHARSET} COLLATE {COLLATION}"),
            )

    def _primary_key(self) -> Iterator[Finding]:
        wanted = tuple(column.name for column in self.table.primary_key.columns)
        primary = next((index for index in self.found.indexes if index.name == "PRIMARY"), None)
        add = f"ADD PRIMARY KEY ({', '.join(wanted)})"
        if primary is None:
            problem = f"It has no primary key: ({', '.join(wanted)}) is what tells a duplicate."
            advice = "Remove rows that are in it twice, then:"
            yield self._finding(Severity.ERROR, "primary-key", problem, self._alter(add), advice=advice)
        elif primary.cut or set(primary.columns) != set(wanted):
            shown = ", ".join(primary.columns) + (", of which only a part is compared" if primary.cut else "")
            problem = f"Its primary key is ({shown}) and not ({', '.join(wanted)}): it takes different events for one."
            yield self._finding(Severity.ERROR, "primary-key", problem, self._alter(f"DROP PRIMARY KEY, {add}"))
        elif primary.columns != wanted:
            problem = f"Its primary key is ({', '.join(primary.columns)}), in this order: "
            problem += "one consumer's rows lie scattered among all others, and its clean-up reads them all."
            yield self._finding(Severity.WARNING, "key-order", problem, self._alter(f"DROP PRIMARY KEY, {add}"))

    def _unique_indexes(self) -> Iterator[Finding]:
        for index in self.found.indexes:
            if index.unique and index.name != "PRIMARY":
                yield self._finding(
                    Severity.ERROR,
                    "unique-index",
                    f"The unique index {index.name} ({', '.join(index.columns)}) is not ours: its error 1062 would be "
                    "taken for a duplicate, and the event lost.",
                    self._alter(f"DROP INDEX {quoted(index.name)}"),
                )

    def _indexes(self) -> Iterator[Finding]:
        names = {index.name for index in self.found.indexes}
        for wanted in sorted(self.table.indexes, key=lambda index: str(index.name)):
            columns = tuple(column.name for column in wanted.columns)
            if any(_serves(index, columns) for index in self.found.indexes):
                continue
            add = f"ADD INDEX `{wanted.name}` ({', '.join(columns)})"
            # In two statements: one ALTER that drops and adds the same index keeps it as it is, unusable.
            drop = [self._alter(f"DROP INDEX `{wanted.name}`")] if str(wanted.name) in names else []
            problem = f"No usable index on ({', '.join(columns)}): clean-up and lists scan the whole table."
            yield self._finding(Severity.WARNING, "index", problem, *drop, self._alter(add))

    def _triggers(self) -> Iterator[Finding]:
        for trigger in self.found.triggers:
            harm = self._harm(trigger)
            problem = f"The trigger {trigger.name} runs on {trigger.event}: "
            problem += harm or "its errors are taken for the table's, and it adds to every write."
            where = "" if self.table.schema is None else f"{quoted(self.table.schema)}."
            drop = f"DROP TRIGGER {where}{quoted(trigger.name)}"
            yield self._finding(Severity.WARNING if harm is None else Severity.ERROR, "trigger", problem, drop)

    def _harm(self, trigger: TriggerFacts) -> str | None:
        """What it breaks, beyond what every trigger costs."""
        if self.table is self.tables.inbox and trigger.event == "INSERT":
            return "an error 1062 of its own statements would be taken for a duplicate, and the event lost."
        if self.table is self.tables.attempt and trigger.event == "UPDATE":
            # On both servers the insert id of an answer is 0 where a trigger has run on the row that was updated.
            return (
                "the server then no longer answers what LAST_INSERT_ID(...) found, an open start, and an event that "
                "kills its process would do so for ever."
            )
        return None


def _serves(index: IndexFacts, columns: tuple[str, ...]) -> bool:
    return index.usable and not index.cut and index.columns[: len(columns)] == columns
