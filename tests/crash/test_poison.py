"""Events that kill or fail whoever handles them: each ends in quarantine, and its neighbours are charged nothing."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.settings import Binding, QueueKind, RabbitMQSettings
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings
from inbox.core.event import Event
from inbox.core.policy import RetryPolicy
from inbox.errors import Reject, Retry
from inbox.testing.crash import CrashWorker
from tests.crash.app import connect
from tests.crash.world import World

MAX_ATTEMPTS = 3
NEIGHBOURS = 19
SETTINGS = ConsumerSettings(
    concurrency=1,
    prefetch=20,
    deadline=20,
    shutdown_patience=10,
    retry=RetryPolicy(max_attempts=MAX_ATTEMPTS, delays=(0.05,), first_delay=0.02, max_delay=0.05),
)
SIDE_BY_SIDE = replace(SETTINGS, concurrency=8)


class Poison:
    """Handlers by how they fail, every time. Each start of one is noted outside the unit."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._slow = 0

    async def note_start(self, event: Event, session: AsyncSession) -> None:
        """Write half an effect, and note for good that the handler ran."""
        await session.execute(text("INSERT INTO effect VALUES (:id)"), {"id": event.id.encode()})
        with closing(connect(self._url)) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO run VALUES (%s, 1) ON DUPLICATE KEY UPDATE n = n + 1", (event.id.encode(),))

    async def exit(self, event: Event, session: AsyncSession) -> None:
        await self.note_start(event, session)
        os._exit(1)

    async def kill(self, event: Event, session: AsyncSession) -> None:
        await self.note_start(event, session)
        os.kill(os.getpid(), signal.SIGKILL)

    async def fail(self, event: Event, session: AsyncSession) -> None:
        await self.note_start(event, session)
        raise LookupError("a payload that no log may show")

    async def retry(self, event: Event, session: AsyncSession) -> None:
        await self.note_start(event, session)
        raise Retry(after=0.01)

    async def reject(self, event: Event, session: AsyncSession) -> None:
        await self.note_start(event, session)
        raise Reject("not one of ours")

    async def slow(self, event: Event, session: AsyncSession) -> None:
        """Long enough to be running when a neighbour kills the process."""
        await self.apply(event, session)
        self._slow += 1
        await session.execute(text("SELECT SLEEP(0.2)"))
        self._slow -= 1

    async def kill_company(self, event: Event, session: AsyncSession) -> None:
        """Once neighbours run beside it; alone it waits for them in vain."""
        await self.note_start(event, session)
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                while self._slow < 3:
                    await asyncio.sleep(0.002)
        os.kill(os.getpid(), signal.SIGKILL)

    async def apply(self, event: Event, session: AsyncSession) -> None:
        await self.note_start(event, session)
        await session.execute(text("UPDATE account SET balance = balance + 1 WHERE id = 0"))


def make(
    database_url: str,
    amqp_url: str,
    queue: str,
    exchange: str,
    *,
    kind: QueueKind,
    settings: ConsumerSettings = SETTINGS,
) -> Inbox:
    inbox = Inbox(
        "ledger",
        store=MySQL(database_url),
        transport=RabbitMQ(
            amqp_url, queue, [Binding(exchange, "#", declare="topic")], RabbitMQSettings(queue_type=kind, ack_linger=0)
        ),
        settings=settings,
    )
    poison = Poison(database_url)
    for name in ("exit", "kill", "fail", "retry", "reject", "apply", "slow", "kill_company"):
        inbox.handler(name)(getattr(poison, name))
    return inbox


def make_quorum(*names: str) -> Inbox:
    return make(*names, kind="quorum")


def make_classic(*names: str) -> Inbox:
    return make(*names, kind="classic")


def make_side_by_side(*names: str) -> Inbox:
    return make(*names, kind="quorum", settings=SIDE_BY_SIDE)


def with_factory(world: World, factory: Callable[..., Inbox]) -> World:
    world.factory, world.delays = factory, SETTINGS.retry.steps
    for name in world.retry_queues:
        world.pair.discard(name)
    return world


@pytest.fixture(params=["quorum", "classic"])
def poisoned(world: World, request: pytest.FixtureRequest) -> World:
    return with_factory(world, make_quorum if request.param == "quorum" else make_classic)


