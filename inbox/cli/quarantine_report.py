"""What `inbox quarantine` shows to people: a table, one entry whole, and what came of a command."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from inbox.cli.options import printable
from inbox.cli.quarantine_file import entry_as_dict
from inbox.core.typed_json import dump_headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from inbox.core.quarantine import QuarantineCount, QuarantinedDelivery, QuarantineEntry, ReplayReport

_COLUMNS = ("digest", "state", "reason", "runs", "seen", "first refused", "last refused", "octets", "type", "id")


def print_table(entries: Sequence[QuarantineEntry]) -> None:
    """One line an entry, without a word of its payload."""
    table = Table(box=None, pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, overflow="fold", justify="right" if name in ("runs", "seen", "octets") else "left")
    for entry in entries:
        # As it is: brackets in a name are no markup.
        table.add_row(*(Text(cell) for cell in _cells(entry)))
    Console().print(table)


def _cells(entry: QuarantineEntry) -> tuple[str, ...]:
    return (
        entry.label,
        entry.state,
        printable(entry.reason),
        str(entry.attempts),
        str(entry.times_seen),
        time_text(entry.first_at),
        time_text(entry.last_at),
        f"{entry.total_bytes:,}",
        printable(entry.event_type or "-"),
        id_text(entry),
    )


def id_text(entry: QuarantineEntry) -> str:
    """The event's id, for a terminal."""
    return "-" if entry.event_id is None else printable(entry.event_id.decode("utf-8", "backslashreplace"))


def time_text(time: datetime) -> str:
    """To the second, in UTC."""
    return f"{time:%Y-%m-%d %H:%M:%S}"


def entry_lines(entry: QuarantineEntry) -> Iterator[str]:
    """All that is known of one entry."""
    decided = "" if entry.state_at is None else f" since {time_text(entry.state_at)}"
    note = "" if entry.state_note is None else f": {printable(entry.state_note)}"
    for name, value in (
        ("digest", entry.digest.hex()),
        ("state", f"{entry.state}{decided}{note}"),
        ("reason", printable(entry.reason)),
        ("detail", printable(entry.detail)),
        ("id", id_text(entry)),
        ("type", printable(entry.event_type or "-")),
        ("source", printable(entry.source or "-")),
        ("exchange", printable(entry.origin.exchange)),
        ("routing key", printable(entry.origin.routing_key)),
        ("queue", printable(entry.queue)),
        ("refused", f"{entry.times_seen} times, first {time_text(entry.first_at)}, last {time_text(entry.last_at)}"),
        ("runs", str(entry.attempts)),
        ("octets", f"{entry.body_bytes:,} of body, {entry.total_bytes:,} with headers"),
    ):
        yield f"{name:<12} {value}".rstrip()
    for line in entry.history:
        at = "…" if line.at is None else time_text(line.at)
        yield f"{'history':<12} {at} {line.kind}: {printable(line.words)}"


def header_lines(whole: QuarantinedDelivery) -> Iterator[str]:
    """Headers and properties, one a line, each as Python writes it: its type shows, and nothing steers a terminal."""
    delivery = whole.delivery
    yield f"{'content type':<12} {printable(delivery.content_type or '-')}"
    for kind, members in (("header", delivery.headers), ("property", delivery.properties)):
        for name, value in members.items():
            yield f"{kind:<12} {printable(name)}: {_shown(value)}"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except RecursionError:
        return "nested too deeply to be shown; --json has it"


def body_text(body: bytes, *, is_terminal: bool) -> str:
    """The body as text, or as base64 where it is none."""
    try:
        text = body.decode("utf-8", "strict")
    except UnicodeDecodeError:
        return base64.b64encode(body).decode("ascii")
    if not is_terminal:
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def whole_as_dict(whole: QuarantinedDelivery, *, with_body: bool) -> dict[str, Any]:
    """One entry for programs: headers and properties as they are stored, the body only where it is asked for."""
    delivery = whole.delivery
    shown: dict[str, Any] = {
        **entry_as_dict(whole.entry),
        "content_type": delivery.content_type,
        "headers": json.loads(dump_headers(delivery.headers)),
        "properties": json.loads(dump_headers(delivery.properties)),
    }
    if with_body:
        try:
            shown["body"] = {"text": delivery.body.decode("utf-8", "strict")}
        except UnicodeDecodeError:
            shown["body"] = {"base64": base64.b64encode(delivery.body).decode("ascii")}
    return shown


def counts_as_list(counts: Sequence[QuarantineCount]) -> list[dict[str, Any]]:
    """Sums for programs."""
    return [
        {
            "state": each.state.value,
            "reason": each.reason,
            "entries": each.entries,
            "octets": each.octets,
            "oldest": each.oldest.isoformat(),
        }
        for each in counts
    ]


def count_lines(counts: Sequence[QuarantineCount]) -> Iterator[str]:
    """Sums for people."""
    for each in counts:
        yield (
            f"{each.entries:>9,}  {each.state} {printable(each.reason)}, {each.octets:,} octets, "
            f"the oldest of {time_text(each.oldest)}"
        )


def replay_text(report: ReplayReport) -> str:
    """What came of a replay, in one line."""
    done = (
        f"{report.applied:,} applied, {report.duplicates:,} applied before, {report.ignored:,} ignored by policy, "
        f"{report.quarantined_again:,} refused again, {report.kept:,} kept as they were"
    )
    return f"{entries_text(report.selected)} replayed: {done}."


def entries_text(number: int) -> str:
    """So many entries, in words."""
    return f"{number:,} {'entry' if number == 1 else 'entries'}"
