"""What `inbox status` found, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from inbox.cli.options import printable
from inbox.core.figures import MOST_COUNTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from inbox.adapters.rabbitmq import QueueDepth
    from inbox.core.figures import Figures, Tally, WorkerFigures

#: Seconds after which a silent worker is history: whoever had to look has looked.
GONE_AFTER: Final = 86_400.0

_LABEL: Final = 13
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_THOUSAND: Final = 1000
_TENTH_OF_A_PERCENT: Final = 0.001


@dataclass(frozen=True, slots=True)
class Status:
    """What was found at one moment.

    Attributes:
        figures: of each consumer.
        queues: of the broker, if one was asked.
        silent_after: seconds after which a worker counts as silent.
    """

    figures: Sequence[Figures]
    queues: Sequence[QueueDepth]
    silent_after: float

    @property
    def attention(self) -> list[str]:
        """What needs a person, a sentence each; empty where all is quiet."""
        return [sentence for each in self.figures for sentence in self._troubles_of(each)] + [
            sentence for queue in self.queues for sentence in _troubles_in(queue)
        ]

    def _troubles_of(self, figures: Figures) -> Iterator[str]:
        name = printable(figures.consumer)
        if open_ := figures.quarantine.open:
            yield f"{name}: {_many(open_, 'event is', 'events are')} in quarantine, undecided: inbox quarantine list"
        for worker in filter(self._is_silent, figures.workers):
            where = f"{printable(worker.report.host)} (process {worker.report.pid})"
            yield f"{name}: the worker on {where} has not reported for {_span(worker.age)}: is it alive?"

    def _is_silent(self, worker: WorkerFigures) -> bool:
        return worker.is_silent(self.silent_after) and worker.age <= GONE_AFTER

    # -------------------------------------------------------- for programs
    def as_dict(self) -> dict[str, Any]:
        """As one JSON object; its keys are a promise, written down in the help of the command."""
        return {
            "ok": not self.attention,
            "attention": self.attention,
            "consumers": [self._as_dict(figures) for figures in self.figures],
            "queues": [asdict(queue) for queue in self.queues],
        }

    def _as_dict(self, figures: Figures) -> dict[str, Any]:
        inbox, quarantine = figures.inbox, figures.quarantine
        return {
            "consumer": figures.consumer,
            "at": _iso(figures.at),
            "schema_version": figures.schema_version,
            "outcomes": figures.counts,
            "inbox": {
                "last_hour": inbox.last_hour,
                "last_day": inbox.last_day,
                "oldest": _iso(inbox.oldest),
                "newest": _iso(inbox.newest),
                "rows": inbox.rows,
                "table_rows_estimate": inbox.table_rows,
            },
            "attempts": asdict(figures.attempts) | {"oldest": _iso(figures.attempts.oldest)},
            "quarantine": {
                "open": quarantine.open,
                "oldest_open": _iso(quarantine.oldest_open),
                "share": round(quarantine.share, 6),
                "bound_rows": quarantine.bound_rows,
                "bound_bytes": quarantine.bound_octets,
                "by_state": _tallies(quarantine.by_state),
                "by_reason": _tallies(quarantine.by_reason),
            },
            "workers": [self._worker_as_dict(worker) for worker in figures.workers],
        }

    def _worker_as_dict(self, worker: WorkerFigures) -> dict[str, Any]:
        report = worker.report
        return {
            "id": report.worker_id.hex(),
            "host": report.host,
            "pid": report.pid,
            "state": report.state,
            "started_at": _iso(worker.started_at),
            "seen_at": _iso(worker.seen_at),
            "age": round(worker.age, 3),
            "silent": self._is_silent(worker),
            "counts": dict(report.counts),
        }

    # -------------------------------------------------------- for people
    def lines(self) -> Iterator[str]:
        """As text."""
        if not self.figures:
            yield "No consumer has any rows yet."
        for figures in self.figures:
            yield from self._lines_of(figures)
        for queue in self.queues:
            if queue.role != "retry" or queue.ready:  # there is one for each delay, and nearly all are empty
                yield _line("queue", _queue(queue))

    def _lines_of(self, figures: Figures) -> Iterator[str]:
        yield f"{printable(figures.consumer)} ({figures.at:%Y-%m-%d %H:%M:%S} UTC, schema {figures.schema_version})"
        counts = (f"{printable(name)} {number:,}" for name, number in figures.counts.items())
        yield _line("processed", _processed(figures))
        yield _line("outcomes", ", ".join(counts) or "no worker has reported any")
        yield _line("in trouble", _trouble(figures))
        yield _line("quarantine", _quarantine(figures))
        for reason, tally in sorted(figures.quarantine.by_reason.items()):
            yield _line("", f"{printable(reason)}: {_tally(tally)}")
        yield from self._workers(figures.workers)

    def _workers(self, workers: Sequence[WorkerFigures]) -> Iterator[str]:
        label = "workers"
        for worker in workers:
            if not worker.is_stopped and worker.age <= GONE_AFTER:
                report = worker.report
                mark = ", SILENT" if self._is_silent(worker) else ""
                told = f"{printable(report.state)}, reported {_span(worker.age)} ago{mark}"
                yield _line(label, f"{printable(report.host)} (process {report.pid}) {told}")
                label = ""
        stopped = sum(worker.is_stopped for worker in workers)
        gone = sum(not worker.is_stopped and worker.age > GONE_AFTER for worker in workers)
        if rest := ", ".join(
            f"{number} {what}"
            for number, what in ((stopped, "stopped"), (gone, "silent for more than a day"))
            if number
        ):
            yield _line(label, rest)
        elif label:
            yield _line(label, "none has reported within a week")


def _troubles_in(queue: QueueDepth) -> Iterator[str]:
    name = printable(queue.name)
    if queue.role == "main" and queue.ready is None:
        yield f"queue {name} is not there: a worker declares it, or inbox run says why not"
    elif queue.role == "main" and queue.ready and not queue.consumers:
        yield f"queue {name}: {_many(queue.ready, 'event waits', 'events wait')} and nobody consumes: inbox run"
    elif queue.role == "dead" and queue.ready:
        yield (
            f"queue {name}: {_many(queue.ready, 'dead letter waits', 'dead letters wait')}: a worker that consumes "
            "this queue puts them into quarantine"
        )


def _processed(figures: Figures) -> str:
    inbox = figures.inbox
    if inbox.oldest is None or inbox.newest is None:
        return "nothing"
    most = None if inbox.rows is not None else MOST_COUNTED
    spans = f"{_counted(inbox.last_hour, most)} in the last hour, {_counted(inbox.last_day, most)} in the last day"
    ages = f"newest {_ago(figures, inbox.newest)}, oldest {_ago(figures, inbox.oldest)}"
    rows = f"about {inbox.table_rows:,} rows in the table" if inbox.rows is None else _many(inbox.rows, "row", "rows")
    return f"{spans}; {ages}; {rows}"


def _trouble(figures: Figures) -> str:
    attempts = figures.attempts
    if attempts.oldest is None:
        return "nothing"
    return (
        f"{_many(attempts.events, 'event', 'events')}, oldest {_ago(figures, attempts.oldest)}; "
        f"runs failed {attempts.failed:,}, crashed {attempts.crashed:,}; released {attempts.released:,}; "
        f"handlers started and not ended {attempts.open_starts:,}"
    )


def _quarantine(figures: Figures) -> str:
    quarantine = figures.quarantine
    if not quarantine.by_state:
        return "empty"
    states = ", ".join(f"{printable(state)} {_tally(tally)}" for state, tally in sorted(quarantine.by_state.items()))
    oldest = "" if quarantine.oldest_open is None else f"; oldest open {_ago(figures, quarantine.oldest_open)}"
    share = (
        "less than 0.1 %" if quarantine.share < _TENTH_OF_A_PERCENT else f"{quarantine.share:.1%}".replace("%", " %")
    )
    return f"{states}{oldest}; {share} of its bounds"


def _queue(queue: QueueDepth) -> str:
    name = printable(queue.name)
    role = {"main": "", "dead": " (dead letters)", "retry": " (copies that wait)"}[queue.role]
    if queue.ready is None:
        return f"{name}{role}: not there"
    consumers = "" if queue.role == "retry" else f", {_many(queue.consumers, 'consumer', 'consumers')}"
    return f"{name}{role}: {queue.ready:,} ready{consumers}"


# ------------------------------------------------------------------ words
def _line(label: str, text: str) -> str:
    return f"  {label:<{_LABEL}}{text}"


def _many(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def _counted(number: int, most: int | None) -> str:
    return f"{number:,} or more" if most is not None and number >= most else f"{number:,}"


def _tally(tally: Tally) -> str:
    return f"{tally.rows:,} ({_size(tally.octets)})"


def _tallies(tallies: Mapping[str, Tally]) -> dict[str, dict[str, int]]:
    return {word: {"rows": tally.rows, "bytes": tally.octets} for word, tally in sorted(tallies.items())}


def _size(octets: float) -> str:
    for unit in ("B", "kB", "MB"):
        if octets < _THOUSAND:
            return f"{octets:.0f} {unit}"
        octets /= _THOUSAND
    return f"{octets:.1f} GB"


def _ago(figures: Figures, time: datetime) -> str:
    return f"{_span((figures.at - time).total_seconds())} ago"


def _span(seconds: float) -> str:
    """The largest whole unit: who looks wants to know whether it is minutes or days."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "0 s"


def _iso(time: datetime | None) -> str | None:
    return None if time is None else f"{time.isoformat()}Z"
