"""Kills from outside, at moments that only the wire knows: COMMIT durable and unread, COMMIT lost, ack under way."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from inbox.testing.crash import CrashWorker
from inbox.testing.faults import AmqpFraming, Catch, Cut, FaultProxy, MySqlFraming, Trap, is_amqp_ack, is_commit
from tests.crash import app
from tests.crash.world import World
from tests.facts import wait_until

WORKERS = pytest.mark.parametrize("number", [1, 3], ids=["one", "three"])


@pytest.fixture
async def database(world: World) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(world.pair.database.host, world.pair.database.port, framing=MySqlFraming) as proxy:
        yield proxy


@pytest.fixture
async def broker(world: World) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(world.pair.broker.host, world.pair.broker.port, framing=AmqpFraming) as proxy:
        yield proxy


@WORKERS
async def test_the_answer_to_commit_is_held(world: World, database: FaultProxy, number: int) -> None:
    traps = [database.trap(is_commit, Catch.HOLD_ANSWER) for _ in range(number)]
    victims = await start(world, number, database_port=database.port)
    await publish_into(world, traps)
    assert world.count("inbox") >= number, "each held COMMIT is durable"
    await kill(victims)
    await recover(world)


@WORKERS
async def test_the_commit_is_lost_and_its_session_lives_on(world: World, database: FaultProxy, number: int) -> None:
    """The orphaned transaction holds the row: a survivor may neither skip the event nor apply it beside it."""
    traps = [database.trap(is_commit, Catch.SWALLOW) for _ in range(number)]
    victims = await start(world, number, database_port=database.port)
    await publish_into(world, traps)
    await kill(victims)
    survivor = world.worker()
    await asyncio.to_thread(survivor.wait_ready)
    await wait_until(lambda: waiting_claims(world) > 0)
    recorded = world.count("inbox") + world.count("inbox_quarantine")
    assert recorded <= len(world.published) - number, "what an orphan holds is neither skipped nor applied"
    for trap in traps:
        assert trap.link is not None
        trap.link.cut()
    await finish(world, survivor)


@WORKERS
async def test_the_acknowledgement_is_held(world: World, broker: FaultProxy, number: int) -> None:
    traps = [broker.trap(is_amqp_ack, Catch.HOLD_COMMAND) for _ in range(number)]
    victims = await start(world, number, broker_port=broker.port)
    await publish_into(world, traps)
    assert world.count("inbox") + world.count("inbox_quarantine") >= 1, "only what is recorded is acknowledged"
    await kill(victims)
    broker.cut()
    await wait_for_ready(world, 1)
    await recover(world)


async def test_the_answer_to_commit_is_lost_and_nobody_is_killed(world: World, database: FaultProxy) -> None:
    traps = [database.trap(is_commit, catch) for catch in (Catch.LOSE_ANSWER, Catch.CUT, Catch.LOSE_ANSWER, Catch.CUT)]
    (worker,) = await start(world, 1, database_port=database.port)
    await publish_into(world, traps)
    await finish(world, worker)


# ------------------------------------------------------------------ nothing is settled before it is kept
def is_quarantine(command: bytes) -> bool:
    return command[1:7] == b"INSERT" and b"inbox_quarantine" in command


def is_amqp_publish(command: bytes) -> bool:
    """Whether an AMQP command is basic.publish (class 60, method 40): a worker publishes nothing but copies."""
    return command[:4] == b"\x00\x3c\x00\x28"


@pytest.mark.parametrize(
    ("kind", "is_held"), [("apply", is_commit), ("reject", is_quarantine), ("flaky", is_amqp_publish)]
)
async def test_what_is_held_on_its_way_is_not_settled(
    world: World, database: FaultProxy, broker: FaultProxy, kind: str, is_held: Callable[[bytes], bool]
) -> None:
    """A commit, an entry of the quarantine, a copy: until it is kept, the broker keeps the event, its only delivery."""
    trap = (broker if is_held is is_amqp_publish else database).trap(is_held, Catch.HOLD_COMMAND)
    victims = await start(world, 1, database_port=database.port, broker_port=broker.port)
    await world.publish("held", [kind], copies=1)
    await trap.wait(30)
    acks = count_acks(broker)
    await world.publish("beside", ["apply"], copies=1)  # acknowledged later than the other could be
    assert account_of("held-0") != account_of("beside-0"), "it waits for no lock of the other's"
    await wait_until(lambda: world.count("inbox") >= 1 and len(acks) > 0)
    await end(victims, database, broker)
    await wait_for_ready(world, 1)
    await recover(world, 20)


async def test_the_neighbours_of_what_is_held_do_not_settle_it(
    world: World, database: FaultProxy, broker: FaultProxy
) -> None:
    """Acknowledgements travel together, but never past a delivery that has none."""
    acks = count_acks(broker)
    trap = database.trap(is_commit, Catch.HOLD_COMMAND)
    victims = await start(world, 1, database_port=database.port, broker_port=broker.port)
    await world.publish("held", ["apply"] * app.ACCOUNTS, copies=1)  # of an account each: none waits for another's lock
    await trap.wait(30)
    await wait_until(lambda: world.count("inbox") == app.ACCOUNTS - 1 and len(acks) > 0)
    await end(victims, database, broker)
    await wait_for_ready(world, 1)
    await recover(world, 20)


def account_of(identifier: str) -> int:
    return sum(identifier.encode()) % app.ACCOUNTS


def count_acks(broker: FaultProxy) -> list[bytes]:
    """Acknowledgements that pass from now on."""
    seen: list[bytes] = []

    def count(command: bytes) -> bool:
        seen.extend([command] * is_amqp_ack(command))
        return False

    broker.trap(count, Catch.CUT)
    return seen


async def end(victims: list[CrashWorker], *proxies: FaultProxy) -> None:
    """Kill them, and let the servers read what was sent before they see the end."""
    await kill(victims)
    for proxy in proxies:
        proxy.cut(Cut.FIN)


# ------------------------------------------------------------------ steps
async def start(world: World, number: int, **ports: int) -> list[CrashWorker]:
    workers = [world.worker(**ports) for _ in range(number)]
    await asyncio.gather(*(asyncio.to_thread(worker.wait_ready) for worker in workers))
    return workers


async def publish_into(world: World, traps: list[Trap]) -> None:
    """Publish until every trap has caught something: racing workers share the events as they like."""
    for batch in range(20):
        await world.publish(f"batch-{batch}", copies=3)
        reached = [asyncio.ensure_future(trap.reached.wait()) for trap in traps]
        _, missing = await asyncio.wait(reached, timeout=3)
        for task in missing:
            task.cancel()
        if not missing:
            return
    pytest.fail("the commands to catch did not come")


async def kill(victims: list[CrashWorker]) -> None:
    assert all(victim.is_alive() for victim in victims)
    for victim in victims:
        await asyncio.to_thread(victim.kill)
        assert victim.exit_code == -9


async def recover(world: World, patience: float = 60) -> None:
    survivor = world.worker()
    await asyncio.to_thread(survivor.wait_ready)
    await finish(world, survivor, patience)


async def finish(world: World, worker: CrashWorker, patience: float = 60) -> None:
    await world.wait_copies_back(patience)
    assert await asyncio.to_thread(worker.stop) == 0
    await world.judge()


# ------------------------------------------------------------------ facts
async def wait_for_ready(world: World, least: int) -> None:
    async with asyncio.timeout(10):
        while await world.left_in_queue() < least:
            await asyncio.sleep(0.02)


def waiting_claims(world: World) -> int:
    """Claims that the server has under way, which is only seen of those that wait for a lock."""
    claims = (
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND info LIKE 'INSERT INTO %inbox%'"
    )
    return int(world.query(claims)[0][0])
