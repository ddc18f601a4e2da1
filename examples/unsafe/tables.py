"""Make the tables: `python -m unsafe.tables`, in the database that SHOP_DATABASE_URL names."""

import asyncio

from sqlalchemy.ext.asyncio import create_async_engine

from inbox import env

from .models import Base


async def main() -> None:
    """Tables, the inbox's among them."""
    engine = create_async_engine(env("SHOP_DATABASE_URL"))
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
