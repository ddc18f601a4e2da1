"""`inbox status` where no server is needed: the values, the words, the exit codes."""

import asyncio
import json
import os
import signal
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from inbox.adapters.rabbitmq import QueueDepth
from inbox.app import Inbox
from inbox.cli import status as command
from inbox.cli.main import app
from inbox.cli.options import ATTENTION, OK, UNUSABLE, Place
from inbox.cli.status_report import Status
from inbox.config import ConsumerSettings
from inbox.core.figures import (
    AttemptFigures,
    Figures,
    InboxFigures,
    QuarantineFigures,
    Tally,
    WorkerFigures,
    WorkerReport,
)
from inbox.errors import StoreUnavailable
from inbox.testing.memory import MemoryDatabase, MemoryStore
from tests.unit.engine import delivery
from tests.unit.test_cli_schema import Ended, Run

AT = datetime(2031, 5, 6, 7, 8, 9)  # noqa: DTZ001 - as the databases give their times

store = MemoryStore()
inbox = Inbox("billing", store=store)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("INBOX_DATABASE_URL", "INBOX_CONSUMER", "INBOX_BROKER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(store, "database", MemoryDatabase())
    store.for_consumer("billing", concurrency=1, deadline=1.0)

    def run(*arguments: str, url: str = "") -> Ended:
        monkeypatch.setenv("INBOX_DATABASE_URL", url)
        with pytest.raises(SystemExit) as stopped:
            app(["status", *arguments])
        captured = capsys.readouterr()
        return Ended(int(stopped.value.code or 0), captured.out, captured.err)

    return run


def worker(state: str = "consuming", age: float = 2, host: str = "host-1", **counts: int) -> WorkerFigures:
    report = WorkerReport(b"w" * 16, host, 4711, state, counts)
    return WorkerFigures(report, AT - timedelta(hours=1), AT - timedelta(seconds=age), age)


EMPTY = QuarantineFigures({}, {}, None, 1000, 1000_000)
IDLE = Figures("billing", AT, 1, InboxFigures(), AttemptFigures(), EMPTY)


def figures(**parts: Any) -> Figures:
    return replace(IDLE, **parts)


REFUSED = QuarantineFigures(
    {"open": Tally(2, 1500), "replayed": Tally(1, 10)},
    {"handler-error": Tally(2, 1500)},
    AT - timedelta(days=3),
    100,
    10**6,
)
BUSY = figures(
    inbox=InboxFigures(1_000_000, 1_000_000, AT - timedelta(days=9), AT - timedelta(seconds=1), None, 123_456),
    attempts=AttemptFigures(3, 1, AT - timedelta(minutes=5), failed=4, crashed=1, released=2),
    quarantine=REFUSED,
    workers=[
        worker(applied=9, duplicate=1),
        worker("paused: the quarantine is full", 61, "host-2"),
        worker("stopped", 99, applied=1),
        worker("consuming", 90_000, "host-9"),
    ],
)


def test_people_read_it_in_words() -> None:
    queues = [
        QueueDepth("billing", "main", 1200, 1),
        QueueDepth("billing.dead", "dead", 0, 0),
        QueueDepth("billing.retry.5", "retry", 7, 0),
        QueueDepth("billing.retry.60", "retry", 0, 0),
        QueueDepth("billing.retry.300", "retry", None, 0),
    ]
    assert [*Status([BUSY], queues, 60).lines()] == [
        "billing (2031-05-06 07:08:09 UTC, schema 1)",
        (
            "  processed    1,000,000 or more in the last hour, 1,000,000 or more in the last day; "
            "newest 1 s ago, oldest 9 d ago; about 123,456 rows in the table"
        ),
        "  outcomes     applied 10, duplicate 1",
        (
            "  in trouble   3 events, oldest 5 min ago; runs failed 4, crashed 1; released 2; "
            "handlers started and not ended 1"
        ),
        "  quarantine   open 2 (2 kB), replayed 1 (10 B); oldest open 3 d ago; 3.0 % of its bounds",
        "               handler-error: 2 (2 kB)",
        "  workers      host-1 (process 4711) consuming, reported 2 s ago",
        "               host-2 (process 4711) paused: the quarantine is full, reported 1 min ago, SILENT",
        "               1 stopped, 1 silent for more than a day",
        "  queue        billing: 1,200 ready, 1 consumer",
        "  queue        billing.dead (dead letters): 0 ready, 0 consumers",
        "  queue        billing.retry.5 (copies that wait): 7 ready",
    ]


def test_nothing_is_said_in_words_too() -> None:
    assert [*Status([], [], 60).lines()] == ["No consumer has any rows yet."]
    assert [*Status([figures()], [QueueDepth("q", "main", None, 0)], 60).lines()][1:] == [
        "  processed    nothing",
        "  outcomes     no worker has reported any",
        "  in trouble   nothing",
        "  quarantine   empty",
        "  workers      none has reported within a week",
        "  queue        q: not there",
    ]


def test_an_exact_count_has_no_most() -> None:
    exact = InboxFigures(2_000_000, 2_000_000, AT, AT, 3_000_001, 5)
    (line,) = [line for line in Status([figures(inbox=exact)], [], 60).lines() if "processed" in line]
    assert "2,000,000 in the last hour" in line
    assert line.endswith("newest 0 s ago, oldest 0 s ago; 3,000,001 rows")


def test_programs_read_it_by_keys_that_stay() -> None:
    found = json.loads(json.dumps(Status([BUSY], [QueueDepth("q", "main", 0, 1)], 60).as_dict()))
    assert found["ok"] is False
    assert len(found["attention"]) == 2
    (consumer,) = found["consumers"]
    assert {name: consumer[name] for name in consumer if name != "workers"} == {
        "consumer": "billing",
        "at": "2031-05-06T07:08:09Z",
        "schema_version": 1,
        "outcomes": {"applied": 10, "duplicate": 1},
        "inbox": {
            "last_hour": 1_000_000,
            "last_day": 1_000_000,
            "oldest": "2031-04-27T07:08:09Z",
            "newest": "2031-05-06T07:08:08Z",
            "rows": None,
            "table_rows_estimate": 123_456,
        },
        "attempts": {
            "events": 3,
            "open_starts": 1,
            "oldest": "2031-05-06T07:03:09Z",
            "failed": 4,
            "crashed": 1,
            "released": 2,
        },
        "quarantine": {
            "open": 2,
            "oldest_open": "2031-05-03T07:08:09Z",
            "share": 0.03,
            "bound_rows": 100,
            "bound_bytes": 1_000_000,
            "by_state": {"open": {"rows": 2, "bytes": 1500}, "replayed": {"rows": 1, "bytes": 10}},
            "by_reason": {"handler-error": {"rows": 2, "bytes": 1500}},
        },
    }
    assert [each["silent"] for each in consumer["workers"]] == [False, True, False, False]
    assert consumer["workers"][0] == {
        "id": (b"w" * 16).hex(),
        "host": "host-1",
        "pid": 4711,
        "state": "consuming",
        "started_at": "2031-05-06T06:08:09Z",
        "seen_at": "2031-05-06T07:08:07Z",
        "age": 2,
        "silent": False,
        "counts": {"applied": 9, "duplicate": 1},
    }
    assert found["queues"] == [{"name": "q", "role": "main", "ready": 0, "consumers": 1}]


@pytest.mark.parametrize(
    ("found", "queue", "says"),
    [
        (figures(quarantine=REFUSED), None, "2 events are in quarantine"),
        (figures(quarantine=replace(REFUSED, by_state={"open": Tally(1, 1)})), None, "1 event is in quarantine"),
        (figures(workers=[worker(age=61)]), None, "the worker on host-1 (process 4711) has not reported for 1 min"),
        (figures(), QueueDepth("q", "main", 3, 0), "3 events wait and nobody consumes"),
        (figures(), QueueDepth("q", "main", None, 0), "is not there"),
        (figures(), QueueDepth("q.dead", "dead", 1, 0), "1 dead letter waits"),
    ],
)
def test_what_needs_a_person_is_a_sentence(found: Figures, queue: QueueDepth | None, says: str) -> None:
    (sentence,) = Status([found], [queue] if queue else [], 60).attention
    assert says in sentence


@pytest.mark.parametrize(
    ("found", "queue"),
    [
        (figures(), QueueDepth("q", "main", 3, 1)),
        (figures(), QueueDepth("q", "main", 0, 0)),
        (figures(), QueueDepth("q.dead", "dead", None, 0)),
        (figures(), QueueDepth("q.retry.5", "retry", 3, 0)),
        (figures(workers=[worker("stopped", 100), worker(age=60), worker(age=86_401)]), None),
        (figures(quarantine=replace(REFUSED, by_state={"discarded": Tally(1, 1)}, by_reason={})), None),
    ],
)
def test_what_is_as_it_should_be_needs_nobody(found: Figures, queue: QueueDepth | None) -> None:
    assert Status([found], [queue] if queue else [], 60).attention == []


def test_names_that_would_steer_a_terminal_do_not() -> None:
    evil = figures(
        quarantine=replace(REFUSED, by_reason={"\x1b[2J": Tally(1, 1)}),
        workers=[worker("paused: \x1b]0;x\x07", 61, "\x1b[31m")],
    )
    found = Status([replace(evil, consumer="\x1b[1m")], [QueueDepth("\x9b31m", "main", 1, 0)], 60)
    assert not any(character in "".join([*found.lines(), *found.attention]) for character in "\x1b\x07\x9b")


def test_sizes_and_times_have_the_unit_that_fits() -> None:
    sizes = (999, 1000, 2_400_000, 7_500_000_000)
    states = {str(number): Tally(1, size) for number, size in enumerate(sizes)}
    full = QuarantineFigures(states, {}, None, 10**9, 10**13)
    (line,) = [line for line in Status([figures(quarantine=full)], [], 60).lines() if "quarantine" in line]
    assert line == "  quarantine   0 1 (999 B), 1 1 (1 kB), 2 1 (2 MB), 3 1 (7.5 GB); less than 0.1 % of its bounds"


# ------------------------------------------------------------------ the command
TARGET = f"{__name__}:inbox"


def test_a_quiet_consumer_is_0(run: Run) -> None:
    ended = run(TARGET)
    assert (ended.exit_code, ended.stderr) == (OK, "")
    assert ended.stdout.startswith("billing (")


async def refuse() -> None:
    await store.open()
    await store.quarantine(delivery(), None, "undecodable", "")
    await store.close()


def test_an_event_in_quarantine_is_1_and_told(run: Run) -> None:
    asyncio.run(refuse())
    ended = run(TARGET)
    assert ended.exit_code == ATTENTION
    assert "! billing: 1 event is in quarantine, undecided: inbox quarantine list\n" in ended.stdout
    as_json = run(TARGET, "--json", "--exact")
    assert as_json.exit_code == ATTENTION
    assert json.loads(as_json.stdout)["consumers"][0]["inbox"]["rows"] == 0


def test_a_database_that_does_not_answer_is_2(run: Run) -> None:
    store.faults["figures"] = [StoreUnavailable("the database did not answer in time")]
    ended = run(TARGET)
    assert (ended.exit_code, ended.stdout) == (UNUSABLE, "")
    assert ended.stderr == "inbox status: the database did not answer in time\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "say where"),
        ((TARGET, "--queue", "q"), "--queue needs --broker"),
        ((TARGET, "--broker-ca", "ca.pem"), "--broker-ca needs"),
        ((TARGET, "--broker", "http://h", "--queue", "q"), "amqp://"),
        ((TARGET, "--broker", "amqp://guest:hunter2@127.0.0.1:1/", "--queue", "q"), "cannot be reached"),
    ],
)
def test_a_wrong_option_is_2_with_one_line(run: Run, words: tuple[str, ...], says: str) -> None:
    ended = run(*words)
    assert ended.exit_code == UNUSABLE
    assert says in ended.stderr
    assert "hunter2" not in ended.output
    assert "Traceback" not in ended.output


