"""The database turns read-only under load, and back, as in a fail-over: intake waits, nothing is lost or charged."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.concurrency.load import under_load
from tests.crash.world import World
from tests.services.probe import connect_database

# It is a setting of the whole server.
pytestmark = [pytest.mark.controls_services, pytest.mark.timeout(300)]

#: How long; the suite makes do with less than the minute that an operator takes.
SECONDS = float(os.environ.get("INBOX_TEST_READ_ONLY_SECONDS", "3"))
#: A user whom MariaDB's `read_only` binds: it has no READ ONLY ADMIN.
USER = "bound"


def execute(world: World, *statements: str) -> None:
    with connect_database(world.pair.database.dsn) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def switch(world: World, *, read_only: bool) -> None:
    if world.pair.is_mysql:
        execute(world, *(["SET GLOBAL super_read_only = ON"] if read_only else ["SET GLOBAL read_only = OFF"]))
    else:
        execute(world, f"SET GLOBAL read_only = {'ON' if read_only else 'OFF'}")


@pytest.fixture
def bound_url(world: World) -> Iterator[str]:
    execute(
        world,
        f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{USER}'",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON `{world.pair.schema}`.* TO '{USER}'@'%'",
    )
    try:
        yield world.pair.url_for(world.pair.driver, user=USER, password=USER)
    finally:
        switch(world, read_only=False)
        execute(world, f"DROP USER '{USER}'@'%'")


async def test_read_only_for_a_while(world: World, bound_url: str) -> None:
    async with under_load(world, database_url=bound_url) as load:
        await asyncio.to_thread(switch, world, read_only=True)
        await load.worker.wait_for("intake paused: the database does not take writes", times=2)
        before = load.effects()
        await asyncio.sleep(SECONDS)  # what is tried is that it lasts
        assert load.effects() == before, "it really was read-only"
        assert "intake resumed" not in load.worker.err
        assert world.count("inbox_quarantine") == 0
        await asyncio.to_thread(switch, world, read_only=False)
        await load.worker.wait_for("intake resumed", times=2)
