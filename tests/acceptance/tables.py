"""The inbox's tables, made without starting a program for it."""

from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import create_async_engine

from inbox import define_tables
from inbox.adapters.mysql.schema import apply
from tests.pairs import Pair
from tests.templates import make_once


async def create_tables(pair: Pair) -> None:
    async def make() -> None:
        engine = create_async_engine(pair.database_url)
        try:
            await apply(engine, define_tables(MetaData()))
        finally:
            await engine.dispose()

    await make_once(pair, "the inbox's tables, applied", make)
