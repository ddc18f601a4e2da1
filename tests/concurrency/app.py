"""The worker that lives through outages: `inbox run tests.concurrency.app:inbox`."""

from inbox import Inbox, env
from tests.crash.app import make


def inbox() -> Inbox:
    return make(env("APP_DATABASE_URL"), env("APP_AMQP_URL"), env("APP_QUEUE"), env("APP_EXCHANGE"))