@pytest.mark.parametrize("crash", ["exit", "kill"])
async def test_an_event_that_kills_its_worker_ends_in_quarantine(poisoned: World, crash: str) -> None:
    """It is in front, so each worker that dies of it has all of its neighbours in hand."""
    worker = await started(poisoned)
    await poisoned.publish("poison", [crash] + ["apply"] * NEIGHBOURS, copies=1)
    deaths = 0
    while not await drained_or_dead(poisoned, worker):
        deaths += 1
        assert deaths <= MAX_ATTEMPTS + 1, "the crash loop ends"
        worker = await started(poisoned)
    assert await asyncio.to_thread(worker.stop) == 0
    # The first run of a pristine delivery leaves no note: only then is the hot path free of one.
    assert deaths in (MAX_ATTEMPTS, MAX_ATTEMPTS + 1)
    assert runs(poisoned)["poison-0"] == deaths
    assert quarantined(poisoned) == [("poison-0", "crashed", MAX_ATTEMPTS)]
    assert effects(poisoned) == Counter({f"poison-{n}": 1 for n in range(1, NEIGHBOURS + 1)})
    assert poisoned.query("SELECT balance FROM account WHERE id = 0") == ((NEIGHBOURS,),)
    assert charged(poisoned) == {}, "no neighbour was charged, and nothing of the poison is left open"
    assert await poisoned.left_in_queue() == 0


async def test_innocents_beside_a_crasher_are_cleared_by_running_alone(world: World) -> None:
    """Eight handlers at once: each death takes seven neighbours with it, which nobody can tell from the cause."""
    with_factory(world, make_side_by_side)
    worker = await started(world)
    await world.publish("poison", ["slow"] * 3 + ["kill_company"] + ["slow"] * (NEIGHBOURS - 3), copies=1)
    deaths = 0
    while not await drained_or_dead(world, worker):
        deaths += 1
        # One of a pristine delivery and one beside others cost nothing; then it is alone, and each is its own.
        assert deaths <= MAX_ATTEMPTS + 2, "the crash loop ends"
        worker = await started(world)
    assert await asyncio.to_thread(worker.stop) == 0
    assert deaths in (MAX_ATTEMPTS + 1, MAX_ATTEMPTS + 2)
    assert quarantined(world) == [("poison-3", "crashed", MAX_ATTEMPTS)]
    innocents = {f"poison-{n}" for n in range(NEIGHBOURS + 1)} - {"poison-3"}
    assert effects(world) == Counter(innocents)
    assert sum(runs(world)[one] > 1 for one in innocents) >= 3, "some ran in a process when it was killed"
    assert charged(world) == {}, "no innocent was charged"
    assert world.query("SELECT attempt_key FROM inbox_attempt") == ((b"poison-3",),)


async def test_a_crasher_that_came_twice_does_not_run_beside_others_in_the_place_of_itself(world: World) -> None:
    with_factory(world, make_side_by_side)
    worker = await started(world)
    await world.publish("poison", ["kill"], copies=2)
    deaths = 0
    while not await has_seen(world, worker, 2) or not await has_stopped_in_order(world, worker):
        deaths += 1
        # The first delivery as above. The second finds no open start: once beside others and once alone at most.
        assert deaths <= MAX_ATTEMPTS + 2 + 2, "the crash loop ends"
        worker = await started(world)
    assert [row[:2] for row in quarantined(world)] == [("poison-0", "crashed")]
    assert await world.left_in_queue() == 0


@pytest.mark.parametrize(("kind", "reason"), [("fail", "handler-error"), ("retry", "retries-used-up")])
async def test_an_event_that_always_fails_is_run_so_often_and_then_quarantined(
    poisoned: World, kind: str, reason: str
) -> None:
    worker = await started(poisoned)
    await poisoned.publish("poison", [kind] + ["apply"] * 3, copies=1)
    await poisoned.wait_drained()
    assert await asyncio.to_thread(worker.stop) == 0
    assert runs(poisoned) == Counter({"poison-0": MAX_ATTEMPTS, "poison-1": 1, "poison-2": 1, "poison-3": 1})
    assert quarantined(poisoned) == [("poison-0", reason, MAX_ATTEMPTS)]
    assert effects(poisoned) == Counter({"poison-1": 1, "poison-2": 1, "poison-3": 1})


async def test_what_is_rejected_is_run_once(poisoned: World) -> None:
    worker = await started(poisoned)
    await poisoned.publish("poison", ["reject", "apply"], copies=1)
    await poisoned.wait_drained()
    assert await asyncio.to_thread(worker.stop) == 0
    assert runs(poisoned) == Counter({"poison-0": 1, "poison-1": 1})
    assert quarantined(poisoned) == [("poison-0", "rejected", 0)]
    assert effects(poisoned) == Counter({"poison-1": 1})


