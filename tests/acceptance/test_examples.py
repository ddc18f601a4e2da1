"""The examples that `docs/adopt.md` has its readers write, each run as the page says, on both pairs of servers."""

import asyncio
import json
import logging
import signal
import socket

import httpx
import pytest

from inbox.testing.faults import AmqpFraming, Catch, FaultProxy, is_amqp_ack
from tests.acceptance.command import Ended, run, running
from tests.acceptance.examples import EXAMPLES, Place, ended, program, wait_until
from tests.acceptance.tables import create_tables
from tests.crash.world import at_port
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
    return not [word for word in ("Traceback", "Error", "ERROR", "Warning:") if word in done.err]


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


# ------------------------------------------------------------------ a kill test of your own
async def test_a_readers_own_test_kills_their_handler(place: Place) -> None:
    env = {
        "LEDGER_DATABASE_URL": place.pair.database_url,
        "LEDGER_AMQP_URL": place.pair.amqp_url,
        "LEDGER_TEST_QUEUE": place.queue,
        "PYTHONWARNINGS": "default",
    }
    done = await ended("pytest", "kill_test", "-p", "no:cacheprovider", env=env)
    assert done.code == 0, done.out
    assert "1 passed" in done.out
    assert await place.ready() == 0


# ------------------------------------------------------------------ beside HTTP routes
async def test_a_web_service_runs_the_inbox_beside_its_routes_and_ends_with_it(place: Place) -> None:
    place.run_files(EXAMPLES / "api/tables.sql")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        "API_DATABASE_URL": place.pair.database_url,
        "API_AMQP_URL": place.pair.amqp_url,
        "API_QUEUE": place.queue,
        "INBOX_RABBITMQ_PATIENCE": "0.5",
    }
    words = ("uvicorn", "api.app:app", "--port", str(port))
    refused = await ended(*words, env=env)
    assert (refused.code, "None of the tables" in refused.err) == (3, True), "it does not serve without its inbox"

    await create_tables(place.pair)
    async with proxy_to(place) as proxy, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        proxied = {"API_AMQP_URL": at_port(place.pair.amqp_url, proxy.port)}
        async with program(*words, env=env) as service:
            await service.wait_for("Uvicorn running")
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

        async with program(*words, env=env | proxied) as service:
            await service.wait_for("Uvicorn running")
            assert (await client.get("/health")).status_code == 200
            proxy.refuse()
            proxy.cut()
            alone = await service.wait_ended()
    assert alone.code != 0
    assert "TransportError" in alone.err
    assert "Finished server process" in alone.err


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
