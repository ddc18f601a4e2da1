"""The examples that `docs/adopt.md` has its readers write, each run as the page says, on both pairs of servers."""

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from aio_pika.abc import AbstractIncomingMessage

from examples.warehouse import consumer
from inbox import AlreadyProcessed, CommitUnresolved, IdentityConflict, Inbox, NotApplied, TryAgain, UnitMisused
from inbox.errors import Torn
from inbox.testing.faults import AmqpFraming, Catch, FaultProxy, is_amqp_ack
from tests.acceptance.command import Command, Ended, run, running
from tests.acceptance.examples import EXAMPLES, Place, ended, program
from tests.acceptance.tables import create_tables
from tests.crash.world import at_port
from tests.facts import wait_until
from tests.pairs import Pair


@pytest.fixture
def place(pair: Pair) -> Place:
    made = Place(pair, pair.unique("example"))
    pair.discard(f"{made.queue}.dead")
    return made


def proxy_to(place: Place) -> FaultProxy:
    return FaultProxy(place.pair.broker.host, place.pair.broker.port, framing=AmqpFraming)


def is_well(done: Ended) -> bool:
    assert done.code == 0, done.err
    return not [word for word in ("Traceback", "Error", "ERROR") if word in done.err]


# ------------------------------------------------------------------ a mixin, your own models, Alembic
async def test_alembic_makes_the_tables_that_the_service_runs_on_and_takes_them_away(place: Place) -> None:
    pair = place.pair
    env = {
        "ALEMBIC_CONFIG": "billing/alembic.ini",
        "BILLING_DATABASE_URL": pair.database_url,
        "BILLING_AMQP_URL": pair.amqp_url,
        "BILLING_QUEUE": place.queue,
        "BILLING_EXCHANGE": pair.unique("jobs"),
        "INBOX_DATABASE_URL": pair.database_url,
        "INBOX_BROKER_URL": pair.amqp_url,
    }
    assert is_well(await ended("alembic", "upgrade", "head", env=env))
    async with running("run", "billing.app:inbox", env=env, cwd=EXAMPLES) as worker:
        again, checked, _ = await asyncio.gather(
            ended("alembic", "check", env=env),
            run("schema", "check", "--strict", "--json", env=env),
            worker.wait_for("consuming"),
        )
        assert is_well(again)
        assert "No new upgrade operations detected" in again.out
        assert (checked.code, json.loads(checked.out)) == (0, {"ok": True, "findings": []})
        words = ("--exchange", "", "--routing-key", place.queue, "--repeat", "3", "billing/events.jsonl")
        assert is_well(await run("publish", *words, env=env, cwd=EXAMPLES))
        await wait_until(lambda: place.execute("SELECT COUNT(*) FROM inbox") == [(2,)])
        stopped = await worker.stop()
    assert is_well(stopped)
    assert await place.ready() == 0
    assert "applied=2 duplicate=4" in stopped.err
    assert place.execute("SELECT tenant, kind, cents FROM entry ORDER BY kind") == [
        ("acme", "completed", 145),
        ("acme", "failed", 0),
    ]
    assert place.execute("SELECT * FROM account") == [("acme", 145)]
    assert is_well(await ended("alembic", "downgrade", "base", env=env))
    assert place.execute("SHOW TABLES") == [("alembic_version",)]


# ------------------------------------------------------------------ copied SQL, a consumer of your own
async def test_a_consumer_killed_between_commit_and_ack_reserves_once_and_settles_all_else(place: Place) -> None:
    folder = EXAMPLES / "warehouse/schema"
    files = sorted((folder / ("mysql" if place.pair.is_mysql else "mariadb")).glob("*.sql"))
    place.run_files(*files, *sorted(folder.glob("*.sql")))
    place.execute("INSERT INTO stock VALUES ('chair', 10)")
    env = {
        "WAREHOUSE_DATABASE_URL": place.pair.database_url,
        "WAREHOUSE_AMQP_URL": place.pair.amqp_url,
        "WAREHOUSE_QUEUE": place.queue,
    }
    async with proxy_to(place) as proxy:
        trap = proxy.trap(is_amqp_ack, Catch.HOLD_COMMAND)
        proxied = {"WAREHOUSE_AMQP_URL": at_port(place.pair.amqp_url, proxy.port)}
        async with program("warehouse.consumer", env=env | proxied) as victim:
            await victim.wait_for("consuming")
            await place.publish("order-1", "order.placed", order("order-1"))
            await trap.wait()
            assert reserved(place) == ["order-1"], "committed, and its acknowledgement never arrived"
            victim.send(signal.SIGKILL)
            assert (await victim.wait_ended()).code == -signal.SIGKILL

    async with program("warehouse.consumer", env=env) as survivor:
        await place.publish("order-1", "order.placed", order("order-1"), copies=2)
        await place.publish("order-1", "order.placed", order("order-9"))
        await place.publish(None, "order.placed", order("order-2"))
        await place.publish("order-3", "order.placed", order("order-3", quantity=100))
        await place.publish("order-4", "order.placed", '{"item": "chair"}')
        await place.publish("order-5", "order.placed", order("order-5"))
        await survivor.wait_for("settled order-5")
        survivor.send(signal.SIGINT)  # which closes its connections in order
        stopped = await survivor.wait_ended()
    assert reserved(place) == ["order-1", "order-5"]
    assert place.execute("SELECT free FROM stock") == [(6,)]
    assert sorted(place.execute("SELECT event_id FROM inbox")) == [(b"order-1",), (b"order-5",)]
    assert [await place.ready(), await place.ready(".dead")] == [0, 4]
    for said in ("refused: identity-conflict", "refused: missing-id", "out of stock: chair", "KeyError: 'quantity'"):
        assert stopped.err.count(said) == 1, said


