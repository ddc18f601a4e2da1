"""`inbox crash-test`: workers of a target are killed at every point, and what they leave is compared."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import typer

from inbox.cli.options import ATTENTION, INTERRUPTED, OK, UNUSABLE, explaining, printable, stop
from inbox.cli.publish import RoutingKeyOption, StructuredOption
from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection

    from inbox.core.cloudevents import Mode
    from inbox.testing.lab.matrix import Matrix, Result, Scenario
    from inbox.testing.lab.report import Report

_COMMAND: Final = "crash-test"
#: Seconds that take the place of longer waits between attempts.
_HURRY: Final = 0.1
_MOST_WORKERS: Final = 16
#: Kills that are told of whole; of the others the report has all.
_MOST_TOLD: Final = 5
#: What has become of an event that a handler wanted in quarantine.
_REJECTED: Final = "quarantined as rejected"


_TargetArgument = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="Your Inbox, or a function that makes it, as module:attribute.", show_default=False
    ),
]
_EventsOption = Annotated[
    Path,
    typer.Option(
        "--events",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="JSONL: a CloudEvent in JSON format on each line.",
    ),
]
_CheckOption = Annotated[
    list[str] | None,
    typer.Option(
        "--check", metavar="SQL", help="Compare what this query answers, and not the tables. May be repeated."
    ),
]
_PointsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--points", metavar="POINT,…", help="Only these, such as before:commit,after:commit.", show_default=False
    ),
]
_WorkersOption = Annotated[
    str, typer.Option("--workers", metavar="N,…", help="How many race for the events; a run for each number.")
]
_IgnoreOption = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="TABLE.COLUMN", help="Do not compare this column. May be repeated."),
]
_HttpOption = Annotated[
    list[str] | None,
    typer.Option(
        "--http",
        metavar="VARIABLE",
        help="Let this variable of the environment name a HTTP server that answers everything, and compare the "
        "requests too. May be repeated.",
    ),
]
_ExchangeOption = Annotated[
    str | None,
    typer.Option("--exchange", metavar="NAME", help="Where to; else to the queue itself.", show_default=False),
]
_TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=1.0, metavar="SECONDS", help="For the events of one run to end.")
]
_KeepDelaysOption = Annotated[
    bool,
    typer.Option("--keep-delays", help="Wait between attempts as your policy says, and not a tenth of a second."),
]
_StrictOption = Annotated[
    bool, typer.Option("--strict", help="A point of --points that the events do not reach counts as a difference.")
]
_DisposableOption = Annotated[
    bool,
    typer.Option(
        "--disposable", help="Everything in the target's database and queue may be deleted, whatever their names."
    ),
]
_JsonOption = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write a report for programs.")]
_HtmlOption = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a report for people.")]


def crash_test(
    target: _TargetArgument,
    *,
    events: _EventsOption,
    check: _CheckOption = None,
    points: _PointsOption = None,
    workers: _WorkersOption = "1,3",
    ignore: _IgnoreOption = None,
    http: _HttpOption = None,
    exchange: _ExchangeOption = None,
    routing_key: RoutingKeyOption = None,
    structured: StructuredOption = False,
    timeout: _TimeoutOption = 60.0,
    keep_delays: _KeepDelaysOption = False,
    strict: _StrictOption = False,
    disposable: _DisposableOption = False,
    json: _JsonOption = None,
    html: _HtmlOption = None,
) -> None:
    """Kill your worker at every point, and see whether your tables are the same as without.

    It works in the database and the queue that TARGET names, so give it servers for tests: whatever is in the queue is
    deleted, and the tables are put back, before each run and at the end, as they were found. A name without the word
    `test` or `lab` in it is refused, unless --disposable is given. In the place of a leased subscription's platform it
    starts one of its own, and asks the real one for nothing; that needs the extra `orbit-server`.

    First the events are run quietly, twice: without a kill and without duplicates. What differs between these two, such
    as the time of day, is not compared, nor are numbers that the database draws. Then for each point of the lifecycle
    that the events reach, a worker dies there of SIGKILL, and another one does the rest; once alone, with each event
    sent twice, and once among three that race for three of each. Where a handler has run, each type of event gets a
    kill of its own. What is left is compared: the tables that are not the inbox's, what has become of each event, and
    with --http what was sent.

    Exit codes: 0 the same everywhere; 1 a difference, or something did not end in time; 2 nothing can be said: a wrong
    option, no servers, two quiet runs that differ, or no event that any handler could apply; 130 interrupted, with
    nothing found so far.

    Ctrl-C ends it after the kill that is under way, and puts the tables back. If it is killed itself, the next one puts
    them back. INBOX_TEST_LOG=INFO lets the workers say more.

    Example: inbox crash-test billing.app:inbox --events events.jsonl

    Example: inbox crash-test billing.app:inbox --events events.jsonl --check "SELECT tenant, cents FROM account"
    --points before:commit,after:commit --workers 3 --html report.html

    **--json** writes one object: `target`, `database`, `queue`, `events`, `safe`, `complete` (nothing was left out),
    `seconds`, `quiet` (`events`, `rows`, `calls`, `ignored`), `checks`, `reached`, `not_reached`, and `scenarios`, each
    with `point`, `event_type`, `workers`, `outcome` (`same`, `different`, `unsettled`, `not reached`), `seconds`,
    `differences` (`where`, `columns`, `changed`, `missing`, `added`) and `detail`.
    """
    # Late: testing brings much, and no other command needs it.
    from inbox.testing.lab import Lab, Matrix  # noqa: PLC0415 - see above
    from inbox.testing.lab.events import read_events  # noqa: PLC0415 - see above
    from inbox.testing.lab.queues import require_point  # noqa: PLC0415 - see above

    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # it tells of connections that we kill
    os.environ.setdefault("INBOX_TEST_LOG", "ERROR")  # of the workers: what they say of events is in the report
    with explaining(_COMMAND):
        wanted, racing, ignored = _points(points), _numbers(workers), tuple(_ignored(ignore))
        for option, file in (("--json", json), ("--html", html)):
            if file is not None and (file.is_dir() or not file.parent.is_dir()):  # now, and not after minutes of kills
                raise ConfigurationError(f"{option} {file}: no file can be written there; name one in a folder that is")
        delay = None if keep_delays else _HURRY
        lab = Lab(target, disposable=disposable, timeout=timeout, longest_delay=delay, http=http or ())
        for point in wanted or ():
            require_point(lab.queue, point)
        mode: Mode = "structured" if structured else "binary"
        messages = read_events(events, mode, exchange, routing_key, lab.queue.fit)
        matrix = Matrix(lab, messages, tuple(check or ()), ignored)
        report = _run(matrix, racing, wanted)
        _write(report, json, html)
    _tell_end(report, wanted)
    is_missing = strict and bool({*(wanted or ())} - {CrashPoint.parse(name) for name, _ in matrix.seen})
    if matrix.unsafe or (is_missing and report.is_complete):
        raise typer.Exit(ATTENTION)
    if not report.is_complete:
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(OK if matrix.results else UNUSABLE)


def _run(matrix: Matrix, racing: list[int], wanted: list[CrashPoint] | None) -> Report:
    from inbox.testing.lab import LabError  # noqa: PLC0415 - as in the command
    from inbox.testing.lab.report import Report  # noqa: PLC0415 - as in the command

    begun = time.monotonic()
    planned = 0
    try:
        with _Interruption() as interruption, matrix.lab:
            try:
                scenarios = _prepare(matrix, racing, wanted)
                planned = len(scenarios)
                tell = _Teller(planned)
                for scenario in scenarios:
                    tell(matrix.run_one(scenario))
                    if interruption.is_asked:
                        break
            finally:
                interruption.is_over = True
    except LabError as error:
        stop(_COMMAND, *str(error).splitlines())
    except KeyboardInterrupt:
        planned = max(planned, 1)
    if len(matrix.results) < planned:
        typer.echo(f"inbox {_COMMAND}: interrupted; the tables are as they were", err=True)
    return Report(matrix, matrix.lab.target, planned, time.monotonic() - begun)


class _Interruption:
    """Lets SIGINT and SIGTERM end it after the kill that is under way; the second one ends it where it stands.

    Attributes:
        is_asked: whether one came.
        is_over: whether the tables are being put back, which no further one may cut short.
    """

    def __init__(self) -> None:
        self.is_asked = False
        self.is_over = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._heed) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heed(self, *_: object) -> None:
        if self.is_asked and not self.is_over:
            raise KeyboardInterrupt
        self.is_asked = True


# ------------------------------------------------------------------ options
def _points(given: list[str] | None) -> list[CrashPoint] | None:
    if not given:
        return None
    try:
        return [CrashPoint.parse(name.strip()) for text in given for name in text.split(",") if name.strip()]
    except ValueError:
        known = ", ".join(map(str, crash_points()))
        raise ConfigurationError(f"--points {','.join(given)}: the points are {known}") from None


def _numbers(text: str) -> list[int]:
    try:
        numbers = sorted({int(word) for word in text.split(",")})
    except ValueError:
        numbers = []
    if not numbers or not 1 <= numbers[0] <= numbers[-1] <= _MOST_WORKERS:
        raise ConfigurationError(f"--workers {text}: write numbers from 1 to {_MOST_WORKERS}, such as 1,3")
    return numbers


def _ignored(given: list[str] | None) -> list[str]:
    from inbox.testing.lab.comparison import parse_ignored  # noqa: PLC0415 - as in the command

    try:
        parse_ignored(given or ())
    except ValueError as error:
        raise ConfigurationError(f"--ignore {error}") from None
    return given or []


# ------------------------------------------------------------------ telling
def _prepare(matrix: Matrix, racing: list[int], wanted: list[CrashPoint] | None) -> list[Scenario]:
    from inbox.testing.lab.matrix import plan  # noqa: PLC0415 - as in the command

    lab = matrix.lab
    typer.echo(f"{lab.target}: database {lab.database.name}, queue {lab.queue.name}, {len(matrix.messages)} events")
    known = matrix.run_quietly()
    rows = ", ".join(f"{name} {rows.rows.total()}" for name, rows in known.quiet.tables.items()) or "no tables"
    calls = "".join(f", HTTP {name} {rows.rows.total()}" for name, rows in known.quiet.calls.items())
    typer.echo(f"quiet runs, {matrix.quiet_seconds:.1f} s, leave: {rows}{calls}")
    for name, word in known.quiet.events.items():
        if word != "applied":
            typer.echo(f"  event {printable(name)} is {word}")
    for (table, column), why in known.ignored.items():
        typer.echo(f"  not compared: {table}.{column} ({why})")
    if wanted is None:
        _require_effect(known.quiet.events.values())
    scenarios = plan(matrix.seen, racing, wanted)
    reached = len({name for name, _ in matrix.seen})
    typer.echo(f"{_kills(len(scenarios))}, at {reached} points that these events reach")
    return scenarios


def _require_effect(words: Collection[str]) -> None:
    """Refuse events of which none does what it is for: kills change nothing where nothing works."""
    from inbox.testing.lab import LabError  # noqa: PLC0415 - as in the command

    if words and not any(word.startswith("applied") or word == _REJECTED for word in words):
        raise LabError(
            "no event was applied in the quiet runs, so nothing could be said of your handlers. INBOX_TEST_LOG=WARNING "
            "shows what they raised, and where. If it is this that you want to test, name points, such as --points "
            "after:quarantine"
        )


def _kills(count: int) -> str:
    return f"{count} kill{'s' * (count != 1)}"


class _Teller:
    """Prints a line for each kill, as it is done."""

    def __init__(self, planned: int) -> None:
        self._planned = planned
        self._done = 0
        self._width = max(len(str(point)) for point in crash_points())

    def __call__(self, result: Result) -> None:
        self._done += 1
        scenario = result.scenario
        who = f"{scenario.workers} worker{'s' * (scenario.workers > 1)}"
        kind = f"  {printable(scenario.event_type)}" if scenario.event_type else ""
        count = f"{self._done:>{len(str(self._planned))}}/{self._planned}"
        point = f"{scenario.point!s:<{self._width}}"
        typer.echo(f"{count}  {point}  {who:<9}  {result.outcome:<11} {result.seconds:5.1f} s{kind}")


def _tell_end(report: Report, wanted: list[CrashPoint] | None) -> None:
    matrix, told = report.matrix, report.as_dict()
    missing = [name for name in told["not_reached"] if wanted is None or CrashPoint.parse(name) in wanted]
    if missing:
        typer.echo(f"not reached by these events: {', '.join(missing)}")
    for result in matrix.unsafe[:_MOST_TOLD]:
        typer.echo(f"\nkilled at {result.scenario}: {result.outcome}")
        for line in [line for difference in result.differences for line in difference.lines()]:
            typer.echo(f"  {line}")
        if result.detail:
            typer.echo(f"  {printable(result.detail)}")
    if len(matrix.unsafe) > _MOST_TOLD:
        typer.echo(f"\nand {len(matrix.unsafe) - _MOST_TOLD} kills more; --html FILE and --json FILE have them all")
    run = len(matrix.results)
    if matrix.unsafe:
        points = ", ".join(dict.fromkeys(str(result.scenario.point) for result in matrix.unsafe))
        typer.echo(
            f"\nNOT SAFE: {len(matrix.unsafe)} of {run} kills left something else ({report.seconds:.0f} s): {points}"
        )
    elif report.is_complete and run:
        typer.echo(f"\nThe same after {_kills(run)} as without ({report.seconds:.0f} s).")
    else:
        typer.echo(f"\nNothing can be said: {run} of {report.planned} kills were run.")


def _write(report: Report, json_file: Path | None, html_file: Path | None) -> None:
    from json import dumps  # noqa: PLC0415 - `json` is an option

    from inbox.testing.lab.report import as_html  # noqa: PLC0415 - as in the command

    if json_file is not None:
        json_file.write_text(dumps(report.as_dict(), indent=2, ensure_ascii=False) + "\n", "utf-8")
    if html_file is not None:
        html_file.write_text(as_html(report), "utf-8")
