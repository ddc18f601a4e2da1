"""Why a job event is not accepted: three kinds, each with its code, and a reason within it.

They are apart because what to do differs. *Invalid*: nobody who holds a key has signed this, find out who sent it.
*Stale*: authentic, and older than you want. *Inconsistent*: authentic content in a wrapping that belongs to something
else; the wrapping (`ce-*`) is not signed, so this is what a forger makes who has no key.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from inbox.errors import Unauthentic

#: What becomes of a job event before anything is inserted.
Verdict = Literal["accepted", "invalid", "stale", "inconsistent"]

InvalidReason = Literal[
    "missing-signature",
    "missing-timestamp",
    "missing-version",
    "bad-header",  # of a type that is no text, or not in UTF-8
    "bad-timestamp",
    "unsupported-version",
    "control-character",
    "signature",
]
StaleReason = Literal["too-old", "in-the-future"]
InconsistentReason = Literal[
    "body",
    "job-id",
    "status",
    "route",
    "ce-id",
    "ce-subject",
    "ce-resourcetype",
    "ce-eventtype",
    "ce-type",
    "ce-source",
    "tenant",
    "content-mode",
    "undecodable",
]


class JobEventRefused(Unauthentic):
    """A job event that is not accepted. Its code is its verdict.

    Attributes:
        reason: a stable word within the code.
    """

    verdict: ClassVar[Verdict]
    reason: str = ""

    def __init__(self, reason: str, said: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}: {said}", code=self.verdict)


class InvalidJobEvent(JobEventRefused):
    """Not authentic: no configured key has signed it as it stands here."""

    code = "invalid"
    verdict = "invalid"

    def __init__(self, reason: InvalidReason, said: str) -> None:
        super().__init__(reason, said)


class StaleJobEvent(JobEventRefused):
    """Authentic, and its time of signing is too far from now. A replay out of the quarantine is exempt."""

    code = "stale"
    verdict = "stale"

    def __init__(self, reason: StaleReason, said: str) -> None:
        super().__init__(reason, said)


class InconsistentJobEvent(JobEventRefused):
    """The signature is good, and what is not signed contradicts it, or it is meant for another tenant."""

    code = "inconsistent"
    verdict = "inconsistent"

    def __init__(self, reason: InconsistentReason, said: str) -> None:
        super().__init__(reason, said)