def order(identifier: str, quantity: int = 2) -> str:
    return json.dumps({"order_id": identifier, "item": "chair", "quantity": quantity})


def reserved(place: Place) -> list[str]:
    return [row[0] for row in place.execute("SELECT order_id FROM reservation ORDER BY id")]


class Message:
    """What was told to the broker of it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def ack(self) -> None:
        self.told.append("ack")

    async def reject(self, *, requeue: bool) -> None:
        self.told.append(f"reject, requeue={requeue}")

    async def nack(self, *, requeue: bool) -> None:
        self.told.append(f"nack, requeue={requeue}")


class Applies:
    """Stands for an `Inbox` whose transaction ends in `error`."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def verify(self, delivery: object) -> object:
        return SimpleNamespace(id="order-1")

    @asynccontextmanager
    async def transaction(self, event: object) -> AsyncIterator[None]:
        if self._error is not None:
            raise self._error
        yield


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (None, "ack"),
        (AlreadyProcessed(), "ack"),
        (TryAgain(), "nack, requeue=True"),
        (NotApplied(), "nack, requeue=True"),
        (CommitUnresolved(), "nack, requeue=True"),
        (IdentityConflict("its content differs"), "reject, requeue=False"),
        (consumer.OutOfStock("chair"), "reject, requeue=False"),
        (Torn("a procedure has committed"), "reject, requeue=False"),
        (UnitMisused("rollback"), "reject, requeue=False"),
    ],
    ids=repr,
)
async def test_the_broker_is_told_what_the_table_says(
    error: Exception | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(*_: object) -> None: ...

    for name, stand_in in {"delivery_from": lambda *_, **__: None, "reserve": at_once}.items():
        monkeypatch.setattr(consumer, name, stand_in)
    monkeypatch.setattr(consumer, "PAUSE", 0)
    message = Message()
    await consumer.settle(cast("Inbox", Applies(error)), cast("AbstractIncomingMessage", message))
    assert message.told == [told]


# ------------------------------------------------------------------ a kill test of your own
async def test_a_readers_own_test_kills_their_handler(place: Place) -> None:
    env = {
        "LEDGER_DATABASE_URL": place.pair.database_url,
        "LEDGER_AMQP_URL": place.pair.amqp_url,
        "LEDGER_TEST_QUEUE": place.queue,
    }
    done = await ended("pytest", "kill_test", "-p", "no:cacheprovider", env=env)
    assert done.code == 0, done.out
    assert "1 passed" in done.out
    assert await place.ready() == 0


# ------------------------------------------------------------------ beside HTTP routes
async def test_a_web_service_runs_the_inbox_beside_its_routes_and_ends_with_it(place: Place) -> None:
    place.run_files(EXAMPLES / "api/tables.sql")
    env = {
        "API_DATABASE_URL": place.pair.database_url,
        "API_AMQP_URL": place.pair.amqp_url,
        "API_QUEUE": place.queue,
        "INBOX_RABBITMQ_PATIENCE": "0.5",
    }
    words = ("uvicorn", "api.app:app", "--port", "0")
    await create_tables(place.pair)
    nowhere = {"API_DATABASE_URL": at_port(place.pair.database_url, 1)}
    refusing = asyncio.ensure_future(ended(*words, env=env | nowhere))
    async with proxy_to(place) as proxy:
        proxied = {"API_AMQP_URL": at_port(place.pair.amqp_url, proxy.port)}
        async with program(*words, env=env) as service, await client_of(service) as client:
            assert (await client.get("/health")).json() == {"inbox": "running"}
            assert (await client.get("/balances/mine")).status_code == 404
            await place.publish("payment-1", "payment.made", '{"account": "mine", "cents": 250}', copies=3)
            await place.publish("payment-2", "payment.made", '{"account": "mine", "cents": 50}')
            await wait_until(lambda: place.execute("SELECT COUNT(*) FROM inbox") == [(2,)])
            assert (await client.get("/balances/mine")).json() == {"cents": 300}
            stopped = await service.stop()
        assert "Application shutdown complete" in stopped.err
        assert "Traceback" not in stopped.err
        assert await place.ready() == 0

        async with program(*words, env=env | proxied) as service, await client_of(service) as client:
            assert (await client.get("/health")).status_code == 200
            proxy.refuse()
            proxy.cut()
            alone = await service.wait_ended()
    refused = await refusing
    assert (refused.code, "cannot connect to the database at 127.0.0.1:1" in refused.err) == (3, True), (
        "no routes without the inbox"
    )
    assert alone.code != 0
    assert "TransportError" in alone.err
    assert "Finished server process" in alone.err


async def client_of(service: Command) -> httpx.AsyncClient:
    """A client of the address that it serves at, once it does."""
    await service.wait_for("Uvicorn running on ")
    return httpx.AsyncClient(base_url=service.err.partition("Uvicorn running on ")[2].split()[0])


async def test_its_health_is_that_of_the_inbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)  # of the example: it would stay for all tests
    from examples.api.app import app  # noqa: PLC0415 - see above

    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api")
    async with client:
        app.state.worker = asyncio.create_task(asyncio.Event().wait())
        assert (await client.get("/health")).status_code == 200
        app.state.worker.cancel()
        await asyncio.wait([app.state.worker])
        assert (await client.get("/health")).status_code == 503
