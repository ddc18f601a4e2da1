"""One provider's events: those of Fetcher's jobs. `docs/fetcher.md` says what they are and what they promise.

Needs ports, configuration and core only; nothing below knows it.
"""

from inbox.fetcher.keys import DerivedKeys, FetcherKeys, derive_keys
from inbox.fetcher.models import JobCompleted, JobFailed, JobResult, ResultIntegrity, ResultProtection
from inbox.fetcher.objects import DirectoryObjects, Objects, S3Objects
from inbox.fetcher.refusals import InconsistentJobEvent, InvalidJobEvent, JobEventRefused, StaleJobEvent
from inbox.fetcher.result_errors import (
    ResultKeyMissing,
    ResultMalformed,
    ResultNotAuthentic,
    ResultNotDecryptable,
    ResultNotFound,
    ResultPathRefused,
    ResultTooLarge,
    ResultUnreachable,
)
from inbox.fetcher.results import Result, ResultReader, StorageKeys
from inbox.fetcher.rows import Row
from inbox.fetcher.settings import job_event_settings
from inbox.fetcher.signature import sign
from inbox.fetcher.verifier import FetcherVerifier

__all__ = [
    "DerivedKeys",
    "DirectoryObjects",
    "FetcherKeys",
    "FetcherVerifier",
    "InconsistentJobEvent",
    "InvalidJobEvent",
    "JobCompleted",
    "JobEventRefused",
    "JobFailed",
    "JobResult",
    "Objects",
    "Result",
    "ResultIntegrity",
    "ResultKeyMissing",
    "ResultMalformed",
    "ResultNotAuthentic",
    "ResultNotDecryptable",
    "ResultNotFound",
    "ResultPathRefused",
    "ResultProtection",
    "ResultReader",
    "ResultTooLarge",
    "ResultUnreachable",
    "Row",
    "S3Objects",
    "StaleJobEvent",
    "StorageKeys",
    "derive_keys",
    "job_event_settings",
    "sign",
]
