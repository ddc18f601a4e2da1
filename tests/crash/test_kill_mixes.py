"""SIGKILL before and after every command, where the queue and the database are of different kinds."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from inbox.core.crashpoints import CrashPoint, crash_points
from inbox.testing.crash import CrashWorker
from tests.crash import app, mixed_app
from tests.crash.embedded_world import KINDS, Files
from tests.crash.orbit_process import OrbitProcess
from tests.crash.orbit_world import OrbitWorld
from tests.crash.reached import ONE, THREE, note
from tests.crash.test_orbit_kills import POINTS as LEASED_POINTS
from tests.crash.test_orbit_kills import recover as recover_leased
from tests.crash.world import World, make_world
from tests.pairs import Pair

POINTS = [pytest.param(point, id=str(point)) for point in crash_points()]


def as_bytes(rows: list[Any]) -> tuple[tuple[Any, ...], ...]:
    """Ids as a server would give them."""
    return tuple(tuple(value.encode() if isinstance(value, str) else value for value in row) for row in rows)


class BrokerAndFile(World):
    """A queue of RabbitMQ's, and tables in a file."""

    files: Files

    def worker(
        self, *, database_port: int | None = None, broker_port: int | None = None, **options: Any
    ) -> CrashWorker:
        where = (str(self.files.folder), self.pair.amqp_url, self.queue, self.exchange)
        worker = CrashWorker(mixed_app.broker_and_file, where, **options)
        worker.start()
        return worker

    async def publish(self, label: str, kinds: list[str] = KINDS, copies: int = 2) -> None:
        await super().publish(label, kinds, copies)

    def query(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        return as_bytes(self.files.query(sql))

    async def recover(self) -> None:
        survivor = self.worker()
        await asyncio.to_thread(survivor.wait_ready)
        await self.wait_copies_back()
        assert await asyncio.to_thread(survivor.stop) == 0
        await self.judge()


class QueueAndServer(Files):
    """A queue in a file, and tables of MySQL's or MariaDB's."""

    kinds = (*KINDS, "lose_connection")

    def __init__(self, folder: Path, server: World) -> None:
        super().__init__(folder)
        self._server = server

    def worker(self, **options: Any) -> CrashWorker:
        where = (str(self.folder), self._server.pair.database_url)
        worker = CrashWorker(mixed_app.queue_and_server, where, **options)
        worker.start()
        return worker

    def query(self, sql: str) -> list[Any]:
        return [*self._server.query(sql)]


class LeasesAndFile(OrbitWorld):
    """A leased subscription, and tables in a file."""

    files: Files

    def worker(self, *more: object, **options: Any) -> CrashWorker:
        where = (str(self.files.folder), self.platform.url, self.subscription, self.platform.credential)
        worker = CrashWorker(mixed_app.leases_and_file, where, **options)
        worker.start()
        self.workers.append(worker)
        return worker

    async def publish(self, kinds: list[str] = KINDS) -> list[str]:
        return await super().publish(kinds)

    def query(self, sql: str) -> tuple[tuple[Any, ...], ...]:
        return as_bytes(self.files.query(sql))


# ------------------------------------------------------------------ RabbitMQ and SQLite
@pytest.fixture
async def broker_and_file(pair: Pair, tmp_path: Path) -> BrokerAndFile:
    made = await make_world(pair)
    world = BrokerAndFile(pair, made.queue, made.exchange, [], delays=app.SETTINGS.retry.steps)
    world.files = Files(tmp_path)
    return world


@pytest.mark.rotates_with(ONE)
@pytest.mark.parametrize("point", POINTS)
async def test_one_worker_of_a_broker_and_a_file_is_killed(broker_and_file: BrokerAndFile, point: CrashPoint) -> None:
    await kill(broker_and_file, point, 1)


@pytest.mark.rotates_with(THREE)
@pytest.mark.parametrize("point", POINTS)
async def test_three_workers_of_a_broker_and_a_file_are_killed(
    broker_and_file: BrokerAndFile, point: CrashPoint
) -> None:
    await kill(broker_and_file, point, 3)


# ------------------------------------------------------------------ a queue in a file, and MySQL or MariaDB
@pytest.fixture
async def queue_and_server(pair: Pair, tmp_path: Path) -> QueueAndServer:
    return QueueAndServer(tmp_path, await make_world(pair))


@pytest.mark.rotates_with(ONE)
@pytest.mark.parametrize("point", POINTS)
async def test_one_worker_of_a_queue_and_a_server_is_killed(
    queue_and_server: QueueAndServer, point: CrashPoint
) -> None:
    await kill(queue_and_server, point, 1)


@pytest.mark.rotates_with(THREE)
@pytest.mark.parametrize("point", POINTS)
async def test_three_workers_of_a_queue_and_a_server_are_killed(
    queue_and_server: QueueAndServer, point: CrashPoint
) -> None:
    await kill(queue_and_server, point, 3)


# ------------------------------------------------------------------ a leased subscription and SQLite
@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrbitProcess]:
    with OrbitProcess(tmp_path_factory.mktemp("orbit")) as process:
        yield process


@pytest.fixture
async def leases_and_file(platform: OrbitProcess, tmp_path: Path) -> AsyncIterator[LeasesAndFile]:
    queue = f"q{secrets.token_hex(8)}"
    subscription = await asyncio.to_thread(platform.subscribe, queue)
    no_pair: Any = None
    with closing(LeasesAndFile(no_pair, platform, queue, subscription)) as world:
        world.files = Files(tmp_path)
        yield world


@pytest.mark.rotates_with(ONE)
@pytest.mark.parametrize("point", LEASED_POINTS)
async def test_one_worker_of_leases_and_a_file_is_killed(leases_and_file: LeasesAndFile, point: CrashPoint) -> None:
    await kill(leases_and_file, point, 1)


@pytest.mark.rotates_with(THREE)
@pytest.mark.parametrize("point", LEASED_POINTS)
async def test_three_workers_of_leases_and_a_file_are_killed(leases_and_file: LeasesAndFile, point: CrashPoint) -> None:
    await kill(leases_and_file, point, 3)


# ------------------------------------------------------------------ what is done to each
async def kill(world: BrokerAndFile | QueueAndServer | LeasesAndFile, point: CrashPoint, workers: int) -> None:
    """Let one die where it first comes to the point, and the others with it; then another one does the rest."""
    victims = [world.worker(crash=point) for _ in range(workers)]
    await asyncio.gather(*(asyncio.to_thread(victim.wait_ready) for victim in victims))
    copies = 2 if workers == 1 else 3
    if isinstance(world, BrokerAndFile):
        await world.publish("one", copies=copies)
    elif isinstance(world, QueueAndServer):
        await world.publish(copies)
    else:  # a platform hands one event out to one worker: more of them, then
        await world.publish(KINDS * (copies - 1))
    await asyncio.to_thread(CrashWorker.wait_any_killed, victims)
    for victim in victims:
        victim.kill()
    note(ONE if workers == 1 else THREE, victims)
    assert [str(point)] in [victim.reached for victim in victims], "the point was really reached"
    await (recover_leased(world) if isinstance(world, LeasesAndFile) else world.recover())
