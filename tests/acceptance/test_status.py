"""`inbox status` as an operator meets it: with a worker, without one, after one died, and for programs."""

import asyncio
import json
import os
import signal
from typing import Any

import pytest

from tests.acceptance.billing import TARGET, Billing
from tests.acceptance.command import Ended, run, running
from tests.facts import wait_until


async def status(billing: Billing, *words: str) -> Ended:
    return await run("status", *words, env=billing.env)


async def read(billing: Billing, *words: str) -> dict[str, Any]:
    """The JSON object of a status by TARGET."""
    ended = await status(billing, TARGET, "--json", *words)
    assert ended.err == ""
    found: dict[str, Any] = json.loads(ended.out)
    assert ended.code == (0 if found["ok"] else 1)
    return found


async def wait_seen(billing: Billing, state: str, number: int = 1) -> None:
    sql = f"SELECT COUNT(*) FROM inbox_worker WHERE state = '{state}'"  # noqa: S608 - a word of ours
    await wait_until(lambda: bool(billing.query(sql)[0][0] >= number))


async def test_a_working_consumer_is_quiet_and_its_worker_tells_what_it_did(billing: Billing) -> None:
    async with running("run", TARGET, env=billing.env) as worker:
        await worker.wait_for("consuming")
        await billing.publish(count=40, duplicates=10)
        await billing.wait_entered(40)
        await wait_seen(billing, "consuming")
        found = await read(billing)
        (consumer,) = found["consumers"]
        assert found["ok"], found["attention"]
        assert (consumer["inbox"]["last_hour"], consumer["schema_version"]) == (40, 1)
        (seen,) = consumer["workers"]
        assert (seen["pid"], seen["state"], seen["silent"]) == (worker.pid, "consuming", False)
        assert [(queue["role"], queue["consumers"]) for queue in found["queues"] if queue["role"] == "main"] == [
            ("main", 1)
        ]
        people = await status(billing, TARGET)
        assert (people.code, people.err) == (0, "")
        assert f"(process {worker.pid}) consuming" in people.out
        assert f"queue        {billing.queue}: 0 ready, 1 consumer" in people.out
        await worker.stop()
    (consumer,) = (await read(billing))["consumers"]
    assert consumer["outcomes"] == {"applied": 40, "duplicate": 10}
    assert [each["state"] for each in consumer["workers"]] == ["stopped"]
    exact = (await read(billing, "--exact"))["consumers"][0]["inbox"]
    assert exact["rows"] == 40


async def test_events_that_wait_for_nobody_need_a_person(billing: Billing) -> None:
    async with running("run", TARGET, env=billing.env) as worker:
        await worker.wait_for("consuming")
        await worker.stop()
    await billing.publish(count=5)
    ended = await status(billing, TARGET)
    assert ended.code == 1
    assert f"! queue {billing.queue}: 5 events wait and nobody consumes: inbox run\n" in ended.out


async def test_a_queue_that_is_not_there_needs_a_person(billing: Billing) -> None:
    ended = await status(billing, TARGET)
    assert ended.code == 1
    assert f"! queue {billing.queue} is not there" in ended.out


async def test_a_worker_that_was_killed_falls_silent(billing: Billing) -> None:
    async with running("run", TARGET, env=billing.env) as worker:
        await worker.wait_for("consuming")
        await wait_seen(billing, "consuming")
        os.kill(worker.pid, signal.SIGKILL)
        await worker.wait_ended()
    found = await read(billing, "--silent-after", "0")
    assert [each["silent"] for each in found["consumers"][0]["workers"]] == [True]
    assert any(f"(process {worker.pid}) has not reported" in sentence for sentence in found["attention"])


async def test_an_event_in_quarantine_needs_a_person(billing: Billing) -> None:
    billing.query(
        "INSERT INTO inbox_quarantine (consumer_name, digest, reason, headers, body, total_bytes) "
        "VALUES ('billing', REPEAT('d', 32), 'handler-error', 'h', 'b', 2)"
    )
    ended = await status(billing, "--consumer", "billing")
    assert ended.code == 1
    assert "handler-error: 1 (2 B)" in ended.out
    assert "! billing: 1 event is in quarantine" in ended.out


async def test_without_a_target_every_consumer_is_shown_and_a_broker_may_be_named(billing: Billing) -> None:
    empty = await status(billing)
    assert (empty.code, empty.out) == (0, "No consumer has any rows yet.\n")
    for name in ("mail", "billing"):
        billing.query(f"INSERT INTO inbox (consumer_name, event_id) VALUES ('{name}', 'e-1')")  # noqa: S608
    async with running("run", TARGET, env=billing.env) as worker:
        await worker.wait_for("consuming")
        ended = await status(billing, "--json", "--broker", billing.pair.amqp_url, "--queue", billing.queue)
        await worker.stop()
    found = json.loads(ended.out)
    assert ended.code == 0
    assert [each["consumer"] for each in found["consumers"]] == ["billing", "mail"]
    assert [(each["name"], each["consumers"]) for each in found["queues"] if each["role"] != "retry"] == [
        (billing.queue, 1),
        (f"{billing.queue}.dead", 1),
    ]


async def test_it_is_watched_until_ctrl_c(billing: Billing) -> None:
    async with running("status", "--json", "--watch", "0.1", "--consumer", "billing", env=billing.env) as watching:
        async with asyncio.timeout(60):
            lines = [await watching.read_line() for _ in range(3)]
        ended = await watching.stop(signal.SIGINT)
    assert all(json.loads(line)["ok"] for line in lines)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("words", "variable", "url", "says"),
    [
        ((TARGET,), "BILLING_DATABASE_URL", "mysql://u:hunter2@127.0.0.1:1/x", "cannot connect to the database"),
        ((TARGET,), "BILLING_AMQP_URL", "amqp://u:hunter2@127.0.0.1:1/", "cannot be reached"),
        ((), "INBOX_DATABASE_URL", "mysql://u:hunter2@127.0.0.1:1/x", "cannot connect to the database"),
        (("billing.nowhere:inbox",), "X", "", "no module"),
    ],
)
async def test_no_connection_is_2_with_one_line(
    billing: Billing, words: tuple[str, ...], variable: str, url: str, says: str
) -> None:
    ended = await run("status", *words, env=billing.env | {variable: url})
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("inbox status: ")
    assert says in ended.err
    assert ended.err.count("\n") == 1
    assert "hunter2" not in ended.err


async def test_missing_tables_are_2_and_name_the_fix(billing: Billing) -> None:
    billing.query("DROP TABLE inbox_worker")
    ended = await status(billing, TARGET)
    assert ended.code == 2
    assert "inbox schema apply" in ended.err
