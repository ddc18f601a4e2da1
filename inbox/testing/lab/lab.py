"""The laboratory: workers of the adopter's own `Inbox`, killed in place, and what they leave."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from inbox.core.crashpoints import CrashPoint
from inbox.errors import ConfigurationError, InboxError
from inbox.testing.crash import CrashWorker, PointNotReachedError, WorkerStartError
from inbox.testing.lab.calls import HttpServer
from inbox.testing.lab.comparison import Baseline, Observation, baseline, differences, fates, parse_ignored
from inbox.testing.lab.database import Ended, LabError, Row, Rows, WorkerFailedError, require_disposable
from inbox.testing.lab.events import EventLike, Message, message_of
from inbox.testing.lab.loop import LoopThread
from inbox.testing.lab.places import database_of, queue_of
from inbox.testing.lab.queues import require_point
from inbox.testing.lab.workers import Order, Seen, hurried, load_target, make, points_seen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from multiprocessing.connection import Connection
    from types import TracebackType

    from inbox.core.cloudevents import Mode

__all__ = ["Lab"]

#: Seconds between two looks at what is left.
_PAUSE: Final = 0.02
#: Looks one after the other that find nothing: a message may be between two queues in one of them.
_LOOKS: Final = 2
#: Seconds for which a copy that the broker moves between two queues is counted in neither.
_MOVING: Final = 0.5
#: Seconds by which two quiet runs are apart at least, so that columns with whole seconds show that they are times.
_APART: Final = 1.1
#: Events that a message names; the rest is counted.
_MOST_NAMED: Final = 5
_COUNTS: Final = re.compile(r"\s*SELECT\s+COUNT\s*\(", re.IGNORECASE)
#: pytest shows the line of the test for what the lab says, and the lab's own lines only for what it did not expect.
__tracebackhide__ = methodcaller("errisinstance", (AssertionError, InboxError))


class Lab:
    """Kills workers of `target` where they are told to, in the database and queue that it names.

    It works in place, so that a handler that writes through a second engine is found out; before each scenario every
    table is put back as it was when the lab was opened. One thread uses it; whatever waits for processes blocks.

    Args:
        target: `module:attribute`, an `Inbox` or a function that makes one.
        disposable: everything in that database and queue may be deleted, whatever they are called.
        timeout: seconds for which `settled` waits.
        longest_delay: seconds that no wait between two attempts exceeds; None leaves the target's policy as it is.
        http: variables of the environment that are to name a HTTP server of the lab's, which remembers what it is
            sent: so effects outside of the database can be compared too.

    Raises:
        ConfigurationError: the target is none, or is not known to be for tests.
    """

    def __init__(
        self,
        target: str,
        *,
        disposable: bool = False,
        timeout: float = 60.0,
        longest_delay: float | None = 0.1,
        http: Sequence[str] = (),
    ) -> None:
        self.target = target
        self.timeout = timeout
        self._disposable = disposable
        self._longest_delay = longest_delay
        self._servers: dict[str, HttpServer] = {}
        self._http = tuple(http)
        self._loop: LoopThread | None = None
        self._folder: Path | None = None
        self._lifeline: tuple[Connection, Connection] | None = None
        self._inbox = load_target(target)
        self._settings = hurried(self._inbox.settings, longest_delay)
        self.database = database_of(self._inbox)
        waits = [policy.retry.steps for policy in (self._inbox.settings, self._settings)]
        self.queue = queue_of(self._inbox, waits)
        if not disposable:
            require_disposable("database", self.database.name)
        self._is_kept = False
        self._quiet: dict[object, Baseline] = {}
        #: Called instead of raising `PointNotReachedError`; for whoever takes that for no failure.
        self.when_unreached: Callable[[CrashPoint], None] | None = None
        #: Every point at which workers have died, of all scenarios.
        self.kills: list[CrashPoint] = []
        self._forget()

    def _forget(self) -> None:
        self._workers: list[CrashWorker] = []
        self._crew: list[CrashWorker] = []
        self._armed: tuple[CrashPoint, str | None, int] | None = None
        self._victims: list[CrashWorker] = []
        self._sent: list[Message] = []
        self._statements: list[tuple[str, tuple[object, ...]]] = []
        self.killed_at: CrashPoint | None = None
        self._before: Ended | None = None
        if self._seen is not None:
            self._seen.unlink(missing_ok=True)

    @property
    def _seen(self) -> Path | None:
        return None if self._folder is None else self._folder / "seen"

    # ------------------------------------------------------------ life
    def open(self) -> Self:
        """Connect, take the database for this lab alone, and keep a copy of all that is in it.

        Raises:
            ConfigurationError: it is in use, or cannot be put back; or the queue holds events of somebody's.
            StartupError, TransportError: a server cannot be reached.
        """
        self._loop = LoopThread()
        self._folder = Path(tempfile.mkdtemp(prefix="inbox-lab-"))
        self._lifeline = multiprocessing.Pipe(duplex=False)
        try:
            self._servers = {variable: HttpServer() for variable in self._http}
            self.database.keep()
            self._is_kept = True
            self._loop.run(self.queue.open(disposable=self._disposable))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill what runs, put everything back, and delete the copies. May be called twice."""
        loop, self._loop = self._loop, None
        try:
            if loop is not None:
                self._kill_all()
                with suppress(InboxError, TimeoutError, LabError):
                    loop.run(self.queue.purge())
                if self._is_kept:
                    self.database.put_back()
        finally:
            self._is_kept = False
            self.database.close()
            if loop is not None:
                with suppress(InboxError, TimeoutError):
                    loop.run(self.queue.close())
                loop.close()
            for server in self._servers.values():
                server.close()
            self._servers = {}
            for end in self._lifeline or ():
                end.close()
            self._lifeline = None
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(self) -> None:
        """Begin a scenario: nothing runs, the queue is empty, every table is as it was at first.

        Raises:
            LabError: that cannot be had.
        """
        self._kill_all()
        self._running(self.queue.purge())
        self.database.put_back()
        for server in self._servers.values():
            server.forget()
        self._forget()

    # ------------------------------------------------------------ what a test says
    def kill_at(self, point: str | CrashPoint, *, event_type: str | None = None, workers: int = 1) -> None:
        """Let the next workers die at `point`: before the next `publish` they are started.

        Args:
            point: such as `after:commit`; `inbox.core.crashpoints.crash_points()` lists them.
            event_type: only an event of this type kills; None is every type.
            workers: how many race. Only the first that comes there dies, and the others do the rest. Over a queue in a
                file they are killed too, so that nobody waits for a lease.

        Raises:
            ConfigurationError: there is no such point, or none that this target's workers can come to.
        """
        try:
            chosen = CrashPoint.parse(point) if isinstance(point, str) else point
        except ValueError:
            raise ConfigurationError(f"{point!r} is no crash point; one is `after:commit`") from None
        require_point(self.queue, chosen)
        self._stop_all()
        self._armed = (chosen, event_type, workers)

    def publish(
        self,
        *events: EventLike | Message,
        copies: int = 1,
        exchange: str | None = None,
        routing_key: str | None = None,
        mode: Mode = "binary",
    ) -> None:
        """Publish `events`, to workers that run by then.

        Args:
            events: CloudEvents, their JSON as a mapping or text, or deliveries. What a mapping leaves out of
                `specversion` and `source` is filled in.
            copies: how often each is published, under the same id: first all of them once, then all once more. Over
                leases there are no copies: it is handed out so often, each time when it was acknowledged before.
            exchange: where to; None goes to the queue itself.
            routing_key: of each; None is the name of the queue, which the default exchange routes to.
            mode: `binary` or `structured`.

        Raises:
            ConfigurationError: one is no CloudEvent, or none that comes over such a queue.
            TransportError: one is in no queue.
            LabError: a worker does not start, or the database knew one before the lab came.
        """
        messages = [self.queue.fit(message_of(event, mode, exchange, routing_key)) for event in events]
        self._require_unknown(messages)
        self._sent += messages
        self._start_for_events()
        self._running(self.queue.publish(messages * copies))

    def _require_unknown(self, messages: Iterable[Message]) -> None:
        if self._before is None:
            self._before = self._ended()
        for message in messages:
            key = self._key(message)
            if key is not None and key in self._before:
                raise LabError(
                    f"the database that the lab was given knows event {self._name_of(message, 0)} already, so nothing "
                    "would come of it: delete the rows of the inbox's tables, or give the event another id"
                )

    def redeliver(self, copies: int = 1) -> None:
        """Publish everything that was published in this scenario again, under the same ids; over leases, hand it out.

        Raises:
            TransportError, LabError: as `publish`.
        """
        self._start_for_events()
        self._running(self.queue.publish(list(dict.fromkeys(self._sent)) * copies))

    def execute(self, sql: str, *arguments: object) -> None:
        """Write to the database, for what a scenario needs in it. A quiet run gets it too.

        Args:
            sql: one statement, with the driver's placeholders: `%s`, on SQLite `?`.
            arguments: for them.
        """
        self._statements.append((sql, arguments))
        self.database.query(sql, arguments)

    def settled(self, timeout: float | None = None) -> None:
        """Wait until every event has ended, then stop the worker in order.

        Where `kill_at` was said: wait for the death first, and let another worker do the rest. Ended is an event that
        is applied or in quarantine, or over leases has used up its budget, with nothing left in the queue, and no start
        of a handler left open.

        Args:
            timeout: seconds; None is the lab's.

        Raises:
            PointNotReachedError: everything ended, and no worker had come to its point.
            LabError: something has not ended in that time; the message says what.
        """
        ends_at = time.monotonic() + (self.timeout if timeout is None else timeout)
        if self._victims:
            self._await_death(ends_at)
        while True:
            self._await_ends(ends_at)
            workers, self._workers = self._workers, []
            codes = [worker.stop(max(ends_at - time.monotonic(), 1.0)) for worker in workers]
            if any(code != 0 for code in codes):
                raise LabError(f"workers ended with exit codes {codes}: their log, on standard error, says why")
            if any(point == "before:delay" for point, _ in self.seen()):
                time.sleep(_MOVING)
            left, ready = self._left(), self._ready()
            if not left and not ready and not self._ended().open_starts:
                return
            if time.monotonic() > ends_at:
                raise self._unsettled(left, ready)

    # ------------------------------------------------------------ what a test asks
    def effects(self, sql: str, *arguments: object) -> list[Row]:
        """The rows that `sql` answers.

        Args:
            sql: one statement, with the driver's placeholders: `%s`, on SQLite `?`.
            arguments: for them.
        """
        return self.database.query(sql, arguments)[1]

    def assert_effect_once(self, sql: str, *arguments: object) -> None:
        """Fail unless the effect is there once.

        Args:
            sql: a query that answers a row for each effect, or `SELECT COUNT(…)`.
            arguments: for its placeholders.

        Raises:
            AssertionError: it is not there, or more than once.
        """
        rows = self.effects(sql, *arguments)
        is_count = _COUNTS.match(sql) is not None and len(rows) == 1 and len(rows[0]) == 1
        found = int(rows[0][0]) if is_count else len(rows)
        if found != 1:
            told = "" if is_count else f": {rows[:_MOST_NAMED]}"
            raise AssertionError(f"the effect is there {found} times{self._after_what()}{told}\n  {sql}")

    def assert_same_as_quiet_run(
        self,
        snapshot: Observation | None = None,
        *,
        ignore: Iterable[str] = (),
        checks: Sequence[str] = (),
    ) -> None:
        """Fail unless the tables hold what they hold after the same events without a kill and without duplicates.

        The same events are run quietly twice, which shows what is different each time, such as the time of day. The
        tables then hold what the quiet run left.

        Args:
            snapshot: what to compare, from `observe`; None is what there is now.
            ignore: columns that are not compared, as `table.column`. Numbers that the database draws are not anyway.
            checks: queries to compare besides the tables.

        Raises:
            AssertionError: they differ; the message says in which rows.
            LabError: the quiet runs differ from each other, or do not end.
        """
        here = snapshot or self.observe(checks)
        what, messages = self._after_what(), list(dict.fromkeys(self._sent))
        known = self.quiet_run(messages, ignore=ignore, checks=tuple(here.checks) or checks)
        found = differences(known, here)
        if found:
            lines = [line for difference in found for line in difference.lines()]
            raise AssertionError(f"not the same as a quiet run{what}:\n" + "\n".join(lines))

    def observe(self, checks: Sequence[str] = ()) -> Observation:
        """What there is now: tables, answers of `checks`, what became of each event, HTTP calls.

        Raises:
            LabError: a table has more rows than can be compared, or a check is no query.
        """
        ended = self._ended()
        events = {self._name_of(message, turn): self._word_for(message, ended) for turn, message in self._numbered()}
        return Observation(
            self.database.rows(),
            {sql: _answer(self.database.check(sql)) for sql in checks},
            events,
            {variable: server.calls for variable, server in self._servers.items()},
        )

    def quiet_run(
        self, messages: Sequence[Message], *, ignore: Iterable[str] = (), checks: Sequence[str] = ()
    ) -> Baseline:
        """Run `messages` twice in scenarios of their own, without a kill and without duplicates.

        Done once for the same events and statements; the points that they pass are in `seen` afterwards.

        Args:
            messages: what is published.
            ignore: columns that are not compared, as `table.column`.
            checks: queries to compare.

        Raises:
            LabError: the two differ in more than columns, or do not end.
        """
        statements = list(self._statements)
        ignored = parse_ignored(ignore)
        asked = (
            *((m.body, m.exchange, m.routing_key, str(m.headers)) for m in messages),
            str(statements),
            *ignored,
            *checks,
        )
        if asked not in self._quiet:
            observed = []
            for _ in range(2):
                begun = time.monotonic()
                self.begin()
                for sql, arguments in statements:
                    self.execute(sql, *arguments)
                self.publish(*messages)
                self.settled()
                observed.append(self.observe(checks))
                time.sleep(max(0.0, begun + _APART - time.monotonic()))
            self._quiet[asked] = baseline(observed[0], observed[1], ignored, self.database.surrogates())
        return self._quiet[asked]

    def seen(self) -> set[Seen]:
        """The points that were passed in this scenario, each with the type of the event; "" before that is known."""
        return set() if self._seen is None else points_seen(self._seen)

    @property
    def is_armed(self) -> bool:
        """Whether a kill was asked for that has not come about."""
        return self._armed is not None or bool(self._victims)

    # ------------------------------------------------------------ workers
    def _start_for_events(self) -> None:
        if any(worker.is_alive() for worker in (*self._victims, *self._workers)):
            return
        if self._armed is None:
            self._workers = self._start()
            return
        (point, event_type, count), self._armed = self._armed, None
        self._victims = self._start(count, point, event_type)

    def _start(
        self, count: int = 1, crash: CrashPoint | None = None, event_type: str | None = None
    ) -> list[CrashWorker]:
        if self._folder is not None:
            (self._folder / "killed").unlink(missing_ok=True)
        workers = [self._make(crash, event_type) for _ in range(count)]
        for worker in workers:
            self._crew.append(worker)
            worker.start()
        try:
            for worker in workers:
                worker.wait_ready()
        except WorkerStartError as error:
            for worker in workers:
                worker.kill()
            raise WorkerFailedError(f"{error}; its log, on standard error, may say more") from None
        return workers

    def _make(self, crash: CrashPoint | None, event_type: str | None) -> CrashWorker:
        return CrashWorker(
            make,
            (self._order(),),
            crash=crash,
            event_type=event_type,
            mark=None if self._folder is None else str(self._folder / "killed"),
            # A script that starts pytest is read by each process; what it imports is there already then.
            preload=[*({"pytest"} & {*sys.modules}), "sqlalchemy.orm"],
        )

    def _order(self) -> Order:
        urls = {variable: server.url for variable, server in self._servers.items()}
        assert self._lifeline is not None  # noqa: S101 - of an open lab
        return Order(
            self.target,
            tuple(sys.path),
            str(Path.cwd()),
            {**os.environ, **urls},
            str(self._seen),
            self._longest_delay,
            self._lifeline[1],
            self.queue.stand_in,
        )

    def _await_death(self, ends_at: float) -> None:
        """Wait until a victim is dead, or everything has ended without that."""
        victims = self._victims
        while all(victim.is_alive() for victim in victims):
            left, ready = self._left(), self._ready()
            if not left and not ready:
                break
            if time.monotonic() > ends_at:
                raise self._unsettled(left, ready)
            multiprocessing.connection.wait([victim.sentinel for victim in victims], _PAUSE)
        if all(victim.is_alive() for victim in victims):
            # Only a worker that has ended for certain has passed everything that it would pass.
            codes = [victim.stop(self.timeout) for victim in victims]
        else:
            codes = [victim.exit_code for victim in victims if not victim.is_alive()]
        self._victims = []
        self._workers = [victim for victim in victims if victim.is_alive() and self.queue.is_quick]
        for victim in victims:
            if victim not in self._workers:
                victim.kill()  # where it is dead already, what it told is read
        if not self._workers:
            self._running(self.queue.bury())
        is_dead = any(victim.reached for victim in victims)
        if not {*codes} <= {0, -signal.SIGKILL}:
            raise LabError(f"workers ended with exit codes {codes}: their log, on standard error, says why")
        self._note_death(victims[0].crash, is_dead=is_dead)

    def _note_death(self, point: CrashPoint | None, *, is_dead: bool) -> None:
        assert point is not None  # noqa: S101 - victims have one
        if is_dead:
            self.killed_at = point
            self.kills.append(point)
        elif self.when_unreached is None:
            raise PointNotReachedError(f"{point} was not reached by these events{fates(self.observe().events)}")
        else:
            self.when_unreached(point)

    def _await_ends(self, ends_at: float) -> None:
        """Let a worker run until nothing is left that anybody could see."""
        looks = 0
        while looks < _LOOKS:
            if not self._workers:
                self._workers = self._start()
            if not all(worker.is_alive() for worker in self._workers):
                codes = [worker.exit_code for worker in self._workers]
                raise LabError(f"workers ended with exit codes {codes}: their log, on standard error, says why")
            left = self._left()
            ready = 0 if left else self._ready()
            looks = 0 if left or ready else looks + 1
            if time.monotonic() > ends_at:
                raise self._unsettled(left, self._ready())
            time.sleep(_PAUSE)

    def _stop_all(self) -> None:
        for worker in (*self._workers, *self._victims):
            worker.stop(self.timeout)
        self._workers, self._victims = [], []

    def _kill_all(self) -> None:
        alive = [worker for worker in self._crew if worker.is_alive()]
        for worker in alive:
            worker.kill()
        self._workers, self._victims, self._crew = [], [], []
        if alive and self._loop is not None:
            self._loop.run(self.queue.bury())

    # ------------------------------------------------------------ facts
    def _ended(self) -> Ended:
        given_up = self._running(self.queue.given_up())
        sent = [message for message in self._sent if message.event is not None and message.event.id in given_up]
        expired = frozenset(key for message in sent if (key := self._key(message)) is not None)
        return replace(self.database.ended(self._inbox.name), expired=expired)

    def _ready(self) -> int:
        count: int = self._running(self.queue.ready())
        return count

    def _left(self) -> list[str]:
        """Names of the events that have not ended."""
        ended, before = self._ended(), self._before or Ended()
        keyless = before.keyless + len({message.body for message in self._sent if self._key(message) is None})
        left = [
            self._name_of(message, turn)
            for turn, message in self._numbered()
            if (key := self._key(message)) is not None and key not in ended
        ]
        return left + ["one without an id"] * max(keyless - ended.keyless, 0)

    def _key(self, message: Message) -> bytes | None:
        return message.key(self._settings.identity)

    def _numbered(self) -> list[tuple[int, Message]]:
        return list(enumerate(dict.fromkeys(self._sent), start=1))

    def _name_of(self, message: Message, turn: int) -> str:
        return f"number {turn}" if message.event is None else message.event.id

    def _word_for(self, message: Message, ended: Ended) -> str:
        key = self._key(message)
        return f"{ended.keyless} without a key in quarantine" if key is None else ended.word_for(key)

    def _unsettled(self, left: Sequence[str], ready: int) -> LabError:
        named = ", ".join(left[:_MOST_NAMED]) + (f" and {len(left) - _MOST_NAMED} more" * (len(left) > _MOST_NAMED))
        facts = [f"not ended: {named}"] if left else []
        facts += [f"{ready} messages in {self.queue.name} and its other queues"] if ready else []
        if starts := self._ended().open_starts:
            facts.append(f"{starts} starts of handlers left open")
        return LabError(f"not settled in time{self._after_what()}: {'; '.join(facts) or 'nobody took what was left'}")

    def _after_what(self) -> str:
        return "" if self.killed_at is None else f" after a kill at {self.killed_at}"

    def _running(self, work: Any) -> Any:
        if self._loop is None:
            work.close()
            raise ConfigurationError("the lab is not open: `with Lab(…) as lab`")
        return self._loop.run(work)


def _answer(found: tuple[tuple[str, ...], list[Row]]) -> Rows:
    return Rows(found[0], Counter(found[1]))
