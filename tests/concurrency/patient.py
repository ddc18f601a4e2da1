"""The ledger with a patience for its database: `inbox run tests.concurrency.patient:inbox`."""

from inbox import Inbox, MySQL, RabbitMQ, env
from inbox.adapters.rabbitmq.settings import Binding
from inbox.config import DatabaseSettings
from tests.crash.app import CONSUMER, SETTINGS, Ledger


def inbox() -> Inbox:
    url = env("APP_DATABASE_URL")
    made = Inbox(
        CONSUMER,
        store=MySQL(url, DatabaseSettings(patience=float(env("APP_PATIENCE")))),
        transport=RabbitMQ(env("APP_AMQP_URL"), env("APP_QUEUE"), [Binding(env("APP_EXCHANGE"), "#", declare="topic")]),
        settings=SETTINGS,
    )
    made.handler("apply")(Ledger(url).apply)
    return made
