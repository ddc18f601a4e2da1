"""SQLite as a store, and a small durable queue in the same kind of file as a transport.

For demonstrations, for tests of one's own handlers, and for single machines. A file has one writer at a time: units of
work wait for each other, whatever the concurrency. The guarantees are those of the other adapters.
"""

from inbox.adapters.embedded.publisher import SQLitePublisher
from inbox.adapters.embedded.queue import SQLiteQueue, SQLiteQueueSettings
from inbox.adapters.embedded.store import SQLite, SQLiteStore

__all__ = ["SQLite", "SQLitePublisher", "SQLiteQueue", "SQLiteQueueSettings", "SQLiteStore"]
