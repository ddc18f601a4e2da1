"""The web service: `uvicorn api.app:app`, from the folder that holds `api`.

Settings come from the environment: API_DATABASE_URL, API_AMQP_URL and, where they differ from the defaults, API_QUEUE
and what `RabbitMQSettings` and `DatabaseSettings` read.
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from inbox import DatabaseSettings, Event, Inbox, MySQL, RabbitMQ, RabbitMQSettings, env


async def credit(event: Event, session: AsyncSession) -> None:
    """The handler: adds to a balance, opening it with the first payment."""
    await session.execute(
        text(
            "INSERT INTO balance (account, cents) VALUES (:account, :cents) "
            "ON DUPLICATE KEY UPDATE cents = balance.cents + :cents"
        ),
        event.json(),
    )


def make_inbox() -> Inbox:
    """The consumer. Its patience has an end, so that a service without its broker shows as one that is down."""
    inbox = Inbox(
        "api",
        store=MySQL(env("API_DATABASE_URL"), DatabaseSettings.from_env()),
        transport=RabbitMQ(
            env("API_AMQP_URL"), env("API_QUEUE", "api"), settings=RabbitMQSettings.from_env(patience=60)
        ),
    )
    inbox.handler("payment.made")(credit)
    return inbox


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Serve nothing before the inbox consumes, and nothing after it has ended, whatever ended it."""
    engine = app.state.engine = create_async_engine(env("API_DATABASE_URL"))
    inbox = make_inbox()
    started = asyncio.Event()
    worker = app.state.worker = asyncio.create_task(inbox.run(started=started.set))
    worker.add_done_callback(lambda _: started.set())
    await started.wait()
    if not worker.done():
        worker.add_done_callback(end_service)
        yield  # the routes are served
        worker.remove_done_callback(end_service)
        inbox.stop()
    await engine.dispose()
    await worker  # until running handlers have finished; raises what has ended it, and uvicorn logs that


def end_service(_: asyncio.Task[None]) -> None:
    """What SIGTERM from outside would do: uvicorn answers what it has begun, and leaves."""
    signal.raise_signal(signal.SIGTERM)


logging.basicConfig(level=logging.INFO)  # what the inbox says; uvicorn sets up its own lines only
app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health(request: Request) -> dict[str, str]:
    """200 while the inbox consumes, 503 when it has ended."""
    if request.app.state.worker.done():
        raise HTTPException(503, "the inbox has ended")
    return {"inbox": "running"}


@app.get("/balances/{account}")
async def balance(account: str, request: Request) -> dict[str, int]:
    """What the handlers have written."""
    async with request.app.state.engine.connect() as connection:
        cents = await connection.scalar(
            text("SELECT cents FROM balance WHERE account = :account"), {"account": account}
        )
    if cents is None:
        raise HTTPException(404, "no payment was made to this account")
    return {"cents": cents}
