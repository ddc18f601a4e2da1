"""One provider's events: those of Fetcher's jobs. `docs/fetcher.md` says what they are and what they promise.

Needs ports, configuration and core only; nothing below knows it.
"""

from inbox.fetcher.keys import DerivedKeys, FetcherKeys, derive_keys
from inbox.fetcher.models import JobCompleted, JobFailed, JobResult, ResultIntegrity, ResultProtection
from inbox.fetcher.refusals import InconsistentJobEvent, InvalidJobEvent, JobEventRefused, StaleJobEvent
from inbox.fetcher.settings import job_event_settings
from inbox.fetcher.signature import sign
from inbox.fetcher.verifier import FetcherVerifier

__all__ = [
    "DerivedKeys",
    "FetcherKeys",
    "FetcherVerifier",
    "InconsistentJobEvent",
    "InvalidJobEvent",
    "JobCompleted",
    "JobEventRefused",
    "JobFailed",
    "JobResult",
    "ResultIntegrity",
    "ResultProtection",
    "StaleJobEvent",
    "derive_keys",
    "job_event_settings",
    "sign",
]
