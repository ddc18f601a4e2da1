"""Results for people: a table in Markdown, which is readable in a terminal as well. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

_UNKNOWN: Final = "-"
_COLUMNS: Final = (
    ("consumer", "id"),
    ("events/s", "msg_per_s"),
    ("of raw", "ratio_to_raw"),
    ("from … to", ""),
    ("p50 ms", "p50_ms"),
    ("p99 ms", "p99_ms"),
    ("CPU µs", "cpu_us_per_msg"),
    ("database CPU µs", "database_cpu_us_per_msg"),
    ("broker CPU µs", "broker_cpu_us_per_msg"),
    ("packets", "db_commands_per_msg"),
    ("round trips", "db_round_trips_per_msg"),
    ("acks", "acks_per_msg"),
    ("RSS MiB", "peak_rss_mb"),
)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A table for each load. Columns in which nothing is known are left out."""
    parts = []
    for (workload, in_flight), group in groupby(rows, key=lambda row: (row["workload"], row["in_flight"])):
        listed = list(group)
        columns = [column for column in _COLUMNS if any(_cell(row, column[1]) != _UNKNOWN for row in listed)]
        lines = [[title for title, _ in columns], *([_cell(row, key) for _, key in columns] for row in listed)]
        wrongs = [f"\n{row['id']} does not count: {row['wrong']}\n" for row in listed if row["wrong"] is not None]
        parts.append(f"### {workload}, {in_flight} in flight\n\n{_aligned(lines)}" + "".join(wrongs))
    return "\n".join(parts)


def _cell(row: dict[str, Any], key: str) -> str:
    if not key:
        known = row["ratio_low"] is not None and row["rounds"] > 1
        return f"{row['ratio_low']:.2f} … {row['ratio_high']:.2f}" if known else _UNKNOWN
    value = row[key]
    if value is None:
        return _UNKNOWN
    if key == "ratio_to_raw":
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    """Names to the left, figures to the right."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    dashes = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    head, *body = lines
    return "\n".join(_padded(line, widths) for line in (head, dashes, *body)) + "\n"


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    name, *figures = line
    cells = [name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(figures, widths[1:], strict=True))]
    return f"| {' | '.join(cells)} |"