async def test_a_duplicate_of_a_quarantined_event_keeps_its_count_and_adds_no_row(world: World) -> None:
    """It runs normally: what was wrong may be mended. It has used up its attempts, so once is enough."""
    with_factory(world, make_quorum)
    worker = await started(world)
    await world.publish("poison", ["fail"], copies=1)
    await world.wait_drained()
    assert runs(world)["poison-0"] == MAX_ATTEMPTS
    await world.publish("poison", ["fail"], copies=1)
    await wait_for_runs(world, "poison-0", MAX_ATTEMPTS + 1)
    await world.wait_drained()
    assert await asyncio.to_thread(worker.stop) == 0
    assert runs(world)["poison-0"] == MAX_ATTEMPTS + 1
    assert [row[:2] for row in quarantined(world)] == [("poison-0", "handler-error")]
    assert world.query("SELECT times_seen FROM inbox_quarantine") == ((2,),)
    assert await world.left_in_queue() == 0


async def test_a_duplicate_of_an_event_that_killed_its_workers_is_run_again_and_keeps_its_count(world: World) -> None:
    """It is not put away unseen: what was wrong may be mended. Another death is one more crash, and enough."""
    with_factory(world, make_quorum)
    deaths = 0
    for times_seen in (1, 2):
        worker = await started(world)
        await world.publish("poison", ["kill"], copies=1)
        while not await has_seen(world, worker, times_seen):
            deaths += 1
            worker = await started(world)
        assert await asyncio.to_thread(worker.stop) == 0
        assert runs(world)["poison-0"] == deaths
    # A pristine delivery leaves no note of its first run, a redelivered one is charged by the start after its death.
    assert deaths in range(MAX_ATTEMPTS + 1, MAX_ATTEMPTS + 4)
    assert quarantined(world) == [("poison-0", "crashed", MAX_ATTEMPTS + 1)], "what the newest run has cost counts"
    assert world.query("SELECT failed, crashed, open_since FROM inbox_attempt") == ((0, MAX_ATTEMPTS + 1, None),)
    assert effects(world) == Counter()


# ------------------------------------------------------------------ steps and facts
async def started(world: World) -> CrashWorker:
    worker = world.worker()
    await asyncio.to_thread(worker.wait_ready)
    return worker


async def drained_or_dead(world: World, worker: CrashWorker) -> bool:
    """Return when the worker has died (False), or everything has ended (True)."""
    async with asyncio.timeout(60):
        while worker.is_alive():
            if world._all_ended() and await world.left_in_queue() == 0:
                return True
            await asyncio.sleep(0.02)
    assert worker.exit_code in (1, -signal.SIGKILL)
    return False


async def has_stopped_in_order(world: World, worker: CrashWorker) -> bool:
    return await asyncio.to_thread(worker.stop) == 0 and await world.left_in_queue() == 0


async def has_seen(world: World, worker: CrashWorker, number: int) -> bool:
    """Return when the worker has died (False), or the quarantine has seen its event so often (True)."""
    async with asyncio.timeout(60):
        while worker.is_alive():
            if any(seen >= number for (seen,) in world.query("SELECT times_seen FROM inbox_quarantine")):
                return True
            await asyncio.sleep(0.02)
    return False


async def wait_for_runs(world: World, event_id: str, number: int) -> None:
    async with asyncio.timeout(30):
        while runs(world)[event_id] < number:
            await asyncio.sleep(0.02)


def runs(world: World) -> Counter[str]:
    return Counter({row[0].decode(): row[1] for row in world.query("SELECT event_id, n FROM run")})


def effects(world: World) -> Counter[str]:
    return Counter(row[0].decode() for row in world.query("SELECT event_id FROM effect"))


def quarantined(world: World) -> list[tuple[str, str, int]]:
    rows = world.query("SELECT event_id, reason, attempts FROM inbox_quarantine")
    return [(row[0].decode(), row[1] if isinstance(row[1], str) else row[1].decode(), row[2]) for row in rows]


def charged(world: World) -> dict[str, tuple[int, int]]:
    """Attempts of every event that did not end in quarantine, and open starts of any."""
    rows = world.query(
        "SELECT attempt_key, failed, crashed, open_since FROM inbox_attempt "
        "WHERE open_since IS NOT NULL OR attempt_key NOT IN (SELECT event_id FROM inbox_quarantine)"
    )
    return {row[0].decode(): (row[1], row[2]) for row in rows}
