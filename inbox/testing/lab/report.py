"""What a crash test found, for programs and for people: one JSON object, and one HTML page that needs nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any, Final

from inbox.core.crashpoints import crash_points
from inbox.testing.lab.matrix import unreached

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from inbox.testing.lab.matrix import Matrix, Result

__all__ = ["Report", "as_html"]


@dataclass(frozen=True, slots=True)
class Report:
    """What a crash test found.

    Attributes:
        matrix: that was run.
        target: `module:attribute`.
        planned: how many scenarios there were to be.
        seconds: how long all of it took.
    """

    matrix: Matrix
    target: str
    planned: int
    seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether no scenario is missing."""
        return len(self.matrix.results) == self.planned

    @property
    def is_safe(self) -> bool:
        """Whether nothing was found."""
        return not self.matrix.unsafe

    def as_dict(self) -> dict[str, Any]:
        """As one JSON object; its keys are a promise, written down in the help of the command."""
        matrix, quiet = self.matrix, self.matrix.known.quiet
        names = {name for name, _ in matrix.seen}
        return {
            "target": self.target,
            "database": matrix.lab.database.name,
            "queue": matrix.lab.queue.name,
            "events": len(matrix.messages),
            "safe": self.is_safe and self.is_complete,
            "complete": self.is_complete,
            "seconds": round(self.seconds, 3),
            "quiet": {
                "seconds": round(matrix.quiet_seconds, 3),
                "events": dict(quiet.events),
                "rows": {name: rows.rows.total() for name, rows in quiet.tables.items()},
                "calls": {name: rows.rows.total() for name, rows in quiet.calls.items()},
                "ignored": {f"{table}.{column}": why for (table, column), why in matrix.known.ignored.items()},
            },
            "checks": list(matrix.checks),
            "reached": [str(point) for point in crash_points() if str(point) in names],
            "not_reached": [str(point) for point in unreached(matrix.seen, matrix.lab.queue.never)],
            "scenarios": [result.as_dict() for result in matrix.results],
        }


# ------------------------------------------------------------------ HTML
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --good: #2a7f3f; --bad: #b3261e; --dim: #8a8a8a; }
@media (prefers-color-scheme: dark) { :root { --good: #6fcf87; --bad: #ff8a80; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { margin: .3rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
.good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; } .dim { color: var(--dim); }
.verdict { font-size: 1.1rem; border-left: .3rem solid; padding-left: .8rem; }
ul.points { columns: 3; padding-left: 1.1rem; }
"""


def as_html(report: Report, at: datetime | None = None) -> str:
    """One page, which loads nothing from anywhere.

    Args:
        report: what was found.
        at: when, aware; None is now.
    """
    title = f"Crash test of {report.target}"
    body = "\n".join(_body(report, at or datetime.now(UTC)))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _body(report: Report, at: datetime) -> Iterator[str]:
    told, matrix = report.as_dict(), report.matrix
    yield _verdict(report)
    facts = {
        "database": told["database"],
        "queue": told["queue"],
        "events": told["events"],
        "kills": f"{len(matrix.results)} of {report.planned}",
        "took": f"{report.seconds:.0f} s, {matrix.quiet_seconds:.0f} s of them for the quiet runs",
        "at": f"{at:%Y-%m-%d %H:%M} UTC",
    }
    yield "<table>" + "".join(f"<tr><th>{_e(name)}<td>{_e(value)}" for name, value in facts.items()) + "</table>"
    yield "<h2>Kills</h2>"
    yield "<table><tr><th>point<th>event type<th class=number>workers<th>outcome<th class=number>seconds"
    for result in matrix.results:
        yield from _row(result)
    yield "</table>"
    yield "<h2>The quiet run</h2>"
    yield "<p>Without a kill and without duplicates. Every other run is compared with it.</p>"
    quiet = told["quiet"]
    yield _list({**{f"event {name}": word for name, word in quiet["events"].items()}})
    yield _list({f"table {name}": f"{count} rows" for name, count in quiet["rows"].items()})
    yield _list({f"HTTP {name}": f"{count} requests" for name, count in quiet["calls"].items()})
    if quiet["ignored"]:
        yield "<p>Not compared:</p>" + _list(quiet["ignored"])
    if told["not_reached"]:
        yield "<h2>Not reached by these events</h2>"
        yield "<p>Other events would lead there: one that a handler rejects, one that fails at first.</p>"
        yield "<ul class=points>" + "".join(f"<li><code>{_e(point)}</code>" for point in told["not_reached"]) + "</ul>"


def _verdict(report: Report) -> str:
    unsafe = report.matrix.unsafe
    if unsafe:
        points = ", ".join(dict.fromkeys(str(result.scenario.point) for result in unsafe))
        return (
            f'<p class="verdict bad">Not safe: {len(unsafe)} of {len(report.matrix.results)} kills left something '
            f"else than the quiet run, at {_e(points)}.</p>"
        )
    if not report.is_complete:
        return '<p class="verdict bad">Ended early: nothing was found in what was run.</p>'
    return '<p class="verdict good">The same everywhere: no kill left anything else than the quiet run.</p>'


def _row(result: Result) -> Iterator[str]:
    scenario = result.scenario
    mark = "good" if result.outcome == "same" else "dim" if result.is_safe else "bad"
    yield (
        f"<tr><td><code>{_e(scenario.point)}</code><td>{_e(scenario.event_type or 'any')}"
        f"<td class=number>{scenario.workers}<td><span class={mark}>{_e(result.outcome)}</span>"
        f"{_details(result)}<td class=number>{result.seconds:.1f}"
    )


def _details(result: Result) -> str:
    lines = [line for difference in result.differences for line in difference.lines()]
    lines += [result.detail] if result.detail else []
    return "".join(["<pre>", _e("\n".join(lines)), "</pre>"]) if lines else ""


def _list(entries: dict[str, Any]) -> str:
    if not entries:
        return ""
    items: Sequence[str] = [f"<li><code>{_e(name)}</code>: {_e(value)}" for name, value in entries.items()]
    return "<ul>" + "".join(items) + "</ul>"


def _e(value: object) -> str:
    return escape(str(value))
