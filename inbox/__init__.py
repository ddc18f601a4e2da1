"""Exactly-once database effects for event consumers on MySQL and MariaDB.

    from inbox import Event, Inbox, MySQL, RabbitMQ

    inbox = Inbox("billing", store=MySQL(database_url), transport=RabbitMQ(amqp_url, "billing"))

    @inbox.handler("job.completed")
    async def credit(event: Event, session: AsyncSession) -> None: ...

The names below are the public surface; `docs/guarantees.md` says what they promise.
"""

from typing import TYPE_CHECKING

from inbox.adapters.mysql.store import MySQL
from inbox.adapters.rabbitmq.delivery import delivery_from
from inbox.adapters.rabbitmq.settings import Binding, RabbitMQSettings, TlsSettings
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.app import Inbox
from inbox.config import ConsumerSettings, DatabaseSettings, env
from inbox.core.batching import Batch
from inbox.core.delivery import Delivery, Origin
from inbox.core.event import CloudEvent, Event
from inbox.core.policy import RetryPolicy, RetryRule
from inbox.core.quarantine import ReplayReport, Selection
from inbox.errors import (
    AlreadyProcessed,
    CommitUnresolved,
    ConfigurationError,
    IdentityConflict,
    InboxError,
    NotApplied,
    NotDone,
    Refused,
    Reject,
    Retry,
    StartupError,
    StoreError,
    TransportError,
    TryAgain,
    Unauthentic,
    UnitMisused,
)
from inbox.ports import Probe, Verifier
from inbox.service import InboxService, handles
from inbox.tables import InboxTables, InboxTablesMixin, TableNames, define_tables

if TYPE_CHECKING:
    from inbox.adapters.embedded import SQLite, SQLiteQueue, SQLiteQueueSettings

__all__ = [
    "AlreadyProcessed",
    "Batch",
    "Binding",
    "CloudEvent",
    "CommitUnresolved",
    "ConfigurationError",
    "ConsumerSettings",
    "DatabaseSettings",
    "Delivery",
    "Event",
    "IdentityConflict",
    "Inbox",
    "InboxError",
    "InboxService",
    "InboxTables",
    "InboxTablesMixin",
    "MySQL",
    "NotApplied",
    "NotDone",
    "Origin",
    "Probe",
    "RabbitMQ",
    "RabbitMQSettings",
    "Refused",
    "Reject",
    "ReplayReport",
    "Retry",
    "RetryPolicy",
    "RetryRule",
    "SQLite",
    "SQLiteQueue",
    "SQLiteQueueSettings",
    "Selection",
    "StartupError",
    "StoreError",
    "TableNames",
    "TlsSettings",
    "TransportError",
    "TryAgain",
    "Unauthentic",
    "UnitMisused",
    "Verifier",
    "define_tables",
    "delivery_from",
    "env",
    "handles",
]


def __getattr__(name: str) -> object:
    """The names of the embedded adapter, imported when they are asked for: it needs an extra.

    Raises:
        AttributeError: there is no such name.
        ImportError: the extra is not installed.
    """
    if name not in {"SQLite", "SQLiteQueue", "SQLiteQueueSettings"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from inbox.adapters import embedded  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        raise ImportError(f"inbox.{name} needs aiosqlite: pip install 'idempotent-inbox[embedded]'") from error
    return getattr(embedded, name)
