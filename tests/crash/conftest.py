"""A ledger to kill workers at."""

from contextlib import closing

import pytest
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from inbox.adapters.mysql.schema import apply
from inbox.tables import define_tables
from tests.crash import app
from tests.crash.world import World
from tests.pairs import Pair


@pytest.fixture
async def world(pair: Pair) -> World:
    engine = create_async_engine(pair.database_url)
    try:
        await apply(engine, define_tables(MetaData()))
    finally:
        await engine.dispose()
    with closing(app.connect(pair.database_url)) as connection, connection.cursor() as cursor:
        for statement in app.TABLES:
            cursor.execute(statement)
    queue, exchange = pair.unique("ledger"), pair.unique("events")
    pair.discard(f"{queue}.dead")
    return World(pair, queue, exchange, [])
