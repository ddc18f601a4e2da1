"""What two runs of the same events left, and how it differs. Nothing here asks anybody: it is values in, words out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from inbox.testing.lab.database import LabError, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Baseline", "Difference", "Observation", "baseline", "differences", "fates", "parse_ignored"]

#: Rows of one difference that are told; the rest is counted.
_MOST_TOLD: Final = 5
#: Characters of one value that are told.
_LONGEST: Final = 60

Column = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Observation:
    """What there is after a run.

    Attributes:
        tables: the adopter's own, by name.
        checks: what the adopter's queries answer, by their text.
        events: what has become of each event, by a name for it.
        calls: requests that came to the lab's HTTP servers, by the variable that named the server.
    """

    tables: Mapping[str, Rows] = field(default_factory=dict)
    checks: Mapping[str, Rows] = field(default_factory=dict)
    events: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, Rows] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Baseline:
    """What quiet runs left, and which columns they show to be different each time.

    Attributes:
        quiet: what is compared with.
        ignored: columns that are not compared, by table; with why.
    """

    quiet: Observation
    ignored: Mapping[Column, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """One place in which a run differs from the quiet one.

    Attributes:
        where: such as `table entry`, `event job-1`, `check SELECT …`, `HTTP MAIL_URL`.
        columns: what is compared there.
        missing: rows of the quiet run that this one has not, and how many of each.
        added: rows that this run has besides.
    """

    where: str
    columns: tuple[str, ...] = ()
    missing: Counter[tuple[object, ...]] = field(default_factory=Counter)
    added: Counter[tuple[object, ...]] = field(default_factory=Counter)

    @property
    def changed(self) -> tuple[str, ...]:
        """The columns that differ, where the rows can be told to be the same in number."""
        if not self.missing or self.missing.total() != self.added.total():
            return ()
        pairs = zip(zip(*_listed(self.missing), strict=True), zip(*_listed(self.added), strict=True), strict=True)
        return tuple(
            column for column, (one, other) in zip(self.columns, pairs, strict=True) if Counter(one) != Counter(other)
        )

    def lines(self) -> list[str]:
        """The difference in words: a headline, and the first rows."""
        unit = "request" if self.where.startswith("HTTP ") else "row"
        told = [f"{count} {unit}{'s' * (count != 1)} {word}" for count, word in self._counts()]
        changed = f" (column {', '.join(self.changed)})" if self.changed else ""
        return [
            f"{self.where}: {', '.join(told)}{changed}",
            *_rows("- quiet only", self.columns, self.missing),
            *_rows("+ here only ", self.columns, self.added),
        ]

    def as_dict(self) -> dict[str, object]:
        """As one JSON object."""
        return {
            "where": self.where,
            "columns": list(self.columns),
            "changed": list(self.changed),
            "missing": _told(self.missing),
            "missing_rows": self.missing.total(),
            "added": _told(self.added),
            "added_rows": self.added.total(),
        }

    def _counts(self) -> list[tuple[int, str]]:
        both = ((self.missing.total(), "of the quiet run missing"), (self.added.total(), "more than in the quiet run"))
        return [(count, word) for count, word in both if count]


# ------------------------------------------------------------------ the quiet run
def parse_ignored(given: Iterable[str]) -> dict[Column, str]:
    """Columns named by `table.column`.

    Raises:
        ValueError: one names no column.
    """
    ignored: dict[Column, str] = {}
    for text in given:
        table, dot, column = text.partition(".")
        if not (table and dot and column):
            raise ValueError(f"{text!r}: write table.column")
        ignored[table, column] = "you said so"
    return ignored


def baseline(
    first: Observation,
    second: Observation,
    ignored: Mapping[Column, str] | None = None,
    surrogates: Iterable[Column] = (),
) -> Baseline:
    """What is to be compared with, from two quiet runs of the same events.

    Args:
        first: what the one left.
        second: what the other one left.
        ignored: columns that are not to be compared, and why.
        surrogates: columns whose numbers the database draws: they have gaps after whatever was undone.

    Returns:
        With what the two runs show to be different each time, such as the time of day, among the ignored columns.

    Raises:
        LabError: they differ in more than columns, so nothing can be compared with them; or a column is to be ignored
            that is not there.
    """
    for table, column in ignored or ():
        if column not in first.tables.get(table, Rows((), Counter())).columns:
            raise LabError(f"{table}.{column} cannot be ignored: there is no such column in the tables to be compared")
    known = dict.fromkeys(sorted(surrogates), "the database draws it") | dict(ignored or {})
    for table in sorted({*first.tables, *second.tables}):
        one, other = _without(first.tables.get(table), table, known), _without(second.tables.get(table), table, known)
        if one.rows == other.rows:
            continue
        unsteady = _unsteady(one, other)
        known |= {(table, column): "two quiet runs differ in it" for column in unsteady}
        one, other = _without(first.tables.get(table), table, known), _without(second.tables.get(table), table, known)
        if one.rows != other.rows:
            raise _not_steady(Difference(f"table {table}", one.columns, one.rows - other.rows, other.rows - one.rows))
    rest = differences(Baseline(_apart(first)), _apart(second))
    if rest:
        raise _not_steady(rest[0])
    return Baseline(first, known)


def _unsteady(one: Rows, other: Rows) -> list[str]:
    if one.rows.total() != other.rows.total() or not one.rows:
        return []
    pairs = zip(zip(*one.rows.elements(), strict=True), zip(*other.rows.elements(), strict=True), strict=True)
    return [name for name, (left, right) in zip(one.columns, pairs, strict=True) if Counter(left) != Counter(right)]


def _apart(observation: Observation) -> Observation:
    return Observation({}, observation.checks, observation.events, observation.calls)


def _not_steady(difference: Difference) -> LabError:
    return LabError(
        "two quiet runs of the same events differ, without any kill, so there is nothing to compare with:\n"
        + "\n".join(difference.lines())
        + "\nIgnore a column (--ignore table.column, ignore=[…]), or compare with queries of your own (--check)"
    )


# ------------------------------------------------------------------ comparing
def differences(known: Baseline, here: Observation) -> list[Difference]:
    """Where a run differs from the quiet one; the columns that are ignored do not count."""
    quiet = known.quiet
    found = [
        Difference(f"event {name}", ("became",), Counter([(word,)]), Counter([(here.events.get(name, "unknown"),)]))
        for name, word in quiet.events.items()
        if here.events.get(name) != word
    ]
    for kind, before, after in (
        ("table", quiet.tables, here.tables),
        ("check", quiet.checks, here.checks),
        ("HTTP", quiet.calls, here.calls),
    ):
        for name in sorted({*before, *after}):
            one = _without(before.get(name), name, known.ignored if kind == "table" else {})
            other = _without(after.get(name), name, known.ignored if kind == "table" else {})
            columns = one.columns or other.columns
            if one.rows != other.rows:
                found.append(Difference(f"{kind} {name}", columns, one.rows - other.rows, other.rows - one.rows))
    return found


def _without(given: Rows | None, table: str, ignored: Mapping[Column, str]) -> Rows:
    if given is None:
        return Rows((), Counter())
    kept = [place for place, column in enumerate(given.columns) if (table, column) not in ignored]
    if len(kept) == len(given.columns):
        return given
    rows: Counter[tuple[object, ...]] = Counter()
    for row, count in given.rows.items():
        rows[tuple(row[place] for place in kept)] += count
    return Rows(tuple(given.columns[place] for place in kept), rows)


# ------------------------------------------------------------------ in words
def fates(events: Mapping[str, str]) -> str:
    """In brackets, what has become of events that were not applied; "" where all were.

    Args:
        events: what has become of each, by a name for it.
    """
    others = [f"{shown(name)} is {word}" for name, word in events.items() if not word.startswith("applied")]
    more = f", and {len(others) - _MOST_TOLD} more" * (len(others) > _MOST_TOLD)
    return f" ({', '.join(others[:_MOST_TOLD])}{more})" if others else ""


def _rows(mark: str, columns: Sequence[str], rows: Counter[tuple[object, ...]]) -> list[str]:
    listed = _listed(rows)
    lines = [
        f"  {mark}  " + ", ".join(f"{name}={shown(value)}" for name, value in zip(columns, row, strict=True))
        for row in listed[:_MOST_TOLD]
    ]
    return lines + ([f"  {mark}  and {len(listed) - _MOST_TOLD:,} more"] if len(listed) > _MOST_TOLD else [])


def _told(rows: Counter[tuple[object, ...]]) -> list[list[str]]:
    return [[shown(value) for value in row] for row in _listed(rows)[:_MOST_TOLD]]


def _listed(rows: Counter[tuple[object, ...]]) -> list[tuple[object, ...]]:
    return sorted(rows.elements(), key=repr)


def shown(value: object) -> str:
    """A value for people: what would steer a terminal is written out, what is long is cut."""
    text = value if isinstance(value, str) else repr(value) if isinstance(value, bytes) else str(value)
    text = "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