def test_a_worker_is_silent_after_three_of_its_intervals_unless_told() -> None:
    often = Inbox("c", store=MemoryStore(), settings=ConsumerSettings(report_interval=2))
    never = Inbox("c", store=MemoryStore(), settings=ConsumerSettings(report_interval=None))
    assert command._patience(Place(often, None, "c"), None) == 6
    assert command._patience(Place(often, None, "c"), 7) == 7
    assert command._patience(Place(never, None, "c"), None) == 60
    assert command._patience(Place(None, None, None), None) == 60


def test_watching_shows_it_again_and_outlives_an_outage(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read, rounds = command._read, 0

    async def read_and_count(*of: Any) -> Status:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            raise StoreUnavailable("gone")
        if rounds == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return await read(*of)

    monkeypatch.setattr(command, "_read", read_and_count)
    ended = run(TARGET, "--json", "--watch", "0.1")
    assert ended.exit_code == OK
    assert [json.loads(line)["ok"] for line in ended.stdout.splitlines()] == [True, True]
    assert ended.stderr == "inbox status: gone; trying again\n"


def test_help_teaches(run: Run) -> None:
    text = " ".join(run("--help").stdout.split())
    for piece in ("Example: inbox status billing.app:inbox", "Exit codes: 0", "--json prints one object", "by_reason"):
        assert piece in text, piece
