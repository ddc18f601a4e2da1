"""A store and a transport in memory, with the contracts of the real ones: for tests of the engine.

They pass the same conformance suites. A `MemoryDatabase` and a `MemoryBroker` stand for the servers: several stores
on one database are several processes, several transports on one broker are several links. Nothing here survives the
process that it really runs in; that is their use.
"""

from inbox.testing.memory.store import (
    MemoryDatabase,
    MemoryQuarantined,
    MemorySession,
    MemoryStart,
    MemoryStore,
    MemoryUnit,
)
from inbox.testing.memory.transport import MemoryBroker, MemoryTransport

__all__ = [
    "MemoryBroker",
    "MemoryDatabase",
    "MemoryQuarantined",
    "MemorySession",
    "MemoryStart",
    "MemoryStore",
    "MemoryTransport",
    "MemoryUnit",
]
