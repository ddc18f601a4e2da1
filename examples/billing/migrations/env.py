"""What Alembic runs: the models' metadata, the inbox's tables in it, against BILLING_DATABASE_URL."""

import asyncio

from alembic import context
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from billing.models import Base
from inbox import env


def migrate(connection: Connection) -> None:
    context.configure(connection, target_metadata=Base.metadata)
    with context.begin_transaction():
        context.run_migrations()


async def main() -> None:
    engine = create_async_engine(env("BILLING_DATABASE_URL"))
    async with engine.connect() as connection:
        await connection.run_sync(migrate)
    await engine.dispose()


asyncio.run(main())
