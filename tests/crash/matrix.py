"""What was tried against the promise, fault by fault: `python -m tests.crash.matrix` writes `docs/crash-matrix.md`.

The points come from the table of transitions, the mutations from their list: who adds one has to say here what is
durable then, or the page cannot be made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inbox.core.crashpoints import When, crash_points
from inbox.core.lifecycle import Command
from tests.crash.trace import LEFT, LEFT_TOO, Means
from tests.mutations.catalog import MUTATIONS
from tests.mutations.tables import INVARIANTS, RULE_MUTATIONS, TABLE_MUTATIONS
from tests.unit.model import WORLDS

PAGE = Path(__file__).parents[2] / "docs" / "crash-matrix.md"

_NOTHING = "nothing"
_CLAIM = "nothing; the claim is locked"
_STARTED = "nothing, or of what is in trouble an open start"
_ROW = "row and effect"


@dataclass(frozen=True)
class Step:
    """One command: what is durable before and after it, and what becomes of the delivery if the process ends there."""

    before: str
    after: str
    then: str


_RUNS = "comes again, and runs"
_WAITS = "comes again, waits for the server to end the old session, and runs"
_DUPLICATE = "comes again, as a duplicate"

STEPS: dict[Command, Step] = {
    Command.DECODE: Step(_NOTHING, _NOTHING, _RUNS),
    Command.VERIFY: Step(_NOTHING, _NOTHING, _RUNS),
    Command.PREPARE: Step(_NOTHING, _STARTED, f"{_RUNS}; in trouble, alone"),
    Command.BEGIN: Step(_NOTHING, _NOTHING, _RUNS),
    Command.CLAIM: Step(_NOTHING, _CLAIM, _WAITS),
    Command.START: Step(_CLAIM, f"{_STARTED}; the claim is locked", f"{_WAITS}; in trouble, alone"),
    Command.APPLY: Step(
        f"{_STARTED}; the claim is locked", f"{_STARTED}; the claim is locked", f"{_WAITS}; in trouble, alone"
    ),
    Command.COMMIT: Step(_CLAIM, _ROW, f"before: {_WAITS}; after: {_DUPLICATE}"),
    Command.ACKNOWLEDGE: Step(
        "row and effect, or an entry of the quarantine, or a copy",
        "the same; the acknowledgement may be lost",
        "if it comes again, as a duplicate, or into the same entry",
    ),
    Command.RESOLVE: Step("row and effect, or nothing", "the same, and it is known", "comes again, and finds out"),
    Command.ROLLBACK: Step(_CLAIM, _NOTHING, _RUNS),
    Command.RECORD: Step(_NOTHING, "the attempt, if one is charged", _RUNS),
    Command.WAIT: Step("attempts so far", "attempts so far", _RUNS),
    Command.QUARANTINE: Step("attempts so far", "the entry of the quarantine", "comes again, into the same entry"),
    Command.DELAY: Step("attempts so far", "the copy, confirmed", "both come: one runs, the other is a duplicate"),
    Command.RELEASE: Step("attempts so far", "attempts so far", _RUNS),
}

_KILLS = "tests/crash/test_kill_points.py::"
_CUTS = "tests/crash/test_packet_cuts.py::"
_BATCHES = "tests/crash/test_batch_kills.py::"
_OUTSIDE = "tests/crash/test_outside_kills.py::"
_SESSIONS = "tests/crash/test_session_kills.py::"
_ZOMBIES = "tests/crash/test_zombies.py::"
_LIMIT = "tests/crash/test_delivery_limit.py::"
_LIMITS = "tests/concurrency/test_server_limits.py::"
_OUTAGES = "tests/concurrency/test_outages.py::"
_BROKER = "tests/integration/test_rabbitmq_faults.py::"

#: How each point is tried, and by which test.
AT_EVERY_POINT = (
    ("SIGKILL of one worker, over RabbitMQ, on MySQL or MariaDB", _KILLS + "test_one_worker_is_killed"),
    ("the same of three that race for three of every event", _KILLS + "test_three_racing_workers_are_killed"),
    ("`KILL` and `KILL QUERY` of every session of the worker", _SESSIONS + "test_sessions_are_killed_at_every_step"),
    ("SIGSTOP; its events go to another worker; SIGCONT when all is done", _ZOMBIES + "test_it_wakes_when_all_is_done"),
    (
        "SIGSTOP; SIGCONT while the other worker is at them",
        _ZOMBIES + "test_it_wakes_when_the_first_of_its_events_has_come_to_another",
    ),
    *(
        (f"{what}, {where}", f"tests/crash/{file}.py::{test}")
        for where, file, one, three in (
            (
                "over SQLite and its queue, without servers",
                "test_embedded_kills",
                "test_one_worker_is_killed",
                "test_three_racing_workers_are_killed",
            ),
            (
                "over a leased subscription (which delays nothing), on MySQL or MariaDB",
                "test_orbit_kills",
                "test_one_worker_over_leases_is_killed",
                "test_three_workers_share_a_subscription_and_are_killed",
            ),
            *(
                (
                    where,
                    "test_kill_mixes",
                    f"test_one_worker_of_{name}_is_killed",
                    f"test_three_workers_of_{name}_are_killed",
                )
                for where, name in (
                    ("over RabbitMQ, on SQLite", "a_broker_and_a_file"),
                    ("over SQLite's queue, on MySQL or MariaDB", "a_queue_and_a_server"),
                    ("over a leased subscription, on SQLite", "leases_and_a_file"),
                )
            ),
        )
        for what, test in (("SIGKILL of one worker", one), ("SIGKILL of three", three))
    ),
    (
        "SIGKILL of one worker whose events share transactions",
        _BATCHES + "test_one_worker_with_batches_is_killed",
    ),
    (
        "the same of three whose batches overlap",
        _BATCHES + "test_three_racing_workers_with_batches_are_killed",
    ),
    (
        "`KILL` and `KILL QUERY` of every session of a worker with batches",
        _BATCHES + "test_sessions_of_batches_are_killed_at_every_step",
    ),
    (
        "the points at which processes died in a run are the points that there are",
        "tests/crash/test_reached.py::test_processes_have_died_at_every_point_and_nowhere_else",
    ),
    (
        "SIGKILL of the example for Fetcher, with forgeries in between",
        "tests/crash/test_fetcher_kills.py::test_the_example_is_killed",
    ),
)

_MODEL = "tests/unit/test_model.py::"
_TRACES = "tests/crash/test_model_traces.py::test_what_the_model_says_is_what_happens"

Rows = tuple[tuple[str, str, str, str], ...]

#: Fault, what is durable then, what happens, and the test.
LINKS: Rows = (
    (
        "cut before, inside of or behind every packet of a first delivery, a duplicate, one that waits, a reject",
        "what was answered",
        "the rest is done again; one effect, an empty queue",
        _CUTS + "test_every_packet_of_a_delivery_is_cut",
    ),
    (
        "the same for every packet of a batch: new, known in part, known, one that fails",
        "what was answered: of a batch all or nothing",
        "each that is not known runs by itself; one effect each, an empty queue",
        "tests/crash/test_batch_cuts.py::test_every_packet_of_a_batch_is_cut",
    ),
    (
        "SIGKILL between the COMMIT of a batch and each of its acknowledgements",
        "row and effect of all of the batch",
        "those not acknowledged come again, as duplicates",
        _BATCHES + "test_a_worker_is_killed_between_commit_and_acknowledgement",
    ),
    (
        "the same for every packet from log-in to good-bye",
        "as above",
        "the start, the delivery or the stop takes longer",
        _CUTS + "test_every_packet_from_start_to_stop_is_cut",
    ),
    (
        "silence for ever from any packet on, towards the database",
        "nothing, or the whole unit; the server holds the claim for a deadline and five seconds",
        "the deadline ends the wait; released until the claim is free",
        _CUTS + "test_the_link_falls_silent_at_every_packet_and_never_says_a_word_again",
    ),
    (
        "the same towards the broker",
        "row and effect, from COMMIT on",
        "three heartbeats end it; it comes again",
        _CUTS + "test_the_link_falls_silent_at_every_packet_and_never_says_a_word_again",
    ),
    (
        "a few octets at a time, each late",
        "everything, in time",
        "nothing out of the ordinary",
        _CUTS + "test_links_that_are_as_slow_as_can_be",
    ),
    (
        "COMMIT cut before it arrives",
        "nothing",
        "a locking read finds no row; again",
        _CUTS + "test_a_commit_that_never_arrives_is_not_acknowledged",
    ),
    (
        "COMMIT swallowed; its session lives on behind a proxy",
        "nothing; the claim is locked",
        "nobody can say: released, until the session ends",
        _CUTS + "test_a_commit_that_never_arrives_is_not_acknowledged",
    ),
    (
        "the answer to COMMIT held, and the worker killed",
        _ROW,
        _DUPLICATE,
        _OUTSIDE + "test_the_answer_to_commit_is_held",
    ),
    (
        "COMMIT swallowed, and the worker killed",
        "nothing; the claim is locked",
        _WAITS,
        _OUTSIDE + "test_the_commit_is_lost_and_its_session_lives_on",
    ),
    (
        "COMMIT, the entry of the quarantine, or the copy held, and the worker killed",
        "nothing",
        "the broker has the event still",
        _OUTSIDE + "test_what_is_held_on_its_way_is_not_settled",
    ),
    (
        "COMMIT of one held while its neighbours are acknowledged, and the worker killed",
        "the neighbours' rows and effects",
        "the broker has the one still",
        _OUTSIDE + "test_the_neighbours_of_what_is_held_do_not_settle_it",
    ),
    (
        "the acknowledgement held, and the worker killed",
        _ROW,
        _DUPLICATE,
        _OUTSIDE + "test_the_acknowledgement_is_held",
    ),
    (
        "every link cut again and again under load",
        "what was committed",
        "connects again; nobody is charged",
        _OUTAGES + "test_every_link_is_cut_again_and_again",
    ),
)

SERVERS: Rows = (
    (
        "SIGKILL or restart of the database under load",
        "what was committed",
        "intake pauses until it takes writes; nobody is charged",
        _OUTAGES + "test_the_database_goes_and_comes",
    ),
    (
        "SIGKILL or restart of the broker under load",
        "what was confirmed",
        "connects again; what was in hand comes again",
        _OUTAGES + "test_the_broker_goes_and_comes",
    ),
    (
        "no connection to be had (`max_connections`)",
        "what was committed",
        "intake pauses; nobody is charged",
        _LIMITS + "test_no_connection_is_to_be_had",
    ),
    (
        "`super_read_only`, `read_only`",
        "what was committed",
        "intake pauses; nobody is charged",
        "tests/concurrency/test_read_only.py::test_read_only_for_a_while",
    ),
    (
        "`KILL` and `KILL QUERY` of a claim that waits for another's",
        "nothing of it",
        "neither a duplicate nor an attempt; again",
        _SESSIONS + "test_the_claim_is_killed_while_it_waits_for_another",
    ),
    (
        "the same of the handler's statement",
        "nothing",
        "undone whole; again, and nobody is charged",
        _SESSIONS + "test_a_statement_of_the_handler_is_killed_under_way",
    ),
    (
        "a claim waits longer than `lock_wait` (1205)",
        "nothing of it",
        "no duplicate; again",
        _SESSIONS + "test_a_claim_that_waits_for_too_long_is_no_duplicate",
    ),
    (
        "the broker in memory alarm",
        "everything",
        "publishers wait, consumers go on",
        _LIMITS + "test_the_broker_is_in_alarm",
    ),
    (
        "the queue deleted under the consumer",
        "the unit that runs",
        "declared again; what is handed over once more is a duplicate",
        _SESSIONS + "test_the_queue_is_deleted_under_the_consumer_and_declared_again",
    ),
    (
        "a handler takes longer than `consumer_timeout`",
        "the first run",
        "delivered anew meanwhile, and a duplicate",
        _LIMITS + "test_a_handler_takes_longer_than_the_broker_waits",
    ),
    (
        "a frozen broker",
        "what was committed",
        "noticed by its silence; comes again",
        _BROKER + "test_a_frozen_broker_is_noticed_by_its_silence",
    ),
    (
        "an event that kills its worker, at the head of 50, on a queue with a delivery limit",
        "each innocent: its effect, or its entry as a dead letter",
        "the crash loop ends; nobody else is charged; a replay applies all",
        _LIMIT + "test_innocents_that_the_broker_gives_up_beside_a_crasher_are_kept_and_replayed",
    ),
    (
        "the same without a limit, 20 in hand",
        "the innocents' effects",
        "quarantined as `crashed`; its neighbours are charged nothing",
        "tests/crash/test_poison.py::test_an_event_that_kills_its_worker_ends_in_quarantine",
    ),
    (
        "all of it at once, with duplicates, for minutes",
        "every effect once",
        "an audit in SQL finds no difference",
        "tests/acceptance/test_soak.py::test_a_short_soak_ends_without_a_difference",
    ),
)

_HEAD = """\
# The crash matrix

