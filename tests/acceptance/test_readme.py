"""The README's program, typed as it stands there: the effect of each event is in the table once."""

import json
import re
from contextlib import closing
from pathlib import Path

from inbox.adapters.rabbitmq.retry_queues import retry_queues
from inbox.core.policy import RetryPolicy
from tests.acceptance.command import ROOT, run, running
from tests.crash.app import connect
from tests.facts import wait_until
from tests.pairs import Pair

EVENTS = 20


def program(queue: str, exchange: str) -> str:
    """Its first block, with names that no other test has."""
    text = (ROOT / "README.md").read_text()
    block = re.search(r"```python\n# shop/app\.py\n(.*?)```", text, re.DOTALL)
    assert block is not None
    named, times = re.subn(r'"shop", \[Binding\("orders"', f'"{queue}", [Binding("{exchange}"', block.group(1))
    assert times == 1
    return named


async def test_the_readmes_program_applies_each_event_once(pair: Pair, tmp_path: Path) -> None:
    queue, exchange = pair.unique("shop"), pair.unique("orders")
    for name in (f"{queue}.dead", *(each.name for each in retry_queues(queue, RetryPolicy().steps))):
        pair.discard(name)
    env = {
        "DATABASE_URL": pair.database_url,
        "AMQP_URL": pair.amqp_url,
        "INBOX_BROKER_URL": pair.amqp_url,
        "INBOX_DATABASE_URL": pair.database_url,
    }
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/app.py").write_text(program(queue, exchange))
    orders = tmp_path / "orders.jsonl"
    orders.write_text("".join(f"{json.dumps(order(number % EVENTS))}\n" for number in range(2 * EVENTS)))
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE account (id INT PRIMARY KEY, cents INT NOT NULL) ENGINE=InnoDB")
        cursor.execute("INSERT INTO account VALUES (7, 0)")
        assert (await run("schema", "apply", "--database", pair.database_url)).code == 0
        async with running("run", "shop.app:inbox", "--workers", "2", env=env, cwd=tmp_path) as worker:
            await worker.wait_for("consuming", times=2)
            published = await run(
                "publish", str(orders), "--exchange", exchange, "--routing-key", "order.paid", env=env
            )
            assert published.code == 0, published.err
            await wait_until(lambda: cursor.execute("SELECT event_id FROM inbox") >= EVENTS)
            assert (await worker.stop()).code == 0
        cursor.execute("SELECT cents FROM account")
        assert cursor.fetchone() == (sum(range(EVENTS)),)
        assert cursor.execute("SELECT 1 FROM inbox") == EVENTS
        assert cursor.execute("SELECT 1 FROM inbox_quarantine") == 0


def order(number: int) -> dict[str, object]:
    """A CloudEvent of the type that the program handles."""
    attributes = {"specversion": "1.0", "id": f"o-{number}", "source": "/till", "type": "order.paid"}
    return {**attributes, "data": {"account": 7, "cents": number, "currency": "EUR"}}
