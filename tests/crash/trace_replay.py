"""Replays a trace of the model on real servers, step by step, and looks after each whether the model is right."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import pymysql

from inbox.adapters.rabbitmq.publisher import Publisher
from inbox.core.lifecycle import Command
from inbox.testing.faults import Catch, Cut, FaultProxy, Link, Trap, is_amqp_ack, is_commit
from tests.crash import app
from tests.crash.test_outside_kills import is_amqp_publish, is_quarantine
from tests.crash.trace import Means, Message, Step, Trace
from tests.crash.trace_app import LOCKED, OWN
from tests.crash.trace_hands import PATIENCE, Crew, LedWorker, OtherwiseError
from tests.crash.world import World
from tests.facts import wait_until

#: Whoever has changed the most is not the victim of a dead-lock.
HEAVY = 200
#: A write beside the units is tried so often.
TRIES = 3

CLAIM, PROBE, UPDATE = "INSERT INTO %inbox%", "SELECT%LOCK IN SHARE MODE%", "UPDATE account%"


def is_note(command: bytes) -> bool:
    """Whether it notes a start."""
    return command[1:7] == b"INSERT" and b"inbox_attempt" in command.partition(b"(")[0]


def _session(worker: LedWorker) -> int:
    """The session of the unit that it has under way."""
    assert worker.at is not None, "it has said where it is"
    assert worker.at.session is not None, f"it has a unit at {worker.at.point}"
    return worker.at.session


@dataclass
class Orphan:
    """A session whose worker is gone, or has lost it; and its COMMIT, if that is held."""

    link: Link
    trap: Trap | None = None


class Servers:
    """What a plain connection sees of the database, and does to it; it goes past every proxy."""

    def __init__(self, world: World, connection: "pymysql.Connection[pymysql.cursors.Cursor]") -> None:
        self._world = world
        self._connection = connection

    def ask(self, sql: str, *values: object) -> tuple[tuple[Any, ...], ...]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchall()

    def durable(self, event: str) -> tuple[int, int, bool]:
        """Rows and effects of an event, and whether it is in quarantine."""
        key = event.encode()
        ((rows, effects, entries),) = self.ask(
            "SELECT (SELECT COUNT(*) FROM inbox WHERE event_id = %s), "
            "(SELECT COUNT(*) FROM effect WHERE event_id = %s), "
            "(SELECT COUNT(*) FROM inbox_quarantine WHERE body LIKE %s)",
            *(key, key, f'%"{event}"%'),
        )
        return int(rows), int(effects), bool(entries)

    # ------------------------------------------------------------ sessions
    def _sessions(self, like: str = "%") -> dict[int, int]:
        """Numbers of the sessions of this database that do such a thing, by the port from which they come."""
        found = self.ask(
            "SELECT id, host FROM information_schema.processlist "
            "WHERE db = DATABASE() AND id <> CONNECTION_ID() AND COALESCE(info, '') LIKE %s",
            like,
        )
        return {int(str(host).rpartition(":")[2]): int(number) for number, host in found if ":" in str(host)}

    def link_of(self, worker: LedWorker, session: int) -> Link:
        """The way by which a session of the worker's comes."""
        ports = {number: port for port, number in self._sessions().items()}
        return next(link for link in worker.database.links if link.server_port == ports[session])

    async def wait_gone(self, ports: set[int]) -> None:
        """Return when the server has ended, and undone, what came from these ports."""
        await wait_until(lambda: not ports & self._sessions().keys(), PATIENCE)

    async def wait_at(self, worker: LedWorker, like: str) -> int:
        """Return the session of the worker's that does such a thing, as soon as one is seen at it: it waits."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [number for port, number in self._sessions(like).items() if port in worker.ports()]
            return bool(found)

        await wait_until(look, PATIENCE)
        return found[0]

    async def kill(self, worker: LedWorker, session: int) -> None:
        """KILL, and return when it is gone."""
        port = self.link_of(worker, session).server_port
        self.ask(f"KILL CONNECTION {session:d}")
        await self.wait_gone({port})

    def kill_query(self, session: int) -> None:
        self.ask(f"KILL QUERY {session:d}")

    @asynccontextmanager
    async def holding(self, *, is_heavy: bool = False) -> AsyncIterator["pymysql.cursors.Cursor"]:
        """Hold the row that a handler wants, from another session."""
        with closing(app.connect(self._world.pair.database_url)) as connection, connection.cursor() as cursor:
            connection.begin()
            if is_heavy:
                cursor.executemany("INSERT INTO run VALUES (%s, 1)", [(f"weight {number}",) for number in range(HEAVY)])
            cursor.execute("SELECT balance FROM account WHERE id = %s FOR UPDATE", (LOCKED,))
            yield cursor
            connection.rollback()


@dataclass(frozen=True)
class Stage:
    """Where traces are replayed, one after the other.

    Attributes:
        world: tables, queue and exchange.
        crew: who works there.
        servers: the database as anybody sees it.
        publisher: hands events over.
    """

    world: World
    crew: Crew
    servers: Servers
    publisher: Publisher


class Replay:
    """One trace.

    Args:
        stage: where.
        trace: what.
        name: begins the identities of its events.
    """

    def __init__(self, stage: Stage, trace: Trace, name: str) -> None:
        self._world = stage.world
        self._crew = stage.crew
        self._servers = stage.servers
        self._publisher = stage.publisher
        self._trace = trace
        self._events = [f"{name}-{number}" for number in range(len(trace.prepares))]
        self._hands: dict[str, LedWorker] = {}
        self._waiting: set[str] = set()
        self._orphans: dict[int, Orphan] = {}

    async def run(self) -> None:
        """Replay it.

        Raises:
            OtherwiseError: something happened that the trace does not say; it is told with every step up to there.
        """
        for number, step in enumerate(self._trace.steps):
            try:
                await self._do(step)
                self._compare(step)
            except (AssertionError, TimeoutError, LookupError, pymysql.MySQLError) as error:
                steps = "\n".join(f"  {at + 1:3} {each}" for at, each in enumerate(self._trace.steps[: number + 1]))
                what = str(error) or f"it did not come about ({type(error).__name__})"
                raise OtherwiseError(f"{what}; at the last of these steps:\n{steps}") from error
        await self._end()

    async def _do(self, step: Step) -> None:
        match step.means:
            case Means.TAKE:
                await self._take(step)
            case Means.SESSION_ENDS | Means.LATE_COMMIT:
                await self._end_session(step)
            case _ if step.move.outcome is None and step.means is not Means.WAIT:
                await self._die(step)
            case _:
                await self._carry_out(step)

    def _compare(self, step: Step) -> None:
        for event, facts in zip(self._events, step.facts, strict=True):
            wanted = (int(facts.row), int(facts.row), facts.quarantined)
            found = self._servers.durable(event)
            if found != wanted:
                raise OtherwiseError(f"rows, effects and quarantine of {event} should be {wanted}, and are {found}")

    async def _end(self) -> None:
        left = await self._world.left_in_queue()
        in_hand = [report for worker in self._crew.workers if (report := worker.look()) is not None]
        if left or in_hand:
            raise OtherwiseError(f"all should be over, but {left} are ready, and in hand is {in_hand}")

    # ------------------------------------------------------------ deliveries
    async def _take(self, step: Step) -> None:
        assert step.message is not None
        if step.is_new:
            await self._publish(step.message)
        self._hands[step.hand] = await self._who_has(step.message)

    async def _publish(self, message: Message) -> None:
        event = self._events[message.event]
        kind = "prepared" if self._trace.prepares[message.event] else "plain"
        body = {
            "event": event,
            "number": message.event,
            "other": message.is_other,
            "garbled": message.is_garbled,
        }
        await self._publisher.publish(
            json.dumps(body).encode(),
            exchange=self._world.exchange,
            routing_key=kind,
            headers={
                "ce-id": event,
                "ce-source": "/tests",
                "ce-type": kind,
                "ce-specversion": "0.1" if message.is_garbled else "1.0",
            },
            content_type="application/json",
        )

    async def _who_has(self, message: Message) -> LedWorker:
        """Wait until a worker that has not begun has this in hand."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for worker in self._crew.workers:
                    report = None if worker in self._hands.values() else worker.look()
                    if report is None:
                        continue
                    if report.event not in self._events or report.point != "before:decode":
                        raise OtherwiseError(f"nobody should have this in hand: {report}")
                    if report.message == message:
                        return worker
                await asyncio.sleep(0.003)

    # ------------------------------------------------------------ one command
    async def _carry_out(self, step: Step) -> None:
        command, worker = step.move.command, self._hands[step.hand]
        assert command is not None
        if step.hand not in self._waiting:
            await self._come_before(worker, command)
        if step.means is Means.WAIT:
            worker.tell()
            await self._servers.wait_at(worker, CLAIM if command is Command.CLAIM else PROBE)
            self._waiting.add(step.hand)
            return
        await self._bring_about(step, worker, command)
        self._waiting.discard(step.hand)
        report = await worker.arrive(f"after:{command.value}")
        assert step.move.outcome is not None
        if report.outcome != step.move.outcome.value:
            raise OtherwiseError(f"{command.value} came to {report.outcome}")
        if command in (Command.ACKNOWLEDGE, Command.RELEASE):
            del self._hands[step.hand]
            await self._let_settle(step, worker)

    async def _let_settle(self, step: Step, worker: LedWorker) -> None:
        trap = worker.broker.trap(is_amqp_ack, Catch.CUT) if step.means is Means.ACK_CUT else None
        worker.tell()
        if trap is not None:
            await trap.wait(PATIENCE)

    async def _come_before(self, worker: LedWorker, command: Command) -> None:
        point = f"before:{command.value}"
        if worker.at is not None and worker.at.point != point:
            worker.tell()
        await worker.arrive(point)

    async def _bring_about(self, step: Step, worker: LedWorker, command: Command) -> None:
        """Let it carry the command out under such circumstances."""
        match step.means:
            case Means.KILL_QUERY | Means.KILL_SESSION:
                await self._kill(step, worker)
            case Means.SWALLOW_LOCK_WAIT | Means.SWALLOW_KILL | Means.SWALLOW_DEADLOCK:
                await self._trouble_handler(worker, step.means)
            case Means.COMMIT_UNANSWERED | Means.COMMIT_CUT | Means.COMMIT_HELD:
                await self._lose_commit(step, worker)
            case Means.WRITE_CUT:
                matches = is_quarantine if command is Command.QUARANTINE else is_note
                traps = [worker.database.trap(matches, Catch.CUT) for _ in range(TRIES)]
                worker.tell()
                await traps[-1].wait(PATIENCE)
            case Means.COPY_UNCONFIRMED:
                await self._trap(worker.broker, is_amqp_publish, Catch.LOSE_ANSWER, worker)
            case Means.COPY_CUT:
                await self._trap(worker.broker, is_amqp_publish, Catch.CUT, worker)
            case _ if step.hand not in self._waiting:
                worker.tell(step.means)

    async def _kill(self, step: Step, worker: LedWorker) -> None:
        if step.hand not in self._waiting:
            await self._servers.kill(worker, _session(worker))
            worker.tell(step.means)
            return
        session = await self._servers.wait_at(worker, CLAIM)
        if step.means is Means.KILL_QUERY:
            self._servers.kill_query(session)
        else:
            await self._servers.kill(worker, session)

    async def _lose_commit(self, step: Step, worker: LedWorker) -> None:
        port = self._servers.link_of(worker, _session(worker)).server_port
        if step.means is Means.COMMIT_HELD:
            self._keep(step, worker, await self._trap(worker.database, is_commit, Catch.HOLD_COMMAND, worker))
            return
        catch = Catch.CUT if step.means is Means.COMMIT_CUT else Catch.LOSE_ANSWER
        await self._trap(worker.database, is_commit, catch, worker)
        await self._servers.wait_gone({port})

    async def _trap(self, proxy: FaultProxy, matches: Callable[[bytes], bool], catch: Catch, worker: LedWorker) -> Trap:
        """Let the worker go on, into a trap."""
        trap = proxy.trap(matches, catch)
        worker.tell()
        await trap.wait(PATIENCE)
        return trap

    async def _trouble_handler(self, worker: LedWorker, means: Means) -> None:
        async with self._servers.holding(is_heavy=means is Means.SWALLOW_DEADLOCK) as cursor:
            worker.tell(means)
            if means is Means.SWALLOW_KILL:
                self._servers.kill_query(await self._servers.wait_at(worker, UPDATE))
            elif means is Means.SWALLOW_DEADLOCK:
                await self._servers.wait_at(worker, UPDATE)
                want = "SELECT balance FROM account WHERE id = %s FOR UPDATE"
                await asyncio.to_thread(cursor.execute, want, (OWN,))
            await worker.arrive(f"after:{Command.APPLY.value}")

    # ------------------------------------------------------------ deaths and sessions
    async def _die(self, step: Step) -> None:
        command, worker = step.move.command, self._hands.pop(step.hand)
        assert command is not None
        if step.means not in (Means.DIES_AFTER, Means.DIES_AFTER_ORPHAN):
            await self._come_before(worker, command)
        match step.means:
            case Means.DIES_AFTER_ORPHAN | Means.DIES_BEFORE_ORPHAN:
                self._keep(step, worker)
            case Means.DIES_UNDER_WAY:
                self._keep(step, worker, await self._trap(worker.database, is_commit, Catch.HOLD_COMMAND, worker))
            case Means.DIES_UNANSWERED:
                proxy, matches = {
                    Command.COMMIT: (worker.database, is_commit),
                    Command.QUARANTINE: (worker.database, is_quarantine),
                    Command.DELAY: (worker.broker, is_amqp_publish),
                }[command]
                await self._trap(proxy, matches, Catch.HOLD_ANSWER, worker)
            case Means.DIES_WITH_ACK_SENT | Means.DIES_WITH_ACK_HELD:
                await self._send_ack(worker, is_held=step.means is Means.DIES_WITH_ACK_HELD)
            case Means.DIES_WITH_RELEASE_HELD:
                worker.tell()
                await worker.arrive("after:release")
        ports = worker.ports()
        if step.means is Means.DIES_INSIDE:
            async with self._servers.holding():
                worker.tell(step.means)
                await self._servers.wait_at(worker, UPDATE)
                await worker.kill()
        else:
            await worker.kill()
        await self._servers.wait_gone(ports)
        await self._crew.replace(worker)

    async def _send_ack(self, worker: LedWorker, *, is_held: bool) -> None:
        trap = worker.broker.trap(is_amqp_ack, Catch.HOLD_COMMAND)
        worker.tell()
        await worker.arrive("after:acknowledge")
        worker.tell()
        await trap.wait(PATIENCE)
        if not is_held:
            trap.release()
            # It comes to the queue before these answers, and long before the end of its channel.
            await self._world.left_in_queue()

    def _keep(self, step: Step, worker: LedWorker, trap: Trap | None = None) -> None:
        """Let the session of the unit live on, without its worker."""
        link = None if trap is None else trap.link
        if link is None:
            link = self._servers.link_of(worker, _session(worker))
        worker.orphans.append(link)
        link.cut_client()
        self._orphans[step.move.event] = Orphan(link, trap)

    async def _end_session(self, step: Step) -> None:
        orphan = self._orphans.pop(step.move.event)
        if step.means is Means.LATE_COMMIT:
            assert orphan.trap is not None
            orphan.trap.release()
            event = self._events[step.move.event]
            await wait_until(lambda: self._servers.durable(event)[0] > 0, PATIENCE)
        port = orphan.link.server_port
        orphan.link.cut(Cut.FIN)
        await self._servers.wait_gone({port})
