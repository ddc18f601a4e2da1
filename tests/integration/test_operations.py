"""Every statement that docs/operations.md gives to the person on call, on both servers."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from inbox.core.event import CloudEvent
from inbox.core.records import record_of
from tests.acceptance.tables import create_tables
from tests.crash.app import connect
from tests.pairs import Pair

DOCUMENT = Path(__file__).parents[2] / "docs/operations.md"
STATEMENTS = [
    statement.strip()
    for block in re.findall(r"```sql\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    for statement in block.split(";")
    if statement.strip()
]


async def test_the_statements_of_the_document_run(pair: Pair) -> None:
    await create_tables(pair)
    assert len(STATEMENTS) >= 10
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        for statement in STATEMENTS:
            cursor.execute(statement)


@pytest.mark.parametrize("identity", ["id", "source+id"])
async def test_an_applied_event_is_found_by_what_a_person_knows(pair: Pair, identity: str) -> None:
    await create_tables(pair)
    event = CloudEvent(id="order-4711", source="//shop/orders", type="t")
    record = record_of("billing", event, "id" if identity == "id" else "source+id", None)
    (statement,) = (
        text
        for text in STATEMENTS
        if "'order-4711'" in text and ("SHA2(CONCAT" in text) == (identity != "id") and "FROM inbox_view" in text
    )
    with closing(connect(pair.database_url)) as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO inbox (consumer_name, event_id) VALUES (%s, %s)", (b"billing", record.key))
        connection.commit()
        assert cursor.execute(statement) == 1
        cursor.execute(f"EXPLAIN {'FORMAT=TRADITIONAL ' if pair.is_mysql else ''}{statement}")
        assert "PRIMARY" in str(cursor.fetchall())
