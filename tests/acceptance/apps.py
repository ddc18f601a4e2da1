"""Inboxes of adopters who got something wrong, or nearly; each is a `module:attribute` for `inbox run`.

Where they connect to stands in APP_DATABASE_URL, APP_AMQP_URL and APP_QUEUE.
"""

from sqlalchemy.ext.asyncio import AsyncSession

from inbox import ConsumerSettings, DatabaseSettings, Event, Inbox, MySQL, RabbitMQ, RabbitMQSettings, TlsSettings, env

#: What someone takes for an Inbox.
settings = ConsumerSettings()


def make(
    *,
    database: DatabaseSettings | None = None,
    broker: RabbitMQSettings | None = None,
    transport: bool = True,
    handlers: int = 1,
) -> Inbox:
    made = Inbox(
        "app",
        store=MySQL(env("APP_DATABASE_URL"), database or DatabaseSettings(connect_timeout=5)),
        transport=RabbitMQ(env("APP_AMQP_URL"), env("APP_QUEUE"), settings=broker) if transport else None,
    )
    for _ in range(handlers):
        made.handler("thing.happened")(nothing)
    return made


async def nothing(event: Event, session: AsyncSession) -> None:
    """A handler."""


def plain() -> Inbox:
    return make()


def two_handlers() -> Inbox:
    return make(handlers=2)


def no_handlers() -> Inbox:
    return make(handlers=0)


def no_transport() -> Inbox:
    return make(transport=False)


def takes_the_queue_as_it_is() -> Inbox:
    return make(broker=RabbitMQSettings(declare=False))


def database_tls() -> Inbox:
    return make(database=DatabaseSettings(connect_timeout=5, tls=True))


def database_tls_of_an_authority() -> Inbox:
    return make(database=DatabaseSettings(connect_timeout=5, tls=True, tls_ca=env("APP_CA")))


def broker_tls() -> Inbox:
    return make(broker=RabbitMQSettings(tls=TlsSettings()))


def waits_for_the_broker() -> Inbox:
    return make(broker=RabbitMQSettings(start_patience=600))


def needs(something: str) -> Inbox:
    return make()


def handler_of_no_face() -> Inbox:
    made = make(handlers=0)
    made.handler("thing.happened")(says_nothing)
    return made


async def says_nothing(event, session):  # type: ignore[no-untyped-def] # that is what is wrong with it
    """A handler that does not say which face of its unit it wants."""