<!-- Written by python -m tests.crash.matrix; a test fails where it would write something else. -->

Everything that is done to the promise on real servers, what is durable at that moment, and what happens then. Each test
ends with one oracle: **effects = distinct events, one row each, balances that add up, nothing left in any queue, no
start left open**. A point counts only if it was really reached.

| run | does |
|---|---|
| `make test` | every kill point, on one combination each; by a seed some packets, sessions, zombies, traces, mistakes |
| `make crash` | all of it, on both pairs of servers: more than an hour |
| `make mutations` | every mistake below, in a copy of the package: each must be found |
| `make soak MINUTES=60` | load with duplicates, kills, cuts, outages; then an audit; `ARGS="--seed 4711"` draws again |
"""


def page() -> str:
    """The whole page."""
    tables = (*_table("Links", LINKS), *_table("Servers", SERVERS))
    return "\n".join([_HEAD, *_points(), *tables, *_mutations(), *_traces()])


def tests() -> Iterator[str]:
    """Every test that the page names."""
    yield from (test for _, test in AT_EVERY_POINT)
    yield from (row[3] for row in (*LINKS, *SERVERS))
    yield _TRACES
    yield from (mutation.test.partition("[")[0] for mutation in MUTATIONS)


def _link(test: str) -> str:
    """To the file that the test is in; what stands there is what pytest is told to run it by itself."""
    return f"[`{test}`](../{test.partition('::')[0]})"


def _points() -> list[str]:
    lines = ["## Points of the lifecycle", "", "At each point of the table below:", ""]
    lines += [f"- {what}: {_link(test)}" for what, test in AT_EVERY_POINT]
    lines += ["", "| point | durable then | the event, if the process ends here |", "|---|---|---|"]
    for point in crash_points():
        step = STEPS[point.command]
        durable = step.before if point.when is When.BEFORE else step.after
        lines.append(f"| `{point}` | {durable} | {step.then} |")
    return [
        *lines,
        "",
        "A session that is killed undoes what it had open: the unit is begun again, in the same process. A worker that",
        "was stopped finds its connections gone when it goes on: its commit is resolved, its acknowledgements are too",
        "late.",
        "",
    ]


def _table(title: str, rows: Rows) -> list[str]:
    lines = [f"## {title}", "", "| fault | durable then | what happens | shown by |", "|---|---|---|---|"]
    return [*lines, *(f"| {fault} | {durable} | {then} | {_link(test)} |" for fault, durable, then, test in rows), ""]


def _mutations() -> list[str]:
    lines = [
        "## Mutations",
        "",
        "A suite that nothing can fail proves nothing. Each of these mistakes fails a test.",
        "",
    ]
    lines += ["| mistake | harm | found by |", "|---|---|---|"]
    lines += [f"| `{each}` | {each.harm} | {_link(each.test.partition('[')[0])} |" for each in MUTATIONS]
    lines += [
        "",
        "## The model",
        "",
        "The table of transitions is walked in a model of broker and database: two workers, two deliveries of one",
        "event and one of another, row locks that are waited for, answers that are lost, a crash at every step. These",
        f"hold in all {WORLDS:,} worlds that can come about, and from each of them everything can still end",
        f"({_link(_MODEL + 'test_every_world_keeps_the_invariants')}):",
        "",
        *(f"- {name}: {meaning}" for name, meaning in INVARIANTS.items()),
        "",
        f"It finds these mistakes of the table, in {_link(_MODEL + 'test_the_model_sees_a_broken_table')}:",
    ]
    lines += ["", "| mistake | transition | breaks | harm |", "|---|---|---|---|"]
    for each in TABLE_MUTATIONS:
        way = f"{each.state.value}, {each.outcome.value} → {each.target.value}"
        lines.append(f"| `{each}` | {way} | {each.breaks} | {each.harm} |")
    lines += [
        "",
        f"and these of the order and the rules, in {_link(_MODEL + 'test_the_model_sees_a_broken_rule')}:",
    ]
    lines += ["", "| mistake | breaks | harm |", "|---|---|---|"]
    lines += [f"| `{rule}` | {rule.breaks} | {rule.harm} |" for rule in RULE_MUTATIONS]
    return [*lines, ""]


def _traces() -> list[str]:
    return [
        "## Traces of the model",
        "",
        "A model is a claim about real servers. So a sample of its traces, walks from the first delivery to a world in",
        "which all is over, is drawn by the seed of the run and replayed there",
        f"({_link(_TRACES)}).",
        "Two workers stop before and after every command, and go on when it is their turn in the trace: what the model",
        "interleaves is interleaved. Outcomes are brought about and compared, and after each step a second",
        "connection finds the rows, effects and entries that the model says. Beside what goes well, these come about:",
        "",
        *(f"- {means.value}" for means in Means if means not in (Means.GO, Means.TAKE)),
        "",
        "These outcomes stay with the model:",
        "",
        *(f"- {command.value}, {outcome.value}: {why}" for (command, outcome), why in LEFT.items()),
        *(f"- {what}" for what in LEFT_TOO),
        "",
    ]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
