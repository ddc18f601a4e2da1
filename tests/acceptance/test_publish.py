"""`inbox publish` as its user meets it: what it tells as confirmed is in the queue, however it ends."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pytest

from inbox.testing.faults import Cut, FaultProxy
from tests.acceptance.billing import Billing
from tests.acceptance.command import run, running
from tests.facts import wait_until
from tests.pairs import Pair

APP = "tests.acceptance.apps:plain"


def written(folder: Path, count: int, **more: object) -> str:
    """A file with so many events."""
    file = folder / "events.jsonl"
    attributes = {"specversion": "1.0", "source": "/me", "type": "thing.happened", "data": {"text": "é"}}
    lines = (json.dumps({**attributes, "id": f"e-{number}", **more}) for number in range(count))
    file.write_text("".join(f"{line}\n" for line in lines))
    return str(file)


@asynccontextmanager
async def bound(pair: Pair, queue: str, exchange: str, key: str) -> AsyncIterator[aio_pika.abc.AbstractQueue]:
    """A queue that is bound to an exchange; as far as the test is concerned somebody else's."""
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()
        made = await channel.declare_queue(queue, durable=True, arguments={"x-queue-type": "quorum"})
        await made.bind(await channel.declare_exchange(exchange, "topic", durable=True), key)
        yield made


async def taken(queue: aio_pika.abc.AbstractQueue) -> list[aio_pika.abc.AbstractIncomingMessage]:
    found = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        found.append(message)
    return found


async def wait_waiting(pair: Pair, queue: str, number: int) -> None:
    """Return when so many messages wait in the queue."""
    async with await aio_pika.connect(pair.amqp_url) as connection:
        channel = await connection.channel()

        async def they_wait() -> bool:
            declared = await channel.declare_queue(queue, passive=True)
            return (declared.declaration_result.message_count or 0) >= number

        await wait_until(they_wait)


def environment(url: str) -> dict[str, str]:
    """Old releases of the client library (aiormq 6.8.1) do not close the stream of a link that is lost."""
    return {"INBOX_BROKER_URL": url, "PYTHONWARNINGS": "error,ignore::ResourceWarning"}


async def publish(pair: Pair, *words: str) -> tuple[int, dict[str, Any], str]:
    ended = await run("publish", "--json", *words, env=environment(pair.amqp_url))
    return ended.code, json.loads(ended.out), ended.err


async def test_a_worker_applies_each_event_once_however_often_it_is_published(billing: Billing, tmp_path: Path) -> None:
    pair = billing.pair
    env = {"APP_DATABASE_URL": pair.database_url, "APP_AMQP_URL": pair.amqp_url, "APP_QUEUE": billing.queue}
    async with running("run", APP, env=env) as worker:
        await worker.wait_for("consuming")
        file = written(tmp_path, 300)
        code, summary, err = await publish(
            pair, "--exchange", "", "--routing-key", billing.queue, "--repeat", "2", file
        )
        assert (code, summary["confirmed"], err) == (0, 600, "")
        await billing.wait_entered(0)
        await wait_until(lambda: billing.count("inbox") >= 300)
        ended = await worker.stop()
    assert ended.code == 0
    assert billing.count("inbox") == 300
    assert "applied=300" in ended.err
    assert billing.count("inbox_quarantine") == 0


@pytest.mark.parametrize("mode", [(), ("--structured",)])
async def test_the_type_is_the_routing_key_unless_one_is_given(
    pair: Pair, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    exchange = pair.unique("events")
    async with bound(pair, pair.unique("q"), exchange, "thing.*") as queue:
        file = written(tmp_path, 3)
        code, summary, _ = await publish(pair, "--exchange", exchange, *mode, file)
        assert (code, summary["messages"], summary["confirmed"]) == (0, 3, 3)
        messages = await taken(queue)
        assert [message.routing_key for message in messages] == ["thing.happened"] * 3
        assert all(message.delivery_mode == aio_pika.DeliveryMode.PERSISTENT for message in messages)
        is_structured = [message.content_type == "application/cloudevents+json" for message in messages]
        assert is_structured == [bool(mode)] * 3
        code, summary, err = await publish(pair, "--exchange", exchange, "--routing-key", "other", *mode, file)
        assert (code, summary["confirmed"], summary["unconfirmed"]) == (1, 0, 3)
        assert summary["failed_lines"] == [1, 2, 3]
        assert "no queue took the message" in err


async def test_an_exchange_that_is_not_there_is_found_out_soon(pair: Pair, tmp_path: Path) -> None:
    code, summary, err = await publish(pair, "--exchange", pair.unique("none"), written(tmp_path, 2000))
    assert (code, summary["confirmed"], summary["given_up"]) == (1, 0, True)
    assert summary["not_sent"] + summary["unconfirmed"] == 2000
    assert summary["unconfirmed"] < 500
    assert "Traceback" not in err


async def test_ctrl_c_tells_what_is_in_the_queue(pair: Pair, tmp_path: Path) -> None:
    name = pair.unique("q")
    async with bound(pair, name, pair.unique("e"), "#") as queue:
        words = ("publish", "--json", "--exchange", "", "--routing-key", name, "--rate", "100", written(tmp_path, 5000))
        async with running(*words, env=environment(pair.amqp_url)) as publishing:
            await wait_waiting(pair, name, 1)
            ended = await publishing.stop(signal.SIGINT)
        summary = json.loads(ended.out)
        assert ended.code == 1
        assert summary["interrupted"]
        assert summary["unconfirmed"] == 0
        assert 0 < summary["confirmed"] < 5000
        assert summary["confirmed"] + summary["not_sent"] == 5000
        assert len(await taken(queue)) == summary["confirmed"]


@pytest.mark.parametrize("how", list(Cut))
async def test_a_link_that_is_lost_on_the_way_is_made_anew_and_nothing_is_told_that_is_not_so(
    pair: Pair, tmp_path: Path, how: Cut
) -> None:
    name = pair.unique("q")
    async with (
        bound(pair, name, pair.unique("e"), "#") as queue,
        FaultProxy(pair.broker.host, pair.broker.port) as proxy,
    ):
        url = pair.amqp_url.replace(f":{pair.broker.port}", f":{proxy.port}")
        words = ("publish", "--json", "--exchange", "", "--routing-key", name, "--rate", "300", written(tmp_path, 600))
        async with running(*words, env=environment(url)) as publishing:
            await wait_waiting(pair, name, 50)
            proxy.cut(how)
            ended = await publishing.wait_ended()
        summary = json.loads(ended.out)
        ids = [message.headers["ce-id"] for message in await taken(queue)]
    assert "Traceback" not in ended.err
    assert summary["confirmed"] + summary["unconfirmed"] == 600, "one loss is no reason to give up"
    assert summary["confirmed"] <= len(ids) == len(set(ids))
    assert ended.code == (0 if summary["confirmed"] == 600 else 1)
    lost = {f"e-{number}" for number in range(600)} - set(ids)
    assert lost <= {f"e-{number - 1}" for number in summary["failed_lines"]}, "what is missing was told"
