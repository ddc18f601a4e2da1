"""From an `Inbox` to the database and the queue that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inbox.adapters.mysql.store import MySQL, MySQLStore
from inbox.adapters.rabbitmq.transport import RabbitMQ
from inbox.errors import ConfigurationError
from inbox.testing.lab.mysql import MySQLDatabase
from inbox.testing.lab.queues import EmbeddedQueue, Queue, RabbitQueue
from inbox.testing.lab.stand_in import is_leased

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inbox.adapters.websocket import OrbitTransport
    from inbox.app import Inbox
    from inbox.testing.lab.database import Database

__all__ = ["database_of", "queue_of"]


def database_of(inbox: Inbox) -> Database:
    """The database that `inbox` works in.

    Raises:
        ConfigurationError: the lab cannot look after such a store.
    """
    # An Inbox keeps what it was given to itself: its address has a password.
    given: Any = inbox._stores  # noqa: SLF001 - see above
    if isinstance(given, MySQL) and isinstance(inbox.store, MySQLStore):
        return MySQLDatabase(given, inbox.store.tables)
    if type(given).__name__ == "SQLite" and type(given).__module__.startswith("inbox.adapters.embedded"):
        from inbox.testing.lab.sqlite import SQLiteDatabase  # noqa: PLC0415 - needs an extra

        return SQLiteDatabase(given)
    raise ConfigurationError(f"the lab works with MySQL(…) and SQLite(…), not with {type(given).__name__}")


def queue_of(inbox: Inbox, delays: Sequence[Sequence[float]]) -> Queue:
    """The queue that `inbox` consumes.

    Args:
        inbox: the target.
        delays: waits between attempts for which there may be queues, one list for each way to set them.

    Raises:
        ConfigurationError: it has none, or one that the lab cannot fill.
    """
    transport: Any = inbox.transport
    if transport is None:
        raise ConfigurationError("the target has no transport, so no worker can be killed: Inbox(…, transport=…)")
    if isinstance(transport, RabbitMQ):
        return RabbitQueue(transport, delays)
    if type(transport).__name__ == "SQLiteQueue":
        return EmbeddedQueue(transport)
    if is_leased(transport):
        return _leased(transport)
    raise ConfigurationError(
        f"the lab works with RabbitMQ(…), SQLiteQueue(…) and OrbitTransport(…), not with {type(transport).__name__}"
    )


def _leased(transport: OrbitTransport) -> Queue:
    """A platform of the lab's own in the place of the one that `transport` names, which is never asked for anything."""
    try:
        from inbox.testing.lab.leases import OrbitQueue  # noqa: PLC0415 - needs an extra
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the lab's platform needs {error.name}: pip install 'idempotent-inbox[orbit-server]'"
        ) from None
    return OrbitQueue(transport)
