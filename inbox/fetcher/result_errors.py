"""Why a stored result cannot be had.

Two of them are asked for again, and each time is an attempt: `ResultNotFound` and `ResultUnreachable`. The others are
refusals: asking again mends none of them, so the event goes to quarantine with the word in `code`, and a replay
comes to it once a person has. No message holds a path, a key or anything of the result.
"""

from __future__ import annotations

from inbox.errors import Refused, Retry

__all__ = [
    "ResultKeyMissing",
    "ResultMalformed",
    "ResultNotAuthentic",
    "ResultNotDecryptable",
    "ResultNotFound",
    "ResultPathRefused",
    "ResultTooLarge",
    "ResultUnreachable",
]


class ResultNotFound(Retry):
    """There is no such object: not yet, or its lifetime has passed."""


class ResultUnreachable(Retry):
    """The store did not answer, or not to the end, or refused: its trouble or its operator's, and not the event's.

    `RetryRule(ResultUnreachable, …)` lets a consumer outlast a longer outage.
    """


class ResultPathRefused(Refused):
    """The path that the event names is no key of an object, or would lead out of the place where results are."""

    code = "result-bad-path"


class ResultTooLarge(Refused):
    """The event says that it is larger than the limit, or more arrived than the event says."""

    code = "result-too-large"


class ResultKeyMissing(Refused):
    """It is encrypted, and the reader has no storage key."""

    code = "result-no-key"


class ResultNotDecryptable(Refused):
    """No storage key opens it: another key, or an object that was cut or changed."""

    code = "result-not-decryptable"


class ResultNotAuthentic(Refused):
    """It is not what the event vouches for: another size, another MAC, or the event has none."""

    code = "result-not-authentic"


class ResultMalformed(Refused):
    """It is authentic and no JSON of sources, tables and rows, or has another number of rows than the event says."""

    code = "result-malformed"
