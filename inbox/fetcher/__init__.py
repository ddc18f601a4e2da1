"""One provider's events: those of Fetcher's jobs. `docs/fetcher.md` says what they are and what they promise.

Needs ports, configuration and core only; nothing below knows it.
"""

from inbox.fetcher.keys import DerivedKeys, FetcherKeys, derive_keys
from inbox.fetcher.refusals import InconsistentJobEvent, InvalidJobEvent, JobEventRefused, StaleJobEvent

__all__ = [
    "DerivedKeys",
    "FetcherKeys",
    "InconsistentJobEvent",
    "InvalidJobEvent",
    "JobEventRefused",
    "StaleJobEvent",
    "derive_keys",
]
