"""`inbox demo --fetcher`, and the example: each genuine job event is applied once, and each forgery found out."""

import asyncio
import json
import re
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import aio_pika

from tests.acceptance.command import ROOT, Ended, clean_environment, run, running
from tests.acceptance.examples import EXAMPLES, ended
from tests.crash.app import connect
from tests.facts import wait_until
from tests.pairs import Pair

SMALL = ("--fetcher", "--events", "80", "--kills", "4", "--seed", "7")
#: Of 80 events: 14 forgeries, one of each kind, and one for a tenant without an account.
REASONS = {"inconsistent": 3, "invalid": 10, "stale": 1, "rejected": 1}


def counted(ended: Ended) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
    return found


def judge(ended: Ended) -> None:
    assert ended.code == 0, ended.err
    found = counted(ended)
    assert (found["events"], found["deliveries"], found["kills"]) == (80, 100, 4)
    assert (found["effects"], found["quarantined"], found["lost"], found["double"]) == (65, 15, 0, 0)
    assert found["sum_expected"] == found["sum_found"] > 0
    rows = re.findall(r"│ +as ([a-z-]+) +│ +(\d+) +│ +(\d+) +│", ended.err)
    assert {reason: int(number) for reason, _, number in rows} == REASONS
    assert "Traceback" not in ended.err


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


async def test_it_needs_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    judge(await run("demo", *SMALL, "--json", env={"TMPDIR": str(tmp_path)}))
    assert names_in(tmp_path) == []


async def test_it_runs_on_servers(pair: Pair) -> None:
    judge(await run("demo", *SMALL, "--json", "--database", pair.database_url, "--broker", pair.amqp_url))


async def test_workers_that_believe_everybody_are_found_out(tmp_path: Path) -> None:
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", f"from tests.acceptance.trusting_demo import main; main(*{(*SMALL[1:], '--json')!r})"),
        cwd=ROOT,
        env=clean_environment() | {"TMPDIR": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await program.communicate()
    ended = Ended(program.returncode or 0, out.decode(), err.decode())
    assert ended.code == 1, ended.err
    found = counted(ended)
    assert found["quarantined"] < 15, "forgeries were applied"
    assert found["sum_found"] != found["sum_expected"]
    assert "NOT AS IT MUST BE: " in ended.err
    assert "events with an effect that must have none" in ended.err


# ------------------------------------------------------------------ the example
async def test_the_example_bills_for_what_is_signed_with_its_key_and_for_nothing_else(pair: Pair) -> None:
    queue, exchange = pair.unique("jobs"), pair.unique("fetcher")
    pair.discard(f"{queue}.dead")
    env = {
        "BILLING_DATABASE_URL": pair.database_url,
        "BILLING_AMQP_URL": pair.amqp_url,
        "BILLING_QUEUE": queue,
        "BILLING_EXCHANGE": exchange,
        "BILLING_TENANT": "single-tenant",
        "FETCHER_EXTERNAL_HMAC_KEY": f"{'0f' * 32},{'1e' * 32}",
    }
    made = await ended("fetcher_billing.models", env=env)
    assert made.code == 0, made.err
    async with await aio_pika.connect(pair.amqp_url) as broker:
        channel = await broker.channel()
        await channel.declare_exchange(exchange, aio_pika.ExchangeType.TOPIC, durable=True)
    async with running("run", "fetcher_billing.app:inbox", env=env, cwd=EXAMPLES) as worker:
        await worker.wait_for("consuming")
        words = ("--count", "12", "--duplicates", "6", "--failed-share", "0.25", "--seed", "3")
        for key in ("0f", "1e", "2d"):
            published = await ended("billing.publisher", *words, env=env | {"FETCHER_EXTERNAL_HMAC_KEY": key * 32})
            assert published.code == 0, published.err
        other = await ended(
            *("billing.publisher", *words, "--tenant", "other"), env=env | {"FETCHER_EXTERNAL_HMAC_KEY": "0f" * 32}
        )
        assert other.code == 0, other.err
        await wait_until(lambda: count(pair, "inbox_quarantine") >= 36 and count(pair, "inbox") >= 12)
        done = await worker.stop()
    assert done.code == 0, done.err
    assert (count(pair, "inbox"), count(pair, "charge"), count(pair, "failure")) == (12, 9, 3)
    assert query(pair, "SELECT SUM(cents) FROM account") == query(pair, "SELECT SUM(cents) FROM charge")
    reasons = dict(query(pair, "SELECT reason, COUNT(*) FROM inbox_quarantine GROUP BY reason"))
    assert reasons == {"invalid": 18, "inconsistent": 18}


def query(pair: Pair, sql: str) -> tuple[tuple[Any, ...], ...]:
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def count(pair: Pair, table: str) -> int:
    return int(query(pair, f"SELECT COUNT(*) FROM {table}")[0][0])  # noqa: S608 - a name of ours
